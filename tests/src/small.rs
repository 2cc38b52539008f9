//! A small table, `t(id int64, a text, b text, c text)`, as the core sees it: how records of the oracle become changes, and rows come back.

use std::sync::{Arc, LazyLock};

use landfall_schemas::change::SourceBlock;
use landfall_schemas::contract::{self, Fingerprint};
use landfall_schemas::provenance::{Dialect, Place, SourcePartition};
use landfall_schemas::sequence::{Rank, RankClass};
use landfall_schemas::{Change, Column, ColumnSet, LogicalType, Op, Provenance, Sequence, TableSchema, Value, key, row};

use crate::oracle::{self, Cells, Record, Values, What};

/// The table.
pub static SCHEMA: LazyLock<Arc<TableSchema>> = LazyLock::new(|| {
    let column = |name: &str, ty| Column { name: name.to_owned(), ty, nullable: true };
    let columns =
        vec![column("id", LogicalType::Int64), column("a", LogicalType::Text), column("b", LogicalType::Text), column("c", LogicalType::Text)];
    Arc::new(TableSchema::new("t", columns, &["id"]).expect("a valid schema"))
});

/// Its contract.
pub static FINGERPRINT: LazyLock<Fingerprint> = LazyLock::new(|| contract::of(&SCHEMA).1);

/// Name of the source topic.
pub const TOPIC: &str = "shop.public.t";

/// An order-preserving sequence: 16 bits of epoch, 24 of position, 16 of order.
pub fn sequence(seq: u64) -> Sequence {
    Sequence::of_dialect((seq >> 40) as u32, seq >> 16 & 0xFF_FFFF, seq & 0xFFFF, 0)
}

/// The oracle's form of a rank.
pub fn rank(rank: &Rank) -> oracle::Rank {
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
pub const fn source(number: u8) -> SourcePartition {
    SourcePartition { incarnation: [9; 16], partition: number as i32 }
}

/// The canonical key of a number.
pub fn key(number: u8) -> Vec<u8> {
    let mut out = Vec::new();
    key::encode(LogicalType::Int64, Value::Int(number.into()), &mut out).expect("an integer is a key");
    out
}

/// The encoded key columns of a key.
pub fn plain_key(number: u8) -> Vec<u8> {
    let mut out = Vec::new();
    row::put_plain(LogicalType::Int64, Value::Int(number.into()), &mut out).expect("fits");
    out
}

/// The parts of a change that it borrows.
#[derive(Clone, Debug)]
pub struct Parts {
    op: Op,
    sequence: Option<Sequence>,
    snapshot: Option<i64>,
    unauthored: ColumnSet,
    key_row: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
    /// The canonical key; none for marks.
    pub key: Option<Vec<u8>>,
}

/// Which columns a record leaves out, as positions in the table.
pub fn unauthored(cells: &Cells) -> ColumnSet {
    cells.iter().enumerate().filter(|(_, c)| c.is_none()).map(|(i, _)| i + 1).collect()
}

/// A row; what is not authored reads NULL in it.
pub fn row(number: u8, cells: &Cells) -> Vec<u8> {
    let mut out = Vec::new();
    row::put(LogicalType::Int64, Value::Int(number.into()), &mut out).expect("fits");
    for cell in cells {
        let letter = [cell.flatten().unwrap_or_default()];
        let text = std::str::from_utf8(&letter).expect("letters are ASCII");
        let value = if cell.flatten().is_some() { Value::Text(text) } else { Value::Null };
        row::put(LogicalType::Text, value, &mut out).expect("fits");
    }
    out
}

impl Parts {
    /// The parts of a record.
    pub fn new(record: &Record) -> Self {
        let (op, cells) = match record.what {
            What::Write(cells) => (Op::Update, Some(cells)),
            What::Read(cells, _) => (Op::Read, Some(cells)),
            What::Delete | What::Bare => (Op::Delete, None),
            What::Truncate => (Op::Truncate, None),
            What::Sweep(_) => (Op::SnapshotEnd, None),
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
            unauthored: cells.as_ref().map(unauthored).unwrap_or_default(),
            key_row: (!op.is_mark()).then(|| plain_key(record.key)),
            after: cells.as_ref().map(|cells| row(record.key, cells)),
            key: (!op.is_mark()).then(|| key(record.key)),
        }
    }

    /// The change.
    pub fn change(&self) -> Change<'_> {
        Change {
            op: self.op,
            sequence: self.sequence.as_ref().map(Sequence::as_bytes),
            event_time: None,
            source: SourceBlock::default(),
            snapshot: self.snapshot,
            unauthored: self.unauthored.clone(),
            key: self.key_row.as_deref(),
            before: None,
            after: self.after.as_deref(),
        }
    }

    /// The encoded change.
    pub fn value(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.change().encode(*FINGERPRINT, &mut out);
        out
    }
}

/// The encoded provenance of a record.
pub fn provenance(record: &Record) -> Vec<u8> {
    let mut out = Vec::new();
    let place = Place { offset: record.at.offset, ordinal: record.at.ordinal };
    Provenance { dialect: Dialect::Debezium, topic: TOPIC, source: source(record.at.source), place }.encode(&mut out);
    out
}

/// The key and the values of a landed row.
pub fn read_row(bytes: &[u8]) -> (u8, Values) {
    let values: Vec<Value<'_>> = row::values(SCHEMA.columns(), bytes).map(|pair| pair.expect("a row of the core").1).collect();
    let letter = |value: &Value<'_>| match value {
        Value::Text(text) => Some(text.as_bytes()[0]),
        _ => None,
    };
    let Value::Int(id) = values[0] else { panic!("no id in {values:?}") };
    (id as u8, [letter(&values[1]), letter(&values[2]), letter(&values[3])])
}

/// The number of an encoded key.
pub fn read_key(bytes: &[u8]) -> u8 {
    let value = row::read_plain(LogicalType::Int64, &mut landfall_schemas::wire::Reader::new(bytes)).expect("a key of the core");
    let Value::Int(id) = value else { panic!("no id in {value:?}") };
    id as u8
}
