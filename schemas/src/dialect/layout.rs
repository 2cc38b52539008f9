//! How the members of a registered record lie, whatever its encoding: the place where Avro and Protobuf differ.
//!
//! Avro writes members one behind the other, so a record is read on the way; Protobuf writes fields in any order, so a message is gathered first.
//! Everything else (what a column is, how envelopes, rows and keys are read) is one. Which of them it is, is asked once for each record.

use std::sync::Arc;

use smallvec::SmallVec;

use super::connect::Schema as Connect;
use super::datum::Datum;
use super::protobuf::{Defaults, Slot};
use super::reject::{Code, Fault, Reject};
use super::{avro, protobuf};
use crate::avro::Budget;
use crate::wire::{Reader, WireError};

/// A registered schema.
#[derive(Clone, Debug)]
pub(super) enum Schema {
    Avro(Arc<crate::avro::Schema>),
    Protobuf(Arc<crate::protobuf::Schema>),
}

/// Place of a record in its schema.
pub(super) type RecordId = usize;

impl Schema {
    /// The names of a record's members, with the records among them; `None` for what is no record.
    pub(super) fn members(&self, record: RecordId) -> Option<Vec<(&str, Option<RecordId>)>> {
        match self {
            Self::Avro(schema) => {
                let record_of = |node| schema.optional(node).map(|(_, id)| id).filter(|id| schema.record(*id).is_some());
                Some(schema.record(record)?.iter().map(|m| (m.name.as_str(), record_of(m.node))).collect())
            }
            Self::Protobuf(schema) => {
                let record_of = |kind| if let crate::protobuf::Kind::Message(id) = kind { Some(id) } else { None };
                Some(schema.message(record).fields.iter().map(|f| (f.name.as_str(), record_of(f.kind))).collect())
            }
        }
    }

    /// The index of null, where a record of Avro may be that in its place.
    pub(super) fn null_of(&self, record: RecordId) -> Option<i64> {
        match self {
            Self::Avro(schema) => schema.optional(record)?.0.map(|null| null as i64),
            Self::Protobuf(_) => None,
        }
    }

    /// The layout of a record. Of Protobuf, whether an absent field without presence is its default.
    pub(super) fn layout(&self, record: RecordId, has_default: Defaults) -> Option<Layout> {
        match self {
            Self::Avro(schema) => avro::Layout::of(schema, record).map(Layout::Avro),
            Self::Protobuf(schema) => Some(Layout::Protobuf(protobuf::Layout::of(schema, record, has_default))),
        }
    }

    /// The Connect schema of a record: what a connector's schema part would say.
    pub(super) fn connect(&self, record: RecordId) -> Option<Connect<'_>> {
        match self {
            Self::Avro(schema) => avro::connect(schema, record),
            Self::Protobuf(schema) => Some(protobuf::connect(schema, record)),
        }
    }

    /// Whether an envelope is of a connector whose times are spans. Protobuf's converter leaves out of whose source a block is.
    pub(super) fn has_spans(&self) -> bool {
        matches!(self, Self::Avro(schema) if avro::has_spans(schema))
    }
}

/// How the members of a record lie.
#[derive(Debug)]
pub(super) enum Layout {
    Avro(avro::Layout),
    Protobuf(protobuf::Layout),
}

impl Layout {
    /// Hands over the members of the record that stands next, in their order, as they are: symbols by their place, arrays as bytes.
    #[inline(always)]
    pub(super) fn each<'a>(
        &self,
        reader: &mut Reader<'a>,
        budget: &mut Budget,
        slots: &mut Vec<Slot>,
        give: impl FnMut(usize, Datum<'a>) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        match self {
            Self::Avro(layout) => layout.each(reader, budget, std::convert::identity, give),
            Self::Protobuf(layout) => layout.each(reader, slots, std::convert::identity, give),
        }
    }

    /// Passes over the record that stands next: in Protobuf, all that is left. Where its members are not in order, notes where they lie.
    pub(super) fn check<const N: usize>(
        &self,
        reader: &mut Reader<'_>,
        budget: &mut Budget,
        slots: &mut SmallVec<[Slot; N]>,
    ) -> Result<(), WireError> {
        match self {
            Self::Avro(layout) => layout.pass(reader, budget),
            Self::Protobuf(layout) => {
                slots.clear();
                slots.resize(layout.len(), Slot::Absent);
                layout.gather(reader.rest(), slots)?;
                *reader = Reader::new(&[]);
                Ok(())
            }
        }
    }

    /// Passes over the record that stands next.
    pub(super) fn pass(&self, reader: &mut Reader<'_>, budget: &mut Budget) -> Result<(), WireError> {
        self.check(reader, budget, &mut SmallVec::<[Slot; 16]>::new())
    }

    /// One member of a record that has been passed over before; `slots` is what was noted then.
    pub(super) fn member<'a>(&'a self, member: usize, bytes: &'a [u8], slots: &[Slot]) -> Option<Datum<'a>> {
        match self {
            Self::Avro(layout) => layout.member(member, bytes),
            Self::Protobuf(layout) => layout.member(member, slots, bytes),
        }
    }

    /// Whether members are symbols, whose text only the schema has.
    pub(super) fn has_symbols(&self) -> bool {
        match self {
            Self::Avro(layout) => layout.has_symbols(),
            Self::Protobuf(layout) => layout.has_symbols(),
        }
    }

    /// A record that does not fit its schema.
    pub(super) fn invalid(&self, part: &str, error: WireError) -> Reject {
        let code = match self {
            Self::Avro(_) => Code::AvroInvalid,
            Self::Protobuf(_) => Code::ProtobufInvalid,
        };
        Reject::unregistered(code, part, error)
    }
}

/// The outermost members of a record, which are asked for in their order, once each.
pub(super) trait Top<'a> {
    /// A member that is no record; the symbol of an enum by its place.
    fn datum(&mut self, member: usize) -> Result<Datum<'a>, WireError>;

    /// A member that is a record, and its bytes; `None` where it is null or absent. `read` may read it on the way (true); where it does not,
    /// `pass` passes over it.
    fn record<E>(
        &mut self,
        member: usize,
        wire: impl Fn(WireError) -> E,
        read: impl FnOnce(&mut Reader<'a>, &mut Budget) -> Result<bool, E>,
        pass: impl FnOnce(&mut Reader<'a>, &mut Budget) -> Result<(), WireError>,
    ) -> Result<Option<&'a [u8]>, E>;
}

/// The elements of an array.
#[derive(Clone, Copy, Debug)]
pub(super) enum Items<'a> {
    Avro(avro::Items<'a>),
    Protobuf(protobuf::Items<'a>),
}

impl<'a> Items<'a> {
    /// Hands over one element after the other.
    pub(super) fn each(&self, give: impl FnMut(Datum<'a>) -> Result<(), Fault>) -> Result<(), Fault> {
        match self {
            Self::Avro(items) => items.each(give),
            Self::Protobuf(items) => items.each(give),
        }
    }
}
