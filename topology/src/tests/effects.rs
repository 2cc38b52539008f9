//! No field is ignored: each has an effect in the samples, or is refused by name.
//!
//! The JSON Schema lists the fields, so a new one cannot be forgotten. An effect is a plan that differs, or a problem that is reported, when the
//! field is written otherwise; a problem that only says that the field is missing does not count. Whether the process heeds what stands in the
//! plan is another question: `run` takes its stores apart field by field, and the tests of each store ask.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::check_text;
use super::samples::{choices, properties};
use crate::plan::Plan;
use crate::tree::{Kind, Node, key_text, parse};
use crate::{Code, schema};

/// A field in a sample: its place, and the ways to write it, or what is first in it, otherwise.
struct Place {
    path: String,
    others: Vec<(String, Other)>,
}

/// How a field is written otherwise.
#[derive(Clone)]
enum Other {
    Left,
    Written(String),
}

/// Every field of a tree by `definition.property`.
fn fields(root: &Value, schema: &Value, node: &Node, path: &str, met: &mut BTreeMap<String, Vec<Place>>) {
    let choices = choices(root, schema);
    match &node.kind {
        Kind::Map(entries) => {
            for (key, value) in entries {
                let key = key_text(key).expect("a text");
                let path = if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
                let declared = choices.iter().find_map(|s| s["properties"].get(key.as_ref()).map(|p| (*s, p)));
                if let Some((owner, property)) = declared {
                    let owner = owner["title"].as_str().or(owner["description"].as_str()).unwrap_or("?");
                    let place = Place { others: others(root, property, value, &path), path: path.clone() };
                    met.entry(format!("{owner}.{key}")).or_default().push(place);
                    fields(root, property, value, &path, met);
                } else if let Some(open) = choices.iter().find(|s| s["additionalProperties"].is_object()) {
                    fields(root, &open["additionalProperties"], value, &path, met);
                }
            }
        }
        Kind::List(items) => {
            let item_schema = choices.iter().find(|s| s["items"].is_object()).expect("samples follow the schema");
            for (i, item) in items.iter().enumerate() {
                fields(root, &item_schema["items"], item, &format!("{path}[{i}]"), met);
            }
        }
        _ => {}
    }
}

/// Other legal ways to write a value.
fn others(root: &Value, property: &Value, node: &Node, path: &str) -> Vec<(String, Other)> {
    let choices = choices(root, property);
    let words = choices.iter().flat_map(|s| s["oneOf"].as_array().into_iter().chain(s["enum"].as_array()).flatten());
    let words: Vec<&str> = words.filter_map(|word| word["const"].as_str().or(word.as_str())).collect();
    let mut others = match &node.kind {
        Kind::Bool(on) => vec![(!on).to_string()],
        Kind::Number(number) => vec![number.parse::<i64>().map_or_else(|_| format!("{number}1"), |n| (n + 1).to_string())],
        Kind::Text { text, .. } if text == "forever" => vec!["7d".to_owned()],
        Kind::Text { text, .. } if words.is_empty() => vec![format!("{text}2")],
        Kind::Text { text, .. } => words.into_iter().filter(|w| w != text).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    let mut places: Vec<_> = others.drain(..).map(|other| (path.to_owned(), Other::Written(other))).collect();
    places.push((path.to_owned(), Other::Left));
    if let Kind::List(items) = &node.kind
        && let Some(Kind::Text { text, .. }) = items.first().map(|item| &item.kind)
    {
        places.push((format!("{path}[0]"), Other::Written(format!("{text}2"))));
    }
    places
}

/// The tree as YAML again, with one value written otherwise.
fn spell(node: &Node, path: &str, at: &str, other: &Other) -> String {
    if let (true, Other::Written(text)) = (path == at, other) {
        let plain = text.parse::<bool>().is_ok() || text.parse::<i64>().is_ok();
        return if plain { text.clone() } else { Value::from(text.as_str()).to_string() };
    }
    match &node.kind {
        Kind::Null => "null".to_owned(),
        Kind::Bool(on) => on.to_string(),
        Kind::Number(number) => number.clone(),
        Kind::Text { text, .. } => Value::from(text.as_str()).to_string(),
        Kind::List(items) => {
            let items: Vec<_> = items.iter().enumerate().map(|(i, item)| spell(item, &format!("{path}[{i}]"), at, other)).collect();
            format!("[{}]", items.join(", "))
        }
        Kind::Map(entries) => {
            let entry = |(key, value): &(Node, Node)| {
                let key = key_text(key).expect("a text");
                let path = if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
                let left = path == at && matches!(other, Other::Left);
                (!left).then(|| format!("{}: {}", Value::from(key.as_ref()), spell(value, &path, at, other)))
            };
            format!("{{{}}}", entries.iter().filter_map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}

/// What comes of a text: the plan, and the problems beyond a missing field.
fn outcome(text: &str) -> (Option<Plan>, BTreeSet<(String, String)>) {
    let checked = check_text(text);
    let said = checked.issues.iter().filter(|i| i.code != Code::Required).map(|i| (i.code.as_str().to_owned(), i.path.clone())).collect();
    (checked.plan, said)
}

#[test]
fn every_field_has_an_effect_or_is_refused_by_name() {
    let root = schema();
    let mut dead = properties(&root);
    for sample in [include_str!("../../samples/supported.yaml"), super::samples::EVERYTHING, super::BASE] {
        let tree = parse(sample).expect("samples are YAML");
        let mut met = BTreeMap::new();
        fields(&root, &root, &tree, "", &mut met);
        let written = outcome(&spell(&tree, "", "-", &Other::Left));
        assert_eq!(written, outcome(sample), "spelling a sample anew changes nothing");
        let refused = |path: &str| {
            let by_name = [Code::NotSupportedYet.as_str(), Code::BelongsToQueryEngine.as_str()];
            // A block that is refused takes its fields with it.
            let covers = |at: &str| path.strip_prefix(at).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
            written.1.iter().any(|(code, at)| by_name.contains(&code.as_str()) && covers(at))
        };
        for (field, places) in met {
            let matters = |place: &Place| {
                refused(&place.path)
                    || place.others.iter().any(|(at, other)| {
                        let changed = outcome(&spell(&tree, "", at, other));
                        // A plan that is gone says something only together with its reason.
                        changed.1 != written.1 || (changed.0.is_some() && changed.0 != written.0)
                    })
            };
            if places.iter().any(matters) {
                let _ = dead.remove(&field);
            }
        }
    }
    // One word that a field may have is all that happens anyway; a block that must be there can only be left out, and what is in it is asked apart.
    dead.retain(|field| !field.ends_with(".transport") && field != "Landfall topology.kafka");
    assert_eq!(dead, BTreeSet::new(), "these are neither heeded nor refused");
}
