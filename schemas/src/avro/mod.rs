//! Avro as other programs write it: the frame that names a schema of a registry or by its fingerprint, the schema as its writer has it, and passing over values.
//!
//! Pure and total. What is read by a schema is compiled by its reader (`dialect::avro`); here is what all readers share. Nothing is believed:
//! lengths and counts are held against the bytes that are left, and what a record may cost is bounded by its own length.

pub(crate) use canonical::canonical_form;
pub use canonical::{crc64, fingerprint};
pub use frame::{Frame, FrameError, IdBytes, SchemaId, frame, single_object};
pub(crate) use schema::SYMBOL_BYTES_MAX;
pub use schema::{Kind, Member, Node, NodeId, Reference, Schema, SchemaError};
pub use skip::Budget;

mod canonical;
mod frame;
mod schema;
mod skip;
