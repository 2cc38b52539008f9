//! Text to a tree of values that know where they stand.
//!
//! The streaming deserialiser of serde-saphyr ends at the first error, and a topology must show every problem at once; so the whole
//! text first becomes a small tree, keeping places, spelling and repeated keys, and the model is read from that (`read.rs`).
//! Limits come before parsing: a file is a page of text by hand, and no input may cost more than a moment.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Location, Options, Spanned};

use crate::issue::{At, Code, Finding};
use crate::load::DOCUMENT_BYTES_MAX;

/// Mappings and lists within each other; the model needs eight.
const DEPTH_MAX: usize = 32;
/// Values of a file, aliases replayed.
const NODES_MAX: usize = 100_000;
/// Values that aliases may replay in all: a few shared blocks, no bomb.
const ALIAS_NODES_MAX: usize = 10_000;

/// A value and its place. The path is empty here; the reader knows it.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) width: u32,
    pub(crate) kind: Kind,
}

/// What a value is, as YAML 1.2 sees it.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Nothing, `~` or `null`.
    Null,
    /// A plain `true` or `false`.
    Bool(bool),
    /// A plain number, as spelt.
    Number(String),
    /// A text.
    Text {
        text: String,
        /// Without quotes and on one line, so another reader may take it for something else.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A mapping, in order, repeated keys included.
    Map(Vec<(Node, Node)>),
}

impl Kind {
    /// The noun of a message.
    pub(crate) const fn noun(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text { .. } => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

/// Parses a document into its tree, or says why it is none.
pub(crate) fn parse(text: &str) -> Result<Node, (At, Finding)> {
    let top = At { line: 1, column: 1, width: 1, ..At::default() };
    if text.len() > DOCUMENT_BYTES_MAX {
        let message = format!("the file is larger than {DOCUMENT_BYTES_MAX} bytes");
        return Err((top, Finding::new(Code::YamlLimit, message).hint("split it into several files of one folder")));
    }
    let shielded = shield(text);
    let raw: Spanned<Raw> = serde_saphyr::from_str_with_options(&shielded, options()).map_err(|error| refusal(error.without_snippet(), top))?;
    Ok(node(raw, &shielded, matches!(shielded, Cow::Owned(_))))
}

/// Stand for the braces of a reference while YAML is read: one character each, so that columns stay.
const OPEN: char = '\u{e000}';
const CLOSE: char = '\u{e001}';

/// Takes the braces of references out of YAML's sight: `{ password: ${env:X} }` would else end at the first brace, and that is how
/// people write it. A file that holds the stand-ins itself is left alone.
fn shield(text: &str) -> Cow<'_, str> {
    if !(text.contains("${env:") || text.contains("${file:")) || text.contains([OPEN, CLOSE]) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 64);
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, reference) = rest.split_at(start);
        out.push_str(before);
        let end = reference.find(['}', '\n', '\r']).filter(|end| reference[*end..].starts_with('}'));
        match end {
            Some(end) if reference.starts_with("${env:") || reference.starts_with("${file:") => {
                out.push('$');
                out.push(OPEN);
                out.push_str(reference.get(2..end).unwrap_or_default());
                out.push(CLOSE);
                rest = reference.get(end + 1..).unwrap_or_default();
            }
            _ => {
                out.push_str("${");
                rest = reference.get(2..).unwrap_or_default();
            }
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn unshield(text: String) -> String {
    if text.contains(OPEN) { text.replace(OPEN, "{").replace(CLOSE, "}") } else { text }
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            // Above the depth, so that one limit speaks for both styles.
            flow_nesting_limit: DEPTH_MAX + 8,
            max_nodes: NODES_MAX,
            max_events: 4 * NODES_MAX,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_merge_keys: 1_000,
            max_recorded_anchor_events: NODES_MAX,
            max_documents: 2,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: ALIAS_NODES_MAX,
            max_replay_stack_depth: 8,
        },
        // All of them are wanted, with both places.
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        strict_booleans: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    }
}

/// The parser's refusal in our words; its own text never quotes values of the file.
fn refusal(error: &serde_saphyr::Error, top: At) -> (At, Finding) {
    let at = match error.location() {
        Some(place) if place.line() > 0 => At { line: narrow(place.line()), column: narrow(place.column()), ..top },
        _ => top,
    };
    let finding = match error {
        serde_saphyr::Error::MultipleDocuments { .. } => Finding::new(Code::YamlSyntax, "more than one document in a file")
            .hint("remove the line `---`, or put each document into a file of its own"),
        other => {
            let text = other.to_string();
            // Limits come in several variants, some wrapped by the alias that hit them; their texts agree.
            if text.contains("limit exceeded") || text.contains("budget breached") {
                return (
                    at,
                    Finding::new(Code::YamlLimit, "the file is too deep, too long or repeats itself too often")
                        .hint(format!("at most {DEPTH_MAX} levels, {NODES_MAX} values, and {ALIAS_NODES_MAX} of them through aliases")),
                );
            }
            // The place stands in the issue already.
            let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
            let mut message = String::from("not YAML: ");
            for c in text.chars().take(200) {
                crate::issue::push_visible(&mut message, c);
            }
            Finding::new(Code::YamlSyntax, message)
        }
    };
    (at, finding)
}

/// What the visitor sees before spans are known.
enum Raw {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<Raw>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RawVisitor;

        impl<'de> Visitor<'de> for RawVisitor {
            type Value = Raw;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a YAML value")
            }

            fn visit_unit<E>(self) -> Result<Raw, E> {
                Ok(Raw::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
                Ok(Raw::Bool(value))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
                Ok(Raw::Number(value.to_string()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
                Ok(Raw::Number(value.to_string()))
            }

            fn visit_u128<E>(self, value: u128) -> Result<Raw, E> {
                Ok(Raw::Number(value.to_string()))
            }

            fn visit_i128<E>(self, value: i128) -> Result<Raw, E> {
                Ok(Raw::Number(value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
                Ok(Raw::Number(value.to_string()))
            }

            fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
                Ok(Raw::Text(value.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Raw::List(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
                let mut entries = Vec::new();
                while let Some(key) = map.next_key()? {
                    entries.push((key, map.next_value()?));
                }
                Ok(Raw::Map(entries))
            }
        }

        deserializer.deserialize_any(RawVisitor)
    }
}

/// Binds spans and spelling. Recursion is bounded by [`DEPTH_MAX`].
fn node(raw: Spanned<Raw>, source: &str, shielded: bool) -> Node {
    let spelt = slice(raw.defined, source);
    let kind = match raw.value {
        Raw::Null => Kind::Null,
        Raw::Bool(value) => Kind::Bool(value),
        // The spelling is kept: `007` and `1.50` are not `7` and `1.5`.
        Raw::Number(number) => Kind::Number(match spelt {
            "" => number,
            spelt => spelt.to_owned(),
        }),
        Raw::Text(text) => Kind::Text { plain: text == spelt, text: if shielded { unshield(text) } else { text } },
        Raw::List(items) => Kind::List(items.into_iter().map(|item| node(item, source, shielded)).collect()),
        Raw::Map(entries) => {
            Kind::Map(entries.into_iter().map(|(key, value)| (node(key, source, shielded), node(value, source, shielded))).collect())
        }
    };
    // An alias is shown where it is used.
    let place = raw.referenced;
    let spelt = slice(place, source);
    let width = match kind {
        Kind::List(_) | Kind::Map(_) => 1,
        _ => spelt.lines().next().unwrap_or_default().chars().count(),
    };
    Node { line: narrow(place.line()).max(1), column: narrow(place.column()).max(1), width: narrow(width as u64).max(1), kind }
}

fn slice(place: Location, source: &str) -> &str {
    let span = place.span();
    let (Some(from), Some(len)) = (span.byte_offset(), span.byte_len()) else {
        return "";
    };
    let from = usize::try_from(from).unwrap_or(usize::MAX);
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    source.get(from..from.saturating_add(len)).unwrap_or_default()
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The text of a scalar key, whatever YAML takes it for.
pub(crate) fn key_text(key: &Node) -> Option<Cow<'_, str>> {
    match &key.kind {
        Kind::Text { text, .. } => Some(Cow::Borrowed(text)),
        Kind::Number(text) => Some(Cow::Borrowed(text)),
        Kind::Bool(value) => Some(Cow::Borrowed(if *value { "true" } else { "false" })),
        Kind::Null | Kind::List(_) | Kind::Map(_) => None,
    }
}
