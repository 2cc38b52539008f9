//! The canonical, order-preserving encoding of keys.
//!
//! Equal canonical values give equal bytes, whatever integer width or decimal scale carried them; bytes compare as values do; no encoding of
//! one tuple is a prefix of another's (cases KEY-03, DEC-07). It is the Kafka key of every change-log record, decides its partition
//! (murmur2), and prefixes the state of a key. Its bytes are golden (`tests`): a change of them is a new generation of every log.
//!
//! Layout per value: a tag, then the value. Numbers share one tag and form: sign and base-100 exponent in a header, then base-100 digits
//! `2d+1`, the last one `2d`; negative numbers are the complement. Text and bytes end in `00 01`, an inner `00` becomes `00 FF`.

use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;

use crate::decimal::{self, Decimal};
use crate::types::LogicalType;
use crate::value::{INFINITY, NEGATIVE_INFINITY, Value, per_second};

const TAG_FALSE: u8 = 0x05;
const TAG_TRUE: u8 = 0x06;
const TAG_NUMBER: u8 = 0x10;
const TAG_TEXT: u8 = 0x20;
const TAG_BYTES: u8 = 0x21;
const TAG_UUID: u8 = 0x22;
const TAG_DATE: u8 = 0x24;
const TAG_TIME: u8 = 0x25;
const TAG_TIMESTAMP: u8 = 0x26;
const TAG_TIMESTAMP_TZ: u8 = 0x27;
const TAG_DURATION: u8 = 0x28;
const TAG_BITS: u8 = 0x29;

const NUMBER_ZERO: u8 = 0x80;
const NUMBER_TINY: u8 = 0x81;
const NUMBER_FIRST: u8 = 0x82;
const NUMBER_HUGE: u8 = 0xDC;
/// Exponents with a header byte of their own: `-30..60`, in base 100.
const EXPONENT_LOW: i64 = -30;
/// Digits of the longest integer of 128 bits.
const DIGITS_128_BITS: usize = 39;

/// The first half of the SHA-256 of a canonical key: tells keys apart where the key itself need not be kept.
pub fn digest(canonical: &[u8]) -> [u8; 16] {
    Sha256::digest(canonical).first_chunk().copied().expect("it has twice as many bytes")
}

/// Why a value cannot be part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// NULL in a key column (SEMANTICS.md A.1.1).
    #[error("a key column is NULL")]
    Null,
    /// A float, a document, an array, an interval (which has no order) or a decimal that is no number.
    #[error("values of this type cannot be a key")]
    Type,
}

impl KeyError {
    /// The stable code under which it is reported.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Null => "scd.null_key",
            Self::Type => "schema.key_type",
        }
    }
}

/// Appends the canonical encoding of one key value.
pub fn encode(ty: LogicalType, value: Value<'_>, out: &mut Vec<u8>) -> Result<(), KeyError> {
    match value {
        Value::Null => return Err(KeyError::Null),
        Value::Float32(_) | Value::Float64(_) | Value::Json(_) | Value::Interval(_) | Value::NotFinite(_) | Value::Array(_) => {
            return Err(KeyError::Type);
        }
        Value::Bool(v) => out.push(if v { TAG_TRUE } else { TAG_FALSE }),
        Value::Int(v) => integer(v < 0, v.unsigned_abs(), out),
        Value::UInt(v) => integer(false, v, out),
        Value::Decimal(v) => number(&v, out),
        Value::Text(v) => escaped(TAG_TEXT, v.as_bytes(), out),
        Value::Bytes(v) => escaped(TAG_BYTES, v, out),
        Value::Uuid(v) => {
            out.push(TAG_UUID);
            out.extend_from_slice(&v);
        }
        Value::Date(v) => {
            out.push(TAG_DATE);
            out.extend_from_slice(&(v.cast_unsigned() ^ 1 << 31).to_be_bytes());
        }
        Value::Time(v) => instant(TAG_TIME, ty, v, out),
        Value::Timestamp(v) => {
            let tag = if matches!(ty, LogicalType::TimestampTz { .. }) { TAG_TIMESTAMP_TZ } else { TAG_TIMESTAMP };
            instant(tag, ty, v, out);
        }
        Value::Duration(v) => instant(TAG_DURATION, ty, v, out),
        Value::Bits(v) => escaped(TAG_BITS, v.as_bytes(), out),
    }
    Ok(())
}

fn instant(tag: u8, ty: LogicalType, units: i64, out: &mut Vec<u8>) {
    let per = per_second(ty);
    // Infinity is the same in whatever units.
    let (seconds, nanos) = match units {
        INFINITY | NEGATIVE_INFINITY => (units, 0),
        _ => (units.div_euclid(per), units.rem_euclid(per) * (1_000_000_000 / per)),
    };
    out.push(tag);
    out.extend_from_slice(&(seconds.cast_unsigned() ^ 1 << 63).to_be_bytes());
    out.extend_from_slice(&(nanos as u32).to_be_bytes());
}

fn escaped(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    out.reserve(bytes.len() + 2);
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|b| *b == 0) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&[0, 0xFF]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[0, 1]);
}

fn integer(negative: bool, magnitude: u64, out: &mut Vec<u8>) {
    let mut digits = [0_u8; 10];
    let mut at = digits.len();
    let mut rest = magnitude;
    while rest > 0 {
        at -= 1;
        digits[at] = (rest % 100) as u8;
        rest /= 100;
    }
    let digits = &digits[at..];
    base_100(negative, digits.len() as i64, digits, out);
}

fn number(value: &Decimal<'_>, out: &mut Vec<u8>) {
    if value.scale == 0
        && let Some(v) = decimal::i128_from_be(value.unscaled)
        && let Ok(magnitude) = u64::try_from(v.unsigned_abs())
    {
        return integer(v < 0, magnitude, out);
    }
    let (mut word, long);
    let (negative, text) = match value.unscaled_i128() {
        Some(v) => {
            word = [0; DIGITS_128_BITS];
            let (mut at, mut rest) = (word.len(), v.unsigned_abs());
            while rest > 0 {
                at -= 1;
                word[at] = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
            (v < 0, &word[at..])
        }
        None => {
            long = value.digits();
            (long.0, long.1.as_bytes())
        }
    };
    // The value is 0.TEXT times 10 to this power; an odd power gets a leading zero, so that digits pair up.
    let power = text.len() as i64 - i64::from(value.scale);
    let mut ascii: SmallVec<[u8; 42]> = SmallVec::with_capacity(text.len() + 2);
    if power.rem_euclid(2) == 1 {
        ascii.push(b'0');
    }
    ascii.extend_from_slice(text);
    if ascii.len() % 2 == 1 {
        ascii.push(b'0');
    }
    let digits: SmallVec<[u8; 21]> = ascii.chunks_exact(2).map(|pair| (pair[0] - b'0') * 10 + (pair[1] - b'0')).collect();
    base_100(negative, (power + 1).div_euclid(2), &digits, out);
}

/// Writes `0.d1 d2 …` (base 100) times 100 to the power `exponent`.
fn base_100(negative: bool, exponent: i64, digits: &[u8], out: &mut Vec<u8>) {
    out.push(TAG_NUMBER);
    let end = digits.iter().rposition(|d| *d != 0).map_or(0, |last| last + 1);
    let digits = &digits[..end];
    let Some((last, head)) = digits.split_last() else {
        out.push(NUMBER_ZERO);
        return;
    };
    let start = out.len();
    match u8::try_from(exponent - EXPONENT_LOW) {
        Ok(step) if step < NUMBER_HUGE - NUMBER_FIRST => out.push(NUMBER_FIRST + step),
        _ => {
            out.push(if exponent < EXPONENT_LOW { NUMBER_TINY } else { NUMBER_HUGE });
            out.extend_from_slice(&((exponent as i32).cast_unsigned() ^ 1 << 31).to_be_bytes());
        }
    }
    out.extend(head.iter().map(|d| d * 2 + 1));
    out.push(last * 2);
    if negative {
        for b in &mut out[start..] {
            *b = !*b;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(ty: &str, value: Value<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        encode(ty.parse().expect(ty), value, &mut out).expect("a key value");
        out
    }

    fn decimal_bytes(text: &str) -> Vec<u8> {
        let mut unscaled = Vec::new();
        let scale = decimal::parse_into(text, &mut unscaled).expect(text);
        bytes("numeric", Value::Decimal(Decimal { unscaled: &unscaled, scale }))
    }

    #[test]
    fn golden_bytes() {
        assert_eq!(bytes("int64", Value::Int(0)), [0x10, 0x80]);
        assert_eq!(bytes("int64", Value::Int(1)), [0x10, 0xA1, 0x02]);
        assert_eq!(bytes("int64", Value::Int(-1)), [0x10, 0x5E, 0xFD]);
        assert_eq!(bytes("int64", Value::Int(1234)), [0x10, 0xA2, 0x19, 0x44]);
        assert_eq!(bytes("int64", Value::Int(100)), [0x10, 0xA2, 0x02]);
        assert_eq!(decimal_bytes("0.05"), [0x10, 0xA0, 0x0A]);
        assert_eq!(decimal_bytes("12.345"), [0x10, 0xA1, 0x19, 0x45, 0x64]);
        assert_eq!(decimal_bytes("1E-100"), [0x10, 0x81, 0x7F, 0xFF, 0xFF, 0xCF, 0x02]);
        assert_eq!(bytes("text", Value::Text("a\0b")), [0x20, b'a', 0, 0xFF, b'b', 0, 1]);
        assert_eq!(bytes("bytes", Value::Bytes(&[0])), [0x21, 0, 0xFF, 0, 1]);
        assert_eq!(bytes("bool", Value::Bool(true)), [0x06]);
        assert_eq!(bytes("date", Value::Date(-1)), [0x24, 0x7F, 0xFF, 0xFF, 0xFF]);
        assert_eq!(bytes("timestamp(6)", Value::Timestamp(1)), [0x26, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x03, 0xE8]);
        assert_eq!(bytes("timestamptz(9)", Value::Timestamp(-1)), [0x27, 0x7F, 255, 255, 255, 255, 255, 255, 255, 0x3B, 0x9A, 0xC9, 0xFF]);
        assert_eq!(bytes("uuid", Value::Uuid([9; 16])), [&[0x22][..], &[9; 16]].concat());
    }

    #[test]
    fn equal_values_give_equal_bytes() {
        let one = bytes("int8", Value::Int(1));
        assert_eq!(one, bytes("uint64", Value::UInt(1)));
        assert_eq!(one, decimal_bytes("1.000"));
        assert_eq!(decimal_bytes("1000"), decimal_bytes("1E+3"));
        assert_eq!(bytes("uint64", Value::UInt(u64::MAX)), decimal_bytes("18446744073709551615.0"));
        assert_eq!(decimal_bytes("-0"), bytes("int32", Value::Int(0)));
        assert_eq!(bytes("timestamp(3)", Value::Timestamp(1_000)), bytes("timestamp(9)", Value::Timestamp(1_000_000)));
        assert_ne!(bytes("timestamp(6)", Value::Timestamp(1)), bytes("timestamptz(6)", Value::Timestamp(1)));
    }

    #[test]
    fn bytes_compare_as_numbers_do() {
        let ascending = [
            "-1E+200",
            "-18446744073709551616",
            "-1234.5",
            "-1234",
            "-100",
            "-99.99",
            "-1",
            "-0.5",
            "-0.05",
            "-1E-90",
            "0",
            "1E-300",
            "1E-90",
            "0.049",
            "0.05",
            "0.5",
            "0.99",
            "1",
            "1.5",
            "2",
            "9",
            "10",
            "11",
            "99",
            "99.5",
            "100",
            "101",
            "12345678901234567890123",
            "1E+130",
            "1E+131",
        ];
        for pair in ascending.windows(2) {
            assert!(decimal_bytes(pair[0]) < decimal_bytes(pair[1]), "{} < {}", pair[0], pair[1]);
        }
        let mut last = bytes("int64", Value::Int(-20_001));
        for v in -20_000..=20_000 {
            let next = bytes("int64", Value::Int(v));
            assert!(last < next, "{v}");
            last = next;
        }
    }

    #[test]
    fn no_tuple_is_a_prefix_of_another() {
        let tuple = |a: &str, b: &str| [bytes("text", Value::Text(a)), bytes("text", Value::Text(b))].concat();
        assert_ne!(tuple("a", "b"), tuple("ab", ""));
        assert_ne!(tuple("a\0", "b"), tuple("a", "\0b"));
        assert!(tuple("a", "z") < tuple("a\0", "a"));
        assert!(bytes("text", Value::Text("a")) < bytes("text", Value::Text("a\0")));
        assert!(bytes("text", Value::Text("a\0")) < bytes("text", Value::Text("a\u{1}")));
    }

    #[test]
    fn what_cannot_be_a_key_is_refused() {
        let mut out = Vec::new();
        assert_eq!(encode(LogicalType::Int32, Value::Null, &mut out), Err(KeyError::Null));
        assert_eq!(encode(LogicalType::Float64, Value::Float64(1.0), &mut out), Err(KeyError::Type));
        assert_eq!(encode(LogicalType::Json, Value::Json("1"), &mut out), Err(KeyError::Type));
        assert!(out.is_empty());
    }
}
