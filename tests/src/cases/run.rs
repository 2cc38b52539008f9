//! All cases through the real program in one run: each table its own topic, every replica in every store, and what came of each.

use std::collections::BTreeMap;
use std::time::Duration;

use landfall::observe::Status;
use serde_json::json;

use super::file::{Case, STORES, Table};
use crate::harness::kafka::Kafka;
use crate::harness::registry::Registry;
use crate::harness::stack;
use crate::harness::stores::Store;
use crate::harness::topology::{Stores, Topology};
use crate::harness::wait;
use crate::scene::{self, DRAIN, Letter};

/// How long everything may take to land or to stand still.
const SETTLE: Duration = Duration::from_secs(180);

/// What came of a table in a store: nothing where it is right, else why not.
pub type Verdict = Option<String>;

/// The verdicts of every case: by table, the three stores in the order of [`STORES`].
pub type Verdicts = BTreeMap<String, Vec<[Verdict; 3]>>;

/// Runs the program over all cases.
pub fn run(cases: &BTreeMap<String, Case>) -> Verdicts {
    let topology = Topology::new("cases", &[], Stores::ALL);
    let kafka = Kafka::new();
    let tables: Vec<(String, &Table)> = cases.iter().flat_map(|(id, case)| case.tables.iter().enumerate().map(|(n, t)| (name(id, n), t))).collect();
    let ids = |n: usize| (2 * n as u32 + 1, 2 * n as u32 + 2);
    let schemas = tables.iter().enumerate().filter_map(|(n, (_, table))| {
        let ((key, value), schemas) = (ids(n), table.registered()?);
        Some([(key, schemas.0), (value, schemas.1)])
    });
    let registry = Registry::start(schemas.flatten().collect());
    std::fs::write(topology.file(), file(&topology, registry.url(), &tables)).expect("the test's folder can be written");
    for (n, (table, sent)) in tables.iter().enumerate() {
        let topic = topology.source(table);
        kafka.create_topic(&topic, 1, &[]);
        kafka.produce(&sent.produced(&topic, table, ids(n)));
    }
    let mut process = topology.run().start();
    let address = process.http(Duration::from_secs(30));
    let (mut waiting, mut ends) = (BTreeMap::new(), BTreeMap::new());
    let settled = wait::until(SETTLE, || {
        process.assert_running();
        waiting = unsettled(&kafka, &topology, &tables, &status(&address)?, &mut ends);
        if waiting.is_empty() { Ok(()) } else { Err(format!("{} tables are under way", waiting.len())) }
    });
    let stopped = status(&address).unwrap_or_default();
    process.drain_and_exit(DRAIN);
    drop(settled);
    let letters = scene::letters(&kafka, &topology);
    let judged = |(id, case): (&String, &Case)| {
        let tables = case.tables.iter().enumerate();
        let verdicts =
            tables.map(|(n, table)| STORES.map(|(store, at)| judge(&topology, &name(id, n), table, (store, at), &letters, &waiting, &stopped)));
        (id.clone(), verdicts.collect())
    };
    cases.iter().map(judged).collect()
}

fn name(id: &str, n: usize) -> String {
    format!("{}{}", id.replace('-', "_"), char::from(b'a' + n as u8))
}

/// The topology file; JSON is YAML.
fn file(topology: &Topology, registry: &str, tables: &[(String, &Table)]) -> String {
    let mut sources: Vec<serde_json::Value> = Vec::new();
    let mut source_of = |table: &Table| {
        let kind = match table.connector.as_str() {
            "postgresql" => "postgresql",
            "mysql" | "mariadb" => "mysql",
            "mongodb" => "mongodb",
            _ => "kafka",
        };
        let mut cdc = table.cdc.clone();
        let _ = cdc.insert("topic_prefix".to_owned(), json!(topology.prefix));
        let source = json!({ "type": kind, "change_signal": "debezium", "cdc": cdc });
        sources.iter().position(|s| *s == source).unwrap_or_else(|| {
            sources.push(source);
            sources.len() - 1
        })
    };
    let entry = |(name, table): &(String, &Table)| {
        let mut entry = table.declare.clone();
        let _ = entry.insert("id".to_owned(), json!(name));
        let _ = entry.insert("source".to_owned(), json!(format!("s{}", source_of(table))));
        let _ = entry.insert("topic".to_owned(), json!(topology.source(name)));
        let _ = entry.insert("replicas".to_owned(), STORES.iter().map(|(_, id)| json!({ "store": id })).collect());
        format!("  - {}\n", serde_json::Value::Object(entry))
    };
    let entries: String = tables.iter().map(entry).collect();
    let sources: String = sources
        .iter_mut()
        .enumerate()
        .map(|(n, source)| {
            source["id"] = json!(format!("s{n}"));
            format!("  - {source}\n")
        })
        .collect();
    format!(
        "topology: {}\nkafka: {{ brokers: [\"{}\"], registry: {{ url: \"{registry}\" }} }}\ndefaults: {{ log: {{ partitions: 1, replication: 1 }} }}\nsources:\n{sources}stores:\n{}tables:\n{entries}",
        topology.name,
        stack::kafka(),
        topology.stores_yaml(),
    )
}

/// What a process says of itself.
pub fn status(address: &str) -> Result<Status, String> {
    let mut answer = ureq::get(format!("{address}/api/status")).call().map_err(|e| e.to_string())?;
    let text = answer.body_mut().read_to_string().map_err(|e| e.to_string())?;
    serde_json::from_str(&text).map_err(|e| e.to_string())
}

/// Tables that are still to be read or landed, and where they are. `ends` keeps the ends of the logs to which nothing more comes.
fn unsettled<'t>(
    kafka: &Kafka,
    topology: &Topology,
    tables: &'t [(String, &Table)],
    status: &Status,
    ends: &mut BTreeMap<&'t str, i64>,
) -> BTreeMap<String, String> {
    let mut waiting = BTreeMap::new();
    for (table, sent) in tables {
        let source = status.sources.get(&topology.source(table)).and_then(|partitions| partitions.get(&0));
        if source.is_none_or(|s| s.stopped.is_none() && s.committed.unwrap_or(0) < sent.records.len() as i64) {
            let _ = waiting.insert(table.clone(), format!("its source is at {source:?}"));
            continue;
        }
        let log = topology.log(table);
        let end = *ends.entry(table).or_insert_with(|| kafka.ends(&log).get(&0).copied().unwrap_or(0));
        for (_, store) in STORES {
            let partition = status.replicas.get(&format!("{store}.{table}")).and_then(|r| r.partitions.get(&0));
            if end > 0 && partition.is_none_or(|p| p.stopped.is_none() && p.next.unwrap_or(0) < end) {
                let _ = waiting.insert(table.clone(), format!("its replica in {store} is at {partition:?} of {end}"));
            }
        }
    }
    waiting
}

fn judge(
    topology: &Topology,
    name: &str,
    table: &Table,
    (store, id): (&str, &str),
    letters: &[Letter],
    waiting: &BTreeMap<String, String>,
    status: &Status,
) -> Verdict {
    let topic = topology.source(name);
    let columns = match table.columns().and_then(|columns| Ok((columns, table.rows(store)?))) {
        Ok(columns) => columns,
        Err(why) => return Some(format!("the case's file: {why}")),
    };
    let (columns, expected) = columns;
    let stopped = |reason: &Option<landfall::observe::Reason>| reason.as_ref().map(|r| format!("it stopped: {}: {}", r.code, r.what));
    let source = status.sources.get(&topic).and_then(|p| p.get(&0)).and_then(|p| stopped(&p.stopped));
    let replica = status.replicas.get(&format!("{id}.{name}")).and_then(|r| r.partitions.get(&0)).and_then(|p| stopped(&p.stopped));
    if let Some(why) = source.or(replica) {
        return Some(why);
    }
    if let Some(why) = waiting.get(name) {
        return Some(format!("it does not come to rest: {why}"));
    }
    let replica = format!("{id}.{name}");
    let concerns = |l: &&Letter| l.topic == topic && l.replica.as_ref().is_none_or(|r| *r == replica);
    let mut found: Vec<(i64, String)> = letters.iter().filter(concerns).map(|l| (l.offset, l.code.clone())).collect();
    found.sort();
    found.dedup();
    let wanted = table.letters(store);
    if found != wanted {
        let reasons: Vec<&str> = letters.iter().filter(concerns).map(|l| l.reason.as_str()).collect();
        return Some(format!("dead letters are {found:?}, not {wanted:?} ({})", reasons.join("; ")));
    }
    let at: &Store = topology.store(id);
    let mut rows = at.view(name, &columns).map(|view| view.rows).unwrap_or_default();
    rows.sort();
    (rows != expected).then(|| format!("rows are {rows:?}, not {expected:?}"))
}
