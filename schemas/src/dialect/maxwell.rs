//! Maxwell's events: `data` is the row, `old` what an update altered of it, and the types are nowhere, so they are declared.
//!
//! The columns that `data` lacks were not sent where binlogs hold partial images (case TOA-04). Members of a record key that begin with `pk.` are
//! the key columns. A change's place is that of its binlog event and its number within the transaction; the last one of a transaction has no number
//! and commits. Zero dates come as text, and are NULL (case TMP-06).

use super::Ignored;
use super::datum::Datum;
use super::members;
use super::reject::{Code, Reject};
use super::source::{Number, Source};
use crate::change::Op;
use crate::json::{Scanner, Token};

/// What begins the names of key columns in a record key.
const KEY_PREFIX: &str = "pk.";

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Row(Op),
    Ignored(Ignored),
}

/// The members of an event that matter, borrowed.
#[derive(Debug)]
pub(super) struct Maxwell<'a> {
    pub(super) kind: Kind,
    /// The row.
    pub(super) data: Option<&'a str>,
    /// Former values of what an update altered.
    pub(super) old: Option<&'a str>,
    pub(super) source: Source<'a>,
}

impl<'a> Maxwell<'a> {
    /// Reads an event; the connector is the name under which its positions order it.
    pub(super) fn parse(scanner: &mut Scanner<'a>, connector: &'static str) -> Result<Self, Reject> {
        let json = |e| Reject::json("value", e);
        let not_maxwell = || Reject::new(Code::EnvelopeInvalid, "the value is no event of Maxwell: it has no `type`");
        let (mut kind, mut data, mut old, mut row, mut is_last) = (None, None, None, None, false);
        let mut source = Source::of_connector(connector);
        if !members::enter(scanner).map_err(json)? {
            return Err(not_maxwell());
        }
        let mut first = true;
        while let Some(name) = scanner.member(first).map_err(json)? {
            first = false;
            match (name.raw, scanner.value().map_err(json)?) {
                ("type", Token::String(word)) => kind = Some(word.raw),
                ("data", Token::Object(text)) => data = Some(text),
                ("old", Token::Object(text)) => old = Some(text),
                ("commit", Token::Bool(flag)) => is_last = flag,
                ("xoffset", Token::Number(digits)) => row = Some(digits),
                ("position", Token::String(s)) => {
                    if let Some((file, position)) = s.raw.split_once(':') {
                        source.put(Source::member("file"), Datum::Text(file));
                        source.put(Source::member("pos"), Datum::Text(position));
                    }
                }
                ("xid", token @ Token::Number(_)) => source.put(Source::member("txId"), Datum::Json(token)),
                ("ts", Token::Number(digits)) => {
                    let millis = Number::Digits(digits).read::<i64>().and_then(|seconds| seconds.checked_mul(1_000));
                    source.put(Source::member("ts_ms"), millis.map_or(Datum::Null, Datum::Integer));
                }
                ("database", token) => source.put(Source::member("db"), Datum::Json(token)),
                ("table", token) => source.put(Source::member("table"), Datum::Json(token)),
                _ => {}
            }
        }
        // Behind all that are numbered.
        let row = row.map_or(if is_last { Datum::Integer(i64::from(u32::MAX)) } else { Datum::Integer(0) }, Datum::Text);
        source.put(Source::member("row"), row);
        let kind = match kind.ok_or_else(not_maxwell)? {
            "insert" => Kind::Row(Op::Create),
            "update" => Kind::Row(Op::Update),
            "delete" => Kind::Row(Op::Delete),
            "bootstrap-insert" => Kind::Row(Op::Read),
            "bootstrap-start" | "bootstrap-complete" => Kind::Ignored(Ignored::Marker),
            word if word.starts_with("table-") || word.starts_with("database-") => Kind::Ignored(Ignored::SchemaChange),
            _ => return Err(Reject::new(Code::EnvelopeUnknownOp, "the type of an event of Maxwell is none that is known")),
        };
        Ok(Self { kind, data, old, source })
    }
}

/// The names of the key columns that a record key of Maxwell has.
pub(super) fn key_names(key: &[u8]) -> Result<Vec<String>, Reject> {
    let text = std::str::from_utf8(key).map_err(|e| Reject::json("key", e))?;
    let names = super::plan::names(text, "key")?;
    Ok(names.into_iter().filter_map(|name| Some(name.strip_prefix(KEY_PREFIX)?.to_owned())).collect())
}
