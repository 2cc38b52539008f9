//! Dead letters that are replayed: whatever came meanwhile, a replica is as if nothing had ever been set aside (ARCHITECTURE.md, Dead letters).
//!
//! Random histories of a source partition, some records of which nobody can take at first. They come into the log later, in any order, some of
//! them twice; the rows must be those of the naive fold of the whole history.

use landfall::land::fold::Config;
use landfall::state::memory::MemoryState;

use crate::dice::Dice;
use crate::lander::{land_replays, settings};
use crate::oracle::{self, At, Cells, Record, Rules, What};

/// Histories of a run.
const HISTORIES: u64 = 20_000;

const RULES: Rules = Rules { user: false, blank: false, tracked: [true; 3] };

/// A history of two keys in one source partition: sequences rise, deletes come with a tombstone behind them or without, rows go by bare
/// tombstones alone, values are not sent, and now and then the connector sends again from an earlier place.
fn history(dice: &mut Dice) -> Vec<Record> {
    let mut written: Vec<(u8, u64, What)> = Vec::new();
    let mut live = [false; 2];
    for seq in 1..=3 + dice.below(8) as u64 {
        let key = dice.below(2) as u8;
        let is_live = &mut live[usize::from(key)];
        match dice.below(6) {
            0 if *is_live => {
                written.push((key, seq, What::Delete));
                if dice.chance(2, 3) {
                    written.push((key, seq, What::Bare));
                }
                *is_live = false;
            }
            1 if *is_live => {
                written.push((key, seq, What::Bare));
                *is_live = false;
            }
            n => {
                let mut cells: Cells = [0; 3].map(|_| Some(Some(b'a' + dice.below(20) as u8)));
                if *is_live && n > 3 {
                    cells[dice.below(3)] = None;
                }
                written.push((key, seq, What::Write(cells)));
                *is_live = true;
            }
        }
    }
    if dice.chance(1, 3) {
        let from = dice.below(written.len());
        let again = written[from..].to_vec();
        let upto = from + dice.below(written.len() - from + 1);
        written.truncate(upto.max(from + 1));
        written.extend(again);
    }
    let record = |(offset, (key, seq, what))| Record { at: At { source: 0, offset, ordinal: 0 }, key, seq, what };
    (0..).zip(written).map(record).collect()
}

#[test]
fn a_replayed_letter_ends_where_it_belongs() {
    let (mut replays, mut superseded) = (0_u64, 0_u64);
    for seed in 0..HISTORIES {
        let mut dice = Dice::new(seed);
        let all = history(&mut dice);
        // Whether a record can be taken is told by what it says, so it is the same each time that it is sent. Null values can be read.
        let bad: Vec<u64> = all.iter().filter(|r| r.what != What::Bare).map(|r| r.seq).filter(|_| dice.chance(1, 3)).collect();
        let is_bad = |r: &Record| r.what != What::Bare && bad.contains(&r.seq);
        let mut log: Vec<(Record, Option<i64>)> = all.iter().filter(|r| !is_bad(r)).map(|r| (*r, None)).collect();
        let mut letters: Vec<(i64, Record)> = (0..).zip(all.iter().filter(|r| is_bad(r)).copied()).collect();
        dice.shuffle(&mut letters);
        for (letter, record) in letters {
            // Only behind what is committed: a letter stands behind the records before it, and is replayed after any of those behind it.
            let behind = log.iter().position(|(r, replay)| replay.is_none() && r.at > record.at).unwrap_or(log.len());
            for _ in 0..1 + dice.below(2) {
                let at = behind + dice.below(log.len() - behind + 1);
                log.insert(at, (record, Some(letter)));
                replays += 1;
            }
        }
        let ends = dice.below(1 << 12);
        let records: Vec<Record> = log.iter().map(|(r, _)| *r).collect();
        let landed = land_replays(settings(Config::upsert()), &records, |i| log[i].1, |i| ends >> (i % 12) & 1 == 1, &mut MemoryState::default());
        superseded += landed.letters.iter().filter(|(_, code)| *code == "superseded").count() as u64;
        let expected: Vec<_> = (0..2).filter_map(|key| Some((key, oracle::latest(&all, key, RULES)?))).collect();
        assert_eq!(landed.rows, expected, "seed {seed}: {all:#?}\nthe log: {log:#?}");
    }
    println!("{HISTORIES} histories, {replays} replays, {superseded} superseded");
    assert!(superseded > 500, "{superseded}");
}
