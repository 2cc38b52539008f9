//! The change log in Kafka, and what stands beside it: contracts, control, topics, clients.

#![allow(clippy::disallowed_methods, reason = "waiting for Kafka is bounded by the clock; nothing here decides order by it")]

pub mod client;
pub mod contracts;
pub mod control;
pub mod headers;
pub mod incarnation;
pub mod murmur2;
pub mod producer;
pub mod topics;
pub mod voice;
