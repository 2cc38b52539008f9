//! Reading what is in force: a partition to the end that it has after a fence, passing over what was taken back.
//!
//! The end is the high-water mark, open transactions included; only what is committed is handed on. The two are asked of two clients, since the
//! client library gives either the one or the other.

use std::time::{Duration, Instant};

use landfall_topology::plan::KafkaPlan;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};

use super::error;
use crate::log::client;
use crate::log::voice::Voice;
use crate::sink::{Error, Kind};

/// How long a single question may take.
const ASK: Duration = Duration::from_secs(10);
/// How long an open transaction is waited for.
const OPEN: Duration = Duration::from_secs(5);
/// How long nothing may come of what is there.
const SILENCE: Duration = Duration::from_secs(20);
/// Records that are looked at first for the newest of a key, and how this grows: of each landing stand one record and one mark of the broker's.
const WINDOW: i64 = 32;
const WIDER: i64 = 16;

/// A record, borrowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
}

/// Reads partitions to their ends.
pub(super) struct Tail {
    ends: BaseConsumer<Voice>,
    records: BaseConsumer<Voice>,
}

impl Tail {
    pub(super) fn new(kafka: &KafkaPlan) -> Result<Self, Error> {
        let make = |uncommitted| client::tail(kafka, uncommitted).create_with_context(Voice).map_err(|e| error::of("kafka cannot be read", e));
        Ok(Self { ends: make(true)?, records: make(false)? })
    }

    /// First offset, and the one behind the last record, open transactions included.
    pub(super) fn bounds(&self, topic: &str, partition: i32) -> Result<(i64, i64), Error> {
        ask(&self.ends, topic, partition)
    }

    /// Hands on what is committed from an offset on, up to another; what is open before that is waited for.
    pub(super) fn read(
        &self,
        topic: &str,
        partition: i32,
        from: i64,
        until: i64,
        mut take: impl FnMut(Record<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if from >= until {
            return Ok(());
        }
        self.await_stable(topic, partition, until)?;
        let failed = |e| error::of(format!("topic {topic:?} cannot be read"), e);
        let mut places = TopicPartitionList::new();
        places.add_partition_offset(topic, partition, Offset::Offset(from)).map_err(failed)?;
        self.records.assign(&places).map_err(failed)?;
        let outcome = self.hand_on(topic, until, &mut take);
        self.records.unassign().map_err(failed)?;
        outcome
    }

    fn hand_on(&self, topic: &str, until: i64, take: &mut dyn FnMut(Record<'_>) -> Result<(), Error>) -> Result<(), Error> {
        let mut heard = Instant::now();
        loop {
            match self.records.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => {
                    heard = Instant::now();
                    if message.offset() >= until {
                        return Ok(());
                    }
                    take(Record { key: message.key(), value: message.payload() })?;
                    if message.offset() + 1 >= until {
                        return Ok(());
                    }
                }
                // Behind the last record stand marks of the broker's.
                Some(Err(KafkaError::PartitionEOF(_))) => return Ok(()),
                Some(Err(e)) if passes(&e) && heard.elapsed() < SILENCE => tracing::debug!(error = %e, topic, "reading goes on"),
                Some(Err(e)) => return Err(error::of(format!("topic {topic:?} cannot be read"), e)),
                None if heard.elapsed() > SILENCE => return Err(Error::new(Kind::Unavailable, format!("nothing comes of topic {topic:?}"))),
                None => {}
            }
        }
    }

    /// Waits until nothing before an offset is open any more.
    fn await_stable(&self, topic: &str, partition: i32, until: i64) -> Result<(), Error> {
        let begun = Instant::now();
        while self.stable(topic, partition)? < until {
            if begun.elapsed() > OPEN {
                return Err(Error::new(Kind::Unavailable, format!("another's landing in partition {partition} of topic {topic:?} is not over yet")));
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The offset before which nothing is open.
    fn stable(&self, topic: &str, partition: i32) -> Result<i64, Error> {
        Ok(ask(&self.records, topic, partition)?.1)
    }

    /// The newest value of a key: looked for from the end. What is open is waited for, or passed over where not `patient`.
    pub(super) fn newest(&self, topic: &str, partition: i32, key: &[u8], patient: bool) -> Result<Option<Vec<u8>>, Error> {
        let (low, mut high) = self.bounds(topic, partition)?;
        if !patient {
            high = high.min(self.stable(topic, partition)?);
        }
        let mut window = WINDOW;
        loop {
            let from = low.max(high - window);
            let mut found = None;
            self.read(topic, partition, from, high, |record| {
                if record.key == Some(key) {
                    found = record.value.map(<[u8]>::to_vec);
                }
                Ok(())
            })?;
            if found.is_some() || from == low {
                return Ok(found);
            }
            window *= WIDER;
        }
    }
}

/// First and next offset of a partition. One that was just made, or moves, has no leader for a moment.
fn ask(client: &BaseConsumer<Voice>, topic: &str, partition: i32) -> Result<(i64, i64), Error> {
    let begun = Instant::now();
    loop {
        match client.fetch_watermarks(topic, partition, ASK) {
            Err(e) if passes(&e) && begun.elapsed() < OPEN => std::thread::park_timeout(Duration::from_millis(20)),
            bounds => return bounds.map_err(|e| error::of(format!("the end of topic {topic:?} cannot be read"), e)),
        }
    }
}

/// Whether the client goes on by itself.
fn passes(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::OperationTimedOut
                | RDKafkaErrorCode::NotLeaderForPartition
                | RDKafkaErrorCode::LeaderNotAvailable
                | RDKafkaErrorCode::UnknownTopicOrPartition
        )
    )
}

impl std::fmt::Debug for Tail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tail")
    }
}
