//! A lander with nothing going wrong: one partition, state and sink in memory, records in the batches that a test asks for.

use std::sync::Arc;
use std::time::Duration;

use landfall::land::debounce::Debounce;
use landfall::land::fold::Config;
use landfall::land::partition::{LogBounds, Partition, Record as LogRecord, Settings, Step};
use landfall::sink::memory::{MemorySink, Store, Style};
use landfall::sink::{Sink, Target};
use landfall::state::SlotName;
use landfall::state::memory::MemoryState;

use crate::oracle::{Record, Values};
use crate::small;

/// What was landed.
pub(crate) struct Landed {
    /// The replica's rows at last.
    pub rows: Vec<(u8, Values)>,
    /// For each batch, the deltas: key, row, log offset of the version.
    pub batches: Vec<Vec<(u8, Option<Values>, i64)>>,
    /// Log offset and code of each dead letter.
    pub letters: Vec<(i64, &'static str)>,
}

/// Settings that never wait.
pub(crate) fn settings(fold: Config) -> Settings {
    let debounce = Debounce { quiet: Duration::ZERO, max_delay: Duration::ZERO, rows_max: 100, bytes_max: 1 << 20 };
    Settings { fold, debounce, refuse: None, partitions: 1, idle_check: Duration::from_secs(60) }
}

/// Lands a log; `ends(i)` tells whether a batch ends behind the record `i`.
pub(crate) fn land(config: Config, log: &[Record], ends: impl Fn(usize) -> bool) -> Landed {
    land_with(settings(config), log, ends, &mut MemoryState::default())
}

/// The same with settings and a state of the caller's.
pub(crate) fn land_with(settings: Settings, log: &[Record], ends: impl Fn(usize) -> bool, state: &mut MemoryState) -> Landed {
    land_replays(settings, log, |_| None, ends, state)
}

/// The same of a log in which some records are replayed dead letters.
pub(crate) fn land_replays(
    settings: Settings,
    log: &[Record],
    replayed: impl Fn(usize) -> Option<i64>,
    ends: impl Fn(usize) -> bool,
    state: &mut MemoryState,
) -> Landed {
    let name = SlotName { replica: "store.t".to_owned(), generation: 0, partition: 0 };
    let store = Store::new(Style::Transactional);
    let mut sink = MemorySink::new(store.clone());
    let mut partition = Partition::new(name, settings, 0, None, 1);
    let mut target = Target { replica: "store.t".to_owned(), table: "t".to_owned(), generation: 0, build: 0, schema: small::SCHEMA.clone() };
    let mut landed = Landed { rows: Vec::new(), batches: Vec::new(), letters: Vec::new() };
    let mut next = 0;
    let now = Duration::ZERO;
    loop {
        match partition.next(now, state).expect("goes on") {
            Step::Claim => {
                let claim = sink.claim(&target, 0).expect("nobody else is there");
                let bounds = LogBounds { begin: 0, end: log.len() as i64 };
                assert_eq!(partition.claimed(claim, bounds, state, now).expect("the log is whole"), 0);
            }
            Step::Contract(_) => partition.contract(*small::FINGERPRINT, (**small::SCHEMA).clone()).expect("the first schema"),
            Step::Prepare(schema) => {
                target.schema = Arc::new(schema.clone());
                sink.prepare(&target).expect("takes any schema");
                partition.prepared(schema);
            }
            Step::Land => {
                let row = |row: Option<&[u8]>| row.map(|row| small::read_row(row).1);
                let delta = |d: landfall::sink::Delta<'_>| (small::read_key(d.key), row(d.row), d.version as i64 - 1);
                landed.batches.push(partition.batch().deltas().map(delta).collect());
                landed.letters.extend(partition.letters().iter().map(|l| (l.offset, l.code)));
                sink.land(&target, partition.batch()).expect("nobody else is there");
                partition.landed(state, now).expect("memory");
            }
            Step::Check => unreachable!("no time passes"),
            Step::Commit(_) => {}
            Step::Wait(_) if next == log.len() => break,
            Step::Wait(_) => loop {
                let parts = small::Parts::new(&log[next]);
                let (value, provenance) = (parts.value(), small::provenance_of(&log[next], replayed(next)));
                let record = LogRecord { offset: next as i64, key: parts.key.as_deref(), value: &value, provenance: &provenance };
                partition.push(record, now).expect("readable");
                next += 1;
                if next == log.len() || ends(next - 1) {
                    break;
                }
            },
        }
    }
    let replicas = store.replicas();
    if let Some(replica) = replicas.get("store.t") {
        landed.rows.extend(replica.live().map(|(_, row)| small::read_row(row)));
        landed.rows.sort_unstable();
    }
    landed
}
