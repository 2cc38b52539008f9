//! The sink of compacted topics against a real broker: `LANDFALL_TEST_KAFKA` names one.
//!
//! Every test has topics of its own, named after it and the moment. The store-independent rules of a sink are in the conformance suite; here is what
//! only Kafka has: whose a topic is, what an open landing leaves, what a consumer reads.

#![allow(clippy::disallowed_methods, reason = "a test has a clock and threads of its own")]

mod conformance;
mod owners;
mod speed;
mod topics;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use landfall::sink::kafka::{KafkaSink, Options, Process};
use landfall::sink::{Batch, Claim, Cursor, Delta, Error, Opened, Sink, Target, version};
use landfall_schemas::{TableSchema, Value, contract, row};
use landfall_topology::{Document, LookupError, check};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};

use crate::conformance::{Rows, encode, encode_key, schema};
use crate::harness::kafka::Kafka;
use crate::harness::{latest, stack, wait};

/// Partitions of the topics of rows.
const PARTITIONS: u32 = 4;

/// Topics of a test's own.
struct Home {
    name: String,
    kafka: Kafka,
    options: Options,
    /// Knows of records that are not marked yet.
    ends: BaseConsumer,
    /// What was read of the topic of contracts.
    contracts: RefCell<HashMap<contract::Fingerprint, TableSchema>>,
}

impl Home {
    fn new(test: &str) -> Self {
        Self::with(test, "", Some(PARTITIONS))
    }

    fn with(test: &str, client: &str, partitions: Option<u32>) -> Self {
        let name = stack::unique(test);
        let text = format!(
            "topology: {name}\nkafka: {{ brokers: [\"{}\"], client: {{ socket.keepalive.enable: true{client} }} }}\n\
             sources: [ {{ id: db, type: postgresql, change_signal: debezium, cdc: {{ topic_prefix: x }} }} ]\n\
             tables: [ {{ id: o, source: db, schema: public, name: o, log: {{ latest: true }}, replicas: [] }} ]\n",
            stack::kafka()
        );
        let checked = check(&[Document::new("x", text)], &|_| Err(LookupError::new("is not set")));
        let plan = checked.plan.unwrap_or_else(|| panic!("{:?}", checked.issues));
        let options = Options { kafka: plan.kafka.clone(), schemas: plan.schemas_topic(), partitions };
        let ends = ClientConfig::new()
            .set("bootstrap.servers", stack::kafka())
            .set("broker.address.family", "v4")
            .set("group.id", "landfall-tests-ends")
            .set("isolation.level", "read_uncommitted")
            .create()
            .expect("a consumer needs no connection");
        Self { name, kafka: Kafka::new(), options, ends, contracts: RefCell::default() }
    }

    /// A sink of a new process.
    fn sink(&self) -> KafkaSink {
        KafkaSink::new(self.options.clone(), Arc::new(Process::default()))
    }

    fn topic(&self, table: &str) -> String {
        format!("{}.{table}.latest", self.name)
    }

    fn target(&self, table: &str, schema: Arc<TableSchema>) -> Target {
        Target { replica: format!("{}.latest.{table}", self.name), table: self.topic(table), generation: 0, build: 0, schema }
    }

    /// Opens, prepares and claims partition 0.
    fn owner(&self, table: &str) -> Owner {
        let mut sink = self.sink();
        let mut target = self.target(table, pair());
        target.build = sink.open(&target.replica, &target.table, None).expect("opens").build;
        sink.prepare(&target).expect("prepares");
        let claim = sink.claim(&target, 0).expect("claims");
        Owner { sink, target, claim }
    }

    /// Waits until what has landed is seen by all: a batch is decided before the broker has marked its records.
    fn await_marks(&self, topic: &str) {
        for (partition, stable) in self.kafka.ends(topic) {
            let end = self.ends.fetch_watermarks(topic, partition, Duration::from_secs(20)).expect("the broker answers").1;
            if stable < end {
                wait::expect("the broker marks what was landed", Duration::from_secs(20), || match self.kafka.ends(topic)[&partition] {
                    stable if stable >= end => Ok(()),
                    stable => Err(format!("{stable} of {end}")),
                });
            }
        }
    }

    /// The live rows of a topic, as the schemas crate writes the values.
    fn read(&self, target: &Target) -> Rows {
        self.await_marks(&target.table);
        let records = self.kafka.read(&target.table);
        let mut contracts = self.contracts.borrow_mut();
        let texts = |record: &crate::harness::kafka::Record| {
            let (fingerprint, body) = landfall_schemas::change::split_fingerprint(record.value.as_deref().expect("a row")).expect("single object");
            let written = contracts.entry(fingerprint).or_insert_with(|| {
                let all = self.kafka.read(&self.options.schemas);
                let named = all.iter().find(|c| c.key.as_deref() == Some(&fingerprint.0.to_be_bytes())).expect("the contract is there");
                contract::parse(std::str::from_utf8(named.value.as_deref().expect("a contract")).expect("text")).expect("a contract")
            });
            let values: Vec<(String, Option<String>)> = row::values(written.columns(), body)
                .map(|v| {
                    let (column, value) = v.expect("a row of its contract");
                    let mut text = String::new();
                    value.write_text(column.ty, &mut text);
                    (column.name.clone(), (!value.is_null()).then_some(text))
                })
                .collect();
            // A column that came later is NULL in what was written before: its default.
            let columns = target.schema.columns().iter();
            columns.map(|c| values.iter().find(|(name, _)| *name == c.name).and_then(|(_, text)| text.clone())).collect()
        };
        latest::live(&records).into_iter().map(texts).collect()
    }
}

/// An owner of partition 0.
struct Owner {
    sink: KafkaSink,
    target: Target,
    claim: Claim,
}

impl Owner {
    fn try_land(&mut self, next: i64, rows: &[(i64, Option<&str>)]) -> Result<(), Error> {
        let mut batch = Batch::default();
        batch.reset(0, self.claim.fence, self.claim.next, next);
        for (at, (id, v)) in rows.iter().enumerate() {
            let values = [Value::Int(*id), v.map_or(Value::Null, Value::Text)];
            let row = v.map(|_| encode(&self.target.schema, &values));
            let offset = self.claim.next.unwrap_or(0) + at as i64;
            batch.push(Delta { key: &encode_key(&self.target.schema, &values), row: row.as_deref(), version: version(self.target.build, offset) });
        }
        self.sink.land(&self.target, &batch)?;
        self.claim.next = Some(next);
        Ok(())
    }

    fn land(&mut self, next: i64, rows: &[(i64, Option<&str>)]) {
        self.try_land(next, rows).expect("lands");
    }
}

fn pair() -> Arc<TableSchema> {
    schema(&[("id", "int64"), ("v", "text")], &["id"])
}

fn rows(list: &[(i64, &str)]) -> Rows {
    list.iter().map(|(id, v)| vec![Some(id.to_string()), Some((*v).to_owned())]).collect()
}

/// A sink that keeps the scenarios of one run apart from those of another: their topics and replicas bear the run's name.
struct Apart {
    inner: KafkaSink,
    prefix: String,
}

impl Apart {
    fn name(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    fn target(&self, target: &Target) -> Target {
        Target { replica: self.name(&target.replica), table: self.name(&target.table), ..target.clone() }
    }
}

impl Sink for Apart {
    fn open(&mut self, replica: &str, table: &str, build: Option<u16>) -> Result<Opened, Error> {
        let (replica, table) = (self.name(replica), self.name(table));
        self.inner.open(&replica, &table, build)
    }

    fn prepare(&mut self, target: &Target) -> Result<(), Error> {
        let target = self.target(target);
        self.inner.prepare(&target)
    }

    fn claim(&mut self, target: &Target, partition: i32) -> Result<Claim, Error> {
        let target = self.target(target);
        self.inner.claim(&target, partition)
    }

    fn cursor(&mut self, target: &Target, partition: i32) -> Result<Option<Cursor>, Error> {
        let target = self.target(target);
        self.inner.cursor(&target, partition)
    }

    fn land(&mut self, target: &Target, batch: &Batch) -> Result<(), Error> {
        let target = self.target(target);
        self.inner.land(&target, batch)
    }

    fn rebuild(&mut self, replica: &str, table: &str) -> Result<u16, Error> {
        let (replica, table) = (self.name(replica), self.name(table));
        self.inner.rebuild(&replica, &table)
    }
}
