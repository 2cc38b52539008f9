//! Kafka clients: every setting that correctness rests on is pinned here, whatever the operator's file says (RELIABILITY.md D 25).
//!
//! The operator's own options pass an allow-list in `topology`, since some options of the client run commands or load code. They win over the
//! defaults here, which are a matter of speed and memory, and never over what is pinned. `LANDFALL_KAFKA_DEBUG` names debug contexts of the
//! client, for looking at a cluster that does not let us in.

use std::time::Duration;

use landfall_topology::plan::{KafkaPlan, Mechanism, Protocol};
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

/// Bytes that one consumer may hold fetched and not yet taken.
const QUEUED_KBYTES: &str = "16384";

fn base(kafka: &KafkaPlan) -> ClientConfig {
    let mut config = ClientConfig::new();
    for (key, value) in &kafka.client {
        let _ = config.set(key, value);
    }
    let areas = std::env::var("LANDFALL_KAFKA_DEBUG").ok();
    if let Some(areas) = &areas {
        let _ = config.set("debug", areas);
    }
    default(&mut config, &["client.id"], "landfall");
    default(&mut config, &["topic.metadata.refresh.interval.ms"], "10000");
    default(&mut config, &["reconnect.backoff.max.ms"], "2000");
    let _ = config.set("bootstrap.servers", kafka.brokers.join(","));
    let level = if areas.is_some() { RDKafkaLogLevel::Debug } else { RDKafkaLogLevel::Warning };
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

/// Sets what the operator has left open under any of its names: the client knows some options by two.
fn default(config: &mut ClientConfig, names: &[&str], value: &str) {
    if let (Some(first), true) = (names.first(), names.iter().all(|name| config.get(name).is_none())) {
        let _ = config.set(*first, value);
    }
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
    default(&mut config, &["session.timeout.ms"], "6000");
    default(&mut config, &["heartbeat.interval.ms"], "500");
    config
}

/// A member that hears which incarnation of a topic it reads: that stands in no answer of the client, only in lines of its log
/// (`voice::Said::Incarnation`).
pub fn source_member(kafka: &KafkaPlan, group: &str) -> ClientConfig {
    let mut config = member(kafka, group);
    let areas = config.get("debug").map_or_else(|| "metadata".to_owned(), |areas| format!("{areas},metadata"));
    let _ = config.set("debug", areas);
    let _ = config.set_log_level(RDKafkaLogLevel::Debug);
    config
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
    let _ = config.set("check.crcs", "true");
    let _ = config.set("allow.auto.create.topics", "false");
    default(&mut config, &["queued.max.messages.kbytes"], QUEUED_KBYTES);
    default(&mut config, &["queued.min.messages"], "100000");
    // The client's own second of waiting after a full queue would show as latency.
    default(&mut config, &["fetch.queue.backoff.ms"], "10");
    default(&mut config, &["fetch.wait.max.ms"], "100");
    default(&mut config, &["fetch.message.max.bytes", "max.partition.fetch.bytes"], "1048576");
    default(&mut config, &["receive.message.max.bytes"], "268435456");
    config
}

/// A reader of one partition that says where its end is. What is open or was taken back is passed over, unless `uncommitted`.
pub fn tail(kafka: &KafkaPlan, uncommitted: bool) -> ClientConfig {
    let mut config = reader(kafka);
    let _ = config.set("enable.partition.eof", "true");
    let _ = config.set("isolation.level", if uncommitted { "read_uncommitted" } else { "read_committed" });
    // Somebody waits for the end, and what is read is mostly little.
    let _ = config.set("fetch.wait.max.ms", "10");
    config
}

/// How long a transaction may be open before the broker takes it back. Its owner gives up long before, and whoever takes over ends it at once.
pub const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);

/// A producer that fences whoever used the id before. It is discarded at the first failure, and with it everything that it had under way.
pub fn transactional(kafka: &KafkaPlan, id: &str) -> ClientConfig {
    let mut config = producer(kafka);
    let timeout = TRANSACTION_TIMEOUT.as_millis().to_string();
    let _ = config.set("transactional.id", id);
    let _ = config.set("transaction.timeout.ms", &timeout);
    // The client wants both to agree: what the transaction cannot hold any more is not sent.
    let _ = config.set("message.timeout.ms", &timeout);
    let _ = config.set("enable.gapless.guarantee", "false");
    // Somebody waits for every batch, and knows that it is whole.
    let _ = config.set("linger.ms", "1");
    let _ = config.set("allow.auto.create.topics", "false");
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
    let _ = config.set("queue.buffering.max.messages", "100000");
    default(&mut config, &["linger.ms"], "20");
    default(&mut config, &["batch.num.messages"], "100000");
    default(&mut config, &["compression.type", "compression.codec"], "lz4");
    // Never below the largest record; the number of records is what bounds the usual case.
    default(&mut config, &["queue.buffering.max.kbytes"], "102400");
    // Below what the log topics take (topics.rs), so that a record is refused here by name and never there, where it would end the producer. The
    // operator may only lower it.
    default(&mut config, &["message.max.bytes"], "100000000");
    config
}

#[cfg(test)]
mod tests {
    use landfall_topology::{Document, LookupError, check};

    use super::*;

    fn plan(client: &str) -> KafkaPlan {
        let text = format!(
            "topology: shop\nkafka: {{ brokers: [localhost:9092], client: {{ {client} }} }}\n\
             sources: [ {{ id: db, type: postgresql, change_signal: debezium, cdc: {{ topic_prefix: shop }} }} ]\n\
             stores: [ {{ id: local, type: duckdb, path: r.duckdb }} ]\ntables: [ {{ id: o, source: db, schema: public, name: o }} ]\n"
        );
        let checked = check(&[Document::new("x", text)], &|_| Err(LookupError::new("is not set")));
        checked.plan.unwrap_or_else(|| panic!("{:?}", checked.issues)).kafka
    }

    #[test]
    fn what_the_operator_sets_has_its_effect() {
        let kafka = plan(
            "client.id: mine, linger.ms: 50, compression.codec: zstd, fetch.wait.max.ms: 500, max.partition.fetch.bytes: 4096, \
             session.timeout.ms: 30000, reconnect.backoff.max.ms: 7, message.max.bytes: 65536, queued.max.messages.kbytes: 2048",
        );
        let (producer, member) = (producer(&kafka), member(&kafka, "g"));
        let set = |config: &ClientConfig, name: &str| config.get(name).map(str::to_owned);
        for (config, name, value) in [
            (&producer, "client.id", Some("mine")),
            (&producer, "linger.ms", Some("50")),
            (&producer, "compression.codec", Some("zstd")),
            (&producer, "compression.type", None),
            (&producer, "message.max.bytes", Some("65536")),
            (&producer, "reconnect.backoff.max.ms", Some("7")),
            (&member, "fetch.wait.max.ms", Some("500")),
            (&member, "max.partition.fetch.bytes", Some("4096")),
            (&member, "fetch.message.max.bytes", None),
            (&member, "session.timeout.ms", Some("30000")),
            (&member, "queued.max.messages.kbytes", Some("2048")),
        ] {
            assert_eq!(set(config, name).as_deref(), value, "{name}");
        }
        let usual = super::producer(&plan("socket.nagle.disable: true"));
        assert_eq!(usual.get("linger.ms"), Some("20"));
        assert_eq!(usual.get("enable.gapless.guarantee"), Some("true"));
    }
}
