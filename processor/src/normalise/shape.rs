//! Whether the columns of a source partition only grow (ARCHITECTURE.md, law 12).
//!
//! A record that lacks a column is one of two things. At a position below the first record that has it, it is an older record that was sent
//! again, and lands. Above it, the source has dropped the column: the table stops by name, before anything of the record is in the log,
//! since reading NULL from then on would be a guess. Only positions decide, never the order of arrival, and each source partition for
//! itself, so none waits for another. What is known travels in the metadata of the committed offset, beside the high-water mark.

use std::sync::Arc;

use landfall_schemas::contract::Fingerprint;
use landfall_schemas::table::Evolution;
use landfall_schemas::value::push_hex;
use landfall_schemas::{Sequence, TableSchema};

/// The widest schema of a source partition.
#[derive(Clone, Debug)]
struct Widest {
    fingerprint: Fingerprint,
    /// Position of the first record that had it.
    since: Sequence,
    /// `None` until it is brought, after a resumption.
    schema: Option<Arc<TableSchema>>,
}

/// What is known of the columns of one source partition.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    widest: Option<Widest>,
}

impl Shape {
    /// Takes up what was left in an offset's metadata; [`Self::wanted`] tells what is missing to it.
    pub fn resume(text: &str) -> Self {
        let parse = || {
            let (fingerprint, since) = text.split_once('.')?;
            let bytes = |i| u8::from_str_radix(since.get(2 * i..2 * i + 2)?, 16).ok();
            let since: Option<Vec<u8>> = (0..since.len() / 2).map(bytes).collect();
            let fingerprint = Fingerprint(u64::from_str_radix(fingerprint, 16).ok()?);
            Some(Widest { fingerprint, since: Sequence::from_bytes(&since?), schema: None })
        };
        Self { widest: parse() }
    }

    /// As metadata of an offset; nothing where nothing is known.
    pub fn metadata(&self, out: &mut String) {
        if let Some(widest) = &self.widest {
            out.push_str(&widest.fingerprint.to_string());
            out.push('.');
            push_hex(out, widest.since.as_bytes());
        }
    }

    /// The schema that is to be brought before the first record.
    pub fn wanted(&self) -> Option<Fingerprint> {
        self.widest.as_ref().filter(|w| w.schema.is_none()).map(|w| w.fingerprint)
    }

    /// Brings that schema.
    pub fn bring(&mut self, schema: Arc<TableSchema>) {
        if let Some(widest) = &mut self.widest {
            widest.schema = Some(schema);
        }
    }

    /// The widest schema, where it is known.
    pub fn schema(&self) -> Option<&Arc<TableSchema>> {
        self.widest.as_ref()?.schema.as_ref()
    }

    /// Judges the schema of a row at a position; what is refused is not remembered.
    pub fn judge(&mut self, fingerprint: Fingerprint, schema: &Arc<TableSchema>, sequence: &[u8]) -> Result<(), Evolution> {
        let Some(widest) = self.widest.as_ref() else {
            self.widen(fingerprint, schema, sequence);
            return Ok(());
        };
        if widest.fingerprint == fingerprint || sequence <= widest.since.as_bytes() {
            return Ok(());
        }
        let evolution = match &widest.schema {
            Some(known) => known.compare(schema),
            None => Evolution::Covers { added: Vec::new(), missing: Vec::new() },
        };
        match evolution {
            Evolution::Covers { missing, .. } if missing.is_empty() => {
                self.widen(fingerprint, schema, sequence);
                Ok(())
            }
            refused => Err(refused),
        }
    }

    fn widen(&mut self, fingerprint: Fingerprint, schema: &Arc<TableSchema>, sequence: &[u8]) {
        self.widest = Some(Widest { fingerprint, since: Sequence::from_bytes(sequence), schema: Some(Arc::clone(schema)) });
    }
}

#[cfg(test)]
mod tests {
    use landfall_schemas::{Column, contract};

    use super::*;

    fn schema(columns: &[(&str, &str)]) -> (Fingerprint, Arc<TableSchema>) {
        let columns = columns.iter().map(|(n, t)| Column { name: (*n).to_owned(), ty: t.parse().expect(t), nullable: true }).collect();
        let schema = TableSchema::new("t", columns, &["id"]).expect("valid");
        (contract::of(&schema).1, Arc::new(schema))
    }

    fn at(position: u64) -> Vec<u8> {
        Sequence::of_dialect(0, position, position, 0).as_bytes().to_vec()
    }

    const ID: (&str, &str) = ("id", "int32");
    const A: (&str, &str) = ("a", "text");
    const B: (&str, &str) = ("b", "text");

    #[test]
    fn law_12_columns_grow_and_older_records_pass() {
        let (narrow, wide) = (schema(&[ID, A]), schema(&[ID, A, B]));
        let mut shape = Shape::default();
        for (position, (fingerprint, schema)) in [(10, &narrow), (20, &wide), (12, &narrow), (20, &wide), (30, &wide), (19, &narrow)] {
            assert_eq!(shape.judge(*fingerprint, schema, &at(position)), Ok(()), "{position}");
        }
        // Columns in another order are the same columns.
        let turned = schema(&[B, ID, A]);
        assert_eq!(shape.judge(turned.0, &turned.1, &at(40)), Ok(()));
    }

    #[test]
    fn law_12_a_dropped_column_is_told_from_an_older_record_by_its_position_alone() {
        let (narrow, wide) = (schema(&[ID, A]), schema(&[ID, A, B]));
        let mut shape = Shape::default();
        assert_eq!(shape.judge(narrow.0, &narrow.1, &at(10)), Ok(()));
        assert_eq!(shape.judge(wide.0, &wide.1, &at(20)), Ok(()));
        let dropped = Evolution::Covers { added: vec![], missing: vec!["b".to_owned()] };
        assert_eq!(shape.judge(narrow.0, &narrow.1, &at(21)), Err(dropped.clone()), "the very schema of before");
        assert_eq!(shape.judge(narrow.0, &narrow.1, &at(21)), Err(dropped), "and again: what is refused is not remembered");
        let renamed = schema(&[ID, A, ("c", "text")]);
        assert!(matches!(shape.judge(renamed.0, &renamed.1, &at(22)), Err(Evolution::Covers { .. })));
        let retyped = schema(&[ID, A, ("b", "int32")]);
        assert!(matches!(shape.judge(retyped.0, &retyped.1, &at(23)), Err(Evolution::TypeChanged { .. })));
        assert_eq!(shape.judge(retyped.0, &retyped.1, &at(15)), Ok(()), "an older type is the lander's to judge");
    }

    #[test]
    fn what_is_known_outlives_the_process() {
        let (narrow, wide) = (schema(&[ID, A]), schema(&[ID, A, B]));
        let mut shape = Shape::default();
        let mut text = String::new();
        shape.metadata(&mut text);
        assert_eq!(text, "");
        assert_eq!(shape.judge(wide.0, &wide.1, &at(20)), Ok(()));
        shape.metadata(&mut text);
        let mut resumed = Shape::resume(&text);
        assert_eq!(resumed.wanted(), Some(wide.0));
        resumed.bring(Arc::clone(&wide.1));
        assert_eq!(resumed.judge(narrow.0, &narrow.1, &at(15)), Ok(()));
        assert!(resumed.judge(narrow.0, &narrow.1, &at(25)).is_err());
        for damaged in ["", ".", "x.00", "00", "0123456789abcdef.zz"] {
            assert!(Shape::resume(damaged).wanted().is_none(), "{damaged}");
        }
    }
}
