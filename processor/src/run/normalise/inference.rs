//! Types that nobody says: found in the records of a topic, settled in the control topic, and only then used.
//!
//! A thread of its own looks at the topic with a consumer of its own, so that the table that needs types keeps nobody else waiting. What it finds it
//! writes to the control topic, and reads that to its end: the first type of a column counts, whoever found it, so two processes that look at
//! once, or one that comes back late, use the same (`log::control`). A value in the log is thereby a function of its record and of what is settled.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};
use landfall_schemas::TableSchema;
use landfall_schemas::dialect::{self, Code, Decoder, Inferred, Members, Options, Registered};
use landfall_topology::plan::KafkaPlan;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};

use super::rebalance::Consumer;
use super::{SINGLE, Session, SessionError, WAIT};
use crate::fault;
use crate::log::client;
use crate::log::control::{self, Settling, Types};
use crate::log::producer::{Outgoing, Producer};
use crate::log::voice::Voice;
use crate::observe::Reason;

/// Records of each partition that are looked at, from its first one on.
const SAMPLE_RECORDS: i64 = 1_000;
/// What they may come to together.
const SAMPLE_BYTES: usize = 32 << 20;
/// How long looking at them may take.
const SAMPLE_TIME: Duration = Duration::from_secs(5);
/// The pause after the first failure, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// A record that lacks types.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) options: Options,
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    /// What its partition has had.
    pub(super) schema: Option<Arc<TableSchema>>,
    /// What the registry says of the schemas that it names: a key may name one beside a value without.
    pub(super) registered: Vec<(u64, Registered)>,
}

impl Question {
    fn record(&self) -> dialect::Record<'_> {
        dialect::Record { offset: self.offset, key: self.key.as_deref(), value: self.value.as_deref(), headers: None, timestamp: None }
    }

    /// Why types are still missing with these; nothing where they are not.
    fn lacks(&self, types: &Types) -> Option<String> {
        let mut decoder = Decoder::new(Options { inferred: types.clone(), ..self.options.clone() });
        self.registered.iter().for_each(|(id, registered)| decoder.bring(*id, registered));
        decoder.decode(self.record()).err().filter(|reject| reject.code == Code::TypesMissing).map(|reject| reject.reason)
    }
}

/// What came of a question.
#[derive(Debug)]
enum Found {
    /// What is settled of the table.
    Settled(Types),
    /// Nothing that would help, and why.
    Refused(String),
}

struct Answer {
    topic: String,
    table: String,
    at: (i32, i64),
    /// Or why it could not be looked at; that goes on.
    found: Result<Found, String>,
}

/// Asks for types.
pub(super) struct Inference {
    ask: Sender<Question>,
    thread: JoinHandle<()>,
    answers: Receiver<Answer>,
    /// Topics that are being looked at.
    asked: HashSet<String>,
    /// Records for which there is no answer, by topic, partition and offset, and why.
    refused: HashMap<(String, i32, i64), String>,
}

impl Inference {
    /// Begins to answer; its thread ends with this.
    pub(super) fn start(kafka: &KafkaPlan, topic: String) -> std::io::Result<Self> {
        let ((ask, asked), (answer, answers)) = (channel(), channel());
        let kafka = kafka.clone();
        let body = move || serve(&asked, &answer, |question| look(&kafka, &topic, question).map_err(|error| error.to_string()));
        let thread = std::thread::Builder::new().name("inference".to_owned()).spawn(body)?;
        Ok(Self { ask, thread, answers, asked: HashSet::new(), refused: HashMap::new() })
    }

    /// Why a record can have no types, where that was found; it is forgotten then.
    pub(super) fn take_refusal(&mut self, topic: &str, partition: i32, offset: i64) -> Option<String> {
        self.refused.remove(&(topic.to_owned(), partition, offset))
    }
}

/// Answers until nobody asks any more. What fails waits for its turn beside the others.
fn serve(asked: &Receiver<Question>, answers: &Sender<Answer>, mut look: impl FnMut(&Question) -> Result<Found, String>) {
    let mut open: Vec<(Instant, Duration, Question)> = Vec::new();
    loop {
        let due = open.iter().map(|(at, ..)| *at).min();
        let next = match due {
            None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => asked.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        match next {
            Ok(question) => open.push((Instant::now(), PAUSES.0, question)),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let Some(at) = open.iter().position(|(at, ..)| *at <= Instant::now()) else { continue };
        let (_, pause, question) = open.swap_remove(at);
        let found = look(&question);
        let answer =
            Answer { topic: question.options.topic.clone(), table: question.options.table.clone(), at: (question.partition, question.offset), found };
        if answer.found.is_err() {
            open.push((Instant::now() + pause, (pause * 2).min(PAUSES.1), question));
        }
        if answers.send(answer).is_err() {
            return;
        }
    }
}

/// Finds and settles the types of a record's members.
fn look(kafka: &KafkaPlan, topic: &str, question: &Question) -> Result<Found, KafkaError> {
    let table = &question.options.table;
    let settled = |types: &mut control::Control| types.types.remove(table).unwrap_or_default();
    let mut types = settled(&mut control::load(kafka, topic)?);
    if question.lacks(&types).is_none() {
        // Another process was faster, or another partition.
        return Ok(Found::Settled(types));
    }
    let options = Options { inferred: types.clone(), ..question.options.clone() };
    let mut members = Members::new(options).of(question.schema.clone());
    members.see(&question.record());
    let records = sample(kafka, &question.options, &mut members)?;
    let Inferred { columns, refused, has_more } = members.types();
    types.extend(columns.iter().cloned());
    if let Some(why) = question.lacks(&types) {
        return Ok(Found::Refused(refusal(why, &refused, has_more)));
    }
    let settling = Settling { table: table.clone(), settled: columns };
    let (key, value) = (settling.key(), serde_json::to_vec(&settling).unwrap_or_default());
    let record = Outgoing { topic, partition: 0, key: Some(key.as_bytes()), value: &value, headers: [None; 2] };
    Producer::new(kafka)?.send_and_wait(record, SINGLE, WAIT)?;
    fault::point("post_settle");
    let types = settled(&mut control::load(kafka, topic)?);
    tracing::info!(table, records, columns = settling.settled.len(), "column types were inferred and settled");
    if has_more {
        tracing::warn!(table, "records have more members than become columns before they are needed; are their names data?");
    }
    Ok(match question.lacks(&types) {
        None => Found::Settled(types),
        Some(why) => Found::Refused(refusal(why, &refused, has_more)),
    })
}

fn refusal(why: String, refused: &[(String, &str)], has_more: bool) -> String {
    let mut text = why;
    for (column, seen) in refused {
        text.push_str(&format!("; key column {column:?} has {seen}"));
    }
    if has_more {
        text.push_str("; and there are more members than a table may have columns");
    }
    text
}

/// Looks at the first records of every partition of a topic; how many it were.
fn sample(kafka: &KafkaPlan, options: &Options, members: &mut Members) -> Result<u64, KafkaError> {
    let consumer: BaseConsumer<Voice> = client::reader(kafka).create_with_context(Voice)?;
    let mut list = TopicPartitionList::new();
    let mut ends: HashMap<i32, i64> = HashMap::new();
    for partition in 0..options.partitions.cast_signed() {
        let (low, high) = consumer.fetch_watermarks(&options.topic, partition, WAIT)?;
        if low < high {
            list.add_partition_offset(&options.topic, partition, Offset::Offset(low))?;
            let _ = ends.insert(partition, high.min(low + SAMPLE_RECORDS));
        }
    }
    consumer.assign(&list)?;
    let deadline = Instant::now() + SAMPLE_TIME;
    let (mut records, mut bytes) = (0, 0);
    while !ends.is_empty() && bytes < SAMPLE_BYTES && Instant::now() < deadline {
        match consumer.poll(Duration::from_millis(50)) {
            Some(message) => {
                let message = message?;
                let Some(end) = ends.get(&message.partition()).copied() else { continue };
                if message.offset() < end {
                    let (key, value) = (message.key(), message.payload());
                    bytes += key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
                    records += 1;
                    members.see(&dialect::Record { offset: message.offset(), key, value, headers: None, timestamp: None });
                }
                if message.offset() + 1 >= end {
                    let _ = ends.remove(&message.partition());
                }
            }
            // What was compacted or taken back at the end is never given.
            None => {
                let position = consumer.position()?;
                let at = |partition: i32| position.find_partition(&options.topic, partition).map(|p| p.offset());
                ends.retain(|partition, end| !matches!(at(*partition), Some(Offset::Offset(at)) if at >= *end));
            }
        }
    }
    Ok(records)
}

impl Session<'_> {
    /// A record lacks types that are to be inferred: its partition goes back to it, and on from there when they are settled.
    pub(super) fn await_types(&mut self, consumer: &Consumer, slot: usize, message: &BorrowedMessage<'_>, why: &str) -> Result<(), SessionError> {
        let Some(owned) = self.owned.get_mut(&slot) else { return Ok(()) };
        let (topic, partition) = owned.name.clone();
        let Some(input) = self.inputs.get(&topic) else { return Ok(()) };
        let (options, offset) = (input.decoder.options().clone(), message.offset());
        let asked = (offset, options.inferred.len());
        let refused = self.inference.take_refusal(&topic, partition, offset);
        // That an answer is no help only a defect can bring about; asking on would be for ever.
        if refused.is_some() || owned.asked_types == Some(asked) {
            return self.stop_table(consumer, slot, offset, Code::TypesMissing.as_str(), refused.as_deref().unwrap_or(why), TYPES_HINT);
        }
        owned.waits_for_types = true;
        let reason = Reason {
            code: "types.unsettled".to_owned(),
            what: format!("records have members whose types are being inferred (offset {offset})"),
            hint: "it goes on by itself once they are settled; `columns: { types: … }` says them beforehand".to_owned(),
        };
        self.shared.observer.source_waiting(&topic, partition, Some(reason));
        let mut list = TopicPartitionList::new();
        let _ = list.add_partition(&topic, partition);
        consumer.pause(&list)?;
        consumer.seek(&topic, partition, Offset::Offset(offset), WAIT)?;
        let schema = owned.core.shape.schema().cloned();
        let (key, value) = (message.key().map(<[u8]>::to_vec), message.payload().map(<[u8]>::to_vec));
        if self.ask_types(Question { options, partition, offset, key, value, schema, registered: Vec::new() })
            && let Some(owned) = self.owned.get_mut(&slot)
        {
            owned.asked_types = Some(asked);
        }
        Ok(())
    }

    /// Asks for the types of a record's members; not while its topic is being looked at: then it is to be decoded again behind that answer.
    pub(super) fn ask_types(&mut self, mut question: Question) -> bool {
        if !self.inference.asked.insert(question.options.topic.clone()) {
            return false;
        }
        let mut decoder = Decoder::new(question.options.clone());
        while let Some((registry, id)) = self.registry.as_mut().zip(decoder.wanted(&question.record())) {
            let Some(registered) = registry.known(id) else { break };
            decoder.bring(id, registered);
            question.registered.push((id, registered.clone()));
        }
        // The thread lives as long as this does.
        self.inference.ask.send(question).is_ok()
    }

    /// What was found of types: who waited for it goes on, and decodes its record again.
    pub(super) fn take_types(&mut self, consumer: &Consumer) -> Result<(), SessionError> {
        if self.inference.thread.is_finished() {
            return Err(SessionError::Inference);
        }
        while let Ok(Answer { topic, table, at, found }) = self.inference.answers.try_recv() {
            let failed = match found {
                Ok(found) => {
                    let _ = self.inference.asked.remove(&topic);
                    match found {
                        Found::Settled(types) => self.settle(&table, types),
                        Found::Refused(why) => drop(self.inference.refused.insert((topic.clone(), at.0, at.1), why)),
                    }
                    None
                }
                Err(why) => Some(Reason {
                    code: "types.unsettled".to_owned(),
                    what: format!("types of columns could not be settled: {why}"),
                    hint: "it is tried again until it succeeds".to_owned(),
                }),
            };
            for owned in self.owned.values_mut().filter(|o| o.waits_for_types && o.name.0 == topic) {
                self.shared.observer.source_waiting(&topic, owned.name.1, failed.clone());
                if failed.is_none() {
                    owned.waits_for_types = false;
                    if !owned.stopped {
                        let mut list = TopicPartitionList::new();
                        let _ = list.add_partition(&topic, owned.name.1);
                        consumer.resume(&list)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes in what is settled of a table.
    fn settle(&mut self, table: &str, types: Types) {
        if self.types.get(table) == Some(&types) {
            return;
        }
        for input in self.inputs.values_mut().filter(|input| input.decoder.options().table == table) {
            input.decoder.settle(&types);
        }
        if self.tables.iter().any(|known| known.id == table) {
            self.shared.observer.inferred(table, &types);
        }
        let _ = self.types.insert(table.to_owned(), types);
    }

    /// Takes in what is settled now. Whoever had a partition before has settled what its records needed before it wrote them, so nothing is missing
    /// to its next owner, who would else leave out columns that the row has had.
    pub(super) fn follow_types(&mut self) -> Result<(), SessionError> {
        if self.tables.iter().any(|table| table.infer_types) {
            let control = control::load(&self.plan.kafka, &self.plan.control_topic())?;
            for (table, types) in control.types {
                self.settle(&table, types);
            }
        }
        Ok(())
    }
}

/// What to do about a table that needs types.
pub(super) const TYPES_HINT: &str = "declare them, `columns: { types: { id: int64 } }`, leave the columns out, or let the converter send schemas; the table \
    stands still here, others go on";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_looked_at_again_and_keeps_no_other_topic_waiting() {
        let ((ask, asked), (answer, answers)) = (channel(), channel());
        let question = |topic: &str| Question {
            options: Options { topic: topic.to_owned(), ..Options::new("t") },
            partition: 0,
            offset: 7,
            key: None,
            value: None,
            schema: None,
            registered: Vec::new(),
        };
        for topic in ["a", "b"] {
            ask.send(question(topic)).expect("somebody listens");
        }
        let (mut ask, mut times) = (Some(ask), 0);
        serve(&asked, &answer, |question| {
            if question.options.topic == "a" {
                times += 1;
                if times == 1 {
                    return Err("no broker".to_owned());
                }
                drop(ask.take());
            }
            Ok(Found::Settled(Vec::new()))
        });
        let said: Vec<(String, bool)> = answers.try_iter().map(|answer| (answer.topic, answer.found.is_ok())).collect();
        assert_eq!(said, [("a".to_owned(), false), ("b".to_owned(), true), ("a".to_owned(), true)]);
    }
}
