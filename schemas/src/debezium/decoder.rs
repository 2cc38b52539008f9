//! The decoder of a table: which shape a record has, what its key is, and the change that comes of it.
//!
//! Shapes are kept (`Recent`) so that the steady state neither parses schemas nor allocates; nothing else is kept from record to record, and
//! what a record decodes to never depends on what was kept. Buffers hold one record's rows and keys; a [`Decoded`] borrows them.

use std::fmt::Write as _;
use std::sync::Arc;

use super::avro::{self, Layout};
use super::canal::{self, Canal};
use super::connect::Schema;
use super::document::{Opened, Seen, close, open};
use super::envelope::{Envelope, Kind};
use super::field::{Datum, Field, Placeholder, Unpacked};
use super::flattened::Flattened;
use super::maxwell::{self, Maxwell};
use super::plan::{self, Fit, Image, Key, KeyShape, KeyTokens, Plan, Recent, Row, Writer};
use super::registered::{Registered, Registry};
use super::reject::{Code, Reject};
use super::source::Number;
use super::{Changes, Decoded, Dialect, Encoding, Further, Ignored, Keyed, NEW_KEY, OLD_KEY, Options, Record, declared_type, list};
use crate::avro::{Budget, Frame};
use crate::change::{Change, Op, SourceBlock};
use crate::contract::{self, Fingerprint};
use crate::json::{JsonStr, Scanner, Token};
use crate::sequence::Sequence;
use crate::table::{ColumnSet, TableSchema};
use crate::types::LogicalType;
use crate::wire::Reader;

/// A key document: its members, and the shape that says what they mean.
struct KeyDocument<'a> {
    shape: Arc<KeyShape>,
    members: KeyMembers<'a>,
}

/// The members of a key, as they lie in their record.
enum KeyMembers<'a> {
    Json(KeyTokens<'a>),
    Avro(&'a [u8], Arc<Layout>),
}

impl KeyDocument<'_> {
    /// The value of a member.
    #[inline]
    fn member(&self, member: usize) -> Option<Datum<'_>> {
        match &self.members {
            KeyMembers::Json(tokens) => tokens[member].map(Datum::Json),
            KeyMembers::Avro(bytes, layout) => layout.member(member, bytes),
        }
    }
}

/// What the schema part of a value describes.
#[derive(Clone, Debug)]
pub(super) enum ValueSchema {
    /// The rows of an envelope, with a number that tells schemas apart.
    Rows { id: u32, fields: Result<Arc<Vec<Field>>, Reject> },
    /// Something else, such as a heartbeat.
    Other,
}

type KeySchema = Result<Arc<KeyShape>, Reject>;
type Planned = Result<Arc<Plan>, Reject>;

/// Turns the records of one source topic into the changes of one table.
#[derive(Debug)]
pub struct Decoder {
    /// Timeline of the source, the first part of every sequence; the caller raises it (ARCHITECTURE.md, Repeats, zombies and order).
    pub epoch: u32,
    options: Options,
    writer: Writer,
    next_id: u32,
    key_schemas: Recent<Seen<KeySchema>>,
    header_schemas: Recent<Seen<()>>,
    value_schemas: Recent<Seen<ValueSchema>>,
    /// Keys without a schema part.
    bare_keys: Recent<(Vec<String>, KeySchema)>,
    registry: Registry,
    /// Plans of rows with a schema part: its number, the key's number.
    plans: Recent<(u32, u32, Planned)>,
    /// Plans of rows without: names of the row's members, the key's number.
    bare_plans: Recent<(Vec<String>, u32, Planned)>,
    /// Plans of records that say nothing but a key: the key's number.
    key_plans: Recent<(u32, Planned)>,
    /// Plans of Canal's rows, by the texts of their types and their key.
    canal_plans: Recent<((String, String), Planned)>,
    /// The first row of a message of Canal, and those behind it.
    lead: Option<Further>,
    more: Vec<Further>,
    current: Option<Arc<Plan>>,
    /// The contract of marks.
    marks: (Arc<TableSchema>, Fingerprint),
    sequence: Sequence,
    key: Key,
    former_key: Key,
    after: Row,
    before: Row,
    texts: [String; 5],
}

impl Decoder {
    /// A decoder that has seen nothing yet, in epoch 0.
    pub fn new(options: Options) -> Self {
        let marks = TableSchema::of_marks(options.table.clone());
        let marks = (Arc::new(marks.clone()), contract::of(&marks).1);
        let writer = Writer { placeholder: Placeholder::new(&options.placeholder), unpacked: Unpacked::default() };
        Self {
            epoch: 0,
            options,
            writer,
            next_id: 1,
            key_schemas: Recent::default(),
            header_schemas: Recent::default(),
            value_schemas: Recent::default(),
            bare_keys: Recent::default(),
            registry: Registry::default(),
            plans: Recent::default(),
            bare_plans: Recent::default(),
            key_plans: Recent::default(),
            canal_plans: Recent::default(),
            lead: None,
            more: Vec::new(),
            current: None,
            marks,
            sequence: Sequence::default(),
            key: Key::default(),
            former_key: Key::default(),
            after: Row::default(),
            before: Row::default(),
            texts: Default::default(),
        }
    }

    /// What was said of the table.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Decodes one record.
    pub fn decode<'d>(&'d mut self, record: Record<'d>) -> Result<Decoded<'d>, Reject> {
        self.after.trim();
        self.before.trim();
        self.writer.trim();
        // A key is judged only where a row needs it: heartbeats and the like have keys of their own.
        let key = self.open_key(record.key);
        match self.options.dialect {
            Dialect::Debezium | Dialect::Flattened => {}
            Dialect::Maxwell => return self.maxwell(&record),
            Dialect::Canal => return self.canal(&record),
        }
        let Some(value) = record.value else { return self.tombstone(key) };
        if self.options.dialect == Dialect::Flattened {
            if value.first() == Some(&0) {
                let reason = format!(
                    "rows of table {:?} without an envelope are in a registry's frame, and only JSON is read of them yet",
                    self.options.table
                );
                return Err(Reject::new(Code::EncodingUnsupported, reason));
            }
            return self.flattened(value, key, &record);
        }
        if let Some(framed) = Registry::frame(&self.options, self.options.encoding, value, "value") {
            return self.registered(framed?, key, &record);
        }
        let mut opened = self.open_value(value)?;
        self.current = self.guess(opened.schema.as_ref(), &key);
        let mut is_written = false;
        let envelope = Envelope::parse(&mut opened.scanner, |scanner| {
            let Some(plan) = &self.current else { return false };
            is_written = matches!(self.after.write(plan, scanner, &mut self.writer), Ok(Fit::Written));
            is_written
        })?;
        close(&mut opened, "value")?;
        if !is_written {
            self.current = None;
        }
        let Some(envelope) = envelope else { return self.tombstone(key) };
        match envelope.kind()? {
            Kind::Ignored(ignored) => Ok(Decoded::Ignored(ignored)),
            Kind::Truncate => self.truncate(&envelope, record.offset),
            Kind::Row(op) => self.row(op, &envelope, opened.schema, key?, &record),
        }
    }

    /// Decodes a record whose value names a registered schema.
    fn registered<'d>(
        &'d mut self,
        framed: Frame<'d>,
        key: Result<Option<KeyDocument<'d>>, Reject>,
        record: &Record<'d>,
    ) -> Result<Decoded<'d>, Reject> {
        let (schema, layouts) = self.registry.value(framed.id, &self.options, &mut self.next_id)?;
        self.current = self.guess(Some(&schema), &key);
        let row = layouts.row();
        let (mut reader, mut budget) = (Reader::new(framed.body), Budget::of(framed.body.len()));
        let mut is_written = false;
        let envelope = Envelope::parse_avro(&layouts, &mut reader, &mut budget, |reader, budget| {
            let (Some(plan), Some(row)) = (&self.current, row) else { return false };
            is_written = self.after.write_avro(plan, row, reader, budget, &mut self.writer).is_ok();
            is_written
        })?;
        reader.finish().map_err(|e| avro::invalid("value", e))?;
        if !is_written {
            self.current = None;
        }
        match envelope.kind()? {
            Kind::Ignored(ignored) => Ok(Decoded::Ignored(ignored)),
            Kind::Truncate => self.truncate(&envelope, record.offset),
            Kind::Row(op) => self.row(op, &envelope, Some(schema), key?, record),
        }
    }

    /// Id of a registered schema that a record names and that has not been brought yet: it is to be asked for, and the record decoded then.
    #[inline]
    pub fn wanted(&self, record: &Record<'_>) -> Option<u64> {
        let named = |encoding, bytes: Option<&[u8]>| Registry::frame(&self.options, encoding, bytes?, "record")?.ok().map(|f| f.id);
        let lacks = |id: &u64| self.registry.lacks(*id);
        named(self.options.encoding, record.value).filter(lacks).or_else(|| named(Encoding::Detected, record.key).filter(lacks))
    }

    /// What a record's value is written in, for people: `avro` or `json`; `None` where there is no value.
    pub fn format(&self, record: &Record<'_>) -> Option<&'static str> {
        let framed = Registry::frame(&self.options, self.options.encoding, record.value?, "value");
        Some(if framed.is_some() { "avro" } else { "json" })
    }

    /// Takes in what the registry says of an id.
    pub fn bring(&mut self, id: u64, registered: &Registered) {
        self.registry.bring(id, registered);
    }

    /// Forgets which ids the registry did not have: they may have come since.
    pub fn forget_unknown(&mut self) {
        self.registry.forget_unknown();
    }

    /// Decodes a row without an envelope.
    fn flattened<'d>(
        &'d mut self,
        value: &'d [u8],
        key: Result<Option<KeyDocument<'d>>, Reject>,
        record: &Record<'d>,
    ) -> Result<Decoded<'d>, Reject> {
        let mut opened = self.open_value(value)?;
        let token = opened.scanner.value().map_err(|e| Reject::json("value", e))?;
        close(&mut opened, "value")?;
        let row = match token {
            Token::Null => return self.tombstone(key),
            Token::Object(row) => row,
            _ => return Err(Reject::new(Code::EnvelopeInvalid, "a flattened event is not an object")),
        };
        let Flattened { op, source } = Flattened::parse(row, self.options.connector)?;
        let image = Some(Image::Json(row));
        let envelope = if op == Op::Delete { Envelope::of_row(image, None, source) } else { Envelope::of_row(None, image, source) };
        self.current = None;
        self.row(op, &envelope, opened.schema, key?, record)
    }

    /// Decodes an event of Maxwell.
    fn maxwell<'d>(&'d mut self, record: &Record<'d>) -> Result<Decoded<'d>, Reject> {
        let Some(value) = record.value else { return Ok(Decoded::Ignored(Ignored::Empty)) };
        let text = std::str::from_utf8(value).map_err(|e| Reject::json("value", e))?;
        let mut scanner = Scanner::new(text);
        let event = Maxwell::parse(&mut scanner, self.options.connector)?;
        scanner.finish().map_err(|e| Reject::json("value", e))?;
        let op = match event.kind {
            maxwell::Kind::Row(op) => op,
            maxwell::Kind::Ignored(ignored) => return Ok(Decoded::Ignored(ignored)),
        };
        if !self.is_wanted(event.source.database, event.source.table) {
            return Ok(Decoded::Ignored(Ignored::OtherTable));
        }
        let Some(data) = event.data else {
            return Err(Reject::new(Code::EnvelopeRowMissing, format!("a change `{}` of table {:?} has no row", op.letter(), self.options.table)));
        };
        let names = match (&self.options.primary_key, record.key) {
            (Some(names), _) => names.clone(),
            (None, Some(key)) => maxwell::key_names(key)?,
            (None, None) => return Err(self.no_key()),
        };
        let shape = self.bare_shape(names)?;
        let (sequence, _) = event.source.sequence(&self.options, self.epoch, record.offset, op == Op::Read)?;
        self.current = None;
        let plan = self.bare_plan(data, false, shape.id, Some(&shape))?;
        self.after.key(&plan, &mut self.key)?;
        let is_delete = op == Op::Delete;
        if !matches!(op, Op::Update | Op::Delete) {
            self.after.author_lacking(&plan);
        }
        let (mut has_before, mut moved) = (false, false);
        if let (Op::Update, Some(old)) = (op, event.old) {
            self.before.write_former(&plan, data, old, &mut self.writer)?;
            self.before.key(&plan, &mut self.former_key)?;
            (has_before, moved) = (self.before.unauthored.is_empty(), self.former_key.canonical != self.key.canonical);
        }
        let by_offset = event.source.is_by_offset(self.options.order);
        self.refuse_move(by_offset, moved)?;
        self.current = Some(plan);
        self.sequence = sequence;
        let envelope = Envelope::of_row(None, None, event.source);
        self.note_texts(&envelope);
        let this: &'d Self = self;
        let change = Change {
            op,
            sequence: Some(this.sequence.as_bytes()),
            event_time: envelope.source.event_time(),
            source: this.block(&envelope),
            snapshot: None,
            unauthored: if is_delete { ColumnSet::new() } else { this.after.unauthored.clone() },
            key: Some(&this.key.plain),
            other_key: (moved && !by_offset).then_some(this.former_key.plain.as_slice()),
            before: has_before.then_some(this.before.bytes.as_slice()),
            after: (!is_delete).then_some(this.after.bytes.as_slice()),
        };
        let former_key = moved.then_some((this.former_key.canonical.as_slice(), this.former_key.plain.as_slice()));
        this.changes(former_key, Keyed { key: Some(&this.key.canonical), change }, by_offset)
    }

    /// Decodes a message of Canal: as many rows as it has.
    fn canal<'d>(&'d mut self, record: &Record<'d>) -> Result<Decoded<'d>, Reject> {
        let Some(value) = record.value else { return Ok(Decoded::Ignored(Ignored::Empty)) };
        let text = std::str::from_utf8(value).map_err(|e| Reject::json("value", e))?;
        let mut scanner = Scanner::new(text);
        let message = Canal::parse(&mut scanner)?;
        scanner.finish().map_err(|e| Reject::json("value", e))?;
        if !self.is_wanted(message.source.database, message.source.table) {
            return Ok(Decoded::Ignored(Ignored::OtherTable));
        }
        let envelope = Envelope::of_row(None, None, message.source);
        let op = match message.kind {
            canal::Kind::Row(op) => op,
            canal::Kind::Truncate => return self.truncate(&envelope, record.offset),
            canal::Kind::Ignored(ignored) => return Ok(Decoded::Ignored(ignored)),
        };
        let (sequence, _) = message.source.sequence(&self.options, self.epoch, record.offset, false)?;
        let by_offset = message.source.is_by_offset(self.options.order);
        let plan = self.canal_plan(&message)?;
        let is_delete = op == Op::Delete;
        self.more.clear();
        let mut first: Option<(bool, bool)> = None;
        for (row, old) in message.rows()? {
            if let Some((has_before, moved)) = first.take() {
                let further = self.further(is_delete, has_before, moved);
                self.more.push(further);
            }
            self.after.write_image(&plan, &Image::Json(row), &mut self.writer)?;
            self.after.key(&plan, &mut self.key)?;
            first = Some((false, false));
            if let (Op::Update, Some(old)) = (op, old) {
                self.before.write_former(&plan, row, old, &mut self.writer)?;
                self.before.key(&plan, &mut self.former_key)?;
                let moved = self.former_key.canonical != self.key.canonical;
                self.refuse_move(by_offset, moved)?;
                first = Some((self.before.unauthored.is_empty(), moved));
            }
        }
        let Some((has_before, moved)) = first else { return Ok(Decoded::Ignored(Ignored::Empty)) };
        let last = self.further(is_delete, has_before, moved);
        self.more.push(last);
        let lead = self.more.remove(0);
        self.canal_rows(op, plan, sequence, by_offset, lead, &envelope)
    }

    /// Takes the row out of the buffers.
    fn further(&mut self, is_delete: bool, has_before: bool, moved: bool) -> Further {
        Further {
            key: std::mem::take(&mut self.key),
            former: moved.then(|| std::mem::take(&mut self.former_key)),
            before: has_before.then(|| self.before.bytes.clone()),
            after: (!is_delete).then(|| self.after.bytes.clone()),
            unauthored: if is_delete { ColumnSet::new() } else { self.after.unauthored.clone() },
        }
    }

    fn canal_rows<'d>(
        &'d mut self,
        op: Op,
        plan: Arc<Plan>,
        sequence: Sequence,
        by_offset: bool,
        lead: Further,
        envelope: &Envelope<'d>,
    ) -> Result<Decoded<'d>, Reject> {
        self.current = Some(plan);
        self.sequence = sequence;
        self.note_texts(envelope);
        self.lead = Some(lead);
        let this: &'d Self = self;
        let lead = this.lead.as_ref().ok_or_else(|| Reject::new(Code::EnvelopeRowMissing, "a message without rows"))?;
        let change = Change {
            op,
            sequence: Some(this.sequence.as_bytes()),
            event_time: envelope.source.event_time(),
            source: this.block(envelope),
            snapshot: None,
            unauthored: lead.unauthored.clone(),
            key: Some(&lead.key.plain),
            other_key: None,
            before: lead.before.as_deref(),
            after: lead.after.as_deref(),
        };
        let former_key = lead.former.as_ref().map(|former| (former.canonical.as_slice(), former.plain.as_slice()));
        let decoded = this.changes(former_key, Keyed { key: Some(&lead.key.canonical), change }, by_offset)?;
        Ok(match decoded {
            Decoded::Changes(changes) => Decoded::Changes(Changes { more: &this.more, ..changes }),
            ignored @ Decoded::Ignored(_) => ignored,
        })
    }

    /// The plan of a message's rows, by the types and the key that it names.
    fn canal_plan(&mut self, message: &Canal<'_>) -> Planned {
        if let Some((_, plan)) = self.canal_plans.find(|((types, keys), _)| *types == message.types && *keys == message.keys) {
            return plan.clone();
        }
        let any = self.options.any();
        let (mut fields, mut unsupported) = (Vec::new(), Vec::new());
        for (name, text) in message.columns()? {
            if self.options.leaves_out(&name) {
                fields.push(Field::new(name, None, LogicalType::Text, true));
            } else if let Some(ty) = declared_type(&self.options, &name).or_else(|| canal::logical_type(&text)) {
                fields.push(Field::new(name, Some(any), ty, true));
            } else {
                unsupported.push(format!("{name:?} ({text})"));
            }
        }
        let keys = match &self.options.primary_key {
            Some(names) => names.clone(),
            None => message.key_names()?,
        };
        let plan = if !unsupported.is_empty() {
            let reason = format!("table {:?} has columns of types that cannot be represented yet: {}", self.options.table, list(&unsupported));
            Err(Reject::new(Code::TypeUnsupported, reason))
        } else if keys.is_empty() {
            Err(self.no_key())
        } else {
            Plan::new(&self.options.table, fields, 0, &keys).map(Arc::new)
        };
        self.canal_plans.put(((message.types.to_owned(), message.keys.to_owned()), plan)).1.clone()
    }

    /// The plan of the last row of a record like this one: a guess, which saves passing over the row before it is written.
    fn guess(&self, schema: Option<&ValueSchema>, key: &Result<Option<KeyDocument<'_>>, Reject>) -> Option<Arc<Plan>> {
        let key_id = match key {
            Ok(Some(document)) if self.options.primary_key.is_none() => document.shape.id,
            Ok(_) => 0,
            Err(_) => return None,
        };
        let plan = match schema {
            Some(ValueSchema::Rows { id, .. }) => self.plans.first().filter(|(row, key, _)| row == id && *key == key_id).map(|(_, _, plan)| plan),
            Some(ValueSchema::Other) => None,
            None => self.bare_plans.first().filter(|(_, key, _)| *key == key_id).map(|(_, _, plan)| plan),
        };
        plan?.as_ref().ok().map(Arc::clone)
    }

    /// A change of a row.
    fn row<'d>(
        &'d mut self,
        op: Op,
        envelope: &Envelope<'d>,
        schema: Option<ValueSchema>,
        key: Option<KeyDocument<'d>>,
        record: &Record<'d>,
    ) -> Result<Decoded<'d>, Reject> {
        let (sequence, snapshot) = envelope.source.sequence(&self.options, self.epoch, record.offset, op == Op::Read)?;
        let is_delete = op == Op::Delete;
        let image = if is_delete { envelope.before.as_ref() } else { envelope.after.as_ref() };
        if image.is_none() && !is_delete {
            let reason = format!("a change `{}` of table {:?} has no row behind it", op.letter(), self.options.table);
            return Err(Reject::new(Code::EnvelopeRowMissing, reason));
        }
        if key.is_none() && self.options.primary_key.is_none() {
            return Err(self.no_key());
        }
        let plan = self.plan(schema, image, is_delete, key.as_ref())?;
        let mut moved = false;
        if is_delete {
            self.key_of_delete(&plan, image, key.as_ref())?;
        } else {
            self.key_of_row(&plan, key.as_ref())?;
            // Flattened rows are whole, whatever happened to them.
            if op != Op::Update || self.options.dialect == Dialect::Flattened {
                self.after.author_lacking(&plan);
            }
        }
        let before = if op == Op::Update { envelope.before.as_ref() } else { None };
        let mut has_before = false;
        if let Some(before) = before {
            (has_before, moved) = self.read_before(&plan, before)?;
        }
        let header = match op {
            Op::Create => record.headers.and_then(|h| h.get(OLD_KEY)),
            Op::Delete => record.headers.and_then(|h| h.get(NEW_KEY)),
            _ => None,
        };
        let named_other = header.is_some_and(|text| self.read_other_key(&plan, key.as_ref(), text));
        // Offsets order the changes of one key alone, so they do not say which row of the other key came before.
        let by_offset = envelope.source.is_by_offset(self.options.order);
        self.refuse_move(by_offset, moved)?;
        let has_other = (moved || named_other) && !by_offset;
        self.current = Some(plan);
        self.sequence = sequence;
        self.note_texts(envelope);
        let this: &'d Self = self;
        let change = Change {
            op,
            sequence: Some(this.sequence.as_bytes()),
            event_time: envelope.source.event_time(),
            source: this.block(envelope),
            snapshot,
            unauthored: if is_delete { ColumnSet::new() } else { this.after.unauthored.clone() },
            key: Some(&this.key.plain),
            other_key: has_other.then_some(this.former_key.plain.as_slice()),
            before: has_before.then_some(this.before.bytes.as_slice()),
            after: (!is_delete).then_some(this.after.bytes.as_slice()),
        };
        let former_key = moved.then_some((this.former_key.canonical.as_slice(), this.former_key.plain.as_slice()));
        this.changes(former_key, Keyed { key: Some(&this.key.canonical), change }, by_offset)
    }

    /// The table was emptied in its source: a mark for every key (case CTL-01). It needs an order that holds across the partitions of the topic.
    fn truncate<'d>(&'d mut self, envelope: &Envelope<'d>, offset: i64) -> Result<Decoded<'d>, Reject> {
        let table = &self.options.table;
        let refuse = |why: &str| Err(Reject::new(Code::TruncateUnsupported, format!("table {table:?} was truncated in the source, {why}")));
        if envelope.source.is_by_offset(self.options.order) && self.options.partitions != 1 {
            return refuse("and offsets do not say which of its rows in other partitions came before");
        }
        if !self.is_own_table(envelope.source.table) {
            return refuse("or one that goes into the same topic: the event names a table of another name than the topic's");
        }
        (self.sequence, _) = envelope.source.sequence(&self.options, self.epoch, offset, false)?;
        self.note_texts(envelope);
        let this: &'d Self = self;
        let change = Change {
            op: Op::Truncate,
            sequence: Some(this.sequence.as_bytes()),
            event_time: envelope.source.event_time(),
            source: this.block(envelope),
            snapshot: None,
            unauthored: ColumnSet::new(),
            key: None,
            other_key: None,
            before: None,
            after: None,
        };
        let (schema, fingerprint) = &this.marks;
        let change = Keyed { key: None, change };
        Ok(Decoded::Changes(Changes { change, former_key: None, more: &[], schema, fingerprint: *fingerprint, by_offset: false }))
    }

    /// Whether a table is the one that its topic is named after: several may be routed into one. A name that is not told is nobody else's.
    fn is_own_table(&self, named: Option<JsonStr<'_>>) -> bool {
        let Some(named) = named else { return true };
        if let Some(wanted) = &self.options.source_table {
            return named.is(wanted);
        }
        let mut text = String::new();
        let last = self.options.topic.rsplit('.').next().unwrap_or_default();
        // As a connector makes a topic's name of it.
        let legal = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
        last.is_empty() || (named.unescape(&mut text) && text.rsplit('.').next().unwrap_or_default().chars().map(legal).eq(last.chars()))
    }

    /// Whether a message of a topic that holds several tables is about this one.
    fn is_wanted(&self, database: Option<JsonStr<'_>>, table: Option<JsonStr<'_>>) -> bool {
        let fits = |wanted: &Option<String>, named: Option<JsonStr<'_>>| wanted.as_ref().zip(named).is_none_or(|(wanted, named)| named.is(wanted));
        fits(&self.options.source_schema, database) && fits(&self.options.source_table, table)
    }

    /// A row that moved to another key, where offsets order it: those of the two keys say nothing of each other across partitions.
    fn refuse_move(&self, by_offset: bool, moved: bool) -> Result<(), Reject> {
        if !(by_offset && moved && self.options.partitions != 1) {
            return Ok(());
        }
        let table = &self.options.table;
        let reason = format!("a row of table {table:?} changed its key, and offsets do not order the two keys across the partitions of the topic");
        Err(Reject::new(Code::NoOrder, reason))
    }

    /// Keeps the texts of a source block that are not in the record as they are.
    fn note_texts(&mut self, envelope: &Envelope<'_>) {
        let source = &envelope.source;
        let named = [source.connector, source.database, source.schema, source.table, envelope.transaction];
        for (scratch, text) in self.texts.iter_mut().zip(named) {
            if let Some(text) = text.filter(|t| t.escaped) {
                scratch.clear();
                if !text.unescape(scratch) {
                    scratch.clear();
                }
            }
        }
        if let Some(Number::Long(id)) = source.transaction {
            let text = &mut self.texts[4];
            text.clear();
            write!(text, "{id}").expect("a String takes every write");
        }
    }

    /// The source block; its texts have been noted.
    fn block<'d>(&'d self, envelope: &Envelope<'d>) -> SourceBlock<'d> {
        let source = &envelope.source;
        let text = |i: usize, text: Option<JsonStr<'d>>| text.map(|text| if text.escaped { self.texts[i].as_str() } else { text.raw });
        SourceBlock {
            connector: text(0, source.connector).unwrap_or_default(),
            database: text(1, source.database).unwrap_or_default(),
            schema: text(2, source.schema).unwrap_or_default(),
            table: text(3, source.table).unwrap_or_default(),
            transaction: match source.transaction {
                Some(Number::Digits(id)) => Some(id),
                Some(Number::Long(_)) => Some(self.texts[4].as_str()),
                None => text(4, envelope.transaction),
            },
            transaction_order: envelope.transaction_order,
        }
    }

    /// A null value: deletes what its key names, and ranks behind the record of that key before it (law 4).
    fn tombstone<'d>(&'d mut self, key: Result<Option<KeyDocument<'d>>, Reject>) -> Result<Decoded<'d>, Reject> {
        let Some(document) = key? else { return Ok(Decoded::Ignored(Ignored::Empty)) };
        let plan = self.key_plan(&document)?;
        self.key_of_record(&plan, &document)?;
        self.current = Some(plan);
        let this: &'d Self = self;
        let change = Change {
            op: Op::Delete,
            sequence: None,
            event_time: None,
            source: SourceBlock::default(),
            snapshot: None,
            unauthored: ColumnSet::new(),
            key: Some(&this.key.plain),
            other_key: None,
            before: None,
            after: None,
        };
        this.changes(None, Keyed { key: Some(&this.key.canonical), change }, false)
    }

    fn changes<'d>(&'d self, former_key: Option<(&'d [u8], &'d [u8])>, change: Keyed<'d>, by_offset: bool) -> Result<Decoded<'d>, Reject> {
        let plan = self.current.as_ref().expect("set by the caller, which has made the change with it");
        Ok(Decoded::Changes(Changes { change, former_key, more: &[], schema: &plan.schema, fingerprint: plan.fingerprint, by_offset }))
    }

    fn no_key(&self) -> Reject {
        let reason = format!("a record of table {:?} has no key, and no `primary_key` is given", self.options.table);
        Reject::new(Code::NullKey, reason)
    }

    fn key_lacks(&self, column: &str) -> Reject {
        let reason = format!("the record key lacks column {column:?} of the key of table {:?}", self.options.table);
        Reject::new(Code::KeyMissing, reason)
    }

    /// Whether `before` can be kept, and whether it says that the key changed; that key is left in `former_key` then.
    fn read_before(&mut self, plan: &Plan, image: &Image<'_>) -> Result<(bool, bool), Reject> {
        let overridden = self.options.primary_key.is_some();
        match self.before.write_image(plan, image, &mut self.writer) {
            Ok(()) => {}
            Err(reject) if overridden => return Err(reject),
            // Only the key is owed to anybody; an image that cannot be read is no image.
            Err(_) => return Ok((false, false)),
        }
        let has_before = self.before.unauthored.is_empty();
        if self.before.has_plain_key(&self.key) {
            return Ok((has_before, false));
        }
        match self.before.key(plan, &mut self.former_key) {
            Ok(()) => Ok((has_before, self.former_key.canonical != self.key.canonical)),
            Err(reject) if overridden => Err(reject),
            Err(_) => Ok((false, false)),
        }
    }

    /// The key of a row that has been written to `after`: that of the record, which must be the row's own, or the columns that the options
    /// name. Under fast DDL a record key may be newer than its row (STACK.md), and which of them is right cannot be told.
    fn key_of_row(&mut self, plan: &Plan, document: Option<&KeyDocument<'_>>) -> Result<(), Reject> {
        if self.options.primary_key.is_some() {
            return self.after.key(plan, &mut self.key);
        }
        let Some(document) = document else { return Err(self.no_key()) };
        self.key_of_record(plan, document)?;
        if self.after.has_plain_key(&self.key) {
            return Ok(());
        }
        self.after.key(plan, &mut self.former_key)?;
        if self.former_key.canonical == self.key.canonical {
            return Ok(());
        }
        let reason = format!("the record key is not the key of its row in table {:?}", self.options.table);
        Err(Reject::new(Code::KeyMismatch, reason))
    }

    fn key_of_record(&mut self, plan: &Plan, document: &KeyDocument<'_>) -> Result<(), Reject> {
        self.key.clear();
        let shape = &document.shape;
        for position in 0..plan.schema.key().len() {
            let name = plan.key_type(position).map_or("", |(name, _)| name);
            let member = match self.options.primary_key {
                None => shape.order.get(position).copied(),
                Some(_) => shape.member(name),
            };
            let Some(member) = member else { return Err(self.key_lacks(name)) };
            self.key.push_member(plan, position, &shape.fields[member], document.member(member), &mut self.writer)?;
        }
        Ok(())
    }

    /// Reads the key that a header names into `former_key`; false where it cannot be read, since no row is rejected for its headers.
    ///
    /// It has the members of the record key, as Connect's header converter writes them: JSON, with a schema part or without, in which the
    /// default converter writes decimals as numbers.
    fn read_other_key(&mut self, plan: &Plan, document: Option<&KeyDocument<'_>>, header: &[u8]) -> bool {
        let Some(KeyDocument { shape, .. }) = document else { return false };
        let Ok(mut opened) = open(header, "header", &mut self.header_schemas, |_| Ok(())) else { return false };
        let Ok(Token::Object(text)) = opened.scanner.value() else { return false };
        let Ok(tokens) = plan::gather(&shape.fields, text, "header") else { return false };
        let mut shape = Arc::clone(shape);
        let is_decimal = |f: &Field| matches!(f.ty, LogicalType::Decimal { .. } | LogicalType::Numeric);
        if shape.fields.iter().zip(&tokens).any(|(f, token)| is_decimal(f) && matches!(token, Some(Token::Number(_)))) {
            let any = self.options.any();
            let as_number = |f: &Field| if is_decimal(f) { Field::new(f.name.clone(), Some(any), f.ty, f.nullable) } else { f.clone() };
            shape = Arc::new(KeyShape::new(shape.id, shape.fields.iter().map(as_number).collect(), shape.order.clone()));
        }
        std::mem::swap(&mut self.key, &mut self.former_key);
        let read = self.key_of_record(plan, &KeyDocument { shape, members: KeyMembers::Json(tokens) });
        std::mem::swap(&mut self.key, &mut self.former_key);
        read.is_ok()
    }

    /// The key of a delete: the record key's, and from `before` only what the record key lacks.
    fn key_of_delete(&mut self, plan: &Plan, before: Option<&Image<'_>>, document: Option<&KeyDocument<'_>>) -> Result<(), Reject> {
        if self.options.primary_key.is_none() {
            let Some(document) = document else { return Err(self.no_key()) };
            return self.key_of_record(plan, document);
        }
        self.key.clear();
        let mut is_read = false;
        for position in 0..plan.schema.key().len() {
            let name = plan.key_type(position).map_or("", |(name, _)| name);
            let member = document.and_then(|d| Some((d, d.shape.member(name)?)));
            if let Some((document, member)) = member {
                self.key.push_member(plan, position, &document.shape.fields[member], document.member(member), &mut self.writer)?;
                continue;
            }
            let Some(image) = before else {
                let reason = format!("a delete carries no key column {name:?} of table {:?}", self.options.table);
                return Err(Reject::new(Code::KeyMissing, reason));
            };
            if !is_read {
                is_read = true;
                self.before.write_image(plan, image, &mut self.writer)?;
            }
            self.before.append_key(plan, position, &mut self.key)?;
        }
        Ok(())
    }

    /// The plan of a record's rows. Unless it deletes, its row has been written to `after` with it, perhaps on the way already: then `current`
    /// is the plan that it was written with.
    fn plan(&mut self, schema: Option<ValueSchema>, image: Option<&Image<'_>>, is_delete: bool, key: Option<&KeyDocument<'_>>) -> Planned {
        // With a key of the options' own choosing, the record key's shape does not matter to the plan.
        let shape = key.map(|k| &k.shape).filter(|_| self.options.primary_key.is_none());
        let key_id = shape.map_or(0, |s| s.id);
        match schema {
            Some(ValueSchema::Rows { id, fields }) => {
                let plan = match self.plans.find(|(row, key, _)| *row == id && *key == key_id) {
                    Some((_, _, plan)) => plan.clone()?,
                    None => {
                        let plan = fields.and_then(|fields| self.new_plan(fields.to_vec(), shape)).map_err(Reject::of_the_table);
                        self.plans.put((id, key_id, plan)).2.clone()?
                    }
                };
                let is_written = self.current.as_ref().is_some_and(|written| Arc::ptr_eq(written, &plan));
                if let (Some(image), false, false) = (image, is_delete, is_written) {
                    self.after.write_image(&plan, image, &mut self.writer)?;
                }
                Ok(plan)
            }
            Some(ValueSchema::Other) => Err(Reject::new(Code::EnvelopeSchema, "the schema part describes no change event")),
            None => match (image, key) {
                (Some(Image::Json(text)), _) => self.bare_plan(text, is_delete, key_id, shape),
                (_, Some(key)) => self.key_plan(key),
                (_, None) => Err(self.no_key()),
            },
        }
    }

    /// The plan of a row without a schema part: the columns are the members that it has.
    fn bare_plan(&mut self, text: &str, is_delete: bool, key_id: u32, shape: Option<&Arc<KeyShape>>) -> Planned {
        if let Some(written) = self.current.take().filter(|_| !is_delete) {
            return Ok(written);
        }
        if let Some((_, key, Ok(plan))) = self.bare_plans.first()
            && *key == key_id
            && is_delete
            && plan::has_members(plan.present(), text)
        {
            return Ok(Arc::clone(plan));
        }
        let names = plan::names(text, "row")?;
        if names.is_empty() {
            return Err(Reject::new(Code::EnvelopeRowMissing, format!("a row of table {:?} has no members", self.options.table)));
        }
        let plan = match self.bare_plans.find(|(n, key, _)| *key == key_id && *n == names) {
            Some((_, _, plan)) => plan.clone()?,
            None => {
                let plan = self.declared_fields(&names).and_then(|fields| self.bare_plan_of(fields, shape));
                self.bare_plans.put((names, key_id, plan)).2.clone()?
            }
        };
        if !is_delete && self.after.write(&plan, &mut Scanner::new(text), &mut self.writer)? == Fit::OtherMembers {
            return Err(Reject::new(Code::EnvelopeInvalid, "a row does not have the members that were read from it"));
        }
        Ok(plan)
    }

    /// The plan of a record that says nothing but a key: the key columns are all that it knows.
    fn key_plan(&mut self, document: &KeyDocument<'_>) -> Planned {
        let shape = &document.shape;
        if let Some((_, plan)) = self.key_plans.find(|(id, _)| *id == shape.id) {
            return plan.clone();
        }
        let names = self.options.primary_key.as_ref().unwrap_or(&shape.names);
        let field = |name: &String| shape.member(name).map(|i| shape.fields[i].clone()).ok_or_else(|| self.key_lacks(name));
        let plan = names.iter().map(field).collect::<Result<_, _>>().and_then(|fields| self.new_plan(fields, Some(shape)));
        self.key_plans.put((shape.id, plan)).1.clone()
    }

    /// The plan of rows with these members. What is declared beside them is a column all the same: a new row has NULL there, an update keeps what
    /// stood there (cases ENV-01, TOA-04).
    fn bare_plan_of(&self, mut fields: Vec<Field>, shape: Option<&Arc<KeyShape>>) -> Planned {
        let is_lacking = |name: &&String| !fields.iter().any(|f| f.name == **name) && !self.options.leaves_out(name);
        let declared = self.options.types.iter().map(|(name, _)| name).filter(|_| self.options.types_are_columns);
        let lacking: Vec<String> = declared.filter(is_lacking).cloned().collect();
        fields.extend(self.declared_fields(&lacking)?);
        self.plan_of(fields, lacking.len(), shape)
    }

    fn new_plan(&self, fields: Vec<Field>, shape: Option<&Arc<KeyShape>>) -> Planned {
        self.plan_of(fields, 0, shape)
    }

    fn plan_of(&self, fields: Vec<Field>, lacking: usize, shape: Option<&Arc<KeyShape>>) -> Planned {
        let key = match (&self.options.primary_key, shape) {
            (Some(names), _) => names,
            (None, Some(shape)) => &shape.names,
            (None, None) => return Err(self.no_key()),
        };
        Plan::new(&self.options.table, fields, lacking, key).map(Arc::new)
    }

    /// The fields of a row or key that has no schema part; every column that is not declared is named.
    fn declared_fields(&self, names: &[String]) -> Result<Vec<Field>, Reject> {
        let any = self.options.any();
        let mut missing = Vec::new();
        let mut fields = Vec::with_capacity(names.len());
        for name in names {
            if self.options.leaves_out(name) {
                fields.push(Field::new(name.clone(), None, LogicalType::Text, true));
            } else if let Some(ty) = declared_type(&self.options, name) {
                fields.push(Field::new(name.clone(), Some(any), ty, true));
            } else {
                missing.push(format!("{name:?}"));
            }
        }
        if missing.is_empty() {
            return Ok(fields);
        }
        let reason = format!(
            "records of table {:?} have no schema part, and no type is declared for {}; declare them, or let the converter send schemas",
            self.options.table,
            list(&missing)
        );
        Err(Reject::new(Code::TypesMissing, reason))
    }

    /// Reads a record key; `None` where there is none.
    fn open_key<'a>(&mut self, bytes: Option<&'a [u8]>) -> Result<Option<KeyDocument<'a>>, Reject> {
        let Some(bytes) = bytes else { return Ok(None) };
        if let Some(framed) = Registry::frame(&self.options, Encoding::Detected, bytes, "key") {
            let Frame { id, body } = framed?;
            let (shape, layout) = self.registry.key(id, &self.options, &mut self.next_id)?;
            let mut reader = Reader::new(body);
            let passed = layout.pass(&mut reader, &mut Budget::of(body.len())).and_then(|()| reader.finish());
            passed.map_err(|e| avro::invalid("key", e))?;
            return Ok(Some(KeyDocument { shape, members: KeyMembers::Avro(body, layout) }));
        }
        let mut opened = open(bytes, "key", &mut self.key_schemas, |text| {
            let fields = Schema::parse(text, "key")?.compile(&self.options);
            self.next_id += 1;
            Ok(fields.map(|fields| {
                let order = (0..fields.len()).collect();
                Arc::new(KeyShape::new(self.next_id, fields, order))
            }))
        })?;
        let token = opened.scanner.value().map_err(|e| Reject::json("key", e))?;
        close(&mut opened, "key")?;
        let text = match token {
            Token::Null => return Ok(None),
            Token::Object(text) => text,
            _ => return Err(Reject::new(Code::KeyMissing, "the record key is not an object of key columns")),
        };
        let shape = match opened.schema {
            Some(shape) => shape?,
            None => return self.open_bare_key(text).map(Some),
        };
        let tokens = plan::gather(&shape.fields, text, "key")?;
        Ok(Some(KeyDocument { shape, members: KeyMembers::Json(tokens) }))
    }

    /// Reads a key without a schema part. Its columns are ordered as they were declared, however they stand in the record (case KEY-03).
    fn open_bare_key<'a>(&mut self, text: &'a str) -> Result<KeyDocument<'a>, Reject> {
        if let Some((_, Ok(shape))) = self.bare_keys.first()
            && let Ok(tokens) = plan::gather(&shape.fields, text, "key")
            && tokens.iter().all(Option::is_some)
        {
            return Ok(KeyDocument { shape: Arc::clone(shape), members: KeyMembers::Json(tokens) });
        }
        let shape = self.bare_shape(plan::names(text, "key")?)?;
        let tokens = plan::gather(&shape.fields, text, "key")?;
        Ok(KeyDocument { shape, members: KeyMembers::Json(tokens) })
    }

    /// The shape of a key of these columns, whose types are declared.
    fn bare_shape(&mut self, names: Vec<String>) -> KeySchema {
        match self.bare_keys.find(|(n, _)| *n == names) {
            Some((_, shape)) => shape.clone(),
            None => {
                self.next_id += 1;
                let id = self.next_id;
                let shape = self.declared_fields(&names).map(|fields| {
                    let declared = |i: &usize| self.options.types.iter().position(|(name, _)| *name == fields[*i].name);
                    let mut order: Vec<usize> = (0..fields.len()).collect();
                    order.sort_by_key(declared);
                    Arc::new(KeyShape::new(id, fields, order))
                });
                self.bare_keys.put((names, shape)).1.clone()
            }
        }
    }

    fn open_value<'a>(&mut self, bytes: &'a [u8]) -> Result<Opened<'a, ValueSchema>, Reject> {
        open(bytes, "value", &mut self.value_schemas, |text| {
            let schema = Schema::parse(text, "value")?;
            let row = if self.options.dialect == Dialect::Flattened { Some(&schema) } else { schema.row() };
            let Some(row) = row else { return Ok(ValueSchema::Other) };
            self.next_id += 1;
            Ok(ValueSchema::Rows { id: self.next_id, fields: row.compile(&self.options).map(Arc::new) })
        })
    }
}
