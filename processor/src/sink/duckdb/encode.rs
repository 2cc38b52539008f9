//! Encoded rows as Arrow columns, for DuckDB's appender.
//!
//! A [`Columns`] reads rows value by value and pushes each into the buffer of its column; a full one becomes a record batch, and after it was
//! appended the buffers come back empty. So the memory is that of one chunk, whatever the size of a landing, and nothing is allocated per row.
//! Values are checked again where an unchecked one would silently become another (`store::duckdb`).

use std::io::Write as _;
use std::sync::Arc;

use duckdb::arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, ListArray, PrimitiveArray, StringArray,
    Time64MicrosecondArray, TimestampMicrosecondArray, TimestampNanosecondArray,
};
use duckdb::arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use duckdb::arrow::datatypes::{
    ArrowNativeType, ArrowPrimitiveType, DataType, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Schema, SchemaRef,
    TimeUnit, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use duckdb::arrow::error::ArrowError;
use duckdb::arrow::record_batch::RecordBatch;
use landfall_schemas::store::{Refusal, duckdb as types};
use landfall_schemas::value::Interval;
use landfall_schemas::wire::{Reader, WireError};
use landfall_schemas::{Column, Decimal, LogicalType, Value, row};

/// Rows of a chunk: eight of DuckDB's vectors, which the appender takes one by one.
const CHUNK_ROWS: usize = 16_384;
/// Bytes of values after which a chunk is full, however few rows it has.
const CHUNK_BYTES: usize = 4 << 20;

/// Why a row could not become columns. None of these is expected: rows were checked before they were folded.
#[derive(Debug, thiserror::Error)]
pub(super) enum EncodeError {
    /// The bytes are not a row of these columns.
    #[error("a row does not decode")]
    Row(#[from] WireError),
    /// A value that the column cannot hold, or of another kind than the column.
    #[error("column {column:?} cannot hold a value ({code})")]
    Value {
        /// The column.
        column: String,
        /// The refusal's code.
        code: &'static str,
    },
    /// Arrow refuses the columns.
    #[error("the columns do not make a batch")]
    Batch(#[from] ArrowError),
}

/// A chunk of rows by column.
#[derive(Debug)]
pub(super) struct Columns {
    schema: SchemaRef,
    columns: Vec<Cells>,
    /// Whether a row is a key: no unions, and numbers in the one text that all equal ones share.
    keys: bool,
    rows: usize,
    bytes: usize,
}

impl Columns {
    /// Takes whole rows in these columns.
    pub(super) fn of_rows<'a>(columns: impl Iterator<Item = &'a Column>) -> Self {
        Self::new(columns, false)
    }

    /// Takes keys in these columns.
    pub(super) fn of_keys<'a>(columns: impl Iterator<Item = &'a Column>) -> Self {
        Self::new(columns, true)
    }

    fn new<'a>(columns: impl Iterator<Item = &'a Column>, keys: bool) -> Self {
        let columns: Vec<Cells> = columns.map(|c| Cells { key: keys, ..Cells::new(c.name.clone(), c.ty) }).collect();
        let schema = Arc::new(Schema::new(columns.iter().map(Cells::field).collect::<Vec<_>>()));
        Self { schema, columns, keys, rows: 0, bytes: 0 }
    }

    /// Names the columns whose values decide which rows are equal: their numbers are written without trailing zeros.
    pub(super) fn with_key(mut self, positions: &[usize]) -> Self {
        for at in positions {
            self.columns[*at].key = true;
        }
        self
    }

    /// Adds a row.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        let mut reader = Reader::new(bytes);
        for cells in &mut self.columns {
            let value = if self.keys { row::read_plain(cells.ty, &mut reader)? } else { row::read(cells.ty, &mut reader)? };
            cells.push(value).map_err(|code| EncodeError::Value { column: cells.name.clone(), code })?;
        }
        reader.finish()?;
        self.rows += 1;
        self.bytes += bytes.len();
        Ok(())
    }

    /// True where no row was added since the last batch.
    pub(super) const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// True where the chunk should be appended before the next row.
    pub(super) const fn is_full(&self) -> bool {
        self.rows >= CHUNK_ROWS || self.bytes >= CHUNK_BYTES
    }

    /// The rows as a record batch. Call [`Self::clear`] once the batch is dropped.
    pub(super) fn batch(&mut self) -> Result<RecordBatch, EncodeError> {
        let arrays = self.columns.iter_mut().map(|c| c.array(self.rows)).collect::<Result<Vec<_>, _>>()?;
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), arrays)?)
    }

    /// Empties the chunk and takes the buffers back, after a batch or after an error in the middle of a row.
    pub(super) fn clear(&mut self) {
        self.columns.iter_mut().for_each(Cells::clear);
        (self.rows, self.bytes) = (0, 0);
    }
}

/// A vector that is lent to Arrow as a buffer and comes back with its memory when nobody else holds it.
#[derive(Debug)]
struct Lent<T> {
    values: Vec<T>,
    held: Option<Buffer>,
}

impl<T> Default for Lent<T> {
    fn default() -> Self {
        Self { values: Vec::new(), held: None }
    }
}

impl<T: ArrowNativeType> Lent<T> {
    fn lend(&mut self) -> Buffer {
        let buffer = Buffer::from_vec(std::mem::take(&mut self.values));
        self.held = Some(buffer.clone());
        buffer
    }

    fn clear(&mut self) {
        if let Some(buffer) = self.held.take() {
            self.values = buffer.into_vec().unwrap_or_default();
        }
        self.values.clear();
    }
}

/// Bits, as Arrow packs them.
#[derive(Debug, Default)]
struct Bits {
    bytes: Lent<u8>,
    len: usize,
}

impl Bits {
    fn push(&mut self, bit: bool) {
        if self.len.is_multiple_of(8) {
            self.bytes.values.push(0);
        }
        if bit && let Some(last) = self.bytes.values.last_mut() {
            *last |= 1 << (self.len % 8);
        }
        self.len += 1;
    }

    fn lend(&mut self) -> BooleanBuffer {
        BooleanBuffer::new(self.bytes.lend(), 0, self.len)
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.len = 0;
    }
}

/// The values of one column.
#[derive(Debug)]
struct Cells {
    name: String,
    ty: LogicalType,
    key: bool,
    valid: Bits,
    nulls: usize,
    data: Data,
}

#[derive(Debug)]
enum Data {
    Bool(Bits),
    I8(Lent<i8>),
    I16(Lent<i16>),
    I32(Lent<i32>),
    I64(Lent<i64>),
    U8(Lent<u8>),
    U16(Lent<u16>),
    U32(Lent<u32>),
    U64(Lent<u64>),
    F32(Lent<f32>),
    F64(Lent<f64>),
    Decimal(Lent<i128>),
    Uuid(Lent<u8>),
    Date(Lent<i32>),
    Time(Lent<i64>),
    TimestampNanos(Lent<i64>),
    Timestamp(Lent<i64>),
    TimestampTz(Lent<i64>),
    Text { ends: Lent<i32>, bytes: Lent<u8> },
    Bytes { ends: Lent<i32>, bytes: Lent<u8> },
    List { ends: Lent<i32>, elements: Box<Cells> },
}

/// Arrow's name for 16 bytes that are a UUID; DuckDB's crate knows it.
const UUID_EXTENSION: (&str, &str) = ("ARROW:extension:name", "arrow.uuid");
/// Arrow's name for the elements of a list.
const ELEMENT: &str = "item";
/// Bytes of a UUID.
const UUID_WIDTH: i32 = 16;

impl Cells {
    fn new(name: String, ty: LogicalType) -> Self {
        let text = || Data::Text { ends: Lent::default(), bytes: Lent::default() };
        let data = match ty {
            LogicalType::Bool => Data::Bool(Bits::default()),
            LogicalType::Int8 => Data::I8(Lent::default()),
            LogicalType::Int16 => Data::I16(Lent::default()),
            LogicalType::Int32 => Data::I32(Lent::default()),
            LogicalType::Int64 => Data::I64(Lent::default()),
            LogicalType::UInt8 => Data::U8(Lent::default()),
            LogicalType::UInt16 => Data::U16(Lent::default()),
            LogicalType::UInt32 => Data::U32(Lent::default()),
            LogicalType::UInt64 => Data::U64(Lent::default()),
            LogicalType::Float32 => Data::F32(Lent::default()),
            LogicalType::Float64 => Data::F64(Lent::default()),
            LogicalType::Decimal { precision, .. } if precision <= types::DECIMAL_PRECISION_MAX => Data::Decimal(Lent::default()),
            LogicalType::Uuid => Data::Uuid(Lent::default()),
            LogicalType::Date => Data::Date(Lent::default()),
            // DuckDB's crate has no Arrow type for nanos of a day; the appender casts the text.
            LogicalType::Time { .. } if ty.counts_nanos() => text(),
            LogicalType::Time { .. } => Data::Time(Lent::default()),
            LogicalType::Timestamp { .. } if ty.counts_nanos() => Data::TimestampNanos(Lent::default()),
            LogicalType::Timestamp { .. } => Data::Timestamp(Lent::default()),
            LogicalType::TimestampTz { .. } => Data::TimestampTz(Lent::default()),
            LogicalType::Bytes => Data::Bytes { ends: Lent::default(), bytes: Lent::default() },
            // A document is appended as text: a cast would not change it, and the appender makes none between the two.
            LogicalType::Text | LogicalType::Json | LogicalType::Numeric | LogicalType::Decimal { .. } => text(),
            LogicalType::Array(element) => Data::List { ends: Lent::default(), elements: Box::new(Self::new(ELEMENT.to_owned(), element.widen())) },
            // Spans and bits, too, are cast from text.
            LogicalType::Duration { .. } | LogicalType::Interval | LogicalType::Bits { .. } => text(),
        };
        let mut cells = Self { name, ty, key: false, valid: Bits::default(), nulls: 0, data };
        cells.clear();
        cells
    }

    fn field(&self) -> Field {
        let data_type = match &self.data {
            Data::Bool(_) => DataType::Boolean,
            Data::I8(_) => DataType::Int8,
            Data::I16(_) => DataType::Int16,
            Data::I32(_) => DataType::Int32,
            Data::I64(_) => DataType::Int64,
            Data::U8(_) => DataType::UInt8,
            Data::U16(_) => DataType::UInt16,
            Data::U32(_) => DataType::UInt32,
            Data::U64(_) => DataType::UInt64,
            Data::F32(_) => DataType::Float32,
            Data::F64(_) => DataType::Float64,
            Data::Decimal(_) => {
                let (precision, scale) = self.decimal();
                DataType::Decimal128(precision, scale)
            }
            Data::Uuid(_) => DataType::FixedSizeBinary(UUID_WIDTH),
            Data::Date(_) => DataType::Date32,
            Data::Time(_) => DataType::Time64(TimeUnit::Microsecond),
            Data::TimestampNanos(_) => DataType::Timestamp(TimeUnit::Nanosecond, None),
            Data::Timestamp(_) => DataType::Timestamp(TimeUnit::Microsecond, None),
            Data::TimestampTz(_) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Data::Text { .. } => DataType::Utf8,
            Data::Bytes { .. } => DataType::Binary,
            Data::List { elements, .. } => DataType::List(Arc::new(elements.field())),
        };
        let field = Field::new(&self.name, data_type, true);
        if matches!(self.data, Data::Uuid(_)) {
            return field.with_metadata([UUID_EXTENSION].into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect());
        }
        field
    }

    const fn decimal(&self) -> (u8, i8) {
        match self.ty {
            LogicalType::Decimal { precision, scale } => (precision as u8, scale as i8),
            _ => (types::DECIMAL_PRECISION_MAX as u8, 0),
        }
    }

    fn push(&mut self, value: Value<'_>) -> Result<(), &'static str> {
        let present = !value.is_null();
        self.valid.push(present);
        if !present {
            self.nulls += 1;
            self.push_filler();
            return Ok(());
        }
        let mismatch = |_| "value.kind";
        match (&mut self.data, value) {
            (Data::Bool(to), Value::Bool(v)) => to.push(v),
            (Data::I8(to), Value::Int(v)) => to.values.push(v.try_into().map_err(mismatch)?),
            (Data::I16(to), Value::Int(v)) => to.values.push(v.try_into().map_err(mismatch)?),
            (Data::I32(to), Value::Int(v)) => to.values.push(v.try_into().map_err(mismatch)?),
            (Data::I64(to), Value::Int(v)) => to.values.push(v),
            (Data::U8(to), Value::Int(v)) => to.values.push(v.try_into().map_err(mismatch)?),
            (Data::U16(to), Value::Int(v)) => to.values.push(v.try_into().map_err(mismatch)?),
            (Data::U32(to), Value::Int(v)) => to.values.push(v.try_into().map_err(mismatch)?),
            (Data::U64(to), Value::UInt(v)) => to.values.push(v),
            (Data::F32(to), Value::Float32(v)) => to.values.push(v),
            (Data::F64(to), Value::Float64(v)) => to.values.push(v),
            (Data::Decimal(to), Value::Decimal(v)) => to.values.push(v.unscaled_i128().ok_or(Refusal::Range.code())?),
            (Data::Uuid(to), Value::Uuid(v)) => to.values.extend_from_slice(&v),
            (Data::Date(to), Value::Date(v)) => to.values.push(types::date(v).map_err(Refusal::code)?),
            (Data::Time(to), Value::Time(v)) => to.values.push(v),
            (Data::TimestampNanos(to) | Data::Timestamp(to) | Data::TimestampTz(to), Value::Timestamp(v)) => {
                to.values.push(types::timestamp(self.ty, v).map_err(Refusal::code)?);
            }
            (Data::Text { ends, bytes }, value) => {
                match value {
                    Value::Text(v) | Value::Json(v) | Value::Bits(v) => bytes.values.extend_from_slice(v.as_bytes()),
                    Value::Duration(units) => {
                        push_interval(Interval { months: 0, days: 0, micros: types::duration(self.ty, units) }, &mut bytes.values)
                    }
                    Value::Interval(v) => push_interval(v, &mut bytes.values),
                    // Only an undeclared scale lets equal numbers have several texts.
                    Value::Decimal(v) => push_decimal(&v, self.key && self.ty == LogicalType::Numeric, &mut bytes.values),
                    Value::Time(v) => push_nanos_of_day(v, &mut bytes.values),
                    _ => return Err("value.kind"),
                }
                ends.values.push(end_of(bytes)?);
            }
            (Data::List { ends, elements }, Value::Array(v)) => {
                for value in v.values() {
                    elements.push(value.map_err(|_| "value.kind")?)?;
                }
                ends.values.push(i32::try_from(elements.valid.len).map_err(|_| Refusal::Range.code())?);
            }
            (Data::Bytes { ends, bytes }, Value::Bytes(v)) => {
                bytes.values.extend_from_slice(v);
                ends.values.push(end_of(bytes)?);
            }
            _ => return Err("value.kind"),
        }
        Ok(())
    }

    /// What stands in the place of a NULL.
    fn push_filler(&mut self) {
        match &mut self.data {
            Data::Bool(to) => to.push(false),
            Data::I8(to) => to.values.push(0),
            Data::I16(to) => to.values.push(0),
            Data::I32(to) | Data::Date(to) => to.values.push(0),
            Data::I64(to) | Data::Time(to) | Data::TimestampNanos(to) | Data::Timestamp(to) | Data::TimestampTz(to) => to.values.push(0),
            Data::U8(to) => to.values.push(0),
            Data::U16(to) => to.values.push(0),
            Data::U32(to) => to.values.push(0),
            Data::U64(to) => to.values.push(0),
            Data::F32(to) => to.values.push(0.0),
            Data::F64(to) => to.values.push(0.0),
            Data::Decimal(to) => to.values.push(0),
            Data::Uuid(to) => to.values.extend_from_slice(&[0; UUID_WIDTH as usize]),
            Data::Text { ends, .. } | Data::Bytes { ends, .. } | Data::List { ends, .. } => {
                let end = ends.values.last().copied().unwrap_or(0);
                ends.values.push(end);
            }
        }
    }

    fn array(&mut self, rows: usize) -> Result<ArrayRef, ArrowError> {
        let valid = self.valid.lend();
        let nulls = (self.nulls > 0).then(|| NullBuffer::new(valid));
        let (precision, scale) = self.decimal();
        Ok(match &mut self.data {
            Data::Bool(bits) => Arc::new(BooleanArray::new(bits.lend(), nulls)),
            Data::I8(v) => primitive::<Int8Type>(v, nulls, rows)?,
            Data::I16(v) => primitive::<Int16Type>(v, nulls, rows)?,
            Data::I32(v) => primitive::<Int32Type>(v, nulls, rows)?,
            Data::I64(v) => primitive::<Int64Type>(v, nulls, rows)?,
            Data::U8(v) => primitive::<UInt8Type>(v, nulls, rows)?,
            Data::U16(v) => primitive::<UInt16Type>(v, nulls, rows)?,
            Data::U32(v) => primitive::<UInt32Type>(v, nulls, rows)?,
            Data::U64(v) => primitive::<UInt64Type>(v, nulls, rows)?,
            Data::F32(v) => primitive::<Float32Type>(v, nulls, rows)?,
            Data::F64(v) => primitive::<Float64Type>(v, nulls, rows)?,
            Data::Decimal(v) => {
                Arc::new(Decimal128Array::try_new(ScalarBuffer::new(v.lend(), 0, rows), nulls)?.with_precision_and_scale(precision, scale)?)
            }
            Data::Uuid(v) => Arc::new(FixedSizeBinaryArray::try_new(UUID_WIDTH, v.lend(), nulls)?),
            Data::Date(v) => Arc::new(Date32Array::try_new(ScalarBuffer::new(v.lend(), 0, rows), nulls)?),
            Data::Time(v) => Arc::new(Time64MicrosecondArray::try_new(ScalarBuffer::new(v.lend(), 0, rows), nulls)?),
            Data::TimestampNanos(v) => Arc::new(TimestampNanosecondArray::try_new(ScalarBuffer::new(v.lend(), 0, rows), nulls)?),
            Data::Timestamp(v) => Arc::new(TimestampMicrosecondArray::try_new(ScalarBuffer::new(v.lend(), 0, rows), nulls)?),
            Data::TimestampTz(v) => Arc::new(TimestampMicrosecondArray::try_new(ScalarBuffer::new(v.lend(), 0, rows), nulls)?.with_timezone("UTC")),
            Data::Text { ends, bytes } => Arc::new(StringArray::try_new(offsets(ends, rows), bytes.lend(), nulls)?),
            Data::Bytes { ends, bytes } => Arc::new(BinaryArray::try_new(offsets(ends, rows), bytes.lend(), nulls)?),
            Data::List { ends, elements } => {
                let (field, count) = (Arc::new(elements.field()), elements.valid.len);
                Arc::new(ListArray::try_new(field, offsets(ends, rows), elements.array(count)?, nulls)?)
            }
        })
    }

    fn clear(&mut self) {
        self.valid.clear();
        self.nulls = 0;
        match &mut self.data {
            Data::Bool(v) => v.clear(),
            Data::I8(v) => v.clear(),
            Data::I16(v) => v.clear(),
            Data::I32(v) | Data::Date(v) => v.clear(),
            Data::I64(v) | Data::Time(v) | Data::TimestampNanos(v) | Data::Timestamp(v) | Data::TimestampTz(v) => v.clear(),
            Data::U8(v) | Data::Uuid(v) => v.clear(),
            Data::U16(v) => v.clear(),
            Data::U32(v) => v.clear(),
            Data::U64(v) => v.clear(),
            Data::F32(v) => v.clear(),
            Data::F64(v) => v.clear(),
            Data::Decimal(v) => v.clear(),
            Data::Text { ends, bytes } | Data::Bytes { ends, bytes } => {
                ends.clear();
                bytes.clear();
                // Offsets begin with a zero.
                ends.values.push(0);
            }
            Data::List { ends, elements } => {
                ends.clear();
                elements.clear();
                ends.values.push(0);
            }
        }
    }
}

fn primitive<T: ArrowPrimitiveType>(values: &mut Lent<T::Native>, nulls: Option<NullBuffer>, rows: usize) -> Result<ArrayRef, ArrowError> {
    Ok(Arc::new(PrimitiveArray::<T>::try_new(ScalarBuffer::new(values.lend(), 0, rows), nulls)?))
}

fn offsets(ends: &mut Lent<i32>, rows: usize) -> OffsetBuffer<i32> {
    OffsetBuffer::new(ScalarBuffer::new(ends.lend(), 0, rows + 1))
}

fn end_of(bytes: &Lent<u8>) -> Result<i32, &'static str> {
    i32::try_from(bytes.values.len()).map_err(|_| Refusal::Range.code())
}

/// Appends the plain digits of a decimal; with `canonical`, those that every equal one has: no zeros at the end of the fraction.
fn push_decimal(value: &Decimal<'_>, canonical: bool, out: &mut Vec<u8>) {
    let start = out.len();
    match value.unscaled_i128() {
        Some(unscaled) => push_scaled(unscaled, value.scale, out),
        None => {
            // Beyond 38 digits: rare enough for a text of its own.
            let mut text = String::new();
            value.write_text(&mut text);
            out.extend_from_slice(text.as_bytes());
        }
    }
    if canonical && out[start..].contains(&b'.') {
        let zeros = out[start..].iter().rev().take_while(|b| **b == b'0').count();
        out.truncate(out.len() - zeros);
        if out.last() == Some(&b'.') {
            out.truncate(out.len() - 1);
        }
    }
}

fn push_scaled(unscaled: i128, scale: i32, out: &mut Vec<u8>) {
    // 39 digits are the most of 128 bits.
    let mut digits = [0_u8; 39];
    let mut at = digits.len();
    let mut rest = unscaled.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let digits = &digits[at..];
    if unscaled < 0 {
        out.push(b'-');
    }
    let places = scale.unsigned_abs() as usize;
    if scale <= 0 {
        out.extend_from_slice(digits);
        if unscaled != 0 {
            out.resize(out.len() + places, b'0');
        }
    } else if digits.len() > places {
        let (whole, fraction) = digits.split_at(digits.len() - places);
        out.extend_from_slice(whole);
        out.push(b'.');
        out.extend_from_slice(fraction);
    } else {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + places - digits.len(), b'0');
        out.extend_from_slice(digits);
    }
}

/// Appends an interval as DuckDB reads one exactly: each part with its unit.
fn push_interval(v: Interval, out: &mut Vec<u8>) {
    let Interval { months, days, micros } = v;
    write!(out, "{months} months {days} days {micros} microseconds").expect("a Vec takes every write");
}

/// Appends nanos since midnight as `HH:MM:SS.nnnnnnnnn`.
fn push_nanos_of_day(nanos: i64, out: &mut Vec<u8>) {
    let (seconds, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let mut number = |value: i64, width: u32, after: &[u8]| {
        out.extend((0..width).rev().map(|place| b'0' + (value / 10_i64.pow(place) % 10) as u8));
        out.extend_from_slice(after);
    };
    number(seconds / 3600, 2, b":");
    number(seconds / 60 % 60, 2, b":");
    number(seconds % 60, 2, b".");
    number(fraction, 9, b"");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, ty: &str) -> Column {
        Column { name: name.to_owned(), ty: ty.parse().expect(ty), nullable: true }
    }

    #[test]
    fn decimals_print_as_the_schemas_crate_prints_them() {
        for (unscaled, scale) in
            [(0_i128, 0), (0, 2), (0, -3), (5, 0), (-5, 1), (-5, 3), (12_345, 2), (7, -4), (i128::MAX, 5), (i128::MIN, 40), (100, 2)]
        {
            let bytes = unscaled.to_be_bytes();
            let value = Decimal { unscaled: &bytes, scale };
            let (mut expected, mut found) = (String::new(), Vec::new());
            value.write_text(&mut expected);
            push_decimal(&value, false, &mut found);
            assert_eq!(String::from_utf8(found), Ok(expected));
        }
        let canonical = |unscaled: i128, scale| {
            let mut out = b"100".to_vec();
            push_decimal(&Decimal { unscaled: &unscaled.to_be_bytes(), scale }, true, &mut out);
            String::from_utf8(out.split_off(3)).expect("digits")
        };
        assert_eq!([canonical(30, 1), canonical(3, 0), canonical(300, 0), canonical(0, 5), canonical(105, 2)], ["3", "3", "300", "0", "1.05"]);
    }

    #[test]
    fn nanos_of_a_day_print_in_full() {
        let text = |nanos| {
            let mut out = Vec::new();
            push_nanos_of_day(nanos, &mut out);
            String::from_utf8(out).expect("digits")
        };
        assert_eq!(text(46_801_702_905_100), "13:00:01.702905100");
        assert_eq!(text(86_400_000_000_000), "24:00:00.000000000");
        assert_eq!(text(1), "00:00:00.000000001");
    }

    #[test]
    fn buffers_come_back_and_errors_leave_nothing_behind() {
        let schema = [column("a", "int64"), column("b", "text"), column("c", "bool")];
        let mut columns = Columns::of_rows(schema.iter());
        let mut bytes = Vec::new();
        let encode = |values: [Value<'_>; 3], out: &mut Vec<u8>| {
            out.clear();
            for (column, value) in schema.iter().zip(values) {
                row::put(column.ty, value, out).expect("fits");
            }
        };
        for round in 0..3 {
            for i in 0..20 {
                let value = if i % 3 == 0 { Value::Null } else { Value::Int(i + round) };
                encode([value, Value::Text("x"), Value::Bool(i % 2 == 0)], &mut bytes);
                columns.push(&bytes).expect("a row");
            }
            let batch = columns.batch().expect("a batch");
            assert_eq!((batch.num_rows(), batch.column(0).null_count(), batch.column(1).null_count()), (20, 7, 0));
            drop(batch);
            columns.clear();
            let Data::I64(values) = &columns.columns[0].data else { panic!("an int64 column") };
            assert!(values.values.capacity() >= 20, "the memory came back");
            assert!(matches!(columns.push(&bytes[..bytes.len() - 1]), Err(EncodeError::Row(_))));
            columns.clear();
            assert!(columns.is_empty());
        }
    }

    #[test]
    fn a_value_that_would_become_another_is_refused_by_column() {
        let schema = [column("day", "date")];
        let mut columns = Columns::of_rows(schema.iter());
        let mut bytes = Vec::new();
        row::put(schema[0].ty, Value::Date(i32::MAX), &mut bytes).expect("fits");
        let error = columns.push(&bytes).expect_err("infinity");
        assert_eq!(error.to_string(), "column \"day\" cannot hold a value (value.out_of_range)");
    }
}
