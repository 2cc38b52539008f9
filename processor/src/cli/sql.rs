//! `landfall sql`: reads a store, whatever it is, and never writes to it.
//!
//! Postgres and ClickHouse are asked over a connection of their own. A DuckDB file is opened for reading where no other process has it; where one
//! does, that process is asked over its HTTP interface, and the two are tried in turn for a bounded time, since a lander closes the file as soon
//! as it is idle. So a query never waits for a lander to end, and a lander never for a query that nobody looks at any more.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::builder::Resettable;
use clap::{Args, ValueEnum};
use landfall_topology::Plan;
use landfall_topology::plan::StoreKind;

use super::http;
use super::paper::{Field, Paper, counted};
use super::{Failure, Problem, load};
use crate::observe::Reason;
use crate::observe::query::{Answer, Question, absolute};
use crate::run::{clickhouse_options, postgres_options};
use crate::sink::query::{Limits, Table};
use crate::sink::{self, Kind, clickhouse, duckdb, postgres};

/// How long a DuckDB file that others hold is tried for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Values are text as the store writes it, instants in UTC; NULL is null in JSON, and nothing between two commas in CSV.

Examples:
  landfall sql local 'FROM orders LIMIT 10'
  landfall sql landfall-demo.duckdb 'SHOW TABLES'
  landfall sql serving 'SELECT count(*) FROM orders' shop.yaml
  landfall sql warehouse 'SELECT * FROM orders_live' --limit 100000 --output csv > orders.csv";

/// Arguments of `sql`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Id of the store in the topology, or path of a DuckDB file
    pub store: String,
    /// One statement that reads
    pub query: String,
    /// Topology files, or folders of them [default: landfall.yaml]
    #[arg(value_name = "FILE")]
    pub topology: Vec<PathBuf>,
    /// Most rows to show
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub limit: usize,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub output: Shape,
    /// HTTP address of the process that may hold a DuckDB file
    #[arg(long, value_name = "ADDRESS", env = "LANDFALL_HTTP", default_value = "127.0.0.1:9090")]
    pub http: SocketAddr,
}

/// How rows are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// A table for people.
    #[default]
    #[value(help = Resettable::Reset)]
    Table,
    /// One object a line.
    #[value(help = Resettable::Reset)]
    Json,
    /// RFC 4180, with a line of names.
    #[value(help = Resettable::Reset)]
    Csv,
}

/// Runs the query.
pub fn run(arguments: &Arguments, paper: &mut Paper<'_>) -> Result<(), Failure> {
    let limits = Limits { rows: arguments.limit, ..Limits::default() };
    let path = Path::new(&arguments.store);
    let table = if arguments.topology.is_empty() && path.is_file() {
        duckdb::query::run(path, None, &arguments.query, &limits).map_err(problem)?
    } else {
        ask_store(arguments, &limits)?
    };
    print(&table, arguments.output, paper)?;
    if table.cut && arguments.output != Shape::Table {
        let mut errors = io::stderr().lock();
        writeln!(errors, "the first {}; there are more, --limit shows them", counted(table.rows.len() as u64, "row"))?;
    }
    Ok(())
}

fn ask_store(arguments: &Arguments, limits: &Limits) -> Result<Table, Failure> {
    let plan = load(&arguments.topology)?;
    let Some(store) = plan.stores.iter().find(|s| s.id == arguments.store) else {
        let known: Vec<&str> = plan.stores.iter().map(|s| s.id.as_str()).collect();
        return Err(Problem::new(format!("no store {:?} in the topology", arguments.store), format!("its stores are {}", known.join(", "))).into());
    };
    Ok(match &store.kind {
        StoreKind::Postgres { url, database, schema, user, password } => {
            let options = postgres_options(url, database.as_deref(), schema, user.as_deref(), password.as_ref());
            postgres::query::run(&options, &arguments.query, limits).map_err(problem)?
        }
        StoreKind::ClickHouse { url, database, user, password } => {
            let options = clickhouse_options(url, database, user.as_deref(), password.as_ref());
            clickhouse::query::run(&options, Some(database), &arguments.query, limits).map_err(problem)?
        }
        StoreKind::DuckDb { path, schema } => file(arguments, &plan, Path::new(path), schema, limits)?,
        StoreKind::Kafka => {
            let topics: Vec<&str> = plan.tables.iter().filter_map(|table| plan.latest(table)).map(|r| r.table.as_str()).collect();
            let hint =
                format!("read them with any Kafka consumer: {}", if topics.is_empty() { "<log topic>.latest".to_owned() } else { topics.join(", ") });
            return Err(Problem::new(format!("store {:?} is topics, which answer no queries", store.id), hint).into());
        }
    })
}

/// A query that a store refuses is the asker's to mend; what else goes wrong has a hint of its own.
fn problem(error: sink::Error) -> anyhow::Error {
    match error.kind {
        Kind::Unsupported => Problem::plain(own_words(&error.detail)).into(),
        _ => error.into(),
    }
}

/// DuckDB points into the statement that it was given, which is not the one that was typed.
fn own_words(detail: &str) -> &str {
    match detail.split_once("\n\nLINE 1: ") {
        Some((said, pointed)) if pointed.contains(" FROM query(") => said,
        _ => detail,
    }
}

#[allow(clippy::disallowed_methods, reason = "a person waits for this; no decision of the core rests on it")]
fn file(arguments: &Arguments, plan: &Plan, path: &Path, schema: &str, limits: &Limits) -> Result<Table, anyhow::Error> {
    if !path.exists() {
        return Err(Problem::new(format!("there is no file {} yet", path.display()), "it is made when `landfall run` lands the first table").into());
    }
    let question = Question {
        topology: plan.topology.clone(),
        store: arguments.store.clone(),
        file: absolute(path),
        query: arguments.query.clone(),
        rows: limits.rows,
    };
    let begun = Instant::now();
    loop {
        match duckdb::query::run(path, Some(schema), &arguments.query, limits) {
            Err(error) if error.kind == Kind::Unavailable => {}
            outcome => return outcome.map_err(problem),
        }
        let standing = match ask(arguments.http, &question, limits)? {
            Asked::Table(table) => return Ok(table),
            Asked::NotNow(reason) => reason,
        };
        if begun.elapsed() > PATIENCE {
            let what = format!("{} is held by another process: {}", path.display(), standing.what);
            return Err(Problem { what, hint: Some(standing.hint).filter(|h| !h.is_empty()) }.into());
        }
        // Nothing unparks this thread but the time.
        std::thread::park_timeout(PAUSE);
    }
}

enum Asked {
    Table(Table),
    /// Nobody could answer; it may be tried again.
    NotNow(Reason),
}

/// Asks the process that may hold the file.
fn ask(address: SocketAddr, question: &Question, limits: &Limits) -> Result<Asked, anyhow::Error> {
    let not_now =
        |what: String| Asked::NotNow(Reason { code: String::new(), what, hint: "name the process that runs it with --http ADDRESS".to_owned() });
    let document = serde_json::to_string(question)?;
    let answer = match http::post(address, "/api/sql", &document, limits.time + CONNECT) {
        Ok(answer) => answer,
        Err(error) => return Ok(not_now(error.to_string())),
    };
    Ok(match answer.status {
        200 => {
            let Answer { columns, rows, cut } = serde_json::from_slice(&answer.body)?;
            Asked::Table(Table { columns, rows, cut })
        }
        // The query itself is wrong, and no other process will like it better.
        400 if let Ok(reason) = serde_json::from_slice::<Reason>(&answer.body) => return Err(Problem::plain(own_words(&reason.what)).into()),
        _ => match serde_json::from_slice::<Reason>(&answer.body) {
            Ok(reason) => Asked::NotNow(reason),
            Err(_) => not_now(format!("what runs at {address} is not a landfall that can be asked")),
        },
    })
}

/// What an answer may take beyond the time of the query.
const CONNECT: Duration = Duration::from_secs(5);

fn print(table: &Table, shape: Shape, paper: &mut Paper<'_>) -> io::Result<()> {
    match shape {
        Shape::Table => {
            let headers: Vec<&str> = table.columns.iter().map(String::as_str).collect();
            let cell = |value: &Option<String>| value.as_deref().map_or_else(|| Field::from("NULL"), Field::from);
            if !headers.is_empty() {
                paper.table(&headers, table.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>()))?;
            }
            let rows = counted(table.rows.len() as u64, "row");
            paper.line(if table.cut { format!("the first {rows}; there are more, --limit shows them") } else { rows })
        }
        Shape::Json => table.rows.iter().try_for_each(|row| {
            let mut line = String::from("{");
            for (at, (column, value)) in table.columns.iter().zip(row).enumerate() {
                if at > 0 {
                    line.push(',');
                }
                line.push_str(&serde_json::to_string(column)?);
                line.push(':');
                line.push_str(&serde_json::to_string(value)?);
            }
            line.push('}');
            paper.line(line)
        }),
        Shape::Csv => {
            csv(table.columns.iter().map(|name| Some(name.as_str())), paper)?;
            table.rows.iter().try_for_each(|row| csv(row.iter().map(Option::as_deref), paper))
        }
    }
}

/// One record of RFC 4180. An empty text is quoted, so that NULL, which is not, differs from it.
fn csv<'a>(values: impl Iterator<Item = Option<&'a str>>, paper: &mut Paper<'_>) -> io::Result<()> {
    let mut line = String::new();
    for (at, value) in values.enumerate() {
        if at > 0 {
            line.push(',');
        }
        match value {
            None => {}
            Some(text) if text.is_empty() || text.contains([',', '"', '\n', '\r']) => {
                line.push('"');
                line.push_str(&text.replace('"', "\"\""));
                line.push('"');
            }
            Some(text) => line.push_str(text),
        }
    }
    line.push_str("\r\n");
    paper.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::paper::printed;
    use super::*;

    fn sample() -> Table {
        let row = |values: [Option<&str>; 2]| values.map(|v| v.map(str::to_owned)).to_vec();
        let rows = vec![row([Some("1"), Some("a \"b\", c")]), row([None, Some("")]), row([Some("\u{1b}[2J"), Some("x\ny")])];
        Table { columns: vec!["id".to_owned(), "na,me".to_owned()], rows, cut: false }
    }

    #[test]
    fn rows_as_a_table_steer_no_terminal() {
        let text = printed(None, |p| print(&sample(), Shape::Table, p).unwrap());
        assert_eq!(text, "id         na,me\n1          a \"b\", c\nNULL\n\\u{1b}[2J  x\\ny\n3 rows\n");
    }

    #[test]
    fn rows_as_json_and_csv_lose_nothing() {
        let text = printed(None, |p| print(&sample(), Shape::Json, p).unwrap());
        let expected = "{\"id\":\"1\",\"na,me\":\"a \\\"b\\\", c\"}\n{\"id\":null,\"na,me\":\"\"}\n{\"id\":\"\\u001b[2J\",\"na,me\":\"x\\ny\"}\n";
        assert_eq!(text, expected);
        let text = printed(None, |p| print(&sample(), Shape::Csv, p).unwrap());
        assert_eq!(text, "id,\"na,me\"\r\n1,\"a \"\"b\"\", c\"\r\n,\"\"\r\n\u{1b}[2J,\"x\ny\"\r\n");
    }

    #[test]
    fn an_error_points_only_into_what_was_typed() {
        let said = "the query failed: Parser Error: syntax error at or near \"SELEC\"";
        assert_eq!(own_words(&format!("{said}\n\nLINE 1: SELECT CAST(COLUMNS(*) AS VARCHAR) FROM query('SELEC 1') LIMIT 2\n   ^")), said);
        assert_eq!(own_words(said), said);
    }

    #[test]
    fn rows_that_are_cut_say_so() {
        let text = printed(None, |p| print(&Table { cut: true, ..sample() }, Shape::Table, p).unwrap());
        assert!(text.ends_with("\nthe first 3 rows; there are more, --limit shows them\n"), "{text}");
    }
}
