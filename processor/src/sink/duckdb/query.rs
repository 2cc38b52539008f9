//! Reading queries of people, over the replicas as they are.
//!
//! A query runs on a connection of its own, through the process that has the file open or, where nobody has, on the file opened for reading. It
//! cannot write, for three reasons that each suffice for the replicas: DuckDB's function `query` takes one SELECT statement only, the
//! transaction is read-only, and the database reaches no other files. Nothing here may be relied on for landing, and no lock of the sink is taken.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use duckdb::Connection;
use duckdb::types::ValueRef;

use super::file::{self, Mode};
use super::{error, sql};
use crate::sink::{Error, Kind};

/// How much of a result is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most rows.
    pub rows: usize,
    /// Most bytes of values, as text.
    pub bytes: usize,
    /// The time after which the query is broken off.
    pub time: Duration,
}

impl Default for Limits {
    /// What a person reads, and what an HTTP answer may weigh.
    fn default() -> Self {
        Self { rows: 10_000, bytes: 16 << 20, time: Duration::from_secs(30) }
    }
}

/// A result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Names of the columns; equal ones are numbered.
    pub columns: Vec<String>,
    /// The rows, by column, as DuckDB writes the values as text (instants in UTC); `None` is NULL.
    pub rows: Vec<Vec<Option<String>>>,
    /// True where a limit cut rows off.
    pub cut: bool,
}

/// Runs one SELECT, WITH, FROM, SHOW, DESCRIBE, SUMMARIZE or EXPLAIN statement. Where another process holds the file the error is of kind
/// `Unavailable`; where the statement is wrong, not allowed or took too long it is `Unsupported`, with DuckDB's own words. Names are looked up
/// in `schema` first, where one is given and the file has it, then in `main`.
pub fn run(path: &Path, schema: Option<&str>, statement: &str, limits: &Limits) -> Result<Table, Error> {
    if !path.exists() {
        return Err(Error::new(Kind::Unavailable, format!("there is no file {} yet", path.display())));
    }
    let lease = file::lease(path, Mode::Read)?.ok_or_else(|| file::held(path))?;
    let connection = lease.connection();
    let interrupt = connection.interrupt_handle();
    let (done, finished) = channel::<()>();
    std::thread::scope(|scope| {
        let _ = scope.spawn(move || {
            if finished.recv_timeout(limits.time) == Err(RecvTimeoutError::Timeout) {
                interrupt.interrupt();
            }
        });
        let result = read(connection, schema, statement, limits);
        drop(done);
        result
    })
}

fn read(connection: &Connection, schema: Option<&str>, statement: &str, limits: &Limits) -> Result<Table, Error> {
    let prepare = |text: &str| connection.execute_batch(text).map_err(|e| error::of("begin a query", &e));
    prepare("SET TimeZone = 'UTC'")?;
    if let Some(schema) = schema {
        let catalog: String = connection.query_row(sql::CATALOG, [], |row| row.get(0)).map_err(|e| error::of("begin a query", &e))?;
        // A file without the schema has no replicas in it; the query says so better than this could.
        drop(connection.execute_batch(&sql::search_path(&catalog, schema)));
    }
    prepare("BEGIN TRANSACTION READ ONLY")?;
    // The connection ends with the query; the transaction ends with it.
    rows(connection, &text(statement, limits.rows), limits).map_err(|e| refused(&e))
}

/// The statement as the one that runs: its rows as text, one more than asked for. Plans are text already.
fn text(statement: &str, rows: usize) -> String {
    let statement = statement.trim();
    match strip_word(statement, "explain") {
        Some(rest) => match strip_word(rest, "analyze") {
            Some(rest) => format!("EXPLAIN ANALYZE FROM {}", sql::as_rows(rest)),
            None => format!("EXPLAIN FROM {}", sql::as_rows(rest)),
        },
        // DuckDB's LIMIT is a signed number.
        None => {
            let limit = i64::try_from(rows).unwrap_or(i64::MAX).saturating_add(1);
            format!("SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {} LIMIT {limit}", sql::as_rows(statement))
        }
    }
}

fn strip_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(word.len())?;
    (head.eq_ignore_ascii_case(word) && rest.starts_with(char::is_whitespace)).then(|| rest.trim_start())
}

fn rows(connection: &Connection, text: &str, limits: &Limits) -> duckdb::Result<Table> {
    let mut statement = connection.prepare(text)?;
    let mut rows = statement.query([])?;
    let mut table = Table { columns: rows.as_ref().map(|s| s.column_names()).unwrap_or_default(), ..Table::default() };
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let mut cells = Vec::with_capacity(table.columns.len());
        for i in 0..table.columns.len() {
            cells.push(match row.get_ref(i)? {
                ValueRef::Null => None,
                ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
                other => Some(format!("{other:?}")),
            });
        }
        bytes += cells.iter().flatten().map(String::len).sum::<usize>();
        if table.rows.len() == limits.rows || bytes > limits.bytes {
            table.cut = true;
            break;
        }
        table.rows.push(cells);
    }
    Ok(table)
}

/// What DuckDB says of a query goes to whoever asked it, in full: the text is theirs, and they may read the values.
fn refused(e: &duckdb::Error) -> Error {
    let kind = match error::of("", e).kind {
        Kind::Unavailable if e.to_string().starts_with("INTERRUPT") => Kind::Unsupported,
        Kind::Unavailable => Kind::Unavailable,
        _ => Kind::Unsupported,
    };
    Error::new(kind, format!("the query failed: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_becomes_a_text_argument() {
        assert_eq!(text(" FROM t -- x'y ", 2), "SELECT CAST(COLUMNS(*) AS VARCHAR) FROM query('FROM t -- x''y') LIMIT 3");
        assert_eq!(text("explain\nSELECT 1", 2), "EXPLAIN FROM query('SELECT 1')");
        assert_eq!(text("EXPLAIN ANALYZE DELETE FROM t", 2), "EXPLAIN ANALYZE FROM query('DELETE FROM t')");
        assert_eq!(text("explained", 0), "SELECT CAST(COLUMNS(*) AS VARCHAR) FROM query('explained') LIMIT 1");
    }
}
