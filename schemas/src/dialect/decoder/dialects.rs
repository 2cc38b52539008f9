//! How the events of dialects without Debezium's envelope become changes: flattened rows, Maxwell's events, Canal's messages.

use std::sync::Arc;

use super::super::canal::{self, Canal};
use super::super::document::close;
use super::super::envelope::Envelope;
use super::super::field::Field;
use super::super::flattened::Flattened;
use super::super::maxwell::{self, Maxwell};
use super::super::plan::{Image, Plan};
use super::super::registered::Registry;
use super::super::reject::{Code, Reject};
use super::super::{Decoded, Further, Ignored, Record, declared_type, list};
use super::keys::KeyDocument;
use super::{Decoder, Planned, Said, ValueSchema};
use crate::change::Op;
use crate::json::{Scanner, Token};
use crate::table::ColumnSet;
use crate::types::LogicalType;

/// What the rows of any message may come to, beside what its length allows.
const ROWS_BYTES_FREE: usize = 1 << 20;

impl Decoder {
    /// Decodes a row without an envelope.
    pub(super) fn flattened<'d>(&'d mut self, record: &Record<'d>) -> Result<Decoded<'d>, Reject> {
        let key = self.open_key(record.key);
        let Some(value) = record.value else { return self.tombstone(key) };
        if let Some(framed) = Registry::frame(&self.options, self.options.encoding, value, "value") {
            let mut framed = framed?;
            let (schema, layouts) = self.registry.value(&mut framed, &self.options, &mut self.next_id)?;
            let Some(body) = layouts.document(framed.body)? else { return self.tombstone(key) };
            let (flattened, image) = layouts.flattened(body, &mut self.slots, self.options.connector)?;
            return self.flattened_row(flattened, image, Some(schema), key?, record);
        }
        let Some((schema, row)) = self.open_json_row(value)? else { return self.tombstone(key) };
        let flattened = Flattened::parse(row, self.options.connector)?;
        self.flattened_row(flattened, Some(Image::Json(row)), schema, key?, record)
    }

    /// A value that is a row, with what its schema describes; `None` for null.
    pub(super) fn open_row<'a>(&mut self, value: Option<&'a [u8]>) -> Result<Option<(Option<ValueSchema>, Image<'a>)>, Reject> {
        let Some(value) = value else { return Ok(None) };
        if let Some(framed) = Registry::frame(&self.options, self.options.encoding, value, "value") {
            let mut framed = framed?;
            let (schema, layouts) = self.registry.value(&mut framed, &self.options, &mut self.next_id)?;
            let Some(body) = layouts.document(framed.body)? else { return Ok(None) };
            return Ok(layouts.row_of(body, &mut self.slots)?.map(|image| (Some(schema), image)));
        }
        Ok(self.open_json_row(value)?.map(|(schema, row)| (schema, Image::Json(row))))
    }

    /// A row of JSON, likewise.
    fn open_json_row<'a>(&mut self, value: &'a [u8]) -> Result<Option<(Option<ValueSchema>, &'a str)>, Reject> {
        let mut opened = self.open_value(value)?;
        let token = opened.scanner.value().map_err(|e| Reject::json("value", e))?;
        close(&mut opened, "value")?;
        match token {
            Token::Null => Ok(None),
            Token::Object(row) => Ok(Some((opened.schema, row))),
            _ => Err(Reject::new(Code::EnvelopeInvalid, "the value is no row: it is not an object")),
        }
    }

    /// The change of a row without an envelope.
    fn flattened_row<'d>(
        &'d mut self,
        Flattened { op, source }: Flattened<'d>,
        image: Option<Image<'d>>,
        schema: Option<ValueSchema>,
        key: Option<KeyDocument<'d>>,
        record: &Record<'d>,
    ) -> Result<Decoded<'d>, Reject> {
        let envelope = if op == Op::Delete { Envelope::of_row(image, None, source) } else { Envelope::of_row(None, image, source) };
        self.current = None;
        self.row(op, &envelope, schema, key, record)
    }

    /// Decodes an event of Maxwell.
    pub(super) fn maxwell<'d>(&'d mut self, record: &Record<'d>) -> Result<Decoded<'d>, Reject> {
        let Some(value) = record.value else { return Ok(Decoded::Ignored(Ignored::Empty)) };
        let text = std::str::from_utf8(value).map_err(|e| Reject::json("value", e))?;
        let mut scanner = Scanner::new(text);
        let event = Maxwell::parse(&mut scanner, self.options.connector)?;
        scanner.finish().map_err(|e| Reject::json("value", e))?;
        let op = match event.kind {
            maxwell::Kind::Row(op) => op,
            maxwell::Kind::Ignored(ignored) => return Ok(Decoded::Ignored(ignored)),
        };
        if !self.options.is_wanted(event.source.database, event.source.table) {
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
        let shape = self.bare_shape(&names).map_err(|reject| self.without_key(reject, data, &names))?;
        let (sequence, _) = event.source.sequence(&self.options, self.epoch, record.offset, op == Op::Read)?;
        self.current = None;
        let plan = self.bare_plan(data, false, shape.id, Some(&shape))?;
        self.after.key(&plan, &mut self.key)?;
        if !matches!(op, Op::Update | Op::Delete) {
            self.after.author_lacking(&plan);
        }
        let (has_before, moved) = self.read_former(op, &plan, data, event.old)?;
        let said = Said { op, snapshot: None, has_before, moved, has_other: moved };
        self.say(said, plan, sequence, &Envelope::of_row(None, None, event.source))
    }

    /// What a row was before an update: whether all of it is known, and whether its key changed; that key is left in `former_key` then.
    pub(super) fn read_former(&mut self, op: Op, plan: &Plan, row: &str, old: Option<&str>) -> Result<(bool, bool), Reject> {
        let (Op::Update, Some(old)) = (op, old) else { return Ok((false, false)) };
        self.before.write_former(plan, row, old, &mut self.writer)?;
        self.before.key(plan, &mut self.former_key)?;
        Ok((self.before.unauthored.is_empty(), self.former_key.canonical != self.key.canonical))
    }

    /// Decodes a message of Canal: as many rows as it has.
    pub(super) fn canal<'d>(&'d mut self, record: &Record<'d>) -> Result<Decoded<'d>, Reject> {
        let Some(value) = record.value else { return Ok(Decoded::Ignored(Ignored::Empty)) };
        let text = std::str::from_utf8(value).map_err(|e| Reject::json("value", e))?;
        let mut scanner = Scanner::new(text);
        let message = Canal::parse(&mut scanner)?;
        scanner.finish().map_err(|e| Reject::json("value", e))?;
        if !self.options.is_wanted(message.source.database, message.source.table) {
            return Ok(Decoded::Ignored(Ignored::OtherTable));
        }
        let envelope = Envelope::of_row(None, None, message.source);
        let op = match message.kind {
            canal::Kind::Row(op) => op,
            canal::Kind::Truncate => return self.truncate(&envelope, record.offset),
            canal::Kind::Ignored(ignored) => return Ok(Decoded::Ignored(ignored)),
        };
        let (sequence, _) = message.source.sequence(&self.options, self.epoch, record.offset, false)?;
        let plan = self.canal_plan(&message)?;
        // From the last row to the first, which is left in the buffers and leads.
        let mut said: Option<Said> = None;
        // Rows have the columns that the message names; those that most of its rows lack would be written for each of them.
        let mut left = ROWS_BYTES_FREE + 4 * value.len();
        for (row, old) in message.rows()?.into_iter().rev() {
            if let Some(said) = said.take() {
                self.refuse_move(envelope.source.is_by_offset(self.options.order), said.moved)?;
                let further = self.further(&said);
                self.more.push(further);
            }
            self.after.write_image(&plan, &Image::Json(row), &mut self.writer)?;
            self.after.key(&plan, &mut self.key)?;
            let (has_before, moved) = self.read_former(op, &plan, row, old)?;
            let written = self.after.bytes.len() + if has_before { self.before.bytes.len() } else { 0 };
            left = left
                .checked_sub(written)
                .ok_or_else(|| Reject::new(Code::EnvelopeInvalid, "the rows of a message lack nearly all of its columns"))?;
            said = Some(Said { op, snapshot: None, has_before, moved, has_other: moved });
        }
        self.more.reverse();
        match said {
            Some(said) => self.say(said, plan, sequence, &envelope),
            None => Ok(Decoded::Ignored(Ignored::Empty)),
        }
    }

    /// Takes the row out of the buffers.
    pub(super) fn further(&mut self, said: &Said) -> Further {
        let is_delete = said.op == Op::Delete;
        Further {
            key: std::mem::take(&mut self.key),
            former: said.moved.then(|| std::mem::take(&mut self.former_key)),
            before: said.has_before.then(|| self.before.bytes.clone()),
            after: (!is_delete).then(|| self.after.bytes.clone()),
            unauthored: if is_delete { ColumnSet::new() } else { self.after.unauthored.clone() },
        }
    }

    /// The plan of a message's rows, by the types and the key that it names.
    pub(super) fn canal_plan(&mut self, message: &Canal<'_>) -> Planned {
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
            Plan::new(&self.options, fields, 0, &keys).map(Arc::new)
        };
        self.canal_plans.put(((message.types.to_owned(), message.keys.to_owned()), plan)).1.clone()
    }
}
