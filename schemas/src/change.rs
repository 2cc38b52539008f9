//! The canonical change and its single-object encoding.
//!
//! `C3 01`, the fingerprint of the table's contract (little endian), then the Avro body that `contract` describes. The value is a pure
//! function of the source record: processing time is the log record's timestamp, provenance its header, neither is in here. `after` stands
//! last, so a lander reads what it folds by and keeps the row's bytes as they are.

use std::fmt::Write as _;

use crate::contract::Fingerprint;
use crate::row;
use crate::sequence::Sequence;
use crate::table::{Column, ColumnSet, TableSchema};
use crate::value::Value;
use crate::wire::{Reader, WireError, put_bytes, put_long};

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// `c`: the source created the row.
    Create,
    /// `u`: the source updated it.
    Update,
    /// `d`: the source deleted it; without a sequence, a bare tombstone (law 4).
    Delete,
    /// `r`: a snapshot read it.
    Read,
    /// `t`: the source truncated the table; a mark.
    Truncate,
    /// `s`: a full snapshot ended; a mark.
    SnapshotEnd,
}

impl Op {
    /// All, in the order of the contract's enum.
    pub const ALL: [Self; 6] = [Self::Create, Self::Update, Self::Delete, Self::Read, Self::Truncate, Self::SnapshotEnd];

    /// The letter in contracts, metrics and messages.
    pub const fn letter(self) -> &'static str {
        match self {
            Self::Create => "c",
            Self::Update => "u",
            Self::Delete => "d",
            Self::Read => "r",
            Self::Truncate => "t",
            Self::SnapshotEnd => "s",
        }
    }

    /// Marks have no key and go to every partition of the log.
    pub const fn is_mark(self) -> bool {
        matches!(self, Self::Truncate | Self::SnapshotEnd)
    }
}

/// The source block: where in the source system the change happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceBlock<'a> {
    /// Kind of connector, e.g. `postgresql`.
    pub connector: &'a str,
    /// Database.
    pub database: &'a str,
    /// Schema, empty where the source has none.
    pub schema: &'a str,
    /// Table.
    pub table: &'a str,
    /// Transaction id.
    pub transaction: Option<&'a str>,
    /// Order within the transaction.
    pub transaction_order: Option<i64>,
}

/// One change, borrowed from its encoding or from what it is being made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// What happened.
    pub op: Op,
    /// Position in the source; `None` for a bare tombstone, which ranks behind the record of its key that precedes it.
    pub sequence: Option<&'a [u8]>,
    /// When it happened in the source, micros since 1970 UTC; never decides order.
    pub event_time: Option<i64>,
    /// The source block.
    pub source: SourceBlock<'a>,
    /// Id of the full snapshot that read this row, or that ended.
    pub snapshot: Option<i64>,
    /// Positions of columns whose value the source did not send.
    pub unauthored: ColumnSet,
    /// Encoded key columns, in key order, none NULL; `None` for marks.
    pub key: Option<&'a [u8]>,
    /// Where this is half of a key change, the row's key on its other side, encoded as `key` is: the new key of a delete, the former key of
    /// what created the row anew (ARCHITECTURE.md, Key change).
    pub other_key: Option<&'a [u8]>,
    /// Encoded row before, where the source gave a true one.
    pub before: Option<&'a [u8]>,
    /// Encoded row after, except for deletes and marks.
    pub after: Option<&'a [u8]>,
}

const MAGIC: [u8; 2] = [0xC3, 0x01];

/// Appends what a single-object encoding begins with: its mark and the fingerprint of its contract.
#[inline]
pub fn put_fingerprint(fingerprint: Fingerprint, out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&fingerprint.0.to_le_bytes());
}

/// The fingerprint that an encoded change names, and the body behind it.
#[inline]
pub fn split_fingerprint(value: &[u8]) -> Result<(Fingerprint, &[u8]), WireError> {
    let mut reader = Reader::new(value);
    if reader.array::<2>()? != MAGIC {
        return Err(WireError::Index);
    }
    let fingerprint = Fingerprint(u64::from_le_bytes(reader.array()?));
    Ok((fingerprint, reader.rest()))
}

impl<'a> Change<'a> {
    /// Appends the single-object encoding.
    pub fn encode(&self, fingerprint: Fingerprint, out: &mut Vec<u8>) {
        put_fingerprint(fingerprint, out);
        put_long(out, Op::ALL.iter().position(|op| *op == self.op).unwrap_or_default() as i64);
        put_optional(out, self.sequence, put_bytes);
        put_optional(out, self.event_time, put_long);
        for text in [self.source.connector, self.source.database, self.source.schema, self.source.table] {
            put_bytes(out, text.as_bytes());
        }
        put_optional(out, self.source.transaction, |out, v| put_bytes(out, v.as_bytes()));
        put_optional(out, self.source.transaction_order, put_long);
        put_optional(out, self.snapshot, put_long);
        let unauthored = self.unauthored.len();
        if unauthored > 0 {
            put_long(out, unauthored as i64);
            for column in self.unauthored.iter() {
                put_long(out, column as i64);
            }
        }
        put_long(out, 0);
        for row in [self.key, self.other_key, self.before, self.after] {
            put_optional(out, row, |out, v| out.extend_from_slice(v));
        }
    }

    /// Reads the body behind the fingerprint. Strict: every length is checked and nothing may be left over.
    pub fn decode(schema: &TableSchema, body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let op = usize::try_from(reader.long()?).ok().and_then(|i| Op::ALL.get(i)).copied().ok_or(WireError::Index)?;
        let sequence = if reader.present()? { Some(reader.bytes()?) } else { None };
        let event_time = if reader.present()? { Some(reader.long()?) } else { None };
        let source = SourceBlock {
            connector: reader.text()?,
            database: reader.text()?,
            schema: reader.text()?,
            table: reader.text()?,
            transaction: if reader.present()? { Some(reader.text()?) } else { None },
            transaction_order: if reader.present()? { Some(reader.long()?) } else { None },
        };
        let snapshot = if reader.present()? { Some(reader.long()?) } else { None };
        let unauthored = read_positions(&mut reader, schema.columns().len())?;
        let key_columns = |r: &mut Reader<'_>| schema.key_columns().try_for_each(|c| row::skip_plain(c.ty, r));
        let key = take_row(&mut reader, key_columns)?;
        let other_key = take_row(&mut reader, key_columns)?;
        let whole = |r: &mut Reader<'_>| schema.columns().iter().try_for_each(|c| row::skip(c.ty, r));
        let before = take_row(&mut reader, whole)?;
        let after = take_row(&mut reader, whole)?;
        reader.finish()?;
        Ok(Self { op, sequence, event_time, source, snapshot, unauthored, key, other_key, before, after })
    }

    /// Appends the change as one line of JSON, for people: values as canonical text where JSON would round them.
    pub fn write_json(&self, schema: &TableSchema, out: &mut String) -> Result<(), WireError> {
        write!(out, "{{\"table\":{},\"op\":\"{}\"", quoted(schema.table()), self.op.letter()).expect("a String takes every write");
        match self.sequence {
            Some(bytes) => drop(write!(out, ",\"sequence\":\"{}\"", Sequence::from_bytes(bytes))),
            None => out.push_str(",\"sequence\":null"),
        }
        if let Some(id) = self.snapshot {
            write!(out, ",\"snapshot\":{id}").expect("a String takes every write");
        }
        for (name, key) in [("key", self.key), ("other_key", self.other_key)] {
            if let Some(key) = key {
                write!(out, ",\"{name}\":").expect("a String takes every write");
                let mut reader = Reader::new(key);
                write_object(out, schema.key_columns().map(|c| row::read_plain(c.ty, &mut reader).map(|v| (c, v))))?;
            }
        }
        for (name, row) in [("before", self.before), ("after", self.after)] {
            if let Some(row) = row {
                write!(out, ",\"{name}\":").expect("a String takes every write");
                let authored = row::values(schema.columns(), row).enumerate();
                write_object(out, authored.filter(|(i, _)| name == "before" || !self.unauthored.contains(*i)).map(|(_, v)| v))?;
            }
        }
        if !self.unauthored.is_empty() {
            let names: Vec<String> = self.unauthored.iter().map(|i| quoted(&schema.columns()[i].name)).collect();
            write!(out, ",\"unauthored\":[{}]", names.join(",")).expect("a String takes every write");
        }
        if let Some(micros) = self.event_time {
            out.push_str(",\"event_time\":\"");
            Value::Timestamp(micros).write_text(crate::LogicalType::TimestampTz { digits: 6 }, out);
            out.push('"');
        }
        let s = &self.source;
        write!(
            out,
            ",\"source\":{{\"connector\":{},\"database\":{},\"schema\":{},\"table\":{}",
            quoted(s.connector),
            quoted(s.database),
            quoted(s.schema),
            quoted(s.table)
        )
        .expect("a String takes every write");
        if let Some(id) = s.transaction {
            write!(out, ",\"transaction\":{}", quoted(id)).expect("a String takes every write");
        }
        if let Some(order) = s.transaction_order {
            write!(out, ",\"transaction_order\":{order}").expect("a String takes every write");
        }
        out.push_str("}}");
        Ok(())
    }
}

fn put_optional<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        None => out.push(0),
        Some(v) => {
            out.push(2);
            put(out, v);
        }
    }
}

fn take_row<'a>(reader: &mut Reader<'a>, skip: impl FnOnce(&mut Reader<'a>) -> Result<(), WireError>) -> Result<Option<&'a [u8]>, WireError> {
    if !reader.present()? {
        return Ok(None);
    }
    let start = reader.rest();
    skip(reader)?;
    Ok(Some(&start[..start.len() - reader.rest().len()]))
}

fn read_positions(reader: &mut Reader<'_>, columns: usize) -> Result<ColumnSet, WireError> {
    let mut set = ColumnSet::new();
    loop {
        let count = reader.long()?;
        if count == 0 {
            return Ok(set);
        }
        if count < 0 {
            // A block may carry its size in bytes, which a reader that does not skip has no use for.
            let _ = reader.long()?;
        }
        for _ in 0..count.unsigned_abs() {
            let column = usize::try_from(reader.long()?).map_err(|_| WireError::Index)?;
            if column >= columns {
                return Err(WireError::Index);
            }
            set.insert(column);
        }
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn write_object<'a>(out: &mut String, values: impl Iterator<Item = Result<(&'a Column, Value<'a>), WireError>>) -> Result<(), WireError> {
    out.push('{');
    for (i, pair) in values.enumerate() {
        let (column, value) = pair?;
        if i > 0 {
            out.push(',');
        }
        write!(out, "{}:", quoted(&column.name)).expect("a String takes every write");
        value.write_json(column.ty, out);
    }
    out.push('}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract;

    fn schema() -> TableSchema {
        let column = |name: &str, ty: &str| Column { name: name.to_owned(), ty: ty.parse().expect(ty), nullable: true };
        TableSchema::new("orders", vec![column("id", "int64"), column("note", "text"), column("total", "decimal(12,2)")], &["id"]).expect("valid")
    }

    #[test]
    fn a_change_goes_in_and_comes_out() {
        let schema = schema();
        let (_, fingerprint) = contract::of(&schema);
        let sequence = Sequence::of_dialect(0, 7, 8, 0);
        let (mut key, mut former, mut after) = (Vec::new(), Vec::new(), Vec::new());
        row::put_plain(crate::LogicalType::Int64, Value::Int(5), &mut key).expect("fits");
        row::put_plain(crate::LogicalType::Int64, Value::Int(4), &mut former).expect("fits");
        row::put(crate::LogicalType::Int64, Value::Int(5), &mut after).expect("fits");
        after.extend_from_slice(&[0, 0]);
        let change = Change {
            op: Op::Update,
            sequence: Some(sequence.as_bytes()),
            event_time: Some(1),
            source: SourceBlock {
                connector: "postgresql",
                database: "d",
                schema: "public",
                table: "orders",
                transaction: Some("9"),
                transaction_order: None,
            },
            snapshot: None,
            unauthored: [1].into_iter().collect(),
            key: Some(&key),
            other_key: Some(&former),
            before: None,
            after: Some(&after),
        };
        let mut bytes = Vec::new();
        change.encode(fingerprint, &mut bytes);
        let (found, body) = split_fingerprint(&bytes).expect("single object");
        assert_eq!(found, fingerprint);
        assert_eq!(Change::decode(&schema, body).as_ref(), Ok(&change));
        for end in 0..body.len() {
            assert!(Change::decode(&schema, &body[..end]).is_err(), "{end}");
        }
        let mut line = String::new();
        change.write_json(&schema, &mut line).expect("well formed");
        let json: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(json["after"], serde_json::json!({"id": 5, "total": null}));
        assert_eq!((&json["key"], &json["other_key"]), (&serde_json::json!({"id": 5}), &serde_json::json!({"id": 4})));
        assert_eq!(json["unauthored"], serde_json::json!(["note"]));
        assert_eq!(json["sequence"], "0/7/8/0");
    }

    #[test]
    fn positions_beyond_the_columns_are_refused() {
        let schema = schema();
        let (_, fingerprint) = contract::of(&schema);
        let change = Change {
            op: Op::Truncate,
            sequence: Some(&[1]),
            event_time: None,
            source: SourceBlock::default(),
            snapshot: None,
            unauthored: [3].into_iter().collect(),
            key: None,
            other_key: None,
            before: None,
            after: None,
        };
        let mut bytes = Vec::new();
        change.encode(fingerprint, &mut bytes);
        let (_, body) = split_fingerprint(&bytes).expect("single object");
        assert_eq!(Change::decode(&schema, body), Err(WireError::Index));
    }
}
