//! State in memory: for the simulator, and for tests that need no disk. A copy of it is an older state directory.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::{Error, Found, Slot, SlotName, State, Writes};

#[derive(Clone, Debug, Default)]
struct Contents {
    keys: BTreeMap<Vec<u8>, Vec<u8>>,
    meta: Option<Vec<u8>>,
}

/// A map that behaves like a state directory.
#[derive(Clone, Debug, Default)]
pub struct MemoryState {
    names: BTreeMap<SlotName, Slot>,
    slots: BTreeMap<Slot, Contents>,
    next: u32,
}

impl MemoryState {
    /// Number of keys in all slots.
    pub fn keys(&self) -> usize {
        self.slots.values().map(|c| c.keys.len()).sum()
    }

    /// What is stored of each key, in all slots.
    pub fn values(&self) -> impl Iterator<Item = &[u8]> {
        self.slots.values().flat_map(|c| c.keys.values().map(Vec::as_slice))
    }
}

impl State for MemoryState {
    fn open(&mut self, name: &SlotName) -> Result<(Slot, Option<Vec<u8>>), Error> {
        match self.names.get(name) {
            Some(slot) => Ok((*slot, self.slots.get(slot).and_then(|c| c.meta.clone()))),
            None => Ok((self.discard(name)?, None)),
        }
    }

    fn read(&mut self, slot: Slot, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<(), Error> {
        if let Some(contents) = self.slots.get(&slot) {
            for (i, key) in keys.iter().enumerate() {
                if let Some(value) = contents.keys.get(*key) {
                    found(i, value);
                }
            }
        }
        Ok(())
    }

    fn scan(&mut self, slot: Slot, behind: Option<&[u8]>, found: Found<'_>) -> Result<(), Error> {
        let Some(contents) = self.slots.get(&slot) else { return Ok(()) };
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        for (key, value) in contents.keys.range::<[u8], _>((from, Bound::Unbounded)) {
            if found(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn write(&mut self, slot: Slot, writes: &Writes, meta: &[u8]) -> Result<(), Error> {
        let contents = self.slots.entry(slot).or_default();
        for (key, value) in writes.iter() {
            let _ = contents.keys.insert(key.to_vec(), value.to_vec());
        }
        contents.meta = Some(meta.to_vec());
        Ok(())
    }

    fn discard(&mut self, name: &SlotName) -> Result<Slot, Error> {
        self.next += 1;
        let slot = Slot(self.next);
        if let Some(old) = self.names.insert(name.clone(), slot) {
            let _ = self.slots.remove(&old);
        }
        let _ = self.slots.insert(slot, Contents::default());
        Ok(slot)
    }
}
