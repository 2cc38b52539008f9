//! The test of the kill test: each planted bug must be caught (RELIABILITY.md C, Test the tests).
//!
//! Every bug is copied from one that a real system had. For each a reduced campaign: the kills that can expose it and a workload that does;
//! the verdict must find something. With `LANDFALL_PLANTED_CLEAN` set, the same campaign is run without the bug too and must find nothing.
//! `make planted` prints `caught N of N`; `LANDFALL_PLANTED=name` tries one bug alone.

use std::time::Duration;

use landfall::fault::Bug;

use crate::checker::Broken;
use crate::crash::{Campaign, Kill};
use crate::harness::topology::Stores;
use crate::scene::listed;
use crate::workload::Mix;

/// Seeds that are tried until the bug shows itself.
const SEEDS: u64 = 5;

/// Batches of many records: what comes in is gathered for two seconds.
const SLOW: &str = "    push_debounce_quiet: 1\n    push_debounce_max_delay: 2\n";

/// The campaign that exposes a bug.
fn campaign(bug: Bug, seed: u64) -> Campaign {
    let base = Campaign {
        stem: "planted",
        seed,
        kills: Vec::new(),
        slice: 60,
        mix: Mix::KILL,
        stores: Stores::POSTGRES,
        bug: None,
        table_extra: "",
        pause: Duration::from_millis(20),
    };
    match bug {
        // Committed, but not in the log when the process dies: what was fetched last waits for the producer to send it.
        Bug::CommitBeforeLand => Campaign { kills: [1, 2, 1, 2, 3, 1].map(|hit| Kill::At("post_commit", hit)).to_vec(), slice: 200, ..base },
        // Acknowledgements that overtake each other, and a commit between them.
        Bug::WatermarkOffsetPlusOne => Campaign {
            kills: vec![Kill::At("post_commit", 1), Kill::At("post_commit", 2), Kill::At("post_commit", 7), Kill::At("post_ack", 7)],
            slice: 400,
            ..base
        },
        // Poison, and no dead letter for it; no kill is needed.
        Bug::CommitPastRejected => Campaign { mix: Mix { poison: 30, ..Mix::KILL }, ..base },
        // Rows in a store without transactions, cursor and state not; the batch that follows is another one, and puts some of them back to what
        // state shows. Each process lands its eight partitions once, which is sixteen hits, four of them at a time; then it dies with some rows in.
        Bug::DropEqualVersion => Campaign {
            kills: [22, 21, 22].map(|hit| Kill::At("mid_land", hit)).to_vec(),
            slice: 30,
            mix: Mix { deletes: 4, key_changes: 0, late_reads: 0, reverts: 60, hot: 20, ..Mix::KILL },
            stores: Stores { clickhouse: true, ..Stores::default() },
            table_extra: SLOW,
            ..base
        },
        Bug::StateBeforeLand => Campaign { kills: vec![Kill::At("pre_land", 2), Kill::At("mid_land", 2), Kill::At("pre_land", 7)], ..base },
        // Rows of a snapshot that arrive right behind the delete of their key, in a batch of their own; no kill is needed.
        Bug::TombstoneExpiredEarly => {
            Campaign { slice: 120, mix: Mix { late_reads: 60, ..Mix::KILL }, table_extra: "    batch_rows_max: 1\n", ..base }
        }
        // Tombstones sent to the log once more behind what followed them, looked at in batches of one record.
        Bug::RepeatsFolded => Campaign {
            kills: vec![Kill::At("pre_ack", 2), Kill::At("post_ack", 2), Kill::At("pre_ack", 7), Kill::At("post_ack", 7)],
            slice: 20,
            mix: Mix { deletes: 60, tombstone_only: 100, delete_only: 0, reinserts: 60, hot: 95, ..Mix::KILL },
            table_extra: "    batch_rows_max: 1\n",
            pause: Duration::from_millis(1),
            ..base
        },
        // The same moment; what comes next deletes, within the batch, rows that state never showed.
        Bug::OrphanLeftBehind => Campaign {
            kills: [22, 21, 22].map(|hit| Kill::At("mid_land", hit)).to_vec(),
            slice: 30,
            mix: Mix { deletes: 50, key_changes: 0, reinserts: 30, hot: 10, ..Mix::KILL },
            stores: Stores { clickhouse: true, ..Stores::default() },
            table_extra: SLOW,
            ..base
        },
    }
}

#[test]
fn planted() {
    let only = std::env::var("LANDFALL_PLANTED").ok();
    let bugs: Vec<(Bug, &str)> = Bug::ALL.into_iter().filter(|(_, name)| only.as_deref().is_none_or(|o| o == *name)).collect();
    let mut caught = 0;
    let mut missed = Vec::new();
    for (bug, name) in &bugs {
        if std::env::var_os("LANDFALL_PLANTED_CLEAN").is_some() {
            let clean = campaign(*bug, 41).run();
            assert!(clean.violations.is_empty(), "without {name} the campaign must find nothing:\n{}", listed(&clean.violations, 4));
        }
        let found = (0..SEEDS).find_map(|seed| {
            let mut outcome = Campaign { bug: Some(name), ..campaign(*bug, 41 + seed) }.run();
            // A process that falls over or is slow is no catch: the replicas, the log or the letters must be wrong.
            let slow = outcome.violations.iter().any(|v| v.broken == Broken::Behind);
            outcome.violations.retain(|v| v.broken != Broken::Process);
            (!slow && !outcome.violations.is_empty()).then_some((seed, outcome))
        });
        match found {
            Some((seed, outcome)) => {
                caught += 1;
                println!("{name}: caught with seed {}\n{}", 41 + seed, listed(&outcome.violations, 1));
            }
            None => missed.push(*name),
        }
    }
    println!("caught {caught} of {}", bugs.len());
    assert!(missed.is_empty(), "not caught: {}", missed.join(", "));
}
