//! A seeded simulation of the whole journey on the real core, on one thread with a virtual clock.
//!
//! One run is a source script, normalisers, the log, landers, their states and a store, scheduled step by step with faults between any two
//! steps. It is a pure function of its seed. What it checks stands in `check`, what may go wrong in `normalisers`, `landers` and `faults`.
//! `LANDFALL_SEEDS=n` sets how many seeds run, `LANDFALL_SEED=n` replays one of them and prints every step.

mod check;
mod faults;
mod landers;
mod normalisers;
mod source;
mod world;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use landfall::fault::{self, Bug};
use landfall::sink::memory::Style;

use crate::dice::Dice;
use world::World;

/// Keys of the table, at most.
pub(crate) const KEYS: usize = 4;
/// Partitions of the log, at most.
pub(crate) const LOGS: usize = 3;
/// Hosts that landers run on, each with a state directory.
pub(crate) const HOSTS: usize = 3;

/// What a run may meet, drawn from its seed.
#[derive(Debug)]
pub(crate) struct Plan {
    pub style: Style,
    pub sources: usize,
    pub logs: usize,
    pub keys: usize,
    /// Number of each key in the table, and the source partition of its changes.
    pub ids: [u8; KEYS],
    pub home: [usize; KEYS],
    /// The record key is not the table's key.
    pub scatter: bool,
    pub unauthored: bool,
    pub tombstones: bool,
    pub resend: bool,
    pub snapshots: bool,
    pub truncates: bool,
    pub key_changes: bool,
    pub failover: bool,
    pub holes: bool,
    pub poison: bool,
    /// Of how many letters values are: few make rows go back to what they were.
    pub letters: usize,
    /// The store cannot hold one of the letters.
    pub refuses: bool,
    /// The table gains columns.
    pub widening: bool,
    pub long: bool,
    pub steps: usize,
    pub rows_max: usize,
    pub quiet: u64,
    pub normaliser_faults: bool,
    pub lander_faults: bool,
    pub state_faults: bool,
    pub restores: bool,
    pub rebuilds: bool,
}

impl Plan {
    fn draw(dice: &mut Dice) -> Self {
        let (sources, logs, scatter) = (1 + dice.below(3), 1 + dice.below(LOGS), dice.chance(1, 5));
        let mut ids: Vec<u8> = (0..40).collect();
        dice.shuffle(&mut ids);
        let long = dice.chance(1, 8);
        let snapshots = dice.chance(1, 2);
        Self {
            style: if dice.chance(1, 2) { Style::Transactional } else { Style::Replacing },
            sources,
            logs,
            keys: 1 + dice.below(KEYS),
            ids: std::array::from_fn(|k| ids[k]),
            home: std::array::from_fn(|_| dice.below(sources)),
            scatter,
            unauthored: dice.chance(1, 2),
            // A tombstone has no place of its own, so it must stand in the partition of its key.
            tombstones: dice.chance(1, 2) && !scatter,
            resend: dice.chance(2, 3),
            snapshots,
            truncates: dice.chance(1, 3),
            key_changes: dice.chance(1, 3),
            failover: dice.chance(1, 3) && snapshots,
            holes: dice.chance(1, 2),
            poison: dice.chance(1, 4),
            letters: 1 + dice.below(4),
            refuses: dice.chance(1, 6),
            widening: dice.chance(1, 4),
            long,
            steps: dice.below(if long { 480 } else { 160 }),
            rows_max: 1 + dice.below(8),
            quiet: dice.below(3) as u64 * 20,
            normaliser_faults: dice.chance(2, 3),
            lander_faults: dice.chance(3, 4),
            state_faults: dice.chance(1, 2),
            restores: dice.chance(1, 3),
            rebuilds: dice.chance(1, 4),
        }
    }
}

macro_rules! tallies {
    ($($name:ident: $text:literal,)*) => {
        /// What runs met: faults, and states that only rare schedules reach.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Met { $($name),* }
        impl Met {
            const ALL: &'static [(Met, &'static str)] = &[$((Met::$name, $text)),*];
        }
    };
}

tallies! {
    SourceRecord: "source records",
    Append: "log appends",
    Repeat: "repeats in the log",
    Dip: "source sent again, dip regained",
    DeadLetter: "dead letters of unreadable records",
    NormaliserCrash: "normaliser crashes",
    NormaliserPaused: "normaliser paused, new owner",
    ProducerReplaced: "producer failed and replaced",
    LateAppend: "late appends of dead or paused normalisers",
    ZombieCommit: "commits of a paused normaliser",
    Batch: "batches",
    EmptyBatch: "batches that only move the cursor",
    Slice: "slices of marks, with more to follow",
    Delta: "rows sent",
    Tombstone: "rows sent as absent",
    Refused: "changes that the store cannot hold, in the log",
    Withheld: "changes dead-lettered for want of a value",
    CatchUp: "state caught up from S to K",
    LanderCrash: "lander crashes",
    CrashMidLanding: "lander crashes with a landing under way",
    CrashBeforeState: "lander crashes between landing and state",
    LanderPaused: "lander paused, new owner",
    HandOver: "orderly moves to another host",
    StateLost: "state directories lost",
    StateOld: "states restored from an older copy",
    Discard: "states discarded by a claim",
    RestoreStopped: "store restored, landers stopped",
    RestoreAlive: "store restored, landers alive",
    Rebuild: "rebuilds under way",
    ReplyLost: "replies lost of landings that happened",
    ReplyLostFound: "lost landings found done by the cursor",
    NotLanded: "landings that did not happen, sent again",
    LateLanding: "landings that happened after they were given up",
    LateRow: "late rows of dead or paused landers",
    ClaimLost: "replies lost of claims",
    Fenced: "landings refused: fenced",
    CursorMoved: "landings refused: cursor moved",
    OldBuild: "landings and claims refused: build",
    IdleCheck: "idle checks",
    IdleVoid: "idle checks that found another cursor",
    Widened: "tables widened",
    Sample: "samples",
    Pure: "rows checked against the fold at their version",
}

/// Counts of what runs met.
#[derive(Clone, Copy)]
pub(crate) struct Tally([u64; Met::ALL.len()]);

impl Tally {
    const fn new() -> Self {
        Self([0; Met::ALL.len()])
    }

    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, n)| *sum += n);
    }
}

/// One run. What was violated, and the trace where it was asked for.
fn run(seed: u64, trace: bool, tally: &mut Tally) -> Result<(), String> {
    let mut dice = Dice::new(seed);
    let plan = Plan::draw(&mut dice);
    let source = source::write(&mut dice, &plan);
    let mut world = World::new(dice, plan, source, trace);
    world.run();
    tally.add(&world.tally);
    world.verdict()
}

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs seeds on all cores until one is violated: how many ran, what they met, and the first violation.
fn campaign(seeds: u64, bug: Option<Bug>) -> (u64, Tally, Option<(u64, String)>) {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let (stop, ran) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut total = Tally::new();
    let mut first: Option<(u64, String)> = None;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (stop, ran) = (&stop, &ran);
                scope.spawn(move || {
                    fault::simulate(bug);
                    let mut tally = Tally::new();
                    for seed in (thread..seeds).step_by(threads as usize) {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let _ = ran.fetch_add(1, Ordering::Relaxed);
                        if let Err(why) = run(seed, false, &mut tally) {
                            stop.store(true, Ordering::Relaxed);
                            return (tally, Some((seed, why)));
                        }
                    }
                    (tally, None)
                })
            })
            .collect();
        for worker in workers {
            let (tally, violation) = worker.join().expect("a run panicked; its message stands above");
            total.add(&tally);
            if let Some(found) = violation
                && first.as_ref().is_none_or(|f| found.0 < f.0)
            {
                first = Some(found);
            }
        }
    });
    (ran.into_inner(), total, first)
}

#[test]
fn simulate() {
    if let Some(seed) = env("LANDFALL_SEED") {
        let mut tally = Tally::new();
        if let Err(why) = run(seed, true, &mut tally) {
            panic!("seed {seed}: {why}");
        }
        return;
    }
    let seeds = env("LANDFALL_SEEDS").unwrap_or(200_000);
    let (ran, tally, violation) = campaign(seeds, None);
    println!("seeds {ran}");
    for (met, text) in Met::ALL {
        println!("{:>14}  {text}", tally.0[*met as usize]);
    }
    if let Some((seed, why)) = violation {
        panic!(
            "seed {seed}: {why}\nreplay: LANDFALL_SEED={seed} cargo test -p landfall-tests --test landfall simulate::simulate -- --exact --nocapture"
        );
    }
    for (met, text) in Met::ALL {
        assert!(ran < 20_000 || tally.0[*met as usize] > 0, "no run met this: {text}");
    }
}

/// Planted bugs, and within how many seeds each must be caught.
const PLANTED: [(Bug, u64); 8] = [
    (Bug::CommitBeforeLand, 20_000),
    (Bug::WatermarkOffsetPlusOne, 20_000),
    (Bug::CommitPastRejected, 20_000),
    (Bug::DropEqualVersion, 200_000),
    (Bug::StateBeforeLand, 20_000),
    (Bug::TombstoneExpiredEarly, 20_000),
    (Bug::RepeatsFolded, 20_000),
    (Bug::OrphanLeftBehind, 20_000),
];

#[test]
fn planted_bugs_are_caught() {
    for (bug, seeds) in PLANTED {
        let (ran, _, violation) = campaign(seeds, Some(bug));
        let (seed, why) = violation.unwrap_or_else(|| panic!("{bug:?} was not caught in {ran} seeds"));
        println!("{bug:?}: caught after {ran} seeds, seed {seed}: {}", why.lines().next().unwrap_or_default());
    }
}
