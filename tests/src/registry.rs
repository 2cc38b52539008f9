//! The real program with a schema registry that fails, forgets and is asked too often.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::kafka::{Kafka, Record};
use crate::harness::registry::{Registry, envelope_schema, framed, key_schema};
use crate::harness::stores::{Kind, columns};
use crate::harness::topology::{Stores, Topology};
use crate::harness::wait;
use crate::scene::{self, DRAIN, HEAL};

/// Ids of the key's schema and of the values'.
const KEY: u32 = 6;
/// Partitions of the topic that is held up; the other has one, so that whoever joins the group is given some of these.
const PARTITIONS: i32 = 4;

fn fields() -> Vec<Value> {
    vec![json!({ "name": "id", "type": "int" }), json!({ "name": "v", "type": ["null", "string"] })]
}

fn registry(ids: &[u32]) -> Registry {
    let values = ids.iter().map(|id| (*id, envelope_schema(&fields())));
    Registry::start(values.chain([(KEY, key_schema(&fields()[..1]))]).collect())
}

fn topology(stem: &str, tables: &[&str], registry: &Registry) -> Topology {
    let mut topology = Topology::new(stem, tables, Stores::ALL);
    topology.registry = Some(registry.url().to_owned());
    topology.write();
    topology
}

/// The create of a row, its value framed by a schema.
fn create(topic: &str, partitions: i32, schema: u32, n: i64) -> Record {
    let key = framed(KEY, &key_schema(&fields()[..1]), &json!({ "id": n }));
    let source = json!({ "connector": "postgresql", "sequence": format!("[\"{}\",\"{}\"]", 10 * n + 10, 10 * n + 15), "lsn": 10 * n + 15 });
    let value = framed(schema, &envelope_schema(&fields()), &json!({ "after": { "id": n, "v": format!("row {n}") }, "source": source, "op": "c" }));
    Record {
        topic: topic.to_owned(),
        partition: Some((n % i64::from(partitions)) as i32),
        offset: n,
        key: Some(key),
        value: Some(value),
        headers: Vec::new(),
    }
}

fn ids(topology: &Topology, table: &str) -> BTreeMap<String, Vec<Option<String>>> {
    let columns = columns(&[("id", Kind::Int)]);
    let rows = |view: crate::harness::stores::View| {
        let mut ids: Vec<_> = view.rows.into_iter().map(|row| row[0].clone()).collect();
        ids.sort_by_key(|id| id.as_deref().and_then(|id| id.parse::<i64>().ok()));
        ids
    };
    topology.stores.iter().map(|s| (s.id().to_owned(), s.view(table, &columns).map(rows).unwrap_or_default())).collect()
}

fn everywhere(topology: &Topology, numbers: impl Iterator<Item = i64> + Clone) -> BTreeMap<String, Vec<Option<String>>> {
    topology.stores.iter().map(|s| (s.id().to_owned(), numbers.clone().map(|n| Some(n.to_string())).collect())).collect()
}

/// A registry that does not answer for one schema holds up who needs it and nobody else, says so, and loses nothing.
#[test]
fn case_reg_01_what_the_registry_fails_at_waits_and_lands() {
    let registry = registry(&[7, 8]);
    registry.fail(7, 503);
    let topology = topology("regfails", &["held", "free"], &registry);
    let kafka = Kafka::new();
    for (table, schema, partitions) in [("held", 7, PARTITIONS), ("free", 8, 1)] {
        let topic = topology.source(table);
        kafka.create_topic(&topic, partitions, &[]);
        kafka.produce(&(0..50).map(|n| create(&topic, partitions, schema, n)).collect::<Vec<_>>());
    }
    let mut process = topology.run().start();
    let address = process.http(Duration::from_secs(30));
    wait::expect("the other table lands", HEAL, || {
        let (found, wanted) = (ids(&topology, "free"), everywhere(&topology, 0..50));
        if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
    });
    wait::expect("the wait is told", HEAL, || {
        let status = crate::cases::status(&address)?;
        let held = status.sources.get(&topology.source("held")).cloned().unwrap_or_default();
        let waits = |p: &landfall::observe::SourcePartition| {
            let is_told = |r: &landfall::observe::Reason| r.code == "registry.unreachable" && r.what.contains("503");
            p.stopped.is_none() && p.waiting.as_ref().is_some_and(is_told)
        };
        if held.len() == PARTITIONS as usize && held.values().all(waits) { Ok(()) } else { Err(format!("{held:?}")) }
    });
    // Partitions that wait go to another process and come back.
    let mut second = topology.run_as(2).start();
    let other = second.http(Duration::from_secs(30));
    wait::expect("the other process has some of them", HEAL, || {
        let status = crate::cases::status(&other)?;
        let held = status.sources.get(&topology.source("held")).map_or(0, BTreeMap::len);
        if held > 0 { Ok(()) } else { Err(format!("{:?}", status.sources)) }
    });
    second.drain_and_exit(DRAIN);
    // A proxy's word that nothing is there is no word of the registry's.
    registry.fail(7, 404);
    let asked = registry.asked(7);
    wait::expect("it is asked again", HEAL, || if registry.asked(7) > asked + 1 { Ok(()) } else { Err(registry.asked(7)) });
    assert!(ids(&topology, "held").values().all(Vec::is_empty), "nothing is guessed");
    registry.fail(7, 200);
    wait::expect("what waited lands", HEAL, || {
        let (found, wanted) = (ids(&topology, "held"), everywhere(&topology, 0..50));
        if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
    });
    let status = crate::cases::status(&address).expect("a status");
    let source = &status.sources[&topology.source("held")][&0];
    assert_eq!((&source.waiting, source.format.as_deref()), (&None, Some("avro")));
    // Once by each process.
    assert!(registry.asked(8) <= 2 && registry.asked(KEY) <= 2, "what is known is not asked for again");
    process.drain_and_exit(DRAIN);
    assert_eq!(scene::letters(&kafka, &topology).len(), 0, "no record is given up for a registry that is down");
}

/// Many records of an id that does not exist are dead letters by name, at the cost of hardly a request.
#[test]
fn case_reg_02_an_unknown_id_does_not_brown_out_the_registry() {
    let registry = registry(&[7]);
    let topology = topology("regunknown", &["t"], &registry);
    let kafka = Kafka::new();
    let topic = topology.source("t");
    kafka.create_topic(&topic, 1, &[]);
    let strays = 1_000;
    let schema = |n: i64| if n % 2 == 0 && n < 2 * strays { 99 } else { 7 };
    kafka.produce(&(0..2 * strays + 100).map(|n| create(&topic, 1, schema(n), n)).collect::<Vec<_>>());
    #[expect(clippy::disallowed_methods, reason = "how often the registry may be asked is a matter of time")]
    let begun = std::time::Instant::now();
    let mut process = topology.run().start();
    wait::expect("the others land", HEAL, || {
        let (found, wanted) = (ids(&topology, "t"), everywhere(&topology, (0..2 * strays + 100).filter(|n| schema(*n) == 7)));
        if found == wanted { Ok(()) } else { Err(format!("{:?}", found.values().map(Vec::len).collect::<Vec<_>>())) }
    });
    process.drain_and_exit(DRAIN);
    let letters = scene::letters(&kafka, &topology);
    assert!(letters.iter().all(|l| l.code == "registry.schema_unknown" && l.offset % 2 == 0), "{letters:?}");
    assert_eq!(letters.len(), strays as usize);
    // It is believed for half a minute that an id does not exist, once that was said three times.
    let most = 3 * (1 + begun.elapsed().as_secs() as u32 / 30);
    assert!(registry.asked(99) <= most, "{} requests for an id that does not exist", registry.asked(99));
}

/// The log stands in the frame of the registry where one is set: another library reads it by what is registered. Until the registry takes the contract,
/// who needs it waits and says so; a log that goes from one frame to the other folds to the same.
#[test]
fn a_log_in_the_frame_of_the_registry_is_read_by_others_and_folded_as_ever() {
    let registry = registry(&[7]);
    registry.close(true);
    let mut topology = topology("framed", &["orders"], &registry);
    let kafka = Kafka::new();
    let topic = topology.source("orders");
    kafka.create_topic(&topic, 2, &[]);
    let produce = |numbers: std::ops::Range<i64>| kafka.produce(&numbers.map(|n| create(&topic, 2, 7, n)).collect::<Vec<_>>());
    let landed = |topology: &Topology, end: i64| {
        wait::expect("all has landed", HEAL, || {
            let (found, wanted) = (ids(topology, "orders"), everywhere(topology, 0..end));
            if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
        });
    };
    produce(0..50);
    let mut process = topology.run().start();
    let address = process.http(Duration::from_secs(30));
    wait::expect("the wait is told", HEAL, || {
        let status = crate::cases::status(&address)?;
        let is_told = |p: &landfall::observe::SourcePartition| p.waiting.as_ref().is_some_and(|r| r.code == "registry.not_registered");
        let partitions = status.sources.get(&topic).cloned().unwrap_or_default();
        if partitions.len() == 2 && partitions.values().all(is_told) { Ok(()) } else { Err(format!("{partitions:?}")) }
    });
    assert!(kafka.read(&topology.log("orders")).is_empty(), "nothing stands in the log that nobody could read");
    registry.close(false);
    landed(&topology, 50);
    process.drain_and_exit(DRAIN);
    let framed = kafka.read(&topology.log("orders"));
    assert_eq!(framed.len(), 50);
    let mut seen = std::collections::BTreeSet::new();
    for record in &framed {
        let value = record.value.as_deref().expect("a change");
        let (frame, mut body) = value.split_at(5);
        assert_eq!(frame[0], 0);
        let schema = registry.schema(u32::from_be_bytes([frame[1], frame[2], frame[3], frame[4]])).expect("it is registered");
        let schema = apache_avro::Schema::parse_str(&schema.to_string()).expect("a schema");
        let datum = apache_avro::reader::datum::GenericDatumReader::builder(&schema)
            .build()
            .and_then(|reader| reader.read_value(&mut body))
            .expect("another library reads it");
        let apache_avro::types::Value::Record(fields) = datum else { panic!("a record") };
        let after = fields.into_iter().find(|(name, _)| name == "after").expect("a row").1;
        assert!(body.is_empty() && seen.insert(format!("{after:?}")), "each row once");
    }
    assert!(seen.iter().any(|after| after.contains("row 49")), "{seen:?}");
    // The same log goes on as single objects, and is in the frame again after that.
    for (format, numbers) in [("single_object", 50..80), ("avro", 80..100)] {
        topology.table_extra = format!("    log: {{ format: {format} }}\n");
        topology.write();
        let end = numbers.end;
        produce(numbers);
        let mut process = topology.run().start();
        landed(&topology, end);
        process.drain_and_exit(DRAIN);
    }
    let first = |record: &Record| record.value.as_deref().and_then(|value| value.first().copied());
    let firsts: Vec<_> = kafka.read(&topology.log("orders")).iter().filter_map(first).collect();
    assert_eq!([0, 0xC3].map(|byte| firsts.iter().filter(|first| **first == byte).count()), [70, 30]);
    // Without state and without a registry, the whole log is folded again.
    std::fs::remove_dir_all(topology.state(1)).expect("the state directory is there");
    topology.registry = None;
    topology.table_extra = String::new();
    topology.write();
    let mut process = topology.run().start();
    landed(&topology, 100);
    process.drain_and_exit(DRAIN);
}
