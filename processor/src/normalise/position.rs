//! Whether a source partition goes on in its own history.
//!
//! Positions of one source partition rise. A connector that was restarted sends again from its last stored position: the position dips below
//! the high-water mark and regains it. A source that was restored or failed over to an earlier state never regains it by the same events;
//! folding its changes would silently lose them below what is there. So a dip is read through without producing anything: when the
//! high-water mark is regained, the partition rewinds to where the dip began and goes on; when it is not, the partition stops by name
//! (`source.position_regressed`; ARCHITECTURE.md, Epoch). The high-water mark travels in the metadata of the committed offset.

use std::time::Duration;

use landfall_schemas::Sequence;

/// A dip that has not been regained after so long at the end of the partition is a regression: connectors send again within seconds.
pub const GRACE: Duration = Duration::from_secs(60);

/// A dip of so many records is one too: no connector sends that much again, and nothing of it can be committed meanwhile.
pub const RECORDS_MAX: u64 = 2_000_000;

/// What to do with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// Produce it.
    Go,
    /// Read on without producing.
    Withhold,
    /// The dip is regained: read again from this offset, and produce.
    Rewind(i64),
    /// The dip is too long.
    Regressed,
}

#[derive(Clone, Debug)]
struct Dip {
    from: i64,
    since: Duration,
    records: u64,
}

/// The high-water mark of one source partition.
#[derive(Clone, Debug, Default)]
pub struct Position {
    high: Option<Sequence>,
    dip: Option<Dip>,
    /// Records below this offset were judged already, by a dip that was regained.
    judged: i64,
}

impl Position {
    /// Takes up a high-water mark that was left in an offset's metadata.
    pub fn resume(metadata: &str) -> Self {
        let bytes: Option<Vec<u8>> = (0..metadata.len() / 2).map(|i| u8::from_str_radix(metadata.get(2 * i..2 * i + 2)?, 16).ok()).collect();
        Self { high: bytes.filter(|b| !b.is_empty()).map(|b| Sequence::from_bytes(&b)), ..Self::default() }
    }

    /// The high-water mark as metadata of an offset.
    pub fn metadata(&self) -> String {
        let mut text = String::new();
        if let Some(high) = &self.high {
            landfall_schemas::value::push_hex(&mut text, high.as_bytes());
        }
        text
    }

    /// Judges a record. `sequence` is its position, where it has one that must rise.
    pub fn judge(&mut self, offset: i64, sequence: Option<&Sequence>, now: Duration) -> Course {
        if offset < self.judged {
            return Course::Go;
        }
        // An epoch that rose is the operator's word that the source went back: its positions begin anew.
        let below = match (&self.high, sequence) {
            (Some(high), Some(s)) => s < high,
            _ => false,
        };
        match &mut self.dip {
            None if !below => {
                if let Some(s) = sequence {
                    self.high = Some(s.clone());
                }
                Course::Go
            }
            None => {
                self.dip = Some(Dip { from: offset, since: now, records: 1 });
                Course::Withhold
            }
            Some(dip) => {
                dip.records += 1;
                if sequence.is_some() && !below {
                    let from = dip.from;
                    self.judged = offset;
                    self.dip = None;
                    return Course::Rewind(from);
                }
                if dip.records > RECORDS_MAX { Course::Regressed } else { Course::Withhold }
            }
        }
    }

    /// Whether an open dip has lasted too long.
    pub fn has_regressed(&self, now: Duration) -> bool {
        self.dip.as_ref().is_some_and(|dip| now >= dip.since + GRACE)
    }

    /// True while a dip is open: nothing may be committed.
    pub const fn is_dipping(&self) -> bool {
        self.dip.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(commit: u64) -> Sequence {
        Sequence::of_dialect(0, commit, commit, 0)
    }

    #[test]
    fn a_connector_that_sends_again_is_followed() {
        let mut position = Position::default();
        for (offset, commit) in [(0, 10), (1, 20), (2, 30)] {
            assert_eq!(position.judge(offset, Some(&at(commit)), Duration::ZERO), Course::Go);
        }
        assert_eq!(position.judge(3, Some(&at(20)), Duration::ZERO), Course::Withhold);
        assert_eq!(position.judge(4, None, Duration::ZERO), Course::Withhold, "a tombstone inside the dip");
        assert!(position.is_dipping() && !position.has_regressed(Duration::from_secs(59)));
        assert_eq!(position.judge(5, Some(&at(30)), Duration::ZERO), Course::Rewind(3));
        for (offset, commit) in [(3, 20), (5, 30), (6, 40)] {
            assert_eq!(position.judge(offset, Some(&at(commit)), Duration::ZERO), Course::Go);
        }
    }

    #[test]
    fn a_source_that_went_back_is_noticed_even_after_a_restart() {
        let mut position = Position::default();
        let _ = position.judge(0, Some(&at(30)), Duration::ZERO);
        let mut position = Position::resume(&position.metadata());
        assert_eq!(position.judge(1, Some(&at(5)), Duration::from_secs(1)), Course::Withhold);
        assert!(position.has_regressed(Duration::from_secs(61)));
        let mut raised = Position::resume(&position.metadata());
        assert_eq!(raised.judge(1, Some(&Sequence::of_dialect(1, 5, 5, 0)), Duration::ZERO), Course::Go, "a new epoch outranks");
    }
}
