//! Reading the dead-letter topic: letters, and what the notes behind them say became of each.

use std::hash::BuildHasher as _;
use std::time::{Duration, Instant};

use hashbrown::{DefaultHashBuilder, HashMap};
use landfall_topology::Plan;
use landfall_topology::plan::KafkaPlan;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use serde::Serialize;

use crate::dead_letter::{self, Act, Letter, Note};
use crate::log::client;
use crate::log::voice::Voice;

/// Reading goes on as long as something comes within this.
const PATIENCE: Duration = Duration::from_secs(15);

/// A letter as it stands in the topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Entry {
    /// Its Kafka key.
    pub letter: String,
    /// When it was written, RFC 3339.
    pub written: Option<String>,
    /// What became of it.
    pub state: State,
    /// Its offset.
    #[serde(skip)]
    pub at: i64,
    #[serde(flatten)]
    pub body: Letter,
}

/// What became of a letter. A later word of equal weight changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// Nothing yet.
    Open,
    /// Somebody has asked for it to be replayed.
    Asked,
    /// Dropped.
    Dropped,
    /// Replayed.
    Replayed,
    /// Replayed, and deleted by a later tombstone.
    Superseded,
}

impl State {
    pub(super) const fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::Asked)
    }

    /// The word for people.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Asked => "replay asked for",
            Self::Dropped => "dropped",
            Self::Replayed => "replayed",
            Self::Superseded => "superseded",
        }
    }
}

impl From<Act> for State {
    fn from(act: Act) -> Self {
        match act {
            Act::Replay => Self::Asked,
            Act::Dropped => Self::Dropped,
            Act::Replayed => Self::Replayed,
            Act::Superseded => Self::Superseded,
        }
    }
}

/// What is known of the letters of one record.
#[derive(Clone, Copy, Debug)]
struct Fact {
    /// The offset of the newest.
    newest: i64,
    times: u64,
    /// The newest letter that something is said of, and what.
    said: (i64, State),
}

/// What stands in a record of the topic.
#[derive(Debug)]
pub(super) enum Line {
    Letter(Box<Letter>),
    Note(Note),
}

/// Reads the value of a record; none for one that is neither.
pub(super) fn line(value: Option<&[u8]>) -> Option<Line> {
    let value = value?;
    serde_json::from_slice(value).map(Line::Note).or_else(|_| serde_json::from_slice(value).map(Line::Letter)).ok()
}

/// What became of each letter, by a hash of its key: so a letter takes the same few bytes whatever it says.
#[derive(Default)]
struct Facts {
    of: HashMap<u64, Fact>,
    hasher: DefaultHashBuilder,
}

impl Facts {
    fn take(&mut self, key: &str, at: i64, line: &Line) {
        let fact = self.of.entry(self.hasher.hash_one(key)).or_insert(Fact { newest: -1, times: 0, said: (-1, State::Open) });
        match line {
            Line::Letter(_) => (fact.newest, fact.times) = (at, fact.times + 1),
            Line::Note(note) if note.letter >= fact.said.0 => fact.said = (note.letter, note.act.into()).max(fact.said),
            Line::Note(_) => {}
        }
    }

    fn get(&self, key: &str) -> Option<&Fact> {
        self.of.get(&self.hasher.hash_one(key))
    }
}

/// The topic as it stands now.
pub(super) struct Topic {
    kafka: KafkaPlan,
    name: String,
    bounds: Option<(i64, i64)>,
    facts: Facts,
}

impl Topic {
    /// Reads through it once, for what became of its letters.
    pub(super) fn open(plan: &Plan) -> Result<Self, anyhow::Error> {
        let name = plan.dead_letters_topic();
        let consumer: BaseConsumer<Voice> = client::reader(&plan.kafka).create_with_context(Voice)?;
        let bounds = match consumer.fetch_watermarks(&name, 0, PATIENCE) {
            Ok(bounds) => Some(bounds),
            // Nobody has run this topology yet.
            Err(error) if is_unknown(&error) => None,
            Err(error) => return Err(anyhow::Error::new(error).context(format!("topic {name} cannot be read"))),
        };
        let mut topic = Self { kafka: plan.kafka.clone(), name, bounds, facts: Facts::default() };
        let mut facts = Facts::default();
        topic.read(|key, message| {
            if let Some(line) = line(message.payload()) {
                facts.take(key, message.offset(), &line);
            }
        })?;
        topic.facts = facts;
        Ok(topic)
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The offset behind its last record.
    pub(super) fn end(&self) -> i64 {
        self.bounds.map_or(0, |(_, end)| end)
    }

    /// How often a record was dead-lettered.
    pub(super) fn times(&self, key: &str) -> u64 {
        self.facts.get(key).map_or(0, |fact| fact.times)
    }

    /// Hands over the letters, oldest first; of several for one record the newest.
    pub(super) fn entries(&self, mut each: impl FnMut(Entry)) -> Result<(), anyhow::Error> {
        self.read(|key, message| {
            let Some(fact) = self.facts.get(key).filter(|fact| fact.newest == message.offset()) else { return };
            let Some(Line::Letter(body)) = line(message.payload()) else { return };
            let state = if fact.said.0 >= fact.newest { fact.said.1 } else { State::Open };
            let written = message.timestamp().to_millis().and_then(dead_letter::time_text);
            each(Entry { letter: key.to_owned(), written, state, at: message.offset(), body: *body });
        })
    }

    fn read(&self, mut each: impl FnMut(&str, &BorrowedMessage<'_>)) -> Result<(), anyhow::Error> {
        let Some((low, high)) = self.bounds.filter(|(low, high)| low < high) else { return Ok(()) };
        let mut tail = Tail::new(&self.kafka, &self.name, low)?;
        loop {
            let next = tail.next(PATIENCE, |message| {
                if let Some(key) = message.key().and_then(|key| std::str::from_utf8(key).ok()) {
                    each(key, message);
                }
            })?;
            match next {
                Some(next) if next >= high => return Ok(()),
                Some(_) => {}
                None => {
                    return Err(anyhow::Error::new(KafkaError::MessageConsumption(RDKafkaErrorCode::OperationTimedOut))
                        .context(format!("topic {} cannot be read to its end", self.name)));
                }
            }
        }
    }
}

/// Reads a topic on from an offset.
pub(super) struct Tail {
    consumer: BaseConsumer<Voice>,
    topic: String,
}

impl Tail {
    pub(super) fn new(kafka: &KafkaPlan, topic: &str, from: i64) -> Result<Self, KafkaError> {
        let consumer: BaseConsumer<Voice> = client::reader(kafka).create_with_context(Voice)?;
        let mut partitions = TopicPartitionList::new();
        partitions.add_partition_offset(topic, 0, Offset::Offset(from))?;
        consumer.assign(&partitions)?;
        Ok(Self { consumer, topic: topic.to_owned() })
    }

    /// The next record, where it comes in time; returns the offset behind it, or the one that the reader has passed.
    pub(super) fn next(&mut self, patience: Duration, take: impl FnOnce(&BorrowedMessage<'_>)) -> Result<Option<i64>, KafkaError> {
        #[allow(clippy::disallowed_methods, reason = "a person waits for this; no decision of the core rests on it")]
        let begun = Instant::now();
        let before = self.position()?;
        loop {
            let left = patience.saturating_sub(begun.elapsed());
            if let Some(message) = self.consumer.poll(left.min(Duration::from_millis(100))) {
                let message = message?;
                take(&message);
                return Ok(Some(message.offset() + 1));
            }
            // What holds no record for anybody moves the reader too.
            match self.position()? {
                Some(at) if Some(at) != before => return Ok(Some(at)),
                _ if left.is_zero() => return Ok(None),
                _ => {}
            }
        }
    }

    fn position(&self) -> Result<Option<i64>, KafkaError> {
        Ok(match self.consumer.position()?.find_partition(&self.topic, 0).map(|p| p.offset()) {
            Some(Offset::Offset(at)) => Some(at),
            _ => None,
        })
    }
}

fn is_unknown(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{UnknownPartition, UnknownTopic, UnknownTopicOrPartition};
    matches!(error.rdkafka_error_code(), Some(UnknownTopic | UnknownPartition | UnknownTopicOrPartition))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_letter_is_passed_over() {
        assert!(line(Some(b"{}")).is_none() && line(None).is_none() && line(Some(b"[")).is_none());
    }

    #[test]
    fn a_letter_is_what_was_last_said_of_it() {
        let letter = Line::Letter(Box::default());
        let note = |act, letter| Line::Note(Note { act, letter });
        let state = |lines: &[&Line]| {
            let mut facts = Facts::default();
            (0..).zip(lines).for_each(|(at, line)| facts.take("k", at, line));
            let fact = facts.get("k").expect("known");
            if fact.said.0 >= fact.newest { fact.said.1 } else { State::Open }
        };
        assert_eq!(state(&[&letter]), State::Open);
        assert_eq!(state(&[&letter, &note(Act::Replay, 0)]), State::Asked);
        assert_eq!(state(&[&letter, &note(Act::Replay, 0), &note(Act::Replayed, 0)]), State::Replayed);
        assert_eq!(state(&[&letter, &note(Act::Replayed, 0), &note(Act::Replay, 0)]), State::Replayed, "two operators");
        assert_eq!(state(&[&letter, &note(Act::Superseded, 0), &note(Act::Replayed, 0)]), State::Superseded);
        assert_eq!(state(&[&letter, &note(Act::Replay, 0), &letter]), State::Open, "it failed again");
        assert_eq!(state(&[&letter, &letter, &note(Act::Replayed, 0)]), State::Open, "said of the former verdict");
        assert_eq!(state(&[&letter, &letter, &note(Act::Dropped, 1)]), State::Dropped);
    }
}
