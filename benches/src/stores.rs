//! The stores: where they are, how their sinks land the same rows alone, and what a journey left in them.

#![allow(clippy::disallowed_methods, reason = "the rules of the core about clocks and threads do not bind what measures it")]

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use landfall::run::land::StoreRuntime;
use landfall::sink::duckdb::query::Limits;
use landfall::sink::duckdb::{self, DuckDbSink};
use landfall::sink::{Batch, Target};
use std::sync::Arc;

/// A store of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Postgres.
    Postgres,
    /// ClickHouse.
    ClickHouse,
    /// DuckDB.
    DuckDb,
}

/// An address that `tests/stack/stack env` prints.
pub fn address(variable: &str) -> Result<String> {
    std::env::var(variable).with_context(|| format!("{variable} is not set: use make bench, or tests/stack/stack run"))
}

impl Store {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Postgres, Self::ClickHouse, Self::DuckDb];

    /// Name in the lines of the bench.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::ClickHouse => "clickhouse",
            Self::DuckDb => "duckdb",
        }
    }

    /// Whether a command line is that of the store's server; no server has one where it lives in our process.
    pub fn is_server(self, line: &str) -> bool {
        match self {
            Self::Postgres => line.starts_with("postgres:") || line.contains("/bin/postgres "),
            Self::ClickHouse => line.contains("chdb-http "),
            Self::DuckDb => false,
        }
    }

    /// Its entry in a topology, for a database of its own.
    pub fn entry(self, database: &str, folder: &Path) -> Result<String> {
        Ok(match self {
            Self::Postgres => {
                format!("{{ id: store, type: postgresql, url: \"{}\", database: {database}, schema: public }}", address("LANDFALL_TEST_POSTGRES")?)
            }
            Self::ClickHouse => format!(
                "{{ id: store, type: clickhouse, url: \"{}\", database: {database}, user: {}, password: \"${{env:LANDFALL_TEST_CLICKHOUSE_PASSWORD}}\" }}",
                address("LANDFALL_TEST_CLICKHOUSE")?,
                address("LANDFALL_TEST_CLICKHOUSE_USER")?,
            ),
            Self::DuckDb => format!("{{ id: store, type: duckdb, path: \"{}\" }}", folder.join(format!("{database}.duckdb")).display()),
        })
    }

    /// Makes the database, or drops it.
    pub fn database(self, name: &str, make: bool) -> Result<()> {
        match self {
            Self::Postgres => {
                let _ = postgres("postgres", &if make { format!("CREATE DATABASE {name}") } else { format!("DROP DATABASE {name} WITH (FORCE)") })?;
            }
            Self::ClickHouse => {
                let _ = clickhouse(&if make { format!("CREATE DATABASE {name} ENGINE = Atomic") } else { format!("DROP DATABASE {name}") })?;
            }
            Self::DuckDb => {}
        }
        Ok(())
    }

    /// Rows of the replica and the sum of their ids.
    pub fn content(self, database: &str, folder: &Path) -> Result<(usize, i64)> {
        let text = match self {
            Self::Postgres => postgres(database, "SELECT count(*) || ' ' || coalesce(sum(id), 0) FROM orders")?,
            Self::ClickHouse => clickhouse(&format!("SELECT concat(toString(count()), ' ', toString(sum(id))) FROM {database}.orders_live"))?,
            Self::DuckDb => {
                let mut sink = DuckDbSink::new(duckdb::Options { path: folder.join(format!("{database}.duckdb")), schema: "main".to_owned() });
                let table = sink.query("SELECT count(*) || ' ' || coalesce(sum(id), 0) FROM orders", &Limits::default())?;
                table.rows.first().and_then(|r| r.first()).cloned().flatten().context("a row")?
            }
        };
        let (rows, sum) = text.trim().split_once(' ').context("two numbers")?;
        Ok((rows.parse()?, sum.parse()?))
    }
}

fn postgres(database: &str, statement: &str) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let url = address("LANDFALL_TEST_POSTGRES")?;
        let server = url.rsplit_once('/').map_or(url.as_str(), |(server, _)| server);
        let (client, connection) = tokio_postgres::connect(&format!("{server}/{database}"), tokio_postgres::NoTls).await?;
        let talk = tokio::spawn(connection);
        let rows = client.simple_query(statement).await?;
        drop(client);
        talk.await??;
        let text = rows.iter().find_map(|row| match row {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        Ok(text.unwrap_or_default())
    })
}

fn clickhouse(statement: &str) -> Result<String> {
    let mut answer = ureq::post(address("LANDFALL_TEST_CLICKHOUSE")?)
        .header("X-ClickHouse-User", address("LANDFALL_TEST_CLICKHOUSE_USER")?)
        .header("X-ClickHouse-Key", address("LANDFALL_TEST_CLICKHOUSE_PASSWORD")?)
        .send(statement)?;
    Ok(answer.body_mut().read_to_string()?)
}

/// Lands batches by as many connections as the runtime would use.
pub fn land(store: &StoreRuntime, target: &Target, batches: &mut [Vec<Batch>]) -> Result<()> {
    let workers = store.workers;
    let mut shares: Vec<Vec<(i32, &mut Vec<Batch>)>> = (0..workers).map(|_| Vec::new()).collect();
    for (partition, batches) in batches.iter_mut().enumerate() {
        shares[partition % workers].push((partition as i32, batches));
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = shares
            .into_iter()
            .map(|share| {
                scope.spawn(move || -> Result<()> {
                    let mut sink = (store.connect)();
                    let opened = sink.open(&target.replica, &target.table, None)?;
                    let target = Target { build: opened.build, ..target.clone() };
                    sink.prepare(&target)?;
                    for (partition, batches) in share {
                        let claim = sink.claim(&target, partition)?;
                        let mut expected = claim.next;
                        for batch in batches {
                            (batch.fence, batch.expected) = (claim.fence, expected);
                            sink.land(&target, batch)?;
                            expected = Some(batch.next);
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        for thread in threads {
            match thread.join() {
                Ok(outcome) => outcome?,
                Err(_) => bail!("a worker fell over"),
            }
        }
        Ok(())
    })
}

/// What to land into.
pub fn target(schema: landfall_schemas::TableSchema) -> Target {
    Target { replica: "store.orders".to_owned(), table: "orders".to_owned(), generation: 0, build: 0, schema: Arc::new(schema) }
}
