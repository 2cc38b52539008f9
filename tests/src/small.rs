//! A small table, `t(id int64, a text, b text, c text)`, as the core sees it: how records of the oracle become changes, and rows come back.

use std::sync::{Arc, LazyLock};

use landfall_schemas::change::SourceBlock;
use landfall_schemas::contract::{self, Fingerprint};
use landfall_schemas::provenance::{Dialect, Place, SourcePartition};
use landfall_schemas::sequence::{Rank, RankClass};
use landfall_schemas::wire::Reader;
use landfall_schemas::{Change, Column, ColumnSet, LogicalType, Op, Provenance, Sequence, TableSchema, Value, key, row};

use crate::oracle::{self, Cells, Record, Values, What};

/// The table.
pub(crate) static SCHEMA: LazyLock<Arc<TableSchema>> = LazyLock::new(|| {
    let column = |name: &str, ty| Column { name: name.to_owned(), ty, nullable: true };
    let columns =
        vec![column("id", LogicalType::Int64), column("a", LogicalType::Text), column("b", LogicalType::Text), column("c", LogicalType::Text)];
    Arc::new(TableSchema::new("t", columns, &["id"]).expect("a valid schema"))
});

/// Its contract.
pub(crate) static FINGERPRINT: LazyLock<Fingerprint> = LazyLock::new(|| contract::of(&SCHEMA).1);

/// Versions of the table: it began with `a`; then came `c`, and then `b` between them.
pub(crate) static VERSIONS: LazyLock<[(TableSchema, Fingerprint); 3]> = LazyLock::new(|| {
    [&["id", "a"][..], &["id", "a", "c"], &["id", "a", "b", "c"]].map(|names| {
        let columns = names.iter().map(|name| SCHEMA.columns()[SCHEMA.position(name).expect("a column")].clone()).collect();
        let schema = TableSchema::new("t", columns, &["id"]).expect("a valid schema");
        let fingerprint = contract::of(&schema).1;
        (schema, fingerprint)
    })
});

/// The last version: all columns.
pub(crate) const WHOLE: usize = 2;

/// Which of the three columns a version has.
pub(crate) const fn columns(version: usize) -> &'static [usize] {
    match version {
        0 => &[0],
        1 => &[0, 2],
        _ => &[0, 1, 2],
    }
}

/// Name of the source topic.
pub(crate) const TOPIC: &str = "shop.public.t";

/// An order-preserving sequence: 16 bits of epoch, 24 of position, 16 of order.
pub(crate) fn sequence(seq: u64) -> Sequence {
    Sequence::of_dialect((seq >> 40) as u32, seq >> 16 & 0xFF_FFFF, seq & 0xFFFF, 0)
}

/// The oracle's form of a rank.
pub(crate) fn rank(rank: &Rank) -> oracle::Rank {
    let (epoch, commit, order, _) = rank.sequence.dialect_parts().expect("made by `sequence`");
    let class = match rank.class {
        RankClass::Sweep => 0,
        RankClass::Event => 1,
        RankClass::Tombstone => 2,
        RankClass::Truncate => 3,
    };
    (u64::from(epoch) << 40 | commit << 16 | order, class)
}

/// The source partition of a number.
pub(crate) const fn source(number: u8) -> SourcePartition {
    SourcePartition { incarnation: [9; 16], partition: number as i32 }
}

/// The canonical key of a number.
pub(crate) fn key(number: u8) -> Vec<u8> {
    let mut out = Vec::new();
    key::encode(LogicalType::Int64, Value::Int(number.into()), &mut out).expect("an integer is a key");
    out
}

/// The encoded key columns of a key.
pub(crate) fn plain_key(number: u8) -> Vec<u8> {
    let mut out = Vec::new();
    row::put_plain(LogicalType::Int64, Value::Int(number.into()), &mut out).expect("fits");
    out
}

/// The parts of a change that it borrows.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    op: Op,
    sequence: Option<Sequence>,
    snapshot: Option<i64>,
    unauthored: ColumnSet,
    key_row: Option<Vec<u8>>,
    other_key: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
    version: usize,
    /// The canonical key; none for marks.
    pub key: Option<Vec<u8>>,
}

/// Which columns a record leaves out, as positions in a version of the table.
pub(crate) fn unauthored(cells: &Cells, version: usize) -> ColumnSet {
    columns(version).iter().enumerate().filter(|(_, c)| cells[**c].is_none()).map(|(i, _)| i + 1).collect()
}

/// A row in a version of the table; what is not authored reads NULL in it.
pub(crate) fn row(number: u8, cells: &Cells, version: usize) -> Vec<u8> {
    let mut out = Vec::new();
    row::put(LogicalType::Int64, Value::Int(number.into()), &mut out).expect("fits");
    for cell in columns(version).iter().map(|c| cells[*c]) {
        let letter = [cell.flatten().unwrap_or_default()];
        let text = std::str::from_utf8(&letter).expect("letters are ASCII");
        let value = if cell.flatten().is_some() { Value::Text(text) } else { Value::Null };
        row::put(LogicalType::Text, value, &mut out).expect("fits");
    }
    out
}

impl Parts {
    /// The parts of a record of the whole table.
    pub(crate) fn new(record: &Record) -> Self {
        Self::of_version(record, WHOLE)
    }

    /// The parts of a record of a version of the table.
    pub(crate) fn of_version(record: &Record, version: usize) -> Self {
        let (op, cells) = match record.what {
            What::Write(cells) => (Op::Update, Some(cells)),
            What::Arrive(cells, ..) => (Op::Create, Some(cells)),
            What::Read(cells, _) => (Op::Read, Some(cells)),
            What::Delete | What::Leave(_) | What::Bare => (Op::Delete, None),
            What::Truncate => (Op::Truncate, None),
            What::Sweep(_) => (Op::SnapshotEnd, None),
            What::Refused(..) => unreachable!("only the oracle knows what a replica refuses"),
        };
        let snapshot = match record.what {
            What::Read(_, id) => id,
            What::Sweep(id) => Some(id),
            _ => None,
        };
        Self {
            op,
            sequence: (record.what != What::Bare).then(|| sequence(record.seq)),
            snapshot,
            unauthored: cells.as_ref().map(|cells| unauthored(cells, version)).unwrap_or_default(),
            key_row: (!op.is_mark()).then(|| plain_key(record.key)),
            other_key: if let What::Arrive(_, other, _) | What::Leave(other) = record.what { Some(plain_key(other)) } else { None },
            after: cells.as_ref().map(|cells| row(record.key, cells, version)),
            version,
            key: (!op.is_mark()).then(|| key(record.key)),
        }
    }

    /// The change.
    pub(crate) fn change(&self) -> Change<'_> {
        Change {
            op: self.op,
            sequence: self.sequence.as_ref().map(Sequence::as_bytes),
            event_time: None,
            source: SourceBlock::default(),
            snapshot: self.snapshot,
            unauthored: self.unauthored.clone(),
            key: self.key_row.as_deref(),
            other_key: self.other_key.as_deref(),
            before: None,
            after: self.after.as_deref(),
        }
    }

    /// Fingerprint of the version that it is encoded in.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        VERSIONS[self.version].1
    }

    /// The encoded change.
    pub(crate) fn value(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.change().encode(self.fingerprint(), &mut out);
        out
    }
}

/// The encoded provenance of a record.
pub(crate) fn provenance(record: &Record) -> Vec<u8> {
    provenance_of(record, None)
}

/// The encoded provenance of a record that may be a replay of a dead letter.
pub(crate) fn provenance_of(record: &Record, replayed: Option<i64>) -> Vec<u8> {
    let mut out = Vec::new();
    let place = Place { offset: record.at.offset, ordinal: record.at.ordinal };
    Provenance { dialect: Dialect::Debezium, topic: TOPIC, source: source(record.at.source), place, replayed }.encode(&mut out);
    out
}

/// The key and the values of a landed row of the whole table.
pub(crate) fn read_row(bytes: &[u8]) -> (u8, Values) {
    read_row_of(&SCHEMA, bytes)
}

/// The key and the values of a landed row; what stands behind its end reads NULL.
pub(crate) fn read_row_of(schema: &TableSchema, bytes: &[u8]) -> (u8, Values) {
    let (mut id, mut values) = (None, [None; 3]);
    let mut reader = Reader::new(bytes);
    for column in schema.columns() {
        if reader.rest().is_empty() {
            break;
        }
        let value = row::read(column.ty, &mut reader).expect("a row of the core");
        match (column.name.as_str(), value) {
            ("id", Value::Int(value)) => id = Some(value as u8),
            (name, Value::Text(text)) => values[usize::from(name.as_bytes()[0] - b'a')] = text.bytes().next(),
            _ => {}
        }
    }
    (id.expect("a row has a key"), values)
}

/// The number of an encoded key.
pub(crate) fn read_key(bytes: &[u8]) -> u8 {
    let value = row::read_plain(LogicalType::Int64, &mut Reader::new(bytes)).expect("a key of the core");
    let Value::Int(id) = value else { panic!("no id in {value:?}") };
    id as u8
}
