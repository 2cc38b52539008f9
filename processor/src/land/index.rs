//! What is known of one key: its events in the order of their sequences.
//!
//! The index holds, per sequence, the events that can still matter under the tie rule (SEMANTICS.md A.2), and the bare tombstones that are in
//! force. Inserting is commutative and idempotent, so arrival order never shows (law 13). Rows live in an [`Arena`] beside it: an index holds
//! spans, which keeps the fold free of allocations for each row. `upsert` keeps the index pruned to what later events can still build on.

use std::cmp::Ordering;

use landfall_schemas::provenance::Place;
use landfall_schemas::{ColumnSet, Sequence};
use smallvec::SmallVec;

/// A run of bytes in an [`Arena`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

/// Bytes of keys and rows of one batch.
#[derive(Debug, Default)]
pub struct Arena {
    bytes: Vec<u8>,
}

impl Arena {
    /// The bytes of a span.
    pub fn get(&self, span: Span) -> &[u8] {
        &self.bytes[span.start as usize..span.end as usize]
    }

    /// Copies bytes in.
    pub fn add(&mut self, bytes: &[u8]) -> Span {
        let start = self.mark();
        self.bytes.extend_from_slice(bytes);
        self.since(start)
    }

    /// Length so far, to name what is appended after it with [`Self::since`].
    pub fn mark(&self) -> u32 {
        // Beyond this a span would name other bytes: better no batch at all.
        u32::try_from(self.bytes.len()).expect("a batch's keys and rows stay below 4 GiB")
    }

    /// Everything appended since a mark.
    pub fn since(&self, mark: u32) -> Span {
        Span { start: mark, end: self.mark() }
    }

    /// Appends bytes that stand in this arena already.
    pub fn append_within(&mut self, span: Span) {
        self.bytes.extend_from_within(span.start as usize..span.end as usize);
    }

    /// Appends bytes from elsewhere.
    pub fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes in use.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True where nothing was added.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forgets everything and keeps up to `keep` bytes of memory.
    pub fn clear(&mut self, keep: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(keep);
    }
}

impl Span {
    /// A part of this span, counted from its start.
    pub fn part(self, start: u32, end: u32) -> Self {
        Self { start: self.start + start, end: self.start + end }
    }

    /// Length in bytes.
    pub fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    /// True for no bytes.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// What an event does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Read by a snapshot.
    Read,
    /// Created or updated.
    Upsert,
    /// Deleted.
    Delete,
}

/// A row in the columns of the replica: the first `columns` of them, later ones read NULL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowSpan {
    /// The encoded values.
    pub span: Span,
    /// Number of columns in it.
    pub columns: u16,
}

/// One event of a key.
#[derive(Clone, Debug)]
pub struct Event {
    /// What it does.
    pub kind: Kind,
    /// Where its source record stood: decides ties.
    pub place: Place,
    /// The row, for upserts and reads.
    pub row: RowSpan,
    /// Columns that it does not author.
    pub unauthored: ColumnSet,
}

/// A row that took over from this key: it rests on the last row of this key before the sequence of the key change.
#[derive(Clone, Debug)]
pub struct Heir {
    /// Sequence of the key change.
    pub behind: Sequence,
    /// Canonical key of the row that took over.
    pub key: Span,
}

/// How ties are decided (SEMANTICS.md A.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// A dialect's own sequence: the source wrote equal sequences in the order of its offsets; snapshot reads lose.
    Dialect,
    /// Sequencing columns of the user: delete, then upsert, then read, then the offset.
    User,
}

impl Event {
    /// Which of two events at one sequence says what happened: greater wins. Canonical bytes decide at last, so the order is total.
    fn tie(&self, other: &Self, ties: Ties, arena: &Arena) -> Ordering {
        let offsets = self.place.offset.cmp(&other.place.offset);
        let first = match ties {
            Ties::Dialect => {
                let streamed = |e: &Self| e.kind != Kind::Read;
                streamed(self).cmp(&streamed(other)).then(offsets).then(self.place.ordinal.cmp(&other.place.ordinal))
            }
            Ties::User => self.kind.cmp(&other.kind).then(offsets),
        };
        first
            .then_with(|| self.kind.cmp(&other.kind))
            .then_with(|| arena.get(self.row.span).cmp(arena.get(other.row.span)))
            .then_with(|| self.unauthored.iter().cmp(other.unauthored.iter()))
    }

    fn authors(&self, column: usize) -> bool {
        self.kind == Kind::Delete || !self.unauthored.contains(column)
    }

    /// True where it leaves no column to others.
    pub fn is_whole(&self) -> bool {
        self.kind == Kind::Delete || self.unauthored.is_empty()
    }
}

/// The events of one key at one sequence, the winner first; others only as far as they author what those before them do not.
#[derive(Clone, Debug)]
pub struct Group {
    /// The sequence.
    pub sequence: Sequence,
    /// Greatest place at which each source partition sent this sequence (index of the partition, place).
    pub sent: SmallVec<[(u16, Place); 1]>,
    /// Ids of the full snapshots that read the key at this sequence, ascending: a source that stood still is read at one place again.
    pub snapshots: SmallVec<[i64; 1]>,
    /// The canonical key that the row had before, where a key change left columns unauthored: they come from that key's row, and nothing
    /// comes from what stood under this key.
    pub former: Option<Span>,
    /// The events that count.
    pub events: SmallVec<[Event; 1]>,
}

impl Group {
    /// True where nothing is left to the predecessors of this sequence.
    pub fn is_whole(&self) -> bool {
        let Some((winner, others)) = self.events.split_first() else { return false };
        winner.is_whole() || winner.unauthored.iter().all(|column| others.iter().any(|e| self.fills(e) && e.authors(column)))
    }

    /// The key that the row had before, where columns come from there.
    pub fn former(&self) -> Option<Span> {
        self.former.filter(|_| !self.is_whole())
    }

    /// Whether columns that the winner leaves open may come from another event of the tie. A row that a key change brought is not blanked by
    /// the delete of what stood there, which is the other half where both keys are canonically one.
    pub fn fills(&self, loser: &Event) -> bool {
        self.former.is_none() || loser.kind != Kind::Delete
    }

    /// True where nothing that stands before this sequence under the same key matters any more.
    pub fn is_base(&self) -> bool {
        self.former.is_some() || self.is_whole()
    }

    fn insert(&mut self, event: Event, ties: Ties, arena: &Arena) {
        let at = self.events.iter().position(|e| event.tie(e, ties, arena) != Ordering::Less).unwrap_or(self.events.len());
        self.events.insert(at, event);
        if self.events.len() > 1 {
            // An event counts only where it authors a column that none before it does: what is dropped depends on the set alone.
            let mut keep = 1;
            for i in 1..self.events.len() {
                let counts = self.events[0].unauthored.iter().any(|c| self.events[i].authors(c) && !self.events[..keep].iter().any(|e| e.authors(c)));
                if counts {
                    self.events.swap(keep, i);
                    keep += 1;
                }
            }
            self.events.truncate(if self.events[0].is_whole() { 1 } else { keep });
        }
    }

    fn note_sent(&mut self, source: u16, place: Place) {
        match self.sent.iter_mut().find(|(s, _)| *s == source) {
            Some((_, sent)) => *sent = (*sent).max(place),
            None => self.sent.push((source, place)),
        }
    }
}

/// A bare tombstone: ranks right behind a sequence, until that source partition sends this sequence again at a higher offset.
#[derive(Clone, Debug)]
pub struct Tombstone {
    /// Source partition that it stands in.
    pub source: u16,
    /// Its place.
    pub place: Place,
    /// The sequence that it ranks right behind; an empty one where nothing was known of the key.
    pub behind: Sequence,
    /// Behind a delete, or behind nothing: it deletes nothing, but a dead letter of the record before it must not undo it (ARCHITECTURE.md,
    /// Dead letters).
    pub idle: bool,
}

/// The last record of the key in a source partition: what a bare tombstone there ranks behind.
#[derive(Clone, Debug)]
pub struct Last {
    /// Source partition.
    pub source: u16,
    /// Place of the record.
    pub place: Place,
    /// Its sequence.
    pub sequence: Sequence,
    /// Whether it was a delete: a tombstone behind it does nothing more (law 4).
    pub deleted: bool,
}

/// Everything known of one key.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// Events by ascending sequence.
    pub groups: SmallVec<[Group; 1]>,
    /// Bare tombstones that no record has made void.
    pub tombstones: Vec<Tombstone>,
    /// Last record per source partition.
    pub last: SmallVec<[Last; 1]>,
    /// Full snapshots that read the key in a row which the replica refused: their end spares it (ARCHITECTURE.md, Dead letters).
    pub spared: Vec<i64>,
    /// Rows that took over from this key and rest on it, by sequence: what they need is kept (ARCHITECTURE.md, Key change).
    pub heirs: Vec<Heir>,
}

/// An event on its way into an index.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Source partition (index of it in the partition's list).
    pub source: u16,
    /// Its sequence.
    pub sequence: Sequence,
    /// Full snapshot that read it.
    pub snapshot: Option<i64>,
    /// The canonical key that the row had before, where columns come from there.
    pub former: Option<Span>,
    /// The event.
    pub event: Event,
}

impl Index {
    /// Puts an event in its place.
    pub fn insert(&mut self, arrival: Arrival, ties: Ties, arena: &Arena) {
        let Arrival { source, sequence, snapshot, former, event } = arrival;
        let place = event.place;
        self.note_last(source, &sequence, place, event.kind);
        let at = self.groups.partition_point(|g| g.sequence < sequence);
        if self.groups.get(at).is_none_or(|g| g.sequence != sequence) {
            self.groups.insert(at, Group { sequence, sent: SmallVec::new(), snapshots: SmallVec::new(), former: None, events: SmallVec::new() });
        }
        let group = &mut self.groups[at];
        group.note_sent(source, place);
        if former.map(|key| arena.get(key)) > group.former.map(|key| arena.get(key)) {
            group.former = former;
        }
        if let Some(Err(at)) = snapshot.map(|id| group.snapshots.binary_search(&id)) {
            group.snapshots.insert(at, snapshot.unwrap_or_default());
        }
        group.insert(event, ties, arena);
        if !self.tombstones.is_empty() {
            let group = &self.groups[at];
            self.tombstones.retain(|t| !(t.behind == group.sequence && group.sent.iter().any(|(s, sent)| *s == t.source && *sent > t.place)));
        }
    }

    /// A change that the replica cannot take leaves no event, but it has been there: a bare tombstone may follow it, and a snapshot that read
    /// the key does not sweep it away.
    pub fn refuse(&mut self, source: u16, sequence: &Sequence, place: Place, kind: Kind, snapshot: Option<i64>) {
        self.note_last(source, sequence, place, kind);
        self.spared.extend(snapshot.filter(|id| !self.spared.contains(id)));
    }

    fn note_last(&mut self, source: u16, sequence: &Sequence, place: Place, kind: Kind) {
        let next = Last { source, place, sequence: sequence.clone(), deleted: kind == Kind::Delete };
        match self.last.iter_mut().find(|l| l.source == source) {
            None => self.last.push(next),
            // A snapshot read that ranks below the record before it does not count as its successor.
            Some(last) if place > last.place && !(kind == Kind::Read && *sequence <= last.sequence) => *last = next,
            Some(_) => {}
        }
    }

    /// Takes in a bare tombstone: behind the record that precedes it in its source partition; after a delete or after nothing it is idle.
    pub fn bury(&mut self, source: u16, place: Place) {
        let last = self.last.iter().find(|l| l.source == source);
        let (behind, idle) = last.map_or_else(|| (Sequence::default(), true), |last| (last.sequence.clone(), last.deleted));
        // Of several behind one record the last one is voided last, so it alone counts.
        match self.tombstones.iter_mut().find(|t| t.source == source && t.behind == behind) {
            Some(same) => (same.place, same.idle) = (same.place.max(place), same.idle && idle),
            None => self.tombstones.push(Tombstone { source, place, behind, idle }),
        }
    }

    /// Whether a dead letter that is replayed comes too late: a bare tombstone of its key has a higher offset and a lower rank (ARCHITECTURE.md,
    /// Dead letters). The letter's record stood before it, so the source has deleted what it says. From now on the tombstone ranks behind that
    /// record, as it would had nothing been set aside: the same may have been replayed before, of an earlier place at which it was sent.
    pub fn supersede(&mut self, source: u16, sequence: &Sequence, place: Place) -> bool {
        let sent_again = self.group(sequence).and_then(|g| g.sent.iter().find(|(s, _)| *s == source)).map(|(_, sent)| *sent);
        let late = self.tombstones.iter_mut().filter(|t| t.source == source && t.place > place && t.behind < *sequence);
        let Some(tombstone) = late.min_by_key(|t| t.place) else { return false };
        if sent_again.is_none_or(|sent| sent < tombstone.place) {
            (tombstone.behind, tombstone.idle) = (sequence.clone(), false);
        }
        true
    }

    /// Whether a bare tombstone that is replayed comes too late: which record stood before it is not known any more.
    pub fn has_passed(&self, source: u16, place: Place) -> bool {
        self.last.iter().any(|l| l.source == source && l.place > place)
    }

    /// Whether a tombstone takes part in the fold.
    pub fn is_buried(&self) -> bool {
        self.tombstones.iter().any(|t| !t.idle)
    }

    /// Whether other keys' rows and this one's rest on each other.
    pub fn is_linked(&self) -> bool {
        !self.heirs.is_empty() || self.groups.iter().any(|g| g.former.is_some())
    }

    /// The last group below a sequence behind which nothing matters for the row just before that sequence.
    pub fn base_below(&self, bound: &Sequence) -> Option<usize> {
        let below = self.groups.partition_point(|g| g.sequence < *bound);
        self.groups[..below].iter().rposition(Group::is_base)
    }

    /// The group at a sequence.
    pub fn group(&self, sequence: &Sequence) -> Option<&Group> {
        self.groups.binary_search_by(|g| g.sequence.cmp(sequence)).ok().map(|at| &self.groups[at])
    }

    /// Whether an event at a sequence would still matter, to this key's row or to an heir's.
    pub fn would_keep(&self, sequence: &Sequence) -> bool {
        let based =
            |upto: Option<&Sequence>| self.groups.iter().any(|g| g.sequence > *sequence && upto.is_none_or(|upto| g.sequence < *upto) && g.is_base());
        !based(None) || self.heirs.iter().any(|heir| heir.behind > *sequence && !based(Some(&heir.behind)))
    }

    /// Forgets what later events cannot build on: everything before the last sequence that leaves nothing to its predecessors, except what
    /// heirs rest on. Nothing of a delete is forgotten: it may be the only memory of its key (law 4).
    pub fn prune(&mut self) {
        let Some(base) = self.groups.iter().rposition(Group::is_base) else { return };
        if base > 0 {
            if self.heirs.is_empty() {
                self.groups.drain(..base);
            } else {
                let lent: SmallVec<[(usize, &Sequence); 2]> =
                    self.heirs.iter().map(|heir| (self.base_below(&heir.behind).unwrap_or(0), &heir.behind)).collect();
                let kept = |at: usize, group: &Group| at >= base || lent.iter().any(|(from, behind)| at >= *from && group.sequence <= **behind);
                let keep: SmallVec<[bool; 8]> = self.groups.iter().enumerate().map(|(at, group)| kept(at, group)).collect();
                let mut keep = keep.into_iter();
                self.groups.retain(|_| keep.next().unwrap_or(true));
            }
        }
        if !self.tombstones.is_empty() {
            self.prune_tombstones();
        }
    }

    /// A tombstone below everything that is left deletes nothing any more, so it need not be known what it ranks behind; the last one of a source
    /// partition still tells dead letters that come too late.
    fn prune_tombstones(&mut self) {
        let low = &self.groups[0].sequence;
        for tombstone in self.tombstones.iter_mut().filter(|t| t.behind < *low) {
            (tombstone.behind, tombstone.idle) = (Sequence::default(), true);
        }
        let last: SmallVec<[(u16, Place); 2]> = self.tombstones.iter().map(|t| (t.source, t.place)).collect();
        let is_last = |t: &Tombstone| !last.iter().any(|(source, place)| *source == t.source && *place > t.place);
        self.tombstones.retain(|t| !t.behind.as_bytes().is_empty() || is_last(t));
    }
}
