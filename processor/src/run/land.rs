//! Driving `land`: for each store one thread that polls the change logs, folds, hands batches to the store's workers, and writes state.
//!
//! The thread never waits for the store: a partition whose store does not answer stands still by itself, and its fetching is paused when
//! enough waits. Positions come from the store (`K`) and from state (`S`); the group's offsets only show lag to other tools (law 5).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use landfall_schemas::dialect::Headers as _;
use landfall_schemas::provenance::HEADER;
use landfall_schemas::{TableSchema, framing};
use landfall_topology::plan::{InsteadOfMissing, InsteadOfRefused, ReplicaPlan, TablePlan};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};

use super::group::{self, Member, Rebalance};
use super::workers::{Desk, Job};
use super::{Named, Shared, Stopping};
use crate::land::debounce::Debounce;
use crate::land::fold::{Config, Unresolved};
use crate::land::held::Held;
use crate::land::partition::{Instead, Partition, Record, Refuse, Settings, Step, Stop};
use crate::log::client;
use crate::log::headers::MessageHeaders;
use crate::log::producer::Producer;
use crate::observe::Reason;
use crate::sink::Target;
use crate::state::{SlotName, State};

mod answers;
mod trouble;

/// How often `G` is committed.
const COMMIT_EVERY: Duration = Duration::from_millis(500);
/// After so long without landing, the cursor is read again, to notice a store that was put back.
const IDLE_CHECK: Duration = Duration::from_secs(10);
/// How often lag is looked at.
const LAG_EVERY: Duration = Duration::from_millis(500);
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

/// Where to begin is the store's word, which may take a while: nothing is fetched until the claim is through.
struct ByClaim;

impl Rebalance for ByClaim {
    /// Whether partitions came or went, and which.
    type Event = (bool, Vec<(String, i32)>);

    fn answer(&self, consumer: &Consumer, assigned: bool, partitions: &mut TopicPartitionList) -> Self::Event {
        let names = group::names(partitions);
        let outcome = if assigned {
            drop(partitions.set_all_offsets(Offset::Beginning));
            consumer.incremental_assign(partitions).and_then(|()| if partitions.count() > 0 { consumer.pause(partitions) } else { Ok(()) })
        } else {
            consumer.incremental_unassign(partitions)
        };
        if let Err(error) = outcome {
            tracing::warn!(%error, assigned, "rebalance");
        }
        (assigned, names)
    }
}

type Consumer = BaseConsumer<Member<ByClaim>>;

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
    /// When it wants to be looked at again.
    due: Option<Duration>,
    schema: Option<Arc<TableSchema>>,
}

impl Owned {
    /// Whether it may be given more: not beyond two batches of its own, nor beyond what all may hold.
    fn has_room(&self, held: Held) -> bool {
        !self.core.is_full() && held.has_room(self.core.waiting().1)
    }
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
    let member = Member::new(ByClaim);
    let group = format!("{}.land.{}", shared.plan.topology, store.id);
    let consumer: Consumer = client::member(&shared.plan.kafka, &group).create_with_context(member.clone())?;
    let mut session = Session {
        shared,
        store,
        index,
        desk,
        member,
        letters: None,
        replicas: Vec::new(),
        owned: Vec::new(),
        by_name: HashMap::new(),
        claims: 0,
        catalog: 0,
        looked: 0,
        commits: BTreeMap::new(),
        held: Held::default(),
        object: Vec::new(),
        shown: 0,
    };
    let (mut committed, mut looked) = (Instant::now(), Instant::now());
    tracing::info!(store = store.id, "landing");
    pause.reset();
    while !stopping.is_set() {
        session.subscribe(&consumer)?;
        let mut timeout = session.patience();
        let mut now = None;
        for _ in 0..BURST {
            let Some(message) = consumer.poll(timeout) else { break };
            timeout = Duration::ZERO;
            // One look at the clock serves a burst.
            let now = *now.get_or_insert_with(|| session.now());
            session.handle_events();
            match message {
                Ok(message) => session.record(&consumer, &message, now)?,
                Err(KafkaError::MessageConsumptionFatal(code)) => return Err(KafkaError::MessageConsumptionFatal(code).into()),
                Err(KafkaError::MessageConsumption(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange)) => {
                    session.find_truncated(&consumer)?;
                }
                Err(error) => tracing::debug!(%error, "reading change logs"),
            }
        }
        session.handle_events();
        session.held = Held::weigh(session.owned.iter().flatten().map(|o| o.core.waiting().1));
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
    member: Member<ByClaim>,
    letters: Option<Producer>,
    replicas: Vec<ReplicaState>,
    owned: Vec<Option<Owned>>,
    by_name: HashMap<(String, i32), usize>,
    claims: u64,
    catalog: usize,
    looked: usize,
    commits: BTreeMap<(String, i32), i64>,
    held: Held,
    /// A change that has been taken out of the frame of a registry.
    object: Vec<u8>,
    /// Bytes that the gauge was told of.
    shown: usize,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.show(0);
    }
}

impl Session<'_> {
    fn now(&self) -> Duration {
        self.shared.start.elapsed()
    }

    /// Follows the catalog: tables that match a pattern appear while running.
    fn subscribe(&mut self, consumer: &Consumer) -> Result<(), SessionError> {
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

    /// How long polling may block: a worker's answer or a debounce may be due sooner than the next record.
    fn patience(&self) -> Duration {
        let (least, most) = (Duration::from_millis(2), Duration::from_millis(50));
        if self.desk.is_busy() || self.owned.iter().flatten().any(|o| o.seek.is_some()) {
            return least;
        }
        let due = self.owned.iter().flatten().filter_map(|o| o.due).min();
        due.map_or(most, |due| due.saturating_sub(self.now()).clamp(least, most))
    }

    fn handle_events(&mut self) {
        for (assigned, names) in self.member.take_events() {
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
            fold: Config {
                unresolved: if r.table.fallback.missing == InsteadOfMissing::SetNull { Unresolved::Null } else { Unresolved::Withheld },
                ..Config::upsert()
            },
            debounce: Debounce {
                quiet: r.plan.quiet,
                max_delay: r.plan.max_delay,
                rows_max: r.plan.batch_rows_max as usize,
                bytes_max: usize::try_from(r.plan.batch_bytes_max).unwrap_or(usize::MAX),
            },
            refuse: self.store.refuse.map(|refuse| Refuse { instead: instead(r.table.fallback.refused), ..refuse }),
            partitions: r.table.log.partitions,
            idle_check: IDLE_CHECK,
        };
        self.shared.observer.log_assigned(&r.plan.id, name.1, true);
        let seed = self.claims;
        // Where the replica is open already, what is known of it: state of another schema would be folded again from the first record.
        let core = Partition::new(slot, settings, r.build.unwrap_or(0), r.schema.clone(), seed);
        let at = self.owned.iter().position(Option::is_none).unwrap_or(self.owned.len());
        let _ = self.by_name.insert(name.clone(), at);
        let owned = Owned {
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
            due: None,
            schema: None,
        };
        // Answers to whoever had the place are void: claims have numbers of their own.
        match self.owned.get_mut(at) {
            Some(place) => *place = Some(owned),
            None => self.owned.push(Some(owned)),
        }
    }

    fn record(&mut self, consumer: &Consumer, message: &BorrowedMessage<'_>, now: Duration) -> Result<(), SessionError> {
        let Some(at) = self.by_name.get(&Named(message.topic(), message.partition())).copied() else { return Ok(()) };
        let Some(owned) = self.owned[at].as_mut() else { return Ok(()) };
        if !owned.begun || owned.stopped || owned.seek.is_some() {
            return Ok(());
        }
        let headers = MessageHeaders(message);
        let record = Record {
            offset: message.offset(),
            key: message.key(),
            value: framing::object(message.payload().unwrap_or_default(), || headers.get(framing::SCHEMA), &mut self.object),
            provenance: headers.get(HEADER).unwrap_or_default(),
        };
        owned.end = owned.end.max(message.offset() + 1);
        if let Err(stop) = owned.core.push(record, now) {
            return self.stop(consumer, at, &stop);
        }
        self.held.note(record.value.len() + record.provenance.len() + record.key.map_or(0, <[u8]>::len));
        if !owned.paused && !owned.has_room(self.held) {
            owned.paused = true;
            consumer.pause(&one(&owned.name))?;
        }
        Ok(())
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
    fn steps<S: State>(&mut self, consumer: &Consumer, state: &mut S) -> Result<(), SessionError> {
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
    fn seek(&mut self, consumer: &Consumer, at: usize) {
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

    fn step<S: State>(&mut self, consumer: &Consumer, state: &mut S, at: usize) -> Result<(), SessionError> {
        loop {
            let now = self.now();
            let Some(owned) = self.owned[at].as_mut() else { return Ok(()) };
            owned.due = None;
            let step = match owned.core.next(now, state) {
                Ok(step) => step,
                Err(stop) => return self.stop(consumer, at, &stop),
            };
            if owned.paused && owned.begun && owned.has_room(self.held) {
                owned.paused = false;
                consumer.resume(&one(&owned.name))?;
            }
            match step {
                Step::Wait(due) => {
                    owned.due = due;
                    return Ok(());
                }
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

    fn commit(&mut self, consumer: &Consumer) -> Result<(), SessionError> {
        if self.member.take_refusal() {
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
                Err(KafkaError::ConsumerCommit(_)) => self.member.note_refusal(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// How much waits, for those who watch. The broker is asked about one partition at a time: an answer may stand behind a fetch that waits
    /// for records, and this thread has better to do. Records that arrive tell the end of their partition by themselves.
    fn look(&mut self, consumer: &Consumer) {
        self.looked += 1;
        let asked = self.looked % self.owned.len().max(1);
        for (at, owned) in self.owned.iter_mut().enumerate() {
            let Some(owned) = owned else { continue };
            if at == asked
                && let Ok((_, end)) = consumer.fetch_watermarks(&owned.name.0, owned.name.1, Duration::from_millis(200))
            {
                owned.end = end;
            }
            let r = &self.replicas[owned.replica];
            self.shared.observer.position(&r.plan.id, owned.name.1, owned.core.landed_next(), owned.end);
        }
        self.show(self.held.bytes());
    }

    /// Tells the gauge, which shows what all stores hold, of what changed here.
    fn show(&mut self, bytes: usize) {
        self.shared.observer.queue("land", bytes as f64 - self.shown as f64);
        self.shown = bytes;
    }

    /// Told to stop: lands nothing new, waits for what is with the store, and commits.
    fn drain<S: State>(&mut self, consumer: &Consumer, state: &mut S) -> Result<TopicPartitionList, SessionError> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.desk.is_busy() && self.desk.broken().is_none() && Instant::now() < deadline {
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

/// What stands for a value that the store cannot hold.
const fn instead(of: InsteadOfRefused) -> Option<Instead> {
    match of {
        InsteadOfRefused::DeadLetter => None,
        InsteadOfRefused::SetNull => Some(Instead::Null),
        InsteadOfRefused::Clamp => Some(Instead::Nearest),
    }
}

fn one((topic, partition): &(String, i32)) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    let _ = list.add_partition(topic, *partition);
    list
}
