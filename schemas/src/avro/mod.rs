//! Avro as other programs write it: the frame that names a schema of a registry, the schema as its writer has it, and passing over values.
//!
//! Pure and total. What is read by a schema is compiled by its reader (`dialect::avro`); here is what all readers share. Nothing is believed:
//! lengths and counts are held against the bytes that are left, and what a record may cost is bounded by its own length.

pub use frame::{Frame, FrameError, IdBytes, frame};
pub(crate) use schema::SYMBOL_BYTES_MAX;
pub use schema::{Kind, Member, Node, NodeId, Reference, Schema, SchemaError};
pub use skip::Budget;

mod frame;
mod schema;
mod skip;
