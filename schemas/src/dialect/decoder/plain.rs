//! Plain records: the value is the row, a null value deletes, and the offset is what orders them.
//!
//! A record says less than a change event, and what it does not say has to follow from where it stands. Offsets order the changes of a key only if
//! all of them are in one partition: where a topic has several, the members of the record key have to be columns of the table's key.

use super::super::datum::Datum;
use super::super::envelope::Envelope;
use super::super::plan::{Beside, Plan};
use super::super::reject::{Code, Reject};
use super::super::scalar;
use super::super::source::{Member, Source};
use super::super::{Decoded, Ignored, Options, Record};
use super::keys::KeyDocument;
use super::{Decoder, Said};
use crate::change::Op;

impl Decoder {
    /// Decodes a plain record: an upsert of its row, or the delete of what its key names.
    pub(super) fn plain<'d>(&'d mut self, record: &Record<'d>) -> Result<Decoded<'d>, Reject> {
        let row = self.open_row(record.value)?;
        // A row may have its key in itself, and one partition orders all rows.
        let is_needed = row.is_none() || self.options.partitions != 1 || self.options.primary_key.is_none();
        // A key whose types are about to be known may bring columns of its own.
        let is_awaited = |reject: &Reject, options: &Options| options.infer && reject.code == Code::TypesMissing;
        let (key, unread) = match self.open_key(record.key) {
            Err(reject) if !is_needed && !is_awaited(&reject, &self.options) => (None, Some(reject)),
            key => (key?, None),
        };
        let mut source = Source::of_connector(self.options.connector);
        if let Some(micros) = record.timestamp {
            source.put(Member::Micros, Datum::Integer(micros));
        }
        let (sequence, _) = source.sequence(&self.options, self.epoch, record.offset, false)?;
        let envelope = Envelope::of_row(None, None, source);
        let said = |op| Said { op, snapshot: None, has_before: false, moved: false, has_other: false };
        let Some((schema, image)) = row else {
            let Some(document) = key else { return Ok(Decoded::Ignored(Ignored::Empty)) };
            self.refuse_disorder(Some(&document))?;
            let plan = self.key_plan(&document)?;
            self.key_of_record(&plan, &document)?;
            return self.say(said(Op::Delete), plan, sequence, &envelope);
        };
        if key.is_none() && self.options.primary_key.is_none() {
            return Err(self.no_key());
        }
        self.refuse_disorder(key.as_ref())?;
        self.current = None;
        // The next row may have what this one lacks; and where a key could not be read, that is the reason.
        let lacks_key = |reject: Reject| match reject.code {
            Code::KeyMissing | Code::KeyColumnMissing => unread.clone().unwrap_or(Reject { code: Code::KeyMissing, ..reject }),
            _ => reject,
        };
        let plan = self.plan(schema, Some(&image), false, key.as_ref()).map_err(lacks_key)?;
        let text = |name: &str, ty| match record.headers.and_then(|headers| headers.get(name)) {
            None => Datum::Null,
            Some(bytes) => scalar::header(bytes, ty),
        };
        self.after.complete(&plan, &mut self.writer, |beside, ty| match beside {
            Beside::Key(member) => key.as_ref().and_then(|key| key.member(*member)).unwrap_or(Datum::Null),
            Beside::Header(name) => text(name, ty),
        })?;
        self.after.author_lacking(&plan);
        self.after.key(&plan, &mut self.key).map_err(lacks_key)?;
        if let Some(document) = &key {
            self.refuse_other_key(&plan, document)?;
        }
        self.say(said(Op::Update), plan, sequence, &envelope)
    }

    /// Refuses a record whose place among the changes of its key is not told by its offset.
    fn refuse_disorder(&self, key: Option<&KeyDocument<'_>>) -> Result<(), Reject> {
        let (Some(names), false) = (&self.options.primary_key, self.options.partitions == 1) else { return Ok(()) };
        let table = &self.options.table;
        let what = match key {
            None => "records have no key".to_owned(),
            Some(key) => match key.shape.names.iter().find(|name| !names.contains(name)) {
                None => return Ok(()),
                Some(name) => format!("records are keyed by {name:?}, which is not part of `primary_key`"),
            },
        };
        let reason = format!(
            "table {table:?}: {what}, so changes of one row may stand in several of the {} partitions, and offsets do not order them; \
             write the topic with the table's key as record key, or with one partition",
            self.options.partitions
        );
        Err(Reject::new(Code::NoOrder, reason))
    }

    /// Refuses a row whose own key is another than what its record key says.
    fn refuse_other_key(&mut self, plan: &Plan, document: &KeyDocument<'_>) -> Result<(), Reject> {
        self.former_key.clear();
        for position in 0..plan.schema.key().len() {
            match document.shape.member(plan.key_name(position)) {
                None => self.after.append_key(plan, position, &mut self.former_key)?,
                Some(member) => {
                    let datum = document.member(member);
                    self.former_key.push_member(plan, position, &document.shape.fields[member], datum, &mut self.writer)?;
                }
            }
        }
        if self.former_key.canonical == self.key.canonical {
            return Ok(());
        }
        let reason = format!("the record key is not the key of its row in table {:?}", self.options.table);
        Err(Reject::new(Code::KeyMismatch, reason))
    }
}
