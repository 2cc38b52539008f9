//! Running a topology: the only place that starts threads.
//!
//! One thread normalises, one thread and a few workers for each store land, and the main thread waits for the signal to stop. They share
//! what is here and nothing else; they talk through Kafka.

#![allow(clippy::disallowed_methods, reason = "running is where time and threads come from; the core is handed them")]

mod group;
pub mod land;
pub mod lock;
pub mod normalise;
mod registry;
pub mod workers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::Scope;
use std::time::{Duration, Instant};

use hashbrown::Equivalent;
use landfall_schemas::contract::Fingerprint;
use landfall_schemas::{Column, LogicalType, TableSchema, store};
use landfall_topology::plan::{StoreKind, TablePlan};
use landfall_topology::{Plan, Secret};
use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext};
use rdkafka::error::KafkaError;

use crate::fault;
use crate::land::partition::Refuse;
use crate::log::contracts::Contracts;
use crate::log::topics::{Identity, Purpose, TopicError, Topics};
use crate::log::voice::Unreachable;
use crate::observe::{Observer, Reason};
use crate::sink::clickhouse::{self, ClickHouseSink};
use crate::sink::duckdb::{self, DuckDbSink};
use crate::sink::kafka::{self, KafkaSink};
use crate::sink::postgres::{self, PostgresSink};
use crate::state::rocks::RocksState;
use land::StoreRuntime;

/// How often topics are looked at for tables that match a pattern.
const DISCOVER_EVERY: Duration = Duration::from_secs(5);

/// How long a cluster that answers may take until topics can be made in it: a broker's restart takes some ten seconds.
const CLUSTER_READY: Duration = Duration::from_secs(60);

/// How long leaving a group may take.
const CLOSE: Duration = Duration::from_secs(5);

/// Tells everybody to stop.
#[derive(Clone, Debug, Default)]
pub struct Stopping {
    inner: Arc<(AtomicBool, Mutex<()>, Condvar)>,
}

impl Stopping {
    /// Says so.
    pub fn set(&self) {
        self.inner.0.store(true, Ordering::SeqCst);
        self.inner.2.notify_all();
    }

    /// Whether it was said.
    pub fn is_set(&self) -> bool {
        self.inner.0.load(Ordering::SeqCst)
    }

    /// Waits for so long, or until it is said; true then.
    pub fn wait(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        let mut guard = self.inner.1.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_set() {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { break };
            guard = self.inner.2.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        self.is_set()
    }
}

/// Growing pauses between tries: 100 ms, doubling up to 5 s.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pause {
    tries: u32,
}

impl Pause {
    /// The next pause.
    pub fn grow(&mut self) -> Duration {
        let pause = Duration::from_millis(100 << self.tries.min(6)).min(Duration::from_secs(5));
        self.tries += 1;
        pause
    }

    /// It went well: the next failure begins anew.
    pub const fn reset(&mut self) {
        self.tries = 0;
    }

    /// Pauses, or until told to stop.
    pub fn wait(&mut self, stopping: &Stopping) {
        let _ = stopping.wait(self.grow());
    }
}

/// What the threads share.
#[derive(Debug)]
pub struct Shared {
    /// What is to run.
    pub plan: Arc<Plan>,
    /// Contracts seen so far.
    pub contracts: Contracts,
    /// Takes note.
    pub observer: Observer,
    /// When the process began: the zero of every `now`.
    pub start: Instant,
    /// Stands in a target until the table's schema is known.
    pub no_schema: Arc<TableSchema>,
    /// How the cluster tells topics apart.
    pub identity: Identity,
    catalog: RwLock<Arc<Vec<TablePlan>>>,
}

impl Shared {
    /// What a plan needs.
    pub fn new(plan: Arc<Plan>, observer: Observer) -> Self {
        let column = Column { name: "none".to_owned(), ty: LogicalType::Bool, nullable: false };
        let no_schema = TableSchema::new("none", vec![column], &["none"]).expect("one column that is its key is a schema");
        let catalog = RwLock::new(Arc::new(plan.tables.clone()));
        Self {
            plan,
            contracts: Contracts::default(),
            observer,
            start: Instant::now(),
            no_schema: Arc::new(no_schema),
            identity: Identity::Ids,
            catalog,
        }
    }

    /// All tables known now: those that are declared, and those that a pattern found.
    pub fn tables(&self) -> Arc<Vec<TablePlan>> {
        Arc::clone(&self.catalog.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks for topics that match a pattern. Tables only come, they never go while running.
    pub fn discover(&self, topics: &Topics) -> Result<(), KafkaError> {
        if self.plan.patterns.is_empty() {
            return Ok(());
        }
        let names = topics.names()?;
        let expansion = self.plan.expand(names.iter().map(String::as_str));
        let mut tables = TablePlans::clone(&self.tables());
        for table in expansion.tables {
            if tables.iter().all(|t| t.topic != table.topic) {
                tracing::info!(table = table.id, topic = table.topic, "table found");
                tables.push(table);
            }
        }
        *self.catalog.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tables);
        Ok(())
    }

    /// The schema of a fingerprint; the contracts are read again where it has not been seen.
    pub fn contract(&self, fingerprint: Fingerprint) -> Result<Option<Arc<TableSchema>>, KafkaError> {
        if let Some(schema) = self.contracts.get(fingerprint) {
            return Ok(Some(schema));
        }
        self.contracts.sync(&self.plan.kafka, &self.plan.schemas_topic())?;
        Ok(self.contracts.get(fingerprint))
    }
}

type TablePlans = Vec<TablePlan>;

/// What to run of a topology.
#[derive(Clone, Debug)]
pub struct Options {
    /// Run the normaliser.
    pub normalise: bool,
    /// Run the landers.
    pub land: bool,
    /// Where state is kept.
    pub state: PathBuf,
}

/// Why a run could not begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Kafka was not reached.
    #[error("kafka at {brokers} cannot be reached")]
    Kafka {
        /// The brokers of the topology.
        brokers: String,
        /// Why, in the client's own words.
        #[source]
        source: Unreachable,
    },
    /// Topics could not be listed.
    #[error("the topics of the cluster cannot be listed")]
    Topics(#[source] KafkaError),
    /// A topic could not be made.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// State could not be opened.
    #[error(transparent)]
    State(#[from] crate::state::Error),
    /// A store's options are impossible.
    #[error(transparent)]
    Sink(#[from] crate::sink::Error),
}

impl StartError {
    /// Whether it passes by itself once a cluster that has answered is up again.
    fn passes(&self) -> bool {
        match self {
            Self::Kafka { .. } | Self::Topics(_) => true,
            Self::Topic(error) => error.passes(),
            Self::State(_) | Self::Sink(_) => false,
        }
    }
}

/// Makes the topics that Landfall keeps beside the logs, and the logs of the tables that are known.
pub fn ensure_topics(plan: &Plan, topics: &Topics) -> Result<(), TopicError> {
    for (topic, purpose) in
        [(plan.control_topic(), Purpose::Compacted), (plan.schemas_topic(), Purpose::Compacted), (plan.dead_letters_topic(), Purpose::Letters)]
    {
        let _ = topics.ensure(&topic, purpose, 1, None)?;
    }
    for table in &plan.tables {
        let _ = topics.ensure(&table.log.topic, Purpose::Log, table.log.partitions, table.log.replication)?;
    }
    Ok(())
}

/// How the sinks of each store are made. Options that no connection could be made with are an error at once.
pub fn stores(plan: &Plan) -> Result<Vec<StoreRuntime>, crate::sink::Error> {
    plan.stores.iter().map(|store| runtime(plan, &store.id, &store.kind)).collect()
}

fn runtime(plan: &Plan, id: &str, kind: &StoreKind) -> Result<StoreRuntime, crate::sink::Error> {
    let id = id.to_owned();
    Ok(match kind {
        StoreKind::Postgres { url, database, schema, user, password } => {
            let options = postgres_options(url, database.as_deref(), schema, user.as_deref(), password.as_ref());
            drop(PostgresSink::new(options.clone())?);
            StoreRuntime {
                id,
                connect: Box::new(move || Box::new(PostgresSink::new(options.clone()).expect("the same options made a sink before"))),
                refuse: Some(Refuse {
                    may: store::postgres::may_refuse,
                    value: |ty, value| store::postgres::refuse(ty, value).map(|r| r.code()),
                    cuts: store::postgres::cuts,
                    nearest: |ty, value| store::nearest(ty, value, store::postgres::refuse),
                    instead: None,
                    key: |schema, key| Ok(store::postgres::refuse_key(schema, key)?.map(|(column, r)| (column, r.code()))),
                }),
                workers: 2,
                lock: None,
            }
        }
        StoreKind::ClickHouse { url, database, user, password } => {
            let options = clickhouse_options(url, database, user.as_deref(), password.as_ref());
            StoreRuntime {
                id,
                connect: Box::new(move || Box::new(ClickHouseSink::new(options.clone()))),
                refuse: Some(Refuse {
                    may: store::clickhouse::may_refuse,
                    value: |ty, value| store::clickhouse::refuse(ty, value).map(|r| r.code()),
                    cuts: store::clickhouse::cuts,
                    nearest: |ty, value| store::nearest(ty, value, store::clickhouse::refuse),
                    instead: None,
                    key: |schema, key| Ok(store::refuse_key(schema, key, store::clickhouse::refuse)?.map(|(column, r)| (column, r.code()))),
                }),
                // A landing there is mostly waiting for syncs, which overlap.
                workers: 4,
                lock: None,
            }
        }
        StoreKind::DuckDb { path, schema } => {
            let path = PathBuf::from(path);
            let options = duckdb::Options { path: path.clone(), schema: schema.clone() };
            StoreRuntime {
                id,
                connect: Box::new(move || Box::new(DuckDbSink::new(options.clone()))),
                refuse: Some(Refuse {
                    may: store::duckdb::may_refuse,
                    value: |ty, value| store::duckdb::refuse(ty, value).map(|r| r.code()),
                    cuts: store::duckdb::cuts,
                    nearest: |ty, value| store::nearest(ty, value, store::duckdb::refuse),
                    instead: None,
                    key: |schema, key| Ok(store::refuse_key(schema, key, store::duckdb::refuse_in_key)?.map(|(column, r)| (column, r.code()))),
                }),
                workers: 1,
                lock: Some(path),
            }
        }
        StoreKind::Kafka => {
            let options = kafka::Options { kafka: plan.kafka.clone(), schemas: plan.schemas_topic(), partitions: None };
            let process = Arc::new(kafka::Process::default());
            StoreRuntime {
                id,
                connect: Box::new(move || Box::new(KafkaSink::new(options.clone(), Arc::clone(&process)))),
                // Values are written as the log has them.
                refuse: None,
                // A landing there is mostly waiting for answers, which overlap.
                workers: 4,
                lock: None,
            }
        }
    })
}

/// How to reach a Postgres store: its URL, with what the topology names beside it.
pub fn postgres_options(url: &Secret, database: Option<&str>, schema: &str, user: Option<&str>, password: Option<&Secret>) -> postgres::Options {
    let named = [("dbname", database), ("user", user), ("password", password.map(Secret::expose))];
    postgres::Options { url: with_parameters(url.expose(), &named), schema: schema.to_owned() }
}

/// How to reach a ClickHouse store.
pub fn clickhouse_options(url: &str, database: &str, user: Option<&str>, password: Option<&Secret>) -> clickhouse::Options {
    let password = password.map(|p| p.expose().to_owned());
    clickhouse::Options { url: url.to_owned(), database: database.to_owned(), user: user.map(str::to_owned), password }
}

/// A connection URL with further parameters, percent-encoded.
fn with_parameters(url: &str, parameters: &[(&str, Option<&str>)]) -> String {
    let mut url = url.to_owned();
    for (name, value) in parameters.iter().filter_map(|(name, value)| Some((name, (*value)?))) {
        url.push(if url.contains('?') { '&' } else { '?' });
        url.push_str(name);
        url.push('=');
        for b in value.bytes() {
            if b.is_ascii_alphanumeric() { url.push(char::from(b)) } else { url.push_str(&format!("%{b:02X}")) }
        }
    }
    url
}

/// Connects and makes sure that Landfall's topics are there; `None` when told to stop first. A cluster that is just starting answers before
/// it can make topics, and may go away again: that is waited for, for a bounded time. A cluster that never answered, or refuses us, is an error.
fn connect(shared: &Shared, stopping: &Stopping) -> Result<Option<Topics>, StartError> {
    let plan = &shared.plan;
    let (mut pause, deadline, mut answered) = (Pause::default(), Instant::now() + CLUSTER_READY, false);
    loop {
        let unreachable = |source| StartError::Kafka { brokers: plan.kafka.brokers.join(", "), source };
        let begun = Topics::connect(&plan.kafka, shared.identity).map_err(unreachable).and_then(|topics| {
            answered = true;
            ensure_topics(plan, &topics)?;
            shared.discover(&topics).map_err(StartError::Topics)?;
            Ok(topics)
        });
        match begun {
            Ok(topics) => return Ok(Some(topics)),
            Err(error) if answered && error.passes() && Instant::now() < deadline => {
                let why = std::error::Error::source(&error).map_or_else(String::new, |why| format!(": {why}"));
                tracing::warn!("the cluster is not ready yet, trying again for {} s at most: {error}{why}", CLUSTER_READY.as_secs());
                pause.wait(stopping);
                if stopping.is_set() {
                    return Ok(None);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Runs until told to stop.
#[allow(clippy::disallowed_methods, reason = "this is the one place that starts threads")]
pub fn run(shared: &Shared, options: &Options, stopping: &Stopping) -> Result<(), StartError> {
    let plan = &shared.plan;
    let Some(topics) = connect(shared, stopping)? else { return Ok(()) };
    let state = if options.land { Some(RocksState::open_directory(&options.state)?) } else { None };
    let stores = if options.land { stores(plan)? } else { Vec::new() };
    std::thread::scope(|scope| {
        if options.normalise {
            start(scope, "normalise", || {
                if let Err(what) = guarded(|| normalise::run(shared, stopping)) {
                    shared.observer.normalise_broken(broken(what));
                }
            });
        }
        for (index, store) in stores.iter().enumerate() {
            if let Some(state) = &state {
                let mut state = state.clone();
                start(scope, "land", move || {
                    if let Err(what) = guarded(|| land::run(shared, store, index, &mut state, stopping)) {
                        shared.observer.store_broken(&store.id, broken(what));
                    }
                });
            }
        }
        shared.observer.ready(true);
        while !stopping.wait(DISCOVER_EVERY) {
            if let Err(error) = shared.discover(&topics) {
                tracing::warn!(%error, "topics cannot be listed");
            }
            if let Some(state) = &state {
                measure(shared, state);
            }
        }
        shared.observer.ready(false);
    });
    Ok(())
}

/// Starts a thread under the name that tools show; a machine that has no thread left to give ends the process, as it always does.
#[allow(clippy::disallowed_methods, reason = "this module is where threads come from")]
fn start<'scope>(scope: &'scope Scope<'scope, '_>, name: &str, run: impl FnOnce() + Send + 'scope) {
    let _ = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, run).expect("the system starts a thread");
}

/// Commits, without waiting for the answer: a refusal is heard through the client's log (`log::voice::log`).
fn commit<C: ConsumerContext>(consumer: &BaseConsumer<C>, list: &TopicPartitionList) -> Result<(), KafkaError> {
    // Who is to die behind a commit waits for it: the point means that the group has the offsets.
    let mode = if fault::armed("post_commit") { CommitMode::Sync } else { CommitMode::Async };
    consumer.commit(list, mode)?;
    fault::point("post_commit");
    Ok(())
}

/// A topic and a partition as a record names them: found in a map that is keyed by owned names without making one.
#[derive(Hash)]
struct Named<'a>(&'a str, i32);

impl Equivalent<(String, i32)> for Named<'_> {
    fn equivalent(&self, key: &(String, i32)) -> bool {
        self.1 == key.1 && self.0 == key.0
    }
}

/// Runs a part of the process; a panic in it ends this part and no other, and comes back as its message.
fn guarded(act: impl FnOnce()) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(act)).map_err(|panic| message(&*panic))
}

/// The text of a panic, where it has one.
fn message(panic: &(dyn std::any::Any + Send)) -> String {
    panic.downcast_ref::<&str>().map(|text| (*text).to_owned()).or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Why a part stands still for good after a panic. What it had under way is neither acknowledged nor committed, so nothing is lost.
fn broken(what: String) -> Reason {
    Reason {
        code: "process.panicked".to_owned(),
        what: format!("a defect of Landfall ended this part: {what}"),
        hint: "restart the process, it goes on from what was landed; and please report it with the lines above".to_owned(),
    }
}

/// Tells what state each replica takes; what other topologies left in the directory is nobody's here.
fn measure(shared: &Shared, state: &RocksState) {
    let usage = match state.usage() {
        Ok(usage) => usage,
        Err(error) => return tracing::warn!(%error, "state cannot be measured"),
    };
    for replica in shared.tables().iter().flat_map(|table| &table.replicas) {
        if let Some(used) = usage.get(&shared.plan.full_name(replica)) {
            shared.observer.state(&replica.id, used.bytes, used.keys);
        }
    }
}

/// Commits what a drained consumer leaves behind and leaves its group, for a bounded time: a coordinator that does not answer must not keep
/// a process alive that has nothing left to do. What is not committed is read again and recognised.
fn close<C: ConsumerContext + 'static>(consumer: BaseConsumer<C>, commits: TopicPartitionList) {
    let (closed, wait) = std::sync::mpsc::channel();
    drop(std::thread::spawn(move || {
        if commits.count() > 0
            && let Err(error) = consumer.commit(&commits, CommitMode::Sync)
        {
            tracing::debug!(%error, "the last commit");
        }
        drop(consumer);
        closed.send(()).ok();
    }));
    if wait.recv_timeout(CLOSE).is_err() {
        tracing::warn!("the group's coordinator does not answer; leaving without a word");
    }
}
