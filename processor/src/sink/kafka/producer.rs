//! The producer of one log partition: whoever makes one fences the former.
//!
//! No safety argument rests on transactions being atomic (law 7). Rows are acknowledged by all copies before the cursor is handed over, and a
//! producer is never used again after a failure, so it never takes anything back: an end of a transaction that reaches the broker late can only
//! show rows sooner, never a cursor without its rows. What transactions are for is the fence, and that readers see whole batches.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use landfall_topology::plan::KafkaPlan;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};

use super::error;
use crate::log::{client, voice};
use crate::sink::{Error, Kind};

/// How long taking over may take: what the former owner has open is ended first.
const TAKE_OVER: Duration = Duration::from_secs(30);
/// How long a landing may take: what takes longer is given up before the broker does so.
const PATIENCE: Duration = Duration::from_secs(45);

/// How long the client is listened to at a time: the binding returns no sooner, whatever has come.
const POLL: Duration = Duration::from_millis(1);

/// What became of records: only failures matter, the rest is counted by the client.
#[derive(Clone, Debug, Default)]
struct Deliveries(Arc<Mutex<Option<KafkaError>>>);

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        drop(voice::log(level, facility, message));
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // That another has taken over is no fault, and told by whoever lands.
        match error.rdkafka_error_code().map(error::kind) {
            Some(Kind::Fenced) => tracing::debug!(%error, reason, "a producer was fenced"),
            _ => voice::complain(&error, reason),
        }
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.clone());
        }
    }
}

/// A record to write.
pub(super) struct Outgoing<'a> {
    pub(super) topic: &'a str,
    pub(super) partition: i32,
    pub(super) key: &'a [u8],
    /// `None` is a tombstone.
    pub(super) value: Option<&'a [u8]>,
    pub(super) headers: Option<OwnedHeaders>,
}

/// A producer with a name that only one may have.
pub(super) struct Fencing {
    inner: BaseProducer<Deliveries>,
    deliveries: Deliveries,
}

impl std::fmt::Debug for Fencing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fencing")
    }
}

impl Fencing {
    /// Takes over from whoever used the name: nothing that it has open comes to anything, and it writes no more.
    pub(super) fn new(kafka: &KafkaPlan, name: &str) -> Result<Self, Error> {
        let deliveries = Deliveries::default();
        let made = client::transactional(kafka, name).create_with_context(deliveries.clone());
        let inner: BaseProducer<Deliveries> = made.map_err(|e| Error::with(Kind::Unsupported, "kafka's client takes no such producer", e))?;
        let fencing = Self { inner, deliveries };
        fencing.inner.init_transactions(TAKE_OVER).map_err(|e| fencing.failed("taking a partition over", e))?;
        Ok(fencing)
    }

    /// Begins a batch.
    pub(super) fn begin(&self) -> Result<(), Error> {
        self.inner.begin_transaction().map_err(|e| self.failed("beginning a landing", e))
    }

    /// Hands a record over; waits where the client has its fill.
    pub(super) fn send(&self, record: Outgoing<'_>) -> Result<(), Error> {
        let mut out: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(record.topic).partition(record.partition).key(record.key);
        if let Some(value) = record.value {
            out = out.payload(value);
        }
        if let Some(headers) = record.headers {
            out = out.headers(headers);
        }
        let begun = Instant::now();
        while let Err((error, again)) = self.inner.send(out) {
            let is_full = error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull);
            if !is_full || begun.elapsed() > PATIENCE {
                return Err(self.failed(&format!("writing to topic {:?}", record.topic), error));
            }
            self.inner.poll(POLL);
            self.check()?;
            out = again;
        }
        Ok(())
    }

    /// Waits until all copies have what was handed over.
    pub(super) fn settle(&self) -> Result<(), Error> {
        let begun = Instant::now();
        while self.inner.in_flight_count() > 0 {
            if begun.elapsed() > PATIENCE {
                let late = KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut);
                return Err(self.failed("waiting for the copies of a landing", late));
            }
            self.inner.poll(POLL);
            self.check()?;
        }
        self.check()
    }

    /// Ends the batch: it is in force, and readers see it as soon as the broker has marked its records. An error leaves open whether it is.
    pub(super) fn commit(&self) -> Result<(), Error> {
        self.settle()?;
        self.inner.commit_transaction(PATIENCE).map_err(|e| self.failed("ending a landing", e))?;
        self.check()
    }

    fn check(&self) -> Result<(), Error> {
        let failed = self.deliveries.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        failed.map_or(Ok(()), |e| Err(self.failed("a record was not taken", e)))
    }

    /// What went wrong first says what to do; later errors only say that something did.
    fn failed(&self, what: &str, error: KafkaError) -> Error {
        let fatal = self.inner.client().fatal_error().map(|(code, _)| code);
        let delivery = self.deliveries.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let codes = [fatal, delivery.as_ref().and_then(KafkaError::rdkafka_error_code), error.rdkafka_error_code()];
        let kinds = || codes.into_iter().flatten().map(error::kind);
        let kind = kinds().find(|k| *k == Kind::Fenced).or_else(|| kinds().find(|k| *k != Kind::Unavailable)).unwrap_or(Kind::Unavailable);
        Error::with(kind, what, delivery.unwrap_or(error))
    }
}
