//! The kill test: the real process dies again and again while it works, and nothing comes of it.
//!
//! A campaign is a seed and a list of kills. The workload is produced in slices while the process runs; it aborts at a named point at the n-th
//! time that it comes by, or is killed as `kill -9` does after a seeded moment. In the end everything is held against the reference
//! (`scene`, `checker`).

#![allow(clippy::disallowed_methods, reason = "the rules of the core about clocks and threads do not bind tests of real processes")]

use std::time::{Duration, Instant};

use crate::checker::{Broken, Violation, broken};
use crate::harness::process::Process;
use crate::harness::rng::Rng;
use crate::harness::topology::Stores;
use crate::scene::{Scene, Summary};
use crate::workload::Mix;

/// The named points, in the order of one event's journey.
pub const POINTS: [&str; 9] = ["pre_ack", "post_ack", "pre_land", "mid_land", "reply_lost", "post_land", "mid_state", "post_state", "post_commit"];
/// The hits at which each is tried.
pub const HITS: [u32; 3] = [1, 2, 7];
/// A point must be reached within so long while work comes in.
const REACHED: Duration = Duration::from_secs(30);

/// How the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    /// By `abort` at a named point, at the n-th time.
    At(&'static str, u32),
    /// By `kill -9` after so many millis.
    After(u64),
}

/// A campaign.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Name, for topics and folders.
    pub stem: &'static str,
    /// Seed of workload and kills.
    pub seed: u64,
    /// How it dies.
    pub kills: Vec<Kill>,
    /// Transactions of a slice.
    pub slice: u32,
    /// What the workload is made of.
    pub mix: Mix,
    /// Where it lands.
    pub stores: Stores,
    /// A planted bug.
    pub bug: Option<&'static str>,
    /// More lines of each table's entry.
    pub table_extra: &'static str,
    /// Pause of the sampler.
    pub pause: Duration,
}

/// What came of a campaign.
#[derive(Debug)]
pub struct Outcome {
    /// Everything that is wrong.
    pub violations: Vec<Violation>,
    /// Kills that happened.
    pub kills: usize,
    /// What the verdict was based on.
    pub summary: Summary,
    /// How long it took.
    pub took: Duration,
}

/// So many kills: every point at every hit, the rest at random moments, shuffled by the seed. Fewer kills than points are a random choice.
pub fn plan(seed: u64, kills: usize) -> Vec<Kill> {
    let mut rng = Rng::new(seed).fork(1);
    let mut all: Vec<Kill> = HITS.iter().flat_map(|hit| POINTS.iter().map(|point| Kill::At(point, *hit))).collect();
    while all.len() < kills {
        all.push(Kill::After(300 + rng.below(1_700)));
    }
    for i in (1..all.len()).rev() {
        all.swap(i, rng.below(i as u64 + 1) as usize);
    }
    all.truncate(kills);
    all
}

impl Campaign {
    /// The kill test's own campaign.
    pub fn kill_test(stem: &'static str, seed: u64, kills: usize) -> Self {
        Self {
            stem,
            seed,
            kills: plan(seed, kills),
            slice: 40,
            mix: Mix::KILL,
            stores: Stores::ALL,
            bug: None,
            table_extra: "",
            pause: Duration::from_millis(150),
        }
    }

    /// Runs it.
    pub fn run(&self) -> Outcome {
        let begun = Instant::now();
        let mut scene = Scene::new(self.stem, self.seed, self.mix, self.stores);
        if !self.table_extra.is_empty() {
            scene.topology.table_extra = self.table_extra.to_owned();
            scene.topology.write();
        }
        let mut violations = Vec::new();
        let sampler = scene.sampler(self.pause);
        let mut kills = 0;
        for (number, kill) in self.kills.iter().enumerate() {
            let options = match kill {
                Kill::At(point, hit) => scene.topology.run().crash(point, *hit),
                Kill::After(_) => scene.topology.run(),
            };
            let mut process = options.bug(self.bug).start();
            let before = Instant::now();
            match kill {
                Kill::At(point, hit) => self.until_it_aborts(&mut scene, &mut process, point, *hit, &mut violations),
                Kill::After(millis) => self.until_killed(&mut scene, &mut process, *millis, &mut violations),
            }
            process.kill();
            kills += 1;
            scene.look_at_file();
            println!("{} kill {}/{}: {kill:?} after {} ms", self.stem, number + 1, self.kills.len(), before.elapsed().as_millis());
            if violations.iter().any(|v| v.broken == Broken::Process) {
                break;
            }
        }
        let mut process = scene.topology.run().bug(self.bug).start();
        scene.produce(self.slice);
        violations.append(&mut scene.settle(&mut process));
        drop(sampler);
        let summary = scene.verdict(&mut violations);
        Outcome { violations, kills, summary, took: begun.elapsed() }
    }

    fn until_it_aborts(&self, scene: &mut Scene, process: &mut Process, point: &str, hit: u32, violations: &mut Vec<Violation>) {
        let end = Instant::now() + REACHED;
        loop {
            scene.produce(self.slice);
            if let Some(status) = process.ended_within(Duration::from_millis(400)) {
                if !process.aborted() {
                    broken(violations, Broken::Process, format!("on the way to {point}:{hit} it ended by itself ({status}):\n{}", process.tail()));
                }
                return;
            }
            if Instant::now() >= end {
                broken(violations, Broken::Process, format!("{point}:{hit} was not reached within {REACHED:?}:\n{}", process.tail()));
                return;
            }
        }
    }

    fn until_killed(&self, scene: &mut Scene, process: &mut Process, millis: u64, violations: &mut Vec<Violation>) {
        let end = Instant::now() + Duration::from_millis(millis);
        scene.produce(self.slice / 2);
        let half = end.saturating_duration_since(Instant::now()) / 2;
        if process.ended_within(half).is_none() {
            scene.produce(self.slice / 2);
            let rest = end.saturating_duration_since(Instant::now());
            if process.ended_within(rest).is_none() {
                return;
            }
        }
        broken(violations, Broken::Process, format!("it ended by itself:\n{}", process.tail()));
    }
}
