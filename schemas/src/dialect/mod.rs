//! Change events turned into canonical changes: Debezium's as JSON, with and without the schema part, as Avro and as Protobuf; its rows without an envelope;
//! Maxwell's events and Canal's messages.
//!
//! Pure and total: key bytes and value bytes in, a [`Decoded`] or a named [`Reject`] out, for any bytes whatever. Decoding borrows: rows go
//! from the record's bytes straight to canonical bytes in buffers that a [`Decoder`] keeps; no tree of values, and nothing allocated per row
//! once the shapes of a table are known. What a record decodes to depends on the record, the options and the epoch alone, never on the
//! records before it; what is kept from them only saves work.
//!
//! What cannot be told from an event, and is documented instead:
//! - Deletes under REPLICA IDENTITY DEFAULT carry made-up values outside the key, so a delete takes its key from the record key alone. A
//!   `primary_key` that names columns outside the record key needs full replica identity.
//! - `before` of an update is kept as the source gave it, unless a value in it was not sent. Under an identity index it may hold made-up
//!   values; under the default identity there is none.
//! - The halves of a key change name each other in headers. A header that cannot be read names nothing; no record is rejected for it.
//! - A column whose text is the placeholder itself cannot be told from one that was not sent; choose another placeholder in the connector.
//! - `BIGINT UNSIGNED` in long mode without the propagated source type stays the signed number that it came as (case DEC-03), and a NULL in a
//!   column with a default arrives as the default unless the converter is told otherwise.
//! - NaN and infinity of a precise decimal arrive as NULL (case DEC-04), and so do times beyond the years 1677 to 2262 in nanos mode.
//! - How long a string of bits of varying length was is not told: the number that it is lands at the column's greatest length.
//! - A time of day with a zone arrives in UTC, and its text lands as that; arrays of several dimensions arrive damaged.
//!   Further damage that connectors do on the way is listed beside the golden tests.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::change::{Change, Op};
use crate::contract::Fingerprint;
use crate::json::JsonStr;
use crate::mask::Mask;
use crate::table::{ColumnSet, TableSchema};
use crate::types::LogicalType;

pub use crate::avro::IdBytes;
pub use crate::provenance::Dialect;
pub use decoder::Decoder;
pub use explain::{ColumnRule, Explanation};
pub use field::{BinaryStrings, DecimalStrings};
pub use inference::{Inferred, Members};
pub use registered::Registered;
pub use reject::{Code, Reject, RejectKind};
pub use scalar::KeyFormat;

mod avro;
mod canal;
mod connect;
mod datum;
mod decoder;
mod document;
mod elements;
mod envelope;
mod explain;
mod extended;
mod field;
mod flattened;
mod geometry;
mod inference;
mod layout;
mod literal;
mod maxwell;
mod members;
mod open;
mod placeholder;
mod plan;
mod protobuf;
mod registered;
mod reject;
mod scalar;
mod source;
mod temporal;
#[cfg(test)]
mod tests;
mod verbatim;

/// What Debezium sends for a value that the database did not give it, unless the connector says otherwise.
pub const PLACEHOLDER: &str = "__debezium_unavailable_value";

/// The column of whole documents where none is named.
const DOCUMENT: &str = "document";

/// How many columns a reason names before it only counts the rest.
const NAMED_MAX: usize = 50;

/// What orders the changes of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The position that the dialect gives (`source.no_order` where it gives none).
    #[default]
    Dialect,
    /// The position that the dialect gives; changes of a connector that gives none are ordered by their offsets, under the conditions of
    /// [`Self::Offset`]. [`Changes::by_offset`] tells which.
    DialectElseOffset,
    /// The offset in the source topic. Right only where the table's key is the record key and the partition count is pinned; the caller sees
    /// to that (ARCHITECTURE.md, Repeats, zombies and order).
    Offset,
}

/// What the values of a topic are written in. A key may be JSON or framed whatever its value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// A value that begins with a zero byte, as JSON never does, is a registry's frame, and its schema says of what; any other is JSON.
    #[default]
    Detected,
    /// JSON, with or without a schema part.
    Json,
    /// Avro in a registry's frame.
    Avro,
    /// Protobuf in a registry's frame.
    Protobuf,
}

/// What is known of a table beside its records.
#[derive(Clone, Debug)]
pub struct Options {
    /// Id of the table in the topology.
    pub table: String,
    /// Key columns in key order, instead of those of the record key.
    pub primary_key: Option<Vec<String>>,
    /// Declared types, in the order in which they were declared. Without a schema part they must cover every column; with one they override
    /// it where nothing is lost by that. Without a schema part and without `primary_key`, key columns are in this order too.
    pub types: Vec<(String, LogicalType)>,
    /// Whether types that nobody says are inferred from records (`inference`) rather than refused, in JSON without a schema part.
    pub infer: bool,
    /// Types that were inferred and settled, in the order in which they were; each is a column, and declared types win. See [`Decoder::settle`].
    pub inferred: Vec<(String, LogicalType)>,
    /// Whether the declared types are those of this table alone: what a record without a schema part lacks of them is a column all the same.
    pub types_are_columns: bool,
    /// Columns that are left out.
    pub exclude: Vec<String>,
    /// New names of columns, by the old ones; everything else here goes by the old ones.
    pub rename: Vec<(String, String)>,
    /// Columns of which only masks are shown, and their masks; none of a key.
    pub masked: Option<(Vec<String>, Mask)>,
    /// Columns that hold the text of their values, whatever type these have; none of a key.
    pub as_text: Vec<String>,
    /// What a string means in a column that is declared as a decimal, without a schema part.
    pub decimal_strings: DecimalStrings,
    /// What a string holds in a column that is declared as bytes. Where it is not said, such a column is refused if a schema part calls it a string, since
    /// what is hex would be base64 as well (case DEC-16), and is base64 if there is no schema part: so Connect's converter writes bytes.
    pub binary_strings: Option<BinaryStrings>,
    /// The connector's `unavailable.value.placeholder`.
    pub placeholder: String,
    /// What orders the changes.
    pub order: Order,
    /// What the records look like.
    pub dialect: Dialect,
    /// The connector of a dialect whose records do not name it, as source blocks do; empty for one that nothing is known of.
    pub connector: &'static str,
    /// The table's schema, or its database, in its source, where that is said.
    pub source_schema: Option<String>,
    /// The table's name in its source, where that is said: a topic may hold those of others, and records that name another are passed over.
    pub source_table: Option<String>,
    /// The topic; its last part is the table's name where nothing else says it.
    pub topic: String,
    /// Partitions of the topic. Offsets order the changes of several keys in one only.
    pub partitions: u32,
    /// What values are written in.
    pub encoding: Encoding,
    /// What record keys are written in.
    pub key_format: KeyFormat,
    /// Columns that hold headers of the records, by the header's name; plain records only.
    pub headers: Vec<(String, String)>,
    /// The column that holds whole documents of MongoDB; where none is named and no type declared, there is one all the same.
    pub document: Option<String>,
    /// Texts of the schemas that records in Avro's single-object encoding may name by their fingerprints.
    pub schemas: Vec<String>,
    /// Width of the ids of a schema registry; `None` where there is no registry.
    pub registry: Option<IdBytes>,
}

impl Options {
    /// The options of a table about which nothing is said.
    pub fn new(table: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            primary_key: None,
            types: Vec::new(),
            infer: false,
            inferred: Vec::new(),
            types_are_columns: false,
            exclude: Vec::new(),
            rename: Vec::new(),
            masked: None,
            as_text: Vec::new(),
            decimal_strings: DecimalStrings::default(),
            binary_strings: None,
            placeholder: PLACEHOLDER.to_owned(),
            order: Order::default(),
            dialect: Dialect::default(),
            connector: "",
            source_schema: None,
            source_table: None,
            topic: String::new(),
            partitions: 1,
            encoding: Encoding::default(),
            key_format: KeyFormat::default(),
            headers: Vec::new(),
            document: None,
            schemas: Vec::new(),
            registry: None,
        }
    }

    /// How a column is read whose type is declared and nothing else known.
    fn any(&self) -> field::Wire {
        field::Wire::Declared {
            decimal_strings: self.decimal_strings,
            binary_strings: self.binary_strings.unwrap_or_default(),
            zero_dates: matches!(self.dialect, Dialect::Maxwell | Dialect::Canal),
        }
    }

    /// Whether a member is no column.
    fn leaves_out(&self, name: &str) -> bool {
        let is_added = self.dialect == Dialect::Flattened && name.starts_with(flattened::PREFIX) && declared_type(self, name).is_none();
        is_added || self.exclude.iter().any(|excluded| excluded == name)
    }

    /// The column of whole documents.
    fn document_column(&self) -> Option<&str> {
        self.document.as_deref().or(if self.types.iter().any(|(name, _)| name != "_id") { None } else { Some(DOCUMENT) })
    }

    /// The column that a record key is which has no members: the only one of the table's key.
    fn scalar_key(&self) -> Option<&str> {
        if let Some([name]) = self.primary_key.as_deref() { Some(name) } else { None }
    }

    /// Whether a message of a topic that holds several tables is about this one.
    fn is_wanted(&self, database: Option<JsonStr<'_>>, table: Option<JsonStr<'_>>) -> bool {
        let fits = |wanted: &Option<String>, named: Option<JsonStr<'_>>| wanted.as_ref().zip(named).is_none_or(|(wanted, named)| named.is(wanted));
        fits(&self.source_schema, database) && fits(&self.source_table, table)
    }

    /// The name that a column has behind the decoder.
    fn renamed<'a>(&'a self, name: &'a str) -> &'a str {
        self.rename.iter().find(|(old, _)| old == name).map_or(name, |(_, new)| new)
    }

    /// What stands for the values of a column.
    fn substitute(&self, name: &str) -> Option<plan::Substitute> {
        let mask = self.masked.as_ref().filter(|(columns, _)| columns.iter().any(|column| column == name));
        let text = || self.as_text.iter().any(|column| column == name).then_some(plan::Substitute::Text);
        mask.map(|(_, mask)| plan::Substitute::Mask(mask.clone())).or_else(text)
    }

    /// Declares the columns of a schema that is known from elsewhere, such as the store's own table, behind those declared already.
    pub fn declare(&mut self, known: &TableSchema) {
        for column in known.key_columns().chain(known.columns()) {
            if declared_type(self, &column.name).is_none() {
                self.types.push((column.name.clone(), column.ty));
            }
        }
    }
}

fn declared_type(options: &Options, column: &str) -> Option<LogicalType> {
    options.types.iter().find(|(name, _)| name == column).map(|(_, ty)| *ty)
}

/// The type that was inferred for a column, unless one is declared.
fn inferred_type(options: &Options, column: &str) -> Option<LogicalType> {
    let inferred = options.inferred.iter().find(|(name, _)| name == column).map(|(_, ty)| *ty);
    inferred.filter(|_| declared_type(options, column).is_none())
}

/// Header of a delete that is half of a key change: the row's new key.
pub const NEW_KEY: &str = "__debezium.newkey";

/// Header of a create that is the other half: the row's former key.
pub const OLD_KEY: &str = "__debezium.oldkey";

/// The headers of a record. They are asked for by name, and only where one can matter.
pub trait Headers: std::fmt::Debug {
    /// The value of a header.
    fn get(&self, name: &str) -> Option<&[u8]>;
}

impl Headers for crate::capture::Record {
    fn get(&self, name: &str) -> Option<&[u8]> {
        self.header(name)
    }
}

/// One source record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record<'a> {
    /// Offset in the source partition; used only with [`Order::Offset`].
    pub offset: i64,
    /// Key; `None` for Kafka's null.
    pub key: Option<&'a [u8]>,
    /// Value; `None` for Kafka's null.
    pub value: Option<&'a [u8]>,
    /// Headers: the two halves of a key change name each other in them.
    pub headers: Option<&'a dyn Headers>,
    /// Kafka's time of the record, micros since 1970 UTC: when a plain record happened.
    pub timestamp: Option<i64>,
}

/// What a record says.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every record is the large one, and a box would be an allocation for each")]
pub enum Decoded<'a> {
    /// One change, or two where an update moved a row to another key.
    Changes(Changes<'a>),
    /// Nothing about any row.
    Ignored(Ignored),
}

/// The changes of one record: mostly one.
#[derive(Clone, Debug)]
pub struct Changes<'a> {
    /// The change: ordinal 0, or 1 behind a delete of the row's former key.
    pub change: Keyed<'a>,
    /// The former key, canonical and plain, where the record says that the key changed.
    former_key: Option<(&'a [u8], &'a [u8])>,
    /// The rows behind the first one, where a record has several.
    more: &'a [Further],
    /// The schema that the changes are written with. The caller publishes its contract before the first record that uses it.
    pub schema: &'a Arc<TableSchema>,
    /// The fingerprint of that contract.
    pub fingerprint: Fingerprint,
    /// Whether the offset of the record is what orders them.
    pub by_offset: bool,
}

impl<'a> Changes<'a> {
    /// The delete of the row's former key, ordinal 0, where an update moved it (case PKC-02).
    pub fn moved(&self) -> Option<Keyed<'a>> {
        let (key, plain) = self.former_key?;
        let half = &self.change.change;
        let other_key = half.other_key.and(half.key);
        let change = Change { op: Op::Delete, key: Some(plain), other_key, unauthored: ColumnSet::new(), before: None, after: None, ..half.clone() };
        Some(Keyed { key: Some(key), change })
    }

    /// The changes behind the first row's, in order: nothing for nearly every record.
    pub fn more(&self) -> Vec<Keyed<'a>> {
        let mut changes = Vec::new();
        for row in self.more {
            let former = row.former.as_ref().map(|former| (former.canonical.as_slice(), former.plain.as_slice()));
            let change = Change {
                key: Some(&row.key.plain),
                other_key: None,
                unauthored: row.unauthored.clone(),
                before: row.before.as_deref(),
                after: row.after.as_deref(),
                ..self.change.change.clone()
            };
            let of_row = Self { change: Keyed { key: Some(&row.key.canonical), change }, former_key: former, more: &[], ..self.clone() };
            changes.extend(of_row.moved());
            changes.push(of_row.change);
        }
        changes
    }

    /// Hands over the changes in order, each with the ordinal of its provenance.
    pub fn each<E>(&self, mut take: impl FnMut(u32, &Keyed<'a>) -> Result<(), E>) -> Result<(), E> {
        let (moved, more) = (self.moved(), self.more());
        (0..).zip(moved.iter().chain([&self.change]).chain(&more)).try_for_each(|(ordinal, keyed)| take(ordinal, keyed))
    }
}

/// A row behind the first one of its record.
#[derive(Debug)]
struct Further {
    key: plan::Key,
    /// Its former key, where the key changed.
    former: Option<plan::Key>,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
    unauthored: ColumnSet,
}

/// A change with the key under which it goes to the log.
#[derive(Clone, Debug)]
pub struct Keyed<'a> {
    /// The canonical key, the Kafka key of the log record; `None` for a mark, which goes to every partition.
    pub key: Option<&'a [u8]>,
    /// The change. `sequence` is `None` for a tombstone.
    pub change: Change<'a>,
}

/// Records that concern no row; counted, never an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ignored {
    /// A heartbeat (case CTL-02).
    Heartbeat,
    /// The beginning or end of a transaction (case TXN-01).
    Transaction,
    /// A logical decoding message (case CTL-03).
    Message,
    /// DDL that a connector saw.
    SchemaChange,
    /// The beginning or end of a snapshot, which no row rests on.
    Marker,
    /// A change of another table of the same topic.
    OtherTable,
    /// Neither key nor value: what follows the delete of a row in a table without a key.
    Empty,
}

impl Ignored {
    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Heartbeat => "heartbeat",
            Self::Transaction => "transaction",
            Self::Message => "message",
            Self::SchemaChange => "schema_change",
            Self::Marker => "marker",
            Self::OtherTable => "other_table",
            Self::Empty => "empty",
        }
    }
}

/// Names with commas between them; beyond [`NAMED_MAX`] only their number.
fn list(names: &[String]) -> String {
    let shown: SmallVec<[&str; NAMED_MAX]> = names.iter().take(NAMED_MAX).map(String::as_str).collect();
    match names.len().checked_sub(NAMED_MAX) {
        Some(rest) if rest > 0 => format!("{} and {rest} more", shown.join(", ")),
        _ => shown.join(", "),
    }
}
