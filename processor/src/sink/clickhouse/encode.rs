//! Rows into Native blocks: ClickHouse's own column format, measured as the fastest that it takes.
//!
//! A block is a count of columns and rows, then for every column its name, its type, for an `Array` where each row's elements end, for a
//! `Nullable` one a byte per value that is 1 for NULL, and the values one after the other. Deltas come as rows, so a block turns them: every column has a buffer that values are appended to,
//! borrowed for the landing and kept from block to block. Nothing is allocated per row, and a block is handed over as soon as it has [`BLOCK_BYTES`]: memory is bounded
//! whatever the batch. What a column cannot hold is an error here, never another value.

use bytes::{BufMut, BytesMut};
use landfall_schemas::decimal::{self, Decimal};
use landfall_schemas::store::Refusal;
use landfall_schemas::store::clickhouse::{ColumnType, column_type, refuse};
use landfall_schemas::wire::{Reader, WireError};
use landfall_schemas::{LogicalType, TableSchema, Value, row};

use super::sql::{DELETED, VERSION};
use crate::sink::{Delta, Error, Kind};

/// Bytes of values after which a block is complete: large enough that the server works in columns, small enough to stream.
pub(super) const BLOCK_BYTES: usize = 1 << 20;

/// Memory that blocks borrow while they are made: a process has hundreds of tables, and one lands at a time.
#[derive(Debug, Default)]
pub(super) struct Buffers(Vec<Vec<u8>>);

impl Buffers {
    /// The place of a column is the same in every landing, so its buffer has the right size for it.
    fn take(&mut self, place: usize) -> Vec<u8> {
        self.0.get_mut(place).map(std::mem::take).unwrap_or_default()
    }

    fn give_back(&mut self, place: usize, mut buffer: Vec<u8>) {
        if self.0.len() <= place {
            self.0.resize_with(place + 1, Vec::new);
        }
        // One that a huge value has grown is not kept.
        if buffer.capacity() <= 2 * BLOCK_BYTES {
            buffer.clear();
            self.0[place] = buffer;
        }
    }
}

/// A block in the making.
#[derive(Debug)]
pub(super) struct Block {
    columns: Vec<Column>,
    /// Positions of the key columns, in key order.
    key: Vec<usize>,
    versions: Vec<u8>,
    deleted: Vec<u8>,
    rows: usize,
    bytes: usize,
    scratch: String,
}

#[derive(Debug)]
struct Column {
    name: String,
    ty: LogicalType,
    column: ColumnType,
    in_key: bool,
    /// Name and type as every block carries them.
    header: Vec<u8>,
    /// Where each row's elements end, of an array.
    offsets: Vec<u8>,
    /// How many elements there are.
    elements: u64,
    /// A byte per value, 1 for NULL; empty for a key column, which is never NULL.
    nulls: Vec<u8>,
    values: Vec<u8>,
}

impl Block {
    /// An empty block for the rows of a schema.
    pub(super) fn new(schema: &TableSchema) -> Self {
        let columns = schema.columns().iter().enumerate().map(|(at, column)| {
            let in_key = schema.key().contains(&at);
            let ty = column_type(column.ty);
            let mut header = Vec::new();
            put_text(&mut header, column.name.as_bytes());
            put_text(&mut header, if in_key || !ty.is_nullable() { ty.to_string() } else { format!("Nullable({ty})") }.as_bytes());
            Column {
                name: column.name.clone(),
                ty: column.ty,
                column: ty,
                in_key,
                header,
                offsets: Vec::new(),
                elements: 0,
                nulls: Vec::new(),
                values: Vec::new(),
            }
        });
        Self {
            columns: columns.collect(),
            key: schema.key().to_vec(),
            versions: Vec::new(),
            deleted: Vec::new(),
            rows: 0,
            bytes: 0,
            scratch: String::new(),
        }
    }

    /// Whether there are no rows in it.
    pub(super) const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Whether it is time to write it.
    pub(super) const fn is_full(&self) -> bool {
        self.bytes >= BLOCK_BYTES
    }

    /// Takes memory for its columns; whatever was left in the block is gone.
    pub(super) fn take(&mut self, buffers: &mut Buffers) {
        self.clear();
        self.each_buffer(|place, buffer| *buffer = buffers.take(place));
    }

    /// Gives the memory back, with whatever is in it.
    pub(super) fn give_back(&mut self, buffers: &mut Buffers) {
        self.each_buffer(|place, buffer| buffers.give_back(place, std::mem::take(buffer)));
        self.columns.iter_mut().for_each(|c| c.elements = 0);
        (self.rows, self.bytes) = (0, 0);
    }

    fn clear(&mut self) {
        self.each_buffer(|_, buffer| buffer.clear());
        self.columns.iter_mut().for_each(|c| c.elements = 0);
        (self.rows, self.bytes) = (0, 0);
    }

    fn each_buffer(&mut self, mut act: impl FnMut(usize, &mut Vec<u8>)) {
        let own = [&mut self.versions, &mut self.deleted];
        let all = own.into_iter().chain(self.columns.iter_mut().flat_map(|c| [&mut c.offsets, &mut c.nulls, &mut c.values]));
        for (place, buffer) in all.enumerate() {
            act(place, buffer);
        }
    }

    /// Adds the state of a row identity. After an error the block holds a part of it and is to be given up.
    pub(super) fn push(&mut self, delta: Delta<'_>) -> Result<(), Error> {
        let mut reader = Reader::new(delta.key);
        for &at in &self.key {
            let column = &mut self.columns[at];
            let value = row::read_plain(column.ty, &mut reader).map_err(|e| malformed(&column.name, e))?;
            column.put(value, &mut self.scratch, &mut self.bytes)?;
        }
        reader.finish().map_err(|e| malformed("key", e))?;
        if let Some(row) = delta.row {
            let mut reader = Reader::new(row);
            for column in &mut self.columns {
                if column.in_key {
                    // The key stands for these, so that a row and its tombstone have the same identity to the last byte.
                    row::skip(column.ty, &mut reader).map_err(|e| malformed(&column.name, e))?;
                } else {
                    let value = row::read(column.ty, &mut reader).map_err(|e| malformed(&column.name, e))?;
                    column.put(value, &mut self.scratch, &mut self.bytes)?;
                }
            }
            reader.finish().map_err(|e| malformed("row", e))?;
        } else {
            for column in self.columns.iter_mut().filter(|c| !c.in_key) {
                column.put_null(&mut self.bytes);
            }
        }
        self.versions.put_u64_le(delta.version);
        self.deleted.push(u8::from(delta.row.is_none()));
        self.bytes += 9;
        self.rows += 1;
        Ok(())
    }

    /// Appends the block in Native form, and empties it.
    pub(super) fn write(&mut self, out: &mut BytesMut) {
        out.reserve(self.bytes + 64 * (self.columns.len() + 2));
        put_varint(out, self.columns.len() as u64 + 2);
        put_varint(out, self.rows as u64);
        for column in &self.columns {
            out.put_slice(&column.header);
            out.put_slice(&column.offsets);
            out.put_slice(&column.nulls);
            out.put_slice(&column.values);
        }
        put_text(out, VERSION.as_bytes());
        put_text(out, b"UInt64");
        out.put_slice(&self.versions);
        put_text(out, DELETED.as_bytes());
        put_text(out, b"UInt8");
        out.put_slice(&self.deleted);
        self.clear();
    }
}

impl Column {
    fn put_null(&mut self, bytes: &mut usize) {
        if let ColumnType::Array(_) = self.column {
            // There is no NULL of it (case DEC-13).
            self.offsets.put_u64_le(self.elements);
            *bytes += 8;
            return;
        }
        self.nulls.push(1);
        *bytes += put_filler(self.column, &mut self.values) + 1;
    }

    fn put(&mut self, value: Value<'_>, scratch: &mut String, bytes: &mut usize) -> Result<(), Error> {
        if value.is_null() {
            if self.in_key {
                return Err(Error::new(Kind::Internal, format!("key column {:?} is null", self.name)));
            }
            self.put_null(bytes);
            return Ok(());
        }
        if let Some(refusal) = refuse(self.ty, &value) {
            return Err(self.unsupported(refusal.code()));
        }
        let before = self.values.len() + self.nulls.len() + self.offsets.len();
        if let (ColumnType::Array(element), Value::Array(array)) = (self.column, value) {
            let ty = element.widen();
            let column = column_type(ty);
            for value in array.values() {
                let value = value.map_err(|e| malformed(&self.name, e))?;
                self.nulls.push(u8::from(value.is_null()));
                if value.is_null() {
                    let _ = put_filler(column, &mut self.values);
                } else {
                    put_value(column, ty, false, value, scratch, &mut self.values).map_err(|bad| self.bad(bad))?;
                }
            }
            self.elements += array.len as u64;
            self.offsets.put_u64_le(self.elements);
        } else {
            if !self.in_key {
                self.nulls.push(0);
            }
            put_value(self.column, self.ty, self.in_key, value, scratch, &mut self.values).map_err(|bad| self.bad(bad))?;
        }
        *bytes += self.values.len() + self.nulls.len() + self.offsets.len() - before;
        Ok(())
    }

    fn bad(&self, bad: Bad) -> Error {
        match bad {
            Bad::Refused(refusal) => self.unsupported(refusal.code()),
            Bad::Kind => Error::new(Kind::Internal, format!("column {:?} of type {} has a value of another type", self.name, self.ty)),
        }
    }

    fn unsupported(&self, code: &str) -> Error {
        Error::new(Kind::Unsupported, format!("a value does not fit column {:?} of type {} ({code})", self.name, self.column))
    }
}

/// Why a value is not written.
enum Bad {
    Refused(Refusal),
    Kind,
}

/// What stands in the place of a NULL: zeros of the type's width, or an empty string. Returns its bytes.
fn put_filler(column: ColumnType, out: &mut Vec<u8>) -> usize {
    let width = column.width().unwrap_or(1);
    out.put_bytes(0, width);
    width
}

/// Appends a value that is there, in the form of its column's type.
fn put_value(column: ColumnType, ty: LogicalType, in_key: bool, value: Value<'_>, scratch: &mut String, out: &mut Vec<u8>) -> Result<(), Bad> {
    match (column, value) {
        (ColumnType::Bool, Value::Bool(v)) => out.push(u8::from(v)),
        (ColumnType::Int(8) | ColumnType::UInt(8), Value::Int(v)) => out.push(v as u8),
        (ColumnType::Int(16) | ColumnType::UInt(16), Value::Int(v)) => out.put_u16_le(v as u16),
        (ColumnType::Int(32) | ColumnType::UInt(32), Value::Int(v)) => out.put_u32_le(v as u32),
        (ColumnType::Int(64), Value::Int(v) | Value::Time(v) | Value::Duration(v)) => out.put_i64_le(v),
        (ColumnType::UInt(64), Value::UInt(v)) => out.put_u64_le(v),
        (ColumnType::Float32, Value::Float32(v)) => out.put_f32_le(v),
        (ColumnType::Float64, Value::Float64(v)) => out.put_f64_le(v),
        (ColumnType::Decimal { .. }, Value::Decimal(v)) => {
            let width = column.width().expect("a decimal column has a width");
            if !put_decimal(out, v.unscaled, width) {
                return Err(Bad::Refused(Refusal::Range));
            }
        }
        (ColumnType::String, Value::Decimal(v)) => {
            scratch.clear();
            push_decimal(&v, scratch);
            // Of a key, 1.0 and 1.00 are one row; a declared scale is the same for all.
            let plain = if in_key && ty == LogicalType::Numeric { without_trailing_zeros(scratch) } else { scratch };
            put_text(out, plain.as_bytes());
        }
        (ColumnType::String, Value::Interval(v)) => {
            scratch.clear();
            v.write_iso(scratch);
            put_text(out, scratch.as_bytes());
        }
        (ColumnType::String, Value::Text(v) | Value::Json(v) | Value::Bits(v)) => put_text(out, v.as_bytes()),
        (ColumnType::String, Value::Bytes(v)) => put_text(out, v),
        (ColumnType::Uuid, Value::Uuid(v)) => {
            // Two little-endian halves, the high one first.
            let (high, low) = v.split_at(8);
            out.extend(high.iter().rev());
            out.extend(low.iter().rev());
        }
        (ColumnType::Date32, Value::Date(v)) => out.put_i32_le(v),
        (ColumnType::DateTime64(_), Value::Timestamp(v)) => out.put_i64_le(v),
        _ => return Err(Bad::Kind),
    }
    Ok(())
}

fn malformed(what: &str, error: WireError) -> Error {
    Error::with(Kind::Internal, format!("a row of the batch cannot be read at {what:?}"), error)
}

fn put_varint(out: &mut impl BufMut, mut v: u64) {
    while v >= 0x80 {
        out.put_u8(v as u8 | 0x80);
        v >>= 7;
    }
    out.put_u8(v as u8);
}

fn put_text(out: &mut impl BufMut, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.put_slice(bytes);
}

/// Appends big-endian two's complement as little-endian of a fixed width; false where it does not fit.
fn put_decimal(out: &mut Vec<u8>, unscaled: &[u8], width: usize) -> bool {
    let digits = decimal::minimal(unscaled);
    if digits.len() > width {
        return false;
    }
    let fill = if digits[0] & 0x80 == 0 { 0 } else { 0xFF };
    out.extend(digits.iter().rev());
    out.put_bytes(fill, width - digits.len());
    true
}

/// Appends the plain text of a decimal. Up to 38 digits, which is nearly all of them, the buffer is all that it needs.
fn push_decimal(value: &Decimal<'_>, out: &mut String) {
    use std::fmt::Write as _;
    let Some(unscaled) = value.unscaled_i128() else { return value.write_text(out) };
    let scale = match usize::try_from(value.scale) {
        Ok(scale) if scale <= 38 => scale,
        _ => return value.write_text(out),
    };
    if unscaled < 0 {
        out.push('-');
    }
    let start = out.len();
    // At least one digit stands in front of the point.
    write!(out, "{:0width$}", unscaled.unsigned_abs(), width = scale + 1).expect("a string takes whatever is written");
    if scale > 0 {
        let point = start.max(out.len() - scale);
        out.insert(point, '.');
    }
}

/// The shortest plain text of the same number.
fn without_trailing_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use landfall_schemas::Column;

    use super::*;

    fn schema(columns: &[(&str, &str)], key: &[&str]) -> TableSchema {
        let columns = columns.iter().map(|(n, t)| Column { name: (*n).to_owned(), ty: t.parse().expect(t), nullable: true }).collect();
        TableSchema::new("t", columns, key).expect("a valid schema")
    }

    fn encoded(schema: &TableSchema, values: &[Value<'_>]) -> (Vec<u8>, Vec<u8>) {
        let (mut key, mut row) = (Vec::new(), Vec::new());
        for &at in schema.key() {
            row::put_plain(schema.columns()[at].ty, values[at], &mut key).expect("fits");
        }
        for (column, value) in schema.columns().iter().zip(values) {
            row::put(column.ty, *value, &mut row).expect("fits");
        }
        (key, row)
    }

    #[test]
    fn a_block_is_what_the_format_says() {
        let schema = schema(&[("v", "text"), ("id", "int16"), ("d", "decimal(4,1)")], &["id"]);
        let d = Decimal { unscaled: &[0xFE], scale: 1 };
        let (key, row) = encoded(&schema, &[Value::Text("hé"), Value::Int(-2), Value::Decimal(d)]);
        let mut block = Block::new(&schema);
        block.push(Delta { key: &key, row: Some(&row), version: 0x0102 }).expect("a row");
        block.push(Delta { key: &key, row: None, version: 3 }).expect("a tombstone");
        let mut out = BytesMut::new();
        block.write(&mut out);
        let mut expected = vec![5, 2];
        expected.extend(b"\x01v\x10Nullable(String)\x00\x01\x03h\xC3\xA9\x00");
        expected.extend(b"\x02id\x05Int16\xFE\xFF\xFE\xFF");
        expected.extend(b"\x01d\x17Nullable(Decimal(4, 1))\x00\x01\xFE\xFF\xFF\xFF\x00\x00\x00\x00");
        expected.extend(b"\x0C__LF_VERSION\x06UInt64\x02\x01\0\0\0\0\0\0\x03\0\0\0\0\0\0\0");
        expected.extend(b"\x0C__LF_DELETED\x05UInt8\x00\x01");
        assert_eq!(out, expected);
        assert!(block.is_empty() && !block.is_full());
    }

    #[test]
    fn blocks_share_memory_and_nothing_else() {
        let schema = schema(&[("id", "int32"), ("v", "text")], &["id"]);
        let (key, row) = encoded(&schema, &[Value::Int(1), Value::Text("x")]);
        let mut buffers = Buffers::default();
        let mut seen = Vec::new();
        for _ in 0..2 {
            let mut block = Block::new(&schema);
            block.take(&mut buffers);
            block.push(Delta { key: &key, row: Some(&row), version: 1 }).expect("a row");
            let mut out = BytesMut::new();
            block.write(&mut out);
            seen.push(out);
            // A landing that failed leaves rows behind.
            block.push(Delta { key: &key, row: Some(&row), version: 1 }).expect("a row");
            block.give_back(&mut buffers);
            assert!(block.is_empty() && buffers.0.iter().all(Vec::is_empty) && buffers.0.iter().any(|b| b.capacity() > 0));
        }
        assert_eq!(seen[0], seen[1]);
    }

    #[test]
    fn decimals_fill_their_width() {
        for (unscaled, width, expected) in [
            (&[][..], 4, &[0, 0, 0, 0][..]),
            (&[0x00, 0x80], 4, &[0x80, 0, 0, 0]),
            (&[0x80], 4, &[0x80, 0xFF, 0xFF, 0xFF]),
            (&[0, 0, 0, 0, 1], 4, &[1, 0, 0, 0]),
            (&[0x12, 0x34, 0x56, 0x78], 4, &[0x78, 0x56, 0x34, 0x12]),
        ] {
            let mut out = Vec::new();
            assert!(put_decimal(&mut out, unscaled, width));
            assert_eq!(out, expected);
        }
        assert!(!put_decimal(&mut Vec::new(), &[1, 0, 0, 0, 0], 4));
    }

    #[test]
    fn decimal_text_keeps_every_digit() {
        let text = |v: i128, scale| {
            let (mut bytes, mut out) = (Vec::new(), String::new());
            decimal::push_i128(&mut bytes, v);
            push_decimal(&Decimal { unscaled: &bytes, scale }, &mut out);
            out
        };
        assert_eq!(text(0, 0), "0");
        assert_eq!(text(0, 3), "0.000");
        assert_eq!(text(-5, 2), "-0.05");
        assert_eq!(text(110, 2), "1.10");
        assert_eq!(text(12, -3), "12000");
        assert_eq!(text(i128::MIN, 0), "-170141183460469231731687303715884105728");
        assert_eq!(text(1, 40), format!("0.{}1", "0".repeat(39)));
        assert_eq!(without_trailing_zeros("1.10"), "1.1");
        assert_eq!(without_trailing_zeros("0.000"), "0");
        assert_eq!(without_trailing_zeros("100"), "100");
    }

    #[test]
    fn equal_numeric_keys_are_one_identity() {
        let schema = schema(&[("id", "numeric")], &["id"]);
        let mut seen = Vec::new();
        for (unscaled, scale) in [(&[10_u8][..], 1), (&[1], 0), (&[100], 2)] {
            let (key, row) = encoded(&schema, &[Value::Decimal(Decimal { unscaled, scale })]);
            let mut block = Block::new(&schema);
            block.push(Delta { key: &key, row: Some(&row), version: 1 }).expect("a row");
            let mut out = BytesMut::new();
            block.write(&mut out);
            seen.push(out);
        }
        assert!(seen[0] == seen[1] && seen[1] == seen[2]);
    }

    #[test]
    fn what_the_store_cannot_hold_is_an_error_that_names_the_column() {
        let schema = schema(&[("id", "int32"), ("day", "date")], &["id"]);
        let (key, row) = encoded(&schema, &[Value::Int(1), Value::Date(i32::MAX)]);
        let mut block = Block::new(&schema);
        let error = block.push(Delta { key: &key, row: Some(&row), version: 1 }).expect_err("out of range");
        assert_eq!(error.kind, Kind::Unsupported);
        assert!(error.detail.contains("\"day\"") && !error.detail.contains("2147483647"));
    }

    #[test]
    fn a_row_of_other_columns_is_no_row() {
        let narrow = schema(&[("id", "int32")], &["id"]);
        let wide = schema(&[("id", "int32"), ("v", "text")], &["id"]);
        let (key, row) = encoded(&wide, &[Value::Int(1), Value::Text("x")]);
        assert_eq!(Block::new(&narrow).push(Delta { key: &key, row: Some(&row), version: 1 }).expect_err("too long").kind, Kind::Internal);
    }
}
