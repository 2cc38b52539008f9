//! Every statement that the sink sends, and the quoting of names.
//!
//! Statements about the metadata are constants with parameters. Those about a replica's table hold its names, quoted here and nowhere else,
//! and are made once per connection and schema. Names come from topologies and sources, so they may hold anything but NUL.

use landfall_schemas::store::postgres::{column_type, equality_is_identity};
use landfall_schemas::{Column, TableSchema};

/// Which of our parts exist: the schema of the metadata, its two tables, the schema of the replicas (`$1`).
pub(super) const PARTS: &str = "\
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'landfall'), \
to_regclass('landfall.replica') IS NOT NULL AND to_regclass('landfall.cursor') IS NOT NULL, \
EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)";

/// Held while the parts are made: `IF NOT EXISTS` alone fails where two processes begin at once.
pub(super) const LOCK_PARTS: &str = "SELECT pg_advisory_xact_lock(7810211085530)";

/// The metadata of INTERFACES.md section 5.
pub(super) const CREATE_METADATA: &str = "\
CREATE TABLE IF NOT EXISTS landfall.replica (\
replica text PRIMARY KEY, schema_name text NOT NULL, table_name text NOT NULL, shape text NOT NULL DEFAULT 'upsert', \
build integer NOT NULL, generation bigint, contract text, identity oid); \
CREATE TABLE IF NOT EXISTS landfall.cursor (\
replica text, partition integer, next_offset bigint, fence bigint NOT NULL, generation bigint NOT NULL, build integer NOT NULL, \
schema_id text, PRIMARY KEY (replica, partition)) WITH (fillfactor = 50)";

/// Puts a replica into the metadata where it is not there yet: replica, schema, table, build.
pub(super) const INSERT_REPLICA: &str = "\
INSERT INTO landfall.replica (replica, schema_name, table_name, build) VALUES ($1, $2, $3, $4) ON CONFLICT (replica) DO NOTHING";

/// A replica's entry, locked against claims and other changes of it.
pub(super) const LOCK_REPLICA: &str = "\
SELECT schema_name, table_name, build, contract, identity FROM landfall.replica WHERE replica = $1 FOR UPDATE";

/// Raises the build: replica, schema, table, build, contract, identity.
pub(super) const RAISE_REPLICA: &str = "\
UPDATE landfall.replica SET schema_name = $2, table_name = $3, build = $4, contract = $5, identity = $6 WHERE replica = $1";

/// Takes every cursor of a replica into a build, without a position.
pub(super) const RAISE_CURSORS: &str = "UPDATE landfall.cursor SET build = $2, next_offset = NULL, schema_id = NULL WHERE replica = $1";

/// Remembers what a table was prepared for: replica, generation, contract, identity.
pub(super) const REMEMBER: &str = "UPDATE landfall.replica SET generation = $2, contract = $3, identity = $4 WHERE replica = $1";

/// A relation by schema and name, its kind and its comment.
pub(super) const RELATION: &str = "\
SELECT c.oid, c.relkind = 'r', obj_description(c.oid, 'pg_class') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
WHERE n.nspname = $1 AND c.relname = $2";

/// The replica whose table a relation is.
pub(super) const OWNER: &str = "SELECT replica FROM landfall.replica WHERE identity = $1";

/// The columns of a table, and their place in its primary key.
pub(super) const COLUMNS: &str = "\
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), array_position(i.indkey::smallint[], a.attnum) \
FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary \
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

/// Takes a partition over: replica, partition, build, generation, table. No row where the build is not in force or the table is gone.
pub(super) const CLAIM: &str = "\
WITH r AS (SELECT FROM landfall.replica WHERE replica = $1 AND build = $3 AND (identity IS NULL OR identity = to_regclass($5)::oid) FOR SHARE) \
INSERT INTO landfall.cursor AS c (replica, partition, build, generation, fence) SELECT $1, $2, $3, $4, 1 FROM r \
ON CONFLICT (replica, partition) DO UPDATE SET fence = c.fence + 1, \
next_offset = CASE WHEN c.build = excluded.build AND c.generation = excluded.generation THEN c.next_offset END, \
build = excluded.build, generation = excluded.generation RETURNING fence, next_offset";

/// Everything that says whether a landing may be: replica, partition, table.
pub(super) const CURSOR: &str = "\
SELECT r.build, r.identity, to_regclass($3)::oid, c.fence, c.build, c.generation, c.next_offset \
FROM landfall.replica r LEFT JOIN landfall.cursor c ON c.replica = r.replica AND c.partition = $2 WHERE r.replica = $1";

/// The compare-and-set of a landing: replica, partition, fence, build, generation, expected, next, schema id, table, whether there are rows.
///
/// Where no cursor is as it should be, it casts a text that says so to a number: an error stops the statements sent behind it, an empty result
/// would not, and the server's log explains itself. Rows need the table that is ours; a landing without rows may come before there is one.
pub(super) const MOVE_CURSOR: &str = "\
WITH moved AS (UPDATE landfall.cursor SET next_offset = $7, schema_id = $8 \
WHERE replica = $1 AND partition = $2 AND fence = $3 AND build = $4 AND generation = $5 AND next_offset IS NOT DISTINCT FROM $6 \
AND (SELECT r.identity = to_regclass($9)::oid OR (r.identity IS NULL AND NOT $10) FROM landfall.replica r WHERE r.replica = $1) RETURNING 1) \
SELECT CASE count(*) WHEN 1 THEN 1 ELSE ('landfall: cursors as expected: ' || count(*))::integer END FROM moved";

/// A name as SQL writes it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as SQL writes it.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Schema and table.
pub(super) fn qualified(schema: &str, table: &str) -> String {
    format!("{}.{}", quoted(schema), quoted(table))
}

/// The comment that a table of ours bears: it outlives a dump and its restoring, which give tables new identities.
pub(super) fn comment(replica: &str) -> String {
    format!("Replica {replica:?}, kept by Landfall.")
}

/// Creates a replica's table. Only the key is NOT NULL: every other column travels as nullable, and schemas only widen.
pub(super) fn create_table(table: &str, replica: &str, schema: &TableSchema, names: &[String]) -> String {
    let mut sql = format!("CREATE TABLE {table} (");
    for (name, column) in names.iter().zip(schema.columns()) {
        sql.push_str(&format!("{} {}, ", quoted(name), column_type(column.ty)));
    }
    let key = joined(schema.key().iter().map(|at| quoted(&names[*at])));
    sql.push_str(&format!("PRIMARY KEY ({key})); COMMENT ON TABLE {table} IS {}", literal(&comment(replica))));
    sql
}

/// Adds columns, all of them in one statement: the table is locked once.
pub(super) fn add_columns<'a>(table: &str, columns: impl Iterator<Item = (&'a String, &'a Column)>) -> String {
    let columns = joined(columns.map(|(name, column)| format!("ADD COLUMN {} {}", quoted(name), column_type(column.ty))));
    format!("ALTER TABLE {table} {columns}")
}

/// The stage of a table and the statements over it.
#[derive(Debug)]
pub(super) struct StageTexts {
    /// Its qualified name.
    pub(super) name: String,
    /// Creates it.
    pub(super) create: String,
    /// Fills it.
    pub(super) copy: String,
    /// Rows of batch `$1` into the table.
    pub(super) upsert: String,
    /// Tombstones of batch `$1` out of the table.
    pub(super) delete: String,
}

/// Makes the statements for landing a target's rows through the stage of a number.
///
/// The stage is a temporary table of this connection with plain column names. It keeps the rows of earlier batches until it is emptied, so
/// each row bears the number of its batch: emptying it at every commit costs more than a small landing (`land`).
pub(super) fn stage(number: usize, table: &str, schema: &TableSchema, names: &[String]) -> StageTexts {
    let name = format!("pg_temp.landfall_stage_{number}");
    let columns = schema.columns();
    let all = || (0..columns.len()).map(|at| format!("c{at}"));
    let typed = joined(columns.iter().enumerate().map(|(at, c)| format!("c{at} {}", column_type(c.ty))));
    let key_names = joined(schema.key().iter().map(|at| quoted(&names[*at])));
    let matched: Vec<String> = schema.key().iter().map(|at| format!("t.{} = s.c{at}", quoted(&names[*at]))).collect();
    StageTexts {
        create: format!("CREATE TEMP TABLE landfall_stage_{number} (n integer, {typed})"),
        copy: format!("COPY {name} (n, {}) FROM STDIN (FORMAT binary)", joined(all())),
        upsert: format!(
            "INSERT INTO {table} AS t ({}) SELECT {} FROM {name} WHERE n = $1 ON CONFLICT ({key_names}) {}",
            joined(names.iter().map(|n| quoted(n))),
            joined(all()),
            on_conflict(schema, names)
        ),
        delete: format!("DELETE FROM {table} AS t USING {name} AS s WHERE s.n = -$1 AND {}", matched.join(" AND ")),
        name,
    }
}

/// What happens to a row that is there: it takes the new values, unless it has them already, so that landing again writes nothing.
///
/// "Has them" means the same to the last bit. Where `=` is coarser than that (-0 and 0, 1.0 and 1.00, numbers inside documents) the images of
/// the values are compared (`*<>`); a key column is set too where equal keys may look different.
fn on_conflict(schema: &TableSchema, names: &[String]) -> String {
    let (mut set, mut plain, mut images) = (Vec::new(), Vec::new(), Vec::new());
    for (at, (name, column)) in names.iter().zip(schema.columns()).enumerate() {
        let identity = equality_is_identity(column.ty);
        if schema.key().contains(&at) && identity {
            continue;
        }
        let name = quoted(name);
        if identity { &mut plain } else { &mut images }.push(name.clone());
        set.push(format!("{name} = excluded.{name}"));
    }
    if set.is_empty() {
        return "DO NOTHING".to_owned();
    }
    let row = |of: &str, names: &[String]| format!("ROW({})", joined(names.iter().map(|n| format!("{of}.{n}"))));
    let mut changed = Vec::new();
    if !plain.is_empty() {
        changed.push(format!("{} IS DISTINCT FROM {}", row("t", &plain), row("excluded", &plain)));
    }
    if !images.is_empty() {
        changed.push(format!("{}::record OPERATOR(pg_catalog.*<>) {}::record", row("t", &images), row("excluded", &images)));
    }
    format!("DO UPDATE SET {} WHERE {}", set.join(", "), changed.join(" OR "))
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(columns: &[(&str, &str)], key: &[&str]) -> (TableSchema, Vec<String>) {
        let columns = columns.iter().map(|(n, t)| Column { name: (*n).to_owned(), ty: t.parse().expect(t), nullable: true }).collect();
        let schema = TableSchema::new("t", columns, key).expect("valid");
        let names = landfall_schemas::store::postgres::column_names(&schema).expect("names");
        (schema, names)
    }

    #[test]
    fn names_and_texts_are_quoted() {
        assert_eq!(qualified("a\"b", "select"), "\"a\"\"b\".\"select\"");
        let (schema, names) = schema(&[("na\"me; --", "text")], &["na\"me; --"]);
        let sql = create_table("\"s\".\"t\"", "o'ne", &schema, &names);
        assert!(sql.contains("(\"na\"\"me; --\" text, PRIMARY KEY (\"na\"\"me; --\"))"), "{sql}");
        assert!(sql.ends_with("IS 'Replica \"o''ne\", kept by Landfall.'"), "{sql}");
    }

    #[test]
    fn an_unchanged_row_is_told_by_value_or_by_image() {
        let (s, names) = schema(&[("id", "int32"), ("a", "text"), ("f", "float64")], &["id"]);
        assert_eq!(
            on_conflict(&s, &names),
            "DO UPDATE SET \"a\" = excluded.\"a\", \"f\" = excluded.\"f\" WHERE ROW(t.\"a\") IS DISTINCT FROM ROW(excluded.\"a\") \
             OR ROW(t.\"f\")::record OPERATOR(pg_catalog.*<>) ROW(excluded.\"f\")::record"
        );
        let (s, names) = schema(&[("id", "numeric")], &["id"]);
        assert_eq!(
            on_conflict(&s, &names),
            "DO UPDATE SET \"id\" = excluded.\"id\" WHERE ROW(t.\"id\")::record OPERATOR(pg_catalog.*<>) ROW(excluded.\"id\")::record"
        );
        let (s, names) = schema(&[("id", "decimal(9,2)")], &["id"]);
        assert_eq!(on_conflict(&s, &names), "DO NOTHING");
    }

    #[test]
    fn the_key_of_a_stage_is_in_key_order() {
        let (s, names) = schema(&[("v", "text"), ("a", "int32"), ("b", "date")], &["b", "a"]);
        let texts = stage(3, "\"s\".\"t\"", &s, &names);
        assert_eq!(texts.create, "CREATE TEMP TABLE landfall_stage_3 (n integer, c0 text, c1 integer, c2 date)");
        assert_eq!(texts.copy, "COPY pg_temp.landfall_stage_3 (n, c0, c1, c2) FROM STDIN (FORMAT binary)");
        assert!(texts.upsert.contains("ON CONFLICT (\"b\", \"a\") DO UPDATE SET \"v\" = excluded.\"v\""), "{}", texts.upsert);
        assert!(texts.delete.ends_with("WHERE s.n = -$1 AND t.\"b\" = s.c2 AND t.\"a\" = s.c1"), "{}", texts.delete);
    }
}
