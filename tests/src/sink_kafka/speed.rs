//! What claims and landings take.

use std::time::Instant;

use landfall::sink::Sink as _;

use super::{Home, Owner, pair};

fn millis<T>(what: &mut String, name: &str, times: u32, mut act: impl FnMut() -> T) -> f64 {
    let begun = Instant::now();
    for _ in 0..times {
        let _ = act();
    }
    let took = begun.elapsed().as_secs_f64() * 1000.0 / f64::from(times);
    what.push_str(&format!("; {name} {took:.1} ms"));
    took
}

/// Prints what each step takes; a landing of a row has to be a matter of milliseconds.
#[test]
fn steps_and_landings() {
    let home = Home::new("kafkaspeed");
    let mut said = String::new();
    let mut target = home.target("orders", pair());
    let mut sink = home.sink();
    millis(&mut said, "open", 1, || target.build = sink.open(&target.replica, &target.table, None).expect("opens").build);
    millis(&mut said, "open again", 5, || sink.open(&target.replica, &target.table, None).expect("opens"));
    millis(&mut said, "prepare", 1, || sink.prepare(&target).expect("prepares"));
    millis(&mut said, "prepare again", 5, || sink.prepare(&target).expect("prepares"));
    millis(&mut said, "claim", 5, || sink.claim(&target, 0).expect("claims"));
    let claim = sink.claim(&target, 0).expect("claims");
    let mut owner = Owner { sink, target, claim };
    let one = millis(&mut said, "landing of one row", 50, || {
        let next = owner.claim.next.unwrap_or(0) + 1;
        owner.land(next, &[(next, Some("a row"))]);
    });
    millis(&mut said, "cursor", 1, || owner.sink.cursor(&owner.target, 0).expect("reads"));
    millis(&mut said, "cursor from memory", 20, || owner.sink.cursor(&owner.target, 0).expect("reads"));
    let note = "a note of some length ".repeat(4);
    let many: Vec<(i64, Option<&str>)> = (0..100_000).map(|id| (id, Some(note.as_str()))).collect();
    let next = owner.claim.next.unwrap_or(0) + 100_000;
    let large = millis(&mut said, "landing of 100 000 rows", 1, || owner.land(next, &many));
    millis(&mut said, "the sink goes", 1, || drop(home.sink()));
    println!("kafka: {:.0} rows/s{said}", 100_000.0 / large * 1000.0);
    assert!(one < 500.0, "a landing takes {one} ms");
}
