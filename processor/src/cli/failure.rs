//! Why a command failed, as people read it: what, why, and what to do about it.
//!
//! Errors of the parts know what happened, the table here adds the way out where the error itself has none. Nothing secret is in an error
//! (STYLE.md, Errors), so the whole chain may be shown.

use landfall_topology::LoadError;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::observe::http::ServeError;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The topology has problems; they are printed already.
    Topology,
    /// Something is wrong and has been told already.
    Told,
    /// Something else.
    Other(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// An error of a command, with the way out.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct Problem {
    /// What happened, and where.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem with its way out.
    pub fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: Some(hint.into()) }
    }

    /// A problem that says all itself.
    pub fn plain(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None }
    }
}

impl Failure {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Topology => 2,
            Self::Other(error) if error.is::<LoadError>() => 2,
            Self::Told | Self::Other(_) => 1,
        }
    }

    /// What is to be said about it on standard error; nothing where all is said.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Other(error) if !is_broken_pipe(error) => Some(render(error)),
            _ => None,
        }
    }

    /// True where whoever reads the output has had enough, as `head` does: no failure.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Other(error) if is_broken_pipe(error))
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|e| e.downcast_ref::<std::io::Error>()).any(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}

fn render(error: &anyhow::Error) -> String {
    let mut said = error.to_string();
    let mut text = format!("error: {said}\n");
    for cause in error.chain().skip(1).map(ToString::to_string) {
        // Some clients put the cause into their own words already.
        if !said.contains(&cause) {
            text.push_str(&format!("  because: {cause}\n"));
            said = cause;
        }
    }
    if let Some(hint) = error.chain().find_map(hint) {
        text.push_str(&format!("  hint: {hint}\n"));
    }
    text
}

fn hint(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(problem) = error.downcast_ref::<Problem>() {
        return problem.hint.clone();
    }
    if let Some(unreachable) = error.downcast_ref::<crate::log::voice::Unreachable>() {
        return Some(unreachable.hint().to_owned());
    }
    if let Some(error) = error.downcast_ref::<crate::sink::Error>() {
        return Some(error.kind.hint().to_owned());
    }
    let hint = if let Some(error) = error.downcast_ref::<KafkaError>() {
        kafka(error)?
    } else if let Some(error) = error.downcast_ref::<ServeError>() {
        match error {
            ServeError::NotLoopback { .. } => "use an address such as --http 127.0.0.1:9090",
            ServeError::Bind { .. } => "another process may use it; --http 127.0.0.1:0 takes a free port",
            ServeError::Recorder(_) => return None,
        }
    } else if let Some(error) = error.downcast_ref::<LoadError>() {
        match error {
            LoadError::Read { .. } | LoadError::Nothing { .. } => {
                "name the topology file, as in `landfall check shop.yaml`; without a name it is landfall.yaml"
            }
            _ => return None,
        }
    } else if let Some(error) = error.downcast_ref::<crate::state::Error>() {
        match error {
            crate::state::Error::Open { .. } => "another landfall may use it: give each process a --state-dir of its own",
            crate::state::Error::Layout { .. } | crate::state::Error::Corrupt { .. } => {
                "move the directory aside; it is built again from the change logs"
            }
            crate::state::Error::Engine(_) => return None,
        }
    } else {
        return None;
    };
    Some(hint.to_owned())
}

/// What to do about an error of Kafka.
pub fn kafka(error: &KafkaError) -> Option<&'static str> {
    Some(match error.rdkafka_error_code()? {
        Code::BrokerTransportFailure | Code::AllBrokersDown | Code::OperationTimedOut | Code::RequestTimedOut | Code::Resolve => {
            "is Kafka running there, and do `kafka.brokers` and `kafka.security` fit it? `landfall check --online` tells more"
        }
        Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism => {
            "check mechanism, username and password under `kafka.security`"
        }
        Code::TopicAuthorizationFailed | Code::GroupAuthorizationFailed | Code::ClusterAuthorizationFailed => {
            "grant the missing right to the user of `kafka.security`"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::voice::Unreachable;
    use crate::run::StartError;

    #[test]
    fn an_error_is_what_why_and_hint() {
        let failure = Failure::from(StartError::Kafka {
            brokers: "localhost:9092".to_owned(),
            source: Unreachable { reason: "localhost:9092/bootstrap: Connect to ipv4#127.0.0.1:9092 failed: Connection refused".to_owned() },
        });
        let text = failure.text().expect("nothing is told yet");
        assert!(text.starts_with("error: kafka at localhost:9092 cannot be reached\n  because: localhost:9092/bootstrap: Connect to "), "{text}");
        assert_eq!(text.matches("Connection refused").count(), 1, "a cause is said once: {text}");
        assert!(text.lines().last().is_some_and(|l| l.starts_with("  hint: is it running there")), "{text}");
        assert_eq!(failure.code(), 1);
    }

    #[test]
    fn codes_tell_what_is_to_be_mended() {
        assert_eq!(Failure::Topology.code(), 2);
        let missing = landfall_topology::load(&["/nowhere.yaml"]).map(|_| ()).expect_err("there is no such file");
        assert_eq!(Failure::from(missing).code(), 2);
        assert_eq!(Failure::from(Problem::plain("x")).text().as_deref(), Some("error: x\n"));
    }

    #[test]
    fn a_reader_that_goes_away_is_no_failure() {
        let gone = Failure::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(gone.is_broken_pipe() && gone.text().is_none());
    }
}
