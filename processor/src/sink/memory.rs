//! A sink in memory: the model of the two kinds of stores, for the simulator and for tests that need no store.
//!
//! `Style::Transactional` moves rows and cursor together, as Postgres and DuckDB do. `Style::Replacing` is ClickHouse: rows are inserted one
//! at a time and the highest version wins, the cursor follows. A store can be copied and put back, which is what a restored backup does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_schemas::TableSchema;
use landfall_schemas::table::Evolution;

use super::{Batch, Claim, Cursor, Error, Kind, Opened, Sink, Target, VERSION_OFFSET_BITS};

/// Which kind of store the memory imitates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Rows and cursor in one transaction; deletes remove rows.
    Transactional,
    /// Versioned rows first, cursor after; reads show the highest version of the build in force.
    Replacing,
}

/// A row as stored: content, or a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its version.
    pub version: u64,
    /// Encoded row; `None` for a tombstone.
    pub row: Option<Vec<u8>>,
}

/// Everything that a store holds of one replica.
#[derive(Clone, Debug, Default)]
pub struct Replica {
    /// Name of its table.
    pub table: String,
    /// Build in force.
    pub build: u16,
    /// Schema that the table was prepared for.
    pub schema: Option<TableSchema>,
    /// Rows by encoded key.
    pub rows: BTreeMap<Vec<u8>, Stored>,
    /// Cursor by partition.
    pub cursors: BTreeMap<i32, Cursor>,
}

impl Replica {
    /// The rows that a reader sees: no tombstone, nothing of another build.
    pub fn live(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let low = u64::from(self.build) << VERSION_OFFSET_BITS;
        self.rows.iter().filter(move |(_, s)| s.version >= low).filter_map(|(k, s)| Some((k.as_slice(), s.row.as_deref()?)))
    }
}

/// A store that several sinks, of several processes, write to.
#[derive(Clone, Debug)]
pub struct Store {
    style: Style,
    replicas: Arc<Mutex<BTreeMap<String, Replica>>>,
}

impl Store {
    /// An empty store.
    pub fn new(style: Style) -> Self {
        Self { style, replicas: Arc::default() }
    }

    /// Everything in it, to look at or to change: a test may do what an operator does.
    pub fn replicas(&self) -> MutexGuard<'_, BTreeMap<String, Replica>> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the rows of a batch, as a replacing store does: whoever inserts, the highest version wins.
    pub fn insert_rows(&self, replica: &str, batch: &Batch) {
        let mut replicas = self.replicas();
        let stored = replicas.entry(replica.to_owned()).or_default();
        for delta in batch.deltas() {
            match (self.style, delta.row) {
                (Style::Transactional, None) => drop(stored.rows.remove(delta.key)),
                (Style::Replacing, _) if stored.rows.get(delta.key).is_some_and(|s| s.version > delta.version) => {}
                (_, row) => drop(stored.rows.insert(delta.key.to_vec(), Stored { version: delta.version, row: row.map(<[u8]>::to_vec) })),
            }
        }
    }
}

/// One connection to a [`Store`].
#[derive(Clone, Debug)]
pub struct MemorySink {
    store: Store,
}

impl MemorySink {
    /// A connection.
    pub const fn new(store: Store) -> Self {
        Self { store }
    }

    /// Moves `K` after checking that the owner may: the second half of a landing.
    pub fn move_cursor(&mut self, target: &Target, batch: &Batch) -> Result<(), Error> {
        let mut replicas = self.store.replicas();
        let stored = replicas.entry(target.replica.clone()).or_default();
        check(stored, target, batch)?;
        let _ = stored.cursors.insert(batch.partition, Cursor { fence: batch.fence, build: target.build, next: Some(batch.next) });
        Ok(())
    }
}

fn check(stored: &Replica, target: &Target, batch: &Batch) -> Result<(), Error> {
    if stored.build != target.build {
        return Err(Error::new(Kind::Build, format!("build {} of replica {:?} is in force", stored.build, target.replica)));
    }
    // Only rows need a table; a cursor may move before there is one.
    if !batch.is_empty() && !stored.schema.as_ref().is_some_and(|schema| schema.columns().starts_with(target.schema.columns())) {
        return Err(Error::new(Kind::CursorMoved, format!("the table of replica {:?} was put back", target.replica)));
    }
    let cursor = stored.cursors.get(&batch.partition).copied().unwrap_or(Cursor { fence: 0, build: stored.build, next: None });
    if cursor.fence > batch.fence {
        return Err(Error::new(Kind::Fenced, format!("partition {} of replica {:?} has another owner", batch.partition, target.replica)));
    }
    let next = if cursor.build == target.build { cursor.next } else { None };
    if cursor.fence < batch.fence || next != batch.expected {
        return Err(Error::new(Kind::CursorMoved, format!("cursor of partition {} of replica {:?} moved", batch.partition, target.replica)));
    }
    Ok(())
}

impl Sink for MemorySink {
    fn open(&mut self, replica: &str, table: &str, build: Option<u16>) -> Result<Opened, Error> {
        let mut replicas = self.store.replicas();
        let stored = replicas.entry(replica.to_owned()).or_default();
        table.clone_into(&mut stored.table);
        if let Some(build) = build {
            if build < stored.build {
                return Err(Error::new(Kind::Build, format!("build {} of replica {replica:?} is in force", stored.build)));
            }
            if build > stored.build {
                raise(self.store.style, stored, build);
            }
        }
        Ok(Opened { build: stored.build, schema: stored.schema.clone() })
    }

    fn prepare(&mut self, target: &Target) -> Result<(), Error> {
        let mut replicas = self.store.replicas();
        if let Some((owner, _)) = replicas.iter().find(|(name, r)| **name != target.replica && r.table == target.table && r.schema.is_some()) {
            return Err(Error::new(Kind::TableExists, format!("table {:?} belongs to replica {owner:?}", target.table)));
        }
        let stored = replicas.entry(target.replica.clone()).or_default();
        if stored.build != target.build {
            return Err(Error::new(Kind::Build, format!("build {} of replica {:?} is in force", stored.build, target.replica)));
        }
        let wider = match stored.schema.as_ref().map(|schema| (schema, schema.compare(&target.schema))) {
            None => TableSchema::clone(&target.schema),
            Some((schema, Evolution::Covers { added, .. })) => schema.with_columns(&added),
            Some(_) => return Err(Error::new(Kind::TableChanged, format!("replica {:?} has other columns", target.replica))),
        };
        stored.schema = Some(wider);
        Ok(())
    }

    fn claim(&mut self, target: &Target, partition: i32) -> Result<Claim, Error> {
        let mut replicas = self.store.replicas();
        let stored = replicas.entry(target.replica.clone()).or_default();
        if stored.build != target.build {
            return Err(Error::new(Kind::Build, format!("build {} of replica {:?} is in force", stored.build, target.replica)));
        }
        let build = stored.build;
        let cursor = stored.cursors.entry(partition).or_insert(Cursor { fence: 0, build, next: None });
        cursor.fence += 1;
        if cursor.build != build {
            (cursor.build, cursor.next) = (build, None);
        }
        Ok(Claim { fence: cursor.fence, next: cursor.next })
    }

    fn cursor(&mut self, target: &Target, partition: i32) -> Result<Option<Cursor>, Error> {
        let replicas = self.store.replicas();
        let in_force = replicas.get(&target.replica).filter(|r| r.build == target.build);
        Ok(in_force.and_then(|r| r.cursors.get(&partition)).copied())
    }

    fn land(&mut self, target: &Target, batch: &Batch) -> Result<(), Error> {
        {
            let mut replicas = self.store.replicas();
            check(replicas.entry(target.replica.clone()).or_default(), target, batch)?;
        }
        self.store.insert_rows(&target.replica, batch);
        self.move_cursor(target, batch)
    }

    fn rebuild(&mut self, replica: &str, _table: &str) -> Result<u16, Error> {
        let mut replicas = self.store.replicas();
        let stored = replicas.entry(replica.to_owned()).or_default();
        let build = stored.build + 1;
        raise(self.store.style, stored, build);
        Ok(build)
    }
}

fn raise(style: Style, stored: &mut Replica, build: u16) {
    stored.build = build;
    if style == Style::Transactional {
        stored.rows.clear();
    }
}
