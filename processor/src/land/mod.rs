//! LAND: the change log folded into a replica.
//!
//! This is the only stateful stage. It is synchronous and has no clock: time, replies and records come in as arguments, what is to be done
//! comes out as [`partition::Step`], and state is behind the trait [`crate::state::State`]. Production and the simulator drive the same code.
//! In the order of one record's way: `partition` (positions, batches), `mapping`, `overlay`, `index`, `fold`, `entry`.

pub mod debounce;
pub mod entry;
pub mod fold;
pub mod held;
pub mod index;
pub mod mapping;
pub mod overlay;
pub mod partition;
