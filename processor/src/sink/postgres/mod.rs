//! Postgres: replicas as plain tables, landed by binary COPY through a stage, together with their cursor in one transaction.
//!
//! From outside a sink is synchronous: it owns a runtime of the current thread and drives one connection on it. It must therefore never be called
//! from inside a runtime. The connection is made at the first call and again after an error; it is kept while idle, since nobody waits for it.
//! Two schemas in one database: `landfall` for the metadata, the store's own for the replicas.
//!
//! The server must speak to this session alone: a pooler that hands transactions to different servers breaks prepared statements and stages.

mod connect;
mod encode;
mod error;
mod land;
mod numeric;
pub mod query;
mod session;
mod sql;

use std::fmt;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use self::connect::Connector;
use self::session::Session;
use super::{Batch, Claim, Cursor, Error, Kind, Opened, Remedy, Sink, Target};

/// Longest wait for metadata, tables and claims, connecting included: outlasts the waits for locks that the session allows (30 s).
const CALL_DEADLINE: Duration = Duration::from_secs(60);
/// Longest wait for a landing: outlasts the session's own limit for a statement (280 s), so that the server gives up first.
const LAND_DEADLINE: Duration = Duration::from_secs(300);
/// Longest wait for a rollback; a server that does not answer one is left.
const ROLLBACK_DEADLINE: Duration = Duration::from_secs(5);

/// Where the store is.
#[derive(Clone)]
pub struct Options {
    /// `postgres://user:password@host:port/database?sslmode=…`, secrets resolved.
    pub url: String,
    /// The schema that the replicas stand in; created if absent.
    pub schema: String,
}

impl fmt::Debug for Options {
    /// Without the URL, which holds the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// A sink over one connection to a Postgres server; checked against 15.
pub struct PostgresSink {
    // The session's connection lives on the runtime: it is dropped before it.
    session: Option<Session>,
    connector: Connector,
    schema: String,
    runtime: Runtime,
}

impl fmt::Debug for PostgresSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSink").field("schema", &self.schema).field("connected", &self.session.is_some()).finish_non_exhaustive()
    }
}

impl PostgresSink {
    /// A sink that connects at its first call. An error is about the URL ([`Kind::Login`]), and never quotes it.
    pub fn new(options: Options) -> Result<Self, Error> {
        let connector = Connector::new(&options.url)?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .map_err(|e| Error::with(Kind::Unavailable, "starting the store's runtime", e))?;
        Ok(Self { session: None, connector, schema: options.schema, runtime })
    }

    /// Runs one call on the connection. An error that says the server is out of reach ends the connection; any other leaves it without an
    /// open transaction.
    fn call<T>(&mut self, deadline: Duration, act: impl AsyncFnOnce(&mut Session, &str) -> Result<T, Error>) -> Result<T, Error> {
        let Self { session, connector, schema, runtime } = self;
        runtime.block_on(async {
            // Lets the connection see what has come in the meantime, such as its end: the first turn looks at the socket, the second acts.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            if let Some(ended) = session.take_if(|s| s.client.is_closed()) {
                ended.end().await;
            }
            let attempt = async {
                let live = match session {
                    Some(live) => live,
                    None => session.insert(Session::begin(connector, schema).await?),
                };
                act(live, schema).await
            };
            let late = |_| Error::new(Kind::Unavailable, format!("no answer within {} s", deadline.as_secs()));
            let outcome = tokio::time::timeout(deadline, attempt).await.map_err(late).flatten();
            if let Err(error) = &outcome
                && let Some(live) = session.take()
            {
                let kept =
                    error.kind.remedy() != Remedy::Retry && matches!(tokio::time::timeout(ROLLBACK_DEADLINE, live.rollback()).await, Ok(Ok(())));
                match kept {
                    true => *session = Some(live),
                    false => live.end().await,
                }
            }
            outcome
        })
    }
}

impl Sink for PostgresSink {
    fn open(&mut self, replica: &str, table: &str, build: Option<u16>) -> Result<Opened, Error> {
        self.call(CALL_DEADLINE, async |session, schema| session.open(schema, replica, table, build).await)
    }

    fn prepare(&mut self, target: &Target) -> Result<(), Error> {
        self.call(CALL_DEADLINE, async |session, schema| session.prepare(schema, target).await)
    }

    fn claim(&mut self, target: &Target, partition: i32) -> Result<Claim, Error> {
        self.call(CALL_DEADLINE, async |session, schema| session.claim(schema, target, partition).await)
    }

    fn cursor(&mut self, target: &Target, partition: i32) -> Result<Option<Cursor>, Error> {
        self.call(CALL_DEADLINE, async |session, schema| session.cursor(schema, target, partition).await)
    }

    fn land(&mut self, target: &Target, batch: &Batch) -> Result<(), Error> {
        self.call(LAND_DEADLINE, async |session, schema| session.land(schema, target, batch).await)
    }

    fn rebuild(&mut self, replica: &str, _table: &str) -> Result<u16, Error> {
        self.call(CALL_DEADLINE, async |session, _| session.rebuild(replica).await)
    }
}
