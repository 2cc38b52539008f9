//! What is checked in a run, against the naive fold of the distinct source records in a prefix of the log.

use landfall::sink::memory::Style;
use landfall::sink::{Batch, VERSION_OFFSET_BITS};
use landfall_schemas::TableSchema;

use crate::oracle::{self, Rules, Values};
use crate::small;

use super::Met;
use super::world::{REPLICA, World, tell};

const RULES: Rules = Rules { user: false, blank: false, tracked: [true; 3] };

impl World {
    /// The row of a key after the first records of a log partition.
    fn expected(&self, l: usize, next: i64, key: u8) -> Option<Values> {
        let log = &self.logs[l];
        let distinct = usize::try_from(next - 1).map_or(0, |last| log.upto[last]);
        oracle::latest(&log.distinct[..distinct], key, RULES)
    }

    /// Every row of a batch is what the prefix named by its version folds to, each identity stands there once, and equal versions are equal.
    pub(super) fn check_batch(&mut self, i: usize, schema: &TableSchema, batch: &Batch) {
        let (id, l) = (self.landers[i].id, self.landers[i].l);
        if batch.is_empty() {
            self.met(Met::EmptyBatch);
        }
        if batch.expected == Some(batch.next) {
            self.met(Met::Slice);
        }
        let mut keys = Vec::new();
        for delta in batch.deltas() {
            let key = small::read_key(delta.key);
            let row = delta.row.map(|row| small::read_row_of(schema, row).1);
            let next = (delta.version & ((1 << VERSION_OFFSET_BITS) - 1)).cast_signed();
            tell!(self, "    key {key} version {next}: {row:?}");
            self.met(if row.is_some() { Met::Delta } else { Met::Tombstone });
            if keys.contains(&key) {
                return self.fail(|| format!("lander {id} sends key {key} twice in a batch"));
            }
            keys.push(key);
            let known = *self.versions.entry((key, delta.version)).or_insert(row);
            if known != row {
                return self.fail(|| format!("key {key} version {:x} has both {known:?} and {row:?}", delta.version));
            }
            if self.dice.chance(1, 3) {
                self.met(Met::Pure);
                let expected = self.expected(l, next, key);
                if expected != row {
                    return self.fail(|| format!("key {key} at log {l}:{} is {row:?}, the fold of that prefix has {expected:?}", next - 1));
                }
            }
        }
    }

    /// A look at the store at any time: it shows the fold of the prefix `K`, where nothing newer is on its way into a replacing store. A mark lands
    /// in slices, and `K` passes it with the last: until then a key may show it already.
    pub(super) fn sample(&mut self, l: usize) {
        self.met(Met::Sample);
        let wrong = {
            let replicas = self.store.replicas();
            let replica = &replicas[REPLICA];
            let k = replica.cursors.get(&(l as i32)).filter(|c| c.build == replica.build).and_then(|c| c.next).unwrap_or(0);
            let low = u64::from(replica.build) << VERSION_OFFSET_BITS;
            let floor = low + k.cast_unsigned();
            self.logs[l].keys.iter().find_map(|key| {
                let stored = replica.rows.get(&small::plain_key(*key)).filter(|s| s.version >= low);
                if self.plan.style == Style::Replacing && stored.is_some_and(|s| s.version > floor) {
                    return None;
                }
                let schema = replica.schema.as_ref().unwrap_or(&small::SCHEMA);
                let shown = stored.and_then(|s| s.row.as_deref()).map(|row| small::read_row_of(schema, row).1);
                let expected = self.expected(l, k, *key);
                let is_marked = usize::try_from(k).is_ok_and(|k| self.logs[l].entries.get(k).is_some_and(|e| e.key.is_none()));
                let is_right = shown == expected || (is_marked && shown == self.expected(l, k + 1, *key));
                (!is_right).then(|| format!("at K = {k} of log {l}, key {key} shows {shown:?}, the fold of the prefix has {expected:?}"))
            })
        };
        if let Some(wrong) = wrong {
            self.fail(|| wrong);
        }
    }

    /// Everything is landed: the replica is the fold of the whole log.
    pub(super) fn check_rest(&mut self, when: &str) {
        let mut expected: Vec<(u8, Values)> = Vec::new();
        for (l, log) in self.logs.iter().enumerate() {
            let end = log.entries.len() as i64;
            expected.extend(log.keys.iter().filter_map(|key| Some((*key, self.expected(l, end, *key)?))));
        }
        expected.sort_unstable();
        let shown = self.shown();
        if shown != expected {
            self.fail(|| format!("{when}, the replica shows {shown:?}, the fold of the log has {expected:?}"));
        }
    }

    fn shown(&self) -> Vec<(u8, Values)> {
        let replicas = self.store.replicas();
        let replica = &replicas[REPLICA];
        let schema = replica.schema.as_ref().unwrap_or(&small::SCHEMA);
        let mut shown: Vec<(u8, Values)> = replica.live().map(|(_, row)| small::read_row_of(schema, row)).collect();
        shown.sort_unstable();
        shown
    }

    /// The replica is the table of the source.
    pub(super) fn check_truth(&mut self) {
        let mut truth: Vec<(u8, Values)> = (0..self.plan.keys).filter_map(|k| Some((self.plan.ids[k], self.source.table[k]?))).collect();
        truth.sort_unstable();
        let shown = self.shown();
        // A replica that lacks what its store cannot hold is not the table.
        if shown != truth && self.logs.iter().all(|log| log.refused.is_empty()) {
            self.fail(|| format!("at rest, the replica shows {shown:?}, the table of the source has {truth:?}"));
        }
        for (l, log) in self.logs.iter().enumerate() {
            if let Some(part) = log.due.iter().position(|(due, seen)| due.len() != *seen) {
                self.violation.get_or_insert_with(|| format!("at rest, log {l} lacks records of source {part}"));
            }
        }
    }
}
