//! The marker of a value that the source did not send (`unavailable.value.placeholder`), in the forms in which it travels.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::datum::Datum;
use super::field::{BinaryStrings, Wire};
use super::geometry;
use super::layout::Items;
use super::reject::Fault;
use crate::json::{JsonStr, Scanner, Token};
use crate::types::LogicalType;
use crate::value;

/// The marker of a value that the source did not send, in the forms in which it travels.
#[derive(Clone, Debug)]
pub(super) struct Placeholder {
    text: String,
    base64: String,
    hex: String,
    /// Its bytes as an array of numbers, which stands for one of integers.
    numbers: String,
}

impl Placeholder {
    /// The marker with that text; none, where it is empty.
    pub(super) fn new(text: &str) -> Self {
        let mut hex = String::new();
        value::push_hex(&mut hex, text.as_bytes());
        let numbers: Vec<String> = text.bytes().map(|b| b.cast_signed().to_string()).collect();
        Self { text: text.to_owned(), base64: STANDARD.encode(text), hex, numbers: format!("[{}]", numbers.join(",")) }
    }

    /// Whether a value is the marker. Strings in columns of every type but bytes carry the text, bytes the text or what bytes are written as, arrays
    /// the text as their only element.
    pub(super) fn stands_at(&self, token: &Token<'_>, wire: Wire, ty: LogicalType) -> bool {
        // What it is written as is never shorter than it is.
        let is_shorter = matches!(token, Token::String(s) if s.raw.len() < self.text.len());
        if is_shorter || self.text.is_empty() {
            return false;
        }
        match (token, wire) {
            (Token::String(s), Wire::Bytes(strings)) => self.is_bytes(s, strings),
            (Token::String(s), Wire::Bits) => self.is_bytes(s, BinaryStrings::Base64),
            (Token::String(s), Wire::Declared { binary_strings, .. }) if ty == LogicalType::Bytes => self.is_bytes(s, binary_strings),
            (Token::String(s), Wire::Text | Wire::Json | Wire::DecimalText | Wire::Literal | Wire::Declared { .. }) => s.is(&self.text),
            (Token::String(s), Wire::Array(_)) => s.is(&self.text),
            (Token::Object(_), Wire::Geometry) => {
                matches!(geometry::members(token), Ok(Some((wkb, _))) if self.is_bytes(&wkb, BinaryStrings::Base64))
            }
            (Token::Array(raw), _) if *raw == self.numbers => true,
            (Token::Array(raw), _) => {
                let inner = raw[1..raw.len() - 1].trim_ascii();
                matches!(Scanner::new(inner).value(), Ok(Token::String(s)) if s.raw.len() + 2 == inner.len() && s.is(&self.text))
            }
            _ => false,
        }
    }

    /// Whether the elements of a registered array are the marker: its text alone, or its bytes as numbers.
    pub(super) fn stands_in(&self, items: &Items<'_>) -> bool {
        let mut bytes = self.text.bytes();
        let mut is_text = false;
        let is_marker = items.each(|datum| match datum {
            Datum::Text(text) if !is_text && text == self.text => {
                is_text = true;
                Ok(())
            }
            Datum::Integer(v) if !is_text && bytes.next().map(|b| i64::from(b.cast_signed())) == Some(v) => Ok(()),
            _ => Err(Fault::Kind),
        });
        is_marker.is_ok() && (is_text || bytes.len() == 0) && !self.text.is_empty()
    }

    /// Whether bytes are the marker's text.
    #[inline]
    pub(super) fn is_raw(&self, bytes: &[u8]) -> bool {
        !self.text.is_empty() && bytes == self.text.as_bytes()
    }

    fn is_bytes(&self, s: &JsonStr<'_>, strings: BinaryStrings) -> bool {
        s.is(if strings == BinaryStrings::Hex { &self.hex } else { &self.base64 }) || s.is(&self.text)
    }
}
