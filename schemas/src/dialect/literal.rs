//! Values of columns whose types were inferred: of exactly the kinds that the type was inferred from, so that nothing is made another thing in silence.
//!
//! A declared `int64` takes `"17"` as well, and a declared `json` takes a document within a string. Here a string is a string: what another writer
//! began to write otherwise is told by name, with the type that would take both.

use super::datum::{self, Datum, Unpacked};
use super::field::{Field, Wire};
use super::placeholder::Placeholder;
use super::reject::{Code, Fault, Reject};
use crate::json::Token;
use crate::shape::Shape;
use crate::types::LogicalType;
use crate::value::Value;

/// Reads a value that is neither NULL nor a marker.
pub(super) fn read<'s>(ty: LogicalType, token: Token<'s>, unpacked: &'s mut Unpacked) -> Result<Value<'s>, Fault> {
    Ok(match (ty, token) {
        (LogicalType::Bool, Token::Bool(value)) => Value::Bool(value),
        (LogicalType::Int64, Token::Number(digits)) => datum::integer(digits)?,
        // The sizes that a schema part once said.
        (LogicalType::Int8 | LogicalType::Int16 | LogicalType::Int32, Token::Number(digits)) => datum::integer(digits)?,
        (LogicalType::UInt8 | LogicalType::UInt16 | LogicalType::UInt32, Token::Number(digits)) => datum::integer(digits)?,
        (LogicalType::Float32, Token::Number(_)) => Value::Float32(datum::float(&token, f32::is_finite)?),
        (LogicalType::Float64, Token::Number(_)) => Value::Float64(datum::float(&token, f64::is_finite)?),
        (LogicalType::Numeric, Token::Number(digits)) => datum::decimal_text(digits, ty, &mut unpacked.bytes)?,
        (LogicalType::Text, Token::String(s)) => Value::Text(datum::text(s, &mut unpacked.text)?),
        (LogicalType::Json, Token::Object(raw) | Token::Array(raw) | Token::Number(raw)) => Value::Json(raw),
        (LogicalType::Json, Token::Bool(value)) => Value::Json(if value { "true" } else { "false" }),
        (LogicalType::Json, Token::String(s)) => {
            // As it stands in its record, quotes and all.
            let text = &mut unpacked.text;
            text.clear();
            text.push('"');
            text.push_str(s.raw);
            text.push('"');
            Value::Json(text)
        }
        _ => return Err(Fault::Kind),
    })
}

/// Whether a value of a member without a type says nothing, so that none is needed.
pub(super) fn says_nothing(datum: &Datum<'_>, placeholder: &Placeholder) -> bool {
    match datum {
        Datum::Null | Datum::Json(Token::Null) => true,
        Datum::Json(token) => placeholder.stands_at(token, Wire::Literal, LogicalType::Text),
        _ => false,
    }
}

impl Field {
    /// Why a value of this member cannot be taken. Where its type was inferred, that is said, with the type that would have taken this one as well.
    pub(super) fn reject(&self, fault: Fault, table: &str, datum: Option<&Datum<'_>>) -> Reject {
        let (Some(Wire::Literal), Fault::Kind | Fault::Range, Some(Datum::Json(token))) = (self.wire, fault, datum) else {
            return fault.reject(table, &self.name, self.ty);
        };
        let name = &self.name;
        match Shape::of_column(self.ty).join(Shape::of(token)).column() {
            Some(both) if both != self.ty => {
                let reason = format!(
                    "a value of column {name:?} of table {table:?} is none of type {}, which was inferred from earlier records; \
                     `types: {{ {name:?}: {both} }}` takes both",
                    self.ty
                );
                Reject::new(Code::ValueNotAsInferred, reason)
            }
            _ => fault.reject(table, name, self.ty),
        }
    }
}
