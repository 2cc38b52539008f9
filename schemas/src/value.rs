//! One value, borrowed from whatever carried it.
//!
//! A `Value` never owns: text, bytes and decimals point into the record, so a decoder hands a value straight to an encoder. The unit of a
//! time comes from the column's type ([`LogicalType::counts_nanos`]), not from the size of the number (case TMP-02).

use std::fmt::Write as _;

use crate::civil;
use crate::decimal::Decimal;
use crate::row;
use crate::types::{ElementType, LogicalType};
use crate::wire::{Reader, WireError};

/// Micros of a day.
pub const DAY_MICROS: i64 = 86_400_000_000;

/// A value of some logical type, or NULL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// SQL NULL; never a stand-in for "not sent", which is a column's absence from the authored set.
    Null,
    /// `bool`.
    Bool(bool),
    /// Any signed integer type, and unsigned ones up to 32 bits.
    Int(i64),
    /// `uint64`.
    UInt(u64),
    /// `float32`.
    Float32(f32),
    /// `float64`.
    Float64(f64),
    /// `decimal` (at the type's scale) and `numeric` (at its own).
    Decimal(Decimal<'a>),
    /// `numeric`, and NaN of `decimal`: what is no number of digits (case DEC-04).
    NotFinite(NotFinite),
    /// `text`.
    Text(&'a str),
    /// `bytes`.
    Bytes(&'a [u8]),
    /// `uuid`, most significant byte first.
    Uuid([u8; 16]),
    /// `date`: days since 1970-01-01.
    Date(i32),
    /// `time`: micros or nanos since midnight.
    Time(i64),
    /// `timestamp` and `timestamptz`: micros or nanos since 1970-01-01T00:00:00; [`INFINITY`] and [`NEGATIVE_INFINITY`].
    Timestamp(i64),
    /// `duration`: micros or nanos.
    Duration(i64),
    /// `interval`.
    Interval(Interval),
    /// `bits`: as many digits 0 and 1 as the type says, the most significant first.
    Bits(&'a str),
    /// `json`.
    Json(&'a str),
    /// `array`.
    Array(Array<'a>),
}

/// The elements of an array, as a row holds them: each with the index of its union, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array<'a> {
    /// Their type.
    pub element: ElementType,
    /// How many there are.
    pub len: usize,
    /// Their bytes.
    pub items: &'a [u8],
}

impl<'a> Array<'a> {
    /// The elements in order; an error where the bytes are not those of so many, and nothing behind it.
    pub fn values(&self) -> impl Iterator<Item = Result<Value<'a>, WireError>> + use<'a> {
        let (ty, mut reader, mut left) = (self.element.widen(), Reader::new(self.items), self.len);
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let value = row::read(ty, &mut reader).and_then(|value| if left == 0 { reader.finish().map(|()| value) } else { Ok(value) });
            if value.is_err() {
                left = 0;
            }
            Some(value)
        })
    }
}

/// The timestamp that is after every other; no source has a finite one there.
pub const INFINITY: i64 = i64::MAX;
/// The timestamp that is before every other.
pub const NEGATIVE_INFINITY: i64 = i64::MIN;

/// A decimal that has no digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotFinite {
    /// Not a number; equal to itself, as in Postgres.
    Nan,
    /// Greater than every number.
    Infinity,
    /// Smaller than every number.
    NegativeInfinity,
}

impl NotFinite {
    /// Its text, as Postgres writes it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Nan => "NaN",
            Self::Infinity => "Infinity",
            Self::NegativeInfinity => "-Infinity",
        }
    }

    /// Reads it back.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Nan, Self::Infinity, Self::NegativeInfinity].into_iter().find(|v| v.text() == text)
    }
}

/// A span of the calendar. Two with the same parts are the same; a month is never thirty days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Interval {
    /// Months, years included.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Micros, hours included.
    pub micros: i64,
}

impl Value<'_> {
    /// True for NULL.
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Appends the value as JSON: what JSON would round or has no word for as a string of its plain text, bytes with `\\x` before their digits.
    pub fn write_json(&self, ty: LogicalType, out: &mut String) {
        match *self {
            Self::Null => out.push_str("null"),
            Self::Bool(_) | Self::Int(_) | Self::UInt(_) | Self::Array(_) => self.write_text(ty, out),
            Self::Float32(v) if v.is_finite() => self.write_text(ty, out),
            Self::Float64(v) if v.is_finite() => self.write_text(ty, out),
            Self::Bytes(v) => {
                out.push_str("\"\\\\x");
                push_hex(out, v);
                out.push('"');
            }
            _ => {
                let mut text = String::new();
                self.write_text(ty, &mut text);
                out.push_str(&serde_json::Value::from(text).to_string());
            }
        }
    }

    /// Appends the value's plain text in the given type: ISO 8601 dates and times with the type's digits, exact decimals, lower-case hex for
    /// bytes and uuids, `Infinity` and `NaN` for floats. NULL appends nothing.
    pub fn write_text(&self, ty: LogicalType, out: &mut String) {
        match *self {
            Self::Null => {}
            Self::Bool(v) => out.push_str(if v { "true" } else { "false" }),
            Self::Int(v) => drop(write!(out, "{v}")),
            Self::UInt(v) => drop(write!(out, "{v}")),
            Self::Float32(v) => push_float(out, v.is_infinite(), v.is_sign_negative(), v),
            Self::Float64(v) => push_float(out, v.is_infinite(), v.is_sign_negative(), v),
            Self::Decimal(v) => v.write_text(out),
            Self::NotFinite(v) => out.push_str(v.text()),
            Self::Text(v) | Self::Json(v) | Self::Bits(v) => out.push_str(v),
            Self::Bytes(v) => push_hex(out, v),
            Self::Uuid(v) => push_uuid(out, &v),
            Self::Date(days) => civil::push_date(out, i64::from(days)),
            Self::Time(units) => civil::push_time(out, units, per_second(ty), digits(ty)),
            Self::Timestamp(INFINITY) => out.push_str("infinity"),
            Self::Timestamp(NEGATIVE_INFINITY) => out.push_str("-infinity"),
            Self::Duration(units) => push_duration(out, units, ty),
            Self::Interval(v) => v.write_iso(out),
            Self::Array(v) => {
                out.push('[');
                for (at, value) in v.values().map_while(Result::ok).enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    value.write_json(v.element.widen(), out);
                }
                out.push(']');
            }
            Self::Timestamp(units) => {
                let per_day = per_second(ty) * 86_400;
                civil::push_date(out, units.div_euclid(per_day));
                out.push('T');
                civil::push_time(out, units.rem_euclid(per_day), per_second(ty), digits(ty));
                if matches!(ty, LogicalType::TimestampTz { .. }) {
                    out.push('Z');
                }
            }
        }
    }
}

/// Units to the second of a time type: nanos beyond six digits, micros otherwise.
pub const fn per_second(ty: LogicalType) -> i64 {
    if ty.counts_nanos() { 1_000_000_000 } else { 1_000_000 }
}

const fn digits(ty: LogicalType) -> u8 {
    match ty {
        LogicalType::Time { digits } | LogicalType::Timestamp { digits } | LogicalType::TimestampTz { digits } | LogicalType::Duration { digits } => {
            digits
        }
        _ => 6,
    }
}

impl Interval {
    /// Appends its ISO 8601 text, every part with its own sign, as Debezium writes it: `P2Y5M7DT6H8M9.25S`, `P0Y-1M3DT0H0M-0.5S`.
    pub fn write_iso(self, out: &mut String) {
        let (seconds, micros) = (self.micros / 1_000_000 % 60, self.micros % 1_000_000);
        let (hours, minutes) = (self.micros / 3_600_000_000, self.micros / 60_000_000 % 60);
        let sign = if self.micros < 0 && seconds == 0 && micros != 0 { "-" } else { "" };
        write!(out, "P{}Y{}M{}DT{hours}H{minutes}M{sign}{seconds}", self.months / 12, self.months % 12, self.days)
            .expect("a String takes every write");
        if micros != 0 {
            write!(out, ".{:06}", micros.unsigned_abs()).expect("a String takes every write");
            out.truncate(out.trim_end_matches('0').len());
        }
        out.push('S');
    }
}

/// A signed span as `[-]hours:minutes:seconds`, with the type's digits.
fn push_duration(out: &mut String, units: i64, ty: LogicalType) {
    let per = per_second(ty).unsigned_abs();
    let (seconds, fraction) = (units.unsigned_abs() / per, units.unsigned_abs() % per);
    let sign = if units < 0 { "-" } else { "" };
    write!(out, "{sign}{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60).expect("a String takes every write");
    let (width, kept) = (if per > 1_000_000 { 9 } else { 6 }, usize::from(digits(ty)));
    if kept > 0 {
        let start = out.len();
        write!(out, ".{fraction:0width$}").expect("a String takes every write");
        out.truncate(start + 1 + kept.min(width));
    }
}

fn push_float(out: &mut String, infinite: bool, negative: bool, value: impl std::fmt::Display) {
    if infinite {
        out.push_str(if negative { "-Infinity" } else { "Infinity" });
    } else {
        write!(out, "{value}").expect("a String takes every write");
    }
}

/// Appends bytes as lower-case hex.
pub fn push_hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(bytes.len() * 2);
    for b in bytes {
        out.push(char::from(DIGITS[usize::from(b >> 4)]));
        out.push(char::from(DIGITS[usize::from(b & 15)]));
    }
}

/// Appends a uuid in its usual form of 36 characters.
pub fn push_uuid(out: &mut String, bytes: &[u8; 16]) {
    for (i, chunk) in [&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]].into_iter().enumerate() {
        if i > 0 {
            out.push('-');
        }
        push_hex(out, chunk);
    }
}

/// Reads a uuid written with or without hyphens and braces, in either case.
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
    let mut out = [0_u8; 16];
    let mut nibbles = 0_usize;
    for b in text.bytes() {
        if b == b'-' {
            continue;
        }
        let digit = char::from(b).to_digit(16)? as u8;
        let slot = out.get_mut(nibbles / 2)?;
        *slot = *slot << 4 | digit;
        nibbles += 1;
    }
    (nibbles == 32).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: Value<'_>, ty: &str) -> String {
        let mut out = String::new();
        value.write_text(ty.parse().expect(ty), &mut out);
        out
    }

    #[test]
    fn texts() {
        assert_eq!(text(Value::Timestamp(0), "timestamp(6)"), "1970-01-01T00:00:00.000000");
        assert_eq!(text(Value::Timestamp(-1), "timestamptz(6)"), "1969-12-31T23:59:59.999999Z");
        assert_eq!(text(Value::Timestamp(-1), "timestamptz(9)"), "1969-12-31T23:59:59.999999999Z");
        assert_eq!(text(Value::Timestamp(9_223_371_331_200_000_000), "timestamp(0)"), "+294247-01-02T00:00:00");
        assert_eq!(text(Value::Time(DAY_MICROS), "time(0)"), "24:00:00");
        assert_eq!(text(Value::Time(1), "time(6)"), "00:00:00.000001");
        assert_eq!(text(Value::Float64(-0.0), "float64"), "-0");
        assert_eq!(text(Value::Float32(f32::NEG_INFINITY), "float32"), "-Infinity");
        assert_eq!(text(Value::Bytes(&[0, 255]), "bytes"), "00ff");
        assert_eq!(text(Value::Timestamp(INFINITY), "timestamp(9)"), "infinity");
        assert_eq!(text(Value::Timestamp(NEGATIVE_INFINITY), "timestamptz(6)"), "-infinity");
        assert_eq!(text(Value::NotFinite(NotFinite::NegativeInfinity), "numeric"), "-Infinity");
        assert_eq!(text(Value::Duration(-3_020_399_000_000), "duration(6)"), "-838:59:59.000000");
        assert_eq!(text(Value::Duration(90_000_123_456), "duration(6)"), "25:00:00.123456");
        assert_eq!(text(Value::Duration(-1), "duration(9)"), "-00:00:00.000000001");
        assert_eq!(text(Value::Duration(i64::MIN), "duration(0)"), "-2562047788:00:54");
    }

    #[test]
    fn intervals_are_written_as_their_connector_writes_them() {
        // As captured from a Postgres connector with interval.handling.mode=string.
        for (months, days, micros, iso) in [
            (0, 0, 0, "P0Y0M0DT0H0M0S"),
            (2_136_000_000, 0, 0, "P178000000Y0M0DT0H0M0S"),
            (-14, 3, -14_706_000_001, "P-1Y-2M3DT-4H-5M-6.000001S"),
            (0, 0, -1, "P0Y0M0DT0H0M-0.000001S"),
            (0, 0, 86_400_000_000, "P0Y0M0DT24H0M0S"),
            (29, 7, 22_089_250_000, "P2Y5M7DT6H8M9.25S"),
            (-1, 3, -500_000, "P0Y-1M3DT0H0M-0.5S"),
        ] {
            assert_eq!(text(Value::Interval(Interval { months, days, micros }), "interval"), iso);
        }
    }

    #[test]
    fn uuids_go_both_ways() {
        let id = parse_uuid("A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11").expect("a uuid");
        assert_eq!(text(Value::Uuid(id), "uuid"), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
        for bad in ["", "a0eebc99", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11ff", "g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"] {
            assert_eq!(parse_uuid(bad), None, "{bad}");
        }
    }
}
