//! What a consumer reads: rows and deletes as records.
//!
//! The key is the log's, byte for byte, so that a row stands in the partition of its changes and compaction sees every change of it as one. The
//! value is the row in Avro's single-object encoding, under a contract of its own in `<topology>.schemas`; null is a delete, which then names the
//! key columns in a header. Buffers are kept from row to row.

use std::sync::Arc;

use landfall_schemas::contract::{self, Fingerprint};
use landfall_schemas::wire::{Reader, WireError};
use landfall_schemas::{TableSchema, change, key, row};
use rdkafka::message::{Header, OwnedHeaders};

use crate::sink::{Delta, Error, Kind, Target, VERSION_OFFSET_BITS};

/// Header: the log partition, in digits.
pub const PARTITION: &str = "landfall.partition";
/// Header: the log offset of the last change that altered the row, in digits.
pub const OFFSET: &str = "landfall.offset";
/// Header: the build of the replica, in digits.
pub const BUILD: &str = "landfall.build";
/// Header of a delete: its key columns as a JSON object.
pub const KEY: &str = "landfall.key";

/// What a record takes beside key and value: headers, lengths, the frame of a batch.
const AROUND: usize = 512;

/// Key, value and headers of a record.
type Encoded<'a> = (&'a [u8], Option<&'a [u8]>, OwnedHeaders);

/// Encodes the deltas of one replica.
#[derive(Debug)]
pub(super) struct Rows {
    schema: Arc<TableSchema>,
    fingerprint: Fingerprint,
    key: Vec<u8>,
    value: Vec<u8>,
    text: String,
}

impl Rows {
    pub(super) fn new(schema: &Arc<TableSchema>) -> Self {
        let fingerprint = contract::of_rows(schema).1;
        Self { schema: Arc::clone(schema), fingerprint, key: Vec::new(), value: Vec::new(), text: String::new() }
    }

    /// Whether it encodes rows of a target.
    pub(super) fn serves(&self, target: &Target) -> bool {
        Arc::ptr_eq(&self.schema, &target.schema) || self.schema == target.schema
    }

    /// The contract that its rows name.
    pub(super) const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The most bytes that the record of a delta may take.
    pub(super) fn bytes_most(delta: &Delta<'_>) -> usize {
        // Escaped or spelled out, a key may double, and a delete names it twice.
        delta.row.map_or(0, <[u8]>::len) + 4 * delta.key.len() + AROUND
    }

    /// Key, value and headers of a delta.
    pub(super) fn encode(&mut self, delta: &Delta<'_>, partition: i32) -> Result<Encoded<'_>, Error> {
        let Self { schema, fingerprint, key, value, text } = self;
        let unreadable = |e: WireError| Error::with(Kind::Internal, format!("a row of table {:?} does not read", schema.table()), e);
        key.clear();
        let mut reader = Reader::new(delta.key);
        for column in schema.key_columns() {
            let part = row::read_plain(column.ty, &mut reader).map_err(unreadable)?;
            key::encode(column.ty, part, key)
                .map_err(|e| Error::with(Kind::Unsupported, format!("column {:?} of table {:?} is no key", column.name, schema.table()), e))?;
        }
        let mut headers = OwnedHeaders::new_with_capacity(4);
        let offset = (delta.version & ((1 << VERSION_OFFSET_BITS) - 1)).saturating_sub(1);
        let build = delta.version >> VERSION_OFFSET_BITS;
        for (name, number) in [(PARTITION, i64::from(partition)), (OFFSET, offset.cast_signed()), (BUILD, build.cast_signed())] {
            text.clear();
            push_digits(number, text);
            headers = headers.insert(Header { key: name, value: Some(text.as_str()) });
        }
        let Some(row) = delta.row else {
            text.clear();
            push_key(schema, delta.key, text).map_err(unreadable)?;
            return Ok((key, None, headers.insert(Header { key: KEY, value: Some(text.as_str()) })));
        };
        value.clear();
        change::put_fingerprint(*fingerprint, value);
        value.extend_from_slice(row);
        Ok((key, Some(value), headers))
    }
}

fn push_digits(number: i64, out: &mut String) {
    use std::fmt::Write as _;
    write!(out, "{number}").expect("a String takes every write");
}

/// Key columns as a JSON object.
fn push_key(schema: &TableSchema, plain: &[u8], out: &mut String) -> Result<(), WireError> {
    let mut reader = Reader::new(plain);
    for (at, column) in schema.key_columns().enumerate() {
        out.push(if at == 0 { '{' } else { ',' });
        out.push_str(&serde_json::Value::from(column.name.as_str()).to_string());
        out.push(':');
        row::read_plain(column.ty, &mut reader)?.write_json(column.ty, out);
    }
    out.push('}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use landfall_schemas::{Column, LogicalType, Value};
    use rdkafka::message::Headers as _;

    use super::*;
    use crate::sink::version;

    #[test]
    fn a_delete_says_which_row_and_a_row_where_it_comes_from() {
        let column = |name: &str, ty: LogicalType| Column { name: name.to_owned(), ty, nullable: true };
        let columns = vec![column("id", LogicalType::Int32), column("n\"", LogicalType::Text)];
        let schema = Arc::new(TableSchema::new("t", columns, &["n\"", "id"]).expect("valid"));
        let mut rows = Rows::new(&schema);
        let (mut plain, mut row) = (Vec::new(), Vec::new());
        row::put_plain(LogicalType::Text, Value::Text("a"), &mut plain).expect("fits");
        row::put_plain(LogicalType::Int32, Value::Int(7), &mut plain).expect("fits");
        row::put(LogicalType::Int32, Value::Int(7), &mut row).expect("fits");
        row::put(LogicalType::Text, Value::Text("a"), &mut row).expect("fits");
        let texts = |headers: &OwnedHeaders| -> Vec<(String, String)> {
            headers.iter().map(|h| (h.key.to_owned(), String::from_utf8_lossy(h.value.unwrap_or_default()).into_owned())).collect()
        };
        let mut canonical = Vec::new();
        key::encode(LogicalType::Text, Value::Text("a"), &mut canonical).expect("a key");
        key::encode(LogicalType::Int32, Value::Int(7), &mut canonical).expect("a key");

        let (key, value, headers) = rows.encode(&Delta { key: &plain, row: Some(&row), version: version(3, 41) }, 2).expect("encodes");
        assert_eq!(key, canonical);
        let (fingerprint, body) = change::split_fingerprint(value.expect("a row")).expect("single object");
        assert_eq!((fingerprint, body), (contract::of_rows(&schema).1, row.as_slice()));
        assert_eq!(texts(&headers), [(PARTITION, "2"), (OFFSET, "41"), (BUILD, "3")].map(|(k, v)| (k.to_owned(), v.to_owned())));

        let (key, value, headers) = rows.encode(&Delta { key: &plain, row: None, version: version(0, 0) }, 0).expect("encodes");
        assert_eq!((key, value), (canonical.as_slice(), None));
        assert_eq!(texts(&headers)[3], (KEY.to_owned(), r#"{"n\"":"a","id":7}"#.to_owned()));
        assert_eq!(texts(&headers)[1].1, "0");
    }
}
