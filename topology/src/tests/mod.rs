//! Tests over whole files: one right file is changed in one place, and the issues are compared as data.

#![allow(clippy::disallowed_methods, reason = "tests measure how long hostile input takes")]

mod cases;
mod effects;
mod fuzz;
mod load;
mod patterns;
mod plans;
mod render;
mod samples;
mod secrets;
mod yaml;

use crate::{Checked, Code, Document, Issue, LookupError, Reference, check};

/// A right file that uses each kind of block.
const BASE: &str = r#"topology: shop
kafka:
  brokers: [localhost:9092]
defaults: { push_debounce_quiet: 0 }
sources:
  - id: shopdb
    type: postgresql
    change_signal: debezium
    cdc: { topic_prefix: shop }
stores:
  - { id: local, type: duckdb, path: replicas.duckdb }
  - { id: serving, type: postgresql, url: "postgresql://landfall@localhost/shop" }
  - { id: warehouse, type: clickhouse, url: "http://localhost:8123" }
tables:
  - id: orders
    source: shopdb
    schema: public
    name: orders
    replicas:
      - { store: local }
"#;

/// Variables and files that the tests know; `UNSET` is none of them.
fn lookup(reference: &Reference) -> Result<String, LookupError> {
    match reference {
        Reference::Env(name) => match name.as_str() {
            "NAME" => Ok("orders".into()),
            "NUMBER" => Ok("7".into()),
            "EMPTY" => Ok(String::new()),
            "URL" => Ok("postgresql://landfall:canary@db:5432/shop".into()),
            "HTTP_URL" => Ok("http://clickhouse:8123".into()),
            name if name.ends_with("PASSWORD") || name.ends_with("SALT") => Ok("canary".into()),
            _ => Err(LookupError::new("is not set")),
        },
        Reference::File(path) if path.starts_with("/run/secrets/") => Ok("canary".into()),
        Reference::File(_) => Err(LookupError::new("cannot be read: entity not found")),
    }
}

fn check_text(text: &str) -> Checked {
    check(&[Document::new("landfall.yaml", text)], &lookup)
}

/// [`BASE`] with each text replaced by another; each must stand there exactly once.
fn patched(edits: &[(&str, &str)]) -> String {
    let mut text = BASE.to_owned();
    for (old, new) in edits {
        assert_eq!(text.matches(old).count(), 1, "{old:?} must stand in the base once");
        text = text.replacen(old, new, 1);
    }
    text
}

/// Code, path, and what stands in the text at the issue's place, up to `width` characters.
fn summary(text: &str, issue: &Issue, width: usize) -> (Code, String, String) {
    let line = text.lines().nth(issue.line as usize - 1).unwrap_or_default();
    let there = line.chars().skip(issue.column as usize - 1).take(width).collect();
    (issue.code, issue.path.clone(), there)
}

#[test]
fn the_base_is_right() {
    let checked = check_text(BASE);
    assert_eq!(checked.issues, vec![]);
    assert!(checked.plan.is_some());
}
