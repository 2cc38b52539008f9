//! One connection and what is done with it beside landing: metadata, tables, builds, claims.
//!
//! Locks are always taken in the order replica, cursors, table; a landing takes the last two of them, so nothing here can deadlock with it.
//! A table is ours while its identity (oid) is the one that we noted when we made it. One that is gone, or another in its place, is no success:
//! the build rises, so that everything lands again. An error leaves its transaction to the caller, who rolls back.

use std::cell::Cell;
use std::collections::HashMap;

use landfall_schemas::store::postgres::{self, NAME_BYTES_MAX, column_type};
use landfall_schemas::table::Evolution;
use landfall_schemas::{TableSchema, contract};
use tokio::task::JoinHandle;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row, Statement};

use super::land::Stage;
use super::{connect::Connector, error, sql};
use crate::sink::{Claim, Cursor, Error, Kind, Opened, Target};

/// A connection with its prepared statements and stages.
pub(super) struct Session {
    pub(super) client: Client,
    task: JoinHandle<()>,
    claim: Statement,
    cursor: Statement,
    pub(super) move_cursor: Statement,
    pub(super) stages: HashMap<String, Stage>,
    pub(super) stages_made: usize,
    /// Whether a transaction may be open.
    pub(super) in_transaction: Cell<bool>,
}

/// What the metadata says of a replica.
struct Entry {
    schema_name: String,
    table_name: String,
    build: u16,
    contract: Option<String>,
    identity: Option<u32>,
}

/// What the catalogue says of a relation.
struct Relation {
    oid: u32,
    is_table: bool,
    comment: Option<String>,
}

impl Session {
    /// Connects, and makes sure that the metadata and the replicas' schema exist.
    pub(super) async fn begin(connector: &Connector, schema: &str) -> Result<Self, Error> {
        let (client, task) = connector.connect().await?;
        ensure_parts(&client, schema).await?;
        let claim = [Type::TEXT, Type::INT4, Type::INT4, Type::INT8, Type::TEXT];
        let cursor = [Type::TEXT, Type::INT4, Type::TEXT];
        let moved = [Type::TEXT, Type::INT4, Type::INT8, Type::INT4, Type::INT8, Type::INT8, Type::INT8, Type::TEXT, Type::TEXT, Type::BOOL];
        let (claim, cursor, move_cursor) = tokio::try_join!(
            client.prepare_typed(sql::CLAIM, &claim),
            client.prepare_typed(sql::CURSOR, &cursor),
            client.prepare_typed(sql::MOVE_CURSOR, &moved)
        )
        .map_err(error::of("reading the metadata"))?;
        Ok(Self { client, task, claim, cursor, move_cursor, stages: HashMap::new(), stages_made: 0, in_transaction: Cell::new(false) })
    }

    /// Ends the connection at once: the server then rolls back whatever was open.
    pub(super) async fn end(self) {
        self.task.abort();
        drop(self.task.await);
    }

    /// See `Sink::open`.
    pub(super) async fn open(&self, schema: &str, replica: &str, table: &str, build: Option<u16>) -> Result<Opened, Error> {
        check_name("schema", schema)?;
        check_name("table", table)?;
        self.transaction().await?;
        let first = i32::from(build.unwrap_or(0));
        self.client.execute(sql::INSERT_REPLICA, &[&replica, &schema, &table, &first]).await.map_err(error::of("adding a replica"))?;
        let mut entry = self.locked(replica).await?.ok_or_else(|| gone(replica))?;
        let asked = build.unwrap_or(entry.build);
        if asked < entry.build {
            return Err(superseded(replica, entry.build));
        }
        let relation = self.relation(schema, table).await?;
        // Another name for the table begins another table; the former one stays where it is, as nobody's.
        let moved = (entry.schema_name.as_str(), entry.table_name.as_str()) != (schema, table);
        let lost = entry.identity.is_some() && entry.identity != relation.as_ref().map(|r| r.oid);
        if moved {
            (entry.schema_name, entry.table_name) = (schema.to_owned(), table.to_owned());
            (entry.identity, entry.contract) = (None, None);
        }
        let build = if moved || lost { asked.max(next_build(replica, entry.build)?) } else { asked };
        if build > entry.build {
            self.raise(replica, &mut entry, relation, build).await?;
        }
        self.commit().await?;
        let schema = entry.contract.as_deref().map(parsed).transpose()?;
        Ok(Opened { build: entry.build, schema })
    }

    /// See `Sink::rebuild`.
    pub(super) async fn rebuild(&self, replica: &str) -> Result<u16, Error> {
        self.transaction().await?;
        let mut entry = self.locked(replica).await?.ok_or_else(|| gone(replica))?;
        let build = next_build(replica, entry.build)?;
        let relation = self.relation(&entry.schema_name, &entry.table_name).await?;
        self.raise(replica, &mut entry, relation, build).await?;
        self.commit().await?;
        Ok(build)
    }

    /// See `Sink::prepare`.
    pub(super) async fn prepare(&self, schema: &str, target: &Target) -> Result<(), Error> {
        self.transaction().await?;
        let mut entry = self.locked(&target.replica).await?.ok_or_else(|| gone(&target.replica))?;
        if entry.build != target.build {
            return Err(superseded(&target.replica, entry.build));
        }
        let relation = self.relation(schema, &target.table).await?;
        let table = sql::qualified(schema, &target.table);
        let (covered, identity) = match (entry.identity, relation) {
            (None, None) => {
                let names = column_names(&target.schema)?;
                let create = sql::create_table(&table, &target.replica, &target.schema, &names);
                self.client.batch_execute(&create).await.map_err(error::of("creating a replica's table"))?;
                let made = self.relation(schema, &target.table).await?;
                let made = made.ok_or_else(|| Error::new(Kind::Internal, format!("table {:?} was made and is not there", target.table)))?;
                (TableSchema::clone(&target.schema), made.oid)
            }
            (None, Some(found)) => {
                let owner = self.client.query_opt(sql::OWNER, &[&found.oid]).await.map_err(error::of("looking a table's owner up"))?;
                let whose = match owner {
                    Some(row) => format!("belongs to replica {:?}", get::<String>(&row, 0)?),
                    None => "exists and is not ours".to_owned(),
                };
                return Err(Error::new(Kind::TableExists, format!("table {:?} of schema {schema:?} {whose}", target.table)));
            }
            (Some(ours), Some(relation)) if ours == relation.oid => (self.widen(&table, &entry, target, ours).await?, ours),
            (Some(_), relation) => return Err(self.lost(&target.replica, &mut entry, relation).await),
        };
        let (text, _) = contract::of(&covered);
        if entry.contract.as_deref() != Some(text.as_str()) {
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] = [&target.replica, &i64::from(target.generation), &text, &identity];
            self.client.execute(sql::REMEMBER, &parameters).await.map_err(error::of("remembering a schema"))?;
        }
        self.commit().await
    }

    /// Adds the columns that the table lacks; returns the schema that it then covers.
    async fn widen(&self, table: &str, entry: &Entry, target: &Target, oid: u32) -> Result<TableSchema, Error> {
        let changed = |detail: String| Error::new(Kind::TableChanged, detail);
        let remembered = entry.contract.as_deref().ok_or_else(|| changed(format!("table {:?} has no contract", target.table)))?;
        let remembered = parsed(remembered)?;
        let added = match remembered.compare(&target.schema) {
            Evolution::Covers { added, .. } => added,
            Evolution::TypeChanged { column, from, to } => {
                return Err(changed(format!("column {column:?} of table {:?} would change from {from} to {to}", target.table)));
            }
            Evolution::KeyChanged { from, to } => {
                return Err(changed(format!("the key of table {:?} would change from {from:?} to {to:?}", target.table)));
            }
        };
        let found = self.columns(oid).await?;
        if let Some(difference) = found.difference(&remembered)? {
            return Err(changed(format!("{difference} of table {:?} is not as it was left", target.table)));
        }
        if added.is_empty() {
            return Ok(remembered);
        }
        let covered = remembered.with_columns(&added);
        let names = column_names(&covered)?;
        let new = || names.iter().zip(covered.columns()).skip(remembered.columns().len());
        if let Some((name, _)) = new().find(|(name, _)| found.types.contains_key(*name)) {
            return Err(changed(format!("column {name:?} of table {:?} exists and is not ours", target.table)));
        }
        // Whoever waits for the lock stands in everybody's way; the lander tries again.
        let alter = format!("SET LOCAL lock_timeout = '5s'; {}", sql::add_columns(table, new()));
        self.client.batch_execute(&alter).await.map_err(error::of("adding columns to a replica's table"))?;
        Ok(covered)
    }

    /// See `Sink::claim`.
    pub(super) async fn claim(&self, schema: &str, target: &Target, partition: i32) -> Result<Claim, Error> {
        let table = sql::qualified(schema, &target.table);
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&target.replica, &partition, &i32::from(target.build), &i64::from(target.generation), &table];
        let row = self.client.query_opt(&self.claim, &parameters).await.map_err(error::of("claiming a partition"))?;
        match row {
            Some(row) => Ok(Claim { fence: fence(get(&row, 0)?), next: get(&row, 1)? }),
            None => Err(self.refusal(schema, target, partition, None).await),
        }
    }

    /// See `Sink::cursor`.
    pub(super) async fn cursor(&self, schema: &str, target: &Target, partition: i32) -> Result<Option<Cursor>, Error> {
        let Some(state) = self.state(schema, target, partition).await? else { return Ok(None) };
        // Without its table, or in another build, a position says nothing; the next claim finds out what is in force.
        if state.lost() || state.build != target.build {
            return Ok(None);
        }
        Ok(state.cursor.map(|c| Cursor { next: c.next.filter(|_| c.generation == i64::from(target.generation)), fence: c.fence, build: c.build }))
    }

    /// Why a claim or a landing (of the fence given) was refused. Where the table is gone, the build rises first.
    pub(super) async fn refusal(&self, schema: &str, target: &Target, partition: i32, landing: Option<u64>) -> Error {
        let state = match self.state(schema, target, partition).await {
            Ok(Some(state)) => state,
            Ok(None) => return gone(&target.replica),
            Err(error) => return error,
        };
        if state.build != target.build {
            return superseded(&target.replica, state.build);
        }
        if state.lost() {
            return self.raise_lost(schema, target).await;
        }
        let of = format!("partition {partition} of replica {:?}", target.replica);
        match (landing, state.cursor) {
            (Some(mine), Some(cursor)) if cursor.fence > mine => Error::new(Kind::Fenced, format!("{of} has another owner")),
            // Metadata changed between the statement and this look at it: claiming anew settles it.
            _ if state.identity.is_some() => Error::new(Kind::CursorMoved, format!("cursor of {of} moved")),
            (Some(_), Some(_)) => Error::new(Kind::CursorMoved, format!("cursor of {of} moved, or rows came before their table was prepared")),
            _ => Error::new(Kind::CursorMoved, format!("{of} has no cursor")),
        }
    }

    async fn raise_lost(&self, schema: &str, target: &Target) -> Error {
        let raise = async {
            self.transaction().await?;
            let mut entry = self.locked(&target.replica).await?.ok_or_else(|| gone(&target.replica))?;
            if entry.build != target.build {
                return Err(superseded(&target.replica, entry.build));
            }
            let relation = self.relation(schema, &target.table).await?;
            Ok(self.lost(&target.replica, &mut entry, relation).await)
        };
        raise.await.unwrap_or_else(|error| error)
    }

    /// Raises the build since the table is not the one that we made, and commits.
    async fn lost(&self, replica: &str, entry: &mut Entry, relation: Option<Relation>) -> Error {
        let raise = async {
            let build = next_build(replica, entry.build)?;
            self.raise(replica, entry, relation, build).await?;
            self.commit().await?;
            Ok(build)
        };
        match raise.await {
            Ok(build) => Error::new(Kind::Build, format!("the table of replica {replica:?} was dropped or replaced; build {build} lands it anew")),
            Err(error) => error,
        }
    }

    /// Puts a build in force: no position counts any more, and no row of ours stays. A table that is still as we made it is emptied, which
    /// keeps its rights, indexes and views; a changed one is dropped, and `prepare` makes it anew. What is not ours is left alone.
    async fn raise(&self, replica: &str, entry: &mut Entry, relation: Option<Relation>, build: u16) -> Result<(), Error> {
        let build_column = i32::from(build);
        self.client.execute(sql::RAISE_CURSORS, &[&replica, &build_column]).await.map_err(error::of("raising a build"))?;
        let ours = relation.filter(|r| {
            entry.identity == Some(r.oid) || (entry.identity.is_some() && r.is_table && r.comment.as_deref() == Some(&sql::comment(replica)))
        });
        let mut kept = None;
        if let Some(relation) = ours {
            let intact = match entry.contract.as_deref().map(parsed) {
                Some(Ok(remembered)) => self.columns(relation.oid).await?.difference(&remembered)?.is_none(),
                _ => false,
            };
            let act = if intact { "TRUNCATE TABLE" } else { "DROP TABLE" };
            let empty = format!("{act} {}", sql::qualified(&entry.schema_name, &entry.table_name));
            self.client.batch_execute(&empty).await.map_err(error::of("emptying a replica's table"))?;
            kept = intact.then_some(relation.oid);
        }
        entry.build = build;
        entry.identity = kept;
        entry.contract = entry.contract.take().filter(|_| kept.is_some());
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&replica, &entry.schema_name, &entry.table_name, &build_column, &entry.contract, &entry.identity];
        self.client.execute(sql::RAISE_REPLICA, &parameters).await.map_err(error::of("raising a build"))?;
        Ok(())
    }

    async fn transaction(&self) -> Result<(), Error> {
        self.in_transaction.set(true);
        self.client.batch_execute("BEGIN").await.map_err(error::of("beginning a transaction"))
    }

    async fn commit(&self) -> Result<(), Error> {
        self.client.batch_execute("COMMIT").await.map_err(error::of("committing"))?;
        self.in_transaction.set(false);
        Ok(())
    }

    /// Ends the transaction that an error left open.
    pub(super) async fn rollback(&self) -> Result<(), Error> {
        if self.in_transaction.get() {
            self.client.batch_execute("ROLLBACK").await.map_err(error::of("rolling back"))?;
            self.in_transaction.set(false);
        }
        Ok(())
    }

    async fn locked(&self, replica: &str) -> Result<Option<Entry>, Error> {
        let row = self.client.query_opt(sql::LOCK_REPLICA, &[&replica]).await.map_err(error::of("reading a replica's metadata"))?;
        let entry = |row: Row| {
            Ok(Entry {
                schema_name: get(&row, 0)?,
                table_name: get(&row, 1)?,
                build: build_of(get(&row, 2)?)?,
                contract: get(&row, 3)?,
                identity: get(&row, 4)?,
            })
        };
        row.map(entry).transpose()
    }

    async fn relation(&self, schema: &str, table: &str) -> Result<Option<Relation>, Error> {
        let row = self.client.query_opt(sql::RELATION, &[&schema, &table]).await.map_err(error::of("looking a table up"))?;
        row.map(|row| Ok(Relation { oid: get(&row, 0)?, is_table: get(&row, 1)?, comment: get(&row, 2)? })).transpose()
    }

    async fn columns(&self, oid: u32) -> Result<Found, Error> {
        let mut found = Found::default();
        for row in self.client.query(sql::COLUMNS, &[&oid]).await.map_err(error::of("looking columns up"))? {
            let name: String = get(&row, 0)?;
            if let Some(place) = get::<Option<i32>>(&row, 2)? {
                found.key.push((place, name.clone()));
            }
            let _ = found.types.insert(name, get(&row, 1)?);
        }
        found.key.sort_unstable();
        Ok(found)
    }

    async fn state(&self, schema: &str, target: &Target, partition: i32) -> Result<Option<State>, Error> {
        let table = sql::qualified(schema, &target.table);
        let row = self.client.query_opt(&self.cursor, &[&target.replica, &partition, &table]).await.map_err(error::of("reading a cursor"))?;
        row.map(|row| State::of(&row)).transpose()
    }
}

/// The columns of a table by name with their types, and the names of its key in order.
#[derive(Default)]
struct Found {
    types: HashMap<String, String>,
    key: Vec<(i32, String)>,
}

impl Found {
    /// What is not as a remembered schema says; further columns are their owner's business.
    fn difference(&self, remembered: &TableSchema) -> Result<Option<String>, Error> {
        let names = column_names(remembered)?;
        for (name, column) in names.iter().zip(remembered.columns()) {
            if self.types.get(name).map(String::as_str) != Some(&column_type(column.ty)) {
                return Ok(Some(format!("column {name:?}")));
            }
        }
        let key = remembered.key().iter().map(|at| &names[*at]);
        Ok((!key.eq(self.key.iter().map(|(_, name)| name))).then(|| "the key".to_owned()))
    }
}

/// A replica and one cursor of it, as `sql::CURSOR` reads them.
struct State {
    build: u16,
    identity: Option<u32>,
    live: Option<u32>,
    cursor: Option<StoredCursor>,
}

struct StoredCursor {
    fence: u64,
    build: u16,
    generation: i64,
    next: Option<i64>,
}

impl State {
    fn of(row: &Row) -> Result<Self, Error> {
        let cursor = match get::<Option<i64>>(row, 3)? {
            None => None,
            Some(stored) => Some(StoredCursor { fence: fence(stored), build: build_of(get(row, 4)?)?, generation: get(row, 5)?, next: get(row, 6)? }),
        };
        Ok(Self { build: build_of(get(row, 0)?)?, identity: get(row, 1)?, live: get(row, 2)?, cursor })
    }

    /// True where the table that we made is not there.
    fn lost(&self) -> bool {
        self.identity.is_some() && self.identity != self.live
    }
}

async fn ensure_parts(client: &Client, schema: &str) -> Result<(), Error> {
    let creating = error::of("creating the metadata");
    let parts = client.query_one(sql::PARTS, &[&schema]).await.map_err(error::of("looking for the metadata"))?;
    let (home, tables, replicas): (bool, bool, bool) = (get(&parts, 0)?, get(&parts, 1)?, get(&parts, 2)?);
    if home && tables && replicas {
        return Ok(());
    }
    // Only what is missing: a user without the right to create schemas can work in schemas that are there.
    let mut make = format!("BEGIN; {}", sql::LOCK_PARTS);
    if !home {
        make.push_str("; CREATE SCHEMA IF NOT EXISTS landfall");
    }
    if !replicas {
        make.push_str(&format!("; CREATE SCHEMA IF NOT EXISTS {}", sql::quoted(schema)));
    }
    if !tables {
        make.push_str("; ");
        make.push_str(sql::CREATE_METADATA);
    }
    make.push_str("; COMMIT");
    client.batch_execute(&make).await.map_err(creating)
}

fn get<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, Error> {
    row.try_get(column).map_err(error::of("reading the metadata"))
}

fn fence(stored: i64) -> u64 {
    stored.cast_unsigned()
}

fn build_of(stored: i32) -> Result<u16, Error> {
    u16::try_from(stored).map_err(|_| Error::new(Kind::Internal, format!("build {stored} of the metadata is out of range")))
}

fn next_build(replica: &str, build: u16) -> Result<u16, Error> {
    build.checked_add(1).ok_or_else(|| Error::new(Kind::Unsupported, format!("replica {replica:?} has no further build")))
}

fn parsed(text: &str) -> Result<TableSchema, Error> {
    contract::parse(text).map_err(|e| Error::with(Kind::Unsupported, "the metadata holds a contract that this build cannot read", e))
}

/// The names of a schema's columns in Postgres.
pub(super) fn column_names(schema: &TableSchema) -> Result<Vec<String>, Error> {
    postgres::column_names(schema).map_err(|e| Error::with(Kind::Unsupported, format!("{}: table {:?}: {e}", e.code(), schema.table()), e))
}

fn check_name(what: &str, name: &str) -> Result<(), Error> {
    match name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        true => Err(Error::new(Kind::Unsupported, format!("name of {what} {name:?} is empty, has NUL or more than {NAME_BYTES_MAX} bytes"))),
        false => Ok(()),
    }
}

fn superseded(replica: &str, build: u16) -> Error {
    Error::new(Kind::Build, format!("build {build} of replica {replica:?} is in force"))
}

/// The metadata of a replica vanished: it is opened anew, as one that the store does not know.
fn gone(replica: &str) -> Error {
    Error::new(Kind::Build, format!("the store knows nothing of replica {replica:?} any more"))
}
