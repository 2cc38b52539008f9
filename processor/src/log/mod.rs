//! The change log in Kafka, and what stands beside it: contracts, control, topics, clients.

pub mod client;
pub mod contracts;
pub mod control;
pub mod incarnation;
pub mod murmur2;
pub mod producer;
pub mod topics;
