//! NORMALISE: source records become records of the change log.
//!
//! Stateless: what comes out is a pure function of the record and of the source's epoch. This core has no I/O: a record goes in, records to
//! produce come out in an [`Outbox`], acknowledgements go in, and the offset that may be committed comes out (`track`, law 1). A source that
//! goes back in its own history is noticed by `position`, one that drops a column by `shape`.

pub mod partition;
pub mod position;
pub mod quarantine;
pub mod shape;
pub mod track;

/// What is to be produced. Spans point into `bytes`; memory is kept from one use to the next.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    records: Vec<OutSpan>,
}

#[derive(Clone, Copy, Debug)]
struct OutSpan {
    to: Destination,
    key: Option<(u32, u32)>,
    value: (u32, u32),
    provenance: (u32, u32),
    token: u64,
}

/// Where a record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A partition of the table's log.
    Log(i32),
}

/// A record to produce.
#[derive(Clone, Copy, Debug)]
pub struct Out<'a> {
    /// Where it goes.
    pub to: Destination,
    /// Kafka key.
    pub key: Option<&'a [u8]>,
    /// Kafka value.
    pub value: &'a [u8],
    /// Value of the provenance header.
    pub provenance: &'a [u8],
    /// Hand this to [`partition::Partition::acknowledged`] once the broker has it.
    pub token: u64,
}

impl Outbox {
    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
    }

    /// Adds a record, written by the three functions.
    pub fn add(&mut self, to: Destination, token: u64, key: Option<&[u8]>, value: impl FnOnce(&mut Vec<u8>), provenance: impl FnOnce(&mut Vec<u8>)) {
        let mut part = |write: &mut dyn FnMut(&mut Vec<u8>)| {
            let start = self.bytes.len() as u32;
            write(&mut self.bytes);
            (start, self.bytes.len() as u32)
        };
        let key = key.map(|key| part(&mut |out| out.extend_from_slice(key)));
        let (mut value, mut provenance) = (Some(value), Some(provenance));
        let value = part(&mut |out| value.take().into_iter().for_each(|write| write(out)));
        let provenance = part(&mut |out| provenance.take().into_iter().for_each(|write| write(out)));
        self.records.push(OutSpan { to, key, value, provenance, token });
    }

    /// The records in the order in which they must be produced.
    pub fn records(&self) -> impl ExactSizeIterator<Item = Out<'_>> {
        let slice = |(start, end): (u32, u32)| &self.bytes[start as usize..end as usize];
        self.records.iter().map(move |r| Out {
            to: r.to,
            key: r.key.map(slice),
            value: slice(r.value),
            provenance: slice(r.provenance),
            token: r.token,
        })
    }
}
