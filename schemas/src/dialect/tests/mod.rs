//! Tests of the dialect: captured events against what their databases hold, and the hard cases. Bytes that nobody would send are in `tests/src/fuzz`.
//!
//! The fixtures are records that real connectors wrote, and beside them the rows of the source as the database's own text.

mod avro;
mod cases;
mod golden;
mod inference;
mod mongodb;
mod plain;
mod protobuf;
mod rules;
mod shapes;
mod source_rows;

use std::collections::BTreeMap;

use super::*;
use crate::row;
use crate::{Sequence, capture, wire};

/// The records of a fixture file.
fn records(file: &str) -> Vec<capture::Record> {
    let path = format!("{}/../tests/fixtures/debezium/{file}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.lines().map(|line| capture::Record::parse(line).expect(file)).collect()
}

/// Those of one table, in the order of their offsets.
fn records_of(file: &str, table: &str) -> Vec<capture::Record> {
    // These topics hold all tables.
    if file.starts_with("maxwell") || file.starts_with("canal") {
        return records(file);
    }
    let suffix = format!(".{table}");
    let mut found: Vec<_> = records(file).into_iter().filter(|r| r.topic.ends_with(&suffix)).collect();
    assert!(!found.is_empty(), "{file} has no table {table}");
    found.sort_by_key(|r| (r.partition, r.offset));
    found
}

/// What a fixture's registry has, by id; nothing for a fixture without one.
fn registry(file: &str) -> BTreeMap<u64, Registered> {
    if !file.ends_with("-avro") && !file.ends_with("-protobuf") {
        return BTreeMap::new();
    }
    let path = format!("{}/../tests/fixtures/debezium/{file}.schemas.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let schemas: BTreeMap<String, serde_json::Value> = serde_json::from_str(&text).expect("a map of schemas");
    let registered = |(id, schema): (String, serde_json::Value)| {
        assert_eq!(schema["references"], serde_json::json!([]));
        let (text, references) = (schema["schema"].as_str().expect("a text").to_owned(), Vec::new());
        let is_protobuf = schema["type"] == "PROTOBUF";
        let registered = if is_protobuf { Registered::Protobuf { text, references } } else { Registered::Avro { text, references } };
        (id.parse().expect("an id"), registered)
    };
    schemas.into_iter().map(registered).collect()
}

/// Brings a decoder what a record wants of a registry.
fn bring(decoder: &mut Decoder, registry: &BTreeMap<u64, Registered>, record: &Record<'_>) {
    while let Some(id) = decoder.wanted(record) {
        decoder.bring(id, registry.get(&id).unwrap_or(&Registered::Unknown));
    }
}

fn input(record: &capture::Record) -> Record<'_> {
    Record { offset: record.offset, key: record.key.as_deref(), value: record.value.as_deref(), headers: Some(record), timestamp: None }
}

/// A decoded change that owns what it says, as text.
#[derive(Clone, Debug, PartialEq)]
struct Said {
    op: Op,
    key: Vec<u8>,
    sequence: Option<Vec<u8>>,
    snapshot: Option<i64>,
    event_time: Option<i64>,
    /// Columns of `after` that were sent: NULL is `None`.
    after: BTreeMap<String, Option<String>>,
    unauthored: Vec<String>,
    before: Option<BTreeMap<String, Option<String>>>,
    key_values: Vec<String>,
    schema: Arc<TableSchema>,
    encoded: Vec<u8>,
}

fn row_text(schema: &TableSchema, row: &[u8]) -> BTreeMap<String, Option<String>> {
    let values = row::values(schema.columns(), row).map(|v| v.expect("well formed"));
    let text = |(column, value): (&crate::Column, crate::Value<'_>)| {
        let mut text = String::new();
        value.write_text(column.ty, &mut text);
        (column.name.clone(), (!value.is_null()).then_some(text))
    };
    values.map(text).collect()
}

impl Said {
    fn of(keyed: &Keyed<'_>, changes: &Changes<'_>) -> Self {
        let schema = changes.schema;
        let change = &keyed.change;
        let mut encoded = Vec::new();
        change.encode(changes.fingerprint, &mut encoded);
        let (_, body) = crate::change::split_fingerprint(&encoded).expect("ours");
        assert_eq!(Change::decode(schema, body).as_ref(), Ok(change), "every change must go in and come out");
        let mut after = change.after.map(|row| row_text(schema, row)).unwrap_or_default();
        let unauthored: Vec<String> = change.unauthored.iter().map(|i| schema.columns()[i].name.clone()).collect();
        for name in &unauthored {
            assert_eq!(after.remove(name), Some(None), "what was not sent holds no value");
        }
        let mut reader = wire::Reader::new(change.key.unwrap_or_default());
        let key_text = |c: &crate::Column| {
            let mut text = String::new();
            row::read_plain(c.ty, &mut reader).expect("well formed").write_text(c.ty, &mut text);
            text
        };
        Self {
            op: change.op,
            key: keyed.key.unwrap_or_default().to_vec(),
            sequence: change.sequence.map(<[u8]>::to_vec),
            snapshot: change.snapshot,
            event_time: change.event_time,
            after,
            unauthored,
            before: change.before.map(|row| row_text(schema, row)),
            key_values: if change.key.is_some() { schema.key_columns().map(key_text).collect() } else { Vec::new() },
            schema: Arc::clone(schema),
            encoded,
        }
    }

    fn sequence_text(&self) -> String {
        Sequence::from_bytes(self.sequence.as_deref().unwrap_or_default()).to_string()
    }
}

/// What a record says, or why it is rejected.
fn say(decoder: &mut Decoder, record: Record<'_>) -> Result<Vec<Said>, Reject> {
    Ok(match decoder.decode(record)? {
        Decoded::Changes(changes) => {
            let mut said = Vec::new();
            let take = |ordinal, keyed: &Keyed<'_>| -> Result<(), Reject> {
                assert_eq!(said.len(), ordinal as usize);
                said.push(Said::of(keyed, &changes));
                Ok(())
            };
            changes.each(take)?;
            said
        }
        Decoded::Ignored(_) => Vec::new(),
    })
}

/// The one change of a record given as text.
fn one(decoder: &mut Decoder, key: &str, value: &str) -> Result<Said, Reject> {
    let mut said = say(decoder, Record { offset: 0, key: Some(key.as_bytes()), value: Some(value.as_bytes()), ..Record::default() })?;
    assert_eq!(said.len(), 1);
    Ok(said.remove(0))
}

/// A decoder for records without a schema part, ordered by offset.
fn declared(types: &[(&str, &str)]) -> Decoder {
    let types = types.iter().map(|(name, ty)| ((*name).to_owned(), ty.parse().expect(ty))).collect();
    Decoder::new(Options { types, order: Order::Offset, ..Options::new("t") })
}
