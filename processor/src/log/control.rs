//! The control topic `<topology>.control`: what must be known about sources before their first record is read.
//!
//! Compacted, one JSON record per source topic: its incarnation, its partition count, and its epochs with the first offset of each
//! (ARCHITECTURE.md, Epoch). It is written before the first record of an epoch is.

use std::collections::BTreeMap;

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

fn hex(bytes: &[u8; 16]) -> String {
    let mut text = String::new();
    push_hex(&mut text, bytes);
    text
}

/// Reads the control topic: the latest record of each source topic.
pub fn load(kafka: &KafkaPlan, topic: &str) -> Result<BTreeMap<String, Source>, KafkaError> {
    let mut sources = BTreeMap::new();
    read_to_end(kafka, topic, |_, value| {
        if let Some(source) = value.and_then(|v| serde_json::from_slice::<Source>(v).ok()) {
            let _ = sources.insert(source.topic.clone(), source);
        }
    })?;
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

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
