//! Whose table it is, which build and which fence: nothing of anybody else's is ever touched, and nothing lands twice or not at all.

use std::sync::Arc;

use landfall::sink::{Batch, Kind, Sink as _};
use landfall_schemas::Value;

use super::{Bench, begin, push, schema, sink, target, texts};

fn land(
    bench: &mut Bench,
    target: &landfall::sink::Target,
    fence: u64,
    expected: Option<i64>,
    next: i64,
    rows: &[(i64, Option<&str>)],
) -> Result<(), Kind> {
    let mut batch = Batch::default();
    batch.reset(0, fence, expected, next);
    for (id, v) in rows {
        push(&mut batch, &target.schema, &[Value::Int(*id), Value::Text(v.unwrap_or_default())], v.is_some());
    }
    bench.sink.land(target, &batch).map_err(|e| e.kind)
}

#[test]
fn landing_updates_deletes_and_moves_the_cursor_at_once() {
    let schema = schema(&[("id", "int64"), ("v", "text")], &["id"]);
    let mut target = target("t", &schema);
    let mut bench = Bench::new();
    let (fence, next) = begin(&mut bench.sink, &mut target);
    assert_eq!((fence, next), (1, None));
    assert_eq!(land(&mut bench, &target, fence, None, 10, &[(1, Some("a")), (2, Some("b")), (3, None)]), Ok(()));
    assert_eq!(land(&mut bench, &target, fence, Some(10), 20, &[(1, Some("a2")), (2, None), (4, Some("d"))]), Ok(()));
    // Only the cursor moves.
    assert_eq!(land(&mut bench, &target, fence, Some(20), 25, &[]), Ok(()));
    let rows = [&["1", "a2"][..], &["4", "d"]];
    assert_eq!(bench.read("SELECT * FROM t ORDER BY id"), texts(&rows));
    let cursor = "SELECT replica, partition, next_offset, fence, generation, build, length(schema_id) FROM landfall.cursor";
    assert_eq!(bench.read(cursor), texts(&[&["local.t", "0", "25", "1", "1", "0", "16"]]));

    // A landing whose answer was lost is done again under a new claim, and changes nothing.
    let (fence, next) = begin(&mut bench.sink, &mut target);
    assert_eq!((fence, next), (2, Some(25)));
    assert_eq!(land(&mut bench, &target, fence, Some(25), 30, &[(1, Some("a2")), (2, None), (4, Some("d"))]), Ok(()));
    assert_eq!(bench.read("SELECT * FROM t ORDER BY id"), texts(&rows));
}

#[test]
fn a_stale_owner_changes_nothing() {
    let schema = schema(&[("id", "int64"), ("v", "text")], &["id"]);
    let mut target = target("t", &schema);
    let mut bench = Bench::new();
    let (old, _) = begin(&mut bench.sink, &mut target);
    assert_eq!(land(&mut bench, &target, old, None, 1, &[(1, Some("a"))]), Ok(()));
    // Another owner, over its own connection to the same file.
    let mut other = sink(&bench.path());
    let claim = other.claim(&target, 0).expect("claims");
    assert_eq!((claim.fence, claim.next), (2, Some(1)));
    assert_eq!(land(&mut bench, &target, old, Some(1), 2, &[(1, None)]), Err(Kind::Fenced));
    for (fence, expected, kind) in [(3, Some(1), Kind::CursorMoved), (2, Some(0), Kind::CursorMoved), (2, None, Kind::CursorMoved)] {
        assert_eq!(land(&mut bench, &target, fence, expected, 2, &[(1, None)]), Err(kind));
    }
    target.build = 1;
    assert_eq!(land(&mut bench, &target, 2, Some(1), 2, &[(1, None)]), Err(Kind::Build));
    assert_eq!(bench.sink.claim(&target, 0).map_err(|e| e.kind), Err(Kind::Build));
    other.release();
    assert_eq!(bench.read("SELECT * FROM t"), texts(&[&["1", "a"]]));
    assert_eq!(bench.read("SELECT fence, next_offset FROM landfall.cursor"), texts(&[&["2", "1"]]));
}

#[test]
fn a_new_generation_begins_without_a_cursor() {
    let mut target = target("t", &schema(&[("id", "int64"), ("v", "text")], &["id"]));
    let mut bench = Bench::new();
    let (fence, _) = begin(&mut bench.sink, &mut target);
    assert_eq!(land(&mut bench, &target, fence, None, 7, &[(1, Some("a"))]), Ok(()));
    target.generation = 2;
    let claim = bench.sink.claim(&target, 0).expect("claims");
    assert_eq!((claim.fence, claim.next), (2, None));
    target.generation = 1;
    assert_eq!(bench.sink.claim(&target, 0).map_err(|e| e.kind), Err(Kind::Build), "an older generation stands back");
}

#[test]
fn foreign_tables_and_views_are_left_alone() {
    let mut bench = Bench::new();
    bench.alter("CREATE TABLE \"Orders\" (id INTEGER); INSERT INTO \"Orders\" VALUES (7); CREATE VIEW seen AS SELECT 1 AS id");
    for table in ["orders", "seen"] {
        let mut target = target(table, &schema(&[("id", "int64")], &["id"]));
        target.build = bench.sink.open(&target.replica, table, None).expect("opens").build;
        let error = bench.sink.prepare(&target).expect_err("not ours");
        assert_eq!(error.kind, Kind::TableExists, "{error}");
        assert!(error.detail.contains(table), "{error}");
        let mut batch = Batch::default();
        let claim = bench.sink.claim(&target, 0).expect("claims");
        batch.reset(0, claim.fence, None, 1);
        push(&mut batch, &target.schema, &[Value::Int(7)], false);
        assert_eq!(bench.sink.land(&target, &batch).map_err(|e| e.kind), Err(Kind::Build));
    }
    assert_eq!(bench.read("SELECT * FROM \"Orders\""), texts(&[&["7"]]));
}

#[test]
fn two_replicas_cannot_have_one_table() {
    let mut bench = Bench::new();
    let mut first = target("t", &schema(&[("id", "int64"), ("v", "text")], &["id"]));
    let _ = begin(&mut bench.sink, &mut first);
    let mut second = first.clone();
    (second.replica, second.table) = ("local.second".to_owned(), "T".to_owned());
    second.build = bench.sink.open(&second.replica, &second.table, None).expect("opens").build;
    let error = bench.sink.prepare(&second).expect_err("taken");
    assert_eq!(error.kind, Kind::TableExists);
    assert!(error.detail.contains("local.t"), "{error}");
}

/// Dropped by somebody, or dropped and made again: the first lands everything anew, the second is foreign.
#[test]
fn a_table_that_was_dropped_lands_again() {
    let mut bench = Bench::new();
    let mut target = target("t", &schema(&[("id", "int64"), ("v", "text")], &["id"]));
    let (fence, _) = begin(&mut bench.sink, &mut target);
    assert_eq!(land(&mut bench, &target, fence, None, 7, &[(1, Some("a"))]), Ok(()));
    bench.alter("DROP TABLE t");
    assert_eq!(land(&mut bench, &target, fence, Some(7), 8, &[(2, Some("b"))]), Err(Kind::Build));
    let opened = bench.sink.open(&target.replica, "t", None).expect("opens");
    assert_eq!((opened.build, opened.schema), (1, None));
    let (fence, next) = begin(&mut bench.sink, &mut target);
    assert_eq!((target.build, fence, next), (1, 2, None));
    assert_eq!(land(&mut bench, &target, fence, None, 8, &[(1, Some("a")), (2, Some("b"))]), Ok(()));

    // Seen at once when the replica is opened, prepared or claimed.
    for act in ["open", "prepare", "claim"] {
        bench.alter("DROP TABLE t");
        let build = target.build;
        match act {
            "open" => assert_eq!(bench.sink.open(&target.replica, "t", None).map(|o| o.build).expect("opens"), build + 1),
            "prepare" => assert_eq!(bench.sink.prepare(&target).map_err(|e| e.kind), Err(Kind::Build)),
            _ => assert_eq!(bench.sink.claim(&target, 0).map_err(|e| e.kind), Err(Kind::Build)),
        }
        let (_, next) = begin(&mut bench.sink, &mut target);
        assert_eq!((target.build, next), (build + 1, None), "{act}");
    }

    bench.alter("DROP TABLE t; CREATE TABLE t (id BIGINT NOT NULL, v VARCHAR); INSERT INTO t VALUES (9, 'theirs')");
    assert_eq!(bench.sink.open(&target.replica, "t", None).map_err(|e| e.kind), Err(Kind::TableExists));
    assert_eq!(bench.sink.claim(&target, 0).map_err(|e| e.kind), Err(Kind::TableExists));
    assert_eq!(bench.sink.rebuild(&target.replica, "t").map_err(|e| e.kind), Err(Kind::TableExists));
    assert_eq!(bench.read("SELECT v FROM t"), texts(&[&["theirs"]]));
}

#[test]
fn a_file_that_was_put_away_is_begun_anew() {
    let mut bench = Bench::new();
    let mut target = target("t", &schema(&[("id", "int64"), ("v", "text")], &["id"]));
    let (fence, _) = begin(&mut bench.sink, &mut target);
    assert_eq!(land(&mut bench, &target, fence, None, 7, &[(1, Some("a"))]), Ok(()));
    bench.sink.idle().expect("closes");
    std::fs::rename(bench.path(), bench.folder.path().join("away")).expect("moves");
    assert_eq!(land(&mut bench, &target, fence, Some(7), 8, &[(2, Some("b"))]), Err(Kind::Build));
    assert_eq!(bench.sink.cursor(&target, 0).expect("reads"), None);
    assert_eq!(begin(&mut bench.sink, &mut target), (1, None));
}

#[test]
fn a_build_goes_up_and_never_down() {
    let mut bench = Bench::new();
    let mut target = target("t", &schema(&[("id", "int64"), ("v", "text")], &["id"]));
    let (fence, _) = begin(&mut bench.sink, &mut target);
    assert_eq!(land(&mut bench, &target, fence, None, 7, &[(1, Some("a"))]), Ok(()));
    assert_eq!(bench.sink.rebuild(&target.replica, "t").expect("rebuilds"), 1);
    assert_eq!(land(&mut bench, &target, fence, Some(7), 8, &[(2, Some("b"))]), Err(Kind::Build));
    assert_eq!(bench.read("SELECT count(*) FROM t"), texts(&[&["0"]]));
    let opened = bench.sink.open(&target.replica, "t", Some(5)).expect("opens");
    assert_eq!((opened.build, opened.schema.as_ref()), (5, Some(&*target.schema)));
    assert_eq!(bench.sink.open(&target.replica, "t", Some(4)).map_err(|e| e.kind), Err(Kind::Build));
    assert_eq!(bench.sink.open(&target.replica, "t", Some(5)).expect("opens").build, 5);
    let (fence, next) = begin(&mut bench.sink, &mut target);
    assert_eq!((target.build, fence, next), (5, 2, None));
    assert_eq!(land(&mut bench, &target, fence, None, 7, &[(1, Some("again"))]), Ok(()));
    assert_eq!(bench.read("SELECT * FROM t"), texts(&[&["1", "again"]]));

    // Another name for the table: a new one is filled, the old one stays for whoever reads it.
    target.table = "renamed".to_owned();
    let opened = bench.sink.open(&target.replica, "renamed", None).expect("opens");
    assert_eq!((opened.build, opened.schema), (6, None));
    let (_, next) = begin(&mut bench.sink, &mut target);
    assert_eq!(next, None);
    assert_eq!(bench.read("SELECT * FROM t"), texts(&[&["1", "again"]]));
}

#[test]
fn tables_widen_and_old_schemas_still_land() {
    let mut bench = Bench::new();
    let narrow = schema(&[("id", "int64"), ("v", "text")], &["id"]);
    let mut target = target("t", &narrow);
    let (fence, _) = begin(&mut bench.sink, &mut target);
    assert_eq!(land(&mut bench, &target, fence, None, 1, &[(1, Some("a"))]), Ok(()));
    // The wider schema has its columns in another order, and lacks one.
    target.schema = schema(&[("new", "decimal(10,2)"), ("id", "int64")], &["id"]);
    bench.sink.prepare(&target).expect("widens");
    let mut batch = Batch::default();
    batch.reset(0, fence, Some(1), 2);
    push(&mut batch, &target.schema, &[Value::Null, Value::Int(2)], true);
    bench.sink.land(&target, &batch).expect("lands");
    let opened = bench.sink.open(&target.replica, "t", None).expect("opens").schema.expect("a schema");
    assert_eq!(opened.columns().iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["id", "v", "new"]);
    // A late record of the old schema lands, whatever an operator has added.
    bench.alter("ALTER TABLE t ADD COLUMN theirs INTEGER DEFAULT 5");
    target.schema = Arc::clone(&narrow);
    bench.sink.prepare(&target).expect("covers");
    assert_eq!(land(&mut bench, &target, fence, Some(2), 3, &[(3, Some("c"))]), Ok(()));
    assert_eq!(
        bench.read("SELECT id, v, new, theirs FROM t ORDER BY id"),
        texts(&[&["1", "a", "NULL", "5"], &["2", "NULL", "NULL", "5"], &["3", "c", "NULL", "5"]])
    );

    bench.alter("ALTER TABLE t DROP COLUMN v");
    let error = bench.sink.prepare(&target).expect_err("a column is gone");
    assert_eq!(error.kind, Kind::TableChanged);
    assert!(error.detail.contains("\"v\""), "{error}");
    bench.alter("ALTER TABLE t ADD COLUMN v INTEGER");
    assert_eq!(bench.sink.prepare(&target).map_err(|e| e.kind), Err(Kind::TableChanged));
    // The way out is a rebuild: the table is made as it should be.
    target.build = bench.sink.rebuild(&target.replica, "t").expect("rebuilds");
    bench.sink.prepare(&target).expect("as it should be");
}

#[test]
fn another_type_or_key_waits_for_a_rebuild() {
    let mut bench = Bench::new();
    let mut target = target("t", &schema(&[("id", "int64"), ("v", "text")], &["id"]));
    let (fence, _) = begin(&mut bench.sink, &mut target);
    assert_eq!(land(&mut bench, &target, fence, None, 1, &[(1, Some("a"))]), Ok(()));
    target.schema = schema(&[("id", "int64"), ("v", "int32")], &["id", "v"]);
    assert_eq!(bench.sink.prepare(&target).map_err(|e| e.kind), Err(Kind::TableChanged));
    target.schema = schema(&[("id", "int32"), ("v", "text")], &["id"]);
    assert_eq!(bench.sink.prepare(&target).map_err(|e| e.kind), Err(Kind::TableChanged));
    target.build = bench.sink.rebuild(&target.replica, "t").expect("rebuilds");
    bench.sink.prepare(&target).expect("nothing has landed yet");
    assert_eq!(
        bench.read("SELECT data_type FROM duckdb_columns() WHERE table_name = 't' ORDER BY column_index"),
        texts(&[&["INTEGER"], &["VARCHAR"]])
    );
}

#[test]
fn hostile_names_are_only_names() {
    let long = "x".repeat(300);
    let names = ["select", "a\"b", "with space", "日本", "Ä", "ä", "semi;--", "rowid", "it's", "k0", "s", "t", &long];
    let columns: Vec<(&str, &str)> = names.iter().map(|n| (*n, "text")).collect();
    let schema = schema(&columns, &["select", "a\"b", "rowid"]);
    let mut bench = Bench::new();
    for table in ["select", "a\"b; DROP TABLE x", "日本 ", "x.y", "it's", "main", "Landfall"] {
        let mut target = target(table, &schema);
        let (fence, mut next) = begin(&mut bench.sink, &mut target);
        let mut batch = Batch::default();
        for round in 1..=2 {
            batch.reset(0, fence, next, round);
            let values: Vec<Value<'_>> = names.iter().map(|n| Value::Text(n)).collect();
            push(&mut batch, &schema, &values, true);
            bench.sink.land(&target, &batch).expect(table);
            next = Some(round);
        }
        let found = bench.read(&format!("SELECT * FROM main.\"{}\"", table.replace('"', "\"\"")));
        assert_eq!(found, texts(&[&names]), "{table}");
        bench.sink.prepare(&target).expect(table);
    }
    for columns in [&[("id", "int32"), ("Id", "int32")][..], &[("id", "int32"), ("", "int32")]] {
        let error = bench.sink.prepare(&target("names", &super::schema(columns, &["id"]))).expect_err("one name for two columns");
        assert_eq!(error.kind, Kind::Unsupported);
        assert!(error.detail.starts_with("scd.column_"), "{error}");
    }
    let wider = super::schema(&[("select", "text"), ("a\"b", "text"), ("rowid", "text"), ("SEMI;--", "text")], &["select", "a\"b", "rowid"]);
    let mut target = target("select", &wider);
    target.build = bench.sink.open(&target.replica, "select", None).expect("opens").build;
    let error = bench.sink.prepare(&target).expect_err("a later column folds into an older one");
    assert!(error.detail.starts_with("scd.column_collision"), "{error}");
}

/// The key's index is built by the plan, behind the landings: they go on with it.
#[test]
fn an_index_on_the_key_does_not_disturb_landings() {
    let mut bench = Bench::new();
    let mut target = target("t", &schema(&[("id", "int64"), ("v", "text")], &["id"]));
    let (fence, _) = begin(&mut bench.sink, &mut target);
    assert_eq!(land(&mut bench, &target, fence, None, 1, &[(1, Some("a")), (2, Some("b"))]), Ok(()));
    bench.alter("ALTER TABLE t ADD PRIMARY KEY (id)");
    for round in 1..20 {
        let v = format!("a{round}");
        assert_eq!(
            land(&mut bench, &target, fence, Some(round), round + 1, &[(1, Some(&v)), (2, (round % 2 == 0).then_some("b"))]),
            Ok(()),
            "{round}"
        );
    }
    target.schema = schema(&[("id", "int64"), ("v", "text"), ("w", "int32")], &["id"]);
    bench.sink.prepare(&target).expect("widens");
    assert_eq!(bench.read("SELECT * FROM t"), texts(&[&["1", "a19", "NULL"]]));
}

#[test]
fn metadata_says_what_the_table_is() {
    let mut bench = Bench::new();
    let target = {
        let mut target = target("t", &schema(&[("id", "int64"), ("v", "text")], &["id"]));
        let _ = begin(&mut bench.sink, &mut target);
        target
    };
    let rows = bench.read("SELECT replica, table_name, generation, build, contract, identity FROM landfall.replica");
    let contract = landfall_schemas::contract::of(&target.schema).0;
    let identity = rows[0][5].clone().expect("an identity");
    assert_eq!(rows, texts(&[&["local.t", "t", "1", "0", &contract, &identity]]));
    assert_eq!(bench.read("SELECT comment FROM duckdb_tables() WHERE table_name = 't'"), texts(&[&[&identity]]));
}
