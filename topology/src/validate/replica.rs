//! `replicas`: which store, under which name, in which shape, and how much lands at once.
//!
//! What a replica leaves open comes from its table, then from `defaults`, then from the constants below. A table without the list
//! goes to every store. A topic of newest rows is a replica that the log's own settings ask for.

use std::time::Duration;

use crate::field::Field;
use crate::issue::{At, Code, shown};
use crate::model::{self, Defaults, Replica, Size, Table};
use crate::names;
use crate::plan::{LATEST, ReplicaPlan, Shape, StoreKind, StorePlan};

use super::context::Context;
use super::store::Stores;
use super::unsupported;

/// Lands at once what is there; what arrives meanwhile goes together in the next batch.
const QUIET: model::Duration = model::Duration::from_ms(0);
/// Bounds the wait of a change in a busy table.
const MAX_DELAY: model::Duration = model::Duration::from_ms(5_000);
/// Where the stores reach their best rate (STACK.md).
const BATCH_ROWS_MAX: u32 = 100_000;
/// Bounds the memory of a batch of wide rows.
const BATCH_BYTES_MAX: u64 = 64 << 20;
const BATCH_ROWS_LIMIT: u32 = 10_000_000;
const BATCH_BYTES_LEAST: u64 = 64 << 10;
const BATCH_BYTES_LIMIT: u64 = 1 << 30;

/// Replicas with the places to report clashes at. For a pattern the names are empty.
pub(crate) struct Replicas<'f> {
    pub(crate) plans: Vec<(ReplicaPlan, &'f At)>,
}

/// How much lands at once, as far as it is written on one level.
struct Landing<'f> {
    quiet: &'f Field<model::Duration>,
    max_delay: &'f Field<model::Duration>,
    rows: &'f Field<u32>,
    bytes: &'f Field<Size>,
}

impl<'f> Landing<'f> {
    const fn of_defaults(d: &'f Defaults) -> Self {
        Self { quiet: &d.push_debounce_quiet, max_delay: &d.push_debounce_max_delay, rows: &d.batch_rows_max, bytes: &d.batch_bytes_max }
    }

    const fn of_table(t: &'f Table) -> Self {
        Self { quiet: &t.push_debounce_quiet, max_delay: &t.push_debounce_max_delay, rows: &t.batch_rows_max, bytes: &t.batch_bytes_max }
    }

    const fn of_replica(r: &'f Replica) -> Self {
        Self { quiet: &r.push_debounce_quiet, max_delay: &r.push_debounce_max_delay, rows: &r.batch_rows_max, bytes: &r.batch_bytes_max }
    }
}

/// Resolved landing limits.
struct Limits {
    quiet: Duration,
    max_delay: Duration,
    rows: u32,
    bytes: u64,
}

/// Whether replicas have names yet.
#[derive(Clone, Copy)]
pub(crate) enum Naming<'f> {
    /// One table, by its id; none where that cannot be used.
    One(Option<&'f str>),
    /// Many tables, each named by its own id later.
    Many,
}

/// The replicas of a table; behind them its topic of newest rows, asked for at `latest`.
pub(crate) fn resolve_all<'f>(
    cx: &Context<'_>,
    table: &'f Table,
    at: &'f At,
    naming: Naming<'_>,
    defaults: &'f Defaults,
    stores: &Stores,
    latest: Option<&'f At>,
) -> Option<Replicas<'f>> {
    let mut replicas = declared(cx, table, at, naming, defaults, stores)?;
    if let Some(at) = latest {
        // Its topic has a name once the log has one.
        let limits = limits(cx, &[Landing::of_table(table), Landing::of_defaults(defaults)])?;
        let id = if let Naming::One(Some(id)) = naming { id } else { "" };
        let store = StorePlan { id: LATEST.to_owned(), kind: StoreKind::Kafka };
        replicas.plans.push((plan(&store, stores.len(), id, 0, &limits), at));
    }
    Some(replicas)
}

fn declared<'f>(cx: &Context<'_>, table: &'f Table, at: &'f At, naming: Naming<'_>, defaults: &'f Defaults, stores: &Stores) -> Option<Replicas<'f>> {
    match &table.replicas {
        Field::Broken(_) => None,
        Field::Absent => {
            let limits = limits(cx, &[Landing::of_table(table), Landing::of_defaults(defaults)]);
            let limits = limits?;
            let plans: Option<Vec<_>> = (0..stores.len())
                .map(|position| {
                    let store = stores.get(position)?;
                    let name = match naming {
                        Naming::Many => "",
                        Naming::One(id) => checked_target(cx, store, id?, at)?,
                    };
                    Some((plan(store, position, name, 0, &limits), at))
                })
                .collect();
            Some(Replicas { plans: plans? })
        }
        Field::Given(list, _) => {
            let plans: Vec<_> = list
                .iter()
                .map(|field| {
                    let (replica, at) = field.given()?;
                    resolve(cx, replica, at, table, naming, defaults, stores)
                })
                .collect();
            Some(Replicas { plans: plans.into_iter().collect::<Option<_>>()? })
        }
    }
}

fn resolve<'f>(
    cx: &Context<'_>,
    replica: &'f Replica,
    at: &'f At,
    table: &'f Table,
    naming: Naming<'_>,
    defaults: &'f Defaults,
    stores: &Stores,
) -> Option<(ReplicaPlan, &'f At)> {
    unsupported::replica(cx, replica);
    if let Some((shape, at)) = replica.shape.given()
        && *shape != model::Shape::Upsert
    {
        unsupported::not_yet(cx, at, &format!("shape {}", shape.as_str()));
    }
    let limits = limits(cx, &[Landing::of_replica(replica), Landing::of_table(table), Landing::of_defaults(defaults)]);
    let (store, at_store) = cx.required(&replica.store, at, "store")?;
    let position = stores.find(cx, store, at_store)?;
    let store = stores.get(position)?;
    refuse_large_batches(cx, replica, store);
    let (name, at) = match (naming, &replica.table) {
        (_, Field::Broken(_)) => return None,
        (Naming::Many, Field::Absent) => ("", at),
        (Naming::Many, Field::Given(..)) => {
            cx.unused(&replica.table, "the entry stands for many tables, each named by its own id");
            return None;
        }
        (Naming::One(_), Field::Given(name, at)) => (checked_target(cx, store, name, at)?, at),
        (Naming::One(id), Field::Absent) => (checked_target(cx, store, id?, at)?, at),
    };
    let build = replica.build.copied().unwrap_or(0);
    Some((plan(store, position, name, build, &limits?), at))
}

/// A limit that is written for this very replica is meant as it stands, so one above the store's own is refused.
fn refuse_large_batches(cx: &Context<'_>, replica: &Replica, store: &StorePlan) {
    if let (Some((size, at)), Some(most)) = (replica.batch_bytes_max.given(), store.kind.batch_bytes_most())
        && size.bytes() > most
    {
        let message = format!("batch_bytes_max is more than store {} takes at once", shown(&store.id));
        cx.error(at, Code::BadValue, message, &format!("a store of type {} takes up to {}MiB", store.kind.as_str(), most >> 20));
    }
}

/// The name of a replica, if its store can hold it.
fn checked_target<'n>(cx: &Context<'_>, store: &StorePlan, name: &'n str, at: &At) -> Option<&'n str> {
    if names::is_reserved_target(&store.kind, name) {
        let message = format!("table {} is Landfall's own in store {}", shown(name), store.id);
        cx.error(at, Code::ReservedName, message, "give the replica another table");
        return None;
    }
    if let Err(why) = names::target(&store.kind, name) {
        let message = format!("table {} {why} for store {}", shown(name), store.id);
        let hint = "write table: with a plain name; schema and database belong to the store";
        cx.error(at, Code::BadName, message, hint);
        return None;
    }
    Some(name)
}

fn plan(store: &StorePlan, position: usize, table: &str, build: u16, limits: &Limits) -> ReplicaPlan {
    ReplicaPlan {
        id: format!("{}.{table}", store.id),
        store: position,
        table: table.to_owned(),
        shape: Shape::Upsert,
        build,
        quiet: limits.quiet,
        max_delay: limits.max_delay,
        batch_rows_max: limits.rows,
        // What is written for all stores alike is cut to what each can take.
        batch_bytes_max: store.kind.batch_bytes_most().map_or(limits.bytes, |most| limits.bytes.min(most)),
    }
}

/// The limits from the nearest level that writes each.
fn limits(cx: &Context<'_>, levels: &[Landing<'_>]) -> Option<Limits> {
    let quiet = nearest(levels.iter().map(|l| l.quiet))?;
    let max_delay = nearest(levels.iter().map(|l| l.max_delay))?;
    let debounce = debounce(cx, quiet, max_delay);
    let rows = match nearest(levels.iter().map(|l| l.rows))? {
        None => Some(BATCH_ROWS_MAX),
        Some((rows, _)) if (1..=BATCH_ROWS_LIMIT).contains(&rows) => Some(rows),
        Some((_, at)) => {
            let message = format!("batch_rows_max is not from 1 to {BATCH_ROWS_LIMIT}");
            cx.error(at, Code::BadValue, message, "the default is 100000");
            None
        }
    };
    let bytes = match nearest(levels.iter().map(|l| l.bytes))? {
        None => Some(BATCH_BYTES_MAX),
        Some((size, _)) if (BATCH_BYTES_LEAST..=BATCH_BYTES_LIMIT).contains(&size.bytes()) => Some(size.bytes()),
        Some((_, at)) => {
            cx.error(at, Code::BadValue, "batch_bytes_max is not from 64KiB to 1GiB", "the default is 64MiB");
            None
        }
    };
    let (quiet, max_delay) = debounce?;
    Some(Limits { quiet, max_delay, rows: rows?, bytes: bytes? })
}

/// The value of the nearest level; nothing at all if that is written but broken.
fn nearest<'f, T: Copy + 'f>(levels: impl Iterator<Item = &'f Field<T>>) -> Option<Option<(T, &'f At)>> {
    for field in levels {
        match field {
            Field::Absent => {}
            Field::Broken(_) => return None,
            Field::Given(value, at) => return Some(Some((*value, at))),
        }
    }
    Some(None)
}

fn debounce(cx: &Context<'_>, quiet: Option<(model::Duration, &At)>, max_delay: Option<(model::Duration, &At)>) -> Option<(Duration, Duration)> {
    for (duration, at) in [quiet, max_delay].into_iter().flatten() {
        if duration.is_negative() {
            cx.error(at, Code::PushDebounceOrder, "a debounce time is negative", "0 never waits");
            return None;
        }
    }
    let at = max_delay.or(quiet).map(|(_, at)| at);
    let quiet = quiet.map_or(QUIET, |(duration, _)| duration);
    let max_delay = max_delay.map_or(MAX_DELAY, |(duration, _)| duration);
    if let (true, Some(at)) = (max_delay < quiet, at) {
        let message = format!("push_debounce_max_delay ({max_delay}) is shorter than push_debounce_quiet ({quiet})");
        cx.error(at, Code::PushDebounceOrder, message, "raise push_debounce_max_delay to at least the quiet time");
        return None;
    }
    Some((quiet.to_std()?, max_delay.to_std()?))
}
