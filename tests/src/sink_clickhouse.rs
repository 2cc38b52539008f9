//! The ClickHouse sink against a real server.
//!
//! `LANDFALL_TEST_CLICKHOUSE` is the server's url, `LANDFALL_TEST_CLICKHOUSE_USER` and `_PASSWORD` the login. The tests that kill a server or
//! put its files back start one of their own, `chdb-http` over `libchdb.so` in the folder `LANDFALL_TEST_CHDB`. Every test has a database
//! named after it. What is read back is read with SQL of its own, not with anything of the sink.

#![allow(clippy::disallowed_methods, reason = "proxies and rival processes are threads here, and speed is measured")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use landfall::sink::clickhouse::{ClickHouseSink, Options};
use landfall::sink::{Batch, Claim, Delta, Kind, Sink, Target, version};
use landfall_schemas::{Column, Decimal, LogicalType, TableSchema, Value, row};

const REPLICA: &str = "warehouse.t";

/// A server and a database on it.
struct Store {
    url: String,
    user: String,
    password: String,
    database: String,
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set; `make stack` starts the services and prints it"))
}

impl Store {
    /// The shared server with an empty database.
    fn new(database: &str) -> Self {
        let user = variable("LANDFALL_TEST_CLICKHOUSE_USER");
        let password = variable("LANDFALL_TEST_CLICKHOUSE_PASSWORD");
        let store = Self { url: variable("LANDFALL_TEST_CLICKHOUSE"), user, password, database: format!("test_{database}") };
        store.sql(&format!("DROP DATABASE IF EXISTS {} SYNC", store.database));
        store
    }

    fn sink(&self) -> ClickHouseSink {
        self.sink_at(&self.url)
    }

    fn sink_at(&self, url: &str) -> ClickHouseSink {
        ClickHouseSink::new(Options {
            url: url.to_owned(),
            database: self.database.clone(),
            user: Some(self.user.clone()),
            password: Some(self.password.clone()),
        })
    }

    fn try_sql(&self, statement: &str) -> Result<String, String> {
        let mut answer = ureq::post(&self.url)
            .header("X-ClickHouse-User", &self.user)
            .header("X-ClickHouse-Key", &self.password)
            .config()
            .http_status_as_error(false)
            .build()
            .send(statement)
            .map_err(|e| e.to_string())?;
        let text = answer.body_mut().with_config().limit(1 << 30).read_to_string().map_err(|e| e.to_string())?;
        if answer.status() == 200 { Ok(text) } else { Err(text) }
    }

    fn sql(&self, statement: &str) -> String {
        let text = self.try_sql(statement).unwrap_or_else(|e| panic!("{statement}: {e}"));
        text.trim_end_matches('\n').to_owned()
    }

    /// The answer to a statement in which `{db}` stands for the database.
    fn ask(&self, statement: &str) -> String {
        self.sql(&statement.replace("{db}", &self.database))
    }
}

fn schema(columns: &[(&str, &str)], key: &[&str]) -> TableSchema {
    let columns = columns.iter().map(|(n, t)| Column { name: (*n).to_owned(), ty: t.parse().expect(t), nullable: true }).collect();
    TableSchema::new("t", columns, key).expect("a valid schema")
}

fn target(schema: TableSchema, build: u16) -> Target {
    Target { replica: REPLICA.to_owned(), table: "t".to_owned(), generation: 1, build, schema: Arc::new(schema) }
}

fn simple() -> TableSchema {
    schema(&[("id", "int64"), ("v", "text")], &["id"])
}

/// Adds a row, or a tombstone of which only the key values count.
fn push(batch: &mut Batch, schema: &TableSchema, values: &[Value<'_>], live: bool, version: u64) {
    let (mut key, mut row) = (Vec::new(), Vec::new());
    for &at in schema.key() {
        row::put_plain(schema.columns()[at].ty, values[at], &mut key).expect("a value of the column's type");
    }
    for (column, value) in schema.columns().iter().zip(values) {
        row::put(column.ty, *value, &mut row).expect("a value of the column's type");
    }
    batch.push(Delta { key: &key, row: live.then_some(&row), version });
}

fn batch(partition: i32, claim: Claim, next: i64) -> Batch {
    let mut batch = Batch::default();
    batch.reset(partition, claim.fence, claim.next, next);
    batch
}

/// A batch of [`simple`] rows `(id, text or tombstone, log offset)`.
fn rows(target: &Target, claim: Claim, next: i64, rows: &[(i64, Option<&str>, i64)]) -> Batch {
    let mut batch = batch(0, claim, next);
    for (id, text, offset) in rows {
        push(&mut batch, &target.schema, &[Value::Int(*id), Value::Text(text.unwrap_or(""))], text.is_some(), version(target.build, *offset));
    }
    batch
}

/// Opens, prepares and claims partition 0.
fn begin(sink: &mut ClickHouseSink, schema: TableSchema) -> (Target, Claim) {
    let opened = sink.open(REPLICA, "t", None).expect("open");
    let target = target(schema, opened.build);
    sink.prepare(&target).expect("prepare");
    let claim = sink.claim(&target, 0).expect("claim");
    (target, claim)
}

fn live(store: &Store) -> String {
    store.ask("SELECT * FROM {db}.t_live ORDER BY id FORMAT TSV")
}

fn kind(result: Result<(), landfall::sink::Error>) -> Kind {
    result.expect_err("a refusal").kind
}

/// Small deterministic random numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// What the server is asked for so that a value comes back to the last bit.
fn question(column: &str, ty: LogicalType) -> String {
    match ty {
        LogicalType::Float32 => format!("toString(reinterpretAsUInt32({column}))"),
        LogicalType::Float64 => format!("toString(reinterpretAsUInt64({column}))"),
        LogicalType::Text | LogicalType::Bytes | LogicalType::Json => format!("lower(hex({column}))"),
        LogicalType::Decimal { precision: ..=76, scale } => format!("toDecimalString({column}, {scale})"),
        _ => format!("toString({column})"),
    }
}

/// The live rows of a replica, each value as `Value::write_text` writes it: read as bytes and numbers, with nothing of the sink.
fn live_texts(store: &Store, target: &Target) -> Vec<Vec<Option<String>>> {
    let quoted = |name: &str| format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"));
    let columns = target.schema.columns();
    let asked: Vec<String> = columns.iter().map(|c| question(&quoted(&c.name), c.ty)).collect();
    let answer = store.ask(&format!("SELECT {} FROM {{db}}.{} FORMAT TSV", asked.join(", "), quoted(&format!("{}_live", target.table))));
    let text = |ty: LogicalType, found: &str| {
        if found == "\\N" {
            return None;
        }
        let bytes = || (0..found.len()).step_by(2).map(|i| u8::from_str_radix(&found[i..i + 2], 16).expect("hex")).collect::<Vec<u8>>();
        let mut out = String::new();
        match ty {
            LogicalType::Text | LogicalType::Json => out = String::from_utf8(bytes()).expect("text"),
            LogicalType::Float32 => Value::Float32(f32::from_bits(found.parse().expect("bits"))).write_text(ty, &mut out),
            LogicalType::Float64 => Value::Float64(f64::from_bits(found.parse().expect("bits"))).write_text(ty, &mut out),
            LogicalType::Time { .. } => Value::Time(found.parse().expect("units")).write_text(ty, &mut out),
            LogicalType::Timestamp { digits } | LogicalType::TimestampTz { digits } => {
                let (seconds, fraction) = found.split_once('.').expect("a fraction");
                // More digits than the type has would be a value of another precision.
                let (kept, rest) = fraction.split_at(digits.into());
                assert!(digits < 6 || rest.is_empty() || rest.bytes().all(|b| b == b'0'), "{found} for {ty}");
                out = seconds.replace(' ', "T");
                if digits > 0 {
                    out += &format!(".{kept}");
                }
                if matches!(ty, LogicalType::TimestampTz { .. }) {
                    out.push('Z');
                }
            }
            _ => out.push_str(found),
        }
        Some(out)
    };
    answer.lines().map(|line| columns.iter().zip(line.split('\t')).map(|(c, found)| text(c.ty, found)).collect()).collect()
}

#[test]
fn conformance() {
    let store = Store::new("conformance");
    let mut make = || Box::new(store.sink()) as Box<dyn Sink>;
    let mut read = |target: &Target| live_texts(&store, target);
    crate::conformance::run(&mut make, &mut read, |ty, value| {
        let mut text = String::new();
        value.write_text(ty, &mut text);
        // The suite expects a numeric key with its trailing zeros, and ClickHouse keeps it without: the tests here look at those.
        let zeros = ty == LogicalType::Numeric && text.contains('.') && text.ends_with('0');
        landfall_schemas::store::clickhouse::refuse(ty, value).or(zeros.then_some(landfall_schemas::store::Refusal::Precision))
    });
}

#[test]
fn numbers_without_a_declared_scale_keep_their_digits() {
    let store = Store::new("numeric");
    let mut sink = store.sink();
    let (target, claim) = begin(&mut sink, schema(&[("id", "numeric"), ("n", "numeric"), ("d", "decimal(90,3)")], &["id"]));
    let number = |unscaled, scale| Value::Decimal(Decimal { unscaled, scale });
    let mut batch = batch(0, claim, 10);
    // 1.0, 250 and 0.05 as keys; values with zeros that are digits, an exponent and 38 nines.
    let nines = (10_i128.pow(38) - 1).to_be_bytes();
    push(&mut batch, &target.schema, &[number(&[10], 1), number(&[110], 2), number(&[1], 3)], true, version(target.build, 0));
    push(&mut batch, &target.schema, &[number(&[25], -1), number(&[0xFF], -20), number(&[0], 3)], true, version(target.build, 1));
    push(&mut batch, &target.schema, &[number(&[5], 2), number(&nines, 10), number(&nines, 3)], true, version(target.build, 2));
    sink.land(&target, &batch).expect("landed");
    let rest = "0.05\t9999999999999999999999999999.9999999999\t99999999999999999999999999999999999.999\n";
    let found = store.ask("SELECT * FROM {db}.t_live ORDER BY id FORMAT TSV");
    assert_eq!(found, format!("{rest}1\t1.10\t0.001\n250\t-100000000000000000000\t0.000"));
    // The same key with other zeros is the same row.
    batch.reset(0, claim.fence, Some(10), 20);
    push(&mut batch, &target.schema, &[number(&[1, 0x2C], 2), Value::Null, Value::Null], true, version(target.build, 10));
    push(&mut batch, &target.schema, &[number(&[1], 0), number(&[0, 0x80], 1), Value::Null], true, version(target.build, 11));
    push(&mut batch, &target.schema, &[number(&[0, 250], 0), Value::Null, Value::Null], false, version(target.build, 12));
    sink.land(&target, &batch).expect("landed");
    assert_eq!(store.ask("SELECT * FROM {db}.t_live ORDER BY id FORMAT TSV"), format!("{rest}1\t12.8\t\\N\n3\t\\N\t\\N"));
}

#[test]
fn the_first_and_last_days_arrive_and_the_others_are_refused() {
    let store = Store::new("days");
    let mut sink = store.sink();
    let columns = [("id", "int64"), ("d", "date"), ("t", "timestamp(6)"), ("n", "timestamptz(9)")];
    let (target, claim) = begin(&mut sink, schema(&columns, &["id"]));
    let micros = |days: i64| days * 86_400_000_000;
    // 1900-01-01 and 2299-12-31 as days since 1970, by `date -d`.
    let (first, last) = (-25_567, 120_529);
    let mut batch = batch(0, claim, 2);
    let low = [Value::Int(1), Value::Date(first as i32), Value::Timestamp(micros(first)), Value::Timestamp(micros(first) * 1000)];
    let high = [Value::Int(2), Value::Date(last as i32), Value::Timestamp(micros(last + 1) - 1), Value::Timestamp(i64::MAX)];
    push(&mut batch, &target.schema, &low, true, version(target.build, 0));
    push(&mut batch, &target.schema, &high, true, version(target.build, 1));
    sink.land(&target, &batch).expect("landed");
    let expected = "1\t1900-01-01\t1900-01-01 00:00:00.000000\t1900-01-01 00:00:00.000000000\n\
                    2\t2299-12-31\t2299-12-31 23:59:59.999999\t2262-04-11 23:47:16.854775807";
    assert_eq!(live(&store), expected);
    for beyond in [
        [Value::Int(3), Value::Date(first as i32 - 1), Value::Null, Value::Null],
        [Value::Int(3), Value::Date(last as i32 + 1), Value::Null, Value::Null],
        [Value::Int(3), Value::Null, Value::Timestamp(micros(last + 1)), Value::Null],
        [Value::Int(3), Value::Null, Value::Null, Value::Timestamp(micros(first) * 1000 - 1)],
    ] {
        batch.reset(0, claim.fence, Some(2), 3);
        push(&mut batch, &target.schema, &beyond, true, version(target.build, 2));
        assert_eq!(kind(sink.land(&target, &batch)), Kind::Unsupported);
    }
    assert_eq!(live(&store), expected);
}

#[test]
fn rows_are_updated_deleted_and_stay_deleted() {
    let store = Store::new("deletes");
    let mut sink = store.sink();
    let (target, mut claim) = begin(&mut sink, simple());
    let mut land = |next, deltas: &[_]| {
        let batch = rows(&target, claim, next, deltas);
        sink.land(&target, &batch).expect("landed");
        claim.next = Some(next);
    };
    land(3, &[(1, Some("a"), 0), (2, Some("b"), 1), (3, Some("c"), 2)]);
    land(6, &[(1, Some("a2"), 3), (2, None, 4), (9, None, 5)]);
    assert_eq!(live(&store), "1\ta2\n3\tc");
    land(7, &[(2, Some("b2"), 6)]);
    assert_eq!(live(&store), "1\ta2\n2\tb2\n3\tc");
    land(8, &[(3, None, 7)]);
    store.ask("OPTIMIZE TABLE {db}.t FINAL");
    // What a zombie inserts late has an older version: it loses, merged tombstone or not.
    store.ask(&format!("INSERT INTO {{db}}.t VALUES (3, 'zombie', {}, 0)", version(target.build, 2)));
    assert_eq!(live(&store), "1\ta2\n2\tb2");
    store.ask("OPTIMIZE TABLE {db}.t FINAL");
    assert_eq!(live(&store), "1\ta2\n2\tb2");
}

#[test]
fn landing_again_after_a_lost_cursor_changes_nothing() {
    let store = Store::new("again");
    let mut sink = store.sink();
    let (target, claim) = begin(&mut sink, simple());
    // With deduplication on, as an operator may have it, a repeated block would be dropped without a word.
    store.ask("ALTER TABLE {db}.t MODIFY SETTING non_replicated_deduplication_window = 1000");
    let deltas = [(1, Some("a"), 0), (2, None, 1), (3, Some("c"), 2)];
    sink.land(&target, &rows(&target, claim, 3, &deltas)).expect("landed");
    store.ask("DELETE FROM {db}.t WHERE 1");
    assert_eq!(live(&store), "");
    store.ask("TRUNCATE TABLE {db}.landfall_cursor");
    let mut other = store.sink();
    let again = other.claim(&target, 0).expect("claim");
    assert_eq!(again.next, None);
    other.land(&target, &rows(&target, again, 3, &deltas)).expect("landed");
    assert_eq!(live(&store), "1\ta\n3\tc");
    let third = sink.claim(&target, 0).expect("claim");
    assert_eq!(third.next, Some(3));
    assert!(third.fence > again.fence);
    // The same content once more under a new fence, re-batched with what follows.
    store.ask("TRUNCATE TABLE {db}.landfall_cursor");
    let fourth = sink.claim(&target, 0).expect("claim");
    sink.land(&target, &rows(&target, fourth, 4, &[(1, Some("a"), 0), (2, None, 1), (3, None, 3)])).expect("landed");
    assert_eq!(live(&store), "1\ta");
}

#[test]
fn a_former_owner_changes_nothing() {
    let store = Store::new("fence");
    let (mut one, mut two) = (store.sink(), store.sink());
    let (target, first) = begin(&mut one, simple());
    one.land(&target, &rows(&target, first, 2, &[(1, Some("a"), 0)])).expect("landed");
    let second = two.claim(&target, 0).expect("claim");
    assert!(second.fence > first.fence);
    assert_eq!(second.next, Some(2));
    let late = Claim { next: Some(2), ..first };
    assert_eq!(kind(one.land(&target, &rows(&target, late, 9, &[(1, Some("stale"), 8)]))), Kind::Fenced);
    assert_eq!(live(&store), "1\ta");
    // Another partition is another matter.
    let other = one.claim(&target, 1).expect("claim");
    assert_eq!(other.next, None);
    two.land(&target, &rows(&target, second, 5, &[(1, Some("b"), 4)])).expect("landed");
    // `K` is compared too, also by the owner.
    assert_eq!(kind(two.land(&target, &rows(&target, second, 9, &[(1, Some("old K"), 8)]))), Kind::CursorMoved);
    let unknown = Claim { fence: second.fence + 1, next: Some(5) };
    assert_eq!(kind(two.land(&target, &rows(&target, unknown, 9, &[(1, Some("no claim"), 8)]))), Kind::CursorMoved);
    assert_eq!(live(&store), "1\tb");
    let cursor = two.cursor(&target, 0).expect("read").expect("a cursor");
    assert_eq!((cursor.fence, cursor.build, cursor.next), (second.fence, target.build, Some(5)));
    assert_eq!(two.cursor(&target, 7).expect("read"), None);
}

/// Writes a row of the cursor table as a process that woke up late would.
fn late_cursor(store: &Store, target: &Target, fence: u64, landing: u64, next: i64) {
    store.ask(&format!(
        "INSERT INTO {{db}}.landfall_cursor (replica, partition, generation, build, fence, slot, claim, landing, next, version) \
         VALUES ('{REPLICA}', 0, 1, {}, {fence}, {}, 0, {landing}, {next}, {})",
        target.build,
        1 + landing % 15,
        next + 1
    ));
}

#[test]
fn late_cursor_rows_never_count() {
    let store = Store::new("late");
    let mut sink = store.sink();
    let (target, first) = begin(&mut sink, simple());
    let mut claim = first;
    for offset in 0..40 {
        sink.land(&target, &rows(&target, claim, offset + 1, &[(offset, Some("x"), offset)])).expect("landed");
        claim.next = Some(offset + 1);
    }
    // Under a fence that nobody claimed here: it was given out before the store was put back.
    late_cursor(&store, &target, first.fence + 70_000, 1, 900);
    // Under the fence in force, but out of step with its landings.
    late_cursor(&store, &target, first.fence, 97, 901);
    for round in 0..2 {
        let cursor = sink.cursor(&target, 0).expect("read").expect("a cursor");
        assert_eq!((cursor.fence, cursor.next), (first.fence, Some(40)), "round {round}");
        store.ask("OPTIMIZE TABLE {db}.landfall_cursor FINAL");
    }
    let count: u32 = store.ask("SELECT count() FROM {db}.landfall_cursor").parse().expect("a number");
    assert!(count <= 17, "{count} rows are left after merging");
    let second = sink.claim(&target, 0).expect("claim");
    assert_eq!(second.next, Some(40));
    assert!(second.fence > first.fence + 70_000);
    // Under the former owner's fence.
    late_cursor(&store, &target, first.fence, 41, 902);
    // However many there are.
    for strange in 1..80 {
        late_cursor(&store, &target, second.fence + strange, 1, 903);
    }
    assert_eq!(sink.cursor(&target, 0).expect("read").expect("a cursor").next, Some(40));
    sink.land(&target, &rows(&target, second, 41, &[])).expect("landed");
}

#[test]
fn one_of_many_that_claim_at_once_is_the_owner() {
    let store = Store::new("claims");
    let mut sink = store.sink();
    let (target, _) = begin(&mut sink, simple());
    for round in 0..5_i64 {
        let expected = (round > 0).then_some(round);
        let claims: Vec<Claim> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..6)
                .map(|_| {
                    let (store, target) = (&store, &target);
                    scope.spawn(move || store.sink().claim(target, 0))
                })
                .collect();
            threads
                .into_iter()
                .map(|t| t.join().expect("no panic"))
                .filter_map(|claim| match claim {
                    Ok(claim) => Some(claim),
                    Err(e) => {
                        assert_eq!(e.kind, Kind::Fenced, "{e}");
                        None
                    }
                })
                .collect()
        });
        assert!(!claims.is_empty());
        assert!(claims.iter().all(|c| c.next == expected), "{claims:?}");
        let owner = claims.iter().max_by_key(|c| c.fence).expect("somebody");
        for claim in claims.iter().filter(|c| c.fence != owner.fence) {
            assert_eq!(kind(sink.land(&target, &rows(&target, *claim, 100, &[]))), Kind::Fenced);
        }
        sink.land(&target, &rows(&target, *owner, round + 1, &[])).expect("the owner lands");
    }
}

#[test]
fn an_empty_batch_moves_the_cursor_alone() {
    let store = Store::new("empty");
    let mut sink = store.sink();
    let (target, claim) = begin(&mut sink, simple());
    sink.land(&target, &rows(&target, claim, 17, &[])).expect("landed");
    assert_eq!(store.ask("SELECT count() FROM {db}.t"), "0");
    assert_eq!(sink.claim(&target, 0).expect("claim").next, Some(17));
}

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
    let other_key = Target { schema: Arc::new(schema(&[("id", "int64"), ("part", "int32"), ("v", "text")], &["part", "id"])), ..target.clone() };
    assert_eq!(kind(sink.prepare(&other_key)), Kind::TableChanged);
    let other_type = Target { schema: Arc::new(schema(&[("id", "int64"), ("part", "int32"), ("v", "int64")], &["id", "part"])), ..target.clone() };
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

#[test]
fn names_may_be_anything() {
    let store = Store::new("names");
    let names = [
        "select",
        "a b",
        "a`b",
        "it's",
        "back\\slash",
        "日本",
        "ID",
        "id",
        "q?",
        "{x:Int8}",
        "n.a",
        "n.b",
        "%",
        "tab\tnl\n",
        "--",
        "nul\0",
        "_part",
        "\"q\"",
    ];
    let columns: Vec<(&str, &str)> = names.iter().map(|n| (*n, "text")).collect();
    for (i, table) in ["order", "Wei`rd \\ 'Tab?le'", "表", "x_live"].iter().enumerate() {
        let schema = schema(&columns, &["a`b", "q?"]);
        let mut sink = ClickHouseSink::new(Options {
            url: store.url.clone(),
            database: "test_names; DROP 'x` \\ é".to_owned(),
            user: Some(store.user.clone()),
            password: Some(store.password.clone()),
        });
        if i == 0 {
            store.sql("DROP DATABASE IF EXISTS `test_names; DROP 'x\\` \\\\ é` SYNC");
        }
        let replica = format!("ware'house.{table}");
        let opened = sink.open(&replica, table, None).expect("open");
        let target = Target { replica, table: (*table).to_owned(), generation: 1, build: opened.build, schema: Arc::new(schema.clone()) };
        sink.prepare(&target).expect("prepare");
        sink.prepare(&target).expect("again");
        let claim = sink.claim(&target, 0).expect("claim");
        let mut batch = batch(0, claim, 1);
        let values: Vec<Value<'_>> = names.iter().map(|n| Value::Text(n)).collect();
        push(&mut batch, &schema, &values, true, version(target.build, 0));
        sink.land(&target, &batch).expect("landed");
        let quoted = format!("`{}_live`", table.replace('\\', "\\\\").replace('`', "\\`"));
        let found = store.sql(&format!("SELECT * FROM `test_names; DROP 'x\\` \\\\ é`.{quoted} FORMAT JSONEachRow"));
        let found: serde_json::Value = serde_json::from_str(&found).expect("json");
        for name in names {
            assert_eq!(found[name], name, "{name:?}");
        }
    }
    let mut sink = store.sink();
    let bad = schema(&[("id", "int64"), ("_row_exists", "bool")], &["id"]);
    let opened = sink.open(REPLICA, "t", None).expect("open");
    assert_eq!(kind(sink.prepare(&target(bad, opened.build))), Kind::Unsupported);
}

#[test]
fn a_wrong_password_is_a_login_refused() {
    let store = Store::new("login");
    let mut sink = ClickHouseSink::new(Options {
        url: store.url.clone(),
        database: store.database.clone(),
        user: Some(store.user.clone()),
        password: Some("hunter2".to_owned()),
    });
    let error = sink.open(REPLICA, "t", None).expect_err("refused");
    assert_eq!(error.kind, Kind::Login);
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

/// A proxy that passes `budget` bytes one way, then does `act` and cuts the connection; what comes after that passes.
fn cutting_proxy(store: &Store, way: Way, budget: u64, act: impl Fn() + Send + Sync + 'static) -> String {
    let server = store.url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let cut = Arc::new((AtomicU64::new(budget), act));
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else { return };
            let both = [(Way::ToServer, &client, &server), (Way::ToClient, &server, &client)];
            for (direction, from, to) in both {
                let (mut from, mut to) = (from.try_clone().expect("a clone"), to.try_clone().expect("a clone"));
                let cut = cut.clone();
                std::thread::spawn(move || {
                    let (left, act) = &*cut;
                    let mut buffer = [0; 16 << 10];
                    while let Ok(n @ 1..) = from.read(&mut buffer) {
                        let before = if direction == way { left.load(Ordering::SeqCst) } else { 0 };
                        if before > 0 && n as u64 >= before {
                            drop(to.write_all(&buffer[..before as usize]));
                            left.store(0, Ordering::SeqCst);
                            act();
                            break;
                        }
                        if before > 0 {
                            left.store(before - n as u64, Ordering::SeqCst);
                        }
                        if to.write_all(&buffer[..n]).is_err() {
                            break;
                        }
                    }
                    drop(from.shutdown(Shutdown::Both));
                    drop(to.shutdown(Shutdown::Both));
                });
            }
        }
    });
    url
}

fn big(target: &Target, claim: Claim, from: i64, next: i64) -> Batch {
    let mut batch = batch(0, claim, next);
    for offset in from..next {
        let text = format!("row {offset} {}", "x".repeat(100));
        push(&mut batch, &target.schema, &[Value::Int(offset), Value::Text(&text)], true, version(target.build, offset));
    }
    batch
}

#[test]
fn a_connection_cut_anywhere_in_a_landing_is_made_good() {
    let store = Store::new("cut");
    let mut direct = store.sink();
    let (target, _) = begin(&mut direct, simple());
    let mut next = 0;
    let requests = [1_u64, 5_000, 30_000, 700_000, 1_500_000, 2_390_000, 2_395_000, 2_400_000, 2_405_000].map(|b| (Way::ToServer, b));
    let answers = [1_u64, 400, 800, 1_200, 1_600, 2_000, 2_400, 2_800].map(|b| (Way::ToClient, b));
    let mut cuts = 0;
    for (way, budget) in requests.into_iter().chain(answers) {
        let mut claim = direct.claim(&target, 0).expect("claim");
        assert_eq!(claim.next.unwrap_or(0), next);
        let mut cut = store.sink_at(&cutting_proxy(&store, way, budget, || {}));
        let batch = big(&target, claim, next, next + 20_000);
        match cut.land(&target, &batch) {
            Ok(()) => {}
            Err(e) => {
                cuts += 1;
                assert_eq!(e.kind, Kind::Unavailable, "{way:?} {budget}: {e}");
                // Whether it happened is open: `K` tells.
                claim = cut.claim(&target, 0).expect("the same sink connects again");
                if claim.next.unwrap_or(0) == next {
                    cut.land(&target, &big(&target, claim, next, next + 20_000)).expect("landed");
                }
            }
        }
        next += 20_000;
        assert_eq!(store.ask("SELECT count(), uniqExact(id), max(id) FROM {db}.t_live FORMAT TSV"), format!("{next}\t{next}\t{}", next - 1));
    }
    assert!(cuts > 10, "only {cuts} landings were cut");
}

/// A server of a test's own.
struct Server {
    child: Child,
    store: Store,
    data: PathBuf,
}

impl Server {
    fn start(data: &Path, database: &str) -> Self {
        let folder = PathBuf::from(variable("LANDFALL_TEST_CHDB"));
        let mut child = Command::new(folder.join("chdb-http"))
            .arg("--lib")
            .arg(folder.join("libchdb.so"))
            .arg("--path")
            .arg(data)
            .args(["--listen", "127.0.0.1:0", "--user", "bob:secret"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chdb-http starts");
        let mut line = String::new();
        let _ = BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        let url = format!("http://{}", line.trim().rsplit(' ').next().expect("an address"));
        let store = Store { url, user: "bob".to_owned(), password: "secret".to_owned(), database: database.to_owned() };
        Self { child, store, data: data.to_owned() }
    }

    fn kill(mut self) -> PathBuf {
        self.child.kill().expect("kill");
        drop(self.child.wait());
        self.data.clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_server_killed_in_mid_landing_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(&folder.path().join("data"), "killed");
    let (mut target, _) = begin(&mut server.store.sink(), simple());
    let mut acknowledged = 0_i64;
    let mut random = Random(7);
    for round in 0..12 {
        // Killed when a random byte of the requests arrives: in a check, in a block of rows, in the cursor.
        let id = server.child.id();
        let kill = move || assert!(Command::new("kill").args(["-9", &id.to_string()]).status().expect("kill").success());
        let (most_rows, most_bytes) = if round % 2 == 0 { (10_000, 6_000_000) } else { (3, 30_000) };
        let url = cutting_proxy(&server.store, Way::ToServer, 8_000 + random.next() % most_bytes, kill);
        let mut sink = server.store.sink_at(&url);
        let opened = sink.open(REPLICA, "t", None).expect("open");
        assert_eq!(opened.build, target.build, "no table was lost");
        target = self::target(simple(), opened.build);
        sink.prepare(&target).expect("prepare");
        let mut claim = sink.claim(&target, 0).expect("claim");
        let k = claim.next.unwrap_or(0);
        assert!(k >= acknowledged, "round {round}: K is {k}, {acknowledged} was acknowledged");
        // Everything below K is there, and nothing twice.
        let found = server.store.ask(&format!("SELECT countIf(id < {k}), count() = uniqExact(id) FROM {{db}}.t_live FORMAT TSV"));
        assert_eq!(found, format!("{k}\t1"), "round {round}");
        acknowledged = k;
        let error = loop {
            let next = acknowledged + 1 + (random.next() % most_rows) as i64;
            match sink.land(&target, &big(&target, claim, acknowledged, next)) {
                Ok(()) => {
                    acknowledged = next;
                    claim.next = Some(next);
                }
                Err(e) => break e,
            }
        };
        assert_eq!(error.kind, Kind::Unavailable, "{error}");
        println!("round {round}: killed behind {acknowledged}: {error}");
        let data = server.kill();
        server = Server::start(&data, "killed");
    }
    assert!(acknowledged > 0);
}

fn copy_folder(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp").success());
}

#[test]
fn a_store_put_back_is_seen_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let server = Server::start(&data, "restored");
    let mut owner = server.store.sink();
    let (target, claim) = begin(&mut owner, simple());
    owner.land(&target, &big(&target, claim, 0, 50)).expect("landed");
    drop(server.kill());
    copy_folder(&data, &folder.path().join("copy"));
    let server = Server::start(&data, "restored");
    let mut owner = server.store.sink();
    owner.land(&target, &big(&target, Claim { next: Some(50), ..claim }, 50, 100)).expect("landed");
    let mut successor = server.store.sink();
    let later = successor.claim(&target, 0).expect("claim");
    assert_eq!(later.next, Some(100));
    successor.land(&target, &big(&target, later, 100, 120)).expect("landed");
    drop(server.kill());

    std::fs::remove_dir_all(&data).expect("removed");
    copy_folder(&folder.path().join("copy"), &data);
    let server = Server::start(&data, "restored");
    let mut again = server.store.sink();
    // The owner of then and the one of a fence that the store has forgotten both see that it went back.
    assert_eq!(kind(again.land(&target, &big(&target, Claim { next: Some(120), ..later }, 120, 130))), Kind::CursorMoved);
    assert_eq!(kind(again.land(&target, &big(&target, Claim { next: Some(100), ..claim }, 100, 130))), Kind::CursorMoved);
    let cursor = again.cursor(&target, 0).expect("read").expect("a cursor");
    assert_eq!((cursor.fence, cursor.next), (claim.fence, Some(50)));
    // Cursor rows that were under way while it was put back.
    late_cursor(&server.store, &target, later.fence, 2, 130);
    late_cursor(&server.store, &target, claim.fence, 7, 131);
    let fresh = again.claim(&target, 0).expect("claim");
    assert_eq!(fresh.next, Some(50));
    again.land(&target, &big(&target, fresh, 50, 130)).expect("landed");
    assert_eq!(server.store.ask("SELECT count(), max(id) FROM {db}.t_live FORMAT TSV"), "130\t129");
}

#[test]
fn speed_of_100_000_rows() {
    let store = Store::new("speed");
    let columns = [
        ("id", "int64"),
        ("v", "int64"),
        ("s", "text"),
        ("f", "float64"),
        ("ts", "timestamptz(6)"),
        ("lc", "text"),
        ("d", "decimal(18,4)"),
        ("k", "uuid"),
    ];
    for compress in [false, true] {
        store.sql(&format!("DROP DATABASE IF EXISTS {} SYNC", store.database));
        let mut sink = store.sink().with_compression(compress);
        let (target, mut claim) = begin(&mut sink, schema(&columns, &["id"]));
        let mut best = [0.0_f64; 2];
        for round in 0..6_i64 {
            let mut batch = batch(0, claim, (round + 1) * 100_000);
            for i in 0..100_000_i64 {
                let text = format!("some text {}", i % 1000);
                let unscaled = (i * 100 + round).to_be_bytes();
                let values = [
                    Value::Int(if round < 3 { round * 100_000 + i } else { i * 3 }),
                    if i % 4 == 0 { Value::Null } else { Value::Int(i * 3) },
                    Value::Text(&text),
                    Value::Float64(i as f64 * 0.5),
                    Value::Timestamp(1_700_000_000_000_000 + i),
                    Value::Text(["a", "b", "c"][i as usize % 3]),
                    Value::Decimal(Decimal { unscaled: &unscaled, scale: 4 }),
                    Value::Uuid((i as u128).to_be_bytes()),
                ];
                push(&mut batch, &target.schema, &values, true, version(target.build, round * 100_000 + i));
            }
            let start = Instant::now();
            sink.land(&target, &batch).expect("landed");
            let rate = 100_000.0 / start.elapsed().as_secs_f64();
            claim.next = Some(batch.next);
            let best = &mut best[usize::from(round >= 3)];
            *best = best.max(rate);
        }
        println!("clickhouse_insert_100k{} {:.0} rows/s", if compress { "_lz4" } else { "" }, best[0]);
        println!("clickhouse_update_100k{} {:.0} rows/s", if compress { "_lz4" } else { "" }, best[1]);
        assert_eq!(store.ask("SELECT count() FROM {db}.t_live"), "300000");
    }
    let mut sink = store.sink();
    let (target, claim) = begin(&mut sink, schema(&columns, &["id"]));
    let first = claim.next.expect("a cursor");
    let start = Instant::now();
    for next in first..first + 20 {
        sink.land(&target, &batch(0, Claim { next: Some(next), ..claim }, next + 1)).expect("landed");
    }
    println!("clickhouse_empty_landing {:.2} ms", start.elapsed().as_secs_f64() * 50.0);
}
