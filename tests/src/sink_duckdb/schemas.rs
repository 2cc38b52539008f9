//! The schema of a DuckDB store: where its replicas stand, and that names of files, schemas and tables never run into each other.
//!
//! DuckDB names a database after its file, and a name with one dot may mean a database or a schema: `shop.t` in `shop.duckdb` is both.

use std::path::Path;

use landfall::sink::duckdb::query::{Limits, run};
use landfall::sink::duckdb::{DuckDbSink, Options};
use landfall::sink::{Batch, Kind, Sink as _, Target};
use landfall_schemas::Value;

use super::{begin, push, read, schema, target, texts};

fn sink_in(path: &Path, schema: &str) -> DuckDbSink {
    DuckDbSink::new(Options { path: path.to_owned(), schema: schema.to_owned() })
}

/// Lands one row under a new claim.
fn land(sink: &mut DuckDbSink, target: &mut Target, next: i64, id: i64, text: &str) {
    let (fence, expected) = begin(sink, target);
    let mut batch = Batch::default();
    batch.reset(0, fence, expected, next);
    push(&mut batch, &target.schema, &[Value::Int(id), Value::Text(text)], true);
    sink.land(target, &batch).expect("lands");
}

fn two_columns(table: &str) -> Target {
    target(table, &schema(&[("id", "int64"), ("v", "text")], &["id"]))
}

#[test]
fn replicas_stand_in_the_schema_of_the_store() {
    for (file, schema) in [
        ("replicas.duckdb", "shop"),
        ("shop.duckdb", "shop"),
        ("landfall.duckdb", "main"),
        ("landfall.duckdb", "Shop"),
        ("main.duckdb", "main"),
        ("temp.duckdb", "shop"),
        ("system.duckdb", "shop"),
        ("replica.duckdb", "cursor"),
        ("x.duckdb", "we\"ird na.me"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(file);
        let mut sink = sink_in(&path, schema);
        let mut target = two_columns("t");
        land(&mut sink, &mut target, 1, 1, "a");
        land(&mut sink, &mut target, 2, 1, "b");
        // Names without a schema mean the store's, through the process that holds the file and on the file itself.
        for closed in [false, true] {
            if closed {
                sink.idle().expect("closes");
            }
            let rows = run(&path, Some(schema), "FROM t", &Limits::default()).unwrap_or_else(|e| panic!("{file} {schema}: {e}")).rows;
            assert_eq!(rows, texts(&[&["1", "b"]]), "{file} {schema}");
        }
        let place = "SELECT schema_name FROM duckdb_tables() WHERE table_name = 't'";
        assert_eq!(read(&path, place), texts(&[&[schema]]), "{file}");
        assert_eq!(sink.rebuild(&target.replica, "t").expect("rebuilds"), 1);
        land(&mut sink, &mut target, 1, 2, "c");
        sink.idle().expect("closes");
        let rows = run(&path, Some(schema), "FROM t", &Limits::default()).expect("reads").rows;
        assert_eq!(rows, texts(&[&["2", "c"]]), "{file} {schema}");
    }
}

#[test]
fn one_table_name_in_two_schemas_is_two_tables() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("replicas.duckdb");
    let (mut one, mut two) = (sink_in(&path, "one"), sink_in(&path, "two"));
    let (mut ours, mut theirs) = (two_columns("t"), two_columns("t"));
    theirs.replica = "bank.local.t".to_owned();
    land(&mut one, &mut ours, 1, 1, "one");
    land(&mut two, &mut theirs, 1, 1, "two");
    // In the schema of the other the table has an owner.
    let mut third = ours.clone();
    third.replica = "third.local.t".to_owned();
    third.build = two.open(&third.replica, "t", None).expect("opens").build;
    let refused = two.prepare(&third).expect_err("taken");
    assert_eq!(refused.kind, Kind::TableExists);
    assert!(refused.detail.contains("bank.local.t"), "{refused}");
    one.release();
    two.release();
    assert_eq!(read(&path, "SELECT * FROM one.t UNION ALL SELECT * FROM two.t"), texts(&[&["1", "one"], &["1", "two"]]));
}

#[test]
fn another_schema_is_another_table_and_lands_from_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("replicas.duckdb");
    let mut target = two_columns("t");
    let mut before = sink_in(&path, "before");
    land(&mut before, &mut target, 5, 1, "a");
    before.release();
    let mut after = sink_in(&path, "after");
    let opened = after.open(&target.replica, "t", None).expect("opens");
    assert_eq!((opened.build, opened.schema), (1, None), "what the other table holds does not count");
    let (_, next) = begin(&mut after, &mut target);
    assert_eq!(next, None);
    after.release();
    assert_eq!(read(&path, "SELECT * FROM before.t"), texts(&[&["1", "a"]]), "the former table is nobody's and stays");
}
