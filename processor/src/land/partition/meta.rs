//! What stands in state beside the keys of a slot: how far it is folded, of what, and in which columns.
//!
//! Layout 2 of a slot's meta record; layout 1 stood before keys whose layout was another. It is written in one batch with the keys, so `S` never parts from the state that it describes; a record
//! that cannot be read stops the partition rather than being guessed at.

use landfall_schemas::Sequence;
use landfall_schemas::TableSchema;
use landfall_schemas::provenance::{Place, SourcePartition};
use landfall_schemas::wire::{Reader, WireError, put_bytes, put_long, put_varint};

use crate::land::fold::Marks;

/// What stands in state beside the keys of a slot.
#[derive(Clone, Debug, Default)]
pub(super) struct Meta {
    pub(super) build: u16,
    pub(super) next: i64,
    pub(super) sources: Vec<(SourcePartition, Place)>,
    pub(super) marks: Marks,
    pub(super) columns: Columns,
}

/// The columns that rows in state are in: how many, and a checksum of their names and types. A replica's columns grow at their end, but in
/// which order they came may differ after a store was put back; rows of another order would be read as something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) count: u64,
    checksum: u64,
}

impl Columns {
    /// Those of the first `most` columns of a replica.
    pub(super) fn of(target: Option<&TableSchema>, most: u64) -> Self {
        let columns = target.map(TableSchema::columns).unwrap_or_default();
        let count = most.min(columns.len() as u64);
        let text: String = columns.iter().take(count as usize).map(|column| format!("{} {}\0", column.name, column.ty)).collect();
        Self { count, checksum: landfall_schemas::avro::crc64(text.as_bytes()) }
    }
}

impl Meta {
    const LAYOUT: u8 = 2;

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(Self::LAYOUT);
        put_varint(out, u64::from(self.build));
        put_long(out, self.next);
        put_varint(out, self.columns.count);
        out.extend_from_slice(&self.columns.checksum.to_le_bytes());
        put_varint(out, self.sources.len() as u64);
        for (source, place) in &self.sources {
            out.extend_from_slice(&source.incarnation);
            put_long(out, i64::from(source.partition));
            put_long(out, place.offset);
            put_varint(out, u64::from(place.ordinal));
        }
        put_varint(out, self.marks.truncates.len() as u64);
        self.marks.truncates.iter().for_each(|s| put_bytes(out, s.as_bytes()));
        put_varint(out, self.marks.sweeps.len() as u64);
        for (sequence, id) in &self.marks.sweeps {
            put_bytes(out, sequence.as_bytes());
            put_long(out, *id);
        }
    }

    /// Whether a record is that of an earlier layout: its state is discarded and folded anew, as that of another build is.
    pub(super) fn is_older(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|layout| (1..Self::LAYOUT).contains(layout))
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        if reader.byte()? != Self::LAYOUT {
            return Err(WireError::Index);
        }
        let build = u16::try_from(reader.varint()?).map_err(|_| WireError::Number)?;
        let mut meta = Self { build, next: reader.long()?, ..Self::default() };
        meta.columns = Columns { count: reader.varint()?, checksum: u64::from_le_bytes(reader.array()?) };
        for _ in 0..reader.varint()? {
            let incarnation = reader.array()?;
            let partition = i32::try_from(reader.long()?).map_err(|_| WireError::Number)?;
            let place = Place { offset: reader.long()?, ordinal: u32::try_from(reader.varint()?).map_err(|_| WireError::Number)? };
            meta.sources.push((SourcePartition { incarnation, partition }, place));
        }
        for _ in 0..reader.varint()? {
            meta.marks.truncates.push(Sequence::from_bytes(reader.bytes()?));
        }
        for _ in 0..reader.varint()? {
            meta.marks.sweeps.push((Sequence::from_bytes(reader.bytes()?), reader.long()?));
        }
        reader.finish()?;
        Ok(meta)
    }
}
