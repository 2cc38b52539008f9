//! Where replicas live: the contract of a sink, and the batches that it lands.
//!
//! A sink owns one connection to one store and is driven by one thread; every call blocks. It never decides what to land or in which order:
//! it lands a [`Batch`] together with the cursor `K`, as one transaction where the store has them (ARCHITECTURE.md, Positions and recovery).
//! Every sink has the same file set and passes the same conformance suite; `memory` is the model that the simulator runs.

pub mod clickhouse;
pub mod duckdb;
pub mod kafka;
pub mod memory;
pub mod postgres;
pub mod query;

use std::fmt;
use std::sync::Arc;

use landfall_schemas::TableSchema;

/// Which replica a call is about.
#[derive(Clone, Debug)]
pub struct Target {
    /// Full name of the replica (`topology.store.table`); names its cursors and metadata, so that two topologies in one store never meet.
    pub replica: String,
    /// Name of the table in the store, unquoted.
    pub table: String,
    /// Generation of the table's log; part of every cursor.
    pub generation: u32,
    /// Build of the replica: versions and cursors of other builds do not count.
    pub build: u16,
    /// Columns and key of the replica table. Every row of a batch is encoded in exactly these columns.
    pub schema: Arc<TableSchema>,
}

/// What a store remembers of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The build in force: the stored one, or the one asked for where that is higher.
    pub build: u16,
    /// The schema that the replica table was last prepared for; `None` where there is no table yet.
    pub schema: Option<TableSchema>,
}

/// The right to land a log partition, and where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Fence of this claim; higher than every earlier one of the same replica and partition.
    pub fence: u64,
    /// `K`: the next log offset to land, as the store holds it for this build; `None` where it holds none.
    pub next: Option<i64>,
}

/// A cursor as the store holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Fence of the owner.
    pub fence: u64,
    /// Build that the cursor belongs to.
    pub build: u16,
    /// `K`, where one has been landed in this build.
    pub next: Option<i64>,
}

/// The final state of one row identity: its row, or its absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta<'a> {
    /// The key columns, encoded without unions in key order (`landfall_schemas::row::read_plain`).
    pub key: &'a [u8],
    /// The whole row in the target's columns (`landfall_schemas::row::values`); `None` where the row is absent: a tombstone.
    pub row: Option<&'a [u8]>,
    /// `build * 2^48 + log offset + 1` of the last change that altered the row: row content is a function of (identity, version).
    pub version: u64,
}

/// Bits of a version that hold the log offset plus one; the build stands above them.
pub const VERSION_OFFSET_BITS: u32 = 48;

/// The version of a row that the change at `offset` altered last, in a build.
pub fn version(build: u16, offset: i64) -> u64 {
    (u64::from(build) << VERSION_OFFSET_BITS) + offset.cast_unsigned() + 1
}

#[derive(Clone, Copy, Debug)]
struct Span {
    key: (u32, u32),
    row: Option<(u32, u32)>,
    version: u64,
}

/// What one landing brings: the final state of every row identity that any change in `[from, to)` touched, each identity once.
#[derive(Debug, Default)]
pub struct Batch {
    /// Log partition.
    pub partition: i32,
    /// Fence of the claim under which it lands.
    pub fence: u64,
    /// `K` as the owner left it; `None` for the first landing of a build. The landing is refused where the store holds another.
    pub expected: Option<i64>,
    /// `K` after the landing.
    pub next: i64,
    arena: Vec<u8>,
    spans: Vec<Span>,
}

impl Batch {
    /// Empties the batch for another landing and keeps its memory.
    pub fn reset(&mut self, partition: i32, fence: u64, expected: Option<i64>, next: i64) {
        self.arena.clear();
        self.spans.clear();
        (self.partition, self.fence, self.expected, self.next) = (partition, fence, expected, next);
    }

    /// Adds the state of a row identity that the batch does not hold yet.
    pub fn push(&mut self, delta: Delta<'_>) {
        let mut add = |bytes: &[u8]| {
            let start = self.arena.len() as u32;
            self.arena.extend_from_slice(bytes);
            (start, self.arena.len() as u32)
        };
        let key = add(delta.key);
        let row = delta.row.map(add);
        self.spans.push(Span { key, row, version: delta.version });
    }

    /// The deltas in the order in which they were added.
    pub fn deltas(&self) -> impl ExactSizeIterator<Item = Delta<'_>> + Clone {
        let slice = |(start, end): (u32, u32)| &self.arena[start as usize..end as usize];
        self.spans.iter().map(move |span| Delta { key: slice(span.key), row: span.row.map(slice), version: span.version })
    }

    /// Number of deltas.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// True where only the cursor moves.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Bytes of keys and rows.
    pub fn bytes(&self) -> usize {
        self.arena.len()
    }
}

/// A place to keep replicas.
///
/// Who calls: one worker thread for each sink. Order: `open` once per replica, `prepare` before the first batch of every schema, `claim` before
/// the first batch of every partition. Any call may be repeated after an error, and after the process was killed in the middle of it.
pub trait Sink: Send {
    /// Connects where needed, makes sure that the metadata of section 5 of INTERFACES.md exists, and tells what is known of a replica. A
    /// `build` above the stored one is put in force as `rebuild` does it; one below it is refused ([`Kind::Build`]).
    fn open(&mut self, replica: &str, table: &str, build: Option<u16>) -> Result<Opened, Error>;

    /// Creates the replica's table, or widens it by nullable columns, so that it covers `target.schema` (law 12), and remembers the schema:
    /// what it remembers grows at its end by what it lacks, and nothing in it moves. [`Self::open`] tells it.
    /// A table that is there and not ours is refused and left alone ([`Kind::TableExists`]).
    fn prepare(&mut self, target: &Target) -> Result<(), Error>;

    /// Takes a partition over: raises the fence and reads `K`, in one transaction; refused to a build that is not in force.
    fn claim(&mut self, target: &Target, partition: i32) -> Result<Claim, Error>;

    /// Reads a cursor as it stands, without changing anything; `None` where another build than the target's is in force: an idle owner, whose
    /// cursor nobody touched, learns of a rebuild only from here.
    fn cursor(&mut self, target: &Target, partition: i32) -> Result<Option<Cursor>, Error>;

    /// Lands rows and `K`, durably, as one compare-and-set: fence mine, `K` as expected, build in force; else nothing changes
    /// ([`Kind::Fenced`], [`Kind::CursorMoved`], [`Kind::Build`]). An error of kind [`Kind::Unavailable`] leaves open whether it happened.
    fn land(&mut self, target: &Target, batch: &Batch) -> Result<(), Error>;

    /// Puts a new build in force: no row and no cursor of earlier builds counts any more. Returns it.
    fn rebuild(&mut self, replica: &str, table: &str) -> Result<u16, Error>;

    /// Called when nothing has been landed for a while: gives back what others may wait for (a file lock, a connection).
    fn idle(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// What kind of thing went wrong in a store; the one table of what to do about it is [`Kind::remedy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Not reachable, restarting, timed out, deadlocked, out of space or memory: passes by itself or by an operator's help.
    Unavailable,
    /// Another owner has a higher fence.
    Fenced,
    /// `K` is not what its owner left: the store was put back, or another wrote it.
    CursorMoved,
    /// Another build is in force.
    Build,
    /// The table exists and is not ours (`binding.table_exists`).
    TableExists,
    /// The table lost a column or changed a type under us, or has other keys.
    TableChanged,
    /// The store refuses the login.
    Login,
    /// A right is missing.
    Permission,
    /// The store cannot hold what is asked of it.
    Unsupported,
    /// An answer that makes no sense, or a statement of ours that the store does not understand.
    Internal,
}

/// What the lander does about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Try the same again, with growing pauses; the partition waits.
    Retry,
    /// Forget the claim and everything built on it, and claim anew.
    Reclaim,
    /// Stop this replica by name until an operator has acted; others go on.
    Halt,
}

impl Kind {
    /// The stable code under which it is reported and counted.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unavailable => "sink.unavailable",
            Self::Fenced => "sink.fenced",
            Self::CursorMoved => "sink.cursor_moved",
            Self::Build => "sink.build_superseded",
            Self::TableExists => "binding.table_exists",
            Self::TableChanged => "binding.table_changed",
            Self::Login => "sink.login_refused",
            Self::Permission => "sink.permission_denied",
            Self::Unsupported => "sink.unsupported",
            Self::Internal => "sink.internal",
        }
    }

    /// The remedy. Retrying is the narrow list: a wrong password or a foreign table does not mend itself, but a store that is down does.
    pub const fn remedy(self) -> Remedy {
        match self {
            Self::Unavailable => Remedy::Retry,
            Self::Fenced | Self::CursorMoved | Self::Build => Remedy::Reclaim,
            Self::TableExists | Self::TableChanged | Self::Login | Self::Permission | Self::Unsupported | Self::Internal => Remedy::Halt,
        }
    }

    /// What an operator can do about it.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::Unavailable => "landing goes on by itself as soon as the store answers again",
            Self::Fenced => "another process owns the partition now; this one stands back",
            Self::CursorMoved => "the store holds another position than the one left there; the partition is claimed anew",
            Self::Build => "another build of the replica is in force; this one stands back",
            Self::TableExists => "rename or drop the table, or give the replica another `table`",
            Self::TableChanged => "put the table back, or run `landfall rebuild` for the replica",
            Self::Login => "check user and password of the store in the topology",
            Self::Permission => "grant the missing right to the store's user",
            Self::Unsupported => "see the type table of the store in the reference",
            Self::Internal => "this is a defect of Landfall; please report it with the detail",
        }
    }
}

/// An error of a sink. Its text names tables and columns, never row values or secrets.
#[derive(Debug)]
pub struct Error {
    /// What kind.
    pub kind: Kind,
    /// What and where, as a lower-case fragment.
    pub detail: String,
    /// The cause.
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error without a cause of its own.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), source: None }
    }

    /// An error with its cause.
    pub fn with(kind: Kind, detail: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { kind, detail: detail.into(), source: Some(source.into()) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}
