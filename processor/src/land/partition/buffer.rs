//! Records of the log that wait to be folded, with the bytes that they refer to.
//!
//! One run of bytes for all of them, so that taking a record in allocates nothing of its own. Records stay until the batch that took them has
//! landed and state has followed: a batch whose answer was lost is landed once more from here.

use std::time::Duration;

use landfall_schemas::contract::Fingerprint;

use super::Record;
use crate::land::debounce::Arrivals;

/// A run of the buffer's bytes.
pub(super) type Bytes = (u32, u32);

/// A record that waits or is in the batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffered {
    pub(super) offset: i64,
    pub(super) key: Option<Bytes>,
    pub(super) value: Bytes,
    pub(super) provenance: Bytes,
    pub(super) fingerprint: Fingerprint,
}

impl Buffered {
    pub(super) const fn value_bytes(&self) -> usize {
        (self.value.1 - self.value.0) as usize
    }
}

/// What waits, and before it what is in the batch.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// What the records refer to; lent out while they are folded.
    pub(super) bytes: Vec<u8>,
    records: Vec<Buffered>,
    taken: usize,
    arrivals: Arrivals,
}

impl Buffer {
    /// Takes a record in. Records come in the order of their offsets.
    pub(super) fn push(&mut self, record: Record<'_>, fingerprint: Fingerprint, now: Duration) {
        let bytes = &mut self.bytes;
        let mut add = |part: &[u8]| {
            let start = bytes.len() as u32;
            bytes.extend_from_slice(part);
            (start, bytes.len() as u32)
        };
        let key = record.key.map(&mut add);
        let (value, provenance) = (add(record.value), add(record.provenance));
        self.records.push(Buffered { offset: record.offset, key, value, provenance, fingerprint });
        self.arrivals.note(now, record.value.len());
    }

    /// When what waits arrived, and how much it is.
    pub(super) const fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// Records that are held, those of the batch included.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// The offset behind the last record; nothing where none is held.
    pub(super) fn end(&self) -> Option<i64> {
        self.records.last().map(|r| r.offset + 1)
    }

    /// What waits.
    pub(super) fn waiting(&self) -> &[Buffered] {
        &self.records[self.taken..]
    }

    /// The provenance of the record at an offset.
    pub(super) fn provenance(&self, offset: i64) -> Option<&[u8]> {
        let at = self.records.binary_search_by_key(&offset, |r| r.offset).ok()?;
        Some(self.get(self.records.get(at)?.provenance))
    }

    /// The bytes of a run.
    pub(super) fn get(&self, (start, end): Bytes) -> &[u8] {
        &self.bytes[start as usize..end as usize]
    }

    /// The first `count` of what waits are in the batch now.
    pub(super) fn take(&mut self, count: usize) {
        self.taken += count;
        // What was not taken keeps the times of the whole: it has waited already, so it goes with the next batch.
        let rest = &self.records[self.taken..];
        if rest.is_empty() {
            self.arrivals = Arrivals::default();
        } else {
            (self.arrivals.rows, self.arrivals.bytes) = (rest.len(), rest.iter().map(Buffered::value_bytes).sum());
        }
    }

    /// Forgets what waits; it will not be asked for again under this claim.
    pub(super) fn forget_waiting(&mut self) {
        self.records.truncate(self.taken);
        self.bytes.truncate(self.records.last().map_or(0, |r| r.provenance.1 as usize));
        self.bytes.shrink_to_fit();
        self.arrivals = Arrivals::default();
    }

    /// Lets go of the batch's records; of empty memory `keep` bytes stay.
    pub(super) fn release(&mut self, keep: usize) {
        if self.taken == self.records.len() {
            self.bytes.clear();
            self.bytes.shrink_to(keep);
            self.records.clear();
            (self.taken, self.arrivals) = (0, Arrivals::default());
        } else if self.taken * 2 > self.records.len() {
            self.compact();
        }
    }

    fn compact(&mut self) {
        let from = self.records.get(self.taken).map_or(self.bytes.len() as u32, |r| r.key.unwrap_or(r.value).0);
        drop(self.bytes.drain(..from as usize));
        drop(self.records.drain(..self.taken));
        self.taken = 0;
        for record in &mut self.records {
            for (start, end) in record.key.iter_mut().chain([&mut record.value, &mut record.provenance]) {
                *start -= from;
                *end -= from;
            }
        }
    }
}
