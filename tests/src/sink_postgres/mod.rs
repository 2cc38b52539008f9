//! The Postgres sink against a real server: `LANDFALL_TEST_POSTGRES` names one (`postgres://user@host:port/database`, a superuser's).
//!
//! Every test keeps its replicas in a schema of its own, and its replica ids begin with that name, so they run side by side and again and again.
//! The store-independent rules of a sink are in the conformance suite; here is what only Postgres has.

#![allow(clippy::disallowed_methods, reason = "a test has a clock and threads of its own")]

mod conformance;
mod connections;
mod limits;
mod owners;
mod speed;
mod tables;
mod values;

use std::sync::Arc;
use std::time::Instant;

use landfall::sink::postgres::{Options, PostgresSink};
use landfall::sink::{Batch, Claim, Delta, Error, Kind, Sink as _, Target, version};
use landfall_schemas::{TableSchema, Value};
use tokio_postgres::NoTls;

use crate::conformance::{Rows, encode, encode_key, schema};

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
        conformance::read(&self.admin, &self.schema, target)
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
