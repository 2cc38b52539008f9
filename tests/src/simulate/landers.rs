//! Landers in a run: owners of log partitions, driven as production drives them, one step at a time.

use std::sync::Arc;
use std::time::Duration;

use landfall::land::debounce::Debounce;
use landfall::land::fold::Config;
use landfall::land::partition::{LogBounds, Partition, Record, Refuse, Settings, Step, Verdict};
use landfall::sink::memory::{MemorySink, Style};
use landfall::sink::{Batch, Error, Kind, Remedy, Sink, Target};
use landfall::state::SlotName;
use landfall_schemas::{LogicalType, TableSchema, Value};

use crate::oracle::{self, Cells, What};
use crate::small;

use super::Met;
use super::world::{REPLICA, World, tell};

/// What a lander does next.
#[derive(Clone, Debug, PartialEq)]
enum Stage {
    /// Opens the replica, then claims.
    Open,
    /// Asks the core.
    Ask,
    Claim,
    Prepare(TableSchema),
    /// Asks what the store remembers.
    Prepared,
    /// A batch is with the store; a replacing store still waits for these of its rows, then for the cursor.
    Landing(Vec<usize>),
    /// The batch is in the store, the core does not know yet.
    Landed,
    /// Reads the cursor.
    Check,
}

/// One process's hold on a log partition.
pub(super) struct Lander {
    pub id: u32,
    pub l: usize,
    pub host: usize,
    pub owner: bool,
    pub alive: bool,
    stage: Stage,
    core: Partition,
    sink: MemorySink,
    target: Target,
    /// Next log offset to push.
    fetch: i64,
    /// Restores of the store before its claim.
    era: u32,
    /// Since when the cursor is known to be its own.
    sure_since: Duration,
    waits: bool,
}

/// A request of a dead, paused or impatient lander that may still reach the store.
pub(super) enum Late {
    Land(Target, Batch),
    Rows(Target, Batch),
    Cursor(Target, Batch),
}

/// The letter that some stores cannot hold.
fn refuse(_: LogicalType, value: &Value<'_>) -> Option<&'static str> {
    (*value == Value::Text("d")).then_some("test.refused")
}

/// A record as such a store takes it.
pub(crate) fn as_taken(record: oracle::Record) -> oracle::Record {
    let holds = |cells: &Cells| cells.iter().all(|cell| *cell != Some(Some(b'd')));
    let what = match record.what {
        What::Write(cells) if !holds(&cells) => What::Refused(false, None),
        What::Arrive(cells, ..) if !holds(&cells) => What::Refused(false, None),
        What::Read(cells, id) if !holds(&cells) => What::Refused(true, id),
        what => what,
    };
    oracle::Record { what, ..record }
}

/// A copy of a batch, with all rows or with one.
fn copy(batch: &Batch, only: Option<usize>) -> Batch {
    let mut out = Batch::default();
    out.reset(batch.partition, batch.fence, batch.expected, batch.next);
    batch.deltas().enumerate().filter(|(i, _)| only.is_none_or(|only| only == *i)).for_each(|(_, delta)| out.push(delta));
    out
}

impl World {
    /// A process takes a log partition over on a host; a former one there is dead, for the state directory has one owner.
    pub(super) fn own_log(&mut self, l: usize, host: usize) {
        for i in 0..self.landers.len() {
            if self.landers[i].l == l {
                self.landers[i].owner = false;
                if self.landers[i].host == host {
                    self.landers[i].alive = false;
                }
            }
        }
        self.landers.retain(|x| x.owner || x.alive);
        self.lander_ids += 1;
        let id = self.lander_ids;
        let settings = Settings {
            fold: Config::upsert(),
            debounce: Debounce {
                quiet: Duration::from_millis(self.plan.quiet),
                max_delay: Duration::from_millis(self.plan.quiet * 3),
                rows_max: self.plan.rows_max,
                bytes_max: 200 * self.plan.rows_max,
            },
            refuse: self.plan.refuses.then_some(Refuse {
                may: |_| true,
                value: refuse,
                cuts: |_, _| false,
                nearest: |_, _| None,
                instead: None,
                key: |_, _| Ok(None),
            }),
            partitions: self.plan.logs as u32,
            idle_check: Duration::from_secs(60),
        };
        let name = SlotName { replica: REPLICA.to_owned(), generation: 0, partition: l as i32 };
        let target = Target { replica: REPLICA.to_owned(), table: "t".to_owned(), generation: 0, build: 0, schema: small::SCHEMA.clone() };
        let sink = MemorySink::new(self.store.clone());
        let core = Partition::new(name, settings, 0, None, u64::from(id));
        let (era, sure_since) = (self.era, self.now);
        let stage = Stage::Open;
        self.landers.push(Lander { id, l, host, owner: true, alive: true, stage, core, sink, target, fetch: 0, era, sure_since, waits: false });
        tell!(self, "lander {id} takes log {l} over on host {host}");
    }

    /// True where a fault of this rarity happens.
    fn strikes(&mut self, one_in: usize) -> bool {
        !self.calm && self.plan.lander_faults && self.dice.chance(1, one_in)
    }

    pub(super) fn lander_step(&mut self, i: usize) {
        let (id, l, host) = (self.landers[i].id, self.landers[i].l, self.landers[i].host);
        match self.landers[i].stage.clone() {
            Stage::Open => {
                let x = &mut self.landers[i];
                let opened = x.sink.open(REPLICA, "t", None).expect("no build is asked for");
                x.core.reclaim(opened.build, opened.schema);
                x.target.build = opened.build;
                x.target.schema = x.core.target().map_or_else(|| small::SCHEMA.clone(), |schema| Arc::new(schema.clone()));
                x.stage = Stage::Ask;
            }
            Stage::Ask => self.ask(i),
            Stage::Claim => {
                let lost = self.strikes(12);
                let x = &mut self.landers[i];
                match x.sink.claim(&x.target, l as i32) {
                    Ok(_) if lost => {
                        self.met(Met::ClaimLost);
                        self.failed(i, Kind::Unavailable);
                    }
                    Ok(claim) => {
                        let bounds = LogBounds { begin: 0, end: self.logs[l].entries.len() as i64 };
                        let from = x.core.claimed(claim, bounds, &mut self.states[host][l], self.now);
                        (x.era, x.sure_since, x.stage) = (self.era, self.now, Stage::Ask);
                        match from {
                            Ok(from) => {
                                x.fetch = from;
                                if claim.next.is_some_and(|k| from < k) {
                                    self.met(Met::CatchUp);
                                }
                                tell!(self, "lander {id} claims log {l}: build {}, {claim:?}, folds from {from}", self.landers[i].target.build);
                            }
                            Err(stop) => self.fail(|| format!("lander {id} stops: {stop:?}")),
                        }
                    }
                    Err(error) => self.refused(i, &error),
                }
            }
            Stage::Prepare(schema) => {
                let lost = self.strikes(6);
                let x = &mut self.landers[i];
                x.target.schema = Arc::new(schema);
                match x.sink.prepare(&x.target) {
                    Ok(()) if lost => self.failed(i, Kind::Unavailable),
                    Ok(()) => x.stage = Stage::Prepared,
                    Err(error) => self.refused(i, &error),
                }
            }
            Stage::Prepared => {
                // Others may have widened the table too: in which order, the store remembers.
                let x = &mut self.landers[i];
                let opened = x.sink.open(REPLICA, "t", None).expect("no build is asked for");
                let Some(schema) = opened.schema.filter(|_| opened.build == x.target.build) else { return self.claim_anew(i) };
                let grown = x.core.target().is_none_or(|old| schema.columns().starts_with(old.columns()));
                let covers = schema.columns().len() >= x.target.schema.columns().len();
                if !(grown && covers) {
                    // The store was put back in between.
                    return self.claim_anew(i);
                }
                x.target.schema = Arc::new(schema.clone());
                x.core.prepared(schema);
                x.stage = Stage::Ask;
                self.met(Met::Widened);
            }
            Stage::Landing(rows) => match self.plan.style {
                Style::Transactional => self.land(i),
                Style::Replacing => self.insert(i, rows),
            },
            Stage::Landed => {
                let x = &mut self.landers[i];
                x.stage = Stage::Ask;
                let result = x.core.landed(&mut self.states[host][l], self.now);
                if let Err(stop) = result {
                    return self.fail(|| format!("lander {id} stops: {stop:?}"));
                }
                self.landed(i);
            }
            Stage::Check => self.check(i),
        }
    }

    fn ask(&mut self, i: usize) {
        let (id, l, host) = (self.landers[i].id, self.landers[i].l, self.landers[i].host);
        let n = self.dice.below(4);
        let x = &mut self.landers[i];
        for entry in self.logs[l].entries.iter().skip(x.fetch as usize).take(n) {
            if x.core.is_full() || x.fetch < 0 {
                break;
            }
            let record = Record { offset: x.fetch, key: entry.key.as_deref(), value: &entry.value, provenance: &entry.provenance };
            x.core.push(record, self.now).expect("readable");
            x.fetch += 1;
        }
        x.waits = false;
        let step = match x.core.next(self.now, &mut self.states[host][l]) {
            Ok(step) => step,
            Err(stop) => return self.fail(|| format!("lander {id} stops: {stop:?}")),
        };
        match step {
            Step::Wait(until) => {
                x.waits = true;
                if let Some(until) = until {
                    if until <= self.now {
                        return self.fail(|| format!("lander {id} is told to wait until {until:?}, which is past"));
                    }
                    if self.calm && x.fetch as usize == self.logs[l].entries.len() {
                        self.now = until;
                    }
                }
            }
            Step::Claim => {
                // Nothing is fetched before the claim.
                (x.stage, x.fetch) = (Stage::Claim, -1);
            }
            Step::Contract(fingerprint) => {
                let (schema, _) = small::VERSIONS.iter().find(|v| v.1 == fingerprint).expect("a contract that was published");
                x.core.contract(fingerprint, schema.clone()).expect("columns are only added");
            }
            Step::Prepare(schema) => x.stage = Stage::Prepare(schema),
            Step::Land => {
                x.stage = Stage::Landing((0..x.core.batch().len()).collect());
                let batch = copy(x.core.batch(), None);
                tell!(self, "lander {id} makes a batch of log {l}: {:?} to {} with {} rows", batch.expected, batch.next, batch.len());
                let letters: Vec<i64> = x.core.letters().iter().filter(|letter| letter.code == "test.refused").map(|letter| letter.offset).collect();
                let passed = batch.expected.unwrap_or(0)..batch.next;
                if let Some(lost) = self.logs[l].refused.iter().find(|offset| passed.contains(*offset) && !letters.contains(*offset)).copied() {
                    return self.fail(|| format!("K passes log {l}:{lost}, which the store cannot hold, without a dead letter"));
                }
                let schema = Arc::clone(&self.landers[i].target.schema);
                self.check_batch(i, &schema, &batch);
            }
            Step::Check => {
                if !x.core.in_doubt() {
                    self.met(Met::IdleCheck);
                }
                self.landers[i].stage = Stage::Check;
            }
            Step::Commit(offset) => {
                let x = &self.landers[i];
                let k = self.store.replicas()[REPLICA].cursors.get(&(l as i32)).and_then(|c| c.next);
                if x.era == self.era && x.core.build() == self.store.replicas()[REPLICA].build && k.is_none_or(|k| k < offset) {
                    self.fail(|| format!("lander {id} commits G = {offset} over K = {k:?}"));
                }
            }
        }
        self.count(i);
    }

    fn count(&mut self, i: usize) {
        let counts = self.landers[i].core.take_counts();
        self.tally.0[Met::Discard as usize] += counts.discards;
        self.tally.0[Met::ReplyLostFound as usize] += counts.replies_lost;
        self.tally.0[Met::Withheld as usize] += counts.letters;
    }

    /// A transactional store takes the whole batch or nothing; the answer may be lost, and the request may be slow.
    fn land(&mut self, i: usize) {
        if self.strikes(10) {
            match self.dice.below(3) {
                0 => self.met(Met::NotLanded),
                1 => {
                    let x = &mut self.landers[i];
                    if x.sink.land(&x.target, x.core.batch()).is_ok() {
                        self.met(Met::ReplyLost);
                    }
                }
                _ => {
                    let x = &self.landers[i];
                    self.late.push(Late::Land(x.target.clone(), copy(x.core.batch(), None)));
                }
            }
            return self.failed(i, Kind::Unavailable);
        }
        let x = &mut self.landers[i];
        match x.sink.land(&x.target, x.core.batch()) {
            Ok(()) => {
                x.stage = Stage::Landed;
                let l = x.l;
                if self.dice.chance(1, 2) {
                    self.sample(l);
                }
            }
            Err(error) => self.refused(i, &error),
        }
    }

    /// A replacing store takes rows one by one in any order, then the cursor.
    fn insert(&mut self, i: usize, mut rows: Vec<usize>) {
        if self.strikes(24) {
            // The connection breaks: what was under way may arrive later.
            if rows.is_empty() && self.dice.chance(1, 2) {
                let x = &mut self.landers[i];
                if x.sink.move_cursor(&x.target, x.core.batch()).is_ok() {
                    self.met(Met::ReplyLost);
                }
            } else {
                self.met(Met::NotLanded);
                self.leave_behind(i, &rows);
            }
            return self.failed(i, Kind::Unavailable);
        }
        if rows.is_empty() {
            let x = &mut self.landers[i];
            match x.sink.move_cursor(&x.target, x.core.batch()) {
                Ok(()) => {
                    x.stage = Stage::Landed;
                    let l = x.l;
                    if self.dice.chance(1, 2) {
                        self.sample(l);
                    }
                }
                Err(error) => self.refused(i, &error),
            }
            return;
        }
        let n = if self.dice.chance(1, 3) { 1 } else { rows.len() };
        for _ in 0..n {
            let at = rows.swap_remove(self.dice.below(rows.len()));
            self.store.insert_rows(REPLICA, &copy(self.landers[i].core.batch(), Some(at)));
        }
        self.landers[i].stage = Stage::Landing(rows);
    }

    /// What a lander had under way with the store goes on by itself.
    pub(super) fn leave_behind(&mut self, i: usize, rows: &[usize]) {
        let x = &self.landers[i];
        let (target, batch) = (&x.target, x.core.batch());
        match self.plan.style {
            Style::Transactional => self.late.push(Late::Land(target.clone(), copy(batch, None))),
            Style::Replacing if rows.is_empty() => self.late.push(Late::Cursor(target.clone(), copy(batch, None))),
            Style::Replacing => {
                for row in rows {
                    if self.dice.chance(3, 4) {
                        self.late.push(Late::Rows(target.clone(), copy(batch, Some(*row))));
                    }
                }
            }
        }
    }

    /// A late request arrives.
    pub(super) fn late_arrives(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let late = self.late.swap_remove(self.dice.below(self.late.len()));
        let mut sink = MemorySink::new(self.store.clone());
        match late {
            Late::Rows(target, batch) => {
                self.met(Met::LateRow);
                tell!(self, "a late row of build {} arrives", target.build);
                self.store.insert_rows(REPLICA, &batch);
            }
            Late::Land(target, batch) => {
                if sink.land(&target, &batch).is_ok() {
                    self.met(Met::LateLanding);
                    tell!(self, "a late landing of log {} to {} arrives", batch.partition, batch.next);
                    self.sample(batch.partition as usize);
                }
            }
            Late::Cursor(target, batch) => {
                if sink.move_cursor(&target, &batch).is_ok() {
                    self.met(Met::LateLanding);
                    tell!(self, "a late cursor of log {} to {} arrives", batch.partition, batch.next);
                    self.sample(batch.partition as usize);
                }
            }
        }
    }

    fn check(&mut self, i: usize) {
        let (id, l, host) = (self.landers[i].id, self.landers[i].l, self.landers[i].host);
        if self.strikes(8) {
            return self.failed(i, Kind::Unavailable);
        }
        let x = &mut self.landers[i];
        let cursor = x.sink.cursor(&x.target, l as i32).expect("memory");
        let in_doubt = x.core.in_doubt();
        match x.core.checked(cursor, &mut self.states[host][l], self.now) {
            Ok(Verdict::Done) => {
                tell!(self, "lander {id} finds its cursor at {cursor:?}");
                (x.stage, x.sure_since) = (Stage::Ask, self.now);
                if in_doubt {
                    self.landed(i);
                }
            }
            Ok(Verdict::Again) => {
                tell!(self, "lander {id} sends its batch again");
                x.stage = Stage::Landing((0..x.core.batch().len()).collect());
            }
            Ok(Verdict::Void) => {
                if !in_doubt {
                    self.met(Met::IdleVoid);
                }
                tell!(self, "lander {id} finds another cursor: {cursor:?}");
                self.claim_anew(i);
            }
            Err(stop) => self.fail(|| format!("lander {id} stops: {stop:?}")),
        }
    }

    fn refused(&mut self, i: usize, error: &Error) {
        match error.kind {
            Kind::Fenced => self.met(Met::Fenced),
            Kind::CursorMoved => self.met(Met::CursorMoved),
            Kind::Build => self.met(Met::OldBuild),
            kind => self.fail(|| format!("the store says {kind:?}")),
        }
        tell!(self, "lander {} is refused: {:?}", self.landers[i].id, error.kind);
        self.failed(i, error.kind);
    }

    /// A call to the store failed.
    fn failed(&mut self, i: usize, kind: Kind) {
        let x = &mut self.landers[i];
        match x.core.failed(kind) {
            Remedy::Retry => x.stage = Stage::Ask,
            Remedy::Reclaim => self.claim_anew(i),
            Remedy::Halt => self.fail(|| format!("the store says {kind:?}")),
        }
    }

    fn claim_anew(&mut self, i: usize) {
        // A paused owner learns that it lost the partition sooner or later.
        if !self.landers[i].owner && self.dice.chance(2, 3) {
            self.landers[i].alive = false;
            self.landers[i].stage = Stage::Open;
            let id = self.landers[i].id;
            self.landers.retain(|x| x.id != id);
            return;
        }
        self.landers[i].stage = Stage::Open;
    }

    /// State has followed the store: `S <= K`.
    fn landed(&mut self, i: usize) {
        let x = &self.landers[i];
        let (id, l, s) = (x.id, x.l, x.core.folded_next());
        tell!(self, "lander {id} has landed log {l} to {s}");
        let replicas = self.store.replicas();
        let replica = &replicas[REPLICA];
        let k = replica.cursors.get(&(l as i32)).filter(|c| c.build == replica.build).and_then(|c| c.next);
        let ours = x.era == self.era && replica.build == x.core.build();
        drop(replicas);
        if ours && k.is_none_or(|k| s > k) {
            self.fail(|| format!("lander {id} wrote state at S = {s} over K = {k:?} of log {l}"));
        }
        if self.old_states[l].len() < 8 {
            let copy = self.states[self.landers[i].host][l].clone();
            self.old_states[l].push(copy);
        }
        self.met(Met::Batch);
    }

    /// What was under way when a lander dies.
    pub(super) fn die(&mut self, i: usize) {
        self.landers[i].alive = false;
        match self.landers[i].stage.clone() {
            Stage::Landing(rows) => {
                self.met(Met::CrashMidLanding);
                if self.dice.chance(2, 3) {
                    self.leave_behind(i, &rows);
                }
            }
            Stage::Landed => self.met(Met::CrashBeforeState),
            _ => {}
        }
    }

    /// A lander that has nothing under way.
    pub(super) fn is_at_ease(&self, i: usize) -> bool {
        self.landers[i].stage == Stage::Ask
    }

    /// Owners go on undisturbed until everything is landed and every cursor was looked at.
    pub(super) fn settle_landers(&mut self) {
        self.landers.retain(|x| x.owner);
        let since = self.now;
        for _ in 0..4_000 {
            if self.violation.is_some() {
                return;
            }
            let rests = |x: &Lander| {
                let end = self.logs[x.l].entries.len() as i64;
                let done = end == 0 || (x.core.landed_next() == Some(end) && x.core.folded_next() == end);
                x.stage == Stage::Ask && x.waits && x.fetch == end && done && (end == 0 || x.sure_since > since)
            };
            let Some(i) = (0..self.landers.len()).find(|i| !rests(&self.landers[*i])) else { return };
            self.now += Duration::from_millis(1);
            self.lander_step(i);
        }
        self.fail(|| "the landers never come to rest".to_owned());
    }
}
