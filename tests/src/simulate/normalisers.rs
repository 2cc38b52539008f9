//! Normalisers in a run: owners of source partitions, their requests to the log, and what goes wrong with them.

use std::collections::VecDeque;

use landfall::fault::{self, Bug};
use landfall::normalise::partition::{Item, Outcome, Partition};
use landfall::normalise::{Destination, Outbox};

use crate::small;

use super::landers;
use super::source::Line;
use super::world::{Entry, World, tell};
use super::{LOGS, Met};

/// A record on its way to the log.
struct Request {
    /// Which record of its source partition.
    at: usize,
    token: u64,
    entry: Entry,
}

/// One process's hold on a source partition, with its producer.
pub(super) struct Normaliser {
    part: usize,
    owner: bool,
    /// It reads, hears acknowledgements and commits; requests of a dead one may still arrive.
    alive: bool,
    core: Partition,
    /// Next offset to fetch.
    from: i64,
    flying: [VecDeque<Request>; LOGS],
    letters: VecDeque<(u64, i64)>,
    /// Tokens of what has arrived and was not acknowledged yet.
    arrived: Vec<u64>,
}

impl Normaliser {
    fn is_flying(&self) -> bool {
        self.flying.iter().any(|f| !f.is_empty())
    }
}

impl World {
    /// A process takes a source partition over, at what is committed.
    pub(super) fn own_source(&mut self, part: usize) {
        self.normalisers.iter_mut().filter(|n| n.part == part).for_each(|n| n.owner = false);
        self.normalisers.retain(|n| n.owner || n.alive || n.is_flying());
        let (from, metadata) = self.committed[part].clone();
        let core = Partition::new(small::TOPIC, small::source(part as u8), self.plan.logs as u32, &metadata);
        let (flying, letters, arrived) = (Default::default(), VecDeque::new(), Vec::new());
        self.normalisers.push(Normaliser { part, owner: true, alive: true, core, from, flying, letters, arrived });
        tell!(self, "source {part} is taken over at {from} (mark {metadata:?})");
    }

    pub(super) fn normaliser_step(&mut self, i: usize) {
        if !self.normalisers[i].alive {
            return self.append_any(i);
        }
        match self.dice.below(8) {
            0 | 1 => self.read(i),
            2..=4 => self.append_any(i),
            5 => self.acknowledge(i, false),
            6 if self.normalisers[i].owner || self.dice.chance(1, 2) => self.commit(i),
            _ => {
                for _ in 0..3 {
                    self.read(i);
                    self.append_any(i);
                }
            }
        }
    }

    fn read(&mut self, i: usize) {
        let n = &mut self.normalisers[i];
        let lines = &self.source.parts[n.part];
        let at = lines.partition_point(|line| line.0 < n.from);
        let Some((offset, line)) = lines.get(at).copied() else { return };
        let token = n.core.fetched(offset);
        n.from = offset + 1;
        if matches!(line, Line::Poison) {
            if !fault::bug(Bug::CommitPastRejected) {
                n.core.expect(token);
                n.letters.push_back((token, offset));
            }
            n.core.acknowledged(token);
            return;
        }
        let mut outbox = Outbox::default();
        let outcome = match self.parts[n.part][at].as_ref() {
            Some(parts) => {
                let item = Item { ordinal: 0, key: parts.key.as_deref(), change: &parts.change() };
                n.core.process(token, offset, parts.fingerprint(), &[item], self.now, &mut outbox)
            }
            None => n.core.ignore(),
        };
        match outcome {
            Outcome::Produced => {
                for out in outbox.records() {
                    let Destination::Log(l) = out.to;
                    let entry = Entry { key: out.key.map(<[u8]>::to_vec), value: out.value.to_vec(), provenance: out.provenance.to_vec() };
                    n.flying[l as usize].push_back(Request { at, token: out.token, entry });
                }
                n.core.acknowledged(token);
            }
            Outcome::Ignored => n.core.acknowledged(token),
            Outcome::Withheld => {}
            Outcome::Rewind(from) => {
                n.from = from;
                self.met(Met::Dip);
            }
            Outcome::Regressed => self.fail(|| format!("source partition stopped at {offset}: the source did not go back")),
        }
        tell!(self, "normaliser {i} reads {}:{offset}: {outcome:?}", self.normalisers[i].part);
    }

    /// The oldest request for one of the log's partitions arrives.
    fn append_any(&mut self, i: usize) {
        let (logs, start) = (self.plan.logs, self.dice.below(self.plan.logs));
        if let Some((token, offset)) = self.normalisers[i].letters.pop_front() {
            self.met(Met::DeadLetter);
            self.letters.push((self.normalisers[i].part, offset));
            self.normalisers[i].arrived.push(token);
        }
        for l in (0..logs).map(|d| (start + d) % logs) {
            let n = &mut self.normalisers[i];
            let Some(request) = n.flying[l].pop_front() else { continue };
            let (part, late) = (n.part, !(n.owner && n.alive));
            if n.alive {
                n.arrived.push(request.token);
            }
            if late {
                self.met(Met::LateAppend);
            }
            self.met(Met::Append);
            let log = &mut self.logs[l];
            let (due, seen) = &mut log.due[part];
            let place = due.iter().position(|at| *at == request.at);
            let repeat = place.is_some_and(|place| place < *seen);
            if place == Some(*seen) {
                *seen += 1;
                if let Line::Record(record, _) = self.source.parts[part][request.at].1 {
                    let seen = if self.plan.refuses { landers::as_taken(record) } else { record };
                    if seen != record {
                        log.refused.push(log.entries.len() as i64);
                        self.tally.0[Met::Refused as usize] += 1;
                    }
                    log.distinct.push(seen);
                }
            }
            log.entries.push(request.entry);
            log.upto.push(log.distinct.len());
            let (offset, source_offset) = (log.entries.len() - 1, self.source.parts[part][request.at].0);
            tell!(
                self,
                "log {l}:{offset} <- source {part}:{source_offset}{}{}",
                if repeat { " (repeat)" } else { "" },
                if late { " (late)" } else { "" }
            );
            if repeat {
                self.met(Met::Repeat);
            } else if place != Some(self.logs[l].due[part].1 - 1) {
                self.fail(|| format!("log {l} has source {part}:{source_offset} before an earlier record: no contiguous prefix"));
            }
            return;
        }
    }

    fn acknowledge(&mut self, i: usize, all: bool) {
        let n = &mut self.normalisers[i];
        for token in std::mem::take(&mut n.arrived) {
            if all || self.dice.chance(2, 3) {
                n.core.acknowledged(token);
            } else {
                n.arrived.push(token);
            }
        }
    }

    fn commit(&mut self, i: usize) {
        let Some((offset, metadata)) = self.normalisers[i].core.commit() else { return };
        let (part, owner) = (self.normalisers[i].part, self.normalisers[i].owner);
        if !owner {
            self.met(Met::ZombieCommit);
        }
        tell!(self, "normaliser {i} commits source {part} at {offset}");
        self.committed[part] = (offset, metadata);
        // Law 1: everything below a committed offset is in the log, or with the dead letters (law 11).
        let lines = &self.source.parts[part];
        let below = lines.partition_point(|line| line.0 < offset);
        for (l, log) in self.logs.iter().enumerate() {
            let (due, seen) = &log.due[part];
            if due.get(*seen).is_some_and(|at| *at < below) {
                let lost = lines[due[*seen]].0;
                return self.fail(|| format!("source {part} is committed at {offset}, but {part}:{lost} is not in log {l}"));
            }
        }
        let letters = &self.letters;
        let poison = lines[..below].iter().find(|line| matches!(line.1, Line::Poison) && !letters.contains(&(part, line.0)));
        if let Some((lost, _)) = poison.copied() {
            self.fail(|| format!("source {part} is committed at {offset}, but there is no dead letter of {part}:{lost}"));
        }
    }

    pub(super) fn normaliser_fault(&mut self) {
        let owners: Vec<usize> = (0..self.normalisers.len()).filter(|i| self.normalisers[*i].owner).collect();
        let i = *self.dice.pick(&owners);
        let part = self.normalisers[i].part;
        if self.normalisers.iter().filter(|n| n.part == part).count() > 3 {
            return;
        }
        let what = *self.dice.pick(&[Met::NormaliserCrash, Met::NormaliserPaused, Met::ProducerReplaced]);
        self.met(what);
        tell!(self, "normaliser {i} of source {part}: {what:?}");
        if what == Met::ProducerReplaced {
            // The producer is discarded with everything behind it; the process goes on from what is acknowledged.
            self.commit(i);
        }
        if what != Met::NormaliserPaused {
            self.cut_off(i);
        }
        self.own_source(part);
    }

    /// Its connections are cut: a part of what is in flight never arrives, the rest arrives later, and nobody hears of it.
    fn cut_off(&mut self, i: usize) {
        let n = &mut self.normalisers[i];
        n.alive = false;
        n.letters.clear();
        n.arrived.clear();
        for flying in &mut n.flying {
            flying.truncate(self.dice.below(flying.len() + 1));
        }
    }

    /// A zombie may have committed an older offset since, which does no harm; what counts is what the owner has done.
    fn is_done(&self, i: usize, end: i64) -> bool {
        self.normalisers[i].from == end && self.normalisers[i].core.outstanding() == 0
    }

    /// Owners go on undisturbed until everything is committed.
    pub(super) fn settle_normalisers(&mut self) {
        for i in 0..self.normalisers.len() {
            if !self.normalisers[i].owner {
                while self.normalisers[i].is_flying() && self.dice.chance(3, 4) {
                    self.append_any(i);
                }
            }
        }
        self.normalisers.retain(|n| n.owner);
        for i in 0..self.normalisers.len() {
            let part = self.normalisers[i].part;
            let end = self.source.parts[part].last().map_or(0, |line| line.0 + 1);
            for _ in 0..40 {
                if self.violation.is_some() {
                    return;
                }
                for _ in 0..8 {
                    self.read(i);
                    self.append_any(i);
                }
                self.acknowledge(i, true);
                self.commit(i);
                if self.is_done(i, end) {
                    break;
                }
            }
            if !self.is_done(i, end) {
                self.fail(|| format!("source {part} comes to rest before its end at {end}"));
            }
        }
    }
}
