//! From the columns of a record to the columns of a replica.
//!
//! A replica's columns only grow, at the end (law 12). A record's columns are matched by name; those that it lacks read NULL, which is right
//! for a late record of an old schema. Where a record's columns are the replica's first ones, as they almost always are, its bytes are the
//! replica's bytes.

use landfall_schemas::wire::WireError;
use landfall_schemas::{ColumnSet, TableSchema, row};

use super::index::{Arena, RowSpan};

/// How rows of one schema become rows of a replica.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// For each replica column, the record's column; empty where the record's columns are the replica's first ones.
    take: Vec<Option<u16>>,
    columns: u16,
}

impl Mapping {
    /// The mapping between two schemas, of which `to` covers `from`.
    pub fn new(from: &TableSchema, to: &TableSchema) -> Self {
        let prefix = from.columns().len() <= to.columns().len() && from.columns().iter().zip(to.columns()).all(|(a, b)| a.name == b.name);
        if prefix {
            return Self { take: Vec::new(), columns: from.columns().len() as u16 };
        }
        let take = to.columns().iter().map(|c| from.position(&c.name).map(|at| at as u16)).collect();
        Self { take, columns: to.columns().len() as u16 }
    }

    /// Copies a row into the arena, in the replica's columns.
    pub fn row(&self, from: &TableSchema, bytes: &[u8], arena: &mut Arena, spans: &mut Vec<(u32, u32)>) -> Result<RowSpan, WireError> {
        if self.take.is_empty() {
            return Ok(RowSpan { span: arena.add(bytes), columns: self.columns });
        }
        row::spans(from.columns(), bytes, spans)?;
        let mark = arena.mark();
        for source in &self.take {
            match source.and_then(|at| spans.get(usize::from(at))) {
                Some((start, end)) => arena.append(&bytes[*start as usize..*end as usize]),
                None => arena.append(&[0]),
            }
        }
        Ok(RowSpan { span: arena.since(mark), columns: self.columns })
    }

    /// The positions of a record's columns, as positions in the replica.
    pub fn positions(&self, positions: &ColumnSet) -> ColumnSet {
        if self.take.is_empty() || positions.is_empty() {
            return positions.clone();
        }
        self.take.iter().enumerate().filter(|(_, from)| from.is_some_and(|at| positions.contains(usize::from(at)))).map(|(to, _)| to).collect()
    }
}
