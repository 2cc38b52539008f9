//! The canonical row: the values of a table's columns in Avro's binary encoding, each as a union of null and its type.
//!
//! A row is bytes from the source record to the store: it is written once while the document is decoded, kept like that in log and state,
//! and read value by value, borrowed, when it lands. Nothing here allocates per value beyond the output buffer.

use crate::decimal::{self, Decimal};
use crate::table::Column;
use crate::types::{ElementType, LogicalType};
use crate::value::{Array, Interval, NotFinite, Value};
use crate::wire::{Reader, WireError, put_bytes, put_long};

/// A value that its column cannot hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// The value is of another kind than the column.
    #[error("a value does not fit type {ty}")]
    Kind {
        /// The column's type.
        ty: LogicalType,
    },
    /// The value is of the right kind but outside the type's range, or has more digits than the type.
    #[error("a value is out of range for type {ty}")]
    Range {
        /// The column's type.
        ty: LogicalType,
    },
}

/// The scale of a `numeric` that is no number; the bytes are its name.
const NOT_FINITE: i32 = i32::MIN;

/// Appends a value that may be NULL: union index, then the value.
pub fn put(ty: LogicalType, value: Value<'_>, out: &mut Vec<u8>) -> Result<(), ValueError> {
    if value.is_null() {
        out.push(0);
        return Ok(());
    }
    out.push(2);
    put_plain(ty, value, out)
}

/// Appends a value that is there. On an error the output may hold a part of it: the caller truncates.
pub fn put_plain(ty: LogicalType, value: Value<'_>, out: &mut Vec<u8>) -> Result<(), ValueError> {
    match (ty, value) {
        (LogicalType::Bool, Value::Bool(v)) => out.push(u8::from(v)),
        (LogicalType::Float32, Value::Float32(v)) => out.extend_from_slice(&v.to_le_bytes()),
        (LogicalType::Float64, Value::Float64(v)) => out.extend_from_slice(&v.to_le_bytes()),
        (LogicalType::UInt64, Value::UInt(v)) => put_unsigned(v, out),
        (LogicalType::UInt64, Value::Int(v)) => put_unsigned(u64::try_from(v).map_err(|_| ValueError::Range { ty })?, out),
        (_, Value::Int(v)) => {
            let (low, high) = int_range(ty).ok_or(ValueError::Kind { ty })?;
            if v < low || v > high {
                return Err(ValueError::Range { ty });
            }
            put_long(out, v);
        }
        (_, Value::UInt(v)) => {
            let (_, high) = int_range(ty).ok_or(ValueError::Kind { ty })?;
            put_long(out, i64::try_from(v).ok().filter(|v| *v <= high).ok_or(ValueError::Range { ty })?);
        }
        (LogicalType::Decimal { precision, scale }, Value::Decimal(v)) => put_decimal(ty, precision, scale, &v, out)?,
        (LogicalType::Numeric, Value::Decimal(v)) => {
            if v.scale.unsigned_abs() > decimal::SCALE_MAX.unsigned_abs() {
                return Err(ValueError::Range { ty });
            }
            put_long(out, i64::from(v.scale));
            put_bytes(out, decimal::minimal(v.unscaled));
        }
        // No decimal has that scale, and none is without a byte: to a reader that knows of neither they are no numbers at all.
        (LogicalType::Numeric, Value::NotFinite(v)) => {
            put_long(out, NOT_FINITE.into());
            put_bytes(out, v.text().as_bytes());
        }
        (LogicalType::Decimal { .. }, Value::NotFinite(NotFinite::Nan)) => put_bytes(out, &[]),
        (LogicalType::Decimal { .. }, Value::NotFinite(_)) => return Err(ValueError::Range { ty }),
        (LogicalType::Text, Value::Text(v)) | (LogicalType::Json, Value::Json(v)) => put_bytes(out, v.as_bytes()),
        (LogicalType::Bytes, Value::Bytes(v)) => put_bytes(out, v),
        (LogicalType::Uuid, Value::Uuid(v)) => out.extend_from_slice(&v),
        (LogicalType::Date, Value::Date(v)) => put_long(out, i64::from(v)),
        (LogicalType::Time { .. }, Value::Time(v)) => {
            if !(0..=86_400 * crate::value::per_second(ty)).contains(&v) {
                return Err(ValueError::Range { ty });
            }
            put_long(out, v);
        }
        (LogicalType::Timestamp { .. } | LogicalType::TimestampTz { .. }, Value::Timestamp(v)) => put_long(out, v),
        (LogicalType::Duration { .. }, Value::Duration(v)) => put_long(out, v),
        (LogicalType::Interval, Value::Interval(v)) => {
            put_long(out, v.months.into());
            put_long(out, v.days.into());
            put_long(out, v.micros);
        }
        (LogicalType::Bits { length }, Value::Bits(v)) => {
            if v.len() != length as usize || v.bytes().any(|b| !matches!(b, b'0' | b'1')) {
                return Err(ValueError::Range { ty });
            }
            put_bytes(out, v.as_bytes());
        }
        (LogicalType::Array(element), Value::Array(v)) => {
            if v.element != element {
                return Err(ValueError::Kind { ty });
            }
            // One block, with its size, so that a reader passes over it at once; then the end of the blocks.
            if v.len > 0 {
                put_long(out, -(v.len as i64));
                put_bytes(out, v.items);
            }
            put_long(out, 0);
        }
        _ => return Err(ValueError::Kind { ty }),
    }
    Ok(())
}

fn put_unsigned(v: u64, out: &mut Vec<u8>) {
    let wide = i128::from(v).to_be_bytes();
    put_bytes(out, decimal::minimal(&wide));
}

fn put_decimal(ty: LogicalType, precision: u32, scale: u32, value: &Decimal<'_>, out: &mut Vec<u8>) -> Result<(), ValueError> {
    let range = ValueError::Range { ty };
    let scale = scale as i32;
    // Almost every value is within 128 bits at both scales: no buffer is needed then.
    if let Some(v) = value.rescaled_i128(scale) {
        if precision < 39 && v.unsigned_abs() >= 10_u128.pow(precision) {
            return Err(range);
        }
        put_bytes(out, decimal::minimal(&v.to_be_bytes()));
        return Ok(());
    }
    if value.scale == scale && !decimal::is_longer(value.unscaled, precision) {
        put_bytes(out, decimal::minimal(value.unscaled));
        return Ok(());
    }
    let mut moved = Vec::new();
    if !value.rescale_into(scale, &mut moved) || decimal::is_longer(&moved, precision) {
        return Err(range);
    }
    put_bytes(out, &moved);
    Ok(())
}

/// The least and the greatest integer of a type; none where it is not one that fits into 64 bits with a sign.
pub(crate) const fn int_range(ty: LogicalType) -> Option<(i64, i64)> {
    Some(match ty {
        LogicalType::Int8 => (i8::MIN as i64, i8::MAX as i64),
        LogicalType::Int16 => (i16::MIN as i64, i16::MAX as i64),
        LogicalType::Int32 => (i32::MIN as i64, i32::MAX as i64),
        LogicalType::Int64 => (i64::MIN, i64::MAX),
        LogicalType::UInt8 => (0, u8::MAX as i64),
        LogicalType::UInt16 => (0, u16::MAX as i64),
        LogicalType::UInt32 => (0, u32::MAX as i64),
        _ => return None,
    })
}

/// Takes a value that may be NULL.
#[inline]
pub fn read<'a>(ty: LogicalType, reader: &mut Reader<'a>) -> Result<Value<'a>, WireError> {
    if reader.present()? { read_plain(ty, reader) } else { Ok(Value::Null) }
}

/// Takes a value that is there.
#[inline]
pub fn read_plain<'a>(ty: LogicalType, reader: &mut Reader<'a>) -> Result<Value<'a>, WireError> {
    Ok(match ty {
        LogicalType::Bool => match reader.byte()? {
            0 => Value::Bool(false),
            1 => Value::Bool(true),
            _ => return Err(WireError::Index),
        },
        LogicalType::UInt64 => {
            let wide = decimal::i128_from_be(reader.bytes()?).ok_or(WireError::Number)?;
            Value::UInt(u64::try_from(wide).map_err(|_| WireError::Number)?)
        }
        LogicalType::Int8
        | LogicalType::Int16
        | LogicalType::Int32
        | LogicalType::Int64
        | LogicalType::UInt8
        | LogicalType::UInt16
        | LogicalType::UInt32 => Value::Int(reader.long()?),
        LogicalType::Float32 => Value::Float32(f32::from_le_bytes(reader.array()?)),
        LogicalType::Float64 => Value::Float64(f64::from_le_bytes(reader.array()?)),
        LogicalType::Decimal { scale, .. } => match read_unscaled(reader)? {
            [] => Value::NotFinite(NotFinite::Nan),
            unscaled => Value::Decimal(Decimal { unscaled, scale: scale as i32 }),
        },
        LogicalType::Numeric => match i32::try_from(reader.long()?).map_err(|_| WireError::Number)? {
            NOT_FINITE => Value::NotFinite(NotFinite::parse(reader.text()?).ok_or(WireError::Index)?),
            // What no value has would have a text of any length.
            scale if scale.unsigned_abs() > decimal::SCALE_MAX.unsigned_abs() => return Err(WireError::Number),
            scale => Value::Decimal(Decimal { unscaled: read_unscaled(reader)?, scale }),
        },
        LogicalType::Text => Value::Text(reader.text()?),
        LogicalType::Json => Value::Json(reader.text()?),
        LogicalType::Bytes => Value::Bytes(reader.bytes()?),
        LogicalType::Uuid => Value::Uuid(reader.array()?),
        LogicalType::Date => Value::Date(i32::try_from(reader.long()?).map_err(|_| WireError::Number)?),
        LogicalType::Time { .. } => Value::Time(reader.long()?),
        LogicalType::Timestamp { .. } | LogicalType::TimestampTz { .. } => Value::Timestamp(reader.long()?),
        LogicalType::Duration { .. } => Value::Duration(reader.long()?),
        LogicalType::Interval => {
            let mut part = || i32::try_from(reader.long()?).map_err(|_| WireError::Number);
            Value::Interval(Interval { months: part()?, days: part()?, micros: reader.long()? })
        }
        LogicalType::Bits { .. } => Value::Bits(reader.text()?),
        LogicalType::Array(element) => Value::Array(read_array(element, reader)?),
    })
}

/// Takes the elements of an array: no block, or one with its size, as [`put_plain`] writes it.
fn read_array<'a>(element: ElementType, reader: &mut Reader<'a>) -> Result<Array<'a>, WireError> {
    let count = reader.long()?;
    if count == 0 {
        return Ok(Array { element, len: 0, items: &[] });
    }
    let len = count.checked_neg().and_then(|count| usize::try_from(count).ok()).ok_or(WireError::Number)?;
    let items = reader.bytes()?;
    // Each has an index at least, so the count is bounded by what is there.
    if len > items.len() {
        return Err(WireError::Truncated);
    }
    if reader.long()? == 0 { Ok(Array { element, len, items }) } else { Err(WireError::Number) }
}

#[inline]
fn read_unscaled<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], WireError> {
    let unscaled = reader.bytes()?;
    if unscaled.len() > decimal::UNSCALED_BYTES_MAX { Err(WireError::Number) } else { Ok(unscaled) }
}

/// Passes over a value that may be NULL, without looking at text.
#[inline]
pub fn skip(ty: LogicalType, reader: &mut Reader<'_>) -> Result<(), WireError> {
    if reader.present()? { skip_plain(ty, reader) } else { Ok(()) }
}

/// Passes over a value that is there.
#[inline]
pub fn skip_plain(ty: LogicalType, reader: &mut Reader<'_>) -> Result<(), WireError> {
    match ty {
        LogicalType::Bool => drop(reader.byte()?),
        LogicalType::Float32 => drop(reader.take(4)?),
        LogicalType::Float64 => drop(reader.take(8)?),
        LogicalType::Uuid => drop(reader.take(16)?),
        LogicalType::UInt64 | LogicalType::Decimal { .. } | LogicalType::Text | LogicalType::Json | LogicalType::Bytes | LogicalType::Bits { .. } => {
            let _ = reader.bytes()?;
        }
        LogicalType::Interval => {
            for _ in 0..3 {
                let _ = reader.varint()?;
            }
        }
        LogicalType::Array(element) => {
            let _ = read_array(element, reader)?;
        }
        LogicalType::Numeric => {
            let _ = reader.long()?;
            let _ = reader.bytes()?;
        }
        _ => drop(reader.varint()?),
    }
    Ok(())
}

/// The values of a row, in column order.
#[derive(Clone, Debug)]
pub struct RowValues<'a> {
    columns: std::slice::Iter<'a, Column>,
    reader: Reader<'a>,
}

/// Reads the values of an encoded row.
#[inline]
pub fn values<'a>(columns: &'a [Column], row: &'a [u8]) -> RowValues<'a> {
    RowValues { columns: columns.iter(), reader: Reader::new(row) }
}

impl<'a> Iterator for RowValues<'a> {
    type Item = Result<(&'a Column, Value<'a>), WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let column = self.columns.next()?;
        Some(read(column.ty, &mut self.reader).map(|value| (column, value)))
    }
}

/// Finds where each column's bytes (union index included) begin and end in an encoded row. `spans` is cleared first.
#[inline]
pub fn spans(columns: &[Column], row: &[u8], spans: &mut Vec<(u32, u32)>) -> Result<(), WireError> {
    spans.clear();
    let mut reader = Reader::new(row);
    let mut start = 0;
    for column in columns {
        skip(column.ty, &mut reader)?;
        let end = (row.len() - reader.rest().len()) as u32;
        spans.push((start, end));
        start = end;
    }
    reader.finish()
}

/// Whether two values mean the same, null-safe: decimals of any scale by value, floats by IEEE value with NaN equal to itself and zeros of
/// either sign equal (SEMANTICS.md A.1.9). Documents are compared as text.
pub fn canonically_equal(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a, b) {
        (Value::Float32(a), Value::Float32(b)) => a == b || (a.is_nan() && b.is_nan()),
        (Value::Float64(a), Value::Float64(b)) => a == b || (a.is_nan() && b.is_nan()),
        (Value::Decimal(a), Value::Decimal(b)) => {
            if a.scale == b.scale {
                return decimal::minimal(a.unscaled) == decimal::minimal(b.unscaled);
            }
            let (low, high) = if a.scale < b.scale { (a, b) } else { (b, a) };
            let mut moved = Vec::new();
            low.rescale_into(high.scale, &mut moved) && decimal::minimal(&moved) == decimal::minimal(high.unscaled)
        }
        (Value::Array(a), Value::Array(b)) if a.items != b.items => {
            let mut pairs = a.values().zip(b.values());
            a.len == b.len && pairs.all(|(a, b)| matches!((a, b), (Ok(a), Ok(b)) if canonically_equal(&a, &b)))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_goes_in_and_comes_out() {
        let big = [0x7F; 40];
        let samples: &[(&str, Value<'_>)] = &[
            ("bool", Value::Bool(true)),
            ("int8", Value::Int(-128)),
            ("int16", Value::Int(32767)),
            ("int32", Value::Int(i32::MIN.into())),
            ("int64", Value::Int(i64::MIN)),
            ("uint8", Value::Int(255)),
            ("uint16", Value::Int(65535)),
            ("uint32", Value::Int(u32::MAX.into())),
            ("uint64", Value::UInt(u64::MAX)),
            ("float32", Value::Float32(-0.0)),
            ("float64", Value::Float64(f64::INFINITY)),
            ("decimal(38,10)", Value::Decimal(Decimal { unscaled: &[0x80], scale: 10 })),
            ("decimal(200,0)", Value::Decimal(Decimal { unscaled: &big, scale: 0 })),
            ("numeric", Value::Decimal(Decimal { unscaled: &[1], scale: -7 })),
            ("text", Value::Text("ű\0")),
            ("bytes", Value::Bytes(&[0, 255])),
            ("uuid", Value::Uuid([3; 16])),
            ("date", Value::Date(i32::MAX)),
            ("time(6)", Value::Time(86_400_000_000)),
            ("timestamp(9)", Value::Timestamp(i64::MIN)),
            ("timestamptz(6)", Value::Timestamp(i64::MAX)),
            ("timestamp(6)", Value::Timestamp(crate::value::NEGATIVE_INFINITY)),
            ("numeric", Value::NotFinite(NotFinite::Infinity)),
            ("decimal(9,2)", Value::NotFinite(NotFinite::Nan)),
            ("duration(6)", Value::Duration(-3_020_399_000_000)),
            ("interval", Value::Interval(Interval { months: i32::MIN, days: 7, micros: i64::MAX })),
            ("bits(3)", Value::Bits("010")),
            ("json", Value::Json("{}")),
            ("array(text)", Value::Array(Array { element: ElementType::Text, len: 2, items: &[2, 2, b'a', 0] })),
            ("array(int32)", Value::Array(Array { element: ElementType::Int32, len: 0, items: &[] })),
        ];
        for (ty, value) in samples {
            let ty: LogicalType = ty.parse().expect(ty);
            for value in [*value, Value::Null] {
                let mut bytes = Vec::new();
                put(ty, value, &mut bytes).expect("fits");
                let mut reader = Reader::new(&bytes);
                assert_eq!(read(ty, &mut reader), Ok(value), "{ty}");
                assert_eq!(reader.finish(), Ok(()));
                let mut reader = Reader::new(&bytes);
                assert_eq!(skip(ty, &mut reader), Ok(()));
                assert_eq!(reader.finish(), Ok(()));
                for end in 0..bytes.len() {
                    assert!(read(ty, &mut Reader::new(&bytes[..end])).is_err());
                }
            }
        }
    }

    #[test]
    fn elements_are_read_to_the_last_byte() {
        let read = |len, items: &'static [u8]| Array { element: ElementType::Int32, len, items }.values().collect::<Result<Vec<_>, _>>();
        assert_eq!(read(3, &[2, 2, 0, 2, 5]), Ok(vec![Value::Int(1), Value::Null, Value::Int(-3)]));
        assert_eq!(read(2, &[2, 2, 0, 2, 5]), Err(WireError::Trailing));
        assert_eq!(read(4, &[2, 2, 0, 2, 5]), Err(WireError::Truncated));
        // More elements than bytes: refused before anybody makes room for them.
        let mut hostile = vec![2];
        put_long(&mut hostile, -(1 << 60));
        put_bytes(&mut hostile, &[0]);
        put_long(&mut hostile, 0);
        assert_eq!(super::read("array(int32)".parse().expect("a type"), &mut Reader::new(&hostile)), Err(WireError::Truncated));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refuse = |ty: &str, value| {
            let ty: LogicalType = ty.parse().expect(ty);
            put(ty, value, &mut Vec::new()).expect_err("too much")
        };
        assert!(matches!(refuse("int8", Value::Int(128)), ValueError::Range { .. }));
        assert!(matches!(refuse("uint64", Value::Int(-1)), ValueError::Range { .. }));
        assert!(matches!(refuse("uint8", Value::Int(-1)), ValueError::Range { .. }));
        assert!(matches!(refuse("int64", Value::UInt(u64::MAX)), ValueError::Range { .. }));
        assert!(matches!(refuse("int32", Value::Text("1")), ValueError::Kind { .. }));
        assert!(matches!(refuse("time(6)", Value::Time(86_400_000_001)), ValueError::Range { .. }));
        assert!(matches!(refuse("decimal(9,2)", Value::NotFinite(NotFinite::Infinity)), ValueError::Range { .. }));
        for bits in ["01", "0101", "01x"] {
            assert!(matches!(refuse("bits(3)", Value::Bits(bits)), ValueError::Range { .. }));
        }
        let decimal = |unscaled: &'static [u8], scale| Value::Decimal(Decimal { unscaled, scale });
        assert!(matches!(refuse("decimal(2,0)", decimal(&[100], 0)), ValueError::Range { .. }));
        assert!(matches!(refuse("decimal(5,1)", decimal(&[1], 2)), ValueError::Range { .. }));
    }

    #[test]
    fn equality_is_canonical() {
        let decimal = |unscaled: &'static [u8], scale| Value::Decimal(Decimal { unscaled, scale });
        assert!(canonically_equal(&decimal(&[10], 1), &decimal(&[1], 0)));
        assert!(!canonically_equal(&decimal(&[11], 1), &decimal(&[1], 0)));
        assert!(canonically_equal(&Value::Float64(f64::NAN), &Value::Float64(f64::NAN)));
        assert!(canonically_equal(&Value::Float64(-0.0), &Value::Float64(0.0)));
        assert!(!canonically_equal(&Value::Null, &Value::Text("")));
    }
}
