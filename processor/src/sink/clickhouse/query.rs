//! Reading queries of people, over the replicas as they are.
//!
//! A query runs under `readonly = 2`: the server itself refuses whatever writes, and one request holds one statement. Values come as the server
//! writes them as text, tab-separated, where NULL cannot be mistaken for a value. The answer is read as it arrives and dropped at the limit.

use clickhouse::Client;
use tokio::runtime::Builder;

use super::connection::{self, HELLO};
use super::{Options, error};
use crate::sink::query::{Limits, Table, numbered};
use crate::sink::{Error, Kind};

/// Runs one statement that reads, in `database` or the user's own. Where it is wrong, not allowed or took too long the error is of kind
/// `Unsupported`, with the server's own words: the text is the asker's, and they may read the values.
pub fn run(options: &Options, database: Option<&str>, statement: &str, limits: &Limits) -> Result<Table, Error> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Error::with(Kind::Unavailable, "the client's runtime cannot start", e))?;
    let client = client(options, database, limits);
    let deadline = HELLO + limits.time;
    runtime.block_on(async {
        let late = |_| Error::new(Kind::Unavailable, format!("no answer within {} s", deadline.as_secs()));
        tokio::time::timeout(deadline, read(&client, statement, limits)).await.map_err(late)?
    })
}

fn client(options: &Options, database: Option<&str>, limits: &Limits) -> Client {
    let client = connection::client(options)
        .with_setting("readonly", "2")
        .with_setting("session_timezone", "UTC")
        // The server need not make what nobody reads; it stops at whole blocks, so what is left over is cut here.
        .with_setting("max_result_rows", limits.rows.saturating_add(1).to_string())
        .with_setting("result_overflow_mode", "break")
        .with_setting("max_execution_time", limits.time.as_secs().max(1).to_string());
    match database {
        Some(database) => client.with_database(database),
        None => client,
    }
}

async fn read(client: &Client, statement: &str, limits: &Limits) -> Result<Table, Error> {
    let mut answer = client.query_raw(statement).fetch_bytes("TabSeparatedWithNames").map_err(|e| refused(&e))?;
    let mut lines = Lines::default();
    while let Some(chunk) = answer.next().await.map_err(|e| refused(&e))? {
        if !lines.take(&chunk, limits) {
            break;
        }
    }
    Ok(lines.table)
}

fn refused(error: &clickhouse::error::Error) -> Error {
    match error {
        clickhouse::error::Error::BadResponse(text) if error::code(text).is_some() => {
            let login = matches!(error::code(text), Some(192..=195 | 516));
            let kind = if login { Kind::Login } else { Kind::Unsupported };
            // A syntax error lists every word that the server knows.
            let said = text.split(" (version ").next().unwrap_or(text).split(" Expected one of: ").next().unwrap_or(text).trim();
            Error::new(kind, format!("the query failed: {said}"))
        }
        _ => error::of(error, "the query", error::Carries::Values),
    }
}

/// Tab-separated lines on their way to a table.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
    named: bool,
    bytes: usize,
    table: Table,
}

impl Lines {
    /// Takes a part of the answer; false once enough has come.
    fn take(&mut self, chunk: &[u8], limits: &Limits) -> bool {
        for part in chunk.split_inclusive(|b| *b == b'\n') {
            self.rest.extend_from_slice(part);
            if part.last() != Some(&b'\n') {
                // A line longer than all values together may be.
                self.table.cut |= self.rest.len() > limits.bytes;
                return !self.table.cut;
            }
            let line = std::mem::take(&mut self.rest);
            let cells: Vec<Option<String>> = line[..line.len() - 1].split(|b| *b == b'\t').map(cell).collect();
            if !self.named {
                self.named = true;
                self.table.columns = numbered(cells.into_iter().map(Option::unwrap_or_default));
                continue;
            }
            self.bytes += line.len();
            if self.table.rows.len() == limits.rows || self.bytes > limits.bytes {
                self.table.cut = true;
                return false;
            }
            self.table.rows.push(cells);
        }
        true
    }
}

/// A value out of its escapes: `\N` alone is NULL.
fn cell(text: &[u8]) -> Option<String> {
    if text == b"\\N" {
        return None;
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'b') => 8,
                Some(b'f') => 12,
                Some(b'r') => b'\r',
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(b'0') => 0,
                Some(other) => other,
                None => b'\\',
            },
            plain => plain,
        });
    }
    Some(String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(parts: &[&[u8]], limits: &Limits) -> Table {
        let mut lines = Lines::default();
        for part in parts {
            if !lines.take(part, limits) {
                break;
            }
        }
        lines.table
    }

    #[test]
    fn lines_become_rows_wherever_the_answer_is_cut() {
        let whole = b"id\tna\\tme\tid\n1\t\\N\t\\\\N\n2\ta\\nb\t\xC3\xA9\n";
        let expected =
            vec![vec![Some("1".to_owned()), None, Some("\\N".to_owned())], vec![Some("2".to_owned()), Some("a\nb".to_owned()), Some("é".to_owned())]];
        for at in 0..whole.len() {
            let t = table(&[&whole[..at], &whole[at..]], &Limits::default());
            assert_eq!((t.columns, t.rows, t.cut), (vec!["id".to_owned(), "na\tme".to_owned(), "id_2".to_owned()], expected.clone(), false), "{at}");
        }
    }

    #[test]
    fn limits_cut_rows_off() {
        let limits = Limits { rows: 1, ..Limits::default() };
        let t = table(&[b"n\n1\n2\n"], &limits);
        assert_eq!((t.rows.len(), t.cut), (1, true));
        assert!(!table(&[b"n\n1\n"], &limits).cut, "as many as wanted are not too many");
        let limits = Limits { bytes: 8, ..Limits::default() };
        assert!(table(&[b"n\n", b"123456789"], &limits).cut, "a line that does not end is not kept");
    }
}
