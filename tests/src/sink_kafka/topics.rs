//! Whose a topic is, and what it has to be.

use std::sync::Arc;

use landfall::sink::{Batch, Delta, Error, Kind, Remedy, Sink as _, version};
use landfall_schemas::{Column, Value};

use super::{Home, PARTITIONS, pair, rows};
use crate::conformance::{encode, encode_key, schema};
use crate::harness::kafka::Record;
use crate::harness::latest;

fn refused(error: &Error, kind: Kind, names: &str) {
    assert_eq!((error.kind, error.kind.remedy()), (kind, Remedy::Halt), "{error}");
    assert!(error.to_string().contains(names), "{error}");
}

#[test]
fn a_topic_of_somebody_else_is_left_alone() {
    let home = Home::new("kafkaforeign");
    let topic = home.topic("orders");
    home.kafka.create_topic(&topic, PARTITIONS as i32, &[("cleanup.policy", "compact")]);
    let theirs = Record { topic: topic.clone(), partition: Some(0), key: Some(b"k".to_vec()), value: Some(b"theirs".to_vec()), ..Record::default() };
    home.kafka.produce(&[theirs]);
    let mut sink = home.sink();
    let target = home.target("orders", pair());
    let _ = sink.open(&target.replica, &target.table, None).expect("opens");
    let error = sink.prepare(&target).expect_err("not ours");
    refused(&error, Kind::TableExists, &topic);
    assert_eq!(home.kafka.read(&topic).len(), 1);
}

#[test]
fn a_topic_that_keeps_other_records_or_has_other_partitions_is_refused_by_name() {
    for (test, partitions, policy) in [("kafkapolicy", PARTITIONS + 1, "delete"), ("kafkacount", PARTITIONS, "compact")] {
        let home = Home::new(test);
        let cursors = format!("{}.cursors", home.topic("orders"));
        home.kafka.create_topic(&cursors, partitions as i32, &[("cleanup.policy", policy)]);
        let error = home.sink().open("r", &home.topic("orders"), None).expect_err("of no use");
        refused(&error, Kind::TableChanged, &cursors);
    }
    // Under us, too: more partitions than the log has.
    let home = Home::new("kafkagrown");
    let owner = home.owner("orders");
    home.kafka.add_partitions(&home.topic("orders"), PARTITIONS as usize + 1);
    let error = home.sink().open(&owner.target.replica, &owner.target.table, None).expect_err("other partitions");
    refused(&error, Kind::TableChanged, "5 partitions instead of 4");
}

/// A topic that was deleted under its owner is made again, and everything is landed anew.
#[test]
fn a_topic_that_was_deleted_is_made_again_under_another_build() {
    let home = Home::new("kafkagone");
    let mut owner = home.owner("orders");
    owner.land(3, &[(1, Some("a"))]);
    assert_eq!(owner.sink.cursor(&owner.target, 0).expect("reads").and_then(|c| c.next), Some(3));
    home.kafka.delete_topic(&home.topic("orders"));
    assert_eq!(owner.sink.cursor(&owner.target, 0).expect("reads"), None, "an idle owner notices it");
    let mut again = home.owner("orders");
    assert!(again.target.build > owner.target.build);
    assert_eq!(again.claim.next, None);
    assert_eq!(owner.try_land(4, &[(2, Some("b"))]).expect_err("superseded").kind, Kind::Build);
    again.land(3, &[(1, Some("a"))]);
    assert_eq!(home.read(&again.target), rows(&[(1, "a")]));
}

/// As many partitions as the log has.
#[test]
fn the_log_says_how_many_partitions_there_are() {
    let home = Home::with("kafkaaslog", "", None);
    let mut sink = home.sink();
    let target = home.target("orders", pair());
    let error = sink.open(&target.replica, &target.table, None).expect_err("there is no log");
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    home.kafka.create_topic(&format!("{}.orders", home.name), 3, &[]);
    let _ = sink.open(&target.replica, &target.table, None).expect("opens");
    sink.prepare(&target).expect("prepares");
    assert_eq!((home.kafka.partitions(&target.table), home.kafka.partitions(&format!("{}.cursors", target.table))), (3, 4));
    let error = sink.claim(&target, 3).expect_err("no such partition");
    refused(&error, Kind::TableChanged, &target.table);
}

/// A row beyond what a topic takes is refused by name, and nothing of its batch is landed.
#[test]
fn a_row_that_is_too_large_is_refused_by_name() {
    let home = Home::with("kafkalarge", ", message.max.bytes: 65536", Some(PARTITIONS));
    let mut owner = home.owner("orders");
    let large = "x".repeat(70_000);
    let error = owner.try_land(2, &[(1, Some("small")), (2, Some(&large))]).expect_err("too large");
    refused(&error, Kind::Unsupported, &owner.target.table);
    assert!(!error.to_string().contains("xx"), "no value is quoted: {error}");
    assert_eq!(home.read(&owner.target), rows(&[]));
    owner.land(2, &[(1, Some("small"))]);
    assert_eq!(home.read(&owner.target), rows(&[(1, "small")]));
}

/// What a consumer finds in a record, byte by byte where that matters.
#[test]
fn a_record_says_where_it_comes_from() {
    let home = Home::new("kafkaheaders");
    let names = ["Order", "na\"me", "日本", "_x20_", "a.b", "\t", "__x"];
    let columns: Vec<(&str, &str)> = names.iter().map(|n| (*n, "text")).collect();
    let schema = schema(&columns, &["日本", "na\"me"]);
    let mut sink = home.sink();
    let target = home.target("orders", Arc::clone(&schema));
    let _ = sink.open(&target.replica, &target.table, None).expect("opens");
    sink.prepare(&target).expect("prepares");
    let claim = sink.claim(&target, 2).expect("claims");
    let values: Vec<Value<'_>> = names.iter().map(|n| Value::Text(n)).collect();
    let (key, row) = (encode_key(&schema, &values), encode(&schema, &values));
    let mut batch = Batch::default();
    batch.reset(2, claim.fence, None, 8);
    batch.push(Delta { key: &key, row: Some(&row), version: version(0, 7) });
    sink.land(&target, &batch).expect("lands");
    batch.reset(2, claim.fence, Some(8), 10);
    batch.push(Delta { key: &key, row: None, version: version(0, 9) });
    sink.land(&target, &batch).expect("lands");
    let records = home.kafka.read(&target.table);
    let [row, delete] = &records[..] else { panic!("{records:?}") };
    for (record, offset) in [(row, "7"), (delete, "9")] {
        assert_eq!(record.partition, Some(2));
        let header = |name| latest::header(record, name);
        assert_eq!((header("landfall.partition"), header("landfall.offset"), header("landfall.build")), (Some("2"), Some(offset), Some("0")));
    }
    let mut canonical = Vec::new();
    for name in ["日本", "na\"me"] {
        landfall_schemas::key::encode(landfall_schemas::LogicalType::Text, Value::Text(name), &mut canonical).expect("a key");
    }
    assert!(records.iter().all(|r| r.key.as_ref() == Some(&canonical)), "the key of the log");
    assert_eq!((delete.value.as_ref(), latest::header(row, "landfall.key")), (None, None));
    assert_eq!(latest::header(delete, "landfall.key"), Some(r#"{"日本":"日本","na\"me":"na\"me"}"#));
    // Another's Avro reads it.
    let schemas = latest::schemas(&home.kafka.read(&home.options.schemas));
    let column = crate::harness::stores::Column { name: "Order".to_owned(), kind: crate::harness::stores::Kind::Text };
    assert_eq!(latest::row(&schemas, row, &[column]), [Some("Order".to_owned())]);
}

/// Rows of before a column came are read under their own contract, as Avro has it.
#[test]
fn a_column_that_came_later_is_null_in_older_rows() {
    let home = Home::new("kafkawider");
    let mut owner = home.owner("orders");
    owner.land(2, &[(1, Some("a"))]);
    let added = Column { name: "w".to_owned(), ty: "text".parse().expect("a type"), nullable: true };
    owner.target.schema = Arc::new(owner.target.schema.with_columns(&[added]));
    owner.sink.prepare(&owner.target).expect("widens");
    let values = [Value::Int(2), Value::Text("b"), Value::Text("new")];
    let mut batch = Batch::default();
    batch.reset(0, owner.claim.fence, owner.claim.next, 3);
    let (key, row) = (encode_key(&owner.target.schema, &values), encode(&owner.target.schema, &values));
    batch.push(Delta { key: &key, row: Some(&row), version: version(owner.target.build, 2) });
    owner.sink.land(&owner.target, &batch).expect("lands");
    let text = |t: &str| Some(t.to_owned());
    assert_eq!(home.read(&owner.target), vec![vec![text("1"), text("a"), None], vec![text("2"), text("b"), text("new")]]);
}
