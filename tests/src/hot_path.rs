//! What the decoders promise of the steady state: nothing is allocated per row, so nothing per column (`make bench` shows it per event).

use std::fmt::Write as _;

use landfall_schemas::dialect::{Changes, Decoded, Decoder, IdBytes, Options, Record, Registered};
use landfall_schemas::wire::{put_bytes, put_long};
use landfall_schemas::{LogicalType, Value, capture, row};

use crate::allocations;
use crate::fuzz::corpus;

/// Types with a value as a connector writes it without a schema part: decimals of another scale and texts with escapes among them.
const COLUMNS: &[(&str, &str)] = &[
    ("int64", "-9007199254740993"),
    ("text", "\"a text that is longer than what fits into a pointer or two\""),
    ("text", "\"with \\\"escapes\\\" and \\u00e9\""),
    ("decimal(12,2)", "\"12.30\""),
    ("decimal(12,2)", "\"12.3\""),
    ("decimal(38,10)", "12.345"),
    ("numeric", "\"1234567890123.4567\""),
    ("timestamptz(6)", "\"2023-09-08T16:00:01.702905+03:00\""),
    ("timestamp(3)", "1704067200000"),
    ("date", "19000"),
    ("bool", "true"),
    ("float64", "1.5e-300"),
    ("bytes", "\"AAECAwQFBgcICQoLDA0ODw==\""),
    ("uuid", "\"01234567-89ab-cdef-0123-456789abcdef\""),
    ("json", "\"{\\\"a\\\": [1, 2]}\""),
    ("text", "null"),
    ("text", "\"__debezium_unavailable_value\""),
];

const SOURCE: &str = r#"{"version":"3.6.1.Final","connector":"postgresql","name":"shop","ts_ms":1,"snapshot":"false","db":"shop","sequence":"[\"24\",\"25\"]","schema":"public","table":"t","txId":9,"lsn":25,"xmin":null}"#;

/// Allocations of a thousand records that are decoded like two before them.
fn allocations(decoder: &mut Decoder, key: &[u8], value: &[u8]) -> u64 {
    let mut decode = || match decoder.decode(Record { offset: 1, key: Some(key), value: Some(value), headers: None, timestamp: None }) {
        Ok(Decoded::Changes(changes)) => drop(changes),
        other => panic!("{other:?}"),
    };
    decode();
    decode();
    allocations::during(|| (0..1_000).for_each(|_| decode())).1.count
}

fn json(columns: usize) -> u64 {
    let mut types = vec![("id".to_owned(), LogicalType::Int64)];
    let mut row = "{\"id\":1".to_owned();
    for (n, (ty, text)) in COLUMNS.iter().cycle().take(columns).enumerate() {
        types.push((format!("c{n}"), ty.parse().expect(ty)));
        write!(row, ",\"c{n}\":{text}").expect("text grows");
    }
    let value = format!("{{\"before\":null,\"after\":{row}}},\"source\":{SOURCE},\"transaction\":null,\"op\":\"u\",\"ts_ms\":1}}");
    allocations(&mut Decoder::new(Options { types, ..Options::new("t") }), b"{\"id\":1}", value.as_bytes())
}

/// Columns whose types were inferred and settled cost what declared ones do.
fn json_inferred(columns: usize) -> u64 {
    const VALUES: [&str; 6] = ["-9007199254740993", "1.50", "\"with \\\"escapes\\\" and \\u00e9\"", "true", "{\"a\":[1,2]}", "null"];
    const TYPES: [LogicalType; 6] =
        [LogicalType::Int64, LogicalType::Numeric, LogicalType::Text, LogicalType::Bool, LogicalType::Json, LogicalType::Json];
    let mut types = vec![("id".to_owned(), LogicalType::Int64)];
    let mut row = "{\"id\":1".to_owned();
    for (n, (ty, text)) in TYPES.iter().zip(VALUES).cycle().take(columns).enumerate() {
        types.push((format!("c{n}"), *ty));
        write!(row, ",\"c{n}\":{text}").expect("text grows");
    }
    // And a member that has had no value yet.
    let value = format!("{{\"before\":null,\"after\":{row},\"never\":null}},\"source\":{SOURCE},\"op\":\"c\",\"ts_ms\":1}}");
    let mut decoder = Decoder::new(Options { infer: true, ..Options::new("t") });
    decoder.settle(&types);
    allocations(&mut decoder, b"{\"id\":1}", value.as_bytes())
}

fn json_with_schema(columns: usize) -> u64 {
    const FIELDS: [(&str, &str); 6] = [
        (r#""type":"string""#, "\"a text that is longer than what fits into a pointer or two\""),
        (r#""type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2","connect.decimal.precision":"12"}"#, "\"BM4=\""),
        (r#""type":"struct","name":"io.debezium.data.VariableScaleDecimal""#, "{\"scale\":3,\"value\":\"BM4=\"}"),
        (r#""type":"int64","name":"io.debezium.time.MicroTimestamp""#, "1704067200000000"),
        (r#""type":"string","name":"io.debezium.data.Json""#, "\"{\\\"a\\\": [1, 2]}\""),
        (r#""type":"string","name":"io.debezium.time.ZonedTimestamp""#, "\"2023-09-08T13:00:01.702905Z\""),
    ];
    let id = r#"{"type":"int64","field":"id"}"#;
    let (mut fields, mut row) = (id.to_owned(), "{\"id\":1".to_owned());
    for (n, (field, text)) in FIELDS.iter().cycle().take(columns).enumerate() {
        write!(fields, ",{{{field},\"optional\":true,\"field\":\"c{n}\"}}").expect("text grows");
        write!(row, ",\"c{n}\":{text}").expect("text grows");
    }
    let schema =
        format!(r#"{{"type":"struct","fields":[{{"type":"struct","field":"after","fields":[{fields}]}},{{"type":"string","field":"op"}}]}}"#);
    let value = format!("{{\"schema\":{schema},\"payload\":{{\"before\":null,\"after\":{row}}},\"source\":{SOURCE},\"op\":\"c\"}}}}");
    let key = format!(r#"{{"schema":{{"type":"struct","fields":[{id}]}},"payload":{{"id":1}}}}"#);
    allocations(&mut Decoder::new(Options::new("t")), key.as_bytes(), value.as_bytes())
}

fn avro(columns: usize) -> u64 {
    let types = [
        r#"["null","string"]"#,
        r#"["null",{"type":"bytes","logicalType":"decimal","precision":12,"scale":2}]"#,
        r#"["null",{"type":"long","connect.name":"io.debezium.time.MicroTimestamp"}]"#,
        r#"["null",{"type":"enum","name":"E","symbols":["a","b"]}]"#,
    ];
    let (mut fields, mut row) = (String::new(), vec![]);
    put_long(&mut row, 1);
    for (n, ty) in types.iter().cycle().take(columns).enumerate() {
        let ty = if n >= types.len() && n % types.len() == 3 { r#"["null","E"]"# } else { *ty };
        write!(fields, r#",{{"name":"c{n}","type":{ty}}}"#).expect("text grows");
        put_long(&mut row, 1);
        match n % types.len() {
            0 => put_bytes(&mut row, b"a text that is longer than what fits into a pointer or two"),
            1 => put_bytes(&mut row, &[4, 0xCE]),
            2 => put_long(&mut row, 1_704_067_200_000_000),
            _ => put_long(&mut row, 1),
        }
    }
    let key = r#"{"type":"record","name":"Key","fields":[{"name":"id","type":"long"}]}"#;
    let schema = format!(
        r#"{{"type":"record","name":"Envelope","fields":[{{"name":"after","type":["null",{{"type":"record","name":"Value","fields":[{{"name":"id","type":"long"}}{fields}]}}]}},{{"name":"source","type":{{"type":"record","name":"Source","fields":[{{"name":"connector","type":"string"}},{{"name":"sequence","type":"string"}},{{"name":"lsn","type":"long"}}]}}}},{{"name":"op","type":"string"}}]}}"#
    );
    let mut decoder = Decoder::new(Options { registry: Some(IdBytes::Four), ..Options::new("t") });
    for (id, text) in [(1, key), (2, &schema)] {
        decoder.bring(id, &Registered::Avro { text: text.to_owned(), references: Vec::new() });
    }
    let mut value = vec![0, 0, 0, 0, 2, 2];
    value.extend(row);
    put_bytes(&mut value, b"postgresql");
    put_bytes(&mut value, b"[\"24\",\"25\"]");
    put_long(&mut value, 25);
    put_bytes(&mut value, b"c");
    allocations(&mut decoder, &[0, 0, 0, 0, 1, 2], &value)
}

#[test]
fn no_column_costs_an_allocation() {
    let encodings = [
        ("JSON", json as fn(usize) -> u64),
        ("JSON of inferred types", json_inferred),
        ("JSON with its schema part", json_with_schema),
        ("Avro", avro),
    ];
    for (name, count) in encodings {
        let counts = [1, 17, 170, 680].map(count);
        // A set of more columns than a word has bits, some of which were not sent, is one allocation, however many there are.
        let sets = if name == "JSON" { 1_000 } else { 0 };
        assert_eq!(counts, [0, 0, sets, sets], "allocations of a thousand events in {name} of so many columns");
    }
}

/// Whether a number of the row needs more than 128 bits, and with it integers of any size.
fn is_wide(changes: &Changes<'_>) -> bool {
    let rows = [changes.change.change.before, changes.change.change.after];
    let mut values = rows.into_iter().flatten().flat_map(|row| row::values(changes.schema.columns(), row));
    values.any(|found| matches!(found, Ok((_, Value::Decimal(v))) if v.unscaled_i128().is_none()))
}

/// Each captured event, as often as it comes again: nothing, or one allocation where its key has more columns than most.
#[test]
fn no_captured_event_that_comes_again_costs_an_allocation() {
    // In Connect's own encoding a value of numeric(5,-2) is an integer of two thousand digits.
    let exclude = ["c_num_5_neg2".to_owned()];
    let mut seen = 0;
    for file in ["pg-types-schema", "pg-ops-schema", "my-types-schema", "my-ops-schema", "pg-types-avro", "pg-ops-avro", "my-types-avro"] {
        let registry = corpus::registry(file);
        for record in corpus::records(file) {
            let mut decoder =
                Decoder::new(Options { exclude: exclude.to_vec(), registry: (!registry.is_empty()).then_some(IdBytes::Four), ..Options::new("t") });
            let of = |record: &capture::Record| (record.key.clone(), record.value.clone());
            let (Some(key), Some(value)) = of(&record) else { continue };
            let input = Record { offset: 1, key: Some(&key), value: Some(&value), headers: None, timestamp: None };
            while let Some(id) = decoder.wanted(&input) {
                decoder.bring(id, registry.get(&id).unwrap_or(&Registered::Unknown));
            }
            if !matches!(decoder.decode(input), Ok(Decoded::Changes(changes)) if !is_wide(&changes)) {
                continue;
            }
            seen += 1;
            let count = allocations(&mut decoder, &key, &value);
            let most = if record.topic.ends_with(".key_types") { 1_000 } else { 0 };
            assert!(count <= most, "{file}, {} {}: {count} allocations of a thousand", record.topic, record.offset);
        }
    }
    assert!(seen > 400, "{seen} events");
}
