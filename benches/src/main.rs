//! `make bench`: lines `name value unit`, in the order of one event's journey.
//!
//! Budgets: decode at least 400 000 events/s per core, and a million of Avro; a journey at least half of its slowest stage run
//! alone; at most 15 µs of the program's own processor time a change; no allocation for a column of a decoded event. `busy` is how much of the
//! machine the program, broker and store used together: near 100 it is the machine that a journey is bound by. `LANDFALL_BENCH_EVENTS` sets the
//! number of events, `LANDFALL_BENCH_STORES` names the stores, `LANDFALL_BENCH_PART=stages|journey` runs one half, and `core` what needs no services.

#![allow(clippy::disallowed_methods, reason = "the rules of the core about clocks do not bind what measures it")]

use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use landfall::sink::Batch;
use landfall::state::rocks::RocksState;
use landfall_benches::journey::{self, Outcome};
use landfall_benches::stores::{self, Store};
use landfall_benches::workload::{Events, Workload};
use landfall_benches::{allocations, avro, meter, stages};
use landfall_schemas::TableSchema;
use landfall_topology::plan::KafkaPlan;
use landfall_topology::{Plan, check, environment, load};
use tempfile::TempDir;

/// Counted, since how often an event allocates is measured.
#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

fn main() -> ExitCode {
    // The journey runs the real program as a process of its own: this binary is that, too.
    if std::env::args().nth(1).as_deref() == Some("run") {
        return landfall::cli::main();
    }
    match bench() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn plan(file: &Path) -> Result<Plan> {
    let checked = check(&load(&[file])?, &environment);
    checked.plan.with_context(|| format!("{:?}", checked.issues))
}

/// Where a bench runs, and what it measures.
struct Bench {
    folder: TempDir,
    /// Begins every name that this run makes in Kafka and in the stores.
    prefix: String,
    kafka: KafkaPlan,
    workload: Workload,
}

fn bench() -> Result<()> {
    let events = std::env::var("LANDFALL_BENCH_EVENTS").map_or(Ok(400_000), |n| n.parse())?;
    let wanted = std::env::var("LANDFALL_BENCH_STORES").ok();
    let part = std::env::var("LANDFALL_BENCH_PART").ok();
    let is = |name: &str| part.as_deref().is_none_or(|p| p == name);
    let workload = Workload::new(events, false);
    meter::line("workload.events", workload.events as f64, "changes");
    meter::line("workload.envelope", workload.value_bytes(), "bytes");
    if part.as_deref() == Some("core") {
        let _ = core(&workload)?;
        let _ = fold(&logged(&workload)?, events, tempfile::tempdir()?.path())?;
        return Ok(());
    }
    let folder = tempfile::Builder::new().prefix("landfall-bench-").tempdir()?;
    let prefix = format!("bench{}", SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() % 100_000_000);
    let kafka = plan(&journey::topology(&format!("{prefix}plan"), &prefix, Store::DuckDb, folder.path(), true)?)?.kafka;
    let bench = Bench { folder, prefix, kafka, workload };
    let source = bench.write_source()?;
    let mut stages = if is("stages") { Some(bench.stages(&source)?) } else { None };
    for store in Store::ALL.into_iter().filter(|s| wanted.as_deref().is_none_or(|w| w.contains(s.name()))) {
        let alone = match &mut stages {
            Some(stages) => Some(stages.slowest.min(bench.upsert(store, stages)?)),
            None => None,
        };
        if is("journey") {
            bench.journey(store, alone)?;
        }
    }
    Ok(())
}

/// The stages that need no service; the rate of the slower one of those that a journey passes through.
fn core(workload: &Workload) -> Result<f64> {
    let decode = meter::best("decode", workload.events, |_| stages::decode(workload, true))?;
    let count = |name: &str, value| meter::line(&format!("decode.{name}.allocations"), value, "allocations/event");
    count("json", stages::allocations(&workload.partitions, || stages::decoder(true))?);
    let long = Workload::new(workload.events / 4, true);
    meter::line("workload.with_schema.envelope", long.value_bytes(), "bytes");
    let _ = meter::best("decode.with_schema", long.events, |_| stages::decode(&long, false))?;
    count("with_schema", stages::allocations(&long.partitions, || stages::decoder(false))?);
    drop(long);
    let avro = avro::events(workload.events);
    meter::line("workload.avro.envelope", bytes(&avro) as f64 / workload.events as f64, "bytes");
    let _ = meter::best("decode.avro", workload.events, |_| stages::decode_with(&avro, avro::decoder))?;
    count("avro", stages::allocations(&avro, avro::decoder)?);
    drop(avro);
    let normalise = meter::best("normalise", workload.events, |_| stages::normalise(workload, None))?;
    Ok(decode.min(normalise))
}

fn bytes(partitions: &[Events]) -> usize {
    partitions.iter().flat_map(Events::iter).map(|(_, value)| value.len()).sum()
}

/// The change log of the workload.
fn logged(workload: &Workload) -> Result<stages::Log> {
    let mut log = stages::Log::default();
    let made = stages::normalise(workload, Some(&mut log))?;
    ensure!(made == workload.events, "{made} changes came of {} events", workload.events);
    meter::line("workload.log_record", log.value_bytes(), "bytes");
    Ok(log)
}

/// Folds a log, with state under `folder`. Rate and batches.
fn fold(log: &stages::Log, events: usize, folder: &Path) -> Result<(f64, Vec<Vec<Batch>>)> {
    let mut batches = Vec::new();
    let rate = meter::best("fold", events, |round| {
        batches = stages::fold(log, &mut RocksState::open_directory(&folder.join(format!("stages{round}.state")))?)?;
        anyhow::Ok(())
    })?;
    Ok((rate, batches))
}

/// What the stages showed that are the same for every store.
struct Stages {
    /// Rate of the slowest.
    slowest: f64,
    schema: TableSchema,
    batches: Vec<Vec<Batch>>,
}

impl Bench {
    fn write_source(&self) -> Result<String> {
        let topic = format!("{}.public.orders", self.prefix);
        stages::make_topic(&self.kafka, &topic)?;
        let _ = stages::write_source(&self.kafka, &topic, &self.workload)?;
        Ok(topic)
    }

    /// Each stage before the store, alone.
    fn stages(&self, source: &str) -> Result<Stages> {
        let (workload, kafka, events) = (&self.workload, &self.kafka, self.workload.events);
        let core = core(workload)?;
        let log = logged(workload)?;
        let topics = [0, 1].map(|round| format!("{}log{round}", self.prefix));
        for topic in &topics {
            stages::make_topic(kafka, topic)?;
        }
        let write = meter::best("log_write", events, |round| stages::write_log(kafka, &topics[round], &log))?;
        let read = meter::best("log_read", events, |round| stages::read(kafka, &topics[round], events))?;
        let source_read = meter::best("source_read", events, |_| stages::read(kafka, source, events))?;
        let (fold, batches) = fold(&log, events, self.folder.path())?;
        let slowest = [core, write, read, source_read, fold].into_iter().fold(f64::INFINITY, f64::min);
        Ok(Stages { slowest, schema: log.schema.context("a log has a schema")?.1, batches })
    }

    /// The same rows into an empty store, with nothing before it.
    fn upsert(&self, store: Store, stages: &mut Stages) -> Result<f64> {
        let names = [0, 1].map(|round| format!("{}alone{}{round}", self.prefix, store.name()));
        for name in &names {
            store.database(name, true)?;
        }
        let target = stores::target(stages.schema.clone());
        let rate = meter::best(&format!("{}.upsert", store.name()), self.workload.events, |round| {
            let file = journey::topology(&names[round], &self.prefix, store, self.folder.path(), true)?;
            let runtimes = landfall::run::stores(&plan(&file)?)?;
            stores::land(runtimes.first().context("one store")?, &target, &mut stages.batches)
        })?;
        for name in &names {
            store.database(name, false)?;
        }
        Ok(rate)
    }

    /// The whole journey; of two, the faster one.
    fn journey(&self, store: Store, alone: Option<f64>) -> Result<()> {
        let mut best: Option<Outcome> = None;
        for round in 0..2 {
            let name = format!("{}{}{round}", self.prefix, store.name());
            store.database(&name, true)?;
            let file = journey::topology(&name, &self.prefix, store, self.folder.path(), true)?;
            let outcome = journey::run(&file, &name, store, self.folder.path(), &self.workload)?;
            store.database(&name, false)?;
            best = best.into_iter().chain([outcome]).max_by(|a, b| a.rate.total_cmp(&b.rate));
        }
        let Some(best) = best else { return Ok(()) };
        let line = |what: &str, value, unit| meter::line(&format!("{}.{what}", store.name()), value, unit);
        line("journey", best.rate, "changes/s");
        if let Some(alone) = alone {
            line("journey_of_slowest_stage", 100.0 * best.rate / alone, "%");
        }
        line("cpu", best.cpu, "us/change");
        line("cpu.in_kernel", best.kernel, "us/change");
        for (thread, micros) in best.threads.iter().filter(|(_, micros)| **micros >= 0.05) {
            line(&format!("cpu.{thread}"), *micros, "us/change");
        }
        line("cpu_broker", best.others[0], "us/change");
        if store != Store::DuckDb {
            line("cpu_store", best.others[1], "us/change");
        }
        line("busy", 100.0 * best.busy, "%");
        line("batch", best.batch, "rows");
        line("resident", best.resident, "MiB");
        line("state", best.state, "bytes/key");
        Ok(())
    }
}
