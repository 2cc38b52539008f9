//! What operators, disks and networks do in a run.

use std::time::Duration;

use landfall::sink::Sink;
use landfall::sink::memory::{MemorySink, Replica, Style};
use landfall::state::memory::MemoryState;

use super::world::{REPLICA, World, tell};
use super::{HOSTS, Met};

/// A backup of the store.
pub(super) struct Copy {
    era: u32,
    replica: Replica,
}

impl World {
    pub(super) fn fault(&mut self) {
        match self.dice.below(12) {
            0..=3 if self.plan.normaliser_faults => self.normaliser_fault(),
            4..=7 if self.plan.lander_faults => self.lander_fault(),
            8 if self.plan.state_faults => self.state_fault(),
            9 | 10 if self.plan.restores => self.store_fault(),
            11 if self.plan.rebuilds => self.rebuild(),
            _ => self.now += Duration::from_millis(50),
        }
    }

    fn lander_fault(&mut self) {
        let (l, host) = (self.dice.below(self.plan.logs), self.dice.below(HOSTS));
        if self.landers.iter().filter(|x| x.l == l).count() > 3 {
            return;
        }
        let Some(i) = self.landers.iter().position(|x| x.l == l && x.owner) else { return };
        match self.dice.below(3) {
            0 => {
                self.met(Met::LanderCrash);
                tell!(self, "lander {} crashes", self.landers[i].id);
                self.die(i);
            }
            1 if self.landers[i].host != host => {
                self.met(Met::LanderPaused);
                tell!(self, "lander {} is paused", self.landers[i].id);
            }
            2 if self.is_at_ease(i) => {
                self.met(Met::HandOver);
                tell!(self, "lander {} hands over", self.landers[i].id);
                self.landers[i].alive = false;
            }
            _ => return,
        }
        self.own(l, host);
    }

    /// A new owner; a paused one on that host dies, and what it had under way may go on.
    fn own(&mut self, l: usize, host: usize) {
        while let Some(i) = self.landers.iter().position(|x| x.l == l && x.host == host && x.alive) {
            self.die(i);
        }
        self.own_log(l, host);
    }

    fn state_fault(&mut self) {
        let (l, host) = (self.dice.below(self.plan.logs), self.dice.below(HOSTS));
        // The directory is in use while its process lives; such a fault means that the process died.
        let owner = self.landers.iter().any(|x| x.l == l && x.host == host && x.owner);
        while let Some(i) = self.landers.iter().position(|x| x.l == l && x.host == host && x.alive) {
            self.die(i);
        }
        if self.dice.chance(1, 2) && !self.old_states[l].is_empty() {
            self.met(Met::StateOld);
            tell!(self, "the state of log {l} on host {host} is put back to an older copy");
            self.states[host][l] = self.dice.pick(&self.old_states[l]).clone();
        } else {
            self.met(Met::StateLost);
            tell!(self, "the state of log {l} on host {host} is lost");
            self.states[host][l] = MemoryState::default();
        }
        if owner {
            self.own_log(l, host);
        }
        self.landers.retain(|x| x.owner || x.alive);
    }

    fn store_fault(&mut self) {
        if self.copies.is_empty() || !self.dice.chance(1, 2) {
            let replica = self.store.replicas().get(REPLICA).cloned();
            if let Some(replica) = replica.filter(|_| self.copies.len() < 5) {
                tell!(self, "the store is backed up as copy {}", self.copies.len());
                self.copies.push(Copy { era: self.era, replica });
            }
            return;
        }
        let at = self.dice.below(self.copies.len());
        let mut replica = self.copies[at].replica.clone();
        let alive = self.dice.chance(1, 2);
        if self.plan.style == Style::Replacing {
            // Cursors and rows are two tables, and cursors are copied first; both in one build and with no restore in between.
            let cursors = &self.copies[self.dice.below(at + 1)];
            if cursors.era == self.copies[at].era && cursors.replica.build == replica.build {
                replica.cursors = cursors.replica.cursors.clone();
            }
        }
        self.met(if alive { Met::RestoreAlive } else { Met::RestoreStopped });
        tell!(self, "the store is put back to copy {at}, landers {}", if alive { "alive" } else { "stopped" });
        if !alive {
            // Stopped and drained: nothing of theirs is under way any more.
            self.landers.iter_mut().for_each(|x| (x.alive, x.owner) = (false, false));
            self.late.clear();
        }
        let _ = self.store.replicas().insert(REPLICA.to_owned(), replica);
        self.era += 1;
        if alive && self.plan.style == Style::Replacing {
            self.build_max += 1;
            let build = Some(self.build_max);
            let _ = MemorySink::new(self.store.clone()).open(REPLICA, "t", build).expect("the highest build");
        }
        if !alive {
            for l in 0..self.plan.logs {
                let host = self.dice.below(HOSTS);
                self.own_log(l, host);
            }
        }
    }

    fn rebuild(&mut self) {
        if self.build_max > 4 || !self.store.replicas().contains_key(REPLICA) {
            return;
        }
        self.met(Met::Rebuild);
        let build = MemorySink::new(self.store.clone()).rebuild(REPLICA, "t").expect("memory");
        self.build_max = self.build_max.max(build);
        tell!(self, "build {build} is put in force");
    }
}
