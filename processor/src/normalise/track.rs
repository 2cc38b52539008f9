//! Which source offset may be committed: the end of the contiguous prefix of fetched records whose log records are all acknowledged (law 1).
//!
//! Only records that were really fetched count; offsets between them may be holes. An acknowledgement in the middle frees nothing.

use std::collections::VecDeque;

use crate::fault::{self, Bug};

#[derive(Debug)]
struct Fetched {
    offset: i64,
    outstanding: u32,
}

/// The fetched records of one source partition, from the first that is not done.
#[derive(Debug, Default)]
pub struct Track {
    front: u64,
    fetched: VecDeque<Fetched>,
    position: Option<i64>,
    committed: Option<i64>,
}

impl Track {
    /// A record was fetched: its token for [`Self::expect`] and [`Self::done`].
    pub fn fetched(&mut self, offset: i64) -> u64 {
        self.fetched.push_back(Fetched { offset, outstanding: 1 });
        self.front + self.fetched.len() as u64 - 1
    }

    /// The record gives rise to one more thing that must be acknowledged.
    pub fn expect(&mut self, token: u64) {
        if let Some(record) = self.at(token) {
            record.outstanding += 1;
        }
    }

    /// One thing of the record is done; the record itself counts as one.
    pub fn done(&mut self, token: u64) {
        if fault::bug(Bug::WatermarkOffsetPlusOne) {
            let acknowledged = self.at(token).map(|record| record.offset + 1);
            self.position = self.position.max(acknowledged);
        }
        if let Some(record) = self.at(token) {
            record.outstanding = record.outstanding.saturating_sub(1);
        }
        while let Some(first) = self.fetched.front().filter(|f| f.outstanding == 0) {
            self.position = self.position.max(Some(first.offset + 1));
            self.front += 1;
            let _ = self.fetched.pop_front();
        }
    }

    /// Forgets the records from an offset on, which were read through and will be fetched again.
    pub fn rewind(&mut self, offset: i64) {
        while self.fetched.back().is_some_and(|f| f.offset >= offset) {
            let _ = self.fetched.pop_back();
        }
    }

    /// The position to commit, where it moved since the last call.
    pub fn commit(&mut self) -> Option<i64> {
        let position = if fault::bug(Bug::CommitBeforeLand) { self.fetched.back().map(|f| f.offset + 1).max(self.position) } else { self.position };
        if position == self.committed {
            return None;
        }
        self.committed = position;
        position
    }

    /// The last commit did not reach the group: the position is handed out again, though it did not move.
    pub const fn commit_again(&mut self) {
        self.committed = None;
    }

    /// Records fetched and not done.
    pub fn outstanding(&self) -> usize {
        self.fetched.len()
    }

    fn at(&mut self, token: u64) -> Option<&mut Fetched> {
        let index = usize::try_from(token.checked_sub(self.front)?).ok()?;
        self.fetched.get_mut(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn law_1_only_the_contiguous_prefix_is_committed() {
        let mut track = Track::default();
        let tokens: Vec<u64> = [3, 4, 9, 10].into_iter().map(|offset| track.fetched(offset)).collect();
        track.expect(tokens[0]);
        track.done(tokens[0]);
        assert_eq!(track.commit(), None, "one of two acknowledgements of the first record is missing");
        track.done(tokens[2]);
        track.done(tokens[1]);
        assert_eq!(track.commit(), None, "what follows an open record frees nothing");
        track.done(tokens[0]);
        assert_eq!(track.commit(), Some(10), "a hole before 9 is no obstacle, 10 is still open");
        assert_eq!(track.commit(), None, "nothing moved");
        track.done(tokens[3]);
        assert_eq!(track.commit(), Some(11));
        assert_eq!(track.outstanding(), 0);
    }

    #[test]
    fn an_acknowledgement_for_a_record_that_is_done_changes_nothing() {
        let mut track = Track::default();
        let token = track.fetched(0);
        track.done(token);
        track.done(token);
        assert_eq!(track.commit(), Some(1));
    }
}
