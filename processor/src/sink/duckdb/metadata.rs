//! What the file remembers of replicas, and whether a table is ours.
//!
//! A table is ours where its comment is the mark that the replica's row names: the comment goes with the table, so one that was dropped and made
//! again by somebody else is foreign, and left alone. Everything here runs inside the caller's transaction and never begins or ends one.

use std::collections::BTreeMap;

use duckdb::{Connection, OptionalExt as _, params};
use landfall_schemas::store::duckdb as types;
use landfall_schemas::table::Evolution;
use landfall_schemas::{TableSchema, contract};

use super::sql::Place;
use super::{error, sql};
use crate::sink::{Cursor, Error, Kind, Target};

/// Where a store's replicas stand: the open database and the schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home<'a> {
    pub(super) catalog: &'a str,
    pub(super) schema: &'a str,
}

impl<'a> Home<'a> {
    /// Where a table of the store stands.
    pub(super) const fn place(self, table: &'a str) -> Place<'a> {
        Place { catalog: self.catalog, schema: self.schema, table }
    }
}

/// Makes what a store needs in its file, and tells how DuckDB calls the database.
pub(super) fn begin(connection: &Connection, schema: &str) -> Result<String, Error> {
    let catalog = query(connection, sql::CATALOG, params![], |row| row.get::<_, String>(0))?;
    let catalog = catalog.ok_or_else(|| Error::new(Kind::Internal, "DuckDB has no name for its database"))?;
    run(connection, &sql::begin(&catalog, schema))?;
    Ok(catalog)
}

/// A replica as the file knows it.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// Name of the open database.
    catalog: String,
    /// Schema of its table.
    schema_name: String,
    /// Name of its table.
    pub(super) table: String,
    /// Build in force.
    pub(super) build: u16,
    /// Schema that the table was prepared for; `None` where it has no table yet.
    pub(super) schema: Option<TableSchema>,
    /// The table's mark.
    mark: Option<String>,
}

/// What stands under a table's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Ours,
    Other,
}

/// The state of the table of a replica that has one, for a caller that is about to rely on it.
#[derive(Debug)]
pub(super) enum Reliance {
    /// It is there and ours, or was never made.
    Sound,
    /// It was dropped; another build is in force now, so everything lands again.
    Raised(Error),
}

impl Stored {
    /// Reads what is known of a replica.
    pub(super) fn read(connection: &Connection, replica: &str) -> Result<Option<Self>, Error> {
        let row = query(connection, sql::READ_REPLICA, params![replica], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get::<_, Option<String>>(4)?, row.get(5)?))
        })?;
        let Some((catalog, schema_name, table, build, text, mark)) = row else { return Ok(None) };
        let schema = text.as_deref().map(contract::parse).transpose().map_err(|e| {
            let kind = if matches!(e, contract::ContractError::Version { .. }) { Kind::Unsupported } else { Kind::Internal };
            Error::with(kind, format!("the stored schema of replica {replica:?} does not read"), e)
        })?;
        Ok(Some(Self { catalog, schema_name, table, build, schema, mark }))
    }

    /// Reads what is known of the replica of a target; refused where the target's build is not in force.
    pub(super) fn of_target(connection: &Connection, home: Home<'_>, target: &Target) -> Result<Self, Error> {
        let stored = Self::read(connection, &target.replica)?.ok_or_else(|| unknown(target))?;
        if stored.build != target.build || !stored.place().is(home.place(&target.table)) {
            return Err(superseded(&target.replica, stored.build));
        }
        Ok(stored)
    }

    /// Where its table stands.
    pub(super) fn place(&self) -> Place<'_> {
        Place { catalog: &self.catalog, schema: &self.schema_name, table: &self.table }
    }

    /// Makes sure that the replica's table may be relied on, where it has one. A foreign table under its name is refused.
    pub(super) fn rely(&self, connection: &Connection, replica: &str) -> Result<Reliance, Error> {
        if self.schema.is_none() {
            return Ok(Reliance::Sound);
        }
        match self.find(connection, self.place())? {
            Found::Ours => Ok(Reliance::Sound),
            Found::Other => Err(foreign(connection, replica, self.place())?),
            Found::Nothing => {
                let build = self.raise(connection, replica, self.place(), None)?;
                let detail = format!("table {:?} of replica {replica:?} was dropped; build {build} is in force", self.table);
                Ok(Reliance::Raised(Error::new(Kind::Build, detail)))
            }
        }
    }

    /// Puts a higher build in force: the one asked for, or the next. The table is made anew, empty, where it is ours; one under another name
    /// than before is left where it is.
    pub(super) fn raise(&self, connection: &Connection, replica: &str, place: Place<'_>, asked: Option<u16>) -> Result<u16, Error> {
        let next = self.build.checked_add(1).ok_or_else(|| Error::new(Kind::Unsupported, format!("replica {replica:?} has used up its builds")))?;
        let build = asked.map_or(next, |asked| asked.max(next));
        let (mut text, mut mark) = (None, None);
        if let Some(schema) = self.schema.as_ref().filter(|_| self.place().is(place)) {
            match self.find(connection, place)? {
                Found::Ours => {
                    run(connection, &sql::drop_table(self.place()))?;
                    mark = Some(create(connection, place, schema)?);
                    text = Some(contract::of(schema).0);
                }
                Found::Other => return Err(foreign(connection, replica, place)?),
                Found::Nothing => {}
            }
        }
        execute(connection, sql::RAISE_BUILD, params![place.schema, place.table, build, text, mark, replica])?;
        Ok(build)
    }

    /// Whether the table of a replica has to be given up: it was dropped, or the replica was given another table.
    pub(super) fn lost(&self, connection: &Connection, replica: &str, place: Place<'_>) -> Result<bool, Error> {
        if self.schema.is_none() {
            return Ok(false);
        }
        if !self.place().is(place) {
            return Ok(true);
        }
        match self.find(connection, place)? {
            Found::Ours => Ok(false),
            Found::Nothing => Ok(true),
            Found::Other => Err(foreign(connection, replica, place)?),
        }
    }

    /// Creates the table of a target, or widens it, and remembers its schema. Columns that a later schema lacks stay.
    pub(super) fn cover(&self, connection: &Connection, target: &Target) -> Result<(), Error> {
        let (replica, table, place) = (&target.replica, &target.table, self.place());
        let fresh = |connection| -> Result<(TableSchema, String), Error> {
            Ok((TableSchema::clone(&target.schema), create(connection, place, &target.schema)?))
        };
        let (schema, mark) = match &self.schema {
            None if self.find(connection, place)? == Found::Nothing && owner(connection, replica, place)?.is_none() => fresh(connection)?,
            None => return Err(foreign(connection, replica, place)?),
            Some(schema) => match schema.compare(&target.schema) {
                Evolution::Covers { added, .. } => {
                    let wider = schema.with_columns(&added);
                    check_names(&wider)?;
                    check_columns(connection, place, schema)?;
                    for column in &added {
                        run(connection, &sql::add_column(place, column))?;
                    }
                    (wider, self.mark.clone().unwrap_or_default())
                }
                // A table that nothing has landed in yet may still take any shape; this is how a new generation gets its own.
                _ if !has_landed(connection, target)? => {
                    run(connection, &sql::drop_table(place))?;
                    fresh(connection)?
                }
                Evolution::TypeChanged { column, from, to } => {
                    let detail = format!("column {column:?} of table {table:?} is {from} and was asked to be {to}");
                    return Err(Error::new(Kind::TableChanged, detail));
                }
                Evolution::KeyChanged { from, to } => {
                    let detail = format!("table {table:?} has key ({}) and was asked to have ({})", from.join(", "), to.join(", "));
                    return Err(Error::new(Kind::TableChanged, detail));
                }
            },
        };
        execute(connection, sql::UPDATE_REPLICA, params![target.generation, contract::of(&schema).0, mark, replica])?;
        Ok(())
    }

    fn find(&self, connection: &Connection, place: Place<'_>) -> Result<Found, Error> {
        let comment = query(connection, sql::READ_TABLE, params![place.schema, place.table], |row| row.get::<_, String>(0))?;
        match comment {
            Some(comment) if self.mark.as_ref() == Some(&comment) => Ok(Found::Ours),
            Some(_) => Ok(Found::Other),
            None => {
                let views = query(connection, sql::READ_VIEW, params![place.schema, place.table], |row| row.get::<_, i64>(0))?;
                Ok(if views == Some(0) { Found::Nothing } else { Found::Other })
            }
        }
    }
}

/// Remembers a replica that the file does not know.
pub(super) fn insert(connection: &Connection, replica: &str, place: Place<'_>, build: u16) -> Result<(), Error> {
    execute(connection, sql::INSERT_REPLICA, params![replica, place.schema, place.table, build])
}

/// A cursor, with the generation of the log that it belongs to.
pub(super) type Placed = (Cursor, u32);

/// Reads the build in force of a replica and the cursor of a partition; `None` for a replica that the file does not know.
pub(super) fn cursor_and_build(connection: &Connection, replica: &str, partition: i32) -> Result<Option<(u16, Option<Placed>)>, Error> {
    query(connection, sql::READ_CURSOR, params![partition, replica], |row| {
        let next = row.get(4)?;
        let cursor = match (row.get(1)?, row.get(2)?, row.get(3)?) {
            (Some(fence), Some(generation), Some(build)) => Some((Cursor { fence, build, next }, generation)),
            _ => None,
        };
        Ok((row.get(0)?, cursor))
    })
}

/// Reads the cursor of a partition.
pub(super) fn cursor(connection: &Connection, replica: &str, partition: i32) -> Result<Option<Placed>, Error> {
    Ok(cursor_and_build(connection, replica, partition)?.and_then(|(_, cursor)| cursor))
}

/// The error for a build that is not in force.
pub(super) fn superseded(replica: &str, build: u16) -> Error {
    Error::new(Kind::Build, format!("build {build} of replica {replica:?} is in force"))
}

/// Refuses the columns of a schema that DuckDB cannot hold apart.
pub(super) fn check_names(schema: &TableSchema) -> Result<(), Error> {
    types::column_names(schema).map(drop).map_err(|e| Error::new(Kind::Unsupported, format!("{}: {e}", e.code())))
}

/// The error for a replica that is gone: the file was put back or made anew.
pub(super) fn unknown(target: &Target) -> Error {
    Error::new(Kind::Build, format!("the file does not know replica {:?}", target.replica))
}

fn owner(connection: &Connection, replica: &str, place: Place<'_>) -> Result<Option<String>, Error> {
    query(connection, sql::READ_OWNER, params![place.schema, place.table, replica], |row| row.get(0))
}

fn foreign(connection: &Connection, replica: &str, place: Place<'_>) -> Result<Error, Error> {
    let whose = match owner(connection, replica, place)? {
        Some(owner) => format!("belongs to replica {owner:?}"),
        None => format!("is not one that Landfall made for replica {replica:?}"),
    };
    Ok(Error::new(Kind::TableExists, format!("table {:?} of schema {:?} {whose}", place.table, place.schema)))
}

fn has_landed(connection: &Connection, target: &Target) -> Result<bool, Error> {
    let count = query(connection, sql::HAS_LANDED, params![target.replica, target.build], |row| row.get::<_, i64>(0))?;
    Ok(count.is_some_and(|n| n > 0))
}

fn check_columns(connection: &Connection, place: Place<'_>, schema: &TableSchema) -> Result<(), Error> {
    let table = place.table;
    let what = "read the columns of a table";
    let mut statement = connection.prepare_cached(sql::READ_COLUMNS).map_err(|e| error::of(what, &e))?;
    let rows = statement.query_map(params![place.schema, table], |row| Ok((row.get::<_, String>(0)?.to_ascii_lowercase(), row.get::<_, String>(1)?)));
    let columns: BTreeMap<String, String> = rows.and_then(Iterator::collect).map_err(|e| error::of(what, &e))?;
    for column in schema.columns() {
        let expected = types::column_type(column.ty);
        match columns.get(&column.name.to_ascii_lowercase()) {
            Some(found) if *found == expected => {}
            Some(found) => {
                let detail = format!("column {:?} of table {table:?} has type {found} and was made as {expected}", column.name);
                return Err(Error::new(Kind::TableChanged, detail));
            }
            None => return Err(Error::new(Kind::TableChanged, format!("table {table:?} has lost its column {:?}", column.name))),
        }
    }
    Ok(())
}

fn create(connection: &Connection, place: Place<'_>, schema: &TableSchema) -> Result<String, Error> {
    check_names(schema)?;
    run(connection, &sql::create_table(place, schema))?;
    let mark = query(connection, sql::NEW_MARK, params![], |row| row.get::<_, String>(0))?;
    let mark = mark.ok_or_else(|| Error::new(Kind::Internal, "DuckDB made no mark for a table"))?;
    run(connection, &sql::mark_table(place, &mark))?;
    Ok(mark)
}

/// Runs a statement without parameters.
pub(super) fn run(connection: &Connection, statement: &str) -> Result<(), Error> {
    connection.execute_batch(statement).map_err(|e| error::of(&doing(statement), &e))
}

/// Runs a statement of fixed text.
pub(super) fn execute(connection: &Connection, statement: &str, params: impl duckdb::Params) -> Result<(), Error> {
    let result = connection.prepare_cached(statement).and_then(|mut s| s.execute(params));
    result.map(drop).map_err(|e| error::of(&doing(statement), &e))
}

fn query<T>(
    connection: &Connection,
    statement: &str,
    params: impl duckdb::Params,
    read: impl FnOnce(&duckdb::Row<'_>) -> duckdb::Result<T>,
) -> Result<Option<T>, Error> {
    let result = connection.prepare_cached(statement).and_then(|mut s| s.query_row(params, read).optional());
    result.map_err(|e| error::of(&doing(statement), &e))
}

/// What a statement does, for messages: its first words, which hold no value.
fn doing(statement: &str) -> String {
    statement.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}
