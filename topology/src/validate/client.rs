//! The Kafka client options that an operator may set.
//!
//! A list of what is harmless, never of what is not: other keys of librdkafka start programs (`sasl.kerberos.kinit.cmd`), load code
//! (`plugin.library.paths`, `ssl.engine.location`), read files, or undo what exactness rests on (RELIABILITY.md D 5, D 14, D 25).
//! Ranges keep client memory within bounds that the process can plan for.

use crate::field::Field;
use crate::issue::{Code, Finding, shown};
use crate::model::{Entries, OptionText};
use crate::nearest::nearest;

use super::context::Context;

/// What an option may hold.
enum Takes {
    Number(u64, u64),
    Bool,
    Word(&'static [&'static str]),
    /// A short name of letters, digits, `.`, `_`, `-`.
    Name,
}

const MIB: u64 = 1 << 20;

/// The allow-list, in alphabetical order.
const ALLOWED: &[(&str, Takes)] = &[
    ("batch.num.messages", Takes::Number(1, 1_000_000)),
    ("batch.size", Takes::Number(1_024, 64 * MIB)),
    ("broker.address.family", Takes::Word(&["any", "v4", "v6"])),
    ("broker.address.ttl", Takes::Number(0, 86_400_000)),
    ("client.dns.lookup", Takes::Word(&["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"])),
    ("client.id", Takes::Name),
    ("client.rack", Takes::Name),
    ("compression.codec", Takes::Word(&["none", "gzip", "snappy", "lz4", "zstd"])),
    ("compression.level", Takes::Number(0, 12)),
    ("compression.type", Takes::Word(&["none", "gzip", "snappy", "lz4", "zstd"])),
    ("connections.max.idle.ms", Takes::Number(0, 86_400_000)),
    ("fetch.error.backoff.ms", Takes::Number(0, 300_000)),
    ("fetch.max.bytes", Takes::Number(1_024, 256 * MIB)),
    ("fetch.min.bytes", Takes::Number(1, 64 * MIB)),
    ("fetch.queue.backoff.ms", Takes::Number(0, 300_000)),
    ("fetch.wait.max.ms", Takes::Number(0, 300_000)),
    ("heartbeat.interval.ms", Takes::Number(100, 600_000)),
    ("linger.ms", Takes::Number(0, 60_000)),
    ("max.partition.fetch.bytes", Takes::Number(1_024, 256 * MIB)),
    ("max.poll.interval.ms", Takes::Number(10_000, 86_400_000)),
    // Below this a dead letter might not fit; above it the log's topics would refuse what the producer takes.
    ("message.max.bytes", Takes::Number(65_536, 100_000_000)),
    ("metadata.max.age.ms", Takes::Number(1_000, 86_400_000)),
    ("queue.buffering.max.kbytes", Takes::Number(1_024, 1_048_576)),
    ("queued.max.messages.kbytes", Takes::Number(1_024, 1_048_576)),
    ("queued.min.messages", Takes::Number(1, 1_000_000)),
    ("receive.message.max.bytes", Takes::Number(MIB, 512 * MIB)),
    ("reconnect.backoff.max.ms", Takes::Number(0, 3_600_000)),
    ("reconnect.backoff.ms", Takes::Number(0, 3_600_000)),
    ("request.timeout.ms", Takes::Number(1_000, 900_000)),
    ("retry.backoff.max.ms", Takes::Number(1, 300_000)),
    ("retry.backoff.ms", Takes::Number(1, 300_000)),
    ("session.timeout.ms", Takes::Number(1_000, 3_600_000)),
    ("socket.connection.setup.timeout.ms", Takes::Number(1_000, 900_000)),
    ("socket.keepalive.enable", Takes::Bool),
    ("socket.nagle.disable", Takes::Bool),
    ("socket.receive.buffer.bytes", Takes::Number(0, 64 * MIB)),
    ("socket.send.buffer.bytes", Takes::Number(0, 64 * MIB)),
    ("socket.timeout.ms", Takes::Number(1_000, 300_000)),
    ("statistics.interval.ms", Takes::Number(0, 86_400_000)),
    ("topic.metadata.refresh.interval.ms", Takes::Number(1_000, 86_400_000)),
];

/// Keys of which people should be told why, by exact name or by prefix (ending in a dot).
const REFUSED: &[(&str, &str)] = &[
    ("acks", "Landfall waits for all copies"),
    ("auto.offset.reset", "a lost position must stop the partition"),
    ("bootstrap.servers", "it belongs into kafka.brokers"),
    ("check.crcs", "checksums are always checked"),
    ("enable.auto.commit", "positions follow what was landed"),
    ("enable.auto.offset.store", "positions follow what was landed"),
    ("enable.gapless.guarantee", "a gap would be a lost change"),
    ("enable.idempotence", "repeats would reorder changes"),
    ("enable.ssl.certificate.verification", "a server must prove who it is"),
    ("group.id", "groups are named by the topology"),
    ("group.instance.id", "membership is managed by Landfall"),
    ("isolation.level", "aborted records must not be read"),
    ("message.timeout.ms", "a record that times out would be a lost change"),
    ("metadata.broker.list", "it belongs into kafka.brokers"),
    ("partitioner", "log records are placed by Kafka's murmur2"),
    ("plugin.library.paths", "it loads code"),
    ("sasl.kerberos.", "it starts programs"),
    ("sasl.mechanism", "it belongs into kafka.security"),
    ("sasl.mechanisms", "it belongs into kafka.security"),
    ("sasl.oauthbearer.", "it reads addresses and files"),
    ("sasl.password", "it belongs into kafka.security"),
    ("sasl.username", "it belongs into kafka.security"),
    ("security.protocol", "it belongs into kafka.security"),
    ("ssl.endpoint.identification.algorithm", "a server must prove who it is"),
    ("ssl.engine.", "it loads code"),
    ("ssl.", "it belongs into kafka.security"),
    ("transactional.id", "no argument rests on transactions"),
];

/// The options of `kafka.client` that may be set, with legal values.
pub(crate) fn resolve(cx: &Context<'_>, field: &Field<Entries<OptionText>>) -> Vec<(String, String)> {
    let mut options = Vec::new();
    for (key, value) in field.get().map_or(&[][..], |entries| &entries.0) {
        let Some((key, at)) = key.given() else {
            continue;
        };
        let Some((_, takes)) = ALLOWED.iter().find(|(allowed, _)| allowed == key) else {
            cx.push(at, refusal(key));
            continue;
        };
        let Some((OptionText(text), at)) = value.given() else {
            continue;
        };
        match takes.refuse(text) {
            None => options.push((key.clone(), text.clone())),
            Some(wanted) => cx.push(at, Finding::new(Code::BadValue, format!("{key} takes {wanted}"))),
        }
    }
    options
}

fn refusal(key: &str) -> Finding {
    let why = REFUSED
        .iter()
        .find(|(name, _)| key == *name || (name.ends_with('.') && key.starts_with(name)))
        .map_or("it is not on the list of harmless options", |(_, why)| why);
    let near = nearest(key, ALLOWED.iter().map(|(name, _)| *name));
    let allowed: Vec<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
    Finding::new(Code::ClientOptionRefused, format!("client option {} is refused: {why}", shown(key)))
        .nearest(near)
        .hint(format!("allowed: {}", allowed.join(", ")))
}

impl Takes {
    /// What is wanted instead, if the text will not do.
    fn refuse(&self, text: &str) -> Option<String> {
        match self {
            Self::Number(from, to) => {
                let legal = text.parse::<u64>().is_ok_and(|n| (*from..=*to).contains(&n));
                (!legal).then(|| format!("a whole number from {from} to {to}"))
            }
            Self::Bool => (!matches!(text, "true" | "false")).then(|| String::from("true or false")),
            Self::Word(words) => (!words.contains(&text)).then(|| format!("one of {}", words.join(", "))),
            Self::Name => {
                let legal = (1..=100).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
                (!legal).then(|| String::from("1 to 100 letters, digits, ., _ and -"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ALLOWED, REFUSED};

    #[test]
    fn the_list_is_ordered_and_nothing_is_both_allowed_and_refused() {
        assert!(ALLOWED.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (name, _) in ALLOWED {
            let refused = REFUSED.iter().any(|(r, _)| name == r || (r.ends_with('.') && name.starts_with(r)));
            assert!(!refused, "{name}");
        }
    }
}
