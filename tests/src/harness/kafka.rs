//! Kafka through its own client: topics, records in and out, offsets.
//!
//! Everything blocks. Records are read as plain bytes from the first offset to the end as the broker gives it at the moment of the call.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::{Offset, TopicPartitionList};

use super::{stack, wait};

/// How long a single request to the broker may take, a restart of it included.
const REQUEST: Duration = Duration::from_secs(20);
/// How long a whole topic may take to be read.
const READ: Duration = Duration::from_secs(120);

/// A record as it lies in Kafka.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Topic.
    pub topic: String,
    /// Partition; where it is to be produced by the key's hash, `None`.
    pub partition: Option<i32>,
    /// Offset; 0 before it was produced.
    pub offset: i64,
    /// Key.
    pub key: Option<Vec<u8>>,
    /// Value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Headers in order.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// Blocking access to one cluster.
pub struct Kafka {
    admin: AdminClient<DefaultClientContext>,
    producer: ThreadedProducer<DefaultProducerContext>,
    runtime: tokio::runtime::Runtime,
    brokers: String,
}

impl std::fmt::Debug for Kafka {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kafka")
    }
}

impl Default for Kafka {
    fn default() -> Self {
        Self::new()
    }
}

fn config(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    let _ = config.set("bootstrap.servers", brokers).set("broker.address.family", "v4").set("log_level", "2");
    config
}

impl Kafka {
    /// The cluster that the tests share.
    pub fn new() -> Self {
        Self::at(&stack::kafka())
    }

    /// Another cluster.
    pub fn at(brokers: &str) -> Self {
        let admin = config(brokers).create().expect("an admin client needs no connection");
        let producer = config(brokers)
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("partitioner", "murmur2_random")
            .set("message.max.bytes", "220000000")
            .set("queue.buffering.max.kbytes", "1000000")
            .set("linger.ms", "2")
            .create()
            .expect("a producer needs no connection");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime of one thread");
        Self { admin, producer, runtime, brokers: brokers.to_owned() }
    }

    /// Creates a topic with these partitions and settings.
    pub fn create_topic(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        for (key, value) in settings {
            topic = topic.set(key, value);
        }
        let answer = self.runtime.block_on(self.admin.create_topics([&topic], &AdminOptions::new().operation_timeout(Some(REQUEST))));
        let results = answer.unwrap_or_else(|e| panic!("topic {name} could not be created: {e}"));
        for result in results {
            let _ = result.unwrap_or_else(|(name, code)| panic!("topic {name} could not be created: {code}"));
        }
        wait::expect(&format!("topic {name} is served"), REQUEST, || match self.partitions(name) {
            n if n == partitions => Ok(()),
            n => Err(format!("{n} partitions")),
        });
    }

    /// Gives a topic more partitions: so many in all.
    pub fn add_partitions(&self, name: &str, partitions: usize) {
        let asked = [NewPartitions::new(name, partitions)];
        let answer = self.runtime.block_on(self.admin.create_partitions(&asked, &AdminOptions::new().operation_timeout(Some(REQUEST))));
        for result in answer.unwrap_or_else(|e| panic!("topic {name} could not be grown: {e}")) {
            let _ = result.unwrap_or_else(|(name, code)| panic!("topic {name} could not be grown: {code}"));
        }
        wait::expect(&format!("topic {name} has grown"), REQUEST, || match self.partitions(name) {
            n if n == partitions as i32 => Ok(()),
            n => Err(format!("{n} partitions")),
        });
    }

    /// Deletes a topic and waits until the broker does not know it any more.
    pub fn delete_topic(&self, name: &str) {
        let answer = self.runtime.block_on(self.admin.delete_topics(&[name], &AdminOptions::new().operation_timeout(Some(REQUEST))));
        for result in answer.unwrap_or_else(|e| panic!("topic {name} could not be deleted: {e}")) {
            let _ = result.unwrap_or_else(|(name, code)| panic!("topic {name} could not be deleted: {code}"));
        }
        wait::expect(&format!("topic {name} is gone"), REQUEST, || match self.partitions(name) {
            0 => Ok(()),
            n => Err(format!("{n} partitions are still there")),
        });
    }

    /// Deletes the records of a partition below an offset, as retention does.
    pub fn delete_records(&self, topic: &str, partition: i32, below: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(below)).expect("a legal offset");
        let answer = self.runtime.block_on(self.admin.delete_records(&list, &AdminOptions::new().operation_timeout(Some(REQUEST))));
        let deleted = answer.unwrap_or_else(|e| panic!("records of {topic} could not be deleted: {e}"));
        deleted.elements().iter().for_each(|e| e.error().unwrap_or_else(|e| panic!("records of {topic} could not be deleted: {e}")));
        assert_eq!(self.bounds(topic)[&partition].0, below);
    }

    /// Number of partitions; 0 where there is no such topic.
    pub fn partitions(&self, topic: &str) -> i32 {
        let metadata = match self.producer.client().fetch_metadata(Some(topic), REQUEST) {
            Ok(metadata) => metadata,
            Err(KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition)) => return 0,
            Err(e) => panic!("metadata of {topic}: {e}"),
        };
        metadata.topics().iter().filter(|t| t.name() == topic && t.error().is_none()).map(|t| t.partitions().len() as i32).sum()
    }

    /// Produces records in order and waits until the broker has them all.
    pub fn produce(&self, records: &[Record]) {
        for record in records {
            let mut headers = OwnedHeaders::new_with_capacity(record.headers.len());
            for (key, value) in &record.headers {
                headers = headers.insert(Header { key, value: Some(value) });
            }
            let mut out = BaseRecord::<[u8], [u8]>::to(&record.topic).headers(headers);
            if let Some(key) = &record.key {
                out = out.key(key);
            }
            if let Some(value) = &record.value {
                out = out.payload(value);
            }
            if let Some(partition) = record.partition {
                out = out.partition(partition);
            }
            let end = Instant::now() + REQUEST;
            while let Err((error, unsent)) = self.producer.send(out) {
                assert!(
                    error == KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) && Instant::now() < end,
                    "a record for {} could not be queued: {error}",
                    record.topic
                );
                self.producer.flush(Duration::from_millis(100)).ok();
                out = unsent;
            }
        }
        self.producer.flush(Duration::from_secs(60)).expect("the broker takes the records");
    }

    /// First and next offset of each partition.
    pub fn bounds(&self, topic: &str) -> BTreeMap<i32, (i64, i64)> {
        let bound =
            |partition| wait::expect(&format!("offsets of {topic}"), REQUEST, || self.producer.client().fetch_watermarks(topic, partition, REQUEST));
        (0..self.partitions(topic)).map(|partition| (partition, bound(partition))).collect()
    }

    /// Next offset of each partition.
    pub fn ends(&self, topic: &str) -> BTreeMap<i32, i64> {
        self.bounds(topic).into_iter().map(|(partition, (_, end))| (partition, end)).collect()
    }

    /// Next offset of each of so many partitions; `None` where the broker does not answer.
    pub fn ends_now(&self, topic: &str, partitions: i32) -> Option<BTreeMap<i32, i64>> {
        let end = |p| Some((p, self.producer.client().fetch_watermarks(topic, p, Duration::from_secs(5)).ok()?.1));
        (0..partitions).map(end).collect()
    }

    /// Every record of a topic, ordered by partition and offset, up to the ends as they are now. Nothing where there is no such topic.
    pub fn read(&self, topic: &str) -> Vec<Record> {
        self.read_from(topic, &BTreeMap::new())
    }

    /// As [`Self::read`], from the given offset of each partition on.
    pub fn read_from(&self, topic: &str, from: &BTreeMap<i32, i64>) -> Vec<Record> {
        let bounds = self.bounds(topic);
        let start = |partition: i32, low: i64| from.get(&partition).copied().unwrap_or(low).max(low);
        let mut left: BTreeMap<i32, i64> =
            bounds.iter().filter(|(p, (low, high))| start(**p, *low) < *high).map(|(p, (_, high))| (*p, *high)).collect();
        if left.is_empty() {
            return Vec::new();
        }
        let consumer: BaseConsumer = config(&self.brokers)
            .set("group.id", "landfall-tests-reader")
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "error")
            .set("fetch.message.max.bytes", "220000000")
            .set("receive.message.max.bytes", "440000000")
            .set("fetch.wait.max.ms", "50")
            .create()
            .expect("a consumer needs no connection");
        let mut places = TopicPartitionList::new();
        for partition in left.keys() {
            places.add_partition_offset(topic, *partition, Offset::Offset(start(*partition, bounds[partition].0))).expect("a legal offset");
        }
        consumer.assign(&places).expect("a consumer can be assigned");
        let mut records = Vec::new();
        let end = Instant::now() + READ;
        while !left.is_empty() {
            assert!(Instant::now() < end, "{topic}: still to be read up to {left:?}");
            match consumer.poll(Duration::from_millis(200)) {
                Some(Ok(message)) => {
                    let (partition, offset) = (message.partition(), message.offset());
                    if left.get(&partition).is_some_and(|high| offset < *high) {
                        records.push(owned(&message));
                    }
                    if left.get(&partition).is_some_and(|high| offset + 1 >= *high) {
                        let _ = left.remove(&partition);
                    }
                }
                // The end may lie behind the last record where the broker keeps records of its own.
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    let _ = left.remove(&partition);
                }
                Some(Err(error)) => eprintln!("reading {topic}: {error}"),
                None => {}
            }
        }
        records.sort_by_key(|r| (r.partition, r.offset));
        records
    }

    /// A reader of what a group has committed of one topic.
    pub fn group(&self, group: &str, topic: &str) -> Group {
        self.group_of(group, topic, self.partitions(topic))
    }

    /// The same for a topic that may not exist yet.
    pub fn group_of(&self, group: &str, topic: &str, partitions: i32) -> Group {
        let consumer: BaseConsumer = config(&self.brokers).set("group.id", group).create().expect("a consumer needs no connection");
        let mut places = TopicPartitionList::new();
        for partition in 0..partitions {
            let _ = places.add_partition(topic, partition);
        }
        Group { consumer, places }
    }
}

/// Reads a group's offsets again and again over one connection.
pub struct Group {
    consumer: BaseConsumer,
    places: TopicPartitionList,
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Group")
    }
}

impl Group {
    /// Committed offset of each partition that has one; `None` where the broker does not answer.
    pub fn committed(&self) -> Option<BTreeMap<i32, i64>> {
        let found = self.consumer.committed_offsets(self.places.clone(), Duration::from_secs(5)).ok()?;
        let offset = |e: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| match e.offset() {
            Offset::Offset(offset) => Some((e.partition(), offset)),
            _ => None,
        };
        Some(found.elements().iter().filter_map(offset).collect())
    }
}

fn owned<M: Message>(message: &M) -> Record {
    let headers =
        message.headers().map_or_else(Vec::new, |headers| headers.iter().map(|h| (h.key.to_owned(), h.value.unwrap_or_default().to_vec())).collect());
    Record {
        topic: message.topic().to_owned(),
        partition: Some(message.partition()),
        offset: message.offset(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers,
    }
}
