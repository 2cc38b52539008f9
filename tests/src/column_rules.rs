//! Columns that are left out, masked and renamed, through the real program into the three stores: what may not be seen is seen nowhere.

use crate::harness::kafka::{Kafka, Record};
use crate::harness::stores::{Kind, Store, columns};
use crate::harness::topology::{Stores, Topology};
use crate::harness::wait;
use crate::scene::{self, DRAIN, HEAL};

/// What is masked and what is left out begin with these.
const HIDDEN: [&str; 2] = ["clear-", "4111-"];

fn change(topic: &str, n: u64, op: char, before: &str, after: &str) -> Record {
    let (commit, lsn) = (1_000 + 10 * n, 1_005 + 10 * n);
    let source = format!(
        r#"{{"connector":"postgresql","name":"x","ts_ms":1714557600000,"snapshot":"false","db":"shop","sequence":"[\"{commit}\",\"{lsn}\"]","schema":"public","table":"people","txId":{n},"lsn":{lsn}}}"#
    );
    let value = format!(r#"{{"before":{before},"after":{after},"source":{source},"op":"{op}","ts_ms":1714557600123}}"#);
    let key = if after.contains("\"id\":2") { r#"{"id":2}"# } else { r#"{"id":1}"# };
    Record { topic: topic.to_owned(), partition: Some(0), offset: 0, key: Some(key.into()), value: Some(value.into_bytes()), headers: Vec::new() }
}

#[test]
fn what_may_not_be_seen_is_seen_nowhere() {
    let mut topology = Topology::new("rules", &["people"], Stores::ALL);
    topology.table_extra = "    columns: { types: { id: int64, email: text, card: text, cust: text }, exclude: [card], mask: { email: sha256 }, rename: { cust: customer } }\n    mask_salt: \"${env:MASK_SALT}\"\n".to_owned();
    topology.write();
    let kafka = Kafka::new();
    let topic = topology.source("people");
    kafka.create_topic(&topic, 1, &[]);
    let row = |id: u8, who: &str| format!(r#"{{"id":{id},"email":"clear-{id}@example.org","card":"4111-{id}","cust":"{who}"}}"#);
    let mut cut = change(&topic, 3, 'c', "null", &row(1, "never"));
    cut.value.as_mut().expect("a value").truncate(120);
    kafka.produce(&[
        change(&topic, 0, 'c', "null", &row(1, "Ann")),
        change(&topic, 1, 'c', "null", &row(2, "Bob")),
        change(&topic, 2, 'u', &row(1, "Ann"), &row(1, "Anna")),
        // Nobody can read it, and its beginning may be what must not be shown.
        cut,
        change(&topic, 4, 'u', "null", r#"{"id":2,"email":null,"card":"4111-9","cust":"Bob"}"#),
    ]);
    let mut process = topology.run().environment("MASK_SALT", "pepper").start();
    // printf 'clear-1@example.org' | openssl dgst -sha256 -hmac pepper
    let masked = "014bb66976fa1be8c20856f6091ab873365f2158bdd859a24f7f95a110a9f8ba";
    let text = |t: &str| Some(t.to_owned());
    let expected = vec![vec![text("1"), text(masked), text("Anna")], vec![text("2"), None, text("Bob")]];
    let seen = columns(&[("id", Kind::Int), ("email", Kind::Text), ("customer", Kind::Text)]);
    let landed = wait::until(HEAL, || {
        process.assert_running();
        for store in &topology.stores {
            let mut rows = store.view("people", &seen).map(|v| v.rows).unwrap_or_default();
            rows.sort();
            if rows != expected {
                return Err(format!("{}: {rows:?}", store.id()));
            }
        }
        if scene::letters(&kafka, &topology).is_empty() { Err("no dead letter".to_owned()) } else { Ok(()) }
    });
    if let Err(why) = landed {
        panic!("{why}; the last lines:\n{}", process.tail());
    }
    process.drain_and_exit(DRAIN);
    for store in &topology.stores {
        assert!(store.view("people", &columns(&[("card", Kind::Text)])).is_none(), "{} has a column that was left out", store.id());
        assert!(store.view("people", &columns(&[("cust", Kind::Text)])).is_none(), "{} has a column by its old name", store.id());
    }
    let told = [kafka.read(&topology.log("people")), kafka.read(&topology.dead_letters())].concat();
    assert!(told.len() > 4, "log and dead letters were read");
    let bytes: Vec<u8> = told.into_iter().flat_map(|r| [r.key, r.value]).flatten().flatten().chain(process.log().into_bytes()).collect();
    for hidden in HIDDEN {
        assert!(!bytes.windows(hidden.len()).any(|w| w == hidden.as_bytes()), "{hidden} is in the log, the dead letters or what the process says");
    }
}

/// `fallback: { refused: clamp }` and `as_text`: ClickHouse has no year 1066 and no infinity, the others do.
#[test]
fn what_one_store_cannot_hold_is_clamped_there_or_text_everywhere() {
    let mut topology = Topology::new("fallbacks", &["people"], Stores::ALL);
    topology.table_extra =
        "    columns: { types: { id: int64, born: date, seen: timestamptz(6), left: timestamptz(6) }, as_text: [left] }\n    fallback: { refused: clamp }\n".to_owned();
    topology.write();
    let kafka = Kafka::new();
    let topic = topology.source("people");
    kafka.create_topic(&topic, 1, &[]);
    let row = |id: u8, born: i64, seen: &str, left: &str| format!(r#"{{"id":{id},"born":{born},"seen":"{seen}","left":"{left}"}}"#);
    kafka.produce(&[
        change(&topic, 0, 'c', "null", &row(1, 19_000, "2024-05-01T10:00:00.5Z", "2024-05-01T10:00:00Z")),
        change(&topic, 1, 'c', "null", &row(2, -330_000, "infinity", "infinity")),
    ]);
    let mut process = topology.run().start();
    let seen = columns(&[("id", Kind::Int), ("born", Kind::Date), ("seen", Kind::TimestampTz), ("left", Kind::Text)]);
    let text = |t: &str| Some(t.to_owned());
    let first = vec![text("1"), text("2022-01-08"), text("2024-05-01T10:00:00.500000Z"), text("2024-05-01T10:00:00.000000Z")];
    let landed = wait::until(HEAL, || {
        process.assert_running();
        for store in &topology.stores {
            let second = match store {
                Store::ClickHouse { .. } => [text("2"), text("1900-01-01"), text("2299-12-31T23:59:59.999999Z"), text("infinity")],
                _ => [text("2"), text("1066-06-29"), text("infinity"), text("infinity")],
            };
            let mut rows = store.view("people", &seen).map(|v| v.rows).unwrap_or_default();
            rows.sort();
            if rows != [first.clone(), second.to_vec()] {
                return Err(format!("{}: {rows:?}", store.id()));
            }
        }
        Ok(())
    });
    if let Err(why) = landed {
        panic!("{why}; the last lines:\n{}", process.tail());
    }
    assert!(scene::letters(&kafka, &topology).is_empty(), "nothing is a dead letter");
    process.drain_and_exit(DRAIN);
}
