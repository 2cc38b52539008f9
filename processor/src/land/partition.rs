//! One log partition on its way into one replica: positions, batches, and what to do next.
//!
//! `K` is the cursor in the store, `S` how far state is folded, `S <= K` always (INV-1, ARCHITECTURE.md, Positions and recovery). After a
//! claim: a log that ends below `K` or `S` stops the partition; state ahead of `K`, or of another build, is discarded; `[S, K)` is folded
//! without landing; the first batch begins exactly at `K`. A batch is folded in an overlay, landed with `K`, and only then written to state.

use std::time::Duration;

use hashbrown::HashMap;
use landfall_schemas::contract::Fingerprint;
use landfall_schemas::table::Evolution;
use landfall_schemas::wire::WireError;
use landfall_schemas::{TableSchema, change};

use super::debounce::Debounce;
use super::entry;
use super::fold::{Config, Run, Scratch};
use super::mapping::Mapping;
use super::overlay::Overlay;
use crate::fault::{self, Bug};
use crate::sink::{self, Batch, Claim, Cursor};
use crate::state::{self, Slot, SlotName, State, Writes};
use batch::Failure;
use buffer::{Buffer, Buffered};
use meta::{Columns, Meta};
use refusal::refused;
pub use refusal::{Blame, Instead, Letter, Refuse, SUPERSEDED, Stop};

mod batch;
mod buffer;
mod links;
mod meta;
mod refusal;

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
    /// For each column whether the store may refuse a value of it.
    judged: Vec<bool>,
    /// `None` until the store covers it.
    mapping: Option<Mapping>,
}

/// Counts since the last [`Partition::take_counts`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Changes folded, by op in the order of [`landfall_schemas::Op::ALL`].
    pub folded: [u64; 6],
    /// Repeats recognised by provenance.
    pub repeats: u64,
    /// Changes dead-lettered for this replica.
    pub letters: u64,
    /// Replayed dead letters that came too late: a bare tombstone has deleted what they say.
    pub superseded: u64,
    /// Values whose fraction of a second was cut to what the store keeps.
    pub cut: u64,
    /// Values for which NULL stands: those that nobody knows, and those that the store cannot hold.
    pub nulled: [u64; 2],
    /// Changes that landed with the nearest value that the store has for one that it cannot hold.
    pub clamped: u64,
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
    /// The last key that the mark in work has been landed for.
    swept: Option<Vec<u8>>,
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
            swept: None,
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
        self.buffer.provenance(offset)
    }

    /// The next log offset that it wants to be given.
    pub fn next_wanted(&self) -> i64 {
        self.buffer.end().unwrap_or(self.meta.next)
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
        (self.buffer.waiting().len(), self.buffer.bytes.len())
    }

    /// Stopped for good under this claim: what waits is let go of, so that it takes no memory from others.
    pub fn abandon(&mut self) {
        self.buffer.forget_waiting();
    }

    /// True where fetching should pause: as much waits as two batches may hold.
    pub fn is_full(&self) -> bool {
        let d = &self.settings.debounce;
        self.buffer.len() >= d.rows_max * 2 || self.buffer.bytes.len() >= d.bytes_max * 2
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
        let is_older = bytes.as_ref().is_some_and(|bytes| Meta::is_older(bytes));
        self.meta = match bytes.filter(|_| !is_older).map(|bytes| Meta::decode(&bytes)).transpose() {
            Err(_) => return Err(state::Error::Corrupt { what: "the meta record of a slot" }.into()),
            Ok(None) if is_older => {
                self.counts.discards += 1;
                self.slot = state.discard(&self.name)?;
                fresh
            }
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
        self.swept = None;
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
        self.buffer.push(record, fingerprint, now);
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
        // What is in the store already only passes into state, batch after batch.
        loop {
            if let Some(step) = self.step_live(now, state)? {
                return Ok(step);
            }
        }
    }

    /// The next step, or nothing where state has caught up by a batch.
    fn step_live(&mut self, now: Duration, state: &mut impl State) -> Result<Option<Step>, Stop> {
        let due = self.settings.debounce.due(self.buffer.arrivals(), self.paced_until);
        let catching_up = self.stored.is_some_and(|k| self.meta.next < k);
        match due {
            Some(due) if due <= now || catching_up => {}
            _ => {
                if let Some(due) = due {
                    return Ok(Some(Step::Wait(Some(due))));
                }
                // Whoever has claimed looks after its claim, also before it has landed anything.
                let check = self.last_landing + self.settings.idle_check;
                if check > now {
                    return Ok(Some(Step::Wait(Some(check))));
                }
                self.phase = Phase::Checking { landing: false, asked: true };
                return Ok(Some(Step::Check));
            }
        }
        let Some(first) = self.buffer.waiting().first().copied() else { return Ok(Some(Step::Wait(None))) };
        // Where there is no table yet, a mark has nothing to alter, and an empty batch lands without one.
        let is_mark = first.key.is_none();
        if !is_mark && self.known.get(&first.fingerprint).is_none_or(|k| k.mapping.is_none()) {
            return Ok(Some(match self.known.get(&first.fingerprint) {
                None => {
                    self.phase = Phase::Contract;
                    Step::Contract(first.fingerprint)
                }
                Some(known) => {
                    let wider = self.wider(&known.schema)?;
                    self.phase = Phase::Preparing(first.fingerprint);
                    Step::Prepare(wider)
                }
            }));
        }
        let is_done = if is_mark {
            self.fold_mark(state)?
        } else {
            self.fold(self.batch_size(), state)?;
            true
        };
        // `K` does not move while a mark is being landed.
        let next = if is_done { self.pending.next } else { self.stored.unwrap_or(self.pending.next) };
        if is_done && self.stored.is_some_and(|k| next <= k) {
            // [S, K) is in the store already: only state catches up with it.
            self.letters.clear();
            self.persist(state)?;
            return Ok(None);
        }
        self.fill_batch(next)?;
        if fault::bug(Bug::StateBeforeLand) {
            self.persist(state)?;
        }
        self.phase = Phase::Landing;
        self.handed_out = now;
        Ok(Some(Step::Land))
    }

    /// How many of the records that wait go into the batch: up to the caps, to the first unknown schema, and never across `K`.
    fn batch_size(&self) -> usize {
        let waiting = self.buffer.waiting();
        let Debounce { rows_max, bytes_max, .. } = self.settings.debounce;
        let crosses = |record: &Buffered| self.stored.is_some_and(|k| record.offset >= k && waiting[0].offset < k);
        let mut bytes = 0;
        let fits = |(at, record): &(usize, &Buffered)| {
            if record.key.is_none() {
                return false;
            }
            bytes += record.value_bytes();
            let full = *at > 0 && (*at >= rows_max || bytes > bytes_max);
            self.known.get(&record.fingerprint).is_some_and(|k| k.mapping.is_some()) && !crosses(record) && !full
        };
        waiting.iter().enumerate().take_while(fits).count()
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
        let may = self.settings.refuse.map(|refuse| refuse.may);
        let judged = schema.columns().iter().map(|column| may.is_some_and(|may| may(column.ty))).collect();
        let _ = self.known.insert(fingerprint, Known { schema, judged, mapping });
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
            // A slice of a mark leaves `K` where it was, so it is not to be told whether it landed: it does no harm twice.
            Some(c) if landing && c.next == Some(self.batch.next) && self.stored != c.next => {
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
        self.buffer.release(self.settings.debounce.bytes_max);
        fault::point("post_state");
        Ok(())
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

impl Counts {
    fn add(&mut self, other: &Self) {
        for (sum, n) in self.folded.iter_mut().zip(other.folded) {
            *sum += n;
        }
        self.rows[0] += other.rows[0];
        self.rows[1] += other.rows[1];
        self.repeats += other.repeats;
        self.letters += other.letters;
        self.superseded += other.superseded;
        self.cut += other.cut;
        for (mine, others) in self.nulled.iter_mut().zip(other.nulled) {
            *mine += others;
        }
        self.clamped += other.clamped;
        self.batches += other.batches;
        self.event_time = self.event_time.max(other.event_time);
    }
}
