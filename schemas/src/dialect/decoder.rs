//! The decoder of a table: which shape a record has, what its key is, and the change that comes of it.
//!
//! Shapes are kept (`Recent`) so that the steady state neither parses schemas nor allocates; nothing else is kept from record to record, and
//! what a record decodes to never depends on what was kept. Buffers hold one record's rows and keys; a [`Decoded`] borrows them.

use std::sync::Arc;

use super::document::{Seen, close};
use super::envelope::{Envelope, Kind};
use super::field::Field;
use super::placeholder::Placeholder;
use super::plan::{Fit, Key, KeyShape, Plan, Recent, Row, Writer};
use super::protobuf::Slot;
use super::registered::{Registered, Registry};
use super::reject::{Code, Reject};
use super::source::Number;
use super::{Changes, Decoded, Dialect, Encoding, Further, Ignored, Keyed, NEW_KEY, OLD_KEY, Options, Record};
use crate::avro::{self, Budget, Frame, SchemaId};
use crate::change::{Change, Op, SourceBlock};
use crate::contract::{self, Fingerprint};
use crate::json::JsonStr;
use crate::sequence::Sequence;
use crate::table::{ColumnSet, TableSchema};
use crate::types::LogicalType;
use crate::wire::Reader;
use keys::KeyDocument;
use mongodb::Documents;

mod dialects;
mod keys;
mod mongodb;
mod plain;
mod plans;

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

/// What is to be said of the row that stands in the buffers.
struct Said {
    op: Op,
    snapshot: Option<i64>,
    /// Whether all of the former row is known.
    has_before: bool,
    /// Whether its key changed; `former_key` holds it then.
    moved: bool,
    /// Whether `former_key` is the row's key on its other side.
    has_other: bool,
}

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
    /// That of keys that are one value without a schema.
    scalar_shape: Option<KeySchema>,
    /// The texts of MongoDB's documents, and the plan of all of them.
    documents: Documents,
    document_plan: Option<Planned>,
    /// Keys without a schema part.
    bare_keys: Recent<(Vec<String>, KeySchema)>,
    registry: Registry,
    /// Plans of rows with a schema part: its number, the key's number.
    plans: Recent<(u32, u32, Planned)>,
    /// Plans of rows without: names of the row's members, the key's number.
    bare_plans: Recent<(Vec<String>, u32, Planned)>,
    /// Plans of rows whose types were inferred: the columns of the record key that stand beside them, the key's number.
    open_plans: Recent<(Vec<String>, u32, Planned)>,
    /// Plans of records that say nothing but a key: the key's number.
    key_plans: Recent<(u32, Planned)>,
    /// Plans of Canal's rows, by the texts of their types and their key.
    canal_plans: Recent<((String, String), Planned)>,
    /// The rows behind the first one of a message of Canal.
    more: Vec<Further>,
    current: Option<Arc<Plan>>,
    /// The contract of marks.
    marks: (Arc<TableSchema>, Fingerprint),
    sequence: Sequence,
    /// Where the fields of a registered source block lie.
    slots: Vec<Slot>,
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
        // Other dialects have no word for what was not sent.
        let has_placeholder = matches!(options.dialect, Dialect::Debezium | Dialect::Flattened);
        let writer = Writer::new(Placeholder::new(if has_placeholder { &options.placeholder } else { "" }));
        let mut registry = Registry::default();
        for text in &options.schemas {
            // A text that is no schema has no fingerprint, and nothing can name it.
            if let Ok(fingerprint) = avro::fingerprint(text) {
                registry.bring(SchemaId::Fingerprint(fingerprint), &Registered::Avro { text: text.clone(), references: Vec::new() });
            }
        }
        Self {
            epoch: 0,
            options,
            writer,
            next_id: 1,
            key_schemas: Recent::default(),
            header_schemas: Recent::default(),
            value_schemas: Recent::default(),
            scalar_shape: None,
            documents: Documents::default(),
            document_plan: None,
            bare_keys: Recent::default(),
            registry,
            plans: Recent::default(),
            bare_plans: Recent::default(),
            open_plans: Recent::default(),
            key_plans: Recent::default(),
            canal_plans: Recent::default(),
            more: Vec::new(),
            current: None,
            marks,
            sequence: Sequence::default(),
            slots: Vec::new(),
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
        self.writer.begin(record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len));
        self.more.clear();
        match self.options.dialect {
            Dialect::Debezium => self.debezium(&record),
            Dialect::Flattened => self.flattened(&record),
            Dialect::Maxwell => self.maxwell(&record),
            Dialect::Canal => self.canal(&record),
            Dialect::Plain => self.plain(&record),
            Dialect::Mongodb => self.mongodb(&record),
        }
    }

    /// Decodes a record with an envelope.
    fn debezium<'d>(&'d mut self, record: &Record<'d>) -> Result<Decoded<'d>, Reject> {
        // A key is judged only where a row needs it: heartbeats and the like have keys of their own.
        let key = self.open_key(record.key);
        let Some(value) = record.value else { return self.tombstone(key) };
        if let Some(framed) = Registry::frame(&self.options, self.options.encoding, value, "value") {
            return self.registered(framed?, key, record);
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
        let Some(envelope) = envelope else { return self.tombstone(key) };
        self.event(&envelope, is_written, opened.schema, key, record)
    }

    /// Decodes a record whose value names a registered schema.
    fn registered<'d>(
        &'d mut self,
        mut framed: Frame<'d>,
        key: Result<Option<KeyDocument<'d>>, Reject>,
        record: &Record<'d>,
    ) -> Result<Decoded<'d>, Reject> {
        let (schema, layouts) = self.registry.value(&mut framed, &self.options, &mut self.next_id)?;
        self.current = self.guess(Some(&schema), &key);
        let row = layouts.row();
        let (mut reader, mut budget) = (Reader::new(framed.body), Budget::of(framed.body.len()));
        let mut is_written = false;
        let envelope = Envelope::parse_registered(&layouts, &mut reader, &mut budget, &mut self.slots, |reader, budget| {
            let (Some(plan), Some(row)) = (&self.current, row) else { return false };
            is_written = self.after.write_registered(plan, row, reader, budget, &mut self.writer).is_ok();
            is_written
        })?;
        reader.finish().map_err(|e| layouts.top.invalid("value", e))?;
        self.event(&envelope, is_written, Some(schema), key, record)
    }

    /// What an envelope says; where its row has been written on the way, `current` is the plan that it was written with.
    fn event<'d>(
        &'d mut self,
        envelope: &Envelope<'d>,
        is_written: bool,
        schema: Option<ValueSchema>,
        key: Result<Option<KeyDocument<'d>>, Reject>,
        record: &Record<'d>,
    ) -> Result<Decoded<'d>, Reject> {
        if !is_written {
            self.current = None;
        }
        if envelope.document.is_some() {
            return Err(Reject::new(Code::EnvelopeInvalid, "a row is a string and not an object (is it a document of MongoDB?)"));
        }
        match envelope.kind()? {
            Kind::Ignored(ignored) => Ok(Decoded::Ignored(ignored)),
            Kind::Truncate => self.truncate(envelope, record.offset),
            Kind::Row(op) => self.row(op, envelope, schema, key?, record),
        }
    }

    /// Id of a registered schema that a record names and that has not been brought yet: it is to be asked for, and the record decoded then.
    #[inline]
    pub fn wanted(&self, record: &Record<'_>) -> Option<u64> {
        let lacking = |encoding, bytes: Option<&[u8]>| self.registry.lacking(Registry::frame(&self.options, encoding, bytes?, "record")?.ok()?.id);
        lacking(self.options.encoding, record.value).or_else(|| lacking(Encoding::Detected, record.key))
    }

    /// What a record's value is written in, for people: `avro`, `protobuf` or `json`; `None` where there is no value.
    pub fn format(&self, record: &Record<'_>) -> Option<&'static str> {
        let framed = Registry::frame(&self.options, self.options.encoding, record.value?, "value");
        Some(framed.map_or("json", |framed| self.registry.format(self.options.encoding, framed.ok().map(|f| f.id))))
    }

    /// The plan of the record that was decoded last.
    pub(super) fn last_plan(&self) -> Option<&Plan> {
        self.current.as_deref()
    }

    /// Where the types of the columns of the record that was decoded last come from, for people.
    pub(super) fn schema_text(&self, record: &Record<'_>) -> String {
        let framed = record.value.and_then(|value| Registry::frame(&self.options, self.options.encoding, value, "value"));
        if let Some(Ok(Frame { id, .. })) = framed {
            return id.to_string();
        }
        let is_last = |plan: &Planned| plan.as_ref().ok().zip(self.current.as_ref()).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
        let text = match self.options.dialect {
            _ if record.value.is_none() => "the key's own",
            Dialect::Canal => "the types that its message names",
            Dialect::Mongodb => "declared types, and what each value says of itself",
            _ if self.plans.first().is_some_and(|(_, _, plan)| is_last(plan)) => "its schema part",
            _ if self.options.inferred.is_empty() => "declared types",
            _ if self.options.types.is_empty() => "inferred types",
            _ => "declared types, the others inferred",
        };
        text.to_owned()
    }

    /// How many values had a fraction of a second that was finer than their type's micros, since this was asked last.
    pub fn take_cut(&mut self) -> u64 {
        std::mem::take(&mut self.writer.unpacked.cut)
    }

    /// Takes in the types that have been settled for the table so far, in their order; those that were known before are among them.
    pub fn settle(&mut self, inferred: &[(String, LogicalType)]) {
        if self.options.inferred == inferred {
            return;
        }
        inferred.clone_into(&mut self.options.inferred);
        self.bare_keys = Recent::default();
        self.scalar_shape = None;
        self.bare_plans = Recent::default();
        self.open_plans = Recent::default();
        self.key_plans = Recent::default();
    }

    /// Takes in what the registry says of an id.
    pub fn bring(&mut self, id: u64, registered: &Registered) {
        self.registry.bring(SchemaId::Registered(id), registered);
    }

    /// Forgets which ids the registry did not have: they may have come since.
    pub fn forget_unknown(&mut self) {
        self.registry.forget_unknown();
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
        let said = Said { op, snapshot, has_before, moved, has_other: moved || named_other };
        self.say(said, plan, sequence, envelope)
    }

    /// The change of the row that stands in the buffers.
    fn say<'d>(&'d mut self, said: Said, plan: Arc<Plan>, sequence: Sequence, envelope: &Envelope<'d>) -> Result<Decoded<'d>, Reject> {
        let Said { op, snapshot, has_before, moved, has_other } = said;
        let by_offset = envelope.source.is_by_offset(self.options.order);
        self.refuse_move(by_offset, moved)?;
        let is_delete = op == Op::Delete;
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
            // Offsets order the changes of one key alone, so they do not say which row of the other key came before.
            other_key: (has_other && !by_offset).then_some(this.former_key.plain.as_slice()),
            before: has_before.then_some(this.before.bytes.as_slice()),
            after: (!is_delete).then_some(this.after.bytes.as_slice()),
        };
        let former_key = moved.then_some((this.former_key.canonical.as_slice(), this.former_key.plain.as_slice()));
        Ok(this.changes(former_key, Keyed { key: Some(&this.key.canonical), change }, by_offset))
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
            text.push_str(itoa::Buffer::new().format(id));
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
        Ok(self.deleted(plan))
    }

    /// The delete of what stands in `key`, by a record that says nothing else.
    fn deleted(&mut self, plan: Arc<Plan>) -> Decoded<'_> {
        self.current = Some(plan);
        let this: &Self = self;
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

    fn changes<'d>(&'d self, former_key: Option<(&'d [u8], &'d [u8])>, change: Keyed<'d>, by_offset: bool) -> Decoded<'d> {
        let plan = self.current.as_ref().expect("set by the caller, which has made the change with it");
        Decoded::Changes(Changes { change, former_key, more: &self.more, schema: &plan.schema, fingerprint: plan.fingerprint, by_offset })
    }
}
