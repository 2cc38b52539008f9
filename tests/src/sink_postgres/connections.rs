//! The connection: which login may have it, what is said when there is none, what a cut one leaves behind, and how many round trips it takes.
//!
//! Round trips are counted by a proxy between sink and server: how long they take depends on the way, how many on the sink.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use landfall::sink::{Kind, Remedy, Sink as _, Target};

use super::{Home, Owner, pair, row, sink, text, url};

#[test]
fn a_login_with_few_rights_is_enough_or_says_what_it_lacks() {
    let home = Home::new("rights");
    let role = "lf_rights_user";
    home.admin.run(&format!(
        "DROP SCHEMA \"{0}\" CASCADE; CREATE SCHEMA \"{0}\"; DO $$ BEGIN CREATE ROLE {role} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        home.schema
    ));
    let (head, tail) = home.url.split_once('@').expect("a user");
    let url = format!("{}//{role}@{tail}", head.split("//").next().expect("a scheme"));
    let mut poor = sink(&url, &home.schema);
    let replica = format!("{}.t", home.schema);
    let error = poor.open(&replica, "t", None).expect_err("no right to the metadata");
    assert_eq!(error.kind, Kind::Permission, "{error}");
    assert!(error.to_string().contains("landfall"), "{error}");
    // What the reference asks for, and nothing else: not to create schemas, not to own the database.
    home.admin.run(&format!(
        "GRANT USAGE ON SCHEMA landfall TO {role}; GRANT SELECT, INSERT, UPDATE ON landfall.replica, landfall.cursor TO {role}; \
         GRANT USAGE, CREATE ON SCHEMA \"{}\" TO {role}",
        home.schema
    ));
    let build = poor.open(&replica, "t", None).expect("opens").build;
    let target = Target { replica, table: "t".to_owned(), generation: 1, build, schema: pair() };
    poor.prepare(&target).expect("prepares");
    let claim = poor.claim(&target, 0).expect("claims");
    let mut owner = Owner { sink: poor, target, claim };
    owner.land(1, &[(&text(1, "one"), true), (&text(2, "two"), false)]);
    owner.target.build = owner.sink.rebuild(&owner.target.replica, "t").expect("rebuilds");
    home.admin.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn what_cannot_be_reached_says_so_without_the_password() {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port");
    let server = url().split('@').nth(1).expect("a user in the URL").to_owned();
    let host = server.split('/').next().expect("a host");
    for (url, expected) in [
        (format!("postgres://u:s3cret@{address}/d"), Kind::Unavailable),
        ("postgres://u:s3cret@no-such-host.invalid/d?sslmode=disable".to_owned(), Kind::Unavailable),
        (format!("postgres://no_such_user_s:s3cret@{server}"), Kind::Login),
        (format!("postgres://postgres:s3cret@{host}/no_such_database"), Kind::Login),
        (format!("postgres://postgres:s3cret@{host}/postgres?sslmode=verify-full"), Kind::Unavailable),
    ] {
        let mut sink = sink(&url, "lf_unreachable");
        let error = sink.open("lf_unreachable.t", "t", None).expect_err(&url);
        assert_eq!(error.kind, expected, "{url}: {error}");
        assert!(!format!("{error} {error:?} {sink:?}").contains("s3cret"), "{error}");
    }
}

#[test]
fn a_connection_cut_in_the_middle_changes_nothing() {
    let home = Home::new("cut");
    let mut owner = home.open("t", pair());
    owner.land(5, &[(&text(1, "one"), true), (&text(2, "two"), true)]);
    // The landing waits behind a lock of ours, its cursor already moved in its own transaction; then its server process is ended.
    home.admin.run(&format!("BEGIN; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", home.table("t")));
    let error = std::thread::scope(|scope| {
        let landing = scope.spawn(|| owner.try_land(9, &[(&text(1, "changed"), true), (&text(2, "two"), false), (&text(3, "three"), true)]));
        let process = home.blocked(1);
        home.admin.run(&format!("SELECT pg_terminate_backend({process})"));
        landing.join().expect("no panic").expect_err("was cut off")
    });
    assert_eq!((error.kind, error.kind.remedy()), (Kind::Unavailable, Remedy::Retry), "{error}");
    home.admin.run("ROLLBACK");
    assert_eq!(owner.sink.cursor(&owner.target, 0).expect("connects again").and_then(|c| c.next), Some(5));
    assert_eq!(home.read(&owner.target).len(), 2);
    owner.land(9, &[(&text(1, "changed"), true), (&text(2, "two"), false), (&text(3, "three"), true)]);
    assert_eq!(home.read(&owner.target), [row(1, "changed"), row(3, "three")]);
    // Ended while idle: the next call does not even notice.
    home.admin.run(&format!("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '{}'", home.schema));
    owner.land(10, &[(&text(4, "four"), true)]);
}

/// Passes bytes on and counts how often the client speaks after the server has.
struct Proxy {
    address: String,
    turns: Arc<AtomicUsize>,
}

impl Proxy {
    fn new(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let turns = Arc::new(AtomicUsize::new(0));
        let (server, counter) = (server.to_owned(), turns.clone());
        drop(std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let upstream = TcpStream::connect(&server).expect("the server answers");
                for stream in [&client, &upstream] {
                    stream.set_nodelay(true).expect("a socket");
                }
                let server_spoke = Arc::new(Mutex::new(true));
                let copies = [(client.try_clone(), upstream.try_clone(), false), (Ok(upstream), Ok(client), true)];
                for (from, to, is_server) in copies {
                    let (mut from, mut to) = (from.expect("a socket"), to.expect("a socket"));
                    let (turn, counter) = (server_spoke.clone(), counter.clone());
                    drop(std::thread::spawn(move || {
                        let mut buffer = [0; 65_536];
                        while let Ok(count) = from.read(&mut buffer)
                            && count > 0
                        {
                            {
                                let mut spoke = turn.lock().expect("no panic in here");
                                if *spoke && !is_server {
                                    let _ = counter.fetch_add(1, Ordering::SeqCst);
                                }
                                *spoke = is_server;
                            }
                            if to.write_all(&buffer[..count]).is_err() {
                                break;
                            }
                        }
                        drop(to.shutdown(Shutdown::Both));
                    }));
                }
            }
        }));
        Self { address, turns }
    }

    fn taken(&self) -> usize {
        self.turns.swap(0, Ordering::SeqCst)
    }
}

#[test]
fn a_landing_takes_two_round_trips() {
    let home = Home::new("round_trips");
    let (head, tail) = home.url.split_once('@').expect("a user in the URL");
    let (server, path) = tail.split_once('/').expect("a database in the URL");
    let proxy = Proxy::new(server);
    let mut sink = sink(&format!("{head}@{}/{path}", proxy.address), &home.schema);
    let replica = format!("{}.t", home.schema);
    let build = sink.open(&replica, "t", None).expect("opens").build;
    let target = Target { replica, table: "t".to_owned(), generation: 1, build, schema: pair() };
    sink.prepare(&target).expect("prepares");
    let _ = proxy.taken();
    let claim = sink.claim(&target, 0).expect("claims");
    let claimed = proxy.taken();
    let mut owner = Owner { sink, target, claim };
    owner.land(1, &[(&text(1, "one"), true)]);
    let first = proxy.taken();
    owner.land(3, &[(&text(1, "two"), true), (&text(2, "two"), false)]);
    let with_rows = proxy.taken();
    owner.land(4, &[]);
    let empty = proxy.taken();
    let _ = owner.sink.cursor(&owner.target, 0).expect("reads");
    let cursor = proxy.taken();
    println!("round trips: claim {claimed}, first landing {first}, landing {with_rows}, empty landing {empty}, cursor {cursor}");
    assert!(claimed <= 1 && with_rows <= 2 && empty <= 1 && cursor <= 1, "{claimed} {with_rows} {empty} {cursor}");
    assert!(first <= 4, "{first}");
}
