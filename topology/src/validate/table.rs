//! `tables`: source, topics, key, types, log and replicas of each entry, and what no two of them may share.
//!
//! Everything that can be checked on an entry alone comes first; clashes between entries come last, on the plans, since names
//! are only final then.

use std::collections::BTreeMap;

use landfall_schemas::LogicalType;

use crate::field::Field;
use crate::issue::{At, Code, Finding, shown};
use crate::model::{self, ChangeSignal, Column, Columns, Defaults, Dialect, Log, Table};
use crate::names;
use crate::nearest::nearest;
use crate::plan::{FallbackPlan, LATEST, LogFormat, LogPlan, Plan, Retention, StoreKind, TablePattern, TablePlan, cursors_topic, latest_topic};

use super::context::{Context, Listed, Taken};
use super::replica::{self, Naming};
use super::source::{Known, Sources};
use super::store::Stores;
use super::topic::Topics;
use super::{rules, signal, topic, unsupported};

/// Enough for four cores; more only spreads a small table thin.
const PARTITIONS: u32 = 4;
const PARTITIONS_MAX: u32 = 1_024;
const REPLICATION_MAX: u16 = 15;
const LOG_TEMPLATE: &str = "{topology}.{table}";

/// What the tables of a topology are checked against.
pub(crate) struct Surroundings<'f> {
    pub(crate) topology: Option<&'f str>,
    pub(crate) defaults: &'f Defaults,
    pub(crate) sources: &'f Sources<'f>,
    pub(crate) stores: &'f Stores,
}

/// The tables and patterns that could be resolved.
#[derive(Default)]
pub(crate) struct Tables<'f> {
    pub(crate) tables: Vec<TablePlan>,
    pub(crate) patterns: Vec<TablePattern>,
    /// Of each table in `tables`.
    pub(crate) places: Vec<Places<'f>>,
    /// Whether any asks for a topic of its newest rows.
    pub(crate) has_latest: bool,
}

/// Where to report clashes of a table.
pub(crate) struct Places<'f> {
    topic: &'f At,
    log: &'f At,
    replicas: Vec<&'f At>,
}

pub(crate) fn resolve_all<'f>(cx: &Context<'_>, list: &'f Listed<Table>, around: &Surroundings<'f>) -> Tables<'f> {
    let mut tables = Tables::default();
    let mut taken = Taken::default();
    for (table, at) in list.items.iter().filter_map(Field::given) {
        let id = id(cx, table, at).filter(|(id, at)| taken.take(cx, "table", id, at));
        resolve(cx, table, at, id.map(|(id, _)| id), around, &mut tables);
    }
    tables
}

fn id<'f>(cx: &Context<'_>, table: &'f Table, at: &At) -> Option<(&'f str, &'f At)> {
    let (id, at) = cx.required(&table.id, at, "id")?;
    if names::is_reserved_table_id(id) {
        let message = format!("table id {} names a topic of the topology itself", shown(id));
        cx.error(at, Code::ReservedName, message, "choose another id");
        return None;
    }
    if let Err(why) = names::table_id(id) {
        cx.bad_name(at, "table id", id, why);
        return None;
    }
    Some((id, at))
}

fn resolve<'f>(cx: &Context<'_>, table: &'f Table, at: &'f At, id: Option<&'f str>, around: &Surroundings<'f>, out: &mut Tables<'f>) {
    unsupported::table(cx, table);
    let origin = origin(cx, table, at, around);
    let key = key_and_types(cx, table);
    let dialect = origin.as_ref().and_then(|(source, ..)| around.sources.get(*source)).and_then(Known::dialect);
    let rules = rules::resolve(cx, table, key.as_ref().and_then(|(key, _)| key.as_deref()), dialect);
    let is_pattern = matches!(origin, Some((_, Topics::Many(_), _)));
    let log = log(cx, table, at, around, is_pattern);
    // Without a legal id the replicas are still checked, as far as they do not need it.
    let naming = if is_pattern { Naming::Many } else { Naming::One(id) };
    let latest = latest(table, around.defaults);
    out.has_latest |= latest.is_some();
    let replicas = replica::resolve_all(cx, table, at, naming, around.defaults, around.stores, latest);
    let park_key = park_key(cx, table, around, origin.as_ref().map(|(source, ..)| *source));
    let (Some(id), Some((source, topics, at_topic)), Some((primary_key, types))) = (id, origin, key) else {
        return;
    };
    let fallback = fallback(table);
    let (Some(rules), Some(park_key), Some(fallback), Some(log), Some(replicas)) = (rules, park_key, fallback, log, replicas) else {
        return;
    };
    let Some(infer_types) = infer_types(table, around) else { return };
    let (mut plans, places): (Vec<_>, Vec<_>) = replicas.plans.into_iter().unzip();
    let topology = around.topology.unwrap_or_default();
    match topics {
        Topics::One(topic) => {
            let Some(log) = log.plan(cx, topology, id) else {
                return;
            };
            if let Some((replica, at)) = plans.last_mut().zip(latest) {
                if let Err(why) = names::log_with_latest(&log.topic) {
                    cx.error(at, Code::TopicName, format!("log topic {} {why}", shown(&log.topic)), "shorten or rename it");
                    return;
                }
                replica.table = latest_topic(&log.topic);
            }
            out.places.push(Places { topic: at_topic, log: table.log.at().unwrap_or(at), replicas: places });
            let [source_schema, source_table] = [&table.schema, &table.name].map(|field| field.text().map(str::to_owned));
            out.tables.push(TablePlan {
                id: id.to_owned(),
                source,
                topic,
                source_schema,
                source_table,
                primary_key,
                types,
                rules,
                park_key,
                infer_types,
                fallback,
                is_derived: false,
                log,
                replicas: plans,
            });
        }
        Topics::Many(matcher) => {
            let declared = plans.iter().filter_map(|replica| around.stores.get(replica.store)).map(|store| (store.id.clone(), store.kind.clone()));
            let stores = declared.chain(latest.map(|_| (LATEST.to_owned(), StoreKind::Kafka))).collect();
            refuse_doubled_stores(cx, &plans, &places);
            out.patterns.push(TablePattern {
                id: id.to_owned(),
                source,
                primary_key,
                types,
                rules,
                park_key,
                infer_types,
                fallback,
                matcher,
                topology: topology.to_owned(),
                log_template: log.template.to_owned(),
                log_partitions: log.partitions,
                log_replication: log.replication,
                log_format: log.format,
                replicas: plans,
                stores,
            });
        }
    }
}

/// What stands for values that cannot land; nothing where a word of it is none.
fn fallback(table: &Table) -> Option<FallbackPlan> {
    match &table.fallback {
        Field::Absent => Some(FallbackPlan::default()),
        Field::Broken(_) => None,
        Field::Given(fallback, _) => Some(FallbackPlan { missing: instead(&fallback.missing)?, refused: instead(&fallback.refused)? }),
    }
}

/// What is written, or the default; nothing where it is no such word.
fn instead<T: Copy + Default>(field: &Field<T>) -> Option<T> {
    match field {
        Field::Absent => Some(T::default()),
        Field::Broken(_) => None,
        Field::Given(instead, _) => Some(*instead),
    }
}

/// Whether keys of a table park; nothing where that is written and cannot be.
fn park_key(cx: &Context<'_>, table: &Table, around: &Surroundings<'_>, source: Option<usize>) -> Option<bool> {
    let given = match (&table.park_key, &around.defaults.park_key) {
        (Field::Broken(_), _) | (Field::Absent, Field::Broken(_)) => return None,
        (Field::Given(on, at), _) | (Field::Absent, Field::Given(on, at)) => (*on).then_some(at),
        (Field::Absent, Field::Absent) => None,
    };
    let Some(at) = given else { return Some(false) };
    let cdc = source.and_then(|source| around.sources.get(source)?.model.cdc.get());
    let dialect = cdc.and_then(|cdc| cdc.dialect.copied()).unwrap_or(Dialect::Debezium);
    // Which rows a record of these is about stands in its value alone, which is what cannot be read.
    if matches!(dialect, Dialect::Maxwell | Dialect::Canal) {
        unsupported::not_yet(cx, at, &format!("park_key with dialect {}", dialect.as_str()));
        return None;
    }
    Some(true)
}

/// Whether types that nobody says are inferred; nothing where the word is none.
fn infer_types(table: &Table, around: &Surroundings<'_>) -> Option<bool> {
    match (&table.infer_types, &around.defaults.infer_types) {
        (Field::Broken(_), _) | (Field::Absent, Field::Broken(_)) => None,
        (Field::Given(on, _), _) | (Field::Absent, Field::Given(on, _)) => Some(*on),
        (Field::Absent, Field::Absent) => Some(true),
    }
}

/// The place of the source, the topics, and where they are named.
fn origin<'f>(cx: &Context<'_>, table: &'f Table, at: &'f At, around: &Surroundings<'f>) -> Option<(usize, Topics, &'f At)> {
    let (id, at_source) = cx.required(&table.source, at, "source")?;
    let position = around.sources.find(cx, id, at_source)?;
    let source = around.sources.get(position)?;
    let kind = source.kind?;
    let signal = signal::of_table(cx, (table, at), (source.model, source.at), kind, around.defaults);
    let signal = signal.filter(|s| matches!(s, ChangeSignal::Debezium | ChangeSignal::Kafka))?;
    let (topics, at_topic) = topic::resolve(cx, table, at, source, signal)?;
    Some((position, topics, at_topic))
}

type KeyAndTypes = (Option<Vec<String>>, Vec<(String, LogicalType)>);

fn key_and_types(cx: &Context<'_>, table: &Table) -> Option<KeyAndTypes> {
    let mut types = Vec::new();
    let mut marked: Vec<(&String, &At)> = Vec::new();
    let mut sound = !matches!(table.columns, Field::Broken(_));
    match table.columns.get() {
        None => {}
        Some(Columns::Map(rules)) => {
            sound &= !matches!(rules.types, Field::Broken(_));
            for (name, kind) in rules.types.get().map_or(&[][..], |entries| &entries.0) {
                sound &= column_type(cx, name, kind, &mut types);
            }
        }
        Some(Columns::List(columns)) => {
            for field in columns {
                match field.given() {
                    None => sound = false,
                    Some((column, at)) => sound &= declared(cx, column, at, &mut types, &mut marked),
                }
            }
        }
    }
    let key = key(cx, table, &marked);
    if let (Some(Some(key)), true) = (&key, sound) {
        refuse_float_keys(cx, table, key, &types, &marked);
    }
    if sound { Some((key?, types)) } else { None }
}

/// A declared column; false if it cannot be used.
fn declared<'f>(
    cx: &Context<'_>,
    column: &'f Column,
    at: &At,
    types: &mut Vec<(String, LogicalType)>,
    marked: &mut Vec<(&'f String, &'f At)>,
) -> bool {
    let Some((name, at_name)) = cx.required(&column.name, at, "name") else {
        return false;
    };
    let mut sound = !matches!(column.is_primary_key, Field::Broken(_));
    if column.is_primary_key.copied() == Some(true) {
        marked.push((name, at_name));
    }
    if column.kind.is_absent() {
        sound &= column_name(cx, name, at_name);
    } else {
        sound &= column_type(cx, &column.name, &column.kind, types);
    }
    sound
}

/// The type of one column; false if it cannot be used.
fn column_type(cx: &Context<'_>, name: &Field<String>, kind: &Field<String>, types: &mut Vec<(String, LogicalType)>) -> bool {
    let Some((name, at_name)) = name.given() else {
        return false;
    };
    if !column_name(cx, name, at_name) {
        return false;
    }
    if types.iter().any(|(known, _)| known == name) {
        cx.error(at_name, Code::DuplicateId, format!("column {} is declared twice", shown(name)), "keep one of them");
        return false;
    }
    let Some((text, at)) = kind.given() else {
        return false;
    };
    let Some(parsed) = logical_type(text) else {
        let bare = text.split('(').next().unwrap_or_default();
        let finding = Finding::new(Code::UnknownValue, format!("{} is no type", shown(text)))
            .nearest(nearest(bare, LogicalType::NAMES.iter().copied().map(|n| n.split('(').next().unwrap_or(n))))
            .hint(format!("one of {}", LogicalType::NAMES.join(", ")));
        cx.push(at, finding);
        return false;
    };
    types.push((name.clone(), parsed));
    true
}

/// Type expressions are those of the `schemas` crate.
fn logical_type(text: &str) -> Option<LogicalType> {
    text.parse().ok()
}

pub(super) fn column_name(cx: &Context<'_>, name: &str, at: &At) -> bool {
    if names::is_reserved_column(name) {
        let message = format!("column {} has a name that Landfall keeps for itself", shown(name));
        cx.error(at, Code::ScdReservedColumn, message, "__START_AT, __END_AT and names that begin with __LF_ are Landfall's, in any case");
        return false;
    }
    if let Err(why) = names::identifier(name, 1_000) {
        cx.bad_name(at, "column", name, why);
        return false;
    }
    true
}

/// The declared key; nothing at all if it is written but cannot be used.
fn key(cx: &Context<'_>, table: &Table, marked: &[(&String, &At)]) -> Option<Option<Vec<String>>> {
    let marked_names: Vec<&str> = marked.iter().map(|(name, _)| name.as_str()).collect();
    let (list, at_list) = match &table.primary_key {
        Field::Broken(_) => return None,
        Field::Absent if marked.is_empty() => return Some(None),
        Field::Absent => {
            let names = marked_names.iter().map(|name| (*name).to_owned()).collect();
            return Some(Some(names));
        }
        Field::Given(list, at) => (list, at),
    };
    if list.is_empty() {
        cx.error(at_list, Code::BadValue, "the key has no column", "name its columns, or leave primary_key out");
        return None;
    }
    let mut key: Vec<String> = Vec::new();
    for field in list {
        let (name, at) = field.given()?;
        if !column_name(cx, name, at) {
            return None;
        }
        if key.contains(name) {
            cx.error(at, Code::DuplicateId, format!("key column {} stands twice", shown(name)), "keep one of them");
            return None;
        }
        key.push(name.clone());
    }
    if !marked.is_empty() && marked_names != key {
        let message = "primary_key and the columns with is_primary_key are not the same, in the same order";
        cx.error(at_list, Code::BadValue, message, "write the key once");
        return None;
    }
    Some(Some(key))
}

/// Floats are refused as keys: equal values have unequal forms in other widths (ARCHITECTURE.md, The log).
fn refuse_float_keys(cx: &Context<'_>, table: &Table, key: &[String], types: &[(String, LogicalType)], marked: &[(&String, &At)]) {
    for name in key {
        let is_float = types.iter().any(|(known, kind)| known == name && kind.is_float());
        let at_list = table.primary_key.at();
        let at = marked.iter().find(|(m, _)| *m == name).map(|(_, at)| *at);
        if let (true, Some(at)) = (is_float, at.or(at_list)) {
            cx.error(
                at,
                Code::KeyFloat,
                format!("key column {} is a float", shown(name)),
                "declare it as decimal, or key the table by another column",
            );
        }
    }
}

/// Settings of a log before it has a name.
struct LogSettings<'f> {
    template: &'f str,
    at: &'f At,
    partitions: u32,
    replication: Option<u16>,
    format: LogFormat,
}

fn log<'f>(cx: &Context<'_>, table: &'f Table, at: &'f At, around: &Surroundings<'f>, is_pattern: bool) -> Option<LogSettings<'f>> {
    let own = table.log.get();
    let shared = around.defaults.log.get();
    let broken = matches!(table.log, Field::Broken(_)) || matches!(around.defaults.log, Field::Broken(_));
    let template = setting(own, shared, |log| &log.topic);
    let partitions = setting(own, shared, |log| &log.partitions);
    let replication = setting(own, shared, |log| &log.replication);
    let retention = setting(own, shared, |log| &log.retention);
    let format = setting(own, shared, |log| &log.format)?.map_or(LogFormat::Avro, |(format, _)| *format);

    let partitions = match partitions? {
        None => Some(PARTITIONS),
        Some((n, _)) if (1..=PARTITIONS_MAX).contains(n) => Some(*n),
        Some((_, at)) => {
            cx.error(at, Code::BadValue, format!("partitions is not from 1 to {PARTITIONS_MAX}"), "the default is 4");
            None
        }
    };
    let replication = match replication? {
        None => Some(None),
        Some((n, _)) if (1..=REPLICATION_MAX).contains(n) => Some(Some(*n)),
        Some((_, at)) => {
            let message = format!("replication is not from 1 to {REPLICATION_MAX}");
            cx.error(at, Code::BadValue, message, "leave it out for 3, or fewer in a smaller cluster");
            None
        }
    };
    let kept = match retention? {
        None | Some((model::Retention::Forever, _)) => Some(()),
        Some((model::Retention::For(_), at)) => {
            retention_issue(cx, table, at);
            None
        }
    };
    let (template, at_template) = match template? {
        None => (LOG_TEMPLATE, at),
        Some((template, at)) => (template.as_str(), at),
    };
    let many = is_pattern || own.is_none_or(|log| log.topic.is_absent());
    check_template(cx, template, at_template, many)?;
    kept?;
    if broken {
        return None;
    }
    Some(LogSettings { template, at: at_template, partitions: partitions?, replication: replication?, format })
}

/// Where a topic of newest rows is asked for, if it is.
fn latest<'f>(table: &'f Table, defaults: &'f Defaults) -> Option<&'f At> {
    let (on, at) = setting(table.log.get(), defaults.log.get(), |log| &log.latest)??;
    on.then_some(at)
}

/// A setting of the table's own log, else of the shared one; nothing at all if it is written but broken.
fn setting<'f, T>(own: Option<&'f Log>, shared: Option<&'f Log>, field: impl Fn(&'f Log) -> &'f Field<T>) -> Option<Option<(&'f T, &'f At)>> {
    for log in [own, shared].into_iter().flatten() {
        match field(log) {
            Field::Absent => {}
            Field::Broken(_) => return None,
            Field::Given(value, at) => return Some(Some((value, at))),
        }
    }
    Some(None)
}

/// A log that forgets is allowed only where every replica is `append`, which this version does not have.
fn retention_issue(cx: &Context<'_>, table: &Table, at: &At) {
    let replicas = table.replicas.items();
    let only_append = !replicas.is_empty() && replicas.iter().all(|r| r.get().and_then(|r| r.shape.copied()) == Some(model::Shape::Append));
    if only_append {
        unsupported::not_yet(cx, at, "a log that forgets");
    } else {
        cx.error(
            at,
            Code::LogRetentionTooShort,
            "a replica that is not append folds the whole log, which must be kept forever",
            "write retention: forever, or leave it out; tiered storage is the broker's business",
        );
    }
}

fn check_template(cx: &Context<'_>, template: &str, at: &At, many: bool) -> Option<()> {
    let rest = template.replace("{topology}", "").replace("{table}", "");
    if rest.contains(['{', '}']) {
        cx.error(at, Code::BadValue, format!("log topic {} has an unknown placeholder", shown(template)), "there are {topology} and {table}");
        return None;
    }
    if many && !template.contains("{table}") {
        cx.error(at, Code::BadValue, "a log topic for many tables does not name the table", "put {table} into it");
        return None;
    }
    Some(())
}

impl LogSettings<'_> {
    fn plan(&self, cx: &Context<'_>, topology: &str, table: &str) -> Option<LogPlan> {
        let topic = self.template.replace("{topology}", topology).replace("{table}", table);
        // An unreadable topology name is reported where it stands.
        if topology.is_empty() {
            return None;
        }
        if let Err(why) = names::topic(&topic) {
            cx.error(self.at, Code::TopicName, format!("log topic {} {why}", shown(&topic)), "shorten or rename it");
            return None;
        }
        Some(LogPlan { topic, partitions: self.partitions, replication: self.replication, retention: Retention::Forever, format: self.format })
    }
}

/// Two replicas of a pattern in one store would have one name.
fn refuse_doubled_stores(cx: &Context<'_>, plans: &[crate::plan::ReplicaPlan], places: &[&At]) {
    for (position, (replica, at)) in plans.iter().zip(places).enumerate() {
        if plans.iter().take(position).any(|before| before.store == replica.store) {
            let message = "a second replica of these tables in one store would have the same name";
            cx.error(at, Code::SameTarget, message, "give the second one an entry of its own, table by table");
        }
    }
}

/// Refuses topics, logs and targets that two tables share, and logs that would be read as sources.
pub(crate) fn refuse_clashes(cx: &Context<'_>, plan: &Plan, places: &[Places<'_>]) {
    let mut topics: BTreeMap<&str, &str> = BTreeMap::new();
    let mut logs: BTreeMap<String, String> = BTreeMap::new();
    for own in [plan.control_topic(), plan.schemas_topic(), plan.dead_letters_topic()] {
        logs.insert(comparable(&own), String::from("the topology itself"));
    }
    let mut targets: BTreeMap<String, String> = BTreeMap::new();
    for (table, places) in plan.tables.iter().zip(places) {
        if plan.is_own_topic(&table.topic) {
            let message = format!("topic {} is written by Landfall itself", shown(&table.topic));
            cx.error(places.topic, Code::LogLoop, message, "rename the topology or the log, or read another topic");
        }
        if let Some(other) = topics.insert(&table.topic, &table.id) {
            let message = format!("topic {} is read by table {} already", shown(&table.topic), shown(other));
            cx.error(places.topic, Code::SameTopic, message, "use one table with several replicas");
        }
        if let Some(other) = logs.insert(comparable(&table.log.topic), format!("table {}", shown(&table.id))) {
            let message = format!("log topic {} is that of {other}", shown(&table.log.topic));
            cx.error(places.log, Code::LogSameTopic, message, "give each table a log of its own; . and _ count as one to Kafka");
        }
        if let Some(latest) = plan.latest(table) {
            for topic in [latest.table.clone(), cursors_topic(&latest.table)] {
                if let Some(other) = logs.insert(comparable(&topic), format!("the newest rows of table {}", shown(&table.id))) {
                    let message = format!("topic {} of its newest rows is that of {other}", shown(&topic));
                    cx.error(places.log, Code::LogSameTopic, message, "give each table a log of its own; . and _ count as one to Kafka");
                }
            }
        }
        for (replica, at) in table.replicas.iter().zip(&places.replicas) {
            refuse_shared_target(cx, plan, table, replica, at, &mut targets);
        }
    }
}

fn refuse_shared_target(
    cx: &Context<'_>,
    plan: &Plan,
    table: &TablePlan,
    replica: &crate::plan::ReplicaPlan,
    at: &At,
    targets: &mut BTreeMap<String, String>,
) {
    let Some(store) = plan.stores.get(replica.store) else {
        return;
    };
    let place = plan.stores.iter().position(|s| s.kind.same_place(&store.kind));
    for name in names::occupied(&store.kind, &replica.table) {
        let key = format!("{} {name}", place.unwrap_or(replica.store));
        if let Some(other) = targets.insert(key, table.id.clone()) {
            let message = format!("{name} in store {} is written for table {} already", store.id, shown(&other));
            cx.error(at, Code::SameTarget, message, "give one of the two another table with table: or another store");
            return;
        }
    }
}

/// Kafka refuses a topic that differs from another only in dots and underscores.
fn comparable(topic: &str) -> String {
    topic.replace('.', "_")
}
