//! The change log: one Kafka topic per table, keyed by the table's key.

pub mod murmur2;
