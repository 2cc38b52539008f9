//! Where a table's changes come from: one topic, or the topics of a pattern.
//!
//! A name with `*` or `?` is a glob, one between slashes a regular expression, anything else is taken literally. Globs do not cross
//! dots, and every pattern must match a whole name. A text that looks like a regular expression but is not between slashes is an
//! issue, since guessing would read the wrong topics.

use regex::{Regex, RegexBuilder};

use crate::field::Field;
use crate::issue::{At, Code, shown};
use crate::model::{ChangeSignal, Table};
use crate::names;
use crate::plan::pattern::{IdFrom, Matcher};

use super::context::Context;
use super::source::Known;

/// A longer pattern is no name of a table.
const PATTERN_BYTES_MAX: usize = 1_000;
/// Compiled size of a pattern: one rule must not take a process's memory.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// Where the changes come from.
pub(crate) enum Topics {
    /// One topic.
    One(String),
    /// All that match.
    Many(Matcher),
}

/// A name as written.
enum Name<'f> {
    Exact(&'f str),
    /// As written, and as a regular expression.
    Pattern(&'f str, String),
}

impl<'f> Name<'f> {
    const fn as_written(&self) -> &'f str {
        match self {
            Self::Exact(text) | Self::Pattern(text, _) => text,
        }
    }
}

/// The topics of a table, and the place that names them.
pub(crate) fn resolve<'f>(cx: &Context<'_>, table: &'f Table, at: &'f At, source: &Known<'f>, signal: ChangeSignal) -> Option<(Topics, &'f At)> {
    if let Some((topic, at)) = explicit(table, source, signal)? {
        for field in [&table.schema, &table.name] {
            if field.text().is_some_and(is_pattern) {
                cx.unused(field, "the topic is named");
            }
        }
        return Some((named(cx, topic, at)?, at));
    }
    if signal == ChangeSignal::Kafka {
        cx.error(
            &at.child("live.kafka.topic"),
            Code::SignalKafkaNeedsTopic,
            "change_signal kafka needs the topic of the changes",
            "write live: { kafka: { topic: … } } at the table or its source",
        );
        return None;
    }
    if let Some(kafka) = source.model.live.get().and_then(|live| live.kafka.get()) {
        cx.unused(&kafka.topic, "it counts with change_signal kafka, or at a table");
    }
    let schema = cx.required(&table.schema, at, "schema");
    let name = cx.required(&table.name, at, "name");
    let prefix = prefix(cx, source, at);
    let (schema, at_schema) = schema?;
    let (name, at_name) = name?;
    let schema = parse(cx, "schema", schema, at_schema);
    let name = parse(cx, "name", name, at_name);
    Some((captured(cx, prefix?, &schema?, &name?, at_name)?, at_name))
}

/// The topic that table or source name, the table's first; nothing at all if one is written but broken.
fn explicit<'f>(table: &'f Table, source: &Known<'f>, signal: ChangeSignal) -> Option<Option<(&'f String, &'f At)>> {
    let of_live = |live: &'f Field<crate::model::Live>| match live.get() {
        None => Some(None),
        Some(live) => match live.kafka.get() {
            None => Some(None),
            Some(kafka) => written(&kafka.topic),
        },
    };
    if let Some(topic) = written(&table.topic)? {
        return Some(Some(topic));
    }
    if let Some(topic) = of_live(&table.live)? {
        return Some(Some(topic));
    }
    if signal == ChangeSignal::Kafka {
        return of_live(&source.model.live);
    }
    Some(None)
}

fn written(field: &Field<String>) -> Option<Option<(&String, &At)>> {
    match field {
        Field::Absent => Some(None),
        Field::Broken(_) => None,
        Field::Given(text, at) => Some(Some((text, at))),
    }
}

fn prefix<'f>(cx: &Context<'_>, source: &Known<'f>, at: &At) -> Option<&'f str> {
    let Some((cdc, at_cdc)) = source.model.cdc.given() else {
        if source.model.cdc.is_absent() {
            cx.error(
                &at.child("topic"),
                Code::Required,
                "topic is missing, and the source has no cdc block to derive it from",
                "write the topic, or cdc: { topic_prefix: … } at the source",
            );
        }
        return None;
    };
    let (prefix, _) = cx.required(&cdc.topic_prefix, at_cdc, "topic_prefix")?;
    Some(prefix)
}

/// A topic by name or pattern.
fn named(cx: &Context<'_>, topic: &str, at: &At) -> Option<Topics> {
    match parse(cx, "topic", topic, at)? {
        Name::Exact(topic) => legal(cx, topic.to_owned(), at).map(Topics::One),
        Name::Pattern(_, regex) => {
            compile(cx, &format!("^(?:{regex})$"), at).map(|regex| Topics::Many(Matcher { regex, id: IdFrom::Topic, text: topic.to_owned() }))
        }
    }
}

/// The topic of a connector: `<prefix>.<schema>.<table>`.
fn captured(cx: &Context<'_>, prefix: &str, schema: &Name<'_>, name: &Name<'_>, at: &At) -> Option<Topics> {
    if let (Name::Exact(schema), Name::Exact(name)) = (schema, name) {
        let topic = format!("{prefix}.{}.{}", names::topic_part(schema), names::topic_part(name));
        return legal(cx, topic, at).map(Topics::One);
    }
    let source = |part: &Name<'_>| match part {
        Name::Exact(text) => regex::escape(&names::topic_part(text)),
        Name::Pattern(_, regex) => regex.clone(),
    };
    let id = match schema {
        Name::Exact(_) => IdFrom::Table,
        Name::Pattern(..) => IdFrom::SchemaAndTable,
    };
    let regex = format!(r"^{}\.(?P<lf_schema>{})\.(?P<lf_table>{})$", regex::escape(prefix), source(schema), source(name));
    compile(cx, &regex, at).map(|regex| Topics::Many(Matcher { regex, id, text: format!("{prefix}.{}.{}", schema.as_written(), name.as_written()) }))
}

fn legal(cx: &Context<'_>, topic: String, at: &At) -> Option<String> {
    match names::topic(&topic) {
        Ok(()) => Some(topic),
        Err(why) => {
            let message = format!("topic {} {why}", shown(&topic));
            cx.error(at, Code::TopicName, message, "write the name of an existing topic");
            None
        }
    }
}

fn parse<'f>(cx: &Context<'_>, what: &str, text: &'f str, at: &At) -> Option<Name<'f>> {
    let bad = |message: String, hint: &str| {
        cx.error(at, Code::BadPattern, message, hint);
        None
    };
    if text.len() > PATTERN_BYTES_MAX {
        return bad(format!("{what} is longer than {PATTERN_BYTES_MAX} bytes"), "shorten it");
    }
    if let Some(inner) = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
        // Alone first, so that an unbalanced bracket cannot reach into what is built around it.
        compile(cx, inner, at)?;
        return Some(Name::Pattern(text, format!("(?:{inner})")));
    }
    let between_slashes = "put a regular expression between slashes: /order_.*/";
    if text.contains(['\\', '^', '|', '[']) || (what != "topic" && (text.contains(".*") || text.contains(".+"))) {
        return bad(format!("{what} {} looks like a regular expression", shown(text)), between_slashes);
    }
    if !text.contains(['*', '?']) {
        return match names::identifier(text, PATTERN_BYTES_MAX) {
            Ok(()) => Some(Name::Exact(text)),
            Err(why) => {
                cx.bad_name(at, what, text, why);
                None
            }
        };
    }
    if text.contains(|c: char| c.is_control() || "(){}+$".contains(c)) {
        return bad(format!("{what} {} has characters that a glob cannot have", shown(text)), between_slashes);
    }
    let mut regex = String::new();
    for c in text.chars() {
        match c {
            '*' => regex.push_str("[^.]*"),
            '?' => regex.push_str("[^.]"),
            c => regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    Some(Name::Pattern(text, regex))
}

/// True for a glob or what stands between slashes.
fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?']) || (text.len() > 1 && text.starts_with('/') && text.ends_with('/'))
}

fn compile(cx: &Context<'_>, source: &str, at: &At) -> Option<Regex> {
    let compiled = RegexBuilder::new(source).size_limit(REGEX_BYTES_MAX).build();
    match compiled {
        Ok(regex) => Some(regex),
        Err(error) => {
            let message = match error {
                regex::Error::CompiledTooBig(_) => String::from("the regular expression is too large"),
                _ => format!("the regular expression {} is not valid", shown(source)),
            };
            cx.error(at, Code::BadPattern, message, "see the syntax of the Rust crate regex");
            None
        }
    }
}
