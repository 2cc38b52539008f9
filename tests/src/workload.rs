//! A seeded workload in the shape of real Debezium events, and the source database that it comes from.
//!
//! Records are byte for byte what the Postgres connector with JSON converters and schemas writes (compare `fixtures/pg-ops-json-schema`):
//! a first snapshot, then transactions whose LSNs rise, deletes with and without a tombstone and tombstones alone, key changes with their
//! headers, values that were not sent, a connector that sends again after a restart, and poison. Key and order of the records decide
//! everything; the model of the source only makes them plausible and is no oracle (`reference` is).

use std::collections::{BTreeMap, VecDeque};

use landfall::log::murmur2;
use landfall_schemas::{LogicalType, key};
use serde_json::{Value, json};

use crate::harness::kafka::Record;
use crate::harness::rng::Rng;
use crate::harness::stores::{Column, Kind, columns};

/// What Debezium sends for a large value that did not change.
pub const PLACEHOLDER: &str = "__debezium_unavailable_value";
/// The table that has all the trouble.
pub const ORDERS: &str = "orders";
/// The table beside it, which has none.
pub const CUSTOMERS: &str = "customers";
/// Keys that get half of all changes.
const HOT: i64 = 12;
/// Keys of the rest.
const COLD: i64 = 260;
/// How many records a connector keeps for sending again.
const MEMORY: usize = 400;

/// How often what happens, in percent of the changes to `orders` that could be so.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Changes of a live key that delete it.
    pub deletes: u64,
    /// Deletes that a tombstone alone tells.
    pub tombstone_only: u64,
    /// Deletes that a `d` alone tells.
    pub delete_only: u64,
    /// Changes of a live key that give it another key.
    pub key_changes: u64,
    /// Key changes that leave the large column unsent; both keys are then in one partition of the log, where its value can be found.
    pub unsent_moves: u64,
    /// Updates that leave the large column unsent.
    pub unauthored: u64,
    /// Changes of any key that insert one that was there before, where there is one.
    pub reinserts: u64,
    /// Transactions after which a poison record follows.
    pub poison: u64,
    /// Transactions after which the connector restarts and sends again.
    pub restarts: u64,
    /// Deletes after which a row of an incremental snapshot arrives that was read before them.
    pub late_reads: u64,
    /// Updates that put a row back to what it was before its last change, as a switch that is turned on and off again does.
    pub reverts: u64,
    /// Share of changes that go to the hot keys.
    pub hot: u64,
}

impl Mix {
    /// The mix of the kill test.
    pub const KILL: Self = Self {
        deletes: 24,
        tombstone_only: 20,
        delete_only: 20,
        key_changes: 7,
        unsent_moves: 50,
        unauthored: 16,
        reinserts: 10,
        poison: 2,
        restarts: 2,
        late_reads: 8,
        reverts: 6,
        hot: 50,
    };
    /// Nothing but inserts and updates.
    pub const CALM: Self = Self {
        deletes: 0,
        tombstone_only: 0,
        delete_only: 0,
        key_changes: 0,
        unsent_moves: 0,
        unauthored: 0,
        reinserts: 0,
        poison: 0,
        restarts: 0,
        late_reads: 0,
        reverts: 0,
        hot: 50,
    };
}

/// What was generated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Changes of `orders`: rows inserted, updated, deleted, moved to another key.
    pub changes: u64,
    /// Of them, deletes.
    pub deletes: u64,
    /// Of them, inserts of a key that was there before.
    pub reinserts: u64,
    /// Of them, key changes.
    pub key_changes: u64,
    /// Of those, with the large column unsent.
    pub unsent_moves: u64,
    /// Updates with the large column unsent.
    pub unauthored: u64,
    /// Of them, updates that put a row back to what it was before.
    pub reverts: u64,
    /// Poison records.
    pub poison: u64,
    /// Records sent again.
    pub repeats: u64,
}

#[derive(Clone, Debug)]
struct Order {
    note: Option<String>,
    cents: i64,
    micros: i64,
    active: bool,
    body: String,
}

/// The source database and its connector.
#[derive(Debug)]
pub struct Workload {
    prefix: String,
    rng: Rng,
    mix: Mix,
    live: BTreeMap<i64, Order>,
    /// What live rows were before their last update.
    before: BTreeMap<i64, Order>,
    gone: Vec<i64>,
    customers: i64,
    lsn: u64,
    commit: Option<u64>,
    transaction: u64,
    runs: u32,
    sent: VecDeque<Record>,
    tally: Tally,
    unique: u64,
}

/// Columns of `orders`, as replicas show them.
pub fn order_columns() -> Vec<Column> {
    columns(&[
        ("id", Kind::Int),
        ("note", Kind::Text),
        ("amount", Kind::Decimal(2)),
        ("changed_at", Kind::TimestampTz),
        ("active", Kind::Bool),
        ("body", Kind::Text),
    ])
}

/// Columns of `customers`.
pub fn customer_columns() -> Vec<Column> {
    columns(&[("id", Kind::Int), ("name", Kind::Text)])
}

fn field(ty: &str, optional: bool, name: &str) -> Value {
    json!({"type": ty, "optional": optional, "field": name})
}

/// The row's part of the Connect schema.
fn row_fields(table: &str) -> Value {
    if table == CUSTOMERS {
        return json!([field("int32", false, "id"), field("string", true, "name")]);
    }
    json!([
        field("int32", false, "id"),
        field("string", true, "note"),
        {"type": "bytes", "optional": true, "name": "org.apache.kafka.connect.data.Decimal", "version": 1,
         "parameters": {"scale": "2", "connect.decimal.precision": "12"}, "field": "amount"},
        {"type": "string", "optional": true, "name": "io.debezium.time.ZonedTimestamp", "version": 1, "field": "changed_at"},
        field("boolean", true, "active"),
        field("string", true, "body"),
    ])
}

fn envelope_schema(topic: &str, table: &str) -> Value {
    let source = json!([
        field("string", false, "version"), field("string", false, "connector"), field("string", false, "name"), field("int64", false, "ts_ms"),
        {"type": "string", "optional": true, "name": "io.debezium.data.Enum", "version": 1, "default": "false", "field": "snapshot",
         "parameters": {"allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"}},
        field("string", false, "db"), field("string", true, "sequence"), field("int64", true, "ts_us"), field("int64", true, "ts_ns"),
        field("string", false, "schema"), field("string", false, "table"), field("int64", true, "txId"), field("int64", true, "lsn"),
        field("int64", true, "xmin"), field("string", true, "origin"), field("int64", true, "origin_lsn"),
    ]);
    let row = |name: &str| json!({"type": "struct", "fields": row_fields(table), "optional": true, "name": format!("{topic}.Value"), "field": name});
    let transaction = json!({"type": "struct", "optional": true, "name": "event.block", "version": 1, "field": "transaction",
        "fields": [field("string", false, "id"), field("int64", false, "total_order"), field("int64", false, "data_collection_order")]});
    json!({"type": "struct", "optional": false, "name": format!("{topic}.Envelope"), "version": 2, "fields": [
        row("before"), row("after"),
        {"type": "struct", "fields": source, "optional": false, "name": "io.debezium.connector.postgresql.Source", "version": 1, "field": "source"},
        transaction, field("string", false, "op"), field("int64", true, "ts_ms"), field("int64", true, "ts_us"), field("int64", true, "ts_ns"),
    ]})
}

/// An unscaled decimal as Connect writes it: big-endian two's complement, shortest, in base64.
fn decimal(unscaled: i64) -> String {
    let bytes = unscaled.to_be_bytes();
    let sign = if unscaled < 0 { 0xFF } else { 0 };
    let skip = (0..7).take_while(|i| bytes[*i] == sign && (bytes[i + 1] & 0x80 == sign & 0x80)).count();
    base64(&bytes[skip..])
}

/// Base64 with padding.
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let n = chunk.iter().fold(0_u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            out.push(if i <= chunk.len() { char::from(ALPHABET[(n >> (18 - 6 * i)) as usize & 63]) } else { '=' });
        }
    }
    out
}

/// An instant of the day 2024-06-01 and on, as `ZonedTimestamp` writes it.
fn instant(micros: i64) -> String {
    let (days, rest) = (micros / 86_400_000_000 % 28 + 1, micros % 86_400_000_000);
    let seconds = rest / 1_000_000;
    format!("2024-06-{days:02}T{:02}:{:02}:{:02}.{:06}Z", seconds / 3600, seconds / 60 % 60, seconds % 60, rest % 1_000_000)
}

/// The place of an event in the stream.
struct Spot {
    lsn: u64,
    snapshot: &'static str,
    order: Option<u64>,
}

impl Workload {
    /// The source of a seed, whose topics begin with the prefix.
    pub fn new(prefix: &str, seed: u64, mix: Mix) -> Self {
        Self {
            prefix: prefix.to_owned(),
            rng: Rng::new(seed),
            mix,
            live: BTreeMap::new(),
            before: BTreeMap::new(),
            gone: Vec::new(),
            customers: 0,
            lsn: 809_241_576,
            commit: None,
            transaction: 2_597,
            runs: 1,
            sent: VecDeque::new(),
            tally: Tally::default(),
            unique: 0,
        }
    }

    /// What was generated so far.
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Keys of `orders` that live in the source now.
    pub fn live_keys(&self) -> impl Iterator<Item = i64> {
        self.live.keys().copied()
    }

    /// The large text of a live key.
    pub fn body(&self, id: i64) -> &str {
        &self.live[&id].body
    }

    /// The topic of a table.
    pub fn topic(&self, table: &str) -> String {
        format!("{}.public.{table}", self.prefix)
    }

    fn fresh(&mut self) -> Order {
        self.unique += 1;
        let rng = &mut self.rng;
        let length = if rng.percent(30) { 2_000 + rng.below(600) as usize } else { 20 };
        Order {
            note: (!rng.percent(10)).then(|| format!("note {} é\"\\ \u{2028}日本", self.unique)),
            cents: rng.below(2_000_000_000) as i64 - 1_000_000_000,
            micros: (rng.below(28 * 86_400) * 1_000_000 + self.unique % 1_000_000) as i64,
            active: rng.percent(50),
            body: format!("{}-{}", self.unique, "x".repeat(length)),
        }
    }

    fn row(id: i64, order: &Order, sent: bool) -> Value {
        json!({"id": id, "note": order.note, "amount": decimal(order.cents), "changed_at": instant(order.micros), "active": order.active,
               "body": if sent { order.body.as_str() } else { PLACEHOLDER }})
    }

    fn headers(&self) -> Vec<(String, Vec<u8>)> {
        [
            ("__debezium.context.connectorLogicalName", self.prefix.clone()),
            ("__debezium.context.taskId", "0".into()),
            ("__debezium.context.connectorName", "postgresql".into()),
            ("__debezium.context.runId", format!("01a22beb-e4e2-7e33-85c0-{:012x}", self.runs)),
        ]
        .map(|(name, value)| (name.to_owned(), value.into_bytes()))
        .into()
    }

    fn key(&self, table: &str, id: i64) -> Vec<u8> {
        let schema =
            json!({"type": "struct", "fields": [field("int32", false, "id")], "optional": false, "name": format!("{}.Key", self.topic(table))});
        json!({"schema": schema, "payload": {"id": id}}).to_string().into_bytes()
    }

    fn event(&self, table: &str, id: i64, op: &str, before: Value, after: Value, spot: &Spot) -> Record {
        let topic = self.topic(table);
        let time = 1_796_033_209_630_u64 + self.transaction;
        let first = self.commit.map_or(Value::Null, |c| Value::String(c.to_string()));
        let incremental = spot.snapshot == "incremental";
        let first = if spot.snapshot == "false" || incremental { first } else { Value::Null };
        let sequence = json!([first, spot.lsn.to_string()]);
        let (own, lsn) = if incremental { (Value::Null, Value::Null) } else { (json!(self.transaction), json!(spot.lsn)) };
        let source = json!({
            "version": "3.6.1.Final", "connector": "postgresql", "name": self.prefix, "ts_ms": time, "snapshot": spot.snapshot, "db": "shop",
            "sequence": sequence.to_string(), "ts_us": time * 1_000, "ts_ns": time * 1_000_000, "schema": "public", "table": table,
            "txId": own, "lsn": lsn, "xmin": null, "origin": null, "origin_lsn": null});
        let transaction = spot.order.map_or(
            Value::Null,
            |order| json!({"id": format!("{}:{}", self.transaction, spot.lsn), "total_order": order, "data_collection_order": order}),
        );
        let payload = json!({"before": before, "after": after, "source": source, "transaction": transaction, "op": op,
            "ts_ms": time + 9, "ts_us": (time + 9) * 1_000, "ts_ns": (time + 9) * 1_000_000});
        let value = json!({"schema": envelope_schema(&topic, table), "payload": payload}).to_string().into_bytes();
        Record { key: Some(self.key(table, id)), value: Some(value), headers: self.headers(), topic, ..Record::default() }
    }

    fn tombstone(&self, id: i64) -> Record {
        Record { topic: self.topic(ORDERS), key: Some(self.key(ORDERS, id)), headers: self.headers(), ..Record::default() }
    }

    /// What a delete carries outside the key under the default replica identity: made-up values.
    fn made_up(id: i64) -> Value {
        json!({"id": id, "note": null, "amount": null, "changed_at": null, "active": null, "body": null})
    }

    /// The first snapshot of both tables: so many rows each.
    pub fn snapshot(&mut self, rows: i64) -> Vec<Record> {
        let mut out = Vec::new();
        for table in [ORDERS, CUSTOMERS] {
            for id in 1..=rows {
                let snapshot = match id {
                    1 => "first_in_data_collection",
                    _ if id == rows => "last_in_data_collection",
                    _ => "true",
                };
                let spot = Spot { lsn: self.lsn, snapshot, order: None };
                let after = if table == ORDERS {
                    let order = self.fresh();
                    let row = Self::row(id, &order, true);
                    let _ = self.live.insert(id, order);
                    row
                } else {
                    self.customers = id;
                    json!({"id": id, "name": format!("customer {id}")})
                };
                out.push(self.event(table, id, "r", Value::Null, after, &spot));
            }
        }
        self.lsn += 5_736;
        self.transaction += 17;
        out
    }

    /// Some transactions, and what follows them.
    pub fn slice(&mut self, transactions: u32) -> Vec<Record> {
        let mut out = Vec::new();
        for _ in 0..transactions {
            let mut records = Vec::new();
            self.transaction += 1;
            let changes = 1 + self.rng.below(4);
            let mut order = 0;
            for _ in 0..changes {
                self.change(&mut records, &mut order);
            }
            if self.rng.percent(20) {
                order += 1;
                self.lsn += 120;
                let id = if self.rng.percent(50) { self.rng.below(self.customers.max(1) as u64) as i64 + 1 } else { self.customers + 1 };
                let (op, spot) = (if id > self.customers { "c" } else { "u" }, Spot { lsn: self.lsn, snapshot: "false", order: Some(order) });
                self.customers = self.customers.max(id);
                let after = json!({"id": id, "name": format!("customer {id} at {}", self.lsn)});
                records.push(self.event(CUSTOMERS, id, op, Value::Null, after, &spot));
            }
            self.lsn += 96;
            self.commit = Some(self.lsn);
            for record in &records {
                self.sent.push_back(record.clone());
            }
            while self.sent.len() > MEMORY {
                let _ = self.sent.pop_front();
            }
            out.append(&mut records);
            if self.rng.percent(self.mix.poison) {
                out.push(self.poison());
            }
            if self.rng.percent(self.mix.restarts) {
                out.append(&mut self.send_again());
            }
        }
        out
    }

    fn change(&mut self, out: &mut Vec<Record>, order: &mut u64) {
        self.tally.changes += 1;
        self.lsn += 96 + 8 * self.rng.below(20);
        *order += 1;
        let spot = Spot { lsn: self.lsn, snapshot: "false", order: Some(*order) };
        if self.rng.percent(self.mix.reinserts) && !self.gone.is_empty() {
            let at = self.rng.below(self.gone.len() as u64) as usize;
            let id = self.gone[at];
            return self.insert(id, &spot, out);
        }
        let id = if self.rng.percent(self.mix.hot) { 1 + self.rng.below(HOT as u64) as i64 } else { HOT + 1 + self.rng.below(COLD as u64) as i64 };
        let Some(old) = self.live.get(&id).cloned() else {
            return self.insert(id, &spot, out);
        };
        if self.rng.percent(self.mix.deletes) {
            self.remove(id);
            self.gone.push(id);
            self.tally.deletes += 1;
            let style = self.rng.below(100);
            if style >= self.mix.tombstone_only {
                out.push(self.event(ORDERS, id, "d", Self::made_up(id), Value::Null, &spot));
            }
            if style < self.mix.tombstone_only || style >= self.mix.tombstone_only + self.mix.delete_only {
                out.push(self.tombstone(id));
            }
            if self.rng.percent(self.mix.late_reads) {
                out.push(self.late_read(id, &old));
            }
        } else if self.rng.percent(self.mix.key_changes) {
            let free = |n: &i64| !self.live.contains_key(n);
            let near = (HOT + 1..HOT + 40 * COLD).find(|n| free(n) && Self::lot(*n) == Self::lot(id));
            let near = near.filter(|_| self.rng.percent(self.mix.unsent_moves));
            let new = near.or_else(|| (HOT + 1..HOT + 2 * COLD).find(free)).unwrap_or(10_000);
            self.tally.key_changes += 1;
            self.tally.unsent_moves += u64::from(near.is_some());
            self.remove(id);
            self.gone.retain(|gone| *gone != new);
            self.gone.push(id);
            let moved = ("__debezium.newkey".to_owned(), format!("{{\"id\":{new}}}").into_bytes());
            let came = ("__debezium.oldkey".to_owned(), format!("{{\"id\":{id}}}").into_bytes());
            let mut delete = self.event(ORDERS, id, "d", Self::row(id, &old, true), Value::Null, &spot);
            let mut tombstone = self.tombstone(id);
            delete.headers.push(moved.clone());
            tombstone.headers.push(moved);
            *order += 1;
            let spot = Spot { order: Some(*order), ..spot };
            let mut create = self.event(ORDERS, new, "c", Value::Null, Self::row(new, &old, near.is_none()), &spot);
            create.headers.push(came);
            let _ = self.live.insert(new, old);
            out.extend([delete, tombstone, create]);
        } else if self.mix.reverts > 0
            && let Some(order) = self.before.get(&id).cloned()
            && self.rng.percent(self.mix.reverts)
        {
            self.tally.reverts += 1;
            out.push(self.event(ORDERS, id, "u", Value::Null, Self::row(id, &order, true), &spot));
            self.update(id, order, old);
        } else {
            let mut order = self.fresh();
            let sent = !self.rng.percent(self.mix.unauthored);
            if !sent {
                order.body.clone_from(&old.body);
                self.tally.unauthored += 1;
            }
            out.push(self.event(ORDERS, id, "u", Value::Null, Self::row(id, &order, sent), &spot));
            self.update(id, order, old);
        }
    }

    fn update(&mut self, id: i64, now: Order, before: Order) {
        let _ = self.live.insert(id, now);
        let _ = self.before.insert(id, before);
    }

    fn remove(&mut self, id: i64) {
        let _ = self.live.remove(&id);
        let _ = self.before.remove(&id);
    }

    /// Keys of one lot are in one partition of a log of up to four partitions.
    fn lot(id: i64) -> i32 {
        let mut key = Vec::new();
        key::encode(LogicalType::Int32, landfall_schemas::Value::Int(id), &mut key).expect("an integer is a key");
        murmur2::partition(&key, 12)
    }

    /// A row that an incremental snapshot read before the transaction of now, and that is sent within it: no LSN, no transaction of its own.
    fn late_read(&self, id: i64, order: &Order) -> Record {
        let spot = Spot { lsn: self.lsn, snapshot: "incremental", order: None };
        self.event(ORDERS, id, "r", Value::Null, Self::row(id, order, true), &spot)
    }

    fn insert(&mut self, id: i64, spot: &Spot, out: &mut Vec<Record>) {
        let before = self.gone.len();
        self.gone.retain(|gone| *gone != id);
        if self.gone.len() < before {
            self.tally.reinserts += 1;
        }
        let order = self.fresh();
        out.push(self.event(ORDERS, id, "c", Value::Null, Self::row(id, &order, true), spot));
        let _ = self.live.insert(id, order);
    }

    /// A record that is no change event, at the place where one of that key would stand.
    pub fn poison(&mut self) -> Record {
        self.tally.poison += 1;
        let id = 1 + self.rng.below(HOT as u64) as i64;
        let value: &[u8] = match self.rng.below(3) {
            0 => b"{\"schema\":null,\"payload\":{\"op\":\"c\",",
            1 => b"{\"hello\":\"world\"}",
            _ => b"\xFF\xFE\x00garbage",
        };
        Record {
            topic: self.topic(ORDERS),
            key: Some(self.key(ORDERS, id)),
            value: Some(value.to_vec()),
            headers: self.headers(),
            ..Record::default()
        }
    }

    /// The connector restarts from its last stored position: everything since is sent once more, at higher offsets.
    pub fn send_again(&mut self) -> Vec<Record> {
        self.runs += 1;
        let count = 1 + self.rng.below(self.sent.len().clamp(1, 60) as u64) as usize;
        let (from, headers) = (self.sent.len().saturating_sub(count), self.headers());
        let repeats: Vec<Record> = self.sent.iter().skip(from).cloned().collect();
        self.tally.repeats += repeats.len() as u64;
        let run = |mut record: Record| {
            record.headers.iter_mut().zip(&headers).for_each(|(old, new)| old.1.clone_from(&new.1));
            record
        };
        repeats.into_iter().map(run).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_what_the_kill_test_promises() {
        let mut workload = Workload::new("shop", 7, Mix::KILL);
        assert_eq!(workload.snapshot(100).len(), 200);
        let _ = workload.slice(4_000);
        let tally = workload.tally();
        let percent = |n: u64| 100.0 * n as f64 / tally.changes as f64;
        for (what, count, low, high) in [
            ("deletes", tally.deletes, 13.0, 27.0),
            ("re-inserts", tally.reinserts, 9.0, 40.0),
            ("key changes", tally.key_changes, 2.5, 8.0),
            ("key changes with an unsent text", tally.unsent_moves, 1.0, 4.5),
            ("unauthored columns", tally.unauthored, 6.0, 14.0),
            ("rows put back", tally.reverts, 1.0, 6.0),
        ] {
            assert!((low..high).contains(&percent(count)), "{what}: {:.1} %", percent(count));
        }
        assert!(tally.poison > 40 && tally.repeats > 1_000, "{tally:?}");
        println!("{tally:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_records() {
        let make = |seed| {
            let mut workload = Workload::new("shop", seed, Mix::KILL);
            let _ = workload.snapshot(10);
            workload.slice(50)
        };
        assert_eq!(make(3), make(3));
        assert_ne!(make(3), make(4));
    }

    #[test]
    fn decimals_as_connect_writes_them() {
        // Values of the captured fixtures: 1.10, 2.20, 1.50, -0.01, 0.00, 10.00 with scale 2.
        for (cents, text) in [(110, "bg=="), (220, "ANw="), (150, "AJY="), (-1, "/w=="), (0, "AA=="), (1_000, "A+g=")] {
            assert_eq!(decimal(cents), text);
        }
    }
}
