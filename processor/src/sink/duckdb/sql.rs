//! Every statement that the sink sends, and how names get into it.
//!
//! Texts that depend on a table are made once per target and kept ([`Statements`]). Values are always parameters, names always quoted; nothing
//! else enters a text. DuckDB compares names without regard to ASCII case, so look-ups by name fold it.

use landfall_schemas::store::duckdb as types;
use landfall_schemas::{Column, TableSchema};

/// Schema of the stages, in the temporary database of a connection: it has no other.
pub(super) const STAGE_SCHEMA: &str = "main";

/// The name of the open database, which DuckDB takes from its file's.
pub(super) const CATALOG: &str = "SELECT current_database()";

/// Creates the metadata (INTERFACES.md, section 5) and the schema of the replicas, and looks names up in the metadata from now on. No primary
/// keys: rows are unique since one process at a time writes, in one transaction at a time, and every index is one more thing to replay.
pub(super) fn begin(catalog: &str, schema: &str) -> String {
    let home = format!("{}.landfall", quote(catalog));
    let path = literal(&home);
    format!(
        "CREATE SCHEMA IF NOT EXISTS {home};
CREATE TABLE IF NOT EXISTS {home}.replica (replica VARCHAR NOT NULL, schema_name VARCHAR NOT NULL, table_name VARCHAR NOT NULL, \
generation UINTEGER NOT NULL, build USMALLINT NOT NULL, contract VARCHAR, identity VARCHAR);
CREATE TABLE IF NOT EXISTS {home}.\"cursor\" (replica VARCHAR NOT NULL, partition INTEGER NOT NULL, next_offset BIGINT, fence UBIGINT NOT NULL, \
generation UINTEGER NOT NULL, build USMALLINT NOT NULL, schema_id VARCHAR);
CREATE SCHEMA IF NOT EXISTS {}.{};
SET search_path = {path}",
        quote(catalog),
        quote(schema)
    )
}

/// What is known of a replica.
pub(super) const READ_REPLICA: &str = "SELECT current_database(), schema_name, table_name, build, contract, identity FROM replica WHERE replica = ?";
/// Which other replica has a table.
pub(super) const READ_OWNER: &str = "\
SELECT replica FROM replica WHERE lower(schema_name) = lower(?) AND lower(table_name) = lower(?) AND replica <> ? \
AND contract IS NOT NULL LIMIT 1";
/// Remembers a replica that has no table yet.
pub(super) const INSERT_REPLICA: &str = "INSERT INTO replica VALUES (?, ?, ?, 0, ?, NULL, NULL)";
/// Puts a build in force; with a table's contract and identity where they stay.
pub(super) const RAISE_BUILD: &str = "UPDATE replica SET schema_name = ?, table_name = ?, build = ?, contract = ?, identity = ? WHERE replica = ?";
/// Remembers what a table was prepared for.
pub(super) const UPDATE_REPLICA: &str = "UPDATE replica SET generation = ?, contract = ?, identity = ? WHERE replica = ?";
/// Build in force and cursor of a partition, in one row.
pub(super) const READ_CURSOR: &str = "\
SELECT r.build, c.fence, c.generation, c.build, c.next_offset FROM replica r \
LEFT JOIN \"cursor\" c ON c.replica = r.replica AND c.partition = ? WHERE r.replica = ?";
/// Whether any partition has landed something in a build.
pub(super) const HAS_LANDED: &str = "SELECT count(*) FROM \"cursor\" WHERE replica = ? AND build = ? AND next_offset IS NOT NULL";
/// A partition's first claim.
pub(super) const INSERT_CURSOR: &str = "INSERT INTO \"cursor\" VALUES (?, ?, NULL, ?, ?, ?, NULL)";
/// A later claim.
pub(super) const UPDATE_CLAIM: &str =
    "UPDATE \"cursor\" SET fence = ?, generation = ?, build = ?, next_offset = ? WHERE replica = ? AND partition = ?";
/// Moves `K`.
pub(super) const MOVE_CURSOR: &str = "UPDATE \"cursor\" SET next_offset = ?, schema_id = ? WHERE replica = ? AND partition = ?";
/// The comment of a table, which holds the mark of ours: it goes with the table, and no table made by anybody else has it.
pub(super) const READ_TABLE: &str = "\
SELECT coalesce(comment, '') FROM duckdb_tables() WHERE database_name = current_database() AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)";
/// Whether anything else of that name stands in the way.
pub(super) const READ_VIEW: &str = "\
SELECT count(*) FROM duckdb_views() WHERE database_name = current_database() AND lower(schema_name) = lower(?) AND lower(view_name) = lower(?)";
/// The columns of a table, in order.
pub(super) const READ_COLUMNS: &str = "\
SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = current_database() AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?) \
ORDER BY column_index";
/// A mark that no other table has.
pub(super) const NEW_MARK: &str = "SELECT 'replica of Landfall, do not change: ' || uuid()";

/// Where a table stands, in names without quotes. Statements name all three: a name of two parts may mean a database or a schema, and DuckDB
/// refuses to guess where a file is named like a schema in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) catalog: &'a str,
    pub(super) schema: &'a str,
    pub(super) table: &'a str,
}

impl Place<'_> {
    /// As a statement writes it.
    pub(super) fn quoted(self) -> String {
        format!("{}.{}.{}", quote(self.catalog), quote(self.schema), quote(self.table))
    }

    /// Whether two names mean one table of the file.
    pub(super) fn is(self, other: Place<'_>) -> bool {
        self.schema.eq_ignore_ascii_case(other.schema) && self.table.eq_ignore_ascii_case(other.table)
    }
}

/// The texts of one target.
#[derive(Debug)]
pub(super) struct Statements {
    /// Makes the stage for keys, empty; whatever was there is gone.
    pub(super) create_stage: String,
    /// Deletes the rows whose keys are on the stage.
    pub(super) delete: String,
    /// Name of the stage, in the temporary schema of the connection.
    pub(super) stage: String,
}

impl Statements {
    /// The texts for a table; `number` tells the stages of a connection apart.
    pub(super) fn new(place: Place<'_>, schema: &TableSchema, number: usize) -> Self {
        let stage = format!("landfall_keys_{number}");
        let columns: Vec<String> = schema.key_columns().enumerate().map(|(i, c)| format!("k{i} {} NOT NULL", types::column_type(c.ty))).collect();
        let matches: Vec<String> = schema.key_columns().enumerate().map(|(i, c)| format!("t.{} = s.k{i}", quote(&c.name))).collect();
        Self {
            create_stage: format!("CREATE OR REPLACE TEMP TABLE {stage} ({})", columns.join(", ")),
            delete: format!("DELETE FROM {} t USING temp.{STAGE_SCHEMA}.{stage} s WHERE {}", place.quoted(), matches.join(" AND ")),
            stage,
        }
    }
}

/// Creates a replica's table. Only the key is NOT NULL: every other column may lose its values in a later schema (law 12).
pub(super) fn create_table(place: Place<'_>, schema: &TableSchema) -> String {
    let columns = schema.columns().iter().enumerate().map(|(i, c)| {
        let null = if schema.key().contains(&i) { " NOT NULL" } else { "" };
        format!("{} {}{null}", quote(&c.name), types::column_type(c.ty))
    });
    format!("CREATE TABLE {} ({})", place.quoted(), columns.collect::<Vec<_>>().join(", "))
}

/// Drops a replica's table.
pub(super) fn drop_table(place: Place<'_>) -> String {
    format!("DROP TABLE {}", place.quoted())
}

/// Widens a table by a column.
pub(super) fn add_column(place: Place<'_>, column: &Column) -> String {
    format!("ALTER TABLE {} ADD COLUMN {} {}", place.quoted(), quote(&column.name), types::column_type(column.ty))
}

/// Puts a mark on a table. A comment takes no parameter.
pub(super) fn mark_table(place: Place<'_>, mark: &str) -> String {
    format!("COMMENT ON TABLE {} IS {}", place.quoted(), literal(mark))
}

/// A query of somebody else's as a source of rows. DuckDB's function `query` takes the text of exactly one SELECT statement (which WITH, FROM,
/// SHOW, DESCRIBE and SUMMARIZE are, too) and refuses everything else.
pub(super) fn as_rows(query: &str) -> String {
    format!("query({})", literal(query))
}

/// A name in double quotes.
pub(super) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text in single quotes; DuckDB knows no escapes in it but the doubled quote.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Looks names of a query up in a schema first.
pub(super) fn search_path(catalog: &str, schema: &str) -> String {
    // The setting is a list of quoted names inside a text.
    let within = |schema: &str| format!("{}.{}", quote(catalog), quote(schema));
    format!("SET search_path = {}", literal(&format!("{},{}", within(schema), within("main"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_quotes() {
        let columns = ["a\"b", "select"].map(|n| Column { name: n.to_owned(), ty: "int32".parse().expect("a type"), nullable: true });
        let schema = TableSchema::new("t", columns.to_vec(), &["a\"b"]).expect("valid");
        let place = Place { catalog: "f", schema: "s\"", table: "x\"; DROP" };
        assert_eq!(create_table(place, &schema), r#"CREATE TABLE "f"."s"""."x""; DROP" ("a""b" INTEGER NOT NULL, "select" INTEGER)"#);
        let statements = Statements::new(Place { catalog: "f", schema: "main", table: "t" }, &schema, 3);
        assert_eq!(statements.delete, r#"DELETE FROM "f"."main"."t" t USING temp.main.landfall_keys_3 s WHERE t."a""b" = s.k0"#);
        assert_eq!(as_rows("SELECT 'x'"), "query('SELECT ''x''')");
    }
}
