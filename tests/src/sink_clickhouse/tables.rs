//! Whose table it is and which build it holds: foreign, widened, dropped, renamed, rebuilt.
//!
//! No row or cursor of an earlier build or of anybody else counts, however it came back.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};

use landfall::sink::{Claim, Kind, Sink as _, Target, version};
use landfall_schemas::{Decimal, Value};

use super::{REPLICA, Store, Way, batch, begin, kind, late_cursor, live, proxy, push, rows, simple, target};
use crate::conformance::schema;

#[test]
fn a_table_that_is_not_ours_is_left_alone() {
    let store = Store::new("foreign");
    store.ask("CREATE DATABASE {db} ENGINE = Atomic");
    let ours_but_for_the_record = "CREATE TABLE {db}.t (id Int64, v Nullable(String), __LF_VERSION UInt64, __LF_DELETED UInt8) \
         ENGINE = ReplacingMergeTree(__LF_VERSION, __LF_DELETED) ORDER BY id COMMENT 'landfall replica \"warehouse.t\", build 0'";
    for create in ["CREATE TABLE {db}.t (id Int64, v Nullable(String)) ENGINE = MergeTree ORDER BY id", ours_but_for_the_record] {
        store.ask(create);
        store.ask("INSERT INTO {db}.t (id, v) VALUES (1, 'theirs')");
        let mut sink = store.sink();
        let opened = sink.open(REPLICA, "t", None).expect("open");
        assert_eq!(opened.schema, None);
        assert_eq!(kind(sink.prepare(&target(simple(), opened.build))), Kind::TableExists);
        assert_eq!(store.ask("SELECT id, v FROM {db}.t FORMAT TSV"), "1\ttheirs");
        assert_eq!(store.ask("SELECT count() FROM system.tables WHERE database = '{db}' AND name = 't_live'"), "0");
        store.ask("DROP TABLE {db}.t SYNC");
    }
    // Once it is out of the way, the replica has the name.
    let mut sink = store.sink();
    let (target, claim) = begin(&mut sink, simple());
    sink.land(&target, &rows(&target, claim, 1, &[(1, Some("ours"), 0)])).expect("landed");
    assert_eq!(live(&store), "1\tours");
    // Another replica cannot take it.
    let opened = sink.open("warehouse.other", "t", None).expect("open");
    let other = Target { replica: "warehouse.other".to_owned(), build: opened.build, ..target.clone() };
    assert_eq!(kind(sink.prepare(&other)), Kind::TableExists);
    // Nor may the view take a name that is in use.
    store.ask("CREATE TABLE {db}.u_live (id Int64) ENGINE = MergeTree ORDER BY id");
    let opened = sink.open("warehouse.u", "u", None).expect("open");
    let other = Target { replica: "warehouse.u".to_owned(), table: "u".to_owned(), build: opened.build, ..target };
    assert_eq!(kind(sink.prepare(&other)), Kind::TableExists);
    assert_eq!(store.ask("SELECT engine FROM system.tables WHERE database = '{db}' AND name = 'u_live'"), "MergeTree");
}

/// Two workers of one lander prepare a new table: between any two steps of the one stands the whole work of the other.
#[test]
fn one_prepares_between_any_two_steps_of_another() {
    let store = Store::new("between");
    store.ask("CREATE DATABASE {db} ENGINE = Atomic");
    let mut step = 0;
    let mut met = true;
    while met {
        step += 1;
        // Where somebody has the name at `open`, it is not remembered as the replica's until `prepare`.
        store.ask(&format!("CREATE TABLE {{db}}.t{step} (id Int64) ENGINE = MergeTree ORDER BY id"));
        let (replica, table) = (format!("warehouse.t{step}"), format!("t{step}"));
        let mut quick = store.sink();
        let build = quick.open(&replica, &table, None).expect("open").build;
        store.ask(&format!("DROP TABLE {{db}}.t{step} SYNC"));
        let target = Target { replica, table, ..target(simple(), build) };
        let (left, other) = (AtomicUsize::new(step), (Mutex::new(quick), target.clone()));
        let (sender, receiver) = mpsc::channel();
        let url = proxy(&store, move |way, bytes, to| {
            if way == Way::ToServer && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)) == Ok(1) {
                let prepared = other.0.lock().map(|mut quick| quick.prepare(&other.1));
                drop(sender.send(prepared.expect("no panic")));
            }
            to.write_all(bytes).is_ok()
        });
        let mut slow = store.sink_at(&url);
        if let Err(error) = slow.prepare(&target) {
            assert_eq!(error.kind, Kind::Unavailable, "step {step}: {error}");
            slow.prepare(&target).expect("nobody is in the way any more");
        }
        met = match receiver.try_recv() {
            Ok(prepared) => {
                prepared.expect("the other prepares");
                true
            }
            Err(_) => false,
        };
        assert_eq!(slow.claim(&target, 0).expect("claim").next, None, "step {step}");
    }
    assert!(step > 8, "only {step} steps");
}

#[test]
fn a_schema_widens_and_is_remembered() {
    let store = Store::new("widen");
    let mut sink = store.sink();
    let (narrow, claim) = begin(&mut sink, simple());
    assert_eq!(sink.open(REPLICA, "t", None).expect("open").schema.as_ref(), Some(&*narrow.schema));
    sink.land(&narrow, &rows(&narrow, claim, 1, &[(1, Some("a"), 0)])).expect("landed");
    let wide = schema(&[("id", "int64"), ("added", "decimal(12,2)"), ("v", "text"), ("on", "date")], &["id"]);
    let wide = target(wide, narrow.build);
    sink.prepare(&wide).expect("prepare");
    sink.prepare(&wide).expect("and again");
    assert_eq!(store.sink().open(REPLICA, "t", None).expect("open").schema.as_ref(), Some(&*wide.schema));
    assert_eq!(sink.claim(&wide, 0).expect("claim").next, Some(1));
    let claim = sink.claim(&wide, 0).expect("claim");
    let mut batch = batch(0, claim, 2);
    let price = Value::Decimal(Decimal { unscaled: &1250_i16.to_be_bytes(), scale: 2 });
    push(&mut batch, &wide.schema, &[Value::Int(2), price, Value::Text("b"), Value::Date(1)], true, version(wide.build, 1));
    sink.land(&wide, &batch).expect("landed");
    assert_eq!(live(&store), "1\ta\t\\N\t\\N\n2\tb\t12.5\t1970-01-02");
    // A column that somebody takes away is not added again: that would blank it.
    store.ask("ALTER TABLE {db}.t DROP COLUMN added");
    assert_eq!(kind(store.sink().prepare(&wide)), Kind::TableChanged);
    let mut sink = store.sink();
    let claim = sink.claim(&wide, 0).expect("claim");
    batch.reset(0, claim.fence, claim.next, 3);
    push(&mut batch, &wide.schema, &[Value::Int(3), price, Value::Text("c"), Value::Null], true, version(wide.build, 2));
    assert_eq!(kind(sink.land(&wide, &batch)), Kind::TableChanged);
    assert_eq!(sink.claim(&wide, 0).expect("claim").next, Some(2));
}

#[test]
fn a_table_that_would_destroy_rows_is_refused() {
    let store = Store::new("adopt");
    let mut sink = store.sink();
    let (target, claim) = begin(&mut sink, schema(&[("id", "int64"), ("part", "int32"), ("v", "text")], &["id", "part"]));
    let mut batch = batch(0, claim, 1);
    push(&mut batch, &target.schema, &[Value::Int(1), Value::Int(2), Value::Text("a")], true, version(target.build, 0));
    sink.land(&target, &batch).expect("landed");
    let other_key = Target { schema: schema(&[("id", "int64"), ("part", "int32"), ("v", "text")], &["part", "id"]), ..target.clone() };
    assert_eq!(kind(sink.prepare(&other_key)), Kind::TableChanged);
    let other_type = Target { schema: schema(&[("id", "int64"), ("part", "int32"), ("v", "int64")], &["id", "part"]), ..target.clone() };
    assert_eq!(kind(sink.prepare(&other_type)), Kind::TableChanged);
    // A narrower column would wrap what lands; the server is not let to convert either.
    store.ask("ALTER TABLE {db}.t MODIFY COLUMN v Nullable(FixedString(1))");
    assert_eq!(kind(sink.prepare(&target)), Kind::TableChanged);
    batch.reset(0, claim.fence, Some(1), 2);
    push(&mut batch, &target.schema, &[Value::Int(1), Value::Int(3), Value::Text("longer")], true, version(target.build, 1));
    assert_eq!(kind(sink.land(&target, &batch)), Kind::TableChanged);
    assert_eq!(store.ask("SELECT v FROM {db}.t_live"), "a");
}

#[test]
fn a_rebuild_leaves_nothing_of_before() {
    let store = Store::new("rebuild");
    let mut sink = store.sink();
    let (old, claim) = begin(&mut sink, simple());
    sink.land(&old, &rows(&old, claim, 5, &[(1, Some("a"), 0), (2, Some("b"), 4)])).expect("landed");
    let mut zombie = store.sink();
    let stale = zombie.claim(&old, 0).expect("claim");
    assert_eq!(sink.rebuild(REPLICA, "t").expect("rebuild"), old.build + 1);
    assert_eq!(live(&store), "");
    assert_eq!(kind(zombie.land(&old, &rows(&old, stale, 9, &[(7, Some("late"), 8)]))), Kind::Build);
    assert_eq!(zombie.claim(&old, 0).expect_err("refused").kind, Kind::Build);
    assert_eq!(kind(zombie.prepare(&old)), Kind::Build);
    assert_eq!(sink.cursor(&old, 0).expect("read"), None, "a position of another build says nothing");
    let opened = sink.open(REPLICA, "t", None).expect("open");
    assert_eq!((opened.build, opened.schema), (old.build + 1, None));
    assert_eq!(sink.open(REPLICA, "t", Some(old.build)).expect_err("refused").kind, Kind::Build);
    // A rebuild takes what a generation may not change: another table is made.
    let new = target(schema(&[("id", "int64"), ("v", "int32")], &["id"]), opened.build);
    sink.prepare(&new).expect("prepare");
    let claim = sink.claim(&new, 0).expect("claim");
    assert_eq!(claim.next, None);
    let mut batch = batch(0, claim, 1);
    push(&mut batch, &new.schema, &[Value::Int(1), Value::Int(11)], true, version(new.build, 0));
    sink.land(&new, &batch).expect("landed");
    // Rows and a cursor that a zombie of the former build had under way.
    store.ask(&format!("INSERT INTO {{db}}.t VALUES (1, 99, {}, 0), (2, 98, {}, 0)", version(old.build, 300), version(old.build, 301)));
    late_cursor(&store, &old, stale.fence, 1, 302);
    assert_eq!(live(&store), "1\t11");
    assert_eq!(sink.cursor(&new, 0).expect("read").expect("a cursor").next, Some(1));
    // A plan asks for a build by number. A table that fits is taken over, and gives the space of the old rows back.
    let last = Target { build: new.build + 5, ..new.clone() };
    assert_eq!(sink.open(REPLICA, "t", Some(last.build)).expect("open").build, last.build);
    assert_eq!(live(&store), "");
    assert_eq!(kind(sink.land(&new, &batch)), Kind::Build);
    let identity = store.ask("SELECT uuid FROM system.tables WHERE database = '{db}' AND name = 't'");
    sink.prepare(&last).expect("prepare");
    assert_eq!(store.ask("SELECT uuid FROM system.tables WHERE database = '{db}' AND name = 't'"), identity);
    let claim = sink.claim(&last, 0).expect("claim");
    assert_eq!(claim.next, None);
    batch.reset(0, claim.fence, None, 1);
    push(&mut batch, &last.schema, &[Value::Int(4), Value::Int(44)], true, version(last.build, 0));
    sink.land(&last, &batch).expect("landed");
    assert_eq!(live(&store), "4\t44");
    store.ask("ALTER TABLE {db}.t DELETE WHERE 0 SETTINGS mutations_sync = 1");
    assert_eq!(store.ask("SELECT count() FROM {db}.t"), "1");
}

#[test]
fn a_table_that_was_dropped_lands_again_from_the_start() {
    let store = Store::new("dropped");
    let mut sink = store.sink();
    let (old, claim) = begin(&mut sink, simple());
    sink.land(&old, &rows(&old, claim, 5, &[(1, Some("a"), 0)])).expect("landed");
    store.ask("DROP TABLE {db}.t SYNC");
    let opened = sink.open(REPLICA, "t", None).expect("open");
    assert_eq!((opened.build, opened.schema), (old.build + 1, None));
    let new = target(simple(), opened.build);
    sink.prepare(&new).expect("prepare");
    let claim = sink.claim(&new, 0).expect("claim");
    assert_eq!(claim.next, None);
    sink.land(&new, &rows(&new, claim, 5, &[(1, Some("a"), 0)])).expect("landed");
    // Dropped under the lander, and made again by somebody who means well: `K` would tell a lie.
    let create = store.ask("SHOW CREATE TABLE {db}.t FORMAT TSVRaw");
    store.ask("DROP TABLE {db}.t SYNC");
    store.sql(&create);
    let claim = Claim { next: Some(5), ..claim };
    assert_eq!(kind(sink.land(&new, &rows(&new, claim, 6, &[(2, Some("b"), 5)]))), Kind::Build);
    assert_eq!(sink.open(REPLICA, "t", None).expect("open").build, new.build + 1);
}

#[test]
fn a_cursor_without_a_record_of_the_replica_does_not_count() {
    let store = Store::new("record");
    let mut sink = store.sink();
    let (old, claim) = begin(&mut sink, simple());
    sink.land(&old, &rows(&old, claim, 5, &[(1, Some("a"), 0)])).expect("landed");
    // Somebody tidies up, and forgets the cursors.
    store.ask("TRUNCATE TABLE {db}.landfall_replica");
    store.ask("DROP TABLE {db}.t SYNC");
    let opened = store.sink().open(REPLICA, "t", None).expect("open");
    assert_eq!((opened.build, opened.schema), (old.build + 1, None));
    let new = target(simple(), opened.build);
    sink.prepare(&new).expect("prepare");
    assert_eq!(sink.claim(&new, 0).expect("claim").next, None);
    // The record goes back to an earlier build, as a table that was restored alone.
    assert_eq!(sink.rebuild(REPLICA, "t").expect("rebuild"), new.build + 1);
    let rebuilt = target(simple(), new.build + 1);
    sink.prepare(&rebuilt).expect("prepare");
    let _ = sink.claim(&rebuilt, 0).expect("claim");
    store.ask(&format!("ALTER TABLE {{db}}.landfall_replica DELETE WHERE build > {} SETTINGS mutations_sync = 1", new.build));
    assert_eq!(sink.open(REPLICA, "t", None).expect("open").build, rebuilt.build + 1);
}

#[test]
fn another_table_or_generation_begins_anew() {
    let store = Store::new("moved");
    let mut sink = store.sink();
    let (old, claim) = begin(&mut sink, simple());
    sink.land(&old, &rows(&old, claim, 5, &[(1, Some("a"), 0)])).expect("landed");
    // Another name in the topology: the rows are not in that table, so no cursor counts for it.
    let opened = sink.open(REPLICA, "renamed", None).expect("open");
    assert_eq!((opened.build, opened.schema), (old.build + 1, None));
    let new = Target { table: "renamed".to_owned(), build: opened.build, ..old.clone() };
    sink.prepare(&new).expect("prepare");
    assert_eq!(sink.claim(&new, 0).expect("claim").next, None);
    assert_eq!(store.ask("SELECT count() FROM {db}.renamed_live"), "0");
    // Another generation counts its log from the start: versions of two logs must not meet in one build.
    let reset = Target { generation: 2, ..new };
    assert_eq!(kind(sink.prepare(&reset)), Kind::Build);
    let opened = sink.open(REPLICA, "renamed", None).expect("open");
    let reset = Target { build: opened.build, ..reset };
    sink.prepare(&reset).expect("prepare");
    assert_eq!(sink.claim(&reset, 0).expect("claim").next, None);
}

#[test]
fn several_processes_may_prepare_at_once() {
    let store = Store::new("races");
    for round in 0..4 {
        let builds: Vec<u16> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4_i32)
                .map(|partition| {
                    let store = &store;
                    scope.spawn(move || {
                        let mut sink = store.sink();
                        // As a lander does: whatever says that another build is in force leads back to `open`.
                        for _ in 0..20 {
                            let opened = sink.open(REPLICA, "t", None).expect("open");
                            let target = target(simple(), opened.build);
                            let landed = sink.prepare(&target).and_then(|()| sink.claim(&target, partition)).and_then(|claim| {
                                let mut batch = batch(partition, claim, 1);
                                push(&mut batch, &target.schema, &[Value::Int(partition.into()), Value::Text("x")], true, version(target.build, 0));
                                if claim.next.is_none() { sink.land(&target, &batch) } else { Ok(()) }
                            });
                            match landed {
                                Ok(()) => return opened.build,
                                Err(e) => assert!(matches!(e.kind, Kind::Build | Kind::Unavailable), "{e}"),
                            }
                        }
                        panic!("never at rest");
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().expect("no panic")).collect()
        });
        // Whoever landed into a build that was raised since has to land again; what is in force is whole.
        let mut sink = store.sink();
        let build = sink.open(REPLICA, "t", None).expect("open").build;
        let whole = builds.iter().all(|b| *b == build);
        assert!(!whole || store.ask("SELECT count() FROM {db}.t_live") == "4", "round {round}: {builds:?} {build}");
        println!("round {round}: builds {builds:?}, {build} in force");
        let _ = sink.rebuild(REPLICA, "t").expect("rebuild");
    }
}
