//! What is happening, for those who watch: metrics (INTERFACES.md section 4), logs, and the status that `landfall status` and the HTTP
//! interface show. Every event has one method here, which emits log, metric and status together, so that they never disagree. Labels come
//! from configuration only.

#![allow(clippy::disallowed_macros, reason = "this is the one place that names metrics")]

pub mod catalog;
pub mod http;
pub mod query;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::dead_letter::PARKED;
use crate::land::partition::{Counts, SUPERSEDED};
use crate::normalise::quarantine::Tally;
use landfall_schemas::{LogicalType, Op};

/// Why something stands still, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Stable code.
    pub code: String,
    /// What happened.
    pub what: String,
    /// The way out.
    pub hint: String,
}

/// A source partition as people see it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SourcePartition {
    /// Next offset to be read, as committed.
    pub committed: Option<i64>,
    /// Why it stands still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Reason>,
    /// What keeps it waiting, where something does: it goes on by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Reason>,
    /// What its values are written in, as the first one told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
}

/// A log partition of a replica as people see it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LogPartition {
    /// `K`: next offset to land.
    pub next: Option<i64>,
    /// End of the log partition.
    pub end: i64,
    /// Why it stands still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Reason>,
    /// What keeps it waiting, where something does: it goes on by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Reason>,
}

/// A replica as people see it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Replica {
    /// Id of its table.
    pub table: String,
    /// Id of its store.
    pub store: String,
    /// Rows landed by this process.
    pub rows_landed: u64,
    /// Rows landed as absent by this process.
    pub rows_deleted: u64,
    /// Batches landed by this process.
    pub batches: u64,
    /// Seconds between the newest landed event and its landing.
    pub freshness_seconds: Option<f64>,
    /// Its log partitions owned by this process.
    pub partitions: BTreeMap<i32, LogPartition>,
}

impl Replica {
    /// Log records that wait in the partitions of this process.
    pub fn lag(&self) -> i64 {
        self.partitions.values().map(|p| (p.end - p.next.unwrap_or(0)).max(0)).sum()
    }
}

/// A part of the process that stands still.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standstill {
    /// Until somebody acts; else it goes on by itself.
    pub stopped: bool,
    /// Why.
    pub reason: Reason,
}

/// The whole picture of one process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Name of the topology.
    pub topology: String,
    /// Source partitions by topic and number.
    pub sources: BTreeMap<String, BTreeMap<i32, SourcePartition>>,
    /// Replicas by id.
    pub replicas: BTreeMap<String, Replica>,
    /// Parts of the process that stand still as a whole, such as `store local`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, Standstill>,
    /// Column types that were inferred, by table; columns go by their names in the source, in the order in which they were settled.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub inferred: BTreeMap<String, Vec<(String, LogicalType)>>,
    /// Dead letters written by this process, by reason.
    pub dead_letters: BTreeMap<String, u64>,
    /// Open dead letters of the source partitions of this process, by table and reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub open_letters: BTreeMap<String, BTreeMap<String, u64>>,
    /// Keys of them whose later events wait behind a dead letter, by table.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parked_keys: BTreeMap<String, u64>,
    /// Changes normalised by this process.
    pub changes: u64,
    /// Whether everything that was asked for is connected.
    pub ready: bool,
}

/// Takes note of everything. Cheap to clone; called per batch, never per row.
#[derive(Clone, Debug, Default)]
pub struct Observer {
    status: Arc<Mutex<Status>>,
}

impl Observer {
    /// An observer of a topology.
    pub fn new(topology: &str) -> Self {
        let observer = Self::default();
        observer.lock().topology = topology.to_owned();
        observer
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The picture as it is now.
    pub fn status(&self) -> Status {
        self.lock().clone()
    }

    /// Everything is connected, or no longer.
    pub fn ready(&self, ready: bool) {
        self.lock().ready = ready;
    }

    /// Source records were read.
    pub fn records_read(&self, source: &str, table: &str, records: u64) {
        metrics::counter!("landfall_records_read_total", "source" => source.to_owned(), "table" => table.to_owned()).increment(records);
    }

    /// Changes were produced to the log, by op in the order of [`Op::ALL`].
    pub fn changes(&self, table: &str, changes: &[u64; 6]) {
        for (op, n) in Op::ALL.iter().zip(changes).filter(|(_, n)| **n > 0) {
            metrics::counter!("landfall_changes_total", "table" => table.to_owned(), "op" => op.letter()).increment(*n);
            self.lock().changes += n;
        }
    }

    /// Records or changes were passed over, for a good reason.
    pub fn ignored(&self, table: &str, reason: &'static str, n: u64) {
        if n > 0 {
            metrics::counter!("landfall_changes_ignored_total", "table" => table.to_owned(), "reason" => reason).increment(n);
        }
    }

    /// Fractions of a second were finer than what keeps them: a type of micros, or a store.
    pub fn cut(&self, table: &str, values: u64) {
        if values > 0 {
            metrics::counter!("landfall_values_cut_total", "table" => table.to_owned()).increment(values);
        }
    }

    /// A dead letter was written.
    pub fn dead_letter(&self, letter: &crate::dead_letter::Letter) {
        metrics::counter!("landfall_dead_letters_total", "table" => letter.table.clone(), "reason" => letter.code.clone()).increment(1);
        *self.lock().dead_letters.entry(letter.code.clone()).or_default() += 1;
        if letter.code == PARKED {
            // The letter that it waits behind has been told of.
            return tracing::debug!(table = letter.table, topic = letter.topic, partition = letter.partition, offset = letter.offset, "event parked");
        }
        tracing::warn!(
            code = letter.code,
            table = letter.table,
            topic = letter.topic,
            partition = letter.partition,
            offset = letter.offset,
            reason = letter.reason,
            "record dead-lettered"
        );
    }

    /// A dead letter that was replayed came too late: the replica has a tombstone that deletes what it says.
    pub fn superseded(&self, replica: &str, topic: &str, partition: i32, offset: i64) {
        tracing::warn!(
            code = SUPERSEDED,
            replica,
            topic,
            partition,
            offset,
            "a replayed dead letter says what a later tombstone has deleted, and is dropped"
        );
    }

    /// How many letters are open in the source partitions of this process, by table and code, and how many keys wait, by table.
    pub fn open_letters(&self, tally: &Tally<'_>) {
        let Tally { letters, keys } = tally;
        let open = |table: &str, code: &str| metrics::gauge!("landfall_dead_letters_open", "table" => table.to_owned(), "reason" => code.to_owned());
        let parked = |table: &str| metrics::gauge!("landfall_parked_keys", "table" => table.to_owned());
        let mut status = self.lock();
        for (table, codes) in &status.open_letters {
            codes.keys().filter(|code| !letters.contains_key(&(table.as_str(), code.as_str()))).for_each(|code| open(table, code).set(0.0));
        }
        status.parked_keys.keys().filter(|table| !keys.contains_key(table.as_str())).for_each(|table| parked(table).set(0.0));
        (status.open_letters, status.parked_keys) = (BTreeMap::new(), BTreeMap::new());
        for ((table, code), n) in letters {
            open(table, code).set(*n as f64);
            let _ = status.open_letters.entry((*table).to_owned()).or_default().insert((*code).to_owned(), *n);
        }
        for (table, n) in keys {
            parked(table).set(*n as f64);
            if *n > 0 {
                let _ = status.parked_keys.insert((*table).to_owned(), *n);
            }
        }
    }

    /// A source offset was committed.
    pub fn committed(&self, topic: &str, partition: i32, offset: i64) {
        self.lock().sources.entry(topic.to_owned()).or_default().entry(partition).or_default().committed = Some(offset);
    }

    /// A source partition was assigned, or given away.
    pub fn source_assigned(&self, topic: &str, partition: i32, owned: bool) {
        let mut status = self.lock();
        let partitions = status.sources.entry(topic.to_owned()).or_default();
        if owned { drop(partitions.insert(partition, SourcePartition::default())) } else { drop(partitions.remove(&partition)) }
    }

    /// A source partition stands still until an operator has acted.
    pub fn source_stopped(&self, topic: &str, partition: i32, reason: Reason) {
        tracing::error!(code = reason.code, topic, partition, what = reason.what, hint = reason.hint, "source partition stopped");
        self.lock().sources.entry(topic.to_owned()).or_default().entry(partition).or_default().stopped = Some(reason);
    }

    /// A source partition waits, or no longer.
    pub fn source_waiting(&self, topic: &str, partition: i32, reason: Option<Reason>) {
        let mut status = self.lock();
        let Some(p) = status.sources.get_mut(topic).and_then(|partitions| partitions.get_mut(&partition)) else { return };
        if let Some(reason) = reason.as_ref().filter(|r| p.waiting.as_ref().is_none_or(|w| w.what != r.what)) {
            tracing::warn!(code = reason.code, topic, partition, what = reason.what, hint = reason.hint, "source partition waits");
        }
        p.waiting = reason;
    }

    /// The first record of a source partition told what its values are written in.
    pub fn source_format(&self, topic: &str, partition: i32, format: &'static str) {
        let mut status = self.lock();
        let Some(p) = status.sources.get_mut(topic).and_then(|partitions| partitions.get_mut(&partition)) else { return };
        if p.format.as_deref() != Some(format) {
            tracing::info!(topic, partition, format, "format of the values");
            p.format = Some(format.to_owned());
        }
    }

    /// Column types of a table were inferred and are settled.
    pub fn inferred(&self, table: &str, types: &[(String, LogicalType)]) {
        let _ = self.lock().inferred.insert(table.to_owned(), types.to_vec());
    }

    /// The group gave or took partitions.
    pub fn rebalanced(&self) {
        metrics::counter!("landfall_rebalances_total").increment(1);
    }

    /// A replica is known.
    pub fn replica(&self, id: &str, table: &str, store: &str) {
        let mut status = self.lock();
        let replica = status.replicas.entry(id.to_owned()).or_default();
        (replica.table, replica.store) = (table.to_owned(), store.to_owned());
    }

    /// A log partition was assigned, or given away.
    pub fn log_assigned(&self, replica: &str, partition: i32, owned: bool) {
        let mut status = self.lock();
        let partitions = &mut status.replicas.entry(replica.to_owned()).or_default().partitions;
        if owned {
            drop(partitions.insert(partition, LogPartition::default()));
        } else {
            drop(partitions.remove(&partition));
            // What waits there is another owner's to tell.
            metrics::gauge!("landfall_lag_records", "replica" => replica.to_owned(), "partition" => partition.to_string()).set(0.0);
        }
    }

    /// How far a log partition is.
    pub fn position(&self, replica: &str, partition: i32, next: Option<i64>, end: i64) {
        let mut status = self.lock();
        let Some(p) = status.replicas.get_mut(replica).and_then(|r| r.partitions.get_mut(&partition)) else { return };
        (p.next, p.end) = (next, end.max(next.unwrap_or(0)));
        let lag = p.end - p.next.unwrap_or(0);
        metrics::gauge!("landfall_lag_records", "replica" => replica.to_owned(), "partition" => partition.to_string()).set(lag as f64);
    }

    /// A log partition stands still until an operator has acted.
    pub fn log_stopped(&self, replica: &str, partition: i32, reason: Reason) {
        tracing::error!(code = reason.code, replica, partition, what = reason.what, hint = reason.hint, "log partition stopped");
        let mut status = self.lock();
        status.replicas.entry(replica.to_owned()).or_default().partitions.entry(partition).or_default().stopped = Some(reason);
    }

    /// A log partition waits for its store, or no longer.
    pub fn log_waiting(&self, replica: &str, partition: i32, reason: Option<Reason>) {
        if let Some(reason) = &reason {
            tracing::warn!(code = reason.code, replica, partition, what = reason.what, "store does not answer, trying again");
        }
        let mut status = self.lock();
        if let Some(p) = status.replicas.get_mut(replica).and_then(|r| r.partitions.get_mut(&partition)) {
            p.waiting = reason;
        }
    }

    /// A store answered with an error.
    pub fn sink_error(&self, replica: &str, kind: &'static str) {
        metrics::counter!("landfall_sink_errors_total", "replica" => replica.to_owned(), "kind" => kind).increment(1);
    }

    /// A batch landed.
    pub fn landed(&self, replica: &str, table: &str, counts: &Counts, landing: Option<(usize, Duration)>) {
        let label = || replica.to_owned();
        metrics::counter!("landfall_rows_landed_total", "replica" => label(), "op" => "upsert").increment(counts.rows[0]);
        metrics::counter!("landfall_rows_landed_total", "replica" => label(), "op" => "delete").increment(counts.rows[1]);
        metrics::counter!("landfall_batches_landed_total", "replica" => label()).increment(counts.batches);
        if let Some((rows, took)) = landing {
            metrics::histogram!("landfall_land_seconds", "replica" => label()).record(took.as_secs_f64());
            metrics::histogram!("landfall_batch_rows", "replica" => label()).record(rows as f64);
            tracing::debug!(replica, rows, seconds = took.as_secs_f64(), "batch landed");
        }
        self.ignored(table, "repeat", counts.repeats);
        self.ignored(table, SUPERSEDED, counts.superseded);
        for (reason, changes) in ["missing", "refused"].into_iter().zip(counts.nulled) {
            if changes > 0 {
                metrics::counter!("landfall_changes_nulled_total", "replica" => label(), "reason" => reason).increment(changes);
            }
        }
        if counts.clamped > 0 {
            metrics::counter!("landfall_changes_clamped_total", "replica" => label()).increment(counts.clamped);
        }
        self.cut(table, counts.cut);
        let mut status = self.lock();
        let Some(r) = status.replicas.get_mut(replica) else { return };
        r.rows_landed += counts.rows[0];
        r.rows_deleted += counts.rows[1];
        r.batches += counts.batches;
        if counts.event_time > 0 {
            let seconds = (unix_micros() - counts.event_time).max(0) as f64 / 1e6;
            r.freshness_seconds = Some(seconds);
            metrics::gauge!("landfall_freshness_seconds", "replica" => label()).set(seconds);
        }
    }

    /// What a replica's state takes, as estimated.
    pub fn state(&self, replica: &str, bytes: f64, keys: f64) {
        metrics::gauge!("landfall_state_bytes", "replica" => replica.to_owned()).set(bytes.round());
        metrics::gauge!("landfall_state_keys", "replica" => replica.to_owned()).set(keys.round());
    }

    /// Landing into a store ended for good. Each of its replicas stands still by name, with all partitions that it has here.
    pub fn store_broken(&self, store: &str, reason: Reason) {
        tracing::error!(code = reason.code, store, what = reason.what, hint = reason.hint, "landing into the store ended");
        let mut status = self.lock();
        for (id, replica) in status.replicas.iter_mut().filter(|(_, r)| r.store == store) {
            metrics::counter!("landfall_sink_errors_total", "replica" => id.clone(), "kind" => reason.code.clone()).increment(1);
            for partition in replica.partitions.values_mut() {
                partition.stopped = Some(reason.clone());
            }
        }
        let _ = status.parts.insert(format!("store {store}"), Standstill { stopped: true, reason });
    }

    /// Normalising ended for good.
    pub fn normalise_broken(&self, reason: Reason) {
        tracing::error!(code = reason.code, what = reason.what, hint = reason.hint, "normalising ended");
        let _ = self.lock().parts.insert("normaliser".to_owned(), Standstill { stopped: true, reason });
    }

    /// A store waits before it can begin, or no longer.
    pub fn store_waiting(&self, store: &str, reason: Option<Reason>) {
        let part = format!("store {store}");
        match reason {
            Some(reason) => {
                tracing::warn!(code = reason.code, store, what = reason.what, hint = reason.hint, "landing into the store waits");
                let _ = self.lock().parts.insert(part, Standstill { stopped: false, reason });
            }
            None => drop(self.lock().parts.remove(&part)),
        }
    }

    /// What waits in memory in a stage grew by so many bytes, or shrank: several threads share the gauge.
    pub fn queue(&self, stage: &'static str, by: f64) {
        metrics::gauge!("landfall_queue_bytes", "stage" => stage).increment(by);
    }

    /// A replica's table was created or widened.
    pub fn migrated(&self, replica: &str, kind: &'static str) {
        metrics::counter!("landfall_schema_migrations_total", "replica" => replica.to_owned(), "kind" => kind).increment(1);
        tracing::info!(replica, kind, "replica table prepared");
    }
}

/// Wall time, for freshness and for people; nothing that decides order may use it (law 3).
#[allow(clippy::disallowed_methods, reason = "observing is the one place that may know the time of day")]
fn unix_micros() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX))
}
