//! Values of MongoDB's documents: extended JSON, canonical, relaxed or as older drivers write it (case ENV-04).
//!
//! A value says its own type, so nothing is read as what it is not: an instant is never a number of unknown unit, an integer too wide for a float
//! is refused, and what no column holds stays in a document as it is written.

use super::datum::{self, Unpacked};
use super::elements::{json_array, put_element};
use super::field::{BinaryStrings, DecimalStrings, MILLIS};
use super::reject::Fault;
use super::temporal;
use crate::json::{JsonStr, Scanner, Token};
use crate::types::LogicalType;
use crate::value::Value;

/// Integers beyond this have neighbours that are the same float.
const EXACT_IN_FLOAT: u64 = 1 << 53;

/// Hexadecimal digits of an object id.
const OBJECT_ID_DIGITS: usize = 24;

/// A value with its type, as an object says it.
enum Typed<'a> {
    ObjectId(JsonStr<'a>),
    Integer(&'a str),
    Double(&'a str),
    Decimal(&'a str),
    /// Millis since 1970 UTC.
    Instant(&'a str),
    /// ISO 8601.
    InstantText(JsonStr<'a>),
    Binary(JsonStr<'a>),
    Uuid(JsonStr<'a>),
    Symbol(JsonStr<'a>),
    Undefined,
}

/// Reads a value that is not null.
pub(super) fn read<'s>(ty: LogicalType, token: Token<'s>, unpacked: &'s mut Unpacked) -> Result<Value<'s>, Fault> {
    let typed = match (ty, token) {
        (LogicalType::Array(_), token) => {
            return json_array(ty, &token, unpacked, |token, ty, unpacked, out| put_element(ty, read(ty, token, unpacked)?, out));
        }
        (LogicalType::Json, Token::String(s)) => {
            // A string of the document is a string, whatever stands in it.
            let Unpacked { text, bytes, .. } = unpacked;
            let string = serde_json::Value::from(s.text(text).ok_or(Fault::Surrogate)?).to_string();
            bytes.clear();
            bytes.extend_from_slice(string.as_bytes());
            return std::str::from_utf8(bytes).map(Value::Json).map_err(|_| Fault::Kind);
        }
        (LogicalType::Json, token) => return plain(ty, token, unpacked),
        (ty, Token::Object(text)) => typed(text).ok_or(Fault::Kind).map(|typed| (ty, typed))?,
        (LogicalType::Float32 | LogicalType::Float64, Token::Number(digits)) => (ty, number(digits)),
        (
            LogicalType::Date
            | LogicalType::Time { .. }
            | LogicalType::Timestamp { .. }
            | LogicalType::TimestampTz { .. }
            | LogicalType::Duration { .. },
            Token::Number(_),
        ) => return Err(Fault::Kind),
        (ty, token) => return plain(ty, token, unpacked),
    };
    let is_float = matches!(ty, LogicalType::Float32 | LogicalType::Float64);
    let is_decimal = matches!(ty, LogicalType::Decimal { .. } | LogicalType::Numeric);
    match typed {
        (LogicalType::Text, Typed::ObjectId(s) | Typed::Symbol(s)) => plain(ty, Token::String(s), unpacked),
        (_, Typed::Integer(digits)) if is_float => {
            let exact = digits.parse::<i64>().is_ok_and(|v| v.unsigned_abs() <= if ty == LogicalType::Float32 { 1 << 24 } else { EXACT_IN_FLOAT });
            if exact { plain(ty, Token::Number(digits), unpacked) } else { Err(Fault::Range) }
        }
        (LogicalType::Bool | LogicalType::Text, Typed::Integer(_)) => Err(Fault::Kind),
        (_, Typed::Integer(digits)) => plain(ty, Token::Number(digits), unpacked),
        (LogicalType::Float64, Typed::Double(digits)) => plain(ty, Token::String(JsonStr { raw: digits, escaped: false }), unpacked),
        (_, Typed::Double(digits) | Typed::Decimal(digits)) if is_decimal => {
            plain(ty, Token::String(JsonStr { raw: digits, escaped: false }), unpacked)
        }
        (LogicalType::TimestampTz { .. }, Typed::Instant(digits)) => {
            let millis = digits.parse().map_err(|_| Fault::Kind)?;
            Ok(Value::Timestamp(temporal::timestamp(millis, MILLIS, ty)?))
        }
        (LogicalType::TimestampTz { .. }, Typed::InstantText(text)) => plain(ty, Token::String(text), unpacked),
        (LogicalType::Bytes, Typed::Binary(base64)) => plain(ty, Token::String(base64), unpacked),
        (LogicalType::Uuid, Typed::Uuid(text)) => plain(ty, Token::String(text), unpacked),
        (LogicalType::Uuid, Typed::Binary(base64)) => {
            let Value::Bytes(bytes) = plain(LogicalType::Bytes, Token::String(base64), unpacked)? else { return Err(Fault::Kind) };
            Ok(Value::Uuid(bytes.try_into().map_err(|_| Fault::Kind)?))
        }
        (_, Typed::Undefined) => Ok(Value::Null),
        _ => Err(Fault::Kind),
    }
}

fn plain<'s>(ty: LogicalType, token: Token<'s>, unpacked: &'s mut Unpacked) -> Result<Value<'s>, Fault> {
    datum::declared(ty, token, DecimalStrings::Numbers, BinaryStrings::Base64, unpacked)
}

fn number(digits: &str) -> Typed<'_> {
    if digits.bytes().all(|b| b == b'-' || b.is_ascii_digit()) { Typed::Integer(digits) } else { Typed::Double(digits) }
}

/// What an object says if it stands for one value; `None` for a document.
fn typed(text: &str) -> Option<Typed<'_>> {
    let mut scanner = Scanner::new(text);
    scanner.enter_object().ok()?;
    let name = scanner.member(true).ok()??.raw;
    let token = scanner.value().ok()?;
    let is_binary = name == "$binary";
    let typed = match (name, token) {
        ("$oid", Token::String(s)) => Typed::ObjectId(s),
        ("$numberInt" | "$numberLong", token) => Typed::Integer(whole(unescaped(token)?)?),
        ("$numberDouble", token) => Typed::Double(unescaped(token)?),
        ("$numberDecimal", token) => Typed::Decimal(unescaped(token)?),
        ("$date", Token::Number(millis)) => Typed::Instant(millis),
        ("$date", Token::String(text)) => Typed::InstantText(text),
        ("$date", Token::Object(inner)) => match typed(inner)? {
            Typed::Integer(millis) => Typed::Instant(millis),
            _ => return None,
        },
        ("$binary", Token::String(base64)) => Typed::Binary(base64),
        ("$binary", Token::Object(inner)) => Typed::Binary(binary(inner)?),
        ("$uuid", Token::String(text)) => Typed::Uuid(text),
        ("$symbol", Token::String(text)) => Typed::Symbol(text),
        ("$undefined", Token::Bool(true)) => Typed::Undefined,
        _ => return None,
    };
    match scanner.member(false).ok()? {
        None => Some(typed),
        // As older drivers write it: the subtype beside the bytes.
        Some(name) if is_binary && name.raw == "$type" && scanner.value().is_ok() && scanner.member(false).ok()?.is_none() => Some(typed),
        Some(_) => None,
    }
}

fn unescaped(token: Token<'_>) -> Option<&str> {
    if let Token::String(JsonStr { raw, escaped: false }) = token { Some(raw) } else { None }
}

fn binary(text: &str) -> Option<JsonStr<'_>> {
    let mut scanner = Scanner::new(text);
    scanner.enter_object().ok()?;
    let (mut base64, mut first) = (None, true);
    while let Some(name) = scanner.member(first).ok()? {
        first = false;
        match (name.raw, scanner.value().ok()?) {
            ("base64", Token::String(s)) => base64 = Some(s),
            ("subType", Token::String(_)) => {}
            _ => return None,
        }
    }
    base64
}

fn whole(digits: &str) -> Option<&str> {
    let bare = digits.strip_prefix('-').unwrap_or(digits);
    (!bare.is_empty() && bare.bytes().all(|b| b.is_ascii_digit())).then_some(digits)
}

/// Whether a string is written like an object id: as text the two could not be told apart.
pub(super) fn is_like_object_id(token: &Token<'_>) -> bool {
    matches!(token, Token::String(s) if s.raw.len() == OBJECT_ID_DIGITS && s.raw.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
}
