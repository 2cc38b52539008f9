//! Where a log record came from: what repeats are recognised by.
//!
//! Every record of the change log carries one header, [`HEADER`], whose value is this encoding. Per log partition, state keeps the highest
//! place per source partition; a record that is not above it is a repeat (ARCHITECTURE.md, Repeats, zombies and order). Layout, version 1:
//! `01`, dialect byte, topic id (16), partition (zigzag varint), offset (zigzag varint), ordinal (varint), topic name (rest).
//! Version 2 is a dead letter that was replayed: `02`, the same up to the ordinal, the letter's offset in the dead-letter topic (zigzag varint),
//! topic name (rest). It stands behind records that have left its source partition's highest place above it, so that place neither judges it nor
//! is moved by it; it keeps its own place for ties and tombstones.

use crate::wire::{Reader, WireError, put_long, put_varint};

/// Name of the header of a change-log record that holds its provenance.
pub const HEADER: &str = "landfall.provenance";

/// Version byte of the layout.
const VERSION: u8 = 1;

/// Version byte of the layout of a replayed dead letter.
const VERSION_REPLAYED: u8 = 2;

/// The dialect that a source record was written in. Numbers are part of the encoding and never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Debezium's change event envelope.
    #[default]
    Debezium = 1,
    /// Debezium's rows without an envelope.
    Flattened = 2,
    /// Maxwell's events.
    Maxwell = 3,
    /// Canal's flat messages.
    Canal = 4,
    /// Rows, which the key of their record names.
    Plain = 5,
    /// Debezium's events of MongoDB, whose rows are documents.
    Mongodb = 6,
}

impl Dialect {
    /// Name in topology files, metrics and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Debezium => "debezium",
            Self::Flattened => "flattened",
            Self::Maxwell => "maxwell",
            Self::Canal => "canal",
            Self::Plain => "plain",
            Self::Mongodb => "mongodb",
        }
    }

    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] = [Self::Debezium, Self::Flattened, Self::Maxwell, Self::Canal, Self::Plain, Self::Mongodb];

    fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| *dialect as u8 == number)
    }
}

/// A place in a source: where a record stood, and which change of that record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Place {
    /// Offset in the source partition.
    pub offset: i64,
    /// Ordinal of the change within the record, from 0.
    pub ordinal: u32,
}

/// The source partition: a topic's incarnation and a partition of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourcePartition {
    /// The topic's id, new whenever a topic of that name is created again; zero where the broker gives none.
    pub incarnation: [u8; 16],
    /// Partition number.
    pub partition: i32,
}

/// Provenance of one log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provenance<'a> {
    /// The dialect of the source record.
    pub dialect: Dialect,
    /// Name of the source topic.
    pub topic: &'a str,
    /// The source partition.
    pub source: SourcePartition,
    /// The place in it.
    pub place: Place,
    /// Offset in the dead-letter topic of the letter that this record is a replay of; none for what came straight from its source.
    pub replayed: Option<i64>,
}

impl<'a> Provenance<'a> {
    /// Appends the header's value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(if self.replayed.is_some() { VERSION_REPLAYED } else { VERSION });
        out.push(self.dialect as u8);
        out.extend_from_slice(&self.source.incarnation);
        put_long(out, i64::from(self.source.partition));
        put_long(out, self.place.offset);
        put_varint(out, u64::from(self.place.ordinal));
        if let Some(letter) = self.replayed {
            put_long(out, letter);
        }
        out.extend_from_slice(self.topic.as_bytes());
    }

    /// Reads a header's value.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        let is_replayed = match reader.byte()? {
            VERSION => false,
            VERSION_REPLAYED => true,
            _ => return Err(WireError::Index),
        };
        let dialect = Dialect::of_number(reader.byte()?).ok_or(WireError::Index)?;
        let incarnation = reader.array()?;
        let partition = i32::try_from(reader.long()?).map_err(|_| WireError::Number)?;
        let offset = reader.long()?;
        let ordinal = u32::try_from(reader.varint()?).map_err(|_| WireError::Number)?;
        let replayed = if is_replayed { Some(reader.long()?) } else { None };
        let topic = std::str::from_utf8(reader.rest()).map_err(|_| WireError::Text)?;
        Ok(Self { dialect, topic, source: SourcePartition { incarnation, partition }, place: Place { offset, ordinal }, replayed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let provenance = Provenance {
            dialect: Dialect::Debezium,
            topic: "shop.public.orders",
            source: SourcePartition { incarnation: [7; 16], partition: 3 },
            place: Place { offset: 300, ordinal: 2 },
            replayed: None,
        };
        let mut bytes = Vec::new();
        provenance.encode(&mut bytes);
        let mut golden = vec![1, 1];
        golden.extend_from_slice(&[7; 16]);
        golden.extend_from_slice(&[6, 0xD8, 4, 2]);
        golden.extend_from_slice(b"shop.public.orders");
        assert_eq!(bytes, golden);
        assert_eq!(Provenance::decode(&bytes), Ok(provenance));
        for end in 0..22 {
            assert!(Provenance::decode(&bytes[..end]).is_err());
        }
        let replayed = Provenance { replayed: Some(64), ..provenance };
        bytes.clear();
        replayed.encode(&mut bytes);
        golden[0] = 2;
        golden.splice(22..22, [0x80, 1]);
        assert_eq!(bytes, golden);
        assert_eq!(Provenance::decode(&bytes), Ok(replayed));
        for end in 0..24 {
            assert!(Provenance::decode(&bytes[..end]).is_err());
        }
    }
}
