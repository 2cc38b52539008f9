//! `sources`: what this version can read, and the names of their topics.
//!
//! A source keeps its place and its model even where its plan failed, so that tables that refer to it are still checked.

use landfall_schemas::avro;

use crate::field::Field;
use crate::issue::{At, Code, shown};
use crate::model::{Cdc, Dialect, Format, KeyFormat, Source, SourceType};
use crate::names;
use crate::plan::SourcePlan;

use super::context::{Context, Listed, Resolved};
use super::{signal, unsupported};

/// The sources of a topology: model, place and plan of each.
pub(crate) struct Sources<'f> {
    resolved: Resolved<Known<'f>>,
}

/// A source that tables may refer to.
pub(crate) struct Known<'f> {
    pub(crate) model: &'f Source,
    pub(crate) at: &'f At,
    /// Absent where the type is unreadable.
    pub(crate) kind: Option<SourceType>,
    plan: Option<SourcePlan>,
}

impl Known<'_> {
    /// What its records look like, where its plan stands.
    pub(crate) fn dialect(&self) -> Option<Dialect> {
        self.plan.as_ref().map(|plan| plan.dialect)
    }
}

impl<'f> Sources<'f> {
    pub(crate) fn find(&self, cx: &Context<'_>, id: &str, at: &At) -> Option<usize> {
        self.resolved.find(cx, id, at)
    }

    pub(crate) fn get(&self, position: usize) -> Option<&Known<'f>> {
        self.resolved.get(position)
    }

    /// All plans, if every source has one.
    pub(crate) fn plans(&self) -> Option<Vec<SourcePlan>> {
        (0..self.resolved.len()).map(|position| self.get(position)?.plan.clone()).collect()
    }
}

pub(crate) fn resolve_all<'f>(cx: &Context<'_>, list: &'f Listed<Source>) -> Sources<'f> {
    let resolved = Resolved::collect(
        cx,
        "source",
        list,
        |s| &s.id,
        |model, at, id| {
            let kind = cx.required(&model.kind, at, "type").map(|(kind, _)| *kind);
            Some(Known { model, at, kind, plan: resolve(cx, model, at, kind, id) })
        },
    );
    Sources { resolved }
}

fn resolve(cx: &Context<'_>, source: &Source, at: &At, kind: Option<SourceType>, id: Option<String>) -> Option<SourcePlan> {
    unsupported::source(cx, source);
    let topic_prefix = match source.cdc.get() {
        Some(cdc) => topic_prefix(cx, cdc),
        None => None,
    };
    let kind = kind?;
    match kind {
        SourceType::Kafka | SourceType::Postgresql | SourceType::Mysql | SourceType::Mongodb => signal::check_source(cx, source, at, kind),
        SourceType::Cosmosdb | SourceType::Websocket | SourceType::Ingest | SourceType::Files | SourceType::Duckdb => {
            let at = source.kind.at().unwrap_or(at);
            unsupported::not_yet(cx, at, &format!("a source of type {}", kind.as_str()));
            return None;
        }
    }
    let cdc = source.cdc.get();
    if let Some((format @ (Format::Avro | Format::Protobuf), at)) = cdc.and_then(|cdc| cdc.format.given())
        && let Some(dialect) = cdc.and_then(|cdc| cdc.dialect.copied()).filter(|dialect| matches!(dialect, Dialect::Maxwell | Dialect::Canal))
    {
        unsupported::not_yet(cx, at, &format!("{} of dialect {}", format.name(), dialect.as_str()));
    }
    Some(SourcePlan {
        id: id?,
        kind,
        topic_prefix,
        dialect: cdc.and_then(|cdc| cdc.dialect.copied()).unwrap_or(if kind == SourceType::Mongodb { Dialect::Mongodb } else { Dialect::Debezium }),
        format: cdc.and_then(|cdc| cdc.format.copied()).unwrap_or(Format::Auto),
        schemas: cdc.map(|cdc| schemas(cx, cdc)).unwrap_or_default(),
        key_format: cdc.and_then(|cdc| cdc.key_format.copied()).unwrap_or(KeyFormat::Auto),
        binary_handling_mode: cdc.and_then(|cdc| cdc.binary_handling_mode.copied()),
        decimal_handling_mode: cdc.and_then(|cdc| cdc.decimal_handling_mode.copied()),
        epoch: source.epoch.copied(),
    })
}

/// The texts of Avro's schemas; those that are none have been reported.
fn schemas(cx: &Context<'_>, cdc: &Cdc) -> Vec<String> {
    let given = cdc.schemas.items().iter().filter_map(Field::given);
    let read = |(text, at): (&String, &At)| match avro::fingerprint(text) {
        Ok(_) => Some(text.clone()),
        Err(why) => {
            cx.error(at, Code::BadValue, format!("no schema of Avro: {why}"), "write the schema, or ${file:PATH} of an .avsc file");
            None
        }
    };
    given.filter_map(read).collect()
}

fn topic_prefix(cx: &Context<'_>, cdc: &Cdc) -> Option<String> {
    let (prefix, at) = cdc.topic_prefix.given()?;
    match names::topic(prefix) {
        Ok(()) => Some(prefix.clone()),
        Err(why) => {
            let message = format!("topic_prefix {} {why}", shown(prefix));
            cx.error(at, Code::TopicName, message, "write the connector's topic.prefix");
            None
        }
    }
}
