//! `landfall demo`: the whole journey without any service.
//!
//! An in-process broker (librdkafka's mock cluster) holds a shop's Debezium events; the same code as `landfall run` normalises and lands them
//! into a DuckDB file that is left behind. The closing screen compares every row with what the shop's own books say.

#![allow(clippy::disallowed_methods, reason = "the demo tells how long it took")]

mod shop;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use landfall_topology::{Document, Plan, environment};
use rdkafka::ClientConfig;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use super::Failure;
use crate::dead_letter::Letter;
use crate::log::contracts::read_to_end;
use crate::log::murmur2;
use crate::log::topics::Identity;
use crate::observe::Observer;
use crate::run::{self, Options, Shared, Stopping};
use shop::{Shop, Table};

/// Partitions of every input topic, and of every log.
const PARTITIONS: i32 = 2;
/// The mock broker keeps 5 MiB a partition and then forgets: far below it, nothing can be lost unseen.
const PARTITION_BYTES_MAX: usize = 4 << 20;
/// The demo takes some ten seconds; a machine that needs longer than this has another problem.
const PATIENCE: Duration = Duration::from_secs(120);

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The DuckDB file to leave behind; one that is there is replaced
    #[arg(long, default_value = "landfall-demo.duckdb")]
    pub file: PathBuf,
}

/// Runs the demo.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    // The bar is the story here; whoever wants the log asks for it.
    if std::env::var_os("LANDFALL_LOG").is_some() {
        super::run::log();
    }
    let begun = Instant::now();
    let shop = Shop::open();
    println!("Landfall demo: {} Debezium events of a shop, through an in-process Kafka, into DuckDB.\n", shop.records.len());
    remove(&arguments.file)?;
    let state = tempdir(&arguments.file);
    let cluster = MockCluster::new(1)?;
    let plan = Arc::new(plan(&cluster.bootstrap_servers(), &arguments.file)?);
    create_topics(&cluster, &plan, &shop)?;
    let sizes = produce(&cluster.bootstrap_servers(), &shop)?;
    let mut shared = Shared::new(Arc::clone(&plan), Observer::new(&plan.topology));
    shared.identity = Identity::Names;
    let stopping = Stopping::default();
    let options = Options { normalise: true, land: true, state: state.clone() };
    let landed = std::thread::scope(|scope| {
        let runner = scope.spawn(|| run::run(&shared, &options, &stopping));
        let landed = watch(&shared.observer, &sizes, &stopping);
        stopping.set();
        match runner.join() {
            Ok(outcome) => outcome.map(|()| landed).map_err(Failure::from),
            Err(_) => Err(Failure::Other(anyhow::anyhow!("the run ended in a panic"))),
        }
    })?;
    let letters = letters(&plan)?;
    let verdict = close(arguments, &shop, &letters, &shared.observer, landed, begun.elapsed());
    drop(std::fs::remove_dir_all(&state));
    verdict
}

fn remove(file: &Path) -> Result<(), Failure> {
    for suffix in ["", ".wal", ".lock"] {
        let mut name = file.as_os_str().to_owned();
        name.push(suffix);
        match std::fs::remove_file(PathBuf::from(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// State of a demo is worth nothing once it is over: it stands beside the file and goes with the process.
fn tempdir(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".state-{}", std::process::id()));
    PathBuf::from(name)
}

/// The demo's topology. The mock broker waits 3 s for the first members of a group and forgets a member that is silent for its session
/// meanwhile, so the session is a little longer than that.
fn plan(brokers: &str, file: &Path) -> Result<Plan, Failure> {
    let path = serde_json::Value::from(file.to_string_lossy()).to_string();
    let tables: String = ["customers", "products", "orders"]
        .iter()
        .map(|t| {
            format!("  - {{ id: {t}, source: shopdb, schema: public, name: {t}, log: {{ partitions: {PARTITIONS} }}, push_debounce_quiet: 100ms }}\n")
        })
        .collect();
    let text = format!(
        "topology: demo\nkafka:\n  brokers: [\"{brokers}\"]\n  client: {{ session.timeout.ms: \"4500\", heartbeat.interval.ms: \"200\" }}\n\
         sources:\n  - {{ id: shopdb, type: postgresql, change_signal: debezium, cdc: {{ topic_prefix: shop }} }}\n\
         stores:\n  - {{ id: local, type: duckdb, path: {path} }}\ntables:\n{tables}"
    );
    let checked = landfall_topology::check(&[Document::new("demo.yaml", text)], &environment);
    checked.plan.ok_or_else(|| {
        Failure::Other(anyhow::anyhow!("the demo's own topology: {}", checked.issues.iter().map(ToString::to_string).collect::<String>()))
    })
}

fn create_topics(cluster: &MockCluster<'_, impl rdkafka::ClientContext>, plan: &Plan, shop: &Shop) -> Result<(), Failure> {
    for topic in [plan.control_topic(), plan.schemas_topic(), plan.dead_letters_topic()] {
        cluster.create_topic(&topic, 1, 1)?;
    }
    for (table, input) in plan.tables.iter().zip(&shop.tables) {
        cluster.create_topic(input.topic, PARTITIONS, 1)?;
        cluster.create_topic(&table.log.topic, PARTITIONS, 1)?;
    }
    Ok(())
}

/// Produces the history and returns how many records each table has.
fn produce(brokers: &str, shop: &Shop) -> Result<BTreeMap<&'static str, u64>, Failure> {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("compression.type", "zstd")
        .set("linger.ms", "50")
        .set("queue.buffering.max.kbytes", "131072")
        .create()?;
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for record in &shop.records {
        let partition = murmur2::partition(record.key.as_bytes(), PARTITIONS.cast_unsigned());
        let mut out: BaseRecord<'_, str, str> = BaseRecord::to(record.topic).partition(partition).key(&record.key);
        if let Some(value) = &record.value {
            out = out.payload(value);
        }
        producer.send(out).map_err(|(error, _)| error)?;
        *counts.entry(record.topic).or_default() += 1;
    }
    producer.flush(Duration::from_secs(30))?;
    // Compressed, the history is a small part of what the mock broker keeps; counting what is there proves it.
    let reader: rdkafka::consumer::BaseConsumer = ClientConfig::new().set("bootstrap.servers", brokers).set("group.id", "demo").create()?;
    for (topic, count) in &counts {
        let mut kept = 0;
        for partition in 0..PARTITIONS {
            let (low, high) = rdkafka::consumer::Consumer::fetch_watermarks(&reader, topic, partition, Duration::from_secs(10))?;
            kept += (high - low).cast_unsigned();
        }
        if kept != *count {
            return Err(Failure::Other(anyhow::anyhow!(
                "the mock broker kept {kept} of {count} records of {topic} ({PARTITION_BYTES_MAX} bytes a partition)"
            )));
        }
    }
    Ok(counts)
}

/// Shows the replicas filling until everything has landed; false where something stands still or time runs out.
fn watch(observer: &Observer, sizes: &BTreeMap<&'static str, u64>, stopping: &Stopping) -> bool {
    let total: u64 = sizes.values().sum();
    let bar = ProgressBar::new(total);
    bar.set_style(
        ProgressStyle::with_template("  {bar:40.cyan/blue} {pos:>6}/{len} events  {per_sec:>14}  {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let deadline = Instant::now() + PATIENCE;
    let mut done = false;
    while !done && Instant::now() < deadline && !stopping.wait(Duration::from_millis(50)) {
        let status = observer.status();
        let read: i64 = status.sources.values().flat_map(|p| p.values()).filter_map(|p| p.committed).sum();
        bar.set_position(read.cast_unsigned());
        let rows: u64 = status.replicas.values().map(|r| r.rows_landed).sum();
        bar.set_message(format!("{rows} rows landed"));
        let stopped = status.sources.values().flat_map(|p| p.values()).any(|p| p.stopped.is_some())
            || status.replicas.values().flat_map(|r| r.partitions.values()).any(|p| p.stopped.is_some());
        if stopped {
            break;
        }
        let owned: usize = status.replicas.values().map(|r| r.partitions.len()).sum();
        let caught_up = status.replicas.values().all(|r| r.lag() == 0 && !r.partitions.is_empty());
        done = read.cast_unsigned() == total && owned == sizes.len() * PARTITIONS.cast_unsigned() as usize && caught_up;
        // The log's ends are looked at once a second: rows must cover every change before lag counts as zero.
        done = done
            && status.replicas.values().map(|r| r.partitions.values().map(|p| p.next.unwrap_or(0)).sum::<i64>()).sum::<i64>().cast_unsigned()
                == status.changes;
    }
    bar.finish();
    done
}

fn letters(plan: &Plan) -> Result<Vec<Letter>, Failure> {
    let mut letters = Vec::new();
    read_to_end(&plan.kafka, &plan.dead_letters_topic(), |_, value| letters.extend(value.and_then(|v| serde_json::from_slice::<Letter>(v).ok())))?;
    Ok(letters)
}

/// The closing screen: every replica against the shop's books, three stories, and what to type next.
fn close(arguments: &Arguments, shop: &Shop, letters: &[Letter], observer: &Observer, landed: bool, took: Duration) -> Result<(), Failure> {
    let connection = duckdb::Connection::open_with_flags(&arguments.file, duckdb::Config::default().access_mode(duckdb::AccessMode::ReadOnly)?)?;
    println!();
    let mut right = landed;
    let mut table = comfy_table::Table::new();
    let _ = table.load_preset(comfy_table::presets::UTF8_HORIZONTAL_ONLY).set_header(["replica", "rows", "expected", "differing", ""]);
    for expected in &shop.tables {
        let (rows, differing) = compare(&connection, expected)?;
        let good = differing == 0 && rows == expected.rows.len();
        right &= good;
        let _ = table.add_row([
            format!("local.{}", expected.name),
            rows.to_string(),
            expected.rows.len().to_string(),
            differing.to_string(),
            (if good { "✓ exact" } else { "✗ wrong" }).to_owned(),
        ]);
    }
    println!("{table}\n");
    let text = |sql: String| -> String { connection.query_row(&sql, [], |row| row.get::<_, String>(0)).unwrap_or_else(|_| "no row".to_owned()) };
    let story = &shop.story;
    println!(
        "  update   order {}: status went {} → {}; the replica says {}",
        story.updated.0,
        story.updated.1,
        story.updated.2,
        text(format!("SELECT status FROM orders WHERE id = {}", story.updated.0))
    );
    println!("  delete   order {}: {}", story.deleted, text(format!("SELECT status FROM orders WHERE id = {}", story.deleted)));
    println!(
        "  new key  customer {} became {}: {}",
        story.moved.0,
        story.moved.1,
        text(format!("SELECT string_agg(id::VARCHAR, ', ') FROM customers WHERE id IN ({}, {})", story.moved.0, story.moved.1))
    );
    println!(
        "  kept     product {}: its update did not send the manual of {} characters; the replica has {}",
        story.kept.0,
        story.kept.1,
        text(format!("SELECT length(manual)::VARCHAR FROM products WHERE id = {}", story.kept.0))
    );
    for letter in letters {
        println!(
            "  poison   {} partition {} offset {} → topic demo.dead-letters: {} ({})",
            letter.topic, letter.partition, letter.offset, letter.code, letter.reason
        );
    }
    right &= letters.len() == 1;
    println!("\n  {} events in {:.1} s. Look around:\n", shop.records.len(), took.as_secs_f64());
    // By the name that it was called by, so that the line can be typed as it stands: a program just built is on nobody's PATH.
    let program = std::env::args().next().unwrap_or_else(|| "landfall".to_owned());
    println!("    {program} sql {} \"SELECT status, count(*), sum(total) FROM orders GROUP BY ALL\"\n", arguments.file.display());
    if right {
        return Ok(());
    }
    for (replica, status) in observer.status().replicas {
        for (partition, p) in status.partitions {
            if let Some(reason) = p.stopped.or(p.waiting) {
                eprintln!("  {replica} partition {partition}: {} {}", reason.code, reason.what);
            }
        }
    }
    Err(Failure::Other(anyhow::anyhow!("the replicas are not what the shop's books say")))
}

fn compare(connection: &duckdb::Connection, expected: &Table) -> Result<(usize, usize), Failure> {
    let mut statement = connection.prepare(&format!("SELECT {} FROM {}", expected.expressions(), expected.name))?;
    let width = expected.rows.values().next().map_or(0, Vec::len);
    let (mut rows, mut differing) = (0, 0);
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let values: Vec<Option<String>> = (0..width).map(|i| row.get(i)).collect::<Result<_, _>>()?;
        let id: i64 = values.first().and_then(|v| v.as_deref()).and_then(|v| v.parse().ok()).unwrap_or_default();
        rows += 1;
        differing += usize::from(expected.rows.get(&id) != Some(&values));
    }
    Ok((rows, differing))
}
