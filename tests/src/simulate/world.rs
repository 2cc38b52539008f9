//! What there is in a run, and its scheduler.

use std::collections::BTreeMap;
use std::time::Duration;

use landfall::log::murmur2;
use landfall::sink::memory::Store;
use landfall::state::memory::MemoryState;

use crate::dice::Dice;
use crate::oracle::{Record, Values};
use crate::small::{self, Parts};

use super::faults::Copy;
use super::landers::{Lander, Late};
use super::normalisers::Normaliser;
use super::source::{Line, Source};
use super::{HOSTS, LOGS, Met, Plan, Tally};

/// Name of the one replica.
pub(super) const REPLICA: &str = "store.t";

/// A record of the log.
pub(super) struct Entry {
    pub key: Option<Vec<u8>>,
    pub value: Vec<u8>,
    pub provenance: Vec<u8>,
}

/// A partition of the log, with what the checks know of it.
#[derive(Default)]
pub(super) struct Log {
    pub entries: Vec<Entry>,
    /// The source records in it, each once.
    pub distinct: Vec<Record>,
    /// How many of these stand in each prefix.
    pub upto: Vec<usize>,
    /// For each source partition: which of its records belong here, and how many of them are here.
    pub due: Vec<(Vec<usize>, usize)>,
    /// Offsets of changes that the store cannot hold.
    pub(crate) refused: Vec<i64>,
    /// Keys that live here.
    pub keys: Vec<u8>,
}

/// Everything.
pub(super) struct World {
    pub dice: Dice,
    pub plan: Plan,
    pub source: Source,
    /// For each source record, its encoding.
    pub parts: Vec<Vec<Option<Parts>>>,
    pub tally: Tally,
    pub tracing: bool,
    /// Faults are over.
    pub calm: bool,
    pub now: Duration,
    pub violation: Option<String>,

    /// Committed source offset and metadata, by source partition.
    pub committed: Vec<(i64, String)>,
    pub letters: Vec<(usize, i64)>,
    pub normalisers: Vec<Normaliser>,
    pub logs: Vec<Log>,

    pub landers: Vec<Lander>,
    pub lander_ids: u32,
    pub late: Vec<Late>,
    /// State directories by host and log partition, and copies of them.
    pub states: Vec<Vec<MemoryState>>,
    pub old_states: Vec<Vec<MemoryState>>,
    pub store: Store,
    pub copies: Vec<Copy>,
    /// Raised by every restore of the store.
    pub era: u32,
    pub build_max: u16,
    /// Contents by key and version: one each.
    pub versions: BTreeMap<(u8, u64), Option<Values>>,
}

/// Prints a line of the trace.
macro_rules! tell {
    ($world:expr, $($text:tt)*) => {
        if $world.tracing {
            println!($($text)*);
        }
    };
}
pub(super) use tell;

impl World {
    pub(super) fn new(dice: Dice, plan: Plan, source: Source, tracing: bool) -> Self {
        let parts: Vec<Vec<Option<Parts>>> = source
            .parts
            .iter()
            .map(|lines| {
                lines.iter().map(|(_, line)| if let Line::Record(r, version) = line { Some(Parts::of_version(r, *version)) } else { None }).collect()
            })
            .collect();
        let mut logs: Vec<Log> = (0..plan.logs).map(|_| Log { due: vec![(Vec::new(), 0); plan.sources], ..Log::default() }).collect();
        for id in &plan.ids[..plan.keys] {
            logs[murmur2::partition(&small::key(*id), plan.logs as u32) as usize].keys.push(*id);
        }
        for (part, lines) in parts.iter().enumerate() {
            for (i, parts) in lines.iter().enumerate() {
                let Some(parts) = parts else { continue };
                let only = parts.key.as_ref().map(|key| murmur2::partition(key, plan.logs as u32) as usize);
                for (l, log) in logs.iter_mut().enumerate() {
                    if only.is_none_or(|only| only == l) {
                        log.due[part].0.push(i);
                    }
                }
            }
        }
        let mut world = Self {
            committed: vec![(0, String::new()); plan.sources],
            letters: Vec::new(),
            normalisers: Vec::new(),
            landers: Vec::new(),
            lander_ids: 0,
            late: Vec::new(),
            states: vec![vec![MemoryState::default(); LOGS]; HOSTS],
            old_states: vec![Vec::new(); LOGS],
            store: Store::new(plan.style),
            copies: Vec::new(),
            era: 0,
            build_max: 0,
            versions: BTreeMap::new(),
            dice,
            plan,
            source,
            parts,
            tally: Tally::new(),
            tracing,
            calm: false,
            now: Duration::from_secs(1),
            violation: None,
            logs,
        };
        tell!(world, "{:?}", world.plan);
        for part in 0..world.plan.sources {
            for (offset, line) in &world.source.parts[part] {
                tell!(world, "source {part}:{offset}  {line:?}");
            }
        }
        tell!(world, "the table at the end: {:?}", world.source.table);
        for part in 0..world.plan.sources {
            world.tally.0[Met::SourceRecord as usize] += world.source.parts[part].len() as u64;
            world.own_source(part);
        }
        for l in 0..world.plan.logs {
            world.own_log(l, 0);
        }
        world
    }

    pub(super) fn met(&mut self, what: Met) {
        self.tally.0[what as usize] += 1;
    }

    pub(super) fn fail(&mut self, why: impl FnOnce() -> String) {
        if self.violation.is_none() {
            let why = why();
            tell!(self, "VIOLATION {why}");
            self.violation = Some(why);
        }
    }

    pub(super) fn verdict(self) -> Result<(), String> {
        self.violation.map_or(Ok(()), Err)
    }

    /// The whole run: a time of faults, then rest.
    pub(super) fn run(&mut self) {
        for _ in 0..self.plan.steps {
            if self.violation.is_some() {
                return;
            }
            self.step();
        }
        self.calm = true;
        self.settle_normalisers();
        self.settle_landers();
        if self.violation.is_some() {
            return;
        }
        self.check_rest("at rest");
        // What former owners sent may still arrive when all is done.
        while !self.late.is_empty() {
            self.late_arrives();
        }
        self.check_rest("after late requests");
        self.check_truth();
    }

    fn step(&mut self) {
        self.now += Duration::from_millis(self.dice.below(20) as u64);
        if self.dice.chance(1, 100) {
            self.now += Duration::from_secs(70);
        }
        match self.dice.below(40) {
            0..=16 => {
                let i = self.dice.below(self.normalisers.len());
                if i < self.normalisers.len() {
                    self.normaliser_step(i);
                }
            }
            17..=35 => {
                let i = self.dice.below(self.landers.len());
                self.lander_step(i);
            }
            36 => self.late_arrives(),
            _ => self.fault(),
        }
    }
}
