//! DuckDB's sink against real files: what a landing promises, what happens when the process is killed, and who may have the file.
//!
//! Files are read back with DuckDB itself, after the sink gave them back: a second open within a process would break the sink's lock. The
//! store-independent rules of a sink are in the conformance suite; here is what only DuckDB has.

mod conformance;
mod crash;
mod memory;
mod ownership;
mod query;
mod schemas;
mod speed;
mod types;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use landfall::sink::duckdb::{DuckDbSink, Options};
use landfall::sink::{Batch, Delta, Sink as _, Target, version};
use landfall_schemas::{Column, TableSchema, Value, row};

/// A folder with a file in it, and what a test needs to land there.
struct Bench {
    folder: tempfile::TempDir,
    sink: DuckDbSink,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let sink = sink(&folder.path().join("replicas.duckdb"));
        Self { folder, sink }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("replicas.duckdb")
    }

    /// What a reader sees once the sink has given the file back: the rows of a query as text.
    fn read(&mut self, query: &str) -> Vec<Vec<Option<String>>> {
        self.sink.idle().expect("closed");
        read(&self.path(), query)
    }

    /// Changes the file as an operator does, while the sink has it closed.
    fn alter(&mut self, statements: &str) {
        self.sink.idle().expect("closed");
        duckdb::Connection::open(self.path()).expect("opens").execute_batch(statements).expect("runs");
    }
}

fn sink(path: &Path) -> DuckDbSink {
    DuckDbSink::new(Options { path: path.to_owned(), schema: "main".to_owned() })
}

fn read(path: &Path, query: &str) -> Vec<Vec<Option<String>>> {
    let connection = duckdb::Connection::open(path).expect("opens");
    let mut statement = connection.prepare(&format!("SELECT CAST(COLUMNS(*) AS VARCHAR) FROM ({query})")).expect("prepares");
    let mut rows = statement.query([]).expect("runs");
    let width = rows.as_ref().expect("a result").column_count();
    let mut out = Vec::new();
    while let Some(row) = rows.next().expect("a row") {
        out.push((0..width).map(|i| row.get(i).expect("text")).collect());
    }
    out
}

fn schema(columns: &[(&str, &str)], key: &[&str]) -> Arc<TableSchema> {
    let columns = columns.iter().map(|(n, t)| Column { name: (*n).to_owned(), ty: t.parse().expect(t), nullable: true }).collect();
    Arc::new(TableSchema::new("t", columns, key).expect("a valid schema"))
}

fn target(table: &str, schema: &Arc<TableSchema>) -> Target {
    Target { replica: format!("local.{table}"), table: table.to_owned(), generation: 1, build: 0, schema: Arc::clone(schema) }
}

/// Adds the state of a row to a batch: the row, or the absence of the row with that key.
fn push(batch: &mut Batch, schema: &TableSchema, values: &[Value<'_>], live: bool) {
    let (mut key, mut bytes) = (Vec::new(), Vec::new());
    for at in schema.key() {
        row::put_plain(schema.columns()[*at].ty, values[*at], &mut key).expect("a key");
    }
    for (column, value) in schema.columns().iter().zip(values) {
        row::put(column.ty, *value, &mut bytes).expect("a row");
    }
    batch.push(Delta { key: &key, row: live.then_some(&bytes[..]), version: version(0, batch.next) });
}

/// Opens, prepares and claims partition 0.
fn begin(sink: &mut DuckDbSink, target: &mut Target) -> (u64, Option<i64>) {
    target.build = sink.open(&target.replica, &target.table, None).expect("opens").build;
    sink.prepare(target).expect("prepares");
    let claim = sink.claim(target, 0).expect("claims");
    (claim.fence, claim.next)
}

fn texts(rows: &[&[&str]]) -> Vec<Vec<Option<String>>> {
    rows.iter().map(|r| r.iter().map(|v| (*v != "NULL").then(|| (*v).to_owned())).collect()).collect()
}
