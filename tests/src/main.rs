//! The one test binary.

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
