//! Contracts of the change log: the compacted topic `<topology>.schemas`, keyed by fingerprint.
//!
//! A normaliser publishes a contract, and waits for the acknowledgement, before the first record that names it; a lander that meets an unknown
//! fingerprint therefore finds it by reading the topic to its end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use landfall_schemas::TableSchema;
use landfall_schemas::contract::{self, Fingerprint};
use landfall_topology::plan::KafkaPlan;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};

use super::client;
use super::voice::Voice;

/// How long reading a small topic to its end may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// All contracts that this process has seen; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Contracts {
    known: Arc<Mutex<HashMap<Fingerprint, Arc<TableSchema>>>>,
}

impl Contracts {
    /// The schema of a fingerprint, where it has been seen.
    pub fn get(&self, fingerprint: Fingerprint) -> Option<Arc<TableSchema>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&fingerprint).cloned()
    }

    /// Notes a schema.
    pub fn insert(&self, fingerprint: Fingerprint, schema: Arc<TableSchema>) {
        let _ = self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(fingerprint, schema);
    }

    /// Reads the topic to its end. Contracts of newer builds are passed over: whoever needs one fails by name.
    pub fn sync(&self, kafka: &KafkaPlan, topic: &str) -> Result<(), KafkaError> {
        read_to_end(kafka, topic, |key, value| {
            if let (Some(key), Some(value)) = (key.and_then(|k| <[u8; 8]>::try_from(k).ok()), value)
                && let Ok(schema) = std::str::from_utf8(value).map_err(|_| ()).and_then(|text| contract::parse(text).map_err(|_| ()))
            {
                self.insert(Fingerprint(u64::from_be_bytes(key)), Arc::new(schema));
            }
        })
    }
}

/// Reads a one-partition topic from its first record to the end that it has now.
pub fn read_to_end(kafka: &KafkaPlan, topic: &str, mut record: impl FnMut(Option<&[u8]>, Option<&[u8]>)) -> Result<(), KafkaError> {
    let consumer: BaseConsumer<Voice> = client::reader(kafka).create_with_context(Voice)?;
    let (low, high) = consumer.fetch_watermarks(topic, 0, TIMEOUT)?;
    if low >= high {
        return Ok(());
    }
    let mut partitions = TopicPartitionList::new();
    partitions.add_partition_offset(topic, 0, Offset::Offset(low))?;
    consumer.assign(&partitions)?;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match consumer.poll(Duration::from_millis(100)) {
            Some(message) => {
                let message = message?;
                record(message.key(), message.payload());
                if message.offset() + 1 >= high {
                    return Ok(());
                }
            }
            // Compaction may have taken the last record: the position shows that the end was passed.
            None => {
                let position = consumer.position()?;
                let passed = position.find_partition(topic, 0).is_some_and(|p| matches!(p.offset(), Offset::Offset(at) if at >= high));
                if passed {
                    return Ok(());
                }
                if Instant::now() > deadline {
                    return Err(KafkaError::MessageConsumption(rdkafka::error::RDKafkaErrorCode::OperationTimedOut));
                }
            }
        }
    }
}
