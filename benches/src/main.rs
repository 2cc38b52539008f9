//! `make bench`: lines `name value unit`, in the order of one event's journey.
//!
//! Budgets (issue "The journey, end to end"): decode at least 300 000 events/s per core; a journey at least half of its slowest stage run
//! alone; at most 15 µs of the program's own processor time a change. `LANDFALL_BENCH_EVENTS` sets the number of events,
//! `LANDFALL_BENCH_STORES` names the stores, `LANDFALL_BENCH_PART=stages|journey` runs one half.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use landfall::state::rocks::RocksState;
use landfall_benches::stores::{self, Store};
use landfall_benches::workload::Workload;
use landfall_benches::{journey, meter, stages};
use landfall_topology::{Plan, check, environment, load};

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

fn plan(file: &std::path::Path) -> Result<Plan> {
    let checked = check(&load(&[file])?, &environment);
    checked.plan.with_context(|| format!("{:?}", checked.issues))
}

fn bench() -> Result<()> {
    let events = std::env::var("LANDFALL_BENCH_EVENTS").map_or(Ok(400_000), |n| n.parse())?;
    let wanted = std::env::var("LANDFALL_BENCH_STORES").ok();
    let part = std::env::var("LANDFALL_BENCH_PART").ok();
    let is = |name: &str| part.as_deref().is_none_or(|p| p == name);
    let chosen: Vec<Store> = Store::ALL.into_iter().filter(|s| wanted.as_deref().is_none_or(|w| w.contains(s.name()))).collect();
    let folder = tempfile::Builder::new().prefix("landfall-bench-").tempdir()?;
    let mark = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() % 100_000_000;
    let prefix = format!("bench{mark}");

    let workload = Workload::new(events, false);
    meter::line("workload.events", workload.events as f64, "changes");
    meter::line("workload.envelope", workload.value_bytes(), "bytes");

    let any = journey::topology(&format!("{prefix}plan"), &prefix, Store::DuckDb, folder.path(), true)?;
    let kafka = plan(&any)?.kafka;
    let source = format!("{prefix}.public.orders");

    let mut slowest = Vec::new();
    let mut batches = Vec::new();
    let mut log = stages::Log::default();
    if is("stages") {
        let (decode, _) = meter::rate("decode", workload.events, || stages::decode(&workload, true));
        slowest.push(decode);
        let long = Workload::new(events / 4, true);
        meter::line("workload.with_schema.envelope", long.value_bytes(), "bytes");
        let _ = meter::rate("decode.with_schema", long.events, || stages::decode(&long, false)).1?;
        drop(long);
        let (normalise, made) = meter::rate("normalise", workload.events, || stages::normalise(&workload, None));
        slowest.push(normalise);
        assert_eq!(made?, workload.events, "every event is one change");
        let _ = stages::normalise(&workload, Some(&mut log))?;
        meter::line("workload.log_record", log.value_bytes(), "bytes");
        let topic = format!("{prefix}log");
        stages::make_topic(&kafka, &topic)?;
        let (write, sent) = meter::rate("log_write", workload.events, || stages::write_log(&kafka, &topic, &log));
        let (read, seen) = meter::rate("log_read", sent?, || stages::read(&kafka, &topic, workload.events));
        let _ = seen?;
        slowest.extend([write, read]);
        let mut state = RocksState::open_directory(&folder.path().join("stages.state"))?;
        let (fold, folded) = meter::rate("fold", workload.events, || stages::fold(&log, &mut state));
        slowest.push(fold);
        batches = folded?;
    }
    stages::make_topic(&kafka, &source)?;
    if is("stages") {
        let _ = meter::rate("source_write", workload.events, || stages::write_source(&kafka, &source, &workload)).1?;
        let (read, seen) = meter::rate("source_read", workload.events, || stages::read(&kafka, &source, workload.events));
        let _ = seen?;
        slowest.push(read);
    } else {
        let _ = stages::write_source(&kafka, &source, &workload)?;
    }
    for store in chosen {
        let mut slowest = slowest.clone();
        if is("stages") {
            let name = format!("{prefix}alone{}", store.name());
            store.database(&name, true)?;
            let file = journey::topology(&name, &prefix, store, folder.path(), true)?;
            let runtimes = landfall::run::stores(&plan(&file)?)?;
            let runtime = runtimes.first().context("one store")?;
            let target = stores::target(log.schema.clone().context("a schema")?.1);
            let (land, landed) = meter::rate(&format!("{}.upsert", store.name()), workload.events, || stores::land(runtime, &target, &mut batches));
            landed?;
            slowest.push(land);
            store.database(&name, false)?;
        }
        if is("journey") {
            let name = format!("{prefix}{}", store.name());
            store.database(&name, true)?;
            let file = journey::topology(&name, &prefix, store, folder.path(), true)?;
            let outcome = journey::run(&file, &name, store, folder.path(), &workload)?;
            let line = |what: &str, value, unit| meter::line(&format!("{}.{what}", store.name()), value, unit);
            line("journey", outcome.rate, "changes/s");
            if let Some(slowest) = slowest.iter().copied().reduce(f64::min) {
                line("journey_of_slowest_stage", 100.0 * outcome.rate / slowest, "%");
            }
            line("cpu", outcome.cpu, "us/change");
            line("cpu_broker", outcome.others[0], "us/change");
            if store.process().is_some() {
                line("cpu_store", outcome.others[1], "us/change");
            }
            line("resident", outcome.resident, "MiB");
            line("state", outcome.state, "bytes/key");
            store.database(&name, false)?;
        }
    }
    Ok(())
}
