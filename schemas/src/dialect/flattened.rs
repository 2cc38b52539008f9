//! Flattened events: rows without an envelope, as Debezium's `ExtractNewRecordState` leaves them.
//!
//! The members that it adds begin with `__`; they say what happened and where, and are no columns unless they are declared. What it adds is the
//! connector's choice (`add.fields`), so each may be missing: a row that says nothing of itself is an upsert (case SNP-03), and a null value may be
//! the only word of a delete (case DEL-02). A delete that is dropped without a tombstone leaves nothing to be heard of.

use super::avro;
use super::field::Datum;
use super::plan::Image;
use super::reject::{Code, Reject};
use super::source::Source;
use crate::change::Op;
use crate::json::{Scanner, Token};

/// What begins the names of members that are no columns.
pub(super) const PREFIX: &str = "__";

/// What the added members of a row say.
#[derive(Debug)]
pub(super) struct Flattened<'a> {
    pub(super) op: Op,
    pub(super) source: Source<'a>,
}

impl<'a> Flattened<'a> {
    /// Reads the added members of a row, which has been checked; the source is of that connector where they name none.
    pub(super) fn parse(row: &Image<'a>, connector: &'static str) -> Result<Self, Reject> {
        let mut source = Source::of_connector(connector);
        let (mut op, mut is_deleted) = (None, false);
        let mut take = |name: &str, datum: Datum<'a>| {
            let text = match datum {
                Datum::Json(Token::String(s)) => Some(s.raw),
                Datum::Text(text) => Some(text),
                _ => None,
            };
            match (name, datum, text) {
                ("op", _, Some(text)) => op = Some(text),
                ("deleted", Datum::Json(Token::Bool(flag)) | Datum::Bool(flag), _) => is_deleted = flag,
                ("deleted", _, Some(text)) => is_deleted = text == "true",
                // The connector's own clock; the source's are named after the source.
                ("ts_ms" | "ts_us" | "ts_ns", ..) => {}
                (name, datum, _) => source.put(Source::member(name.strip_prefix("source_").unwrap_or(name)), datum),
            }
        };
        match row {
            Image::Json(text) => {
                let json = |e| Reject::json("value", e);
                let mut scanner = Scanner::new(text);
                scanner.enter_object().map_err(json)?;
                let mut first = true;
                while let Some(name) = scanner.member(first).map_err(json)? {
                    first = false;
                    let token = scanner.value().map_err(json)?;
                    if let Some(name) = name.raw.strip_prefix(PREFIX) {
                        take(name, Datum::Json(token));
                    }
                }
            }
            Image::Avro(bytes, layout) => {
                layout.prefixed(bytes, PREFIX, take).map_err(|e| avro::invalid("row", e))?;
            }
        }
        let op = match op {
            _ if is_deleted => Op::Delete,
            None | Some("u") => Op::Update,
            Some("c") => Op::Create,
            Some("r") => Op::Read,
            Some("d") => Op::Delete,
            Some(_) => return Err(Reject::new(Code::EnvelopeUnknownOp, "the operation of a flattened event is none of c, u, d, r")),
        };
        Ok(Self { op, source })
    }
}
