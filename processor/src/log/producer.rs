//! The producer of the change log, and the waiting for its acknowledgements.
//!
//! One producer per process; the order of calls is the order of every partition. Records carry a number, which comes back once the broker has
//! them. A delivery that fails poisons the producer: whoever owns it discards it and everything behind it, and begins again from what was
//! committed.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use landfall_topology::plan::KafkaPlan;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};

use super::{client, voice};

#[derive(Debug, Default)]
struct Delivered {
    numbers: Vec<usize>,
    failed: Option<KafkaError>,
    /// How many wait. Waking is a call into the kernel, which most reports can do without.
    waiting: usize,
}

/// Collects delivery reports.
#[derive(Debug, Default)]
pub struct Acks {
    delivered: Mutex<Delivered>,
    arrived: Condvar,
}

impl Acks {
    fn lock(&self) -> MutexGuard<'_, Delivered> {
        self.delivered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next report, at most so long.
    fn wait<'l>(&'l self, mut delivered: MutexGuard<'l, Delivered>, timeout: Duration) -> MutexGuard<'l, Delivered> {
        delivered.waiting += 1;
        let mut delivered = self.arrived.wait_timeout(delivered, timeout).unwrap_or_else(PoisonError::into_inner).0;
        delivered.waiting -= 1;
        delivered
    }
}

/// A handle on the reports that the client's own thread fills.
#[derive(Clone, Debug, Default)]
pub struct Context(std::sync::Arc<Acks>);

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        drop(voice::log(level, facility, message));
    }

    fn error(&self, error: KafkaError, reason: &str) {
        voice::complain(&error, reason);
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        let mut delivered = self.0.lock();
        match result {
            Ok(_) => delivered.numbers.push(number),
            Err((error, _)) => delivered.failed = Some(error.clone()),
        }
        let awaited = delivered.waiting > 0;
        drop(delivered);
        if awaited {
            self.0.arrived.notify_all();
        }
    }
}

/// A record to produce.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Partition.
    pub partition: i32,
    /// Key.
    pub key: Option<&'a [u8]>,
    /// Value.
    pub value: &'a [u8],
    /// Headers, by name.
    pub headers: [Option<(&'a str, &'a [u8])>; 2],
}

/// What became of a record that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way; its number will come back.
    Queued,
    /// The queue is full: wait for acknowledgements and hand it over again.
    Full,
    /// No broker takes a record of this size.
    TooLarge,
}

/// Producer of the change log.
pub struct Producer {
    inner: ThreadedProducer<Context>,
    context: Context,
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").finish_non_exhaustive()
    }
}

impl Producer {
    /// A new producer, with an epoch of its own.
    pub fn new(kafka: &KafkaPlan) -> Result<Self, KafkaError> {
        let context = Context::default();
        let inner = client::producer(kafka).create_with_context(context.clone())?;
        Ok(Self { inner, context })
    }

    /// Hands a record over.
    pub fn send(&self, record: Outgoing<'_>, number: usize) -> Result<Sent, KafkaError> {
        let mut out: BaseRecord<'_, [u8], [u8], usize> =
            BaseRecord::with_opaque_to(record.topic, number).partition(record.partition).payload(record.value);
        if let Some(key) = record.key {
            out = out.key(key);
        }
        if record.headers.iter().any(Option::is_some) {
            let none = OwnedHeaders::new_with_capacity(record.headers.len());
            out = out.headers(record.headers.iter().flatten().fold(none, |all, (key, value)| all.insert(Header { key, value: Some(*value) })));
        }
        // Only this thread sends: an empty queue stays empty until the next try.
        let (outcome, was_empty) = match self.inner.send(out) {
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), out)) if self.inner.in_flight_count() == 0 => {
                (self.inner.send(out), true)
            }
            outcome => (outcome, false),
        };
        match outcome {
            Ok(()) => Ok(Sent::Queued),
            // A record that does not fit into an empty queue never will: an operator may have made the queue smaller than the record.
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => Ok(if was_empty { Sent::TooLarge } else { Sent::Full }),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge), _)) => Ok(Sent::TooLarge),
            Err((error, _)) => Err(error),
        }
    }

    /// Moves the numbers that came back into `numbers`, after waiting up to `timeout` for the first.
    pub fn take_acks(&self, numbers: &mut Vec<usize>, timeout: Duration) -> Result<(), KafkaError> {
        let mut delivered = self.context.0.lock();
        if delivered.numbers.is_empty() && delivered.failed.is_none() && !timeout.is_zero() {
            delivered = self.context.0.wait(delivered, timeout);
        }
        if let Some(error) = &delivered.failed {
            return Err(error.clone());
        }
        numbers.append(&mut delivered.numbers);
        Ok(())
    }

    /// Hands records over and waits until the broker has all of them. For a producer whose other records nobody waits for. Returns how many.
    pub fn send_all<'a>(&self, records: impl IntoIterator<Item = Outgoing<'a>>, timeout: Duration) -> Result<usize, KafkaError> {
        let deadline = Instant::now() + timeout;
        let wait = |acks: &mut Vec<usize>| match Instant::now() < deadline {
            true => self.take_acks(acks, Duration::from_millis(100)),
            false => Err(KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut)),
        };
        let (mut sent, mut acks) = (0, Vec::new());
        for record in records {
            loop {
                match self.send(record, sent)? {
                    Sent::Queued => break,
                    Sent::Full => wait(&mut acks)?,
                    Sent::TooLarge => return Err(KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge)),
                }
            }
            sent += 1;
        }
        while acks.len() < sent {
            wait(&mut acks)?;
        }
        Ok(sent)
    }

    /// Hands a record over and waits until the broker has it. Other numbers that come back meanwhile stay for [`Self::take_acks`].
    pub fn send_and_wait(&self, record: Outgoing<'_>, number: usize, timeout: Duration) -> Result<(), KafkaError> {
        let deadline = Instant::now() + timeout;
        let timed_out = || KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut);
        loop {
            match self.send(record, number)? {
                Sent::Queued => break,
                Sent::TooLarge => return Err(KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge)),
                Sent::Full if Instant::now() > deadline => return Err(timed_out()),
                Sent::Full => drop(self.inner.flush(Duration::from_millis(100))),
            }
        }
        let mut delivered = self.context.0.lock();
        loop {
            if let Some(error) = &delivered.failed {
                return Err(error.clone());
            }
            if let Some(at) = delivered.numbers.iter().position(|n| *n == number) {
                let _ = delivered.numbers.swap_remove(at);
                return Ok(());
            }
            let left = deadline.checked_duration_since(Instant::now()).ok_or_else(timed_out)?;
            delivered = self.context.0.wait(delivered, left);
        }
    }
}
