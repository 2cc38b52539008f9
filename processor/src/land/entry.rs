//! How the index of a key is stored: layout 2 of a state value.
//!
//! `02`, then groups, tombstones, last records, spared snapshots and heirs, each counted. A tombstone or last record that stands at a group refers
//! to it instead of repeating its sequence, which keeps the usual key (one event, one source partition) at some fifty bytes beside its row. Reading copies the value into
//! the arena once and takes rows as spans of it.

use landfall_schemas::Sequence;
use landfall_schemas::provenance::Place;
use landfall_schemas::wire::{Reader, WireError, put_bytes, put_long, put_varint};
use smallvec::SmallVec;

use super::index::{Arena, Event, Group, Heir, Index, Kind, Last, RowSpan, Span, Tombstone};

const LAYOUT: u8 = 2;

/// Appends the stored form of an index.
pub fn encode(index: &Index, arena: &Arena, out: &mut Vec<u8>) {
    out.push(LAYOUT);
    put_varint(out, index.groups.len() as u64);
    for group in &index.groups {
        put_sequence(out, &group.sequence);
        // The lowest bit tells whether a former key follows; nearly no group has one.
        put_varint(out, (group.sent.len() as u64) << 1 | u64::from(group.former.is_some()));
        if let Some(former) = group.former {
            put_bytes(out, arena.get(former));
        }
        for (source, place) in &group.sent {
            put_varint(out, u64::from(*source));
            put_place(out, *place);
        }
        put_varint(out, group.snapshots.len() as u64);
        group.snapshots.iter().for_each(|id| put_long(out, *id));
        put_varint(out, group.events.len() as u64);
        for event in &group.events {
            out.push(event.kind as u8);
            put_place(out, event.place);
            if event.kind != Kind::Delete {
                put_varint(out, u64::from(event.row.columns));
                put_varint(out, event.unauthored.len() as u64);
                event.unauthored.iter().for_each(|c| put_varint(out, c as u64));
                put_bytes(out, arena.get(event.row.span));
            }
        }
    }
    put_varint(out, index.tombstones.len() as u64);
    for tombstone in &index.tombstones {
        // The lowest bit tells whether it is idle.
        put_varint(out, u64::from(tombstone.source) << 1 | u64::from(tombstone.idle));
        put_place(out, tombstone.place);
        put_known_sequence(out, index, &tombstone.behind);
    }
    put_varint(out, index.last.len() as u64);
    for last in &index.last {
        put_varint(out, u64::from(last.source));
        put_place(out, last.place);
        out.push(u8::from(last.deleted));
        put_known_sequence(out, index, &last.sequence);
    }
    put_varint(out, index.spared.len() as u64);
    index.spared.iter().for_each(|id| put_long(out, *id));
    put_varint(out, index.heirs.len() as u64);
    for heir in &index.heirs {
        put_sequence(out, &heir.behind);
        put_bytes(out, arena.get(heir.key));
    }
}

/// Reads a stored index; its bytes are copied into the arena.
pub fn decode(value: &[u8], arena: &mut Arena) -> Result<Index, WireError> {
    let whole = arena.add(value);
    let mut reader = Reader::new(value);
    if reader.byte()? != LAYOUT {
        return Err(WireError::Index);
    }
    let mut index = Index::default();
    for _ in 0..reader.varint()? {
        let sequence = read_sequence(&mut reader)?;
        let mut sent = SmallVec::new();
        let count = reader.varint()?;
        let former = if count & 1 == 1 { Some(read_span(&mut reader, whole, value.len())?) } else { None };
        for _ in 0..count >> 1 {
            sent.push((read_source(&mut reader)?, read_place(&mut reader)?));
        }
        let mut snapshots = SmallVec::new();
        for _ in 0..reader.varint()? {
            snapshots.push(reader.long()?);
        }
        let mut events = SmallVec::new();
        for _ in 0..reader.varint()? {
            events.push(read_event(&mut reader, whole, value.len())?);
        }
        if events.is_empty() {
            return Err(WireError::Index);
        }
        index.groups.push(Group { sequence, sent, snapshots, former, events });
    }
    for _ in 0..reader.varint()? {
        let source = reader.varint()?;
        let idle = source & 1 == 1;
        let source = u16::try_from(source >> 1).map_err(|_| WireError::Number)?;
        let place = read_place(&mut reader)?;
        index.tombstones.push(Tombstone { source, place, behind: read_known_sequence(&mut reader, &index)?, idle });
    }
    for _ in 0..reader.varint()? {
        let (source, place, deleted) = (read_source(&mut reader)?, read_place(&mut reader)?, reader.byte()? == 1);
        let sequence = read_known_sequence(&mut reader, &index)?;
        index.last.push(Last { source, place, sequence, deleted });
    }
    for _ in 0..reader.varint()? {
        index.spared.push(reader.long()?);
    }
    for _ in 0..reader.varint()? {
        let behind = read_sequence(&mut reader)?;
        let key = read_span(&mut reader, whole, value.len())?;
        index.heirs.push(Heir { behind, key });
    }
    reader.finish()?;
    Ok(index)
}

fn read_event(reader: &mut Reader<'_>, whole: Span, length: usize) -> Result<Event, WireError> {
    let kind = match reader.byte()? {
        0 => Kind::Read,
        1 => Kind::Upsert,
        2 => Kind::Delete,
        _ => return Err(WireError::Index),
    };
    let place = read_place(reader)?;
    let mut event = Event { kind, place, row: RowSpan::default(), unauthored: Default::default() };
    if kind != Kind::Delete {
        event.row.columns = u16::try_from(reader.varint()?).map_err(|_| WireError::Number)?;
        for _ in 0..reader.varint()? {
            let column = reader.varint()?;
            if column >= u64::from(event.row.columns) {
                return Err(WireError::Index);
            }
            event.unauthored.insert(column as usize);
        }
        event.row.span = read_span(reader, whole, length)?;
    }
    Ok(event)
}

/// Bytes with their length before them, as a span of the whole value.
fn read_span(reader: &mut Reader<'_>, whole: Span, length: usize) -> Result<Span, WireError> {
    let bytes = reader.bytes()?;
    let end = (length - reader.rest().len()) as u32;
    Ok(whole.part(end - bytes.len() as u32, end))
}

fn put_place(out: &mut Vec<u8>, place: Place) {
    put_long(out, place.offset);
    put_varint(out, u64::from(place.ordinal));
}

fn read_place(reader: &mut Reader<'_>) -> Result<Place, WireError> {
    Ok(Place { offset: reader.long()?, ordinal: u32::try_from(reader.varint()?).map_err(|_| WireError::Number)? })
}

fn put_sequence(out: &mut Vec<u8>, sequence: &Sequence) {
    put_bytes(out, sequence.as_bytes());
}

fn read_sequence(reader: &mut Reader<'_>) -> Result<Sequence, WireError> {
    Ok(Sequence::from_bytes(reader.bytes()?))
}

/// A sequence that mostly stands in a group already.
fn put_known_sequence(out: &mut Vec<u8>, index: &Index, sequence: &Sequence) {
    match index.groups.iter().rposition(|g| g.sequence == *sequence) {
        Some(at) => put_varint(out, at as u64 + 1),
        None => {
            put_varint(out, 0);
            put_sequence(out, sequence);
        }
    }
}

fn read_known_sequence(reader: &mut Reader<'_>, index: &Index) -> Result<Sequence, WireError> {
    Ok(match usize::try_from(reader.varint()?).map_err(|_| WireError::Number)? {
        0 => read_sequence(reader)?,
        at => index.groups.get(at - 1).ok_or(WireError::Index)?.sequence.clone(),
    })
}

fn read_source(reader: &mut Reader<'_>) -> Result<u16, WireError> {
    u16::try_from(reader.varint()?).map_err(|_| WireError::Number)
}
