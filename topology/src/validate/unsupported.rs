//! Fields that have no effect in this version, refused by name.
//!
//! A field that is written and ignored is a promise broken in silence. A value that says what happens anyway is harmless and passes.
//! When a field gains its effect, its line here goes.

use crate::field::Field;
use crate::issue::{At, Code, Finding};
use crate::issues::Issues;
use crate::model::{Defaults, FirstBuild, Live, Log, LogFormat, NativeApply, OnKeyChange, Relationship, Replica, Source, Table};

use super::context::{Context, last_key};

/// Says that something is not supported yet.
pub(crate) fn not_yet(cx: &Context<'_>, at: &At, what: &str) {
    cx.push(at, finding(what));
}

fn finding(what: &str) -> Finding {
    Finding::new(Code::NotSupportedYet, format!("{what} is not supported yet")).hint("remove it")
}

/// Refuses a field whatever it holds.
pub(crate) fn always<T>(cx: &Context<'_>, field: &Field<T>) {
    if let Some(at) = field.at() {
        not_yet(cx, at, last_key(&at.path));
    }
}

/// Refuses a field unless it holds what happens anyway.
fn unless<T>(cx: &Context<'_>, field: &Field<T>, harmless: impl FnOnce(&T) -> bool) {
    if let Some((value, at)) = field.given()
        && !harmless(value)
    {
        not_yet(cx, at, last_key(&at.path));
    }
}

fn query_engine<T>(cx: &Context<'_>, field: &Field<T>) {
    if let Some(at) = field.at() {
        cx.push(at, belongs_to_query_engine(&format!("{} belongs", last_key(&at.path))));
    }
}

fn belongs_to_query_engine(what: &str) -> Finding {
    Finding::new(Code::BelongsToQueryEngine, format!("{what} to a query engine; Landfall answers no queries")).hint("remove it")
}

pub(crate) fn relationships(field: &Field<Vec<Field<Relationship>>>, issues: &Issues<'_>) {
    for (relationship, _) in field.items().iter().filter_map(Field::given) {
        if let Some(at) = relationship.materialize.at() {
            issues.push(at, belongs_to_query_engine("materialize belongs"));
        }
    }
    if let Some(at) = field.at()
        && !field.get().is_some_and(Vec::is_empty)
    {
        issues.push(at, finding("relationships"));
    }
}

pub(crate) fn defaults(cx: &Context<'_>, defaults: &Defaults) {
    always(cx, &defaults.cache_ttl);
    if let Some(log) = defaults.log.get() {
        self::log(cx, log);
    }
}

pub(crate) fn source(cx: &Context<'_>, source: &Source) {
    always(cx, &source.cache_ttl);
    replicate(cx, &source.replicate);
    unless(cx, &source.load_protected, |on| !on);
    always(cx, &source.off_peak_window);
    unless(cx, &source.off_peak_tz, |zone| zone == "UTC");
    unless(cx, &source.freshness_gate, |on| !on);
    unless(cx, &source.native_apply, |apply| *apply == NativeApply::Rows);
    unless(cx, &source.first_build, |from| *from == FirstBuild::Topic);
    always(cx, &source.url);
    always(cx, &source.path);
    always(cx, &source.database);
    always(cx, &source.user);
    always(cx, &source.password);
    if let Some(cdc) = source.cdc.get() {
        always(cx, &cdc.bootstrap);
    }
    if let Some(live) = source.live.get() {
        // The legacy strategy counts on tables only (SEMANTICS.md D.1).
        always(cx, &live.strategy);
        self::live(cx, live);
    }
}

fn live(cx: &Context<'_>, live: &Live) {
    always(cx, &live.watermark_column);
}

pub(crate) fn table(cx: &Context<'_>, table: &Table) {
    query_engine(cx, &table.hot);
    query_engine(cx, &table.materialize);
    unless(cx, &table.sequence_by, Vec::is_empty);
    always(cx, &table.delete_when);
    always(cx, &table.allowed_lateness);
    always(cx, &table.on_incompatible);
    unless(cx, &table.on_key_change, |on| *on == OnKeyChange::Abort);
    always(cx, &table.watermark_column);
    always(cx, &table.probe_query);
    always(cx, &table.probe_type);
    always(cx, &table.cache_ttl);
    replicate(cx, &table.replicate);
    unless(cx, &table.load_protected, |on| !on);
    always(cx, &table.off_peak_window);
    unless(cx, &table.off_peak_tz, |zone| zone == "UTC");
    unless(cx, &table.role_ttl, |roles| roles.is_empty());
    unless(cx, &table.first_build, |from| *from == FirstBuild::Topic);
    unless(cx, &table.subscribe_deletes, |on| !on);
    unless(cx, &table.native_apply, |apply| *apply == NativeApply::Rows);
    if let Some(live) = table.live.get() {
        self::live(cx, live);
    }
    if let Some(log) = table.log.get() {
        self::log(cx, log);
    }
}

fn log(cx: &Context<'_>, log: &Log) {
    unless(cx, &log.format, |format| *format != LogFormat::Json);
}

pub(crate) fn replica(cx: &Context<'_>, replica: &Replica) {
    unless(cx, &replica.track, Vec::is_empty);
    unless(cx, &replica.soft_delete, |on| !on);
    unless(cx, &replica.ignore_null_updates, |on| !on);
}

/// `0` is what happens anyway, `-1` comes later, and only a query engine can count reads.
fn replicate(cx: &Context<'_>, field: &Field<i64>) {
    if let Some((value, at)) = field.given() {
        match value {
            0 => {}
            -1 => not_yet(cx, at, "replicate: -1"),
            1.. => cx.push(at, belongs_to_query_engine("replicating what is read often belongs")),
            _ => cx.error(at, Code::BadValue, "replicate is -1, 0 or a number of reads", "write 0 or leave it out"),
        }
    }
}
