//! What goes wrong around the sink: a login refused, connections cut at any byte, a server killed in mid-landing, files put back.
//!
//! What was acknowledged stays, and whether the rest landed is told by `K` alone.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use landfall::sink::clickhouse::{ClickHouseSink, Options};
use landfall::sink::{Batch, Claim, Kind, Sink as _, Target, version};
use landfall_schemas::Value;

use super::{REPLICA, Store, Way, batch, begin, kind, late_cursor, proxy, push, simple, variable};
use crate::conformance::Random;

#[test]
fn a_wrong_password_is_a_login_refused() {
    let store = Store::new("login");
    let mut sink = ClickHouseSink::new(Options {
        url: store.url.clone(),
        database: store.database.clone(),
        user: Some(store.user.clone()),
        password: Some("hunter2".to_owned()),
    });
    let error = sink.open(REPLICA, "t", None).expect_err("refused");
    assert_eq!(error.kind, Kind::Login);
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

/// A proxy that passes `budget` bytes one way, then does `act` and cuts the connection; what comes after that passes.
fn cutting_proxy(store: &Store, way: Way, budget: u64, act: impl Fn() + Send + Sync + 'static) -> String {
    let left = AtomicU64::new(budget);
    proxy(store, move |direction, bytes, to| {
        let before = if direction == way { left.load(Ordering::SeqCst) } else { 0 };
        if before > 0 && bytes.len() as u64 >= before {
            drop(to.write_all(&bytes[..before as usize]));
            left.store(0, Ordering::SeqCst);
            act();
            return false;
        }
        if before > 0 {
            left.store(before - bytes.len() as u64, Ordering::SeqCst);
        }
        to.write_all(bytes).is_ok()
    })
}

fn big(target: &Target, claim: Claim, from: i64, next: i64) -> Batch {
    let mut batch = batch(0, claim, next);
    for offset in from..next {
        let text = format!("row {offset} {}", "x".repeat(100));
        push(&mut batch, &target.schema, &[Value::Int(offset), Value::Text(&text)], true, version(target.build, offset));
    }
    batch
}

#[test]
fn a_connection_cut_anywhere_in_a_landing_is_made_good() {
    let store = Store::new("cut");
    let mut direct = store.sink();
    let (target, _) = begin(&mut direct, simple());
    let mut next = 0;
    let requests = [1_u64, 5_000, 30_000, 700_000, 1_500_000, 2_390_000, 2_395_000, 2_400_000, 2_405_000].map(|b| (Way::ToServer, b));
    let answers = [1_u64, 400, 800, 1_200, 1_600, 2_000, 2_400, 2_800].map(|b| (Way::ToClient, b));
    let mut cuts = 0;
    for (way, budget) in requests.into_iter().chain(answers) {
        let mut claim = direct.claim(&target, 0).expect("claim");
        assert_eq!(claim.next.unwrap_or(0), next);
        let mut cut = store.sink_at(&cutting_proxy(&store, way, budget, || {}));
        let batch = big(&target, claim, next, next + 20_000);
        match cut.land(&target, &batch) {
            Ok(()) => {}
            Err(e) => {
                cuts += 1;
                assert_eq!(e.kind, Kind::Unavailable, "{way:?} {budget}: {e}");
                // Whether it happened is open: `K` tells.
                claim = cut.claim(&target, 0).expect("the same sink connects again");
                if claim.next.unwrap_or(0) == next {
                    cut.land(&target, &big(&target, claim, next, next + 20_000)).expect("landed");
                }
            }
        }
        next += 20_000;
        assert_eq!(store.ask("SELECT count(), uniqExact(id), max(id) FROM {db}.t_live FORMAT TSV"), format!("{next}\t{next}\t{}", next - 1));
    }
    assert!(cuts > 10, "only {cuts} landings were cut");
}

/// A server of a test's own.
struct Server {
    child: Child,
    store: Store,
    data: PathBuf,
}

impl Server {
    fn start(data: &Path, database: &str) -> Self {
        let folder = PathBuf::from(variable("LANDFALL_TEST_CHDB"));
        let mut child = Command::new(folder.join("chdb-http"))
            .arg("--lib")
            .arg(folder.join("libchdb.so"))
            .arg("--path")
            .arg(data)
            .args(["--listen", "127.0.0.1:0", "--user", "bob:secret"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chdb-http starts");
        let mut line = String::new();
        let _ = BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        let url = format!("http://{}", line.trim().rsplit(' ').next().expect("an address"));
        let store = Store { url, user: "bob".to_owned(), password: "secret".to_owned(), database: database.to_owned() };
        Self { child, store, data: data.to_owned() }
    }

    fn kill(mut self) -> PathBuf {
        self.child.kill().expect("kill");
        drop(self.child.wait());
        self.data.clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_server_killed_in_mid_landing_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(&folder.path().join("data"), "killed");
    let (mut target, _) = begin(&mut server.store.sink(), simple());
    let mut acknowledged = 0_i64;
    let mut random = Random(7);
    for round in 0..12 {
        // Killed when a random byte of the requests arrives: in a check, in a block of rows, in the cursor.
        let id = server.child.id();
        let kill = move || assert!(Command::new("kill").args(["-9", &id.to_string()]).status().expect("kill").success());
        let (most_rows, most_bytes) = if round % 2 == 0 { (10_000, 6_000_000) } else { (3, 30_000) };
        let url = cutting_proxy(&server.store, Way::ToServer, 8_000 + random.next() % most_bytes, kill);
        let mut sink = server.store.sink_at(&url);
        let opened = sink.open(REPLICA, "t", None).expect("open");
        assert_eq!(opened.build, target.build, "no table was lost");
        target = super::target(simple(), opened.build);
        sink.prepare(&target).expect("prepare");
        let mut claim = sink.claim(&target, 0).expect("claim");
        let k = claim.next.unwrap_or(0);
        assert!(k >= acknowledged, "round {round}: K is {k}, {acknowledged} was acknowledged");
        // Everything below K is there, and nothing twice.
        let found = server.store.ask(&format!("SELECT countIf(id < {k}), count() = uniqExact(id) FROM {{db}}.t_live FORMAT TSV"));
        assert_eq!(found, format!("{k}\t1"), "round {round}");
        acknowledged = k;
        let error = loop {
            let next = acknowledged + 1 + (random.next() % most_rows) as i64;
            match sink.land(&target, &big(&target, claim, acknowledged, next)) {
                Ok(()) => {
                    acknowledged = next;
                    claim.next = Some(next);
                }
                Err(e) => break e,
            }
        };
        assert_eq!(error.kind, Kind::Unavailable, "{error}");
        println!("round {round}: killed behind {acknowledged}: {error}");
        let data = server.kill();
        server = Server::start(&data, "killed");
    }
    assert!(acknowledged > 0);
}

fn copy_folder(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp").success());
}

#[test]
fn a_store_put_back_is_seen_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let server = Server::start(&data, "restored");
    let mut owner = server.store.sink();
    let (target, claim) = begin(&mut owner, simple());
    owner.land(&target, &big(&target, claim, 0, 50)).expect("landed");
    drop(server.kill());
    copy_folder(&data, &folder.path().join("copy"));
    let server = Server::start(&data, "restored");
    let mut owner = server.store.sink();
    owner.land(&target, &big(&target, Claim { next: Some(50), ..claim }, 50, 100)).expect("landed");
    let mut successor = server.store.sink();
    let later = successor.claim(&target, 0).expect("claim");
    assert_eq!(later.next, Some(100));
    successor.land(&target, &big(&target, later, 100, 120)).expect("landed");
    drop(server.kill());

    std::fs::remove_dir_all(&data).expect("removed");
    copy_folder(&folder.path().join("copy"), &data);
    let server = Server::start(&data, "restored");
    let mut again = server.store.sink();
    // The owner of then and the one of a fence that the store has forgotten both see that it went back.
    assert_eq!(kind(again.land(&target, &big(&target, Claim { next: Some(120), ..later }, 120, 130))), Kind::CursorMoved);
    assert_eq!(kind(again.land(&target, &big(&target, Claim { next: Some(100), ..claim }, 100, 130))), Kind::CursorMoved);
    let cursor = again.cursor(&target, 0).expect("read").expect("a cursor");
    assert_eq!((cursor.fence, cursor.next), (claim.fence, Some(50)));
    // Cursor rows that were under way while it was put back.
    late_cursor(&server.store, &target, later.fence, 2, 130);
    late_cursor(&server.store, &target, claim.fence, 7, 131);
    let fresh = again.claim(&target, 0).expect("claim");
    assert_eq!(fresh.next, Some(50));
    again.land(&target, &big(&target, fresh, 50, 130)).expect("landed");
    assert_eq!(server.store.ask("SELECT count(), max(id) FROM {db}.t_live FORMAT TSV"), "130\t129");
}
