//! Several at once: claims and rebuilds behind a landing under way, owners that take a partition from each other, processes that begin together.
//!
//! Order is made with a lock that the test holds, and seen in the server's own list of who waits; nothing waits for time to pass.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use landfall::sink::{Claim, Kind, Remedy, Sink as _, Target};

use super::{Admin, Home, Owner, kind, pair, sink, text};
use crate::conformance::{Rows, schema};

#[test]
fn a_claim_waits_for_the_landing_under_way_and_sees_its_k() {
    let home = Home::new("overlap");
    let mut owner = home.open("t", pair());
    owner.land(5, &[(&text(1, "one"), true)]);
    let mut other = home.sink();
    let target = owner.target.clone();
    home.admin.run(&format!("BEGIN; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", home.table("t")));
    let claim = std::thread::scope(|scope| {
        let landing = scope.spawn(|| owner.try_land(8, &[(&text(2, "two"), true)]));
        let _ = home.blocked(1);
        let claiming = scope.spawn(|| other.claim(&target, 0));
        let _ = home.blocked(2);
        home.admin.run("ROLLBACK");
        landing.join().expect("no panic").expect("the fence was its own when it began");
        claiming.join().expect("no panic").expect("claims")
    });
    assert_eq!(claim.next, Some(8));
    assert_eq!(kind(owner.try_land(9, &[])), Kind::Fenced);
}

#[test]
fn a_rebuild_waits_for_the_landing_under_way_and_empties_behind_it() {
    let home = Home::new("overlap_rebuild");
    let mut owner = home.open("t", pair());
    owner.land(5, &[(&text(1, "one"), true)]);
    let mut other = home.sink();
    let target = owner.target.clone();
    home.admin.run(&format!("BEGIN; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", home.table("t")));
    std::thread::scope(|scope| {
        let landing = scope.spawn(|| owner.try_land(8, &[(&text(2, "two"), true)]));
        let _ = home.blocked(1);
        let rebuilding = scope.spawn(|| other.rebuild(&target.replica, "t"));
        let _ = home.blocked(2);
        home.admin.run("ROLLBACK");
        landing.join().expect("no panic").expect("came first");
        assert_eq!(rebuilding.join().expect("no panic").expect("rebuilds"), target.build + 1);
    });
    assert_eq!(home.read(&target), Rows::new());
    assert_eq!(kind(owner.try_land(9, &[(&text(3, "late"), true)])), Kind::Build);
    assert_eq!(home.read(&target), Rows::new());
}

/// Two owners that take the partition from each other as fast as they can: each offset lands once, by one of them, and none is left out.
/// The server may be stopped and started meanwhile.
#[test]
fn two_owners_fight_for_a_partition() {
    let home = Home::new("fight");
    let first = home.open("t", schema(&[("id", "int64"), ("v", "text")], &["id"]));
    let target = first.target.clone();
    let landings = std::env::var("LANDFALL_FIGHT_LANDINGS").ok().and_then(|n| n.parse().ok()).unwrap_or(150_i64);
    let refused = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for name in ["one", "two"] {
            let (sink, target, refused) = (home.sink(), target.clone(), &refused);
            let _ = scope.spawn(move || {
                let mut owner = Owner { sink, target, claim: Claim { fence: 0, next: None } };
                let mut claimed = false;
                loop {
                    let outcome = match claimed {
                        false => owner.sink.claim(&owner.target, 0).map(|claim| owner.claim = claim),
                        true => {
                            let next = owner.claim.next.unwrap_or(0) + 1;
                            owner.try_land(next, &[(&text(next - 1, name), true)])
                        }
                    };
                    if owner.claim.next.is_some_and(|k| k >= landings) {
                        return;
                    }
                    match outcome {
                        Ok(()) => claimed = true,
                        Err(error) => {
                            assert_ne!(error.kind.remedy(), Remedy::Halt, "{error}");
                            let _ = refused.fetch_add(1, Ordering::Relaxed);
                            claimed = false;
                        }
                    }
                }
            });
        }
    });
    let sql = format!("SELECT count(*) || ' ' || min(id) || ' ' || max(id) FROM {}", home.table("t"));
    let k = Admin::new().one(&format!("SELECT next_offset FROM landfall.cursor WHERE replica = '{}'", target.replica));
    let k: i64 = k.parse().expect("a number");
    assert!(k >= landings);
    assert_eq!(Admin::new().one(&sql), format!("{k} 0 {}", k - 1));
    println!("{k} landings, {} claims lost", refused.into_inner());
}

/// Many processes beginning at once make the metadata once.
#[test]
fn many_processes_begin_at_once() {
    let home = Home::new("begin");
    home.admin.run(&format!("DROP SCHEMA \"{}\" CASCADE", home.schema));
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let (send, home) = (send.clone(), (home.url.clone(), home.schema.clone()));
            drop(scope.spawn(move || {
                let mut sink = sink(&home.0, &home.1);
                let replica = format!("{}.t", home.1);
                let opened = sink.open(&replica, "t", None).expect("opens");
                let target = Target { replica, table: "t".to_owned(), generation: 1, build: opened.build, schema: pair() };
                sink.prepare(&target).expect("prepares");
                send.send(sink.claim(&target, 0).expect("claims").fence).expect("the test listens");
            }));
        }
    });
    drop(send);
    let fences: BTreeSet<u64> = receive.iter().collect();
    assert_eq!(fences.len(), 8, "every claim has a fence of its own");
}
