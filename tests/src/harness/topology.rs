//! Topology files of the tests: one source, any tables, any of the stores.
//!
//! Each topology lives in a folder of its own with its state and its DuckDB file, and has databases of its own in the servers.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use super::kafka::Kafka;
use super::process::Options;
use super::stack;
use super::stores::{ClickHouse, Postgres, Store};

/// Which stores a topology lands in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stores {
    /// Postgres.
    pub postgres: bool,
    /// ClickHouse.
    pub clickhouse: bool,
    /// DuckDB.
    pub duckdb: bool,
    /// Topics of newest rows.
    pub latest: bool,
}

impl Stores {
    /// All three that answer queries.
    pub const ALL: Self = Self { postgres: true, clickhouse: true, duckdb: true, latest: false };
    /// DuckDB alone.
    pub const DUCKDB: Self = Self { postgres: false, clickhouse: false, duckdb: true, latest: false };
    /// Postgres alone.
    pub const POSTGRES: Self = Self { postgres: true, clickhouse: false, duckdb: false, latest: false };
    /// Topics of newest rows alone.
    pub const LATEST: Self = Self { postgres: false, clickhouse: false, duckdb: false, latest: true };
}

/// A topology in a folder of its own.
#[derive(Debug)]
pub struct Topology {
    /// Name of the topology, and of its databases.
    pub name: String,
    /// The connector's topic prefix.
    pub prefix: String,
    /// Where its file, state and DuckDB file are.
    pub folder: tempfile::TempDir,
    /// Its stores.
    pub stores: Vec<Store>,
    /// Its tables.
    pub tables: Vec<String>,
    /// Partitions of each change log.
    pub log_partitions: u32,
    /// More lines of a table's entry, indented by four.
    pub table_extra: String,
    /// More lines of `kafka.client`, as `key: value` pairs separated by commas.
    pub client: String,
    /// The brokers.
    pub brokers: String,
    /// The schema registry.
    pub registry: Option<String>,
}

impl Topology {
    /// A topology with databases of its own; tables are in schema `public` of the source.
    pub fn new(stem: &str, tables: &[&str], stores: Stores) -> Self {
        Self::on(&stack::kafka(), &stack::postgres(), stem, tables, stores)
    }

    /// The same on a Kafka and a Postgres of the test's own.
    pub fn on(brokers: &str, postgres: &str, stem: &str, tables: &[&str], stores: Stores) -> Self {
        let name = stack::unique(stem);
        let folder = tempfile::Builder::new().prefix(&format!("landfall-{stem}-")).tempdir().expect("a folder for the test");
        let mut list = Vec::new();
        if stores.postgres {
            drop(Postgres::create(postgres, &name));
            list.push(Store::Postgres { server: postgres.to_owned(), database: name.clone(), schema: "replica".into() });
        }
        if stores.clickhouse {
            ClickHouse::new().run(&format!("CREATE DATABASE {name} ENGINE = Atomic"));
            list.push(Store::ClickHouse { database: name.clone() });
        }
        if stores.duckdb {
            list.push(Store::DuckDb { path: folder.path().join("replicas.duckdb"), schema: "replica".into() });
        }
        if stores.latest {
            list.push(Store::Latest { kafka: Arc::new(Kafka::at(brokers)), topology: name.clone() });
        }
        let topology = Self {
            prefix: format!("{name}src"),
            name,
            folder,
            stores: list,
            tables: tables.iter().map(|t| (*t).to_owned()).collect(),
            log_partitions: 4,
            table_extra: String::new(),
            client: "session.timeout.ms: 1500, heartbeat.interval.ms: 300".into(),
            brokers: brokers.to_owned(),
            registry: None,
        };
        topology.write();
        topology
    }

    /// Writes the file; call it again after a change of the fields.
    pub fn write(&self) {
        std::fs::write(self.file(), self.yaml()).expect("the test's folder can be written");
    }

    /// The file's text.
    pub fn yaml(&self) -> String {
        let mut yaml = format!(
            "topology: {}\nkafka:\n  brokers: [\"{}\"]\n  client: {{ {} }}\n{}defaults: {{ push_debounce_quiet: 0, log: {{ partitions: {}, replication: 1 }} }}\n\
             sources:\n  - {{ id: shopdb, type: postgresql, change_signal: debezium, cdc: {{ topic_prefix: {} }} }}\n",
            self.name,
            self.brokers,
            self.client,
            self.registry.as_ref().map(|url| format!("  registry: {{ url: \"{url}\" }}\n")).unwrap_or_default(),
            self.log_partitions,
            self.prefix
        );
        let declared: Vec<&Store> = self.stores.iter().filter(|s| !matches!(s, Store::Latest { .. })).collect();
        let has_latest = declared.len() < self.stores.len();
        yaml.push_str(if declared.is_empty() { "" } else { "stores:\n" });
        yaml.push_str(&self.stores_yaml());
        yaml.push_str("tables:\n");
        for table in &self.tables {
            writeln!(yaml, "  - id: {table}\n    source: shopdb\n    schema: public\n    name: {table}").expect("text grows");
            yaml.push_str(&self.table_extra);
            yaml.push_str(if has_latest { "    log: { latest: true }\n" } else { "" });
            yaml.push_str(if declared.is_empty() { "    replicas: []\n" } else { "    replicas:\n" });
            for store in &declared {
                writeln!(yaml, "      - {{ store: {} }}", store.id()).expect("text grows");
            }
        }
        yaml
    }

    /// The entries of its stores.
    pub fn stores_yaml(&self) -> String {
        let mut yaml = String::new();
        for store in &self.stores {
            match store {
                Store::Latest { .. } => Ok(()),
                Store::Postgres { server, database, schema } => {
                    writeln!(yaml, "  - {{ id: serving, type: postgresql, url: \"{server}/{database}\", schema: {schema} }}")
                }
                Store::ClickHouse { database } => {
                    let (url, user, _) = stack::clickhouse();
                    writeln!(
                        yaml,
                        "  - {{ id: warehouse, type: clickhouse, url: \"{url}\", database: {database}, user: {user}, \
                         password: \"${{env:LANDFALL_TEST_CLICKHOUSE_PASSWORD}}\" }}"
                    )
                }
                Store::DuckDb { path, schema } => {
                    writeln!(yaml, "  - {{ id: local, type: duckdb, path: \"{}\", schema: {schema} }}", path.display())
                }
            }
            .expect("text grows");
        }
        yaml
    }

    /// Path of the file.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("topology.yaml")
    }

    /// Path of the state of a process, by number.
    pub fn state(&self, process: u32) -> PathBuf {
        self.folder.path().join(format!("state-{process}"))
    }

    /// `landfall run` of it, as the first process.
    pub fn run(&self) -> Options {
        Options::run(&self.file(), &self.state(1))
    }

    /// `landfall run` as another process with a state of its own.
    pub fn run_as(&self, process: u32) -> Options {
        Options::run(&self.file(), &self.state(process))
    }

    /// The source topic of a table.
    pub fn source(&self, table: &str) -> String {
        format!("{}.public.{table}", self.prefix)
    }

    /// The change log of a table.
    pub fn log(&self, table: &str) -> String {
        format!("{}.{table}", self.name)
    }

    /// The topic of dead letters.
    pub fn dead_letters(&self) -> String {
        format!("{}.dead-letters", self.name)
    }

    /// A store by its id.
    pub fn store(&self, id: &str) -> &Store {
        self.stores.iter().find(|s| s.id() == id).unwrap_or_else(|| panic!("the topology has no store {id}"))
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        // What a test leaves in the servers slows the next ones down; a failure here says nothing about the product.
        for store in &self.stores {
            match store {
                Store::Postgres { server, database, .. } => {
                    if let Some(mut postgres) = Postgres::connect(server, "postgres") {
                        postgres.query(&format!("DROP DATABASE IF EXISTS \"{database}\" WITH (FORCE)")).ok();
                    }
                }
                Store::ClickHouse { database } => {
                    ClickHouse::new().query(&format!("DROP DATABASE IF EXISTS {database}")).ok();
                }
                Store::DuckDb { .. } | Store::Latest { .. } => {}
            }
        }
    }
}
