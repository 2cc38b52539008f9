//! Where inputs come from: captured records with their registries, and the events of the hard cases.

use std::collections::BTreeMap;

use landfall_schemas::capture;
use landfall_schemas::dialect::Registered;

use crate::harness::stack;

pub(crate) fn text(path: &str) -> String {
    let path = stack::root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The records of a fixture file.
pub(crate) fn records(file: &str) -> Vec<capture::Record> {
    text(&format!("tests/fixtures/debezium/{file}.jsonl")).lines().map(|line| capture::Record::parse(line).expect(file)).collect()
}

/// What a fixture's registry has, by id; nothing for a fixture without one.
pub(crate) fn registry(file: &str) -> BTreeMap<u64, Registered> {
    if !file.ends_with("-avro") {
        return BTreeMap::new();
    }
    let schemas: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(&text(&format!("tests/fixtures/debezium/{file}.schemas.json"))).expect("a map of schemas");
    let registered = |(id, schema): (String, serde_json::Value)| {
        let text = schema["schema"].as_str().expect("a text").to_owned();
        (id.parse().expect("an id"), Registered::Avro { text, references: Vec::new() })
    };
    schemas.into_iter().map(registered).collect()
}
