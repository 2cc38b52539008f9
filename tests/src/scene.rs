//! One topology in its world: source topics, the workload, the replicas, and a sampler that looks at them while things happen.
//!
//! Every end-to-end test is the same play: produce, disturb, produce on, let it catch up, drain, compare. What differs is the disturbance.
//! The last act is always [`Scene::verdict`]: nothing lost, duplicated, resurrected or invented, positions honest at every sample, and every
//! record of the source accounted for.

#![allow(clippy::disallowed_methods, reason = "the rules of the core about clocks and threads do not bind tests of real processes")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::checker::{Broken, Sample, Seen, SourceSample, Truth, Violation, broken};
use crate::harness::kafka::{Group, Kafka, Record};
use crate::harness::process::Process;
use crate::harness::stores::{Column, Store, View};
use crate::harness::topology::{Stores, Topology};
use crate::harness::wait;
use crate::reference::Place;
use crate::workload::{CUSTOMERS, Mix, ORDERS, Workload, customer_columns, order_columns};

/// Partitions of each source topic.
pub const SOURCE_PARTITIONS: i32 = 2;
/// How long replicas may take to show everything after the last disturbance.
pub const HEAL: Duration = Duration::from_secs(60);
/// How long a process may take to drain.
pub const DRAIN: Duration = Duration::from_secs(30);

/// What the sampler has seen.
#[derive(Debug, Default)]
pub struct Samples {
    /// Of replicas.
    pub views: Vec<Sample>,
    /// Of the normaliser.
    pub source: Vec<SourceSample>,
}

/// A topology with its workload.
#[derive(Debug)]
pub struct Scene {
    /// The topology.
    pub topology: Topology,
    /// The cluster.
    pub kafka: Arc<Kafka>,
    /// What comes from the source.
    pub workload: Workload,
    seen: Arc<Mutex<Seen>>,
    samples: Arc<Mutex<Samples>>,
    begun: Instant,
    /// Whether the groups' offsets are held against `K`: not where a store is put back, which leaves them behind.
    pub groups: bool,
}

impl Scene {
    /// Topics and databases of a scene, and the first snapshot in the source topics.
    pub fn new(stem: &str, seed: u64, mix: Mix, stores: Stores) -> Self {
        Self::on(Topology::new(stem, &[ORDERS, CUSTOMERS], stores), seed, mix)
    }

    /// The same in a topology of these two tables that exists.
    pub fn on(topology: Topology, seed: u64, mix: Mix) -> Self {
        let kafka = Arc::new(Kafka::at(&topology.brokers));
        for table in [ORDERS, CUSTOMERS] {
            kafka.create_topic(&topology.source(table), SOURCE_PARTITIONS, &[]);
        }
        let workload = Workload::new(&topology.prefix, seed, mix);
        let mut scene = Self { topology, kafka, workload, seen: Arc::default(), samples: Arc::default(), begun: Instant::now(), groups: true };
        let snapshot = scene.workload.snapshot(40);
        scene.kafka.produce(&snapshot);
        scene
    }

    /// Produces so many transactions.
    pub fn produce(&mut self, transactions: u32) {
        let records = self.workload.slice(transactions);
        self.kafka.produce(&records);
    }

    /// Starts looking at all replicas of `orders` again and again, as fast as the pause allows, until the sampler is dropped.
    pub fn sampler(&self, pause: Duration) -> Sampler {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        // A store that is down or slow must not keep the others from being looked at.
        for store in self.topology.stores.iter().filter(|s| !matches!(s, Store::DuckDb { .. })) {
            let looker = Looker::new(self, store);
            let (stop, samples, seen) = (Arc::clone(&stop), Arc::clone(&self.samples), Arc::clone(&self.seen));
            threads.push(std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if let Some(sample) = looker.look(&seen) {
                        samples.lock().unwrap_or_else(PoisonError::into_inner).views.push(sample);
                    }
                    std::thread::sleep(pause);
                }
            }));
        }
        let (kafka, samples, flag) = (Arc::clone(&self.kafka), Arc::clone(&self.samples), Arc::clone(&stop));
        let (group, source, log) = (format!("{}.normalise", self.topology.name), self.topology.source(ORDERS), self.topology.log(ORDERS));
        let partitions = self.topology.log_partitions as i32;
        threads.push(std::thread::spawn(move || {
            let group = kafka.group(&group, &source);
            while !flag.load(Ordering::Relaxed) {
                if let Some(committed) = group.committed()
                    && !committed.is_empty()
                    && let Some(log) = kafka.ends_now(&log, partitions)
                {
                    samples.lock().unwrap_or_else(PoisonError::into_inner).source.push(SourceSample { committed, log });
                }
                std::thread::sleep(pause * 2);
            }
        }));
        Sampler { stop, threads }
    }

    /// Looks at the DuckDB replica once, where there is one; only while no process holds it.
    pub fn look_at_file(&self) {
        if let Some(store) = self.topology.stores.iter().find(|s| matches!(s, Store::DuckDb { .. }))
            && let Some(sample) = Looker::new(self, store).look(&self.seen)
        {
            self.samples.lock().unwrap_or_else(PoisonError::into_inner).views.push(sample);
        }
    }

    /// As [`caught_up`] for this topology.
    pub fn caught_up(&self, deadline: Duration) -> Result<(), String> {
        caught_up(&self.topology, &self.kafka, deadline)
    }

    /// As [`landed`] for this topology.
    pub fn landed(&self, store: &Store, table: &str, deadline: Duration) -> Result<(), String> {
        landed(&self.topology, &self.kafka, store, table, deadline)
    }

    /// As [`Self::caught_up`]; shows the process's log and panics where it does not come.
    pub fn expect_caught_up(&self, process: &mut Process) {
        process.assert_running();
        if let Err(seen) = self.caught_up(HEAL) {
            panic!("{seen}; the process's last lines:\n{}", process.tail());
        }
    }

    /// Where records of a table's source were dead-lettered as unreadable.
    pub fn dead_letters(&self, table: &str) -> BTreeSet<Place> {
        let source = self.topology.source(table);
        letters(&self.kafka, &self.topology).iter().filter(|l| l.replica.is_none() && l.topic == source).map(|l| (l.partition, l.offset)).collect()
    }

    /// Catches up, drains, and says what is wrong with that. The process must be running; afterwards it is gone.
    pub fn settle(&self, process: &mut Process) -> Vec<Violation> {
        let mut out = Vec::new();
        if let Some(status) = process.ended() {
            broken(&mut out, Broken::Process, format!("it ended by itself ({status}); its last lines:\n{}", process.tail()));
        } else if let Err(seen) = self.caught_up(HEAL) {
            broken(&mut out, Broken::Behind, format!("not caught up: {seen}; the process's last lines:\n{}", process.tail()));
        }
        if process.ended().is_none() {
            process.signal("TERM");
            match process.ended_within(DRAIN) {
                Some(status) if status.success() => {}
                status => broken(&mut out, Broken::Process, format!("SIGTERM: {status:?}; its last lines:\n{}", process.tail())),
            }
        }
        process.kill();
        out
    }

    /// The last act: settles, and panics with everything that is wrong. Returns what the verdict was based on.
    pub fn finish(&self, what: &str, process: &mut Process, sampler: Sampler) -> Summary {
        let mut out = self.settle(process);
        drop(sampler);
        let summary = self.verdict(&mut out);
        assert_none(what, &out);
        println!("{what}: {summary:?}");
        summary
    }

    /// Everything that is wrong with the replicas, the samples, the log and the ledger. No process may run.
    pub fn verdict(&self, out: &mut Vec<Violation>) -> Summary {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let mut summary = Summary { samples: samples.views.len() + samples.source.len(), ..Summary::default() };
        for (table, columns) in [(ORDERS, order_columns()), (CUSTOMERS, customer_columns())] {
            let source = self.kafka.read(&self.topology.source(table));
            let log = self.kafka.read(&self.topology.log(table));
            let truth = Truth::new(table, &columns, &source, &log, &mut seen);
            truth.check_ledger(&self.dead_letters(table), out);
            let ends = self.kafka.ends(&self.topology.log(table));
            for store in &self.topology.stores {
                match self.final_view(store, table, &columns) {
                    Some(view) => truth.check_final(store.id(), &view, &ends, &mut seen, out),
                    None => broken(out, Broken::Lost, format!("{table} in {}: the replica cannot be read", store.id())),
                }
            }
            if table == ORDERS {
                for store in &self.topology.stores {
                    let mine: Vec<Sample> = samples.views.iter().filter(|s| s.store == store.id()).cloned().collect();
                    truth.check_samples(&mine, &seen, out);
                }
                truth.check_source(&samples.source, out);
            }
            summary.records += source.len();
            summary.logged += log.len();
            summary.repeats += truth.repeats();
            summary.rows += truth.rows();
            summary.poison += truth.poison();
        }
        summary
    }

    fn final_view(&self, store: &Store, table: &str, columns: &[Column]) -> Option<View> {
        wait::until(Duration::from_secs(20), || store.view(table, columns).ok_or("it cannot be read")).ok()
    }

    /// Forgets the samples so far: a replica was put back on purpose.
    pub fn forget_samples(&self) {
        *self.samples.lock().unwrap_or_else(PoisonError::into_inner) = Samples::default();
    }
}

/// What a verdict was based on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Source records.
    pub records: usize,
    /// Log records.
    pub logged: usize,
    /// Of them, repeats.
    pub repeats: u64,
    /// Rows at the end.
    pub rows: usize,
    /// Poison records.
    pub poison: usize,
    /// Samples held against the log.
    pub samples: usize,
}

/// Waits until the logs hold everything of the sources and every store's group has committed to their ends, which is never above `K`.
pub fn caught_up(topology: &Topology, kafka: &Kafka, deadline: Duration) -> Result<(), String> {
    let normalise = format!("{}.normalise", topology.name);
    for table in &topology.tables {
        let source = topology.source(table);
        let group = kafka.group(&normalise, &source);
        let ends = nonzero(kafka.ends(&source));
        wait::until(deadline, || behind(&ends, group.committed())).map_err(|e| format!("{table}: the normaliser is behind: {e}"))?;
    }
    for store in &topology.stores {
        for table in &topology.tables {
            landed(topology, kafka, store, table, deadline).map_err(|e| format!("{table} in {} is behind: {e}", store.id()))?;
        }
    }
    Ok(())
}

/// Waits until a store has landed the whole log of a table as it is now.
pub fn landed(topology: &Topology, kafka: &Kafka, store: &Store, table: &str, deadline: Duration) -> Result<(), String> {
    let log = topology.log(table);
    let ends = nonzero(kafka.ends(&log));
    let group = kafka.group(&format!("{}.land.{}", topology.name, store.id()), &log);
    wait::until(deadline, || behind(&ends, group.committed()))
}

fn nonzero(ends: BTreeMap<i32, i64>) -> BTreeMap<i32, i64> {
    ends.into_iter().filter(|(_, end)| *end > 0).collect()
}

fn behind(ends: &BTreeMap<i32, i64>, committed: Option<BTreeMap<i32, i64>>) -> Result<(), String> {
    let committed = committed.unwrap_or_default();
    let behind: Vec<String> = ends
        .iter()
        .filter(|(partition, end)| committed.get(partition).is_none_or(|at| at < end))
        .map(|(partition, end)| format!("partition {partition} at {:?} of {end}", committed.get(partition)))
        .collect();
    if behind.is_empty() { Ok(()) } else { Err(behind.join(", ")) }
}

struct Looker {
    store: Store,
    columns: Vec<Column>,
    group: Option<Group>,
    begun: Instant,
}

impl Looker {
    fn new(scene: &Scene, store: &Store) -> Self {
        let group = format!("{}.land.{}", scene.topology.name, store.id());
        let group = scene.groups.then(|| scene.kafka.group_of(&group, &scene.topology.log(ORDERS), scene.topology.log_partitions as i32));
        Self { store: store.clone(), columns: order_columns(), group, begun: scene.begun }
    }

    fn look(&self, seen: &Mutex<Seen>) -> Option<Sample> {
        let committed = self.group.as_ref().and_then(Group::committed).unwrap_or_default();
        let view = self.store.view(ORDERS, &self.columns)?;
        Some(seen.lock().unwrap_or_else(PoisonError::into_inner).sample(self.begun.elapsed().as_millis(), &self.store, committed, &view))
    }
}

/// A running sampler; dropping it ends it.
#[derive(Debug)]
pub struct Sampler {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}

/// A dead letter as its topic holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Letter {
    /// Reason.
    pub code: String,
    /// Reason in words.
    pub reason: String,
    /// Replica that could not take it, where it was one.
    pub replica: Option<String>,
    /// Source topic.
    pub topic: String,
    /// Source partition.
    pub partition: i32,
    /// Source offset.
    pub offset: i64,
    /// Key.
    pub key: Option<String>,
    /// Excerpt of the value.
    pub excerpt: Option<String>,
}

/// All dead letters of a topology.
pub fn letters(kafka: &Kafka, topology: &Topology) -> Vec<Letter> {
    let text = |v: &serde_json::Value| v.as_str().map(str::to_owned);
    let letter = |record: &Record| {
        let value: serde_json::Value = serde_json::from_slice(record.value.as_deref().unwrap_or_default()).expect("a dead letter is JSON");
        Letter {
            code: text(&value["code"]).unwrap_or_default(),
            reason: text(&value["reason"]).unwrap_or_default(),
            replica: text(&value["replica"]),
            topic: text(&value["topic"]).unwrap_or_default(),
            partition: value["partition"].as_i64().unwrap_or(-1) as i32,
            offset: value["offset"].as_i64().unwrap_or(-1),
            key: text(&value["key"]),
            excerpt: text(&value["excerpt"]),
        }
    };
    kafka.read(&topology.dead_letters()).iter().filter(|record| !is_note(record)).map(letter).collect()
}

/// Whether a record of the dead-letter topic says what became of a letter, rather than being one.
pub fn is_note(record: &Record) -> bool {
    let value: serde_json::Value = serde_json::from_slice(record.value.as_deref().unwrap_or_default()).expect("JSON");
    !value["act"].is_null()
}

/// Panics with all violations, of each kind the first few.
pub fn assert_none(what: &str, violations: &[Violation]) {
    assert!(violations.is_empty(), "{what}: {} violations\n{}", violations.len(), listed(violations, 6));
}

/// The violations as text, of each kind the first few.
pub fn listed(violations: &[Violation], of_each: usize) -> String {
    let mut by_kind: BTreeMap<Broken, Vec<&Violation>> = BTreeMap::new();
    for violation in violations {
        by_kind.entry(violation.broken).or_default().push(violation);
    }
    let mut text = String::new();
    for (kind, list) in by_kind {
        text.push_str(&format!("{} × {kind:?}\n", list.len()));
        for violation in list.iter().take(of_each) {
            text.push_str(&format!("  {}\n", violation.what));
        }
    }
    text
}
