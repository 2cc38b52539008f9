//! `stores`: where replicas live.
//!
//! A store is a place, not a table: several replicas share it, and one consumer group per store and process feeds them. Addresses
//! may hold references; passwords must be references.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Field, SecretText, UrlText};

/// Where replicas live.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["id", "type"]))]
pub struct Store {
    /// Name in replicas, metrics and commands. Required, unique without case. 1 to 63 of letters, digits, `_`, `-`.
    pub id: Field<String>,
    /// What the store is. Required. Supported so far: `clickhouse`, `postgresql`, `duckdb`.
    #[serde(rename = "type")]
    pub kind: Field<StoreType>,
    /// Address: `http(s)://host:port` of ClickHouse, `postgresql://…` of Postgres. Default: the environment's `LANDFALL_STORE_URL`.
    pub url: Field<UrlText>,
    /// Path of a DuckDB file; created if absent. Required for `duckdb`, refused elsewhere.
    pub path: Field<String>,
    /// Schema of the replicas in Postgres (default `public`) or DuckDB (default `main`); created if absent. Not for ClickHouse.
    pub schema: Field<String>,
    /// Database of the replicas in ClickHouse (default `default`), or the one to connect to in Postgres (default: that of the address).
    pub database: Field<String>,
    /// Login name. Default: that of the address.
    pub user: Field<String>,
    /// Login password, a reference. Default: that of the address.
    pub password: Field<SecretText>,
}

/// What a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StoreType {
    /// ClickHouse.
    Clickhouse,
    /// PostgreSQL.
    Postgresql,
    /// A DuckDB file.
    Duckdb,
    /// A compacted topic `<log topic>.latest`.
    Kafka,
}
