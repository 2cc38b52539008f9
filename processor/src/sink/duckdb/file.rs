//! The file: who has it open, in this process and outside.
//!
//! DuckDB gives a file to one process at a time and marks that with a POSIX lock. Such a lock belongs to the process: a second open of the same
//! file in this one would succeed, and closing either would take the lock from both. So every open goes through the one table here, and all
//! connections of this process to a file share one database, which closes with the last of them. Nothing else may open or copy the file while
//! it is in the table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use duckdb::{AccessMode, Config, Connection};

use super::error;
use crate::sink::{Error, Kind};

/// What DuckDB's buffers may hold in all. A landing needs a few MB of it and spills to disk beyond that; the rest caches the key columns that
/// landings compare. DuckDB takes as much again outside its buffers, and the whole process has to stay under 300 MB.
pub const MEMORY_LIMIT: &str = "48MiB";
/// Threads of the engine. Landing is one writer that waits for the disk; the second thread helps the comparison of keys with a large table, and
/// reading queries. Each costs memory of its own.
pub const THREADS: &str = "2";
/// Size of the write-ahead log at which a commit writes a checkpoint. It bounds what an open after a kill replays (well under a second), and what
/// stays in memory of rows that changed since: some 16 bytes for each, and small landings whole.
pub const CHECKPOINT_BYTES: &str = "16MiB";

/// How columns are compressed that can be: by this method where the file's format has it, which it has not for text, and as usual where the
/// method does not fit the type. A checkpoint compresses the last row group anew, up to 122 880 rows of it; trying all methods on text takes as
/// much memory as the text has, outside the limit above: 568 MB after 26 landings of 16 MiB that do not compress, and 183 MB this way. Text that
/// repeats itself takes more room in the file.
const COMPRESSION: &str = "zstd";

/// How a file is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// By the one process that writes.
    Write,
    /// By one of several processes that only read.
    Read,
}

/// A connection of its own to a file that is open. The file closes when the last lease of the process ends.
#[derive(Debug)]
pub(super) struct Lease {
    // Fields drop in this order: the connection before the claim on the database.
    connection: Connection,
    claim: Claim,
}

#[derive(Debug)]
struct Claim(Arc<Slot>);

#[derive(Debug, Default)]
struct Slot {
    database: Mutex<Option<Database>>,
    writing: Mutex<()>,
}

#[derive(Debug)]
struct Database {
    root: Connection,
    mode: Mode,
    leases: usize,
}

static FILES: Mutex<BTreeMap<PathBuf, Arc<Slot>>> = Mutex::new(BTreeMap::new());

/// Opens a file, or joins the process's own use of it. `None` where another process holds it. With [`Mode::Read`] a file that this process
/// writes is joined as it is: who reads must begin a read-only transaction.
pub(super) fn lease(path: &Path, mode: Mode) -> Result<Option<Lease>, Error> {
    let slot = Arc::clone(lock(&FILES).entry(identity(path)).or_default());
    let mut database = lock(&slot.database);
    if let Some(open) = &*database
        && open.mode == Mode::Read
        && mode == Mode::Write
    {
        return Err(Error::new(Kind::Unavailable, format!("a query of this process is reading {}", path.display())));
    }
    if database.is_none() {
        match open(path, mode) {
            Ok(root) => *database = Some(Database { root, mode, leases: 0 }),
            Err(e) if error::is_held(&e) => return Ok(None),
            Err(e) => return Err(error::of_open(path, &e)),
        }
    }
    let open = database.as_mut().expect("opened above");
    // Counted first: where the connection fails, the claim's end closes a database that nobody uses.
    open.leases += 1;
    let connection = open.root.try_clone();
    drop(database);
    let claim = Claim(slot);
    let connection = connection.map_err(|e| error::of_open(path, &e))?;
    Ok(Some(Lease { connection, claim }))
}

/// The error for a file that is not to be had now.
pub(super) fn held(path: &Path) -> Error {
    Error::new(Kind::Unavailable, format!("another process holds {}", path.display()))
}

impl Lease {
    /// The connection.
    pub(super) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Waits until no other connection of this process writes: two writers would meet in conflicts that both would have to repeat.
    pub(super) fn writer(&self) -> MutexGuard<'_, ()> {
        lock(&self.claim.0.writing)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Under the slot's lock, so nobody opens the file while it is still closing.
        let mut database = lock(&self.0.database);
        if let Some(open) = &mut *database {
            open.leases -= 1;
            if open.leases == 0 {
                *database = None;
            }
        }
    }
}

fn open(path: &Path, mode: Mode) -> duckdb::Result<Connection> {
    let access = match mode {
        Mode::Write => AccessMode::ReadWrite,
        Mode::Read => AccessMode::ReadOnly,
    };
    let config = Config::default()
        .access_mode(access)?
        .max_memory(MEMORY_LIMIT)?
        .with("threads", THREADS)?
        .with("checkpoint_threshold", CHECKPOINT_BYTES)?
        .with("force_compression", COMPRESSION)?
        // Queries come from people: no statement reaches other files, the network, or code that is not built in.
        .enable_external_access(false)?
        .enable_autoload_extension(false)?;
    Connection::open_with_flags(path, config)
}

/// One name for a file, whatever path leads to it; the file itself need not exist yet.
fn identity(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (parent.canonicalize(), path.file_name()) {
        (Ok(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves whole values behind: a count, an option, a map.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
