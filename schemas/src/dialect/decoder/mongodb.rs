//! MongoDB's events: rows are documents of extended JSON in a string, known by their `_id` (case ENV-04).
//!
//! Columns are the members that are declared, and one that holds the whole document where that is asked for or nothing is declared. A document is
//! whole: what it lacks is NULL. An update that comes without its document says what it altered, and the rest of the row stays as it was; a part of
//! a member is no value of its column, so such an update is refused.

use std::sync::Arc;

use super::super::datum::Datum;
use super::super::document::{close, open};
use super::super::envelope::{Envelope, Kind};
use super::super::extended;
use super::super::field::{Field, Wire};
use super::super::plan::{KeyTokens, Plan};
use super::super::registered::Registry;
use super::super::reject::{Code, Reject};
use super::super::{Decoded, Ignored, Record, declared_type, list};
use super::{Decoder, Planned, Said};
use crate::avro::Budget;
use crate::change::Op;
use crate::json::{JsonStr, Scanner, Token};
use crate::types::LogicalType;
use crate::wire::Reader;

/// The member by which documents are known.
const ID: &str = "_id";

/// Texts that are taken out of their strings, kept from record to record.
#[derive(Debug, Default)]
pub(super) struct Documents {
    id: String,
    document: String,
}

impl Decoder {
    /// Decodes an event of MongoDB.
    pub(super) fn mongodb<'d>(&'d mut self, record: &Record<'d>) -> Result<Decoded<'d>, Reject> {
        let envelope = match record.value {
            None => None,
            Some(value) => self.open_envelope(value)?,
        };
        let op = match envelope.as_ref().map(Envelope::kind).transpose()? {
            None => Op::Delete,
            Some(Kind::Row(op)) => op,
            Some(Kind::Ignored(ignored)) => return Ok(Decoded::Ignored(ignored)),
            Some(Kind::Truncate) => return Err(Reject::new(Code::EnvelopeUnknownOp, "documents are not truncated")),
        };
        // The texts are needed while buffers of this are written to.
        let mut texts = std::mem::take(&mut self.documents);
        let plan = self.document(op, envelope.as_ref(), record, &mut texts);
        self.documents = texts;
        match (envelope, plan?) {
            (_, None) => Ok(Decoded::Ignored(Ignored::Empty)),
            (None, Some(plan)) => Ok(self.deleted(plan)),
            (Some(envelope), Some(plan)) => {
                let (sequence, _) = envelope.source.sequence(&self.options, self.epoch, record.offset, op == Op::Read)?;
                let said = Said { op, snapshot: None, has_before: false, moved: false, has_other: false };
                self.say(said, plan, sequence, &envelope)
            }
        }
    }

    /// The envelope of a value; `None` for null.
    fn open_envelope<'a>(&mut self, value: &'a [u8]) -> Result<Option<Envelope<'a>>, Reject> {
        if let Some(framed) = Registry::frame(&self.options, self.options.encoding, value, "value") {
            let mut framed = framed?;
            let (_, layouts) = self.registry.value(&mut framed, &self.options, &mut self.next_id)?;
            let (mut reader, mut budget) = (Reader::new(framed.body), Budget::of(framed.body.len()));
            let envelope = Envelope::parse_registered(&layouts, &mut reader, &mut budget, &mut self.slots, |_, _| false)?;
            reader.finish().map_err(|e| layouts.top.invalid("value", e))?;
            return Ok(Some(envelope));
        }
        let mut opened = open(value, "value", &mut self.header_schemas, |_| Ok(()))?;
        let envelope = Envelope::parse(&mut opened.scanner, |_| false)?;
        close(&mut opened, "value")?;
        Ok(envelope)
    }

    /// Writes what an event says of a document to the buffers; a tombstone has no envelope. `None` where there is nothing to be said.
    fn document(&mut self, op: Op, envelope: Option<&Envelope<'_>>, record: &Record<'_>, texts: &mut Documents) -> Result<Option<Arc<Plan>>, Reject> {
        let plan = self.document_plan()?;
        let has_id = self.open_id(record.key, &mut texts.id)?;
        if has_id {
            self.key_of_id(&plan, &texts.id)?;
        }
        let Some(envelope) = envelope.filter(|_| op != Op::Delete) else {
            return match (has_id, envelope) {
                (true, _) => Ok(Some(plan)),
                (false, None) => Ok(None),
                (false, Some(_)) => Err(self.no_key()),
            };
        };
        if let Some(document) = envelope.document {
            self.whole(&plan, document, &mut texts.document)?;
        } else if let (Op::Update, Some(description), true) = (op, envelope.description, has_id) {
            self.altered(&plan, description, texts)?;
        } else {
            let reason = format!("a change `{}` of table {:?} has no document behind it", op.letter(), self.options.table);
            return Err(Reject::new(Code::EnvelopeRowMissing, reason));
        }
        self.after.key(&plan, &mut self.former_key)?;
        if has_id && self.former_key.canonical != self.key.canonical {
            let reason = format!("the record key is not the `_id` of its document in table {:?}", self.options.table);
            return Err(Reject::new(Code::KeyMismatch, reason));
        }
        std::mem::swap(&mut self.key, &mut self.former_key);
        Ok(Some(plan))
    }

    /// Writes a whole document: what it lacks is NULL.
    fn whole(&mut self, plan: &Plan, document: JsonStr<'_>, text: &mut String) -> Result<(), Reject> {
        let text = unescaped(document, text)?;
        let tokens = self.members(plan, text)?;
        let data = tokens.into_iter().map(|token| Some(Datum::Json(token.unwrap_or(Token::Null))));
        let document = self.options.document_column().map(|_| Some(Datum::Json(Token::Object(text))));
        self.after.write_found(plan, data.chain(document), &mut self.writer)?;
        // An `_id` that is there and is no value.
        self.refuse_like_id(plan, text)
    }

    /// Writes what an update altered: the members that it set or removed, and the `_id`; all else was not sent.
    fn altered(&mut self, plan: &Plan, description: &str, texts: &mut Documents) -> Result<(), Reject> {
        let table = &self.options.table;
        let refuse = |what: &str| Reject::new(Code::EnvelopeRowMissing, format!("an update of table {table:?} comes without its document, {what}"));
        if self.options.document_column().is_some() {
            return Err(refuse("and a column holds the document; let the connector send it (`capture.mode: change_streams_update_full`)"));
        }
        let json = |e| Reject::json("value", e);
        let (mut updated, mut removed, mut first) = (None, Vec::new(), true);
        let mut scanner = Scanner::new(description);
        scanner.enter_object().map_err(json)?;
        while let Some(name) = scanner.member(first).map_err(json)? {
            first = false;
            match (name.raw, scanner.value().map_err(json)?) {
                ("updatedFields", Token::String(text)) => updated = Some(text),
                ("removedFields", Token::Array(raw)) => {
                    let mut names = Scanner::new(raw);
                    names.enter_array().map_err(json)?;
                    while let Some(name) = names.element(removed.is_empty()).map_err(json)? {
                        if let Token::String(name) = name {
                            removed.push(name);
                        }
                    }
                }
                ("truncatedArrays", Token::Array(raw)) if raw[1..raw.len() - 1].trim_ascii().is_empty() => {}
                ("truncatedArrays", Token::Array(_)) => return Err(refuse("and says only how much of an array is left")),
                _ => {}
            }
        }
        let text = match updated {
            Some(text) => unescaped(text, &mut texts.document)?,
            None => "{}",
        };
        let mut tokens = self.members(plan, text)?;
        for name in removed {
            self.is_known(&name)?;
            if let Some(field) = plan.fields().iter().position(|f| f.is_named(&name)) {
                tokens[field] = Some(Token::Null);
            }
        }
        let mut id = Scanner::new(&texts.id);
        tokens[0] = Some(id.value().map_err(|e| Reject::json("key", e))?);
        self.after.write_found(plan, tokens.into_iter().map(|token| token.map(Datum::Json)), &mut self.writer)
    }

    /// The members of a document by column; those that no column takes must be left out, or be in the document's column.
    fn members<'a>(&self, plan: &Plan, text: &'a str) -> Result<KeyTokens<'a>, Reject> {
        let json = |e| Reject::json("value", e);
        let fields = &plan.fields()[..plan.fields().len() - usize::from(self.options.document_column().is_some())];
        let mut tokens = KeyTokens::new();
        tokens.resize(fields.len(), None);
        let mut scanner = Scanner::new(text);
        scanner.enter_object().map_err(json)?;
        let (mut first, mut next) = (true, 0);
        while let Some(name) = scanner.member(first).map_err(json)? {
            first = false;
            let token = scanner.value().map_err(json)?;
            let at = fields[next..].iter().position(|f| f.is_named(&name)).map(|at| next + at);
            let Some(at) = at.or_else(|| fields.iter().position(|f| f.is_named(&name))) else {
                self.is_known(&name)?;
                continue;
            };
            if tokens[at].replace(token).is_some() {
                return Err(Reject::new(Code::JsonDuplicateKey, format!("a document has member {:?} twice", fields[at].name)));
            }
            next = (at + 1) % fields.len();
        }
        Ok(tokens)
    }

    /// Refuses a member that nothing is said of. A name with dots is a part of the member before the first.
    fn is_known(&self, name: &JsonStr<'_>) -> Result<(), Reject> {
        let mut text = String::new();
        if !name.unescape(&mut text) {
            return Err(Reject::new(Code::JsonInvalid, "a document has a member whose name is no text"));
        }
        let top = text.split('.').next().unwrap_or_default();
        if self.options.leaves_out(&text) || self.options.leaves_out(top) || self.options.document_column().is_some() {
            return Ok(());
        }
        let table = &self.options.table;
        if declared_type(&self.options, &text).is_none() && declared_type(&self.options, top).is_some() {
            let reason = format!("an update of table {table:?} alters a part of {top:?}, and the rest is not sent; let the connector send documents");
            return Err(Reject::new(Code::EnvelopeRowMissing, reason));
        }
        if declared_type(&self.options, &text).is_some() {
            return Ok(());
        }
        let reason = format!(
            "documents of table {table:?} have a member for which no type is declared: {}; declare it, leave it out, or name a column for the \
             whole document (`columns: {{ document: … }}`)",
            list(&[format!("{text:?}")])
        );
        Err(Reject::new(Code::TypesMissing, reason))
    }

    /// The plan of all documents: what is declared, and the document itself where it is asked for.
    fn document_plan(&mut self) -> Planned {
        if self.document_plan.is_none() {
            let options = &self.options;
            let other_key = options.primary_key.as_ref().is_some_and(|names| *names != [ID]);
            let plan = if other_key {
                let reason = format!("documents of table {:?} are known by `_id`, and `primary_key` names something else", options.table);
                Err(Reject::new(Code::KeyColumnMissing, reason))
            } else {
                let field = |name: &str, ty, nullable| Field::new(name.to_owned(), Some(Wire::Extended), ty, nullable);
                let mut fields = vec![field(ID, declared_type(options, ID).unwrap_or(LogicalType::Text), false)];
                let declared = options.types.iter().filter(|(name, _)| name != ID && !options.leaves_out(name));
                fields.extend(declared.map(|(name, ty)| field(name, *ty, true)));
                match options.document_column() {
                    Some(name) if fields.iter().any(|f| f.name == name) => {
                        let reason = format!("column {name:?} of table {:?} is to hold documents, and has a type of its own", options.table);
                        Err(Reject::new(Code::DuplicateColumn, reason))
                    }
                    document => {
                        fields.extend(document.map(|name| field(name, LogicalType::Json, true)));
                        Plan::new(options, fields, 0, &[ID.to_owned()]).map(Arc::new)
                    }
                }
            };
            self.document_plan = Some(plan.map_err(Reject::of_the_table));
        }
        self.document_plan.clone().unwrap_or_else(|| Err(self.no_key()))
    }

    /// Reads the text of the record key's `id`, extended JSON; false where there is none.
    fn open_id(&mut self, key: Option<&[u8]>, text: &mut String) -> Result<bool, Reject> {
        text.clear();
        let Some(bytes) = key else { return Ok(false) };
        let encoding = super::Encoding::Detected;
        let not_an_id = || Reject::new(Code::KeyMissing, "the record key has no `id` with the text of a document's `_id`");
        if let Some(framed) = Registry::frame(&self.options, encoding, bytes, "key") {
            let Some(document) = self.open_key(Some(bytes))? else { return Ok(false) };
            framed?;
            let member = document.shape.member("id").and_then(|member| document.member(member));
            let Some(Datum::Text(id)) = member else { return Err(not_an_id()) };
            text.push_str(id);
            return Ok(true);
        }
        let json = |e| Reject::json("key", e);
        let mut opened = open(bytes, "key", &mut self.header_schemas, |_| Ok(()))?;
        let token = opened.scanner.value().map_err(json)?;
        close(&mut opened, "key")?;
        let inner = match token {
            Token::Null => return Ok(false),
            Token::Object(inner) => inner,
            _ => return Err(not_an_id()),
        };
        let mut scanner = Scanner::new(inner);
        scanner.enter_object().map_err(json)?;
        let mut first = true;
        while let Some(name) = scanner.member(first).map_err(json)? {
            first = false;
            match (name.raw, scanner.value().map_err(json)?) {
                ("id" | ID, Token::String(id)) if text.is_empty() => {
                    let _ = unescaped(id, text)?;
                }
                _ => return Err(not_an_id()),
            }
        }
        if text.is_empty() { Err(not_an_id()) } else { Ok(true) }
    }

    /// The key of a document whose `_id` is written so.
    fn key_of_id(&mut self, plan: &Plan, id: &str) -> Result<(), Reject> {
        let json = |e| Reject::json("key", e);
        let mut scanner = Scanner::new(id);
        let token = scanner.value().map_err(json)?;
        scanner.finish().map_err(json)?;
        self.refuse_like(plan, &token)?;
        self.key.clear();
        self.key.push_member(plan, 0, &plan.fields()[0], Some(Datum::Json(token)), &mut self.writer)
    }

    /// Refuses a document whose `_id` is a string like an object id: as text the two would be one row.
    fn refuse_like_id(&self, plan: &Plan, text: &str) -> Result<(), Reject> {
        let mut scanner = Scanner::new(text);
        let json = |e| Reject::json("value", e);
        scanner.enter_object().map_err(json)?;
        let mut first = true;
        while let Some(name) = scanner.member(first).map_err(json)? {
            first = false;
            let token = scanner.value().map_err(json)?;
            if plan.fields()[0].is_named(&name) {
                return self.refuse_like(plan, &token);
            }
        }
        Ok(())
    }

    fn refuse_like(&self, plan: &Plan, token: &Token<'_>) -> Result<(), Reject> {
        if plan.fields()[0].ty != LogicalType::Text || !extended::is_like_object_id(token) {
            return Ok(());
        }
        let reason = format!(
            "a document of table {:?} has a string as `_id` that is written like an object id, and as text they are one",
            plan.schema.table()
        );
        Err(Reject::new(Code::ValueKind, reason))
    }
}

/// The text of a string of JSON, in a buffer unless it stands in the record as it is.
fn unescaped<'a>(s: JsonStr<'a>, text: &'a mut String) -> Result<&'a str, Reject> {
    text.clear();
    if s.unescape(text) { Ok(text) } else { Err(Reject::new(Code::JsonInvalid, "a document has characters that are none")) }
}
