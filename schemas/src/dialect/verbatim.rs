//! Values of Avro that are canonical as they lie, or nearly so: they are checked and copied, without being made values first.
//!
//! A canonical row is Avro, too, so most columns of a registered row differ from it at most in the index of their union. Everything here
//! may decline, and says so by false: the general way then reads the value, or says what is wrong with it. So there is one place for what
//! is right and one for what is quick, and a test that holds them equal.

use super::avro::{How, Take};
use super::field::{BinaryStrings, Field, Wire};
use super::placeholder::Placeholder;
use super::temporal;
use crate::json::is_document;
use crate::row;
use crate::types::LogicalType;
use crate::wire::{Reader, put_bytes, put_long};

/// How the values of a column are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    /// They are not.
    No,
    Bool,
    Integer {
        low: i64,
        high: i64,
    },
    Float32,
    Float64,
    Text,
    Json,
    Bytes,
    /// At the scale of the column, below a limit, in at most eight bytes.
    Decimal {
        limit: u64,
    },
    Days,
    Iso {
        ty: LogicalType,
    },
    Timestamp {
        per_second: i64,
        ty: LogicalType,
    },
}

impl Copied {
    /// How those of a member are.
    pub(super) fn of(field: &Field) -> Self {
        let Some(wire) = field.wire else { return Self::No };
        match (wire, field.ty) {
            (Wire::Bool, LogicalType::Bool) => Self::Bool,
            (Wire::Integer, ty) => row::int_range(ty).map_or(Self::No, |(low, high)| Self::Integer { low, high }),
            (Wire::Float32, LogicalType::Float32) => Self::Float32,
            (Wire::Float64, LogicalType::Float64) => Self::Float64,
            (Wire::Text, LogicalType::Text) => Self::Text,
            (Wire::Json, LogicalType::Json) => Self::Json,
            (Wire::Bytes(BinaryStrings::Base64), LogicalType::Bytes) => Self::Bytes,
            (Wire::Decimal { scale: from }, LogicalType::Decimal { precision, scale }) if i64::from(from) == i64::from(scale) => {
                Self::Decimal { limit: 10_u64.checked_pow(precision).unwrap_or(u64::MAX) }
            }
            (Wire::Days, LogicalType::Date) => Self::Days,
            (Wire::Iso, ty @ (LogicalType::Timestamp { .. } | LogicalType::TimestampTz { .. })) => Self::Iso { ty },
            (Wire::Timestamp { per_second }, ty @ (LogicalType::Timestamp { .. } | LogicalType::TimestampTz { .. })) => {
                Self::Timestamp { per_second, ty }
            }
            _ => Self::No,
        }
    }

    /// Copies the value that stands next, and the index of its union; false where it is to be read, and nothing has happened.
    #[inline]
    pub(super) fn copy(self, take: &Take, reader: &mut Reader<'_>, placeholder: &Placeholder, out: &mut Vec<u8>) -> bool {
        let (from, end) = (*reader, out.len());
        let is_copied = self.try_copy(take, reader, placeholder, out).is_some();
        if !is_copied {
            *reader = from;
            out.truncate(end);
        }
        is_copied
    }

    #[inline]
    fn try_copy(self, take: &Take, reader: &mut Reader<'_>, placeholder: &Placeholder, out: &mut Vec<u8>) -> Option<()> {
        if self == Self::No {
            return None;
        }
        if !take.is_present(reader).ok()? {
            out.push(0);
            return Some(());
        }
        out.push(2);
        match (self, take.how) {
            (Self::Integer { low, high }, How::Integer) => {
                put_long(out, reader.long().ok().filter(|v| (low..=high).contains(v))?);
            }
            (Self::Text, How::Text) => {
                let text = reader.bytes().ok().filter(|text| !placeholder.is_raw(text))?;
                let is_text = text.is_ascii() || std::str::from_utf8(text).is_ok();
                put_bytes(out, Some(text).filter(|_| is_text)?);
            }
            (Self::Json, How::Text) => {
                let text = reader.text().ok().filter(|text| !placeholder.is_raw(text.as_bytes()) && is_document(text))?;
                put_bytes(out, text.as_bytes());
            }
            (Self::Bytes, How::Bytes) => put_bytes(out, reader.bytes().ok().filter(|bytes| !placeholder.is_raw(bytes))?),
            (Self::Bool, How::Boolean) => out.push(reader.byte().ok().filter(|byte| *byte <= 1)?),
            (Self::Float32, How::Float) => out.extend_from_slice(&reader.array::<4>().ok()?),
            (Self::Float64, How::Double) => out.extend_from_slice(&reader.array::<8>().ok()?),
            (Self::Decimal { limit }, How::Bytes) => {
                let unscaled = reader.bytes().ok()?;
                let is_small = integer(unscaled).is_some_and(|v| v.unsigned_abs() < limit);
                put_bytes(out, Some(unscaled).filter(|_| is_small)?);
            }
            (Self::Iso { ty }, How::Text) => put_long(out, temporal::usual_timestamp(reader.bytes().ok()?, ty)?),
            (Self::Days, How::Integer) => put_long(out, temporal::day(reader.long().ok()?).ok()?.into()),
            (Self::Timestamp { per_second, ty }, How::Integer) => {
                put_long(out, temporal::timestamp(reader.long().ok()?, per_second, ty).ok()?);
            }
            _ => return None,
        }
        Some(())
    }
}

/// An integer of one to eight bytes, none of them for nothing.
#[inline]
fn integer(bytes: &[u8]) -> Option<i64> {
    let (first, rest) = bytes.split_first()?;
    let sign = i64::from(first.cast_signed());
    let is_minimal = rest.first().is_none_or(|second| sign != if *second < 0x80 { 0 } else { -1 });
    (bytes.len() <= 8 && is_minimal).then(|| rest.iter().fold(sign, |v, byte| v << 8 | i64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::avro::{Budget, Schema};
    use crate::dialect::Options;
    use crate::dialect::avro::{Layout, connect};
    use crate::dialect::datum::{self, Unpacked};

    const COLUMNS: &str = r#"
        {"type":"boolean"} {"type":"int","connect.type":"int16"} {"type":"int"} {"type":"long"} {"type":"float"} {"type":"double"} {"type":"string"} {"type":"bytes"}
        {"type":"string","connect.name":"io.debezium.data.Json"} {"type":"int","connect.name":"io.debezium.time.Date"}
        {"type":"string","connect.name":"io.debezium.time.ZonedTimestamp"} {"type":"long","connect.name":"io.debezium.time.Timestamp"}
        {"type":"long","connect.name":"io.debezium.time.MicroTimestamp"} {"type":"long","connect.name":"io.debezium.time.NanoTimestamp"}
        {"type":"bytes","connect.name":"org.apache.kafka.connect.data.Decimal","connect.parameters":{"scale":"2","connect.decimal.precision":"12"}}
        {"type":"bytes","connect.name":"org.apache.kafka.connect.data.Decimal","connect.parameters":{"scale":"0","connect.decimal.precision":"30"}}
        {"type":"string","connect.name":"io.debezium.data.Uuid"} {"type":"long","connect.name":"io.debezium.time.MicroTime"}"#;

    /// Texts that columns of some kind take or nearly take.
    const TEXTS: [&[u8]; 12] = [
        b"",
        b"plain",
        b"gr\xC3\xBC\xC3\x9Fe",
        b"\xFF\xFE",
        b"{\"a\": [1, null, \"x\"]}",
        b"{\"a\":}",
        b"__debezium_unavailable_value",
        b"2024-02-29T13:51:30.123456Z",
        b"2023-02-29T13:51:30Z",
        b"2024-02-29T24:00:00Z",
        b"1969-12-31T23:59:59.9999999Z",
        b"c1f0a3d4-0f1e-4b55-9a3c-0d2e4f6a8b1c",
    ];

    /// Bits that look random.
    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state >> 11
    }

    /// A value that a column may hold, or bytes that it may not.
    fn value(state: &mut u64, out: &mut Vec<u8>) {
        match next(state) % 6 {
            0 => out.push((next(state) % 3) as u8),
            1 => put_long(out, next(state) as i64 % 100),
            2 => put_long(out, (next(state) << (next(state) % 40)).cast_signed().wrapping_neg() >> (next(state) % 50)),
            3 => put_bytes(out, TEXTS[next(state) as usize % TEXTS.len()]),
            4 => {
                let wide = i128::from(next(state).cast_signed() - (1 << 52)) << (next(state) % 60);
                put_bytes(out, &wide.to_be_bytes()[next(state) as usize % 16..]);
            }
            _ => out.extend(next(state).to_le_bytes()),
        }
    }

    #[test]
    fn what_is_copied_is_what_reading_it_would_write() {
        let fields: Vec<String> = COLUMNS
            .split_whitespace()
            .flat_map(|ty| [ty.to_owned(), format!(r#"["null",{ty}]"#), format!(r#"[{ty},"null"]"#)])
            .enumerate()
            .map(|(at, ty)| format!(r#"{{"name":"c{at}","type":{ty}}}"#))
            .collect();
        let schema = format!(r#"{{"type":"record","name":"R","fields":[{}]}}"#, fields.join(","));
        let schema = Arc::new(Schema::parse(&schema, &[]).expect("a schema"));
        let layout = Layout::of(&schema, schema.root()).expect("a record");
        let fields = connect(&schema, schema.root()).expect("a record").compile(&Options::new("t"), false).expect("columns");
        let placeholder = Placeholder::new("__debezium_unavailable_value");
        let mut unpacked = Unpacked::default();
        let mut state = 1;
        for (member, field) in fields.iter().enumerate() {
            let copied = Copied::of(field);
            let mut count = 0;
            for _ in 0..4_000 {
                let mut bytes = Vec::new();
                let take = layout.takes()[member];
                if member % 3 != 0 {
                    bytes.push([0, 2, 4][next(&mut state) as usize % 3]);
                }
                value(&mut state, &mut bytes);
                let (mut reader, mut out) = (Reader::new(&bytes), vec![7]);
                if !copied.copy(&take, &mut reader, &placeholder, &mut out) {
                    assert_eq!((reader.rest().len(), out.as_slice()), (bytes.len(), &[7][..]), "nothing has happened");
                    continue;
                }
                count += 1;
                let (mut general, mut written) = (Reader::new(&bytes), vec![7]);
                let datum = layout.value(member, &mut general, &mut Budget::of(bytes.len())).expect("a value");
                let read = datum::read(field.wire.expect("a column"), field.ty, datum, &placeholder, &mut unpacked);
                row::put(field.ty, read.expect("a value").expect("it was sent"), &mut written).expect("it fits");
                assert_eq!((out, reader.rest().len()), (written, general.rest().len()), "{field:?} {bytes:?}");
            }
            // A column of integers of 64 bits takes nearly everything; one of texts of times only some.
            assert_eq!(count > 50, copied != Copied::No, "{field:?}: {count} of 4000");
        }
    }
}
