//! Rows in Postgres' binary COPY format, as the stage takes them.
//!
//! A stage row is the number of its batch (negative for a tombstone) and the columns in the order of the table. Values go from the canonical
//! row into the send buffer one by one, borrowed; nothing is allocated per row. What would be changed on the way (a day outside the calendar) is
//! an error here; what the server checks itself (NUL, documents) is left to it, since the lander asked `refuse` before.

use bytes::{BufMut, BytesMut};
use landfall_schemas::store::postgres::{date, duration, element_oid, numeric as numeric_fits, time, timestamp};
use landfall_schemas::store::{Refusal, postgres};
use landfall_schemas::value::{Array, Interval};
use landfall_schemas::wire::{Reader, WireError};
use landfall_schemas::{Column, LogicalType, TableSchema, Value, row};

use super::numeric;
use crate::sink::{Batch, Delta, Error, Kind};

/// What every binary COPY begins with: signature, flags, length of the header's extension.
pub(super) const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// What it ends with.
pub(super) const TRAILER: i16 = -1;

const NULL: i32 = -1;

/// Why a delta cannot be encoded.
#[derive(Debug)]
pub(super) enum Failure {
    /// Bytes that are not a row of the target's columns.
    Wire(WireError),
    /// A value that the store cannot hold exactly, and the position of its column.
    Refused(usize, Refusal),
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

impl Failure {
    /// The error as the lander sees it: names the column, never the value.
    pub(super) fn into_error(self, schema: &TableSchema) -> Error {
        match self {
            Self::Wire(error) => Error::with(Kind::Internal, format!("a row of table {:?} is not in its columns", schema.table()), error),
            Self::Refused(at, refusal) => refused(&schema.columns()[at], refusal),
        }
    }
}

fn refused(column: &Column, refusal: Refusal) -> Error {
    Error::new(Kind::Unsupported, format!("{}: column {:?} of type {} holds a value that Postgres cannot", refusal.code(), column.name, column.ty))
}

/// Appends the stage row of a delta.
pub(super) fn put_delta(schema: &TableSchema, number: i32, delta: &Delta<'_>, out: &mut BytesMut) -> Result<(), Failure> {
    let columns = schema.columns();
    out.put_i16(columns.len() as i16 + 1);
    out.put_i32(4);
    match delta.row {
        Some(row) => {
            out.put_i32(number);
            let mut reader = Reader::new(row);
            for (at, column) in columns.iter().enumerate() {
                put(at, column.ty, &row::read(column.ty, &mut reader)?, out)?;
            }
            reader.finish()?;
        }
        None => {
            out.put_i32(-number);
            put_tombstone(schema, delta.key, out)?;
        }
    }
    Ok(())
}

/// The key columns of an absent row; the others are NULL.
fn put_tombstone(schema: &TableSchema, key: &[u8], out: &mut BytesMut) -> Result<(), Failure> {
    for (at, column) in schema.columns().iter().enumerate() {
        let Some(place) = schema.key().iter().position(|k| *k == at) else {
            out.put_i32(NULL);
            continue;
        };
        // Keys are short and mostly of one column: reading from the start costs less than remembering.
        let mut reader = Reader::new(key);
        for before in &schema.key()[..place] {
            row::skip_plain(schema.columns()[*before].ty, &mut reader)?;
        }
        put(at, column.ty, &row::read_plain(column.ty, &mut reader)?, out)?;
    }
    Ok(())
}

/// Appends one value: length, then bytes.
fn put(at: usize, ty: LogicalType, value: &Value<'_>, out: &mut BytesMut) -> Result<(), Failure> {
    let refused = |refusal| Failure::Refused(at, refusal);
    match *value {
        Value::Null => out.put_i32(NULL),
        Value::Bool(v) => {
            out.put_i32(1);
            out.put_u8(v.into());
        }
        Value::Int(v) => put_int(ty, v, out),
        Value::UInt(v) => numeric::put_u64(v, out),
        Value::Float32(v) => {
            out.put_i32(4);
            out.put_f32(v);
        }
        Value::Float64(v) => {
            out.put_i32(8);
            out.put_f64(v);
        }
        Value::Decimal(v) => {
            numeric_fits(&v).map_err(refused)?;
            numeric::put(&v, out);
        }
        Value::NotFinite(v) => numeric::put_not_finite(v, out),
        Value::Text(v) => put_bytes(v.as_bytes(), out),
        Value::Bytes(v) => put_bytes(v, out),
        Value::Json(v) => {
            out.put_i32(v.len() as i32 + 1);
            // The version of jsonb's own wire form; text follows.
            out.put_u8(1);
            out.put_slice(v.as_bytes());
        }
        Value::Uuid(v) => put_bytes(&v, out),
        Value::Date(days) => {
            out.put_i32(4);
            out.put_i32(date(days).map_err(refused)?);
        }
        Value::Time(units) => {
            out.put_i32(8);
            out.put_i64(time(ty, units).map_err(refused)?);
        }
        Value::Timestamp(units) => {
            out.put_i32(8);
            out.put_i64(timestamp(ty, units).map_err(refused)?);
        }
        Value::Duration(units) => put_interval(Interval { months: 0, days: 0, micros: duration(ty, units) }, out),
        Value::Interval(v) => put_interval(v, out),
        Value::Bits(digits) => put_bits(digits, out),
        Value::Array(v) => put_array(at, &v, out)?,
    }
    Ok(())
}

fn put_interval(v: Interval, out: &mut BytesMut) {
    out.put_i32(16);
    out.put_i64(v.micros);
    out.put_i32(v.days);
    out.put_i32(v.months);
}

/// Dimensions (none where there are no elements), whether any is NULL, the elements' type, count and first index, then each with its length.
fn put_array(at: usize, array: &Array<'_>, out: &mut BytesMut) -> Result<(), Failure> {
    let length = out.len();
    out.put_i32(0);
    out.put_i32(i32::from(array.len > 0));
    let nulls = out.len();
    out.put_i32(0);
    out.put_u32(element_oid(array.element));
    if array.len > 0 {
        out.put_i32(array.len as i32);
        out.put_i32(1);
    }
    let ty = array.element.widen();
    for value in array.values() {
        let value = value?;
        if value.is_null() {
            out[nulls..nulls + 4].copy_from_slice(&1_i32.to_be_bytes());
        }
        put(at, ty, &value, out)?;
    }
    let bytes = (out.len() - length - 4) as i32;
    out[length..length + 4].copy_from_slice(&bytes.to_be_bytes());
    Ok(())
}

/// Count of bits, then the bits, the first one the highest of its byte.
fn put_bits(digits: &str, out: &mut BytesMut) {
    out.put_i32(4 + digits.len().div_ceil(8) as i32);
    out.put_i32(digits.len() as i32);
    for byte in digits.as_bytes().chunks(8) {
        out.put_u8(byte.iter().enumerate().fold(0, |bits, (at, digit)| bits | (digit & 1) << (7 - at)));
    }
}

/// An integer in the width of its column (`postgres::column_type`); the canonical row holds it to its type's range.
fn put_int(ty: LogicalType, v: i64, out: &mut BytesMut) {
    match ty {
        LogicalType::Int8 | LogicalType::UInt8 | LogicalType::Int16 => {
            out.put_i32(2);
            out.put_i16(v as i16);
        }
        LogicalType::UInt16 | LogicalType::Int32 => {
            out.put_i32(4);
            out.put_i32(v as i32);
        }
        _ => {
            out.put_i32(8);
            out.put_i64(v);
        }
    }
}

fn put_bytes(bytes: &[u8], out: &mut BytesMut) {
    out.put_i32(bytes.len() as i32);
    out.put_slice(bytes);
}

/// After the server refused a value: looks for the first that `refuse` should have stopped, to name its column.
pub(super) fn find_refused(schema: &TableSchema, batch: &Batch) -> Option<Error> {
    batch.deltas().filter_map(|delta| delta.row).find_map(|row| {
        let values = row::values(schema.columns(), row);
        values.map_while(Result::ok).find_map(|(column, value)| Some(refused(column, postgres::refuse(column.ty, &value)?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_schemas::wire::put_long;

    fn schema() -> TableSchema {
        let column = |name: &str, ty: LogicalType| Column { name: name.to_owned(), ty, nullable: true };
        let columns = vec![column("v", LogicalType::Text), column("a", LogicalType::Int32), column("b", LogicalType::Date)];
        TableSchema::new("t", columns, &["b", "a"]).expect("valid")
    }

    /// Written by hand from the manual's description of the format (COPY, Binary Format).
    #[test]
    fn rows_and_tombstones() {
        let schema = schema();
        let mut key = Vec::new();
        put_long(&mut key, 10_958);
        put_long(&mut key, -2);
        let mut encoded = Vec::new();
        row::put(LogicalType::Text, Value::Text("é"), &mut encoded).expect("fits");
        row::put(LogicalType::Int32, Value::Int(-2), &mut encoded).expect("fits");
        row::put(LogicalType::Date, Value::Date(10_958), &mut encoded).expect("fits");
        let mut out = BytesMut::new();
        put_delta(&schema, 7, &Delta { key: &key, row: Some(&encoded), version: 1 }, &mut out).expect("encodes");
        let expected =
            [&[0, 4, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 2, 0xC3, 0xA9, 0, 0, 0, 4][..], &[0xFF, 0xFF, 0xFF, 0xFE, 0, 0, 0, 4, 0, 0, 0, 1]].concat();
        assert_eq!(out[..], expected);
        out.clear();
        put_delta(&schema, 7, &Delta { key: &key, row: None, version: 1 }, &mut out).expect("encodes");
        let expected =
            [&[0, 4, 0, 0, 0, 4, 0xFF, 0xFF, 0xFF, 0xF9, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 4][..], &[0xFF, 0xFF, 0xFF, 0xFE, 0, 0, 0, 4, 0, 0, 0, 1]]
                .concat();
        assert_eq!(out[..], expected);
    }

    #[test]
    fn what_would_change_is_an_error_that_names_the_column() {
        let schema = schema();
        let mut encoded = vec![0, 0];
        row::put(LogicalType::Date, Value::Date(i32::MAX), &mut encoded).expect("fits");
        let failure = put_delta(&schema, 1, &Delta { key: &[], row: Some(&encoded), version: 1 }, &mut BytesMut::new()).expect_err("no such day");
        let error = failure.into_error(&schema);
        assert_eq!(error.kind, Kind::Unsupported);
        assert_eq!(error.to_string(), "value.out_of_range: column \"b\" of type date holds a value that Postgres cannot");
        let failure = put_delta(&schema, 1, &Delta { key: &[], row: Some(&[0]), version: 1 }, &mut BytesMut::new()).expect_err("too short");
        assert_eq!(failure.into_error(&schema).kind, Kind::Internal);
    }
}
