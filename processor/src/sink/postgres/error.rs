//! What an error of Postgres means: the one table SQLSTATE → [`Kind`], and the text that an operator sees.
//!
//! A server's message may quote the row that it refused, its detail and context nearly always do. So texts are ours: what was being done, the
//! SQLSTATE, the names of table, column and constraint; the server's own message only for classes that speak of objects, never of values.

use std::error::Error as _;

use tokio_postgres::error::DbError;

use crate::sink::{Error, Kind};

/// The SQLSTATE of a text that is no number: how the cursor's compare-and-set stops the statements behind it (`sql::MOVE_CURSOR`).
pub(super) const NOT_A_NUMBER: &str = "22P02";

/// Kinds by SQLSTATE; the longest prefix that fits decides. Source: appendix A of the manual.
const KINDS: &[(&str, Kind)] = &[
    // Connections.
    ("08", Kind::Unavailable),
    ("28", Kind::Login),
    ("3D000", Kind::Login),
    ("57P04", Kind::Login),
    ("57", Kind::Unavailable),
    // A standby after a failover, or a transaction that a time-out ended.
    ("25006", Kind::Unavailable),
    ("25P", Kind::Unavailable),
    // Serialisation, deadlock, outcome unknown.
    ("40", Kind::Unavailable),
    // Disk full, out of memory, too many connections.
    ("53", Kind::Unavailable),
    // Lock not available, object in use.
    ("55", Kind::Unavailable),
    // Input and output, damaged pages, and what the server calls its own: an operator's help mends them, or a new connection does.
    ("58", Kind::Unavailable),
    ("XX", Kind::Unavailable),
    // Values and limits.
    ("0A", Kind::Unsupported),
    ("22", Kind::Unsupported),
    ("54", Kind::Unsupported),
    ("42622", Kind::Unsupported),
    // A constraint, a column or a table that is not as we left it.
    ("23", Kind::TableChanged),
    ("2BP01", Kind::TableChanged),
    ("3F000", Kind::TableChanged),
    ("428C9", Kind::TableChanged),
    ("42703", Kind::TableChanged),
    ("42804", Kind::TableChanged),
    ("42809", Kind::TableChanged),
    ("42P01", Kind::TableChanged),
    ("42P10", Kind::TableChanged),
    ("42710", Kind::TableExists),
    ("42P07", Kind::TableExists),
    // Rights, row security among them.
    ("42501", Kind::Permission),
];

/// The kind of an error that the server reported.
pub(super) fn classify(state: &str) -> Kind {
    KINDS.iter().filter(|(prefix, _)| state.starts_with(prefix)).max_by_key(|(prefix, _)| prefix.len()).map_or(Kind::Internal, |(_, kind)| *kind)
}

/// Makes our error of the client's; `doing` is what was being done, as a gerund.
pub(super) fn of(doing: &str) -> impl Fn(tokio_postgres::Error) -> Error {
    move |error| match error.as_db_error() {
        Some(db) => Error::new(classify(db.code().code()), describe(doing, db)),
        None => Error::new(client_kind(&error), format!("{doing}: {}", client_text(&error))),
    }
}

/// The SQLSTATE of an error, where the server reported it.
pub(super) fn state(error: &tokio_postgres::Error) -> Option<&str> {
    error.as_db_error().map(|db| db.code().code())
}

fn describe(doing: &str, db: &DbError) -> String {
    let state = db.code().code();
    let mut text = format!("{doing}: SQLSTATE {state}");
    // Messages of the classes 22 and 23, and of COPY, may hold values.
    if !matches!(state.get(..2), Some("22" | "23")) {
        text.push_str(": ");
        text.push_str(db.message());
    }
    for (what, name) in [("table", db.table()), ("column", db.column()), ("constraint", db.constraint())] {
        if let Some(name) = name {
            text.push_str(&format!(", {what} {name:?}"));
        }
    }
    text
}

/// Errors that the client found itself: nearly all of them mean that the server is out of reach.
fn client_kind(error: &tokio_postgres::Error) -> Kind {
    // The client keeps its kinds to itself; their texts are fixed and hold no values.
    match error.to_string().as_str() {
        "authentication error" | "invalid configuration" | "invalid connection string" => Kind::Login,
        text if text.starts_with("error serializing") || text.starts_with("error deserializing") => Kind::Internal,
        "query returned an unexpected number of rows" => Kind::Internal,
        _ => Kind::Unavailable,
    }
}

fn client_text(error: &tokio_postgres::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides() {
        for (state, kind) in [
            ("57P01", Kind::Unavailable),
            ("57P04", Kind::Login),
            ("28P01", Kind::Login),
            ("42501", Kind::Permission),
            ("42P01", Kind::TableChanged),
            ("42P07", Kind::TableExists),
            ("42601", Kind::Internal),
            ("40P01", Kind::Unavailable),
            ("53100", Kind::Unavailable),
            ("22021", Kind::Unsupported),
            ("23502", Kind::TableChanged),
            ("26000", Kind::Internal),
        ] {
            assert_eq!(classify(state), kind, "{state}");
        }
    }
}
