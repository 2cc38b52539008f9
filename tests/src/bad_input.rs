//! Bad input: for each a clear error or a dead letter, nothing lost, and neighbours go on (issue "The journey", Must show 6).
//!
//! A test says what a person would see: the exit code and text of a command, a reason by name in the status, or a dead letter with its
//! position. Whatever happens to the bad thing, the table beside it must keep landing.

use std::time::Duration;

use crate::harness::kafka::{Kafka, Record};
use crate::harness::process::{Options, Process};
use crate::harness::stores::{ClickHouse, Kind, Postgres, Store, columns};
use crate::harness::topology::{Stores, Topology};
use crate::harness::wait;
use crate::scene::{self, HEAL, Letter, SOURCE_PARTITIONS, Scene};
use crate::workload::{CUSTOMERS, Mix, ORDERS, customer_columns, order_columns};

/// How long a command that must fail may take to do so.
const REFUSED: Duration = Duration::from_secs(45);

/// The table beside the bad one lands everything that its source has, in these stores.
pub fn neighbours_go_on(scene: &mut Scene, process: &mut Process, stores: &[&str]) {
    scene.produce(60);
    let expected = crate::reference::replica(&scene.kafka.read(&scene.topology.source(CUSTOMERS)), &["id", "name"]).0;
    let mut expected: Vec<Vec<Option<String>>> = expected.into_values().map(|row| row.into_values().collect()).collect();
    expected.sort();
    for id in stores {
        let store = scene.topology.store(id).clone();
        assert!(!matches!(store, Store::DuckDb { .. }), "a file that a process holds is looked at in the end");
        let found = wait::until(HEAL, || {
            process.assert_running();
            let mut rows = store.view(CUSTOMERS, &customer_columns()).map(|v| v.rows).unwrap_or_default();
            rows.sort();
            if rows == expected { Ok(()) } else { Err(format!("{} of {} rows", rows.len(), expected.len())) }
        });
        if let Err(why) = found {
            panic!("{CUSTOMERS} in {id} does not go on: {why}; the process's last lines:\n{}", process.tail());
        }
    }
}

fn await_letter(scene: &Scene, process: &Process, what: &str, is: impl Fn(&Letter) -> bool) -> Letter {
    let found = wait::until(HEAL, || {
        let letters = scene::letters(&scene.kafka, &scene.topology);
        letters.iter().find(|l| is(l)).cloned().ok_or_else(|| format!("no dead letter {what} among {letters:?}"))
    });
    found.unwrap_or_else(|why| panic!("{why}; the process's last lines:\n{}", process.tail()))
}

/// The end of a source partition: where the next record will stand.
fn place_of_next(kafka: &Kafka, topic: &str, partition: i32) -> i64 {
    kafka.ends(topic)[&partition]
}

#[test]
fn unknown_key_in_the_file() {
    let topology = Topology::new("badyaml", &[ORDERS], Stores::DUCKDB);
    std::fs::write(topology.file(), topology.yaml().replace("    replicas:", "    replcas:")).expect("our own file");
    let output = topology.run().output(REFUSED);
    assert_eq!(output.status.code(), Some(2), "{}", output.text());
    let line = topology.yaml().lines().position(|l| l.starts_with("    replicas:")).expect("it is there") + 1;
    for part in ["replcas", "replicas", &format!("topology.yaml:{line}:")] {
        assert!(output.text().contains(part), "{part:?} is not said:\n{}", output.text());
    }
}

#[test]
fn unreachable_broker() {
    let topology = Topology::new("nobroker", &[ORDERS], Stores::DUCKDB);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port that nobody listens on");
    let yaml = topology.yaml().replace(&topology.brokers, &closed.to_string());
    std::fs::write(topology.file(), yaml).expect("our own file");
    let output = topology.run().output(REFUSED);
    assert_eq!(output.status.code(), Some(1), "{}", output.text());
    let text = output.text();
    assert!(text.contains(&closed.to_string()) && text.contains("cannot be reached"), "which broker cannot be reached is not said:\n{text}");
    assert!(text.contains("Connection refused"), "why is not said:\n{text}");
    assert!(!text.contains("CONFWARN") && !text.contains("enable.gapless"), "settings of ours are warned of:\n{text}");
}

#[test]
fn wrong_password() {
    let scene_topology = Topology::new("badpassword", &[ORDERS, CUSTOMERS], Stores::ALL);
    let mut scene = Scene::on(scene_topology, 31, Mix::KILL);
    let mut process = scene.topology.run().environment("LANDFALL_TEST_CLICKHOUSE_PASSWORD", "s3cr3t-but-wrong").start();
    let line = process.await_line("sink.login_refused", HEAL);
    assert!(line.contains("warehouse"), "which replica: {line}");
    neighbours_go_on(&mut scene, &mut process, &["serving"]);
    assert!(!process.log().contains("s3cr3t"), "the password is in the log");
    process.drain_and_exit(scene::DRAIN);
    // With the right one everything is made up for.
    let mut process = scene.topology.run().start();
    let sampler = scene.sampler(Duration::from_millis(500));
    let _ = scene.finish("a wrong password for a while", &mut process, sampler);
}

#[test]
fn unknown_topic() {
    let mut scene = Scene::new("notopic", 32, Mix::CALM, Stores::POSTGRES);
    scene.topology.tables.push("ghosts".into());
    scene.topology.write();
    let mut process = scene.topology.run().start();
    let line = process.await_line(&scene.topology.source("ghosts"), HEAL);
    println!("{line}");
    neighbours_go_on(&mut scene, &mut process, &["serving"]);
    // The topic comes: nothing needs to be restarted.
    scene.kafka.create_topic(&scene.topology.source("ghosts"), SOURCE_PARTITIONS, &[]);
    let records: Vec<Record> = scene.kafka.read(&scene.topology.source(CUSTOMERS));
    let source = scene.topology.source("ghosts");
    scene.kafka.produce(&records.iter().map(|r| Record { topic: source.clone(), ..r.clone() }).collect::<Vec<_>>());
    let store = scene.topology.store("serving").clone();
    let appeared = wait::until(HEAL, || store.view("ghosts", &customer_columns()).filter(|v| !v.rows.is_empty()).ok_or("no row"));
    assert!(appeared.is_ok(), "the table does not begin when its topic appears; the last lines:\n{}", process.tail());
    process.drain_and_exit(scene::DRAIN);
}

#[test]
fn not_debezium() {
    let mut scene = Scene::new("notdbz", 33, Mix::KILL, Stores::ALL);
    let sampler = scene.sampler(Duration::from_millis(500));
    let mut process = scene.topology.run().start();
    let topic = scene.topology.source(ORDERS);
    let key = Some(br#"{"payload":{"id":1}}"#.to_vec());
    for (value, code) in [
        (br#"{"hello":"world"}"#.as_slice(), "envelope.invalid"),
        (b"[1,2,3]", "envelope.invalid"),
        (b"42", "envelope.invalid"),
        (b"{\"payload\":{\"op\":\"c\"", "json.invalid"),
        (b"\xFF\xFE\x00", "json.invalid"),
        (br#"{"op":"x","after":{"id":1},"source":{"connector":"postgresql","lsn":1}}"#, "envelope.unknown_op"),
    ] {
        let offset = place_of_next(&scene.kafka, &topic, 0);
        let record = Record { topic: topic.clone(), partition: Some(0), key: key.clone(), value: Some(value.to_vec()), ..Record::default() };
        scene.kafka.produce(&[record]);
        let letter = await_letter(&scene, &process, code, |l| (l.topic.as_str(), l.partition, l.offset) == (topic.as_str(), 0, offset));
        assert_eq!(letter.code, code, "{letter:?}");
        assert!(letter.key.is_some() && letter.excerpt.is_some() && !letter.reason.is_empty(), "{letter:?}");
    }
    // Deep nesting must not reach the stack's end, nor a long line be shown whole.
    let deep = [b"[".repeat(200_000), b"]".repeat(200_000)].concat();
    let offset = place_of_next(&scene.kafka, &topic, 0);
    scene.kafka.produce(&[Record { topic: topic.clone(), partition: Some(0), key, value: Some(deep), ..Record::default() }]);
    let letter = await_letter(&scene, &process, "of the deep nest", |l| l.partition == 0 && l.offset == offset);
    assert!(letter.excerpt.is_some_and(|e| e.len() < 2_000), "the excerpt is bounded");
    neighbours_go_on(&mut scene, &mut process, &["serving", "warehouse"]);
    let output = Options::command(&["dead-letters", "list", &scene.topology.file().to_string_lossy()]).output(REFUSED);
    assert!(output.status.success() && output.stdout.contains("envelope.unknown_op"), "{}", output.text());
    let _ = scene.finish("records that are no change events", &mut process, sampler);
}

/// One record of 100 MB: landed whole or dead-lettered by name, and nobody else waits for it.
#[test]
fn hundred_megabytes() {
    let topology = Topology::new("huge", &[ORDERS, CUSTOMERS], Stores::POSTGRES);
    let kafka = Kafka::new();
    kafka.create_topic(&topology.source(ORDERS), 1, &[("max.message.bytes", "125829120")]);
    kafka.create_topic(&topology.source(CUSTOMERS), 1, &[]);
    let mut workload = crate::workload::Workload::new(&topology.prefix, 34, Mix::CALM);
    kafka.produce(&workload.snapshot(20));
    let mut process = topology.run().start();
    let size = 100 << 20;
    let records = workload.slice(30);
    let victim = records.iter().rfind(|r| r.topic.ends_with(ORDERS) && r.value.is_some()).expect("a change of orders").clone();
    let text = String::from_utf8(victim.value.expect("it is one")).expect("JSON");
    let at = text.find("\"body\":\"").expect("the column is there") + 8;
    let value = [&text.as_bytes()[..at], "y".repeat(size).as_bytes(), &text.as_bytes()[at..]].concat();
    kafka.produce(&[Record { topic: victim.topic.clone(), key: victim.key, value: Some(value), headers: victim.headers, ..Record::default() }]);
    let offset = kafka.ends(&topology.source(ORDERS))[&0] - 1;
    kafka.produce(&workload.slice(60));
    if let Err(why) = scene::caught_up(&topology, &kafka, Duration::from_secs(120)) {
        panic!("behind a record of 100 MB: {why}; the last lines:\n{}", process.tail());
    }
    process.assert_running();
    let letters = scene::letters(&kafka, &topology);
    let letter = letters.iter().find(|l| l.offset == offset && l.topic == topology.source(ORDERS));
    println!("the record of 100 MB: {letter:?}, resident memory {} MB", process.resident().unwrap_or_default() >> 20);
    process.drain_and_exit(scene::DRAIN);
    let mut source = kafka.read(&topology.source(ORDERS));
    if let Some(letter) = letter {
        assert!(!letter.code.is_empty() && letter.excerpt.as_ref().is_none_or(|e| e.len() < 2_000), "{letter:?}");
        source.retain(|r| r.offset != offset);
    }
    let columns = order_columns();
    let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
    let (rows, _) = crate::reference::replica(&source, &names);
    let mut expected: Vec<Vec<Option<String>>> = rows.values().map(|row| names.iter().map(|n| row[*n].clone()).collect()).collect();
    let mut found = topology.store("serving").view(ORDERS, &columns).expect("the replica is there").rows;
    expected.sort();
    found.sort();
    assert!(expected == found, "the replica differs from the source: {} rows, {} expected", found.len(), expected.len());
}

/// A NUL in a text: Postgres cannot hold it, the other two can.
#[test]
fn nul_in_text() {
    let mut scene = Scene::new("nul", 35, Mix::CALM, Stores::ALL);
    let mut process = scene.topology.run().start();
    scene.produce(20);
    let records = scene.workload.slice(20);
    let mut bad = records.iter().rfind(|r| r.topic.ends_with(ORDERS)).expect("a change of orders").clone();
    let text = String::from_utf8(bad.value.clone().expect("a change")).expect("JSON");
    bad.value = Some(text.replacen("\"body\":\"", "\"body\":\"a\\u0000b", 1).into_bytes());
    scene.kafka.produce(&records);
    scene.kafka.produce(std::slice::from_ref(&bad));
    let letter = await_letter(&scene, &process, "of Postgres", |l| l.replica.as_deref() == Some("serving.orders"));
    assert_eq!(letter.code, "value.nul", "{letter:?}");
    assert_eq!(letter.topic, scene.topology.source(ORDERS));
    neighbours_go_on(&mut scene, &mut process, &["serving", "warehouse"]);
    assert!(scene.settle(&mut process).is_empty(), "it catches up and drains");
    // Exact in the stores that can hold it; in Postgres all but that one change.
    let columns = order_columns();
    let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
    let source = scene.kafka.read(&scene.topology.source(ORDERS));
    let shown = |source: &[Record]| {
        let (rows, _) = crate::reference::replica(source, &names);
        let mut rows: Vec<Vec<Option<String>>> = rows.values().map(|row| names.iter().map(|n| row[*n].clone()).collect()).collect();
        rows.sort();
        rows
    };
    let without: Vec<Record> = source.iter().filter(|r| (r.partition, r.offset) != (Some(letter.partition), letter.offset)).cloned().collect();
    assert_eq!(without.len() + 1, source.len(), "the dead letter names the record");
    for store in &scene.topology.stores {
        let mut found = store.view(ORDERS, &columns).expect("the replica is there").rows;
        found.sort();
        let expected = if store.id() == "serving" { shown(&without) } else { shown(&source) };
        assert!(found == expected, "{} differs: {} rows, {} expected", store.id(), found.len(), expected.len());
    }
}

#[test]
fn foreign_table() {
    let mut scene = Scene::new("foreign", 36, Mix::KILL, Stores::ALL);
    let Store::Postgres { server, database, schema } = scene.topology.store("serving").clone() else { unreachable!("serving is Postgres") };
    let mut postgres = Postgres::connect(&server, &database).expect("Postgres is up");
    postgres.run(&format!(
        "CREATE SCHEMA {schema}; CREATE TABLE {schema}.{ORDERS} (id int PRIMARY KEY, mine text); INSERT INTO {schema}.{ORDERS} VALUES (1, 'mine')"
    ));
    let mut process = scene.topology.run().start();
    let line = process.await_line("binding.table_exists", HEAL);
    assert!(line.contains(ORDERS), "which table: {line}");
    neighbours_go_on(&mut scene, &mut process, &["serving", "warehouse"]);
    for id in ["warehouse", "local"] {
        if let Err(why) = scene.landed(scene.topology.store(id), ORDERS, HEAL) {
            panic!("{id} waits for Postgres: {why}; the last lines:\n{}", process.tail());
        }
    }
    let mine = postgres.rows(&format!("{schema}.{ORDERS}"), &columns(&[("id", Kind::Int), ("mine", Kind::Text)]));
    assert_eq!(mine, [vec![Some("1".to_owned()), Some("mine".to_owned())]], "the table is not ours and stays as it is");
    process.drain_and_exit(scene::DRAIN);
    // Out of the way, it is made up for.
    postgres.run(&format!("ALTER TABLE {schema}.{ORDERS} RENAME TO theirs"));
    let mut process = scene.topology.run().start();
    let sampler = scene.sampler(Duration::from_millis(500));
    let _ = scene.finish("a foreign table for a while", &mut process, sampler);
}

/// The same in the stores beside Postgres: each names its table, leaves it alone, and lands the table beside it.
#[test]
fn foreign_tables_elsewhere() {
    let stores = Stores { postgres: false, ..Stores::ALL };
    let mut scene = Scene::new("foreign", 38, Mix::KILL, stores);
    let Store::ClickHouse { database } = scene.topology.store("warehouse").clone() else { unreachable!("warehouse is ClickHouse") };
    let clickhouse = ClickHouse::new();
    clickhouse.run(&format!("CREATE TABLE {database}.{ORDERS} (id Int32, mine String) ENGINE = MergeTree ORDER BY id"));
    clickhouse.run(&format!("INSERT INTO {database}.{ORDERS} VALUES (1, 'mine')"));
    let Store::DuckDb { path, schema } = scene.topology.store("local").clone() else { unreachable!("local is DuckDB") };
    let file = || duckdb::Connection::open(&path).expect("the file can be opened");
    let theirs = format!("{schema}.{ORDERS}");
    let make = format!("CREATE SCHEMA {schema}; CREATE TABLE {theirs} (id INTEGER, mine VARCHAR); INSERT INTO {theirs} VALUES (1, 'mine')");
    file().execute_batch(&make).expect("our own");
    let mut process = scene.topology.run().start();
    for replica in ["warehouse.orders", "local.orders"] {
        let found = wait::until(HEAL, || {
            let log = process.log();
            log.lines().find(|l| l.contains("binding.table_exists") && l.contains(replica)).map(str::to_owned).ok_or("it is not said")
        });
        assert!(found.is_ok(), "{replica} is not stopped by name; the last lines:\n{}", process.tail());
    }
    neighbours_go_on(&mut scene, &mut process, &["warehouse"]);
    if let Err(why) = scene.landed(scene.topology.store("local"), CUSTOMERS, HEAL) {
        panic!("{CUSTOMERS} in local does not go on: {why}; the last lines:\n{}", process.tail());
    }
    process.drain_and_exit(scene::DRAIN);
    // Still theirs; out of the way, it is made up for.
    assert_eq!(clickhouse.query(&format!("SELECT mine FROM {database}.{ORDERS}")), Ok(vec![vec![Some("mine".to_owned())]]));
    clickhouse.run(&format!("RENAME TABLE {database}.{ORDERS} TO {database}.theirs"));
    {
        let mine: String = file().query_row(&format!("SELECT mine FROM {theirs}"), [], |row| row.get(0)).expect("it is there");
        assert_eq!(mine, "mine");
        file().execute_batch(&format!("ALTER TABLE {theirs} RENAME TO theirs")).expect("our own");
    }
    let mut process = scene.topology.run().start();
    let sampler = scene.sampler(Duration::from_millis(500));
    let _ = scene.finish("foreign tables for a while", &mut process, sampler);
}

#[test]
fn key_column_missing() {
    let mut scene = Scene::new("nokey", 37, Mix::CALM, Stores::POSTGRES);
    let yaml = scene.topology.yaml().replacen("    replicas:", "    primary_key: [order_number]\n    replicas:", 1);
    std::fs::write(scene.topology.file(), yaml).expect("our own file");
    let mut process = scene.topology.run().start();
    let line = process.await_line("schema.key_missing", HEAL);
    assert!(line.contains("order_number"), "which column: {line}");
    neighbours_go_on(&mut scene, &mut process, &["serving"]);
    process.drain_and_exit(scene::DRAIN);
    // With the key that the records have, the table begins at its first record.
    scene.topology.write();
    let mut process = scene.topology.run().start();
    let sampler = scene.sampler(Duration::from_millis(500));
    let _ = scene.finish("a key column that was missing", &mut process, sampler);
}
