//! Which names are legal where, and which Landfall keeps for itself.
//!
//! Names reach topics, tables, metrics and file systems, so each kind has one narrow rule here, used by the check and by the
//! expansion of patterns alike. The errors are fragments that continue a name: `… which {why}`.

use crate::plan::{StoreKind, cursors_topic, latest_topic};

/// Kafka's limit.
const TOPIC_CHARS_MAX: usize = 249;
/// Postgres cuts longer identifiers without a word.
const POSTGRES_BYTES_MAX: usize = 63;
/// ClickHouse and DuckDB make file names or plain texts of identifiers; this leaves room for suffixes.
const IDENTIFIER_BYTES_MAX: usize = 200;
/// Leaves room for topology, suffixes and metrics labels.
const TABLE_ID_CHARS_MAX: usize = 100;
const ID_CHARS_MAX: usize = 63;
/// Table ids whose logs would be topics of the topology itself.
const TABLE_IDS_RESERVED: &[&str] = &["control", "schemas", "dead-letters"];

/// A topology: `[a-z0-9-]{1,40}`.
pub(crate) fn topology(name: &str) -> Result<(), &'static str> {
    let legal = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if legal && (1..=40).contains(&name.len()) { Ok(()) } else { Err("is not 1 to 40 of a-z, 0-9 and -") }
}

/// The id of a source, store or relationship.
pub(crate) fn id(name: &str) -> Result<(), &'static str> {
    if is_id(name, ID_CHARS_MAX) { Ok(()) } else { Err("is not 1 to 63 letters, digits, _ and -, the first a letter or digit") }
}

/// The id of a table.
pub(crate) fn table_id(name: &str) -> Result<(), &'static str> {
    if !is_id(name, TABLE_ID_CHARS_MAX) {
        Err("is not 1 to 100 letters, digits, _ and -, the first a letter or digit")
    } else if is_reserved_table_id(name) {
        Err("names a topic of the topology itself")
    } else {
        Ok(())
    }
}

/// True for a table id whose log would be a topic of the topology itself.
pub(crate) fn is_reserved_table_id(name: &str) -> bool {
    let name = name.replace('_', "-");
    TABLE_IDS_RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved))
}

fn is_id(name: &str, max: usize) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
        && name.len() <= max
}

/// A topic, by Kafka's rule.
pub(crate) fn topic(name: &str) -> Result<(), &'static str> {
    let legal = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if name.is_empty() || name == "." || name == ".." {
        Err("is no topic name")
    } else if !legal {
        Err("has characters other than letters, digits, ., _ and -")
    } else if name.len() > TOPIC_CHARS_MAX {
        Err("is longer than 249 characters")
    } else {
        Ok(())
    }
}

/// The log topic of a table that has a topic of newest rows: both that and its cursors need legal names, too.
pub(crate) fn log_with_latest(log: &str) -> Result<(), &'static str> {
    topic(&cursors_topic(&latest_topic(log))).map_err(|_| "leaves no room for .latest.cursors within 249 characters")
}

/// A name as part of a table id: every other character becomes `_`.
pub(crate) fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }).collect()
}

/// A database's name as part of a topic, as Debezium writes it: characters that Kafka refuses become `_`.
pub(crate) fn topic_part(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' }).collect()
}

/// A schema, database, column or table name that will be quoted.
pub(crate) fn identifier(name: &str, bytes_max: usize) -> Result<(), &'static str> {
    if name.trim().is_empty() {
        Err("is empty")
    } else if name.chars().any(char::is_control) {
        Err("has control characters")
    } else if name.len() > bytes_max {
        Err("is too long")
    } else {
        Ok(())
    }
}

/// The longest identifier of a store, in bytes.
pub(crate) const fn identifier_bytes_max(store: &StoreKind) -> usize {
    match store {
        StoreKind::Postgres { .. } => POSTGRES_BYTES_MAX,
        StoreKind::ClickHouse { .. } | StoreKind::DuckDb { .. } => IDENTIFIER_BYTES_MAX,
        StoreKind::Kafka => TOPIC_CHARS_MAX,
    }
}

/// The name of a replica in its store.
pub(crate) fn target(store: &StoreKind, name: &str) -> Result<(), &'static str> {
    identifier(name, identifier_bytes_max(store))?;
    if name.contains('.') {
        Err("has a dot")
    } else if is_reserved_target(store, name) {
        Err("is a table of Landfall itself")
    } else {
        Ok(())
    }
}

/// True for a table that Landfall keeps in the store beside the replicas (INTERFACES.md 5).
pub(crate) fn is_reserved_target(store: &StoreKind, name: &str) -> bool {
    matches!(store, StoreKind::ClickHouse { .. }) && matches!(name, "landfall_cursor" | "landfall_replica")
}

/// The names that a replica takes in its store, comparable: ClickHouse replicas come with a `<table>_live` view, DuckDB folds case.
pub(crate) fn occupied(store: &StoreKind, table: &str) -> Vec<String> {
    match store {
        StoreKind::ClickHouse { .. } => vec![table.to_owned(), format!("{table}_live")],
        StoreKind::Postgres { .. } => vec![table.to_owned()],
        StoreKind::DuckDb { .. } => vec![table.to_lowercase()],
        // Kafka refuses a topic that differs from another only in dots and underscores.
        StoreKind::Kafka => vec![table.replace('.', "_")],
    }
}

/// True for a column name that Landfall keeps for itself (SEMANTICS.md A.1.8).
pub(crate) fn is_reserved_column(name: &str) -> bool {
    let upper = name.to_uppercase();
    upper == "__START_AT" || upper == "__END_AT" || upper.starts_with("__LF_")
}
