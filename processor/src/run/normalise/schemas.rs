//! Partitions that wait for a schema of the registry: paused at the record that names it, while the others go on.

use std::time::Instant;

use rdkafka::consumer::Consumer as _;
use rdkafka::{Offset, TopicPartitionList};

use super::rebalance::Consumer;
use super::{Session, SessionError, WAIT};
use crate::observe::Reason;
use crate::run::registry::Answer;

impl Session<'_> {
    /// A record names a schema that is not known yet: its partition goes back to it, and on from there when the registry has answered.
    pub(super) fn await_schema(&mut self, consumer: &Consumer, slot: usize, id: u64, offset: i64) -> Result<(), SessionError> {
        let Some(owned) = self.owned.get_mut(&slot) else { return Ok(()) };
        owned.wants = Some((id, offset));
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
            let (id, failed) = match answer {
                Answer::Registered(id, _) => (id, None),
                Answer::Failed(id, why) => (id, Some(why)),
            };
            for owned in self.owned.values_mut().filter(|o| o.wants.is_some_and(|(wanted, _)| wanted == id)) {
                let (topic, partition) = &owned.name;
                let reason = failed.as_ref().map(|why| Reason {
                    code: "registry.unreachable".to_owned(),
                    what: format!("schema {id} could not be asked for: {why}"),
                    hint: "the registry is asked again until it answers; do `kafka.registry` and its login fit it?".to_owned(),
                });
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
}
