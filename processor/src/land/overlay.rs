//! The keys that a batch touches, while it is being folded.
//!
//! Nothing of it is written before the batch has landed (law 2). An entry holds the key's index, the rows that the replica shows for it, and
//! whether any change of the batch altered them: a batch emits the final state of every row identity that was touched on the way, also where
//! the last touch put back what the first one took (INV-2; SEMANTICS.md C.3).

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use smallvec::SmallVec;
use std::hash::BuildHasher;

use super::fold::Run;
use super::index::{Arena, Index, RowSpan, Span};

/// One key in the batch.
#[derive(Debug)]
pub struct Entry {
    /// The canonical key, which the log record is keyed by.
    pub key: Span,
    /// The encoded key columns, once a change or a row has shown them.
    pub key_row: Option<Span>,
    /// The index as the batch leaves it.
    pub index: Index,
    /// The rows that it folds to.
    pub runs: SmallVec<[Run; 1]>,
    /// Log offset of the last change that altered the rows.
    pub touched: Option<i64>,
    /// Whether the index differs from what is stored.
    pub changed: bool,
    /// The key's row before the batch.
    pub before: Option<RowSpan>,
}

/// All keys of a batch, with the bytes that they refer to.
#[derive(Debug)]
pub struct Overlay {
    /// Keys and rows.
    pub arena: Arena,
    /// Entries in the order of their first appearance.
    pub entries: Vec<Entry>,
    table: HashTable<u32>,
    seed: FixedState,
}

/// Memory that an empty overlay keeps for the next batch.
const KEEP_BYTES: usize = 8 << 20;

impl Overlay {
    /// An empty overlay. The seed keeps hostile keys from aiming at one bucket; results never depend on it.
    pub fn new(seed: u64) -> Self {
        Self { arena: Arena::default(), entries: Vec::new(), table: HashTable::new(), seed: FixedState::with_seed(seed) }
    }

    /// The entry of a key: its number, and whether it is new and wants to be read from state.
    pub fn entry(&mut self, key: &[u8]) -> (usize, bool) {
        let hash = |key: &[u8]| self.seed.hash_one(key);
        let (arena, entries) = (&self.arena, &self.entries);
        if let Some(at) = self.table.find(hash(key), |at| arena.get(entries[*at as usize].key) == key) {
            return (*at as usize, false);
        }
        let at = self.entries.len();
        let span = self.arena.add(key);
        self.entries.push(Entry {
            key: span,
            key_row: None,
            index: Index::default(),
            runs: SmallVec::new(),
            touched: None,
            changed: false,
            before: None,
        });
        let (arena, entries) = (&self.arena, &self.entries);
        let _ = self.table.insert_unique(hash(key), at as u32, |at| hash(arena.get(entries[*at as usize].key)));
        (at, true)
    }

    /// The number of a key's entry, where it has one.
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let at = self.table.find(self.seed.hash_one(key), |at| self.arena.get(self.entries[*at as usize].key) == key)?;
        Some(*at as usize)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.arena.clear(KEEP_BYTES);
        self.entries.clear();
        self.table.clear();
    }
}
