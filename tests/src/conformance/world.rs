//! What a scenario works with: values in the encoding of the log, and a replica beside a map of what its table should hold.
//!
//! A landing that is refused leaves the map alone, so one comparison at the end says whether a refusal changed anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall::sink::{Batch, Claim, Cursor, Delta, Error, Kind, Sink, Target, version};
use landfall_schemas::{Column, Decimal, LogicalType, TableSchema, Value, row};

use super::{Rows, Store};

/// Seeded randomness (SplitMix64), the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A schema of columns `name type`, in one text, and the names of its key.
pub(crate) fn schema(columns: &[(&str, &str)], key: &[&str]) -> Arc<TableSchema> {
    let columns = columns.iter().map(|(n, t)| Column { name: (*n).to_owned(), ty: t.parse().expect(t), nullable: true }).collect();
    Arc::new(TableSchema::new("conformance", columns, key).expect("a valid schema"))
}

/// A row of the schema's columns.
pub(crate) fn encode(schema: &TableSchema, values: &[Value<'_>]) -> Vec<u8> {
    assert_eq!(values.len(), schema.columns().len());
    let mut out = Vec::new();
    for (column, value) in schema.columns().iter().zip(values) {
        row::put(column.ty, *value, &mut out).expect("a value of its type");
    }
    out
}

/// The key of a row of the schema's columns.
pub(crate) fn encode_key(schema: &TableSchema, values: &[Value<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for at in schema.key() {
        row::put_plain(schema.columns()[*at].ty, values[*at], &mut out).expect("a value of its type");
    }
    out
}

/// The text of a row of the schema's columns.
fn texts(schema: &TableSchema, encoded: &[u8]) -> Vec<Option<String>> {
    row::values(schema.columns(), encoded).map(|v| text_of(v.expect("our own row"))).collect()
}

/// The text of one value; NULL has none.
pub(super) fn text_of((column, value): (&Column, Value<'_>)) -> Option<String> {
    let mut text = String::new();
    value.write_text(column.ty, &mut text);
    (!value.is_null()).then_some(text)
}

/// A replica, a sink that may land it, and what its table should hold.
pub(super) struct World {
    pub(super) sink: Box<dyn Sink>,
    pub(super) target: Target,
    pub(super) model: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A change of the plain table: id, and name and amount or nothing.
pub(super) type Plain<'a> = (i64, Option<&'a str>);

pub(super) fn plain() -> Arc<TableSchema> {
    schema(&[("id", "int64"), ("name", "text"), ("amount", "decimal(12,2)")], &["id"])
}

impl World {
    /// Opens and prepares a replica named after the scenario.
    pub(super) fn new(store: &mut Store<'_>, name: &str, schema: Arc<TableSchema>) -> Self {
        Self::named(store, &format!("store.{name}"), &format!("t_{name}"), schema)
    }

    /// Opens and prepares a replica.
    pub(super) fn named(store: &mut Store<'_>, replica: &str, table: &str, schema: Arc<TableSchema>) -> Self {
        let mut sink = (store.make)();
        let (replica, table) = (replica.to_owned(), table.to_owned());
        let opened = sink.open(&replica, &table, None).expect("opens");
        let target = Target { replica, table, generation: 1, build: opened.build, schema };
        sink.prepare(&target).expect("prepares");
        Self { sink, target, model: BTreeMap::new() }
    }

    /// The same replica in another process.
    pub(super) fn elsewhere(&self, store: &mut Store<'_>) -> Self {
        let mut sink = (store.make)();
        let opened = sink.open(&self.target.replica, &self.target.table, None).expect("opens");
        let target = Target { build: opened.build, ..self.target.clone() };
        Self { sink, target, model: self.model.clone() }
    }

    pub(super) fn claim(&mut self, partition: i32) -> Claim {
        self.sink.claim(&self.target, partition).expect("claims")
    }

    pub(super) fn cursor(&mut self, partition: i32) -> Option<Cursor> {
        self.sink.cursor(&self.target, partition).expect("reads")
    }

    /// A batch of changes at offsets from `expected` on, and what it should leave behind.
    pub(super) fn batch(&self, partition: i32, claim: Claim, next: i64, changes: &[(Vec<u8>, Option<Vec<u8>>)]) -> Batch {
        let mut batch = Batch::default();
        batch.reset(partition, claim.fence, claim.next, next);
        for (at, (key, row)) in changes.iter().enumerate() {
            let offset = claim.next.unwrap_or(0) + at as i64;
            batch.push(Delta { key, row: row.as_deref(), version: version(self.target.build, offset) });
        }
        batch
    }

    pub(super) fn plain(&self, changes: &[Plain<'_>]) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let one = |(id, name): &Plain<'_>| {
            let amount = (id * 100).to_be_bytes();
            let values = [Value::Int(*id), name.map_or(Value::Null, Value::Text), Value::Decimal(Decimal { unscaled: &amount, scale: 2 })];
            let schema = &self.target.schema;
            (encode_key(schema, &values), name.map(|_| encode(schema, &values)))
        };
        changes.iter().map(one).collect()
    }

    /// Lands changes as the owner of a claim; the model follows where it succeeds.
    pub(super) fn try_land(&mut self, partition: i32, claim: Claim, next: i64, changes: &[(Vec<u8>, Option<Vec<u8>>)]) -> Result<(), Error> {
        let batch = self.batch(partition, claim, next, changes);
        self.sink.land(&self.target, &batch)?;
        for (key, row) in changes {
            drop(match row {
                Some(row) => self.model.insert(key.clone(), row.clone()),
                None => self.model.remove(key),
            });
        }
        Ok(())
    }

    pub(super) fn land(&mut self, partition: i32, claim: &mut Claim, next: i64, changes: &[Plain<'_>]) {
        let changes = self.plain(changes);
        self.try_land(partition, *claim, next, &changes).expect("lands");
        claim.next = Some(next);
    }

    pub(super) fn check(&self, store: &mut Store<'_>) {
        assert_rows(store, &self.target, &self.model);
    }
}

pub(super) fn assert_rows(store: &mut Store<'_>, target: &Target, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let mut expected: Rows = model.values().map(|row| texts(&target.schema, row)).collect();
    // A store without NULL for a type says so; it has an empty array in its place.
    for (at, column) in target.schema.columns().iter().enumerate().filter(|(_, c)| (store.refuse)(c.ty, &Value::Null).is_some()) {
        assert!(matches!(column.ty, LogicalType::Array(_)), "{}", column.ty);
        for row in &mut expected {
            let _ = row[at].get_or_insert_with(|| "[]".to_owned());
        }
    }
    let mut found = (store.read)(target);
    expected.sort();
    found.sort();
    if expected != found {
        let strange = found.iter().find(|row| !expected.contains(row));
        let missing = expected.iter().find(|row| !found.contains(row));
        panic!("{} rows instead of {}; first missing {missing:?}; first strange {strange:?}", found.len(), expected.len());
    }
}

pub(super) fn assert_kind<T: std::fmt::Debug>(result: Result<T, Error>, kind: Kind) {
    let error = result.expect_err("must be refused");
    assert_eq!(error.kind, kind, "{error}");
    assert!(!error.to_string().is_empty());
}
