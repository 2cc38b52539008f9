//! A value as its encoding carries it, and what it is in its column.
//!
//! Reading borrows from the record, or from scratch buffers that are reused from row to row. A value that its column cannot hold is a [`Fault`],
//! never a near miss.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

use super::elements::{Elements, json_array, put_element};
use super::field::{BinaryStrings, DecimalStrings, MICROS, MILLIS, NANOS, Wire};
use super::layout::Items;
use super::placeholder::Placeholder;
use super::reject::Fault;
use super::{extended, geometry, literal, temporal};
use crate::decimal::{self, Decimal};
use crate::json::{self, JsonStr, Scanner, Token};
use crate::types::{DECIMAL_PRECISION_MAX, LogicalType};
use crate::value::{self, NotFinite, Value};

/// A value as its encoding carries it, borrowed: a token of JSON, or what Avro or Protobuf holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Datum<'a> {
    Json(Token<'a>),
    Null,
    Bool(bool),
    Integer(i64),
    Float32(f32),
    Float64(f64),
    Text(&'a str),
    Bytes(&'a [u8]),
    /// Index of a symbol.
    Symbol(usize),
    /// A value of a kind that no column is made of.
    Unreadable,
    VariableDecimal {
        scale: i64,
        unscaled: &'a [u8],
    },
    Geometry {
        wkb: &'a [u8],
        srid: Option<i64>,
    },
    /// An instant, as Protobuf has it.
    Instant {
        seconds: i64,
        nanos: i32,
    },
    /// The bytes of an array, not looked at yet.
    Blocks(&'a [u8]),
    Items(Items<'a>),
}

/// Buffers that values are unpacked into.
#[derive(Debug, Default)]
pub(super) struct Unpacked {
    pub(super) text: String,
    pub(super) bytes: Vec<u8>,
    pub(super) items: Vec<u8>,
    /// How many bytes the elements of arrays may still come to: an element of one byte may stand for a long text that only a schema has.
    pub(super) elements: usize,
    /// How many values had a fraction of a second that was finer than their type's micros.
    pub(super) cut: u64,
}

/// Reads one value; `None` where the source did not send it.
#[inline]
pub(super) fn read<'s>(
    wire: Wire,
    ty: LogicalType,
    datum: Datum<'s>,
    placeholder: &Placeholder,
    unpacked: &'s mut Unpacked,
) -> Result<Option<Value<'s>>, Fault> {
    match datum {
        Datum::Json(token) => read_token(wire, ty, token, placeholder, unpacked),
        Datum::Null => Ok(Some(Value::Null)),
        Datum::Text(text) if placeholder.stands_at(&Token::String(JsonStr { raw: text, escaped: false }), wire, ty) => Ok(None),
        Datum::Bytes(bytes) if matches!(wire, Wire::Bytes(_) | Wire::Bits) && placeholder.is_raw(bytes) => Ok(None),
        Datum::Geometry { wkb, .. } if placeholder.is_raw(wkb) => Ok(None),
        Datum::Items(items) if placeholder.stands_in(&items) => Ok(None),
        datum => read_datum(wire, ty, datum, unpacked).map(Some),
    }
}

/// Reads a value of Avro or Protobuf, whose kind its schema has promised.
fn read_datum<'s>(wire: Wire, ty: LogicalType, datum: Datum<'s>, unpacked: &'s mut Unpacked) -> Result<Value<'s>, Fault> {
    Ok(match (wire, datum) {
        (Wire::Bool, Datum::Bool(v)) => Value::Bool(v),
        (Wire::Declared { .. }, Datum::Integer(v @ 0..=1)) if ty == LogicalType::Bool => Value::Bool(v == 1),
        (Wire::Integer, Datum::Integer(v)) => Value::Int(v),
        (Wire::Wrapped, Datum::Integer(v)) => Value::UInt(v.cast_unsigned()),
        (Wire::Days, Datum::Integer(v)) => Value::Date(temporal::day(v)?),
        (Wire::Time { per_second }, Datum::Integer(v)) => time(v, per_second, ty)?,
        (Wire::Timestamp { per_second }, Datum::Integer(v)) => Value::Timestamp(temporal::timestamp(v, per_second, ty)?),
        (Wire::Timestamp { .. }, Datum::Instant { seconds, nanos }) => Value::Timestamp(temporal::instant(seconds, nanos, ty, &mut unpacked.cut)?),
        (Wire::Float32, Datum::Float32(v)) => Value::Float32(v),
        (Wire::Float64, Datum::Float64(v)) => Value::Float64(v),
        (Wire::Decimal { scale }, Datum::Bytes(unscaled)) => Value::Decimal(Decimal { unscaled: bounded(unscaled)?, scale }),
        (Wire::NoScale, _) => return Err(Fault::Scale),
        (Wire::VariableDecimal, Datum::VariableDecimal { scale, unscaled }) => {
            Value::Decimal(Decimal { unscaled: bounded(unscaled)?, scale: i32::try_from(scale).map_err(|_| Fault::Range)? })
        }
        (Wire::DecimalText, Datum::Text(text)) => decimal_text(text, ty, &mut unpacked.bytes)?,
        (Wire::DecimalText, Datum::Integer(v)) => written_decimal(v, ty, unpacked)?,
        (Wire::DecimalText, Datum::Float32(v)) => written_decimal(v, ty, unpacked)?,
        (Wire::DecimalText, Datum::Float64(v)) => written_decimal(v, ty, unpacked)?,
        (Wire::Text, Datum::Text(text)) => Value::Text(text),
        (Wire::Json, Datum::Text(text)) => document(text)?,
        (Wire::Bytes(BinaryStrings::Base64), Datum::Bytes(bytes)) => Value::Bytes(bytes),
        (Wire::Bytes(strings), Datum::Text(text)) => Value::Bytes(decode_bytes(text, strings, &mut unpacked.bytes)?),
        (Wire::Uuid, Datum::Text(text)) => uuid(text)?,
        (Wire::Uuid, Datum::Bytes(bytes)) => Value::Uuid(bytes.try_into().map_err(|_| Fault::Kind)?),
        (Wire::Iso, Datum::Text(text)) => iso(ty, text, &mut unpacked.cut)?,
        (Wire::Bits, Datum::Bytes(bytes)) => {
            unpacked.text.clear();
            bits(bytes, ty, &mut unpacked.text)?
        }
        (Wire::Geometry, Datum::Geometry { wkb, srid }) => {
            unpacked.bytes.clear();
            unpacked.bytes.extend_from_slice(wkb);
            geometry::extend(&mut unpacked.bytes, srid)?;
            Value::Bytes(&unpacked.bytes)
        }
        (Wire::Array(wire), Datum::Items(items)) => {
            let mut elements = Elements::of(ty, unpacked)?;
            items.each(|datum| {
                elements.add(|ty, unpacked, out| {
                    let value = if matches!(datum, Datum::Null) { Value::Null } else { read_datum(wire.widen(), ty, datum, unpacked)? };
                    put_element(ty, value, out)
                })
            })?;
            elements.value()
        }
        _ => return Err(Fault::Kind),
    })
}

fn read_token<'s>(
    wire: Wire,
    ty: LogicalType,
    token: Token<'s>,
    placeholder: &Placeholder,
    unpacked: &'s mut Unpacked,
) -> Result<Option<Value<'s>>, Fault> {
    if token == Token::Null {
        return Ok(Some(Value::Null));
    }
    if placeholder.stands_at(&token, wire, ty) {
        return Ok(None);
    }
    read_present(wire, ty, token, unpacked).map(Some)
}

/// Reads a value that is neither NULL nor a marker.
fn read_present<'s>(wire: Wire, ty: LogicalType, token: Token<'s>, unpacked: &'s mut Unpacked) -> Result<Value<'s>, Fault> {
    Ok(match wire {
        Wire::Declared { zero_dates: true, .. } if is_zero_date(ty, &token) => Value::Null,
        Wire::Declared { decimal_strings, binary_strings, .. } => declared(ty, token, decimal_strings, binary_strings, unpacked)?,
        Wire::Bool => match token {
            Token::Bool(v) => Value::Bool(v),
            _ => return Err(Fault::Kind),
        },
        Wire::Integer => integer(number(&token)?)?,
        Wire::Wrapped => Value::UInt(signed(number(&token)?)?.cast_unsigned()),
        Wire::Float32 => Value::Float32(float(&token, f32::is_finite)?),
        Wire::Float64 => Value::Float64(float(&token, f64::is_finite)?),
        Wire::Decimal { scale } => Value::Decimal(Decimal { unscaled: unscaled(string(&token)?, unpacked)?, scale }),
        Wire::NoScale => return Err(Fault::Scale),
        Wire::VariableDecimal => Value::Decimal(variable_decimal(&token, unpacked)?),
        Wire::DecimalText => match token {
            Token::Number(digits) => decimal_text(digits, ty, &mut unpacked.bytes)?,
            Token::String(s) if !s.escaped => decimal_text(s.raw, ty, &mut unpacked.bytes)?,
            _ => return Err(Fault::Kind),
        },
        Wire::Text => Value::Text(text(string(&token)?, &mut unpacked.text)?),
        Wire::Json => document(text(string(&token)?, &mut unpacked.text)?)?,
        Wire::Bytes(strings) => Value::Bytes(bytes(string(&token)?, strings, unpacked)?),
        Wire::Uuid => uuid(text(string(&token)?, &mut unpacked.text)?)?,
        Wire::Days => Value::Date(temporal::day(signed(number(&token)?)?)?),
        Wire::Time { per_second } => time(signed(number(&token)?)?, per_second, ty)?,
        Wire::Timestamp { per_second } => Value::Timestamp(temporal::timestamp(signed(number(&token)?)?, per_second, ty)?),
        Wire::Iso => iso(ty, text(string(&token)?, &mut unpacked.text)?, &mut unpacked.cut)?,
        Wire::Bits => {
            let Unpacked { text, bytes, .. } = unpacked;
            decode_bytes(self::text(string(&token)?, text)?, BinaryStrings::Base64, bytes)?;
            text.clear();
            bits(bytes, ty, text)?
        }
        Wire::Geometry => {
            let Some((wkb, srid)) = geometry::members(&token)? else { return Err(Fault::Kind) };
            let Unpacked { text, bytes, .. } = unpacked;
            decode_bytes(self::text(wkb, text)?, BinaryStrings::Base64, bytes)?;
            geometry::extend(bytes, srid)?;
            Value::Bytes(bytes)
        }
        Wire::Extended => extended::read(ty, token, unpacked)?,
        Wire::Literal => literal::read(ty, token, unpacked)?,
        Wire::Array(wire) => json_array(ty, &token, unpacked, |token, ty, unpacked, out| {
            // A marker stands for the whole array, never for an element.
            put_element(ty, read_present(wire.widen(), ty, token, unpacked)?, out)
        })?,
    })
}

/// Whether a value is MySQL's date that is none: `0000-00-00`, with a time of day or without.
fn is_zero_date(ty: LogicalType, token: &Token<'_>) -> bool {
    let is_date = matches!(ty, LogicalType::Date | LogicalType::Timestamp { .. } | LogicalType::TimestampTz { .. });
    is_date && matches!(token, Token::String(s) if s.raw.starts_with("0000-00-00"))
}

/// Without a schema part the declared type says what a token means: integers in the unit of the type's digits (3 millis, 6 micros, 9
/// nanos), days for dates, or ISO text; documents as text or as they stand.
pub(super) fn declared<'s>(
    ty: LogicalType,
    token: Token<'s>,
    decimal_strings: DecimalStrings,
    binary_strings: BinaryStrings,
    unpacked: &'s mut Unpacked,
) -> Result<Value<'s>, Fault> {
    let unit = |digits: u8| match digits {
        0..=3 => MILLIS,
        4..=6 => MICROS,
        _ => NANOS,
    };
    Ok(match (ty, token) {
        (LogicalType::Bool, Token::Bool(v)) => Value::Bool(v),
        (LogicalType::Bool, Token::Number("0")) => Value::Bool(false),
        (LogicalType::Bool, Token::Number("1")) => Value::Bool(true),
        (LogicalType::UInt64, Token::Number(digits)) if digits.starts_with('-') => Value::UInt(signed(digits)?.cast_unsigned()),
        (
            LogicalType::Int8
            | LogicalType::Int16
            | LogicalType::Int32
            | LogicalType::Int64
            | LogicalType::UInt8
            | LogicalType::UInt16
            | LogicalType::UInt32
            | LogicalType::UInt64,
            Token::Number(digits) | Token::String(JsonStr { raw: digits, escaped: false }),
        ) => integer(digits)?,
        (LogicalType::Float32, token) => Value::Float32(float(&token, f32::is_finite)?),
        (LogicalType::Float64, token) => Value::Float64(float(&token, f64::is_finite)?),
        (LogicalType::Decimal { .. } | LogicalType::Numeric, Token::Number(digits)) => decimal_text(digits, ty, &mut unpacked.bytes)?,
        (LogicalType::Decimal { .. } | LogicalType::Numeric, Token::Object(_)) => Value::Decimal(variable_decimal(&token, unpacked)?),
        (LogicalType::Decimal { scale, .. }, Token::String(s)) if decimal_strings == DecimalStrings::Base64 => {
            let scale = i32::try_from(scale).map_err(|_| Fault::Range)?;
            Value::Decimal(Decimal { unscaled: unscaled(s, unpacked)?, scale })
        }
        (LogicalType::Decimal { .. } | LogicalType::Numeric, Token::String(s)) if !s.escaped => decimal_text(s.raw, ty, &mut unpacked.bytes)?,
        (LogicalType::Text, Token::String(s)) => Value::Text(text(s, &mut unpacked.text)?),
        (LogicalType::Bytes, Token::String(s)) => Value::Bytes(bytes(s, binary_strings, unpacked)?),
        (LogicalType::Uuid, Token::String(s)) => uuid(text(s, &mut unpacked.text)?)?,
        (LogicalType::Date, Token::Number(digits)) => Value::Date(temporal::day(signed(digits)?)?),
        (LogicalType::Time { digits: d }, Token::Number(digits)) => Value::Time(temporal::scaled(signed(digits)?, unit(d), ty)?),
        (LogicalType::Timestamp { digits: d } | LogicalType::TimestampTz { digits: d }, Token::Number(digits)) => {
            Value::Timestamp(temporal::timestamp(signed(digits)?, unit(d), ty)?)
        }
        (LogicalType::Duration { digits: d }, Token::Number(digits)) => time(signed(digits)?, unit(d), ty)?,
        (
            LogicalType::Date
            | LogicalType::Time { .. }
            | LogicalType::Timestamp { .. }
            | LogicalType::TimestampTz { .. }
            | LogicalType::Duration { .. }
            | LogicalType::Interval,
            Token::String(s),
        ) => iso(ty, text(s, &mut unpacked.text)?, &mut unpacked.cut)?,
        (LogicalType::Bits { .. }, Token::String(s)) => {
            let Unpacked { text, bytes, .. } = unpacked;
            decode_bytes(self::text(s, text)?, BinaryStrings::Base64, bytes)?;
            text.clear();
            bits(bytes, ty, text)?
        }
        (LogicalType::Array(_), Token::Array(_)) => json_array(ty, &token, unpacked, |token, ty, unpacked, out| {
            put_element(ty, declared(ty, token, decimal_strings, binary_strings, unpacked)?, out)
        })?,
        (LogicalType::Json, Token::String(s)) => document(text(s, &mut unpacked.text)?)?,
        (LogicalType::Json, Token::Object(raw) | Token::Array(raw) | Token::Number(raw)) => Value::Json(raw),
        (LogicalType::Json, Token::Bool(v)) => Value::Json(if v { "true" } else { "false" }),
        _ => return Err(Fault::Kind),
    })
}

fn number<'a>(token: &Token<'a>) -> Result<&'a str, Fault> {
    if let Token::Number(digits) = token { Ok(digits) } else { Err(Fault::Kind) }
}

fn string<'a>(token: &Token<'a>) -> Result<JsonStr<'a>, Fault> {
    if let Token::String(s) = token { Ok(*s) } else { Err(Fault::Kind) }
}

pub(super) fn text<'s>(s: JsonStr<'s>, scratch: &'s mut String) -> Result<&'s str, Fault> {
    s.text(scratch).ok_or(Fault::Surrogate)
}

fn is_whole(digits: &str) -> bool {
    let digits = digits.strip_prefix('-').unwrap_or(digits);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

fn signed(digits: &str) -> Result<i64, Fault> {
    digits.parse().map_err(|_| if is_whole(digits) { Fault::Range } else { Fault::Kind })
}

pub(super) fn integer(digits: &str) -> Result<Value<'static>, Fault> {
    if let Ok(v) = digits.parse() {
        return if digits.starts_with('+') { Err(Fault::Kind) } else { Ok(Value::Int(v)) };
    }
    if !is_whole(digits) {
        return Err(Fault::Kind);
    }
    digits.parse().map(Value::UInt).map_err(|_| Fault::Range)
}

/// Case DEC-05: the JSON converter writes what JSON has no number for as a string.
pub(super) fn float<F: std::str::FromStr + Copy>(token: &Token<'_>, is_finite: impl Fn(F) -> bool) -> Result<F, Fault> {
    match token {
        Token::Number(digits) => {
            let v = digits.parse::<F>().map_err(|_| Fault::Kind)?;
            if is_finite(v) { Ok(v) } else { Err(Fault::Range) }
        }
        Token::String(JsonStr { raw: word @ ("NaN" | "Infinity" | "-Infinity"), .. }) => word.parse().map_err(|_| Fault::Kind),
        // As Canal writes all numbers.
        Token::String(JsonStr { raw: digits, escaped: false }) if digits.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
            let v = digits.parse::<F>().map_err(|_| Fault::Kind)?;
            if is_finite(v) { Ok(v) } else { Err(Fault::Range) }
        }
        _ => Err(Fault::Kind),
    }
}

/// Case DEC-04: in string mode NaN and infinity are words of their own.
pub(super) fn decimal_text<'s>(digits: &str, ty: LogicalType, bytes: &'s mut Vec<u8>) -> Result<Value<'s>, Fault> {
    bytes.clear();
    if digits.len() > DECIMAL_PRECISION_MAX as usize {
        return Err(Fault::Range);
    }
    if let Some(scale) = decimal::parse_into(digits, bytes) {
        return Ok(Value::Decimal(Decimal { unscaled: bytes, scale }));
    }
    let value = match digits {
        "NAN" | "NaN" => NotFinite::Nan,
        "POSITIVE_INFINITY" | "Infinity" => NotFinite::Infinity,
        "NEGATIVE_INFINITY" | "-Infinity" => NotFinite::NegativeInfinity,
        _ => return Err(Fault::Kind),
    };
    // No decimal of a declared size is infinite, in any store.
    if value != NotFinite::Nan && ty != LogicalType::Numeric {
        return Err(Fault::Infinite);
    }
    Ok(Value::NotFinite(value))
}

/// A number that is written with the digits that it has: those of a float are the fewest that read back as it.
fn written_decimal(number: impl std::fmt::Display, ty: LogicalType, unpacked: &mut Unpacked) -> Result<Value<'_>, Fault> {
    use std::fmt::Write as _;
    let Unpacked { text, bytes, .. } = unpacked;
    text.clear();
    write!(text, "{number}").expect("a String takes every write");
    let digits = match text.as_str() {
        "inf" => "Infinity",
        "-inf" => "-Infinity",
        digits => digits,
    };
    decimal_text(digits, ty, bytes)
}

/// As many digits as the type has bits; a bit beyond them is a fault.
fn bits<'s>(bytes: &[u8], ty: LogicalType, text: &'s mut String) -> Result<Value<'s>, Fault> {
    let LogicalType::Bits { length } = ty else { return Err(Fault::Kind) };
    let length = length as usize;
    let is_set = |bit: usize| bytes.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1);
    if (length..bytes.len() * 8).any(is_set) {
        return Err(Fault::Range);
    }
    text.extend((0..length).rev().map(|bit| if is_set(bit) { '1' } else { '0' }));
    Ok(Value::Bits(text))
}

fn variable_decimal<'s>(token: &Token<'_>, unpacked: &'s mut Unpacked) -> Result<Decimal<'s>, Fault> {
    let Token::Object(object) = token else { return Err(Fault::Kind) };
    let mut scanner = Scanner::new(object);
    let (mut scale, mut value) = (None, None);
    let mut first = true;
    scanner.enter_object().map_err(|_| Fault::Kind)?;
    while let Some(name) = scanner.member(first).map_err(|_| Fault::Kind)? {
        first = false;
        match (name.raw, scanner.value().map_err(|_| Fault::Kind)?) {
            ("scale", Token::Number(digits)) if scale.is_none() => scale = Some(signed(digits)?),
            ("value", Token::String(s)) if value.is_none() => value = Some(s),
            _ => return Err(Fault::Kind),
        }
    }
    let scale = i32::try_from(scale.ok_or(Fault::Kind)?).map_err(|_| Fault::Range)?;
    Ok(Decimal { unscaled: unscaled(value.ok_or(Fault::Kind)?, unpacked)?, scale })
}

fn bytes<'s>(s: JsonStr<'_>, strings: BinaryStrings, unpacked: &'s mut Unpacked) -> Result<&'s [u8], Fault> {
    let Unpacked { text: scratch, bytes, .. } = unpacked;
    decode_bytes(text(s, scratch)?, strings, bytes)
}

fn decode_bytes<'s>(text: &str, strings: BinaryStrings, bytes: &'s mut Vec<u8>) -> Result<&'s [u8], Fault> {
    bytes.clear();
    match strings {
        BinaryStrings::Base64 => STANDARD.decode_vec(text, bytes).map_err(|_| Fault::Kind)?,
        BinaryStrings::Base64UrlSafe => URL_SAFE.decode_vec(text, bytes).map_err(|_| Fault::Kind)?,
        BinaryStrings::Hex => {
            let (pairs, odd) = text.as_bytes().as_chunks::<2>();
            let digit = |b: u8| char::from(b).to_digit(16).ok_or(Fault::Kind);
            for [high, low] in pairs {
                bytes.push((digit(*high)? << 4 | digit(*low)?) as u8);
            }
            if !odd.is_empty() {
                return Err(Fault::Kind);
            }
        }
    }
    Ok(bytes)
}

/// The unscaled integer of a decimal, no longer than that of the greatest number of any source: arithmetic on more would take too long.
fn unscaled<'s>(s: JsonStr<'_>, unpacked: &'s mut Unpacked) -> Result<&'s [u8], Fault> {
    bounded(bytes(s, BinaryStrings::Base64, unpacked)?)
}

fn bounded(unscaled: &[u8]) -> Result<&[u8], Fault> {
    if unscaled.len() > decimal::UNSCALED_BYTES_MAX { Err(Fault::Range) } else { Ok(unscaled) }
}

fn uuid(text: &str) -> Result<Value<'static>, Fault> {
    value::parse_uuid(text).map(Value::Uuid).ok_or(Fault::Kind)
}

/// Case DEC-12: the document is the string's text, and stays as it is.
fn document(text: &str) -> Result<Value<'_>, Fault> {
    if json::is_document(text) { Ok(Value::Json(text)) } else { Err(Fault::Kind) }
}

fn time(count: i64, unit: i64, ty: LogicalType) -> Result<Value<'static>, Fault> {
    Ok(match ty {
        LogicalType::Duration { .. } => Value::Duration(temporal::duration(count, unit, ty)?),
        _ => Value::Time(temporal::scaled(count, unit, ty)?),
    })
}

fn iso(ty: LogicalType, text: &str, cut: &mut u64) -> Result<Value<'static>, Fault> {
    let is_instant = matches!(ty, LogicalType::Timestamp { .. } | LogicalType::TimestampTz { .. });
    if let Some(units) = temporal::usual_timestamp(text.as_bytes(), ty).filter(|_| is_instant) {
        return Ok(Value::Timestamp(units));
    }
    *cut += u64::from(temporal::is_cut(text, ty));
    match ty {
        LogicalType::Date => temporal::parse_date(text).map(Value::Date),
        LogicalType::Time { .. } => temporal::parse_time(text, ty).map(Value::Time),
        LogicalType::Timestamp { .. } | LogicalType::TimestampTz { .. } => temporal::parse_timestamp(text, ty).map(Value::Timestamp),
        LogicalType::Duration { .. } => temporal::parse_duration(text, ty).map(Value::Duration),
        LogicalType::Interval => temporal::parse_interval(text).map(Value::Interval),
        _ => Err(Fault::Kind),
    }
}
