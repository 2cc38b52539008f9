//! What every sink must do, whatever its store: each rule of the contract (`landfall::sink::Sink`) is a scenario with a name.
//!
//! A scenario speaks to a store through sinks only, and looks at it as a reader would: the live rows as text. Expected rows come from a map that
//! the scenario keeps itself. `make` gives a sink of a new process on the same store; `read` the live rows of a replica, each value as
//! `Value::write_text` writes it, NULL as `None`; `refuse` says which values the store refuses by name, so that they are left out. Every scenario
//! uses replicas and tables of its own name.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use landfall::sink::{Batch, Claim, Cursor, Delta, Error, Kind, Opened, Remedy, Sink, Target, version};
use landfall_schemas::store::Refusal;
use landfall_schemas::{Column, Decimal, LogicalType, TableSchema, Value, decimal, row};

/// Live rows as text, in the order of the target's columns.
pub(crate) type Rows = Vec<Vec<Option<String>>>;

/// A store under test.
pub(crate) struct Store<'a> {
    make: &'a mut dyn FnMut() -> Box<dyn Sink>,
    read: &'a mut dyn FnMut(&Target) -> Rows,
    refuse: fn(LogicalType, &Value<'_>) -> Option<Refusal>,
}

type Scenario = fn(&mut Store<'_>, &str);

/// The rules, by name.
pub(crate) const SCENARIOS: &[(&str, Scenario)] = &[
    ("open_knows_nothing_of_a_new_replica", open_knows_nothing_of_a_new_replica),
    ("open_tells_build_and_schema_to_the_next_process", open_tells_build_and_schema_to_the_next_process),
    ("open_with_a_higher_build_puts_it_in_force", open_with_a_higher_build_puts_it_in_force),
    ("open_with_a_lower_build_is_refused", open_with_a_lower_build_is_refused),
    ("prepare_may_be_repeated", prepare_may_be_repeated),
    ("prepare_widens_by_nullable_columns", prepare_widens_by_nullable_columns),
    ("claim_raises_the_fence_and_reads_k", claim_raises_the_fence_and_reads_k),
    ("claim_of_a_superseded_build_is_refused", claim_of_a_superseded_build_is_refused),
    ("cursor_is_read_without_changing_anything", cursor_is_read_without_changing_anything),
    ("land_brings_rows_and_k_together", land_brings_rows_and_k_together),
    ("an_empty_batch_moves_only_the_cursor", an_empty_batch_moves_only_the_cursor),
    ("a_batch_without_rows_needs_no_table", a_batch_without_rows_needs_no_table),
    ("a_stale_fence_changes_nothing", a_stale_fence_changes_nothing),
    ("an_unexpected_k_changes_nothing", an_unexpected_k_changes_nothing),
    ("a_superseded_build_changes_nothing", a_superseded_build_changes_nothing),
    ("a_landing_whose_reply_was_lost_is_told_by_the_cursor", a_landing_whose_reply_was_lost_is_told_by_the_cursor),
    ("landing_again_under_a_new_fence_converges", landing_again_under_a_new_fence_converges),
    ("tombstones_remove_and_rows_come_back", tombstones_remove_and_rows_come_back),
    ("rebuild_counts_nothing_of_before", rebuild_counts_nothing_of_before),
    ("partitions_have_their_own_cursors", partitions_have_their_own_cursors),
    ("replicas_have_nothing_in_common", replicas_have_nothing_in_common),
    ("two_topologies_never_share_a_table", two_topologies_never_share_a_table),
    ("idle_gives_back_and_goes_on", idle_gives_back_and_goes_on),
    ("every_type_arrives_exactly", every_type_arrives_exactly),
    ("every_type_that_can_be_a_key_is_one", every_type_that_can_be_a_key_is_one),
    ("a_key_of_several_columns_in_another_order", a_key_of_several_columns_in_another_order),
    ("a_table_that_is_all_key", a_table_that_is_all_key),
    ("changes_that_an_equals_sign_does_not_see", changes_that_an_equals_sign_does_not_see),
    ("hostile_names_are_only_names", hostile_names_are_only_names),
    ("large_batches_and_large_values", large_batches_and_large_values),
    ("any_history_ends_as_its_changes_say", any_history_ends_as_its_changes_say),
];

/// Runs every scenario; a failure names its scenario and the others still run.
pub(crate) fn run(
    make: &mut dyn FnMut() -> Box<dyn Sink>,
    read: &mut dyn FnMut(&Target) -> Rows,
    refuse: fn(LogicalType, &Value<'_>) -> Option<Refusal>,
) {
    let mut store = Store { make, read, refuse };
    let mut failed = Vec::new();
    let mut first = None;
    for (name, scenario) in SCENARIOS {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| scenario(&mut store, name))) {
            println!("conformance: {name} FAILED");
            failed.push(*name);
            first.get_or_insert(panic);
        }
    }
    if let Some(panic) = first {
        println!("conformance: {} of {} scenarios failed: {}", failed.len(), SCENARIOS.len(), failed.join(", "));
        resume_unwind(panic);
    }
}

/// Seeded randomness (SplitMix64), the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A schema of columns `name type`, in one text, and the names of its key.
pub(crate) fn schema(columns: &[(&str, &str)], key: &[&str]) -> Arc<TableSchema> {
    let columns = columns.iter().map(|(n, t)| Column { name: (*n).to_owned(), ty: t.parse().expect(t), nullable: true }).collect();
    Arc::new(TableSchema::new("conformance", columns, key).expect("a valid schema"))
}

/// A row of the schema's columns.
pub(crate) fn encode(schema: &TableSchema, values: &[Value<'_>]) -> Vec<u8> {
    assert_eq!(values.len(), schema.columns().len());
    let mut out = Vec::new();
    for (column, value) in schema.columns().iter().zip(values) {
        row::put(column.ty, *value, &mut out).expect("a value of its type");
    }
    out
}

/// The key of a row of the schema's columns.
pub(crate) fn encode_key(schema: &TableSchema, values: &[Value<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for at in schema.key() {
        row::put_plain(schema.columns()[*at].ty, values[*at], &mut out).expect("a value of its type");
    }
    out
}

/// The text of a row of the schema's columns.
pub(crate) fn texts(schema: &TableSchema, encoded: &[u8]) -> Vec<Option<String>> {
    let text = |(column, value): (&Column, Value<'_>)| {
        let mut text = String::new();
        value.write_text(column.ty, &mut text);
        (!value.is_null()).then_some(text)
    };
    row::values(schema.columns(), encoded).map(|v| text(v.expect("our own row"))).collect()
}

/// A replica, a sink that may land it, and what its table should hold.
struct World {
    sink: Box<dyn Sink>,
    target: Target,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A change of the plain table: id, and name and amount or nothing.
type Plain<'a> = (i64, Option<&'a str>);

fn plain() -> Arc<TableSchema> {
    schema(&[("id", "int64"), ("name", "text"), ("amount", "decimal(12,2)")], &["id"])
}

impl World {
    /// Opens and prepares a replica named after the scenario.
    fn new(store: &mut Store<'_>, name: &str, schema: Arc<TableSchema>) -> Self {
        Self::named(store, &format!("store.{name}"), &format!("t_{name}"), schema)
    }

    /// Opens and prepares a replica.
    fn named(store: &mut Store<'_>, replica: &str, table: &str, schema: Arc<TableSchema>) -> Self {
        let mut sink = (store.make)();
        let (replica, table) = (replica.to_owned(), table.to_owned());
        let opened = sink.open(&replica, &table, None).expect("opens");
        let target = Target { replica, table, generation: 1, build: opened.build, schema };
        sink.prepare(&target).expect("prepares");
        Self { sink, target, model: BTreeMap::new() }
    }

    /// The same replica in another process.
    fn elsewhere(&self, store: &mut Store<'_>) -> Self {
        let mut sink = (store.make)();
        let opened = sink.open(&self.target.replica, &self.target.table, None).expect("opens");
        let target = Target { build: opened.build, ..self.target.clone() };
        Self { sink, target, model: self.model.clone() }
    }

    fn claim(&mut self, partition: i32) -> Claim {
        self.sink.claim(&self.target, partition).expect("claims")
    }

    fn cursor(&mut self, partition: i32) -> Option<Cursor> {
        self.sink.cursor(&self.target, partition).expect("reads")
    }

    /// A batch of changes at offsets from `expected` on, and what it should leave behind.
    fn batch(&self, partition: i32, claim: Claim, next: i64, changes: &[(Vec<u8>, Option<Vec<u8>>)]) -> Batch {
        let mut batch = Batch::default();
        batch.reset(partition, claim.fence, claim.next, next);
        for (at, (key, row)) in changes.iter().enumerate() {
            let offset = claim.next.unwrap_or(0) + at as i64;
            batch.push(Delta { key, row: row.as_deref(), version: version(self.target.build, offset) });
        }
        batch
    }

    fn plain(&self, changes: &[Plain<'_>]) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let one = |(id, name): &Plain<'_>| {
            let amount = (id * 100).to_be_bytes();
            let values = [Value::Int(*id), name.map_or(Value::Null, Value::Text), Value::Decimal(Decimal { unscaled: &amount, scale: 2 })];
            let schema = &self.target.schema;
            (encode_key(schema, &values), name.map(|_| encode(schema, &values)))
        };
        changes.iter().map(one).collect()
    }

    /// Lands changes as the owner of a claim; the model follows where it succeeds.
    fn try_land(&mut self, partition: i32, claim: Claim, next: i64, changes: &[(Vec<u8>, Option<Vec<u8>>)]) -> Result<(), Error> {
        let batch = self.batch(partition, claim, next, changes);
        self.sink.land(&self.target, &batch)?;
        for (key, row) in changes {
            drop(match row {
                Some(row) => self.model.insert(key.clone(), row.clone()),
                None => self.model.remove(key),
            });
        }
        Ok(())
    }

    fn land(&mut self, partition: i32, claim: &mut Claim, next: i64, changes: &[Plain<'_>]) {
        let changes = self.plain(changes);
        self.try_land(partition, *claim, next, &changes).expect("lands");
        claim.next = Some(next);
    }

    fn check(&self, store: &mut Store<'_>) {
        assert_rows(store, &self.target, &self.model);
    }
}

fn assert_rows(store: &mut Store<'_>, target: &Target, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let mut expected: Rows = model.values().map(|row| texts(&target.schema, row)).collect();
    let mut found = (store.read)(target);
    expected.sort();
    found.sort();
    if expected != found {
        let strange = found.iter().find(|row| !expected.contains(row));
        let missing = expected.iter().find(|row| !found.contains(row));
        panic!("{} rows instead of {}; first missing {missing:?}; first strange {strange:?}", found.len(), expected.len());
    }
}

fn assert_kind<T: std::fmt::Debug>(result: Result<T, Error>, kind: Kind) {
    let error = result.expect_err("must be refused");
    assert_eq!(error.kind, kind, "{error}");
    assert!(!error.to_string().is_empty());
}

fn open_knows_nothing_of_a_new_replica(store: &mut Store<'_>, name: &str) {
    let mut sink = (store.make)();
    let nothing = Opened { build: 0, schema: None };
    assert_eq!(sink.open(&format!("store.{name}"), &format!("t_{name}"), None).expect("opens"), nothing);
    assert_eq!(sink.open(&format!("store.{name}"), &format!("t_{name}"), None).expect("opens again"), nothing);
    let asked = sink.open(&format!("store.{name}.7"), &format!("t_{name}_7"), Some(7)).expect("opens");
    assert_eq!(asked, Opened { build: 7, schema: None }, "the build asked for is in force at once");
}

fn open_tells_build_and_schema_to_the_next_process(store: &mut Store<'_>, name: &str) {
    let world = World::new(store, name, plain());
    let mut sink = (store.make)();
    let opened = sink.open(&world.target.replica, &world.target.table, None).expect("opens");
    assert_eq!(opened, Opened { build: world.target.build, schema: Some(TableSchema::clone(&world.target.schema)) });
    let equal = sink.open(&world.target.replica, &world.target.table, Some(world.target.build)).expect("opens");
    assert_eq!(equal, opened, "the build in force may be asked for");
}

fn open_with_a_higher_build_puts_it_in_force(store: &mut Store<'_>, name: &str) {
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

fn open_with_a_lower_build_is_refused(store: &mut Store<'_>, name: &str) {
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

fn prepare_may_be_repeated(store: &mut Store<'_>, name: &str) {
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

fn prepare_widens_by_nullable_columns(store: &mut Store<'_>, name: &str) {
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

fn claim_raises_the_fence_and_reads_k(store: &mut Store<'_>, name: &str) {
    let mut one = World::new(store, name, plain());
    let mut two = one.elsewhere(store);
    let mut first = one.claim(0);
    assert_eq!(first.next, None);
    let second = two.claim(0);
    assert!(second.fence > first.fence, "{second:?} {first:?}");
    first = one.claim(0);
    assert!(first.fence > second.fence);
    one.land(0, &mut first, 42, &[(1, Some("a"))]);
    let third = two.claim(0);
    assert!(third.fence > first.fence);
    assert_eq!(third.next, Some(42));
}

fn claim_of_a_superseded_build_is_refused(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut other = world.elsewhere(store);
    let build = other.sink.rebuild(&world.target.replica, &world.target.table).expect("rebuilds");
    assert_kind(world.sink.claim(&world.target, 0), Kind::Build);
    assert_eq!(Kind::Build.remedy(), Remedy::Reclaim);
    assert_eq!(world.sink.open(&world.target.replica, &world.target.table, None).expect("opens").build, build);
}

fn cursor_is_read_without_changing_anything(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    assert_eq!(world.cursor(0), None, "never claimed");
    let mut claim = world.claim(0);
    let build = world.target.build;
    for _ in 0..2 {
        assert_eq!(world.cursor(0), Some(Cursor { fence: claim.fence, build, next: None }));
    }
    world.land(0, &mut claim, 9, &[(1, Some("a"))]);
    let mut other = world.elsewhere(store);
    assert_eq!(other.cursor(0), Some(Cursor { fence: claim.fence, build, next: Some(9) }));
    assert_eq!(other.cursor(1), None);
    world.land(0, &mut claim, 10, &[(1, Some("b"))]);
}

fn land_brings_rows_and_k_together(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut claim = world.claim(0);
    world.land(0, &mut claim, 3, &[(1, Some("a")), (2, Some("b")), (3, Some("c"))]);
    world.check(store);
    world.land(0, &mut claim, 7, &[(2, Some("b2")), (3, None), (4, Some("d"))]);
    world.check(store);
    assert_eq!(world.cursor(0).and_then(|c| c.next), Some(7));
}

fn an_empty_batch_moves_only_the_cursor(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut claim = world.claim(0);
    world.land(0, &mut claim, 3, &[(1, Some("a"))]);
    world.land(0, &mut claim, 50, &[]);
    world.check(store);
    assert_eq!(world.cursor(0).and_then(|c| c.next), Some(50));
    assert_kind(world.try_land(0, Claim { next: Some(3), ..claim }, 51, &[]), Kind::CursorMoved);
    assert_eq!(world.claim(0).next, Some(50));
}

fn a_batch_without_rows_needs_no_table(store: &mut Store<'_>, name: &str) {
    let mut sink = (store.make)();
    let (replica, table) = (format!("store.{name}"), format!("t_{name}"));
    let opened = sink.open(&replica, &table, None).expect("opens");
    let target = Target { replica, table, generation: 1, build: opened.build, schema: plain() };
    let mut world = World { sink, target, model: BTreeMap::new() };
    let mut claim = world.claim(3);
    world.land(3, &mut claim, 17, &[]);
    assert_eq!(world.cursor(3).and_then(|c| c.next), Some(17));
    world.sink.prepare(&world.target).expect("prepares after the first landing");
    world.land(3, &mut claim, 18, &[(1, Some("a"))]);
    world.check(store);
}

fn a_stale_fence_changes_nothing(store: &mut Store<'_>, name: &str) {
    let mut zombie = World::new(store, name, plain());
    let mut old = zombie.claim(0);
    zombie.land(0, &mut old, 3, &[(1, Some("a")), (2, Some("b"))]);
    let mut owner = zombie.elsewhere(store);
    let mut new = owner.claim(0);
    for changes in [&[][..], &[(1, Some("zombie")), (2, None), (3, Some("zombie"))]] {
        let changes = zombie.plain(changes);
        assert_kind(zombie.try_land(0, old, 4, &changes), Kind::Fenced);
    }
    owner.check(store);
    assert_eq!(owner.cursor(0), Some(Cursor { fence: new.fence, build: owner.target.build, next: Some(3) }));
    owner.land(0, &mut new, 5, &[(2, None), (3, Some("c"))]);
    // At the very K that the zombie expects, too.
    let changes = zombie.plain(&[(1, Some("zombie"))]);
    assert_kind(zombie.try_land(0, Claim { next: Some(5), ..old }, 6, &changes), Kind::Fenced);
    owner.check(store);
}

fn an_unexpected_k_changes_nothing(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut claim = world.claim(0);
    let changes = world.plain(&[(1, Some("wrong"))]);
    assert_kind(world.try_land(0, Claim { next: Some(0), ..claim }, 3, &changes), Kind::CursorMoved);
    world.land(0, &mut claim, 3, &[(1, Some("a"))]);
    for next in [None, Some(2), Some(4)] {
        assert_kind(world.try_land(0, Claim { next, ..claim }, 9, &changes), Kind::CursorMoved);
        assert_kind(world.try_land(0, Claim { next, ..claim }, 9, &[]), Kind::CursorMoved);
    }
    // A fence from nowhere is not an owner's, and a partition never claimed has none.
    let nobody = Claim { fence: claim.fence + 5, ..claim };
    assert_eq!(world.try_land(0, nobody, 9, &changes).expect_err("nobody's").kind.remedy(), Remedy::Reclaim);
    assert_eq!(world.try_land(1, Claim { next: None, ..claim }, 9, &changes).expect_err("unclaimed").kind.remedy(), Remedy::Reclaim);
    world.check(store);
    assert_eq!(world.cursor(0).and_then(|c| c.next), Some(3));
    world.land(0, &mut claim, 4, &[(1, Some("b"))]);
    world.check(store);
}

fn a_superseded_build_changes_nothing(store: &mut Store<'_>, name: &str) {
    let mut zombie = World::new(store, name, plain());
    let mut claim = zombie.claim(0);
    zombie.land(0, &mut claim, 3, &[(1, Some("a"))]);
    let mut owner = zombie.elsewhere(store);
    let build = owner.sink.rebuild(&owner.target.replica, &owner.target.table).expect("rebuilds");
    owner.target.build = build;
    owner.model.clear();
    for changes in [&[][..], &[(1, Some("zombie")), (2, Some("zombie"))]] {
        let changes = zombie.plain(changes);
        assert_kind(zombie.try_land(0, claim, 4, &changes), Kind::Build);
    }
    owner.sink.prepare(&owner.target).expect("prepares");
    owner.check(store);
    let mut claim = owner.claim(0);
    assert_eq!(claim.next, None);
    owner.land(0, &mut claim, 2, &[(7, Some("new"))]);
    owner.check(store);
}

fn a_landing_whose_reply_was_lost_is_told_by_the_cursor(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut claim = world.claim(0);
    world.land(0, &mut claim, 3, &[(1, Some("a"))]);
    let before = claim;
    world.land(0, &mut claim, 5, &[(1, None), (2, Some("b"))]);
    // The reply never came: the same is sent again, and the store says that it stands elsewhere.
    let again = world.plain(&[(1, None), (2, Some("b"))]);
    assert_kind(world.try_land(0, before, 5, &again), Kind::CursorMoved);
    world.check(store);
    let claim = world.claim(0);
    assert_eq!(claim.next, Some(5), "it did land");
}

fn landing_again_under_a_new_fence_converges(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut claim = world.claim(0);
    world.land(0, &mut claim, 4, &[(1, Some("a")), (2, Some("b")), (3, Some("c")), (4, None)]);
    // The store is put back to before the landing and lands it anew: the same rows at the same versions, then others above them.
    let mut other = world.elsewhere(store);
    let build = other.target.build;
    let mut claim = other.claim(0);
    let changes = other.plain(&[(1, Some("a")), (2, Some("b")), (3, Some("c")), (4, None)]);
    let mut batch = Batch::default();
    batch.reset(0, claim.fence, claim.next, 5);
    for (at, (key, row)) in changes.iter().enumerate() {
        batch.push(Delta { key, row: row.as_deref(), version: version(build, at as i64) });
    }
    other.sink.land(&other.target, &batch).expect("lands again");
    claim.next = Some(5);
    other.check(store);
    other.land(0, &mut claim, 9, &[(1, None), (4, Some("d")), (2, Some("b2"))]);
    other.check(store);
}

fn tombstones_remove_and_rows_come_back(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut claim = world.claim(0);
    world.land(0, &mut claim, 3, &[(1, None), (2, None)]);
    world.check(store);
    world.land(0, &mut claim, 6, &[(1, Some("a")), (2, Some("b")), (3, Some("c"))]);
    world.land(0, &mut claim, 8, &[(1, None), (3, None)]);
    world.check(store);
    world.land(0, &mut claim, 9, &[(1, None)]);
    world.check(store);
    world.land(0, &mut claim, 11, &[(1, Some("again")), (2, None)]);
    world.check(store);
}

fn rebuild_counts_nothing_of_before(store: &mut Store<'_>, name: &str) {
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

fn partitions_have_their_own_cursors(store: &mut Store<'_>, name: &str) {
    let mut one = World::new(store, name, plain());
    let mut two = one.elsewhere(store);
    let (mut a, mut b) = (one.claim(0), two.claim(1));
    one.land(0, &mut a, 10, &[(10, Some("a"))]);
    two.land(1, &mut b, 7, &[(11, Some("b"))]);
    one.land(0, &mut a, 11, &[(10, Some("a2"))]);
    two.model.extend(one.model.clone());
    two.check(store);
    assert_eq!(two.cursor(0).and_then(|c| c.next), Some(11));
    assert_eq!(one.cursor(1).and_then(|c| c.next), Some(7));
    // Taking one of them over leaves the other's owner alone.
    let _ = two.claim(0);
    two.land(1, &mut b, 8, &[(11, None)]);
    assert_kind(one.try_land(0, a, 12, &[]), Kind::Fenced);
}

fn replicas_have_nothing_in_common(store: &mut Store<'_>, name: &str) {
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
fn two_topologies_never_share_a_table(store: &mut Store<'_>, name: &str) {
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

fn idle_gives_back_and_goes_on(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut claim = world.claim(0);
    world.land(0, &mut claim, 3, &[(1, Some("a"))]);
    for next in 4..7 {
        world.sink.idle().expect("idles");
        world.sink.idle().expect("idles twice");
        world.check(store);
        world.land(0, &mut claim, next, &[(next, Some("b"))]);
    }
    world.check(store);
}

/// Every type that a column can have, with sizes that stores treat differently.
const TYPES: &[&str] = &[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "decimal(1,0)",
    "decimal(9,2)",
    "decimal(18,18)",
    "decimal(38,10)",
    "decimal(76,38)",
    "decimal(200,7)",
    "numeric",
    "text",
    "bytes",
    "uuid",
    "date",
    "time(0)",
    "time(3)",
    "time(6)",
    "time(9)",
    "timestamp(0)",
    "timestamp(3)",
    "timestamp(6)",
    "timestamp(9)",
    "timestamptz(0)",
    "timestamptz(6)",
    "timestamptz(9)",
    "json",
];

/// Encoded values (union index included) of a type: its ends, the odd ones, and `count` random ones; what the store refuses is left out.
fn samples(store: &Store<'_>, ty: LogicalType, random: &mut Random, count: usize) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut add = |value: Value<'_>| {
        let mut bytes = Vec::new();
        if (store.refuse)(ty, &value).is_none() && row::put(ty, value, &mut bytes).is_ok() {
            found.push(bytes);
        }
    };
    let ints = [0, 1, -1, i64::from(i8::MIN), 127, 128, 255, i64::from(i16::MIN), 32_767, 65_535, i64::from(i32::MIN), 2_147_483_647, 4_294_967_295];
    let wide = [i64::MIN, i64::MAX, 9_007_199_254_740_993, 946_684_800_000_000, -1_000_000, 253_402_300_799_999_999, 86_399_999_999, 86_400_000_000];
    for v in ints.into_iter().chain(wide) {
        add(Value::Int(v));
        add(Value::Time(v));
        add(Value::Timestamp(v));
        for nanos in [1, 1_000] {
            add(Value::Time(v.saturating_mul(nanos)));
            add(Value::Timestamp(v.saturating_mul(nanos)));
        }
        add(Value::Date(v.clamp(i32::MIN.into(), i32::MAX.into()) as i32));
    }
    // 0001-01-01, 1582-10-15, 1900-01-01, 2299-12-31, 9999-12-31, and the year 0.
    for days in [-719_162, -141_427, -25_567, 120_529, 2_932_896, -719_528] {
        add(Value::Date(days));
        add(Value::Timestamp(i64::from(days) * 86_400_000_000));
    }
    for v in [0, 1, u64::MAX, i64::MAX as u64 + 1] {
        add(Value::UInt(v));
    }
    for v in [0.0, -0.0, 0.1, -1.5, f32::MIN, f32::MAX, f32::MIN_POSITIVE, 1.0e-45, f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        add(Value::Float32(v));
    }
    for v in [0.0, -0.0, 0.1, 3.3, 1e-300, f64::MIN, f64::MAX, f64::MIN_POSITIVE, 5e-324, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        add(Value::Float64(v));
    }
    for text in ["0", "0.00", "1", "-1.28", "1.10", "99999999.99", "-0.000000000000000001", "12345678901234567890.1234567890", "-0.0001", "1E+40"] {
        add_decimal(text, &mut add);
    }
    if let LogicalType::Decimal { precision, scale } = ty {
        let nines = "9".repeat(precision as usize);
        let (whole, fraction) = nines.split_at((precision - scale) as usize);
        for sign in ["", "-"] {
            add_decimal(&format!("{sign}{whole}.{fraction}"), &mut add);
        }
    }
    add_decimal(&format!("-{}.{}", "9".repeat(70), "8".repeat(30)), &mut add);
    let long = "long ".repeat(2000);
    for text in ["", " ", "a", "NULL", "\\N", "tab\tline\nreturn\r", "quote ' \" \\ `", "ÄŐ日本\u{1F600}", "\u{1}\u{7f}\u{feff}", "a\0b", &long] {
        add(Value::Text(text));
        add(Value::Bytes(text.as_bytes()));
    }
    add(Value::Bytes(&[0, 1, 0xFE, 0xFF]));
    for id in [[0; 16], [0xFF; 16], *b"0123456789abcdef"] {
        add(Value::Uuid(id));
    }
    for text in
        ["{}", "[]", "null", "true", "\"text\"", "{\"a\": 1.10, \"b\": [null, true]}", "{\"ab\": -12.5, \"é\": \"ü\\n\"}", "12345678901234567890.5"]
    {
        add(Value::Json(text));
    }
    add(Value::Bool(true));
    add(Value::Bool(false));
    for _ in 0..count {
        add_random(ty, random, &mut add);
    }
    found
}

fn add_decimal(text: &str, add: &mut impl FnMut(Value<'_>)) {
    let mut unscaled = Vec::new();
    let scale = decimal::parse_into(text, &mut unscaled).expect(text);
    add(Value::Decimal(Decimal { unscaled: &unscaled, scale }));
}

fn add_random(ty: LogicalType, random: &mut Random, add: &mut impl FnMut(Value<'_>)) {
    let bits = random.next();
    // All sizes are as likely, or every number would be a huge one.
    let int = (bits as i64) >> random.below(64);
    match ty {
        LogicalType::Float32 => add(Value::Float32(f32::from_bits(bits as u32))),
        LogicalType::Float64 => add(Value::Float64(f64::from_bits(bits))),
        LogicalType::UInt64 => add(Value::UInt(bits >> random.below(64))),
        LogicalType::Decimal { .. } | LogicalType::Numeric => {
            let digits: String = (0..=random.below(40)).map(|_| char::from(b'0' + random.below(10) as u8)).collect();
            let point = random.below(digits.len() as u64 + 1) as usize;
            let sign = if bits & 1 == 0 { "-" } else { "" };
            add_decimal(&format!("{sign}{}.{}", &digits[..point], &digits[point..]), add);
        }
        LogicalType::Text => {
            let text: String =
                (0..random.below(20)).filter_map(|_| char::from_u32(1 + (random.next() as u32 >> random.below(31)) % 0x11_0000)).collect();
            add(Value::Text(&text));
        }
        LogicalType::Bytes => {
            let bytes: Vec<u8> = (0..random.below(20)).map(|_| random.next() as u8).collect();
            add(Value::Bytes(&bytes));
        }
        LogicalType::Uuid => add(Value::Uuid((u128::from(bits) << 64 | u128::from(random.next())).to_be_bytes())),
        LogicalType::Json => add(Value::Json(&format!("{{\"n\": {int}, \"s\": [\"x\", {}]}}", bits.is_multiple_of(2)))),
        LogicalType::Bool => add(Value::Bool(bits & 1 == 0)),
        LogicalType::Date => add(Value::Date(random.below(100_000) as i32 - 20_000)),
        LogicalType::Time { .. } => add(Value::Time(random.below(86_400_000_000) as i64)),
        LogicalType::Timestamp { .. } | LogicalType::TimestampTz { .. } if ty.counts_nanos() => {
            add(Value::Timestamp((int >> 12) * 1_000));
            add(Value::Timestamp(int));
        }
        LogicalType::Timestamp { .. } | LogicalType::TimestampTz { .. } => add(Value::Timestamp(int >> 8)),
        _ => add(Value::Int(int)),
    }
}

fn every_type_arrives_exactly(store: &mut Store<'_>, name: &str) {
    let names: Vec<String> = TYPES.iter().map(|t| format!("c {t}")).collect();
    let columns: Vec<(&str, &str)> = std::iter::once(("id", "int64")).chain(names.iter().map(String::as_str).zip(TYPES.iter().copied())).collect();
    let schema = schema(&columns, &["id"]);
    let mut random = Random(7);
    let samples: Vec<Vec<Vec<u8>>> = schema.columns()[1..].iter().map(|c| samples(store, c.ty, &mut random, 300)).collect();
    for (column, samples) in schema.columns()[1..].iter().zip(&samples) {
        assert!(samples.len() > 1, "the store holds nothing of {}", column.ty);
    }
    let rows = samples.iter().map(Vec::len).max().unwrap_or(0);
    let mut world = World::new(store, name, schema.clone());
    let claim = world.claim(0);
    // First every value in its turn, then each value where another was, then NULL everywhere.
    let mut next = claim.next;
    for (turn, shift) in [0, 1, usize::MAX].into_iter().enumerate() {
        let changes: Vec<_> = (0..rows as i64)
            .map(|id| {
                let mut key = Vec::new();
                row::put_plain(LogicalType::Int64, Value::Int(id), &mut key).expect("fits");
                let mut row = vec![2];
                row.extend(&key);
                for samples in &samples {
                    match shift {
                        usize::MAX => row.push(0),
                        _ => row.extend(&samples[(id as usize + shift) % samples.len()]),
                    }
                }
                (key, Some(row))
            })
            .collect();
        let to = (turn as i64 + 1) * rows as i64;
        world.try_land(0, Claim { next, ..claim }, to, &changes).expect("lands");
        next = Some(to);
        world.check(store);
    }
}

fn every_type_that_can_be_a_key_is_one(store: &mut Store<'_>, name: &str) {
    let mut random = Random(11);
    for (at, text) in TYPES.iter().enumerate() {
        let ty: LogicalType = text.parse().expect(text);
        if ty.is_float() || ty == LogicalType::Json {
            continue;
        }
        let schema = schema(&[("v", "text"), ("k", text)], &["k"]);
        let mut world = World::new(store, &format!("{name}_{at}"), schema);
        let claim = world.claim(0);
        let mut keys: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for sample in samples(store, ty, &mut random, 20) {
            // One sample a canonical value: 1.0 and 1.00 are one key. Long keys are another rule.
            let mut canonical = Vec::new();
            let value = row::read(ty, &mut landfall_schemas::wire::Reader::new(&sample)).expect("our own value");
            landfall_schemas::key::encode(ty, value, &mut canonical).expect("a key");
            if sample.len() < 1000 {
                let _ = keys.entry(canonical).or_insert(sample);
            }
        }
        let change = |sample: &Vec<u8>, text: Option<&str>| {
            let mut row = Vec::new();
            row::put(LogicalType::Text, text.map_or(Value::Null, Value::Text), &mut row).expect("fits");
            row.extend(sample);
            (sample[1..].to_vec(), text.map(|_| row))
        };
        let all: Vec<_> = keys.values().map(|s| change(s, Some("one"))).collect();
        world.try_land(0, claim, 100, &all).unwrap_or_else(|e| panic!("{text}: {e}"));
        world.check(store);
        let some: Vec<_> = keys.values().enumerate().map(|(i, s)| change(s, [None, Some("two"), Some("three")][i % 3])).collect();
        world.try_land(0, Claim { next: Some(100), ..claim }, 200, &some).unwrap_or_else(|e| panic!("{text}: {e}"));
        world.check(store);
    }
}

fn a_key_of_several_columns_in_another_order(store: &mut Store<'_>, name: &str) {
    let schema = schema(&[("v", "text"), ("a", "int32"), ("b", "text"), ("c", "date")], &["c", "a", "b"]);
    let mut world = World::new(store, name, schema.clone());
    let claim = world.claim(0);
    let change = |a: i64, b: &str, c: i32, v: Option<&str>| {
        let values = [v.map_or(Value::Null, Value::Text), Value::Int(a), Value::Text(b), Value::Date(c)];
        (encode_key(&schema, &values), v.map(|_| encode(&schema, &values)))
    };
    let first = [change(1, "x", 1, Some("1")), change(1, "x", 2, Some("2")), change(2, "x", 1, Some("3")), change(1, "y", 1, Some("4"))];
    world.try_land(0, claim, 4, &first).expect("lands");
    world.check(store);
    let second = [change(1, "x", 1, None), change(2, "x", 1, Some("3b")), change(1, "y", 2, None)];
    world.try_land(0, Claim { next: Some(4), ..claim }, 8, &second).expect("lands");
    world.check(store);
}

fn a_table_that_is_all_key(store: &mut Store<'_>, name: &str) {
    let schema = schema(&[("a", "int32"), ("b", "text")], &["a", "b"]);
    let mut world = World::new(store, name, schema.clone());
    let claim = world.claim(0);
    let change = |a: i64, b: &str, live: bool| {
        let values = [Value::Int(a), Value::Text(b)];
        (encode_key(&schema, &values), live.then(|| encode(&schema, &values)))
    };
    world.try_land(0, claim, 3, &[change(1, "x", true), change(1, "y", true)]).expect("lands");
    world.try_land(0, Claim { next: Some(3), ..claim }, 6, &[change(1, "x", true), change(1, "y", false), change(2, "z", true)]).expect("lands");
    world.check(store);
}

fn changes_that_an_equals_sign_does_not_see(store: &mut Store<'_>, name: &str) {
    let schema = schema(&[("id", "int32"), ("f", "float64"), ("g", "float32"), ("n", "numeric"), ("j", "json"), ("t", "text")], &["id"]);
    let mut world = World::new(store, name, schema.clone());
    let claim = world.claim(0);
    let row = |f: f64, g: f32, unscaled: &[u8], scale: i32, j: &str, t: &str| {
        let number = Value::Decimal(Decimal { unscaled, scale });
        let values = [Value::Int(1), Value::Float64(f), Value::Float32(g), number, Value::Json(j), Value::Text(t)];
        (encode_key(&schema, &values), Some(encode(&schema, &values)))
    };
    let steps = [
        row(0.0, 0.0, &[10], 1, "{\"a\": 1.0}", "x"),
        row(-0.0, 0.0, &[10], 1, "{\"a\": 1.0}", "x"),
        row(-0.0, -0.0, &[10], 1, "{\"a\": 1.0}", "x"),
        row(-0.0, -0.0, &[100], 2, "{\"a\": 1.0}", "x"),
        row(-0.0, -0.0, &[100], 2, "{\"a\": 1.00}", "x"),
        row(-0.0, -0.0, &[100], 2, "{\"a\": 1.00}", "x "),
        row(f64::NAN, -0.0, &[1], 0, "null", "X"),
    ];
    let mut next = claim.next;
    for (at, step) in steps.into_iter().enumerate() {
        let to = at as i64 + 1;
        world.try_land(0, Claim { next, ..claim }, to, &[step]).expect("lands");
        next = Some(to);
        world.check(store);
    }
}

fn hostile_names_are_only_names(store: &mut Store<'_>, name: &str) {
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

fn large_batches_and_large_values(store: &mut Store<'_>, name: &str) {
    let mut world = World::new(store, name, plain());
    let mut claim = world.claim(0);
    let names: Vec<String> = (0..20_000).map(|i| format!("name {i} {}", "x".repeat(i % 50))).collect();
    let all: Vec<Plain<'_>> = names.iter().enumerate().map(|(i, n)| (i as i64, Some(n.as_str()))).collect();
    world.land(0, &mut claim, 20_000, &all);
    let some: Vec<Plain<'_>> = (0..20_000).step_by(2).map(|i| (i, (i % 3 > 0).then_some("changed"))).collect();
    world.land(0, &mut claim, 40_000, &some);
    world.check(store);
    let huge = "é".repeat(3_000_000);
    world.land(0, &mut claim, 40_001, &[(1, Some(&huge))]);
    world.land(0, &mut claim, 40_002, &[(3, Some("small after large"))]);
    world.check(store);
}

/// A seeded workload of two owners of two partitions: crashes, takeovers, late zombies, repeated calls; the table must be what the changes say.
fn any_history_ends_as_its_changes_say(store: &mut Store<'_>, name: &str) {
    let mut random = Random(2026);
    let mut model = BTreeMap::new();
    let mut world = World::new(store, name, plain());
    let mut claims = [world.claim(0), world.claim(1)];
    for step in 0..150_u64 {
        let partition = random.below(2);
        let claim = &mut claims[partition as usize];
        match random.below(12) {
            // A crash: the next process takes both over.
            0 => {
                world = world.elsewhere(store);
                claims = [world.claim(0), world.claim(1)];
            }
            // A rebalance, and the former owner's late landing.
            1 => {
                let mut zombie = std::mem::replace(&mut world, world_of(store, name));
                let old = claims;
                claims = [world.claim(0), world.claim(1)];
                let changes = zombie.plain(&[(partition as i64, Some("zombie")), (partition as i64 + 2, None)]);
                assert_kind(zombie.try_land(partition as i32, old[partition as usize], i64::MAX, &changes), Kind::Fenced);
            }
            2 => world.sink.prepare(&world.target).expect("prepares again"),
            _ => {
                let from = claim.next.unwrap_or(0);
                let count = random.below(6);
                // Keys of a partition are its own; each once a batch.
                let ids: std::collections::BTreeSet<i64> = (0..count).map(|_| (random.below(15) * 2 + partition) as i64).collect();
                let text = format!("step {step}");
                let changes: Vec<Plain<'_>> = ids.iter().map(|id| (*id, (random.below(4) > 0).then_some(text.as_str()))).collect();
                world.model = std::mem::take(&mut model);
                world.land(partition as i32, claim, from + 1 + count as i64, &changes);
                model = std::mem::take(&mut world.model);
            }
        }
        if step % 25 == 24 {
            assert_rows(store, &world.target, &model);
        }
    }
    assert_rows(store, &world.target, &model);
}

fn world_of(store: &mut Store<'_>, name: &str) -> World {
    World::new(store, name, plain())
}

/// The model in memory, in both styles, passes its own suite.
mod memory {
    use super::*;
    use landfall::sink::memory::{MemorySink, Store as Memory, Style};

    fn passes(style: Style) {
        let memory = Memory::new(style);
        let mut make = || Box::new(MemorySink::new(memory.clone())) as Box<dyn Sink>;
        let mut read = |target: &Target| {
            let replicas = memory.replicas();
            let live = replicas.get(&target.replica).map(|r| r.live().map(|(_, row)| row.to_vec()).collect::<Vec<_>>()).unwrap_or_default();
            // A row from before a widening ends early: what was added behind it is NULL.
            let width = target.schema.columns().len();
            let padded = |row: &Vec<u8>| {
                let mut texts: Vec<_> = row::values(target.schema.columns(), row).map_while(Result::ok).map(text_of).collect();
                texts.resize(width, None);
                texts
            };
            live.iter().map(padded).collect()
        };
        run(&mut make, &mut read, |_, _| None);
    }

    fn text_of((column, value): (&Column, Value<'_>)) -> Option<String> {
        let mut text = String::new();
        value.write_text(column.ty, &mut text);
        (!value.is_null()).then_some(text)
    }

    #[test]
    fn transactional_memory_conforms() {
        passes(Style::Transactional);
    }

    #[test]
    fn replacing_memory_conforms() {
        passes(Style::Replacing);
    }
}
