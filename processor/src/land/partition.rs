//! One log partition on its way into one replica: positions, batches, and what to do next.
//!
//! `K` is the cursor in the store, `S` how far state is folded, `S <= K` always (INV-1, ARCHITECTURE.md, Positions and recovery). After a
//! claim: a log that ends below `K` or `S` stops the partition; state ahead of `K`, or of another build, is discarded; `[S, K)` is folded
//! without landing; the first batch begins exactly at `K`. A batch is folded in an overlay, landed with `K`, and only then written to state.

use std::time::Duration;

use hashbrown::HashMap;
use landfall_schemas::change::{self, Op};
use landfall_schemas::contract::{self, Fingerprint};
use landfall_schemas::provenance::{Place, SourcePartition};
use landfall_schemas::table::Evolution;
use landfall_schemas::wire::{Reader, WireError, put_bytes, put_long, put_varint};
use landfall_schemas::{Change, LogicalType, Provenance, Sequence, TableSchema, Value, row};

use super::debounce::{Arrivals, Debounce};
use super::entry;
use super::fold::{self, Config, Marks, Run, Scratch, Shape};
use super::index::{Arrival, Event, Kind, RowSpan};
use super::mapping::Mapping;
use super::overlay::Overlay;
use crate::fault::{self, Bug};
use crate::sink::{self, Batch, Claim, Cursor, Delta};
use crate::state::{self, Slot, SlotName, State, Writes};
use links::Other;

mod links;

/// The place of the column that is to blame and the code under which the change is dead-lettered, or nothing.
pub type Blame = Option<(usize, &'static str)>;

/// A store's word on what it cannot hold.
#[derive(Clone, Copy, Debug)]
pub struct Refuse {
    /// A value of a column; the code under which the change is dead-lettered, or nothing.
    pub value: fn(LogicalType, &Value<'_>) -> Option<&'static str>,
    /// A key, encoded as [`Delta::key`] is.
    pub key: fn(&TableSchema, &[u8]) -> Result<Blame, WireError>,
}

/// What does not change while a partition is owned.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How to fold.
    pub fold: Config,
    /// When to land.
    pub debounce: Debounce,
    /// What the store cannot hold.
    pub refuse: Option<Refuse>,
    /// Partitions of the log: both keys of a key change must be in the same one for a value to be taken over.
    pub partitions: u32,
    /// After so long without landing, `K` is read again.
    pub idle_check: Duration,
}

/// A record of the change log.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Log offset.
    pub offset: i64,
    /// Canonical key; `None` for marks.
    pub key: Option<&'a [u8]>,
    /// Encoded change.
    pub value: &'a [u8],
    /// Encoded provenance.
    pub provenance: &'a [u8],
}

/// First and next offset of a log partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    /// First offset that is still there.
    pub begin: i64,
    /// Offset after the last record.
    pub end: i64,
}

/// Why a partition stops until an operator has acted. Other partitions and replicas go on.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The log no longer holds what is needed, or ends before what was landed (law 8).
    #[error("the log holds offsets {begin} to {end}, but {needed} is needed")]
    LogTruncated {
        /// First offset there.
        begin: i64,
        /// Offset after the last one.
        end: i64,
        /// What is needed.
        needed: i64,
    },
    /// A change of the table's schema that this build does not follow.
    #[error("{what}")]
    Schema {
        /// Stable code.
        code: &'static str,
        /// What changed.
        what: String,
    },
    /// A record of the change log that no build writes.
    #[error("log record {offset} cannot be read")]
    Record {
        /// Its offset.
        offset: i64,
        /// Why.
        #[source]
        source: WireError,
    },
    /// State cannot be read or written.
    #[error(transparent)]
    State(#[from] state::Error),
    /// The store refuses for good.
    #[error(transparent)]
    Sink(#[from] sink::Error),
}

impl Stop {
    /// The stable code under which it is reported.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::LogTruncated { .. } => "log.truncated",
            Self::Schema { code, .. } => code,
            Self::Record { .. } => "log.unreadable",
            Self::State(_) => "state.unusable",
            Self::Sink(error) => error.kind.code(),
        }
    }
}

/// A change that this replica cannot take. It is durably dead-lettered before `K` passes it (law 11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Log offset of the change.
    pub offset: i64,
    /// Stable code.
    pub code: &'static str,
    /// The column that it is about.
    pub column: String,
}

impl Letter {
    /// Why, for people, and what helps.
    pub fn reason(&self, table: &str, replica: &str) -> String {
        let column = &self.column;
        match self.code {
            "change.unresolved_column" => format!(
                "the source did not send column {column:?} of table {table:?}, and its value is not known; the row is held back in replica \
                 {replica:?} until a change brings it. After a key change it is found only where both keys are in one partition of the change \
                 log; REPLICA IDENTITY FULL sends it always"
            ),
            _ => format!("column {column:?} of table {table:?} cannot be landed in replica {replica:?}"),
        }
    }
}

/// What is to be done next.
#[derive(Debug)]
pub enum Step {
    /// Nothing before this time, or before something comes in.
    Wait(Option<Duration>),
    /// Take the partition over in the store, then [`Partition::claimed`].
    Claim,
    /// Bring the contract of this fingerprint, then [`Partition::contract`].
    Contract(Fingerprint),
    /// Prepare the table for this schema in the store, then [`Partition::prepared`].
    Prepare(TableSchema),
    /// Write [`Partition::letters`], land [`Partition::batch`], then [`Partition::landed`] or [`Partition::failed`].
    Land,
    /// Read the cursor from the store, then [`Partition::checked`].
    Check,
    /// Commit `G` to Kafka; nothing depends on it.
    Commit(i64),
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// Not claimed yet.
    Idle,
    /// Waiting for a reply of the store about the claim.
    Claiming,
    /// Folding, landing.
    Live,
    /// A batch is with the store.
    Landing,
    /// The store's answer was lost, or the partition was idle for long: the cursor is to be read, and is being read once that was asked for.
    Checking { landing: bool, asked: bool },
    /// Waiting for the contract of a fingerprint.
    Contract,
    /// Waiting for the store to have the columns.
    Preparing(Fingerprint),
}

#[derive(Debug)]
struct Known {
    schema: TableSchema,
    /// `None` until the store covers it.
    mapping: Option<Mapping>,
}

/// What stands in state beside the keys of a slot.
#[derive(Clone, Debug, Default)]
struct Meta {
    build: u16,
    next: i64,
    sources: Vec<(SourcePartition, Place)>,
    marks: Marks,
    columns: Columns,
}

/// The columns that rows in state are in: how many, and a checksum of their names and types. A replica's columns grow at their end, but in
/// which order they came may differ after a store was put back; rows of another order would be read as something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Columns {
    count: u64,
    checksum: u64,
}

#[derive(Clone, Copy, Debug)]
struct Buffered {
    offset: i64,
    key: Option<(u32, u32)>,
    value: (u32, u32),
    provenance: (u32, u32),
    fingerprint: Fingerprint,
}

#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    records: Vec<Buffered>,
    taken: usize,
    arrivals: Arrivals,
}

/// Counts since the last [`Partition::take_counts`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Changes folded, by op in the order of [`Op::ALL`].
    pub folded: [u64; 6],
    /// Repeats recognised by provenance.
    pub repeats: u64,
    /// Changes dead-lettered for this replica.
    pub letters: u64,
    /// Rows landed that exist, and rows landed as absent.
    pub rows: [u64; 2],
    /// Batches landed.
    pub batches: u64,
    /// Batches whose landing was found done after a lost reply.
    pub replies_lost: u64,
    /// States discarded because they were ahead of the store or of another build.
    pub discards: u64,
    /// Greatest event time landed, micros since 1970 UTC.
    pub event_time: i64,
}

/// One log partition and one replica.
#[derive(Debug)]
pub struct Partition {
    name: SlotName,
    settings: Settings,
    phase: Phase,
    build: u16,
    target: Option<TableSchema>,
    fence: u64,
    /// `K` as this owner left it in the store; `None` before the first landing of a build.
    stored: Option<i64>,
    slot: Slot,
    meta: Meta,
    /// State as the batch in flight will leave it.
    pending: Meta,
    known: HashMap<Fingerprint, Known>,
    buffer: Buffer,
    overlay: Overlay,
    scratch: Scratch,
    runs: Vec<Run>,
    spans: Vec<(u32, u32)>,
    batch: Batch,
    letters: Vec<Letter>,
    writes: Writes,
    commit: Option<i64>,
    last_landing: Duration,
    /// When the batch that is with the store was handed out.
    handed_out: Duration,
    /// Before this no small batch follows the last one.
    paced_until: Duration,
    counts: Counts,
    pending_counts: Counts,
}

impl Partition {
    /// A partition that was just assigned. `target` is the schema that the store's table has, where there is one.
    pub fn new(name: SlotName, settings: Settings, build: u16, target: Option<TableSchema>, seed: u64) -> Self {
        Self {
            name,
            settings,
            phase: Phase::Idle,
            build,
            target,
            fence: 0,
            stored: None,
            slot: Slot(0),
            meta: Meta::default(),
            pending: Meta::default(),
            known: HashMap::new(),
            buffer: Buffer::default(),
            overlay: Overlay::new(seed),
            scratch: Scratch::default(),
            runs: Vec::new(),
            spans: Vec::new(),
            batch: Batch::default(),
            letters: Vec::new(),
            writes: Writes::default(),
            commit: None,
            last_landing: Duration::ZERO,
            handed_out: Duration::ZERO,
            paced_until: Duration::ZERO,
            counts: Counts::default(),
            pending_counts: Counts::default(),
        }
    }

    /// Which slot of state it uses.
    pub const fn name(&self) -> &SlotName {
        &self.name
    }

    /// The replica's columns as far as this partition knows them.
    pub const fn target(&self) -> Option<&TableSchema> {
        self.target.as_ref()
    }

    /// Build that it lands in.
    pub const fn build(&self) -> u16 {
        self.build
    }

    /// The batch to land.
    pub const fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Hands the batch out to be landed; it comes back with [`Self::return_batch`] before [`Self::landed`] or [`Self::failed`].
    pub fn lend_batch(&mut self) -> Batch {
        std::mem::take(&mut self.batch)
    }

    /// Takes the batch back.
    pub fn return_batch(&mut self, batch: Batch) {
        self.batch = batch;
    }

    /// The provenance of a record that is in the batch or waits.
    pub fn provenance(&self, offset: i64) -> Option<&[u8]> {
        let at = self.buffer.records.binary_search_by_key(&offset, |r| r.offset).ok()?;
        let (start, end) = self.buffer.records.get(at)?.provenance;
        self.buffer.bytes.get(start as usize..end as usize)
    }

    /// The next log offset that it wants to be given.
    pub fn next_wanted(&self) -> i64 {
        self.buffer.records.last().map_or(self.meta.next, |r| r.offset + 1)
    }

    /// `G`, where it moved and was not committed yet.
    pub const fn take_commit(&mut self) -> Option<i64> {
        self.commit.take()
    }

    /// Preparing the table failed: it is asked for again by the next step.
    pub fn prepare_again(&mut self) {
        if let Phase::Preparing(_) = self.phase {
            self.phase = Phase::Live;
        }
    }

    /// Dead letters to be written before the batch lands.
    pub fn letters(&self) -> &[Letter] {
        &self.letters
    }

    /// `K`: everything below it is in the store.
    pub const fn landed_next(&self) -> Option<i64> {
        self.stored
    }

    /// `S`: everything below it is folded into state.
    pub const fn folded_next(&self) -> i64 {
        self.meta.next
    }

    /// Records that wait, and their bytes.
    pub fn waiting(&self) -> (usize, usize) {
        (self.buffer.records.len() - self.buffer.taken, self.buffer.bytes.len())
    }

    /// True where fetching should pause: as much waits as two batches may hold.
    pub fn is_full(&self) -> bool {
        let d = &self.settings.debounce;
        self.buffer.records.len() >= d.rows_max * 2 || self.buffer.bytes.len() >= d.bytes_max * 2
    }

    /// What was counted since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// Forgets the claim and everything built on it; state on disk is judged anew by the next claim.
    pub fn reclaim(&mut self, build: u16, target: Option<TableSchema>) {
        let counts = std::mem::take(&mut self.counts);
        let seed = self.fence;
        let settings = self.settings.clone();
        *self = Self { counts, ..Self::new(self.name.clone(), settings, build, target, seed) };
    }

    /// The store granted the claim: judges state against `K` and tells from which log offset to fetch. The log's bounds are read after the
    /// claim, or an end that the former owner has landed past would look like a loss.
    pub fn claimed(&mut self, claim: Claim, log: LogBounds, state: &mut impl State, now: Duration) -> Result<i64, Stop> {
        let (slot, bytes) = state.open(&self.name)?;
        self.slot = slot;
        self.fence = claim.fence;
        self.stored = claim.next;
        let truncated = |needed| Stop::LogTruncated { begin: log.begin, end: log.end, needed };
        let fresh = Meta { build: self.build, ..Meta::default() };
        self.meta = match bytes.map(|bytes| Meta::decode(&bytes)).transpose() {
            Err(_) => return Err(state::Error::Corrupt { what: "the meta record of a slot" }.into()),
            Ok(None) => fresh,
            Ok(Some(meta)) => {
                // Judged before the state is discarded: it is the last witness of what the log has lost.
                if meta.build == self.build && log.end < meta.next {
                    return Err(truncated(meta.next));
                }
                let ahead = meta.next > claim.next.unwrap_or(0) && !fault::bug(Bug::StateBeforeLand);
                let readable = meta.columns == Columns::of(self.target.as_ref(), meta.columns.count);
                if ahead || meta.build != self.build || !readable {
                    self.counts.discards += 1;
                    self.slot = state.discard(&self.name)?;
                    fresh
                } else {
                    meta
                }
            }
        };
        if let Some(k) = claim.next.filter(|k| log.end < *k) {
            return Err(truncated(k));
        }
        // What state lacks must still be in the log: a log is never trimmed (ARCHITECTURE.md, The log).
        if log.begin > self.meta.next {
            return Err(truncated(self.meta.next));
        }
        self.buffer = Buffer::default();
        self.phase = Phase::Live;
        self.last_landing = now;
        Ok(self.meta.next)
    }

    /// A record arrived. Records come in the order of their offsets; what was fetched for an earlier claim is passed over.
    pub fn push(&mut self, record: Record<'_>, now: Duration) -> Result<(), Stop> {
        if matches!(self.phase, Phase::Idle | Phase::Claiming) || record.offset < self.next_wanted() {
            return Ok(());
        }
        let (fingerprint, _) = change::split_fingerprint(record.value).map_err(|source| Stop::Record { offset: record.offset, source })?;
        let bytes = &mut self.buffer.bytes;
        let mut add = |part: &[u8]| {
            let start = bytes.len() as u32;
            bytes.extend_from_slice(part);
            (start, bytes.len() as u32)
        };
        let key = record.key.map(&mut add);
        let (value, provenance) = (add(record.value), add(record.provenance));
        self.buffer.records.push(Buffered { offset: record.offset, key, value, provenance, fingerprint });
        self.buffer.arrivals.note(now, record.value.len());
        Ok(())
    }

    /// What is to be done now.
    pub fn next(&mut self, now: Duration, state: &mut impl State) -> Result<Step, Stop> {
        if let Some(offset) = self.commit.take() {
            return Ok(Step::Commit(offset));
        }
        match self.phase {
            Phase::Idle => {
                self.phase = Phase::Claiming;
                Ok(Step::Claim)
            }
            Phase::Live => self.next_live(now, state),
            Phase::Checking { ref mut asked, .. } if !*asked => {
                *asked = true;
                Ok(Step::Check)
            }
            _ => Ok(Step::Wait(None)),
        }
    }

    fn next_live(&mut self, now: Duration, state: &mut impl State) -> Result<Step, Stop> {
        let due = self.settings.debounce.due(&self.buffer.arrivals, self.paced_until);
        let catching_up = self.stored.is_some_and(|k| self.meta.next < k);
        match due {
            Some(due) if due <= now || catching_up => {}
            _ => {
                if let Some(due) = due {
                    return Ok(Step::Wait(Some(due)));
                }
                // Whoever has claimed looks after its claim, also before it has landed anything.
                let check = self.last_landing + self.settings.idle_check;
                if check > now {
                    return Ok(Step::Wait(Some(check)));
                }
                self.phase = Phase::Checking { landing: false, asked: true };
                return Ok(Step::Check);
            }
        }
        let Some(first) = self.buffer.records.get(self.buffer.taken).copied() else { return Ok(Step::Wait(None)) };
        if self.known.get(&first.fingerprint).is_none_or(|k| k.mapping.is_none()) {
            return Ok(match self.known.get(&first.fingerprint) {
                None => {
                    self.phase = Phase::Contract;
                    Step::Contract(first.fingerprint)
                }
                Some(known) => {
                    let wider = self.wider(&known.schema)?;
                    self.phase = Phase::Preparing(first.fingerprint);
                    Step::Prepare(wider)
                }
            });
        }
        let taken = self.take();
        self.fold(taken, state)?;
        let next = self.pending.next;
        if self.stored.is_some_and(|k| next <= k) {
            // [S, K) is in the store already: only state catches up with it.
            self.letters.clear();
            self.persist(state)?;
            return self.next_live(now, state);
        }
        self.fill_batch(next)?;
        if fault::bug(Bug::StateBeforeLand) {
            self.persist(state)?;
        }
        self.phase = Phase::Landing;
        self.handed_out = now;
        Ok(Step::Land)
    }

    /// How many buffered records go into the batch: up to the caps, to the first unknown schema, and never across `K`.
    fn take(&self) -> std::ops::Range<usize> {
        let start = self.buffer.taken;
        let mut bytes = 0;
        let mut end = start;
        while let Some(record) = self.buffer.records.get(end) {
            let known = self.known.get(&record.fingerprint).is_some_and(|k| k.mapping.is_some());
            let crosses = self.stored.is_some_and(|k| record.offset >= k && self.buffer.records[start].offset < k);
            bytes += (record.value.1 - record.value.0) as usize;
            let full = end > start && (end - start >= self.settings.debounce.rows_max || bytes > self.settings.debounce.bytes_max);
            if !known || crosses || full {
                break;
            }
            end += 1;
        }
        start..end
    }

    /// The contract that was asked for. A schema that the replica covers, or that only adds columns, goes on; any other stops.
    pub fn contract(&mut self, fingerprint: Fingerprint, schema: TableSchema) -> Result<(), Stop> {
        let evolution = self.target.as_ref().map(|target| target.compare(&schema));
        let mapping = match evolution {
            None => None,
            Some(Evolution::Covers { added, .. }) if added.is_empty() => self.target.as_ref().map(|target| Mapping::new(&schema, target)),
            Some(Evolution::Covers { .. }) => None,
            Some(changed) => return Err(refused(&changed, &schema)),
        };
        let _ = self.known.insert(fingerprint, Known { schema, mapping });
        self.phase = Phase::Live;
        Ok(())
    }

    fn wider(&self, schema: &TableSchema) -> Result<TableSchema, Stop> {
        match self.target.as_ref() {
            None => Ok(schema.clone()),
            Some(target) => match target.compare(schema) {
                Evolution::Covers { added, .. } => Ok(target.with_columns(&added)),
                changed => Err(refused(&changed, schema)),
            },
        }
    }

    /// The store has the columns that were asked for. `target` is the schema that it remembers: those of this partition first, then what
    /// other partitions and processes added, then what was asked for. Rows in state are in its first columns.
    pub fn prepared(&mut self, target: TableSchema) {
        debug_assert!(self.target.as_ref().is_none_or(|old| target.columns().starts_with(old.columns())), "a replica's columns grow at the end");
        for known in self.known.values_mut() {
            let covered = matches!(target.compare(&known.schema), Evolution::Covers { added, .. } if added.is_empty());
            known.mapping = covered.then(|| Mapping::new(&known.schema, &target));
        }
        self.target = Some(target);
        self.phase = Phase::Live;
    }

    /// The batch landed: state follows, then the buffer lets go of it. An answer to a claim that was given up since changes nothing.
    pub fn landed(&mut self, state: &mut impl State, now: Duration) -> Result<(), Stop> {
        if !matches!(self.phase, Phase::Landing | Phase::Checking { landing: true, .. }) {
            return Ok(());
        }
        let next = self.batch.next;
        fault::point("post_land");
        if !fault::bug(Bug::StateBeforeLand) {
            self.persist(state)?;
        }
        self.stored = Some(next);
        self.commit = Some(next);
        self.phase = Phase::Live;
        self.last_landing = now;
        self.paced_until = self.handed_out + Debounce::pace(now.saturating_sub(self.handed_out));
        let pending = std::mem::take(&mut self.pending_counts);
        self.counts.add(&pending);
        debug_assert!(Some(self.meta.next) <= self.stored, "INV-1: S <= K");
        Ok(())
    }

    /// A call to the store failed: the claim, a preparation, a landing or a look at the cursor. Where that passes by itself, the caller
    /// waits and asks for the next step, which is the same one again; only after a landing, whose answer is open, it is `Step::Check`.
    pub fn failed(&mut self, kind: sink::Kind) -> sink::Remedy {
        let remedy = kind.remedy();
        if remedy == sink::Remedy::Retry {
            match &mut self.phase {
                Phase::Claiming => self.phase = Phase::Idle,
                Phase::Preparing(_) => self.phase = Phase::Live,
                Phase::Landing => self.phase = Phase::Checking { landing: true, asked: false },
                Phase::Checking { asked, .. } => *asked = false,
                Phase::Idle | Phase::Live | Phase::Contract => {}
            }
        }
        remedy
    }

    /// True while it is open whether a landing happened.
    pub const fn in_doubt(&self) -> bool {
        matches!(self.phase, Phase::Checking { landing: true, .. })
    }

    /// The cursor as the store holds it. Tells whether the batch is to be sent again, is done, or the claim is void.
    pub fn checked(&mut self, cursor: Option<Cursor>, state: &mut impl State, now: Duration) -> Result<Verdict, Stop> {
        let Phase::Checking { landing, .. } = self.phase else { return Ok(Verdict::Void) };
        let mine = cursor.filter(|c| c.fence == self.fence && c.build == self.build);
        self.last_landing = now;
        match mine {
            Some(c) if landing && c.next == Some(self.batch.next) => {
                self.counts.replies_lost += 1;
                self.landed(state, now)?;
                Ok(Verdict::Done)
            }
            Some(c) if c.next == self.stored => {
                self.phase = if landing { Phase::Landing } else { Phase::Live };
                Ok(if landing { Verdict::Again } else { Verdict::Done })
            }
            _ => Ok(Verdict::Void),
        }
    }

    fn persist(&mut self, state: &mut impl State) -> Result<(), Stop> {
        self.writes.clear();
        let arena = &self.overlay.arena;
        for e in self.overlay.entries.iter().filter(|e| e.changed) {
            let forget = fault::bug(Bug::TombstoneExpiredEarly) && e.runs.is_empty();
            let empty = super::index::Index::default();
            self.writes.put(arena.get(e.key), |out| entry::encode(if forget { &empty } else { &e.index }, arena, out));
        }
        fault::point("mid_state");
        self.pending.columns = Columns::of(self.target.as_ref(), u64::MAX);
        let mut meta = Vec::with_capacity(64);
        self.pending.encode(&mut meta);
        state.write(self.slot, &self.writes, &meta)?;
        self.meta = self.pending.clone();
        self.overlay.clear();
        let buffer = &mut self.buffer;
        if buffer.taken == buffer.records.len() {
            *buffer = Buffer { bytes: std::mem::take(&mut buffer.bytes), records: std::mem::take(&mut buffer.records), ..Buffer::default() };
            buffer.bytes.clear();
            buffer.records.clear();
            buffer.bytes.shrink_to(self.settings.debounce.bytes_max);
        } else if buffer.taken * 2 > buffer.records.len() {
            compact(buffer);
        }
        fault::point("post_state");
        Ok(())
    }

    fn fill_batch(&mut self, next: i64) -> Result<(), Stop> {
        let Some(target) = &self.target else { return Ok(()) };
        let width = target.columns().len();
        self.batch.reset(self.name.partition, self.fence, self.stored, next);
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

    fn fold(&mut self, taken: std::ops::Range<usize>, state: &mut impl State) -> Result<(), Stop> {
        self.pending = self.meta.clone();
        self.pending_counts = Counts::default();
        self.letters.clear();
        self.load(taken.clone(), state)?;
        for i in taken.clone() {
            let record = self.buffer.records[i];
            self.fold_one(record, state)?;
            self.pending.next = record.offset + 1;
        }
        self.buffer.taken = taken.end;
        // What was not taken keeps the times of the whole: it has waited already, so it goes with the next batch.
        let arrivals = &mut self.buffer.arrivals;
        match self.buffer.records.get(taken.end) {
            None => *arrivals = Arrivals::default(),
            Some(_) => {
                let values = self.buffer.records[taken.end..].iter().map(|r| (r.value.1 - r.value.0) as usize);
                (arrivals.rows, arrivals.bytes) = (self.buffer.records.len() - taken.end, values.sum());
            }
        }
        Ok(())
    }

    /// Makes entries for the keys of the records and reads them from state, all at once.
    fn load(&mut self, taken: std::ops::Range<usize>, state: &mut impl State) -> Result<(), Stop> {
        let mut fresh: Vec<usize> = Vec::new();
        for record in &self.buffer.records[taken] {
            if let Some((start, end)) = record.key {
                let (at, new) = self.overlay.entry(&self.buffer.bytes[start as usize..end as usize]);
                if new {
                    fresh.push(at);
                }
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
    fn note_rows(&mut self, fresh: &[usize]) -> Result<(), Stop> {
        for at in fresh {
            self.refold(*at, None)?;
            let e = &mut self.overlay.entries[*at];
            e.before = e.runs.last().filter(|run| run.end.is_none()).map(|run| run.row);
        }
        Ok(())
    }

    /// Folds a key again and notes what changed by the change at an offset. Returns whether its last state is withheld for want of a value.
    fn refold(&mut self, at: usize, offset: Option<i64>) -> Result<bool, Stop> {
        if self.overlay.entries[at].index.groups.iter().any(|g| g.former.is_some()) {
            self.find_formers(at)?;
        }
        let Some(target) = &self.target else { return Ok(false) };
        let e = &mut self.overlay.entries[at];
        let Ok(withheld) = fold::fold(
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
        Ok(withheld)
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
            let source = u16::try_from(source).map_err(|_| damaged(WireError::Number))?;
            self.pending_counts.folded[Op::ALL.iter().position(|op| *op == change.op).unwrap_or_default()] += 1;
            self.pending_counts.event_time = self.pending_counts.event_time.max(change.event_time.unwrap_or_default());
            if change.op.is_mark() {
                return self.mark(&change, record.offset, state);
            }
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
            let applied = other.and_then(|other| self.apply(at, &change, known, source, provenance.place, record.offset, other));
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
    fn recognise(&mut self, provenance: &Provenance<'_>) -> Option<usize> {
        let sources = &mut self.pending.sources;
        let at = match sources.iter().position(|(s, _)| *s == provenance.source) {
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

    #[expect(clippy::too_many_arguments, reason = "one change, in the parts that its caller has taken apart")]
    fn apply(
        &mut self,
        at: usize,
        change: &Change<'_>,
        known: &Known,
        source: u16,
        place: Place,
        offset: i64,
        other: Option<Other>,
    ) -> Result<(), Failure> {
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
        if let Some((column, code)) = self.refused(at, change, &known.schema)? {
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
            event.row = mapping.row(&known.schema, change.after.ok_or(WireError::Index)?, &mut self.overlay.arena, &mut self.spans)?;
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
        let withheld = self.settle(at, offset)?;
        if withheld && !change.unauthored.is_empty() {
            self.pending_counts.letters += 1;
            let column = change.unauthored.iter().next().map_or_else(String::new, |c| known.schema.columns()[c].name.clone());
            self.letters.push(Letter { offset, code: "change.unresolved_column", column });
        }
        Ok(())
    }

    /// What of a change the store cannot hold: the place of the column and the code. A change without a row has nothing to hold.
    fn refused(&self, at: usize, change: &Change<'_>, schema: &TableSchema) -> Result<Blame, WireError> {
        let (Some(refuse), Some(after)) = (self.settings.refuse, change.after) else { return Ok(None) };
        for (i, pair) in row::values(schema.columns(), after).enumerate() {
            let (column, value) = pair?;
            if let Some(code) = (refuse.value)(column.ty, &value)
                && !change.unauthored.contains(i)
            {
                return Ok(Some((i, code)));
            }
        }
        match (self.overlay.entries[at].key_row, change.key) {
            (None, Some(plain)) => self.refused_key(schema, plain),
            _ => Ok(None),
        }
    }

    fn refused_key(&self, schema: &TableSchema, plain: &[u8]) -> Result<Blame, WireError> {
        self.settings.refuse.map_or(Ok(None), |refuse| (refuse.key)(schema, plain))
    }

    fn settle(&mut self, at: usize, offset: i64) -> Result<bool, Failure> {
        let withheld = self.refold(at, Some(offset)).map_err(Failure::Stop)?;
        if !self.overlay.entries[at].index.heirs.is_empty() {
            self.refold_heirs(at, offset).map_err(Failure::Stop)?;
        }
        if self.settings.fold.shape == Shape::Upsert {
            self.prune(at);
        }
        Ok(withheld)
    }

    /// A mark concerns every key of the partition; a repeat of a mark is a no-op.
    fn mark(&mut self, change: &Change<'_>, offset: i64, state: &mut impl State) -> Result<(), Stop> {
        let sequence = Sequence::from_bytes(change.sequence.unwrap_or_default());
        let marks = &mut self.pending.marks;
        match change.op {
            Op::Truncate if !marks.truncates.contains(&sequence) => marks.truncates.push(sequence),
            Op::SnapshotEnd if !marks.sweeps.iter().any(|(s, id)| *s == sequence && Some(*id) == change.snapshot) => {
                marks.sweeps.push((sequence, change.snapshot.unwrap_or_default()));
            }
            _ => return Ok(()),
        }
        let mut stored: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        state.scan(self.slot, &mut |key, value| stored.push((key.to_vec(), value.to_vec())))?;
        let mut fresh = Vec::new();
        for (key, value) in stored {
            let (at, new) = self.overlay.entry(&key);
            if new {
                let index = entry::decode(&value, &mut self.overlay.arena).map_err(|_| state::Error::Corrupt { what: "the index of a key" })?;
                self.overlay.entries[at].index = index;
                fresh.push(at);
            }
        }
        // The rows as they were before this mark.
        let latest = std::mem::replace(&mut self.pending.marks, self.meta.marks.clone());
        let folded = fresh.into_iter().try_for_each(|at| self.refold(at, None).map(drop));
        self.pending.marks = latest;
        folded?;
        for at in 0..self.overlay.entries.len() {
            self.name_key(at)?;
            let _ = self.refold(at, Some(offset))?;
        }
        Ok(())
    }

    /// Takes the key columns of a key from its row, where no change of the batch has shown them.
    fn name_key(&mut self, at: usize) -> Result<(), Stop> {
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

enum Failure {
    Wire(WireError),
    Stop(Stop),
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

/// What a look at the cursor showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All is as it was left, or the landing in doubt had happened.
    Done,
    /// The landing in doubt did not happen: land the same batch again.
    Again,
    /// The store holds something else: claim anew.
    Void,
}

fn refused(evolution: &Evolution, schema: &TableSchema) -> Stop {
    let (code, what) = evolution.refusal(schema.table()).unwrap_or(("schema.changed", format!("the columns of table {:?} changed", schema.table())));
    Stop::Schema { code, what }
}

fn compact(buffer: &mut Buffer) {
    let from = buffer.records.get(buffer.taken).map_or(buffer.bytes.len() as u32, |r| r.key.unwrap_or(r.value).0);
    drop(buffer.bytes.drain(..from as usize));
    drop(buffer.records.drain(..buffer.taken));
    buffer.taken = 0;
    for record in &mut buffer.records {
        for (start, end) in record.key.iter_mut().chain([&mut record.value, &mut record.provenance]) {
            *start -= from;
            *end -= from;
        }
    }
}

impl Counts {
    fn add(&mut self, other: &Self) {
        for (sum, n) in self.folded.iter_mut().zip(other.folded) {
            *sum += n;
        }
        self.rows[0] += other.rows[0];
        self.rows[1] += other.rows[1];
        self.repeats += other.repeats;
        self.letters += other.letters;
        self.batches += other.batches;
        self.event_time = self.event_time.max(other.event_time);
    }
}

impl Columns {
    /// Those of the first `most` columns of a replica.
    fn of(target: Option<&TableSchema>, most: u64) -> Self {
        let columns = target.map(TableSchema::columns).unwrap_or_default();
        let count = most.min(columns.len() as u64);
        let text: String = columns.iter().take(count as usize).map(|column| format!("{} {}\0", column.name, column.ty)).collect();
        Self { count, checksum: contract::crc64(text.as_bytes()) }
    }
}

impl Meta {
    const LAYOUT: u8 = 1;

    fn encode(&self, out: &mut Vec<u8>) {
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

    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
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
