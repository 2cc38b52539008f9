//! The workload: Debezium events of a table of ten columns, 60 % inserts, 30 % updates, 10 % deletes, in four partitions.
//!
//! The table and the mix are those that the peers were measured with, so that their figures can stand beside ours. Events are what Debezium
//! 3.6 writes for Postgres without the schema part, some 700 bytes each; with it they are the same events behind a constant prefix.

use std::fmt::Write as _;

use landfall::log::murmur2;
use landfall_schemas::LogicalType;

/// Partitions of the source topic, and of the log.
pub const PARTITIONS: u32 = 4;

/// Names and types of the columns, as the topology declares them.
pub const COLUMNS: [(&str, &str); 10] = [
    ("id", "int64"),
    ("customer_id", "int32"),
    ("status", "text"),
    ("amount", "decimal(12,2)"),
    ("qty", "int32"),
    ("note", "text"),
    ("created_at", "timestamptz(6)"),
    ("updated_at", "timestamp(3)"),
    ("active", "bool"),
    ("payload", "json"),
];

/// The declared types.
pub fn types() -> Vec<(String, LogicalType)> {
    COLUMNS.iter().map(|(name, ty)| ((*name).to_owned(), ty.parse().expect("the list holds types"))).collect()
}

/// Events of one source partition, in order.
#[derive(Debug, Default)]
pub struct Events {
    bytes: Vec<u8>,
    spans: Vec<(usize, usize, usize)>,
}

impl Events {
    /// Keys and values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.spans.iter().map(|(key, value, end)| (&self.bytes[*key..*value], &self.bytes[*value..*end]))
    }

    /// Adds an event.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.spans.push((start, middle, self.bytes.len()));
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// True where there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

/// All events, and what they must leave behind.
#[derive(Debug)]
pub struct Workload {
    /// By source partition.
    pub partitions: Vec<Events>,
    /// Number of events.
    pub events: usize,
    /// Keys that ever were.
    pub keys: usize,
    /// Rows at last.
    pub rows: usize,
    /// Sum of their ids.
    pub sum: i64,
}

impl Workload {
    /// `events` changes, rounded down to tens; with the schema part or without.
    pub fn new(events: usize, schema: bool) -> Self {
        let tenth = (events / 10) as i64;
        let inserts = 6 * tenth;
        let mut workload = Self {
            partitions: (0..PARTITIONS).map(|_| Events::default()).collect(),
            events: 10 * tenth as usize,
            keys: inserts as usize,
            rows: (inserts - tenth) as usize,
            sum: (tenth + 1..=inserts).sum(),
        };
        let prefix = if schema { schema_part() } else { String::new() };
        let mut text = String::new();
        let mut lsn = 24_000_000;
        for (op, id) in (1..=inserts).map(|id| ('c', id)).chain((1..=3 * tenth).map(|id| ('u', id))).chain((1..=tenth).map(|id| ('d', id))) {
            lsn += 168;
            text.clear();
            event(&mut text, op, id, lsn, schema);
            workload.add(id, &prefix, &text);
        }
        workload
    }

    fn add(&mut self, id: i64, prefix: &str, event: &str) {
        let key = if prefix.is_empty() { format!("{{\"id\":{id}}}") } else { format!("{KEY_SCHEMA}{{\"id\":{id}}}}}") };
        let partition = murmur2::partition(key.as_bytes(), PARTITIONS);
        let end = if prefix.is_empty() { "" } else { "}" };
        self.partitions[partition as usize].push(key.as_bytes(), [prefix, event, end].concat().as_bytes());
    }

    /// Bytes of the average value.
    pub fn value_bytes(&self) -> f64 {
        let all: usize = self.partitions.iter().flat_map(|p| &p.spans).map(|(_, value, end)| end - value).sum();
        all as f64 / self.events as f64
    }
}

fn event(out: &mut String, op: char, id: i64, lsn: i64, schema: bool) {
    out.push_str("{\"before\":");
    match op {
        // A delete carries the key and values that nobody wrote.
        'd' => write!(
            out,
            "{{\"id\":{id},\"customer_id\":0,\"status\":null,\"amount\":null,\"qty\":null,\"note\":null,\"created_at\":null,\"updated_at\":null,\
             \"active\":null,\"payload\":null}},\"after\":null"
        )
        .expect("text grows"),
        _ => {
            out.push_str("null,\"after\":");
            row(out, op, id, schema);
        }
    }
    let millis = 1_796_033_218_171 + id / 100;
    write!(
        out,
        ",\"source\":{{\"version\":\"3.6.1.Final\",\"connector\":\"postgresql\",\"name\":\"shop\",\"ts_ms\":{millis},\"snapshot\":\"false\",\
         \"db\":\"shop\",\"sequence\":\"[\\\"{}\\\",\\\"{lsn}\\\"]\",\"ts_us\":{millis}112,\"ts_ns\":{millis}112000,\"schema\":\"public\",\
         \"table\":\"orders\",\"txId\":{},\"lsn\":{lsn},\"xmin\":null,\"origin\":null,\"origin_lsn\":null}},\"transaction\":null,\"op\":\"{op}\",\
         \"ts_ms\":{millis},\"ts_us\":{millis}866,\"ts_ns\":{millis}866395}}",
        lsn - lsn % 20_160,
        2700 + lsn / 20_160,
    )
    .expect("text grows");
}

fn row(out: &mut String, op: char, id: i64, schema: bool) {
    let updated = op == 'u';
    let cents = id * 100 / 7 % 10_000_000 + if updated { 100 } else { 0 };
    // Without a schema part nothing tells a decimal's bytes from text, so it is written as text (`decimal.handling.mode: string`).
    let amount = if schema { unscaled(cents) } else { format!("{}.{:02}", cents / 100, cents % 100) };
    let status = if updated { "upd" } else { ["new", "paid", "shipped", "done"][(id % 4) as usize] };
    let (day, second) = (1 + (id / 86_400) % 28, id % 86_400);
    write!(
        out,
        "{{\"id\":{id},\"customer_id\":{},\"status\":\"{status}\",\"amount\":\"{}\",\"qty\":{},\"note\":\"note for order {id} {:016x}{:016x}\",\
         \"created_at\":\"2024-01-{day:02}T{:02}:{:02}:{:02}.000000Z\",\"updated_at\":{},\"active\":{},\
         \"payload\":\"{{\\\"k\\\": {id}, \\\"tags\\\": [\\\"a\\\", \\\"b\\\"]}}\"}}",
        id % 1000,
        amount,
        id % 50,
        id.cast_unsigned().wrapping_mul(0x9E37_79B9_7F4A_7C15),
        id.cast_unsigned().wrapping_mul(0xC2B2_AE3D_27D4_EB4F),
        second / 3600,
        second / 60 % 60,
        second % 60,
        (1_704_067_200 + id) * 1000,
        id % 2 == 0,
    )
    .expect("text grows");
}

/// A decimal as Connect writes it: the fewest bytes of its two's complement, in base64.
fn unscaled(value: i64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes = value.to_be_bytes();
    let skip = (0..7).take_while(|i| bytes[*i] == 0 && bytes[i + 1] < 0x80).count();
    let mut text = String::new();
    for group in bytes[skip..].chunks(3) {
        let word = group.iter().chain([&0; 2]).take(3).fold(0_usize, |word, byte| word << 8 | usize::from(*byte));
        for i in 0..4 {
            text.push(if i <= group.len() { char::from(LETTERS[word >> (18 - 6 * i) & 63]) } else { '=' });
        }
    }
    text
}

const KEY_SCHEMA: &str = r#"{"schema":{"type":"struct","fields":[{"type":"int64","optional":false,"default":0,"field":"id"}],"optional":false,"name":"shop.public.orders.Key"},"payload":"#;

/// The schema part of the values, as Debezium's JSON converter writes it before each of them.
fn schema_part() -> String {
    const ROW: &str = r#"{"type":"int64","optional":false,"default":0,"field":"id"},{"type":"int32","optional":false,"field":"customer_id"},{"type":"string","optional":true,"field":"status"},{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2","connect.decimal.precision":"12"},"field":"amount"},{"type":"int32","optional":true,"field":"qty"},{"type":"string","optional":true,"field":"note"},{"type":"string","optional":true,"name":"io.debezium.time.ZonedTimestamp","version":1,"field":"created_at"},{"type":"int64","optional":true,"name":"io.debezium.time.Timestamp","version":1,"field":"updated_at"},{"type":"boolean","optional":true,"field":"active"},{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1,"field":"payload"}"#;
    const SOURCE: &str = r#"{"type":"string","optional":false,"field":"version"},{"type":"string","optional":false,"field":"connector"},{"type":"string","optional":false,"field":"name"},{"type":"int64","optional":false,"field":"ts_ms"},{"type":"string","optional":true,"name":"io.debezium.data.Enum","version":1,"parameters":{"allowed":"true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},"default":"false","field":"snapshot"},{"type":"string","optional":false,"field":"db"},{"type":"string","optional":true,"field":"sequence"},{"type":"int64","optional":true,"field":"ts_us"},{"type":"int64","optional":true,"field":"ts_ns"},{"type":"string","optional":false,"field":"schema"},{"type":"string","optional":false,"field":"table"},{"type":"int64","optional":true,"field":"txId"},{"type":"int64","optional":true,"field":"lsn"},{"type":"int64","optional":true,"field":"xmin"},{"type":"string","optional":true,"field":"origin"},{"type":"int64","optional":true,"field":"origin_lsn"}"#;
    const TRANSACTION: &str = r#"{"type":"string","optional":false,"field":"id"},{"type":"int64","optional":false,"field":"total_order"},{"type":"int64","optional":false,"field":"data_collection_order"}"#;
    format!(
        "{{\"schema\":{{\"type\":\"struct\",\"fields\":[{{\"type\":\"struct\",\"fields\":[{ROW}],\"optional\":true,\
         \"name\":\"shop.public.orders.Value\",\"field\":\"before\"}},{{\"type\":\"struct\",\"fields\":[{ROW}],\"optional\":true,\
         \"name\":\"shop.public.orders.Value\",\"field\":\"after\"}},{{\"type\":\"struct\",\"fields\":[{SOURCE}],\"optional\":false,\
         \"name\":\"io.debezium.connector.postgresql.Source\",\"version\":1,\"field\":\"source\"}},{{\"type\":\"struct\",\
         \"fields\":[{TRANSACTION}],\"optional\":true,\"name\":\"event.block\",\"version\":1,\"field\":\"transaction\"}},\
         {{\"type\":\"string\",\"optional\":false,\"field\":\"op\"}},{{\"type\":\"int64\",\"optional\":true,\"field\":\"ts_ms\"}},\
         {{\"type\":\"int64\",\"optional\":true,\"field\":\"ts_us\"}},{{\"type\":\"int64\",\"optional\":true,\"field\":\"ts_ns\"}}],\
         \"optional\":false,\"name\":\"shop.public.orders.Envelope\",\"version\":2}},\"payload\":"
    )
}
