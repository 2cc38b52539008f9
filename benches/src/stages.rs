//! The stages of the journey, each run alone on the same changes.
//!
//! They use the parts that the runtime uses, with nothing between: what a stage reaches here is what the journey could reach if the other
//! stages cost nothing.

#![allow(clippy::disallowed_methods, reason = "the rules of the core about clocks and threads do not bind what measures it")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use landfall::land::debounce::Debounce;
use landfall::land::fold::Config;
use landfall::land::partition::{LogBounds, Partition as LandPartition, Record as LogRecord, Settings, Step};
use landfall::log::client;
use landfall::log::producer::{Outgoing, Producer};
use landfall::log::topics::{Identity, Purpose, Topics};
use landfall::normalise::partition::{Item, Partition};
use landfall::normalise::{Destination, Outbox};
use landfall::sink::{Batch, Claim};
use landfall::state::SlotName;
use landfall::state::rocks::RocksState;
use landfall_schemas::TableSchema;
use landfall_schemas::contract::Fingerprint;
use landfall_schemas::dialect::{Decoded, Decoder, Options, Record};
use landfall_schemas::provenance::{self, SourcePartition};
use landfall_topology::plan::KafkaPlan;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::{Offset, TopicPartitionList};

use crate::workload::{Events, PARTITIONS, Workload, types};

/// How long a stage may wait for a service at most.
const WAIT: Duration = Duration::from_secs(120);

/// Records of a log, by partition.
#[derive(Debug, Default)]
pub struct Log {
    bytes: Vec<u8>,
    partitions: Vec<Vec<[usize; 4]>>,
    /// The table's schema.
    pub schema: Option<(Fingerprint, TableSchema)>,
}

impl Log {
    /// Records of a partition in order: key, value, provenance.
    pub fn partition(&self, partition: usize) -> impl ExactSizeIterator<Item = [&[u8]; 3]> {
        self.partitions[partition].iter().map(|[a, b, c, d]| [&self.bytes[*a..*b], &self.bytes[*b..*c], &self.bytes[*c..*d]])
    }

    /// Bytes of the average value.
    pub fn value_bytes(&self) -> f64 {
        let spans = self.partitions.iter().flatten();
        spans.clone().map(|[_, b, c, _]| c - b).sum::<usize>() as f64 / spans.count() as f64
    }
}

/// A decoder of the workload; `declared` types for events without a schema part.
pub fn decoder(declared: bool) -> Decoder {
    let mut options = Options::new("orders");
    if declared {
        options.types = types();
        options.primary_key = Some(vec!["id".to_owned()]);
    }
    Decoder::new(options)
}

/// Decodes every event; `declared` types for events without a schema part. Returns how many changes came of it.
pub fn decode(workload: &Workload, declared: bool) -> Result<usize> {
    decode_with(&workload.partitions, || decoder(declared))
}

/// Decodes every event by a decoder for each partition. Returns how many changes came of it.
pub fn decode_with(partitions: &[Events], decoder: impl Fn() -> Decoder) -> Result<usize> {
    partitions.iter().try_fold(0, |changes, events| Ok(changes + decode_all(events, &mut decoder())?))
}

fn decode_all(events: &Events, decoder: &mut Decoder) -> Result<usize> {
    let mut changes = 0;
    for (offset, (key, value)) in (0..).zip(events.iter()) {
        match decoder.decode(Record { offset, key: Some(key), value: Some(value), headers: None, timestamp: None }) {
            Ok(Decoded::Changes(_)) => changes += 1,
            other => anyhow::bail!("an event of the workload is no change: {other:?}"),
        }
    }
    Ok(changes)
}

/// How often each event allocates while it is decoded, on average, once a decoder knows the shapes of its table.
pub fn allocations(partitions: &[Events], decoder: impl Fn() -> Decoder) -> Result<f64> {
    let (mut events, mut count) = (0, 0);
    for partition in partitions {
        let mut decoder = decoder();
        let _ = decode_all(partition, &mut decoder)?;
        let (decoded, allocated) = crate::allocations::during(|| decode_all(partition, &mut decoder));
        events += decoded?;
        count += allocated.count;
    }
    Ok(count as f64 / events as f64)
}

/// Decodes and normalises every event: what a source record costs before it is handed to the producer.
pub fn normalise(workload: &Workload, mut keep: Option<&mut Log>) -> Result<usize> {
    let mut outbox = Outbox::default();
    let mut made = 0;
    if let Some(log) = keep.as_deref_mut() {
        log.partitions = vec![Vec::new(); PARTITIONS as usize];
    }
    for (number, events) in (0..).zip(&workload.partitions) {
        let mut decoder = decoder(true);
        let mut core = Partition::new("shop.public.orders", SourcePartition { incarnation: [7; 16], partition: number }, PARTITIONS, "");
        for (offset, (key, value)) in (0..).zip(events.iter()) {
            let token = core.fetched(offset);
            outbox.clear();
            let decoded = decoder.decode(Record { offset, key: Some(key), value: Some(value), headers: None, timestamp: None });
            let Ok(Decoded::Changes(changes)) = decoded else { anyhow::bail!("an event of the workload is no change: {decoded:?}") };
            let item = Item { ordinal: 0, key: changes.change.key, change: &changes.change.change };
            let _ = core.process(token, offset, changes.fingerprint, &[item], Duration::ZERO, &mut outbox);
            if let Some(log) = keep.as_deref_mut()
                && log.schema.is_none()
            {
                log.schema = Some((changes.fingerprint, TableSchema::clone(changes.schema)));
            }
            core.acknowledged(token);
            for out in outbox.records() {
                core.acknowledged(out.token);
                made += 1;
                if let Some(log) = keep.as_deref_mut() {
                    let Destination::Log(partition) = out.to;
                    let a = log.bytes.len();
                    log.bytes.extend_from_slice(out.key.unwrap_or_default());
                    let b = log.bytes.len();
                    log.bytes.extend_from_slice(out.value);
                    let c = log.bytes.len();
                    log.bytes.extend_from_slice(out.provenance);
                    log.partitions[partition as usize].push([a, b, c, log.bytes.len()]);
                }
            }
        }
    }
    Ok(made)
}

/// Makes a topic.
pub fn make_topic(kafka: &KafkaPlan, topic: &str) -> Result<()> {
    let topics = Topics::connect(kafka, Identity::Ids)?;
    let _ = topics.ensure(topic, Purpose::Log, PARTITIONS, Some(1))?;
    Ok(())
}

/// Writes a log to its topic, partition after partition in turns, as the normaliser's records come.
pub fn write_log(kafka: &KafkaPlan, topic: &str, log: &Log) -> Result<usize> {
    let mut cursors: Vec<_> = (0..log.partitions.len()).map(|p| log.partition(p)).collect();
    let records = std::iter::from_fn(move || {
        let (partition, _) = cursors.iter().enumerate().max_by_key(|(_, c)| c.len())?;
        let [key, value, origin] = cursors[partition].next()?;
        Some(Outgoing { topic, partition: partition as i32, key: Some(key), value, headers: [Some((provenance::HEADER, origin)), None] })
    });
    Ok(Producer::new(kafka)?.send_all(records, WAIT)?)
}

/// Writes the events to the source topic.
pub fn write_source(kafka: &KafkaPlan, topic: &str, workload: &Workload) -> Result<usize> {
    let records = (0..).zip(&workload.partitions).flat_map(|(partition, events)| {
        events.iter().map(move |(key, value)| Outgoing { topic, partition, key: Some(key), value, headers: [None; 2] })
    });
    Ok(Producer::new(kafka)?.send_all(records, WAIT)?)
}

/// Reads a topic from its first record until so many came. Returns their bytes.
pub fn read(kafka: &KafkaPlan, topic: &str, records: usize) -> Result<usize> {
    let consumer: BaseConsumer = client::reader(kafka).create()?;
    let mut list = TopicPartitionList::new();
    for partition in 0..PARTITIONS.cast_signed() {
        list.add_partition_offset(topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&list)?;
    let (mut seen, mut bytes) = (0, 0);
    let end = Instant::now() + WAIT;
    while seen < records {
        let Some(message) = consumer.poll(Duration::from_millis(100)) else {
            ensure!(Instant::now() < end, "the topic ends after {seen} of {records} records");
            continue;
        };
        let message = message?;
        let header = message.headers().map_or(0, |h| (0..h.count()).map(|i| h.get(i).value.map_or(0, <[u8]>::len)).sum());
        bytes += message.payload().map_or(0, <[u8]>::len) + header;
        seen += 1;
    }
    Ok(bytes)
}

/// Folds a log into batches, with state in the real engine. Returns the batches in order, by log partition.
pub fn fold(log: &Log, state: &mut RocksState) -> Result<Vec<Vec<Batch>>> {
    let debounce = Debounce { quiet: Duration::ZERO, max_delay: Duration::ZERO, rows_max: 100_000, bytes_max: 64 << 20 };
    let (fingerprint, schema) = log.schema.clone().context("the log has a schema")?;
    let mut all = Vec::new();
    for (number, records) in log.partitions.iter().enumerate() {
        let name = SlotName { replica: "bench.orders".to_owned(), generation: 0, partition: number as i32 };
        let settings = Settings { fold: Config::upsert(), debounce, refuse: None, partitions: PARTITIONS, idle_check: WAIT };
        let mut core = LandPartition::new(name, settings, 0, Some(schema.clone()), 1);
        let (mut from, mut batches, now) = (log.partition(number).enumerate(), Vec::new(), Duration::ZERO);
        let mut left = records.len();
        loop {
            match core.next(now, state)? {
                Step::Claim => {
                    let bounds = LogBounds { begin: 0, end: records.len() as i64 };
                    let _ = core.claimed(Claim { fence: 1, next: None }, bounds, state, now)?;
                }
                Step::Contract(asked) => {
                    ensure!(asked == fingerprint, "the log has one contract");
                    core.contract(asked, schema.clone())?;
                }
                Step::Prepare(schema) => core.prepared(schema),
                Step::Land => {
                    let batch = core.lend_batch();
                    let mut same = Batch::default();
                    same.reset(batch.partition, batch.fence, batch.expected, batch.next);
                    core.return_batch(same);
                    core.landed(state, now)?;
                    batches.push(batch);
                }
                Step::Check => anyhow::bail!("no time passes"),
                Step::Commit(_) => {}
                Step::Wait(_) if left == 0 => break,
                Step::Wait(_) => {
                    for (offset, [key, value, provenance]) in from.by_ref().take(debounce.rows_max) {
                        core.push(LogRecord { offset: offset as i64, key: Some(key), value, provenance }, now)?;
                        left -= 1;
                    }
                }
            }
        }
        all.push(batches);
    }
    Ok(all)
}
