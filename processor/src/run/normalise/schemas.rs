//! What the registry is needed for: schemas of source records and ids for the log's own contracts. A partition that waits for one is paused at the
//! record that needs it, while the others go on.

use std::time::Instant;

use landfall_schemas::dialect::{Changes, IdBytes};
use landfall_schemas::{change, framing};
use landfall_topology::Plan;
use landfall_topology::plan::LogPlan;
use rdkafka::consumer::Consumer as _;
use rdkafka::{Offset, TopicPartitionList};

use super::rebalance::Consumer;
use super::{Session, SessionError, WAIT};
use crate::observe::Reason;
use crate::run::registry::{Answer, Registry, Wanted};

/// Why a partition waits for the registry.
fn reason(wanted: Wanted, why: &str) -> Reason {
    let (code, what, hint) = match wanted {
        Wanted::Schema(id) => (
            "registry.unreachable",
            format!("schema {id} could not be asked for: {why}"),
            "the registry is asked again until it answers; do `kafka.registry` and its login fit it?",
        ),
        Wanted::Contract(fingerprint) => (
            "registry.not_registered",
            format!("the contract {fingerprint} of the log could not be registered: {why}"),
            "it is tried again until the registry takes it; may the login write, or is the log better off with `format: single_object`?",
        ),
    };
    Reason { code: code.to_owned(), what, hint: hint.to_owned() }
}

impl Session<'_> {
    /// A record names a schema that is not known yet, or its change a contract that is not registered: its partition goes back to it, and on from there when the registry has answered.
    pub(super) fn await_schema(&mut self, consumer: &Consumer, slot: usize, wanted: Wanted, offset: i64) -> Result<(), SessionError> {
        let Some(owned) = self.owned.get_mut(&slot) else { return Ok(()) };
        owned.wants = Some((wanted, offset));
        let mut list = TopicPartitionList::new();
        let _ = list.add_partition(&owned.name.0, owned.name.1);
        consumer.pause(&list)?;
        Ok(consumer.seek(&owned.name.0, owned.name.1, Offset::Offset(offset), WAIT)?)
    }

    /// What the registry has answered: who waited for it goes on.
    pub(super) fn take_schemas(&mut self, consumer: &Consumer) -> Result<(), SessionError> {
        let Some(registry) = &mut self.registry else { return Ok(()) };
        if registry.is_broken() {
            return Err(SessionError::Registry("nobody answers for it any more".to_owned()));
        }
        if registry.forget_unknown(Instant::now()) {
            self.inputs.values_mut().for_each(|input| input.decoder.forget_unknown());
        }
        for answer in registry.take() {
            let (wanted, failed) = match answer {
                Answer::Registered(id, _) => (Wanted::Schema(id), None),
                Answer::Contract(fingerprint, _) => (Wanted::Contract(fingerprint), None),
                Answer::Failed(wanted, why) => (wanted, Some(why)),
            };
            for owned in self.owned.values_mut().filter(|o| o.wants.is_some_and(|(waits_for, _)| waits_for == wanted)) {
                let (topic, partition) = &owned.name;
                let reason = failed.as_ref().map(|why| reason(wanted, why));
                let goes_on = reason.is_none();
                self.shared.observer.source_waiting(topic, *partition, reason);
                if goes_on {
                    owned.wants = None;
                    if !owned.stopped {
                        let mut list = TopicPartitionList::new();
                        let _ = list.add_partition(topic, *partition);
                        consumer.resume(&list)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts a change into the frame of the registry, where its log stands in that: the header that goes with it then.
    pub(super) fn frame(&self, log: &LogPlan, object: &[u8], framed: &mut Vec<u8>) -> Result<Option<[u8; 9]>, SessionError> {
        let Some(width) = frame_of(self.plan, log) else { return Ok(None) };
        let lacking = || SessionError::Registry("a contract has no id in its frame".to_owned());
        let (fingerprint, _) = change::split_fingerprint(object).map_err(|_| lacking())?;
        let id = self.registry.as_ref().and_then(|registry| registry.contract_id(fingerprint)).ok_or_else(lacking)?;
        if framing::frame(object, id, width, framed) { Ok(Some(framing::header(fingerprint, width))) } else { Err(lacking()) }
    }
}

/// How long the ids are in the frame of a log; nothing where it has none.
fn frame_of(plan: &Plan, log: &LogPlan) -> Option<IdBytes> {
    let registry = plan.kafka.registry.as_ref().filter(|_| plan.frames(log.format))?;
    Some(if registry.has_long_ids { IdBytes::Eight } else { IdBytes::Four })
}

/// The contract that a log's frame has no id for yet; it is being registered.
pub(super) fn unregistered(plan: &Plan, registry: &mut Option<Registry>, log: &LogPlan, changes: &Changes<'_>) -> Option<Wanted> {
    let registry = registry.as_mut().filter(|_| plan.frames(log.format))?;
    let known = registry.contract(&log.topic, changes.fingerprint, changes.schema);
    if known.is_some() { None } else { Some(Wanted::Contract(changes.fingerprint)) }
}
