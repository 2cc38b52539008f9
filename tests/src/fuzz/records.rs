//! The decoder of source records, in every dialect and encoding: key, value, and the headers of the two halves of a key change.
//!
//! A variant is a topic as its table is set up. Beside the limits: a decoder that has seen everything before says the same as one that has seen
//! nothing, every change goes in and comes out, and the contract of its schema can be read.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use landfall_schemas::change::split_fingerprint;
use landfall_schemas::contract::{self, Fingerprint};
use landfall_schemas::dialect::{
    Code, Decoded, Decoder, Dialect, Headers, IdBytes, KeyFormat, Keyed, NEW_KEY, OLD_KEY, Options, Order, Record, Registered,
};
use landfall_schemas::wire::{Reader, WireError};
use landfall_schemas::{Change, LogicalType, TableSchema, capture, row};
use std::collections::HashSet;

use super::case::Case;
use super::measure::within;
use super::{Run, Seen, Target, corpus};
use crate::dice::Dice;
use crate::{cases, plain};

/// A topic as a decoder knows it.
#[derive(Clone)]
pub(super) struct Topic {
    pub(super) options: Options,
    registry: Arc<BTreeMap<u64, Registered>>,
    records: Vec<capture::Record>,
}

/// The headers of a case.
#[derive(Debug)]
struct Halves<'a>(&'a Case);

impl Headers for Halves<'_> {
    fn get(&self, name: &str) -> Option<&[u8]> {
        match name {
            NEW_KEY => self.0.part(2),
            OLD_KEY => self.0.part(3),
            _ => None,
        }
    }
}

/// What a record came to, without what it borrows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    /// How many changes, and the hash of their bytes.
    Changes(usize, u64),
    Ignored(&'static str),
    Rejected(&'static str, String),
}

impl Topic {
    /// The topics of a fixture file; one that holds several tables is as many, each of one table's records.
    fn of(file: &str, dialect: Dialect) -> Vec<Self> {
        let registry = Arc::new(corpus::registry(file));
        let mut topics: BTreeMap<String, Vec<capture::Record>> = BTreeMap::new();
        for record in corpus::records(file) {
            let event = record.value.as_ref().and_then(|value| serde_json::from_slice::<serde_json::Value>(value).ok());
            let topic = match event.as_ref().and_then(|event| event["table"].as_str()) {
                Some(table) if matches!(dialect, Dialect::Maxwell | Dialect::Canal) => format!("{file}.{table}"),
                _ => record.topic.clone(),
            };
            topics.entry(topic).or_default().push(record);
        }
        let known = (!registry.is_empty()).then_some(IdBytes::Four);
        let order = if matches!(dialect, Dialect::Maxwell | Dialect::Canal) { Order::Offset } else { Order::Dialect };
        let topic = |(topic, records)| {
            let options = Options { dialect, order, topic, connector: "postgresql", registry: known, ..Options::new("t") };
            Self { options, registry: Arc::clone(&registry), records }
        };
        topics.into_iter().map(topic).collect()
    }

    /// With the types that the same tables have in records with a schema part.
    fn declared(mut self, twins: &[Self]) -> Self {
        let table = |topic: &str| topic.rsplit('.').next().unwrap_or_default().to_owned();
        for twin in twins {
            if table(&self.options.topic) != table(&twin.options.topic) {
                continue;
            }
            let mut decoder = Decoder::new(twin.options.clone());
            for (name, ty) in twin.records.iter().filter_map(|record| columns(&mut decoder, record)).flatten() {
                if !self.options.types.iter().any(|(known, _)| *known == name) {
                    self.options.types.push((name, ty));
                }
            }
        }
        self
    }

    /// With what Maxwell needs beside: its times have no zones, and of tables without a twin a type is declared that its values fit.
    fn of_maxwell(mut self) -> Self {
        for (_, ty) in &mut self.options.types {
            if let LogicalType::TimestampTz { digits } = *ty {
                *ty = LogicalType::Timestamp { digits };
            }
        }
        let events = self.records.iter().filter_map(|r| serde_json::from_slice::<serde_json::Value>(r.value.as_ref()?).ok());
        for (name, value) in events.filter_map(|mut event| event["data"].as_object_mut().map(std::mem::take)).flatten() {
            let ty = match value {
                serde_json::Value::Number(_) => LogicalType::Numeric,
                serde_json::Value::String(_) => LogicalType::Text,
                _ => LogicalType::Json,
            };
            if !self.options.types.iter().any(|(known, _)| *known == name) {
                self.options.types.push((name, ty));
            }
        }
        self
    }

    /// Without the columns that stop the table by name: they have types that nothing is made of yet.
    fn readable(mut self) -> Self {
        let mut decoder = Decoder::new(self.options.clone());
        for case in self.cases(0).collect::<Vec<_>>() {
            bring(&mut decoder, &self, &case);
            let record = Record { offset: 7, key: case.part(0), value: case.part(1), headers: None, timestamp: None };
            let Err(reject) = decoder.decode(record).map(drop) else { continue };
            if reject.code == Code::TypeUnsupported {
                // They are named in quotes, each with its type behind it.
                self.options.exclude.extend(reject.reason.split('"').skip(3).step_by(2).map(str::to_owned));
                decoder = Decoder::new(self.options.clone());
            }
        }
        self
    }

    /// Adds the values of its rows.
    fn collect(&self, values: &mut Values) {
        let mut decoder = Decoder::new(self.options.clone());
        for case in self.cases(0) {
            bring(&mut decoder, self, &case);
            let record = Record { offset: 7, key: case.part(0), value: case.part(1), headers: None, timestamp: None };
            let Ok(Decoded::Changes(changes)) = decoder.decode(record) else { continue };
            let columns = changes.schema.columns();
            let mut add = |keyed: &Keyed<'_>| -> Result<(), WireError> {
                for row in [keyed.change.after, keyed.change.before].into_iter().flatten() {
                    let mut reader = Reader::new(row);
                    for column in columns {
                        let start = reader;
                        row::skip(column.ty, &mut reader)?;
                        let bytes = &start.rest()[..start.rest().len() - reader.rest().len()];
                        let _ = values.entry(column.ty.to_string()).or_default().insert(bytes.to_vec());
                    }
                }
                Ok(())
            };
            changes.each(|_, keyed| add(keyed)).expect("our own rows");
        }
    }

    pub(super) fn cases(&self, variant: usize) -> impl Iterator<Item = Case> {
        let header = |record: &capture::Record, name| record.header(name).map(<[u8]>::to_vec);
        let case = move |r: &capture::Record| Case { variant, parts: vec![r.key.clone(), r.value.clone(), header(r, NEW_KEY), header(r, OLD_KEY)] };
        self.records.iter().map(case)
    }
}

/// The columns that a record has.
fn columns(decoder: &mut Decoder, record: &capture::Record) -> Option<Vec<(String, LogicalType)>> {
    let record = Record { offset: record.offset, key: record.key.as_deref(), value: record.value.as_deref(), headers: None, timestamp: None };
    match decoder.decode(record).ok()? {
        Decoded::Changes(changes) => Some(changes.schema.columns().iter().map(|c| (c.name.clone(), c.ty)).collect()),
        Decoded::Ignored(_) => None,
    }
}

/// What a record says, with each change as the log holds it: what a source record costs.
fn say(decoder: &mut Decoder, case: &Case, log: &mut Vec<u8>) -> Said {
    let halves = Halves(case);
    let record = Record { offset: 7, key: case.part(0), value: case.part(1), headers: Some(&halves), timestamp: None };
    match decoder.decode(record) {
        Err(reject) => Said::Rejected(reject.code.as_str(), reject.reason),
        Ok(Decoded::Ignored(ignored)) => Said::Ignored(ignored.name()),
        Ok(Decoded::Changes(changes)) => {
            let (mut count, mut hasher) = (0, DefaultHasher::new());
            let take = |_, keyed: &Keyed<'_>| -> Result<(), std::convert::Infallible> {
                log.clear();
                keyed.change.encode(changes.fingerprint, log);
                (keyed.key, &*log, changes.by_offset).hash(&mut hasher);
                count += 1;
                Ok(())
            };
            let Ok(()) = changes.each(take);
            Said::Changes(count, hasher.finish())
        }
    }
}

/// Every change goes in and comes out.
fn round_trip(decoder: &mut Decoder, case: &Case, contracts: &mut HashSet<Fingerprint>) -> Result<(), String> {
    let halves = Halves(case);
    let record = Record { offset: 7, key: case.part(0), value: case.part(1), headers: Some(&halves), timestamp: None };
    let Ok(Decoded::Changes(changes)) = decoder.decode(record) else { return Ok(()) };
    readable(changes.schema, changes.fingerprint, contracts)?;
    let mut bytes = Vec::new();
    changes.each(|_, keyed| {
        bytes.clear();
        keyed.change.encode(changes.fingerprint, &mut bytes);
        let (fingerprint, body) = split_fingerprint(&bytes).map_err(|e| e.to_string())?;
        let back = Change::decode(changes.schema, body).map_err(|e| format!("a change cannot be read back: {e}"))?;
        if fingerprint != changes.fingerprint || back != keyed.change {
            return Err(format!("{:?} comes back as {back:?}", keyed.change));
        }
        let mut text = String::new();
        back.write_json(changes.schema, &mut text).map_err(|e| format!("a change has no text: {e}"))
    })
}

/// The contract of a schema gives back the schema; asked once for each.
fn readable(schema: &TableSchema, fingerprint: Fingerprint, contracts: &mut HashSet<Fingerprint>) -> Result<(), String> {
    if contracts.len() > 10_000 {
        contracts.clear();
    }
    if !contracts.insert(fingerprint) {
        return Ok(());
    }
    let (text, made) = contract::of(schema);
    if made != fingerprint {
        return Err(format!("the contract has fingerprint {made} and not {fingerprint}"));
    }
    match contract::parse(&text) {
        Ok(back) if back == *schema => Ok(()),
        Ok(back) => Err(format!("{schema:?} comes back as {back:?}")),
        Err(error) => Err(format!("the contract of {schema:?} cannot be read: {error}: {:?}", std::error::Error::source(&error))),
    }
}

fn bring(decoder: &mut Decoder, topic: &Topic, case: &Case) {
    let halves = Halves(case);
    let record = Record { offset: 7, key: case.part(0), value: case.part(1), headers: Some(&halves), timestamp: None };
    while let Some(id) = decoder.wanted(&record) {
        decoder.bring(id, topic.registry.get(&id).unwrap_or(&Registered::Unknown));
    }
}

fn run(topics: Vec<Topic>) -> Run {
    let mut decoders: Vec<Decoder> = topics.iter().map(|t| Decoder::new(t.options.clone())).collect();
    let (mut contracts, mut log) = (HashSet::new(), Vec::new());
    Box::new(move |case| {
        let variant = case.variant % topics.len();
        let (topic, decoder) = (&topics[variant], &mut decoders[variant]);
        bring(decoder, topic, case);
        let said = within(case.bytes(), || say(decoder, case, &mut log))?;
        // The first record is the one for which everything has to be worked out, and what the registry sends is not of its bytes.
        let length = |r: &Registered| if let Registered::Avro { text, .. } | Registered::Protobuf { text, .. } = r { text.len() } else { 0 };
        let named = topic.registry.values().map(length).max().unwrap_or(0);
        let first = within(case.bytes() + named, || {
            let mut fresh = Decoder::new(topic.options.clone());
            bring(&mut fresh, topic, case);
            say(&mut fresh, case, &mut log)
        })?;
        if said != first {
            return Err(format!("a decoder that has seen others says {said:?}, a fresh one {first:?}"));
        }
        round_trip(decoder, case, &mut contracts)?;
        match said {
            Said::Rejected(_, reason) if reason.len() > 4_010 => Err(format!("a reason of {} bytes", reason.len())),
            Said::Rejected(..) => Ok(Seen::Refused),
            _ => Ok(Seen::Taken),
        }
    })
}

fn target(name: &'static str, start: fn() -> Run, topics: Vec<Topic>) -> Target {
    let corpus = topics.iter().enumerate().flat_map(|(variant, topic)| topic.cases(variant)).collect();
    Target { name, corpus, start, both: true }
}

fn each(files: &[&str], dialect: Dialect) -> Vec<Topic> {
    files.iter().flat_map(|file| Topic::of(file, dialect)).collect()
}

/// The hard cases that come as JSON, each table a topic: those with a schema part, or those without.
fn hard_cases(with_schema: bool) -> Vec<Topic> {
    let mut topics = Vec::new();
    for table in cases::read().values().flat_map(|case| &case.tables) {
        let types = table.declare.get("columns").and_then(|c| c.get("types")).and_then(|t| t.as_object());
        if table.registered().is_some() || types.is_some() == with_schema {
            continue;
        }
        topics.push(hard_case(table));
    }
    topics
}

fn hard_case(table: &cases::Table) -> Topic {
    let types = table.declare.get("columns").and_then(|c| c.get("types")).and_then(|t| t.as_object());
    let declared = types.into_iter().flatten().filter_map(|(name, ty)| Some((name.clone(), ty.as_str()?.parse().ok()?)));
    let options = Options { types: declared.collect(), topic: "case.t".to_owned(), ..Options::new("t") };
    let record = |r: crate::harness::kafka::Record| capture::Record {
        key: r.key,
        value: r.value,
        headers: r.headers.into_iter().map(|(name, value)| (name, Some(value))).collect(),
        ..capture::Record::default()
    };
    let records = table.produced("case.t", "t", (1, 2)).into_iter().map(record).collect();
    Topic { options, registry: Arc::default(), records }
}

/// Values by the text of their type, as a row has them.
pub(crate) type Values = BTreeMap<String, BTreeSet<Vec<u8>>>;

/// The values of all rows of every capture, by its name.
pub(crate) fn captured() -> BTreeMap<String, Values> {
    let [postgres, mariadb] =
        [["pg-types-schema", "pg-ops-schema"], ["my-ops-schema", "my-types-schema"]].map(|files| each(&files, Dialect::Debezium));
    let captures = corpus::captures();
    let mut found = BTreeMap::new();
    for file in captures {
        let dialect = match file.split('-').next() {
            Some("maxwell") => Dialect::Maxwell,
            Some("canal") => Dialect::Canal,
            _ if file.contains("-flat-") => Dialect::Flattened,
            _ => Dialect::Debezium,
        };
        let is_told = file.ends_with("-schema") || file.ends_with("-avro") || file.ends_with("-protobuf") || dialect == Dialect::Canal;
        let mut values = Values::new();
        for topic in Topic::of(&file, dialect) {
            let topic = match dialect {
                _ if is_told => topic,
                Dialect::Maxwell => topic.declared(&mariadb).of_maxwell(),
                _ => topic.declared(&postgres),
            };
            topic.readable().collect(&mut values);
        }
        let _ = found.insert(file, values);
    }
    found
}

fn with_schema_topics() -> Vec<Topic> {
    const FILES: [&str; 6] =
        ["pg-types-schema", "pg-ops-schema", "my-ops-schema", "my-types-schema", "pg-types-string-schema", "pg-types-nanos-schema"];
    [each(&FILES, Dialect::Debezium), hard_cases(true)].concat()
}

fn json_topics() -> Vec<Topic> {
    let twins = each(&["pg-types-schema", "pg-ops-schema"], Dialect::Debezium);
    let topics = each(&["pg-types", "pg-ops"], Dialect::Debezium).into_iter().map(|t| t.declared(&twins));
    topics.chain(hard_cases(false)).collect()
}

fn avro_topics() -> Vec<Topic> {
    each(&["pg-types-avro", "my-types-avro", "pg-ops-avro", "my-ops-avro"], Dialect::Debezium)
}

fn protobuf_topics() -> Vec<Topic> {
    let (records, schema) = corpus::every_message();
    let registry = Arc::new(BTreeMap::from([(7, schema)]));
    let options = Options { registry: Some(IdBytes::Four), topic: "every.public.every".to_owned(), ..Options::new("t") };
    let mut topics = each(&["pg-types-protobuf", "pg-types-wrapper-protobuf", "pg-types-connect-protobuf"], Dialect::Debezium);
    topics.push(Topic { options, registry, records });
    topics
}

fn flattened_topics() -> Vec<Topic> {
    let twins = each(&["pg-ops-schema"], Dialect::Debezium);
    let bare = each(&["pg-ops-flat-json", "pg-ops-flat-tombstone-json"], Dialect::Flattened).into_iter().map(|t| t.declared(&twins));
    bare.chain(each(&["pg-ops-flat-rewrite-json-schema"], Dialect::Flattened)).collect()
}

fn maxwell_topics() -> Vec<Topic> {
    let twins = each(&["my-ops-schema", "my-types-schema"], Dialect::Debezium);
    ["maxwell-my-ops", "maxwell-my-types"]
        .iter()
        .flat_map(|file| Topic::of(file, Dialect::Maxwell))
        .map(|t| t.declared(&twins).of_maxwell())
        .collect()
}

fn canal_topics() -> Vec<Topic> {
    ["canal-my-ops", "canal-my-types"].iter().flat_map(|file| Topic::of(file, Dialect::Canal)).collect()
}

/// Rows by themselves: those of a connector, and those that the test of plain topics makes, with keys of each kind.
fn plain_topics() -> Vec<Topic> {
    let registry: Arc<BTreeMap<u64, Registered>> = Arc::new(
        plain::AVRO.map(|(id, text)| (u64::from(id), Registered::Avro { text: text.to_owned(), references: Vec::new() })).into_iter().collect(),
    );
    let of = |table: &str, key_format, types: &[(&str, LogicalType)]| {
        let options = Options {
            dialect: Dialect::Plain,
            order: Order::Offset,
            key_format,
            primary_key: Some(vec!["id".to_owned()]),
            types: types.iter().map(|(name, ty)| ((*name).to_owned(), *ty)).collect(),
            types_are_columns: true,
            headers: vec![("trace".to_owned(), "x-trace".to_owned())],
            registry: Some(IdBytes::Four),
            ..Options::new("t")
        };
        let mut dice = Dice::new(7);
        let record = |n| {
            let (sent, ..) = plain::record("t", table, n, &mut dice);
            capture::Record { key: sent.key, value: sent.value, ..capture::Record::default() }
        };
        Topic { options, registry: Arc::clone(&registry), records: (0..40).map(record).collect() }
    };
    let size = LogicalType::decimal(12, 2).expect("a decimal");
    let own = [
        of("users", KeyFormat::Detected, &[("id", LogicalType::Text), ("v", LogicalType::Text), ("size", size)]),
        of("counters", KeyFormat::Int64, &[("id", LogicalType::Int64), ("v", LogicalType::Text)]),
        of("readings", KeyFormat::Detected, &[]),
    ];
    let rows = flattened_topics().into_iter().map(|topic| {
        let options = Options { dialect: Dialect::Plain, order: Order::Offset, ..topic.options };
        Topic { options, ..topic }
    });
    rows.chain(own).collect()
}

/// Topics whose records come without a schema part, of every dialect whose types are nowhere.
pub(super) fn bare_topics() -> Vec<Topic> {
    [json_topics(), flattened_topics(), maxwell_topics(), plain_topics()].concat()
}

/// Documents of MongoDB: those of the hard cases, as columns and as they are.
fn mongodb_topics() -> Vec<Topic> {
    let is_mongodb = |table: &&cases::Table| table.connector == "mongodb";
    let cases = cases::read();
    let topics = cases.values().flat_map(|case| &case.tables).filter(is_mongodb).map(hard_case).map(|topic| {
        let options = Options { dialect: Dialect::Mongodb, connector: "mongodb", types_are_columns: true, ..topic.options };
        Topic { options, ..topic }
    });
    let topics: Vec<Topic> = topics.collect();
    let whole = topics.clone().into_iter().map(|topic| Topic { options: Options { types: Vec::new(), ..topic.options }, ..topic });
    topics.iter().cloned().chain(whole).collect()
}

/// Keys alone: a null value deletes what its key names.
fn key_topics() -> Vec<Topic> {
    let mut topics = [json_topics(), with_schema_topics(), avro_topics(), flattened_topics(), plain_topics(), mongodb_topics()].concat();
    for record in topics.iter_mut().flat_map(|t| &mut t.records) {
        record.value = None;
        record.headers.clear();
    }
    topics
}

pub(super) fn json() -> Target {
    target("debezium_json", || run(json_topics()), json_topics())
}

pub(super) fn json_with_schema() -> Target {
    target("debezium_json_with_schema", || run(with_schema_topics()), with_schema_topics())
}

pub(super) fn avro() -> Target {
    target("debezium_avro", || run(avro_topics()), avro_topics())
}

pub(super) fn protobuf() -> Target {
    target("debezium_protobuf", || run(protobuf_topics()), protobuf_topics())
}

pub(super) fn flattened() -> Target {
    target("flattened", || run(flattened_topics()), flattened_topics())
}

pub(super) fn maxwell() -> Target {
    target("maxwell", || run(maxwell_topics()), maxwell_topics())
}

pub(super) fn canal() -> Target {
    target("canal", || run(canal_topics()), canal_topics())
}

pub(super) fn plain() -> Target {
    target("plain", || run(plain_topics()), plain_topics())
}

pub(super) fn mongodb() -> Target {
    target("mongodb", || run(mongodb_topics()), mongodb_topics())
}

pub(super) fn keys() -> Target {
    target("record_keys", || run(key_topics()), key_topics())
}
