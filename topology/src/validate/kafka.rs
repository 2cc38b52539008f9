//! `kafka`: brokers, security and registry.
//!
//! Plaintext to another machine needs a word from the operator, PLAIN needs TLS, and a field that a protocol does not use is an
//! issue: who writes a password expects it to be used (RELIABILITY.md D 20, D 22).

use crate::field::Field;
use crate::issue::{At, Code, Finding, shown};
use crate::model::{Kafka, Mechanism, Protocol, Registry, Security, UrlText};
use crate::plan::{CertificatePlan, KafkaPlan, RegistryPlan, SaslPlan, SecurityPlan};

use super::address::{holds_literal_password, http_address};
use super::client;
use super::context::Context;

pub(crate) fn resolve(cx: &Context<'_>, kafka: &Kafka, at: &At) -> Option<KafkaPlan> {
    let registry = match &kafka.registry {
        Field::Absent => Some(None),
        Field::Broken(_) => None,
        Field::Given(registry, at) => self::registry(cx, registry, at).map(Some),
    };
    let client = client::resolve(cx, &kafka.client);
    let brokers = brokers(cx, kafka, at);
    let security = match &kafka.security {
        Field::Absent => Some(None),
        Field::Broken(_) => None,
        Field::Given(security, at) => self::security(cx, security, at).map(Some),
    };
    let brokers = brokers?;
    let remote = brokers.iter().find(|broker| !is_loopback(broker));
    if let (Field::Absent, Some(remote), Some(list)) = (&kafka.security, remote, kafka.brokers.at()) {
        let message = format!("broker {} is another machine, and nothing says how to protect the connection", shown(remote));
        cx.error(list, Code::KafkaPlaintextConsent, message, "write kafka.security, with protocol: plaintext if that is meant");
    }
    Some(KafkaPlan { brokers, security: security?, client, registry: registry? })
}

fn registry(cx: &Context<'_>, registry: &Registry, at: &At) -> Option<RegistryPlan> {
    let (UrlText(text), at_url) = cx.required(&registry.url, at, "url")?;
    if holds_literal_password(text) {
        cx.literal_secret(at_url);
        return None;
    }
    let url = cx.resolve(text, at_url)?;
    if let Err(why) = http_address(&url) {
        cx.error(at_url, Code::BadValue, format!("the address {why}"), "write http://host:8081 or https://host:8081");
        return None;
    }
    if url.contains(['?', '#']) {
        cx.error(at_url, Code::BadValue, "the address of a registry is a path, with nothing behind it", "write a login as username and password");
        return None;
    }
    let has_long_ids = match registry.id_bytes.given() {
        None | Some((4, _)) => false,
        Some((8, _)) => true,
        Some((_, at)) => {
            cx.error(at, Code::BadValue, "a schema id has 4 bytes or 8", "leave it out unless records are framed as Apicurio once did by default");
            return None;
        }
    };
    let login = match (&registry.username, &registry.password) {
        (Field::Absent, Field::Absent) => None,
        (username, password) => {
            for (key, is_absent) in [("username", username.is_absent()), ("password", password.is_absent())] {
                if is_absent {
                    cx.push(&at.child(key), Finding::new(Code::Required, format!("{key} is missing, and a login has both")));
                }
            }
            let password = cx.secret(password);
            Some((username.text()?.to_owned(), password?))
        }
    };
    let host = url.strip_prefix("http://").map(|rest| rest.split('/').next().unwrap_or_default());
    if let (Some(_), Some(host)) = (&login, host)
        && !is_loopback(&if host.contains(':') { host.to_owned() } else { format!("{host}:80") })
    {
        let message = "the password goes to another machine as it is, and the address has no TLS";
        cx.error(at_url, Code::KafkaPlainWithoutTls, message, "write https://");
        return None;
    }
    Some(RegistryPlan { url: url.trim_end_matches('/').to_owned(), login, has_long_ids })
}

fn brokers(cx: &Context<'_>, kafka: &Kafka, at: &At) -> Option<Vec<String>> {
    let (list, at) = cx.required(&kafka.brokers, at, "brokers")?;
    if list.is_empty() {
        cx.error(at, Code::KafkaBrokers, "there is no broker", "name at least one as host:port");
    }
    let mut brokers = Vec::new();
    for (broker, at) in list.iter().filter_map(Field::given) {
        if is_address(broker) {
            brokers.push(broker.clone());
        } else {
            let message = format!("broker {} is not host:port", shown(broker));
            cx.error(at, Code::KafkaBrokers, message, "write localhost:9092, without a scheme, one broker per item");
        }
    }
    (!brokers.is_empty()).then_some(brokers)
}

/// True for `host:port` and `[v6]:port`.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let host_legal = match host.strip_prefix('[') {
        Some(v6) => v6.strip_suffix(']').is_some_and(|v6| v6.parse::<std::net::Ipv6Addr>().is_ok()),
        None => !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_')),
    };
    host_legal && port.parse::<u16>().is_ok_and(|port| port > 0)
}

fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<std::net::IpAddr>().map_or_else(|_| bare == "localhost" || bare.ends_with(".localhost"), |ip| ip.is_loopback())
}

fn security(cx: &Context<'_>, security: &Security, at: &At) -> Option<SecurityPlan> {
    let (protocol, _) = cx.required(&security.protocol, at, "protocol")?;
    let sasl = matches!(protocol, Protocol::SaslPlaintext | Protocol::SaslSsl);
    let tls = matches!(protocol, Protocol::Ssl | Protocol::SaslSsl);

    let login = if sasl {
        login(cx, security, at, tls).map(Some)
    } else {
        let why = "the protocol has no login";
        cx.unused(&security.mechanism, why);
        cx.unused(&security.username, why);
        cx.unused(&security.password, why);
        Some(None)
    };
    if !tls {
        let why = "the protocol has no TLS";
        cx.unused(&security.ca, why);
        cx.unused(&security.certificate, why);
        cx.unused(&security.key, why);
        cx.unused(&security.key_password, why);
    }
    let certificate = if tls { certificate(cx, security) } else { Some(None) };
    Some(SecurityPlan { protocol: *protocol, sasl: login?, ca: security.ca.text().map(str::to_owned), certificate: certificate? })
}

fn login(cx: &Context<'_>, security: &Security, at: &At, tls: bool) -> Option<SaslPlan> {
    let incomplete = |key: &str| {
        let finding = Finding::new(Code::KafkaSecurity, format!("{key} is missing, and the protocol has a login"));
        cx.push(&at.child(key), finding);
    };
    if security.mechanism.is_absent() {
        incomplete("mechanism");
    }
    if security.username.is_absent() {
        incomplete("username");
    }
    if security.password.is_absent() {
        incomplete("password");
    }
    if let (Some((Mechanism::Plain, at)), false) = (security.mechanism.given(), tls) {
        let message = "plain sends the password as it is, and the protocol has no TLS";
        cx.error(at, Code::KafkaPlainWithoutTls, message, "use protocol sasl_ssl, or a scram mechanism");
    }
    let password = cx.secret(&security.password);
    Some(SaslPlan { mechanism: security.mechanism.copied()?, username: security.username.text()?.to_owned(), password: password? })
}

/// The client certificate, if any; nothing if what is written does not fit together.
fn certificate(cx: &Context<'_>, security: &Security) -> Option<Option<CertificatePlan>> {
    let together = "certificate and key go together";
    if security.key.is_absent() {
        cx.unused(&security.key_password, "there is no key");
    }
    match (&security.certificate, &security.key) {
        (Field::Absent, Field::Absent) => Some(None),
        (Field::Absent, key) => {
            cx.error(key.at()?, Code::KafkaSecurity, "there is no certificate for this key", together);
            None
        }
        (certificate, Field::Absent) => {
            cx.error(certificate.at()?, Code::KafkaSecurity, "there is no key for this certificate", together);
            None
        }
        (certificate, key) => {
            let key_password = cx.secret(&security.key_password);
            if key_password.is_none() && !security.key_password.is_absent() {
                return None;
            }
            Some(Some(CertificatePlan { certificate: certificate.text()?.to_owned(), key: key.text()?.to_owned(), key_password }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{is_address, is_loopback};

    #[test]
    fn addresses() {
        for good in ["localhost:9092", "a.b-c_d:1", "[::1]:9092", "10.0.0.1:65535"] {
            assert!(is_address(good), "{good}");
        }
        for bad in ["", "localhost", ":9092", "a:0", "a:65536", "a:x", "a b:1", "http://a:1", "a:1,b:2", "[x]:1", "::1:9"] {
            assert!(!is_address(bad), "{bad}");
        }
        for here in ["localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "kafka.localhost:1"] {
            assert!(is_loopback(here), "{here}");
        }
        for there in ["kafka:1", "10.0.0.1:1", "localhost.example:1", "[::2]:1"] {
            assert!(!is_loopback(there), "{there}");
        }
    }
}
