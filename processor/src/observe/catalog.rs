//! The metrics that this build shows, by name (INTERFACES.md section 4): labels come from configuration only, so their number is bounded.
//!
//! The list is what `/metrics` describes, what the README names, and what the tests compare a real process with. A metric that is not in it
//! is a defect, and so is one of it that nothing sets.

#![allow(clippy::disallowed_macros, reason = "with its parent, the one place that names metrics")]

/// What kind of number a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Values by size.
    Histogram,
}

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What kind of number it is.
    pub kind: Kind,
    /// Its labels, in order.
    pub labels: &'static [&'static str],
    /// What it says, with its unit.
    pub help: &'static str,
}

const fn metric(kind: Kind, name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind, labels, help }
}

/// All metrics, in the order of the document.
pub const METRICS: [Metric; 21] = [
    metric(Kind::Counter, "landfall_records_read_total", &["source", "table"], "records read from input topics"),
    metric(Kind::Counter, "landfall_changes_total", &["table", "op"], "changes written to change logs"),
    metric(Kind::Counter, "landfall_changes_ignored_total", &["table", "reason"], "changes passed over for a good reason, such as repeats"),
    metric(Kind::Counter, "landfall_dead_letters_total", &["table", "reason"], "dead letters written"),
    metric(
        Kind::Gauge,
        "landfall_dead_letters_open",
        &["table", "reason"],
        "dead letters of the process's source partitions neither replayed nor dropped",
    ),
    metric(Kind::Gauge, "landfall_parked_keys", &["table"], "keys of the process's source partitions whose later events wait behind a dead letter"),
    metric(
        Kind::Counter,
        "landfall_values_cut_total",
        &["table"],
        "values landed with less than they are: a fraction of a second finer than its type or store, a NULL array in ClickHouse",
    ),
    metric(
        Kind::Counter,
        "landfall_changes_nulled_total",
        &["replica", "reason"],
        "changes landed with NULL for a value that nobody knows (missing) or that the store cannot hold (refused), where that is asked for",
    ),
    metric(
        Kind::Counter,
        "landfall_changes_clamped_total",
        &["replica"],
        "changes landed with the nearest date or timestamp that the store has for one that it cannot hold, where that is asked for",
    ),
    metric(Kind::Counter, "landfall_rows_landed_total", &["replica", "op"], "rows landed, present or absent"),
    metric(Kind::Counter, "landfall_batches_landed_total", &["replica"], "batches landed"),
    metric(Kind::Histogram, "landfall_land_seconds", &["replica"], "seconds that a landing took"),
    metric(Kind::Histogram, "landfall_batch_rows", &["replica"], "rows of a landed batch"),
    metric(Kind::Gauge, "landfall_lag_records", &["replica", "partition"], "log records that wait to be landed"),
    metric(Kind::Gauge, "landfall_freshness_seconds", &["replica"], "seconds from the newest landed event to its landing"),
    metric(Kind::Gauge, "landfall_state_bytes", &["replica"], "bytes of state on disk and in write buffers, estimated"),
    metric(Kind::Gauge, "landfall_state_keys", &["replica"], "keys in state, estimated"),
    metric(Kind::Counter, "landfall_rebalances_total", &[], "times that a consumer group gave or took partitions"),
    metric(Kind::Counter, "landfall_sink_errors_total", &["replica", "kind"], "errors of stores, by code"),
    metric(Kind::Counter, "landfall_schema_migrations_total", &["replica", "kind"], "replica tables created or widened"),
    metric(Kind::Gauge, "landfall_queue_bytes", &["stage"], "bytes that wait in memory"),
];

/// Tells the recorder what each metric says.
pub(super) fn describe() {
    for metric in METRICS {
        match metric.kind {
            Kind::Counter => metrics::describe_counter!(metric.name, metric.help),
            Kind::Gauge => metrics::describe_gauge!(metric.name, metric.help),
            Kind::Histogram => metrics::describe_histogram!(metric.name, metric.help),
        }
    }
}
