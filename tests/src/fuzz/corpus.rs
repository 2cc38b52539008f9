//! Where inputs come from: captured records with their registries, and the events of the hard cases.

use std::collections::BTreeMap;

use landfall_schemas::capture;
use landfall_schemas::dialect::Registered;

use crate::harness::stack;

pub(crate) fn text(path: &str) -> String {
    let path = stack::root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The names of all captures.
pub(crate) fn captures() -> Vec<String> {
    let folder = stack::root().join("tests/fixtures/debezium");
    let files = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())).flatten();
    let name = |file: std::fs::DirEntry| file.file_name().to_str().and_then(|name| name.strip_suffix(".jsonl")).map(str::to_owned);
    let mut names: Vec<String> = files.filter_map(name).collect();
    names.sort();
    assert!(names.len() >= 23, "captures are missing: {names:?}");
    names
}

/// The records of a fixture file.
pub(crate) fn records(file: &str) -> Vec<capture::Record> {
    text(&format!("tests/fixtures/debezium/{file}.jsonl")).lines().map(|line| capture::Record::parse(line).expect(file)).collect()
}

/// What a fixture's registry has, by id; nothing for a fixture without one.
pub(crate) fn registry(file: &str) -> BTreeMap<u64, Registered> {
    if !file.ends_with("-avro") && !file.ends_with("-protobuf") {
        return BTreeMap::new();
    }
    let schemas: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(&text(&format!("tests/fixtures/debezium/{file}.schemas.json"))).expect("a map of schemas");
    let registered = |(id, schema): (String, serde_json::Value)| {
        let (text, references) = (schema["schema"].as_str().expect("a text").to_owned(), Vec::new());
        let is_protobuf = schema["type"] == "PROTOBUF";
        let registered = if is_protobuf { Registered::Protobuf { text, references } } else { Registered::Avro { text, references } };
        (id.parse().expect("an id"), registered)
    };
    schemas.into_iter().map(registered).collect()
}

/// The messages of every type that Google's encoder wrote, and their schema, which is 7.
pub(crate) fn every_message() -> (Vec<capture::Record>, Registered) {
    let file = |name: &str| text(&format!("tests/fixtures/protobuf/{name}"));
    let records = file("every.jsonl").lines().map(|line| capture::Record::parse(line).expect("a record")).collect();
    let references = vec![landfall_schemas::avro::Reference { name: "colour.proto".to_owned(), text: file("colour.proto") }];
    (records, Registered::Protobuf { text: file("every.proto"), references })
}
