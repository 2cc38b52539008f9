//! Reading queries of people, over the replicas as they are.
//!
//! A query runs on a connection of its own, in a read-only transaction. The statement is prepared before it runs: that refuses a text of
//! several statements, the only way to leave the transaction and go on writing. Values come as the server writes them as text, instants in UTC.
//! Rows are read as they arrive and the connection is dropped at the limit, so a large table never stands in memory.

use std::pin::pin;

use futures_util::StreamExt as _;
use tokio::runtime::Builder;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::connect::{CONNECT_DEADLINE, Connector};
use super::{Options, sql};
use crate::sink::query::{Limits, Table, numbered};
use crate::sink::{Error, Kind};

/// Runs one statement that reads. Where it is wrong, not allowed or took too long the error is of kind `Unsupported`, with the server's own
/// words: the text is the asker's, and they may read the values.
pub fn run(options: &Options, statement: &str, limits: &Limits) -> Result<Table, Error> {
    let connector = Connector::new(&options.url)?;
    let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    let runtime = runtime.map_err(|e| Error::with(Kind::Unavailable, "starting the store's runtime", e))?;
    let deadline = CONNECT_DEADLINE + limits.time;
    runtime.block_on(async {
        let work = async {
            let (client, _connection) = connector.connect().await?;
            read(&client, options, statement, limits).await
        };
        let late = |_| Error::new(Kind::Unavailable, format!("no answer within {} s", deadline.as_secs()));
        tokio::time::timeout(deadline, work).await.map_err(late)?
    })
}

async fn read(client: &Client, options: &Options, statement: &str, limits: &Limits) -> Result<Table, Error> {
    // What a landing sets for itself would be wrong for a query: the search path, and joins that are switched off.
    let begin = format!(
        "RESET ALL; SET search_path = {}, public; SET client_encoding = 'UTF8'; SET TimeZone = 'UTC'; SET client_min_messages = error; \
         SET default_transaction_read_only = on; SET statement_timeout = {}; BEGIN READ ONLY",
        sql::quoted(&options.schema),
        limits.time.as_millis()
    );
    client.batch_execute(&begin).await.map_err(|e| refused(&e))?;
    drop(client.prepare(statement).await.map_err(|e| refused(&e))?);
    let mut messages = pin!(client.simple_query_raw(statement).await.map_err(|e| refused(&e))?);
    let mut table = Table::default();
    let mut bytes = 0;
    while let Some(message) = messages.next().await {
        match message.map_err(|e| refused(&e))? {
            SimpleQueryMessage::RowDescription(columns) => table.columns = numbered(columns.iter().map(|c| c.name().to_owned())),
            SimpleQueryMessage::Row(row) => {
                let cells: Vec<Option<String>> = (0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect();
                bytes += cells.iter().flatten().map(String::len).sum::<usize>();
                if table.rows.len() == limits.rows || bytes > limits.bytes {
                    table.cut = true;
                    break;
                }
                table.rows.push(cells);
            }
            _ => {}
        }
    }
    Ok(table)
}

fn refused(error: &tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(db) => {
            let hint = db.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
            Error::new(Kind::Unsupported, format!("the query failed: {}{hint}", db.message()))
        }
        None => Error::new(Kind::Unavailable, "the connection broke during the query"),
    }
}
