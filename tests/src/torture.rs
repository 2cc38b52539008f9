//! The kill test as a test, and for people: `make torture KILLS=n`.
//!
//! Without `LANDFALL_KILLS` it is the suite's own: 60 kills. With it, as many as asked for; `LANDFALL_SEED` repeats a run. Either way a
//! result line is appended to `target/torture.log`, or to where `LANDFALL_TORTURE_LOG` says.

#![allow(clippy::disallowed_methods, reason = "the rules of the core about clocks and threads do not bind tests of real processes")]

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::crash::{Campaign, Outcome};
use crate::harness::stack;
use crate::scene;

/// Kills of a run of the suite.
const KILLS: usize = 60;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")))
}

fn append(seed: u64, outcome: &Outcome) {
    let path = std::env::var("LANDFALL_TORTURE_LOG").map_or_else(|_| stack::root().join("target/torture.log"), PathBuf::from);
    let s = &outcome.summary;
    let line = format!(
        "seed {seed} kills {} seconds {} source_records {} log_records {} repeats {} dead_letters {} rows {} samples {} violations {}\n",
        outcome.kills,
        outcome.took.as_secs(),
        s.records,
        s.logged,
        s.repeats,
        s.poison,
        s.rows,
        s.samples,
        outcome.violations.len()
    );
    print!("{line}");
    let file =
        std::fs::create_dir_all(path.parent().unwrap_or(&path)).and_then(|()| std::fs::OpenOptions::new().create(true).append(true).open(&path));
    file.and_then(|mut f| f.write_all(line.as_bytes())).unwrap_or_else(|e| panic!("the result cannot be appended to {}: {e}", path.display()));
}

#[test]
fn torture() {
    let kills = number("LANDFALL_KILLS").map_or(KILLS, |n| n as usize);
    let seed = number("LANDFALL_SEED").unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_secs()));
    println!("seed {seed}: repeat with LANDFALL_SEED={seed} LANDFALL_KILLS={kills}");
    let outcome = Campaign::kill_test("torture", seed, kills).run();
    append(seed, &outcome);
    scene::assert_none(&format!("seed {seed}, {kills} kills"), &outcome.violations);
}
