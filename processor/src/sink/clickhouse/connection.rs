//! The connection: one HTTP client, the small runtime that drives it, and the deadlines of everything that is asked.
//!
//! A sink is called from a plain thread and blocks; the crate is asynchronous, so a current-thread runtime runs each request to its end or its
//! deadline. The connection is made at the first call and forgotten after an error that may be its own. It is the only place that knows the
//! login, and neither login nor url ever reaches a message.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use clickhouse::{Client, Compression, Row, RowOwned, RowRead};
use serde::Deserialize;
use tokio::runtime::{Builder, Runtime};

use super::error::{self, Carries};
use super::sql;
use crate::sink::{Error, Kind};

/// A server that does not greet back within this is not there; a first packet that nobody answers would else wait for minutes.
pub(super) const HELLO: Duration = Duration::from_secs(10);
/// Metadata is small. A server that cannot answer about it for this long is overloaded or gone.
pub(super) const STATEMENT: Duration = Duration::from_secs(30);
/// Tables are created and altered behind what the server is doing with them.
pub(super) const DEFINITION: Duration = Duration::from_secs(120);
/// How long a chunk of rows may wait for the socket.
pub(super) const SEND: Duration = Duration::from_secs(30);
/// How long the server may take to write and sync what it has received.
pub(super) const FINISH: Duration = Duration::from_secs(120);

/// How to reach a store.
#[derive(Clone)]
pub struct Options {
    /// `http://host:8123` or `https://host:8443`.
    pub url: String,
    /// Database of the replicas; made if it is not there.
    pub database: String,
    /// User; the server's default user if none.
    pub user: Option<String>,
    /// Password.
    pub password: Option<String>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("database", &self.database).finish_non_exhaustive()
    }
}

/// A connection to the server, made when it is needed.
pub(super) struct Connection {
    database: String,
    /// Made of the options; what a greeting adds is in `greeted`.
    client: Client,
    greeted: Option<Client>,
    runtime: Option<Runtime>,
}

#[derive(Row, Deserialize)]
struct Hello {
    databases: u64,
    metadata: u64,
    deduplicates: u64,
}

impl Connection {
    /// A connection that is not made yet.
    pub(super) fn new(options: Options) -> Self {
        let client = client(&options)
            // Asynchronous inserts, on by default in 26.7, could answer before anything is durable.
            .with_setting("async_insert", "0")
            .with_setting("insert_deduplicate", "0")
            .with_setting("insert_quorum", "auto")
            // A column of another type, or one that takes no NULL, is an error and never a converted or blanked value (law 10).
            .with_setting("input_format_native_allow_types_conversion", "0")
            .with_setting("input_format_null_as_default", "0");
        Self { database: options.database, client, greeted: None, runtime: None }
    }

    /// Compresses what is sent, or not.
    pub(super) fn compress(&mut self, compress: bool) {
        self.client = self.client.clone().with_compression(if compress { Compression::Lz4 } else { Compression::None });
        self.greeted = None;
    }

    /// The database of the replicas.
    pub(super) fn database(&self) -> &str {
        &self.database
    }

    /// Greets the server where that has not been done, and makes sure of the database and the metadata tables.
    pub(super) fn connect(&mut self) -> Result<(), Error> {
        if self.runtime.is_none() {
            let runtime = Builder::new_current_thread().enable_all().build();
            self.runtime = Some(runtime.map_err(|e| Error::with(Kind::Unavailable, "the client's runtime cannot start", e))?);
        }
        if self.greeted.is_some() {
            return Ok(());
        }
        let greeting = self.client.query_raw(&sql::hello(&self.database)).fetch_one::<Hello>();
        let hello = self.wait("greeting the server", HELLO, greeting)?;
        let mut client = self.client.clone();
        if hello.deduplicates > 0 {
            // Where there is this setting it decides, and not `insert_deduplicate` (26.7); older servers do not know it.
            client = client.with_setting("deduplicate_insert", "disable");
        }
        self.greeted = Some(client);
        let made = self.create_metadata(&hello);
        if made.is_err() {
            self.greeted = None;
        }
        made
    }

    fn create_metadata(&self, hello: &Hello) -> Result<(), Error> {
        if hello.databases == 0 {
            self.execute(&sql::create_database(&self.database), "making the database", DEFINITION)?;
        }
        if hello.metadata < 2 {
            for statement in sql::create_metadata(&self.database) {
                self.execute(&statement, "making the metadata tables", DEFINITION)?;
            }
        }
        Ok(())
    }

    /// Forgets the connection after an error that may be its own, so that the next call greets the server anew.
    pub(super) fn after<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &result
            && matches!(error.kind, Kind::Unavailable | Kind::Internal | Kind::TableChanged | Kind::Login | Kind::Permission)
        {
            self.greeted = None;
        }
        result
    }

    /// The client; every call of the sink connects first.
    pub(super) fn client(&self) -> &Client {
        self.greeted.as_ref().expect("every call connects first")
    }

    /// Runs requests to their end.
    pub(super) fn run<T>(&self, requests: impl Future<Output = T>) -> T {
        self.runtime.as_ref().expect("every call connects first").block_on(async {
            // Lets the runtime see what has happened to idle connections since it last ran, before one of them is taken.
            tokio::task::yield_now().await;
            requests.await
        })
    }

    /// Runs a request to its end or its deadline; it must not carry values.
    pub(super) fn wait<T>(&self, what: &str, deadline: Duration, request: impl Future<Output = clickhouse::error::Result<T>>) -> Result<T, Error> {
        match self.run(async { tokio::time::timeout(deadline, request).await }) {
            Ok(result) => result.map_err(|e| error::of(&e, what, Carries::Names)),
            Err(_) => Err(error::late(what)),
        }
    }

    /// Executes a statement.
    pub(super) fn execute(&self, statement: &str, what: &str, deadline: Duration) -> Result<(), Error> {
        self.wait(what, deadline, self.client().query_raw(statement).execute())
    }

    /// Reads the rows of a statement.
    pub(super) fn fetch<T: RowOwned + RowRead>(&self, statement: &str, what: &str) -> Result<Vec<T>, Error> {
        self.wait(what, STATEMENT, self.client().query_raw(statement).fetch_all::<T>())
    }
}

/// A client that knows where the server is and how to log in, and nothing else.
pub(super) fn client(options: &Options) -> Client {
    let (url, login) = without_login(&options.url);
    let compression = if is_loopback(&url) { Compression::None } else { Compression::Lz4 };
    let mut client = Client::default().with_url(url).with_compression(compression);
    let (login_user, login_password) = login.unzip();
    if let Some(user) = options.user.clone().or(login_user) {
        client = client.with_user(user);
    }
    if let Some(password) = options.password.clone().or(login_password) {
        client = client.with_password(password);
    }
    client
}

/// Takes user and password out of a url, so that no message can show them.
fn without_login(url: &str) -> (String, Option<(String, String)>) {
    let Some((scheme, rest)) = url.split_once("://") else { return (url.to_owned(), None) };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let Some((login, host)) = rest[..end].rsplit_once('@') else { return (url.to_owned(), None) };
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    (format!("{scheme}://{host}{}", &rest[end..]), Some((percent_decoded(user), percent_decoded(password))))
}

fn percent_decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).and_then(|d| std::str::from_utf8(d).ok()).and_then(|d| u8::from_str_radix(d, 16).ok());
        match (first, digits) {
            (b'%', Some(byte)) => {
                out.push(byte);
                rest = &tail[2..];
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn is_loopback(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    authority == "localhost" || authority.starts_with("localhost:") || authority.starts_with("127.") || authority.starts_with("[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_in_the_url_is_taken_out_of_it() {
        assert_eq!(without_login("http://h:8123/x"), ("http://h:8123/x".to_owned(), None));
        let (url, login) = without_login("https://us%65r:p%40ss@h:8443/?a=b@c");
        assert_eq!((url.as_str(), login), ("https://h:8443/?a=b@c", Some(("user".to_owned(), "p@ss".to_owned()))));
    }

    #[test]
    fn loopback_hosts() {
        for (url, expected) in [
            ("http://localhost:8123", true),
            ("http://127.0.0.1:1", true),
            ("http://[::1]:1", true),
            ("http://localhost.example:1", false),
            ("http://db:1", false),
        ] {
            assert_eq!(is_loopback(url), expected, "{url}");
        }
    }
}
