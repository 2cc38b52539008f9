//! Kafka clients: every setting that correctness rests on is pinned here, whatever the operator's file says (RELIABILITY.md D 25).
//!
//! The operator's own options pass an allow-list in `topology`, since some options of the client run commands or load code. What is pinned
//! comes last, so nothing overrides it.

use landfall_topology::plan::{KafkaPlan, Mechanism, Protocol};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::{ClientConfig, ClientContext};

/// Bytes that one consumer may hold fetched and not yet taken.
const QUEUED_KBYTES: &str = "32768";

fn base(kafka: &KafkaPlan) -> ClientConfig {
    let mut config = ClientConfig::new();
    for (key, value) in &kafka.client {
        let _ = config.set(key, value);
    }
    if let Ok(areas) = std::env::var("LANDFALL_KAFKA_DEBUG") {
        let _ = config.set("debug", areas);
    }
    let _ = config.set("bootstrap.servers", kafka.brokers.join(","));
    let _ = config.set("client.id", "landfall");
    let _ = config.set("check.crcs", "true");
    let _ = config.set("topic.metadata.refresh.interval.ms", "10000");
    let _ = config.set("reconnect.backoff.max.ms", "2000");
    let _ = config.set("allow.auto.create.topics", "false");
    let level = if config.get("debug").is_some() { RDKafkaLogLevel::Debug } else { RDKafkaLogLevel::Warning };
    let _ = config.set_log_level(level);
    if let Some(security) = &kafka.security {
        let protocol = match security.protocol {
            Protocol::Plaintext => "plaintext",
            Protocol::Ssl => "ssl",
            Protocol::SaslPlaintext => "sasl_plaintext",
            Protocol::SaslSsl => "sasl_ssl",
        };
        let _ = config.set("security.protocol", protocol);
        if let Some(ca) = &security.ca {
            let _ = config.set("ssl.ca.location", ca);
        }
        if let Some(certificate) = &security.certificate {
            let _ = config.set("ssl.certificate.location", &certificate.certificate);
            let _ = config.set("ssl.key.location", &certificate.key);
            if let Some(password) = &certificate.key_password {
                let _ = config.set("ssl.key.password", password.expose());
            }
        }
        if let Some(sasl) = &security.sasl {
            let mechanism = match sasl.mechanism {
                Mechanism::Plain => "PLAIN",
                Mechanism::ScramSha256 => "SCRAM-SHA-256",
                Mechanism::ScramSha512 => "SCRAM-SHA-512",
            };
            let _ = config.set("sasl.mechanism", mechanism);
            let _ = config.set("sasl.username", &sasl.username);
            let _ = config.set("sasl.password", sasl.password.expose());
        }
        let _ = config.set("ssl.endpoint.identification.algorithm", "https");
        let _ = config.set("enable.ssl.certificate.verification", "true");
    }
    config
}

/// A client for topics and their metadata.
pub fn admin(kafka: &KafkaPlan) -> ClientConfig {
    base(kafka)
}

/// A member of a consumer group. Offsets are stored by nobody but us, and an offset that is out of range is an error (law 8).
pub fn member(kafka: &KafkaPlan, group: &str) -> ClientConfig {
    let mut config = reader(kafka);
    let _ = config.set("group.id", group);
    let _ = config.set("partition.assignment.strategy", "cooperative-sticky");
    // How long the group waits for a member that went silent. Rebalancing costs little here (the sinks fence), so the wait is short.
    for (name, value) in [("session.timeout.ms", "6000"), ("heartbeat.interval.ms", "500")] {
        if config.get(name).is_none() {
            let _ = config.set(name, value);
        }
    }
    config
}

/// Passes a line of the client on to our own log. True where it says that the group's coordinator refused a commit, in whole or in part.
///
/// This line is the only word on that: the binding never calls `ConsumerContext::commit_callback` for a commit that somebody asked for and
/// nobody waits for (rust-rdkafka 856), and the client then reports to its log. A refusal is no event of its own: it belongs to every
/// rebalance, and the offset is committed again.
pub fn log_line(level: RDKafkaLogLevel, facility: &str, line: &str) -> bool {
    let refused = facility == "COMMITFAIL";
    if refused {
        tracing::debug!(line, "offsets were not committed, they will be again");
    } else {
        DefaultClientContext.log(level, facility, line);
    }
    refused
}

/// A consumer that is given its partitions by hand.
pub fn reader(kafka: &KafkaPlan) -> ClientConfig {
    let mut config = base(kafka);
    let _ = config.set("group.id", "landfall-reader");
    let _ = config.set("enable.auto.commit", "false");
    let _ = config.set("enable.auto.offset.store", "false");
    let _ = config.set("auto.offset.reset", "error");
    let _ = config.set("enable.partition.eof", "false");
    let _ = config.set("isolation.level", "read_committed");
    let _ = config.set("queued.max.messages.kbytes", QUEUED_KBYTES);
    let _ = config.set("queued.min.messages", "100000");
    // The client's own second of waiting after a full queue would show as latency.
    let _ = config.set("fetch.queue.backoff.ms", "10");
    let _ = config.set("fetch.wait.max.ms", "100");
    let _ = config.set("fetch.message.max.bytes", "8388608");
    let _ = config.set("receive.message.max.bytes", "268435456");
    config
}

/// The gap-free idempotent producer: at any time the log holds a contiguous prefix of what it was given for each partition. A record is never
/// given up by time-out; a producer that fails is discarded with everything behind it (ARCHITECTURE.md, Repeats, zombies and order).
pub fn producer(kafka: &KafkaPlan) -> ClientConfig {
    let mut config = base(kafka);
    let _ = config.set("enable.idempotence", "true");
    let _ = config.set("enable.gapless.guarantee", "true");
    let _ = config.set("acks", "all");
    let _ = config.set("message.timeout.ms", "0");
    let _ = config.set("linger.ms", "5");
    let _ = config.set("batch.num.messages", "100000");
    let _ = config.set("compression.type", "lz4");
    let _ = config.set("queue.buffering.max.messages", "200000");
    let _ = config.set("queue.buffering.max.kbytes", "65536");
    // Below what the log topics take (topics.rs), so that a record is refused here by name and never there, where it would end the producer.
    let _ = config.set("message.max.bytes", "100000000");
    config
}
