//! Which change signal counts for a table, and whether its source can give it.
//!
//! `effective = table.change_signal ?? map(table.live.strategy) ?? source.change_signal ?? defaults.change_signal ?? ttl`
//! (SEMANTICS.md D.1); every rule is applied to the effective value, wherever it is written.

use crate::field::Field;
use crate::issue::{At, Code, Finding};
use crate::model::{ChangeSignal, Defaults, Source, SourceType, Table};

use super::context::Context;
use super::unsupported;

/// The final default.
const DEFAULT: ChangeSignal = ChangeSignal::Ttl;

/// A signal and where it is written; nowhere for the final default.
struct Effective<'f> {
    signal: ChangeSignal,
    at: Option<&'f At>,
    legacy: bool,
}

/// Nothing if what counts is written but broken.
fn effective<'f>(table: Option<&'f Table>, source: &'f Source, defaults: &'f Defaults) -> Option<Effective<'f>> {
    let take = |field: &'f Field<ChangeSignal>| match field {
        Field::Absent => Some(None),
        Field::Broken(_) => None,
        Field::Given(signal, at) => Some(Some(Effective { signal: *signal, at: Some(at), legacy: false })),
    };
    if let Some(table) = table {
        if let Some(found) = take(&table.change_signal)? {
            return Some(found);
        }
        let strategy = table.live.get().and_then(|live| live.strategy.given());
        if let Some((strategy, at)) = strategy
            && let Some(signal) = of_strategy(strategy)
        {
            return Some(Effective { signal, at: Some(at), legacy: true });
        }
    }
    if let Some(found) = take(&source.change_signal)? {
        return Some(found);
    }
    Some(take(&defaults.change_signal)?.unwrap_or(Effective { signal: DEFAULT, at: None, legacy: false }))
}

/// The signal of a legacy strategy; anything else counts as unset.
fn of_strategy(strategy: &str) -> Option<ChangeSignal> {
    match strategy {
        "poll" => Some(ChangeSignal::Ttl),
        "native" => Some(ChangeSignal::Native),
        "debezium" => Some(ChangeSignal::Debezium),
        "kafka" => Some(ChangeSignal::Kafka),
        _ => None,
    }
}

/// Checks a source's own signal, for a source that perhaps no table uses.
pub(crate) fn check_source(cx: &Context<'_>, source: &Source, at: &At, kind: SourceType) {
    if let Some((signal, at_signal)) = source.change_signal.given() {
        check_fit(cx, *signal, at_signal, source, at, kind);
    }
}

/// The signal of a table, if this version can follow it.
pub(crate) fn of_table(
    cx: &Context<'_>,
    (table, at_table): (&Table, &At),
    (source, at_source): (&Source, &At),
    kind: SourceType,
    defaults: &Defaults,
) -> Option<ChangeSignal> {
    let found = effective(Some(table), source, defaults)?;
    let at = found.at.unwrap_or(at_table);
    if found.legacy {
        let finding = Finding::warning(Code::SignalLegacyStrategy, "live.strategy is the legacy form of change_signal")
            .hint(format!("write change_signal: {} instead", found.signal.as_str()));
        cx.push(at, finding);
    }
    match (found.signal, found.at) {
        (ChangeSignal::Debezium | ChangeSignal::Kafka | ChangeSignal::Native, _) => {
            check_fit(cx, found.signal, at, source, at_source, kind).then_some(found.signal)
        }
        (signal, Some(at)) => {
            unsupported::not_yet(cx, at, &format!("change_signal {}", signal.as_str()));
            None
        }
        (signal, None) => {
            let message = format!("nothing sets change_signal, and its default {} is not supported yet", signal.as_str());
            cx.error(
                &at_table.child("change_signal"),
                Code::NotSupportedYet,
                message,
                "write change_signal: debezium at the source or under defaults",
            );
            None
        }
    }
}

/// Whether a source can give a signal; false, and an issue, if not.
fn check_fit(cx: &Context<'_>, signal: ChangeSignal, at: &At, source: &Source, at_source: &At, kind: SourceType) -> bool {
    match signal {
        ChangeSignal::Debezium | ChangeSignal::Kafka if kind != SourceType::Kafka && source.cdc.is_absent() => {
            let message = format!("change_signal {} needs a cdc block at the {} source", signal.as_str(), kind.as_str());
            cx.error(
                &at_source.child("cdc"),
                Code::SignalDebeziumNeedsCdc,
                message,
                "add cdc: { topic_prefix: … } to the source, with the connector's topic.prefix",
            );
            false
        }
        ChangeSignal::Debezium | ChangeSignal::Kafka => true,
        ChangeSignal::Native if !has_feed(kind) => {
            let message = format!("change_signal native needs a change feed, and {} sources have none", kind.as_str());
            cx.error(at, Code::SignalNativeUnsupported, message, "native is for kafka, websocket, ingest, postgresql, mongodb and cosmosdb");
            false
        }
        ChangeSignal::Native | ChangeSignal::Ttl | ChangeSignal::Probe | ChangeSignal::TtlProbe | ChangeSignal::Signal => {
            unsupported::not_yet(cx, at, &format!("change_signal {}", signal.as_str()));
            false
        }
    }
}

/// Source types with a change feed of their own (SEMANTICS.md D.4).
const fn has_feed(kind: SourceType) -> bool {
    match kind {
        SourceType::Kafka | SourceType::Websocket | SourceType::Ingest | SourceType::Postgresql | SourceType::Mongodb | SourceType::Cosmosdb => true,
        SourceType::Mysql | SourceType::Files | SourceType::Duckdb => false,
    }
}
