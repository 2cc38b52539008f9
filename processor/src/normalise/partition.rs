//! One source partition on its way into the change log of its table.

use std::time::Duration;

use landfall_schemas::contract::Fingerprint;
use landfall_schemas::provenance::{Place, SourcePartition};
use landfall_schemas::{Change, Op, Provenance, Sequence};

use super::position::{Course, Position};
use super::track::Track;
use super::{Destination, Outbox};
use crate::log::murmur2;

/// What a dialect made of a source record.
#[derive(Debug)]
pub enum Decoded<'a> {
    /// A change, with its canonical key (none for marks) and the fingerprint of its contract.
    Change {
        /// The change.
        change: Change<'a>,
        /// Canonical key.
        key: Option<&'a [u8]>,
        /// Fingerprint of the contract that it is encoded by.
        fingerprint: Fingerprint,
    },
    /// Nothing for the log: a heartbeat, a transaction marker.
    Ignored,
}

/// One source partition.
#[derive(Debug)]
pub struct Partition {
    topic: String,
    source: SourcePartition,
    log_partitions: u32,
    track: Track,
    position: Position,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its log records are in the outbox.
    Produced,
    /// Nothing of it goes to the log.
    Ignored,
    /// It is part of a dip: read through.
    Withheld,
    /// Fetch again from this offset.
    Rewind(i64),
    /// The source went back in its history: stop the partition.
    Regressed,
}

impl Partition {
    /// A source partition that was just assigned; `metadata` is that of its committed offset.
    pub fn new(topic: impl Into<String>, source: SourcePartition, log_partitions: u32, metadata: &str) -> Self {
        Self { topic: topic.into(), source, log_partitions, track: Track::default(), position: Position::resume(metadata) }
    }

    /// A record was fetched; the token names it until it is done.
    pub fn fetched(&mut self, offset: i64) -> u64 {
        self.track.fetched(offset)
    }

    /// Puts the log records of a decoded record into the outbox. The caller closes the record with [`Self::acknowledged`] once for itself,
    /// and once for each record of the outbox.
    pub fn process(&mut self, token: u64, offset: i64, decoded: &Decoded<'_>, now: Duration, out: &mut Outbox) -> Outcome {
        let Decoded::Change { change, key, fingerprint } = decoded else {
            return if self.position.is_dipping() { Outcome::Withheld } else { Outcome::Ignored };
        };
        // Rows of an incremental snapshot are read beside the stream; only the stream and full snapshots must rise.
        let rising = change.sequence.filter(|_| change.op != Op::Read || change.snapshot.is_some()).map(Sequence::from_bytes);
        match self.position.judge(offset, rising.as_ref(), now) {
            Course::Go => {}
            Course::Withhold => return Outcome::Withheld,
            Course::Rewind(from) => {
                self.track.rewind(from);
                return Outcome::Rewind(from);
            }
            Course::Regressed => return Outcome::Regressed,
        }
        let provenance = Provenance {
            dialect: landfall_schemas::provenance::Dialect::Debezium,
            topic: &self.topic,
            source: self.source,
            place: Place { offset, ordinal: 0 },
        };
        let partitions = match key {
            Some(key) => {
                let partition = murmur2::partition(key, self.log_partitions);
                partition..partition + 1
            }
            // A mark concerns every key, so it goes to every partition.
            None => 0..self.log_partitions.cast_signed(),
        };
        for partition in partitions {
            self.track.expect(token);
            out.add(Destination::Log(partition), token, *key, |bytes| change.encode(*fingerprint, bytes), |bytes| provenance.encode(bytes));
        }
        Outcome::Produced
    }

    /// One thing of a record is done: the record itself was processed, or one of its log records or its dead letter was acknowledged.
    pub fn acknowledged(&mut self, token: u64) {
        self.track.done(token);
    }

    /// One more thing of the record must be acknowledged: its dead letter.
    pub fn expect(&mut self, token: u64) {
        self.track.expect(token);
    }

    /// The offset to commit, with its metadata, where it moved. Nothing moves while the source sends again.
    pub fn commit(&mut self) -> Option<(i64, String)> {
        if self.position.is_dipping() {
            return None;
        }
        self.track.commit().map(|offset| (offset, self.position.metadata()))
    }

    /// Records fetched and not done.
    pub fn outstanding(&self) -> usize {
        self.track.outstanding()
    }

    /// Whether the source went back and did not regain its position for too long.
    pub fn has_regressed(&self, now: Duration) -> bool {
        self.position.has_regressed(now)
    }
}
