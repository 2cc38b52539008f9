//! Processes: who gets the file, and what is in it after its holder was killed.
//!
//! A child is this test binary again, told by an environment variable what to be. It says on its output what it has done, so a test waits for
//! that and for no time to pass.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use landfall::sink::duckdb::DuckDbSink;
use landfall::sink::{Batch, Kind, Sink as _, Target};
use landfall_schemas::Value;

use super::{begin, push, read, schema, sink, target, texts};

/// What a child is: `hold PATH`, or `land PATH`.
const ROLE: &str = "LANDFALL_TEST_DUCKDB_CHILD";
/// Identities that the landing child updates and deletes.
const KEYS: i64 = 5_000;

struct Kept {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Kept {
    fn start(role: &str, path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "sink_duckdb::crash::child", "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{role} {}", path.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, lines }
    }

    /// The rest of the next line that begins with a word.
    fn wait(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.lines.read_line(&mut line).expect("reads") > 0, "the child ended before it said {word}");
            // The harness writes the test's name without an end of line in front.
            if let Some(at) = line.find(word) {
                return line[at + word.len()..].trim().to_owned();
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().expect("kills");
        let _ = self.child.wait().expect("ends");
    }
}

/// Not a test of its own: what a child does. It returns at once where nobody made it one.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, path) = role.split_once(' ').expect("a role and a path");
    let mut sink = sink(Path::new(path));
    match role {
        "hold" => {
            assert!(sink.lock().expect("opens"));
            println!("HOLDS");
            std::io::stdout().flush().expect("writes");
            // Until the test closes the pipe, or kills.
            let _ = std::io::stdin().read_line(&mut String::new()).expect("reads");
        }
        "land" => land_forever(&mut sink),
        _ => panic!("no role {role}"),
    }
}

/// What the landing that ends at `to` does with key `id`, if it touches it: the row's text, or its absence.
fn state(id: i64, to: i64) -> Option<Option<String>> {
    // Spread over the keys, never twice the same pattern; every landing touches a third.
    let hash = (id.wrapping_mul(0x9E37_79B9) ^ to.wrapping_mul(0x85EB_CA6B)).rem_euclid(1_000_003);
    (hash % 3 == 0).then(|| (hash % 5 != 0).then(|| format!("value {id} of {to} {}", "x".repeat((hash % 200) as usize))))
}

fn crash_target() -> Target {
    target("crash", &schema(&[("id", "int64"), ("v", "text")], &["id"]))
}

fn land_forever(sink: &mut DuckDbSink) {
    let mut target = crash_target();
    let (fence, mut next) = begin(sink, &mut target);
    let mut batch = Batch::default();
    loop {
        let to = next.unwrap_or(0) + 1;
        batch.reset(0, fence, next, to);
        for id in 0..KEYS {
            if let Some(row) = state(id, to) {
                push(&mut batch, &target.schema, &[Value::Int(id), Value::Text(row.as_deref().unwrap_or_default())], row.is_some());
            }
        }
        sink.land(&target, &batch).expect("lands");
        next = Some(to);
        if to % 16 == 0 {
            sink.idle().expect("closes");
        }
        println!("LANDED {to}");
        std::io::stdout().flush().expect("writes");
    }
}

/// Rows and cursor after any number of kills are those of the landings up to the cursor, and no acknowledged landing is lost.
#[test]
fn kill_9_leaves_rows_and_cursor_in_agreement() {
    kill_loop(24, None);
}

/// The same with the key's index on the table, as a plan may ask for: its entries are replayed too.
#[test]
fn kill_9_with_a_primary_key() {
    kill_loop(12, Some("ALTER TABLE crash ADD PRIMARY KEY (id)"));
}

fn kill_loop(rounds: usize, operator: Option<&str>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("replicas.duckdb");
    let seed = std::process::id();
    println!("seed {seed}");
    let mut random = u64::from(seed) | 1;
    let mut expected: Vec<Option<String>> = vec![None; KEYS as usize];
    let mut at = 0;
    let mut peak = 0;
    for round in 0..rounds {
        let mut child = Kept::start("land", &path);
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut told = 0;
        for _ in 0..=(random >> 60) {
            told = child.wait("LANDED ").parse().expect("a number");
        }
        // Somewhere in the next landing: up to some 10 ms, which is as long as one takes.
        for _ in 0..random >> 44 & 0xF_FFFF {
            std::hint::spin_loop();
        }
        peak = peak.max(resident(child.child.id()));
        child.kill();

        let mut sink = sink(&path);
        let mut target = crash_target();
        let (_, next) = begin(&mut sink, &mut target);
        let next = next.expect("something landed");
        assert!(next >= told && next <= told + 16 && next > at, "round {round}: told {told}, found {next}");
        sink.idle().expect("closes");
        for to in at + 1..=next {
            for id in 0..KEYS {
                if let Some(row) = state(id, to) {
                    expected[id as usize] = row;
                }
            }
        }
        at = next;
        let mut found: Vec<Option<String>> = vec![None; KEYS as usize];
        for row in read(&path, "SELECT id, v FROM crash") {
            let id: usize = row[0].as_deref().expect("a key").parse().expect("a number");
            assert!(found[id].replace(row[1].clone().expect("a value")).is_none(), "round {round}: key {id} twice");
        }
        assert!(found == expected, "round {round}: the rows are not those of the landings up to {next}");
        if round == 0
            && let Some(statement) = operator
        {
            duckdb::Connection::open(&path).expect("opens").execute_batch(statement).expect("runs");
        }
    }
    println!("{rounds} kills, {at} landings, at most {} MiB resident", peak >> 10);
    assert!(peak < 300 << 10, "{peak} KiB resident");
}

/// KiB of memory that a process has had resident at most.
fn resident(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("a process");
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn the_file_has_one_process_at_a_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("replicas.duckdb");
    let mut holder = Kept::start("hold", &path);
    let _ = holder.wait("HOLDS");
    let mut sink = sink(&path);
    assert!(!sink.lock().expect("asks"));
    let error = sink.open("local.t", "t", None).expect_err("held");
    assert_eq!((error.kind, error.detail), (Kind::Unavailable, format!("another process holds {}", path.display())));
    let error = sink.query("SELECT 1", &Default::default()).expect_err("held");
    assert_eq!(error.kind, Kind::Unavailable);
    // Nothing remains of it but the log, which the next open replays.
    holder.kill();
    assert!(sink.lock().expect("asks"));
    assert!(sink.lock().expect("keeps"));

    // While this process has it, no other gets it: not when a second sink or a query came and went either.
    let mut second = super::sink(&path);
    assert!(second.lock().expect("joins"));
    second.release();
    let _ = sink.query("SELECT 1", &Default::default()).expect("reads");
    let status = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "sink_duckdb::crash::child", "--test-threads=1"])
        .env(ROLE, format!("hold {}", path.display()))
        .stdin(Stdio::null())
        .output()
        .expect("runs");
    assert!(!status.status.success(), "another process got the file");
    sink.release();
    let mut holder = Kept::start("hold", &path);
    let _ = holder.wait("HOLDS");
    assert!(!sink.lock().expect("asks"));
    holder.kill();
}

#[test]
fn a_query_reads_what_a_killed_process_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("replicas.duckdb");
    let mut child = Kept::start("land", &path);
    let told = child.wait("LANDED ");
    child.kill();
    assert!(path.with_extension("duckdb.wal").exists(), "the log was not replayed yet");
    let found = landfall::sink::duckdb::query::run(&path, None, "SELECT next_offset >= 1 FROM landfall.cursor", &Default::default()).expect("reads");
    assert_eq!(found.rows, texts(&[&["true"]]), "after {told}");
}

#[test]
fn a_file_that_does_not_open_is_kept_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("replicas.duckdb");
    let content = b"not a database, but somebody's file all the same".repeat(1_000);
    std::fs::write(&path, &content).expect("writes");
    let error = sink(&path).open("local.t", "t", None).expect_err("no database");
    assert_eq!(error.kind, Kind::Internal, "{error}");
    assert!(error.detail.contains(&path.display().to_string()), "{error}");
    assert_eq!(std::fs::read(&path).expect("reads"), content);

    let error = sink(&folder.path().join("no folder/replicas.duckdb")).lock().expect_err("no folder");
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
}

/// A log that was cut off at any length opens, and holds a prefix of what was landed.
#[test]
fn a_log_cut_anywhere_opens_or_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("replicas.duckdb");
    let mut child = Kept::start("land", &path);
    for _ in 0..3 {
        let _ = child.wait("LANDED ");
    }
    child.kill();
    let wal = |path: &Path| std::path::PathBuf::from(format!("{}.wal", path.display()));
    let (base, log) = (std::fs::read(&path).expect("reads"), std::fs::read(wal(&path)).expect("a log"));
    for cut in (0..8).map(|i| log.len() * i / 8 + i) {
        let copy = folder.path().join(format!("cut{cut}.duckdb"));
        std::fs::write(&copy, &base).expect("writes");
        std::fs::write(wal(&copy), &log[..cut]).expect("writes");
        let mut sink = sink(&copy);
        let mut target = crash_target();
        match sink.open(&target.replica, &target.table, None) {
            Ok(_) => {
                let (_, next) = begin(&mut sink, &mut target);
                sink.idle().expect("closes");
                let mut expected = std::collections::BTreeMap::new();
                for to in 1..=next.unwrap_or(0) {
                    for id in 0..KEYS {
                        match state(id, to) {
                            Some(Some(v)) => drop(expected.insert(id.to_string(), v)),
                            Some(None) => drop(expected.remove(&id.to_string())),
                            None => {}
                        }
                    }
                }
                let rows = read(&copy, "SELECT id, v FROM crash");
                let found = rows.into_iter().map(|mut r| (r[0].take().expect("id"), r[1].take().expect("v"))).collect();
                assert_eq!(expected, found, "cut at {cut}");
            }
            Err(e) => {
                assert_eq!(e.kind, Kind::Internal, "cut at {cut}: {e}");
                assert_eq!(std::fs::read(wal(&copy)).expect("a log").len(), cut, "the log was changed");
            }
        }
    }
}
