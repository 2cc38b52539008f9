//! How much the partitions of one store hold together, fetched and not landed, and who may be given more.
//!
//! Memory must not grow with the number of partitions, and a partition whose store hangs must keep nobody else from going on: once all
//! together hold too much, each may still hold its share.

/// Bytes that the partitions of one store may hold together before each is held to its share.
pub const HELD_BYTES_MAX: usize = 64 << 20;

/// What is held, as far as it is known since all partitions were last weighed.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    bytes: usize,
    share: usize,
}

impl Default for Held {
    /// Nothing is held.
    fn default() -> Self {
        Self { bytes: 0, share: HELD_BYTES_MAX }
    }
}

impl Held {
    /// Weighs all partitions by what each of them holds.
    pub fn weigh(partitions: impl Iterator<Item = usize>) -> Self {
        let (count, bytes) = partitions.fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes));
        Self { bytes, share: HELD_BYTES_MAX / count.max(1) }
    }

    /// Bytes that are held.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// A partition was given so many bytes more.
    pub const fn note(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Whether a partition that holds so many bytes may be given more.
    pub const fn has_room(&self, own: usize) -> bool {
        self.bytes <= HELD_BYTES_MAX || own <= self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_holds_everything_keeps_nobody_from_going_on() {
        let held = Held::weigh([2 * HELD_BYTES_MAX, 0, 1000, 0].into_iter());
        assert!(!held.has_room(2 * HELD_BYTES_MAX));
        assert!(held.has_room(0) && held.has_room(1000) && held.has_room(HELD_BYTES_MAX / 4));
        assert!(!held.has_room(HELD_BYTES_MAX / 4 + 1));
    }

    #[test]
    fn what_is_given_counts_at_once() {
        let mut held = Held::weigh([HELD_BYTES_MAX / 2; 2].into_iter());
        assert!(held.has_room(HELD_BYTES_MAX / 2 + 1));
        held.note(1);
        assert!(!held.has_room(HELD_BYTES_MAX / 2 + 1));
        assert!(Held::default().has_room(HELD_BYTES_MAX));
    }
}
