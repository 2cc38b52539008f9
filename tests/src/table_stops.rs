//! What stops one table by name while the tables beside it go on: a column that the source has dropped, and offsets that no longer order.
//!
//! Real Kafka, the real process. A record that stops a table is never committed past, and a new process stops at it again.

use std::time::Duration;

use serde_json::{Value, json};

use crate::bad_input::neighbours_go_on;
use crate::harness::kafka::Record;
use crate::harness::stores::{Column, Kind};
use crate::harness::topology::Stores;
use crate::harness::wait;
use crate::scene::{self, HEAL, SOURCE_PARTITIONS, Scene};
use crate::workload::{CUSTOMERS, Mix, ORDERS, customer_columns, order_columns};

/// The record with one more column, nullable, as a connector sends it after `ALTER TABLE … ADD COLUMN`.
fn widened(record: &Record) -> Record {
    let mut value: Value = serde_json::from_slice(record.value.as_deref().expect("a change")).expect("JSON");
    for image in value["schema"]["fields"].as_array_mut().expect("fields").iter_mut().filter(|f| f["field"] == "before" || f["field"] == "after") {
        image["fields"].as_array_mut().expect("columns").push(json!({"type": "string", "optional": true, "field": "extra"}));
    }
    for image in ["before", "after"] {
        if let Some(row) = value["payload"][image].as_object_mut() {
            let _ = row.insert("extra".to_owned(), json!("more"));
        }
    }
    Record { value: Some(value.to_string().into_bytes()), ..record.clone() }
}

#[test]
fn column_dropped() {
    let mut scene = Scene::new("dropped", 41, Mix::CALM, Stores::POSTGRES);
    let topic = scene.topology.source(ORDERS);
    let mut process = scene.topology.run().start();
    let orders = scene.workload.slice(60).into_iter().filter(|r| r.topic == topic);
    let in_place: Vec<Record> = orders.map(|r| Record { partition: Some(0), ..r }).collect();
    let [narrow, wide, narrow_again, rest @ ..] = in_place.as_slice() else { panic!("there are more than three") };
    // A column is added. Then the connector sends again from before that: records of the older schema at higher offsets are no drop.
    scene.kafka.produce(&[narrow.clone(), widened(wide), narrow.clone(), widened(wide), widened(narrow_again)]);
    scene.kafka.produce(&rest[1..].iter().map(widened).collect::<Vec<_>>());
    let last = rest.last().expect("more records");
    let columns: Vec<Column> = [order_columns(), crate::harness::stores::columns(&[("extra", Kind::Text)])].concat();
    let store = scene.topology.store("serving").clone();
    let key: Value = serde_json::from_slice(last.key.as_deref().expect("a key")).expect("JSON");
    let id = key["payload"]["id"].to_string();
    let landed = wait::until(HEAL, || {
        process.assert_running();
        let rows = store.view(ORDERS, &columns).map(|v| v.rows).unwrap_or_default();
        let more = |r: &Vec<Option<String>>| r[0].as_deref() == Some(&id) && r.last() == Some(&Some("more".to_owned()));
        if rows.iter().any(more) { Ok(()) } else { Err(format!("{} rows, none of the last change", rows.len())) }
    });
    if let Err(why) = landed {
        panic!("the added column does not land: {why}; the last lines:\n{}", process.tail());
    }
    assert!(!process.log().contains("schema.column_dropped"), "an older record was taken for a drop");
    // The column goes: the very schema of before, at a higher position.
    let dropped = scene.kafka.ends(&topic)[&0];
    let next = loop {
        let found = scene.workload.slice(1).into_iter().find(|r| r.topic == topic && r.value.is_some());
        if let Some(record) = found {
            break Record { partition: Some(0), ..record };
        }
    };
    scene.kafka.produce(&[next]);
    let line = process.await_line("schema.column_dropped", HEAL);
    assert!(line.contains("extra") && line.contains(&format!("offset {dropped}")), "which column, and where: {line}");
    neighbours_go_on(&mut scene, &mut process, &["serving"]);
    process.drain_and_exit(scene::DRAIN);
    let group = format!("{}.normalise", scene.topology.name);
    let kafka = std::sync::Arc::clone(&scene.kafka);
    let committed = || kafka.group(&group, &topic).committed().and_then(|c| c.get(&0).copied());
    assert_eq!(committed(), Some(dropped), "everything before that record is committed, and nothing behind it");
    // A new process knows as much.
    let mut process = scene.topology.run().start();
    let line = process.await_line("schema.column_dropped", HEAL);
    assert!(line.contains("extra"), "{line}");
    neighbours_go_on(&mut scene, &mut process, &["serving"]);
    process.drain_and_exit(scene::DRAIN);
    assert_eq!(committed(), Some(dropped));
}

/// The record as a connector writes it whose order is not known here.
fn without_order(record: &Record, topic: &str) -> Record {
    let value = record.value.as_ref().map(|v| {
        let mut value: Value = serde_json::from_slice(v).expect("JSON");
        value["payload"]["source"]["connector"] = json!("oracle");
        value.to_string().into_bytes()
    });
    Record { topic: topic.to_owned(), value, ..record.clone() }
}

#[test]
fn offsets_order_until_the_topic_is_repartitioned() {
    let mut scene = Scene::new("byoffset", 42, Mix::CALM, Stores::POSTGRES);
    scene.topology.tables.push("ledger".into());
    scene.topology.write();
    let (ledger, customers) = (scene.topology.source("ledger"), scene.topology.source(CUSTOMERS));
    scene.kafka.create_topic(&ledger, SOURCE_PARTITIONS, &[]);
    scene.produce(40);
    let copy = |from: usize| -> Vec<Record> {
        let mut records = scene.kafka.read(&customers);
        records.sort_by_key(|r| (r.offset, r.partition));
        records.iter().skip(from).map(|r| without_order(r, &ledger)).collect()
    };
    let first = copy(0);
    scene.kafka.produce(&first);
    // A captured database has an order of its own, or none at all.
    let mut process = scene.topology.run().start();
    let line = process.await_line("source.no_order", HEAL);
    assert!(line.contains("ledger"), "which table: {line}");
    process.drain_and_exit(scene::DRAIN);
    // Topics of Kafka itself are ordered by offset where nothing else does it.
    let yaml = scene.topology.yaml();
    let as_kafka = yaml.replacen("type: postgresql, change_signal", "type: kafka, change_signal", 1);
    assert_ne!(yaml, as_kafka);
    std::fs::write(scene.topology.file(), as_kafka).expect("our own file");
    let mut process = scene.topology.run().start();
    let expected = crate::reference::replica(&scene.kafka.read(&customers), &["id", "name"]).0;
    let mut expected: Vec<Vec<Option<String>>> = expected.into_values().map(|row| row.into_values().collect()).collect();
    expected.sort();
    let store = scene.topology.store("serving").clone();
    let rows = || {
        let mut rows = store.view("ledger", &customer_columns()).map(|v| v.rows).unwrap_or_default();
        rows.sort();
        rows
    };
    let landed = wait::until(HEAL, || if rows() == expected { Ok(()) } else { Err(format!("{} of {} rows", rows().len(), expected.len())) });
    if let Err(why) = landed {
        panic!("the table that offsets order does not land: {why}; the last lines:\n{}", process.tail());
    }
    // Growing the others stops nothing: their order is their own.
    scene.kafka.add_partitions(&customers, SOURCE_PARTITIONS as usize + 1);
    scene.kafka.add_partitions(&ledger, SOURCE_PARTITIONS as usize + 1);
    let line = process.await_line("source.repartitioned", HEAL);
    assert!(line.contains("ledger"), "which topic: {line}");
    neighbours_go_on(&mut scene, &mut process, &["serving"]);
    process.drain_and_exit(scene::DRAIN);
    assert!(!process.log().lines().any(|l| l.contains("source.repartitioned") && l.contains(&customers)), "{}", process.tail());
    // A new process knows the count that was pinned, and reads nothing of the new partition.
    let record = Record { partition: Some(SOURCE_PARTITIONS), ..without_order(&first[0], &ledger) };
    scene.kafka.produce(&[record]);
    let mut process = scene.topology.run().start();
    let _ = process.await_line("source.repartitioned", HEAL);
    neighbours_go_on(&mut scene, &mut process, &["serving"]);
    process.drain_and_exit(Duration::from_secs(30));
    assert_eq!(rows(), expected);
}
