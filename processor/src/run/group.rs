//! A member of a consumer group: how it answers rebalances, and what it hears between polls.
//!
//! Rebalances are answered within a poll, on the polling thread; lines of the client's log may come on any. What a rebalance brought is kept
//! until the session asks for it; asking costs no lock while nothing has changed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, TopicPartitionList};

use crate::log::voice::{self, Said};

/// How a stage answers rebalances, and what it wants to hear of beside them.
pub(super) trait Rebalance: Send + Sync + Sized + 'static {
    /// What the session is to know.
    type Event: Send;

    /// Takes partitions that were assigned, or gives them back.
    fn answer(&self, consumer: &BaseConsumer<Member<Self>>, assigned: bool, partitions: &mut TopicPartitionList) -> Self::Event;

    /// Before the first record of an incarnation of a topic: which one it is.
    fn identified(&self, _topic: String, _incarnation: [u8; 16]) -> Option<Self::Event> {
        None
    }
}

/// The context of a stage's consumer; clones share what was heard.
pub(super) struct Member<R: Rebalance>(Arc<Shared<R>>);

struct Shared<R: Rebalance> {
    stage: R,
    events: Mutex<Vec<R::Event>>,
    changed: AtomicBool,
    refused: AtomicBool,
}

impl<R: Rebalance> Clone for Member<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: Rebalance> Member<R> {
    /// A member that has heard nothing.
    pub(super) fn new(stage: R) -> Self {
        Self(Arc::new(Shared { stage, events: Mutex::default(), changed: AtomicBool::new(false), refused: AtomicBool::new(false) }))
    }

    /// How the stage answers.
    pub(super) fn stage(&self) -> &R {
        &self.0.stage
    }

    fn note(&self, event: R::Event) {
        self.0.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        self.0.changed.store(true, Ordering::Release);
    }

    /// What was heard since the last call. Asked before every record.
    pub(super) fn take_events(&self) -> Vec<R::Event> {
        if !self.0.changed.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.0.changed.store(false, Ordering::Release);
        std::mem::take(&mut *self.0.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A commit was refused, as happens during a rebalance.
    pub(super) fn note_refusal(&self) {
        self.0.refused.store(true, Ordering::Relaxed);
    }

    /// Whether a commit was refused since the last call: what stands is to be committed again.
    pub(super) fn take_refusal(&self) -> bool {
        self.0.refused.swap(false, Ordering::Relaxed)
    }
}

impl<R: Rebalance> ClientContext for Member<R> {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        match voice::log(level, facility, line) {
            Some(Said::CommitRefused) => self.note_refusal(),
            Some(Said::Incarnation { topic, id }) => self.0.stage.identified(topic, id).into_iter().for_each(|event| self.note(event)),
            None => {}
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        voice::complain(&error, reason);
    }
}

impl<R: Rebalance> ConsumerContext for Member<R> {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, err: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        let assigned = err == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        self.note(self.0.stage.answer(consumer, assigned, partitions));
    }
}

/// Topics and partitions of a list.
pub(super) fn names(partitions: &TopicPartitionList) -> Vec<(String, i32)> {
    partitions.elements().iter().map(|e| (e.topic().to_owned(), e.partition())).collect()
}
