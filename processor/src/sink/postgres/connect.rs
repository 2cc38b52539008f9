//! From a URL to a connection: who may be spoken to in the clear, whom to trust, and the settings that every session of ours has.
//!
//! TLS is always verified in full, certificate and host name; there is no mode that encrypts without knowing to whom. Falling back to
//! plaintext is refused beyond this machine, since whoever can strip TLS would then read everything (RELIABILITY.md D 21). The URL holds the
//! password, so no error of this module quotes any of it.

use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::task::JoinHandle;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error;
use crate::sink::{Error, Kind};

/// Longest wait for a connection, TLS and login included: two lost packets at TCP's own pace, and some.
pub(super) const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// What a session of ours sets, in one round trip. Why:
/// a name in a statement must mean what we wrote, whatever the user's search path; a frozen process may hold its cursor's lock for ten
/// seconds only, and waiting for such a lock outlasts that; a statement ends before the client stops waiting for it; a delete looks its rows up
/// by key rather than read a large table for a small batch (hash and merge joins would); compiling statements costs more than running them;
/// a commit means that it is on disk.
const SESSION: &str = "\
SET search_path = pg_catalog; SET standard_conforming_strings = on; SET client_encoding = 'UTF8'; SET client_min_messages = error; \
SET TimeZone = 'UTC'; SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off; \
SET idle_in_transaction_session_timeout = '10s'; SET lock_timeout = '30s'; SET statement_timeout = '280s'; \
SET enable_hashjoin = off; SET enable_mergejoin = off; SET plan_cache_mode = force_custom_plan; SET jit = off; \
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

/// Knows how to reach one server.
pub(super) struct Connector {
    config: Config,
    tls: Option<MakeRustlsConnect>,
}

impl Connector {
    /// Reads a URL (`postgres://user:password@host:port/database?sslmode=…`).
    ///
    /// `sslmode`: `disable` is plaintext; `require`, `verify-ca` and `verify-full` all verify in full; `prefer`, `allow` and nothing are
    /// plaintext on this machine, and beyond it nothing means `verify-full` and the other two are refused. `sslrootcert` names a file of
    /// certificates to trust instead of the public ones.
    pub(super) fn new(url: &str) -> Result<Self, Error> {
        let (bare, parameters) = url.split_once('?').unwrap_or((url, ""));
        if !bare.starts_with("postgres://") && !bare.starts_with("postgresql://") {
            return Err(refused("the url of the store does not begin with postgres://"));
        }
        let (mut mode, mut roots) = (None, None);
        let mut rest = String::from(bare);
        for parameter in parameters.split('&').filter(|p| !p.is_empty()) {
            match parameter.split_once('=') {
                Some(("sslmode", value)) => mode = Some(value),
                Some(("sslrootcert", value)) => roots = Some(value),
                _ => {
                    rest.push(if rest.contains('?') { '&' } else { '?' });
                    rest.push_str(parameter);
                }
            }
        }
        // The parser's own message may quote a part of the URL.
        let mut config: Config = rest.parse().map_err(|_| refused("the url of the store is not a Postgres URL"))?;
        if config.get_hosts().is_empty() {
            return Err(refused("the url of the store names no host"));
        }
        let tls = if verified(mode, is_local(&config))? { Some(tls(roots)?) } else { None };
        config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        complete(&mut config);
        Ok(Self { config, tls })
    }

    /// Connects, and sets the session up.
    pub(super) async fn connect(&self) -> Result<(Client, JoinHandle<()>), Error> {
        let attempt = async {
            match &self.tls {
                Some(tls) => self.log_in(tls.clone()).await,
                None => self.log_in(NoTls).await,
            }
        };
        let (client, encoding, task) = tokio::time::timeout(CONNECT_DEADLINE, attempt)
            .await
            .map_err(|_| Error::new(Kind::Unavailable, format!("connecting: no answer within {} s", CONNECT_DEADLINE.as_secs())))??;
        if encoding.as_deref() != Some("UTF8") {
            return Err(Error::new(Kind::Unsupported, "the database does not use the encoding UTF8, so it cannot hold every text"));
        }
        client.batch_execute(SESSION).await.map_err(error::of("setting the session up"))?;
        Ok((client, task))
    }

    /// A client, the encoding of its database, and the task that moves its bytes.
    #[expect(clippy::disallowed_methods, reason = "the task lives on the sink's own runtime; the session ends and joins it")]
    async fn log_in<T>(&self, tls: T) -> Result<(Client, Option<String>, JoinHandle<()>), Error>
    where
        T: MakeTlsConnect<Socket, Stream: Send + 'static>,
    {
        let (client, connection) = self.config.connect(tls).await.map_err(error::of("connecting"))?;
        let encoding = connection.parameter("server_encoding").map(str::to_owned);
        Ok((client, encoding, tokio::spawn(async move { drop(connection.await) })))
    }
}

fn refused(detail: &str) -> Error {
    Error::new(Kind::Login, detail)
}

fn verified(mode: Option<&str>, local: bool) -> Result<bool, Error> {
    match mode {
        Some("disable") => Ok(false),
        Some("require" | "verify-ca" | "verify-full") => Ok(true),
        None => Ok(!local),
        Some("prefer" | "allow") if local => Ok(false),
        Some("prefer" | "allow") => {
            Err(refused("sslmode prefer and allow fall back to plaintext, which is refused beyond this machine; write verify-full, or disable"))
        }
        Some(_) => Err(refused("sslmode of the store's url is none of disable, prefer, require, verify-ca, verify-full")),
    }
}

fn is_local(config: &Config) -> bool {
    let local = |host: &Host| match host {
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback()),
        Host::Unix(_) => true,
    };
    config.get_hosts().iter().all(local) && config.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback)
}

fn tls(roots: Option<&str>) -> Result<MakeRustlsConnect, Error> {
    let mut store = RootCertStore::empty();
    match roots {
        None | Some("system") => store.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            let path = percent_decoded(path).ok_or_else(|| refused("sslrootcert of the store's url is not a path"))?;
            let failed = |why: &str| refused(&format!("sslrootcert {path:?} {why}"));
            for certificate in CertificateDer::pem_file_iter(&path).map_err(|_| failed("cannot be read"))? {
                let certificate = certificate.map_err(|_| failed("is not a file of certificates"))?;
                store.add(certificate).map_err(|_| failed("holds a certificate that cannot be used"))?;
            }
            if store.is_empty() {
                return Err(failed("holds no certificate"));
            }
        }
    }
    // Named here, so that nothing depends on a default that another part of the process may have set.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the suites of the default protocol versions")
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// Fills in what the URL leaves open.
fn complete(config: &mut Config) {
    if config.get_application_name().is_none() {
        config.application_name("landfall");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_DEADLINE);
    }
    // A peer that is gone without a word is noticed within a minute, not after the two hours that systems default to.
    config.keepalives(true).keepalives_idle(Duration::from_secs(30)).keepalives_interval(Duration::from_secs(10)).keepalives_retries(3);
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(Duration::from_secs(60));
    }
    if config.get_hosts().len() > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first == b'%' {
            let (code, tail) = tail.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok()?);
            rest = tail;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str) -> Result<bool, String> {
        Connector::new(url).map(|c| c.tls.is_some()).map_err(|e| e.to_string())
    }

    #[test]
    fn tls_is_verified_or_plainly_absent() {
        for (url, encrypted) in [
            ("postgres://u:p@127.0.0.1:5432/d", false),
            ("postgresql://u@localhost/d?sslmode=prefer", false),
            ("postgres://u@%2Fvar%2Frun%2Fpostgresql/d", false),
            ("postgres://u@db.example/d", true),
            ("postgres://u@db.example/d?sslmode=require", true),
            ("postgres://u@db.example/d?connect_timeout=3&sslmode=verify-full", true),
            ("postgres://u@127.0.0.1/d?sslmode=verify-full", true),
            ("postgres://u@db.example/d?sslmode=disable", false),
        ] {
            assert_eq!(mode(url), Ok(encrypted), "{url}");
        }
        for url in [
            "postgres://u@db.example/d?sslmode=prefer",
            "postgres://u@db.example/d?sslmode=allow",
            "postgres://u@localhost,db.example/d?sslmode=prefer",
        ] {
            assert!(mode(url).is_err_and(|e| e.contains("plaintext")), "{url}");
        }
    }

    #[test]
    fn no_error_quotes_the_url() {
        for url in [
            "mysql://u:s3cret@h/d",
            "host=h password=s3cret",
            "postgres://u:s3cret@h:port/d",
            "postgres://u:s3cret@/d",
            "postgres://u:s3cret@h/d?sslmode=s3cret",
            "postgres://u:s3cret@h/d?s3cret=1",
            "postgres://u:s3cret@h/d?sslmode=verify-full&sslrootcert=/nowhere.pem",
        ] {
            let error = Connector::new(url).map(|_| ()).expect_err(url);
            assert_eq!(error.kind, Kind::Login);
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{url}");
        }
    }

    #[test]
    fn a_file_of_roots_is_read() {
        let error = Connector::new("postgres://u@h/d?sslrootcert=%2Fetc%2Fhosts").map(|_| ()).expect_err("no certificates in there");
        assert!(error.to_string().contains("\"/etc/hosts\" holds no certificate"), "{error}");
    }
}
