//! The committed samples and the JSON Schema keep each other honest.

use std::collections::BTreeSet;

use serde_json::Value;

use super::check_text;
use crate::tree::{Kind, Node, key_text, parse};
use crate::{Code, schema};

pub(super) const EVERYTHING: &str = include_str!("../../samples/everything.yaml");

/// The schemas that a value may follow: references and choices resolved.
pub(super) fn choices<'s>(root: &'s Value, schema: &'s Value) -> Vec<&'s Value> {
    let mut found = vec![schema];
    if let Some(name) = schema["$ref"].as_str() {
        let definition = root.pointer(name.trim_start_matches('#')).expect("a reference leads somewhere");
        found.extend(choices(root, definition));
    }
    for choice in schema["anyOf"].as_array().into_iter().flatten() {
        found.extend(choices(root, choice));
    }
    found
}

/// True if a schema takes a scalar of this JSON type; one without a type takes all.
fn takes(choices: &[&Value], kinds: &[&str]) -> bool {
    let typed: Vec<&Value> = choices.iter().map(|s| &s["type"]).filter(|t| !t.is_null()).collect();
    let open = typed.is_empty();
    open || typed.iter().any(|t| kinds.iter().any(|kind| *t == kind || t.as_array().is_some_and(|a| a.iter().any(|k| k == kind))))
}

/// Walks a file along the schema; notes every `definition.property` that it meets.
fn walk(root: &Value, schema: &Value, node: &Node, path: &str, met: &mut BTreeSet<String>) {
    let choices = choices(root, schema);
    match &node.kind {
        Kind::Map(entries) => {
            for (key, value) in entries {
                let key = key_text(key).expect("a text");
                let path = format!("{path}.{key}");
                let declared = choices.iter().find_map(|s| s["properties"].get(key.as_ref()).map(|p| (*s, p)));
                let open = choices.iter().find(|s| s["additionalProperties"].is_object());
                if let Some((owner, property)) = declared {
                    met.insert(format!("{}.{key}", owner["title"].as_str().or(owner["description"].as_str()).unwrap_or("?")));
                    walk(root, property, value, &path, met);
                } else if let Some(open) = open {
                    walk(root, &open["additionalProperties"], value, &path, met);
                } else {
                    assert!(
                        choices.iter().all(|s| s.as_object().is_none_or(|o| o.keys().all(|k| k == "description"))),
                        "{path} is not in the schema"
                    );
                }
            }
        }
        Kind::List(items) => {
            let item_schema = choices.iter().find(|s| s["items"].is_object());
            let item_schema = item_schema.unwrap_or_else(|| panic!("{path} is no list in the schema"));
            for item in items {
                walk(root, &item_schema["items"], item, path, met);
            }
        }
        Kind::Text { text, .. } => {
            assert!(takes(&choices, &["string"]) || choices.iter().any(|s| s["oneOf"].is_array()), "{path} takes no text");
            let words: Vec<&str> = choices
                .iter()
                .flat_map(|s| s["oneOf"].as_array().into_iter().chain(s["enum"].as_array()).flatten())
                .filter_map(|word| word["const"].as_str().or(word.as_str()))
                .collect();
            assert!(words.is_empty() || words.contains(&text.as_str()), "{path}: {text} is not among {words:?}");
        }
        Kind::Number(_) => assert!(takes(&choices, &["integer", "number"]), "{path} takes no number"),
        Kind::Bool(_) => assert!(takes(&choices, &["boolean"]), "{path} takes no boolean"),
        Kind::Null => panic!("{path}: no sample has an empty value"),
    }
}

/// Every `definition.property` of the schema; each must be described, with its default or that it is required.
pub(super) fn properties(root: &Value) -> BTreeSet<String> {
    let definitions = root["$defs"].as_object().into_iter().flat_map(|d| d.values());
    let mut all = BTreeSet::new();
    for definition in definitions.chain([root]) {
        let owner = definition["title"].as_str().or(definition["description"].as_str()).unwrap_or("?");
        for (key, property) in definition["properties"].as_object().into_iter().flatten() {
            let description = property["description"].as_str().unwrap_or_default();
            let says = ["Default", "(default", "Required", "At least one", "Optional"].iter().any(|word| description.contains(word));
            assert!(says, "{owner} {key} does not say its default: {description:?}");
            all.insert(format!("{owner}.{key}"));
        }
        if definition["properties"].is_object() {
            assert_eq!(definition["additionalProperties"], Value::Bool(false), "{owner} takes unknown keys");
        }
    }
    all
}

#[test]
fn samples_follow_the_schema_and_use_every_property() {
    let root = schema();
    let mut met = BTreeSet::new();
    for text in [include_str!("../../samples/shop.yaml"), include_str!("../../samples/supported.yaml"), EVERYTHING] {
        walk(&root, &root, &parse(text).expect("samples are YAML"), "", &mut met);
    }
    let all = properties(&root);
    let missing: Vec<_> = all.difference(&met).collect();
    assert_eq!(missing, Vec::<&String>::new(), "no sample shows these");
    assert!(all.len() > 100, "{}", all.len());
}

#[test]
fn what_is_required_is_so_in_the_schema() {
    let root = schema();
    assert_eq!(root["required"], serde_json::json!(["topology", "kafka"]));
    assert_eq!(root["$defs"]["Table"]["required"], serde_json::json!(["id", "source"]));
    assert_eq!(root["$defs"]["Log"]["properties"]["partitions"]["maximum"], 1024);
}

#[test]
fn everything_is_parsed_and_refused_by_name_only() {
    let checked = check_text(EVERYTHING);
    let other: Vec<_> = checked
        .issues
        .iter()
        .filter(|i| !matches!(i.code, Code::NotSupportedYet | Code::BelongsToQueryEngine))
        .filter(|i| !matches!(i.path.as_str(), "stores[1].url" | "kafka.security.key_password"))
        .collect();
    assert_eq!(other, Vec::<&crate::Issue>::new());
    let refused: BTreeSet<&str> = checked.issues.iter().map(|i| i.path.rsplit('.').next().unwrap_or_default()).collect();
    for field in [
        "cache_ttl",
        "watermark_column",
        "probe_query",
        "probe_type",
        "replicate",
        "load_protected",
        "off_peak_window",
        "off_peak_tz",
        "freshness_gate",
        "role_ttl",
        "first_build",
        "subscribe_deletes",
        "hot",
        "materialize",
        "sequence_by",
        "delete_when",
        "allowed_lateness",
        "on_incompatible",
        "on_key_change",
        "track",
        "soft_delete",
        "ignore_null_updates",
        "shape",
        "relationships",
        "bootstrap",
        "native_apply",
        "strategy",
    ] {
        assert!(refused.contains(field), "{field} is neither supported nor refused");
    }
}
