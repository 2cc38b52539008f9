//! What stands in the way of a change: what a store cannot hold, which is dead-lettered and passed, and what stops a partition.
//!
//! The line between them is law 11: a single change that cannot land never holds up the others; what would make every later row doubtful
//! stops the partition by name, and it alone.

use landfall_schemas::table::Evolution;
use landfall_schemas::wire::WireError;
use landfall_schemas::{LogicalType, TableSchema, Value};

use crate::{sink, state};

/// The place of the column that is to blame and the code under which the change is dead-lettered, or nothing.
pub type Blame = Option<(usize, &'static str)>;

/// A store's word on what it cannot hold.
#[derive(Clone, Copy, Debug)]
pub struct Refuse {
    /// Whether any value of a type can be refused; the others are not looked at.
    pub may: fn(LogicalType) -> bool,
    /// A value of a column; the code under which the change is dead-lettered, or nothing.
    pub value: fn(LogicalType, &Value<'_>) -> Option<&'static str>,
    /// Whether less of a value is kept than it has: a fraction of a second that is finer than the store's. Counted, not refused.
    pub cuts: fn(LogicalType, &Value<'_>) -> bool,
    /// What stands for a value outside the key that the store cannot hold; where nothing does, its change is a dead letter.
    pub instead: Option<Instead>,
    /// The nearest value that the store has of one that it cannot hold, or nothing where none is near.
    pub nearest: fn(LogicalType, &Value<'_>) -> Option<Value<'static>>,
    /// A key, encoded as [`sink::Delta::key`] is.
    pub key: fn(&TableSchema, &[u8]) -> Result<Blame, WireError>,
}

/// What stands for a value that a store cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    /// NULL.
    Null,
    /// The nearest value that the store has; the change is a dead letter where none is near.
    Nearest,
}

/// Why a partition stops until an operator has acted. Other partitions and replicas go on.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// The log no longer holds what is needed, or ends before what was landed (law 8).
    #[error("the log holds offsets {begin} to {end}, but {needed} is needed")]
    LogTruncated {
        /// First offset there.
        begin: i64,
        /// Offset after the last one.
        end: i64,
        /// What is needed.
        needed: i64,
    },
    /// A change of the table's schema that this build does not follow.
    #[error("{what}")]
    Schema {
        /// Stable code.
        code: &'static str,
        /// What changed.
        what: String,
    },
    /// A record of the change log that no build writes.
    #[error("log record {offset} cannot be read")]
    Record {
        /// Its offset.
        offset: i64,
        /// Why.
        #[source]
        source: WireError,
    },
    /// State cannot be read or written.
    #[error(transparent)]
    State(#[from] state::Error),
    /// The store refuses for good.
    #[error(transparent)]
    Sink(#[from] sink::Error),
}

impl Stop {
    /// The stable code under which it is reported.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::LogTruncated { .. } => "log.truncated",
            Self::Schema { code, .. } => code,
            Self::Record { .. } => "log.unreadable",
            Self::State(_) => "state.unusable",
            Self::Sink(error) => error.kind.code(),
        }
    }
}

/// Code of a dead letter that was replayed and came too late.
pub const SUPERSEDED: &str = "superseded";

/// A change that this replica cannot take. It is durably dead-lettered before `K` passes it (law 11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Log offset of the change.
    pub offset: i64,
    /// Stable code.
    pub code: &'static str,
    /// The column that it is about.
    pub column: String,
}

impl Letter {
    /// Why, for people, and what helps.
    pub fn reason(&self, table: &str, replica: &str) -> String {
        let column = &self.column;
        match self.code {
            "change.unresolved_column" => format!(
                "the source did not send column {column:?} of table {table:?}, and its value is not known; the row is held back in replica \
                 {replica:?} until a change brings it. After a key change it is found only where both keys are in one partition of the change \
                 log; REPLICA IDENTITY FULL sends it always"
            ),
            _ => format!("column {column:?} of table {table:?} cannot be landed in replica {replica:?}"),
        }
    }
}

/// The stop that a change of the table's columns comes to.
pub(super) fn refused(evolution: &Evolution, schema: &TableSchema) -> Stop {
    let (code, what) = evolution.refusal(schema.table());
    Stop::Schema { code, what }
}
