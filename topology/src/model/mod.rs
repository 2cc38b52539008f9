//! The file as written: one struct per block, one field per key.
//!
//! Nothing is checked here beyond kinds and words; meaning is the business of `validate`. Every key that INTERFACES.md names has a
//! field, also where it has no effect yet, so that it is refused by name and never ignored. The doc comment of a field is its
//! description in the JSON Schema: what it does, default, unit, range.

mod kafka;
mod source;
mod store;
mod table;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use std::borrow::Cow;

pub use crate::field::{Entries, Field};
pub use crate::quantity::{Duration, Size};
pub use crate::secret::{SecretText, UrlText};
pub use kafka::{Kafka, Mechanism, OptionText, Protocol, Registry, Security};
pub use source::{
    BinaryHandlingMode, Cdc, ChangeSignal, DecimalHandlingMode, Dialect, Format, KeyFormat, Live, LiveKafka, NativeApply, Source, SourceType,
    Transport,
};
pub use store::{Store, StoreType};
pub use table::{
    Cardinality, Column, ColumnRules, Columns, Fallback, FirstBuild, InsteadOfMissing, InsteadOfRefused, Log, LogFormat, OnIncompatible, OnKeyChange,
    ProbeType, Relationship, Replica, Retention, Shape, Table,
};

/// A topology file. Several files of one folder make one topology: their lists are joined, ids are unique over all of them.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Landfall topology", extend("required" = ["topology", "kafka"]))]
pub struct File {
    /// Name of the topology: first part of its topics and consumer groups. Required, once. 1 to 40 of `a-z`, `0-9`, `-`.
    #[schemars(regex(pattern = r"^[a-z0-9-]{1,40}$"))]
    pub topology: Field<String>,
    /// The Kafka cluster that holds input topics and change logs. Required, once.
    pub kafka: Field<Kafka>,
    /// Values for what sources and tables leave open. Optional, once.
    pub defaults: Field<Defaults>,
    /// Where changes come from. At least one.
    pub sources: Field<Vec<Field<Source>>>,
    /// Where replicas live. At least one, unless every table has an empty `replicas`.
    pub stores: Field<Vec<Field<Store>>>,
    /// What is captured and replicated. At least one.
    pub tables: Field<Vec<Field<Table>>>,
    /// How tables join; replicas get indexes for it. Default: none. Not supported yet.
    pub relationships: Field<Vec<Field<Relationship>>>,
}

/// Values for what sources and tables leave open.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Defaults {
    /// How changes are learnt where neither table nor source says so. Default: `ttl`.
    pub change_signal: Field<ChangeSignal>,
    /// Oldest age of a replica where neither table nor source says so; seconds or a duration, `-1` never expires. Default: none. Not supported yet.
    pub cache_ttl: Field<Duration>,
    /// Quiet time before a batch lands; seconds or a duration. Default: `0`, which never waits.
    pub push_debounce_quiet: Field<Duration>,
    /// Longest wait of a batch; seconds or a duration, not below `push_debounce_quiet`. Default: `5`.
    pub push_debounce_max_delay: Field<Duration>,
    /// Most rows of a landed batch, 1 to 10 000 000. Default: `100000`.
    pub batch_rows_max: Field<u32>,
    /// Most bytes of a landed batch; bytes or a size, `64KiB` to `1GiB`; a DuckDB store takes `16MiB`. Default: `64MiB`.
    pub batch_bytes_max: Field<Size>,
    /// True: later events of a key wait behind one of its own that is a dead letter. Default: `false`.
    pub park_key: Field<bool>,
    /// False: columns of JSON whose types nobody says stop their table. Default: `true`, they are inferred.
    pub infer_types: Field<bool>,
    /// The change log of tables that do not say otherwise. Default: see its fields.
    pub log: Field<Log>,
}

/// A value that is refused whatever it is, so any kind will do.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename = "$anything")]
pub struct Anything(());

impl JsonSchema for Anything {
    fn schema_name() -> Cow<'static, str> {
        "Anything".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::default()
    }
}
