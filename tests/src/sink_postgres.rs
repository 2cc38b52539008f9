//! The Postgres sink against a real server: `LANDFALL_TEST_POSTGRES` names one (`postgres://user@host:port/database`, a superuser's).
//!
//! Every test keeps its replicas in a schema of its own, and its replica ids begin with that name, so they run side by side and again and again.

#![allow(clippy::disallowed_methods, reason = "a test has a clock and threads of its own")]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

use landfall::sink::postgres::{Options, PostgresSink};
use landfall::sink::{Batch, Claim, Delta, Error, Kind, Remedy, Sink, Target, version};
use landfall_schemas::store::postgres;
use landfall_schemas::{Decimal, LogicalType, TableSchema, Value, decimal};
use tokio_postgres::NoTls;

use crate::conformance::{self, Random, Rows, encode, encode_key, schema};

fn url() -> String {
    std::env::var("LANDFALL_TEST_POSTGRES").expect("LANDFALL_TEST_POSTGRES must hold the URL of a Postgres server (`make test` starts one)")
}

fn with_parameter(url: &str, parameter: &str) -> String {
    format!("{url}{}{parameter}", if url.contains('?') { '&' } else { '?' })
}

/// An operator's own connection.
struct Admin {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl Admin {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&url(), NoTls).await.expect("the server answers");
            drop(tokio::spawn(connection));
            client
        });
        Self { runtime, client }
    }

    fn run(&self, sql: &str) {
        self.try_run(sql).unwrap_or_else(|e| panic!("{sql}: {e:?}"));
    }

    fn try_run(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.runtime.block_on(self.client.batch_execute(sql))
    }

    /// Rows as text.
    fn rows(&self, sql: &str) -> Rows {
        let messages = self.runtime.block_on(self.client.simple_query(sql)).unwrap_or_else(|e| panic!("{sql}: {e:?}"));
        let row = |message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect()),
            _ => None,
        };
        messages.into_iter().filter_map(row).collect()
    }

    fn one(&self, sql: &str) -> String {
        self.rows(sql).first().and_then(|r| r[0].clone()).unwrap_or_else(|| panic!("{sql}: nothing"))
    }
}

/// A schema of the test's own, empty, and an operator who looks at it.
struct Home {
    admin: Admin,
    /// Never in a transaction: within one the server shows the same activity again and again.
    watcher: Admin,
    schema: String,
    url: String,
}

impl Home {
    fn new(test: &str) -> Self {
        let admin = Admin::new();
        let schema = format!("lf_{test}");
        let url = with_parameter(&url(), &format!("application_name={schema}"));
        admin.run(&format!("DROP SCHEMA IF EXISTS \"{schema}\" CASCADE"));
        let home = Self { admin, watcher: Admin::new(), schema, url };
        drop(home.sink().open(&format!("{}.first", home.schema), "first", None).expect("makes the metadata"));
        home.admin.run(&format!(
            "DELETE FROM landfall.cursor WHERE replica IN (SELECT replica FROM landfall.replica WHERE schema_name = '{0}'); \
             DELETE FROM landfall.replica WHERE schema_name = '{0}'",
            home.schema
        ));
        home
    }

    fn sink(&self) -> PostgresSink {
        sink(&self.url, &self.schema)
    }

    fn open(&self, table: &str, schema: Arc<TableSchema>) -> Owner {
        let mut sink = self.sink();
        let replica = format!("{}.{table}", self.schema);
        let opened = sink.open(&replica, table, None).expect("opens");
        let target = Target { replica, table: table.to_owned(), generation: 1, build: opened.build, schema };
        sink.prepare(&target).expect("prepares");
        let claim = sink.claim(&target, 0).expect("claims");
        Owner { sink, target, claim }
    }

    fn read(&self, target: &Target) -> Rows {
        read(&self.admin, &self.schema, target)
    }

    fn table(&self, table: &str) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(table))
    }

    /// Waits until as many connections of the test's sinks wait for a lock; returns the process of one.
    fn blocked(&self, count: usize) -> String {
        let sql = format!("SELECT pid FROM pg_stat_activity WHERE application_name = '{}' AND wait_event_type = 'Lock'", self.schema);
        let begun = Instant::now();
        loop {
            let mut rows = self.watcher.rows(&sql);
            if rows.len() == count {
                return rows.remove(0).remove(0).expect("a process");
            }
            assert!(begun.elapsed().as_secs() < 30, "{} wait for a lock, not {count}", rows.len());
            std::thread::yield_now();
        }
    }

    fn assert_no_open_transaction(&self) {
        let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}' AND state LIKE 'idle in%'", self.schema);
        assert_eq!(self.watcher.one(&sql), "0");
    }
}

fn sink(url: &str, schema: &str) -> PostgresSink {
    PostgresSink::new(Options { url: url.to_owned(), schema: schema.to_owned() }).expect("a good URL")
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// One owner of partition 0.
struct Owner {
    sink: PostgresSink,
    target: Target,
    claim: Claim,
}

impl Owner {
    fn batch(&self, next: i64, rows: &[(&[Value<'_>], bool)]) -> Batch {
        let mut batch = Batch::default();
        batch.reset(0, self.claim.fence, self.claim.next, next);
        for (at, (values, live)) in rows.iter().enumerate() {
            let key = encode_key(&self.target.schema, values);
            let row = live.then(|| encode(&self.target.schema, values));
            let offset = self.claim.next.unwrap_or(0) + at as i64;
            batch.push(Delta { key: &key, row: row.as_deref(), version: version(self.target.build, offset) });
        }
        batch
    }

    fn try_land(&mut self, next: i64, rows: &[(&[Value<'_>], bool)]) -> Result<(), Error> {
        let batch = self.batch(next, rows);
        self.sink.land(&self.target, &batch)?;
        self.claim.next = Some(next);
        Ok(())
    }

    fn land(&mut self, next: i64, rows: &[(&[Value<'_>], bool)]) {
        self.try_land(next, rows).expect("lands");
    }
}

/// The live rows of a replica as `Value::write_text` writes them; floats and times are taken as numbers, so that no text of
/// the server's stands between.
fn read(admin: &Admin, schema: &str, target: &Target) -> Rows {
    let names = postgres::column_names(&target.schema).expect("names");
    let columns: Vec<String> = names
        .iter()
        .zip(target.schema.columns())
        .map(|(name, column)| {
            let name = quoted(name);
            match column.ty {
                LogicalType::Float32 => format!("encode(float4send({name}), 'hex')"),
                LogicalType::Float64 => format!("encode(float8send({name}), 'hex')"),
                LogicalType::Bytes => format!("encode({name}, 'hex')"),
                LogicalType::Date => format!("({name} - DATE '1970-01-01')::text"),
                LogicalType::Time { .. } => format!("(extract(epoch FROM {name}) * 1000000)::bigint::text"),
                // `extract` rounds at the far end of the calendar.
                LogicalType::Timestamp { .. } => format!("encode(timestamp_send({name}), 'hex')"),
                LogicalType::TimestampTz { .. } => format!("encode(timestamptz_send({name}), 'hex')"),
                _ => format!("{name}::text"),
            }
        })
        .collect();
    let sql = format!("SELECT {} FROM {}.{}", columns.join(", "), quoted(schema), quoted(&target.table));
    let mut rows = admin.rows(&sql);
    for row in &mut rows {
        for (text, column) in row.iter_mut().zip(target.schema.columns()) {
            if let Some(text) = text {
                *text = canonical(column.ty, text);
            }
        }
    }
    rows
}

fn canonical(ty: LogicalType, text: &str) -> String {
    let mut out = String::new();
    let nanos = if ty.counts_nanos() { 1000 } else { 1 };
    let value = match ty {
        LogicalType::Float32 => Value::Float32(f32::from_bits(u32::from_str_radix(text, 16).expect("bits"))),
        LogicalType::Float64 => Value::Float64(f64::from_bits(u64::from_str_radix(text, 16).expect("bits"))),
        LogicalType::Date => Value::Date(text.parse().expect("days")),
        LogicalType::Time { .. } => Value::Time(text.parse::<i64>().expect("micros") * nanos),
        LogicalType::Timestamp { .. } | LogicalType::TimestampTz { .. } => {
            // Micros since 2000-01-01.
            let micros = u64::from_str_radix(text, 16).expect("bits").cast_signed() + 946_684_800_000_000;
            Value::Timestamp(micros * nanos)
        }
        _ => return text.to_owned(),
    };
    value.write_text(ty, &mut out);
    out
}

fn pair() -> Arc<TableSchema> {
    schema(&[("id", "int64"), ("v", "text")], &["id"])
}

fn text(id: i64, v: &str) -> [Value<'_>; 2] {
    [Value::Int(id), Value::Text(v)]
}

fn row(id: i64, v: &str) -> Vec<Option<String>> {
    vec![Some(id.to_string()), Some(v.to_owned())]
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> Kind {
    result.expect_err("must fail").kind
}

#[test]
fn postgres_conforms() {
    let home = Home::new("conformance");
    let mut make = || Box::new(home.sink()) as Box<dyn Sink>;
    let mut read = |target: &Target| home.read(target);
    conformance::run(&mut make, &mut read, postgres::refuse);
    home.assert_no_open_transaction();
}

#[test]
fn decimals_of_any_size_read_back_as_they_were_written() {
    let home = Home::new("decimals");
    let mut owner = home.open("t", schema(&[("id", "int64"), ("n", "numeric")], &["id"]));
    let mut random = Random(97);
    let mut texts = Vec::new();
    let mut batch = Batch::default();
    batch.reset(0, owner.claim.fence, owner.claim.next, 20_003);
    for id in 0..20_000 {
        let digits: String = (0..=random.below([3, 20, 45, 120][id as usize % 4])).map(|_| char::from(b'0' + random.below(10) as u8)).collect();
        let zeros = "0".repeat(random.below(12) as usize);
        let sign = if random.below(2) == 0 { "-" } else { "" };
        let written = match random.below(3) {
            0 => format!("{sign}{digits}{zeros}"),
            1 => format!("{sign}0.{zeros}{digits}"),
            _ => format!("{sign}{digits}{zeros}.{digits}{zeros}"),
        };
        let mut unscaled = Vec::new();
        let scale = decimal::parse_into(&written, &mut unscaled).expect("a number");
        let values = [Value::Int(id), Value::Decimal(Decimal { unscaled: &unscaled, scale })];
        let (key, row) = (encode_key(&owner.target.schema, &values), encode(&owner.target.schema, &values));
        batch.push(Delta { key: &key, row: Some(&row), version: version(owner.target.build, id) });
        texts.push(written);
    }
    // The ends of the type.
    for (id, written) in (20_000..).zip(["9".repeat(131_072), format!("-{}", "7".repeat(131_071)), format!("0.{}1", "0".repeat(16_382))]) {
        let mut unscaled = Vec::new();
        let scale = decimal::parse_into(&written, &mut unscaled).expect("a number");
        let value = Value::Decimal(Decimal { unscaled: &unscaled, scale });
        assert_eq!(postgres::refuse(LogicalType::Numeric, &value), None);
        let values = [Value::Int(id), value];
        let (key, row) = (encode_key(&owner.target.schema, &values), encode(&owner.target.schema, &values));
        batch.push(Delta { key: &key, row: Some(&row), version: version(owner.target.build, id) });
        texts.push(written);
    }
    owner.sink.land(&owner.target, &batch).expect("lands");
    // The server reads the text itself: what it makes of it, and its text, must be what landed.
    let mut literals = String::new();
    for (id, text) in texts.iter().enumerate() {
        literals.push_str(&format!("{}({id},'{text}'::numeric)", if id == 0 { "" } else { "," }));
    }
    let sql = format!(
        "SELECT count(*) FILTER (WHERE v.n = t.n AND v.n::text = t.n::text AND scale(v.n) = scale(t.n)) FROM (VALUES {literals}) v(id, n) JOIN {} t USING (id)",
        home.table("t")
    );
    assert_eq!(home.admin.one(&sql), "20003");
}

#[test]
fn what_is_refused_is_what_the_server_refuses() {
    let home = Home::new("refused");
    home.admin.run(&format!(
        "CREATE FUNCTION \"{}\".valid(t text) RETURNS boolean LANGUAGE plpgsql AS \
         $f$ BEGIN PERFORM t::jsonb; RETURN true; EXCEPTION WHEN OTHERS THEN RETURN false; END $f$",
        home.schema
    ));
    let seed = r#"{"a\n": [1, -2.5e+3, true, null, "\u00e9\ud83d\ude00"], "o": {"": [[]]}, "big": 1e131071, "small": 1e-16383}"#;
    let pieces = [
        "\\u0000", "\\ud800", "\\udc00", "e131072", "e-16384", "0", "\"", "}", "]", ",", ":", "\\", ".", "-", "e", "1", " ", "\u{1}", "\u{7f}", "nul",
    ];
    let mut random = Random(5);
    let mut documents: Vec<String> = vec![seed.to_owned(), String::new()];
    for _ in 0..4000 {
        let mut bytes = seed.as_bytes().to_vec();
        for _ in 0..=random.below(2) {
            let at = random.below(bytes.len() as u64) as usize;
            let to = (at + random.below(4) as usize).min(bytes.len());
            let piece = pieces[random.below(pieces.len() as u64) as usize].as_bytes();
            drop(bytes.splice(at..to, piece.iter().copied()));
        }
        documents.push(String::from_utf8(bytes).expect("the document is ASCII"));
    }
    let valid = format!("SELECT \"{}\".valid(d) FROM unnest($1::text[]) WITH ORDINALITY u(d, n) ORDER BY n", home.schema);
    let found = home.admin.runtime.block_on(home.admin.client.query(&valid, &[&documents])).expect("asks");
    let mut accepted = 0;
    for (document, row) in documents.iter().zip(found) {
        let server: bool = row.get(0);
        accepted += usize::from(server);
        assert_eq!(postgres::refuse(LogicalType::Json, &Value::Json(document)).is_none(), server, "{document}");
    }
    assert!(accepted > 100 && accepted < 3500, "{accepted} accepted: the sample says little");
    // The ends of the calendar, as the server reads them.
    let mut owner = home.open("ends", schema(&[("id", "int64"), ("d", "date"), ("t", "timestamp(6)"), ("z", "timestamptz(6)")], &["id"]));
    let first_day = -2_451_545 + 10_957;
    let first = i64::from(first_day) * 86_400_000_000;
    owner.land(1, &[(&[Value::Int(1), Value::Date(first_day), Value::Timestamp(first), Value::Timestamp(first)], true)]);
    owner.land(2, &[(&[Value::Int(2), Value::Date(2_145_031_948 + 10_957), Value::Timestamp(i64::MAX), Value::Timestamp(i64::MAX)], true)]);
    let sql = format!(
        "SELECT string_agg(d::text || ' ' || t::text || ' ' || isfinite(z), ', ' ORDER BY id) FROM {}, \
         (SELECT '4714-11-24 BC'::date, '5874897-12-31'::date) bounds WHERE isfinite(d) AND isfinite(t)",
        home.table("ends")
    );
    assert_eq!(home.admin.one(&sql), "4714-11-24 BC 4714-11-24 00:00:00 BC true, 5874897-12-31 294247-01-10 04:00:54.775807 true");
    assert!(home.admin.try_run("SELECT '4714-11-23 BC'::date").is_err() && home.admin.try_run("SELECT '5874898-01-01'::date").is_err());
}

#[test]
fn a_value_that_was_not_asked_about_names_its_column() {
    let home = Home::new("unasked");
    let mut owner = home.open("t", schema(&[("id", "int64"), ("a", "text"), ("d", "date"), ("j", "json")], &["id"]));
    owner.land(1, &[(&[Value::Int(1), Value::Text("x"), Value::Date(0), Value::Null], true)]);
    for (values, column, code) in [
        ([Value::Int(2), Value::Text("s3cret\0"), Value::Date(0), Value::Null], "\"a\"", "value.nul"),
        ([Value::Int(2), Value::Text("s3cret"), Value::Date(i32::MAX), Value::Null], "\"d\"", "value.out_of_range"),
        ([Value::Int(2), Value::Text("s3cret"), Value::Date(0), Value::Json("[\"s3cret\"")], "\"j\"", "value.malformed"),
    ] {
        let good = [Value::Int(3), Value::Text("y"), Value::Null, Value::Null];
        let error = owner.try_land(2, &[(&good, true), (&values, true)]).expect_err("the server cannot hold it");
        assert_eq!(error.kind, Kind::Unsupported);
        let text = format!("{error} {error:?}");
        assert!(text.contains(column) && text.contains(code) && !text.contains("s3cret"), "{text}");
        home.assert_no_open_transaction();
    }
    assert_eq!(owner.sink.cursor(&owner.target, 0).expect("reads").and_then(|c| c.next), Some(1));
    owner.land(2, &[(&[Value::Int(3), Value::Text("y"), Value::Null, Value::Null], true)]);
    assert_eq!(home.read(&owner.target).len(), 2);
}

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

#[test]
fn a_connection_cut_in_the_middle_changes_nothing() {
    let home = Home::new("cut");
    let mut owner = home.open("t", pair());
    owner.land(5, &[(&text(1, "one"), true), (&text(2, "two"), true)]);
    // The landing waits behind a lock of ours, its cursor already moved in its own transaction; then its server process is ended.
    home.admin.run(&format!("BEGIN; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", home.table("t")));
    let error = std::thread::scope(|scope| {
        let landing = scope.spawn(|| owner.try_land(9, &[(&text(1, "changed"), true), (&text(2, "two"), false), (&text(3, "three"), true)]));
        let process = home.blocked(1);
        home.admin.run(&format!("SELECT pg_terminate_backend({process})"));
        landing.join().expect("no panic").expect_err("was cut off")
    });
    assert_eq!((error.kind, error.kind.remedy()), (Kind::Unavailable, Remedy::Retry), "{error}");
    home.admin.run("ROLLBACK");
    assert_eq!(owner.sink.cursor(&owner.target, 0).expect("connects again").and_then(|c| c.next), Some(5));
    assert_eq!(home.read(&owner.target).len(), 2);
    owner.land(9, &[(&text(1, "changed"), true), (&text(2, "two"), false), (&text(3, "three"), true)]);
    assert_eq!(home.read(&owner.target), [row(1, "changed"), row(3, "three")]);
    // Ended while idle: the next call does not even notice.
    home.admin.run(&format!("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '{}'", home.schema));
    owner.land(10, &[(&text(4, "four"), true)]);
}

#[test]
fn a_claim_waits_for_the_landing_under_way_and_sees_its_k() {
    let home = Home::new("overlap");
    let mut owner = home.open("t", pair());
    owner.land(5, &[(&text(1, "one"), true)]);
    let mut other = home.sink();
    let target = owner.target.clone();
    home.admin.run(&format!("BEGIN; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", home.table("t")));
    let claim = std::thread::scope(|scope| {
        let landing = scope.spawn(|| owner.try_land(8, &[(&text(2, "two"), true)]));
        let _ = home.blocked(1);
        let claiming = scope.spawn(|| other.claim(&target, 0));
        let _ = home.blocked(2);
        home.admin.run("ROLLBACK");
        landing.join().expect("no panic").expect("the fence was its own when it began");
        claiming.join().expect("no panic").expect("claims")
    });
    assert_eq!(claim.next, Some(8));
    assert_eq!(kind(owner.try_land(9, &[])), Kind::Fenced);
}

#[test]
fn a_rebuild_waits_for_the_landing_under_way_and_empties_behind_it() {
    let home = Home::new("overlap_rebuild");
    let mut owner = home.open("t", pair());
    owner.land(5, &[(&text(1, "one"), true)]);
    let mut other = home.sink();
    let target = owner.target.clone();
    home.admin.run(&format!("BEGIN; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", home.table("t")));
    std::thread::scope(|scope| {
        let landing = scope.spawn(|| owner.try_land(8, &[(&text(2, "two"), true)]));
        let _ = home.blocked(1);
        let rebuilding = scope.spawn(|| other.rebuild(&target.replica, "t"));
        let _ = home.blocked(2);
        home.admin.run("ROLLBACK");
        landing.join().expect("no panic").expect("came first");
        assert_eq!(rebuilding.join().expect("no panic").expect("rebuilds"), target.build + 1);
    });
    assert_eq!(home.read(&target), Rows::new());
    assert_eq!(kind(owner.try_land(9, &[(&text(3, "late"), true)])), Kind::Build);
    assert_eq!(home.read(&target), Rows::new());
}

#[test]
fn landing_the_same_rows_again_writes_nothing() {
    let home = Home::new("unchanged");
    let columns = [("id", "numeric"), ("f", "float64"), ("n", "numeric"), ("j", "json"), ("t", "text"), ("d", "decimal(9,2)")];
    let mut owner = home.open("t", schema(&columns, &["id"]));
    let number = |unscaled: &'static [u8], scale| Value::Decimal(Decimal { unscaled, scale });
    let values = |id| [number(id, 0), Value::Float64(f64::NAN), number(&[100], 2), Value::Json("{\"a\": 1.0}"), Value::Null, number(&[5], 2)];
    let (one, two) = (values(&[1]), values(&[2]));
    owner.land(1, &[(&one, true), (&two, true)]);
    let places = format!("SELECT ctid::text, xmin::text FROM {} ORDER BY id", home.table("t"));
    let before = home.admin.rows(&places);
    owner.land(2, &[(&one, true), (&two, true)]);
    assert_eq!(home.admin.rows(&places), before);
    // The same key in another look is the same row, and shows the new look.
    let mut other = one;
    other[0] = number(&[10], 1);
    owner.land(3, &[(&other, true)]);
    assert_eq!(home.admin.one(&format!("SELECT string_agg(id::text, ' ' ORDER BY id) FROM {}", home.table("t"))), "1.0 2");
}

#[test]
fn names_longer_than_postgres_keeps_do_not_meet() {
    let home = Home::new("long_names");
    let long = |end: &str| format!("{}{end}", "a long name ".repeat(8));
    let (one, two) = (long("one"), long("two"));
    let mut owner = home.open("t", schema(&[(&one, "int64"), (&two, "text")], &[&one]));
    owner.land(1, &[(&text(1, "x"), true)]);
    owner.land(2, &[(&text(1, "y"), true), (&text(2, "z"), true)]);
    owner.land(3, &[(&text(2, "z"), false)]);
    assert_eq!(home.read(&owner.target), [row(1, "y")]);
    let mut sink = home.sink();
    assert_eq!(kind(sink.open(&format!("{}.x", home.schema), &"t".repeat(64), None)), Kind::Unsupported);
    let replica = format!("{}.sys", home.schema);
    let build = sink.open(&replica, "sys", None).expect("opens").build;
    let target = Target { replica, table: "sys".to_owned(), generation: 1, build, schema: schema(&[("id", "int64"), ("xmin", "int64")], &["id"]) };
    let error = sink.prepare(&target).expect_err("a system column");
    assert!(error.kind == Kind::Unsupported && error.to_string().contains("scd.reserved_column"), "{error}");
}

/// Two thousand names of random, mostly awkward characters: each is its own table with its own column, or refused by name.
#[test]
fn two_thousand_hostile_names() {
    let home = Home::new("hostile");
    let alphabet = [
        "\"",
        "'",
        "\\",
        ";",
        "-",
        " ",
        ".",
        "%",
        "$1",
        "?",
        "\n",
        "\t",
        "é",
        "日",
        "\u{1F600}",
        "\u{202e}",
        "\u{0}",
        "A",
        "a",
        "{",
        "\u{7f}",
        "select",
        "::",
    ];
    let mut random = Random(64);
    let mut sink = home.sink();
    let mut made = BTreeSet::new();
    for _ in 0..2000 {
        let name: String = (0..random.below(26)).map(|_| alphabet[random.below(alphabet.len() as u64) as usize]).collect();
        let legal = !name.is_empty() && !name.contains('\0') && name.len() <= 63;
        let replica = format!("{}:{name}", home.schema);
        if !legal {
            if !name.contains('\0') {
                assert_eq!(kind(sink.open(&replica, &name, None)), Kind::Unsupported, "{name:?}");
            }
            continue;
        }
        // Making a table takes the server a few milliseconds: every tenth name has one.
        if made.len() * 10 > 1300 || random.below(10) > 0 {
            continue;
        }
        let build = sink.open(&replica, &name, None).expect("opens").build;
        let schema = schema(&[("id", "int64"), (&format!("{name}."), "text")], &["id"]);
        if postgres::column_names(&schema).is_err() {
            continue;
        }
        let target = Target { replica, table: name.clone(), generation: 1, build, schema };
        sink.prepare(&target).unwrap_or_else(|e| panic!("{name:?}: {e}"));
        let claim = sink.claim(&target, 0).expect("claims");
        let mut owner = Owner { sink, target, claim };
        let next = owner.claim.next.unwrap_or(0) + 1;
        owner.land(next, &[(&text(1, &name), true)]);
        assert_eq!(home.read(&owner.target), [row(1, &name)], "{name:?}");
        sink = owner.sink;
        let _ = made.insert(name);
    }
    assert!(made.len() > 80, "{}", made.len());
    let found = home.admin.rows(&format!("SELECT tablename FROM pg_tables WHERE schemaname = '{}'", home.schema));
    let found: BTreeSet<String> = found.into_iter().filter_map(|mut r| r.remove(0)).collect();
    assert_eq!(found, made, "nothing else was made");
}

#[test]
fn keys_longer_than_an_index_entry_are_refused_before_they_land() {
    let home = Home::new("long_keys");
    let mut owner = home.open("t", schema(&[("k", "text"), ("b", "bytes")], &["k", "b"]));
    // Text that does not compress, so that its size decides.
    let mut random = Random(3);
    let noise: String = (0..4000).map(|_| char::from(33 + random.below(90) as u8)).collect();
    let mut next = 0;
    for length in [100, 1200, 2000, 2400, 2600, 2650, 2660, 2670, 2680, 2690, 2700, 2750, 3000] {
        let values = [Value::Text(&noise[..length]), Value::Bytes(b"12")];
        let refused = postgres::refuse_key(&owner.target.schema, &encode_key(&owner.target.schema, &values)).expect("a key");
        next += 1;
        let landed = owner.try_land(next, &[(&values, true)]);
        assert!(landed.is_ok() || refused.is_some(), "{length} bytes pass and do not land");
        match landed {
            Ok(()) => assert!(length < 2750 && (refused.is_none() || length > 2600), "{length} bytes are refused too early"),
            Err(error) => assert_eq!(error.kind, Kind::Unsupported, "{error}"),
        }
    }
}

#[test]
fn a_login_with_few_rights_is_enough_or_says_what_it_lacks() {
    let home = Home::new("rights");
    let role = "lf_rights_user";
    home.admin.run(&format!(
        "DROP SCHEMA \"{0}\" CASCADE; CREATE SCHEMA \"{0}\"; DO $$ BEGIN CREATE ROLE {role} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        home.schema
    ));
    let (head, tail) = home.url.split_once('@').expect("a user");
    let url = format!("{}//{role}@{tail}", head.split("//").next().expect("a scheme"));
    let mut poor = sink(&url, &home.schema);
    let replica = format!("{}.t", home.schema);
    let error = poor.open(&replica, "t", None).expect_err("no right to the metadata");
    assert_eq!(error.kind, Kind::Permission, "{error}");
    assert!(error.to_string().contains("landfall"), "{error}");
    // What the reference asks for, and nothing else: not to create schemas, not to own the database.
    home.admin.run(&format!(
        "GRANT USAGE ON SCHEMA landfall TO {role}; GRANT SELECT, INSERT, UPDATE ON landfall.replica, landfall.cursor TO {role}; \
         GRANT USAGE, CREATE ON SCHEMA \"{}\" TO {role}",
        home.schema
    ));
    let build = poor.open(&replica, "t", None).expect("opens").build;
    let target = Target { replica, table: "t".to_owned(), generation: 1, build, schema: pair() };
    poor.prepare(&target).expect("prepares");
    let claim = poor.claim(&target, 0).expect("claims");
    let mut owner = Owner { sink: poor, target, claim };
    owner.land(1, &[(&text(1, "one"), true), (&text(2, "two"), false)]);
    owner.target.build = owner.sink.rebuild(&owner.target.replica, "t").expect("rebuilds");
    home.admin.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn what_cannot_be_reached_says_so_without_the_password() {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port");
    let server = url().split('@').nth(1).expect("a user in the URL").to_owned();
    let host = server.split('/').next().expect("a host");
    for (url, expected) in [
        (format!("postgres://u:s3cret@{address}/d"), Kind::Unavailable),
        ("postgres://u:s3cret@no-such-host.invalid/d?sslmode=disable".to_owned(), Kind::Unavailable),
        (format!("postgres://no_such_user_s:s3cret@{server}"), Kind::Login),
        (format!("postgres://postgres:s3cret@{host}/no_such_database"), Kind::Login),
        (format!("postgres://postgres:s3cret@{host}/postgres?sslmode=verify-full"), Kind::Unavailable),
    ] {
        let mut sink = sink(&url, "lf_unreachable");
        let error = sink.open("lf_unreachable.t", "t", None).expect_err(&url);
        assert_eq!(error.kind, expected, "{url}: {error}");
        assert!(!format!("{error} {error:?} {sink:?}").contains("s3cret"), "{error}");
    }
}

/// Passes bytes on and counts how often the client speaks after the server has.
struct Proxy {
    address: String,
    turns: Arc<AtomicUsize>,
}

impl Proxy {
    fn new(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let turns = Arc::new(AtomicUsize::new(0));
        let (server, counter) = (server.to_owned(), turns.clone());
        drop(std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let upstream = TcpStream::connect(&server).expect("the server answers");
                for stream in [&client, &upstream] {
                    stream.set_nodelay(true).expect("a socket");
                }
                let server_spoke = Arc::new(Mutex::new(true));
                let copies = [(client.try_clone(), upstream.try_clone(), false), (Ok(upstream), Ok(client), true)];
                for (from, to, is_server) in copies {
                    let (mut from, mut to) = (from.expect("a socket"), to.expect("a socket"));
                    let (turn, counter) = (server_spoke.clone(), counter.clone());
                    drop(std::thread::spawn(move || {
                        let mut buffer = [0; 65_536];
                        while let Ok(count) = from.read(&mut buffer)
                            && count > 0
                        {
                            {
                                let mut spoke = turn.lock().expect("no panic in here");
                                if *spoke && !is_server {
                                    let _ = counter.fetch_add(1, Ordering::SeqCst);
                                }
                                *spoke = is_server;
                            }
                            if to.write_all(&buffer[..count]).is_err() {
                                break;
                            }
                        }
                        drop(to.shutdown(Shutdown::Both));
                    }));
                }
            }
        }));
        Self { address, turns }
    }

    fn taken(&self) -> usize {
        self.turns.swap(0, Ordering::SeqCst)
    }
}

#[test]
fn a_landing_takes_two_round_trips() {
    let home = Home::new("round_trips");
    let (head, tail) = home.url.split_once('@').expect("a user in the URL");
    let (server, path) = tail.split_once('/').expect("a database in the URL");
    let proxy = Proxy::new(server);
    let mut sink = sink(&format!("{head}@{}/{path}", proxy.address), &home.schema);
    let replica = format!("{}.t", home.schema);
    let build = sink.open(&replica, "t", None).expect("opens").build;
    let target = Target { replica, table: "t".to_owned(), generation: 1, build, schema: pair() };
    sink.prepare(&target).expect("prepares");
    let _ = proxy.taken();
    let claim = sink.claim(&target, 0).expect("claims");
    let claimed = proxy.taken();
    let mut owner = Owner { sink, target, claim };
    owner.land(1, &[(&text(1, "one"), true)]);
    let first = proxy.taken();
    owner.land(3, &[(&text(1, "two"), true), (&text(2, "two"), false)]);
    let with_rows = proxy.taken();
    owner.land(4, &[]);
    let empty = proxy.taken();
    let _ = owner.sink.cursor(&owner.target, 0).expect("reads");
    let cursor = proxy.taken();
    println!("round trips: claim {claimed}, first landing {first}, landing {with_rows}, empty landing {empty}, cursor {cursor}");
    assert!(claimed <= 1 && with_rows <= 2 && empty <= 1 && cursor <= 1, "{claimed} {with_rows} {empty} {cursor}");
    assert!(first <= 4, "{first}");
}

/// A connection that lands three hundred tables in turn lands each as fast as one alone: no cost grows with the number of stages.
#[test]
fn many_tables_share_a_connection() {
    let home = Home::new("many");
    let mut owner = home.open("t0", pair());
    let time = |owner: &mut Owner, count: i64| {
        let begun = Instant::now();
        for _ in 0..count {
            let next = owner.claim.next.unwrap_or(0) + 1;
            owner.land(next, &[(&text(next, "x"), true)]);
        }
        begun.elapsed().as_secs_f64() * 1000.0 / count as f64
    };
    let _ = time(&mut owner, 3);
    let alone = time(&mut owner, 40);
    let (target, claim) = (owner.target.clone(), owner.claim);
    for at in 1..150 {
        let replica = format!("{}.t{at}", home.schema);
        let table = format!("t{at}");
        let build = owner.sink.open(&replica, &table, None).expect("opens").build;
        owner.target = Target { replica, table, build, ..target.clone() };
        owner.sink.prepare(&owner.target).expect("prepares");
        owner.claim = owner.sink.claim(&owner.target, 0).expect("claims");
        owner.land(1, &[(&text(1, "x"), true)]);
    }
    (owner.target, owner.claim) = (target, claim);
    let together = time(&mut owner, 40);
    println!("one-row landing: {alone:.2} ms with 1 stage, {together:.2} ms with 150");
    assert!(together < alone * 4.0 + 20.0, "{alone} {together}");
}

/// Seconds that a process of this machine has had of a processor; nothing where it is another's.
fn cpu_seconds(process: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9
}

/// Prints rows a second for batches of 100 000 in a table of a million, beside what the server alone takes for the same statement.
#[test]
fn speed_of_large_batches() {
    let home = Home::new("speed");
    let columns = [
        ("id", "int64"),
        ("name", "text"),
        ("qty", "int32"),
        ("price", "float64"),
        ("amount", "decimal(18,4)"),
        ("ts", "timestamptz(6)"),
        ("flag", "bool"),
        ("note", "text"),
    ];
    let mut owner = home.open("t", schema(&columns, &["id"]));
    let base: i64 = std::env::var("LANDFALL_SPEED_ROWS").ok().and_then(|n| n.parse().ok()).unwrap_or(200_000);
    home.admin.run(&format!(
        "INSERT INTO {0} SELECT i, 'name '||(i%1000), i%500, i*0.5, i/100.0, now(), i%2=0, CASE WHEN i%4<>0 THEN 'a note of some length '||i END \
         FROM generate_series(0,{1}) i; ANALYZE {0}; CHECKPOINT",
        home.table("t"),
        base - 1
    ));
    let batch = |owner: &Owner, ids: &mut dyn Iterator<Item = i64>, salt: i64, live: bool| {
        let mut batch = Batch::default();
        batch.reset(0, owner.claim.fence, owner.claim.next, owner.claim.next.unwrap_or(0) + 1);
        for id in ids {
            let (name, note) = (format!("name {} {salt}", id % 1000), format!("a note of some length {id}"));
            let amount = (id * 100).to_be_bytes();
            let values = [
                Value::Int(id),
                Value::Text(&name),
                Value::Int(id % 500),
                Value::Float64(id as f64 * 0.5),
                Value::Decimal(Decimal { unscaled: &amount, scale: 4 }),
                Value::Timestamp(1_700_000_000_000_000 + id),
                Value::Bool(id % 2 == 0),
                if id % 4 == 0 { Value::Null } else { Value::Text(&note) },
            ];
            let (key, row) = (encode_key(&owner.target.schema, &values), encode(&owner.target.schema, &values));
            batch.push(Delta { key: &key, row: live.then_some(&row), version: 1 });
        }
        batch
    };
    const ROWS: i64 = 100_000;
    let step = (base / ROWS).max(1);
    let mut land = |what: &str, first: i64, step: i64, salt: i64, live: bool| {
        let batch = batch(&owner, &mut (0..ROWS).map(|i| first + i * step), salt, live);
        let process = home.admin.one(&format!("SELECT pid FROM pg_stat_activity WHERE application_name = '{}'", home.schema));
        let cpu = || (cpu_seconds("thread-self"), cpu_seconds(&process));
        let (begun, before) = (Instant::now(), cpu());
        owner.sink.land(&owner.target, &batch).expect("lands");
        let (seconds, after) = (begun.elapsed().as_secs_f64(), cpu());
        owner.claim.next = Some(owner.claim.next.unwrap_or(0) + 1);
        let micros = |from: f64, to: f64| (to - from) * 1e6 / ROWS as f64;
        println!(
            "{what}: {:.0} rows/s; CPU a row: own {:.2} us, server {:.2} us",
            ROWS as f64 / seconds,
            micros(before.0, after.0),
            micros(before.1, after.1)
        );
    };
    for round in 0..2 {
        land("insert", base + round * ROWS, 1, 0, true);
        land("update", 0, step, round + 1, true);
        land("unchanged", 0, step, round + 1, true);
        land("delete", base + round * ROWS, 1, 0, false);
    }
    // The floor: the same rows out of a filled stage, nothing sent.
    let stage = "c0 bigint, c1 text, c2 int, c3 float8, c4 numeric(18,4), c5 timestamptz, c6 bool, c7 text";
    home.admin.run(&format!("CREATE TEMP TABLE floor ({stage})"));
    for (what, first, step) in [("insert", base * 2, 1), ("update", 0, step)] {
        home.admin.run(&format!(
            "TRUNCATE floor; INSERT INTO floor SELECT i, 'name '||i, i%500, i*0.5, i/100.0, now(), i%2=0, 'a note of some length '||i \
             FROM (SELECT {first} + i * {step} i FROM generate_series(0,{}) i) s",
            ROWS - 1
        ));
        let process = home.admin.one("SELECT pg_backend_pid()");
        let (begun, before) = (Instant::now(), cpu_seconds(&process));
        home.admin.run(&format!(
            "INSERT INTO {} AS t SELECT * FROM floor ON CONFLICT (id) DO UPDATE SET name=excluded.name, qty=excluded.qty, price=excluded.price, \
             amount=excluded.amount, ts=excluded.ts, flag=excluded.flag, note=excluded.note WHERE ROW(t.name,t.qty,t.amount,t.ts,t.flag,t.note) \
             IS DISTINCT FROM ROW(excluded.name,excluded.qty,excluded.amount,excluded.ts,excluded.flag,excluded.note)",
            home.table("t")
        ));
        let (seconds, after) = (begun.elapsed().as_secs_f64(), cpu_seconds(&process));
        println!("floor of {what}: {:.0} rows/s; CPU a row: server {:.2} us", ROWS as f64 / seconds, (after - before) * 1e6 / ROWS as f64);
    }
}

#[test]
fn a_table_of_many_columns() {
    let home = Home::new("wide");
    let names: Vec<String> = (0..postgres::COLUMNS_MAX).map(|i| format!("c{i}")).collect();
    let columns: Vec<(&str, &str)> = names.iter().map(|n| (n.as_str(), "int32")).collect();
    let mut owner = home.open("t", schema(&columns, &["c7"]));
    let values = |key: i64, other: i64| {
        let value = move |i| {
            if i == 7 {
                Value::Int(key)
            } else if i % 3 == 0 {
                Value::Null
            } else {
                Value::Int(other)
            }
        };
        (0..postgres::COLUMNS_MAX).map(value).collect::<Vec<_>>()
    };
    owner.land(1, &[(&values(1, 10), true), (&values(2, 20), true)]);
    owner.land(2, &[(&values(1, 11), true), (&values(2, 20), false)]);
    assert_eq!(home.admin.rows(&format!("SELECT c7, c1, c0, c{} FROM {}", postgres::COLUMNS_MAX - 1, home.table("t")))[0][1].as_deref(), Some("11"));
    let more: Vec<String> = (0..=postgres::COLUMNS_MAX).map(|i| format!("c{i}")).collect();
    let columns: Vec<(&str, &str)> = more.iter().map(|n| (n.as_str(), "int32")).collect();
    assert_eq!(kind(owner.sink.prepare(&Target { schema: schema(&columns, &["c7"]), ..owner.target.clone() })), Kind::Unsupported);
}

/// Two owners that take the partition from each other as fast as they can: each offset lands once, by one of them, and none is left out.
/// The server may be stopped and started meanwhile.
#[test]
fn two_owners_fight_for_a_partition() {
    let home = Home::new("fight");
    let first = home.open("t", schema(&[("id", "int64"), ("v", "text")], &["id"]));
    let target = first.target.clone();
    let landings = std::env::var("LANDFALL_FIGHT_LANDINGS").ok().and_then(|n| n.parse().ok()).unwrap_or(150_i64);
    let refused = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for name in ["one", "two"] {
            let (sink, target, refused) = (home.sink(), target.clone(), &refused);
            let _ = scope.spawn(move || {
                let mut owner = Owner { sink, target, claim: Claim { fence: 0, next: None } };
                let mut claimed = false;
                loop {
                    let outcome = match claimed {
                        false => owner.sink.claim(&owner.target, 0).map(|claim| owner.claim = claim),
                        true => {
                            let next = owner.claim.next.unwrap_or(0) + 1;
                            owner.try_land(next, &[(&text(next - 1, name), true)])
                        }
                    };
                    if owner.claim.next.is_some_and(|k| k >= landings) {
                        return;
                    }
                    match outcome {
                        Ok(()) => claimed = true,
                        Err(error) => {
                            assert_ne!(error.kind.remedy(), Remedy::Halt, "{error}");
                            let _ = refused.fetch_add(1, Ordering::Relaxed);
                            claimed = false;
                        }
                    }
                }
            });
        }
    });
    let sql = format!("SELECT count(*) || ' ' || min(id) || ' ' || max(id) FROM {}", home.table("t"));
    let k = Admin::new().one(&format!("SELECT next_offset FROM landfall.cursor WHERE replica = '{}'", target.replica));
    let k: i64 = k.parse().expect("a number");
    assert!(k >= landings);
    assert_eq!(Admin::new().one(&sql), format!("{k} 0 {}", k - 1));
    println!("{k} landings, {} claims lost", refused.into_inner());
}

/// Many processes beginning at once make the metadata once.
#[test]
fn many_processes_begin_at_once() {
    let home = Home::new("begin");
    home.admin.run(&format!("DROP SCHEMA \"{}\" CASCADE", home.schema));
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let (send, home) = (send.clone(), (home.url.clone(), home.schema.clone()));
            drop(scope.spawn(move || {
                let mut sink = sink(&home.0, &home.1);
                let replica = format!("{}.t", home.1);
                let opened = sink.open(&replica, "t", None).expect("opens");
                let target = Target { replica, table: "t".to_owned(), generation: 1, build: opened.build, schema: pair() };
                sink.prepare(&target).expect("prepares");
                send.send(sink.claim(&target, 0).expect("claims").fence).expect("the test listens");
            }));
        }
    });
    drop(send);
    let fences: BTreeSet<u64> = receive.iter().collect();
    assert_eq!(fences.len(), 8, "every claim has a fence of its own");
}
