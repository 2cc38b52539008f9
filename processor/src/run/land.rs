//! Driving `land`: for each store one thread that polls the change logs, folds, hands batches to the store's workers, and writes state.
//!
//! The thread never waits for the store: a partition whose store does not answer stands still by itself, and its fetching is paused when
//! enough waits. Positions come from the store (`K`) and from state (`S`); the group's offsets only show lag to other tools (law 5).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use landfall_schemas::provenance::HEADER;
use landfall_schemas::{Provenance, TableSchema};
use landfall_topology::plan::{ReplicaPlan, TablePlan};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use super::workers::{Answer, Desk, Job};
use super::{Named, Shared, Stopping};
use crate::dead_letter::Letter;
use crate::land::debounce::Debounce;
use crate::land::fold::Config;
use crate::land::partition::{LogBounds, Partition, Record, Refuse, Settings, Step, Stop, Verdict};
use crate::log::producer::{Outgoing, Producer};
use crate::log::{client, voice};
use crate::observe::Reason;
use crate::sink::{Remedy, Target};
use crate::state::{SlotName, State};

/// How often `G` is committed.
const COMMIT_EVERY: Duration = Duration::from_millis(500);
/// After so long without landing, the cursor is read again, to notice a store that was put back.
const IDLE_CHECK: Duration = Duration::from_secs(10);
/// How often lag is looked at.
const LAG_EVERY: Duration = Duration::from_millis(500);
/// Bytes that the partitions of one store may hold together, fetched and not landed.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Messages taken in one go.
const BURST: usize = 5000;
/// How long a question to Kafka may take.
const WAIT: Duration = Duration::from_secs(10);

/// Why a session ended; another follows after a pause.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Kafka could not be used.
    #[error("kafka: {0}")]
    Kafka(#[from] KafkaError),
    /// A worker of the store panicked; it has been told, and there is no further session.
    #[error("a worker of the store panicked")]
    Panicked,
}

#[derive(Default)]
struct Group {
    /// Rebalances that were answered: whether partitions came or went, and which.
    events: Mutex<Vec<(bool, Names)>>,
    /// Whether there are such; asked after every record, so that no record takes the lock.
    changed: AtomicBool,
    /// A commit was refused, as happens during a rebalance.
    refused: AtomicBool,
}

/// Topics and partitions.
type Names = Vec<(String, i32)>;

#[derive(Clone, Default)]
struct Context(Arc<Group>);

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        if voice::log(level, facility, line) {
            self.0.refused.store(true, Ordering::Relaxed);
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        voice::complain(&error, reason);
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, err: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        let names = partitions.elements().iter().map(|e| (e.topic().to_owned(), e.partition())).collect();
        let assigned = err == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        let outcome = if assigned {
            // Where to begin is the store's word, which may take a while: nothing is fetched until the claim is through.
            drop(partitions.set_all_offsets(Offset::Beginning));
            consumer.incremental_assign(partitions).and_then(|()| if partitions.count() > 0 { consumer.pause(partitions) } else { Ok(()) })
        } else {
            consumer.incremental_unassign(partitions)
        };
        if let Err(error) = outcome {
            tracing::warn!(%error, assigned, "rebalance");
        }
        self.0.events.lock().unwrap_or_else(PoisonError::into_inner).push((assigned, names));
        self.0.changed.store(true, Ordering::Release);
    }
}

/// Who asked a worker: a replica, or one of its partitions under a claim number, so that late answers are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Replica(usize),
    Partition(usize, u64),
}

struct ReplicaState {
    plan: ReplicaPlan,
    /// Its name in the store and in state, where other topologies may keep things too.
    name: String,
    table: TablePlan,
    build: Option<u16>,
    schema: Option<TableSchema>,
    opening: bool,
    retry_at: Option<Instant>,
    stopped: Option<Reason>,
}

struct Owned {
    name: (String, i32),
    replica: usize,
    core: Partition,
    /// Claim number: answers to earlier questions are void.
    claim: u64,
    busy: bool,
    begun: bool,
    paused: bool,
    stopped: bool,
    retry_at: Option<Instant>,
    pause: super::Pause,
    /// What is asked again when the retry is due.
    again: Option<Again>,
    seek: Option<i64>,
    end: i64,
    schema: Option<Arc<TableSchema>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    Claim,
    Check,
    Prepare,
}

/// One store: how its sinks are made, and what its columns can hold.
pub struct StoreRuntime {
    /// Id in the topology.
    pub id: String,
    /// Makes a connection.
    pub connect: Box<dyn Fn() -> Box<dyn crate::sink::Sink> + Send + Sync>,
    /// What its columns cannot hold.
    pub refuse: Option<Refuse>,
    /// Connections that land at once.
    pub workers: usize,
    /// A file that only one process may write.
    pub lock: Option<PathBuf>,
}

impl std::fmt::Debug for StoreRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreRuntime").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Runs landing into one store until told to stop; a session that fails is followed by another.
pub fn run<S: State>(shared: &Shared, store: &StoreRuntime, index: usize, state: &mut S, stopping: &Stopping) {
    let mut pause = super::Pause::default();
    // Membership of the group goes with the file: whoever cannot write it must not be given partitions of it.
    let wait = |path| super::lock::wait(path, &shared.plan.topology, stopping, |reason| shared.observer.store_waiting(&store.id, reason));
    let _lock = match store.lock.as_deref().map(wait) {
        None => None,
        Some(Some(lock)) => Some(lock),
        Some(None) => return,
    };
    while !stopping.is_set() {
        let desk: Arc<Desk<Who>> = Desk::new();
        let outcome = std::thread::scope(|scope| {
            for _ in 0..store.workers {
                let (desk, connect) = (Arc::clone(&desk), &store.connect);
                super::start(scope, "store", move || desk.guarded(|| desk.work(connect().as_mut(), Duration::from_secs(2))));
            }
            // Also where the session panics: the scope waits for its workers.
            let _closing = Closing(&desk);
            session(shared, store, index, state, &desk, stopping, &mut pause)
        });
        if matches!(outcome, Err(SessionError::Panicked)) {
            return;
        }
        if let Err(error) = outcome {
            tracing::warn!(store = store.id, %error, "landing was interrupted, beginning again");
            pause.wait(stopping);
        }
    }
}

/// Ends the workers when a session ends, however that happens.
struct Closing<'a>(&'a Desk<Who>);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn session<S: State>(
    shared: &Shared,
    store: &StoreRuntime,
    index: usize,
    state: &mut S,
    desk: &Arc<Desk<Who>>,
    stopping: &Stopping,
    pause: &mut super::Pause,
) -> Result<(), SessionError> {
    let context = Context::default();
    let group = format!("{}.land.{}", shared.plan.topology, store.id);
    let consumer: BaseConsumer<Context> = client::member(&shared.plan.kafka, &group).create_with_context(context.clone())?;
    let mut session = Session {
        shared,
        store,
        index,
        desk,
        context,
        letters: None,
        replicas: Vec::new(),
        owned: Vec::new(),
        by_name: HashMap::new(),
        claims: 0,
        catalog: 0,
        looked: 0,
        commits: BTreeMap::new(),
        is_over: false,
    };
    let (mut committed, mut looked) = (Instant::now(), Instant::now());
    tracing::info!(store = store.id, "landing");
    pause.reset();
    while !stopping.is_set() {
        session.subscribe(&consumer)?;
        let mut timeout = session.patience();
        for _ in 0..BURST {
            let Some(message) = consumer.poll(timeout) else { break };
            timeout = Duration::ZERO;
            session.handle_events();
            match message {
                Ok(message) => session.record(&consumer, &message)?,
                Err(KafkaError::MessageConsumptionFatal(code)) => return Err(KafkaError::MessageConsumptionFatal(code).into()),
                Err(KafkaError::MessageConsumption(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange)) => {
                    session.find_truncated(&consumer)?;
                }
                Err(error) => tracing::debug!(%error, "reading change logs"),
            }
        }
        session.handle_events();
        session.weigh();
        session.answers(&consumer, state)?;
        if let Some(what) = desk.broken() {
            // Told before the other workers end, which may take as long as their store.
            shared.observer.store_broken(&store.id, super::broken(what));
            return Err(SessionError::Panicked);
        }
        session.steps(&consumer, state)?;
        if committed.elapsed() >= COMMIT_EVERY {
            committed = Instant::now();
            session.commit(&consumer)?;
        }
        if looked.elapsed() >= LAG_EVERY {
            looked = Instant::now();
            session.look(&consumer);
        }
    }
    let commits = session.drain(&consumer, state)?;
    super::close(consumer, commits);
    Ok(())
}

struct Session<'a> {
    shared: &'a Shared,
    store: &'a StoreRuntime,
    index: usize,
    desk: &'a Arc<Desk<Who>>,
    context: Context,
    letters: Option<Producer>,
    replicas: Vec<ReplicaState>,
    owned: Vec<Option<Owned>>,
    by_name: HashMap<(String, i32), usize>,
    claims: u64,
    catalog: usize,
    looked: usize,
    commits: BTreeMap<(String, i32), i64>,
    /// Whether more waits than may: fetching pauses for every partition that has something waiting.
    is_over: bool,
}

impl Session<'_> {
    fn now(&self) -> Duration {
        self.shared.start.elapsed()
    }

    /// Follows the catalog: tables that match a pattern appear while running.
    fn subscribe(&mut self, consumer: &BaseConsumer<Context>) -> Result<(), SessionError> {
        let tables = self.shared.tables();
        if tables.len() == self.catalog {
            return Ok(());
        }
        self.catalog = tables.len();
        for table in tables.iter() {
            for replica in table.replicas.iter().filter(|r| r.store == self.index) {
                if self.replicas.iter().any(|r| r.plan.id == replica.id) {
                    continue;
                }
                self.shared.observer.replica(&replica.id, &table.id, &self.store.id);
                self.replicas.push(ReplicaState {
                    plan: replica.clone(),
                    name: self.shared.plan.full_name(replica),
                    table: table.clone(),
                    build: None,
                    schema: None,
                    opening: false,
                    retry_at: None,
                    stopped: None,
                });
            }
        }
        let topics: BTreeSet<&str> = self.replicas.iter().map(|r| r.table.log.topic.as_str()).collect();
        if !topics.is_empty() {
            consumer.subscribe(&topics.into_iter().collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Judges what waits in all partitions together: memory must not grow with their number.
    fn weigh(&mut self) {
        let held: usize = self.owned.iter().flatten().map(|o| o.core.waiting().1).sum();
        self.is_over = held > if self.is_over { HELD_BYTES_MAX / 2 } else { HELD_BYTES_MAX };
    }

    /// How long polling may block: a worker's answer or a debounce may be due sooner than the next record.
    fn patience(&self) -> Duration {
        if self.desk.is_busy() || self.owned.iter().flatten().any(|o| o.seek.is_some() || o.core.waiting().0 > 0) {
            Duration::from_millis(2)
        } else {
            Duration::from_millis(50)
        }
    }

    fn handle_events(&mut self) {
        if !self.context.0.changed.load(Ordering::Acquire) || !self.context.0.changed.swap(false, Ordering::Acquire) {
            return;
        }
        let events = std::mem::take(&mut *self.context.0.events.lock().unwrap_or_else(PoisonError::into_inner));
        for (assigned, names) in events {
            self.shared.observer.rebalanced();
            for name in names {
                if let Some(at) = self.by_name.remove(&name)
                    && let Some(owned) = self.owned[at].take()
                {
                    self.shared.observer.log_assigned(&self.replicas[owned.replica].plan.id, name.1, false);
                    let _ = self.commits.remove(&name);
                }
                if assigned {
                    self.own(name);
                }
            }
        }
    }

    fn own(&mut self, name: (String, i32)) {
        let Some(replica) = self.replicas.iter().position(|r| r.table.log.topic == name.0) else { return };
        let r = &self.replicas[replica];
        let slot = SlotName { replica: r.name.clone(), generation: 0, partition: name.1 };
        let settings = Settings {
            fold: Config::upsert(),
            debounce: Debounce {
                quiet: r.plan.quiet,
                max_delay: r.plan.max_delay,
                rows_max: r.plan.batch_rows_max as usize,
                bytes_max: usize::try_from(r.plan.batch_bytes_max).unwrap_or(usize::MAX),
            },
            refuse: self.store.refuse,
            partitions: r.table.log.partitions,
            idle_check: IDLE_CHECK,
        };
        self.shared.observer.log_assigned(&r.plan.id, name.1, true);
        let seed = self.claims;
        // Where the replica is open already, what is known of it: state of another schema would be folded again from the first record.
        let core = Partition::new(slot, settings, r.build.unwrap_or(0), r.schema.clone(), seed);
        let at = self.owned.len();
        let _ = self.by_name.insert(name.clone(), at);
        self.owned.push(Some(Owned {
            name,
            replica,
            core,
            claim: 0,
            busy: false,
            begun: false,
            paused: true,
            stopped: false,
            retry_at: None,
            pause: super::Pause::default(),
            again: None,
            seek: None,
            end: 0,
            schema: None,
        }));
    }

    fn record(&mut self, consumer: &BaseConsumer<Context>, message: &BorrowedMessage<'_>) -> Result<(), SessionError> {
        let Some(at) = self.by_name.get(&Named(message.topic(), message.partition())).copied() else { return Ok(()) };
        let now = self.now();
        let Some(owned) = self.owned[at].as_mut() else { return Ok(()) };
        if !owned.begun || owned.stopped || owned.seek.is_some() {
            return Ok(());
        }
        let provenance = message.headers().and_then(|h| (0..h.count()).map(|i| h.get(i)).find(|h| h.key == HEADER)).and_then(|h| h.value);
        let record = Record {
            offset: message.offset(),
            key: message.key(),
            value: message.payload().unwrap_or_default(),
            provenance: provenance.unwrap_or_default(),
        };
        owned.end = owned.end.max(message.offset() + 1);
        match owned.core.push(record, now) {
            Ok(()) => {
                if (owned.core.is_full() || self.is_over) && !owned.paused {
                    owned.paused = true;
                    consumer.pause(&one(&owned.name))?;
                }
                Ok(())
            }
            Err(stop) => self.stop(consumer, at, &stop),
        }
    }

    /// Answers of the workers.
    fn answers<S: State>(&mut self, consumer: &BaseConsumer<Context>, state: &mut S) -> Result<(), SessionError> {
        for (who, answer) in self.desk.answers() {
            match who {
                Who::Replica(replica) => self.opened(consumer, replica, answer)?,
                Who::Partition(at, claim) => {
                    let current = self.owned.get(at).and_then(Option::as_ref).is_some_and(|o| o.claim == claim);
                    if current {
                        self.answered(consumer, state, at, answer)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn opened(&mut self, consumer: &BaseConsumer<Context>, replica: usize, answer: Answer) -> Result<(), SessionError> {
        let Answer::Opened(outcome) = answer else { return Ok(()) };
        let r = &mut self.replicas[replica];
        r.opening = false;
        let partitions: Vec<usize> =
            self.owned.iter().enumerate().filter(|(_, o)| o.as_ref().is_some_and(|o| o.replica == replica)).map(|(i, _)| i).collect();
        match outcome {
            Ok(opened) => {
                (r.build, r.schema, r.retry_at) = (Some(opened.build), opened.schema, None);
                let (build, schema) = (opened.build, r.schema.clone());
                for at in partitions {
                    // A partition that lands under a claim of its own goes on: it finds out by itself when its build is over.
                    if let Some(owned) = self.owned[at].as_mut().filter(|o| o.claim == 0) {
                        owned.core.reclaim(build, schema.clone());
                        self.shared.observer.log_waiting(&self.replicas[replica].plan.id, owned.name.1, None);
                    }
                }
            }
            Err(error) => {
                self.shared.observer.sink_error(&r.plan.id, error.kind.code());
                let id = r.plan.id.clone();
                match error.kind.remedy() {
                    Remedy::Retry | Remedy::Reclaim => {
                        r.retry_at = Some(Instant::now() + Duration::from_secs(1));
                        for at in partitions {
                            if let Some(owned) = &self.owned[at] {
                                self.shared.observer.log_waiting(&id, owned.name.1, Some(reason(error.kind.code(), &error, error.kind.hint())));
                            }
                        }
                    }
                    Remedy::Halt => {
                        r.stopped = Some(reason(error.kind.code(), &error, error.kind.hint()));
                        let stop = Stop::Sink(error);
                        for at in partitions {
                            self.stop(consumer, at, &stop)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn answered<S: State>(&mut self, consumer: &BaseConsumer<Context>, state: &mut S, at: usize, answer: Answer) -> Result<(), SessionError> {
        let now = self.now();
        let Some(owned) = self.owned[at].as_mut() else { return Ok(()) };
        owned.busy = false;
        let replica = owned.replica;
        let failure = match answer {
            Answer::Opened(_) | Answer::Rebuilt(_) => return Ok(()),
            Answer::Claimed(Ok(claim)) => {
                let (begin, end) = match consumer.fetch_watermarks(&owned.name.0, owned.name.1, WAIT) {
                    Ok(bounds) => bounds,
                    Err(error) => {
                        tracing::warn!(%error, topic = owned.name.0, "the log's bounds cannot be read, trying again");
                        owned.again = Some(Again::Claim);
                        owned.retry_at = Some(Instant::now() + owned.pause.grow());
                        return Ok(());
                    }
                };
                owned.end = end;
                match owned.core.claimed(claim, LogBounds { begin, end }, state, now) {
                    Ok(from) => {
                        owned.seek = Some(from);
                        owned.pause.reset();
                        // What an earlier owner landed and did not come to commit, or what a store that was put back no longer holds:
                        // without this an idle partition would show a lag in other tools for ever, or none where there is some.
                        if let Some(next) = claim.next {
                            let _ = self.commits.insert(owned.name.clone(), next);
                        }
                        tracing::info!(
                            replica = self.replicas[replica].plan.id,
                            partition = owned.name.1,
                            fence = claim.fence,
                            next = claim.next,
                            from,
                            "partition claimed"
                        );
                        None
                    }
                    Err(stop) => return self.stop(consumer, at, &stop),
                }
            }
            Answer::Claimed(Err(error)) => Some((error, Again::Claim)),
            Answer::Prepared(Ok(target)) => {
                owned.core.prepared(TableSchema::clone(&target.schema));
                owned.schema = Some(Arc::clone(&target.schema));
                self.replicas[replica].schema = Some(TableSchema::clone(&target.schema));
                self.shared.observer.migrated(&self.replicas[replica].plan.id, "prepare");
                None
            }
            Answer::Prepared(Err(error)) => Some((error, Again::Prepare)),
            Answer::Landed(batch, outcome, took) => {
                let rows = batch.len();
                owned.core.return_batch(batch);
                match outcome {
                    Ok(()) => {
                        if let Err(stop) = owned.core.landed(state, now) {
                            return self.stop(consumer, at, &stop);
                        }
                        self.landed(at, rows, took);
                        None
                    }
                    Err(error) => Some((error, Again::Check)),
                }
            }
            Answer::Cursor(Ok(cursor)) => match owned.core.checked(cursor, state, now) {
                Ok(Verdict::Done) => {
                    self.landed(at, 0, Duration::ZERO);
                    None
                }
                Ok(Verdict::Again) => {
                    self.land(at);
                    None
                }
                Ok(Verdict::Void) => {
                    self.reclaim(consumer, at)?;
                    None
                }
                Err(stop) => return self.stop(consumer, at, &stop),
            },
            Answer::Cursor(Err(error)) => Some((error, Again::Check)),
        };
        match failure {
            None => Ok(()),
            Some((error, again)) => self.failed(consumer, at, error, again),
        }
    }

    /// An error of the store: what to do is the remedy of its kind.
    fn failed(&mut self, consumer: &BaseConsumer<Context>, at: usize, error: crate::sink::Error, again: Again) -> Result<(), SessionError> {
        let Some(owned) = self.owned[at].as_mut() else { return Ok(()) };
        let id = self.replicas[owned.replica].plan.id.clone();
        self.shared.observer.sink_error(&id, error.kind.code());
        let remedy = if again == Again::Check { owned.core.failed(error.kind) } else { error.kind.remedy() };
        match remedy {
            Remedy::Retry => {
                owned.again = Some(again);
                owned.retry_at = Some(Instant::now() + owned.pause.grow());
                self.shared.observer.log_waiting(&id, owned.name.1, Some(reason(error.kind.code(), &error, error.kind.hint())));
                Ok(())
            }
            Remedy::Reclaim => {
                tracing::info!(replica = id, partition = owned.name.1, code = error.kind.code(), %error, "claiming anew");
                // A pause, so that two owners who both believe to be the one do not chase each other.
                owned.retry_at = Some(Instant::now() + owned.pause.grow());
                self.reclaim(consumer, at)
            }
            Remedy::Halt => self.stop(consumer, at, &Stop::Sink(error)),
        }
    }

    /// Forgets a claim; the replica is opened again first, since its build may have changed.
    fn reclaim(&mut self, consumer: &BaseConsumer<Context>, at: usize) -> Result<(), SessionError> {
        let Some(owned) = self.owned[at].as_mut() else { return Ok(()) };
        owned.core.reclaim(0, None);
        (owned.begun, owned.seek, owned.again, owned.busy) = (false, None, None, false);
        owned.claim = 0;
        if !owned.paused {
            owned.paused = true;
            consumer.pause(&one(&owned.name))?;
        }
        self.replicas[owned.replica].build = None;
        Ok(())
    }

    fn landed(&mut self, at: usize, rows: usize, took: Duration) {
        let Some(owned) = self.owned[at].as_mut() else { return };
        owned.pause.reset();
        let counts = owned.core.take_counts();
        let r = &self.replicas[owned.replica];
        self.shared.observer.log_waiting(&r.plan.id, owned.name.1, None);
        if counts.batches > 0 {
            self.shared.observer.landed(&r.plan.id, &r.table.id, &counts, rows, took);
        }
        self.shared.observer.position(&r.plan.id, owned.name.1, owned.core.landed_next(), owned.end);
    }

    fn target(&self, at: usize) -> Option<Target> {
        let owned = self.owned[at].as_ref()?;
        let r = &self.replicas[owned.replica];
        let schema =
            owned.schema.clone().or_else(|| owned.core.target().cloned().map(Arc::new)).unwrap_or_else(|| Arc::clone(&self.shared.no_schema));
        Some(Target { replica: r.name.clone(), table: r.plan.table.clone(), generation: 0, build: owned.core.build(), schema })
    }

    fn ask(&mut self, at: usize, job: impl FnOnce(Target, i32) -> Job) {
        let Some(target) = self.target(at) else { return };
        let Some(owned) = self.owned[at].as_mut() else { return };
        if owned.claim == 0 {
            self.claims += 1;
            owned.claim = self.claims;
        }
        owned.busy = true;
        self.desk.ask(Who::Partition(at, owned.claim), job(target, owned.name.1));
    }

    fn land(&mut self, at: usize) {
        let Some(owned) = self.owned[at].as_mut() else { return };
        let batch = owned.core.lend_batch();
        self.ask(at, |target, _| Job::Land(target, batch));
    }

    /// Moves every partition on as far as it goes.
    fn steps<S: State>(&mut self, consumer: &BaseConsumer<Context>, state: &mut S) -> Result<(), SessionError> {
        self.open_replicas();
        for at in 0..self.owned.len() {
            self.seek(consumer, at);
            let Some(owned) = self.owned[at].as_mut() else { continue };
            if owned.stopped || owned.busy || owned.seek.is_some() || self.replicas[owned.replica].build.is_none() {
                continue;
            }
            if let Some(due) = owned.retry_at {
                if Instant::now() < due {
                    continue;
                }
                owned.retry_at = None;
                match owned.again.take() {
                    None => {}
                    Some(Again::Claim) => {
                        self.ask(at, Job::Claim);
                        continue;
                    }
                    Some(Again::Check) => {
                        self.ask(at, Job::Cursor);
                        continue;
                    }
                    Some(Again::Prepare) => owned.core.prepare_again(),
                }
            }
            self.step(consumer, state, at)?;
        }
        Ok(())
    }

    fn open_replicas(&mut self) {
        let wanted: BTreeSet<usize> = self.owned.iter().flatten().map(|o| o.replica).collect();
        for replica in wanted {
            let r = &mut self.replicas[replica];
            let due = r.retry_at.is_none_or(|at| Instant::now() >= at);
            if r.build.is_none() && !r.opening && r.stopped.is_none() && due {
                r.opening = true;
                let build = (r.plan.build > 0).then_some(r.plan.build);
                self.desk.ask(Who::Replica(replica), Job::Open { replica: r.name.clone(), table: r.plan.table.clone(), build });
            }
        }
    }

    /// Begins fetching where the claim says; the client may need a moment before a new partition can be moved.
    fn seek(&mut self, consumer: &BaseConsumer<Context>, at: usize) {
        let Some(owned) = self.owned[at].as_mut() else { return };
        let Some(from) = owned.seek else { return };
        match consumer.seek(&owned.name.0, owned.name.1, Offset::Offset(from), Duration::from_secs(5)) {
            Ok(()) => {
                (owned.seek, owned.begun, owned.paused) = (None, true, false);
                if let Err(error) = consumer.resume(&one(&owned.name)) {
                    tracing::warn!(%error, "resuming a partition");
                }
            }
            Err(error) => tracing::debug!(%error, topic = owned.name.0, partition = owned.name.1, "the partition cannot be moved yet"),
        }
    }

    fn step<S: State>(&mut self, consumer: &BaseConsumer<Context>, state: &mut S, at: usize) -> Result<(), SessionError> {
        loop {
            let now = self.now();
            let Some(owned) = self.owned[at].as_mut() else { return Ok(()) };
            let step = match owned.core.next(now, state) {
                Ok(step) => step,
                Err(stop) => return self.stop(consumer, at, &stop),
            };
            // Whoever has nothing that waits may always go on: it is not the one that fills the memory.
            let has_room = !owned.core.is_full() && (!self.is_over || owned.core.waiting().0 == 0);
            if owned.paused && owned.begun && has_room {
                owned.paused = false;
                consumer.resume(&one(&owned.name))?;
            }
            match step {
                Step::Wait(_) => return Ok(()),
                Step::Claim => {
                    self.ask(at, Job::Claim);
                    return Ok(());
                }
                Step::Contract(fingerprint) => {
                    let known = self.shared.contract(fingerprint)?;
                    let Some(owned) = self.owned[at].as_mut() else { return Ok(()) };
                    let Some(schema) = known else {
                        let what = format!("contract {fingerprint} is not in topic {:?}", self.shared.plan.schemas_topic());
                        return self.stop(consumer, at, &Stop::Schema { code: "log.contract_missing", what });
                    };
                    if let Err(stop) = owned.core.contract(fingerprint, TableSchema::clone(&schema)) {
                        return self.stop(consumer, at, &stop);
                    }
                }
                Step::Prepare(schema) => {
                    owned.schema = None;
                    self.ask(at, move |target, _| Job::Prepare(Target { schema: Arc::new(schema), ..target }));
                    return Ok(());
                }
                Step::Land => {
                    self.write_letters(at)?;
                    self.land(at);
                    return Ok(());
                }
                Step::Check => {
                    self.ask(at, Job::Cursor);
                    return Ok(());
                }
                Step::Commit(offset) => {
                    let name = owned.name.clone();
                    let _ = self.commits.insert(name, offset);
                }
            }
        }
    }

    /// Dead letters of a batch stand before the batch lands (law 11).
    fn write_letters(&mut self, at: usize) -> Result<(), SessionError> {
        let Some(owned) = self.owned[at].as_ref() else { return Ok(()) };
        if owned.core.letters().is_empty() {
            return Ok(());
        }
        let r = &self.replicas[owned.replica];
        let topic = self.shared.plan.dead_letters_topic();
        if self.letters.is_none() {
            self.letters = Some(Producer::new(&self.shared.plan.kafka)?);
        }
        let mut written = Vec::new();
        for letter in owned.core.letters() {
            let provenance = owned.core.provenance(letter.offset).and_then(|bytes| Provenance::decode(bytes).ok());
            let (source, partition, offset) =
                provenance.map_or((owned.name.0.as_str(), owned.name.1, letter.offset), |p| (p.topic, p.source.partition, p.place.offset));
            written.push(Letter {
                code: letter.code.to_owned(),
                reason: letter.reason(&r.table.id, &r.plan.id),
                table: r.table.id.clone(),
                replica: Some(r.plan.id.clone()),
                topic: source.to_owned(),
                partition,
                offset,
                key: None,
                excerpt: None,
            });
        }
        let Some(producer) = &self.letters else { return Ok(()) };
        for letter in written {
            let value = serde_json::to_vec(&letter).unwrap_or_default();
            let key = letter.record_key();
            let record = Outgoing { topic: &topic, partition: 0, key: Some(key.as_bytes()), value: &value, header: None };
            if let Err(error) = producer.send_and_wait(record, 0, Duration::from_secs(30)) {
                self.letters = None;
                return Err(error.into());
            }
            self.shared.observer.dead_letter(&letter);
        }
        Ok(())
    }

    fn stop(&mut self, consumer: &BaseConsumer<Context>, at: usize, stop: &Stop) -> Result<(), SessionError> {
        let Some(owned) = self.owned[at].as_mut() else { return Ok(()) };
        owned.stopped = true;
        if !owned.paused {
            owned.paused = true;
            consumer.pause(&one(&owned.name))?;
        }
        let hint = if let Stop::Sink(error) = stop { error.kind.hint() } else { stop_hint(stop.code()) };
        self.shared.observer.log_stopped(&self.replicas[owned.replica].plan.id, owned.name.1, reason(stop.code(), stop, hint));
        Ok(())
    }

    fn find_truncated(&mut self, consumer: &BaseConsumer<Context>) -> Result<(), SessionError> {
        for at in 0..self.owned.len() {
            let Some(owned) = self.owned[at].as_ref().filter(|o| o.begun && !o.stopped) else { continue };
            let (begin, end) = consumer.fetch_watermarks(&owned.name.0, owned.name.1, WAIT)?;
            let needed = owned.core.next_wanted();
            if needed < begin || needed > end {
                self.stop(consumer, at, &Stop::LogTruncated { begin, end, needed })?;
            }
        }
        Ok(())
    }

    fn commit(&mut self, consumer: &BaseConsumer<Context>) -> Result<(), SessionError> {
        if self.context.0.refused.swap(false, Ordering::Relaxed) {
            for owned in self.owned.iter().flatten() {
                if let Some(next) = owned.core.landed_next() {
                    let _ = self.commits.insert(owned.name.clone(), next);
                }
            }
        }
        let mut list = TopicPartitionList::new();
        for ((topic, partition), offset) in &self.commits {
            drop(list.add_partition_offset(topic, *partition, Offset::Offset(*offset)));
        }
        self.commits.clear();
        if list.count() > 0 {
            match super::commit(consumer, &list) {
                Ok(()) => {}
                Err(KafkaError::ConsumerCommit(_)) => self.context.0.refused.store(true, Ordering::Relaxed),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// How much waits, for those who watch. The broker is asked about one partition at a time: an answer may stand behind a fetch that waits
    /// for records, and this thread has better to do. Records that arrive tell the end of their partition by themselves.
    fn look(&mut self, consumer: &BaseConsumer<Context>) {
        self.looked += 1;
        let asked = self.looked % self.owned.len().max(1);
        let mut bytes = 0;
        for (at, owned) in self.owned.iter_mut().enumerate() {
            let Some(owned) = owned else { continue };
            bytes += owned.core.waiting().1;
            if at == asked
                && let Ok((_, end)) = consumer.fetch_watermarks(&owned.name.0, owned.name.1, Duration::from_millis(200))
            {
                owned.end = end;
            }
            let r = &self.replicas[owned.replica];
            self.shared.observer.position(&r.plan.id, owned.name.1, owned.core.landed_next(), owned.end);
        }
        self.shared.observer.queue("land", bytes);
    }

    /// Told to stop: lands nothing new, waits for what is with the store, and commits.
    fn drain<S: State>(&mut self, consumer: &BaseConsumer<Context>, state: &mut S) -> Result<TopicPartitionList, SessionError> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.desk.is_busy() && Instant::now() < deadline {
            let _ = consumer.poll(Duration::from_millis(5));
            self.answers(consumer, state)?;
        }
        self.answers(consumer, state)?;
        for at in 0..self.owned.len() {
            if let Some(owned) = self.owned[at].as_mut()
                && let Some(offset) = owned.core.take_commit()
            {
                let _ = self.commits.insert(owned.name.clone(), offset);
            }
        }
        let mut list = TopicPartitionList::new();
        for ((topic, partition), offset) in &self.commits {
            drop(list.add_partition_offset(topic, *partition, Offset::Offset(*offset)));
        }
        Ok(list)
    }
}

fn one((topic, partition): &(String, i32)) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    let _ = list.add_partition(topic, *partition);
    list
}

fn reason(code: &str, what: &dyn std::error::Error, hint: &str) -> Reason {
    Reason { code: code.to_owned(), what: chain(what), hint: hint.to_owned() }
}

/// An error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn stop_hint(code: &str) -> &'static str {
    match code {
        "log.truncated" => "the change log lost records; run `landfall rebuild` if it still holds everything, else the table needs a new snapshot",
        "state.unusable" => "move the state directory aside; it is built again from the log",
        "log.unreadable" | "log.contract_missing" => "the log was written by a newer build, or is damaged",
        _ => "this change of the schema comes with a later version; the log keeps everything until then",
    }
}
