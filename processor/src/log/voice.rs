//! What the Kafka client says beside its answers: lines of its log, and errors that belong to no call.
//!
//! The client's error for a caller only says that no broker answered; why is in these lines (a refused login, a certificate that is not trusted, a
//! closed port). Warnings about how we set it up are dropped where they are meant that way. Nothing here decides anything.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use landfall_topology::plan::KafkaPlan;
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel as Level;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::metadata::Metadata;
use rdkafka::producer::{BaseProducer, DeliveryResult, Producer as _, ProducerContext};

use super::client;

/// A context that passes on what is worth it, for clients that need no other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Voice;

impl ClientContext for Voice {
    fn log(&self, level: Level, facility: &str, message: &str) {
        drop(log(level, facility, message));
    }

    fn error(&self, error: KafkaError, reason: &str) {
        complain(&error, reason);
    }
}

impl ConsumerContext for Voice {}

/// What a line of the client's log tells that no call of it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The group's coordinator refused a commit, in whole or in part.
    ///
    /// This line is the only word on that: the binding never calls `ConsumerContext::commit_callback` for a commit that somebody asked for and
    /// nobody waits for (rust-rdkafka 856), and the client then reports to its log. A refusal is no event of its own: it belongs to every
    /// rebalance, and the offset is committed again.
    CommitRefused,
    /// From now on the client reads this incarnation of a topic (law 8).
    ///
    /// The client follows a topic that was deleted and made again to its new id in silence and goes on at the old offset, or at the first where the
    /// broker forgot it. The line is written before the first fetch by the new id is sent, and comes by the queue that brings the records.
    Incarnation {
        /// The topic.
        topic: String,
        /// Its id.
        id: [u8; 16],
    },
}

/// Passes a line of the client on to our own log, and tells what it means to us.
pub fn log(level: Level, facility: &str, line: &str) -> Option<Said> {
    if facility == "COMMITFAIL" {
        tracing::info!(line, "offsets were not committed, they will be again");
        return Some(Said::CommitRefused);
    }
    if is_meant(facility, line) {
        return None;
    }
    match level {
        Level::Emerg | Level::Alert | Level::Critical | Level::Error | Level::Warning => tracing::warn!(target: "kafka", facility, "{line}"),
        Level::Notice => tracing::info!(target: "kafka", facility, "{line}"),
        // A member of a group is asked for all of its lines, for the sake of one.
        Level::Info | Level::Debug => tracing::debug!(target: "kafka", facility, "{line}"),
    }
    (facility == "METADATA").then(|| incarnation(line)).flatten()
}

/// Reads `… Topic T changed id from A to B`.
fn incarnation(line: &str) -> Option<Said> {
    let (before, ids) = line.split_once(" changed id from ")?;
    let (_, topic) = before.rsplit_once("Topic ")?;
    let (_, id) = ids.split_once(" to ")?;
    let id = STANDARD_NO_PAD.decode(id).ok()?.try_into().ok()?;
    Some(Said::Incarnation { topic: topic.to_owned(), id })
}

/// An error that belongs to no call, such as a topic that is not there. That a connection failed is a line of the log already.
pub fn complain(error: &KafkaError, reason: &str) {
    match error.rdkafka_error_code() {
        Some(Code::BrokerTransportFailure | Code::AllBrokersDown | Code::Resolve | Code::SSL | Code::Authentication | Code::OperationTimedOut) => {
            tracing::debug!(target: "kafka", %error, reason, "kafka client");
        }
        _ => tracing::warn!(target: "kafka", %error, reason, "kafka client"),
    }
}

/// Warnings about settings that are as they should be: one producer option is marked experimental, and exactness rests on it; the operator's
/// options are given to consumers and producers alike, and each takes its own.
fn is_meant(facility: &str, message: &str) -> bool {
    facility == "CONFWARN" && (message.contains("enable.gapless.guarantee") || message.contains("and will be ignored by this"))
}

/// How long a failed call waits for the client to say why: so many times so long.
const SAID_POLLS: u32 = 40;
const SAID_POLL: Duration = Duration::from_millis(50);

/// Why a cluster was not reached.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Unreachable {
    /// What the client said of the first connection that failed, or its error where it said nothing.
    pub reason: String,
}

impl Unreachable {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match &self.reason {
            text if text.contains("uthentication") || text.contains("SASL") => "check mechanism, username and password under `kafka.security`",
            text if text.contains("SSL") => "check `kafka.security`: its protocol, and the certificates that it trusts",
            _ => "is it running there, and do `kafka.brokers` and `kafka.security` fit it?",
        }
    }
}

/// Keeps what the client says first about connections that fail.
#[derive(Clone, Default)]
struct Listening(Arc<Mutex<Option<String>>>);

impl Listening {
    fn note(&self, reason: &str) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none() {
            *said = Some(reason.to_owned());
        }
    }
}

impl ClientContext for Listening {
    fn log(&self, level: Level, facility: &str, message: &str) {
        // What matters of it is in the error that the caller gets.
        drop(log(Level::Debug, facility, message));
        if facility == "FAIL" && !matches!(level, Level::Debug | Level::Info) {
            // The name of the client's thread comes first.
            self.note(message.split_once("]: ").map_or(message, |(_, reason)| reason));
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // That all are down follows from what was said of each.
        if error.rdkafka_error_code() != Some(Code::AllBrokersDown) {
            self.note(reason);
        }
    }
}

impl ProducerContext for Listening {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {}
}

/// Asks a cluster what it has, for so long at most.
pub fn reach(kafka: &KafkaPlan, timeout: Duration) -> Result<Metadata, Unreachable> {
    let listening = Listening::default();
    let asked = || -> Result<Metadata, KafkaError> {
        let client: BaseProducer<Listening> = client::admin(kafka).create_with_context(listening.clone())?;
        client.client().fetch_metadata(None, timeout).inspect_err(|_| {
            // What the client says comes by a queue of its own, one thing at a time, and may come after the answer.
            for _ in 0..SAID_POLLS {
                if listening.0.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                    break;
                }
                client.poll(SAID_POLL);
            }
        })
    };
    asked().map_err(|error| {
        let said = listening.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Unreachable { reason: said.unwrap_or_else(|| error.to_string()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_are_meant_are_not_warned_of() {
        assert!(is_meant("CONFWARN", "Configuration property enable.gapless.guarantee is experimental: When set to `true`, any error …"));
        let ignored = "Configuration property fetch.min.bytes is a consumer property and will be ignored by this producer instance";
        assert!(is_meant("CONFWARN", ignored));
        assert!(!is_meant("CONFWARN", "Configuration `retry.backoff.ms` with value 9 is greater than configuration `retry.backoff.max.ms`"));
        assert!(!is_meant("FAIL", "and will be ignored by this"));
    }

    #[test]
    fn a_topic_that_became_another_is_heard_of() {
        let line = "[thrd:main]: Topic shop.public.orders changed id from AAAAAAAAAAAAAAAAAAAAAA to AQIDBAUGBwgJCgsMDQ4PEA";
        let id = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        assert_eq!(log(Level::Debug, "METADATA", line), Some(Said::Incarnation { topic: "shop.public.orders".to_owned(), id }));
        assert_eq!(log(Level::Debug, "METADATA", "[thrd:main]: Topic shop.public.orders [0] Leader 1 Epoch 0"), None);
    }

    #[test]
    fn the_reason_tells_the_way_out() {
        let hint = |reason: &str| Unreachable { reason: reason.to_owned() }.hint();
        assert!(hint("sasl_ssl://h:9093/bootstrap: SASL authentication error: Authentication failed").contains("password"));
        assert!(hint("ssl://h:9093/bootstrap: SSL handshake failed: certificate verify failed").contains("certificates"));
        assert!(hint("h:9092/bootstrap: Connect to ipv4#127.0.0.1:9092 failed: Connection refused").contains("is it running"));
    }
}
