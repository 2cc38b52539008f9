//! Flattened events: rows without an envelope, as Debezium's `ExtractNewRecordState` leaves them.
//!
//! The members that it adds begin with `__`; they say what happened and where, and are no columns unless they are declared. What it adds is the
//! connector's choice (`add.fields`), so each may be missing: a row that says nothing of itself is an upsert (case SNP-03), and a null value may be
//! the only word of a delete (case DEL-02). A delete that is dropped without a tombstone leaves nothing to be heard of.

use super::datum::Datum;
use super::reject::{Code, Reject};
use super::source::{self, Source};
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

/// What has been seen of the added members so far.
#[derive(Debug)]
pub(super) struct Adding<'a> {
    op: Option<&'a str>,
    is_deleted: bool,
    source: Source<'a>,
}

impl<'a> Adding<'a> {
    /// Nothing yet; the source is of that connector where they name none.
    pub(super) fn new(connector: &'static str) -> Self {
        Self { op: None, is_deleted: false, source: Source::of_connector(connector) }
    }

    /// Takes an added member, by its name behind the prefix.
    pub(super) fn take(&mut self, name: &str, datum: Datum<'a>) {
        let text = match datum {
            Datum::Json(Token::String(s)) => Some(s.raw),
            Datum::Text(text) => Some(text),
            _ => None,
        };
        match (name, datum) {
            ("op", _) => self.op = text.or(self.op),
            ("deleted", Datum::Json(Token::Bool(flag)) | Datum::Bool(flag)) => self.is_deleted = flag,
            ("deleted", _) => self.is_deleted |= text == Some("true"),
            // The connector's own clock; the source's are named after the source.
            ("ts_ms" | "ts_us" | "ts_ns", _) => {}
            (name, datum) => self.source.put(source_member(name), datum),
        }
    }

    /// What they said.
    pub(super) fn finish(self) -> Result<Flattened<'a>, Reject> {
        let op = match self.op {
            _ if self.is_deleted => Op::Delete,
            None | Some("u") => Op::Update,
            Some("c") => Op::Create,
            Some("r") => Op::Read,
            Some("d") => Op::Delete,
            Some(_) => return Err(Reject::new(Code::EnvelopeUnknownOp, "the operation of a flattened event is none of c, u, d, r")),
        };
        Ok(Flattened { op, source: self.source })
    }
}

fn source_member(name: &str) -> source::Member {
    Source::member(name.strip_prefix("source_").unwrap_or(name))
}

/// Whether an absent member without a presence of its own is its default: a column's value is, and of what is added only what may be zero.
pub(super) fn has_default(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_none_or(|name| Source::is_zero(name.strip_prefix("source_").unwrap_or(name)))
}

impl<'a> Flattened<'a> {
    /// Reads the added members of a row, an object that has been checked; the source is of that connector where they name none.
    pub(super) fn parse(row: &'a str, connector: &'static str) -> Result<Self, Reject> {
        let json = |e| Reject::json("value", e);
        let mut adding = Adding::new(connector);
        let mut scanner = Scanner::new(row);
        scanner.enter_object().map_err(json)?;
        let mut first = true;
        while let Some(name) = scanner.member(first).map_err(json)? {
            first = false;
            let token = scanner.value().map_err(json)?;
            if let Some(name) = name.raw.strip_prefix(PREFIX) {
                adding.take(name, Datum::Json(token));
            }
        }
        adding.finish()
    }
}
