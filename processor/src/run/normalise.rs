//! Driving `normalise`: one thread polls the input topics, decodes, produces, and commits behind the acknowledgements.
//!
//! The consumer is never blocked by one table: a table that stops is paused by partition, others go on. Anything that leaves the producer in
//! doubt ends the session; the next one begins from what was committed, and repeats are recognised downstream by provenance.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};
use landfall_schemas::contract::{self, Fingerprint};
use landfall_schemas::debezium::{self, Decoded, Decoder, Order, Reject, RejectKind};
use landfall_schemas::provenance::{self, SourcePartition};
use landfall_schemas::{Op, TableSchema};
use landfall_topology::Plan;
use landfall_topology::plan::{SourceType, TablePlan};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use super::{Named, Shared, Stopping};
use crate::dead_letter::{self, Letter};
use crate::fault::{self, Bug};
use crate::log::client;
use crate::log::control::{self, Source, SourceChanged};
use crate::log::headers::MessageHeaders;
use crate::log::incarnation::Described;
use crate::log::producer::{Outgoing, Producer, Sent};
use crate::log::topics::{Purpose, Topics};
use crate::log::voice::{self, Voice};
use crate::normalise::partition::{Item, Outcome, Partition};
use crate::normalise::{Destination, Outbox};
use crate::observe::Reason;

/// How often offsets are committed: a crash repeats at most so much, and repeats are recognised.
const COMMIT_EVERY: Duration = Duration::from_millis(500);
/// How often the source topics are looked at for being recreated.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Records taken in one go before acknowledgements are looked at.
const BURST: usize = 2000;
/// A record that must be acknowledged before anything else goes on (a contract, a pin) may take so long.
const WAIT: Duration = Duration::from_secs(30);
/// Bits of an acknowledgement number that name the record within its partition.
const TOKEN_BITS: u32 = 40;
/// The number of records that are waited for one by one.
const SINGLE: usize = usize::MAX;

/// Why a session ended. The caller begins another after a pause.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Kafka could not be used.
    #[error("kafka: {0}")]
    Kafka(#[from] KafkaError),
    /// Kafka was not reached.
    #[error("kafka cannot be reached: {0}")]
    Unreachable(#[from] voice::Unreachable),
    /// A topic could not be made or looked at.
    #[error(transparent)]
    Topic(#[from] crate::log::topics::TopicError),
    /// Topics could not be described.
    #[error(transparent)]
    Describe(#[from] crate::log::incarnation::DescribeError),
}

#[derive(Debug)]
enum Event {
    Assigned(Vec<(String, i32, String)>),
    Revoked(Vec<(String, i32)>),
}

/// Answers rebalances on the polling thread: new partitions begin where the group left off, lost ones are committed first.
#[derive(Default)]
struct Group {
    events: Mutex<Vec<Event>>,
    /// Whether there are such; asked after every record, so that no record takes the lock.
    changed: AtomicBool,
    commits: Mutex<HashMap<(String, i32), (i64, String)>>,
    /// A commit was refused, as happens during a rebalance.
    refused: AtomicBool,
}

#[derive(Clone, Default)]
struct Context(Arc<Group>);

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        if voice::log(level, facility, line) {
            self.0.refused.store(true, Ordering::Relaxed);
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        voice::complain(&error, reason);
    }
}

impl ConsumerContext for Context {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, err: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        let names: Vec<(String, i32)> = partitions.elements().iter().map(|e| (e.topic().to_owned(), e.partition())).collect();
        let event = if err == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            let assigned = match begin(consumer, partitions) {
                Ok(assigned) => assigned,
                Err(error) => {
                    tracing::warn!(%error, "committed offsets cannot be read, giving the partitions back");
                    Vec::new()
                }
            };
            if let Err(error) = consumer.incremental_assign(partitions) {
                tracing::warn!(%error, "assignment failed");
            }
            Event::Assigned(assigned)
        } else {
            self.0.commit(consumer, &names);
            if let Err(error) = consumer.incremental_unassign(partitions) {
                tracing::warn!(%error, "giving partitions back failed");
            }
            Event::Revoked(names)
        };
        self.0.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        self.0.changed.store(true, Ordering::Release);
    }
}

/// Sets the offsets of new partitions to the committed ones, or to the first record; returns them with their metadata.
fn begin(consumer: &BaseConsumer<Context>, partitions: &mut TopicPartitionList) -> Result<Vec<(String, i32, String)>, KafkaError> {
    let committed = consumer.committed_offsets(partitions.clone(), WAIT)?;
    let mut assigned = Vec::new();
    for element in committed.elements() {
        let (topic, partition) = (element.topic(), element.partition());
        let offset = match element.offset() {
            Offset::Offset(at) => Offset::Offset(at),
            _ => Offset::Beginning,
        };
        partitions.set_partition_offset(topic, partition, offset)?;
        assigned.push((topic.to_owned(), partition, element.metadata().to_owned()));
    }
    Ok(assigned)
}

impl Group {
    /// Commits what stands for these partitions, waiting for the answer: they are about to go to another owner.
    fn commit(&self, consumer: &BaseConsumer<Context>, partitions: &[(String, i32)]) {
        let mut list = TopicPartitionList::new();
        let mut commits = self.commits.lock().unwrap_or_else(PoisonError::into_inner);
        for name in partitions {
            if let Some((offset, metadata)) = commits.remove(name) {
                add(&mut list, name, offset, &metadata);
            }
        }
        drop(commits);
        if list.count() > 0 && !consumer.assignment_lost() {
            // What is not committed is read again by the next owner, and recognised.
            drop(consumer.commit(&list, CommitMode::Sync));
        }
    }
}

fn add(list: &mut TopicPartitionList, (topic, partition): &(String, i32), offset: i64, metadata: &str) {
    let mut element = list.add_partition(topic, *partition);
    drop(element.set_offset(Offset::Offset(offset)));
    element.set_metadata(metadata);
}

struct Owned {
    name: (String, i32),
    core: Partition,
    table: usize,
    stopped: bool,
    changes: [u64; 6],
    read: u64,
}

/// A source topic in use.
struct Input {
    decoder: Decoder,
    table: usize,
    pinned: Source,
    described: Described,
    /// Why nothing of it may be read.
    refused: Option<Reason>,
}

struct Session<'a> {
    shared: &'a Shared,
    plan: &'a Plan,
    topics: Topics,
    producer: Producer,
    context: Context,
    tables: Arc<Vec<TablePlan>>,
    inputs: HashMap<String, Input>,
    owned: BTreeMap<usize, Owned>,
    by_name: HashMap<(String, i32), usize>,
    next_slot: usize,
    published: HashSet<Fingerprint>,
    pins: BTreeMap<String, Source>,
    outbox: Outbox,
    acks: Vec<usize>,
    start: Instant,
}

/// Runs normalising until told to stop; a session that fails is followed by another.
pub fn run(shared: &Shared, stopping: &Stopping) {
    let mut pause = super::Pause::default();
    while !stopping.is_set() {
        match session(shared, stopping, &mut pause) {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(%error, "normalising was interrupted, beginning again from what was committed");
                pause.wait(stopping);
            }
        }
    }
}

fn session(shared: &Shared, stopping: &Stopping, pause: &mut super::Pause) -> Result<(), SessionError> {
    let plan = &*shared.plan;
    let topics = Topics::connect(&plan.kafka, shared.identity)?;
    super::ensure_topics(plan, &topics)?;
    shared.contracts.sync(&plan.kafka, &plan.schemas_topic())?;
    let pins = control::load(&plan.kafka, &plan.control_topic())?;
    let context = Context::default();
    let group = format!("{}.normalise", plan.topology);
    let consumer: BaseConsumer<Context> = client::member(&plan.kafka, &group).create_with_context(context.clone())?;
    let producer = Producer::new(&plan.kafka)?;
    let mut session = Session {
        shared,
        plan,
        topics,
        producer,
        context,
        tables: Arc::default(),
        inputs: HashMap::new(),
        owned: BTreeMap::new(),
        by_name: HashMap::new(),
        next_slot: 0,
        published: HashSet::new(),
        pins,
        outbox: Outbox::default(),
        acks: Vec::new(),
        start: shared.start,
    };
    tracing::info!("normalising");
    pause.reset();
    let outcome = session.pump(&consumer, stopping);
    if outcome.is_ok() {
        let commits = session.drain();
        super::close(consumer, commits);
    }
    outcome
}

impl Session<'_> {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn pump(&mut self, consumer: &BaseConsumer<Context>, stopping: &Stopping) -> Result<(), SessionError> {
        let (mut committed, mut looked) = (Instant::now(), Instant::now());
        while !stopping.is_set() {
            self.subscribe(consumer)?;
            let mut timeout = Duration::from_millis(if self.is_waiting() { 2 } else { 50 });
            for _ in 0..BURST {
                let Some(message) = consumer.poll(timeout) else { break };
                timeout = Duration::ZERO;
                // A rebalance may have been answered within this poll.
                self.handle_events(consumer)?;
                match message {
                    Ok(message) => self.record(consumer, &message)?,
                    Err(KafkaError::MessageConsumption(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange)) => {
                        self.find_trimmed(consumer)?;
                    }
                    Err(KafkaError::MessageConsumptionFatal(code)) => return Err(KafkaError::MessageConsumptionFatal(code).into()),
                    Err(error) => tracing::debug!(%error, "reading input topics"),
                }
            }
            self.handle_events(consumer)?;
            self.take_acks(Duration::ZERO)?;
            self.flush_counts();
            if committed.elapsed() >= COMMIT_EVERY {
                committed = Instant::now();
                self.commit(consumer)?;
            }
            if looked.elapsed() >= LOOK_EVERY {
                looked = Instant::now();
                self.look(consumer)?;
            }
        }
        Ok(())
    }

    /// Follows the catalog: tables that match a pattern appear while running.
    fn subscribe(&mut self, consumer: &BaseConsumer<Context>) -> Result<(), SessionError> {
        let tables = self.shared.tables();
        if tables.len() != self.tables.len() {
            self.tables = tables;
            let topics: Vec<&str> = self.tables.iter().map(|t| t.topic.as_str()).collect();
            consumer.subscribe(&topics)?;
        }
        Ok(())
    }

    fn is_waiting(&self) -> bool {
        self.owned.values().any(|o| o.core.outstanding() > 0)
    }

    /// What rebalances brought.
    fn handle_events(&mut self, consumer: &BaseConsumer<Context>) -> Result<(), SessionError> {
        if !self.context.0.changed.load(Ordering::Acquire) || !self.context.0.changed.swap(false, Ordering::Acquire) {
            return Ok(());
        }
        let events = std::mem::take(&mut *self.context.0.events.lock().unwrap_or_else(PoisonError::into_inner));
        for event in events {
            self.shared.observer.rebalanced();
            match event {
                Event::Revoked(names) => {
                    for name in names {
                        if let Some(slot) = self.by_name.remove(&name) {
                            let _ = self.owned.remove(&slot);
                        }
                        self.shared.observer.source_assigned(&name.0, name.1, false);
                    }
                }
                Event::Assigned(partitions) => {
                    for (topic, partition, metadata) in partitions {
                        self.assign(consumer, topic, partition, &metadata)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn assign(&mut self, consumer: &BaseConsumer<Context>, topic: String, partition: i32, metadata: &str) -> Result<(), SessionError> {
        self.shared.observer.source_assigned(&topic, partition, true);
        if !self.inputs.contains_key(&topic) {
            let input = self.input(&topic)?;
            let _ = self.inputs.insert(topic.clone(), input);
        }
        let input = &self.inputs[&topic];
        let log = &self.tables[input.table].log;
        let source = SourcePartition { incarnation: input.described.incarnation, partition };
        let mut core = Partition::new(topic.clone(), source, log.partitions, metadata);
        if let Some(fingerprint) = core.shape.wanted() {
            if self.shared.contracts.get(fingerprint).is_none() {
                // Its former owner may have published it since this session began.
                self.shared.contracts.sync(&self.plan.kafka, &self.plan.schemas_topic())?;
            }
            self.shared.contracts.get(fingerprint).into_iter().for_each(|schema| core.shape.bring(schema));
        }
        let slot = self.next_slot;
        self.next_slot += 1;
        let name = (topic, partition);
        let mut refused = input.refused.clone();
        if let Err(changed) = input.pinned.check_partition(partition) {
            let _ = refused.get_or_insert(changed_reason(&changed));
        }
        let table = input.table;
        let _ = self.by_name.insert(name.clone(), slot);
        let _ = self.owned.insert(slot, Owned { name, core, table, stopped: false, changes: [0; 6], read: 0 });
        if let Some(reason) = refused {
            self.stop(consumer, slot, reason)?;
        }
        Ok(())
    }

    /// Takes a source topic into use: its table, its log, and what is pinned of it.
    fn input(&mut self, topic: &str) -> Result<Input, SessionError> {
        let Some(table) = self.tables.iter().position(|t| t.topic == topic) else {
            return Ok(refused_input(topic, "table.unknown", format!("no table is declared for topic {topic:?}")));
        };
        let log = self.tables[table].log.clone();
        let made = self.topics.ensure(&log.topic, Purpose::Log, log.partitions, log.replication)?;
        let mut refused = None;
        if made.partitions != log.partitions {
            let what = format!("log topic {:?} has {} partitions, the topology says {}", log.topic, made.partitions, log.partitions);
            refused = Some(Reason { code: "log.repartitioned".to_owned(), what, hint: "set log.partitions to what the topic has".to_owned() });
        }
        let described = self.topics.describe(&[topic])?.first().copied().flatten().unwrap_or(Described { incarnation: [0; 16], partitions: 0 });
        let wanted = self.plan.sources.get(self.tables[table].source).and_then(|s| s.epoch).unwrap_or(0);
        let mut pinned = self.pins.get(topic).cloned();
        if let Some(pin) = &pinned
            && let Err(changed) = pin.check(described)
        {
            refused = Some(changed_reason(&changed));
        }
        if refused.is_none() {
            pinned = Some(self.pin(topic, described, wanted, pinned)?);
        }
        let pinned = pinned.unwrap_or_else(|| Source::new(topic, described, wanted));
        let plan = &self.tables[table];
        let mut options = debezium::Options::new(plan.id.clone());
        options.primary_key = plan.primary_key.clone();
        options.types = plan.types.clone();
        // Topics of Kafka itself may hold changes of connectors that give no order; there the offset serves, where the record key is the table's.
        let is_plain = self.plan.sources.get(plan.source).is_some_and(|s| s.kind == SourceType::Kafka) && plan.primary_key.is_none();
        options.order = if is_plain { Order::DialectElseOffset } else { Order::Dialect };
        Ok(Input { decoder: Decoder::new(options), table, pinned, described, refused })
    }

    /// Makes sure that the control topic holds incarnation and epoch of a source topic before its first record is read.
    fn pin(&mut self, topic: &str, described: Described, epoch: u32, pinned: Option<Source>) -> Result<Source, SessionError> {
        let mut source = pinned.clone().unwrap_or_else(|| Source::new(topic, described, epoch));
        source.partitions = described.partitions;
        if source.epochs.last().is_none_or(|e| e.epoch < epoch) {
            // The new timeline begins, for all partitions at once, where the group stands.
            let first = self.committed(topic, described.partitions)?;
            tracing::warn!(topic, epoch, "the source's epoch rises");
            source.epochs.push(control::Epoch { epoch, first });
        }
        if pinned.as_ref() != Some(&source) {
            self.write_pin(source.clone())?;
        }
        Ok(source)
    }

    /// The first record that only its offset orders: from now on the topic's partition count may not change.
    fn pin_by_offset(&mut self, topic: &str) -> Result<(), SessionError> {
        let Some(input) = self.inputs.get_mut(topic) else { return Ok(()) };
        input.pinned.by_offset = true;
        input.pinned.partitions = input.described.partitions;
        let pinned = input.pinned.clone();
        tracing::info!(topic, partitions = pinned.partitions, "changes are ordered by offset, the partition count is pinned");
        self.write_pin(pinned)
    }

    fn write_pin(&mut self, source: Source) -> Result<(), SessionError> {
        let value = serde_json::to_vec(&source).unwrap_or_default();
        let control = self.plan.control_topic();
        let record = Outgoing { topic: &control, partition: 0, key: Some(source.topic.as_bytes()), value: &value, header: None };
        self.producer.send_and_wait(record, SINGLE, WAIT)?;
        let _ = self.pins.insert(source.topic.clone(), source);
        Ok(())
    }

    fn committed(&self, topic: &str, partitions: u32) -> Result<BTreeMap<i32, i64>, SessionError> {
        let group = format!("{}.normalise", self.plan.topology);
        let mut config = client::reader(&self.plan.kafka);
        let _ = config.set("group.id", &group);
        let asker: BaseConsumer<Voice> = config.create_with_context(Voice)?;
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions.cast_signed() {
            let _ = list.add_partition(topic, partition);
        }
        let committed = asker.committed_offsets(list, WAIT)?;
        let offset = |o| if let Offset::Offset(at) = o { at } else { 0 };
        Ok(committed.elements().iter().map(|e| (e.partition(), offset(e.offset()))).collect())
    }

    fn record(&mut self, consumer: &BaseConsumer<Context>, message: &BorrowedMessage<'_>) -> Result<(), SessionError> {
        let Some(slot) = self.by_name.get(&Named(message.topic(), message.partition())).copied() else { return Ok(()) };
        let now = self.now();
        let Some(owned) = self.owned.get_mut(&slot) else { return Ok(()) };
        if owned.stopped {
            return Ok(());
        }
        let Some(input) = self.inputs.get_mut(&owned.name.0) else { return Ok(()) };
        owned.read += 1;
        let (partition, offset) = (message.partition(), message.offset());
        input.decoder.epoch = input.pinned.epoch(partition, offset);
        let token = owned.core.fetched(offset);
        let headers = MessageHeaders(message);
        let decoded = input.decoder.decode(debezium::Record { offset, key: message.key(), value: message.payload(), headers: Some(&headers) });
        let mut fresh: Option<(Fingerprint, Arc<TableSchema>)> = None;
        let mut by_offset = false;
        self.outbox.clear();
        let verdict = match decoded {
            Ok(Decoded::Ignored(reason)) => {
                self.shared.observer.ignored(&self.tables[owned.table].id, reason.name(), 1);
                Ok(owned.core.ignore())
            }
            Ok(Decoded::Changes(changes)) => {
                if !self.published.contains(&changes.fingerprint) {
                    fresh = Some((changes.fingerprint, Arc::clone(changes.schema)));
                }
                let row = &changes.change.change;
                if let (Some(_), Some(sequence)) = (row.after, row.sequence)
                    && let Err(changed) = owned.core.shape.judge(changes.fingerprint, changes.schema, sequence)
                {
                    // The record stays open, so nothing is committed past it.
                    let (code, what) = changed.refusal(changes.schema.table()).unwrap_or(("schema.changed", "its columns changed".to_owned()));
                    return self.stop_table(consumer, slot, offset, code, &what, SCHEMA_HINT);
                }
                by_offset = changes.by_offset && !input.pinned.by_offset;
                let moved = changes.moved();
                let mut items: smallvec::SmallVec<[Item<'_>; 2]> = smallvec::SmallVec::new();
                for (ordinal, keyed) in (0..).zip(moved.iter().chain([&changes.change])) {
                    owned.changes[Op::ALL.iter().position(|op| *op == keyed.change.op).unwrap_or_default()] += 1;
                    items.push(Item { ordinal, key: Some(keyed.key), change: &keyed.change });
                }
                Ok(owned.core.process(token, offset, changes.fingerprint, &items, now, &mut self.outbox))
            }
            Err(reject) => Err(reject),
        };
        match verdict {
            Ok(Outcome::Produced) => {
                if let Some((fingerprint, schema)) = fresh {
                    self.publish(fingerprint, schema)?;
                }
                if by_offset {
                    self.pin_by_offset(message.topic())?;
                }
                if self.produce(slot)? {
                    self.acknowledge(slot, token);
                } else {
                    self.bury(slot, token, message, "record.too_large", "the change is larger than a record of the log may be".to_owned())?;
                }
            }
            Ok(Outcome::Ignored) => self.acknowledge(slot, token),
            Ok(Outcome::Withheld) => {}
            Ok(Outcome::Rewind(from)) => {
                let name = self.owned[&slot].name.clone();
                tracing::info!(topic = name.0, partition = name.1, from, "the source sent again and regained its position");
                consumer.seek(&name.0, name.1, Offset::Offset(from), WAIT)?;
            }
            Ok(Outcome::Regressed) => self.regressed(consumer, slot)?,
            Err(reject) if reject.kind() == RejectKind::StopTable => {
                self.stop_table(consumer, slot, offset, reject.code.as_str(), &reject.reason, "the table stands still here; others go on")?;
            }
            Err(reject) => self.poison(slot, token, message, &reject)?,
        }
        Ok(())
    }

    fn acknowledge(&mut self, slot: usize, token: u64) {
        if let Some(owned) = self.owned.get_mut(&slot) {
            owned.core.acknowledged(token);
        }
    }

    /// Publishes a contract and waits until the topic has it: no record may name a contract that nobody can read.
    fn publish(&mut self, fingerprint: Fingerprint, schema: Arc<TableSchema>) -> Result<(), SessionError> {
        if self.shared.contracts.get(fingerprint).is_none() {
            let (text, _) = contract::of(&schema);
            let topic = self.plan.schemas_topic();
            let key = fingerprint.0.to_be_bytes();
            let record = Outgoing { topic: &topic, partition: 0, key: Some(&key), value: text.as_bytes(), header: None };
            self.producer.send_and_wait(record, SINGLE, WAIT)?;
            tracing::info!(table = schema.table(), %fingerprint, columns = schema.columns().len(), "contract published");
            self.shared.contracts.insert(fingerprint, schema);
        }
        let _ = self.published.insert(fingerprint);
        Ok(())
    }

    /// Hands the outbox to the producer, in order; false where a record is too large for the log.
    fn produce(&mut self, slot: usize) -> Result<bool, SessionError> {
        let Some(owned) = self.owned.get(&slot) else { return Ok(true) };
        let mut fits = true;
        let tables = Arc::clone(&self.tables);
        let topic = tables[owned.table].log.topic.as_str();
        let outbox = std::mem::take(&mut self.outbox);
        for out in outbox.records() {
            let Destination::Log(partition) = out.to;
            let record = Outgoing { topic, partition, key: out.key, value: out.value, header: Some((provenance::HEADER, out.provenance)) };
            let number = slot << TOKEN_BITS | out.token as usize;
            loop {
                match self.producer.send(record, number)? {
                    Sent::Queued => break,
                    // The queue is full: back-pressure. What comes back makes room.
                    Sent::Full => self.take_acks(Duration::from_millis(100))?,
                    Sent::TooLarge => {
                        fits = false;
                        self.acknowledge(slot, out.token);
                        break;
                    }
                }
            }
        }
        self.outbox = outbox;
        Ok(fits)
    }

    fn take_acks(&mut self, timeout: Duration) -> Result<(), SessionError> {
        let mut acks = std::mem::take(&mut self.acks);
        acks.clear();
        let outcome = self.producer.take_acks(&mut acks, timeout);
        if !acks.is_empty() {
            fault::point("pre_ack");
        }
        for number in &acks {
            if *number != SINGLE {
                self.acknowledge(number >> TOKEN_BITS, (number & ((1 << TOKEN_BITS) - 1)) as u64);
            }
        }
        if !acks.is_empty() {
            fault::point("post_ack");
        }
        self.acks = acks;
        Ok(outcome?)
    }

    fn commit(&mut self, consumer: &BaseConsumer<Context>) -> Result<(), SessionError> {
        if self.context.0.refused.swap(false, Ordering::Relaxed) {
            self.owned.values_mut().for_each(|o| o.core.commit_again());
        }
        let mut list = TopicPartitionList::new();
        let mut commits = self.context.0.commits.lock().unwrap_or_else(PoisonError::into_inner);
        for owned in self.owned.values_mut() {
            if let Some((offset, metadata)) = owned.core.commit() {
                add(&mut list, &owned.name, offset, &metadata);
                self.shared.observer.committed(&owned.name.0, owned.name.1, offset);
                let _ = commits.insert(owned.name.clone(), (offset, metadata));
            }
        }
        drop(commits);
        if list.count() > 0 {
            match super::commit(consumer, &list) {
                // A commit during a rebalance may fail; what is not committed is read again and recognised.
                Ok(()) => {}
                Err(KafkaError::ConsumerCommit(_)) => self.context.0.refused.store(true, Ordering::Relaxed),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn flush_counts(&mut self) {
        for owned in self.owned.values_mut().filter(|o| o.read > 0) {
            let table = &self.tables[owned.table];
            let source = self.plan.sources.get(table.source).map_or("", |s| s.id.as_str());
            self.shared.observer.records_read(source, &table.id, std::mem::take(&mut owned.read));
            self.shared.observer.changes(&table.id, &std::mem::take(&mut owned.changes));
        }
    }

    /// A record that nobody can read.
    fn poison(&mut self, slot: usize, token: u64, message: &BorrowedMessage<'_>, reject: &Reject) -> Result<(), SessionError> {
        self.bury(slot, token, message, reject.code.as_str(), reject.reason.clone())
    }

    /// A dead letter stands before the watermark passes its record (law 11).
    fn bury(&mut self, slot: usize, token: u64, message: &BorrowedMessage<'_>, code: &str, reason: String) -> Result<(), SessionError> {
        let Some(owned) = self.owned.get_mut(&slot) else { return Ok(()) };
        let letter = Letter {
            code: code.to_owned(),
            reason,
            table: self.tables[owned.table].id.clone(),
            replica: None,
            topic: message.topic().to_owned(),
            partition: message.partition(),
            offset: message.offset(),
            key: message.key().map(dead_letter::excerpt),
            excerpt: message.payload().map(dead_letter::excerpt),
        };
        if !fault::bug(Bug::CommitPastRejected) {
            owned.core.expect(token);
            let (topic, key) = (self.plan.dead_letters_topic(), letter.record_key());
            let value = serde_json::to_vec(&letter).unwrap_or_default();
            let record = Outgoing { topic: &topic, partition: 0, key: Some(key.as_bytes()), value: &value, header: None };
            let number = slot << TOKEN_BITS | token as usize;
            // A letter is bounded, so it always fits: only a full queue makes it wait.
            while self.producer.send(record, number)? != Sent::Queued {
                self.take_acks(Duration::from_millis(100))?;
            }
            self.shared.observer.dead_letter(&letter);
        }
        self.acknowledge(slot, token);
        Ok(())
    }

    fn stop(&mut self, consumer: &BaseConsumer<Context>, slot: usize, reason: Reason) -> Result<(), SessionError> {
        let Some(owned) = self.owned.get_mut(&slot) else { return Ok(()) };
        owned.stopped = true;
        let mut list = TopicPartitionList::new();
        let _ = list.add_partition(&owned.name.0, owned.name.1);
        consumer.pause(&list)?;
        self.shared.observer.source_stopped(&owned.name.0, owned.name.1, reason);
        Ok(())
    }

    fn stop_table(
        &mut self,
        consumer: &BaseConsumer<Context>,
        slot: usize,
        offset: i64,
        code: &str,
        why: &str,
        hint: &str,
    ) -> Result<(), SessionError> {
        let table = self.owned[&slot].table;
        let name = self.owned[&slot].name.clone();
        let what = format!("{why} (topic {:?}, partition {}, offset {offset})", name.0, name.1);
        let reason = Reason { code: code.to_owned(), what, hint: hint.to_owned() };
        let slots: Vec<usize> = self.owned.iter().filter(|(_, o)| o.table == table && !o.stopped).map(|(s, _)| *s).collect();
        for slot in slots {
            self.stop(consumer, slot, reason.clone())?;
        }
        Ok(())
    }

    fn regressed(&mut self, consumer: &BaseConsumer<Context>, slot: usize) -> Result<(), SessionError> {
        let name = self.owned[&slot].name.clone();
        let what = format!("positions of partition {} of topic {:?} fell below what was read and did not come back", name.1, name.0);
        let hint = "if the source was restored or failed over, raise `epoch` of the source in the topology".to_owned();
        self.stop(consumer, slot, Reason { code: "source.position_regressed".to_owned(), what, hint })
    }

    /// Looks at the source topics: recreated ones stop at once, and dips that last too long.
    fn look(&mut self, consumer: &BaseConsumer<Context>) -> Result<(), SessionError> {
        let now = self.now();
        let regressed: Vec<usize> = self.owned.iter().filter(|(_, o)| !o.stopped && o.core.has_regressed(now)).map(|(s, _)| *s).collect();
        for slot in regressed {
            self.regressed(consumer, slot)?;
        }
        let names: Vec<String> = self.inputs.iter().filter(|(_, i)| i.refused.is_none()).map(|(t, _)| t.clone()).collect();
        let described = self.topics.describe(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
        for (topic, described) in names.iter().zip(described) {
            let Some(described) = described else { continue };
            let Some(input) = self.inputs.get_mut(topic) else { continue };
            if let Err(changed) = input.pinned.check(described) {
                let reason = changed_reason(&changed);
                input.refused = Some(reason.clone());
                let slots: Vec<usize> = self.owned.iter().filter(|(_, o)| o.name.0 == *topic && !o.stopped).map(|(s, _)| *s).collect();
                for slot in slots {
                    self.stop(consumer, slot, reason.clone())?;
                }
            }
        }
        Ok(())
    }

    /// An offset that is wanted is no longer there: finds whose, and stops it (law 8).
    fn find_trimmed(&mut self, consumer: &BaseConsumer<Context>) -> Result<(), SessionError> {
        self.look(consumer)?;
        let candidates: Vec<(usize, (String, i32))> = self.owned.iter().filter(|(_, o)| !o.stopped).map(|(s, o)| (*s, o.name.clone())).collect();
        let positions = consumer.position()?;
        for (slot, name) in candidates {
            let (low, high) = consumer.fetch_watermarks(&name.0, name.1, WAIT)?;
            let committed = self.committed(&name.0, name.1.cast_unsigned() + 1)?.get(&name.1).copied().unwrap_or(low);
            let at = match positions.find_partition(&name.0, name.1).map(|p| p.offset()) {
                Some(Offset::Offset(at)) => at,
                _ => committed,
            };
            if at < low || at > high {
                let what = format!("offset {at} of partition {} of topic {:?} is wanted, but the topic holds {low} to {high}", name.1, name.0);
                let hint = "records were deleted before they were read; the table needs a new snapshot".to_owned();
                self.stop(consumer, slot, Reason { code: "source.trimmed".to_owned(), what, hint })?;
            }
        }
        Ok(())
    }

    /// Told to stop: waits for what is on its way, and gives what is then to be committed.
    fn drain(&mut self) -> TopicPartitionList {
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.is_waiting() && Instant::now() < deadline {
            if self.take_acks(Duration::from_millis(50)).is_err() {
                return TopicPartitionList::new();
            }
        }
        self.flush_counts();
        let mut list = TopicPartitionList::new();
        for owned in self.owned.values_mut() {
            if let Some((offset, metadata)) = owned.core.commit() {
                add(&mut list, &owned.name, offset, &metadata);
            }
        }
        list
    }
}

fn refused_input(topic: &str, code: &str, what: String) -> Input {
    let described = Described { incarnation: [0; 16], partitions: 0 };
    Input {
        decoder: Decoder::new(debezium::Options::new(topic)),
        table: 0,
        pinned: Source::new(topic, described, 0),
        described,
        refused: Some(Reason { code: code.to_owned(), what, hint: "see `landfall check`".to_owned() }),
    }
}

const SCHEMA_HINT: &str = "the table stands still at this record, others go on; such a change needs a new generation of the table, which this version cannot make \
    yet: let the connector send the table to a new topic";

fn changed_reason(changed: &SourceChanged) -> Reason {
    let hint = match changed {
        SourceChanged::Recreated { .. } => "its offsets mean other records now; give the table a new topic, or reset it",
        SourceChanged::Repartitioned { .. } => {
            "keys have moved between partitions, so offsets no longer order their changes; give the table a new topic, or reset it"
        }
    };
    Reason { code: changed.code().to_owned(), what: changed.to_string(), hint: hint.to_owned() }
}
