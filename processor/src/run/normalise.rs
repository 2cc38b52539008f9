//! Driving `normalise`: one thread polls the input topics, decodes, produces, and commits behind the acknowledgements.
//!
//! The consumer is never blocked by one table: a table that stops is paused by partition, others go on. Anything that leaves the producer in
//! doubt ends the session; the next one begins from what was committed, and repeats are recognised downstream by provenance.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};
use landfall_schemas::contract::{self, Fingerprint};
use landfall_schemas::dialect::{self, Decoded, RejectKind};
use landfall_schemas::key::digest;
use landfall_schemas::provenance::{self, SourcePartition};
use landfall_schemas::{Op, TableSchema, framing};
use landfall_topology::Plan;
use landfall_topology::plan::TablePlan;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};

use super::group::Member;
use super::registry::{Registry, Wanted};
use super::{Named, Shared, Stopping};
use crate::fault;
use crate::log::client;
use crate::log::control::{self, Source, Types};
use crate::log::headers::MessageHeaders;
use crate::log::producer::{Outgoing, Producer, Sent};
use crate::log::topics::Topics;
use crate::log::voice;
use crate::normalise::partition::{Item, Outcome, Partition};
use crate::normalise::quarantine::Digest;
use crate::normalise::{Destination, Outbox};
use crate::observe::Reason;
use inference::Inference;
use letters::Letters;
use rebalance::{Begin, ByCommit, Consumer, Event, add};
use schemas::unregistered;
use sources::{Input, changed_reason};

mod inference;
mod letters;
pub(crate) mod options;
mod rebalance;
mod schemas;
mod sources;

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
/// Stands in the place of a partition in the numbers of letters and of what is replayed.
const LETTERS: usize = (SINGLE >> TOKEN_BITS) - 1;

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
    /// Types cannot be inferred any more: the thread that does ended, which only a defect can bring about.
    #[error("nobody infers types any more")]
    Inference,
    /// A thread could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(#[from] std::io::Error),
    /// The schema registry's client could not be made.
    #[error("the schema registry cannot be used: {0}")]
    Registry(String),
}

struct Owned {
    name: (String, i32),
    core: Partition,
    table: usize,
    stopped: bool,
    changes: [u64; 6],
    read: u64,
    /// What it waits for of the registry, at this offset.
    wants: Option<(Wanted, i64)>,
    /// It waits for types that are to be settled.
    waits_for_types: bool,
    /// The record that it asked types for last, and how many there were then.
    asked_types: Option<(i64, usize)>,
    /// Where the group stands.
    committed: i64,
    /// Whether later events of a key wait behind one that is a dead letter.
    parks: bool,
    /// It waits until fewer events do so.
    is_full: bool,
    /// Whether what its values are written in has been told.
    is_told: bool,
}

impl Owned {
    /// Counts changes that go to the log.
    fn count(&mut self, items: &[Item<'_>]) {
        items.iter().for_each(|i| self.changes[Op::ALL.iter().position(|op| *op == i.change.op).unwrap_or_default()] += 1);
    }
}

struct Session<'a> {
    shared: &'a Shared,
    plan: &'a Plan,
    topics: Topics,
    producer: Producer,
    member: Member<ByCommit>,
    tables: Arc<Vec<TablePlan>>,
    inputs: HashMap<String, Input>,
    owned: BTreeMap<usize, Owned>,
    by_name: HashMap<(String, i32), usize>,
    next_slot: usize,
    published: HashSet<Fingerprint>,
    pins: BTreeMap<String, Source>,
    registry: Option<Registry>,
    inference: Inference,
    /// What is settled of columns' types, by table.
    types: BTreeMap<String, Types>,
    letters: Letters,
    outbox: Outbox,
    /// The value of the record that is handed over, where it is framed.
    framed: Vec<u8>,
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
    let pins = control::load(&plan.kafka, &plan.control_topic())?.sources;
    let member = Member::new(ByCommit::default());
    let group = format!("{}.normalise", plan.topology);
    let consumer: Consumer = client::source_member(&plan.kafka, &group).create_with_context(member.clone())?;
    let producer = Producer::new(&plan.kafka)?;
    let registry = plan.kafka.registry.as_ref().map(|r| Registry::start(r, Instant::now())).transpose().map_err(SessionError::Registry)?;
    let inference = Inference::start(&plan.kafka, plan.control_topic())?;
    let letters = Letters::begin(&plan.kafka, plan.dead_letters_topic())?;
    let mut session = Session {
        shared,
        plan,
        topics,
        producer,
        member,
        tables: Arc::default(),
        inputs: HashMap::new(),
        owned: BTreeMap::new(),
        by_name: HashMap::new(),
        next_slot: 0,
        published: HashSet::new(),
        pins,
        registry,
        inference,
        types: BTreeMap::new(),
        letters,
        outbox: Outbox::default(),
        framed: Vec::new(),
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

    fn pump(&mut self, consumer: &Consumer, stopping: &Stopping) -> Result<(), SessionError> {
        let (mut committed, mut looked) = (Instant::now(), Instant::now());
        while !stopping.is_set() {
            self.subscribe(consumer)?;
            let mut timeout = Duration::from_millis(if self.is_waiting() { 2 } else { 50 });
            let mut now = None;
            for _ in 0..BURST {
                let Some(message) = consumer.poll(timeout) else { break };
                timeout = Duration::ZERO;
                // One look at the clock serves a burst.
                let now = *now.get_or_insert_with(|| self.now());
                // A rebalance may have been answered within this poll.
                self.handle_events(consumer)?;
                match message {
                    Ok(message) => self.record(consumer, &message, now)?,
                    Err(KafkaError::MessageConsumption(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange)) => {
                        self.find_trimmed(consumer)?;
                    }
                    Err(KafkaError::MessageConsumptionFatal(code)) => return Err(KafkaError::MessageConsumptionFatal(code).into()),
                    Err(error) => tracing::debug!(%error, "reading input topics"),
                }
            }
            self.handle_events(consumer)?;
            self.take_acks(Duration::ZERO)?;
            self.take_schemas(consumer)?;
            self.take_types(consumer)?;
            self.follow_letters(consumer)?;
            self.flush_counts();
            if committed.elapsed() >= COMMIT_EVERY {
                committed = Instant::now();
                self.commit(consumer)?;
                self.tell_letters();
            }
            if looked.elapsed() >= LOOK_EVERY {
                looked = Instant::now();
                self.look(consumer)?;
            }
        }
        Ok(())
    }

    /// Follows the catalog: tables that match a pattern appear while running.
    fn subscribe(&mut self, consumer: &Consumer) -> Result<(), SessionError> {
        let tables = self.shared.tables();
        if tables.len() != self.tables.len() {
            self.tables = tables;
            let topics: Vec<&str> = self.tables.iter().map(|t| t.topic.as_str()).collect();
            consumer.subscribe(&topics)?;
        }
        Ok(())
    }

    fn is_waiting(&self) -> bool {
        // The record at which a partition stopped stays open for good.
        self.letters.is_waiting() || self.owned.values().any(|o| !o.stopped && o.core.outstanding() > 0)
    }

    /// What rebalances brought, and which incarnation of a topic is read.
    fn handle_events(&mut self, consumer: &Consumer) -> Result<(), SessionError> {
        for event in self.member.take_events() {
            self.shared.observer.rebalanced();
            self.letters.tell_anew();
            match event {
                Event::Failed(error) => return Err(error.into()),
                Event::Revoked(names) => {
                    for name in names {
                        if let Some(slot) = self.by_name.remove(&name) {
                            let _ = self.owned.remove(&slot);
                        }
                        self.shared.observer.source_assigned(&name.0, name.1, false);
                    }
                }
                Event::Identified(topic, incarnation) => self.identified(consumer, &topic, incarnation)?,
                Event::Assigned(partitions) => {
                    self.follow_types()?;
                    for begin in partitions {
                        self.assign(consumer, begin)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn assign(&mut self, consumer: &Consumer, begin: Begin) -> Result<(), SessionError> {
        let Begin { name: (topic, partition), committed, metadata } = begin;
        self.shared.observer.source_assigned(&topic, partition, true);
        if !self.inputs.contains_key(&topic) {
            let input = self.input(&topic)?;
            let _ = self.inputs.insert(topic.clone(), input);
        }
        let input = &self.inputs[&topic];
        let log = &self.tables[input.table].log;
        let source = SourcePartition { incarnation: input.described.incarnation, partition };
        let mut core = Partition::new(topic.clone(), source, log.partitions, &metadata);
        core.dialect = input.decoder.options().dialect;
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
        let parks = self.tables[table].park_key;
        if parks {
            // What its former owner has committed behind stands in the topic by now.
            self.letters.catch_up()?;
        }
        self.letters.book.stir(&name.0, name.1);
        // It may have been paused when it was last ours: the client keeps that to itself.
        let mut list = TopicPartitionList::new();
        let _ = list.add_partition(&name.0, name.1);
        consumer.resume(&list)?;
        let _ = self.by_name.insert(name.clone(), slot);
        let owned = Owned {
            name,
            core,
            table,
            stopped: false,
            changes: [0; 6],
            read: 0,
            wants: None,
            waits_for_types: false,
            asked_types: None,
            committed,
            parks,
            is_full: false,
            is_told: false,
        };
        let _ = self.owned.insert(slot, owned);
        if let Some(reason) = refused {
            self.stop(consumer, slot, reason)?;
        }
        Ok(())
    }

    fn record(&mut self, consumer: &Consumer, message: &BorrowedMessage<'_>, now: Duration) -> Result<(), SessionError> {
        let Some(slot) = self.by_name.get(&Named(message.topic(), message.partition())).copied() else { return Ok(()) };
        let Some(owned) = self.owned.get_mut(&slot) else { return Ok(()) };
        if owned.stopped || owned.wants.is_some() || owned.waits_for_types || owned.is_full {
            return Ok(());
        }
        let Some(input) = self.inputs.get_mut(&owned.name.0) else { return Ok(()) };
        let (partition, offset) = (message.partition(), message.offset());
        if owned.parks && self.letters.book.is_full(&owned.name.0, partition) {
            return self.await_room(consumer, slot, offset);
        }
        let headers = MessageHeaders(message);
        let timestamp = message.timestamp().to_millis().and_then(|millis| millis.checked_mul(1_000));
        let record = dialect::Record { offset, key: message.key(), value: message.payload(), headers: Some(&headers), timestamp };
        if let Some(registry) = &mut self.registry {
            while let Some(id) = input.decoder.wanted(&record) {
                match registry.known(id) {
                    Some(registered) => input.decoder.bring(id, registered),
                    None => return self.await_schema(consumer, slot, Wanted::Schema(id), offset),
                }
            }
        }
        if !owned.is_told
            && let Some(format) = input.decoder.format(&record)
        {
            owned.is_told = true;
            self.shared.observer.source_format(&owned.name.0, partition, format);
        }
        input.decoder.epoch = input.pinned.epoch(partition, offset);
        let infers = input.decoder.options().infer;
        let decoded = input.decoder.decode(record);
        let decoded = match decoded {
            Err(reject) if infers && reject.code == dialect::Code::TypesMissing => {
                return self.await_types(consumer, slot, message, &reject.reason);
            }
            decoded => decoded,
        };
        if let Ok(Decoded::Changes(changes)) = &decoded
            && let Some(wanted) = unregistered(self.plan, &mut self.registry, &self.tables[owned.table].log, changes)
        {
            drop(decoded);
            return self.await_schema(consumer, slot, wanted, offset);
        }
        owned.read += 1;
        let token = owned.core.fetched(offset);
        let mut fresh: Option<(Fingerprint, Arc<TableSchema>)> = None;
        let mut by_offset = false;
        let mut held = None;
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
                    let (code, what) = changed.refusal(changes.schema.table());
                    return self.stop_table(consumer, slot, offset, code, &what, SCHEMA_HINT);
                }
                by_offset = changes.by_offset && !input.pinned.by_offset;
                let (moved, more) = (changes.moved(), changes.more());
                let mut items: smallvec::SmallVec<[Item<'_>; 2]> = smallvec::SmallVec::new();
                for (ordinal, keyed) in (0..).zip(moved.iter().chain([&changes.change]).chain(&more)) {
                    items.push(Item { ordinal, key: keyed.key, change: &keyed.change });
                }
                let outcome = owned.core.process(token, offset, changes.fingerprint, &items, now, &mut self.outbox);
                if owned.parks && outcome == Outcome::Produced && self.letters.book.holds_any(&owned.name.0, partition) {
                    let keys: Vec<Digest> = items.iter().filter_map(|i| i.key).map(digest).collect();
                    held = Some(keys).filter(|keys| self.letters.book.is_held(&owned.name.0, partition, keys.iter().copied()));
                }
                if outcome == Outcome::Produced && held.is_none() {
                    owned.count(&items);
                }
                Ok(outcome)
            }
            Err(reject) => Err(reject),
        };
        match (verdict, held) {
            (Ok(Outcome::Produced), Some(keys)) => self.park(slot, token, message, keys)?,
            (Ok(Outcome::Produced), None) => {
                if let Some((fingerprint, schema)) = fresh {
                    self.publish(fingerprint, schema)?;
                }
                if by_offset {
                    self.pin_by_offset(message.topic())?;
                }
                if self.produce(slot, slot)? {
                    self.acknowledge(slot, token);
                } else {
                    self.poison(slot, token, message, "record.too_large", TOO_LARGE)?;
                }
            }
            (Ok(Outcome::Ignored), _) => self.acknowledge(slot, token),
            (Ok(Outcome::Withheld), _) => {}
            (Ok(Outcome::Rewind(from)), _) => {
                let name = self.owned[&slot].name.clone();
                tracing::info!(topic = name.0, partition = name.1, from, "the source sent again and regained its position");
                consumer.seek(&name.0, name.1, Offset::Offset(from), WAIT)?;
            }
            (Ok(Outcome::Regressed), _) => self.regressed(consumer, slot)?,
            (Err(reject), _) if reject.kind() == RejectKind::StopTable => {
                self.stop_table(consumer, slot, offset, reject.code.as_str(), &reject.reason, "the table stands still here; others go on")?;
            }
            (Err(reject), _) => self.poison(slot, token, message, reject.code.as_str(), &reject.reason)?,
        }
        Ok(())
    }

    fn acknowledge(&mut self, slot: usize, token: u64) {
        if slot == LETTERS {
            self.letters.acknowledged(token);
        } else if let Some(owned) = self.owned.get_mut(&slot) {
            owned.core.acknowledged(token);
        }
    }

    /// Publishes a contract and waits until the topic has it: no record may name a contract that nobody can read.
    fn publish(&mut self, fingerprint: Fingerprint, schema: Arc<TableSchema>) -> Result<(), SessionError> {
        if self.shared.contracts.get(fingerprint).is_none() {
            let (text, _) = contract::of(&schema);
            let topic = self.plan.schemas_topic();
            let key = fingerprint.0.to_be_bytes();
            let record = Outgoing { topic: &topic, partition: 0, key: Some(&key), value: text.as_bytes(), headers: [None; 2] };
            self.producer.send_and_wait(record, SINGLE, WAIT)?;
            tracing::info!(table = schema.table(), %fingerprint, columns = schema.columns().len(), "contract published");
            self.shared.contracts.insert(fingerprint, schema);
        }
        let _ = self.published.insert(fingerprint);
        Ok(())
    }

    /// Hands the outbox to the producer, in order; false where a record is too large for the log. Acknowledgements go to `taker`: the partition
    /// itself, or the letters.
    fn produce(&mut self, slot: usize, taker: usize) -> Result<bool, SessionError> {
        let Some(owned) = self.owned.get(&slot) else { return Ok(true) };
        let mut fits = true;
        let tables = Arc::clone(&self.tables);
        let log = &tables[owned.table].log;
        let topic = log.topic.as_str();
        let outbox = std::mem::take(&mut self.outbox);
        let mut framed = std::mem::take(&mut self.framed);
        for out in outbox.records() {
            let Destination::Log(partition) = out.to;
            let schema = self.frame(log, out.value, &mut framed)?;
            let value = if schema.is_some() { &framed } else { out.value };
            let headers = [Some((provenance::HEADER, out.provenance)), schema.as_ref().map(|schema| (framing::SCHEMA, schema.as_slice()))];
            let record = Outgoing { topic, partition, key: out.key, value, headers };
            let number = taker << TOKEN_BITS | out.token as usize;
            loop {
                match self.producer.send(record, number)? {
                    Sent::Queued => break,
                    // The queue is full: back-pressure. What comes back makes room.
                    Sent::Full => self.take_acks(Duration::from_millis(100))?,
                    Sent::TooLarge => {
                        fits = false;
                        // What is replayed is done only when the log has all of it.
                        if taker != LETTERS {
                            self.acknowledge(taker, out.token);
                        }
                        break;
                    }
                }
            }
        }
        self.outbox = outbox;
        self.framed = framed;
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

    fn commit(&mut self, consumer: &Consumer) -> Result<(), SessionError> {
        if self.member.take_refusal() {
            self.owned.values_mut().for_each(|o| o.core.commit_again());
        }
        let mut list = TopicPartitionList::new();
        for owned in self.owned.values_mut() {
            if let Some((offset, metadata)) = owned.core.commit() {
                add(&mut list, &owned.name, offset, &metadata);
                owned.committed = offset;
                self.shared.observer.committed(&owned.name.0, owned.name.1, offset);
                self.member.stage().stand(&owned.name, offset, metadata);
            }
        }
        if list.count() > 0 {
            match super::commit(consumer, &list) {
                // A commit during a rebalance may fail; what is not committed is read again and recognised.
                Ok(()) => {}
                Err(KafkaError::ConsumerCommit(_)) => self.member.note_refusal(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn flush_counts(&mut self) {
        for owned in self.owned.values_mut().filter(|o| o.read > 0 || o.changes.iter().any(|n| *n > 0)) {
            let table = &self.tables[owned.table];
            let source = self.plan.sources.get(table.source).map_or("", |s| s.id.as_str());
            self.shared.observer.records_read(source, &table.id, std::mem::take(&mut owned.read));
            self.shared.observer.changes(&table.id, &std::mem::take(&mut owned.changes));
        }
        for input in self.inputs.values_mut() {
            self.shared.observer.cut(&self.tables[input.table].id, input.decoder.take_cut());
        }
    }

    fn stop(&mut self, consumer: &Consumer, slot: usize, reason: Reason) -> Result<(), SessionError> {
        let Some(owned) = self.owned.get_mut(&slot) else { return Ok(()) };
        owned.stopped = true;
        let mut list = TopicPartitionList::new();
        let _ = list.add_partition(&owned.name.0, owned.name.1);
        consumer.pause(&list)?;
        self.shared.observer.source_stopped(&owned.name.0, owned.name.1, reason);
        Ok(())
    }

    fn stop_table(&mut self, consumer: &Consumer, slot: usize, offset: i64, code: &str, why: &str, hint: &str) -> Result<(), SessionError> {
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

    fn regressed(&mut self, consumer: &Consumer, slot: usize) -> Result<(), SessionError> {
        let name = self.owned[&slot].name.clone();
        let what = format!("positions of partition {} of topic {:?} fell below what was read and did not come back", name.1, name.0);
        let hint = "if the source was restored or failed over, raise `epoch` of the source in the topology".to_owned();
        self.stop(consumer, slot, Reason { code: "source.position_regressed".to_owned(), what, hint })
    }

    /// Told to stop: waits for what is on its way, and gives what is then to be committed.
    fn drain(&mut self) -> TopicPartitionList {
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.is_waiting() && Instant::now() < deadline {
            if self.write_notes().and_then(|()| self.take_acks(Duration::from_millis(50))).is_err() {
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

const TOO_LARGE: &str = "the change is larger than a record of the log may be";

const SCHEMA_HINT: &str = "the table stands still at this record, others go on; such a change needs a new generation of the table, which this version cannot make \
    yet: let the connector send the table to a new topic";
