//! Passing over values that nobody wants, at a cost that the record's length bounds: a few bytes may ask for billions of nulls.

use super::schema::{Kind, NodeId, Schema};
use crate::wire::{Reader, WireError};

/// The deepest that values lie within each other.
const DEPTH_MAX: usize = 64;

/// How many values a record may make one look at.
#[derive(Clone, Copy, Debug)]
pub struct Budget(u64);

impl Budget {
    /// The budget of a record of so many bytes: values without bytes of their own are few in honest ones.
    pub const fn of(bytes: usize) -> Self {
        Self(4096 + 8 * bytes as u64)
    }

    /// Takes so many values off it; an error where it is used up.
    pub(crate) fn spend(&mut self, values: u64) -> Result<(), WireError> {
        self.0 = self.0.checked_sub(values).ok_or(WireError::Number)?;
        Ok(())
    }
}

impl Schema {
    /// Passes over a value.
    pub fn skip(&self, id: NodeId, reader: &mut Reader<'_>, budget: &mut Budget) -> Result<(), WireError> {
        self.skip_at(id, reader, budget, 0)
    }

    fn skip_at(&self, id: NodeId, reader: &mut Reader<'_>, budget: &mut Budget, depth: usize) -> Result<(), WireError> {
        if depth > DEPTH_MAX {
            return Err(WireError::Number);
        }
        budget.spend(1)?;
        match &self.node(id).kind {
            Kind::Null => {}
            Kind::Boolean => drop(reader.byte()?),
            Kind::Int | Kind::Long => drop(reader.long()?),
            Kind::Float => drop(reader.take(4)?),
            Kind::Double => drop(reader.take(8)?),
            Kind::Bytes | Kind::String => drop(reader.bytes()?),
            Kind::Fixed(size) => drop(reader.take(*size)?),
            Kind::Enum(symbols) => drop(index(reader.long()?, symbols.len())?),
            Kind::Union(branches) => {
                let branch = branches[index(reader.long()?, branches.len())?];
                self.skip_at(branch, reader, budget, depth + 1)?;
            }
            Kind::Record(members) => members.iter().try_for_each(|m| self.skip_at(m.node, reader, budget, depth + 1))?,
            Kind::Array(item) => blocks(reader, budget, |reader, budget| self.skip_at(*item, reader, budget, depth + 1))?,
            Kind::Map(value) => blocks(reader, budget, |reader, budget| {
                reader.bytes()?;
                self.skip_at(*value, reader, budget, depth + 1)
            })?,
        }
        Ok(())
    }
}

/// The place that an index names.
#[inline]
pub(crate) fn index(value: i64, len: usize) -> Result<usize, WireError> {
    usize::try_from(value).ok().filter(|i| *i < len).ok_or(WireError::Index)
}

/// Walks the blocks of an array or a map. A block that says how long it is, is passed over at once.
fn blocks<'a>(
    reader: &mut Reader<'a>,
    budget: &mut Budget,
    mut item: impl FnMut(&mut Reader<'a>, &mut Budget) -> Result<(), WireError>,
) -> Result<(), WireError> {
    loop {
        budget.spend(1)?;
        match reader.long()? {
            0 => return Ok(()),
            count @ 1.. => (0..count).try_for_each(|_| item(reader, budget))?,
            _ => drop(reader.bytes()?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::put_long;

    fn skip(schema: &str, bytes: &[u8]) -> Result<usize, WireError> {
        let schema = Schema::parse(schema, &[]).expect("a schema");
        let mut reader = Reader::new(bytes);
        schema.skip(schema.root(), &mut reader, &mut Budget::of(bytes.len()))?;
        Ok(reader.rest().len())
    }

    #[test]
    fn values_are_passed_over_whole() {
        assert_eq!(skip(r#"["null","string"]"#, &[2, 4, b'a', b'b', 9]), Ok(1));
        assert_eq!(skip(r#"{"type":"array","items":"int"}"#, &[4, 2, 4, 0, 9]), Ok(1));
        assert_eq!(skip(r#"{"type":"map","values":"int"}"#, &[3, 6, 0xFF, 0xFF, 0xFF, 0, 9]), Ok(1), "a block that says its length");
        assert_eq!(skip(r#"{"type":"fixed","name":"f","size":3}"#, &[1, 2]), Err(WireError::Truncated));
        assert_eq!(skip(r#"["null","int"]"#, &[4]), Err(WireError::Index));
    }

    #[test]
    fn a_few_bytes_cannot_ask_for_billions_of_values() {
        let mut bomb = Vec::new();
        put_long(&mut bomb, i64::MAX);
        assert_eq!(skip(r#"{"type":"array","items":"null"}"#, &bomb), Err(WireError::Number));
        let mut list = vec![];
        (0..400).for_each(|_| put_long(&mut list, 1));
        let own = r#"{"type":"record","name":"R","fields":[{"name":"r","type":{"type":"array","items":"R"}}]}"#;
        assert_eq!(skip(own, &list), Err(WireError::Number), "a type that holds itself");
    }
}
