//! The demo's source database: three tables of a shop, their history as Debezium writes it, and the rows that must come out of it.
//!
//! The history is made by a seeded script, the same every time, and the rows are kept in plain maps beside it: what the replicas are compared
//! with shares nothing with the way that landed them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// What Debezium sends for a large value that an update did not touch.
const UNCHANGED: &str = "__debezium_unavailable_value";
/// 2026-11-01T08:00:00Z, when the shop opens.
const OPENING_MICROS: i64 = 1_793_520_000_000_000;
/// WAL position of the snapshot.
const SNAPSHOT_LSN: u64 = 0x0100_0000;
const CUSTOMERS: i64 = 1_200;
const PRODUCTS: i64 = 300;
const ORDERS: i64 = 4_000;

/// One record of a topic.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) topic: &'static str,
    pub(super) key: String,
    pub(super) value: Option<String>,
}

/// A table with the rows that must come out, each column as text in the order of the columns.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) topic: &'static str,
    pub(super) name: &'static str,
    pub(super) key: &'static str,
    columns: &'static [(&'static str, Kind)],
    pub(super) rows: BTreeMap<i64, Vec<Option<String>>>,
    schema: String,
    key_schema: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int,
    Text,
    Money,
    Instant,
}

/// A story that the closing screen tells.
#[derive(Clone, Debug)]
pub(super) struct Story {
    /// The order that was updated: its id, and its status before and after.
    pub(super) updated: (i64, &'static str, &'static str),
    /// The order that was deleted.
    pub(super) deleted: i64,
    /// The customer whose key changed: before, after.
    pub(super) moved: (i64, i64),
    /// The product whose large text was not sent by its update, and the length of that text.
    pub(super) kept: (i64, usize),
}

/// The whole history.
#[derive(Debug)]
pub(super) struct Shop {
    pub(super) tables: [Table; 3],
    pub(super) records: Vec<Record>,
    pub(super) story: Story,
    lsn: u64,
    micros: i64,
    state: u64,
}

impl Table {
    fn new(name: &'static str, topic: &'static str, columns: &'static [(&'static str, Kind)]) -> Self {
        let field = |(name, kind): &(&str, Kind)| {
            let optional = *name != columns[0].0;
            let mut field = match kind {
                Kind::Int => json!({"type": "int64"}),
                Kind::Text => json!({"type": "string"}),
                Kind::Money => json!({"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1,
                    "parameters": {"scale": "2", "connect.decimal.precision": "12"}}),
                Kind::Instant => json!({"type": "string", "name": "io.debezium.time.ZonedTimestamp", "version": 1}),
            };
            field["optional"] = optional.into();
            field["field"] = (*name).into();
            field
        };
        let fields: Vec<Value> = columns.iter().map(field).collect();
        let row = |name: &str| json!({"type": "struct", "optional": true, "field": name, "fields": fields});
        let text = |name: &str, optional: bool| json!({"type": "string", "optional": optional, "field": name});
        let source = json!({"type": "struct", "optional": false, "field": "source", "name": "io.debezium.connector.postgresql.Source", "fields": [
            text("version", false), text("connector", false), text("name", false), {"type": "int64", "optional": false, "field": "ts_ms"},
            text("snapshot", true), text("db", false), text("sequence", true), text("schema", false), text("table", false),
            {"type": "int64", "optional": true, "field": "txId"}, {"type": "int64", "optional": true, "field": "lsn"}]});
        let envelope = json!({"type": "struct", "optional": false, "name": format!("{topic}.Envelope"), "fields": [
            row("before"), row("after"), source, text("op", false), {"type": "int64", "optional": true, "field": "ts_ms"}]});
        let key = json!({"type": "struct", "optional": false, "name": format!("{topic}.Key"), "fields": [fields[0]]});
        Self { topic, name, key: columns[0].0, columns, rows: BTreeMap::new(), schema: envelope.to_string(), key_schema: key.to_string() }
    }

    /// The columns as an expression list that gives the same texts as [`Self::rows`].
    pub(super) fn expressions(&self) -> String {
        let expression = |(name, kind): &(&str, Kind)| match kind {
            Kind::Instant => format!("epoch_us({name})::VARCHAR"),
            _ => format!("{name}::VARCHAR"),
        };
        self.columns.iter().map(expression).collect::<Vec<_>>().join(", ")
    }

    fn document(&self, row: &[Option<String>], unsent: Option<usize>) -> Value {
        let mut object = serde_json::Map::new();
        for (i, ((name, kind), value)) in self.columns.iter().zip(row).enumerate() {
            let value = match (value, kind) {
                _ if unsent == Some(i) => UNCHANGED.into(),
                (None, _) => Value::Null,
                (Some(v), Kind::Int) => v.parse::<i64>().unwrap_or_default().into(),
                (Some(v), Kind::Text) => v.as_str().into(),
                (Some(v), Kind::Money) => unscaled(v).into(),
                (Some(v), Kind::Instant) => instant(v.parse().unwrap_or_default()).into(),
            };
            let _ = object.insert((*name).to_owned(), value);
        }
        Value::Object(object)
    }

    fn key_document(&self, id: i64) -> String {
        format!("{{\"schema\":{},\"payload\":{{\"{}\":{id}}}}}", self.key_schema, self.key)
    }
}

/// A decimal as Connect writes it: base64 of the unscaled integer.
fn unscaled(text: &str) -> String {
    use base64::Engine as _;
    let cents: i64 = text.replace('.', "").parse().unwrap_or_default();
    let bytes = cents.to_be_bytes();
    base64::engine::general_purpose::STANDARD.encode(landfall_schemas::decimal::minimal(&bytes))
}

fn instant(micros: i64) -> String {
    let mut text = String::new();
    landfall_schemas::Value::Timestamp(micros).write_text(landfall_schemas::LogicalType::TimestampTz { digits: 6 }, &mut text);
    text
}

impl Shop {
    /// Runs the script.
    pub(super) fn open() -> Self {
        let customers = Table::new(
            "customers",
            "shop.public.customers",
            &[("id", Kind::Int), ("name", Kind::Text), ("city", Kind::Text), ("since", Kind::Instant)],
        );
        let products = Table::new(
            "products",
            "shop.public.products",
            &[("id", Kind::Int), ("title", Kind::Text), ("price", Kind::Money), ("stock", Kind::Int), ("manual", Kind::Text)],
        );
        let orders = Table::new(
            "orders",
            "shop.public.orders",
            &[("id", Kind::Int), ("customer_id", Kind::Int), ("status", Kind::Text), ("total", Kind::Money), ("placed_at", Kind::Instant)],
        );
        let story = Story { updated: (42, "", ""), deleted: 77, moved: (7, 70_007), kept: (5, 0) };
        let mut shop =
            Self { tables: [customers, products, orders], records: Vec::new(), story, lsn: SNAPSHOT_LSN, micros: OPENING_MICROS, state: 0x5EED };
        shop.snapshot();
        shop.trade();
        shop.tell();
        shop
    }

    fn below(&mut self, n: u64) -> i64 {
        // xorshift64*: seeded, so that every demo shows the same.
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).rem_euclid(n).cast_signed()
    }

    fn snapshot(&mut self) {
        const CITIES: [&str; 6] = ["Győr", "København", "Łódź", "Lisboa", "Zürich", "東京"];
        for id in 1..=CUSTOMERS {
            let city = CITIES[self.below(6).cast_unsigned() as usize];
            let since = (OPENING_MICROS - self.below(90_000_000) * 1_000_000).to_string();
            self.write(0, id, vec![Some(id.to_string()), Some(format!("Customer {id}")), Some(city.to_owned()), Some(since)], Op::Read);
        }
        for id in 1..=PRODUCTS {
            let price = format!("{}.{:02}", 1 + self.below(500), self.below(100));
            let manual = format!("How to use product {id}. ").repeat(40 + self.below(80).cast_unsigned() as usize);
            let stock = self.below(900).to_string();
            self.write(1, id, vec![Some(id.to_string()), Some(format!("Product {id}")), Some(price), Some(stock), Some(manual)], Op::Read);
        }
    }

    fn trade(&mut self) {
        for id in 1..=ORDERS {
            let customer = Some((1 + self.below(CUSTOMERS.cast_unsigned())).to_string());
            let total = format!("{}.{:02}", self.below(2_000), self.below(100));
            let placed = Some((self.micros + 1).to_string());
            self.write(2, id, vec![Some(id.to_string()), customer, Some("placed".to_owned()), Some(total), placed], Op::Create);
            if id == 1_000 {
                self.poison();
            }
            // Something happens to an order of before, to a product, and now and then to a customer.
            let earlier = 1 + self.below(id.cast_unsigned());
            match self.below(10) {
                0..=5 => {
                    let status = ["paid", "sent", "arrived", "returned"][self.below(4).cast_unsigned() as usize];
                    self.change(2, earlier, 2, status);
                }
                6 => self.delete(2, earlier),
                _ => {}
            }
            if id % 3 == 0 {
                let (product, stock) = (1 + self.below(PRODUCTS.cast_unsigned()), self.below(900).to_string());
                self.change(1, product, 3, &stock);
            }
        }
    }

    /// What the closing screen shows: known keys, whatever the script did to them before.
    fn tell(&mut self) {
        let placed = |id: i64| {
            vec![Some(id.to_string()), Some("1".to_owned()), Some("placed".to_owned()), Some("99.90".to_owned()), Some(OPENING_MICROS.to_string())]
        };
        for id in [self.story.updated.0, self.story.deleted] {
            if !self.tables[2].rows.contains_key(&id) {
                self.write(2, id, placed(id), Op::Create);
            }
        }
        self.change(2, self.story.updated.0, 2, "paid");
        self.change(2, self.story.updated.0, 2, "arrived");
        self.story.updated = (self.story.updated.0, "paid", "arrived");
        self.delete(2, self.story.deleted);
        self.change(1, self.story.kept.0, 3, "12");
        self.story.kept.1 = self.tables[1].rows[&self.story.kept.0][4].as_ref().map_or(0, String::len);
        // A new key is a delete of the old one and a create of the new one, in one transaction.
        let (old, new) = self.story.moved;
        let mut row = self.tables[0].rows[&old].clone();
        self.delete(0, old);
        row[0] = Some(new.to_string());
        self.write(0, new, row, Op::Create);
    }

    fn change(&mut self, table: usize, id: i64, column: usize, value: &str) {
        let Some(mut row) = self.tables[table].rows.get(&id).cloned() else { return };
        row[column] = Some(value.to_owned());
        self.write(table, id, row, Op::Update);
    }

    fn poison(&mut self) {
        let table = &self.tables[2];
        let value = format!("{{\"schema\":{},\"payload\":{{\"op\":\"c\",\"after\":{{\"id\":13", table.schema);
        self.records.push(Record { topic: table.topic, key: table.key_document(13), value: Some(value) });
    }

    fn write(&mut self, table: usize, id: i64, row: Vec<Option<String>>, op: Op) {
        // A large text that an update does not touch is not sent: Postgres keeps it out of line and logs no copy.
        let unsent = (table == 1 && op == Op::Update).then_some(4);
        let after = self.tables[table].document(&row, unsent);
        self.emit(table, id, op, after);
        let _ = self.tables[table].rows.insert(id, row);
    }

    fn delete(&mut self, table: usize, id: i64) {
        if self.tables[table].rows.remove(&id).is_some() {
            self.emit(table, id, Op::Delete, Value::Null);
            let table = &self.tables[table];
            self.records.push(Record { topic: table.topic, key: table.key_document(id), value: None });
        }
    }

    fn emit(&mut self, table: usize, id: i64, op: Op, after: Value) {
        let table = &self.tables[table];
        let commit = self.lsn;
        if op != Op::Read {
            self.lsn += 0x60;
        }
        self.micros += 250_000;
        let before = if op == Op::Delete { json!({ table.key: id }) } else { Value::Null };
        let (snapshot, sequence) = match op {
            Op::Read => ("true", format!("[null,\"{}\"]", self.lsn)),
            _ => ("false", format!("[\"{commit}\",\"{}\"]", self.lsn)),
        };
        let ms = self.micros / 1000;
        let payload = json!({
            "before": before, "after": after, "op": op.letter(), "ts_ms": ms,
            "source": {"version": "3.6.1.Final", "connector": "postgresql", "name": "shop", "ts_ms": ms, "snapshot": snapshot, "db": "shop",
                "sequence": sequence, "schema": "public", "table": table.name, "txId": self.lsn / 0x60, "lsn": self.lsn},
        });
        let value = format!("{{\"schema\":{},\"payload\":{payload}}}", table.schema);
        self.records.push(Record { topic: table.topic, key: table.key_document(id), value: Some(value) });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Read,
    Create,
    Update,
    Delete,
}

impl Op {
    const fn letter(self) -> &'static str {
        match self {
            Self::Read => "r",
            Self::Create => "c",
            Self::Update => "u",
            Self::Delete => "d",
        }
    }
}
