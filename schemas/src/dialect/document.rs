//! A key or a value as it lies in Kafka: with its schema part beside the payload, or the payload alone.
//!
//! The schema part is most of a record and the same in nearly all of them, so what stands in front of the payload is compared with what was
//! seen last, as bytes, and its meaning is taken from there. Only a schema part that is new is looked into.

use simdutf8::compat::{Utf8Error, from_utf8};

use super::plan::Recent;
use super::reject::{Code, Reject};
use crate::json::{Scanner, Token};

/// A schema part that is longer than this is read anew for every record rather than kept.
const PREFIX_BYTES_MAX: usize = 1 << 20;

/// Where a document's payload begins, and what its schema part says.
pub(super) struct Opened<'a, T> {
    pub(super) scanner: Scanner<'a>,
    /// Whether the payload stands inside of a wrapper that is still to be closed.
    is_wrapped: bool,
    /// What the schema part means, where there is one.
    pub(super) schema: Option<T>,
}

/// A schema part that has been seen, and what it came to.
#[derive(Debug)]
pub(super) struct Seen<T> {
    /// Everything in front of the payload; `None` where the payload comes first, or where this is too long to keep.
    prefix: Option<Vec<u8>>,
    /// The schema part itself, where there is no prefix.
    schema: Vec<u8>,
    meaning: T,
}

/// Finds the payload of a document. A wrapper is an object of exactly the members `schema`, an object or null, and `payload` (case ENV-01).
/// In the steady state the schema part is one that was seen before, and costs a comparison of bytes.
pub(super) fn open<'a, T: Clone>(
    bytes: &'a [u8],
    part: &str,
    seen: &mut Recent<Seen<T>>,
    compile: impl FnOnce(&str) -> Result<T, Reject>,
) -> Result<Opened<'a, T>, Reject> {
    let utf8 = |base: usize| -> Result<&'a str, Reject> {
        let invalid = |e: Utf8Error| Reject::json(part, format_args!("no UTF-8 at byte {}", base + e.valid_up_to()));
        from_utf8(&bytes[base..]).map_err(invalid)
    };
    let known = seen.find(|s| s.prefix.as_ref().is_some_and(|prefix| bytes.starts_with(prefix)));
    if let Some(Seen { prefix: Some(prefix), meaning, .. }) = known {
        let scanner = Scanner::behind(prefix.len(), utf8(prefix.len())?);
        return Ok(Opened { scanner, is_wrapped: true, schema: Some(meaning.clone()) });
    }
    let text = utf8(0)?;
    let json = |e| Reject::json(part, e);
    let bare = Opened { scanner: Scanner::new(text), is_wrapped: false, schema: None };
    let mut scanner = Scanner::new(text);
    if scanner.enter_object().is_err() {
        return Ok(bare);
    }
    match scanner.member(true).map_err(json)?.map(|name| name.raw) {
        Some("schema") => {
            let schema = scanner.value().map_err(json)?;
            if !matches!(schema, Token::Object(_) | Token::Null) || scanner.member(false).map_err(json)?.map(|name| name.raw) != Some("payload") {
                return Ok(bare);
            }
            let Token::Object(schema) = schema else { return Ok(Opened { scanner, is_wrapped: true, schema: None }) };
            let prefix = &bytes[..scanner.position()];
            let meaning = compile(schema)?;
            if prefix.len() <= PREFIX_BYTES_MAX {
                seen.put(Seen { prefix: Some(prefix.to_vec()), schema: Vec::new(), meaning: meaning.clone() });
            }
            Ok(Opened { scanner, is_wrapped: true, schema: Some(meaning) })
        }
        Some("payload") => {
            let start = scanner.position();
            let _ = scanner.value().map_err(json)?;
            let payload = &text[start..scanner.position()];
            if scanner.member(false).map_err(json)?.map(|name| name.raw) != Some("schema") {
                return Ok(bare);
            }
            let schema = scanner.value().map_err(json)?;
            if !matches!(schema, Token::Object(_) | Token::Null) || scanner.member(false).map_err(json)?.is_some() {
                return Ok(bare);
            }
            scanner.finish().map_err(json)?;
            let inner = Scanner::behind(start, payload);
            let Token::Object(schema) = schema else { return Ok(Opened { scanner: inner, is_wrapped: false, schema: None }) };
            let known = seen.find(|s| s.prefix.is_none() && s.schema == schema.as_bytes()).map(|s| s.meaning.clone());
            let meaning = match known {
                Some(meaning) => meaning,
                None => {
                    let meaning = compile(schema)?;
                    if schema.len() <= PREFIX_BYTES_MAX {
                        seen.put(Seen { prefix: None, schema: schema.as_bytes().to_vec(), meaning: meaning.clone() });
                    }
                    meaning
                }
            };
            Ok(Opened { scanner: inner, is_wrapped: false, schema: Some(meaning) })
        }
        _ => Ok(bare),
    }
}

/// Ends a document behind its payload.
pub(super) fn close<T>(opened: &mut Opened<'_, T>, part: &str) -> Result<(), Reject> {
    let json = |e| Reject::json(part, e);
    if opened.is_wrapped && opened.scanner.member(false).map_err(json)?.is_some() {
        return Err(Reject::new(Code::EnvelopeInvalid, format!("the {part} has members beside `schema` and `payload`")));
    }
    opened.scanner.finish().map_err(json)
}
