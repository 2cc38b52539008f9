//! A case as its file holds it: records as they lie in Kafka, and the live rows that they must leave in each store.
//!
//! The expected values come from the case, not from what the code does. What the product cannot do yet says so (`unmet`), and is told when
//! it has become right.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::harness::kafka::Record;
use crate::harness::registry::{envelope_schema, framed, key_schema, protobuf_schema};
use crate::harness::stores::{Column, Kind, Row};

/// The stores by the names that the files use, and their ids in the topology.
pub const STORES: [(&str, &str); 3] = [("postgres", "serving"), ("clickhouse", "warehouse"), ("duckdb", "local")];

/// One case.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its heading.
    pub title: String,
    /// What it sends and what must come of it.
    #[serde(default)]
    pub tables: Vec<Table>,
    /// The test that shows it, where it is not a matter of records and rows.
    pub shown_by: Option<String>,
    /// What is missing, where it can be shown by nothing yet.
    pub unmet: Option<String>,
}

/// One source topic with its table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The row's fields as Connect describes them; none for records without a schema part.
    schema: Option<Vec<Value>>,
    /// The row's fields as Avro has them: keys and values go in the frame of a registry then.
    avro: Option<Vec<Value>>,
    /// A schema of Protobuf: what stands behind the frames' ids is given in bytes then.
    protobuf: Option<String>,
    /// Members of the record key.
    #[serde(default)]
    key: Vec<String>,
    /// The connector that a source block names.
    #[serde(default = "postgresql")]
    pub connector: String,
    /// What the topology says of the connector beside its topics.
    #[serde(default)]
    pub cdc: serde_json::Map<String, Value>,
    /// What the topology says of the table beside its id.
    #[serde(default)]
    pub declare: serde_json::Map<String, Value>,
    /// How columns are compared.
    kinds: BTreeMap<String, String>,
    /// In order.
    pub records: Vec<Sent>,
    /// Live rows by store, `all` where it is not named.
    rows: BTreeMap<String, Vec<BTreeMap<String, Option<String>>>>,
    /// Dead letters that must be there, and no others.
    #[serde(default)]
    refused: Vec<Refused>,
    /// What is missing, where it does not come out right yet.
    pub unmet: Option<String>,
}

fn postgresql() -> String {
    "postgresql".to_owned()
}

/// A record.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sent {
    /// Its key, where it is not that of the row.
    key: Option<String>,
    /// Its value; none is a tombstone.
    value: Option<String>,
    /// The same where it is not text.
    value_base64: Option<String>,
    /// What stands behind the id of the value's frame, and of the key's, in base64.
    behind_id: Option<String>,
    key_behind_id: Option<String>,
    /// Headers.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Whether the table's schema part goes with it.
    #[serde(default = "yes")]
    wrap: bool,
}

const fn yes() -> bool {
    true
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    record: i64,
    code: String,
    stores: Option<Vec<String>>,
}

type Members<'a> = BTreeMap<String, &'a RawValue>;

impl Table {
    /// The columns that are compared.
    pub fn columns(&self) -> Result<Vec<Column>, String> {
        let kind = |text: &str| {
            Some(match text {
                "bool" => Kind::Bool,
                "int" => Kind::Int,
                "float32" => Kind::Float32,
                "float64" => Kind::Float64,
                "numeric" => Kind::Numeric,
                "text" => Kind::Text,
                "bytes" => Kind::Bytes,
                "uuid" => Kind::Uuid,
                "date" => Kind::Date,
                "time" => Kind::Time,
                "time(9)" => Kind::TimeNanos,
                "timestamp" => Kind::Timestamp,
                "timestamp(9)" => Kind::TimestampNanos,
                "interval" => Kind::Interval,
                "timestamptz" => Kind::TimestampTz,
                "json" => Kind::Json,
                "array" => Kind::Array,
                other => Kind::Decimal(other.strip_prefix("decimal(")?.strip_suffix(')')?.parse().ok()?),
            })
        };
        let column = |(name, text): (&String, &String)| {
            Ok(Column { name: name.clone(), kind: kind(text).ok_or_else(|| format!("there is no kind {text:?}"))? })
        };
        self.kinds.iter().map(column).collect()
    }

    /// The rows that a store must show, in order.
    pub fn rows(&self, store: &str) -> Result<Vec<Row>, String> {
        let rows = self.rows.get(store).or_else(|| self.rows.get("all")).ok_or_else(|| format!("no rows are given for {store}"))?;
        let row = |row: &BTreeMap<String, Option<String>>| {
            if let Some(other) = row.keys().find(|name| !self.kinds.contains_key(*name)) {
                return Err(format!("column {other:?} has no kind"));
            }
            self.kinds.keys().map(|name| row.get(name).cloned().ok_or_else(|| format!("a row lacks column {name:?}"))).collect()
        };
        let mut rows: Vec<Row> = rows.iter().map(row).collect::<Result<_, String>>()?;
        rows.sort();
        Ok(rows)
    }

    /// Offset and code of the dead letters that must be there for a store, in order.
    pub fn letters(&self, store: &str) -> Vec<(i64, String)> {
        let concerns = |r: &&Refused| r.stores.as_ref().is_none_or(|stores| stores.iter().any(|s| s == store));
        let mut letters: Vec<_> = self.refused.iter().filter(concerns).map(|r| (r.record, r.code.clone())).collect();
        letters.sort();
        letters
    }

    /// The schemas of keys and values that the registry has.
    pub fn registered(&self) -> Option<(Value, Value)> {
        let protobuf = self.protobuf.as_deref().map(protobuf_schema);
        protobuf.map(|schema| (schema.clone(), schema)).or_else(|| self.avro_schemas())
    }

    /// The schemas of keys and values in Avro.
    fn avro_schemas(&self) -> Option<(Value, Value)> {
        let fields = self.avro.as_ref()?;
        let keys: Vec<Value> = fields.iter().filter(|f| self.key.iter().any(|k| f["name"] == **k)).cloned().collect();
        Some((key_schema(&keys), envelope_schema(fields)))
    }

    /// The records as they lie in the topic of a table; in Avro or Protobuf under these ids of the key's schema and the value's.
    pub fn produced(&self, topic: &str, table: &str, (key_id, value_id): (u32, u32)) -> Vec<Record> {
        let avro = self.avro_schemas();
        let behind = |id: u32, bytes: &str| [&[0], &id.to_be_bytes()[..], &base64(bytes)].concat();
        let record = |(n, sent): (usize, &Sent)| {
            if let Some(bytes) = &sent.behind_id {
                let key = sent.key_behind_id.as_deref().map(|bytes| behind(key_id, bytes));
                let (topic, value) = (topic.to_owned(), Some(behind(value_id, bytes)));
                return Record { topic, partition: Some(0), offset: n as i64, key, value, headers: Vec::new() };
            }
            if let (Some((key_schema, value_schema)), Some(text)) = (&avro, sent.value.as_ref().filter(|v| !v.is_empty())) {
                let json = |text: &str| serde_json::from_str::<Value>(text).expect("a case holds JSON");
                let datum = json(&self.value(n, text, table, false));
                let key = json(&sent.key.clone().or_else(|| self.key_of(text)).expect("a case in Avro has a key"));
                let (key, value) = (framed(key_id, key_schema, &key), framed(value_id, value_schema, &datum));
                return Record {
                    topic: topic.to_owned(),
                    partition: Some(0),
                    offset: n as i64,
                    key: Some(key),
                    value: Some(value),
                    headers: Vec::new(),
                };
            }
            let value = match (&sent.value, &sent.value_base64) {
                (Some(text), _) => Some(self.value(n, text, table, sent.wrap).into_bytes()),
                (None, Some(text)) => Some(base64(text)),
                (None, None) => None,
            };
            let wrap = |key: String| if sent.wrap { self.wrapped_key(key) } else { key };
            let key = sent.key.clone().or_else(|| self.key_of(sent.value.as_deref()?)).map(wrap);
            let headers = sent.headers.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())).collect();
            Record { topic: topic.to_owned(), partition: Some(0), offset: n as i64, key: key.map(String::into_bytes), value, headers }
        };
        self.records.iter().enumerate().map(record).collect()
    }

    /// The key members of a value's row, as they are written there.
    fn key_of(&self, value: &str) -> Option<String> {
        if self.key.is_empty() {
            return None;
        }
        let envelope: Members<'_> = serde_json::from_str(value).ok()?;
        let row = ["after", "before"].iter().find_map(|image| serde_json::from_str::<Members<'_>>(envelope.get(*image)?.get()).ok())?;
        let members: Vec<String> =
            self.key.iter().map(|name| Some(format!("{}:{}", Value::from(name.as_str()), row.get(name.as_str())?.get()))).collect::<Option<_>>()?;
        Some(format!("{{{}}}", members.join(",")))
    }

    /// A value with what a bare change lacks, and its schema part.
    fn value(&self, n: usize, text: &str, table: &str, wrap: bool) -> String {
        let members: Members<'_> = serde_json::from_str(text).unwrap_or_default();
        let mut value = text.to_owned();
        if members.contains_key("after") || members.contains_key("before") {
            let is_null = |image: &str| members.get(image).is_none_or(|row| row.get() == "null");
            let op = if is_null("after") && !is_null("before") { "d" } else { "c" };
            let lacking = [("source", self.source(n, table)), ("op", format!("\"{op}\"")), ("ts_ms", "1714557600123".to_owned())];
            for (name, given) in lacking.into_iter().filter(|(name, _)| !members.contains_key(*name)) {
                value = value.replacen('{', &format!("{{\"{name}\":{given},"), 1);
            }
        }
        match &self.schema {
            Some(_) if wrap => format!("{{\"schema\":{},\"payload\":{value}}}", self.envelope_schema(table)),
            _ => value,
        }
    }

    /// A source block of the connector, with a position that rises by record.
    fn source(&self, n: usize, table: &str) -> String {
        let common = format!(
            "\"version\":\"3.6.1.Final\",\"connector\":\"{}\",\"name\":\"case\",\"ts_ms\":1714557600000,\"snapshot\":\"false\",\"db\":\"shop\"",
            self.connector
        );
        let (commit, position) = (1_000 + 10 * n, 1_005 + 10 * n);
        match self.connector.as_str() {
            "postgresql" => format!(
                "{{{common},\"sequence\":\"[\\\"{commit}\\\",\\\"{position}\\\"]\",\"schema\":\"public\",\"table\":\"{table}\",\"txId\":{n},\"lsn\":{position}}}"
            ),
            "mysql" | "mariadb" => {
                format!("{{{common},\"table\":\"{table}\",\"server_id\":1,\"file\":\"mysql-bin.000003\",\"pos\":{position},\"row\":0}}")
            }
            _ => format!("{{{common},\"schema\":\"SHOP\",\"table\":\"{table}\",\"scn\":\"{position}\"}}"),
        }
    }

    fn envelope_schema(&self, table: &str) -> Value {
        let fields = self.schema.as_deref().unwrap_or_default();
        let row = |image: &str| serde_json::json!({ "type": "struct", "fields": fields, "optional": true, "name": format!("case.{table}.Value"), "field": image });
        let text = |name: &str| serde_json::json!({ "type": "string", "optional": false, "field": name });
        let connector = format!("io.debezium.connector.{}.Source", self.connector);
        let source = serde_json::json!({ "type": "struct", "fields": [text("version"), text("connector")], "optional": false, "name": connector, "field": "source" });
        let time = serde_json::json!({ "type": "int64", "optional": true, "field": "ts_ms" });
        serde_json::json!({ "type": "struct", "fields": [row("before"), row("after"), source, text("op"), time], "optional": false, "name": format!("case.{table}.Envelope") })
    }

    fn wrapped_key(&self, key: String) -> String {
        let Some(fields) = &self.schema else { return key };
        let named: Members<'_> = serde_json::from_str(&key).unwrap_or_default();
        let has = |field: &&Value| field["field"].as_str().is_some_and(|name| named.contains_key(name));
        let fields: Vec<&Value> = fields.iter().filter(has).collect();
        format!(
            "{{\"schema\":{},\"payload\":{key}}}",
            serde_json::json!({ "type": "struct", "fields": fields, "optional": false, "name": "case.Key" })
        )
    }
}

fn base64(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).expect("a case holds base64")
}
