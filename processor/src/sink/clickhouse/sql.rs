//! Every statement that the sink sends, and how names and texts are quoted in it.
//!
//! Values never stand in statements: rows travel as blocks, numbers of the cursor are numbers. Names of tables and columns come from
//! sources, so they may hold anything; quoting is what keeps them names. Statements of a landing are made once per target and kept.

use landfall_schemas::Column;
use landfall_schemas::store::clickhouse::column_type;

use crate::sink::{Target, VERSION_OFFSET_BITS};

/// The column with the row's version (`build * 2^48 + log offset + 1`).
pub(super) const VERSION: &str = "__LF_VERSION";
/// The column that is 1 in a tombstone.
pub(super) const DELETED: &str = "__LF_DELETED";
/// Metadata table: positions, fences and claims.
pub(super) const CURSOR: &str = "landfall_cursor";
/// Metadata table: builds, schemas and identities.
pub(super) const REPLICA: &str = "landfall_replica";
/// The identity of no table.
pub(super) const NO_IDENTITY: &str = "00000000-0000-0000-0000-000000000000";

/// What makes an insert durable before it is acknowledged: the part's files and its folder are synced, and parts made by merges too, since
/// they replace synced ones. All three are off by default (26.7).
const DURABLE: &str = "fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1";

/// Slots of the cursor's landings; slot 0 holds the claim. See `metadata`.
pub(super) const LANDING_SLOTS: u64 = 15;

/// Rows of the cursor table that a check reads, up to four for a fence: far more fences than are ever under way at once.
pub(super) const STATE_ROWS: usize = 60;

/// A name in backquotes.
pub(super) fn quote(name: &str) -> String {
    escaped(name, '`')
}

/// A text in single quotes.
pub(super) fn literal(text: &str) -> String {
    escaped(text, '\'')
}

fn escaped(text: &str, mark: char) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push(mark);
    for c in text.chars() {
        match c {
            '\0' => out.push_str("\\0"),
            '\\' => out.push_str("\\\\"),
            _ if c == mark => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out.push(mark);
    out
}

/// `database.table`, quoted.
pub(super) fn path(database: &str, table: &str) -> String {
    format!("{}.{}", quote(database), quote(table))
}

/// Name of the view of a replica table's live rows.
pub(super) fn live(table: &str) -> String {
    format!("{table}_live")
}

/// What a store is asked first: whether the database and the metadata are there, and how deduplication is turned off.
pub(super) fn hello(database: &str) -> String {
    let database = literal(database);
    format!(
        "SELECT ifNull((SELECT count() FROM system.databases WHERE name = {database}), 0) AS databases, \
         ifNull((SELECT count() FROM system.tables WHERE database = {database} AND name IN ('{CURSOR}', '{REPLICA}')), 0) AS metadata, \
         ifNull((SELECT count() FROM system.settings WHERE name = 'deduplicate_insert'), 0) AS deduplicates"
    )
}

/// Makes the database.
pub(super) fn create_database(database: &str) -> String {
    format!("CREATE DATABASE IF NOT EXISTS {} ENGINE = Atomic", quote(database))
}

/// Makes the metadata tables of INTERFACES.md section 5.
pub(super) fn create_metadata(database: &str) -> [String; 2] {
    [
        format!(
            "CREATE TABLE IF NOT EXISTS {} (\
             replica String COMMENT 'Id of the replica in the topology', \
             partition Int32 COMMENT 'Log partition', \
             generation UInt32 COMMENT 'Generation of the log', \
             build UInt16 COMMENT 'Build that the position belongs to', \
             fence UInt64 COMMENT 'Fence of the owner; the highest claimed one of a build counts', \
             slot UInt8 COMMENT '0 for the claim, else by landing', \
             claim UInt64 COMMENT 'Random mark of the claim; 0 for a landing', \
             landing UInt64 COMMENT 'Number of the landing under this fence; 0 for the claim', \
             next Nullable(Int64) COMMENT 'Next log offset to land', \
             schema String COMMENT 'Fingerprint of the contract that was landed', \
             version UInt64 COMMENT 'next + 1', \
             written DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'For people only') \
             ENGINE = ReplacingMergeTree(version) ORDER BY (replica, partition, generation, build, fence, slot, claim) \
             SETTINGS {DURABLE} COMMENT 'Positions of Landfall replicas'",
            path(database, CURSOR)
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (\
             replica String COMMENT 'Id of the replica in the topology', \
             build UInt16 COMMENT 'Build of the replica; the highest one is in force', \
             revision UInt64 COMMENT 'Order of the rows of a replica', \
             table String COMMENT 'Name of the replica table', \
             generation UInt32 COMMENT 'Generation of the log', \
             identity UUID COMMENT 'UUID of the replica table that rows of the build are landed into', \
             contract String COMMENT 'Schema that the table was prepared for', \
             written DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'For people only') \
             ENGINE = MergeTree ORDER BY (replica, build, revision) \
             SETTINGS {DURABLE} COMMENT 'Builds and schemas of Landfall replicas'",
            path(database, REPLICA)
        ),
    ]
}

/// Everything remembered of a replica.
pub(super) fn history(database: &str, replica: &str) -> String {
    format!(
        "SELECT build, revision, `table`, generation, toString(identity) AS identity, contract FROM {} WHERE replica = {}",
        path(database, REPLICA),
        literal(replica)
    )
}

/// The highest build that a partition of a replica was claimed for.
pub(super) fn claimed(database: &str, replica: &str) -> String {
    format!("SELECT maxOrNull(build) FROM {} WHERE replica = {} AND slot = 0", path(database, CURSOR), literal(replica))
}

/// Remembers a row of [`history`].
pub(super) fn remember(database: &str, replica: &str, row: &super::metadata::Remembered) -> String {
    format!(
        "INSERT INTO {} (replica, build, revision, `table`, generation, identity, contract) VALUES ({}, {}, {}, {}, {}, {}, {})",
        path(database, REPLICA),
        literal(replica),
        row.build,
        row.revision,
        literal(&row.table),
        row.generation,
        literal(&row.identity),
        literal(&row.contract)
    )
}

/// A table and its view as the catalogue knows them.
pub(super) fn tables(database: &str, table: &str) -> String {
    format!(
        "SELECT name, engine, toString(uuid) AS identity, sorting_key, engine_full, comment FROM system.tables WHERE database = {} AND name IN ({}, {})",
        literal(database),
        literal(table),
        literal(&live(table))
    )
}

/// Their columns.
pub(super) fn columns(database: &str, table: &str) -> String {
    format!(
        "SELECT table, name, type FROM system.columns WHERE database = {} AND table IN ({}, {}) ORDER BY table, position",
        literal(database),
        literal(table),
        literal(&live(table))
    )
}

/// The comment of a table, by which it is known as a replica's.
pub(super) fn table_comment(replica: &str, build: u16) -> String {
    format!("landfall replica {replica:?}, build {build}")
}

/// The comment of a view.
pub(super) fn view_comment(replica: &str, build: u16) -> String {
    format!("live rows of landfall replica {replica:?}, build {build}")
}

/// The column of a replica table: a key column as it is, any other Nullable, whatever the source says, since a tombstone has none of them.
pub(super) fn column_type_text(column: &Column, in_key: bool) -> String {
    let ty = column_type(column.ty);
    if in_key || !ty.is_nullable() { ty.to_string() } else { format!("Nullable({ty})") }
}

/// Makes the replica table; `replace` puts it in the place of an earlier build's at one stroke.
pub(super) fn create_table(database: &str, target: &Target, replace: bool) -> String {
    let schema = &target.schema;
    let columns: Vec<String> = schema
        .columns()
        .iter()
        .enumerate()
        .map(|(at, c)| format!("{} {}", quote(&c.name), column_type_text(c, schema.key().contains(&at))))
        .collect();
    let key: Vec<String> = schema.key_columns().map(|c| quote(&c.name)).collect();
    format!(
        "CREATE {} {} ({}, {VERSION} UInt64, {DELETED} UInt8) \
         ENGINE = ReplacingMergeTree({VERSION}, {DELETED}) ORDER BY ({}) SETTINGS {DURABLE} COMMENT {}",
        if replace { "OR REPLACE TABLE" } else { "TABLE IF NOT EXISTS" },
        path(database, &target.table),
        columns.join(", "),
        key.join(", "),
        literal(&table_comment(&target.replica, target.build))
    )
}

/// Adds columns to a replica table.
pub(super) fn add_columns(database: &str, table: &str, columns: &[&Column]) -> String {
    let added: Vec<String> = columns.iter().map(|c| format!("ADD COLUMN IF NOT EXISTS {} {}", quote(&c.name), column_type_text(c, false))).collect();
    format!("ALTER TABLE {} {}", path(database, table), added.join(", "))
}

/// Removes the rows of earlier builds. They do not show and never count, so this gives space back and nothing else; rows of the build and
/// of later ones stand above its bound, whenever they are landed.
pub(super) fn purge(database: &str, table: &str, build: u16) -> String {
    format!("ALTER TABLE {} DELETE WHERE {VERSION} < {}", path(database, table), u64::from(build) << VERSION_OFFSET_BITS)
}

/// Makes the view of the live rows of a build: the user's columns of what is not deleted and not of an earlier build.
pub(super) fn create_view(database: &str, table: &str, replica: &str, build: u16, columns: &[&str]) -> String {
    let columns: Vec<String> = columns.iter().map(|c| quote(c)).collect();
    format!(
        "CREATE OR REPLACE VIEW {} AS SELECT {} FROM {} FINAL WHERE {DELETED} = 0 AND {VERSION} >= {} COMMENT {}",
        path(database, &live(table)),
        columns.join(", "),
        path(database, table),
        u64::from(build) << VERSION_OFFSET_BITS,
        literal(&view_comment(replica, build))
    )
}

/// The statements of landings into one target.
#[derive(Debug)]
pub(super) struct Statements {
    /// Takes blocks of rows.
    pub(super) insert_rows: String,
    state: String,
    insert_cursor: String,
}

/// A row of the cursor table.
#[derive(Clone, Copy, Debug)]
pub(super) struct CursorRow<'a> {
    pub(super) partition: i32,
    pub(super) fence: u64,
    pub(super) claim: u64,
    pub(super) landing: u64,
    pub(super) next: Option<i64>,
    pub(super) schema: &'a str,
}

impl Statements {
    pub(super) fn new(database: &str, target: &Target) -> Self {
        let names: Vec<String> = target.schema.columns().iter().map(|c| quote(&c.name)).collect();
        let replica = literal(&target.replica);
        let cursor = path(database, CURSOR);
        Self {
            insert_rows: format!("INSERT INTO {} ({}, {VERSION}, {DELETED}) FORMAT Native", path(database, &target.table), names.join(", ")),
            state: format!(
                "SELECT (SELECT groupUniqArray((build, toString(identity))) FROM {} WHERE replica = {replica}) AS builds, \
                 (SELECT toString(uuid) FROM system.tables WHERE database = {} AND name = {}) AS identity, \
                 (SELECT groupArray((generation, build, fence, slot, claim, landing, next)) FROM \
                 (SELECT generation, build, fence, slot, claim, landing, next FROM {cursor} WHERE replica = {replica}",
                path(database, REPLICA),
                literal(database),
                literal(&target.table)
            ),
            insert_cursor: format!(
                "INSERT INTO {cursor} (replica, generation, build, partition, fence, slot, claim, landing, next, version, schema) VALUES \
                 ({replica}, {}, {}",
                target.generation, target.build
            ),
        }
    }

    /// Reads what a claim or a landing goes by: of the highest fences, or of all where those did not tell.
    pub(super) fn state(&self, partition: i32, all: bool) -> String {
        let limit = if all { String::new() } else { format!(" LIMIT {STATE_ROWS}") };
        format!(
            "{} AND partition = {partition} ORDER BY fence DESC, slot = 0 DESC, landing DESC, next DESC \
             LIMIT 2 BY generation, build, fence, slot = 0{limit})) AS entries",
            self.state
        )
    }

    /// Writes a row of the cursor table.
    pub(super) fn insert_cursor(&self, row: &CursorRow<'_>) -> String {
        let CursorRow { partition, fence, claim, landing, next, schema } = *row;
        let slot = if landing == 0 { 0 } else { 1 + landing % LANDING_SLOTS };
        let version = next.map_or(0, |next| next.cast_unsigned() + 1);
        let next = next.map_or_else(|| "NULL".to_owned(), |next| next.to_string());
        format!("{}, {partition}, {fence}, {slot}, {claim}, {landing}, {next}, {version}, '{schema}')", self.insert_cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_leaves_no_way_out() {
        assert_eq!(quote("plain"), "`plain`");
        assert_eq!(quote("a`b\\c"), "`a\\`b\\\\c`");
        assert_eq!(literal("it's \0 \\"), "'it\\'s \\0 \\\\'");
        assert_eq!(path("d b", "t.x"), "`d b`.`t.x`");
    }
}
