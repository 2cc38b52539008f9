//! The one test binary.

mod checker;
mod crash;
mod harness;
mod live;
mod processes;
mod reference;
mod scene;
mod torture;
mod workload;
