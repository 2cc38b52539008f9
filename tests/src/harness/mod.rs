//! What every end-to-end test stands on: real services, a real process, real clients.
//!
//! Nothing here shares code with Landfall: Kafka is read through its own client, stores through their own protocols, the process through
//! signals and `/proc`. A test waits for a fact in a real source of truth (`wait`), never for time to pass.

#![allow(clippy::disallowed_methods, reason = "the rules of the core about clocks and threads do not bind the harness that drives real processes")]

pub mod kafka;
pub mod latest;
pub mod process;
pub mod registry;
pub mod rng;
pub mod stack;
pub mod stores;
pub mod topology;
pub mod wait;
