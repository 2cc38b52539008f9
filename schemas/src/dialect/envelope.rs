//! A payload taken apart: which record of a connector it is, and where its rows lie.
//!
//! One pass over the payload. The row after a change is nearly always of the shape of the last one, so it is written on the way; any other
//! row is passed over (and checked), since what it means is known only with the operation, which stands behind it. Records that a connector sends beside changes are recognised by their shape, wherever they turn up (cases TXN-01, CTL-02).

use std::sync::Arc;

use super::datum::Datum;
use super::flattened::{self, Adding, Flattened};
use super::layout::{Layout, RecordId, Schema, Top};
use super::members::{self, Members};
use super::plan::Image;
use super::protobuf::Slot;
use super::reject::{Code, Reject};
use super::source::{self, Source};
use super::{Ignored, avro, protobuf};
use crate::avro::Budget;
use crate::change::Op;
use crate::json::{JsonStr, Scanner, Token};
use crate::wire::{Reader, WireError};

/// The members of a payload that matter, borrowed.
#[derive(Debug, Default)]
pub(super) struct Envelope<'a> {
    op: Option<JsonStr<'a>>,
    /// The row, or `None` for null.
    pub(super) before: Option<Image<'a>>,
    /// The row, or `None` for null.
    pub(super) after: Option<Image<'a>>,
    /// The row where it is a document in a string, as MongoDB's are.
    pub(super) document: Option<JsonStr<'a>>,
    /// What an update altered of a document, an object.
    pub(super) description: Option<&'a str>,
    pub(super) source: Source<'a>,
    pub(super) transaction: Option<JsonStr<'a>>,
    pub(super) transaction_order: Option<i64>,
    members: usize,
    seen: u8,
    is_transaction: bool,
    is_schema_change: bool,
    is_timed: bool,
}

/// The members of a payload.
#[derive(Clone, Copy, Debug)]
enum Member {
    Before,
    After,
    Source,
    Transaction,
    Description,
    Op,
    Time,
    Status,
    SchemaChange,
    Other,
}

/// In the order of change events, then what other records have.
const MEMBERS: &[(&str, Member)] = &[
    ("\"before\":", Member::Before),
    ("\"after\":", Member::After),
    ("\"source\":", Member::Source),
    ("\"transaction\":", Member::Transaction),
    ("\"op\":", Member::Op),
    ("\"ts_ms\":", Member::Time),
    ("\"ts_us\":", Member::Other),
    ("\"ts_ns\":", Member::Other),
    ("\"updateDescription\":", Member::Description),
    ("\"status\":", Member::Status),
    ("\"ddl\":", Member::SchemaChange),
    ("\"tableChanges\":", Member::SchemaChange),
    ("\"historyRecord\":", Member::SchemaChange),
];

/// How a registered envelope lies.
#[derive(Debug)]
pub(super) struct Layouts {
    /// That of the envelope itself.
    pub(super) top: Layout,
    steps: Vec<Member>,
    /// That of `before` and `after`.
    row: Option<Arc<Layout>>,
    source: Option<(Layout, Vec<source::Member>)>,
    /// With, for each member, whether it is the order (true) or the id (false).
    transaction: Option<(Layout, Vec<Option<bool>>)>,
    /// Of a row without an envelope: for each member that says something of the row and is none of it, its name behind the prefix.
    added: Vec<Option<String>>,
    /// Of one of Avro: the index of null, where it may be that in its place.
    null: Option<i64>,
}

impl Layouts {
    /// The layout of the rows.
    pub(super) fn row(&self) -> Option<&Layout> {
        self.row.as_deref()
    }

    /// The layout of a row without an envelope.
    pub(super) fn of_row(schema: &Schema, root: RecordId) -> Result<(Self, Option<RecordId>), Reject> {
        let is_no_record = || Reject::new(Code::EnvelopeSchema, "the registered schema of the value is not a record");
        let members = schema.members(root).ok_or_else(is_no_record)?;
        let layout = || schema.layout(root, flattened::has_default).ok_or_else(is_no_record);
        let added = members.iter().map(|(name, _)| name.strip_prefix(flattened::PREFIX).map(str::to_owned)).collect();
        let row = Some(Arc::new(layout()?));
        Ok((Self { top: layout()?, steps: Vec::new(), row, source: None, transaction: None, added, null: schema.null_of(root) }, Some(root)))
    }

    /// The bytes of a row without an envelope; `None` where it is null.
    pub(super) fn document<'a>(&self, body: &'a [u8]) -> Result<Option<&'a [u8]>, Reject> {
        let Some(null) = self.null else { return Ok(Some(body)) };
        let mut reader = Reader::new(body);
        let branch = reader.long().and_then(|branch| match branch {
            0 | 1 if branch != null => Ok(Some(reader.rest())),
            0 | 1 => reader.finish().map(|()| None),
            _ => Err(WireError::Index),
        });
        branch.map_err(|e| self.top.invalid("value", e))
    }

    /// A plain row, all of which is read.
    pub(super) fn row_of<'a>(&self, body: &'a [u8], slots: &mut Vec<Slot>) -> Result<Option<Image<'a>>, Reject> {
        let mut reader = Reader::new(body);
        let read = self.top.each(&mut reader, &mut Budget::of(body.len()), slots, |_, _| Ok(())).and_then(|()| reader.finish());
        read.map_err(|e| self.top.invalid("value", e))?;
        Ok(self.row.as_ref().map(|row| Image::Registered(body, Arc::clone(row))))
    }

    /// What the added members of a row without an envelope say, all of which is read, and the row.
    pub(super) fn flattened<'a>(
        &self,
        body: &'a [u8],
        slots: &mut Vec<Slot>,
        connector: &'static str,
    ) -> Result<(Flattened<'a>, Option<Image<'a>>), Reject> {
        let mut adding = Adding::new(connector);
        let mut reader = Reader::new(body);
        let take = |member: usize, datum| {
            if let Some(name) = &self.added[member] {
                adding.take(name, datum);
            }
            Ok(())
        };
        let read = self.top.each(&mut reader, &mut Budget::of(body.len()), slots, take).and_then(|()| reader.finish());
        read.map_err(|e| self.top.invalid("value", e))?;
        Ok((adding.finish()?, self.row.as_ref().map(|row| Image::Registered(body, Arc::clone(row)))))
    }

    /// The layout of a value, and its row's type where it is a change event.
    pub(super) fn of(schema: &Schema, root: RecordId) -> Result<(Self, Option<RecordId>), Reject> {
        let bad = |what: &str| Reject::new(Code::EnvelopeSchema, what);
        let is_no_record = || bad("the registered schema of the value is not a record");
        let members = schema.members(root).ok_or_else(is_no_record)?;
        // What stands for nothing in an envelope may be absent without having a presence of its own.
        let layout = |record, has_default| schema.layout(record, has_default);
        let top = layout(root, |_| false).ok_or_else(is_no_record)?;
        let find = |name: &str| members.iter().find(|(member, _)| *member == name).and_then(|(_, record)| *record);
        let rows = [find("after"), find("before")];
        if let [Some(after), Some(before)] = rows
            && after != before
        {
            return Err(bad("`before` and `after` of the registered schema are of two types"));
        }
        let has_op = members.iter().any(|(member, _)| *member == "op");
        let row = rows[0].or(rows[1]).filter(|_| has_op);
        let source = find("source").and_then(|id| {
            let names = schema.members(id)?.into_iter().map(|(name, _)| Source::member(name)).collect();
            Some((layout(id, Source::is_zero)?, names))
        });
        let transaction = find("transaction").and_then(|id| {
            let step = |name: &str| match name {
                "id" => Some(false),
                "total_order" => Some(true),
                _ => None,
            };
            Some((layout(id, |_| true)?, schema.members(id)?.into_iter().map(|(name, _)| step(name)).collect()))
        });
        // Texts are borrowed from the record, and a symbol's is not in it.
        let mut inner = source.iter().map(|(layout, _)| layout).chain(transaction.iter().map(|(layout, _)| layout));
        if row.is_some() && (top.has_symbols() || inner.any(Layout::has_symbols)) {
            return Err(bad("the envelope of the registered schema has enums, where a connector writes strings"));
        }
        let row_layout = row.and_then(|id| layout(id, |_| true)).map(Arc::new);
        let steps = members.iter().map(|(name, _)| members::find(MEMBERS, name).unwrap_or(Member::Other)).collect();
        Ok((Self { top, steps, row: row_layout, source, transaction, added: Vec::new(), null: None }, row))
    }
}

/// What a payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Row(Op),
    /// All rows of the table are gone.
    Truncate,
    Ignored(Ignored),
}

impl<'a> Envelope<'a> {
    /// Takes the payload that stands next; `None` for null. `after` may take the row behind `after` on the way, where it knows it.
    pub(super) fn parse(scanner: &mut Scanner<'a>, mut after: impl FnMut(&mut Scanner<'a>) -> bool) -> Result<Option<Self>, Reject> {
        if scanner.null() {
            return Ok(None);
        }
        let json = |e| Reject::json("value", e);
        let mut envelope = Self::default();
        if !members::enter(scanner).map_err(json)? {
            return Err(Reject::new(Code::EnvelopeInvalid, "the payload is not an object"));
        }
        let mut members = Members::new(MEMBERS);
        while let Some(member) = members.take(scanner).map_err(json)? {
            envelope.members += 1;
            match member {
                Some(Member::Source) => {
                    envelope.once(1, "source")?;
                    if !scanner.null() {
                        envelope.source = Source::parse(scanner).map_err(json)?;
                    }
                }
                Some(Member::Before) => {
                    envelope.once(2, "before")?;
                    envelope.before = row(scanner.value().map_err(json)?, &mut None)?;
                }
                Some(Member::After) => {
                    envelope.once(4, "after")?;
                    if scanner.null() {
                        continue;
                    }
                    let mut ahead = *scanner;
                    if after(&mut ahead) {
                        envelope.after = Some(Image::Json(scanner.up_to(&ahead)));
                        *scanner = ahead;
                    } else {
                        envelope.after = row(scanner.value().map_err(json)?, &mut envelope.document)?;
                    }
                }
                Some(Member::Op) => {
                    envelope.once(8, "op")?;
                    envelope.op = if let Token::String(op) = scanner.value().map_err(json)? { Some(op) } else { None };
                }
                Some(Member::Description) => {
                    if let Token::Object(text) = scanner.value().map_err(json)? {
                        envelope.description = Some(text);
                    }
                }
                Some(Member::Transaction) => {
                    if let Token::Object(text) = scanner.value().map_err(json)? {
                        envelope.read_transaction(text);
                    }
                }
                other => {
                    let token = scanner.value().map_err(json)?;
                    match other {
                        Some(Member::Status) => envelope.is_transaction |= matches!(token, Token::String(_)),
                        Some(Member::SchemaChange) => envelope.is_schema_change = true,
                        Some(Member::Time) => envelope.is_timed = true,
                        _ => {}
                    }
                }
            }
        }
        Ok(Some(envelope))
    }

    /// The envelope that a row of another dialect comes to.
    pub(super) fn of_row(before: Option<Image<'a>>, after: Option<Image<'a>>, source: Source<'a>) -> Self {
        Self { before, after, source, ..Self::default() }
    }

    /// Takes a registered envelope. `after` may take the row behind `after` on the way, where it knows it.
    pub(super) fn parse_registered(
        layouts: &Layouts,
        reader: &mut Reader<'a>,
        budget: &mut Budget,
        slots: &mut Vec<Slot>,
        after: impl FnMut(&mut Reader<'a>, &mut Budget) -> bool,
    ) -> Result<Self, Reject> {
        match &layouts.top {
            Layout::Avro(layout) => Self::parse_members(layouts, &mut avro::Members { layout, reader, budget }, slots, after),
            Layout::Protobuf(layout) => {
                let mut fields = protobuf::Fields::of(layout, reader.rest()).map_err(|e| layouts.top.invalid("value", e))?;
                *reader = Reader::new(&[]);
                Self::parse_members(layouts, &mut fields, slots, after)
            }
        }
    }

    fn parse_members(
        layouts: &Layouts,
        top: &mut impl Top<'a>,
        slots: &mut Vec<Slot>,
        mut after: impl FnMut(&mut Reader<'a>, &mut Budget) -> bool,
    ) -> Result<Self, Reject> {
        let invalid = |e| layouts.top.invalid("value", e);
        let mut envelope = Self::default();
        for (at, member) in layouts.steps.iter().enumerate() {
            envelope.members += 1;
            match (member, &layouts.row, &layouts.source, &layouts.transaction) {
                (Member::Before | Member::After, Some(row), _, _) => {
                    let is_after = matches!(member, Member::After);
                    let read = |reader: &mut Reader<'a>, budget: &mut Budget| Ok(is_after && after(reader, budget));
                    let bytes = top.record(at, invalid, read, |reader, budget| row.pass(reader, budget))?;
                    let image = bytes.map(|bytes| Image::Registered(bytes, Arc::clone(row)));
                    if is_after {
                        envelope.after = image;
                    } else {
                        envelope.before = image;
                    }
                }
                (Member::Source, _, Some((block, steps)), _) => {
                    let read = |reader: &mut Reader<'a>, budget: &mut Budget| {
                        envelope.source.take(block, steps, reader, budget, slots).map_err(invalid).map(|()| true)
                    };
                    let _ = top.record(at, invalid, read, |reader, budget| block.pass(reader, budget))?;
                }
                (Member::Transaction, _, _, Some((block, steps))) => {
                    let read = |reader: &mut Reader<'a>, budget: &mut Budget| {
                        let put = |member: usize, datum| {
                            match (steps[member], datum) {
                                (Some(false), Datum::Text(raw)) => envelope.transaction = Some(JsonStr { raw, escaped: false }),
                                (Some(true), Datum::Integer(order)) => envelope.transaction_order = Some(order),
                                _ => {}
                            }
                            Ok(())
                        };
                        block.each(reader, budget, slots, put).map_err(invalid).map(|()| true)
                    };
                    let _ = top.record(at, invalid, read, |reader, budget| block.pass(reader, budget))?;
                }
                (Member::Op, ..) => {
                    envelope.seen |= 8;
                    if let Datum::Text(raw) = top.datum(at).map_err(invalid)? {
                        envelope.op = Some(JsonStr { raw, escaped: false });
                    }
                }
                (member, ..) => {
                    let datum = top.datum(at).map_err(invalid)?;
                    match member {
                        Member::After => {
                            if let Datum::Text(raw) = datum {
                                envelope.document = Some(JsonStr { raw, escaped: false });
                            }
                        }
                        Member::Status => envelope.is_transaction |= matches!(datum, Datum::Text(_)),
                        Member::SchemaChange => envelope.is_schema_change = true,
                        Member::Time => envelope.is_timed = true,
                        _ => {}
                    }
                }
            }
        }
        Ok(envelope)
    }

    fn once(&mut self, bit: u8, name: &str) -> Result<(), Reject> {
        if self.seen & bit != 0 {
            return Err(Reject::new(Code::JsonDuplicateKey, format!("the payload has `{name}` twice")));
        }
        self.seen |= bit;
        Ok(())
    }

    fn read_transaction(&mut self, text: &'a str) {
        let mut scanner = Scanner::new(text);
        let mut first = true;
        // The text has been checked, so the loop ends at the object's end.
        if scanner.enter_object().is_err() {
            return;
        }
        while let Ok(Some(name)) = scanner.member(first) {
            first = false;
            match (name.raw, scanner.value()) {
                ("id", Ok(Token::String(id))) => self.transaction = Some(id),
                ("total_order", Ok(Token::Number(raw) | Token::String(JsonStr { raw, .. }))) => self.transaction_order = raw.parse().ok(),
                (_, Err(_)) => return,
                _ => {}
            }
        }
    }

    /// What the payload is, by its operation, else by its shape.
    pub(super) fn kind(&self) -> Result<Kind, Reject> {
        match self.op.map(|op| op.raw) {
            Some("c") => Ok(Kind::Row(Op::Create)),
            Some("u") => Ok(Kind::Row(Op::Update)),
            Some("d") => Ok(Kind::Row(Op::Delete)),
            Some("r") => Ok(Kind::Row(Op::Read)),
            Some("t") => Ok(Kind::Truncate),
            Some("m") => Ok(Kind::Ignored(Ignored::Message)),
            Some(_) => Err(Reject::new(Code::EnvelopeUnknownOp, "the operation is none of c, u, d, r, t, m")),
            None if self.seen & 8 != 0 => Err(Reject::new(Code::EnvelopeUnknownOp, "the operation is not a string")),
            None if self.is_transaction => Ok(Kind::Ignored(Ignored::Transaction)),
            None if self.is_schema_change => Ok(Kind::Ignored(Ignored::SchemaChange)),
            None if self.is_timed && self.members == 1 => Ok(Kind::Ignored(Ignored::Heartbeat)),
            None => Err(Reject::new(Code::EnvelopeInvalid, "the value is no change event: it has no operation (is it flattened?)")),
        }
    }
}

fn row<'a>(token: Token<'a>, document: &mut Option<JsonStr<'a>>) -> Result<Option<Image<'a>>, Reject> {
    match token {
        Token::Null => Ok(None),
        Token::Object(text) => Ok(Some(Image::Json(text))),
        Token::String(text) => {
            *document = Some(text);
            Ok(None)
        }
        _ => Err(Reject::new(Code::EnvelopeInvalid, "a row is not an object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Result<Kind, Code> {
        let envelope = Envelope::parse(&mut Scanner::new(text), |_| false).map_err(|r| r.code)?.expect("not null");
        envelope.kind().map_err(|r| r.code)
    }

    #[test]
    fn records_beside_changes_are_known_by_their_shape() {
        let ignored = |i| Ok(Kind::Ignored(i));
        assert_eq!(kind(r#"{"ts_ms":1700000000000}"#), ignored(Ignored::Heartbeat));
        assert_eq!(kind(r#"{"status":"BEGIN","id":"812:1","ts_ms":1,"event_count":null,"data_collections":null}"#), ignored(Ignored::Transaction));
        assert_eq!(kind(r#"{"source":{},"ts_ms":1,"databaseName":"d","ddl":"x","tableChanges":[]}"#), ignored(Ignored::SchemaChange));
        assert_eq!(kind(r#"{"op":"m","ts_ms":1,"source":{"lsn":1},"message":{"prefix":"foo","content":"aGVsbG8="}}"#), ignored(Ignored::Message));
    }

    #[test]
    fn what_is_no_event_is_refused_by_name() {
        assert_eq!(kind(r#"{"id":1,"v":"a"}"#), Err(Code::EnvelopeInvalid));
        assert_eq!(kind("[1]"), Err(Code::EnvelopeInvalid));
        assert_eq!(kind("hello"), Err(Code::JsonInvalid));
        assert_eq!(kind(r#"{"op":"x"}"#), Err(Code::EnvelopeUnknownOp));
        assert_eq!(kind(r#"{"op":null}"#), Err(Code::EnvelopeUnknownOp));
        assert_eq!(kind(r#"{"op":"c","op":"d"}"#), Err(Code::JsonDuplicateKey));
        assert_eq!(kind(r#"{"op":"c","after":[1]}"#), Err(Code::EnvelopeInvalid));
        assert_eq!(kind(r#"{"op":"t","source":{"lsn":2,"table":"t"}}"#), Ok(Kind::Truncate));
    }

    #[test]
    fn case_txn_02_orders_may_be_strings() {
        for order in ["\"3\"", "3"] {
            let text = format!(r#"{{"op":"c","transaction":{{"id":"812:9","total_order":{order},"data_collection_order":"1"}}}}"#);
            let envelope = Envelope::parse(&mut Scanner::new(&text), |_| false).expect("valid").expect("not null");
            assert_eq!((envelope.transaction.map(|t| t.raw), envelope.transaction_order), (Some("812:9"), Some(3)));
        }
    }
}
