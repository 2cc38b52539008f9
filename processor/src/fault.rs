//! Named crash points and planted bugs, for tests only.
//!
//! Without the feature `faults` everything here is empty and costs nothing. With it, `LANDFALL_CRASH=point:hit` makes the process abort when
//! it comes by a point for that time, `LANDFALL_PANIC=point:hit` makes its thread panic there, and `LANDFALL_BUG=name` turns one planted bug on, so that the suite can show that it catches it.
//! No production code may depend on an answer of this module.

/// A planted bug: each is copied from one that real systems had (RELIABILITY.md A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Source offsets are committed before the log has acknowledged.
    CommitBeforeLand,
    /// Source offsets are committed up to the last acknowledged record, not to the end of the contiguous prefix.
    WatermarkOffsetPlusOne,
    /// A rejected record is passed without a dead letter.
    CommitPastRejected,
    /// A row that is as state shows it is not landed, though a batch that was cut short has put another one into the store: an
    /// emit-on-change whose state and store parted (KAFKA-12508).
    DropEqualVersion,
    /// State is written before the store has the batch, and trusted when it is ahead.
    StateBeforeLand,
    /// A deleted key is forgotten.
    TombstoneExpiredEarly,
    /// Repeats are folded instead of recognised by provenance.
    RepeatsFolded,
    /// A row that came and went within a batch is not emitted as absent.
    OrphanLeftBehind,
}

impl Bug {
    /// All planted bugs, with the names that `LANDFALL_BUG` takes.
    pub const ALL: [(Self, &'static str); 8] = [
        (Self::CommitBeforeLand, "commit-before-land"),
        (Self::WatermarkOffsetPlusOne, "watermark-offset-plus-one"),
        (Self::CommitPastRejected, "commit-past-rejected"),
        (Self::DropEqualVersion, "drop-equal-version"),
        (Self::StateBeforeLand, "state-before-land"),
        (Self::TombstoneExpiredEarly, "tombstone-expired-early"),
        (Self::RepeatsFolded, "repeats-folded"),
        (Self::OrphanLeftBehind, "orphan-left-behind"),
    ];
}

#[cfg(not(feature = "faults"))]
mod active {
    use super::Bug;

    /// Comes by a crash point: nothing happens in this build.
    #[inline(always)]
    pub const fn point(_name: &str) {}

    /// Whether a crash point is the one to abort at: never in this build.
    #[inline(always)]
    pub const fn armed(_name: &str) -> bool {
        false
    }

    /// Whether a planted bug is on: never in this build.
    #[inline(always)]
    pub const fn bug(_bug: Bug) -> bool {
        false
    }
}

#[cfg(feature = "faults")]
mod active {
    use std::cell::Cell;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Bug;

    struct Crash {
        point: String,
        left: AtomicU32,
    }

    static CRASH: OnceLock<Option<Crash>> = OnceLock::new();
    static PANIC: OnceLock<Option<Crash>> = OnceLock::new();
    static BUG: OnceLock<Option<Bug>> = OnceLock::new();

    thread_local! {
        static SIMULATED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Whether a crash point is the one to abort at: what it promises of its moment may cost a wait that nobody else pays.
    pub fn armed(name: &str) -> bool {
        told(&CRASH, "LANDFALL_CRASH").is_some_and(|crash| crash.point == name)
    }

    /// Comes by a crash point: the process aborts here where it was told to.
    pub fn point(name: &str) {
        if reached(&CRASH, "LANDFALL_CRASH", name) {
            eprintln!("crash point {name} reached");
            std::process::abort();
        }
        assert!(!reached(&PANIC, "LANDFALL_PANIC", name), "told to panic at {name}");
    }

    fn told(cell: &'static OnceLock<Option<Crash>>, variable: &str) -> Option<&'static Crash> {
        let read = || {
            let text = std::env::var(variable).ok()?;
            let (point, hits) = text.split_once(':')?;
            Some(Crash { point: point.to_owned(), left: AtomicU32::new(hits.parse().ok()?) })
        };
        cell.get_or_init(read).as_ref()
    }

    fn reached(cell: &'static OnceLock<Option<Crash>>, variable: &str, name: &str) -> bool {
        told(cell, variable).is_some_and(|crash| crash.point == name && crash.left.fetch_sub(1, Ordering::SeqCst) == 1)
    }

    /// Whether a planted bug is on, for this thread or the whole process.
    pub fn bug(bug: Bug) -> bool {
        SIMULATED.get() == Some(bug)
            || *BUG.get_or_init(|| {
                let name = std::env::var("LANDFALL_BUG").ok()?;
                Bug::ALL.iter().find(|(_, n)| *n == name).map(|(b, _)| *b)
            }) == Some(bug)
    }

    /// Turns a planted bug on for this thread: for the simulator.
    pub fn simulate(bug: Option<Bug>) {
        SIMULATED.set(bug);
    }
}

pub use active::*;
