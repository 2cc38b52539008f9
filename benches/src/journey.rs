//! The whole journey: the real program, from a source topic that is full into an empty store.
//!
//! The clock runs from the first record read to the last one landed: starting the process and joining its groups is no part of a rate. What
//! lies in the store at the end, as number of rows and sum of ids, is compared with what the workload must leave behind.

#![allow(clippy::disallowed_methods, reason = "the rules of the core about clocks and threads do not bind what measures it")]

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use landfall::observe::Status;
use landfall::state::rocks::RocksState;

use crate::meter;
use crate::stores::{Store, address};
use crate::workload::{COLUMNS, PARTITIONS, Workload};

/// How long a journey may take at most.
const WAIT: Duration = Duration::from_secs(300);
/// How often the process is asked how far it is.
const LOOK: Duration = Duration::from_millis(10);

/// A topology of the table and one store, written to a folder.
pub fn topology(name: &str, prefix: &str, store: Store, folder: &Path, declared: bool) -> Result<std::path::PathBuf> {
    let mut text = format!(
        "topology: {name}\nkafka:\n  brokers: [\"{}\"]\ndefaults: {{ log: {{ partitions: {PARTITIONS}, replication: 1 }} }}\nsources:\n  \
         - {{ id: shop, type: postgresql, change_signal: debezium, cdc: {{ topic_prefix: {prefix} }} }}\nstores:\n  - {}\ntables:\n  \
         - id: orders\n    source: shop\n    schema: public\n    name: orders\n    replicas: [{{ store: store }}]\n",
        address("LANDFALL_TEST_KAFKA")?,
        store.entry(name, folder)?
    );
    if declared {
        let types: Vec<String> = COLUMNS.iter().map(|(column, ty)| format!("{column}: \"{ty}\"")).collect();
        text.push_str(&format!("    primary_key: [id]\n    columns: {{ types: {{ {} }} }}\n", types.join(", ")));
    }
    let path = folder.join(format!("{name}.yaml"));
    std::fs::write(&path, text)?;
    Ok(path)
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// What a journey showed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Changes a second.
    pub rate: f64,
    /// The program's own processor time, microseconds a change.
    pub cpu: f64,
    /// Of that, what the kernel worked.
    pub kernel: f64,
    /// Of that, what each kind of thread took.
    pub threads: BTreeMap<String, f64>,
    /// Processor time of the broker and of the store's server.
    pub others: [f64; 2],
    /// How much of the machine's processors the program, the broker and the store's server used together, 0 to 1.
    pub busy: f64,
    /// Rows of the average batch.
    pub batch: f64,
    /// Greatest resident memory, MiB.
    pub resident: f64,
    /// Bytes of state on disk a key.
    pub state: f64,
}

/// Runs the journey of a topology whose source topic holds the workload.
pub fn run(file: &Path, name: &str, store: Store, folder: &Path, workload: &Workload) -> Result<Outcome> {
    let http = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let state = folder.join(format!("{name}.state"));
    let log = std::fs::File::create(folder.join(format!("{name}.log")))?;
    let mut running = Running(
        Command::new(std::env::current_exe()?)
            .arg("run")
            .arg(file)
            .arg("--state-dir")
            .arg(&state)
            .args(["--http", &http.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?,
    );
    let process = running.0.id();
    let sum = |processes: Vec<u32>| processes.into_iter().map(meter::cpu_seconds).sum();
    let cpu = || {
        let broker = meter::processes(|line| line.contains(" kafka.Kafka "));
        (meter::cpu_seconds(process), [sum(broker), sum(meter::processes(|line| store.is_server(line)))])
    };
    let mut look = || -> Result<Option<Status>> {
        ensure!(running.0.try_wait()?.is_none(), "the program ended; its log is {}", folder.join(format!("{name}.log")).display());
        let Ok(mut answer) = ureq::get(format!("http://{http}/api/status")).call() else { return Ok(None) };
        Ok(Some(serde_json::from_str(&answer.body_mut().read_to_string()?)?))
    };
    let deadline = Instant::now() + WAIT;
    let mut until = |reached: &dyn Fn(&Status) -> bool| -> Result<Instant> {
        loop {
            if look()?.is_some_and(|status| reached(&status)) {
                return Ok(Instant::now());
            }
            ensure!(Instant::now() < deadline, "the journey does not end; see {}", folder.join(format!("{name}.log")).display());
            std::thread::sleep(LOOK);
        }
    };
    let begun = until(&|status| status.changes > 0)?;
    let (before, kernel, threads) = (cpu(), meter::kernel_seconds(process), meter::cpu_by_thread(process));
    let landed = |status: &Status| status.replicas.values().flat_map(|r| r.partitions.values()).filter_map(|p| p.next).sum::<i64>();
    let ended = until(&|status| landed(status) >= workload.events as i64)?;
    let after = cpu();
    let kernel_after = meter::kernel_seconds(process);
    let mut threads_after = meter::cpu_by_thread(process);
    let status = look()?.context("the program answers")?;
    let (rows, batches) = status.replicas.values().fold((0, 0), |(rows, batches), r| (rows + r.rows_landed + r.rows_deleted, batches + r.batches));
    let resident = meter::resident_peak(process);
    let stopped = Command::new("kill").arg(process.to_string()).status()?;
    ensure!(stopped.success() && running.0.wait()?.success(), "the program did not drain");
    let found = store.content(name, folder)?;
    if found != (workload.rows, workload.sum) {
        bail!("{name}: rows and sum of ids are {found:?}, not {:?}", (workload.rows, workload.sum));
    }
    let micros = |from: f64, to: f64| (to - from) * 1e6 / workload.events as f64;
    for (name, seconds) in &mut threads_after {
        *seconds = micros(threads.get(name).copied().unwrap_or_default(), *seconds);
    }
    let wall = (ended - begun).as_secs_f64();
    let used: f64 = after.0 - before.0 + after.1.iter().zip(before.1).map(|(to, from)| to - from).sum::<f64>();
    Ok(Outcome {
        busy: used / wall / std::thread::available_parallelism()?.get() as f64,
        kernel: micros(kernel, kernel_after),
        threads: threads_after,
        batch: rows as f64 / batches.max(1) as f64,
        rate: workload.events as f64 / wall,
        cpu: micros(before.0, after.0),
        others: [0, 1].map(|i| micros(before.1[i], after.1[i])),
        resident,
        state: RocksState::open_directory(&state).context("the state of the journey")?.bytes() as f64 / workload.keys as f64,
    })
}
