//! The one test binary.

#![allow(unreachable_pub, reason = "a test binary exports nothing; `pub` says what other modules of it may use")]

mod agree;
mod allocations;
mod bad_input;
mod cases;
mod checker;
mod cli;
mod column_rules;
mod conformance;
mod crash;
mod dead_letters;
mod dice;
mod fuzz;
mod golden;
mod harness;
mod hot_path;
mod inferred;
mod key_change;
mod lander;
mod landing;
mod latest;
mod live;
mod meaning;
mod oracle;
mod plain;
mod planted;
mod processes;
mod property;
mod reference;
mod registry;
mod replayed;
mod round_trips;
mod scene;
mod simulate;
mod sink_clickhouse;
mod sink_duckdb;
mod sink_kafka;
mod sink_postgres;
mod small;
mod standstill;
mod table_stops;
mod tidy;
mod torture;
mod vectors;
mod workload;

/// Counted, since some tests bound what their work allocates.
#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;
