//! The control topic `<topology>.control`: what must be known about sources and tables before their first record is.
//!
//! Compacted, one JSON record per source topic: its incarnation, its partition count, and its epochs with the first offset of each
//! (ARCHITECTURE.md, Epoch). It is written before the first record of an epoch is.
//!
//! Beside them stand the types that were inferred for columns of tables, each before the first record that uses it. The topic has one partition, so
//! there is one order for everybody, and the first type of a column is the one that counts: whoever settles some writes what it found and then
//! reads what is so. Compaction would keep the last record of a key instead, so each of these has a key of its own.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};

use landfall_schemas::LogicalType;
use landfall_schemas::value::push_hex;
use landfall_topology::plan::KafkaPlan;
use rdkafka::error::KafkaError;
use serde::{Deserialize, Serialize};

use super::contracts::read_to_end;
use super::incarnation::Described;

/// An epoch: a timeline of the source, from an offset of each partition on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// Its number.
    pub epoch: u32,
    /// First offset per partition; a partition that is missing begins in it.
    pub first: BTreeMap<i32, i64>,
}

/// What is pinned of a source topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The topic.
    pub topic: String,
    /// Its id as hex.
    pub incarnation: String,
    /// Its partition count.
    pub partitions: u32,
    /// Its epochs in ascending order.
    pub epochs: Vec<Epoch>,
    /// Whether changes of it are ordered by their offsets: its partition count may not change then.
    #[serde(default)]
    pub by_offset: bool,
}

/// Why a source topic must not be read on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceChanged {
    /// Deleted and made again: its offsets mean other records (law 8).
    #[error("source topic {topic:?} was deleted and made again")]
    Recreated {
        /// The topic.
        topic: String,
    },
    /// Its partition count changed, and the table's order rests on it.
    #[error("source topic {topic:?} has {found} partitions, before it had {pinned}, and its table is ordered by offset")]
    Repartitioned {
        /// The topic.
        topic: String,
        /// Partitions now.
        found: u32,
        /// Partitions before.
        pinned: u32,
    },
}

impl SourceChanged {
    /// The stable code under which it is reported.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Recreated { .. } => "source.recreated",
            Self::Repartitioned { .. } => "source.repartitioned",
        }
    }
}

impl Source {
    /// The record of a topic that is read for the first time.
    pub fn new(topic: &str, described: Described, epoch: u32) -> Self {
        Self {
            topic: topic.to_owned(),
            incarnation: hex(&described.incarnation),
            partitions: described.partitions,
            epochs: vec![Epoch { epoch, first: BTreeMap::new() }],
            by_offset: false,
        }
    }

    /// Compares the topic with what is pinned.
    pub fn check(&self, described: Described) -> Result<(), SourceChanged> {
        if self.incarnation != hex(&described.incarnation) {
            return Err(SourceChanged::Recreated { topic: self.topic.clone() });
        }
        if self.by_offset && self.partitions != described.partitions {
            return Err(SourceChanged::Repartitioned { topic: self.topic.clone(), found: described.partitions, pinned: self.partitions });
        }
        Ok(())
    }

    /// Whether a partition may be read: not one that came since the count was pinned.
    pub fn check_partition(&self, partition: i32) -> Result<(), SourceChanged> {
        let found = partition.cast_unsigned() + 1;
        if self.by_offset && found > self.partitions {
            return Err(SourceChanged::Repartitioned { topic: self.topic.clone(), found, pinned: self.partitions });
        }
        Ok(())
    }

    /// The epoch of a record.
    pub fn epoch(&self, partition: i32, offset: i64) -> u32 {
        let reached = |e: &&Epoch| e.first.get(&partition).is_none_or(|first| *first <= offset);
        self.epochs.iter().rfind(reached).map_or(0, |e| e.epoch)
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    push_hex(&mut text, bytes);
    text
}

/// Types that somebody found for columns of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settling {
    /// Id of the table.
    pub table: String,
    /// Its columns by their names in the source, and their types.
    pub settled: Types,
}

/// Columns and their types, in the order in which they were settled.
pub type Types = Vec<(String, LogicalType)>;

impl Settling {
    /// A key that no other record has; source topics, by which the others go, have no such name.
    pub fn key(&self) -> String {
        let chance = [0_u8, 1].map(|turn| RandomState::new().hash_one((&self.table, turn)));
        format!("types/{}/{:016x}{:016x}", self.table, chance[0], chance[1])
    }
}

/// What the control topic says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// The latest record of each source topic.
    pub sources: BTreeMap<String, Source>,
    /// What is settled of each table: the first type of each column.
    pub types: BTreeMap<String, Types>,
}

impl Control {
    /// Takes in the next record. What is none of these is a newer build's.
    fn take(&mut self, value: &[u8]) {
        if let Ok(source) = serde_json::from_slice::<Source>(value) {
            let _ = self.sources.insert(source.topic.clone(), source);
        } else if let Ok(Settling { table, settled }) = serde_json::from_slice(value) {
            let types = self.types.entry(table).or_default();
            for (column, ty) in settled {
                if !types.iter().any(|(known, _)| *known == column) {
                    types.push((column, ty));
                }
            }
        }
    }
}

/// Reads the control topic to the end that it has now.
pub fn load(kafka: &KafkaPlan, topic: &str) -> Result<Control, KafkaError> {
    let mut control = Control::default();
    read_to_end(kafka, topic, |_, value| value.into_iter().for_each(|value| control.take(value)))?;
    Ok(control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_type_of_a_column_counts_whoever_settled_it() {
        let settling = |columns: &[(&str, LogicalType)]| Settling {
            table: "t".into(),
            settled: columns.iter().map(|(name, ty)| ((*name).to_owned(), *ty)).collect(),
        };
        let (mine, yours) =
            (settling(&[("a", LogicalType::Int64)]), settling(&[("b", LogicalType::Text), ("a", LogicalType::Numeric), ("c", LogicalType::Bool)]));
        let mut control = Control::default();
        for settling in [&mine, &yours, &mine] {
            control.take(&serde_json::to_vec(settling).expect("text"));
        }
        control.take(br#"{"of":"a newer build"}"#);
        let expected = [("a".to_owned(), LogicalType::Int64), ("b".to_owned(), LogicalType::Text), ("c".to_owned(), LogicalType::Bool)];
        assert_eq!(control.types.get("t").map(Vec::as_slice), Some(&expected[..]));
        assert_ne!(mine.key(), mine.key(), "compaction keeps both");
        assert!(control.sources.is_empty());
    }

    #[test]
    fn epochs_begin_at_their_offsets() {
        let mut source = Source::new("t", Described { incarnation: [1; 16], partitions: 2 }, 0);
        source.epochs.push(Epoch { epoch: 1, first: [(0, 10), (1, 20)].into() });
        assert_eq!((source.epoch(0, 9), source.epoch(0, 10), source.epoch(1, 19), source.epoch(1, 20)), (0, 1, 0, 1));
    }

    #[test]
    fn law_8_recreated_and_repartitioned_topics_are_noticed() {
        let described = |id, partitions| Described { incarnation: [id; 16], partitions };
        let source = Source::new("t", described(1, 2), 0);
        assert_eq!((source.check(described(1, 2)), source.check(described(1, 3)), source.check_partition(2)), (Ok(()), Ok(()), Ok(())));
        assert!(matches!(source.check(described(2, 2)), Err(SourceChanged::Recreated { .. })));
        let source = Source { by_offset: true, ..source };
        assert_eq!((source.check(described(1, 2)), source.check_partition(1)), (Ok(()), Ok(())));
        for changed in [source.check(described(1, 3)), source.check(described(1, 1)), source.check_partition(2)] {
            assert!(matches!(changed, Err(SourceChanged::Repartitioned { pinned: 2, .. })), "{changed:?}");
        }
    }
}
