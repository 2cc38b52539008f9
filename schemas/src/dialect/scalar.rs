//! Values that stand by themselves: record keys that are no object of members, and headers.
//!
//! What Kafka's own serializers write carries no type, so the column's declared type says what it means.

use super::datum::Datum;
use super::reject::{Code, Reject};
use crate::json::{JsonStr, Scanner, Token};
use crate::types::LogicalType;

/// What record keys are written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyFormat {
    /// A key that begins with a zero byte is a registry's frame, an object or an array is JSON; anything else is one value: a string or a number of
    /// JSON, else text.
    #[default]
    Detected,
    /// JSON, with or without a schema part.
    Json,
    /// Text, whatever it looks like (`StringSerializer`).
    Text,
    /// Two bytes, big-endian (`ShortSerializer`).
    Int16,
    /// Four bytes, big-endian (`IntegerSerializer`).
    Int32,
    /// Eight bytes, big-endian (`LongSerializer`).
    Int64,
}

impl KeyFormat {
    /// The type of a key that needs no declaration.
    pub(super) const fn ty(self) -> Option<LogicalType> {
        match self {
            Self::Detected | Self::Json => None,
            Self::Text => Some(LogicalType::Text),
            Self::Int16 => Some(LogicalType::Int16),
            Self::Int32 => Some(LogicalType::Int32),
            Self::Int64 => Some(LogicalType::Int64),
        }
    }

    /// Reads a key that is an integer of fixed size; `None` for other formats.
    pub(super) fn integer(self, bytes: &[u8]) -> Option<Result<i64, Reject>> {
        let (value, size) = match self {
            Self::Detected | Self::Json | Self::Text => return None,
            Self::Int16 => (bytes.try_into().ok().map(i16::from_be_bytes).map(i64::from), 2),
            Self::Int32 => (bytes.try_into().ok().map(i32::from_be_bytes).map(i64::from), 4),
            Self::Int64 => (bytes.try_into().ok().map(i64::from_be_bytes), 8),
        };
        let wrong = || Reject::new(Code::ValueKind, format!("the record key has {} bytes, and an integer of {size} was expected", bytes.len()));
        Some(value.ok_or_else(wrong))
    }
}

/// What text by itself is, as a token of JSON: a number where the type is written as one, else a string.
pub(super) fn token(text: &str, ty: LogicalType) -> Token<'_> {
    if ty != LogicalType::Text {
        let mut scanner = Scanner::new(text);
        if let Ok(token @ (Token::Number(_) | Token::Bool(_))) = scanner.value()
            && scanner.finish().is_ok()
        {
            return token;
        }
    }
    Token::String(JsonStr { raw: text, escaped: false })
}

/// What a header says; it must be UTF-8 unless it is bytes.
pub(super) fn header(bytes: &[u8], ty: LogicalType) -> Datum<'_> {
    if ty == LogicalType::Bytes {
        return Datum::Bytes(bytes);
    }
    std::str::from_utf8(bytes).map_or(Datum::Unreadable, |text| Datum::Json(token(text, ty)))
}

/// Whether a key is one value: neither null, nor an object, nor an array, nor a registry's frame.
pub(super) fn is_text(bytes: &[u8]) -> bool {
    let text = bytes.trim_ascii_start();
    !matches!(text.first(), None | Some(0 | b'{' | b'[')) && text.trim_ascii_end() != b"null"
}

/// What a key that is one value holds: a string of JSON, a number where the type is none of text, else its text as it is.
pub(super) fn detected(text: &str, ty: LogicalType) -> Token<'_> {
    let mut scanner = Scanner::new(text);
    match scanner.value() {
        Ok(string @ Token::String(_)) if scanner.finish().is_ok() => string,
        _ => token(text, ty),
    }
}
