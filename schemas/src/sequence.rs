//! Where a change stands in the history of its source.
//!
//! A sequence is an order-preserving string of bytes: comparing bytes compares positions (law 3). A dialect's own sequence has a fixed
//! width, (epoch, commit position, order within the transaction, ordinal within the event); a sequence of user columns is their canonical
//! key encoding. Never wall time, never an LSN alone, never the log offset (ARCHITECTURE.md, Repeats, zombies and order).

use std::fmt;

use smallvec::SmallVec;

/// Bytes of a dialect's own sequence.
pub const DIALECT_BYTES: usize = 24;

/// An order-preserving position; sequences of one table are of one kind.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sequence {
    bytes: SmallVec<[u8; DIALECT_BYTES]>,
}

impl Clone for Sequence {
    /// As bytes: what would be derived clones them one by one, and sequences are cloned for every change.
    #[inline]
    fn clone(&self) -> Self {
        Self::from_bytes(self.as_bytes())
    }
}

impl Sequence {
    /// A dialect's own sequence.
    ///
    /// `epoch`: timeline of the source; `commit`: commit position (Postgres LSN, binlog file ordinal); `order`: order within or behind it
    /// (row LSN, binlog position); `ordinal`: row within the event.
    pub fn of_dialect(epoch: u32, commit: u64, order: u64, ordinal: u32) -> Self {
        let mut bytes = [0; DIALECT_BYTES];
        bytes[..4].copy_from_slice(&epoch.to_be_bytes());
        bytes[4..12].copy_from_slice(&commit.to_be_bytes());
        bytes[12..20].copy_from_slice(&order.to_be_bytes());
        bytes[20..].copy_from_slice(&ordinal.to_be_bytes());
        Self { bytes: SmallVec::from_buf(bytes) }
    }

    /// A sequence out of order-preserving bytes, as stored or as encoded by `key`.
    #[inline]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { bytes: SmallVec::from_slice(bytes) }
    }

    /// The bytes, whose order is the order of sequences.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The parts of a dialect's own sequence, or `None` for one of user columns.
    pub fn dialect_parts(&self) -> Option<(u32, u64, u64, u32)> {
        let b: &[u8; DIALECT_BYTES] = self.bytes.as_slice().try_into().ok()?;
        let (epoch, rest) = b.split_first_chunk::<4>()?;
        let (commit, rest) = rest.split_first_chunk::<8>()?;
        let (order, rest) = rest.split_first_chunk::<8>()?;
        let (ordinal, _) = rest.split_first_chunk::<4>()?;
        Some((u32::from_be_bytes(*epoch), u64::from_be_bytes(*commit), u64::from_be_bytes(*order), u32::from_be_bytes(*ordinal)))
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dialect_parts() {
            Some((epoch, commit, order, ordinal)) => write!(f, "{epoch}/{commit}/{order}/{ordinal}"),
            None => self.bytes.iter().try_for_each(|b| write!(f, "{b:02x}")),
        }
    }
}

/// What stands at a rank, in the order in which equal sequences are folded: a sweep below the rows of its snapshot, a bare tombstone right
/// behind the record that it follows, a truncate over everything at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RankClass {
    /// The end of a full snapshot.
    Sweep = 0,
    /// A change of one key.
    Event = 1,
    /// A null value in the source (the hidden tick of SEMANTICS.md A.1.5).
    Tombstone = 2,
    /// A truncate of the whole table.
    Truncate = 3,
}

/// A place in the fold of one key: sequence first, class second.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    /// The sequence.
    pub sequence: Sequence,
    /// What stands there.
    pub class: RankClass,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_compare_as_positions_do() {
        let ascending = [
            Sequence::of_dialect(0, 5, 900, 0),
            Sequence::of_dialect(0, 6, 1, 0),
            Sequence::of_dialect(0, 6, 1, 1),
            Sequence::of_dialect(0, 6, 256, 0),
            Sequence::of_dialect(0, u64::MAX, 0, 0),
            Sequence::of_dialect(1, 0, 0, 0),
        ];
        assert!(ascending.is_sorted());
        assert_eq!(ascending[3].dialect_parts(), Some((0, 6, 256, 0)));
        assert_eq!(Sequence::from_bytes(ascending[3].as_bytes()), ascending[3]);
    }

    #[test]
    fn classes_order_equal_sequences() {
        let rank = |class| Rank { sequence: Sequence::of_dialect(0, 1, 1, 0), class };
        assert!(rank(RankClass::Sweep) < rank(RankClass::Event));
        assert!(rank(RankClass::Event) < rank(RankClass::Tombstone));
        assert!(rank(RankClass::Tombstone) < rank(RankClass::Truncate));
    }
}
