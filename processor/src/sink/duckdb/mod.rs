//! DuckDB: replicas as tables of one file, rows and cursor in one transaction.
//!
//! A landing puts the keys of all deltas on a temporary stage, deletes the rows that have them, and appends the rows that are there; the table has
//! no primary key, since each delta is another row identity and one process at a time writes (`file`). DuckDB runs in this process, so there is
//! no deadline: a statement ends, or the disk does not answer, which no deadline would mend. The file is open only between the first call and
//! [`Sink::idle`]; a landing never leaves a transaction behind, and an error that may have broken the connection gives it back.

mod encode;
mod error;
mod file;
mod metadata;
pub mod query;
mod sql;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use duckdb::{Appender, Connection, params};
use landfall_schemas::{TableSchema, contract};

use self::encode::{Columns, EncodeError};
use self::file::{Lease, Mode};
use self::metadata::{Home, Reliance, Stored};
use crate::fault;

use super::{Batch, Claim, Cursor, Error, Kind, Opened, Sink, Target};

pub use self::file::{CHECKPOINT_BYTES, MEMORY_LIMIT, THREADS};

/// Where the replicas live.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file; it is created where it does not exist, its folder is not.
    pub path: PathBuf,
    /// The schema that the replicas stand in; created if absent.
    pub schema: String,
}

/// A sink that writes to one file.
#[derive(Debug)]
pub struct DuckDbSink {
    options: Options,
    session: Option<Session>,
    plans: BTreeMap<String, Plan>,
    plans_made: usize,
}

/// The time between an open of the file and its release.
#[derive(Debug)]
struct Session {
    lease: Lease,
    /// How DuckDB calls the open database.
    catalog: String,
    /// Replicas whose tables were found to be ours since the file was opened. Nobody else can change them meanwhile.
    sound: BTreeSet<String>,
}

/// What landings of one target need again and again.
#[derive(Debug)]
struct Plan {
    /// Tells the stages of this sink apart.
    number: usize,
    catalog: String,
    schema_name: String,
    table: String,
    schema: Arc<TableSchema>,
    schema_id: String,
    statements: sql::Statements,
    keys: Columns,
    rows: Columns,
}

impl DuckDbSink {
    /// A sink; the file is opened by the first call that needs it.
    pub const fn new(options: Options) -> Self {
        Self { options, session: None, plans: BTreeMap::new(), plans_made: 0 }
    }

    /// Takes the file, or keeps it: false where another process holds it. While it is held, this process may own partitions of the store.
    pub fn lock(&mut self) -> Result<bool, Error> {
        if self.session.is_some() {
            return Ok(true);
        }
        let Some(lease) = file::lease(&self.options.path, Mode::Write)? else { return Ok(false) };
        let catalog = {
            let _writer = lease.writer();
            transact(lease.connection(), |connection| Ok(Ok(metadata::begin(connection, &self.options.schema)?)))?
        };
        self.session = Some(Session { lease, catalog, sound: BTreeSet::new() });
        Ok(true)
    }

    /// Gives the file back. The next call that needs it takes it again.
    pub fn release(&mut self) {
        self.session = None;
    }

    /// Runs one reading statement and returns its rows as text: see [`query::run`]. It does not wait for landings, nor they for it.
    pub fn query(&mut self, statement: &str, limits: &query::Limits) -> Result<query::Table, Error> {
        query::run(&self.options.path, Some(&self.options.schema), statement, limits)
    }

    /// Runs a transaction that writes. After an error that says nothing of the replica the file is given back and opened anew by the next call.
    fn write<T>(&mut self, act: impl FnOnce(&Connection, Home<'_>, &mut BTreeSet<String>) -> Verdict<T>) -> Result<T, Error> {
        if !self.lock()? {
            return Err(file::held(&self.options.path));
        }
        let Self { options, session, .. } = self;
        let Session { lease, catalog, sound } = session.as_mut().ok_or_else(|| file::held(&options.path))?;
        let home = Home { catalog, schema: &options.schema };
        let result = {
            let _writer = lease.writer();
            transact(lease.connection(), |connection| act(connection, home, sound))
        };
        if result.as_ref().is_err_and(|e| matches!(e.kind, Kind::Unavailable | Kind::Internal)) {
            self.session = None;
        }
        result
    }
}

/// What becomes of a transaction: committed with a value, committed with an error to report, or rolled back.
type Verdict<T> = Result<Result<T, Error>, Error>;

fn transact<T>(connection: &Connection, act: impl FnOnce(&Connection) -> Verdict<T>) -> Result<T, Error> {
    metadata::run(connection, "BEGIN TRANSACTION")?;
    match act(connection) {
        Ok(verdict) => {
            metadata::run(connection, "COMMIT")?;
            verdict
        }
        Err(e) => match metadata::run(connection, "ROLLBACK") {
            Ok(()) => Err(e),
            // The cause is worth more than this; the kind makes the caller give the connection back.
            Err(_) => Err(Error { kind: Kind::Unavailable, ..e }),
        },
    }
}

impl Sink for DuckDbSink {
    fn open(&mut self, replica: &str, table: &str, build: Option<u16>) -> Result<Opened, Error> {
        self.write(|connection, home, sound| {
            let place = home.place(table);
            let Some(stored) = Stored::read(connection, replica)? else {
                let build = build.unwrap_or(0);
                metadata::insert(connection, replica, place, build)?;
                return Ok(Ok(Opened { build, schema: None }));
            };
            if build.is_some_and(|asked| asked < stored.build) {
                return Err(metadata::superseded(replica, stored.build));
            }
            let moved = !stored.place().is(place);
            if !moved && build.is_none_or(|asked| asked == stored.build) && !stored.lost(connection, replica, place)? {
                return Ok(Ok(Opened { build: stored.build, schema: stored.schema }));
            }
            let _ = sound.remove(replica);
            let _ = stored.raise(connection, replica, place, build)?;
            let stored = Stored::read(connection, replica)?.ok_or_else(|| Error::new(Kind::Internal, format!("replica {replica:?} vanished")))?;
            Ok(Ok(Opened { build: stored.build, schema: stored.schema }))
        })
    }

    fn prepare(&mut self, target: &Target) -> Result<(), Error> {
        metadata::check_names(&target.schema)?;
        self.write(|connection, home, sound| {
            let stored = Stored::of_target(connection, home, target)?;
            if let Reliance::Raised(error) = stored.rely(connection, &target.replica)? {
                return Ok(Err(error));
            }
            stored.cover(connection, target)?;
            let _ = sound.insert(target.replica.clone());
            Ok(Ok(()))
        })
    }

    fn claim(&mut self, target: &Target, partition: i32) -> Result<Claim, Error> {
        self.write(|connection, home, _| {
            let stored = Stored::of_target(connection, home, target)?;
            if let Reliance::Raised(error) = stored.rely(connection, &target.replica)? {
                return Ok(Err(error));
            }
            let (replica, generation, build) = (&target.replica, target.generation, target.build);
            let Some((cursor, of)) = metadata::cursor(connection, replica, partition)? else {
                metadata::execute(connection, sql::INSERT_CURSOR, params![replica, partition, 1_u64, generation, build])?;
                return Ok(Ok(Claim { fence: 1, next: None }));
            };
            if of > generation {
                return Err(Error::new(Kind::Build, format!("generation {of} of replica {replica:?} is in force")));
            }
            let next = cursor.next.filter(|_| cursor.build == build && of == generation);
            let fence = cursor.fence + 1;
            metadata::execute(connection, sql::UPDATE_CLAIM, params![fence, generation, build, next, replica, partition])?;
            Ok(Ok(Claim { fence, next }))
        })
    }

    fn cursor(&mut self, target: &Target, partition: i32) -> Result<Option<Cursor>, Error> {
        self.write(|connection, _, _| {
            let stored = metadata::cursor_and_build(connection, &target.replica, partition)?;
            // In another build a position says nothing: an idle owner must notice that its own is over.
            Ok(Ok(stored.filter(|(build, _)| *build == target.build).and_then(|(_, placed)| placed).map(|(cursor, _)| cursor)))
        })
    }

    fn land(&mut self, target: &Target, batch: &Batch) -> Result<(), Error> {
        let number = self.plans_made;
        self.plans_made += 1;
        let known = self.plans.remove(&target.replica);
        let mut made = None;
        let result = self.write(|connection, home, sound| {
            let plan = made.insert(match known {
                Some(plan) if plan.serves(target) => plan,
                Some(plan) => Plan::new(home, target, plan.number),
                None => Plan::new(home, target, number),
            });
            check(connection, target, batch)?;
            if !sound.contains(&target.replica) {
                let stored = Stored::of_target(connection, home, target)?;
                if stored.schema.is_none() && !batch.is_empty() {
                    return Err(Error::new(Kind::Build, format!("table {:?} of replica {:?} is not prepared", target.table, target.replica)));
                }
                if let Reliance::Raised(error) = stored.rely(connection, &target.replica)? {
                    return Ok(Err(error));
                }
                if stored.schema.is_some() {
                    let _ = sound.insert(target.replica.clone());
                }
            }
            if !batch.is_empty() {
                plan.apply(connection, batch)?;
            }
            fault::point("mid_land");
            metadata::execute(connection, sql::MOVE_CURSOR, params![batch.next, plan.schema_id, target.replica, batch.partition])?;
            Ok(Ok(()))
        });
        if let Some(plan) = made {
            let _ = self.plans.insert(target.replica.clone(), plan);
        }
        result?;
        fault::point("reply_lost");
        Ok(())
    }

    fn rebuild(&mut self, replica: &str, table: &str) -> Result<u16, Error> {
        self.write(|connection, home, sound| {
            let _ = sound.remove(replica);
            match Stored::read(connection, replica)? {
                Some(stored) => Ok(Ok(stored.raise(connection, replica, home.place(table), None)?)),
                None => {
                    metadata::insert(connection, replica, home.place(table), 1)?;
                    Ok(Ok(1))
                }
            }
        })
    }

    /// Closes the file, so that others can read it; closing writes a checkpoint.
    fn idle(&mut self) -> Result<(), Error> {
        self.release();
        Ok(())
    }
}

/// The compare of a landing's compare-and-set: fence mine, `K` as I left it, build in force.
fn check(connection: &Connection, target: &Target, batch: &Batch) -> Result<(), Error> {
    let (replica, partition) = (&target.replica, batch.partition);
    let Some((build, cursor)) = metadata::cursor_and_build(connection, replica, partition)? else {
        return Err(metadata::unknown(target));
    };
    if build != target.build {
        return Err(metadata::superseded(replica, build));
    }
    let moved = || Error::new(Kind::CursorMoved, format!("cursor of partition {partition} of replica {replica:?} moved"));
    let (cursor, generation) = cursor.ok_or_else(moved)?;
    if cursor.fence > batch.fence {
        return Err(Error::new(Kind::Fenced, format!("partition {partition} of replica {replica:?} has another owner")));
    }
    let next = cursor.next.filter(|_| cursor.build == build && generation == target.generation);
    if cursor.fence < batch.fence || next != batch.expected { Err(moved()) } else { Ok(()) }
}

impl Plan {
    fn new(home: Home<'_>, target: &Target, number: usize) -> Self {
        let schema = &target.schema;
        Self {
            number,
            catalog: home.catalog.to_owned(),
            schema_name: home.schema.to_owned(),
            table: target.table.clone(),
            schema_id: contract::of(schema).1.to_string(),
            statements: sql::Statements::new(home.place(&target.table), schema, number),
            keys: Columns::of_keys(schema.key_columns()),
            rows: Columns::of_rows(schema.columns().iter()).with_key(schema.key()),
            schema: Arc::clone(schema),
        }
    }

    fn serves(&self, target: &Target) -> bool {
        self.table == target.table && (Arc::ptr_eq(&self.schema, &target.schema) || self.schema == target.schema)
    }

    fn apply(&mut self, connection: &Connection, batch: &Batch) -> Result<(), Error> {
        let table = &self.table;
        let failed = |e: &duckdb::Error| error::of(&format!("land into table {table:?}"), e);
        metadata::run(connection, &self.statements.create_stage)?;
        let mut stage = connection.appender_to_catalog_and_db(&self.statements.stage, "temp", sql::STAGE_SCHEMA).map_err(|e| failed(&e))?;
        append(&mut stage, &mut self.keys, batch.deltas().map(|d| d.key), table)?;
        metadata::run(connection, &self.statements.delete)?;
        let names: Vec<&str> = self.schema.columns().iter().map(|c| c.name.as_str()).collect();
        let mut rows = connection.appender_with_columns_to_catalog_and_db(table, &self.catalog, &self.schema_name, &names).map_err(|e| failed(&e))?;
        append(&mut rows, &mut self.rows, batch.deltas().filter_map(|d| d.row), table)
    }
}

fn append<'a>(appender: &mut Appender<'_>, columns: &mut Columns, rows: impl Iterator<Item = &'a [u8]>, table: &str) -> Result<(), Error> {
    let failed = |e: &duckdb::Error| error::of(&format!("land into table {table:?}"), e);
    let refused = |e: EncodeError| {
        let kind = if matches!(e, EncodeError::Value { .. }) { Kind::Unsupported } else { Kind::Internal };
        Error::new(kind, format!("land into table {table:?}: {e}"))
    };
    // Flushed with each chunk: what an appender gathers stands outside DuckDB's memory limit, and errors of the flush at its end are lost.
    let mut flush = |columns: &mut Columns| {
        appender.append_record_batch(columns.batch().map_err(refused)?).and_then(|()| appender.flush()).map_err(|e| failed(&e))?;
        columns.clear();
        Ok(())
    };
    columns.clear();
    for row in rows {
        columns.push(row).map_err(refused)?;
        if columns.is_full() {
            flush(columns)?;
        }
    }
    if columns.is_empty() { Ok(()) } else { flush(columns) }
}
