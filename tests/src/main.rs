//! The one test binary.

#![allow(unreachable_pub, reason = "a test binary exports nothing; `pub` says what other modules of it may use")]

mod bad_input;
mod checker;
mod crash;
mod harness;
mod live;
mod planted;
mod processes;
mod reference;
mod scene;
mod torture;
mod workload;
