//! Folding a batch: its records into the overlay of the keys that they touch, and what changed into the batch to land.
//!
//! Keys are read from state many at once, before their first change. A repeat is recognised by provenance and passes. Nothing is
//! written here: the overlay is state as the batch will leave it, once the batch has landed (law 2).

use std::ops::{ControlFlow, Range};

use landfall_schemas::change;
use landfall_schemas::provenance::Place;
use landfall_schemas::wire::{Reader, WireError};
use landfall_schemas::{Change, Op, Provenance, Sequence, TableSchema, Value, row};

use super::buffer::Buffered;
use super::links::Other;
use super::refusal::SUPERSEDED;
use super::{Blame, Counts, Instead, Known, Letter, Partition, Stop};
use crate::fault::{self, Bug};
use crate::land::debounce::Debounce;
use crate::land::entry;
use crate::land::fold::{self, Gap, Shape};
use crate::land::index::{Arrival, Event, Kind, RowSpan};
use crate::sink::{self, Delta};
use crate::state::{self, State};

/// Records whose keys are read from state in one go: enough to share look-ups, few enough that large rows do not pile up.
const LOADED_AT_ONCE: usize = 4096;

impl Partition {
    /// Puts the final state of every touched row into the batch to land.
    pub(super) fn fill_batch(&mut self, next: i64) -> Result<(), Stop> {
        self.batch.reset(self.name.partition, self.fence, self.stored, next);
        let width = self.target.as_ref().map_or(0, |target| target.columns().len());
        let mut padded = Vec::new();
        for e in &self.overlay.entries {
            let (Some(offset), Some(key_row)) = (e.touched, e.key_row) else { continue };
            let arena = &self.overlay.arena;
            let version = sink::version(self.build, offset);
            let row = e.runs.last().filter(|run| run.end.is_none()).map(|run| run.row);
            if fault::bug(Bug::OrphanLeftBehind) && row.is_none() && e.before.is_none() {
                continue;
            }
            if fault::bug(Bug::DropEqualVersion) && row.zip(e.before).is_some_and(|(now, before)| arena.get(now.span) == arena.get(before.span)) {
                continue;
            }
            self.pending_counts.rows[usize::from(row.is_none())] += 1;
            let row = match row {
                None => None,
                Some(row) if usize::from(row.columns) == width => Some(arena.get(row.span)),
                Some(row) => {
                    padded.clear();
                    padded.extend_from_slice(arena.get(row.span));
                    padded.resize(padded.len() + width - usize::from(row.columns), 0);
                    Some(padded.as_slice())
                }
            };
            self.batch.push(Delta { key: arena.get(key_row), row, version });
        }
        self.pending_counts.batches += 1;
        Ok(())
    }

    /// Folds the first records that wait, `count` at most. Small changes of large rows weigh more here than in the log, so the batch ends where
    /// its keys and rows reach its bound; where batches end never shows (INV-2).
    pub(super) fn fold(&mut self, count: usize, state: &mut impl State) -> Result<(), Stop> {
        self.pending = self.meta.clone();
        self.pending_counts = Counts::default();
        self.letters.clear();
        let (mut folded, mut loaded) = (0, 0);
        while folded < count && (folded == 0 || self.overlay.arena.len() < self.settings.debounce.bytes_max) {
            if folded == loaded {
                loaded = count.min(folded + LOADED_AT_ONCE);
                self.load(folded..loaded, state)?;
            }
            let record = self.buffer.waiting()[folded];
            self.fold_one(record, state)?;
            self.pending.next = record.offset + 1;
            folded += 1;
        }
        self.buffer.take(folded);
        Ok(())
    }

    /// Makes entries for the keys of some of the records that wait and reads them from state, all at once.
    fn load(&mut self, some: Range<usize>, state: &mut impl State) -> Result<(), Stop> {
        let mut fresh: Vec<usize> = Vec::new();
        for key in self.buffer.waiting()[some].iter().filter_map(|record| record.key) {
            let (at, new) = self.overlay.entry(self.buffer.get(key));
            if new {
                fresh.push(at);
            }
        }
        let mut damaged = false;
        let (mut bytes, mut values) = (Vec::new(), Vec::new());
        {
            let keys: Vec<&[u8]> = fresh.iter().map(|at| self.overlay.arena.get(self.overlay.entries[*at].key)).collect();
            state.read(self.slot, &keys, &mut |i, value| {
                let start = bytes.len();
                bytes.extend_from_slice(value);
                values.push((fresh[i], start..bytes.len()));
            })?;
        }
        for (at, span) in values {
            match entry::decode(&bytes[span], &mut self.overlay.arena) {
                Ok(index) => self.overlay.entries[at].index = index,
                Err(_) => damaged = true,
            }
        }
        if damaged {
            return Err(state::Error::Corrupt { what: "the index of a key" }.into());
        }
        self.load_linked(&mut fresh, state)?;
        self.note_rows(&fresh)
    }

    /// Notes the rows that keys have before the batch alters them.
    pub(super) fn note_rows(&mut self, fresh: &[usize]) -> Result<(), Stop> {
        for at in fresh {
            self.refold(*at, None)?;
            let e = &mut self.overlay.entries[*at];
            e.before = e.runs.last().filter(|run| run.end.is_none()).map(|run| run.row);
        }
        Ok(())
    }

    /// Folds a key again and notes what changed by the change at an offset. Returns whether its last state lacks a value that nobody knows.
    pub(super) fn refold(&mut self, at: usize, offset: Option<i64>) -> Result<Gap, Stop> {
        if self.overlay.entries[at].index.groups.iter().any(|g| g.former.is_some()) {
            self.find_formers(at)?;
        }
        let Some(target) = &self.target else { return Ok(Gap::None) };
        let e = &mut self.overlay.entries[at];
        let Ok(gap) = fold::fold(
            &e.index,
            &self.pending.marks,
            &self.settings.fold,
            target.columns(),
            &mut self.overlay.arena,
            &mut self.scratch,
            &mut self.runs,
        ) else {
            return Err(state::Error::Corrupt { what: "a row of a key" }.into());
        };
        let arena = &self.overlay.arena;
        let same = e.runs.len() == self.runs.len()
            && e.runs.iter().zip(&self.runs).all(|(a, b)| {
                let identity = self.settings.fold.shape == Shape::Upsert || (a.start == b.start && a.end == b.end && a.tail == b.tail);
                identity && a.row.columns == b.row.columns && arena.get(a.row.span) == arena.get(b.row.span)
            });
        if let Some(offset) = offset
            && !same
        {
            e.touched = Some(offset);
        }
        e.runs.clear();
        e.runs.extend(self.runs.drain(..));
        Ok(gap)
    }

    fn fold_one(&mut self, record: Buffered, state: &mut impl State) -> Result<(), Stop> {
        let damaged = |source| Stop::Record { offset: record.offset, source };
        // The buffer is lent out while the overlay changes.
        let bytes = std::mem::take(&mut self.buffer.bytes);
        let known = std::mem::take(&mut self.known);
        let slice = |(start, end): (u32, u32)| &bytes[start as usize..end as usize];
        let outcome = (|| {
            let provenance = Provenance::decode(slice(record.provenance)).map_err(damaged)?;
            let (fingerprint, body) = change::split_fingerprint(slice(record.value)).map_err(damaged)?;
            let Some(known) = known.get(&fingerprint) else { return Err(damaged(WireError::Index)) };
            let change = Change::decode(&known.schema, body).map_err(damaged)?;
            let Some(source) = self.recognise(&provenance) else {
                self.pending_counts.repeats += 1;
                return Ok(());
            };
            let is_replay = provenance.replayed.is_some();
            let source = u16::try_from(source).map_err(|_| damaged(WireError::Number))?;
            self.pending_counts.folded[Op::ALL.iter().position(|op| *op == change.op).unwrap_or_default()] += 1;
            self.pending_counts.event_time = self.pending_counts.event_time.max(change.event_time.unwrap_or_default());
            let key = slice(record.key.ok_or_else(|| damaged(WireError::Index))?);
            let (at, _) = self.overlay.entry(key);
            if self.overlay.entries[at].key_row.is_none() {
                let plain = change.key.ok_or_else(|| damaged(WireError::Index))?;
                // No row has a key that the store cannot hold, so nothing of it is ever landed, not even its absence.
                if self.refused_key(&known.schema, plain).map_err(damaged)?.is_none() {
                    let span = self.overlay.arena.add(plain);
                    self.overlay.entries[at].key_row = Some(span);
                }
            }
            let other = change.other_key.map(|plain| self.meet(plain, &known.schema, state)).transpose();
            let from = Standing { source, place: provenance.place, is_replay };
            let applied = other.and_then(|other| self.apply(at, &change, known, from, record.offset, other));
            applied.map_err(|e| match e {
                Failure::Wire(source) => damaged(source),
                Failure::Stop(stop) => stop,
            })
        })();
        self.buffer.bytes = bytes;
        self.known = known;
        outcome
    }

    /// The number of a source partition where the place is above everything seen of it; `None` for a repeat.
    ///
    /// A replayed dead letter stands below that place by its nature, and leaves it where it is. Letters of one source partition are replayed by
    /// whoever owns it at the time, and a zombie may judge them by an older topology, so no highest place of theirs would be a prefix; what
    /// recognises their repeats is the index of their key, where an event of one place is one event however often it is put in.
    fn recognise(&mut self, provenance: &Provenance<'_>) -> Option<usize> {
        let sources = &mut self.pending.sources;
        let found = sources.iter().position(|(s, _)| *s == provenance.source);
        if provenance.replayed.is_some() {
            return Some(found.unwrap_or_else(|| {
                // Nothing was seen of it yet: every place is above this one.
                sources.push((provenance.source, Place { offset: -1, ordinal: 0 }));
                sources.len() - 1
            }));
        }
        let at = match found {
            Some(at) => {
                if provenance.place <= sources[at].1 && !fault::bug(Bug::RepeatsFolded) {
                    return None;
                }
                sources[at].1 = provenance.place;
                at
            }
            None => {
                sources.push((provenance.source, provenance.place));
                sources.len() - 1
            }
        };
        Some(at)
    }

    fn apply(&mut self, at: usize, change: &Change<'_>, known: &Known, from: Standing, offset: i64, other: Option<Other>) -> Result<(), Failure> {
        let Standing { source, place, is_replay } = from;
        if is_replay {
            let index = &mut self.overlay.entries[at].index;
            let too_late = match change.sequence {
                Some(sequence) => index.supersede(source, &Sequence::from_bytes(sequence), place),
                None => index.has_passed(source, place),
            };
            if too_late {
                self.pending_counts.superseded += 1;
                self.letters.push(Letter { offset, code: SUPERSEDED, column: String::new() });
                self.overlay.entries[at].changed = true;
                let _ = self.settle(at, offset)?;
                return Ok(());
            }
        }
        let Some(sequence) = change.sequence else {
            let e = &mut self.overlay.entries[at];
            e.index.bury(source, place);
            e.changed = true;
            let _ = self.settle(at, offset)?;
            return Ok(());
        };
        let kind = match change.op {
            Op::Delete => Kind::Delete,
            Op::Read => Kind::Read,
            _ => Kind::Upsert,
        };
        let (blame, altered) = match self.refused(at, change, known)? {
            Some(blame) if self.settings.refuse.is_some_and(|refuse| refuse.instead.is_some()) => self.without_refused(at, blame, change, known)?,
            blame => (blame, None),
        };
        if let Some((column, code)) = blame {
            self.pending_counts.letters += 1;
            self.letters.push(Letter { offset, code, column: known.schema.columns()[column].name.clone() });
            let e = &mut self.overlay.entries[at];
            let sequence = Sequence::from_bytes(sequence);
            e.index.refuse(source, &sequence, place, kind, change.snapshot);
            e.changed = true;
            if let Some(former) = other.and_then(|other| other.at) {
                self.disinherit(former, at, &sequence);
            }
            let _ = self.settle(at, offset)?;
            return Ok(());
        }
        let mut event = Event { kind, place, row: RowSpan::default(), unauthored: Default::default() };
        let mut former = None;
        if kind != Kind::Delete {
            let mapping = known.mapping.as_ref().ok_or(WireError::Index)?;
            let after = altered.as_deref().or(change.after).ok_or(WireError::Index)?;
            event.row = mapping.row(&known.schema, after, &mut self.overlay.arena, &mut self.spans)?;
            event.unauthored = mapping.positions(&change.unauthored);
            former = other.map(|other| other.key).filter(|_| !event.unauthored.is_empty());
        }
        let arrival = Arrival { source, sequence: Sequence::from_bytes(sequence), snapshot: change.snapshot, former, event };
        let e = &mut self.overlay.entries[at];
        e.index.insert(arrival, self.settings.fold.ties, &self.overlay.arena);
        e.changed = true;
        if let Some(other) = other.and_then(|other| other.at) {
            self.link(at, other, &Sequence::from_bytes(sequence), kind);
        }
        let gap = self.settle(at, offset)?;
        if gap == Gap::Null && !change.unauthored.is_empty() {
            self.pending_counts.nulled[0] += 1;
        } else if gap == Gap::Withheld && !change.unauthored.is_empty() {
            self.pending_counts.letters += 1;
            let column = change.unauthored.iter().next().map_or_else(String::new, |c| known.schema.columns()[c].name.clone());
            self.letters.push(Letter { offset, code: "change.unresolved_column", column });
        }
        Ok(())
    }

    /// What of a change the store cannot hold: the place of the column and the code. A change without a row has nothing to hold.
    fn refused(&mut self, at: usize, change: &Change<'_>, known: &Known) -> Result<Blame, WireError> {
        let (Some(refuse), Some(after)) = (self.settings.refuse, change.after) else { return Ok(None) };
        let mut reader = Reader::new(after);
        for (i, (column, judged)) in known.schema.columns().iter().zip(&known.judged).enumerate() {
            if !judged {
                row::skip(column.ty, &mut reader)?;
                continue;
            }
            let value = row::read(column.ty, &mut reader)?;
            if change.unauthored.contains(i) {
                continue;
            }
            if let Some(code) = (refuse.value)(column.ty, &value) {
                return Ok(Some((i, code)));
            }
            self.pending_counts.cut += u64::from((refuse.cuts)(column.ty, &value));
        }
        match (self.overlay.entries[at].key_row, change.key) {
            (None, Some(plain)) => self.refused_key(&known.schema, plain),
            _ => Ok(None),
        }
    }

    /// A row with what stands for what the store cannot hold of it; or what is to blame still, in its key or since nothing is near it.
    fn without_refused(
        &mut self,
        at: usize,
        blame: (usize, &'static str),
        change: &Change<'_>,
        known: &Known,
    ) -> Result<(Blame, Option<Vec<u8>>), WireError> {
        let (Some(refuse), Some(after)) = (self.settings.refuse, change.after) else { return Ok((Some(blame), None)) };
        let is_nearest = refuse.instead == Some(Instead::Nearest);
        let mut row = Vec::with_capacity(after.len());
        let mut reader = Reader::new(after);
        for (i, (column, judged)) in known.schema.columns().iter().zip(&known.judged).enumerate() {
            let start = reader;
            let refused = if *judged {
                let value = row::read(column.ty, &mut reader)?;
                (refuse.value)(column.ty, &value).filter(|_| !change.unauthored.contains(i)).map(|code| (code, value))
            } else {
                row::skip(column.ty, &mut reader)?;
                None
            };
            match refused {
                Some((code, _)) if known.schema.key().contains(&i) => return Ok((Some((i, code)), None)),
                Some((code, value)) => {
                    let instead = if is_nearest { (refuse.nearest)(column.ty, &value) } else { Some(Value::Null) };
                    let Some(instead) = instead else { return Ok((Some((i, code)), None)) };
                    row::put(column.ty, instead, &mut row).map_err(|_| WireError::Number)?;
                }
                None => row.extend_from_slice(&start.rest()[..start.rest().len() - reader.rest().len()]),
            }
        }
        let blame = match (self.overlay.entries[at].key_row, change.key) {
            (None, Some(plain)) => self.refused_key(&known.schema, plain)?,
            _ => None,
        };
        let count = if is_nearest { &mut self.pending_counts.clamped } else { &mut self.pending_counts.nulled[1] };
        *count += u64::from(blame.is_none());
        Ok((blame, Some(row)))
    }

    pub(super) fn refused_key(&self, schema: &TableSchema, plain: &[u8]) -> Result<Blame, WireError> {
        self.settings.refuse.map_or(Ok(None), |refuse| (refuse.key)(schema, plain))
    }

    pub(super) fn settle(&mut self, at: usize, offset: i64) -> Result<Gap, Failure> {
        let gap = self.refold(at, Some(offset)).map_err(Failure::Stop)?;
        if !self.overlay.entries[at].index.heirs.is_empty() {
            self.refold_heirs(at, offset).map_err(Failure::Stop)?;
        }
        if self.settings.fold.shape == Shape::Upsert {
            self.prune(at);
        }
        Ok(gap)
    }

    /// Folds the mark that waits first. It concerns every key of the partition, so it lands in slices of as many keys as a batch may hold: `K` and
    /// `S` pass it with the last one, and a crash before that begins it anew, which changes nothing. State keeps the mark itself, and no key of it
    /// alters. Returns whether the mark is done.
    pub(super) fn fold_mark(&mut self, state: &mut impl State) -> Result<bool, Stop> {
        self.pending = self.meta.clone();
        self.pending_counts = Counts::default();
        self.letters.clear();
        let Some(record) = self.buffer.waiting().first().copied() else { return Ok(true) };
        let damaged = |source| Stop::Record { offset: record.offset, source };
        let (provenance, value) = (self.buffer.get(record.provenance).to_vec(), self.buffer.get(record.value).to_vec());
        let provenance = Provenance::decode(&provenance).map_err(damaged)?;
        let (_, body) = change::split_fingerprint(&value).map_err(damaged)?;
        // It holds no row, so any schema reads it.
        let change = Change::decode(&TableSchema::of_marks(""), body).map_err(damaged)?;
        let is_repeat = self.recognise(&provenance).is_none();
        let is_landed = self.stored.is_some_and(|k| record.offset < k);
        let is_new = !is_repeat && self.note_mark(&change);
        let is_done = !is_new || is_landed || self.sweep(record.offset, state)?;
        if is_done {
            let counts = &mut self.pending_counts;
            counts.repeats += u64::from(is_repeat);
            counts.folded[Op::ALL.iter().position(|op| *op == change.op).unwrap_or_default()] += u64::from(!is_repeat);
            self.pending.next = record.offset + 1;
            self.swept = None;
            self.buffer.take(1);
        } else {
            self.pending = self.meta.clone();
        }
        Ok(is_done)
    }

    /// Adds a mark to those that hold; false for one that is there already.
    fn note_mark(&mut self, change: &Change<'_>) -> bool {
        let sequence = Sequence::from_bytes(change.sequence.unwrap_or_default());
        let marks = &mut self.pending.marks;
        match change.op {
            // Where only the last row of a key matters, so does only the last truncate: an earlier one has nothing left to take.
            Op::Truncate if self.settings.fold.shape == Shape::Upsert => {
                if marks.truncates.iter().any(|mark| *mark >= sequence) {
                    return false;
                }
                marks.truncates.clear();
                marks.truncates.push(sequence);
            }
            Op::Truncate if !marks.truncates.contains(&sequence) => marks.truncates.push(sequence),
            Op::SnapshotEnd if !marks.sweeps.iter().any(|(s, id)| *s == sequence && Some(*id) == change.snapshot) => {
                marks.sweeps.push((sequence, change.snapshot.unwrap_or_default()));
            }
            _ => return false,
        }
        true
    }

    /// Folds the next keys of the partition under the marks that hold now. Returns whether there were no more.
    fn sweep(&mut self, offset: i64, state: &mut impl State) -> Result<bool, Stop> {
        let Debounce { rows_max, bytes_max, .. } = self.settings.debounce;
        let mut stored: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let (mut bytes, mut more) = (0, false);
        state.scan(self.slot, self.swept.as_deref(), &mut |key, value| {
            if stored.len() >= rows_max || bytes >= bytes_max {
                more = true;
                return ControlFlow::Break(());
            }
            bytes += key.len() + value.len();
            stored.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        let last = stored.last().map(|(key, _)| key.clone());
        let mut fresh = Vec::with_capacity(stored.len());
        for (key, value) in stored {
            let (at, _) = self.overlay.entry(&key);
            let index = entry::decode(&value, &mut self.overlay.arena).map_err(|_| state::Error::Corrupt { what: "the index of a key" })?;
            self.overlay.entries[at].index = index;
            fresh.push(at);
        }
        self.load_linked(&mut fresh, state)?;
        // The rows as they were before this mark.
        let latest = std::mem::replace(&mut self.pending.marks, self.meta.marks.clone());
        let noted = self.note_rows(&fresh);
        self.pending.marks = latest;
        noted?;
        for at in 0..self.overlay.entries.len() {
            self.name_key(at)?;
            let _ = self.refold(at, Some(offset))?;
        }
        self.swept = last;
        Ok(!more)
    }

    /// Takes the key columns of a key from its row, where no change of the batch has shown them.
    pub(super) fn name_key(&mut self, at: usize) -> Result<(), Stop> {
        let e = &self.overlay.entries[at];
        let (None, Some(run), Some(target)) = (e.key_row, e.runs.last(), &self.target) else { return Ok(()) };
        let row = run.row.span;
        let corrupt = |_| state::Error::Corrupt { what: "a row of a key" };
        let columns = target.columns().get(..usize::from(run.row.columns)).ok_or(WireError::Index).map_err(corrupt)?;
        row::spans(columns, self.overlay.arena.get(row), &mut self.spans).map_err(corrupt)?;
        let mark = self.overlay.arena.mark();
        for position in target.key() {
            if let Some((start, end)) = self.spans.get(*position) {
                // A key column is never NULL: its value stands right behind the union's index.
                self.overlay.arena.append_within(row.part(*start + 1, *end));
            }
        }
        let span = self.overlay.arena.since(mark);
        self.overlay.entries[at].key_row = Some(span);
        Ok(())
    }
}

/// Where a change stood in its source.
#[derive(Clone, Copy)]
struct Standing {
    /// Number of its source partition.
    source: u16,
    place: Place,
    /// Whether it is a dead letter that was replayed.
    is_replay: bool,
}

/// Why a change was not folded.
pub(super) enum Failure {
    Wire(WireError),
    Stop(Stop),
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}
