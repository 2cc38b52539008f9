//! Key changes that leave a column unsent (ARCHITECTURE.md, Key change), through a whole partition: what is taken along, what is held, and
//! that a lander forgets what nobody rests on any more.
//!
//! Expected rows are written by hand. Every vector runs in every order of arrival that a source which hashes by key can bring about, and for
//! every order in every split into batches.

use landfall::land::fold::Config;
use landfall::land::partition::Settings;
use landfall::log::murmur2;
use landfall::state::memory::MemoryState;

use crate::lander::{self, settings};
use crate::oracle::{At, Cells, Record, Values, What};
use crate::small;

fn record(key: u8, seq: u64, what: What) -> Record {
    Record { at: At { source: 0, offset: 0, ordinal: 0 }, key, seq, what }
}

/// `"A.-"` is column a, NULL in b, c unsent.
fn cells(text: &str) -> Cells {
    std::array::from_fn(|i| match text.as_bytes()[i] {
        b'-' => None,
        b'.' => Some(None),
        letter => Some(Some(letter)),
    })
}

fn up(key: u8, seq: u64, text: &str) -> Record {
    record(key, seq, What::Write(cells(text)))
}

fn del(key: u8, seq: u64) -> Record {
    record(key, seq, What::Delete)
}

/// Both halves of a key change.
fn moved(from: u8, to: u8, seq: u64, text: &str) -> [Record; 2] {
    [record(from, seq, What::Leave(to)), record(to, seq, What::Arrive(cells(text), from, true))]
}

fn values(text: &str) -> Values {
    cells(text).map(Option::flatten)
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let longer = |shorter: Vec<usize>| {
        (0..n).map(move |at| {
            let mut longer = shorter.clone();
            longer.insert(at, n - 1);
            longer
        })
    };
    permutations(n - 1).into_iter().flat_map(longer).collect()
}

/// Whether a source that sends the records of each key in their order, from some place on in each partition, may bring this order about: no
/// delete half comes behind a later change of its key.
fn is_possible(order: &[Record]) -> bool {
    order.iter().enumerate().all(|(i, half)| {
        let overtaken = order[..i].iter().any(|r| r.key == half.key && r.seq > half.seq);
        !(matches!(half.what, What::Leave(_)) && overtaken)
    })
}

fn run(records: &[Record], expected: &[(u8, &str)]) {
    let expected: Vec<(u8, Values)> = expected.iter().map(|(key, row)| (*key, values(row))).collect();
    let mut orders = 0;
    for order in permutations(records.len()) {
        // A source partition of its own for each, so that any order may arrive.
        let place = |i: &usize| Record { at: At { source: *i as u8, offset: *i as i64, ordinal: 0 }, ..records[*i] };
        let order: Vec<Record> = order.iter().map(place).collect();
        if !is_possible(&order) {
            continue;
        }
        orders += 1;
        for split in 0..1_u32 << (order.len() - 1) {
            let landed = lander::land(Config::upsert(), &order, |i| split >> i & 1 == 1);
            assert_eq!(landed.rows, expected, "after {order:?}, split {split:b}");
        }
    }
    assert!(orders > 1, "a vector that has one order shows little");
}

#[test]
fn a_key_change_takes_along_what_was_not_sent() {
    let [leave, arrive] = moved(1, 2, 5, "B--");
    run(&[up(1, 1, "Axy"), leave, arrive], &[(2, "Bxy")]);
    run(&[up(1, 1, "Axy"), up(1, 3, "Cz-"), leave, arrive], &[(2, "Bzy")]);
    run(&[up(1, 1, "A.y"), leave, arrive], &[(2, "B.y")]);
}

#[test]
fn what_follows_builds_on_what_was_taken_along() {
    let [leave, arrive] = moved(1, 2, 5, "B--");
    run(&[up(1, 1, "Axy"), leave, arrive, up(2, 7, "-z-")], &[(2, "Bzy")]);
    run(&[up(1, 1, "Axy"), leave, arrive, up(1, 9, "New")], &[(1, "New"), (2, "Bxy")]);
    run(&[up(1, 1, "Axy"), leave, arrive, del(2, 6)], &[]);
    run(&[up(1, 1, "Axy"), leave, arrive, up(2, 8, "Mno")], &[(2, "Mno")]);
}

#[test]
fn key_changes_follow_each_other() {
    let ([a, b], [c, d]) = (moved(1, 2, 5, "B--"), moved(2, 3, 7, "C--"));
    run(&[up(1, 1, "Axy"), a, b, c, d], &[(3, "Cxy")]);
    // There and back again.
    let ([a, b], [c, d]) = (moved(1, 2, 5, "B--"), moved(2, 1, 7, "C--"));
    run(&[up(1, 1, "Axy"), a, b, c, d], &[(1, "Cxy")]);
}

#[test]
fn what_stood_under_the_new_key_is_no_predecessor() {
    let [leave, arrive] = moved(1, 2, 5, "B--");
    run(&[up(2, 1, "Old"), del(2, 3), up(1, 2, "Axy"), leave, arrive], &[(2, "Bxy")]);
    // The delete of that is still to come: nothing is guessed.
    run(&[up(2, 1, "Old"), leave, arrive], &[]);
}

#[test]
fn a_row_that_was_not_there_gives_nothing() {
    let [leave, arrive] = moved(1, 2, 5, "B--");
    run(&[leave, arrive], &[]);
    run(&[up(1, 1, "Axy"), del(1, 3), leave, arrive], &[]);
    run(&[up(1, 1, "Ax-"), leave, arrive], &[]);
    run(&[up(1, 1, "Ax-"), leave, arrive, up(2, 6, "--z")], &[(2, "Bxz")]);
}

#[test]
fn a_key_that_stays_canonically_the_same_is_not_blanked() {
    // 1.5 becomes 1.50: the source deletes and creates, the key is one.
    let [leave, arrive] = moved(1, 1, 5, "B--").map(|r| Record { at: At { source: 0, ..r.at }, ..r });
    let whole = Record { at: At { source: 0, offset: 0, ordinal: 0 }, ..up(1, 1, "Axy") };
    let log = [whole, Record { at: At { offset: 1, ..whole.at }, ..leave }, Record { at: At { offset: 3, ..whole.at }, ..arrive }];
    for split in 0..4_u32 {
        assert_eq!(lander::land(Config::upsert(), &log, |i| split >> i & 1 == 1).rows, [(1, values("Bxy"))]);
    }
}

/// The log partition of a key in a log of two.
fn half(key: u8) -> i32 {
    murmur2::partition(&small::key(key), 2)
}

#[test]
fn across_partitions_of_the_log_the_row_is_held_by_name_until_its_value_comes() {
    let two = Settings { partitions: 2, ..settings(Config::upsert()) };
    let far = (1..20).find(|key| half(*key) != half(0)).expect("two partitions");
    let new = (0..20).find(|key| half(*key) == 0 && *key != 0).expect("two partitions");
    let from = if half(0) == 0 { far } else { 0 };
    let place = |i: i64, r: Record| Record { at: At { source: 0, offset: i, ordinal: 0 }, ..r };
    let [_, arrive] = moved(from, new, 5, "B--");
    let log = [place(0, arrive)];
    let held = lander::land_with(two.clone(), &log, |_| true, &mut MemoryState::default());
    assert_eq!((held.rows, held.letters), (vec![], vec![(0, "change.unresolved_column")]));
    let log = [place(0, arrive), place(1, up(new, 7, "-xy"))];
    let healed = lander::land_with(two, &log, |_| true, &mut MemoryState::default());
    assert_eq!(healed.rows, [(new, values("Bxy"))]);
}

#[test]
fn a_lander_keeps_a_row_for_as_long_as_another_rests_on_it() {
    // Column b of the former row is told from everything else by its letter.
    let has = |log: &[Record]| {
        let mut state = MemoryState::default();
        let log: Vec<Record> = (0..).zip(log).map(|(i, r)| Record { at: At { source: 0, offset: i, ordinal: 0 }, ..*r }).collect();
        let _ = lander::land_with(settings(Config::upsert()), &log, |_| true, &mut state);
        state.values().any(|value| value.contains(&b'Q'))
    };
    let ([leave, arrive], [_, whole]) = (moved(1, 2, 5, "B--"), moved(1, 2, 5, "Bxy"));
    assert!(has(&[up(1, 1, "AQy"), leave]), "the other half is still to come");
    assert!(has(&[up(1, 1, "AQy"), leave, arrive]));
    assert!(has(&[up(1, 1, "AQy"), leave, arrive, up(1, 6, "New"), up(2, 7, "C--")]));
    assert!(!has(&[up(1, 1, "AQy"), leave, whole]), "nothing was left out");
    assert!(!has(&[up(1, 1, "AQy"), whole, leave]), "whichever half came first");
    assert!(!has(&[up(1, 1, "AQy"), leave, arrive, up(2, 7, "Cxy")]), "superseded");
    assert!(!has(&[up(1, 1, "AQy"), leave, arrive, del(2, 7)]), "deleted");
    let [on, off] = moved(2, 3, 7, "D--");
    assert!(has(&[up(1, 1, "AQy"), leave, arrive, on, off]), "through a chain");
    assert!(!has(&[up(1, 1, "AQy"), leave, arrive, on, off, up(3, 9, "Exy")]), "and the chain lets go");
}

#[test]
fn a_long_chain_of_key_changes_is_walked() {
    // There and back two hundred times; each step rests on the one before.
    let mut log = vec![up(1, 1, "Axy")];
    for step in 0..400 {
        let (from, to) = if step % 2 == 0 { (1, 2) } else { (2, 1) };
        log.extend(moved(from, to, 2 + step, "B--"));
    }
    let log: Vec<Record> = (0..).zip(&log).map(|(i, r)| Record { at: At { source: 0, offset: i, ordinal: 0 }, ..*r }).collect();
    let landed = lander::land(Config::upsert(), &log, |i| i % 90 == 0);
    assert_eq!(landed.rows, [(1, values("Bxy"))]);
}
