//! Waiting for a fact, with a deadline.
//!
//! A condition polls a real source of truth: an offset, a row, a process. The pause between two looks is no synchronisation: the test goes on
//! as soon as the fact is there, and fails by name when it does not come.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(25);

/// Looks until the condition gives something; the error says what it saw last.
pub fn until<T, E: Display>(deadline: Duration, mut look: impl FnMut() -> Result<T, E>) -> Result<T, String> {
    let end = Instant::now() + deadline;
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(seen) if Instant::now() >= end => return Err(format!("after {deadline:?}: {seen}")),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Looks until the condition holds; panics by name when it does not within the deadline.
pub fn expect<T, E: Display>(what: &str, deadline: Duration, look: impl FnMut() -> Result<T, E>) -> T {
    until(deadline, look).unwrap_or_else(|seen| panic!("{what}: {seen}"))
}
