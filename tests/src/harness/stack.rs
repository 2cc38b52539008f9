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
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: this test needs the real services; use tests/stack/stack run, or make test"))
}

/// Kafka, `host:port`.
pub fn kafka() -> String {
    address("LANDFALL_TEST_KAFKA")
}

/// Kafka Connect's REST address.
pub fn connect() -> String {
    address("LANDFALL_TEST_CONNECT")
}

/// Postgres, as a URL of its maintenance database.
pub fn postgres() -> String {
    address("LANDFALL_TEST_POSTGRES")
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

/// Runs a command of the stack's own script: `restart-broker`, `stop postgres`, `start postgres`.
pub fn control(arguments: &[&str]) {
    let out = Command::new(root().join("tests/stack/stack")).args(arguments).output().expect("the stack's script can be started");
    assert!(out.status.success(), "stack {arguments:?}: {}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
}
