//! When a batch lands: after a quiet moment, at the latest after a maximum delay, at once when it is full.
//!
//! `quiet` 0 waits for nothing to become quiet: what arrives during a landing goes together in the next, and small landings keep apart by what
//! they cost ([`Debounce::pace`]). Times are durations since the process began, handed in
//! from outside: this core has no clock (SEMANTICS.md D.2, Debounce).

use std::time::Duration;

/// A partition keeps its store busy for one part in so many of the time, while batches are small.
const PACE: u32 = 20;
/// The longest that landings are kept apart.
const PACE_MAX: Duration = Duration::from_millis(500);
/// A batch of so many records is large enough to land whenever it can.
const PACED_ROWS: usize = 20_000;

/// The operator's choice for a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debounce {
    /// How long nothing may have arrived.
    pub quiet: Duration,
    /// How long the first record may wait at most.
    pub max_delay: Duration,
    /// A batch of so many records lands at once.
    pub rows_max: usize,
    /// A batch of so many bytes lands at once.
    pub bytes_max: usize,
}

/// What has arrived and not been taken into a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// When the first and the last of it arrived.
    pub at: Option<(Duration, Duration)>,
    /// Records.
    pub rows: usize,
    /// Bytes.
    pub bytes: usize,
}

impl Arrivals {
    /// Notes another record.
    pub fn note(&mut self, now: Duration, bytes: usize) {
        let first = self.at.map_or(now, |(first, _)| first);
        self.at = Some((first, now));
        self.rows += 1;
        self.bytes += bytes;
    }
}

impl Debounce {
    /// How long after a landing that took so long the next one of the same partition begins at the earliest, unless [`PACED_ROWS`] wait.
    ///
    /// A landing costs a store about the same whether it brings one row or a thousand, so under a stream of changes landings that follow each
    /// other at once would keep a store busy with themselves. A change that arrives alone never waits for this: the last landing is long over.
    pub fn pace(took: Duration) -> Duration {
        (took * PACE).min(PACE_MAX)
    }

    /// When what has arrived is due; `None` where nothing has. A small batch waits for `paced_until`, though never longer than it may at all.
    pub fn due(&self, arrivals: &Arrivals, paced_until: Duration) -> Option<Duration> {
        let (first, last) = arrivals.at?;
        if arrivals.rows >= self.rows_max || arrivals.bytes >= self.bytes_max {
            return Some(first);
        }
        let latest = first + self.max_delay;
        let due = (last + self.quiet).min(latest);
        Some(if arrivals.rows >= PACED_ROWS { due } else { due.max(paced_until.min(latest)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn landings_are_kept_apart_by_what_they_cost() {
        assert_eq!(Debounce::pace(Duration::ZERO), Duration::ZERO);
        assert_eq!(Debounce::pace(ms(2)), ms(40));
        assert_eq!(Debounce::pace(ms(5000)), ms(500));
    }

    #[test]
    fn a_small_batch_waits_for_its_turn_but_not_beyond_the_longest_wait() {
        let debounce = Debounce { quiet: ms(0), max_delay: ms(250), rows_max: 10, bytes_max: 1000 };
        let mut arrivals = Arrivals::default();
        arrivals.note(ms(1000), 10);
        assert_eq!(debounce.due(&arrivals, ms(900)), Some(ms(1000)));
        assert_eq!(debounce.due(&arrivals, ms(1100)), Some(ms(1100)));
        assert_eq!(debounce.due(&arrivals, ms(9000)), Some(ms(1250)));
        arrivals.rows = 10;
        assert_eq!(debounce.due(&arrivals, ms(9000)), Some(ms(1000)));
    }

    #[test]
    fn quiet_and_delay_bound_each_other() {
        let debounce = Debounce { quiet: ms(100), max_delay: ms(250), rows_max: 10, bytes_max: 1000 };
        let mut arrivals = Arrivals::default();
        assert_eq!(debounce.due(&arrivals, Duration::ZERO), None);
        arrivals.note(ms(1000), 10);
        assert_eq!(debounce.due(&arrivals, Duration::ZERO), Some(ms(1100)));
        arrivals.note(ms(1090), 10);
        assert_eq!(debounce.due(&arrivals, Duration::ZERO), Some(ms(1190)));
        arrivals.note(ms(1180), 10);
        assert_eq!(debounce.due(&arrivals, Duration::ZERO), Some(ms(1250)));
        arrivals.note(ms(1181), 970);
        assert_eq!(debounce.due(&arrivals, Duration::ZERO), Some(ms(1000)), "full by bytes");
    }

    #[test]
    fn zero_never_waits() {
        let debounce = Debounce { quiet: ms(0), max_delay: ms(5000), rows_max: 10, bytes_max: 1000 };
        let mut arrivals = Arrivals::default();
        arrivals.note(ms(7), 1);
        assert_eq!(debounce.due(&arrivals, Duration::ZERO), Some(ms(7)));
    }
}
