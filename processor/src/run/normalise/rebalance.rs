//! How the normaliser answers rebalances: new partitions begin where the group left off, lost ones are committed first.

use std::sync::{Mutex, PoisonError};

use hashbrown::HashMap;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};

use super::WAIT;
use crate::run::group::{self, Member, Rebalance};

/// The input topics' consumer.
pub(super) type Consumer = BaseConsumer<Member<ByCommit>>;

/// What was heard.
#[derive(Debug)]
pub(super) enum Event {
    /// Topics and partitions that are ours now.
    Assigned(Vec<Begin>),
    /// Where to begin is not known, or the client did not take them: the session ends, and the next one asks again.
    Failed(KafkaError),
    /// Those that are no longer ours.
    Revoked(Vec<(String, i32)>),
    /// The records of a topic that come now are of this incarnation of it.
    Identified(String, [u8; 16]),
}

/// Where a partition begins.
#[derive(Debug)]
pub(super) struct Begin {
    /// Topic and partition.
    pub(super) name: (String, i32),
    /// The committed offset; 0 where there is none.
    pub(super) committed: i64,
    /// Its metadata.
    pub(super) metadata: String,
}

/// Knows what stands to be committed of each partition.
#[derive(Default)]
pub(super) struct ByCommit {
    standing: Mutex<HashMap<(String, i32), (i64, String)>>,
}

impl Rebalance for ByCommit {
    type Event = Event;

    fn answer(&self, consumer: &Consumer, assigned: bool, partitions: &mut TopicPartitionList) -> Event {
        if assigned {
            // The client wants its answer whether or not it is known where to begin.
            let begun = begin(consumer, partitions);
            let taken = consumer.incremental_assign(partitions);
            return begun.and_then(|assigned| taken.map(|()| assigned)).map_or_else(Event::Failed, Event::Assigned);
        }
        let names = group::names(partitions);
        self.commit(consumer, &names);
        if let Err(error) = consumer.incremental_unassign(partitions) {
            tracing::warn!(%error, "giving partitions back failed");
        }
        Event::Revoked(names)
    }

    fn identified(&self, topic: String, incarnation: [u8; 16]) -> Option<Event> {
        Some(Event::Identified(topic, incarnation))
    }
}

impl ByCommit {
    /// What stands now of a partition: committed when it goes to another owner.
    pub(super) fn stand(&self, name: &(String, i32), offset: i64, metadata: String) {
        let _ = self.standing.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), (offset, metadata));
    }

    /// Commits what stands for these partitions, waiting for the answer: they are about to go to another owner.
    fn commit(&self, consumer: &Consumer, partitions: &[(String, i32)]) {
        let mut list = TopicPartitionList::new();
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        for name in partitions {
            if let Some((offset, metadata)) = standing.remove(name) {
                add(&mut list, name, offset, &metadata);
            }
        }
        drop(standing);
        if list.count() > 0 && !consumer.assignment_lost() {
            // What is not committed is read again by the next owner, and recognised.
            drop(consumer.commit(&list, CommitMode::Sync));
        }
    }
}

/// Sets the offsets of new partitions to the committed ones, or to the first record.
fn begin(consumer: &Consumer, partitions: &mut TopicPartitionList) -> Result<Vec<Begin>, KafkaError> {
    let committed = consumer.committed_offsets(partitions.clone(), WAIT)?;
    let mut assigned = Vec::new();
    for element in committed.elements() {
        element.error()?;
        let (topic, partition) = (element.topic(), element.partition());
        let (offset, committed) = match element.offset() {
            Offset::Offset(at) => (Offset::Offset(at), at),
            _ => (Offset::Beginning, 0),
        };
        partitions.set_partition_offset(topic, partition, offset)?;
        assigned.push(Begin { name: (topic.to_owned(), partition), committed, metadata: element.metadata().to_owned() });
    }
    Ok(assigned)
}

/// Adds an offset with its metadata to a list.
pub(super) fn add(list: &mut TopicPartitionList, (topic, partition): &(String, i32), offset: i64, metadata: &str) {
    let mut element = list.add_partition(topic, *partition);
    drop(element.set_offset(Offset::Offset(offset)));
    element.set_metadata(metadata);
}
