//! Whose table it is and what has become of it: foreign, dropped, put back, altered.
//!
//! Nothing of anybody else's is touched, what operators add to a table of ours stays, and a rebuild mends what does not fit.

use std::sync::Arc;

use landfall::sink::{Kind, Sink as _, Target};

use super::{Home, Owner, kind, pair, row, text};
use crate::conformance::{Rows, schema};

#[test]
fn a_table_that_is_not_ours_is_left_alone() {
    let home = Home::new("foreign");
    home.admin.run(&format!(
        "CREATE TABLE {0} (id bigint PRIMARY KEY, v text); INSERT INTO {0} VALUES (1, 'theirs'); CREATE VIEW {1} AS SELECT 1 AS id",
        home.table("t"),
        home.table("v")
    ));
    for table in ["t", "v"] {
        let mut sink = home.sink();
        let replica = format!("{}.{table}", home.schema);
        let opened = sink.open(&replica, table, None).expect("opens");
        let target = Target { replica: replica.clone(), table: table.to_owned(), generation: 1, build: opened.build, schema: pair() };
        let error = sink.prepare(&target).expect_err("not ours");
        assert_eq!((error.kind, error.kind.code()), (Kind::TableExists, "binding.table_exists"));
        // Nothing makes it ours: neither asking again, nor a rebuild, nor a new build.
        let build = sink.rebuild(&replica, table).expect("a build of nothing");
        let target = Target { build, ..target };
        assert_eq!(kind(sink.prepare(&target)), Kind::TableExists);
        assert_eq!(sink.open(&replica, table, Some(build + 1)).expect("opens").build, build + 1);
        // A landing that forgot to prepare finds no table of ours either.
        let target = Target { build: build + 1, ..target };
        let claim = sink.claim(&target, 0).expect("claims");
        let mut owner = Owner { sink, target, claim };
        let landed = owner.try_land(1, &[(&text(1, "ours"), true), (&text(2, "ours"), true)]);
        assert!(landed.is_err());
        home.assert_no_open_transaction();
    }
    assert_eq!(home.admin.rows(&format!("SELECT * FROM {}", home.table("t"))), [row(1, "theirs")]);
}

#[test]
fn another_replica_cannot_have_the_same_table() {
    let home = Home::new("shared_table");
    let mut owner = home.open("t", pair());
    owner.land(1, &[(&text(1, "one"), true)]);
    let mut sink = home.sink();
    let replica = format!("{}.other", home.schema);
    let opened = sink.open(&replica, "t", None).expect("opens");
    let target = Target { replica: replica.clone(), build: opened.build, ..owner.target.clone() };
    assert_eq!(kind(sink.prepare(&target)), Kind::TableExists);
    let _ = sink.rebuild(&replica, "t").expect("a build of nothing");
    assert_eq!(home.read(&owner.target), [row(1, "one")]);
}

#[test]
fn a_dropped_table_is_built_anew() {
    let home = Home::new("dropped");
    // Found by a landing with rows, by one without, by a claim, by opening.
    for way in 0..4 {
        let table = format!("t{way}");
        let mut owner = home.open(&table, pair());
        owner.land(10, &[(&text(1, "one"), true), (&text(2, "two"), true)]);
        let before = owner.target.build;
        home.admin.run(&format!("DROP TABLE {}", home.table(&table)));
        assert_eq!(owner.sink.cursor(&owner.target, 0).expect("reads"), None, "a position without its table counts for nothing");
        match way {
            0 => assert_eq!(kind(owner.try_land(11, &[(&text(3, "three"), true)])), Kind::Build),
            1 => assert_eq!(kind(owner.try_land(11, &[])), Kind::Build),
            2 => assert_eq!(kind(owner.sink.claim(&owner.target, 0)), Kind::Build),
            _ => {}
        }
        home.assert_no_open_transaction();
        let opened = owner.sink.open(&owner.target.replica, &table, None).expect("opens");
        assert_eq!((opened.build, opened.schema), (before + 1, None));
        owner.target.build = opened.build;
        owner.sink.prepare(&owner.target).expect("makes it anew");
        owner.claim = owner.sink.claim(&owner.target, 0).expect("claims");
        assert_eq!(owner.claim.next, None);
        owner.land(3, &[(&text(1, "one"), true)]);
        assert_eq!(home.read(&owner.target), [row(1, "one")]);
    }
}

#[test]
fn a_table_put_back_from_elsewhere_is_built_anew_and_a_strangers_is_not() {
    let home = Home::new("replaced");
    let mut owner = home.open("t", pair());
    owner.land(10, &[(&text(1, "one"), true)]);
    let table = home.table("t");
    // As a dump does when it is restored: another table of the same name, columns and comment.
    home.admin.run(&format!(
        "CREATE TABLE {0} (LIKE {table} INCLUDING ALL); INSERT INTO {0} VALUES (7, 'old'); DROP TABLE {table}; \
         ALTER TABLE {0} RENAME TO t; COMMENT ON TABLE {table} IS 'Replica \"{1}\", kept by Landfall.'",
        home.table("copy"),
        owner.target.replica
    ));
    assert_eq!(kind(owner.try_land(11, &[(&text(2, "two"), true)])), Kind::Build);
    let opened = owner.sink.open(&owner.target.replica, "t", None).expect("opens");
    owner.target.build = opened.build;
    owner.sink.prepare(&owner.target).expect("is ours again");
    assert_eq!(home.read(&owner.target), Rows::new(), "what came back is of no build");
    owner.claim = owner.sink.claim(&owner.target, 0).expect("claims");
    owner.land(2, &[(&text(3, "three"), true)]);
    home.admin.run(&format!("DROP TABLE {table}; CREATE TABLE {table} (id bigint PRIMARY KEY, v text); INSERT INTO {table} VALUES (1, 'theirs')"));
    assert_eq!(kind(owner.try_land(3, &[(&text(4, "four"), true)])), Kind::Build);
    owner.target.build = owner.sink.open(&owner.target.replica, "t", None).expect("opens").build;
    assert_eq!(kind(owner.sink.prepare(&owner.target)), Kind::TableExists);
    assert_eq!(home.read(&owner.target), [row(1, "theirs")]);
}

#[test]
fn another_table_name_begins_another_table() {
    let home = Home::new("renamed");
    let mut owner = home.open("t", pair());
    owner.land(10, &[(&text(1, "one"), true)]);
    let opened = owner.sink.open(&owner.target.replica, "t2", None).expect("opens");
    assert_eq!((opened.build, opened.schema), (owner.target.build + 1, None));
    let before = owner.target.clone();
    owner.target = Target { table: "t2".to_owned(), build: opened.build, ..before.clone() };
    owner.sink.prepare(&owner.target).expect("makes it");
    owner.claim = owner.sink.claim(&owner.target, 0).expect("claims");
    owner.land(1, &[(&text(9, "nine"), true)]);
    assert_eq!(home.read(&owner.target), [row(9, "nine")]);
    assert_eq!(home.read(&before), [row(1, "one")], "the former table is left as it was");
}

#[test]
fn a_table_that_was_changed_is_named_and_a_rebuild_mends_it() {
    let home = Home::new("changed");
    let mut owner = home.open("t", pair());
    owner.land(1, &[(&text(1, "one"), true)]);
    let table = home.table("t");
    // What an operator adds is theirs: a column, an index, a view, rights.
    home.admin.run(&format!(
        "ALTER TABLE {table} ADD COLUMN extra text DEFAULT 'theirs'; CREATE INDEX ON {table} (v); CREATE VIEW {} AS SELECT * FROM {table}",
        home.table("view")
    ));
    owner.sink.prepare(&owner.target).expect("still covers");
    owner.land(2, &[(&text(1, "one"), true), (&text(2, "two"), true)]);
    assert_eq!(home.read(&owner.target).len(), 2);
    let wide =
        Arc::new(owner.target.schema.with_columns(schema(&[("id", "int64"), ("extra", "text")], &["id"]).columns().get(1..).expect("a column")));
    assert_eq!(kind(owner.sink.prepare(&Target { schema: wide, ..owner.target.clone() })), Kind::TableChanged, "theirs does not become ours");
    home.admin.run(&format!("DROP VIEW {}; ALTER TABLE {table} ADD CHECK (v <> 's3cret')", home.table("view")));
    let error = owner.try_land(3, &[(&text(3, "s3cret"), true)]).expect_err("a constraint of theirs");
    assert_eq!(error.kind, Kind::TableChanged);
    assert!(error.to_string().contains("t_v_check") && !error.to_string().contains("s3cret"), "{error}");
    home.admin.run(&format!("ALTER TABLE {table} DROP COLUMN v"));
    assert_eq!(kind(owner.try_land(3, &[(&text(3, "x"), true)])), Kind::TableChanged);
    assert_eq!(kind(owner.sink.prepare(&owner.target)), Kind::TableChanged);
    home.assert_no_open_transaction();
    let build = owner.sink.rebuild(&owner.target.replica, "t").expect("rebuilds");
    owner.target.build = build;
    assert_eq!(owner.sink.open(&owner.target.replica, "t", None).expect("opens").schema, None, "nothing of it was left");
    owner.sink.prepare(&owner.target).expect("makes it anew");
    owner.claim = owner.sink.claim(&owner.target, 0).expect("claims");
    owner.land(1, &[(&text(5, "five"), true)]);
    assert_eq!(home.read(&owner.target), [row(5, "five")]);
}

#[test]
fn types_and_keys_do_not_change_under_a_table() {
    let home = Home::new("evolution");
    let mut owner = home.open("t", pair());
    owner.land(1, &[(&text(1, "one"), true)]);
    for (columns, key) in [
        (&[("id", "int64"), ("v", "int32")][..], &["id"][..]),
        (&[("id", "int32"), ("v", "text")], &["id"]),
        (&[("id", "int64"), ("v", "text")], &["id", "v"]),
    ] {
        assert_eq!(kind(owner.sink.prepare(&Target { schema: schema(columns, key), ..owner.target.clone() })), Kind::TableChanged);
    }
    // A schema with fewer columns is covered, and takes nothing away.
    owner.sink.prepare(&Target { schema: schema(&[("id", "int64")], &["id"]), ..owner.target.clone() }).expect("covered");
    assert_eq!(home.sink().open(&owner.target.replica, "t", None).expect("opens").schema.as_ref(), Some(&*owner.target.schema));
    owner.land(2, &[(&text(2, "two"), true)]);
}

#[test]
fn a_rebuild_keeps_what_operators_gave_the_table() {
    let home = Home::new("kept");
    let mut owner = home.open("t", pair());
    owner.land(1, &[(&text(1, "one"), true)]);
    let table = home.table("t");
    home.admin.run(&format!("CREATE INDEX mine ON {table} (v); CREATE VIEW {} AS SELECT v FROM {table}", home.table("view")));
    owner.target.build = owner.sink.rebuild(&owner.target.replica, "t").expect("rebuilds");
    assert_eq!(home.read(&owner.target), Rows::new());
    assert_eq!(home.admin.one(&format!("SELECT count(*) FROM pg_indexes WHERE schemaname = '{}' AND indexname = 'mine'", home.schema)), "1");
    let schema = owner.sink.open(&owner.target.replica, "t", None).expect("opens").schema;
    assert_eq!(schema.as_ref(), Some(&*owner.target.schema));
}
