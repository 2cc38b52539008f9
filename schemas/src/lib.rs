//! What a change is.
//!
//! Values and logical types, table schemas, sequences, provenance, the canonical [`change::Change`] and its encodings, the canonical key
//! encoding, and the vendor dialects that turn a source document into a change. Everything here is pure and total: no I/O, no clock, no
//! async, no panic on any input. Dependency direction: nothing in the workspace stands below this crate (ARCHITECTURE.md, Workspace).

pub mod avro;
pub mod capture;
pub mod change;
pub mod civil;
pub mod contract;
pub mod decimal;
pub mod dialect;
pub mod framing;
pub mod json;
pub mod key;
pub mod mask;
pub mod protobuf;
pub mod provenance;
pub mod row;
pub mod sequence;
pub mod shape;
pub mod store;
pub mod table;
pub mod types;
pub mod value;
pub mod wire;

pub use change::{Change, Op};
pub use decimal::Decimal;
pub use provenance::Provenance;
pub use sequence::Sequence;
pub use table::{Column, ColumnSet, TableSchema};
pub use types::LogicalType;
pub use value::Value;
