//! What landing remembers between batches: the index of every key, and how far the log is folded into it (`S`).
//!
//! State is kept per slot: one log partition of one replica in one generation. A write moves keys and `S` together or not at all, and is
//! always behind the store (law 2), so losing state costs a refold of the log and nothing else. `memory` is the twin that the simulator
//! runs; both pass one conformance suite.

pub mod memory;
pub mod rocks;

use std::ops::ControlFlow;

/// Names a slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotName {
    /// Full name of the replica (`topology.store.table`): another topology may have used the directory before.
    pub replica: String,
    /// Generation of the table's log.
    pub generation: u32,
    /// Log partition.
    pub partition: i32,
}

/// A slot in use. Numbers are never used again, so a discarded slot cannot show through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// Why state cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory belongs to another process, or cannot be opened.
    #[error("state directory {path:?} cannot be opened")]
    Open {
        /// The directory.
        path: std::path::PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Written by another layout than this build reads.
    #[error("state has layout {found}, this build reads {expected}")]
    Layout {
        /// The layout found.
        found: u32,
        /// The layout of this build.
        expected: u32,
    },
    /// Bytes that no build writes.
    #[error("state is damaged: {what}")]
    Corrupt {
        /// What was found where.
        what: &'static str,
    },
    /// The engine failed.
    #[error("state cannot be read or written")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The writes of one batch; keys are unique.
#[derive(Debug, Default)]
pub struct Writes {
    bytes: Vec<u8>,
    spans: Vec<(u32, u32, u32)>,
}

impl Writes {
    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// Adds the value of a key, written by `value`.
    pub fn put(&mut self, key: &[u8], value: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len() as u32;
        value(&mut self.bytes);
        self.spans.push((start, middle, self.bytes.len() as u32));
    }

    /// Keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.spans.iter().map(|(a, b, c)| (&self.bytes[*a as usize..*b as usize], &self.bytes[*b as usize..*c as usize]))
    }
}

/// Takes a key and its value, and says whether it wants more.
pub type Found<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// A store of state. Single writer: one lander thread uses it; calls are synchronous.
pub trait State {
    /// The slot of a name, made where there is none, and the meta bytes that its last write left.
    fn open(&mut self, name: &SlotName) -> Result<(Slot, Option<Vec<u8>>), Error>;

    /// Reads values: `found(i, value)` for each of `keys` that has one, in any order.
    fn read(&mut self, slot: Slot, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<(), Error>;

    /// Reads a slot in the order of its keys, behind a key or from the first one: `found(key, value)`, until it says that it has enough.
    fn scan(&mut self, slot: Slot, behind: Option<&[u8]>, found: Found<'_>) -> Result<(), Error>;

    /// Writes keys and meta as one: after a crash both are there or neither.
    fn write(&mut self, slot: Slot, writes: &Writes, meta: &[u8]) -> Result<(), Error>;

    /// Forgets the slot of a name and gives it a new, empty one.
    fn discard(&mut self, name: &SlotName) -> Result<Slot, Error>;
}
