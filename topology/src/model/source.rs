//! `sources`: where changes come from and how they are learnt.
//!
//! `change_signal` is the one authority; `live.strategy` is read only where no `change_signal` is written anywhere above it
//! (SEMANTICS.md D.1). Field names are those of the origin documents.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Duration, Field, FirstBuild, SecretText, UrlText};

/// Where changes come from.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["id", "type"]))]
pub struct Source {
    /// Name in tables, metrics and commands. Required, unique without case. 1 to 63 of letters, digits, `_`, `-`.
    pub id: Field<String>,
    /// What the source is. Required. Supported so far: `postgresql`, `mysql`, `mongodb`, `kafka`.
    #[serde(rename = "type")]
    pub kind: Field<SourceType>,
    /// How changes are learnt. Default: `defaults.change_signal`, else `ttl`. Supported so far: `debezium`, `kafka`.
    pub change_signal: Field<ChangeSignal>,
    /// The connector that captures this source. Required with `debezium`, and with `kafka` on a source that is not Kafka.
    pub cdc: Field<Cdc>,
    /// Timeline of the source, 0 to 4294967295; raise it by hand only when the source itself was put back. Default: kept by Landfall.
    pub epoch: Field<u32>,
    /// Legacy read settings, and the topic of its tables. Default: none.
    pub live: Field<Live>,
    /// Oldest age of a replica; seconds or a duration, `-1` never expires. Default: none. Not supported yet.
    pub cache_ttl: Field<Duration>,
    /// `-1` live only (no replica), `0` always, N once read N times (belongs to a query engine). Default: `0`.
    pub replicate: Field<i64>,
    /// True: only the runner touches the source. Default: `false`. Not supported yet.
    pub load_protected: Field<bool>,
    /// When a protected source may be read, `HH:MM-HH:MM`, may wrap midnight. Default: any time. Not supported yet.
    pub off_peak_window: Field<String>,
    /// IANA zone of `off_peak_window`. Default: `UTC`.
    pub off_peak_tz: Field<String>,
    /// True: each read waits for a freshness verdict. Default: `false`. Not supported yet.
    pub freshness_gate: Field<bool>,
    /// What a native feed does with its changes: `rows` or `rebuild`. Default: `rows`. Not supported yet.
    pub native_apply: Field<NativeApply>,
    /// Where the first replica comes from: `topic` or `source`. Default: `topic`.
    pub first_build: Field<FirstBuild>,
    /// Address of the source for native feeds and polls. Default: none. Not supported yet.
    pub url: Field<UrlText>,
    /// Path of a file source. Default: none. Not supported yet.
    pub path: Field<String>,
    /// Database of the source. Default: none. Not supported yet.
    pub database: Field<String>,
    /// Login name at the source. Default: none. Not supported yet.
    pub user: Field<String>,
    /// Login password at the source, a reference. Default: none. Not supported yet.
    pub password: Field<SecretText>,
}

/// What a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SourceType {
    /// Topics of Kafka itself.
    Kafka,
    /// PostgreSQL.
    Postgresql,
    /// MySQL or MariaDB.
    Mysql,
    /// MongoDB.
    Mongodb,
    /// Azure Cosmos DB.
    Cosmosdb,
    /// A WebSocket stream.
    Websocket,
    /// Events posted over HTTP.
    Ingest,
    /// Files.
    Files,
    /// A DuckDB file.
    Duckdb,
}

impl SourceType {
    /// The word of the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kafka => "kafka",
            Self::Postgresql => "postgresql",
            Self::Mysql => "mysql",
            Self::Mongodb => "mongodb",
            Self::Cosmosdb => "cosmosdb",
            Self::Websocket => "websocket",
            Self::Ingest => "ingest",
            Self::Files => "files",
            Self::Duckdb => "duckdb",
        }
    }
}

/// How a change is learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeSignal {
    /// Poll when the replica is older than `cache_ttl`.
    Ttl,
    /// Compare a token every `cache_ttl`, rebuild on a difference.
    Probe,
    /// Compare a token once `cache_ttl` has passed.
    TtlProbe,
    /// The source's own change feed.
    Native,
    /// Debezium's topics.
    Debezium,
    /// A topic of changes.
    Kafka,
    /// Somebody says so over HTTP.
    Signal,
}

impl ChangeSignal {
    /// The word of the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ttl => "ttl",
            Self::Probe => "probe",
            Self::TtlProbe => "ttl_probe",
            Self::Native => "native",
            Self::Debezium => "debezium",
            Self::Kafka => "kafka",
            Self::Signal => "signal",
        }
    }
}

/// The connector that captures a source.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cdc {
    /// First part of the connector's topics, `<topic_prefix>.<schema>.<table>`. Required unless every table names its topic.
    pub topic_prefix: Field<String>,
    /// What carries the changes. Default and only choice: `kafka`.
    pub transport: Field<Transport>,
    /// What the records of its topics look like. Default: `debezium`, of a source of type `mongodb` `mongodb`.
    pub dialect: Field<Dialect>,
    /// What the values of its topics are written in. Default: `auto`, each value tells by its first byte.
    pub format: Field<Format>,
    /// Schemas of values and keys in Avro's single-object encoding, which names them by their fingerprints: each as text, or `${file:PATH}`. Default: none.
    pub schemas: Field<Vec<Field<String>>>,
    /// Brokers of another Kafka cluster. Default: those of `kafka`. Not supported yet.
    pub bootstrap: Field<String>,
    /// What the keys of its records are written in. Default: `auto`, each key tells: a registry's frame, JSON, else text.
    pub key_format: Field<KeyFormat>,
    /// The connector's `binary.handling.mode`: what the text of a column is that is declared as `bytes`. Default: none, such a column is refused where a
    /// schema part calls it a string, and is base64 where there is none.
    pub binary_handling_mode: Field<BinaryHandlingMode>,
    /// The connector's `decimal.handling.mode`: what a string is in a column that is declared as a decimal, without a schema part. Default: `string`.
    pub decimal_handling_mode: Field<DecimalHandlingMode>,
}

/// What records look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// Debezium's change event envelope.
    Debezium,
    /// Rows without an envelope, as Debezium's `ExtractNewRecordState` leaves them.
    Flattened,
    /// Maxwell's events, ordered by their offsets.
    Maxwell,
    /// Canal's flat messages, ordered by their offsets.
    Canal,
    /// Rows of JSON or Avro, ordered by their offsets: a value is an upsert, a null value deletes what its key names.
    Plain,
    /// Debezium's events of MongoDB, whose rows are documents.
    Mongodb,
}

impl Dialect {
    /// The word of the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debezium => "debezium",
            Self::Flattened => "flattened",
            Self::Maxwell => "maxwell",
            Self::Canal => "canal",
            Self::Plain => "plain",
            Self::Mongodb => "mongodb",
        }
    }
}

/// What values are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Avro or Protobuf, as the registry says, where a value begins with a registry's frame, else JSON.
    Auto,
    /// JSON, with or without a schema part.
    Json,
    /// Avro in a registry's frame.
    Avro,
    /// Protobuf in a registry's frame.
    Protobuf,
}

impl Format {
    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "any format",
            Self::Json => "JSON",
            Self::Avro => "Avro",
            Self::Protobuf => "Protobuf",
        }
    }
}

/// What keys are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyFormat {
    /// Avro where a key begins with a registry's frame, JSON where it is JSON, else text: the column of a `primary_key` of one.
    Auto,
    /// JSON, with or without a schema part.
    Json,
    /// Text, whatever it looks like (`StringSerializer`).
    String,
    /// An integer of two bytes (`ShortSerializer`).
    Short,
    /// An integer of four bytes (`IntegerSerializer`).
    Integer,
    /// An integer of eight bytes (`LongSerializer`).
    Long,
}

/// How a connector writes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BinaryHandlingMode {
    /// As bytes.
    Bytes,
    /// As text in base64.
    Base64,
    /// As text in base64 with the alphabet for URLs.
    Base64UrlSafe,
    /// As text in hexadecimal.
    Hex,
}

/// How a connector writes decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DecimalHandlingMode {
    /// As the unscaled integer, which JSON holds in base64.
    Precise,
    /// As floats.
    Double,
    /// As text.
    String,
}

/// What carries a connector's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Kafka.
    Kafka,
}

/// Legacy read settings; `live.kafka.topic` is current.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Live {
    /// Legacy form of `change_signal`: `poll`, `native`, `debezium` or `kafka`; anything else counts as unset. Default: unset.
    pub strategy: Field<String>,
    /// Legacy form of the table's `watermark_column`. Default: unset. Not supported yet.
    pub watermark_column: Field<String>,
    /// The topic of changes. Default: none.
    pub kafka: Field<LiveKafka>,
}

/// The topic of changes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LiveKafka {
    /// Name of the topic. Default: none.
    pub topic: Field<String>,
}

/// What a native feed does with its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NativeApply {
    /// Apply the rows that the stream carries.
    Rows,
    /// Rebuild the replica per burst.
    Rebuild,
}
