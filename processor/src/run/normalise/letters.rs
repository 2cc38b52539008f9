//! Dead letters: written before the watermark passes their records (law 11), followed in their topic, and put back into the log.
//!
//! Every normaliser reads the whole dead-letter topic, from its first record on and then as it grows, into the book of what is open
//! (`normalise::quarantine`). What is asked for is done by the owner of the source partition that the record stood in: it alone orders the
//! partition's changes, has the decoder and the epoch, and knows which columns the table has by now. A letter that is replayed goes into the log
//! with its own sequence and place; once the log has it, a note closes it. A crash in between leaves it open, and it is replayed again, which
//! the lander recognises (`land::partition`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};
use landfall_schemas::dialect::{self, Code, Decoded};
use landfall_schemas::key::digest;
use landfall_topology::plan::KafkaPlan;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers as _, Message};
use rdkafka::{Offset, TopicPartitionList};

use super::inference::Question;
use super::rebalance::Consumer;
use super::schemas::unregistered;
use super::{BURST, LETTERS, Session, SessionError, TOKEN_BITS, TOO_LARGE, WAIT};
use crate::dead_letter::{self, Act, HEADER, Kept, Letter, Note, PARKED, RECORD_BYTES_MAX, RECORD_GONE};
use crate::fault::{self, Bug};
use crate::log::client;
use crate::log::producer::{Outgoing, Sent};
use crate::log::voice::Voice;
use crate::normalise::partition::Item;
use crate::normalise::quarantine::{Book, Digest, Due, Id, PARKED_MAX, Said};
use crate::observe::Reason;

/// Letters of one partition that go back into the log before others have their turn.
const TURN: usize = 200;
/// How long a letter waits for a schema of the registry before it is looked at again.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// The token of what nobody waits for one by one.
const NOTE: u64 = (1 << TOKEN_BITS) - 1;
/// A record so little behind the last one that was looked up is read on to; one further away is gone to.
const READ_ON: i64 = 1000;

/// What follows the dead-letter topic.
pub(super) struct Letters {
    topic: String,
    tail: BaseConsumer<Voice>,
    /// The next offset to be read there.
    next: i64,
    pub(super) book: Book,
    finder: Finder,
    /// What was put back and is not acknowledged yet, by number.
    flying: HashMap<u64, Flying>,
    numbers: u64,
    notes: VecDeque<(String, Note)>,
    notes_flying: usize,
    /// Something waits for the registry: before this nothing is tried again.
    retry_at: Option<Instant>,
    told: bool,
}

struct Flying {
    outstanding: usize,
    key: String,
    letter: i64,
}

/// What came of a letter that was due.
enum Tried {
    /// It is on its way to the log.
    Sent,
    /// It waits for a schema of the registry.
    Later,
    /// It has a new verdict.
    Failed,
    /// There is no such letter.
    Unknown,
}

impl Letters {
    /// Reads the topic to the end that it has now.
    pub(super) fn begin(kafka: &KafkaPlan, topic: String) -> Result<Self, KafkaError> {
        let tail: BaseConsumer<Voice> = client::reader(kafka).create_with_context(Voice)?;
        let (low, _) = tail.fetch_watermarks(&topic, 0, WAIT)?;
        let mut partitions = TopicPartitionList::new();
        partitions.add_partition_offset(&topic, 0, Offset::Offset(low))?;
        tail.assign(&partitions)?;
        let mut letters = Self {
            topic,
            tail,
            next: low,
            book: Book::default(),
            finder: Finder { kafka: kafka.clone(), consumer: None, at: None },
            flying: HashMap::new(),
            numbers: 0,
            notes: VecDeque::new(),
            notes_flying: 0,
            retry_at: None,
            told: false,
        };
        letters.catch_up()?;
        Ok(letters)
    }

    /// Reads what stands in the topic now.
    pub(super) fn catch_up(&mut self) -> Result<(), KafkaError> {
        let (_, high) = self.tail.fetch_watermarks(&self.topic, 0, WAIT)?;
        let mut heard = Instant::now();
        while self.next < high {
            if self.read(Duration::from_millis(100))? {
                heard = Instant::now();
            } else if self.position()? >= high {
                self.next = high;
            } else if heard.elapsed() > WAIT {
                return Err(KafkaError::MessageConsumption(RDKafkaErrorCode::OperationTimedOut));
            }
        }
        Ok(())
    }

    fn position(&self) -> Result<i64, KafkaError> {
        Ok(match self.tail.position()?.find_partition(&self.topic, 0).map(|p| p.offset()) {
            Some(Offset::Offset(at)) => at,
            _ => self.next,
        })
    }

    /// Reads a record, where one comes in time.
    fn read(&mut self, timeout: Duration) -> Result<bool, KafkaError> {
        let message = match self.tail.poll(timeout) {
            None => return Ok(false),
            Some(Ok(message)) => message,
            Some(Err(error @ KafkaError::MessageConsumption(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange))) => {
                return Err(error);
            }
            Some(Err(error)) => {
                tracing::debug!(%error, "reading dead letters");
                return Ok(false);
            }
        };
        self.next = message.offset() + 1;
        self.told = false;
        let key = message.key().and_then(|key| std::str::from_utf8(key).ok());
        let (Some((topic, partition, offset, replica)), Some(value)) = (key.and_then(dead_letter::parse_key), message.payload()) else {
            return Ok(true);
        };
        let (at, book) = (message.offset(), &mut self.book);
        let id = Id { offset, replica: book.replica(replica) };
        if let Ok(Note { act, letter }) = serde_json::from_slice(value) {
            match act {
                Act::Replay => book.asked(topic, partition, id, letter),
                Act::Replayed | Act::Dropped | Act::Superseded => book.closed(topic, partition, id, letter),
            }
        } else if let Ok(letter) = serde_json::from_slice::<Letter>(value) {
            let keys = letter.parks.iter().filter_map(|text| dead_letter::parse_digest(text)).collect();
            let said = Said { table: &letter.table, code: &letter.code, keys, waits: letter.code == PARKED };
            book.letter(topic, partition, id, Some(at), said);
        }
        Ok(true)
    }

    /// What is told of the open letters is not so any more.
    pub(super) const fn tell_anew(&mut self) {
        self.told = false;
    }

    /// Whether something of it is on its way.
    pub(super) fn is_waiting(&self) -> bool {
        !self.flying.is_empty() || !self.notes.is_empty() || self.notes_flying > 0
    }

    /// The log has one more record of a letter, or the topic a note.
    pub(super) fn acknowledged(&mut self, number: u64) {
        if number == NOTE {
            self.notes_flying = self.notes_flying.saturating_sub(1);
            return;
        }
        let Some(flying) = self.flying.get_mut(&number) else { return };
        flying.outstanding = flying.outstanding.saturating_sub(1);
        if flying.outstanding == 0
            && let Some(Flying { key, letter, .. }) = self.flying.remove(&number)
        {
            self.notes.push_back((key, Note { act: Act::Replayed, letter }));
        }
    }
}

/// Looks single records up where they stand.
struct Finder {
    kafka: KafkaPlan,
    consumer: Option<BaseConsumer<Voice>>,
    /// Topic, partition and next offset that the consumer reads.
    at: Option<(String, i32, i64)>,
}

impl Finder {
    /// Hands over the record at a place; false where there is none any more.
    fn find(&mut self, topic: &str, partition: i32, offset: i64, take: impl FnOnce(&BorrowedMessage<'_>)) -> Result<bool, KafkaError> {
        let consumer = match self.consumer.take() {
            Some(consumer) => consumer,
            None => client::reader(&self.kafka).create_with_context(Voice)?,
        };
        let is_near = self.at.take().is_some_and(|(t, p, next)| t == topic && p == partition && (next..next + READ_ON).contains(&offset));
        if !is_near {
            let (low, high) = consumer.fetch_watermarks(topic, partition, WAIT)?;
            if !(low..high).contains(&offset) {
                self.consumer = Some(consumer);
                return Ok(false);
            }
            let mut partitions = TopicPartitionList::new();
            partitions.add_partition_offset(topic, partition, Offset::Offset(offset))?;
            consumer.assign(&partitions)?;
        }
        let deadline = Instant::now() + WAIT;
        let found = loop {
            match consumer.poll(Duration::from_millis(100)) {
                Some(message) => {
                    let message = message?;
                    if message.offset() < offset || message.topic() != topic || message.partition() != partition {
                        continue;
                    }
                    // Compaction may have taken it.
                    let is_it = message.offset() == offset;
                    if is_it {
                        self.at = Some((topic.to_owned(), partition, offset + 1));
                        take(&message);
                    }
                    break is_it;
                }
                None if Instant::now() > deadline => return Err(KafkaError::MessageConsumption(RDKafkaErrorCode::OperationTimedOut)),
                None => {}
            }
        };
        self.consumer = Some(consumer);
        Ok(found)
    }

    /// Nothing is to be found for now: nothing is fetched for it either.
    fn rest(&mut self) {
        (self.consumer, self.at) = (None, None);
    }
}

fn kept(message: &impl Message) -> Kept {
    let bytes = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
    let headers = message.headers().map(|headers| headers.iter().map(|h| (h.key.to_owned(), bytes(h.value))).collect());
    Kept { millis: message.timestamp().to_millis(), key: bytes(message.key()), value: bytes(message.payload()), headers: headers.unwrap_or_default() }
}

impl Session<'_> {
    /// Takes in what the dead-letter topic says, and does what is asked for.
    pub(super) fn follow_letters(&mut self, consumer: &Consumer) -> Result<(), SessionError> {
        for _ in 0..BURST {
            if !self.letters.read(Duration::ZERO)? {
                break;
            }
        }
        if self.letters.retry_at.is_some_and(|at| Instant::now() < at) {
            return self.write_notes();
        }
        self.letters.retry_at = None;
        let mut idle = true;
        let slots: Vec<usize> = self.owned.iter().filter(|(_, o)| !o.stopped).map(|(slot, _)| *slot).collect();
        for slot in slots {
            let Some(owned) = self.owned.get(&slot) else { continue };
            let due = self.letters.book.due(&owned.name.0, owned.name.1, owned.committed, owned.parks, TURN);
            if !due.is_empty() {
                idle = false;
                self.replay_all(slot, due)?;
            }
            self.resume_room(consumer, slot)?;
        }
        if idle {
            self.letters.finder.rest();
        }
        self.write_notes()
    }

    /// Puts letters back into the log, in order. What is behind one that fails and holds its key stays.
    fn replay_all(&mut self, slot: usize, due: Vec<Due>) -> Result<(), SessionError> {
        let Some((owned, parks)) = self.owned.get(&slot).map(|o| (o.name.clone(), o.parks)) else { return Ok(()) };
        let mut held: HashSet<Digest> = HashSet::new();
        for due in due {
            if parks && due.keys.iter().any(|key| held.contains(key)) {
                held.extend(due.keys.iter().copied());
                continue;
            }
            let (topic, partition) = (&owned.0, owned.1);
            match self.replay(slot, &due)? {
                Tried::Sent | Tried::Unknown => self.letters.book.sent(topic, partition, due.id),
                Tried::Later => {
                    self.letters.book.stir(topic, partition);
                    self.letters.retry_at = Some(Instant::now() + RETRY_AFTER);
                    held.extend(due.keys.iter().copied());
                }
                Tried::Failed => {
                    self.letters.book.failed(topic, partition, due.id);
                    held.extend(due.keys.iter().copied());
                }
            }
        }
        Ok(())
    }

    fn replay(&mut self, slot: usize, due: &Due) -> Result<Tried, SessionError> {
        let mut found: Option<(Letter, Option<Kept>)> = None;
        let letters = &mut self.letters;
        let _ = letters.finder.find(&letters.topic, 0, due.letter, |message| {
            let header = message.headers().and_then(|headers| headers.iter().find(|h| h.key == HEADER)?.value);
            let record = header.and_then(|bytes| Kept::decode(bytes).ok());
            found = message.payload().and_then(|value| serde_json::from_slice(value).ok()).map(|letter| (letter, record));
        })?;
        let Some(owned) = self.owned.get_mut(&slot) else { return Ok(Tried::Unknown) };
        let is_it =
            |letter: &Letter| (letter.topic.as_str(), letter.partition, letter.offset) == (owned.name.0.as_str(), owned.name.1, due.id.offset);
        let Some((letter, record)) = found.filter(|(letter, _)| is_it(letter)) else {
            tracing::warn!(topic = owned.name.0, partition = owned.name.1, offset = due.id.offset, letter = due.letter, "no such dead letter");
            return Ok(Tried::Unknown);
        };
        let record = match record {
            Some(record) => record,
            None => {
                let mut read = None;
                let _ = letters.finder.find(&letter.topic, letter.partition, letter.offset, |message| read = Some(kept(message)))?;
                match read {
                    Some(record) => record,
                    None => {
                        let reason = "the source topic does not hold the record any more, and its letter did not keep it".to_owned();
                        return self.fail(&letter, None, RECORD_GONE, reason);
                    }
                }
            }
        };
        let Some(input) = self.inputs.get_mut(&letter.topic) else { return Ok(Tried::Unknown) };
        let timestamp = record.millis.and_then(|millis| millis.checked_mul(1_000));
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        let asked = dialect::Record { offset: letter.offset, key, value, headers: Some(&record), timestamp };
        if let Some(registry) = &mut self.registry {
            while let Some(id) = input.decoder.wanted(&asked) {
                match registry.known(id) {
                    Some(registered) => input.decoder.bring(id, registered),
                    None => return Ok(Tried::Later),
                }
            }
        }
        input.decoder.epoch = input.pinned.epoch(letter.partition, letter.offset);
        self.outbox.clear();
        letters.numbers = (letters.numbers + 1) % NOTE;
        let number = letters.numbers;
        let (mut fresh, mut by_offset) = (None, false);
        let infers = input.decoder.options().infer;
        let verdict = match input.decoder.decode(asked) {
            Ok(Decoded::Ignored(_)) => Ok(0),
            Ok(Decoded::Changes(changes)) => {
                let row = &changes.change.change;
                let judged = match (row.after, row.sequence) {
                    (Some(_), Some(sequence)) => owned.core.shape.judge(changes.fingerprint, changes.schema, sequence),
                    _ => Ok(()),
                };
                match judged {
                    Err(changed) => {
                        let (code, what) = changed.refusal(changes.schema.table());
                        Err((code, what))
                    }
                    Ok(()) if unregistered(self.plan, &mut self.registry, &self.tables[owned.table].log, &changes).is_some() => {
                        return Ok(Tried::Later);
                    }
                    Ok(()) => {
                        if !self.published.contains(&changes.fingerprint) {
                            fresh = Some((changes.fingerprint, Arc::clone(changes.schema)));
                        }
                        by_offset = changes.by_offset && !input.pinned.by_offset;
                        let (moved, more) = (changes.moved(), changes.more());
                        let items: Vec<Item<'_>> = (0..)
                            .zip(moved.iter().chain([&changes.change]).chain(&more))
                            .map(|(ordinal, keyed)| Item { ordinal, key: keyed.key, change: &keyed.change })
                            .collect();
                        owned.count(&items);
                        Ok(owned.core.replay(number, letter.offset, due.letter, changes.fingerprint, &items, &mut self.outbox))
                    }
                }
            }
            Err(reject) if infers && reject.code == Code::TypesMissing => {
                match self.inference.take_refusal(&letter.topic, letter.partition, letter.offset) {
                    Some(why) => Err((reject.code.as_str(), why)),
                    None => {
                        let options = input.decoder.options().clone();
                        let (partition, offset) = (letter.partition, letter.offset);
                        let schema = owned.core.shape.schema().cloned();
                        let (key, value) = (record.key.clone(), record.value.clone());
                        let _asked = self.ask_types(Question { options, partition, offset, key, value, schema, registered: Vec::new() });
                        return Ok(Tried::Later);
                    }
                }
            }
            Err(reject) => Err((reject.code.as_str(), reject.reason)),
        };
        let outstanding = match verdict {
            Err((code, reason)) => return self.fail(&letter, Some(&record), code, reason),
            Ok(outstanding) => outstanding,
        };
        if let Some((fingerprint, schema)) = fresh {
            self.publish(fingerprint, schema)?;
        }
        if by_offset {
            self.pin_by_offset(&letter.topic)?;
        }
        let key = letter.record_key();
        if outstanding == 0 {
            self.letters.notes.push_back((key, Note { act: Act::Replayed, letter: due.letter }));
            return Ok(Tried::Sent);
        }
        let _ = self.letters.flying.insert(number, Flying { outstanding, key, letter: due.letter });
        if self.produce(slot, LETTERS)? {
            fault::point("post_replay");
            tracing::info!(topic = letter.topic, partition = letter.partition, offset = letter.offset, code = letter.code, "dead letter replayed");
            return Ok(Tried::Sent);
        }
        let _ = self.letters.flying.remove(&number);
        self.fail(&letter, Some(&record), "record.too_large", TOO_LARGE.to_owned())
    }

    /// A letter that was tried again gets a new verdict and stays.
    fn fail(&mut self, letter: &Letter, record: Option<&Kept>, code: &str, reason: String) -> Result<Tried, SessionError> {
        let letter = Letter { code: code.to_owned(), reason, hint: dead_letter::hint(code).to_owned(), ..letter.clone() };
        let hides = self.tables.iter().any(|t| t.id == letter.table && t.rules.hides());
        self.letters.notes_flying += 1;
        self.write_letter(&letter, record.filter(|_| !hides), LETTERS << TOKEN_BITS | NOTE as usize)?;
        Ok(Tried::Failed)
    }

    /// Notes follow what they say.
    pub(super) fn write_notes(&mut self) -> Result<(), SessionError> {
        while let Some((key, note)) = self.letters.notes.pop_front() {
            let value = serde_json::to_vec(&note).unwrap_or_default();
            self.letters.notes_flying += 1;
            let topic = self.letters.topic.clone();
            let record = Outgoing { topic: &topic, partition: 0, key: Some(key.as_bytes()), value: &value, headers: [None; 2] };
            if !self.send_letter(record, LETTERS << TOKEN_BITS | NOTE as usize)? {
                return Err(KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge).into());
            }
        }
        Ok(())
    }

    /// A record that nobody can take. Where its key can be told, later events of that key wait behind it.
    pub(super) fn poison(&mut self, slot: usize, token: u64, message: &BorrowedMessage<'_>, code: &str, reason: &str) -> Result<(), SessionError> {
        let Some(owned) = self.owned.get(&slot) else { return Ok(()) };
        let input = self.inputs.get_mut(&owned.name.0).filter(|_| owned.parks);
        let key = input.and_then(|input| input.decoder.key_of(message.key()).map(digest));
        self.bury(slot, token, message, code, reason.to_owned(), key.into_iter().collect())
    }

    /// An event whose key is held by a dead letter: it waits behind that, its place kept.
    pub(super) fn park(&mut self, slot: usize, token: u64, message: &BorrowedMessage<'_>, keys: Vec<Digest>) -> Result<(), SessionError> {
        // Its records are not for the log yet.
        let outbox = std::mem::take(&mut self.outbox);
        outbox.records().for_each(|out| self.acknowledge(slot, out.token));
        self.outbox = outbox;
        self.bury(slot, token, message, PARKED, "an earlier event of its key is a dead letter".to_owned(), keys)
    }

    /// A dead letter stands before the watermark passes its record (law 11).
    fn bury(
        &mut self,
        slot: usize,
        token: u64,
        message: &BorrowedMessage<'_>,
        code: &str,
        reason: String,
        keys: Vec<Digest>,
    ) -> Result<(), SessionError> {
        let Some(owned) = self.owned.get_mut(&slot) else { return Ok(()) };
        let table = &self.tables[owned.table];
        let hides = table.rules.hides();
        let letter = Letter {
            code: code.to_owned(),
            reason,
            hint: dead_letter::hint(code).to_owned(),
            table: table.id.clone(),
            replica: None,
            topic: message.topic().to_owned(),
            partition: message.partition(),
            offset: message.offset(),
            time: message.timestamp().to_millis().and_then(dead_letter::time_text),
            // Where columns are left out or masked, no part of a record is shown or kept: it may be what must not be.
            key: message.key().map(dead_letter::excerpt).filter(|_| !hides),
            excerpt: message.payload().map(dead_letter::excerpt).filter(|_| !hides),
            parks: keys.iter().map(dead_letter::digest_text).collect(),
        };
        if !fault::bug(Bug::CommitPastRejected) {
            owned.core.expect(token);
            // A record that is too large to be kept is not copied either.
            let record = (!hides && message.key_len() + message.payload_len() <= RECORD_BYTES_MAX).then(|| kept(message));
            self.write_letter(&letter, record.as_ref(), slot << TOKEN_BITS | token as usize)?;
            let said = Said { table: &letter.table, code, keys, waits: code == PARKED };
            self.letters.book.letter(&letter.topic, letter.partition, Id { offset: letter.offset, replica: 0 }, None, said);
        }
        self.acknowledge(slot, token);
        Ok(())
    }

    /// Writes a letter, with its record beside it where that is not too large for any broker.
    fn write_letter(&mut self, letter: &Letter, record: Option<&Kept>, number: usize) -> Result<(), SessionError> {
        let (topic, key) = (self.letters.topic.clone(), letter.record_key());
        let value = serde_json::to_vec(letter).unwrap_or_default();
        let whole = record.and_then(Kept::encode);
        let headers = [whole.as_deref().map(|bytes| (HEADER, bytes)), None];
        let outgoing = Outgoing { topic: &topic, partition: 0, key: Some(key.as_bytes()), value: &value, headers };
        // A letter alone is bounded below what any producer may be limited to.
        if !self.send_letter(outgoing, number)? && !self.send_letter(Outgoing { headers: [None; 2], ..outgoing }, number)? {
            return Err(KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge).into());
        }
        self.shared.observer.dead_letter(letter);
        Ok(())
    }

    fn send_letter(&mut self, record: Outgoing<'_>, number: usize) -> Result<bool, SessionError> {
        loop {
            match self.producer.send(record, number)? {
                Sent::Queued => return Ok(true),
                Sent::Full => self.take_acks(Duration::from_millis(100))?,
                Sent::TooLarge => return Ok(false),
            }
        }
    }

    /// As many events wait behind dead letters as may: the partition stands at its next record until some were replayed or dropped.
    pub(super) fn await_room(&mut self, consumer: &Consumer, slot: usize, offset: i64) -> Result<(), SessionError> {
        let Some(owned) = self.owned.get_mut(&slot) else { return Ok(()) };
        owned.is_full = true;
        let (topic, partition) = &owned.name;
        let mut list = TopicPartitionList::new();
        let _ = list.add_partition(topic, *partition);
        consumer.pause(&list)?;
        let reason = Reason {
            code: "park.full".to_owned(),
            what: format!("{PARKED_MAX} events of topic {topic:?}, partition {partition}, are dead letters or wait behind one"),
            hint: "replay or drop some with `landfall dead-letters`; the partition goes on then".to_owned(),
        };
        self.shared.observer.source_waiting(topic, *partition, Some(reason));
        Ok(consumer.seek(topic, *partition, Offset::Offset(offset), WAIT)?)
    }

    fn resume_room(&mut self, consumer: &Consumer, slot: usize) -> Result<(), SessionError> {
        let Some(owned) = self.owned.get_mut(&slot).filter(|o| o.is_full) else { return Ok(()) };
        let (topic, partition) = &owned.name;
        if !self.letters.book.is_full(topic, *partition) {
            owned.is_full = false;
            self.shared.observer.source_waiting(topic, *partition, None);
            let mut list = TopicPartitionList::new();
            let _ = list.add_partition(topic, *partition);
            consumer.resume(&list)?;
        }
        Ok(())
    }

    /// Tells how many letters are open and how many keys wait, in the partitions of this process.
    pub(super) fn tell_letters(&mut self) {
        if !std::mem::replace(&mut self.letters.told, true) {
            let lanes = self.owned.values().map(|o| (o.name.0.as_str(), o.name.1));
            self.shared.observer.open_letters(&self.letters.book.tally(lanes));
        }
    }
}
