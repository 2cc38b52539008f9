//! A real Postgres table through a real Debezium connector into all three stores, compared as text column by column.
//!
//! Every type that Landfall has so far, with NULL, smallest, largest and special values and thousands of random rows that SQL makes from row numbers
//! alone, under inserts, updates that leave a large text unsent, deletes, key changes and truncates while replicas land. How each store renders a value
//! is one table, in `harness::stores`. Dates beyond the years that ClickHouse documents are a table of their own: exact in the other two, dead
//! letters by name there. Years before Christ are left out: the connector's snapshot sends them as years after it.

use std::time::Duration;

use landfall::log::murmur2;
use landfall_schemas::{LogicalType, key};
use serde_json::json;

use crate::harness::kafka::Kafka;
use crate::harness::stack;
use crate::harness::stores::{Column, Kind, Postgres, Row, columns};
use crate::harness::topology::{Stores, Topology};
use crate::harness::wait;
use crate::scene::{self, DRAIN};

/// What the connector writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    /// JSON with a schema part.
    Json,
    /// Avro, its schemas in the registry.
    Avro,
}

impl Encoding {
    /// The settings of one of its converters.
    fn converter(self, part: &str) -> Vec<(String, String)> {
        let name = |rest: &str| format!("{part}.converter{rest}");
        match self {
            Self::Json => {
                vec![(name(""), "org.apache.kafka.connect.json.JsonConverter".to_owned()), (name(".schemas.enable"), "true".to_owned())]
            }
            Self::Avro => vec![(name(""), "io.confluent.connect.avro.AvroConverter".to_owned()), (name(".schema.registry.url"), stack::registry())],
        }
    }

    /// Whether a record key is that of a row.
    fn is_key(self, key: &[u8], id: u32) -> bool {
        match self {
            Self::Json => String::from_utf8_lossy(key).contains(&format!("{{\"id\":{id}}}")),
            Self::Avro => {
                // The frame, then the integer as Avro writes it.
                let (mut rest, mut wanted) = (id << 1, Vec::new());
                while rest >= 0x80 {
                    wanted.push(rest as u8 | 0x80);
                    rest >>= 7;
                }
                wanted.push(rest as u8);
                key.get(5..) == Some(&wanted)
            }
        }
    }
}

/// How long a connector may take to send everything.
const CONNECTOR: Duration = Duration::from_secs(90);

const SCHEMA: &str = "CREATE TABLE types (id int PRIMARY KEY, c_bool bool, c_int2 smallint, c_int4 int, c_int8 bigint, c_real real, \
    c_double double precision, c_decimal numeric(18,4), c_numeric numeric, c_text text, c_varchar varchar(300), c_bytea bytea, c_uuid uuid, \
    c_date date, c_time time, c_timestamp timestamp, c_timestamptz timestamptz, c_json json, c_jsonb jsonb, c_large text); \
    CREATE TABLE extremes (id int PRIMARY KEY, c_date date, c_numeric numeric); CREATE TABLE emptied (id int PRIMARY KEY, v text); \
    CREATE FUNCTION h(i int, salt text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT md5(i || salt) $$; \
    CREATE FUNCTION n(i int, salt text) RETURNS bigint LANGUAGE sql IMMUTABLE AS \
      $$ SELECT ('x' || substr(md5(i || salt), 1, 16))::bit(64)::bigint $$; \
    CREATE FUNCTION big(i int) RETURNS text LANGUAGE sql IMMUTABLE AS \
      $$ SELECT string_agg(md5(i || 'large' || k), '') FROM generate_series(1, 280) k $$;";

/// NULL, and the ends of every type as far as all three stores hold them.
const ENDS: &str = r#"INSERT INTO types (id) VALUES (1);
    INSERT INTO types VALUES (2, false, -32768, -2147483648, -9223372036854775808, '-3.4028235e38', '-1.7976931348623157e308',
      -99999999999999.9999, '-123456789012345678901234567890123456789012345678901234567890.000000000000000000001', '', '', '',
      '00000000-0000-0000-0000-000000000000', '1900-01-01', '00:00:00', '1900-01-01 00:00:00', '1900-01-01 00:00:00+00', '[]', '{}', '');
    INSERT INTO types VALUES (3, true, 32767, 2147483647, 9223372036854775807, '3.4028235e38', '1.7976931348623157e308',
      99999999999999.9999, '1e130', E'\u00e9\u65e5\u672c \U0001F600 "quoted" \\ tab\t line\n', repeat('v', 300), decode('00ff007f80fe', 'hex'),
      'ffffffff-ffff-ffff-ffff-ffffffffffff', '2299-12-31', '24:00:00', '2299-12-31 23:59:59.999999', '2299-12-31 23:59:59.999999+00',
      '{"a": [1, 2.50, null, true, "x\u00e9"], "b": {"c": ""}}', '{"a": [1, 2.50, null, true, "x\u00e9"], "b": {"c": ""}}', repeat('L', 9000));
    INSERT INTO types (id, c_real, c_double, c_decimal, c_numeric) VALUES (4, 'NaN', 'NaN', 0, 0), (5, 'Infinity', 'Infinity', -0.0001, '0.00'),
      (6, '-Infinity', '-Infinity', 0.0001, '-0.000000000000000000000000000001'), (7, '-0', '-0', 1.5, 1.500),
      (8, '1.1754944e-38', '2.2250738585072014e-308', 10, 100), (9, '1e-45', '5e-324', -1, '-1e-50');
    INSERT INTO extremes VALUES (1, NULL, NULL), (2, '0004-02-29', '-1e300'), (3, '5874897-12-31', '1e300'), (4, '1899-12-31', '1e-200'),
      (5, '2300-01-01', 0), (6, '2024-02-29', 1), (7, '0001-01-01', -1);"#;

/// Random rows with these ids; every tenth value is NULL, every eighth row has a text that Postgres stores aside.
fn random(from: u32, to: u32) -> String {
    let or_null = |expression: &str, salt: &str| format!("CASE WHEN n(i, '{salt}null') % 10 = 0 THEN NULL ELSE {expression} END");
    let day = "('1900-01-01'::date + (abs(n(i, 'day') % 146000))::int)";
    let micros = "(abs(n(i, 'us') % 86400000000) * interval '1 microsecond')";
    let values = [
        or_null("n(i, 'b') % 2 = 0", "b"),
        or_null("(n(i, 's') % 32768)::smallint", "s"),
        or_null("(n(i, 'i') % 2147483648)::int", "i"),
        or_null("n(i, 'l')", "l"),
        or_null("((n(i, 'f') % 1000000007) / 4096.0 * power(10, n(i, 'e') % 30))::real", "f"),
        or_null("((n(i, 'd') / 3.0)::double precision * power(10::double precision, (n(i, 'g') % 250)::double precision))", "d"),
        or_null("((n(i, 'n') % 1000000000000000000)::numeric / 10000)::numeric(18,4)", "n"),
        or_null("(n(i, 'm')::numeric * n(i, 'k')::numeric / power(10::numeric, abs(n(i, 'p') % 40)))::numeric", "m"),
        or_null("h(i, 't') || chr((161 + abs(n(i, 'c') % 500))::int)", "t"),
        or_null("substr(h(i, 'v'), 1, abs(n(i, 'w') % 32)::int)", "v"),
        or_null("decode(h(i, 'y'), 'hex')", "y"),
        or_null("h(i, 'u')::uuid", "u"),
        or_null(day, "a"),
        or_null(&format!("('00:00:00'::time + {micros})"), "c"),
        or_null(&format!("({day}::timestamp + {micros})"), "o"),
        or_null(&format!("(({day}::timestamp + {micros}) AT TIME ZONE 'UTC')"), "z"),
        or_null("json_build_object('k', h(i, 'j'), 'n', n(i, 'j') % 1000000, 'l', json_build_array(i, null, true))", "j"),
        or_null("jsonb_build_object('k', h(i, 'x'), 'n', (n(i, 'x') % 1000000) / 64.0)", "x"),
        "CASE WHEN i % 8 = 0 THEN big(i) ELSE h(i, 'small') END".to_owned(),
    ];
    format!("INSERT INTO types SELECT i, {} FROM generate_series({from}, {to}) i", values.join(", "))
}

fn type_columns() -> Vec<Column> {
    columns(&[
        ("id", Kind::Int),
        ("c_bool", Kind::Bool),
        ("c_int2", Kind::Int),
        ("c_int4", Kind::Int),
        ("c_int8", Kind::Int),
        ("c_real", Kind::Float32),
        ("c_double", Kind::Float64),
        ("c_decimal", Kind::Decimal(4)),
        ("c_numeric", Kind::Numeric),
        ("c_text", Kind::Text),
        ("c_varchar", Kind::Text),
        ("c_bytea", Kind::Bytes),
        ("c_uuid", Kind::Uuid),
        ("c_date", Kind::Date),
        ("c_time", Kind::Time),
        ("c_timestamp", Kind::Timestamp),
        ("c_timestamptz", Kind::TimestampTz),
        ("c_json", Kind::Json),
        ("c_jsonb", Kind::Json),
        ("c_large", Kind::Text),
    ])
}

fn extreme_columns() -> Vec<Column> {
    columns(&[("id", Kind::Int), ("c_date", Kind::Date), ("c_numeric", Kind::Numeric)])
}

/// A registered connector; it and its slot go with the handle.
struct Connector {
    name: String,
    source: Postgres,
    agent: ureq::Agent,
}

impl Connector {
    fn register(topology: &Topology, source: Postgres, encoding: Encoding) -> Self {
        let server = stack::postgres();
        let (host, port) = server.rsplit('@').next().and_then(|a| a.rsplit_once(':')).expect("the URL of the test server names host and port");
        let mut config = json!({
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": "1", "plugin.name": "pgoutput",
            "database.hostname": host, "database.port": port, "database.user": "postgres", "database.password": "x",
            "database.dbname": format!("{}src", topology.name), "topic.prefix": topology.prefix, "slot.name": topology.name,
            "publication.name": topology.name, "publication.autocreate.mode": "filtered", "table.include.list": "public.types,public.extremes,public.emptied",
            // Truncates are left out unless they are asked for.
            "skipped.operations": "none",
            "poll.interval.ms": "50", "provide.transaction.metadata": "true",
            "topic.creation.default.partitions": "2", "topic.creation.default.replication.factor": "1",
        });
        for (name, value) in ["key", "value"].into_iter().flat_map(|part| encoding.converter(part)) {
            config[name] = json!(value);
        }
        let agent: ureq::Agent =
            ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(60))).http_status_as_error(false).build().into();
        let connector = Self { name: topology.name.clone(), source, agent };
        let body = config.to_string();
        wait::expect("Connect takes the connector", CONNECTOR, || {
            let put = connector.agent.put(connector.url("config")).header("Content-Type", "application/json").send(body.as_str());
            let mut answer = put.map_err(|e| e.to_string())?;
            let text = answer.body_mut().read_to_string().unwrap_or_default();
            // 409: the worker is rebalancing.
            if answer.status().is_success() { Ok(()) } else { Err(format!("{}: {text}", answer.status())) }
        });
        connector
    }

    fn url(&self, what: &str) -> String {
        format!("{}/connectors/{}/{what}", stack::connect(), self.name)
    }

    fn status(&self) -> String {
        let get = self.agent.get(self.url("status")).call();
        get.ok().and_then(|mut a| a.body_mut().read_to_string().ok()).unwrap_or_else(|| "unknown".to_owned())
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        self.agent.delete(format!("{}/connectors/{}", stack::connect(), self.name)).call().ok();
        // A slot can be dropped once its walsender has gone; without that it would hold the server's log for ever.
        let drop = format!("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '{}' AND NOT active", self.name);
        wait::until(Duration::from_secs(10), || match self.source.query(&drop) {
            Ok(rows) if !rows.is_empty() => Ok(()),
            _ => Err("the slot is in use"),
        })
        .ok();
    }
}

/// Waits until a table's topic holds a change of this key.
fn await_key(kafka: &Kafka, connector: &Connector, topic: &str, id: u32, encoding: Encoding) {
    let mut from = std::collections::BTreeMap::new();
    let found = wait::until(CONNECTOR, || {
        let records = kafka.read_from(topic, &from);
        for record in &records {
            let _ = from.insert(record.partition.unwrap_or(0), record.offset + 1);
        }
        let has = |r: &crate::harness::kafka::Record| encoding.is_key(r.key.as_deref().unwrap_or_default(), id);
        if records.iter().any(has) { Ok(()) } else { Err(format!("key {id} is not in {topic}")) }
    });
    if let Err(why) = found {
        panic!("{why}; the connector: {}", connector.status());
    }
}

/// The partition of a row in the change log of `types`.
fn log_partition(id: i64) -> i32 {
    let mut key = Vec::new();
    key::encode(LogicalType::Int32, landfall_schemas::Value::Int(id), &mut key).expect("an integer is a key");
    murmur2::partition(&key, 4)
}

fn by_id(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by_key(|row| row[0].as_deref().and_then(|id| id.parse::<i64>().ok()));
    rows
}

/// The differences between a source and a replica as text, the first few.
fn differences(what: &str, columns: &[Column], source: &[Row], replica: &[Row]) -> Vec<String> {
    let mut out = Vec::new();
    if source.len() != replica.len() {
        out.push(format!("{what}: {} rows instead of {}", replica.len(), source.len()));
    }
    let of =
        |rows: &[Row]| -> std::collections::BTreeMap<String, Row> { rows.iter().map(|r| (r[0].clone().unwrap_or_default(), r.clone())).collect() };
    let (source, replica) = (of(source), of(replica));
    for (id, expected) in &source {
        match replica.get(id) {
            None => out.push(format!("{what}: row {id} is missing")),
            Some(found) => {
                for (column, (e, f)) in columns.iter().zip(expected.iter().zip(found)).filter(|(_, (e, f))| e != f) {
                    let short = |v: &Option<String>| v.as_deref().map_or("NULL".to_owned(), |t| t.chars().take(80).collect());
                    out.push(format!("{what}: row {id}, {}: {} instead of {}", column.name, short(f), short(e)));
                }
            }
        }
    }
    out.extend(replica.keys().filter(|id| !source.contains_key(*id)).map(|id| format!("{what}: row {id} is not in the source")));
    out
}

#[test]
fn every_type_from_a_real_source() {
    every_type("live", Encoding::Json, 10_000);
}

#[test]
fn every_type_in_avro_from_a_real_source() {
    every_type("avro", Encoding::Avro, 2_000);
}

/// Runs the tables with so many rows of the random part.
fn every_type(stem: &str, encoding: Encoding, rows: u32) {
    let mut topology = Topology::new(stem, &["types", "extremes", "emptied"], Stores::ALL);
    if encoding == Encoding::Avro {
        topology.registry = Some(stack::registry());
        topology.write();
    }
    let database = format!("{}src", topology.name);
    let mut source = Postgres::create(&stack::postgres(), &database);
    source.run(SCHEMA);
    source.run(ENDS);
    source.run("INSERT INTO emptied SELECT i, 'row ' || i FROM generate_series(1, 500) i");
    source.run(&random(10, rows / 2));
    let kafka = Kafka::new();
    let connector = Connector::register(&topology, Postgres::connect(&stack::postgres(), &database).expect("it was just created"), encoding);
    await_key(&kafka, &connector, &topology.source("types"), 1, encoding);
    await_key(&kafka, &connector, &topology.source("extremes"), 1, encoding);
    let mut process = topology.run().start();
    // Under load, in many transactions, while replicas land.
    let step = 500;
    for from in (rows / 2 + 1..=rows).step_by(step as usize) {
        let old = from - rows / 2;
        source.run(&random(from, from + step - 1));
        // Updates leave the large text alone: it is not sent.
        source.run(&format!("UPDATE types SET c_text = c_text || '~', c_int4 = 1 - coalesce(c_int4, 0), c_bool = NOT c_bool WHERE id BETWEEN {old} AND {} AND id % 3 = 0", old + step));
        source.run(&format!("UPDATE types SET c_large = big(id + 1) WHERE id BETWEEN {old} AND {} AND id % 40 = 0", old + step));
        source.run(&format!("DELETE FROM types WHERE id BETWEEN {old} AND {} AND id > 9 AND id % 11 = 0", old + step));
        // Key changes of rows whose values are all sent.
        source
            .run(&format!("UPDATE types SET id = id + 100000 WHERE id BETWEEN {old} AND {} AND id > 9 AND id % 8 <> 0 AND id % 17 = 0", old + step));
        source.run(&format!(
            "BEGIN; DELETE FROM types WHERE id = {old} + 14; INSERT INTO types (id, c_text) VALUES ({old} + 14, 'again'); \
             UPDATE types SET c_double = c_double WHERE id = 3; COMMIT"
        ));
    }
    // Key changes whose large text is not sent: it is in the old key's row, where both keys are in one partition of the log. Across partitions
    // the row waits, by name, until the text is sent.
    let large = source.query("SELECT id::text FROM types WHERE id > 9 AND id % 8 = 0 AND length(c_large) > 8000 ORDER BY id LIMIT 40").expect("ids");
    let ids: Vec<i64> = large.iter().filter_map(|row| row[0].as_deref()?.parse().ok()).collect();
    assert_eq!(ids.len(), 40, "rows with a large text");
    let mut far = 0;
    for (i, id) in ids.iter().enumerate() {
        let wants_near = i % 8 != 0;
        let new = (300_000 + 100 * id..).find(|new| (log_partition(*new) == log_partition(*id)) == wants_near).expect("there are enough numbers");
        source.run(&format!("UPDATE types SET id = {new}, c_int2 = 7 WHERE id = {id}"));
        if !wants_near {
            far += 1;
            source.run(&format!("UPDATE types SET c_large = big({i}) WHERE id = {new}"));
        }
    }
    // Emptied twice, once within a transaction that fills it again.
    source.run("INSERT INTO emptied SELECT i, 'later ' || i FROM generate_series(501, 600) i; TRUNCATE emptied");
    source.run("INSERT INTO emptied VALUES (7, 'gone'), (8, 'gone'); BEGIN; INSERT INTO emptied VALUES (9, 'gone'); TRUNCATE emptied; INSERT INTO emptied VALUES (7, 'stays'), (1000, 'new'); COMMIT");
    await_key(&kafka, &connector, &topology.source("emptied"), 1000, encoding);
    source.run("UPDATE extremes SET c_numeric = c_numeric + 1 WHERE id = 6; INSERT INTO types (id, c_text) VALUES (999999, 'marker')");
    await_key(&kafka, &connector, &topology.source("types"), 999_999, encoding);
    process.assert_running();
    if let Err(why) = scene::caught_up(&topology, &kafka, scene::HEAL) {
        panic!("{why}; the process's last lines:\n{}", process.tail());
    }
    process.drain_and_exit(DRAIN);
    drop(connector);
    let letters = scene::letters(&kafka, &topology);
    let mut wrong = Vec::new();
    for (table, columns) in
        [("types", type_columns()), ("extremes", extreme_columns()), ("emptied", columns(&[("id", Kind::Int), ("v", Kind::Text)]))]
    {
        let expected = by_id(source.rows(&format!("public.{table}"), &columns));
        for store in &topology.stores {
            let Some(view) = store.view(table, &columns) else {
                wrong.push(format!("{table} in {}: it cannot be read", store.id()));
                continue;
            };
            let mut expected = expected.clone();
            if table == "extremes" && store.id() == "warehouse" {
                // Years that ClickHouse does not document are refused by name, each its own dead letter.
                expected.retain(|row| !matches!(row[0].as_deref(), Some("2" | "3" | "4" | "5" | "7")));
                let refused = letters.iter().filter(|l| l.replica.as_deref() == Some("warehouse.extremes") && l.code == "value.out_of_range").count();
                if refused != 5 {
                    wrong.push(format!("warehouse.extremes: {refused} dead letters instead of 5: {letters:?}"));
                }
            }
            wrong.extend(differences(&format!("{table} in {}", store.id()), &columns, &expected, &by_id(view.rows)));
        }
    }
    for store in &topology.stores {
        let replica = format!("{}.types", store.id());
        let held = letters.iter().filter(|l| l.replica.as_ref() == Some(&replica) && l.code == "change.unresolved_column").count();
        if held != far {
            wrong.push(format!("{replica}: {held} dead letters of key changes across partitions of the log, {far} expected"));
        }
    }
    let expected = |l: &scene::Letter| l.replica.as_deref() == Some("warehouse.extremes") || l.code == "change.unresolved_column";
    let unexpected: Vec<_> = letters.iter().filter(|l| !expected(l)).collect();
    assert!(unexpected.is_empty(), "dead letters without need: {unexpected:?}");
    assert!(wrong.is_empty(), "{} differences, the first:\n{}", wrong.len(), wrong[..wrong.len().min(25)].join("\n"));
    let rows = source.query("SELECT count(*)::text FROM types").expect("a count");
    println!("{} rows of 20 columns equal in three stores", rows[0][0].as_deref().unwrap_or_default());
    drop(source);
    if let Some(mut maintenance) = Postgres::connect(&stack::postgres(), "postgres") {
        maintenance.query(&format!("DROP DATABASE IF EXISTS \"{database}\" WITH (FORCE)")).ok();
    }
}
