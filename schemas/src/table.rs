//! The schema of a table: its columns in the order in which the source sends them, and which of them are the key.
//!
//! A schema is what a source record says, nothing more: normalising keeps no memory, so equal records give equal schemas in every process.
//! Its identity is the fingerprint of its contract (`contract`). How one schema follows another is [`TableSchema::compare`].

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::types::LogicalType;

/// The most columns that a table may have, and members that a row may: MySQL's tables have no more, and what each of them costs while a schema is
/// worked out would add up.
pub const COLUMNS_MAX: usize = 4096;

/// One column.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Column {
    /// The source's own name, any Unicode text.
    pub name: String,
    /// What its values mean.
    pub ty: LogicalType,
    /// Whether the source allows NULL. Every column travels as nullable, since a delete authors NULL for all; this is what the source says.
    pub nullable: bool,
}

/// The columns and key of a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableSchema {
    /// Id of the table in the topology.
    table: String,
    columns: Vec<Column>,
    key: Vec<usize>,
}

/// Why columns and key do not make a table schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A table needs a column.
    #[error("table {table:?} has no columns")]
    Empty {
        /// The table's id.
        table: String,
    },
    /// More columns than [`COLUMNS_MAX`].
    #[error("table {table:?} has {columns} columns, and {COLUMNS_MAX} are the most")]
    TooMany {
        /// The table's id.
        table: String,
        /// How many it has.
        columns: usize,
    },
    /// Two columns of one name.
    #[error("column {column:?} of table {table:?} appears twice")]
    Duplicate {
        /// The table's id.
        table: String,
        /// The name.
        column: String,
    },
    /// A key needs at least one column, all of them present (SEMANTICS.md A.1.1).
    #[error("key column {column:?} of table {table:?} is missing; it has {}", columns.join(", "))]
    KeyMissing {
        /// The table's id.
        table: String,
        /// The key column that is asked for; empty where no key was given at all.
        column: String,
        /// The columns that are there.
        columns: Vec<String>,
    },
    /// Floats and documents are refused as keys (ARCHITECTURE.md, The log).
    #[error("column {column:?} of table {table:?} has type {ty}, which cannot be a key")]
    KeyType {
        /// The table's id.
        table: String,
        /// The column.
        column: String,
        /// Its type.
        ty: LogicalType,
    },
    /// Names with which replicas mark their own columns (`scd.reserved_column`).
    #[error("column {column:?} of table {table:?} has a reserved name")]
    Reserved {
        /// The table's id.
        table: String,
        /// The column.
        column: String,
    },
}

impl SchemaError {
    /// The stable code under which it is reported.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Empty { .. } => "schema.no_columns",
            Self::TooMany { .. } => "schema.too_many_columns",
            Self::Duplicate { .. } => "schema.duplicate_column",
            Self::KeyMissing { .. } => "schema.key_missing",
            Self::KeyType { .. } => "schema.key_type",
            Self::Reserved { .. } => "scd.reserved_column",
        }
    }
}

/// True for `__START_AT`, `__END_AT` and everything that begins with `__LF_`, in any case (SEMANTICS.md A.1.8).
pub fn is_reserved(name: &str) -> bool {
    let upper = name.to_uppercase();
    upper == "__START_AT" || upper == "__END_AT" || upper.starts_with("__LF_")
}

impl TableSchema {
    /// Makes a schema of a table's columns and the names of its key columns, in key order.
    pub fn new(table: impl Into<String>, columns: Vec<Column>, key: &[impl AsRef<str>]) -> Result<Self, SchemaError> {
        let table = table.into();
        if columns.is_empty() {
            return Err(SchemaError::Empty { table });
        }
        if columns.len() > COLUMNS_MAX {
            return Err(SchemaError::TooMany { table, columns: columns.len() });
        }
        let mut by_name = BTreeMap::new();
        for (i, column) in columns.iter().enumerate() {
            if is_reserved(&column.name) {
                return Err(SchemaError::Reserved { table, column: column.name.clone() });
            }
            if by_name.insert(column.name.as_str(), i).is_some() {
                return Err(SchemaError::Duplicate { table, column: column.name.clone() });
            }
        }
        let missing = |name: &str| SchemaError::KeyMissing {
            table: table.clone(),
            column: name.to_owned(),
            columns: columns.iter().map(|c| c.name.clone()).collect(),
        };
        if key.is_empty() {
            return Err(missing(""));
        }
        let mut indexes = Vec::with_capacity(key.len());
        for name in key {
            let name = name.as_ref();
            let index = *by_name.get(name).ok_or_else(|| missing(name))?;
            let ty = columns[index].ty;
            if ty.is_float() || ty == LogicalType::Json {
                return Err(SchemaError::KeyType { table, column: name.to_owned(), ty });
            }
            if indexes.contains(&index) {
                return Err(SchemaError::Duplicate { table, column: name.to_owned() });
            }
            indexes.push(index);
        }
        Ok(Self { table, columns, key: indexes })
    }

    /// The schema under which marks travel: they concern every row and hold none, so its one column says nothing. No replica ever has it.
    pub fn of_marks(table: impl Into<String>) -> Self {
        let column = Column { name: "mark".to_owned(), ty: LogicalType::Text, nullable: true };
        Self { table: table.into(), columns: vec![column], key: vec![0] }
    }

    /// Id of the table in the topology.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The columns in the source's order.
    #[inline]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Positions of the key columns, in key order.
    #[inline]
    pub fn key(&self) -> &[usize] {
        &self.key
    }

    /// The key columns, in key order.
    pub fn key_columns(&self) -> impl ExactSizeIterator<Item = &Column> {
        self.key.iter().map(|i| &self.columns[*i])
    }

    /// Position of a column by its exact name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == name)
    }

    /// What a record of `next` asks of a replica that has the columns of `self`: see [`Evolution`]. Order of columns never matters.
    pub fn compare(&self, next: &Self) -> Evolution {
        let key = |s: &Self| s.key_columns().map(|c| c.name.clone()).collect::<Vec<_>>();
        if key(self) != key(next) {
            return Evolution::KeyChanged { from: key(self), to: key(next) };
        }
        let mut added = Vec::new();
        for column in &next.columns {
            match self.position(&column.name) {
                None => added.push(column.clone()),
                Some(at) if self.columns[at].ty != column.ty => {
                    return Evolution::TypeChanged { column: column.name.clone(), from: self.columns[at].ty, to: column.ty };
                }
                Some(_) => {}
            }
        }
        let missing = self.columns.iter().filter(|c| next.position(&c.name).is_none()).map(|c| c.name.clone()).collect();
        Evolution::Covers { added, missing }
    }

    /// This schema with further columns behind its own, all nullable.
    #[must_use]
    pub fn with_columns(&self, added: &[Column]) -> Self {
        let mut wider = self.clone();
        wider.columns.extend(added.iter().map(|c| Column { nullable: true, ..c.clone() }));
        wider
    }
}

/// How the columns of one schema differ from those of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evolution {
    /// Same key, same types where both have a column.
    Covers {
        /// Columns that only the next schema has.
        added: Vec<Column>,
        /// Names of columns that the next schema lacks.
        missing: Vec<String>,
    },
    /// A column has another type.
    TypeChanged {
        /// The column.
        column: String,
        /// Its type so far.
        from: LogicalType,
        /// Its type in the next schema.
        to: LogicalType,
    },
    /// Another key: only a new generation can take it (SEMANTICS.md B.4).
    KeyChanged {
        /// Key columns so far.
        from: Vec<String>,
        /// Key columns of the next schema.
        to: Vec<String>,
    },
}

impl Evolution {
    /// The stable code of a change that a generation cannot follow, and what changed, for people.
    pub fn refusal(&self, table: &str) -> (&'static str, String) {
        match self {
            Self::TypeChanged { column, from, to } => {
                ("schema.type_changed", format!("column {column:?} of table {table:?} changed from {from} to {to}, which is not supported yet"))
            }
            Self::KeyChanged { from, to } => {
                ("schema.key_type_changed", format!("the key of table {table:?} changed from ({}) to ({})", from.join(", "), to.join(", ")))
            }
            Self::Covers { missing, .. } => {
                ("schema.column_dropped", format!("table {table:?} lost column {}, which is not supported yet", missing.join(", ")))
            }
        }
    }
}

/// A set of column positions; up to 64 columns need no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnSet {
    words: SmallVec<[u64; 1]>,
}

impl ColumnSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { words: SmallVec::new_const() }
    }

    /// Adds a position.
    #[inline]
    pub fn insert(&mut self, column: usize) {
        let word = column / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (column % 64);
    }

    /// Whether a position is in the set.
    #[inline]
    pub fn contains(&self, column: usize) -> bool {
        self.words.get(column / 64).is_some_and(|w| w >> (column % 64) & 1 == 1)
    }

    /// True where no position is in the set.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }

    /// Number of positions in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Takes out the positions from this one on.
    pub fn truncate(&mut self, column: usize) {
        self.words.truncate(column.div_ceil(64));
        if let Some(last) = self.words.get_mut(column / 64) {
            *last &= (1 << (column % 64)) - 1;
        }
        // Equal sets are equal, however they came about.
        while self.words.last() == Some(&0) {
            let _ = self.words.pop();
        }
    }

    /// Takes out the positions of another set.
    pub fn remove_all(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, out)| *word &= !out);
        while self.words.last() == Some(&0) {
            let _ = self.words.pop();
        }
    }

    /// Empties the set and keeps its memory.
    pub fn clear(&mut self) {
        self.words.clear();
    }

    /// The positions in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(w, bits)| (0..64).filter(move |b| bits >> b & 1 == 1).map(move |b| w * 64 + b))
    }
}

impl FromIterator<usize> for ColumnSet {
    fn from_iter<I: IntoIterator<Item = usize>>(positions: I) -> Self {
        let mut set = Self::new();
        for p in positions {
            set.insert(p);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, ty: &str) -> Column {
        Column { name: name.to_owned(), ty: ty.parse().expect(ty), nullable: true }
    }

    #[test]
    fn keys_must_exist_and_be_comparable() {
        let columns = || vec![column("id", "int32"), column("v", "float64"), column("d", "json")];
        assert!(TableSchema::new("t", columns(), &["id"]).is_ok());
        assert!(matches!(TableSchema::new("t", columns(), &["x"]), Err(SchemaError::KeyMissing { .. })));
        assert!(matches!(TableSchema::new("t", columns(), &["v"]), Err(SchemaError::KeyType { .. })));
        assert!(matches!(TableSchema::new("t", columns(), &["d"]), Err(SchemaError::KeyType { .. })));
        assert!(matches!(TableSchema::new("t", columns(), &[] as &[&str]), Err(SchemaError::KeyMissing { .. })));
        let twice = vec![column("id", "int32"), column("id", "int32")];
        assert!(matches!(TableSchema::new("t", twice, &["id"]), Err(SchemaError::Duplicate { .. })));
        let many = |n: usize| (0..n).map(|n| Column { name: format!("c{n}"), ty: LogicalType::Int32, nullable: true }).collect();
        assert!(TableSchema::new("t", many(COLUMNS_MAX), &["c0"]).is_ok());
        assert!(matches!(TableSchema::new("t", many(COLUMNS_MAX + 1), &["c0"]), Err(SchemaError::TooMany { columns: 4097, .. })));
    }

    #[test]
    fn reserved_names_are_refused_in_any_case() {
        for name in ["__start_at", "__END_AT", "__lf_ver", "__Lf_x"] {
            let columns = vec![column("id", "int32"), column(name, "text")];
            assert!(matches!(TableSchema::new("t", columns, &["id"]), Err(SchemaError::Reserved { .. })), "{name}");
        }
    }

    #[test]
    fn evolution_names_what_changed() {
        let old = TableSchema::new("t", vec![column("id", "int32"), column("a", "text")], &["id"]).expect("valid");
        let wider = TableSchema::new("t", vec![column("b", "date"), column("id", "int32"), column("a", "text")], &["id"]).expect("valid");
        assert_eq!(old.compare(&wider), Evolution::Covers { added: vec![column("b", "date")], missing: vec![] });
        assert_eq!(wider.compare(&old), Evolution::Covers { added: vec![], missing: vec!["b".to_owned()] });
        let retyped = TableSchema::new("t", vec![column("id", "int32"), column("a", "int32")], &["id"]).expect("valid");
        assert!(matches!(old.compare(&retyped), Evolution::TypeChanged { .. }));
        let rekeyed = TableSchema::new("t", vec![column("id", "int32"), column("a", "text")], &["id", "a"]).expect("valid");
        assert!(matches!(old.compare(&rekeyed), Evolution::KeyChanged { .. }));
    }

    #[test]
    fn column_sets() {
        let set: ColumnSet = [3, 0, 130].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 130]);
        assert!(set.contains(130) && !set.contains(131) && !set.contains(9_999));
        assert_eq!(set.len(), 3);
    }
}
