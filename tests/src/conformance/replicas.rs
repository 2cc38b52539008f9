//! Replicas and their tables: what `open`, `prepare` and `rebuild` say and do, whose a table is, and names of any characters.
//!
//! A build is all that tells the rows of before from those of now, and a table of somebody else's is never touched.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};

use landfall::sink::{Batch, Claim, Delta, Kind, Opened, Target, version};
use landfall_schemas::{Column, TableSchema, Value};

use super::Store;
use super::world::{World, assert_kind, encode, encode_key, plain, schema};

pub(super) fn open_knows_nothing_of_a_new_replica(store: &mut Store<'_>, name: &str) {
    let mut sink = (store.make)();
    let nothing = Opened { build: 0, schema: None };
    assert_eq!(sink.open(&format!("store.{name}"), &format!("t_{name}"), None).expect("opens"), nothing);
    assert_eq!(sink.open(&format!("store.{name}"), &format!("t_{name}"), None).expect("opens again"), nothing);
    let asked = sink.open(&format!("store.{name}.7"), &format!("t_{name}_7"), Some(7)).expect("opens");
    assert_eq!(asked, Opened { build: 7, schema: None }, "the build asked for is in force at once");
}

pub(super) fn open_tells_build_and_schema_to_the_next_process(store: &mut Store<'_>, name: &str) {
    let world = World::new(store, name, plain());
    let mut sink = (store.make)();
    let opened = sink.open(&world.target.replica, &world.target.table, None).expect("opens");
    assert_eq!(opened, Opened { build: world.target.build, schema: Some(TableSchema::clone(&world.target.schema)) });
    let equal = sink.open(&world.target.replica, &world.target.table, Some(world.target.build)).expect("opens");
    assert_eq!(equal, opened, "the build in force may be asked for");
}

pub(super) fn open_with_a_higher_build_puts_it_in_force(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut claim = world.claim(0);
    world.land(0, &mut claim, 10, &[(1, Some("a")), (2, Some("b"))]);
    let mut next = (store.make)();
    let build = world.target.build + 3;
    assert_eq!(next.open(&world.target.replica, &world.target.table, Some(build)).expect("opens").build, build);
    assert_kind(world.try_land(0, claim, 11, &[]), Kind::Build);
    let mut after = world.elsewhere(store);
    assert_eq!(after.target.build, build);
    after.model.clear();
    after.sink.prepare(&after.target).expect("prepares");
    after.check(store);
    assert_eq!(after.claim(0).next, None, "no cursor of an earlier build counts");
}

pub(super) fn open_with_a_lower_build_is_refused(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let build = world.sink.rebuild(&world.target.replica, &world.target.table).expect("rebuilds");
    let mut world = World { target: Target { build, ..world.target.clone() }, ..world.elsewhere(store) };
    world.sink.prepare(&world.target).expect("prepares");
    let mut claim = world.claim(0);
    world.land(0, &mut claim, 5, &[(1, Some("a"))]);
    assert_kind((store.make)().open(&world.target.replica, &world.target.table, Some(build - 1)), Kind::Build);
    world.check(store);
    world.land(0, &mut claim, 6, &[(2, Some("b"))]);
    world.check(store);
}

pub(super) fn prepare_may_be_repeated(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut claim = world.claim(0);
    world.land(0, &mut claim, 5, &[(1, Some("a"))]);
    world.sink.prepare(&world.target).expect("prepares again");
    let mut other = world.elsewhere(store);
    other.sink.prepare(&other.target).expect("prepares in another process");
    world.check(store);
    world.land(0, &mut claim, 6, &[(1, Some("b"))]);
    world.check(store);
}

/// A lander has several workers for a store, and prepares a new table from each partition that has rows for it.
pub(super) fn prepare_by_several_at_once_makes_one_table(store: &mut Store<'_>, name: &str) {
    for round in 0..3 {
        let (replica, table) = (format!("store.{name}.{round}"), format!("t_{name}_{round}"));
        let build = (store.make)().open(&replica, &table, None).expect("opens").build;
        let target = Target { replica, table, build, generation: 1, schema: plain() };
        let mut sinks: Vec<_> = (0..4).map(|_| (store.make)()).collect();
        let together = Barrier::new(sinks.len());
        std::thread::scope(|scope| {
            for (partition, sink) in (0..).zip(&mut sinks) {
                let (target, together) = (&target, &together);
                scope.spawn(move || {
                    assert_eq!(sink.open(&target.replica, &target.table, Some(target.build)).expect("opens").build, target.build);
                    let _ = together.wait();
                    // Whoever finds others in the way may say so, and is asked again.
                    let prepared = (0..20).map(|_| sink.prepare(target)).find(|p| p.as_ref().err().is_none_or(|e| e.kind != Kind::Unavailable));
                    prepared.expect("comes to rest").expect("prepares");
                    assert_eq!(sink.claim(target, partition).expect("claims").next, None);
                });
            }
        });
    }
}

pub(super) fn prepare_widens_by_nullable_columns(store: &mut Store<'_>, name: &str) {
    let narrow = plain();
    let mut world = World::new(store, name, narrow.clone());
    let mut claim = world.claim(0);
    world.land(0, &mut claim, 2, &[(1, Some("a")), (2, Some("b"))]);
    let added = [("day", "date"), ("note", "text")].map(|(n, t)| Column { name: n.to_owned(), ty: t.parse().expect(t), nullable: true });
    let wide = Arc::new(narrow.with_columns(&added));
    world.target.schema = wide.clone();
    world.sink.prepare(&world.target).expect("widens");
    // Rows of before have NULL in the new columns.
    world.model.values_mut().for_each(|row| row.extend([0, 0]));
    world.check(store);
    let values = [Value::Int(2), Value::Text("b2"), Value::Null, Value::Date(1), Value::Text("new")];
    world.try_land(0, claim, 3, &[(encode_key(&wide, &values), Some(encode(&wide, &values)))]).expect("lands");
    world.check(store);
    let opened = (store.make)().open(&world.target.replica, &world.target.table, None).expect("opens");
    assert_eq!(opened.schema.as_ref(), Some(&*wide));
}

pub(super) fn rebuild_counts_nothing_of_before(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut fences = Vec::new();
    for partition in [0, 1] {
        let mut claim = world.claim(partition);
        world.land(partition, &mut claim, 100, &[(partition.into(), Some("old"))]);
        fences.push(claim.fence);
    }
    let before = world.target.build;
    let one = world.sink.rebuild(&world.target.replica, &world.target.table).expect("rebuilds");
    assert!(one > before);
    let two = (store.make)().rebuild(&world.target.replica, &world.target.table);
    // A new process opens first.
    let two = two.or_else(|_| {
        let mut other = world.elsewhere(store);
        other.sink.rebuild(&world.target.replica, &world.target.table)
    });
    let two = two.expect("rebuilds again");
    assert!(two > one);
    assert!(world.cursor(0).is_none_or(|c| c.build != two || c.next.is_none()), "no cursor of an earlier build counts");
    let mut world = world.elsewhere(store);
    world.model.clear();
    assert_eq!(world.target.build, two);
    world.sink.prepare(&world.target).expect("prepares");
    world.check(store);
    for partition in [0, 1] {
        let mut claim = world.claim(partition);
        assert_eq!(claim.next, None);
        assert!(claim.fence > fences[partition as usize], "fences rise over builds too");
        // At lower offsets than before: versions of the new build are above all of the old.
        world.land(partition, &mut claim, 2, &[(partition.into(), Some("new"))]);
    }
    world.check(store);
}

pub(super) fn replicas_have_nothing_in_common(store: &mut Store<'_>, name: &str) {
    let mut one = World::new(store, name, plain());
    let mut two = World::new(store, &format!("{name}_2"), plain());
    let (mut a, mut b) = (one.claim(0), two.claim(0));
    one.land(0, &mut a, 10, &[(1, Some("one"))]);
    two.land(0, &mut b, 20, &[(1, Some("two"))]);
    let _ = one.sink.rebuild(&one.target.replica, &one.target.table).expect("rebuilds");
    two.check(store);
    two.land(0, &mut b, 21, &[(2, Some("still"))]);
    two.check(store);
    // One sink serves both, in turn.
    let claim = one.sink.claim(&two.target, 0).expect("claims the other");
    let changes = two.plain(&[(3, Some("by the first"))]);
    let batch = two.batch(0, claim, 22, &changes);
    one.sink.land(&two.target, &batch).expect("lands the other");
    two.model.extend(changes.into_iter().map(|(k, r)| (k, r.expect("a row"))));
    two.check(store);
}

/// Two topologies with the same ids in one store: cursors have nothing in common, and a table has one owner, who is named to the other.
pub(super) fn two_topologies_never_share_a_table(store: &mut Store<'_>, name: &str) {
    let mut ours = World::named(store, &format!("shop.store.{name}"), &format!("t_{name}"), plain());
    let mut claim = ours.claim(0);
    ours.land(0, &mut claim, 5, &[(1, Some("ours"))]);

    let mut theirs = (store.make)();
    let replica = format!("bank.store.{name}");
    let opened = theirs.open(&replica, &ours.target.table, None).expect("opens");
    assert_eq!(opened, Opened { build: 0, schema: None }, "nothing of another topology is known");
    let target = Target { replica: replica.clone(), build: opened.build, ..ours.target.clone() };
    let refused = theirs.prepare(&target).expect_err("the table has an owner");
    assert_eq!((refused.kind, refused.kind.code()), (Kind::TableExists, "binding.table_exists"));
    assert!(refused.to_string().contains(&ours.target.replica), "the owner is named: {refused}");

    // Nothing that the other topology does touches ours: no claim, no landing, no new build.
    let other = theirs.claim(&target, 0).expect("claims a cursor of its own");
    assert_eq!(other.next, None);
    let rows = ours.plain(&[(1, None), (2, Some("theirs"))]);
    let mut batch = Batch::default();
    batch.reset(0, other.fence, None, 9);
    for (key, row) in &rows {
        batch.push(Delta { key, row: row.as_deref(), version: version(target.build, 8) });
    }
    let _ = theirs.land(&target, &batch).expect_err("no table to land into");
    let _ = theirs.rebuild(&replica, &target.table).expect("its own build");
    ours.check(store);
    assert_eq!(ours.cursor(0).map(|c| (c.fence, c.next)), Some((claim.fence, Some(5))));
    ours.land(0, &mut claim, 6, &[(3, Some("still ours"))]);
    ours.check(store);

    // Both opened before either had a table: the first to prepare has it.
    let (mut first, mut second) = ((store.make)(), (store.make)());
    let target = |topology: &str| Target { replica: format!("{topology}.store.{name}.2"), table: format!("t_{name}_2"), ..ours.target.clone() };
    let (one, two) = (target("shop"), target("bank"));
    for (sink, target) in [(&mut first, &one), (&mut second, &two)] {
        let opened = sink.open(&target.replica, &target.table, None).expect("opens");
        assert_eq!(opened.build, target.build);
    }
    first.prepare(&one).expect("the table is free");
    assert_kind(second.prepare(&two), Kind::TableExists);

    // The same id and a table of its own: both land.
    let (own, table) = (format!("bank.store.{name}"), format!("t_{name}_bank"));
    let mut apart = World::named(store, &own, &table, plain());
    let mut other = apart.claim(0);
    assert_eq!(other.next, None);
    apart.land(0, &mut other, 2, &[(1, Some("apart"))]);
    apart.check(store);
    ours.check(store);
}

pub(super) fn hostile_names_are_only_names(store: &mut Store<'_>, name: &str) {
    let names = [
        "Order",
        "select",
        "na\"me",
        "a b",
        "a`b",
        "o'ne",
        "\\",
        "a\\\"b",
        "; DROP TABLE x; --",
        "%s$1?",
        "日本",
        "Ünï",
        "\u{1F600}",
        "a.b",
        "\t",
        "table",
    ];
    for (at, hostile) in names.iter().enumerate() {
        let columns: Vec<(&str, &str)> = names.iter().cycle().skip(at).take(names.len()).map(|n| (*n, "text")).collect();
        let schema = schema(&columns, &[columns[0].0]);
        let mut sink = (store.make)();
        let (replica, table) = (format!("{name}.{hostile}"), format!("{hostile} {at}"));
        let opened = sink.open(&replica, &table, None).expect("opens");
        let target = Target { replica, table, generation: 1, build: opened.build, schema: schema.clone() };
        sink.prepare(&target).unwrap_or_else(|e| panic!("{hostile:?}: {e}"));
        let mut world = World { sink, target, model: BTreeMap::new() };
        let claim = world.claim(0);
        let change = |key: &str, live: bool| {
            let values: Vec<_> = columns.iter().enumerate().map(|(i, (n, _))| Value::Text(if i == 0 { key } else { n })).collect();
            (encode_key(&schema, &values), live.then(|| encode(&schema, &values)))
        };
        world.try_land(0, claim, 2, &[change("k1", true), change("k2", true)]).unwrap_or_else(|e| panic!("{hostile:?}: {e}"));
        world.try_land(0, Claim { next: Some(2), ..claim }, 3, &[change("k2", false)]).unwrap_or_else(|e| panic!("{hostile:?}: {e}"));
        world.check(store);
    }
}
