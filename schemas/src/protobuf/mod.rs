//! Protocol Buffers as other programs write them: the schema that a registry holds, the message that a frame names, and the fields of a message.
//!
//! Pure and total. What is read by a schema is compiled by its reader (`dialect::protobuf`); here is what all readers share. The text of a schema
//! is parsed by a library, whose work is bounded by what is let through to it; names, options and everything else are read here. Nothing of a
//! record is believed: lengths are held against the bytes that are left, and groups are refused.

pub use schema::{EnumId, Field, Kind, Message, MessageId, Presence, Scalar, Schema, SchemaError};
pub(crate) use wire::{Tag, WireType, run};

mod known;
mod meta;
mod schema;
mod wire;
