//! What Kafka's errors mean: one table from the client's codes to [`Kind`].

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::log::topics::TopicError;
use crate::sink::{Error, Kind};

/// The kind of an error code. What is not named passes by itself: a leader moves, a coordinator loads, a broker restarts.
pub(super) const fn kind(code: Code) -> Kind {
    match code {
        Code::Fenced | Code::ProducerFenced | Code::InvalidProducerEpoch => Kind::Fenced,
        Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism => Kind::Login,
        Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed => Kind::Permission,
        Code::MessageSizeTooLarge
        | Code::InvalidMessageSize
        | Code::InvalidTopic
        | Code::InvalidPartitions
        | Code::InvalidReplicationFactor
        | Code::InvalidConfig
        | Code::InvalidTransactionTimeout
        | Code::PolicyViolation
        | Code::UnsupportedFeature
        | Code::UnsupportedVersion => Kind::Unsupported,
        _ => Kind::Unavailable,
    }
}

/// An error of ours for one of the client's; `what` says what was being done, as a lower-case fragment.
pub(super) fn of(what: impl Into<String>, error: KafkaError) -> Error {
    let code = match &error {
        KafkaError::AdminOp(code) => Some(*code),
        error => error.rdkafka_error_code(),
    };
    Error::with(code.map_or(Kind::Unavailable, kind), what, error)
}

/// An error of ours for a topic that could not be made or looked at.
pub(super) fn of_topic(error: TopicError) -> Error {
    if error.passes() {
        return Error::with(Kind::Unavailable, "a topic of the newest rows cannot be made yet", error);
    }
    let code = match &error {
        TopicError::Create { source: KafkaError::AdminOp(code), .. } => Some(*code),
        TopicError::Create { source, .. } => source.rdkafka_error_code(),
        TopicError::Describe(error) => error.code,
        TopicError::Repartitioned { .. } => return Error::with(Kind::TableChanged, "a topic has other partitions than it was made with", error),
    };
    Error::with(code.map_or(Kind::Unavailable, kind), "a topic of the newest rows cannot be made", error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::Remedy;

    #[test]
    fn what_passes_is_tried_again_and_what_an_operator_has_to_mend_stops() {
        for (code, remedy) in [
            (Code::ProducerFenced, Remedy::Reclaim),
            (Code::InvalidProducerEpoch, Remedy::Reclaim),
            (Code::TransactionalIdAuthorizationFailed, Remedy::Halt),
            (Code::MessageSizeTooLarge, Remedy::Halt),
            (Code::SaslAuthenticationFailed, Remedy::Halt),
            (Code::NotCoordinator, Remedy::Retry),
            (Code::ConcurrentTransactions, Remedy::Retry),
            (Code::OperationTimedOut, Remedy::Retry),
            (Code::NotEnoughReplicas, Remedy::Retry),
        ] {
            assert_eq!(kind(code).remedy(), remedy, "{code:?}");
        }
    }
}
