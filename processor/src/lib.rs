//! What happens: from the input topic through the change log into the replicas.
//!
//! The modules stand in the order of one event's journey (ARCHITECTURE.md, Workspace). The core, `normalise` and `land`, is synchronous and
//! free of I/O: production drives it from `run`, the simulator from one thread with a virtual clock and seeded faults.

pub mod cli;
pub mod dead_letter;
pub mod fault;
pub mod land;
pub mod log;
pub mod normalise;
pub mod observe;
pub mod registry;
pub mod run;
pub mod sink;
pub mod state;
