//! The ClickHouse sink against a real server.
//!
//! `LANDFALL_TEST_CLICKHOUSE` is the server's url, `LANDFALL_TEST_CLICKHOUSE_USER` and `_PASSWORD` the login. The tests that kill a server or
//! put its files back start one of their own, `chdb-http` over `libchdb.so` in the folder `LANDFALL_TEST_CHDB`. Every test has a database
//! named after it. What is read back is read with SQL of its own, not with anything of the sink.

#![allow(clippy::disallowed_methods, reason = "proxies and rival processes are threads here, and speed is measured")]

mod conformance;
mod failures;
mod landings;
mod speed;
mod tables;
mod values;

use std::io::Read as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;

use landfall::sink::clickhouse::{ClickHouseSink, Options};
use landfall::sink::{Batch, Claim, Delta, Kind, Sink as _, Target, version};
use landfall_schemas::{TableSchema, Value};

use crate::conformance::{encode, encode_key, schema};

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

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

/// A proxy that leaves it to `pass` to hand bytes on; false cuts the connection.
fn proxy(store: &Store, pass: impl Fn(Way, &[u8], &mut TcpStream) -> bool + Send + Sync + 'static) -> String {
    let server = store.url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let pass = Arc::new(pass);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(&server)) else { return };
            for (way, from, to) in [(Way::ToServer, &client, &server), (Way::ToClient, &server, &client)] {
                let (mut from, mut to) = (from.try_clone().expect("a clone"), to.try_clone().expect("a clone"));
                let pass = pass.clone();
                std::thread::spawn(move || {
                    let mut buffer = [0; 16 << 10];
                    while let Ok(n @ 1..) = from.read(&mut buffer) {
                        if !pass(way, &buffer[..n], &mut to) {
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

fn target(schema: Arc<TableSchema>, build: u16) -> Target {
    Target { replica: REPLICA.to_owned(), table: "t".to_owned(), generation: 1, build, schema }
}

fn simple() -> Arc<TableSchema> {
    schema(&[("id", "int64"), ("v", "text")], &["id"])
}

/// Adds a row, or a tombstone of which only the key values count.
fn push(batch: &mut Batch, schema: &TableSchema, values: &[Value<'_>], live: bool, version: u64) {
    let (key, row) = (encode_key(schema, values), encode(schema, values));
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
fn begin(sink: &mut ClickHouseSink, schema: Arc<TableSchema>) -> (Target, Claim) {
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
