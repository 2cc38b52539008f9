//! The resolved topology as rows, for people and for machines.
//!
//! One row per replica, and one for a table without any. Nothing secret is in here: stores go by id and kind.

use std::time::Duration;

use landfall_schemas::LogicalType;
use serde::Serialize;

use super::{ColumnRulesPlan, FallbackPlan, InsteadOfMissing, InsteadOfRefused, Plan, ReplicaPlan, Retention, StoreKind, latest_topic};

/// One replica of the resolved topology, as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// Id of the table, or of the pattern.
    pub table: String,
    /// Id and type of the source.
    pub source: String,
    /// Topic of the changes, or the pattern that topics must match.
    pub topic: String,
    /// Key columns, or where they come from.
    pub key: String,
    /// What is said of its columns, or `-`.
    pub columns: String,
    /// Log topic with partitions, copies and retention.
    pub log: String,
    /// Id of the replica, or `-`.
    pub replica: String,
    /// Kind, place and name of the target, or `-`.
    pub target: String,
    /// Shape and build, or `-`.
    pub shape: String,
    /// When and how much lands at once, or `-`.
    pub landing: String,
}

impl Row {
    /// The headings, one per cell.
    pub const HEADERS: [&'static str; 10] = ["table", "source", "topic", "key", "columns", "log", "replica", "target", "shape", "landing"];

    /// The cells in the order of [`Row::HEADERS`].
    pub fn cells(&self) -> [&str; 10] {
        [&self.table, &self.source, &self.topic, &self.key, &self.columns, &self.log, &self.replica, &self.target, &self.shape, &self.landing]
    }
}

impl Plan {
    /// The resolved topology, one row per replica.
    pub fn describe(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for table in &self.tables {
            let log = &table.log;
            let log = log_text(&log.topic, log.partitions, log.replication, log.retention, self.frames(log.format));
            let key = key_text(table.primary_key.as_deref(), table.park_key);
            let columns = columns_text(&table.types, &table.rules, table.fallback, table.infer_types);
            let base = self.base(&table.id, table.source, &table.topic, key, columns, log);
            self.push_replicas(&mut rows, &base, &table.log.topic, &table.replicas, None);
        }
        for pattern in &self.patterns {
            let topic = pattern.log_template.replace("{topology}", &self.topology);
            let log = log_text(&topic, pattern.log_partitions, pattern.log_replication, Retention::Forever, self.frames(pattern.log_format));
            let key = key_text(pattern.primary_key.as_deref(), pattern.park_key);
            let matches = format!("all {}", pattern.matcher.text);
            let columns = columns_text(&pattern.types, &pattern.rules, pattern.fallback, pattern.infer_types);
            let base = self.base(&pattern.id, pattern.source, &matches, key, columns, log);
            self.push_replicas(&mut rows, &base, &topic, &pattern.replicas, Some("{table}"));
        }
        rows
    }

    fn base(&self, table: &str, source: usize, topic: &str, key: String, columns: String, log: String) -> Row {
        let source = self.sources.get(source).map(|s| format!("{} ({})", s.id, s.kind.as_str()));
        let none = || String::from("-");
        Row {
            table: table.to_owned(),
            source: source.unwrap_or_default(),
            topic: topic.to_owned(),
            key,
            columns,
            log,
            replica: none(),
            target: none(),
            shape: none(),
            landing: none(),
        }
    }

    /// `log`: the log's topic. `name`: what stands for the names of tables that are not known yet.
    fn push_replicas(&self, rows: &mut Vec<Row>, base: &Row, log: &str, replicas: &[ReplicaPlan], name: Option<&str>) {
        if replicas.is_empty() {
            rows.push(base.clone());
        }
        for replica in replicas {
            let Some(store) = self.stores.get(replica.store) else {
                continue;
            };
            let (id, target) = match (&store.kind, name) {
                (StoreKind::Kafka, None) => (replica.id.clone(), replica.table.clone()),
                (StoreKind::Kafka, Some(name)) => (format!("{}.{name}", store.id), latest_topic(log)),
                (kind, name) => {
                    let table = name.unwrap_or(&replica.table);
                    (format!("{}.{table}", store.id), format!("{}.{table}", kind.namespace()))
                }
            };
            rows.push(Row {
                replica: id,
                target: format!("{} {target}", store.kind.as_str()),
                shape: format!("{}, build {}", replica.shape.as_str(), replica.build),
                landing: format!(
                    "{}, at most {} rows or {} KiB",
                    wait_text(replica.quiet, replica.max_delay),
                    replica.batch_rows_max,
                    replica.batch_bytes_max >> 10
                ),
                ..base.clone()
            });
        }
    }
}

fn wait_text(quiet: Duration, max_delay: Duration) -> String {
    if quiet.is_zero() { String::from("at once") } else { format!("after {quiet:?} of quiet or {max_delay:?}") }
}

fn key_text(key: Option<&[String]>, parks: bool) -> String {
    let columns = key.map_or_else(|| String::from("from the record key"), |key| key.join(", "));
    if parks { format!("{columns}; parks") } else { columns }
}

/// What the rules of a table come to; masks without their salt.
fn columns_text(types: &[(String, LogicalType)], rules: &ColumnRulesPlan, fallback: FallbackPlan, infers: bool) -> String {
    let mut parts = Vec::new();
    if !types.is_empty() {
        parts.push(types.iter().map(|(name, ty)| format!("{name} {ty}")).collect::<Vec<_>>().join(", "));
    }
    parts.extend(rules.document.iter().map(|name| format!("documents in {name}")));
    parts.extend(rules.headers.iter().map(|(column, header)| format!("{column} from header {header}")));
    if !rules.exclude.is_empty() {
        parts.push(format!("without {}", rules.exclude.join(", ")));
    }
    if let Some((masked, _)) = &rules.mask {
        parts.push(format!("masked {}", masked.join(", ")));
    }
    if !rules.as_text.is_empty() {
        parts.push(format!("text of {}", rules.as_text.join(", ")));
    }
    parts.extend(rules.rename.iter().map(|(old, new)| format!("{old} as {new}")));
    let is_null = [(fallback.missing == InsteadOfMissing::SetNull, "missing"), (fallback.refused == InsteadOfRefused::SetNull, "refused")];
    let nulls: Vec<&str> = is_null.into_iter().filter(|(is_null, _)| *is_null).map(|(_, what)| what).collect();
    if !nulls.is_empty() {
        parts.push(format!("NULL where {}", nulls.join(" or ")));
    }
    if fallback.refused == InsteadOfRefused::Clamp {
        parts.push(String::from("clamped where refused"));
    }
    if !infers {
        parts.push(String::from("no types inferred"));
    }
    if parts.is_empty() { String::from("-") } else { parts.join("; ") }
}

fn log_text(topic: &str, partitions: u32, replication: Option<u16>, retention: Retention, is_framed: bool) -> String {
    let copies = replication.map_or_else(|| String::from("3 or fewer"), |copies| copies.to_string());
    let retention = match retention {
        Retention::Forever => "forever",
    };
    let frame = if is_framed { ", in the registry's frame" } else { "" };
    format!("{topic}: {partitions} partitions, {copies} copies, {retention}{frame}")
}
