//! Key changes: rows that rest on the last row of another key of the same log partition (ARCHITECTURE.md, Key change).
//!
//! What a key change takes along is the former key's row just before the change's sequence: a function of that key's changes alone, so
//! neither arrival order nor the delete of the former key shows. The former key remembers who rests on it (its heirs) and keeps what they
//! need for exactly as long as they need it; whatever alters it folds the heirs again. Keys of other log partitions are never looked at:
//! such a row is withheld until an event brings the value. Links are rare, so everything here is off the path of usual changes.

use landfall_schemas::{Sequence, TableSchema, key, row};

use super::{Failure, Partition, State, Stop, WireError, entry, state};
use crate::land::fold::{self, Shape};
use crate::land::index::{Group, Heir, Kind, Span};
use crate::log::murmur2;
use landfall_schemas::wire::Reader;

/// The key at the other side of a key change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Other {
    /// Canonical, in the arena.
    pub(super) key: Span,
    /// Its entry, where it is a key of this log partition.
    pub(super) at: Option<usize>,
}

impl Partition {
    /// Takes up the other key of a change: makes an entry of it, and of all that hangs together with it, before anything is altered.
    pub(super) fn meet(&mut self, plain: &[u8], schema: &TableSchema, state: &mut impl State) -> Result<Other, Failure> {
        let mut canonical = Vec::with_capacity(plain.len() + 8);
        let mut reader = Reader::new(plain);
        for column in schema.key_columns() {
            let value = row::read_plain(column.ty, &mut reader)?;
            key::encode(column.ty, value, &mut canonical).map_err(|_| WireError::Index)?;
        }
        reader.finish()?;
        if murmur2::partition(&canonical, self.settings.partitions) != self.name.partition {
            return Ok(Other { key: self.overlay.arena.add(&canonical), at: None });
        }
        let (at, new) = self.overlay.entry(&canonical);
        if new {
            let mut fresh = vec![at];
            self.read_entry(at, state).map_err(Failure::Stop)?;
            self.load_linked(&mut fresh, state).map_err(Failure::Stop)?;
            self.note_rows(&fresh).map_err(Failure::Stop)?;
        }
        if self.overlay.entries[at].key_row.is_none() && self.refused_key(schema, plain)?.is_none() {
            let span = self.overlay.arena.add(plain);
            self.overlay.entries[at].key_row = Some(span);
        }
        Ok(Other { key: self.overlay.entries[at].key, at: Some(at) })
    }

    /// Makes entries of the keys that hang together with fresh ones, and reads them from state; they join the fresh ones.
    pub(super) fn load_linked(&mut self, fresh: &mut Vec<usize>, state: &mut impl State) -> Result<(), Stop> {
        let mut next = 0;
        while let Some(at) = fresh.get(next) {
            next += 1;
            let index = &self.overlay.entries[*at].index;
            if !index.is_linked() {
                continue;
            }
            let links = index.heirs.iter().map(|heir| heir.key).chain(index.groups.iter().filter_map(|g| g.former));
            let keys: Vec<Vec<u8>> = links.map(|span| self.overlay.arena.get(span).to_vec()).collect();
            for key in &keys {
                if murmur2::partition(key, self.settings.partitions) != self.name.partition {
                    continue;
                }
                let (at, new) = self.overlay.entry(key);
                if new {
                    self.read_entry(at, state)?;
                    fresh.push(at);
                }
            }
        }
        Ok(())
    }

    fn read_entry(&mut self, at: usize, state: &mut impl State) -> Result<(), Stop> {
        let mut stored = None;
        let key = self.overlay.entries[at].key;
        state.read(self.slot, &[self.overlay.arena.get(key)], &mut |_, value| stored = Some(value.to_vec()))?;
        if let Some(value) = stored {
            let index = entry::decode(&value, &mut self.overlay.arena).map_err(|_| state::Error::Corrupt { what: "the index of a key" })?;
            self.overlay.entries[at].index = index;
        }
        Ok(())
    }

    /// Finds the rows on which groups of a key rest, for the fold that follows.
    pub(super) fn find_formers(&mut self, at: usize) -> Result<(), Stop> {
        self.scratch.formers.clear();
        let index = &self.overlay.entries[at].index;
        let first = match self.settings.fold.shape {
            Shape::Upsert => index.groups.iter().rposition(Group::is_base).unwrap_or(0),
            Shape::History { .. } => 0,
        };
        for group in first..index.groups.len() {
            let of = &self.overlay.entries[at].index.groups[group];
            let Some(former) = of.former() else { continue };
            let bound = of.sequence.clone();
            if let Some(row) = self.row_before(former, bound)? {
                self.scratch.formers.push((group, row));
            }
        }
        Ok(())
    }

    /// The row of a key just before a sequence. Such a row may itself rest on another key's: a chain, whose sequences fall.
    fn row_before(&mut self, key: Span, bound: Sequence) -> Result<Option<fold::Resolved>, Stop> {
        let Some(target) = &self.target else { return Ok(None) };
        let (mut key, mut bound) = (Some(key), bound);
        let mut chain: Vec<(usize, Sequence)> = Vec::new();
        while let Some(at) = key.and_then(|key| self.overlay.find(self.overlay.arena.get(key))) {
            let index = &self.overlay.entries[at].index;
            let base = index.base_below(&bound).map(|base| &index.groups[base]);
            key = base.and_then(Group::former);
            let below = base.map(|base| base.sequence.clone());
            chain.push((at, bound));
            let Some(below) = below else { break };
            bound = below;
        }
        let mut row = None;
        for (at, bound) in chain.into_iter().rev() {
            let index = &self.overlay.entries[at].index;
            let (marks, arena) = (&self.pending.marks, &mut self.overlay.arena);
            row = fold::before(index, marks, target.columns(), arena, &mut self.scratch, &bound, row)
                .map_err(|_| state::Error::Corrupt { what: "a row of a key" })?;
        }
        Ok(row)
    }

    /// One half of a key change has been put into its index: from now on the former key keeps what the new one rests on, or no longer.
    pub(super) fn link(&mut self, at: usize, other: usize, sequence: &Sequence, kind: Kind) {
        let (giver, taker) = if kind == Kind::Delete { (at, other) } else { (other, at) };
        if self.settings.fold.shape == Shape::Upsert && taker == at && giver != taker {
            self.prune(taker);
        }
        let index = &self.overlay.entries[taker].index;
        let rests = match index.group(sequence) {
            // Where the create half is not among what stands there, it is still to come.
            Some(group) => group.former.is_some() || !group.is_whole() || group.events[0].kind == Kind::Delete,
            // The other half is still to come.
            None => kind == Kind::Delete && (self.settings.fold.shape != Shape::Upsert || index.would_keep(sequence)),
        };
        let key = self.overlay.entries[taker].key;
        if rests {
            let arena = &self.overlay.arena;
            let heirs = &self.overlay.entries[giver].index.heirs;
            if !heirs.iter().any(|heir| heir.behind == *sequence && arena.get(heir.key) == arena.get(key)) {
                let giver = &mut self.overlay.entries[giver];
                giver.index.heirs.push(Heir { behind: sequence.clone(), key });
                giver.changed = true;
            }
        } else {
            self.disinherit(giver, taker, sequence);
        }
    }

    /// A change that the replica refused takes no row over.
    pub(super) fn disinherit(&mut self, giver: usize, taker: usize, sequence: &Sequence) {
        let key = self.overlay.entries[taker].key;
        let arena = &self.overlay.arena;
        let heirs = &mut self.overlay.entries[giver].index.heirs;
        let count = heirs.len();
        heirs.retain(|heir| heir.behind != *sequence || arena.get(heir.key) != arena.get(key));
        if heirs.len() < count {
            self.overlay.entries[giver].changed = true;
            if self.settings.fold.shape == Shape::Upsert {
                self.prune(giver);
            }
        }
    }

    /// Prunes a key. Where that lets go of a row that rested on another key, that key need not keep it any longer.
    pub(super) fn prune(&mut self, at: usize) {
        let index = &mut self.overlay.entries[at].index;
        if !index.is_linked() {
            return index.prune();
        }
        let mut work: Vec<usize> = vec![at];
        while let Some(at) = work.pop() {
            let key = self.overlay.entries[at].key;
            let index = &mut self.overlay.entries[at].index;
            if !index.is_linked() {
                index.prune();
                continue;
            }
            let resting: Vec<(Sequence, Span)> = index.groups.iter().filter_map(|g| Some((g.sequence.clone(), g.former?))).collect();
            index.prune();
            for (sequence, former) in resting {
                if self.overlay.entries[at].index.group(&sequence).is_some_and(|g| g.former.is_some()) {
                    continue;
                }
                let Some(giver) = self.overlay.find(self.overlay.arena.get(former)) else { continue };
                let arena = &self.overlay.arena;
                let giving = &mut self.overlay.entries[giver];
                let count = giving.index.heirs.len();
                giving.index.heirs.retain(|heir| heir.behind != sequence || arena.get(heir.key) != arena.get(key));
                if giving.index.heirs.len() < count {
                    giving.changed = true;
                    work.push(giver);
                }
            }
        }
    }

    /// Folds the keys again that rest on one that was altered, and those that rest on them.
    pub(super) fn refold_heirs(&mut self, at: usize, offset: i64) -> Result<(), Stop> {
        let mut seen = vec![at];
        let mut next = 0;
        while let Some(at) = seen.get(next).copied() {
            next += 1;
            let heirs: Vec<Span> = self.overlay.entries[at].index.heirs.iter().map(|heir| heir.key).collect();
            for key in heirs {
                let Some(heir) = self.overlay.find(self.overlay.arena.get(key)).filter(|heir| !seen.contains(heir)) else { continue };
                seen.push(heir);
                self.name_key(heir)?;
                let _ = self.refold(heir, Some(offset))?;
                self.name_key(heir)?;
            }
        }
        Ok(())
    }
}
