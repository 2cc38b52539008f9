//! One source partition on its way into the change log of its table.

use std::time::Duration;

use landfall_schemas::contract::Fingerprint;
use landfall_schemas::provenance::{Dialect, Place, SourcePartition};
use landfall_schemas::{Change, Op, Provenance, Sequence};

use super::position::{Course, Position};
use super::shape::Shape;
use super::track::Track;
use super::{Destination, Outbox};
use crate::log::murmur2;

/// One change of a source record, on its way into the log.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Ordinal within the record, from 0.
    pub ordinal: u32,
    /// Canonical key; `None` for marks.
    pub key: Option<&'a [u8]>,
    /// The change.
    pub change: &'a Change<'a>,
}

/// One source partition.
#[derive(Debug)]
pub struct Partition {
    topic: String,
    source: SourcePartition,
    log_partitions: u32,
    track: Track,
    position: Position,
    /// The columns that its records have.
    pub shape: Shape,
    /// What its records look like.
    pub dialect: Dialect,
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
        let (position, shape) = metadata.split_once('.').unwrap_or((metadata, ""));
        let (position, shape) = (Position::resume(position), Shape::resume(shape));
        Self { topic: topic.into(), source, log_partitions, track: Track::default(), position, shape, dialect: Dialect::default() }
    }

    /// A record was fetched; the token names it until it is done.
    pub fn fetched(&mut self, offset: i64) -> u64 {
        self.track.fetched(offset)
    }

    /// Whether a record that says nothing about any row may be passed: not while the source sends again.
    pub const fn ignore(&self) -> Outcome {
        if self.position.is_dipping() { Outcome::Withheld } else { Outcome::Ignored }
    }

    /// Puts the log records of a source record into the outbox. The caller closes the record with [`Self::acknowledged`] once for itself, and
    /// once for each record of the outbox.
    pub fn process(&mut self, token: u64, offset: i64, fingerprint: Fingerprint, items: &[Item<'_>], now: Duration, out: &mut Outbox) -> Outcome {
        // Rows of an incremental snapshot are read beside the stream, and the notice of a snapshot's end, which stands at the place where it
        // began, comes when streaming may have gone on. Only the stream and the rows of full snapshots must rise.
        let rises = |change: &Change<'_>| match change.op {
            Op::Read => change.snapshot.is_some(),
            Op::SnapshotEnd => false,
            _ => true,
        };
        let rising = items.iter().filter(|i| rises(i.change)).filter_map(|i| i.change.sequence).map(Sequence::from_bytes).next();
        match self.position.judge(offset, rising.as_ref(), now) {
            Course::Go => {}
            Course::Withhold => return Outcome::Withheld,
            Course::Rewind(from) => {
                self.track.rewind(from);
                return Outcome::Rewind(from);
            }
            Course::Regressed => return Outcome::Regressed,
        }
        self.put(token, offset, None, fingerprint, items, out);
        Outcome::Produced
    }

    /// Puts the log records of a dead letter into the outbox, whose record stood at an offset; `letter` is its place in the dead-letter topic.
    /// Neither positions nor offsets are judged by it or moved: it stands behind what was read since. Returns how many records they are; each
    /// carries `number` as its token.
    pub fn replay(&mut self, number: u64, offset: i64, letter: i64, fingerprint: Fingerprint, items: &[Item<'_>], out: &mut Outbox) -> usize {
        let before = out.records().len();
        self.put(number, offset, Some(letter), fingerprint, items, out);
        out.records().len() - before
    }

    fn put(&mut self, token: u64, offset: i64, replayed: Option<i64>, fingerprint: Fingerprint, items: &[Item<'_>], out: &mut Outbox) {
        for item in items {
            let provenance = Provenance {
                dialect: self.dialect,
                topic: &self.topic,
                source: self.source,
                place: Place { offset, ordinal: item.ordinal },
                replayed,
            };
            let partitions = match item.key {
                Some(key) => {
                    let partition = murmur2::partition(key, self.log_partitions);
                    partition..partition + 1
                }
                // A mark concerns every key, so it goes to every partition.
                None => 0..self.log_partitions.cast_signed(),
            };
            for partition in partitions {
                if replayed.is_none() {
                    self.track.expect(token);
                }
                out.add(
                    Destination::Log(partition),
                    token,
                    item.key,
                    |bytes| item.change.encode(fingerprint, bytes),
                    |bytes| provenance.encode(bytes),
                );
            }
        }
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
        let offset = self.track.commit()?;
        let mut metadata = self.position.metadata();
        metadata.push('.');
        self.shape.metadata(&mut metadata);
        Some((offset, metadata))
    }

    /// The last commit did not reach the group: a rebalance may have come between.
    pub const fn commit_again(&mut self) {
        self.track.commit_again();
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
