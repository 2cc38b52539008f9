//! The one test binary.

mod checker;
mod harness;
mod reference;
mod workload;
