//! Plain topics through the real program into the three stores: rows of JSON and of Avro, with a registry and without, keys as Kafka's own
//! serializers write them, headers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use landfall_schemas::wire::put_long;

use crate::dice::Dice;
use crate::harness::kafka::{Kafka, Record};
use crate::harness::registry::Registry;
use crate::harness::stores::{Kind, columns};
use crate::harness::topology::{Stores, Topology};
use crate::harness::wait;
use crate::scene::{self, DRAIN, HEAL};

const RECORDS: usize = 6_000;
const PARTITIONS: i32 = 3;
/// Schemas of the registry.
pub(crate) const AVRO: [(u32, &str); 2] = [
    (1, r#""string""#),
    (
        2,
        r#"["null",{"type":"record","name":"Reading","fields":[{"name":"n","type":"long"},{"name":"at","type":{"type":"long","logicalType":"timestamp-micros"}},
        {"name":"note","type":["null","string"],"default":null}]}]"#,
    ),
];

/// The schema of values in the single-object encoding, which no registry has.
const OBJECT: &str = r#"{"type":"record","name":"Object","namespace":"shop.v1","doc":"left out of its fingerprint","fields":[{"name":"n","type":"long"},
    {"name":"kind","type":{"type":"enum","name":"Kind","symbols":["GOOD","BAD"]}},{"name":"note","type":["null","string"],"default":null}]}"#;

type Cell = Option<String>;
type Rows = BTreeMap<Vec<u8>, Vec<Cell>>;

fn file(topology: &Topology, registry: &str) -> String {
    let mut yaml = format!(
        "topology: {}\nkafka: {{ brokers: [\"{}\"], registry: {{ url: \"{registry}\" }} }}\ndefaults: {{ push_debounce_quiet: 0, log: {{ partitions: 4, replication: 1 }} }}\n\
         sources:\n  - {{ id: bus, type: kafka, change_signal: kafka, cdc: {{ dialect: plain, topic_prefix: {} }} }}\n  \
         - {{ id: longs, type: kafka, change_signal: kafka, cdc: {{ dialect: plain, key_format: long, topic_prefix: {} }} }}\n  \
         - {{ id: objects, type: kafka, change_signal: kafka, cdc: {{ dialect: plain, format: avro, schemas: [\"${{file:{}}}\"], topic_prefix: {} }} }}\nstores:\n{}tables:\n",
        topology.name,
        topology.brokers,
        topology.prefix,
        topology.prefix,
        topology.file().with_file_name("object.avsc").display(),
        topology.prefix,
        topology.stores_yaml()
    );
    let rules = [
        ("users", "bus", "types: { id: text, v: text, size: \"decimal(12,2)\" }, headers: { trace: x-trace }"),
        ("counters", "longs", "types: { v: text }"),
        ("readings", "bus", ""),
        ("objects", "objects", "types: { id: text }"),
    ];
    for (table, source, rules) in rules {
        writeln!(
            yaml,
            "  - id: {table}\n    source: {source}\n    topic: {}\n    primary_key: [id]\n    columns: {{ {rules} }}\n    replicas:",
            topology.source(table)
        )
        .expect("text grows");
        for store in &topology.stores {
            writeln!(yaml, "      - {{ store: {} }}", store.id()).expect("text grows");
        }
    }
    yaml
}

/// The fingerprint of a schema, as another library works it out.
fn fingerprint(schema: &str) -> [u8; 8] {
    let theirs = apache_avro::Schema::parse_str(schema).expect("a schema").fingerprint::<apache_avro::rabin::Rabin>();
    theirs.bytes.try_into().expect("eight bytes")
}

/// A record of a table, and what its key's row is then.
pub(crate) fn record(topic: &str, table: &str, n: usize, dice: &mut Dice) -> (Record, Vec<u8>, Option<Vec<Cell>>) {
    let id = dice.below(400);
    let is_delete = dice.below(10) == 0;
    let text = |t: String| Some(t);
    let mut headers = Vec::new();
    let (key, value, row) = match table {
        "users" => {
            if !n.is_multiple_of(3) {
                headers.push(("x-trace".to_owned(), format!("t-{n}").into_bytes()));
            }
            let trace = headers.first().map(|(_, v)| String::from_utf8_lossy(v).into_owned());
            let id = format!("user-{id:03}");
            let (value, row) = match n % 4 {
                0 => (format!(r#"{{"v":"ü{n}","size":{n}.5}}"#), vec![text(id.clone()), text(format!("ü{n}")), text(format!("{n}.50")), trace]),
                1 => (format!(r#"{{"size":"{n}","id":"{id}","v":null}}"#), vec![text(id.clone()), None, text(format!("{n}.00")), trace]),
                _ => (format!(r#"{{"v":"{n}"}}"#), vec![text(id.clone()), text(n.to_string()), None, trace]),
            };
            (id.into_bytes(), value.into_bytes(), row)
        }
        "objects" => {
            let id = format!("o{id}");
            let mut value = vec![0xC3, 0x01];
            value.extend(fingerprint(OBJECT));
            put_long(&mut value, n as i64);
            put_long(&mut value, (n % 2) as i64);
            value.extend([2, 4, b'h', b'i']);
            let kind = ["GOOD", "BAD"][n % 2].to_owned();
            (id.clone().into_bytes(), value, vec![text(id), text(n.to_string()), text(kind), text("hi".to_owned())])
        }
        "counters" => (id.to_be_bytes().to_vec(), format!(r#"{{"v":"{n}"}}"#).into_bytes(), vec![text(id.to_string()), text(n.to_string())]),
        _ => {
            let id = format!("r{id}");
            let mut key = vec![0, 0, 0, 0, 1];
            put_long(&mut key, id.len() as i64);
            key.extend_from_slice(id.as_bytes());
            let mut value = vec![0, 0, 0, 0, 2, 2];
            put_long(&mut value, n as i64);
            put_long(&mut value, 1_714_557_600_000_000 + n as i64);
            value.push(0);
            let at = format!("2024-05-01T10:00:00.{n:06}Z");
            (key, value, vec![text(id), text(n.to_string()), text(at), None])
        }
    };
    // A null value, and Avro's null in a frame of its own.
    let value = match is_delete {
        true if table == "readings" && n.is_multiple_of(2) => Some(vec![0, 0, 0, 0, 2, 0]),
        true => None,
        false => Some(value),
    };
    let sent = Record { topic: topic.to_owned(), partition: None, offset: 0, key: Some(key.clone()), value, headers };
    (sent, key, (!is_delete).then_some(row))
}

#[test]
fn plain_topics_land_as_they_are() {
    let topology = Topology::new("plain", &[], Stores::ALL);
    let registry = Registry::start(AVRO.iter().map(|(id, text)| (*id, serde_json::from_str(text).expect("JSON"))).collect());
    std::fs::write(topology.file().with_file_name("object.avsc"), OBJECT).expect("the test's folder can be written");
    std::fs::write(topology.file(), file(&topology, registry.url())).expect("the test's folder can be written");
    let kafka = Kafka::new();
    let tables = [
        ("users", columns(&[("id", Kind::Text), ("v", Kind::Text), ("size", Kind::Decimal(2)), ("trace", Kind::Text)])),
        ("counters", columns(&[("id", Kind::Int), ("v", Kind::Text)])),
        ("readings", columns(&[("id", Kind::Text), ("n", Kind::Int), ("at", Kind::TimestampTz), ("note", Kind::Text)])),
        ("objects", columns(&[("id", Kind::Text), ("n", Kind::Int), ("kind", Kind::Text), ("note", Kind::Text)])),
    ];
    for (table, _) in &tables {
        kafka.create_topic(&topology.source(table), PARTITIONS, &[]);
    }
    let mut dice = Dice::new(20_241_201);
    let mut expected: BTreeMap<&str, Rows> = BTreeMap::new();
    let mut produce = |from: usize| {
        for (table, _) in &tables {
            let topic = topology.source(table);
            let mut records = Vec::new();
            for n in from..from + RECORDS / 2 {
                let (record, key, row) = record(&topic, table, n, &mut dice);
                records.push(record);
                let rows = expected.entry(table).or_default();
                match row {
                    Some(row) => drop(rows.insert(key, row)),
                    None => drop(rows.remove(&key)),
                }
            }
            kafka.produce(&records);
        }
    };
    produce(0);
    let mut process = topology.run().start();
    wait::until(HEAL, || {
        process.assert_running();
        let landed = |id: &str| topology.store(id).view("users", &tables[0].1).map(|v| v.rows.len());
        if landed("serving") > Some(0) && landed("warehouse") > Some(0) { Ok(()) } else { Err("nothing has landed yet") }
    })
    .unwrap_or_else(|why| panic!("{why}; the last lines:\n{}", process.tail()));
    process.kill();
    produce(RECORDS / 2);
    let mut process = topology.run().start();
    let landed = wait::until(HEAL, || {
        process.assert_running();
        for (table, columns) in &tables {
            let mut expected: Vec<Vec<Cell>> = expected[table].values().cloned().collect();
            expected.sort();
            for store in &topology.stores {
                let mut rows = store.view(table, columns).map(|v| v.rows).unwrap_or_default();
                rows.sort();
                if rows != expected {
                    let differing = rows.iter().zip(&expected).find(|(a, b)| a != b);
                    return Err(format!("{table} in {}: {} rows for {}, first {differing:?}", store.id(), rows.len(), expected.len()));
                }
            }
        }
        Ok(())
    });
    if let Err(why) = landed {
        panic!("{why}; letters {:?}; the last lines:\n{}", scene::letters(&kafka, &topology), process.tail());
    }
    assert!(scene::letters(&kafka, &topology).is_empty());
    process.drain_and_exit(DRAIN);
}
