//! What a replica cannot take, and what stops one of its partitions.
//!
//! A dead letter is durable before its batch lands (law 11). A stop is told with its reason and a way out; the partition's fetching pauses, and
//! everything else goes on.

use std::time::Duration;

use landfall_schemas::Provenance;
use rdkafka::consumer::Consumer as _;

use super::{Consumer, Session, SessionError, WAIT, one};
use crate::dead_letter::{self, Act, Letter, Note};
use crate::land::partition::{SUPERSEDED, Stop};
use crate::log::producer::{Outgoing, Producer};
use crate::observe::Reason;

/// How long the dead letters of a batch may take to be acknowledged.
const LETTERS_WAIT: Duration = Duration::from_secs(30);

impl Session<'_> {
    /// Dead letters of a batch stand before the batch lands (law 11).
    pub(super) fn write_letters(&mut self, at: usize) -> Result<(), SessionError> {
        let Some(owned) = self.owned[at].as_ref() else { return Ok(()) };
        if owned.core.letters().is_empty() {
            return Ok(());
        }
        let r = &self.replicas[owned.replica];
        let topic = self.shared.plan.dead_letters_topic();
        if self.letters.is_none() {
            self.letters = Some(Producer::new(&self.shared.plan.kafka)?);
        }
        let (mut written, mut encoded) = (Vec::new(), Vec::new());
        for letter in owned.core.letters() {
            let provenance = owned.core.provenance(letter.offset).and_then(|bytes| Provenance::decode(bytes).ok());
            let (source, partition, offset) =
                provenance.map_or((owned.name.0.as_str(), owned.name.1, letter.offset), |p| (p.topic, p.source.partition, p.place.offset));
            if letter.code == SUPERSEDED {
                self.shared.observer.superseded(&r.plan.id, source, partition, offset);
                let note = Note { act: Act::Superseded, letter: provenance.and_then(|p| p.replayed).unwrap_or_default() };
                encoded.push((format!("{source}/{partition}/{offset}"), serde_json::to_vec(&note).unwrap_or_default()));
                continue;
            }
            let letter = Letter {
                code: letter.code.to_owned(),
                reason: letter.reason(&r.table.id, &r.plan.id),
                hint: dead_letter::hint(letter.code).to_owned(),
                table: r.table.id.clone(),
                replica: Some(r.plan.id.clone()),
                topic: source.to_owned(),
                partition,
                offset,
                ..Letter::default()
            };
            encoded.push((letter.record_key(), serde_json::to_vec(&letter).unwrap_or_default()));
            written.push(letter);
        }
        let Some(producer) = &self.letters else { return Ok(()) };
        let records =
            encoded.iter().map(|(key, value)| Outgoing { topic: &topic, partition: 0, key: Some(key.as_bytes()), value, headers: [None; 2] });
        if let Err(error) = producer.send_all(records, LETTERS_WAIT) {
            self.letters = None;
            return Err(error.into());
        }
        written.iter().for_each(|letter| self.shared.observer.dead_letter(letter));
        Ok(())
    }

    pub(super) fn stop(&mut self, consumer: &Consumer, at: usize, stop: &Stop) -> Result<(), SessionError> {
        let Some(owned) = self.owned[at].as_mut() else { return Ok(()) };
        owned.stopped = true;
        owned.core.abandon();
        if !owned.paused {
            owned.paused = true;
            consumer.pause(&one(&owned.name))?;
        }
        let hint = if let Stop::Sink(error) = stop { error.kind.hint() } else { stop_hint(stop.code()) };
        self.shared.observer.log_stopped(&self.replicas[owned.replica].plan.id, owned.name.1, reason(stop.code(), stop, hint));
        Ok(())
    }

    /// An offset that is wanted is no longer there: finds whose, and stops it (law 8).
    pub(super) fn find_truncated(&mut self, consumer: &Consumer) -> Result<(), SessionError> {
        for at in 0..self.owned.len() {
            let Some(owned) = self.owned[at].as_ref().filter(|o| o.begun && !o.stopped) else { continue };
            let (begin, end) = consumer.fetch_watermarks(&owned.name.0, owned.name.1, WAIT)?;
            let needed = owned.core.next_wanted();
            if needed < begin || needed > end {
                self.stop(consumer, at, &Stop::LogTruncated { begin, end, needed })?;
            }
        }
        Ok(())
    }
}

pub(super) fn reason(code: &str, what: &dyn std::error::Error, hint: &str) -> Reason {
    Reason { code: code.to_owned(), what: chain(what), hint: hint.to_owned() }
}

/// An error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn stop_hint(code: &str) -> &'static str {
    match code {
        "log.truncated" => "the change log lost records; run `landfall rebuild` if it still holds everything, else the table needs a new snapshot",
        "state.unusable" => "move the state directory aside; it is built again from the log",
        "log.unreadable" | "log.contract_missing" => "the log was written by a newer build, or is damaged",
        _ => "this change of the schema comes with a later version; the log keeps everything until then",
    }
}
