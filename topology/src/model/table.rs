//! `tables`: what is captured, how its changes are read, where its replicas go.
//!
//! One entry is one table, or many by a pattern in `name`, `schema` or `topic` (`*` and `?`, or a regular expression between
//! slashes). What is left open comes from the source, from `defaults`, and from the records themselves.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use super::{Anything, ChangeSignal, Duration, Entries, Field, Live, NativeApply, SecretText, Size};
use crate::quantity::ScalarText;

/// A table, or many by a pattern.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["id", "source"]))]
pub struct Table {
    /// Name in topics, metrics and commands; of a pattern, the name of the entry. Required, unique without case. 1 to 100 of letters, digits, `_`, `-`.
    pub id: Field<String>,
    /// Id of its source. Required.
    pub source: Field<String>,
    /// Schema (MySQL: database) in the source; exact, a glob, or a regular expression between slashes. Required unless a topic is named.
    pub schema: Field<String>,
    /// Name in the source; exact, a glob such as `"*"` or `"order_*"`, or a regular expression between slashes. Required unless a topic is named.
    pub name: Field<String>,
    /// Topic of its changes; exact, a glob, or a regular expression between slashes. Default: `live.kafka.topic`, else `<topic_prefix>.<schema>.<name>`.
    pub topic: Field<String>,
    /// Key columns, in order. Default: those of the record key.
    pub primary_key: Field<Vec<Field<String>>>,
    /// Rules for columns, or a list of declared columns. Default: the columns of the record schema.
    pub columns: Field<Columns>,
    /// Salt of masks, as a reference such as `${env:MASK_SALT}`. Required where a column is masked; another one gives other masks.
    pub mask_salt: Field<SecretText>,
    /// Columns that order the changes of a key, in order. Default: the dialect's own sequence. Not supported yet.
    pub sequence_by: Field<Vec<Field<String>>>,
    /// Condition that makes a change a delete. Default: the dialect's own deletes. Not supported yet.
    pub delete_when: Field<String>,
    /// The change log. Default: see its fields.
    pub log: Field<Log>,
    /// How late a change may come and still count; a duration. Default: any time, nothing is pruned. Not supported yet.
    pub allowed_lateness: Field<Duration>,
    /// What an incompatible schema does: `backfill`, `disable_binding`, `disable_task` or `abort`. Default: the table stops. Not supported yet.
    pub on_incompatible: Field<OnIncompatible>,
    /// What a changed key does: `abort` or `reset`. Default: `abort`.
    pub on_key_change: Field<OnKeyChange>,
    /// True: while an event of a key is a dead letter, later events of that key wait behind it, among the dead letters; once it is replayed or dropped
    /// they follow in order. For dialects whose records have the key of their row. Default: `defaults.park_key`, else `false`.
    pub park_key: Field<bool>,
    /// True: columns of JSON without a schema part whose types are not declared get types from the records themselves, settled once for everybody.
    /// False: such a record stops the table. Not of MongoDB's documents. Default: `defaults.infer_types`, else `true`.
    pub infer_types: Field<bool>,
    /// What becomes of values that cannot land. Default: dead letters.
    pub fallback: Field<Fallback>,
    /// Quiet time before a batch lands; seconds or a duration. Default: `defaults.push_debounce_quiet`, else `0`, which never waits.
    pub push_debounce_quiet: Field<Duration>,
    /// Longest wait of a batch; seconds or a duration, not below `push_debounce_quiet`. Default: `defaults.push_debounce_max_delay`, else `5`.
    pub push_debounce_max_delay: Field<Duration>,
    /// Most rows of a landed batch, 1 to 10 000 000. Default: `defaults.batch_rows_max`, else `100000`.
    pub batch_rows_max: Field<u32>,
    /// Most bytes of a landed batch; bytes or a size, `64KiB` to `1GiB`; a DuckDB store takes `16MiB`. Default: `defaults.batch_bytes_max`, else `64MiB`.
    pub batch_bytes_max: Field<Size>,
    /// Where its copies go. Default: every store, as `upsert`. An empty list keeps the change log only.
    pub replicas: Field<Vec<Field<Replica>>>,
    /// How changes are learnt. Default: `live.strategy`, else that of the source. Supported so far: `debezium`, `kafka`.
    pub change_signal: Field<ChangeSignal>,
    /// Column that only grows; a poll then appends. Default: none, a poll replaces. Not supported yet.
    pub watermark_column: Field<String>,
    /// Query whose answer a probe compares. Default: none. Not supported yet.
    pub probe_query: Field<String>,
    /// What a probe compares: `watermark`, `hash`, `count` or `none`. Default: by what there is. Not supported yet.
    pub probe_type: Field<ProbeType>,
    /// Oldest age of a replica; seconds or a duration, `-1` never expires. Default: that of the source. Not supported yet.
    pub cache_ttl: Field<Duration>,
    /// `-1` live only (no replica), `0` always, N once read N times (belongs to a query engine). Default: that of the source, else `0`.
    pub replicate: Field<i64>,
    /// True: only the runner touches the source. Default: that of the source, else `false`. Not supported yet.
    pub load_protected: Field<bool>,
    /// When a protected table may be read, `HH:MM-HH:MM`, may wrap midnight. Default: that of the source. Not supported yet.
    pub off_peak_window: Field<String>,
    /// IANA zone of `off_peak_window`. Default: that of the source, else `UTC`.
    pub off_peak_tz: Field<String>,
    /// Oldest age that a role accepts, by role; seconds or a duration. Default: `cache_ttl` for every role. Not supported yet.
    pub role_ttl: Field<Entries<Duration>>,
    /// Where the first replica comes from: `topic` or `source`. Default: that of the source, else `topic`.
    pub first_build: Field<FirstBuild>,
    /// True: subscribers get deletes too. Default: `false`. Not supported yet.
    pub subscribe_deletes: Field<bool>,
    /// What a native feed does with its changes: `rows` or `rebuild`. Default: that of the source, else `rows`. Not supported yet.
    pub native_apply: Field<NativeApply>,
    /// Legacy read settings, and the topic of changes. Default: none.
    pub live: Field<Live>,
    /// Refused: belongs to a query engine. Default: none.
    pub hot: Field<Anything>,
    /// Refused: belongs to a query engine. Default: none.
    pub materialize: Field<Anything>,
}

/// Columns: a mapping of rules, or a list of declared columns.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename = "$by_kind")]
pub enum Columns {
    /// Declared columns.
    List(Vec<Field<Column>>),
    /// Rules by column.
    Map(Box<ColumnRules>),
}

impl JsonSchema for Columns {
    fn schema_name() -> Cow<'static, str> {
        "Columns".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let list = generator.subschema_for::<Vec<Column>>();
        let rules = generator.subschema_for::<ColumnRules>();
        schemars::json_schema!({
            "description": "Rules for columns, or a list of declared columns.",
            "anyOf": [rules, list],
        })
    }
}

/// What becomes of values that cannot land.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Fallback {
    /// Of a value that the source did not send and that nobody has seen: `dead_letter`, its row is held back, or `set_null`. Default: `dead_letter`.
    pub missing: Field<InsteadOfMissing>,
    /// Of a value that a store cannot hold, outside the key: `dead_letter`, its change does not land there; `set_null`; or `clamp`, the nearest date or
    /// timestamp that the store has, and a dead letter for all else. Default: `dead_letter`.
    pub refused: Field<InsteadOfRefused>,
}

/// What stands for a value that nobody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InsteadOfMissing {
    /// Nothing: the row is held back, and its change becomes a dead letter.
    #[default]
    DeadLetter,
    /// NULL, which is counted (`landfall_changes_nulled_total`).
    SetNull,
}

/// What stands for a value that a store cannot hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InsteadOfRefused {
    /// Nothing: the change becomes a dead letter.
    #[default]
    DeadLetter,
    /// NULL, which is counted (`landfall_changes_nulled_total`).
    SetNull,
    /// The nearest date or timestamp that the store has, which is counted (`landfall_changes_clamped_total`); a dead letter where no value is near.
    Clamp,
}

/// Rules by column.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ColumnRules {
    /// Type of columns whose records do not say it, such as `decimal(12,2)`, `timestamptz(6)`. Default: the record schema's.
    pub types: Field<Entries<String>>,
    /// Columns that never leave the source topic, by their names in the source. Default: none.
    pub exclude: Field<Vec<Field<String>>>,
    /// Columns of which only a mask leaves the source topic, by method: `sha256` is the HMAC-SHA-256 of the value's text under `mask_salt`. Default: none.
    pub mask: Field<Entries<String>>,
    /// Columns that land as the text of their values, whatever type these have, for stores that cannot hold all of them. Default: none.
    pub as_text: Field<Vec<Field<String>>>,
    /// New names of columns in log and replicas, by their names in the source; all else here goes by the latter. Default: none.
    pub rename: Field<Entries<String>>,
    /// Column that holds the whole document as extended JSON; of MongoDB's only. Default: `document` where no column's type is declared, else none.
    pub document: Field<String>,
    /// Columns that hold a header of the record, by the header's name; of plain records only. Their type is text unless it is declared. Default: none.
    pub headers: Field<Entries<String>>,
}

/// A declared column. Columns that are not declared are taken from the records all the same.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name"]))]
pub struct Column {
    /// Name in the source. Required.
    pub name: Field<String>,
    /// Type, such as `int64`, `decimal(12,2)`, `timestamptz(6)`. Default: the record schema's.
    #[serde(rename = "type")]
    pub kind: Field<String>,
    /// True: part of the key, in the order of the list. Default: `false`.
    pub is_primary_key: Field<bool>,
    /// How its values are masked: `sha256`. Default: not at all.
    pub mask: Field<String>,
    /// New name in log and replicas. Default: the old one.
    pub rename: Field<String>,
}

/// The change log of a table.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Name of the topic; `{topology}` and `{table}` stand for the two names. Default: `{topology}.{table}`.
    pub topic: Field<String>,
    /// Partitions of the topic, 1 to 1024; fixed once created. Default: `4`.
    #[schemars(range(min = 1, max = 1024))]
    pub partitions: Field<u32>,
    /// Copies of the topic, 1 to 15. Default: 3, fewer if the cluster is smaller.
    #[schemars(range(min = 1, max = 15))]
    pub replication: Field<u16>,
    /// How long changes are kept: `forever`, or a duration where every replica is `append`. Default: `forever`.
    pub retention: Field<Retention>,
    /// Encoding of the changes: `avro`, which is framed for a registry where one is set, `single_object`, Avro that never is, or `json`. Default: `avro`.
    /// Supported so far: `avro`, `single_object`.
    pub format: Field<LogFormat>,
    /// True: a compacted topic of the newest rows beside the log, `<log topic>.latest`; it is replica `latest.<table id>`. Default: `false`.
    pub latest: Field<bool>,
}

/// How long a log keeps its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ScalarText")]
pub enum Retention {
    /// For good.
    Forever,
    /// For a time.
    For(Duration),
}

impl TryFrom<ScalarText> for Retention {
    type Error = &'static str;

    fn try_from(text: ScalarText) -> Result<Self, Self::Error> {
        if text.0 == "forever" {
            return Ok(Self::Forever);
        }
        Duration::try_from(text).map(Self::For).map_err(|_| "forever or a duration is expected, such as 30d")
    }
}

impl JsonSchema for Retention {
    fn schema_name() -> Cow<'static, str> {
        "Retention".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let duration = generator.subschema_for::<Duration>();
        schemars::json_schema!({
            "description": "`forever`, or a duration.",
            "anyOf": [{ "const": "forever" }, duration],
        })
    }
}

/// Encoding of a log's changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Avro: in the registry's frame where a registry is set, else as single objects.
    Avro,
    /// Avro's single-object encoding, whether a registry is set or not.
    SingleObject,
    /// JSON, for people.
    Json,
}

/// A copy of a table in a store.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["store"]))]
pub struct Replica {
    /// Id of its store. Required.
    pub store: Field<String>,
    /// What it holds: `upsert`, `history`, `append` or `replace`. Default: `upsert`. Supported so far: `upsert`.
    pub shape: Field<Shape>,
    /// Its name in the store. Default: the table's id. Not for patterns.
    pub table: Field<String>,
    /// Build number, 0 to 65535; raise it to discard the replica and fold the log again. Default: `0`.
    pub build: Field<u16>,
    /// Columns whose changes start a new run of a history. Default: all. Not supported yet.
    pub track: Field<Vec<Field<String>>>,
    /// True: deleted rows stay, marked. Default: `false`. Not supported yet.
    pub soft_delete: Field<bool>,
    /// True: a null in an update leaves the column as it was. Default: `false`. Not supported yet.
    pub ignore_null_updates: Field<bool>,
    /// Quiet time before a batch lands; seconds or a duration. Default: that of the table.
    pub push_debounce_quiet: Field<Duration>,
    /// Longest wait of a batch; seconds or a duration, not below `push_debounce_quiet`. Default: that of the table.
    pub push_debounce_max_delay: Field<Duration>,
    /// Most rows of a landed batch, 1 to 10 000 000. Default: that of the table.
    pub batch_rows_max: Field<u32>,
    /// Most bytes of a landed batch; bytes or a size, `64KiB` to `1GiB`; a DuckDB store takes `16MiB`. Default: that of the table.
    pub batch_bytes_max: Field<Size>,
}

/// What a replica holds after the fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// One row per live key.
    Upsert,
    /// One row per run of a key, with its start and end.
    History,
    /// Every event once.
    Append,
    /// The latest complete snapshot.
    Replace,
}

impl Shape {
    /// The word of the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Upsert => "upsert",
            Self::History => "history",
            Self::Append => "append",
            Self::Replace => "replace",
        }
    }
}

/// Where a first replica comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FirstBuild {
    /// The topic, from its start.
    Topic,
    /// A read of the source.
    Source,
}

/// What an incompatible schema does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnIncompatible {
    /// Start a new generation and fill it.
    Backfill,
    /// Stop the replica.
    DisableBinding,
    /// Stop the table.
    DisableTask,
    /// Stop everything.
    Abort,
}

/// What a changed key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnKeyChange {
    /// Stop the table.
    Abort,
    /// Start a new generation.
    Reset,
}

/// What a probe compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProbeType {
    /// The greatest watermark.
    Watermark,
    /// A hash of the rows.
    Hash,
    /// The number of rows.
    Count,
    /// Nothing.
    None,
}

/// How two tables join.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["id", "source_table_id", "target_table_id", "source_column", "target_column"]))]
pub struct Relationship {
    /// Name. Required, unique without case.
    pub id: Field<String>,
    /// Id of the table that holds the foreign key. Required.
    pub source_table_id: Field<String>,
    /// Id of the table that is pointed at. Required.
    pub target_table_id: Field<String>,
    /// Foreign key column. Required.
    pub source_column: Field<String>,
    /// Column that it points at. Required.
    pub target_column: Field<String>,
    /// How many rows meet how many. Default: `many-to-one`.
    pub cardinality: Field<Cardinality>,
    /// Refused: belongs to a query engine. Default: none.
    pub materialize: Field<Anything>,
}

/// How many rows meet how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Cardinality {
    /// Many point at one.
    ManyToOne,
    /// One is pointed at by many.
    OneToMany,
    /// One points at one.
    OneToOne,
    /// Many meet many.
    ManyToMany,
}
