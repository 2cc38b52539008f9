//! `stores`: where replicas live and how to reach them.
//!
//! An address may hold references, and a password in it must be one. A field that a store type does not have is an issue. Whether a
//! store answers is not known here; `check --online` asks.

use crate::field::Field;
use crate::issue::{At, Code, Finding, shown};
use crate::model::{Store, StoreType, UrlText};
use crate::names;
use crate::plan::{LATEST, StoreKind, StorePlan};
use crate::secret::{Reference, Secret};

use super::address::{holds_literal_password, http_address};
use super::context::{Context, Listed, Resolved};

/// The variable that stands in for a store's address.
const URL_VARIABLE: &str = "LANDFALL_STORE_URL";
/// Schemas that belong to Landfall or to the store itself.
const SCHEMAS_RESERVED: &[&str] = &["landfall", "information_schema", "pg_catalog", "pg_toast"];
/// Limit of a Postgres identifier; DuckDB and ClickHouse hold more, but no schema needs it.
const NAMESPACE_BYTES_MAX: usize = 63;

/// The stores of a topology.
pub(crate) struct Stores {
    resolved: Resolved<StorePlan>,
}

impl Stores {
    pub(crate) fn find(&self, cx: &Context<'_>, id: &str, at: &At) -> Option<usize> {
        self.resolved.find(cx, id, at)
    }

    pub(crate) fn get(&self, position: usize) -> Option<&StorePlan> {
        self.resolved.get(position)
    }

    pub(crate) const fn len(&self) -> usize {
        self.resolved.len()
    }

    /// All plans, if every store has one, and behind them that of the topics of newest rows, if there are any.
    pub(crate) fn plans(&self, latest: bool) -> Option<Vec<StorePlan>> {
        let implicit = latest.then(|| StorePlan { id: LATEST.to_owned(), kind: StoreKind::Kafka });
        (0..self.len()).map(|position| self.get(position).cloned()).chain(implicit.map(Some)).collect()
    }
}

pub(crate) fn resolve_all(cx: &Context<'_>, list: &Listed<Store>) -> Stores {
    let resolved = Resolved::collect(
        cx,
        "store",
        list,
        |s| &s.id,
        |store, at, id| {
            let kind = kind(cx, store, at);
            Some(StorePlan { id: id?, kind: kind? })
        },
    );
    let stores = Stores { resolved };
    refuse_shared_files(cx, &list.items, &stores);
    stores
}

fn kind(cx: &Context<'_>, store: &Store, at: &At) -> Option<StoreKind> {
    let (kind, at_kind) = cx.required(&store.kind, at, "type")?;
    match kind {
        StoreType::Clickhouse => clickhouse(cx, store, at),
        StoreType::Postgresql => postgres(cx, store, at),
        StoreType::Duckdb => duckdb(cx, store, at),
        StoreType::Kafka => {
            let finding = Finding::new(Code::NotSupportedYet, "a store of type kafka is not supported yet");
            cx.push(at_kind, finding.hint("write log: { latest: true } at a table: its newest rows become the topic <log topic>.latest"));
            None
        }
    }
}

fn clickhouse(cx: &Context<'_>, store: &Store, at: &At) -> Option<StoreKind> {
    cx.unused(&store.path, "a ClickHouse store has an address");
    cx.unused(&store.schema, "ClickHouse has databases; write database");
    let url = url(cx, store, at);
    let database = namespace(cx, &store.database, "database", "default");
    let password = secret(cx, store);
    let (url, at) = url?;
    if let Err(why) = http_address(&url) {
        cx.error(&at, Code::BadValue, format!("the address {why}"), "write http://host:8123 or https://host:8443");
        return None;
    }
    Some(StoreKind::ClickHouse { url, database: database?, user: store.user.text().map(str::to_owned), password: password? })
}

fn postgres(cx: &Context<'_>, store: &Store, at: &At) -> Option<StoreKind> {
    cx.unused(&store.path, "a Postgres store has an address");
    let url = url(cx, store, at);
    let schema = namespace(cx, &store.schema, "schema", "public");
    let database = match &store.database {
        Field::Absent => Some(None),
        written => namespace(cx, written, "database", "").map(Some),
    };
    let password = secret(cx, store);
    let (url, at) = url?;
    if !(url.starts_with("postgresql://") || url.starts_with("postgres://") || url.contains('=')) {
        let hint = "write postgresql://user@host:5432/database";
        cx.error(&at, Code::BadValue, "the address is no Postgres address", hint);
        return None;
    }
    Some(StoreKind::Postgres {
        url: Secret::new(url),
        database: database?,
        schema: schema?,
        user: store.user.text().map(str::to_owned),
        password: password?,
    })
}

fn duckdb(cx: &Context<'_>, store: &Store, at: &At) -> Option<StoreKind> {
    let why = "a DuckDB store is a file";
    cx.unused(&store.url, why);
    cx.unused(&store.database, why);
    cx.unused(&store.user, why);
    cx.unused(&store.password, why);
    let schema = namespace(cx, &store.schema, "schema", "main");
    let (path, at) = cx.required(&store.path, at, "path")?;
    if path.trim().is_empty() || path.contains('\0') || path == ":memory:" {
        cx.error(at, Code::BadValue, "the path is no file", "write the path of a file, which need not exist yet");
        return None;
    }
    Some(StoreKind::DuckDb { path: path.clone(), schema: schema? })
}

/// The password, if any; nothing at all if one is written but cannot be used.
fn secret(cx: &Context<'_>, store: &Store) -> Option<Option<Secret>> {
    if store.password.is_absent() {
        return Some(None);
    }
    cx.secret(&store.password).map(Some)
}

/// The schema or database of the replicas.
fn namespace(cx: &Context<'_>, field: &Field<String>, what: &str, default: &str) -> Option<String> {
    let (name, at) = match field {
        Field::Absent => return Some(default.to_owned()),
        Field::Broken(_) => return None,
        Field::Given(name, at) => (name, at),
    };
    if let Err(why) = names::identifier(name, NAMESPACE_BYTES_MAX) {
        cx.bad_name(at, what, name, why);
        return None;
    }
    if what == "schema" && SCHEMAS_RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
        let message = format!("schema {} holds tables of Landfall or of the store itself", shown(name));
        cx.error(at, Code::ReservedName, message, "give the replicas another schema");
        return None;
    }
    Some(name.clone())
}

/// The address with its references replaced, from the file or from [`URL_VARIABLE`].
fn url(cx: &Context<'_>, store: &Store, at: &At) -> Option<(String, At)> {
    match &store.url {
        Field::Broken(_) => None,
        Field::Given(UrlText(text), at) => {
            if holds_literal_password(text) {
                cx.literal_secret(at);
                return None;
            }
            Some((cx.resolve(text, at)?, at.clone()))
        }
        Field::Absent => {
            let at = at.child("url");
            let found = cx.look_up(&Reference::Env(URL_VARIABLE.to_owned()));
            if found.is_none() {
                let message = format!("url is missing, and {URL_VARIABLE} is not set");
                cx.error(&at, Code::Required, message, "write the address, or a reference to it");
            }
            found.map(|url| (url, at))
        }
    }
}

/// The store of the topics of newest rows has an id that no other may have beside it.
pub(crate) fn refuse_latest(cx: &Context<'_>, fields: &[Field<Store>]) {
    for (store, _) in fields.iter().filter_map(Field::given) {
        if let Some((id, at)) = store.id.given()
            && id.eq_ignore_ascii_case(LATEST)
        {
            let message = format!("store id {} is that of the topics of newest rows, which a table asks for", shown(id));
            cx.error(at, Code::ReservedName, message, "give the store another id, or take log: { latest: true } out");
        }
    }
}

/// DuckDB allows one writer per file, so one file is one store.
fn refuse_shared_files(cx: &Context<'_>, fields: &[Field<Store>], stores: &Stores) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (position, field) in fields.iter().enumerate() {
        let (Some(plan), Some((store, _))) = (stores.get(position), field.given()) else {
            continue;
        };
        let StoreKind::DuckDb { path, .. } = &plan.kind else {
            continue;
        };
        if let (Some((_, other)), Some(at)) = (seen.iter().find(|(known, _)| known == path), store.path.at()) {
            let message = format!("store {} is this file already, and a file has one writer", shown(other));
            cx.error(at, Code::SameTarget, message, "use one store for both, or another file");
        }
        seen.push((path, &plan.id));
    }
}
