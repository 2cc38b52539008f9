//! The source topics in use: their tables, what is pinned of them, and whether they still are what they were.
//!
//! Incarnation, partition count and epoch of a source topic stand in the control topic before its first record is read. A topic that was
//! recreated, grew where offsets order its changes, or lost records that were wanted stops by name (laws 8 and 12).

use std::collections::BTreeMap;

use landfall_schemas::dialect::{self, Decoder};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::{Offset, TopicPartitionList};

use super::rebalance::Consumer;
use super::{SINGLE, Session, SessionError, WAIT, options};
use crate::log::client;
use crate::log::control::{self, Source, SourceChanged};
use crate::log::incarnation::Described;
use crate::log::producer::Outgoing;
use crate::log::topics::{Identity, Purpose};
use crate::log::voice::Voice;
use crate::observe::Reason;

/// A source topic in use.
pub(super) struct Input {
    pub(super) decoder: Decoder,
    pub(super) table: usize,
    pub(super) pinned: Source,
    pub(super) described: Described,
    /// Why nothing of it may be read.
    pub(super) refused: Option<Reason>,
}

impl Session<'_> {
    /// Takes a source topic into use: its table, its log, and what is pinned of it.
    pub(super) fn input(&mut self, topic: &str) -> Result<Input, SessionError> {
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
        let mut options = options::of(self.plan, &self.tables[table], topic, described.partitions);
        options.inferred = self.types.get(&options.table).cloned().unwrap_or_default();
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
    pub(super) fn pin_by_offset(&mut self, topic: &str) -> Result<(), SessionError> {
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
        let record = Outgoing { topic: &control, partition: 0, key: Some(source.topic.as_bytes()), value: &value, headers: [None; 2] };
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

    /// Looks at the source topics: recreated ones stop at once, and dips that last too long.
    pub(super) fn look(&mut self, consumer: &Consumer) -> Result<(), SessionError> {
        let now = self.now();
        let regressed: Vec<usize> = self
            .owned
            .iter()
            .filter(|(_, o)| !o.stopped && o.wants.is_none() && !o.waits_for_types && o.core.has_regressed(now))
            .map(|(s, _)| *s)
            .collect();
        for slot in regressed {
            self.regressed(consumer, slot)?;
        }
        let names: Vec<String> = self.inputs.iter().filter(|(_, i)| i.refused.is_none()).map(|(t, _)| t.clone()).collect();
        let described = self.topics.describe(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
        for (topic, described) in names.iter().zip(described) {
            let Some(described) = described else { continue };
            self.compare(consumer, topic, described)?;
        }
        Ok(())
    }

    /// The client says which incarnation of a topic it reads from now on: none of its records is taken for one of another (law 8).
    pub(super) fn identified(&mut self, consumer: &Consumer, topic: &str, incarnation: [u8; 16]) -> Result<(), SessionError> {
        // Where topics go by their names, the ids that the client hears of are nobody's.
        if self.shared.identity == Identity::Names {
            return Ok(());
        }
        // A topic that is not in use yet is described when it is taken into use.
        let Some(input) = self.inputs.get(topic).filter(|i| i.refused.is_none()) else { return Ok(()) };
        self.compare(consumer, topic, Described { incarnation, ..input.described })
    }

    /// Compares a topic with what is pinned of it, and stops it where it is no longer the same.
    fn compare(&mut self, consumer: &Consumer, topic: &str, described: Described) -> Result<(), SessionError> {
        let Some(input) = self.inputs.get_mut(topic) else { return Ok(()) };
        if let Err(changed) = input.pinned.check(described) {
            let reason = changed_reason(&changed);
            input.refused = Some(reason.clone());
            let slots: Vec<usize> = self.owned.iter().filter(|(_, o)| o.name.0 == *topic && !o.stopped).map(|(s, _)| *s).collect();
            for slot in slots {
                self.stop(consumer, slot, reason.clone())?;
            }
        }
        Ok(())
    }

    /// An offset that is wanted is no longer there: finds whose, and stops it (law 8).
    pub(super) fn find_trimmed(&mut self, consumer: &Consumer) -> Result<(), SessionError> {
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
}

fn refused_input(topic: &str, code: &str, what: String) -> Input {
    let described = Described { incarnation: [0; 16], partitions: 0 };
    Input {
        decoder: Decoder::new(dialect::Options::new(topic)),
        table: 0,
        pinned: Source::new(topic, described, 0),
        described,
        refused: Some(Reason { code: code.to_owned(), what, hint: "see `landfall check`".to_owned() }),
    }
}

/// Why a source topic that is no longer what it was may not be read, and the way out.
pub(super) fn changed_reason(changed: &SourceChanged) -> Reason {
    let hint = match changed {
        SourceChanged::Recreated { .. } => "its offsets mean other records now; give the table a new topic, or reset it",
        SourceChanged::Repartitioned { .. } => {
            "keys have moved between partitions, so offsets no longer order their changes; give the table a new topic, or reset it"
        }
    };
    Reason { code: changed.code().to_owned(), what: changed.to_string(), hint: hint.to_owned() }
}
