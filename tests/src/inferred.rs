//! Topics of JSON about whose types nobody says anything, through the real program into the three stores: found, settled once for everybody before the
//! first record that uses them, and never taken back.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::harness::kafka::{Kafka, Record};
use crate::harness::process::{Options, Process};
use crate::harness::stores::{Column, Kind, columns};
use crate::harness::topology::{Stores, Topology};
use crate::harness::wait;
use crate::scene::{self, DRAIN, HEAL};

const PARTITIONS: i32 = 3;
const RECORDS: i64 = 3_000;
const KEYS: i64 = 400;

type Cell = Option<String>;

/// A plain topic and one of a connector that sends no schema part; no type is declared, and no key.
fn file(topology: &Topology, extra: &str) -> String {
    let mut yaml = format!(
        "topology: {}\nkafka: {{ brokers: [\"{}\"], client: {{ {} }} }}\ndefaults: {{ push_debounce_quiet: 0, log: {{ partitions: 4, replication: 1 }} }}\n\
         sources:\n  - {{ id: bus, type: kafka, change_signal: kafka, cdc: {{ dialect: plain, topic_prefix: {p} }} }}\n  \
         - {{ id: shop, type: postgresql, change_signal: debezium, cdc: {{ topic_prefix: {p} }} }}\nstores:\n{}tables:\n",
        topology.name,
        topology.brokers,
        topology.client,
        topology.stores_yaml(),
        p = topology.prefix,
    );
    for (table, source) in [("events", "bus"), ("orders", "shop")] {
        writeln!(yaml, "  - id: {table}\n    source: {source}\n    topic: {}\n{extra}    replicas:", topology.source(table)).expect("text grows");
        for store in &topology.stores {
            writeln!(yaml, "      - {{ store: {} }}", store.id()).expect("text grows");
        }
    }
    yaml
}

/// What is sent, and what has to come of it.
struct Feed {
    kafka: Kafka,
    topics: [String; 2],
    rows: [BTreeMap<i64, Vec<Cell>>; 2],
    sent: i64,
}

impl Feed {
    fn new(topology: &Topology) -> Self {
        let feed = Self { kafka: Kafka::new(), topics: ["events", "orders"].map(|t| topology.source(t)), rows: Default::default(), sent: 0 };
        feed.topics.iter().for_each(|topic| feed.kafka.create_topic(topic, PARTITIONS, &[]));
        feed
    }

    /// Records of both topics. Of `events`, a member is there in some records only, and another comes later; of `orders` likewise.
    fn produce(&mut self, records: i64, with_more: bool) {
        let mut sent = Vec::new();
        for n in self.sent..self.sent + records {
            let id = (n * 7_919) % KEYS;
            let text = |value: String| Some(value);
            let price = if n % 3 == 0 { format!("{n}.5") } else { n.to_string() };
            let (more, more_cell) = match with_more {
                true => (format!(",\"more\":\"m{n}\""), text(format!("m{n}"))),
                false => (String::new(), None),
            };
            let deleted = n % 11 == 0;
            let (maybe, maybe_cell) =
                if n % 2 == 0 { (format!(",\"maybe\":{}", n % 4 == 0), text((n % 4 == 0).to_string())) } else { (String::new(), None) };
            let row = format!("{{\"id\":{id},\"price\":{price},\"note\":\"2024-01-01\",\"tags\":[{n},\"x\"]{maybe}{more}}}");
            let cells = vec![text(id.to_string()), text(price), text("2024-01-01".into()), text(format!("[{n},\"x\"]")), maybe_cell, more_cell];
            let order = |op: &str, image: &str| {
                let source = format!(r#"{{"connector":"postgresql","db":"shop","schema":"public","table":"orders","sequence":"[\"{n}\",\"{n}\"]"}}"#);
                format!("{{{image},\"source\":{source},\"op\":\"{op}\",\"ts_ms\":{n}}}").into_bytes()
            };
            let key = format!("{{\"id\":{id}}}").into_bytes();
            let values = [
                (!deleted).then(|| row.clone().into_bytes()),
                Some(if deleted {
                    order("d", &format!("\"before\":{{\"id\":{id}}},\"after\":null"))
                } else {
                    order("r", &format!("\"before\":null,\"after\":{row}"))
                }),
            ];
            for ((topic, rows), value) in self.topics.iter().zip(&mut self.rows).zip(values) {
                sent.push(Record { topic: topic.clone(), key: Some(key.clone()), value, ..Record::default() });
                let _ = if deleted { rows.remove(&id) } else { rows.insert(id, cells.clone()) };
            }
        }
        self.sent += records;
        self.kafka.produce(&sent);
    }

    fn columns(with_more: bool) -> Vec<Column> {
        let mut kinds = vec![("id", Kind::Int), ("price", Kind::Numeric), ("note", Kind::Text), ("tags", Kind::Json), ("maybe", Kind::Bool)];
        if with_more {
            kinds.push(("more", Kind::Text));
        }
        columns(&kinds)
    }

    /// Waits until every store has what was sent.
    fn landed(&self, topology: &Topology, processes: &mut [&mut Process], with_more: bool) {
        let columns = Self::columns(with_more);
        let found = wait::until(HEAL, || {
            processes.iter_mut().for_each(|process| process.assert_running());
            for (table, expected) in ["events", "orders"].iter().zip(&self.rows) {
                let mut expected: Vec<Vec<Cell>> = expected.values().map(|row| row[..columns.len()].to_vec()).collect();
                expected.sort();
                for store in &topology.stores {
                    let mut rows = store.view(table, &columns).map(|v| v.rows).unwrap_or_default();
                    rows.sort();
                    if rows != expected {
                        let differing = rows.iter().zip(&expected).find(|(a, b)| a != b);
                        return Err(format!("{table} in {}: {} rows for {}, first {differing:?}", store.id(), rows.len(), expected.len()));
                    }
                }
            }
            Ok(())
        });
        if let Err(why) = found {
            let tails: Vec<String> = processes.iter().map(|process| process.tail()).collect();
            panic!("{why}; letters {:?}; the last lines:\n{}", scene::letters(&self.kafka, topology), tails.join("\n---\n"));
        }
    }

    /// What stands in the control topic of types: table, column and type, in the order of the topic.
    fn settled(&self, topology: &Topology) -> Vec<(String, String, String)> {
        let mut settled = Vec::new();
        for record in self.kafka.read(&format!("{}.control", topology.name)) {
            let value: serde_json::Value = serde_json::from_slice(record.value.as_deref().unwrap_or_default()).expect("JSON");
            for pair in value["settled"].as_array().into_iter().flatten() {
                let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
                settled.push((text(&value["table"]), text(&pair[0]), text(&pair[1])));
            }
        }
        settled
    }
}

/// Two normalisers at once, of which one has died between settling and its first record, a member that comes later, and kills.
#[test]
fn types_are_settled_once_for_everybody() {
    let topology = Topology::new("inferred", &[], Stores::ALL);
    std::fs::write(topology.file(), file(&topology, "")).expect("the test's folder can be written");
    let mut feed = Feed::new(&topology);
    feed.produce(RECORDS, false);
    // Settled, and not yet used.
    let mut first = topology.run_as(1).crash("post_settle", 1).start();
    let _ = first.wait(HEAL);
    assert!(first.aborted(), "it did not come to settle: {}", first.tail());
    let settled = feed.settled(&topology);
    let table = settled[0].0.clone();
    assert!(!settled.is_empty() && settled.iter().all(|(of, ..)| *of == table), "the types of one table: {settled:?}");
    let logged = feed.kafka.read(&topology.log(&table));
    assert!(logged.is_empty(), "{} records of {table} are in the log before its types were known to be settled", logged.len());
    let (mut one, mut two) = (topology.run_as(1).start(), topology.run_as(2).start());
    feed.landed(&topology, &mut [&mut one, &mut two], false);
    // A member that nobody has seen becomes a column while everything runs; whoever needs it asks, and the first answer counts.
    feed.produce(RECORDS, true);
    feed.landed(&topology, &mut [&mut one, &mut two], true);
    one.kill();
    two.kill();
    feed.produce(RECORDS, true);
    let (mut one, mut two) = (topology.run_as(2).start(), topology.run_as(1).start());
    feed.landed(&topology, &mut [&mut one, &mut two], true);
    assert!(scene::letters(&feed.kafka, &topology).is_empty());
    // A value of another kind is told by name; nothing else waits for it.
    let bad =
        |value: &str| Record { topic: feed.topics[0].clone(), key: Some(b"{\"id\":1}".to_vec()), value: Some(value.into()), ..Record::default() };
    feed.kafka.produce(&[bad(r#"{"id":1,"price":"three","note":"n","tags":[]}"#)]);
    feed.produce(100, true);
    feed.landed(&topology, &mut [&mut one, &mut two], true);
    let letters = wait::until(HEAL, || {
        let letters = scene::letters(&feed.kafka, &topology);
        if letters.is_empty() { Err("no dead letter") } else { Ok(letters) }
    })
    .unwrap_or_else(|why| panic!("{why}: {}", one.tail()));
    assert!(letters.len() == 1 && letters[0].code == "value.not_as_inferred", "{letters:?}");
    assert!(letters[0].reason.contains("`types: { \"price\": json }`"), "{letters:?}");
    // What is said of them: in the topic, by status, by check.
    let mut types: BTreeMap<(String, String), String> = BTreeMap::new();
    for (table, column, ty) in feed.settled(&topology) {
        let _ = types.entry((table, column)).or_insert(ty);
    }
    let expected = [("id", "int64"), ("maybe", "bool"), ("more", "text"), ("note", "text"), ("price", "numeric"), ("tags", "json")];
    let expected: Vec<(String, &str)> =
        ["events", "orders"].iter().flat_map(|t| expected.iter().map(move |(c, ty)| (format!("{t}.{c}"), *ty))).collect();
    let found: Vec<(String, &str)> = types.iter().map(|((table, column), ty)| (format!("{table}.{column}"), ty.as_str())).collect();
    assert_eq!(found, expected);
    let address = one.http(HEAL);
    let status = Options::command(&["status", "--http", address.trim_start_matches("http://")]).output(HEAL);
    let said = "{ id: int64, price: numeric, note: text, tags: json, maybe: bool, more: text }";
    assert!(status.text().contains(&format!("events: {said}")) && status.text().contains(&format!("orders: {said}")), "{}", status.text());
    let check = Options::command(&["check", "--online", &topology.file().to_string_lossy()]).output(HEAL).text();
    assert!(check.contains("types of events") && check.contains("price: numeric"), "{check}");
    one.drain_and_exit(DRAIN);
    two.drain_and_exit(DRAIN);
}

/// Where a table is not to have its types inferred, and where a key has none, it stops by name, and others go on. A declared type wins, and one that
/// differs from what rows have been written with is a changed type.
#[test]
fn what_is_not_inferred_stops_by_name() {
    let topology = Topology::new("uninferred", &[], Stores::POSTGRES);
    let write = |extra: &str| std::fs::write(topology.file(), file(&topology, extra)).expect("the test's folder can be written");
    write("    infer_types: false\n");
    let mut feed = Feed::new(&topology);
    feed.produce(50, false);
    let mut process = topology.run().start();
    let line = process.await_line("types.missing", HEAL);
    assert!(line.contains("no type is declared for"), "{line}");
    process.drain_and_exit(DRAIN);
    assert!(feed.settled(&topology).is_empty());
    write("");
    let mut process = topology.run().start();
    feed.landed(&topology, &mut [&mut process], false);
    process.drain_and_exit(DRAIN);
    // Declared like that it would have been another column.
    write("    columns: { types: { price: \"decimal(12,2)\" } }\n");
    let mut process = topology.run().start();
    feed.produce(50, false);
    let line = process.await_line("schema.type_changed", HEAL);
    assert!(line.contains("price"), "{line}");
    process.drain_and_exit(DRAIN);
}

#[test]
fn a_key_that_may_be_a_float_stops_its_table_by_name() {
    let topology = Topology::new("floatkey", &[], Stores::POSTGRES);
    std::fs::write(topology.file(), file(&topology, "")).expect("the test's folder can be written");
    let feed = Feed::new(&topology);
    let of = |key: &str, value: &str| Record { topic: feed.topics[0].clone(), key: Some(key.into()), value: Some(value.into()), ..Record::default() };
    feed.kafka.produce(&[of(r#"{"k":1.5}"#, r#"{"v":1}"#)]);
    let mut process = topology.run().start();
    let line = process.await_line("types.missing", HEAL);
    assert!(line.contains("key column") && line.contains("fraction"), "{line}");
    // The other table has what this one should have had as well.
    feed.kafka.produce(&[Record {
        topic: topology.source("orders"),
        key: Some(b"{\"id\":1}".to_vec()),
        value: Some(br#"{"before":null,"after":{"id":1,"v":"a"},"source":{"connector":"postgresql","sequence":"[\"1\",\"1\"]"},"op":"c"}"#.to_vec()),
        ..Record::default()
    }]);
    let store = topology.store("serving").clone();
    let landed = wait::until(HEAL, || {
        process.assert_running();
        let rows = store.view("orders", &columns(&[("id", Kind::Int), ("v", Kind::Text)])).map(|v| v.rows).unwrap_or_default();
        if rows == [vec![Some("1".to_owned()), Some("a".to_owned())]] { Ok(()) } else { Err(format!("{rows:?}")) }
    });
    assert!(landed.is_ok(), "{landed:?}: {}", process.tail());
    assert_eq!(feed.settled(&topology).iter().filter(|(table, ..)| table == "events").count(), 0, "nothing is settled of a table that has no key");
    process.drain_and_exit(DRAIN);
}
