//! Topics of Landfall's own: made with the policy of ARCHITECTURE.md (The log), pinned, and looked at for changes under us.

use std::time::Duration;

use landfall_topology::plan::KafkaPlan;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::client;
use super::incarnation::{self, DescribeError, Described};
use super::voice::{self, Unreachable, Voice};

/// How long a question about topics may take.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Copies of every partition where the cluster has so many brokers.
const REPLICATION: u16 = 3;

/// What a topic is for; it decides its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A change log: nothing is ever forgotten, never compacted.
    Log,
    /// Latest word per key: contracts, control.
    Compacted,
    /// Cursors of compacted topics: written with every landing, read from their end.
    Cursors,
    /// Dead letters: kept until an operator drops them.
    Letters,
}

/// Why a topic could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TopicError {
    /// The cluster was not reached or refused.
    #[error("topic {topic:?} cannot be made")]
    Create {
        /// The topic.
        topic: String,
        /// Why.
        #[source]
        source: KafkaError,
    },
    /// The topic cannot be looked at.
    #[error(transparent)]
    Describe(#[from] DescribeError),
    /// The topic has another number of partitions than this generation was begun with (ARCHITECTURE.md, The log).
    #[error("topic {topic:?} has {found} partitions, but its generation was begun with {pinned}")]
    Repartitioned {
        /// The topic.
        topic: String,
        /// Partitions that it has.
        found: u32,
        /// Partitions that it should have.
        pinned: u32,
    },
}

impl TopicError {
    /// Whether it passes by itself: a broker that starts knows neither its peers nor all topics at once. What an operator has to mend does not.
    pub fn passes(&self) -> bool {
        let code = match self {
            Self::Create { source: KafkaError::AdminOp(code), .. } => Some(*code),
            Self::Create { source, .. } => source.rdkafka_error_code(),
            Self::Describe(error) => error.code,
            Self::Repartitioned { .. } => return false,
        };
        // With fewer brokers than copies a topic cannot be made; no more copies are ever asked for than brokers have been seen.
        matches!(
            code,
            Some(
                RDKafkaErrorCode::InvalidReplicationFactor
                    | RDKafkaErrorCode::BrokerNotAvailable
                    | RDKafkaErrorCode::BrokerTransportFailure
                    | RDKafkaErrorCode::AllBrokersDown
                    | RDKafkaErrorCode::LeaderNotAvailable
                    | RDKafkaErrorCode::NotController
                    | RDKafkaErrorCode::NetworkException
                    | RDKafkaErrorCode::OperationTimedOut
                    | RDKafkaErrorCode::RequestTimedOut
                    | RDKafkaErrorCode::UnknownTopicOrPartition
            )
        )
    }
}

/// Asks and makes topics.
pub struct Topics {
    client: AdminClient<Voice>,
    brokers: usize,
    identity: Identity,
}

/// Whether the cluster knows topics by ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// A real cluster: every topic has an id.
    #[default]
    Ids,
    /// The client's own mock cluster, which has none; all ids are zero.
    Names,
}

impl std::fmt::Debug for Topics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Topics").field("brokers", &self.brokers).finish_non_exhaustive()
    }
}

impl Topics {
    /// Connects to the cluster; an unreachable one is an error after [`TIMEOUT`].
    pub fn connect(kafka: &KafkaPlan, identity: Identity) -> Result<Self, Unreachable> {
        let brokers = voice::reach(kafka, TIMEOUT)?.brokers().len();
        let made = client::admin(kafka).create_with_context(Voice);
        let client: AdminClient<Voice> = made.map_err(|error| Unreachable { reason: error.to_string() })?;
        Ok(Self { client, brokers, identity })
    }

    /// What the cluster says of topics, in the order of their names.
    pub fn describe(&self, names: &[&str]) -> Result<Vec<Option<Described>>, DescribeError> {
        match self.identity {
            Identity::Ids => incarnation::describe(&self.client, names, TIMEOUT),
            Identity::Names => self.describe_by_name(names),
        }
    }

    fn describe_by_name(&self, names: &[&str]) -> Result<Vec<Option<Described>>, DescribeError> {
        let metadata = self
            .client
            .inner()
            .fetch_metadata(None, TIMEOUT)
            .map_err(|error| DescribeError { reason: error.to_string(), code: error.rdkafka_error_code() })?;
        let find = |name: &&str| metadata.topics().iter().find(|t| t.name() == *name).filter(|t| t.error().is_none());
        Ok(names.iter().map(|n| find(n).map(|t| Described { incarnation: [0; 16], partitions: t.partitions().len() as u32 })).collect())
    }

    /// Partitions and copies of a topic, where it is there.
    pub fn layout(&self, topic: &str) -> Result<Option<(u32, u16)>, KafkaError> {
        // Asked for by its name, a topic that is not there might be made.
        let metadata = self.client.inner().fetch_metadata(None, TIMEOUT)?;
        let found = metadata.topics().iter().find(|t| t.name() == topic && t.error().is_none());
        let copies = |t: &rdkafka::metadata::MetadataTopic| t.partitions().first().map_or(1, |p| p.replicas().len());
        Ok(found.map(|t| (t.partitions().len() as u32, u16::try_from(copies(t)).unwrap_or(1))))
    }

    /// A setting of a topic, where the cluster tells it.
    pub fn setting(&self, topic: &str, name: &str) -> Result<Option<String>, KafkaError> {
        let options = AdminOptions::new().request_timeout(Some(TIMEOUT));
        let answers = block_on(self.client.describe_configs([&ResourceSpecifier::Topic(topic)], &options))?;
        let answer = answers.into_iter().next().transpose().map_err(KafkaError::AdminOp)?;
        Ok(answer.and_then(|resource| resource.get(name).and_then(|entry| entry.value.clone())))
    }

    /// Names of all topics of the cluster.
    pub fn names(&self) -> Result<Vec<String>, KafkaError> {
        let metadata = self.client.inner().fetch_metadata(None, TIMEOUT)?;
        Ok(metadata.topics().iter().map(|t| t.name().to_owned()).collect())
    }

    /// Makes a topic where it is not there yet, and tells what it is like.
    pub fn ensure(&self, topic: &str, purpose: Purpose, partitions: u32, replication: Option<u16>) -> Result<Described, TopicError> {
        if let [Some(described)] = self.describe(&[topic])?[..] {
            return Ok(described);
        }
        let copies = i32::from(replication.unwrap_or(REPLICATION)).min(i32::try_from(self.brokers).unwrap_or(1)).max(1);
        let in_sync = if copies >= 3 { "2" } else { "1" };
        let partitions = i32::try_from(partitions).unwrap_or(1);
        let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(copies)).set("min.insync.replicas", in_sync);
        new = match purpose {
            Purpose::Compacted => new.set("cleanup.policy", "compact"),
            // Every landing makes the record before it superfluous: small segments are cleaned soon.
            Purpose::Cursors => new.set("cleanup.policy", "compact").set("segment.bytes", "16777216").set("min.cleanable.dirty.ratio", "0.1"),
            Purpose::Log | Purpose::Letters => new.set("cleanup.policy", "delete").set("retention.ms", "-1").set("retention.bytes", "-1"),
        };
        new = new.set("max.message.bytes", "104857600");
        let create = |source| TopicError::Create { topic: topic.to_owned(), source };
        let options = AdminOptions::new().request_timeout(Some(TIMEOUT)).operation_timeout(Some(TIMEOUT));
        let results = block_on(self.client.create_topics([&new], &options)).map_err(create)?;
        for result in results {
            match result {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((_, code)) => return Err(create(KafkaError::AdminOp(code))),
            }
        }
        // Another broker may not know the new topic at once.
        let deadline = TIMEOUT.as_millis() / 50;
        for _ in 0..deadline {
            if let [Some(described)] = self.describe(&[topic])?[..] {
                return Ok(described);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(create(KafkaError::AdminOp(RDKafkaErrorCode::UnknownTopicOrPartition)))
    }
}

/// Waits for an admin call: the client answers on a thread of its own, so parking this one is enough.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_starting_cluster_says_passes_and_what_an_operator_has_to_mend_does_not() {
        let create = |source| TopicError::Create { topic: "t".to_owned(), source };
        assert!(create(KafkaError::AdminOp(RDKafkaErrorCode::InvalidReplicationFactor)).passes());
        assert!(create(KafkaError::MetadataFetch(RDKafkaErrorCode::BrokerTransportFailure)).passes());
        assert!(!create(KafkaError::AdminOp(RDKafkaErrorCode::TopicAuthorizationFailed)).passes());
        assert!(!create(KafkaError::AdminOp(RDKafkaErrorCode::PolicyViolation)).passes());
        assert!(!TopicError::Repartitioned { topic: "t".to_owned(), found: 2, pinned: 4 }.passes());
        let describe = |code| TopicError::Describe(DescribeError { reason: "x".to_owned(), code });
        assert!(describe(Some(RDKafkaErrorCode::OperationTimedOut)).passes());
        assert!(!describe(Some(RDKafkaErrorCode::ClusterAuthorizationFailed)).passes());
        assert!(!describe(None).passes());
    }
}
