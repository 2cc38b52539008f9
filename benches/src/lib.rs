//! Measurements of the journey and its stages, against real services.
//!
//! The story is `main.rs`: make a workload, time each stage alone, then the whole journey into each store, and print what came out as lines
//! `name value unit`. Every journey is checked against what the workload must leave behind: a rate of wrong rows is no rate.

#[path = "../../tests/src/allocations.rs"]
pub mod allocations;
pub mod avro;
pub mod journey;
pub mod meter;
pub mod stages;
pub mod stores;
pub mod workload;
