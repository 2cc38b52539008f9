//! The command line on real parts: what a person sees of a topology, running or not, and the exit codes that scripts rely on.
//!
//! Texts are compared exactly in the unit tests of each command; here the commands meet real services and a real process.

use std::collections::BTreeSet;
use std::time::Duration;

use landfall::observe::catalog::METRICS;
use serde_json::Value;

use crate::harness::kafka::Record;
use crate::harness::process::{Options, Output};
use crate::harness::stores::Store;
use crate::harness::topology::{Stores, Topology};
use crate::harness::wait;
use crate::scene::{self, HEAL, SOURCE_PARTITIONS, Scene};
use crate::workload::{Mix, ORDERS};

/// How long a command may take.
const SOON: Duration = Duration::from_secs(45);

fn landfall(arguments: &[&str]) -> Output {
    Options::command(arguments).output(SOON)
}

fn document(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", output.text()))
}

/// The first thing that anybody tries: no services, every replica exact, every promise of the closing lines kept.
#[test]
fn the_demo_shows_exact_replicas() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("demo.duckdb");
    let demo = landfall(&["demo", "--file", file.to_str().expect("a path of ours")]);
    assert_eq!(demo.status.code(), Some(0), "{}", demo.text());
    assert_eq!(demo.stdout.matches("exact").count(), 3, "{}", demo.text());
    for kept in ["update ", "delete ", "new key ", "kept ", "poison "] {
        assert!(demo.stdout.contains(kept), "{kept}: {}", demo.text());
    }
}

#[test]
fn check_tells_every_problem_and_asks_around() {
    let topology = Topology::new("clicheck", &[ORDERS], Stores::ALL);
    let file = topology.file();
    let file = file.to_str().expect("a path of ours");
    let checked = landfall(&["check", file]);
    assert_eq!(checked.status.code(), Some(0), "{}", checked.text());
    assert!(checked.stdout.trim_end().ends_with("no problems"), "{}", checked.text());
    for replica in ["serving.orders", "warehouse.orders", "local.orders"] {
        assert!(checked.stdout.contains(replica), "{}", checked.text());
    }

    // Nobody has made the source topic: a run would read nothing.
    let online = landfall(&["check", file, "--online", "--output", "json"]);
    assert_eq!(online.status.code(), Some(1), "{}", online.text());
    let report = document(&online);
    let findings = report["online"].as_array().expect("what was asked");
    let of = |subject: &str| findings.iter().find(|f| f["subject"].as_str().is_some_and(|s| s.starts_with(subject))).expect(subject);
    assert_eq!(of(&format!("topic {}", topology.source(ORDERS)))["standing"], "error", "{report:#}");
    for store in ["store serving", "store warehouse", "store local"] {
        assert_eq!(of(store)["standing"], "ok", "{report:#}");
    }
    crate::harness::kafka::Kafka::new().create_topic(&topology.source(ORDERS), SOURCE_PARTITIONS, &[]);
    let online = wait::until(SOON, || {
        let online = landfall(&["check", file, "--online"]);
        if online.status.success() { Ok(()) } else { Err(online.text()) }
    });
    online.expect("everything is there now");

    let broken = topology.yaml().replace("source: shopdb", "source: shopbd").replace("type: duckdb", "type: duckbd");
    std::fs::write(topology.file(), broken).expect("our own file");
    let checked = landfall(&["check", file]);
    assert_eq!(checked.status.code(), Some(2), "{}", checked.text());
    for said in ["did you mean shopdb?", "did you mean duckdb?", "2 problems"] {
        assert!(checked.stdout.contains(said), "{said:?} is not said:\n{}", checked.text());
    }
}

#[test]
fn nobody_there_is_told_with_a_way_out() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port that nobody listens on").to_string();
    let status = landfall(&["status", "--http", &free]);
    assert_eq!((status.status.code(), status.stdout.as_str()), (Some(1), ""), "{}", status.text());
    assert!(status.stderr.contains(&format!("error: no landfall is running at {free}\n  hint: ")), "{}", status.text());
}

#[test]
fn a_running_topology_is_looked_at_from_every_side() {
    let mut scene = Scene::new("cli", 71, Mix::CALM, Stores::ALL);
    let mut process = scene.topology.run().start();
    let http = process.http(HEAL);
    let http = http.strip_prefix("http://").expect("an address");
    let (topic, file) = (scene.topology.source(ORDERS), scene.topology.file());
    let file = file.to_str().expect("a path of ours");
    let offset = scene.kafka.ends(&topic)[&0];
    let key = Some(br#"{"payload":{"id":1}}"#.to_vec());
    scene.kafka.produce(&[Record { topic: topic.clone(), partition: Some(0), key, value: Some(b"no json".to_vec()), ..Record::default() }]);
    scene.produce(60);
    scene.expect_caught_up(&mut process);

    // The picture follows the landing by a second.
    let seen = wait::until(HEAL, || {
        let status = document(&landfall(&["status", "--http", http, "--output", "json"]));
        let replicas = status["replicas"].as_object().expect("replicas").values();
        let current = |p: &Value| p["next"] == p["end"] && p["stopped"].is_null();
        let all = replicas.clone().count() == 6 && replicas.flat_map(|r| r["partitions"].as_object().expect("partitions").values()).all(current);
        if all && status["dead_letters"]["json.invalid"] == 1 { Ok(()) } else { Err(format!("{status:#}")) }
    });
    seen.unwrap_or_else(|why| panic!("{why}; the process's last lines:\n{}", process.tail()));
    let status = landfall(&["status", "--http", http]);
    for said in ["orders", "serving", "warehouse", "local", "up to date", "json.invalid"] {
        assert!(status.stdout.contains(said), "{said:?} is not said:\n{}", status.text());
    }

    metrics_are_those_of_the_list(&format!("http://{http}"));

    let rows = crate::reference::replica(&scene.kafka.read(&topic), &["id"]).0.len();
    for store in &scene.topology.stores {
        let table = match store {
            Store::Postgres { .. } => "orders".to_owned(),
            Store::ClickHouse { .. } => "orders_live".to_owned(),
            Store::DuckDb { schema, .. } => format!("\"{schema}\".orders"),
            Store::Latest { .. } => continue,
        };
        let count = format!("SELECT count(*) AS n FROM {table}");
        let answer = landfall(&["sql", store.id(), &count, file, "--http", http, "--output", "json"]);
        assert_eq!(answer.stdout.trim(), format!("{{\"n\":\"{rows}\"}}"), "{}: {}", store.id(), answer.text());
        let cut = landfall(&["sql", store.id(), &format!("SELECT * FROM {table}"), file, "--http", http, "--output", "csv", "--limit", "3"]);
        assert_eq!(cut.stdout.lines().count(), 4, "{}: {}", store.id(), cut.text());
        assert!(cut.stderr.contains("the first 3 rows"), "{}: {}", store.id(), cut.text());
        let written = landfall(&["sql", store.id(), &format!("DROP TABLE {table}"), file, "--http", http]);
        assert_eq!(written.status.code(), Some(1), "{} must not write: {}", store.id(), written.text());
    }

    let letter = format!("{topic}/0/{offset}");
    let listed = landfall(&["dead-letters", "list", file, "--reason", "json"]);
    assert!(listed.stdout.contains(&letter), "{}", listed.text());
    let shown = document(&landfall(&["dead-letters", "show", &letter, file, "--output", "json"]));
    assert_eq!((&shown["code"], &shown["offset"], &shown["excerpt"]), (&"json.invalid".into(), &offset.into(), &"no json".into()), "{shown:#}");
    let none = landfall(&["dead-letters", "list", file, "--table", "nothing"]);
    assert!(none.status.success() && none.stdout.starts_with("no open dead letters"), "{}", none.text());
    process.drain_and_exit(scene::DRAIN);
}

/// What `/metrics` shows is in the list, under its labels; what the list has and every run does is shown.
fn metrics_are_those_of_the_list(http: &str) {
    let address = http.strip_prefix("http://").and_then(|a| a.parse().ok()).expect("an address");
    // State is measured every few seconds.
    let measured = wait::until(HEAL, || {
        let text = String::from_utf8(landfall::cli::http::get(address, "/metrics", SOON).expect("answers").body).expect("text");
        if text.contains("landfall_state_keys{") { Ok(text) } else { Err("no figures of state") }
    });
    let text = measured.expect("state is measured");
    let mut shown = BTreeSet::new();
    for line in text.lines().filter(|l| !l.starts_with('#') && !l.is_empty()) {
        let (name, rest) = line.split_once(['{', ' ']).expect("a sample");
        let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).filter(|n| METRICS.iter().any(|m| m.name == *n));
        let labels = if line.contains('{') { rest.split('}').next().unwrap_or_default() } else { "" };
        let mut labels: Vec<&str> = labels.split("\",").filter_map(|l| l.split_once('=')).map(|(label, _)| label).filter(|l| *l != "le").collect();
        labels.sort_unstable();
        let _ = shown.insert((histogram.unwrap_or(name).to_owned(), labels.join(",")));
    }
    let listed: BTreeSet<(String, String)> = METRICS
        .iter()
        .map(|m| {
            let mut labels = m.labels.to_vec();
            labels.sort_unstable();
            (m.name.to_owned(), labels.join(","))
        })
        .collect();
    assert_eq!(shown.difference(&listed).collect::<Vec<_>>(), Vec::<&(String, String)>::new(), "these are shown and not in the list");
    // Nothing goes wrong in this run, nothing comes twice, and no time is finer than its column.
    let rare = [
        "landfall_sink_errors_total",
        "landfall_changes_ignored_total",
        "landfall_values_cut_total",
        "landfall_changes_nulled_total",
        "landfall_changes_clamped_total",
    ];
    let missing: Vec<_> = listed.difference(&shown).filter(|(name, _)| !rare.contains(&name.as_str())).collect();
    assert_eq!(missing, Vec::<&(String, String)>::new(), "these are in the list and never shown:\n{text}");
    for metric in METRICS {
        assert!(rare.contains(&metric.name) || text.contains(&format!("# HELP {} {}", metric.name, metric.help)), "{} is not described", metric.name);
    }
}
