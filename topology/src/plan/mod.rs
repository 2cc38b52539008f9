//! The plan: what is to run, resolved and beyond doubt.
//!
//! Only [`crate::check`] builds one, and only from a topology without errors; so names are legal, references exist, targets differ
//! and defaults are filled in. Everything here is plain data to read. A plan holds secrets as [`Secret`], never as text, and is not
//! serialisable for that reason; [`describe::Row`] is what may be shown.

pub mod describe;
pub mod pattern;

use std::time::Duration;

use landfall_schemas::LogicalType;

pub use crate::model::{
    BinaryHandlingMode, DecimalHandlingMode, Dialect, Format, InsteadOfMissing, InsteadOfRefused, KeyFormat, LogFormat, Mechanism, Protocol,
    SourceType,
};
use crate::secret::Secret;
pub use pattern::{ExpandError, Expansion, Refused, TablePattern};

/// A resolved topology.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// Name of the topology, `[a-z0-9-]{1,40}`.
    pub topology: String,
    /// The cluster of the input topics and logs.
    pub kafka: KafkaPlan,
    /// Sources, in the order of the file.
    pub sources: Vec<SourcePlan>,
    /// Stores, in the order of the file; behind them [`LATEST`], where a table asks for it.
    pub stores: Vec<StorePlan>,
    /// Tables that are named one by one, in the order of the file.
    pub tables: Vec<TablePlan>,
    /// Entries that stand for many tables, in the order of the file.
    pub patterns: Vec<TablePattern>,
}

impl Plan {
    /// Topic of epochs, generations and signals: `<topology>.control`.
    pub fn control_topic(&self) -> String {
        format!("{}.control", self.topology)
    }

    /// Whether a log of that format stands in the frame of the registry.
    pub fn frames(&self, format: LogFormat) -> bool {
        format == LogFormat::Avro && self.kafka.registry.is_some()
    }

    /// Topic of the schemas that log records refer to: `<topology>.schemas`.
    pub fn schemas_topic(&self) -> String {
        format!("{}.schemas", self.topology)
    }

    /// The replica of a table that is a topic of its newest rows, where it has one.
    pub fn latest<'p>(&self, table: &'p TablePlan) -> Option<&'p ReplicaPlan> {
        table.replicas.iter().find(|r| self.stores.get(r.store).is_some_and(|s| s.kind == StoreKind::Kafka))
    }

    /// Topic of rejected records: `<topology>.dead-letters`.
    pub fn dead_letters_topic(&self) -> String {
        format!("{}.dead-letters", self.topology)
    }

    /// The name of a replica wherever another topology may keep things too, in a store's metadata and in a state directory:
    /// `<topology>.<store>.<target table>`. A topology's name has no dot, so two topologies never mean the same.
    pub fn full_name(&self, replica: &ReplicaPlan) -> String {
        format!("{}.{}", self.topology, replica.id)
    }
}

/// How to reach Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KafkaPlan {
    /// Addresses, each `host:port`; at least one.
    pub brokers: Vec<String>,
    /// Encryption and login; none means plaintext without login.
    pub security: Option<SecurityPlan>,
    /// Allow-listed librdkafka options.
    pub client: Vec<(String, String)>,
    /// Schema registry of its topics; none means that no topic needs one.
    pub registry: Option<RegistryPlan>,
}

/// How to reach a schema registry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistryPlan {
    /// Address of its API, `http://` or `https://`, without login.
    pub url: String,
    /// Login: name and password.
    pub login: Option<(String, Secret)>,
    /// Whether ids in front of records have eight bytes rather than four.
    pub has_long_ids: bool,
}

/// Encryption and login.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SecurityPlan {
    /// The protocol.
    pub protocol: Protocol,
    /// Login; present exactly with a `sasl_…` protocol.
    pub sasl: Option<SaslPlan>,
    /// Path of the certificate authorities; none means those of the system.
    pub ca: Option<String>,
    /// Client certificate.
    pub certificate: Option<CertificatePlan>,
}

/// Login at Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SaslPlan {
    /// Mechanism; `plain` only under TLS.
    pub mechanism: Mechanism,
    /// Login name.
    pub username: String,
    /// Login password.
    pub password: Secret,
}

/// Client certificate, as paths of PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CertificatePlan {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
    /// Password of the key.
    pub key_password: Option<Secret>,
}

/// A source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourcePlan {
    /// Id, unique without case.
    pub id: String,
    /// What it is.
    pub kind: SourceType,
    /// First part of its connector's topics, where one is named.
    pub topic_prefix: Option<String>,
    /// What records look like.
    pub dialect: Dialect,
    /// What values are written in; `auto` where nothing is said.
    pub format: Format,
    /// Texts of the schemas that values and keys in Avro's single-object encoding name by their fingerprints.
    pub schemas: Vec<String>,
    /// What keys are written in; `auto` where nothing is said.
    pub key_format: KeyFormat,
    /// How its connector writes bytes, where that is said.
    pub binary_handling_mode: Option<BinaryHandlingMode>,
    /// How its connector writes decimals, where that is said.
    pub decimal_handling_mode: Option<DecimalHandlingMode>,
    /// Timeline set by the operator; none means the one that the control topic holds.
    pub epoch: Option<u32>,
}

/// A store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StorePlan {
    /// Id, unique without case.
    pub id: String,
    /// What and where it is.
    pub kind: StoreKind,
}

/// Id of the store that the topics of newest rows are: no file declares it, `log: { latest: true }` of a table brings it.
pub const LATEST: &str = "latest";

/// The topic of the newest rows of a change log (ARCHITECTURE.md, The log).
pub fn latest_topic(log: &str) -> String {
    format!("{log}.latest")
}

/// The topic of what a topic of newest rows holds: its cursors, and whose it is.
pub fn cursors_topic(latest: &str) -> String {
    format!("{latest}.cursors")
}

/// What a store is and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// ClickHouse over HTTP.
    ClickHouse {
        /// `http://` or `https://` address without login.
        url: String,
        /// Database of the replicas.
        database: String,
        /// Login name.
        user: Option<String>,
        /// Login password.
        password: Option<Secret>,
    },
    /// Postgres.
    Postgres {
        /// `postgresql://` address or `key=value` text, which may hold a password.
        url: Secret,
        /// Database that overrides the one of the address.
        database: Option<String>,
        /// Schema of the replicas.
        schema: String,
        /// Login name that overrides the one of the address.
        user: Option<String>,
        /// Login password that overrides the one of the address.
        password: Option<Secret>,
    },
    /// A DuckDB file.
    DuckDb {
        /// Path of the file.
        path: String,
        /// Schema of the replicas.
        schema: String,
    },
    /// Compacted topics in the cluster of the logs, one a table: `<log topic>.latest`.
    Kafka,
}

impl StoreKind {
    /// The word of the file.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::ClickHouse { .. } => "clickhouse",
            Self::Postgres { .. } => "postgresql",
            Self::DuckDb { .. } => "duckdb",
            Self::Kafka => "kafka",
        }
    }

    /// Database or schema of the replicas; empty where the store has neither.
    pub fn namespace(&self) -> &str {
        match self {
            Self::ClickHouse { database, .. } => database,
            Self::Postgres { schema, .. } | Self::DuckDb { schema, .. } => schema,
            Self::Kafka => "",
        }
    }

    /// The most bytes that may land there at once. DuckDB works in this process and takes several times a batch beside its own buffers: 64 MiB of
    /// text that does not compress took 429 MB. Kafka's client keeps a copy of what it has not sent. The others stream what they are sent.
    pub const fn batch_bytes_most(&self) -> Option<u64> {
        match self {
            Self::DuckDb { .. } | Self::Kafka => Some(16 << 20),
            Self::ClickHouse { .. } | Self::Postgres { .. } => None,
        }
    }

    /// Whether two stores put tables of one name into one place.
    pub(crate) fn same_place(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::ClickHouse { url, database, .. }, Self::ClickHouse { url: url2, database: database2, .. }) => url == url2 && database == database2,
            (Self::Postgres { url, database, schema, .. }, Self::Postgres { url: url2, database: database2, schema: schema2, .. }) => {
                url == url2 && database == database2 && schema == schema2
            }
            (Self::Kafka, Self::Kafka) => true,
            (Self::DuckDb { path, schema }, Self::DuckDb { path: path2, schema: schema2 }) => path == path2 && schema.eq_ignore_ascii_case(schema2),
            _ => false,
        }
    }
}

/// A table: one topic in, one log, any number of replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TablePlan {
    /// Id, unique without case: `[A-Za-z0-9][A-Za-z0-9_-]*`, up to 100 characters.
    pub id: String,
    /// Place of its source in [`Plan::sources`].
    pub source: usize,
    /// Topic of its changes.
    pub topic: String,
    /// Its schema, or its database, in the source, where the file gives it.
    pub source_schema: Option<String>,
    /// Its name in the source, where the file gives it.
    pub source_table: Option<String>,
    /// Key columns in order; none means those of the record key.
    pub primary_key: Option<Vec<String>>,
    /// Declared types by column, in the order of the file; other columns take the record schema's.
    pub types: Vec<(String, LogicalType)>,
    /// What of its columns leaves the source topic, and under which names.
    pub rules: ColumnRulesPlan,
    /// Whether later events of a key wait behind one that is a dead letter.
    pub park_key: bool,
    /// Whether types that nobody says are inferred from records.
    pub infer_types: bool,
    /// What stands for values that cannot land.
    pub fallback: FallbackPlan,
    /// Whether a pattern made it: the types are then those of all its tables, and say nothing about the columns of one.
    pub is_derived: bool,
    /// Its change log.
    pub log: LogPlan,
    /// Its copies.
    pub replicas: Vec<ReplicaPlan>,
}

/// What stands for values that cannot land.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FallbackPlan {
    /// For one that the source did not send and that nobody has seen.
    pub missing: InsteadOfMissing,
    /// For one that a store cannot hold.
    pub refused: InsteadOfRefused,
}

/// Rules for columns, which go by their names in the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ColumnRulesPlan {
    /// Columns that are left out.
    pub exclude: Vec<String>,
    /// Columns that land as the text of their values.
    pub as_text: Vec<String>,
    /// New names, by old name.
    pub rename: Vec<(String, String)>,
    /// The column that holds whole documents, where it is named.
    pub document: Option<String>,
    /// Columns that hold a header of the record, and the header's name; of plain records only.
    pub headers: Vec<(String, String)>,
    /// Columns of which only masks are shown, and the salt of these.
    pub mask: Option<(Vec<String>, Secret)>,
}

impl ColumnRulesPlan {
    /// Whether anything of a record may not be shown, so that no part of one may be quoted.
    pub fn hides(&self) -> bool {
        !self.exclude.is_empty() || self.mask.is_some()
    }
}

/// A change log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogPlan {
    /// Topic of the log, legal in Kafka.
    pub topic: String,
    /// Partitions, pinned per generation: 1 to 1024.
    pub partitions: u32,
    /// Copies; none means 3, fewer if the cluster is smaller.
    pub replication: Option<u16>,
    /// How long changes are kept.
    pub retention: Retention,
    /// What changes are written in.
    pub format: LogFormat,
}

/// How long a log keeps its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retention {
    /// For good: a fold needs the whole history.
    Forever,
}

/// A copy of a table in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplicaPlan {
    /// `<store>.<target table>`, for a topic of newest rows `latest.<table id>`; unique in the topology, and [`Plan::full_name`] beyond it.
    pub id: String,
    /// Place of its store in [`Plan::stores`].
    pub store: usize,
    /// Table in the store, or the topic that it is.
    pub table: String,
    /// What it holds.
    pub shape: Shape,
    /// Build number; a higher one discards what a lower one built.
    pub build: u16,
    /// Quiet time before a batch lands; zero never waits.
    pub quiet: Duration,
    /// Longest wait of a batch, not below `quiet`.
    pub max_delay: Duration,
    /// Most rows of a landed batch.
    pub batch_rows_max: u32,
    /// Most bytes of a landed batch, not above [`StoreKind::batch_bytes_most`].
    pub batch_bytes_max: u64,
}

/// What a replica holds after the fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// One row per live key.
    Upsert,
}

impl Shape {
    /// The word of the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Upsert => "upsert",
        }
    }
}
