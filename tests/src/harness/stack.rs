//! Where the real services are, and names that no other test uses.
//!
//! Addresses come from the environment alone, as `tests/stack/stack env` prints them; a test without its service fails by name rather than
//! passing by doing nothing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The value of a variable that `tests/stack/stack env` prints.
pub fn address(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: this test needs the real services; use tests/stack/stack run, or make test"))
}

/// Kafka, `host:port`.
pub fn kafka() -> String {
    address("LANDFALL_TEST_KAFKA")
}

/// Kafka Connect's REST address.
pub fn connect() -> String {
    address("LANDFALL_TEST_CONNECT")
}

/// The schema registry's API, as Confluent has it.
pub fn registry() -> String {
    address("LANDFALL_TEST_REGISTRY")
}

/// Postgres, as a URL without a database.
pub fn postgres() -> String {
    let url = address("LANDFALL_TEST_POSTGRES");
    url.rsplit_once('/').map_or(url.clone(), |(server, _)| server.to_owned())
}

/// ClickHouse: HTTP address, user, password.
pub fn clickhouse() -> (String, String, String) {
    (address("LANDFALL_TEST_CLICKHOUSE"), address("LANDFALL_TEST_CLICKHOUSE_USER"), address("LANDFALL_TEST_CLICKHOUSE_PASSWORD"))
}

/// A name of letters and digits that no other test and no other run uses; legal as a topology, topic, schema and database.
pub fn unique(stem: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let mark = (nanos as u64 / 1_000) ^ (u64::from(std::process::id()) << 40);
    format!("{stem}{:08x}{:02x}", mark as u32, COUNT.fetch_add(1, Ordering::Relaxed) & 0xFF)
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Services of a test's own, for tests that stop them: started by the stack's script in another run folder, on other ports.
#[derive(Debug)]
pub struct Private {
    folder: tempfile::TempDir,
    base: u16,
}

impl Private {
    /// Starts these services: `kafka`, `postgres`.
    pub fn start(services: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("landfall-stack-").tempdir().expect("a folder for the services");
        let private = Self { folder, base: free_base() };
        let mut arguments = vec!["start"];
        arguments.extend(services);
        private.control(&arguments);
        private
    }

    /// Runs a command of the stack's script: `stop postgres`, `start postgres`, `restart-broker KILL`.
    pub fn control(&self, arguments: &[&str]) {
        let out = script(arguments, self.folder.path(), self.base).output().expect("the stack's script can be started");
        assert!(out.status.success(), "stack {arguments:?}: {}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    }

    /// Address of its Kafka.
    pub fn kafka(&self) -> String {
        format!("127.0.0.1:{}", self.base + 2)
    }

    /// URL of its Postgres, without a database.
    pub fn postgres(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}", self.base + 5)
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        script(&["wipe"], self.folder.path(), self.base).output().ok();
    }
}

fn script(arguments: &[&str], run: &Path, base: u16) -> Command {
    let path = std::env::var("LANDFALL_TEST_STACK").map_or_else(|_| root().join("tests/stack/stack"), PathBuf::from);
    let mut command = Command::new(path);
    let _ = command.args(arguments).env("LANDFALL_STACK_RUN", run).env("LANDFALL_STACK_PORT_BASE", base.to_string());
    command
}

/// A port such that the ten from it on are free, below those that outgoing connections take.
fn free_base() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let from = std::process::id() % 500;
    (0..500)
        .map(|_| 25_000 + 10 * ((from + NEXT.fetch_add(1, Ordering::Relaxed)) % 500) as u16)
        .find(|base| (0..10).all(|n| std::net::TcpListener::bind(("127.0.0.1", base + n)).is_ok()))
        .expect("ten free ports")
}
