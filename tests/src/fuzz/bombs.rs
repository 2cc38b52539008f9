//! Records of up to 1 MiB that ask for as much as they can (RELIABILITY.md D 12, 13): each is read or refused within the limits.
//!
//! A decoder meets each of them fresh, when everything has to be worked out, and again when nothing has.

use landfall_schemas::avro::{Budget, Schema};
use landfall_schemas::dialect::{Decoded, Decoder, Dialect, IdBytes, Keyed, Options, Order, Record, Registered};
use landfall_schemas::protobuf::Schema as ProtobufSchema;
use landfall_schemas::wire::{Reader, put_long, put_varint};
use landfall_schemas::{Change, Column, LogicalType, TableSchema, change, contract, json, row};
use landfall_topology::{Document, LookupError, check};

use super::measure::{RECORD_BYTES_MAX, within};

/// What a bomb leaves: changes, or the code under which it is refused.
type Left = Result<usize, &'static str>;

/// Something to read, with its name and what must come of it, where that is told.
struct Bomb {
    name: &'static str,
    options: Options,
    schemas: Vec<Registered>,
    key: Vec<u8>,
    value: Vec<u8>,
    left: Option<Left>,
}

/// As many repetitions as fit into a record, and into a record beside so much else.
fn fill(piece: &str, beside: usize) -> String {
    piece.repeat((RECORD_BYTES_MAX - beside) / piece.len())
}

/// Numbered pieces until a record is full.
fn numbered(beside: usize, piece: impl Fn(usize) -> String) -> String {
    let mut out = String::new();
    for n in 0.. {
        let next = piece(n);
        if out.len() + next.len() + beside > RECORD_BYTES_MAX {
            break;
        }
        out.push_str(&next);
    }
    out
}

fn declared(types: &[(&str, &str)]) -> Options {
    let types = types.iter().map(|(name, ty)| ((*name).to_owned(), ty.parse().expect(ty))).collect();
    Options { types, order: Order::Offset, ..Options::new("t") }
}

fn decode(decoder: &mut Decoder, key: &[u8], value: &[u8], log: &mut Vec<u8>) -> Left {
    match decoder.decode(Record { offset: 1, key: Some(key), value: Some(value), headers: None, timestamp: None }) {
        Err(reject) => {
            assert!(reject.reason.len() <= 4_010, "a reason of {} bytes: {}", reject.reason.len(), reject.code.as_str());
            Err(reject.code.as_str())
        }
        Ok(Decoded::Ignored(_)) => Ok(0),
        Ok(Decoded::Changes(changes)) => {
            let mut count = 0;
            let take = |_, keyed: &Keyed<'_>| -> Result<(), std::convert::Infallible> {
                log.clear();
                keyed.change.encode(changes.fingerprint, log);
                count += 1;
                Ok(())
            };
            let Ok(()) = changes.each(take);
            Ok(count)
        }
    }
}

impl Bomb {
    fn json(name: &'static str, types: &[(&str, &str)], value: String, left: Option<Left>) -> Self {
        Self { name, options: declared(types), schemas: Vec::new(), key: b"{\"id\":1}".to_vec(), value: value.into_bytes(), left }
    }

    /// A row without a schema part.
    fn row(name: &'static str, ty: &str, member: String, left: Option<Left>) -> Self {
        Self::json(name, &[("id", "int32"), ("v", ty)], format!("{{\"op\":\"c\",\"after\":{{\"id\":1,\"v\":{member}}}}}"), left)
    }

    fn dialect(mut self, dialect: Dialect) -> Self {
        self.options.dialect = dialect;
        self
    }

    /// What it violates, if anything.
    fn explode(&self) -> Result<(), String> {
        let bytes = self.key.len() + self.value.len();
        if bytes > RECORD_BYTES_MAX + 256 {
            return Err(format!("{bytes} bytes are more than a record"));
        }
        let bring = |decoder: &mut Decoder| {
            for (id, schema) in (1..).zip(&self.schemas) {
                decoder.bring(id, schema);
            }
        };
        let length =
            |schema: &Registered| if let Registered::Avro { text, .. } | Registered::Protobuf { text, .. } = schema { text.len() } else { 0 };
        let schemas: usize = self.schemas.iter().map(length).sum();
        let (mut warm, mut log) = (Decoder::new(self.options.clone()), Vec::new());
        bring(&mut warm);
        let fresh = within(bytes + schemas, || {
            let mut fresh = Decoder::new(self.options.clone());
            bring(&mut fresh);
            decode(&mut fresh, &self.key, &self.value, &mut log)
        })?;
        let first = decode(&mut warm, &self.key, &self.value, &mut log);
        let second = within(bytes, || decode(&mut warm, &self.key, &self.value, &mut log))?;
        if fresh != first || first != second {
            return Err(format!("it is {fresh:?}, then {first:?}, then {second:?}"));
        }
        match self.left {
            Some(left) if left != first => Err(format!("it is {first:?} and should be {left:?}")),
            _ => Ok(()),
        }
    }
}

fn all_of(bombs: Vec<Bomb>) {
    let failed: Vec<String> = bombs.iter().filter_map(|bomb| Some(format!("{}: {}", bomb.name, bomb.explode().err()?))).collect();
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), bombs.len(), failed.join("\n"));
}

const KIND: Option<Left> = Some(Err("value.kind"));
const RANGE: Option<Left> = Some(Err("value.out_of_range"));
const NO_JSON: Option<Left> = Some(Err("json.invalid"));

#[test]
fn nesting_without_end() {
    let deep = |open: &str| Bomb::json("deep", &[("id", "int32")], format!("{{\"op\":\"c\",\"after\":{}", fill(open, 100)), NO_JSON);
    let shut = |open: &str, close: &str| {
        let n = 500_000 / open.len();
        Bomb::row("deep and closed", "json", format!("{}1{}", open.repeat(n), close.repeat(n)), NO_JSON)
    };
    let inner = format!("\"{}\"", fill("[", 100));
    let schema = |open: &str| Bomb::json("deep schema", &[], format!("{{\"schema\":{}", fill(open, 100)), None);
    all_of(vec![
        deep("["),
        deep("{\"a\":"),
        deep("{\"schema\":{\"fields\":["),
        shut("[", "]"),
        shut("{\"a\":", "}"),
        schema("{\"type\":\"struct\",\"fields\":["),
        Bomb::row("a document that is deep", "json", inner, KIND),
    ]);
}

#[test]
fn numbers_without_end() {
    let (nines, zeros) = (fill("9", 200), fill("0", 200));
    let base64 = format!("{{\"scale\":0,\"value\":\"{}\"}}", "/".repeat(RECORD_BYTES_MAX / 4 * 4 - 256));
    let quoted = |text: &str| format!("\"{text}\"");
    let mut bombs = vec![
        Bomb::row("an exponent", "numeric", "1e999999999999".to_owned(), KIND),
        Bomb::row("a negative exponent", "numeric", "1e-999999999999".to_owned(), KIND),
        Bomb::row("as large as it goes", "decimal(140000,2)", "1e140000".to_owned(), None),
        Bomb::row("zeros behind the point", "decimal(140000,2)", "1e-140000".to_owned(), None),
        Bomb::row("a number of any size as base64", "numeric", base64, RANGE),
        Bomb::row("a great scale", "numeric", "{\"scale\":2147483647,\"value\":\"AQ==\"}".to_owned(), RANGE),
        Bomb::row("a great negative scale", "numeric", "{\"scale\":-2147483648,\"value\":\"AQ==\"}".to_owned(), RANGE),
        Bomb::row("a great scale in a narrow column", "decimal(12,2)", "{\"scale\":147000,\"value\":\"AQ==\"}".to_owned(), None),
        Bomb::row("a great negative scale in a wide column", "decimal(147000,2)", "{\"scale\":-140000,\"value\":\"AQ==\"}".to_owned(), None),
    ];
    for ty in
        ["int8", "int64", "uint64", "float32", "float64", "decimal(12,2)", "decimal(140000,2)", "numeric", "text", "date", "timestamp(6)", "time(6)"]
    {
        for digits in
            [&nines, &zeros, &format!("0.{zeros}"), &format!("0.{nines}"), &format!("-{nines}"), &format!("1e{nines}"), &format!("1e-{nines}")]
        {
            bombs.push(Bomb::row("digits", ty, digits.clone(), None));
            bombs.push(Bomb::row("digits as text", ty, quoted(digits), None));
        }
    }
    // Of the size that columns may have.
    for digits in [131_000, 147_000] {
        bombs.push(Bomb::row("the longest numbers", "numeric", "9".repeat(digits), None));
        bombs.push(Bomb::row("the longest fractions", "decimal(147455,147000)", format!("0.{}", "9".repeat(digits)), None));
    }
    all_of(bombs);
}

#[test]
fn texts_without_end() {
    let mut bombs = Vec::new();
    for ty in ["text", "bytes", "uuid", "date", "time(6)", "timestamptz(6)", "json", "decimal(12,2)", "numeric", "bool", "int32", "float64"] {
        for piece in ["a", "\\u0000", "\\u00e9", "\\ud83d\\ude00", "\\\\", "日", "-", "0123456789-", "[[", " ", "{\\\"a\\\":1},"] {
            bombs.push(Bomb::row("a text", ty, format!("\"{}\"", fill(piece, 200)), None));
        }
    }
    bombs.push(Bomb::row("half of a string", "text", format!("\"{}", fill("\\u0061", 200)), NO_JSON));
    all_of(bombs);
}

/// Many numbers, each as large as it may be: together they take as long as one of all their digits.
#[test]
fn many_large_values() {
    let columns = |count: usize| -> Vec<String> { (0..count).map(|n| format!("c{n}")).collect() };
    let mut bombs = Vec::new();
    for (ty, count, text) in
        [("numeric", 7, "9".repeat(140_000)), ("numeric", 100, "9".repeat(10_000)), ("decimal(140000,0)", 2_000, "1e139000".to_owned())]
    {
        let names = columns(count);
        let types: Vec<(&str, &str)> = std::iter::once(("id", "int32")).chain(names.iter().map(|n| (n.as_str(), ty))).collect();
        let members: String = names.iter().map(|n| format!(",\"{n}\":{text}")).collect();
        if text.len() > 100 {
            let mut bomb = Bomb::json("a key of many large numbers", &types, "{\"op\":\"c\",\"after\":{\"id\":1}}".to_owned(), None);
            bomb.key = format!("{{\"id\":1{}}}", names.iter().map(|n| format!(",\"{n}\":{text}")).collect::<String>()).into_bytes();
            bombs.push(Bomb { value: b"null".to_vec(), ..bomb });
        }
        bombs.push(Bomb::json("many large numbers", &types, format!("{{\"op\":\"c\",\"after\":{{\"id\":1{members}}}}}"), None));
    }
    all_of(bombs);
}

#[test]
fn members_without_end() {
    let types = [("id", "int32"), ("a", "text")];
    let many = numbered(200, |n| format!(",\"{n}\":0"));
    let row = |name, members: &str| Bomb::json(name, &types, format!("{{\"op\":\"c\",\"after\":{{\"id\":1{members}}}}}"), None);
    let same = fill(",\"a\":0", 200);
    let fields = |beside, fields: &str| numbered(beside, |n| format!(",{{\"field\":\"{n}\",{fields}}}"));
    let schema = |name, fields: &str, row: &str| {
        let rows = format!("{{\"type\":\"struct\",\"field\":\"after\",\"fields\":[{{\"type\":\"int32\",\"field\":\"id\"}}{fields}]}}");
        let value = format!(
            "{{\"schema\":{{\"type\":\"struct\",\"fields\":[{rows},{{\"type\":\"string\",\"field\":\"op\"}}]}},\"payload\":{{\"op\":\"c\",\"after\":{row}}}}}"
        );
        let mut bomb = Bomb::json(name, &types, value, None);
        bomb.options.types.clear();
        bomb.key = br#"{"schema":{"type":"struct","fields":[{"type":"int32","field":"id"}]},"payload":{"id":1}}"#.to_vec();
        bomb
    };
    let whole = fields(RECORD_BYTES_MAX / 3, "\"type\":\"int32\"");
    let count = whole.matches("\"field\"").count();
    let nulls: String = (0..count).map(|n| format!(",\"{n}\":0")).collect();
    let backwards: String = (0..count).rev().map(|n| format!("\"{n}\":0,")).collect();
    let mut bombs = vec![
        row("unknown members", &many),
        row("one member again and again", &same),
        Bomb::json("members of an envelope", &types, format!("{{\"op\":\"c\"{many}}}"), None),
        Bomb::json("members of a source", &types, format!("{{\"op\":\"c\",\"source\":{{\"a\":1{many}}},\"after\":{{\"id\":1,\"a\":\"\"}}}}"), None),
        schema("a schema of many columns", &fields(400, "\"type\":\"int32\""), "{\"id\":1}"),
        schema("a schema of one column again and again", &fill(",{\"field\":\"a\",\"type\":\"int32\"}", 400), "{\"id\":1}"),
        schema("a schema of columns that cannot be read", &fields(400, "\"type\":\"q\""), "{\"id\":1}"),
        schema("a schema of small things", &fill(",{\"type\":\"\"}", 400), "{\"id\":1}"),
        schema(
            "a schema of parameters",
            &format!(",{{\"type\":\"int32\",\"field\":\"a\",\"parameters\":{{\"a\":\"\"{}}}}}", numbered(600, |n| format!(",\"{n}\":\"\""))),
            "{\"id\":1,\"a\":1}",
        ),
        schema("many columns in their order", &whole, &format!("{{\"id\":1{nulls}}}")),
        schema("many columns in another order", &whole, &format!("{{{backwards}\"id\":1}}")),
        schema("columns with long names", &format!(",{{\"type\":\"q\",\"field\":\"{}\"}}", fill("\\u0001", 600)), "{\"id\":1}"),
    ];
    for (name, key) in [("a key of many columns", format!("{{\"id\":1{many}}}")), ("a key with one again and again", format!("{{\"id\":1{same}}}"))] {
        let mut bomb = row(name, "");
        bomb.value.clear();
        bomb.value.extend_from_slice(b"{\"op\":\"c\",\"after\":{\"id\":1,\"a\":\"\"}}");
        bomb.key = key.into_bytes();
        bombs.push(bomb);
    }
    // Everything is declared, so everything is a column.
    let declared = numbered(200, |n| format!(",\"{n}\":0"));
    let mut bomb = row("declared members", &declared);
    bomb.options.types.extend((0..declared.matches(':').count()).map(|n| (n.to_string(), LogicalType::Int32)));
    bombs.push(bomb);
    for dialect in [Dialect::Flattened, Dialect::Maxwell, Dialect::Canal, Dialect::Plain, Dialect::Mongodb] {
        bombs.push(Bomb::json("members of another dialect", &types, format!("{{\"type\":\"insert\",\"id\":1{many}}}"), None).dialect(dialect));
        bombs.push(
            Bomb::json("rows of another dialect", &types, format!("{{\"type\":\"insert\",\"data\":{{\"id\":1{many}}}}}"), None).dialect(dialect),
        );
        bombs.push(
            Bomb::json("one member again", &types, format!("{{\"type\":\"insert\",\"id\":1,\"data\":{{\"id\":1{same}}}}}"), None).dialect(dialect),
        );
    }
    let halves = (numbered(RECORD_BYTES_MAX / 2 + 200, |n| format!(",\"{n}\":0")), numbered(RECORD_BYTES_MAX / 2 + 200, |n| format!(",\"{n}\":1")));
    let mut bomb = Bomb::json(
        "old and new",
        &types,
        format!("{{\"type\":\"update\",\"data\":{{\"id\":1{}}},\"old\":{{\"id\":1{}}}}}", halves.0, halves.1),
        None,
    );
    bomb.options.types.extend((0..halves.0.matches(':').count()).map(|n| (n.to_string(), LogicalType::Int32)));
    bombs.push(bomb.dialect(Dialect::Maxwell));
    all_of(bombs);
}

#[test]
fn rows_without_end() {
    let message = |name, types: &str, data: &str, old: &str| {
        let value = format!(
            "{{\"type\":\"UPDATE\",\"isDdl\":false,\"pkNames\":[\"id\"],\"mysqlType\":{{\"id\":\"int\"{types}}},\"data\":[{data}],\"old\":[{old}]}}"
        );
        let mut bomb = Bomb::json(name, &[], value, None).dialect(Dialect::Canal);
        bomb.key = b"null".to_vec();
        bomb
    };
    let rows = |beside| {
        let many = numbered(beside + 200, |n| format!("{{\"id\":\"{n}\"}},"));
        many.trim_end_matches(',').to_owned()
    };
    let types = |beside| numbered(beside, |n| format!(",\"c{n}\":\"int\""));
    let half = RECORD_BYTES_MAX / 2;
    let names = {
        let many = numbered(300, |n| format!("\"{n}\","));
        let value = format!(
            "{{\"type\":\"INSERT\",\"pkNames\":[{}],\"mysqlType\":{{\"id\":\"int\"}},\"data\":[{{\"id\":\"1\"}}]}}",
            many.trim_end_matches(',')
        );
        Bomb::json("many names of key columns", &[], value, None).dialect(Dialect::Canal)
    };
    all_of(vec![
        message("many rows", "", &rows(0), ""),
        message("many empty rows", "", fill("{},", 300).trim_end_matches(','), ""),
        message("many numbers for rows", "", fill("1,", 300).trim_end_matches(','), ""),
        message("many rows that were others", "", &rows(half), fill("{\"id\":\"9\"},", half + 200).trim_end_matches(',')),
        message("many columns", &types(400), "{\"id\":\"1\"}", ""),
        message("many columns and many rows", &types(half + 200), &rows(half + 200), ""),
        message("some columns and very many rows", &types(RECORD_BYTES_MAX - 40_000), &rows(60_000), ""),
        names,
    ]);
}

#[test]
fn avro_without_end() {
    let key = r#"{"type":"record","name":"Key","fields":[{"name":"id","type":"int"}]}"#;
    let envelope = |row: &str, more: &str| {
        format!(
            r#"{{"type":"record","name":"Envelope","fields":[{{"name":"op","type":"string"}},{{"name":"after","type":["null",{{"type":"record","name":"Value","fields":[{{"name":"id","type":"int"}}{row}]}}]}}{more}]}}"#
        )
    };
    let framed = |id: u8, body: &[u8]| [&[0, 0, 0, 0, id], body].concat();
    let bomb = |name, schema: String, body: Vec<u8>| Bomb {
        name,
        options: Options { registry: Some(IdBytes::Four), order: Order::Offset, ..Options::new("t") },
        schemas: [key.to_owned(), schema].map(|text| Registered::Avro { text, references: Vec::new() }).to_vec(),
        key: framed(1, &[2]),
        value: framed(2, &body),
        left: None,
    };
    // `c`, the second branch, and id 1.
    let start = |rest: &[u8]| [&[2, b'c', 2, 2], rest].concat();
    let longs = |longs: &[i64]| {
        let mut out = Vec::new();
        longs.iter().for_each(|v| put_long(&mut out, *v));
        out
    };
    let array = |items: &str| envelope("", &format!(r#",{{"name":"x","type":{{"type":"array","items":{items}}}}}"#));
    let empty = r#"{"type":"record","name":"Empty","fields":[]}"#;
    let counted = |n: i64| start(&longs(&[n]));
    let long = |value: i64| start(&longs(&[value]));
    // 50 records, each of two of the one before it: nothing to write and 2^50 values to read.
    let mut doubling = r#"{"type":"record","name":"R0","fields":[]}"#.to_owned();
    for n in 1..50 {
        doubling = format!(r#"{{"type":"record","name":"R{n}","fields":[{{"name":"a","type":{doubling}}},{{"name":"b","type":"R{}"}}]}}"#, n - 1);
    }
    let column = |ty: &str| envelope(&format!(r#",{{"name":"v","type":{ty}}}"#), "");
    let many = numbered(400, |n| format!(r#",{{"name":"c{n}","type":"int"}}"#));
    let count = many.matches("name").count();
    let mut bombs = vec![
        bomb("an array of nulls", array("\"null\""), counted(i64::MAX)),
        bomb("an array of empty records", array(empty), counted(i64::MAX)),
        bomb("an array of fixed of no size", array(r#"{"type":"fixed","name":"F","size":0}"#), counted(1 << 40)),
        bomb("a block of negative length", array("\"null\""), start(&longs(&[i64::MIN, -1]))),
        bomb("a block that is longer than the record", array("\"null\""), start(&longs(&[-1, i64::MAX]))),
        bomb("blocks without end", array("\"null\""), start(&longs(&[1]).repeat(1_000_000))),
        bomb("records that double", envelope("", &format!(r#",{{"name":"x","type":{doubling}}}"#)), start(&[])),
        bomb("columns of records that double", column(&doubling), start(&[])),
        bomb("a text that is longer than the record", column("\"string\""), long(i64::MAX)),
        bomb("a text of negative length", column("\"string\""), long(-1)),
        bomb("bytes of all there is", column("\"bytes\""), start(&[longs(&[1_000_000]), vec![0xFF; 1_000_000]].concat())),
        bomb("a fixed that is longer than memory", column(r#"{"type":"fixed","name":"F","size":9223372036854775807}"#), start(&[0])),
        bomb(
            "arrays of symbols",
            column(&format!(r#"{{"type":"array","items":{{"type":"enum","name":"E","symbols":["{}"]}}}}"#, "A".repeat(1_000))),
            start(&[longs(&[1_000_000]), vec![0; 1_000_001]].concat()),
        ),
        bomb(
            "columns of a long symbol",
            column(&format!(r#"{{"type":"enum","name":"E","symbols":["{}"]}}"#, "A".repeat(1_000))).replacen(
                "]}",
                &format!("]}}{}", (0..4_000).map(|n| format!(r#",{{"name":"c{n}","type":"E"}}"#)).collect::<String>()),
                1,
            ),
            start(&[0; 4_001]),
        ),
        bomb("an enum beyond its symbols", column(r#"{"type":"enum","name":"E","symbols":["A"]}"#), long(i64::MAX)),
        bomb("a varint without end", column("\"long\""), start(&[0xFF; 1_000_000])),
        bomb(
            "a decimal of all there is",
            column(r#"{"type":"bytes","logicalType":"decimal","precision":140000,"scale":2}"#),
            start(&[longs(&[1_000_000]), vec![0x7F; 1_000_000]].concat()),
        ),
        bomb(
            "a decimal as large as it may be",
            column(r#"{"type":"bytes","logicalType":"decimal","precision":140000,"scale":2}"#),
            start(&[longs(&[58_000]), vec![0x7F; 58_000]].concat()),
        ),
        bomb(
            "a decimal with a great scale",
            column(
                r#"{"type":"record","name":"D","connect.name":"io.debezium.data.VariableScaleDecimal","fields":[{"name":"scale","type":"int"},{"name":"value","type":"bytes"}]}"#,
            ),
            start(&longs(&[i64::from(i32::MAX), 0])),
        ),
        bomb("as many columns as fit", envelope(&many, ""), start(&vec![0; count])),
        bomb("a scale beyond all", column(r#"{"type":"bytes","logicalType":"decimal","precision":4294967295,"scale":2147483647}"#), start(&[2, 1])),
        bomb(
            "a negative scale beyond all",
            column(r#"{"type":"bytes","logicalType":"decimal","precision":4294967295,"scale":-2147483648}"#),
            start(&[2, 1]),
        ),
    ];
    for items in [r#"{"type":"map","values":"null"}"#, r#"["null","string"]"#] {
        bombs.push(bomb("counts within counts", array(items), start(&longs(&[1 << 30]).repeat(200_000))));
    }
    all_of(bombs);
}

#[test]
fn protobuf_without_end() {
    let schema = |fields: &str, more: &str| {
        format!(
            "syntax = \"proto3\"; import \"google/protobuf/wrappers.proto\"; import \"confluent/type/decimal.proto\"; \
             message Envelope {{ Row after = 1; string op = 2; }} message Key {{ int32 id = 1; }} message Row {{ int32 id = 1; {fields} }} {more}"
        )
    };
    let run = |number: u64, bytes: &[u8]| {
        let mut out = Vec::new();
        put_varint(&mut out, number << 3 | 2);
        put_varint(&mut out, bytes.len() as u64);
        [out.as_slice(), bytes].concat()
    };
    let varint = |number: u64, value: u64| {
        let mut out = Vec::new();
        put_varint(&mut out, number << 3);
        put_varint(&mut out, value);
        out
    };
    let framed = |indexes: &[u8], body: &[u8]| [&[0, 0, 0, 0, 1], indexes, body].concat();
    let event = |row: &[u8]| [run(2, b"c"), run(1, &[&[8, 1], row].concat())].concat();
    let bomb = |name, text: String, body: Vec<u8>| Bomb {
        name,
        options: Options { registry: Some(IdBytes::Four), order: Order::Offset, ..Options::new("t") },
        schemas: vec![Registered::Protobuf { text, references: Vec::new() }],
        key: framed(&[2, 2], &[8, 1]),
        value: framed(&[0], &body),
        left: None,
    };
    let room = RECORD_BYTES_MAX - 300;
    let repeated = |piece: &[u8]| piece.repeat(room / piece.len());
    let one = |ty: &str| schema(&format!("{ty} v = 2;"), "");
    let many = |ty: &str, count: usize| schema(&(0..count).map(|n| format!("{ty} c{n} = {};", n + 2)).collect::<String>(), "");
    // Elements of every array at the beginning and at the end, and what nobody knows between them.
    let scattered = |count: u64| {
        let ends: Vec<u8> = (2..2 + count).flat_map(|number| varint(number, 1)).collect();
        [ends.as_slice(), &varint(100_000, 1).repeat((room - 2 * ends.len()) / 4), &ends].concat()
    };
    let deep = {
        let mut bytes = Vec::new();
        while bytes.len() < 500_000 {
            bytes = run(2, &bytes);
            bytes.extend([0x12, 0].repeat(20_000));
        }
        bytes
    };
    let all_columns: Vec<u8> = (2..4_000).flat_map(|number| varint(number, u64::MAX)).collect();
    let keyed = |name, key: Vec<u8>, text: String| Bomb { key: framed(&[2, 2], &key), ..bomb(name, text, event(&[])) };
    let wide_key = |count: usize| {
        let fields: String = (0..count).map(|n| format!("int32 k{n} = {};", n + 2)).collect();
        schema("", "").replace("message Key { int32 id = 1;", &format!("message Key {{ int32 id = 1; {fields}"))
    };
    let mut no_message = bomb("an index of a message that is not there", one("int32"), Vec::new());
    no_message.value = framed(&[0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1], &[]);
    let mut no_end = bomb("indexes without end", one("int32"), Vec::new());
    no_end.value = framed(&vec![0xFF; room], &[]);
    all_of(vec![
        no_message,
        no_end,
        bomb("a length beyond the record", one("string"), event(&[0x12, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F])),
        bomb("the greatest length", one("bytes"), event(&[&[0x12], &[0xFF; 9][..], &[1]].concat())),
        bomb("a varint without end", one("int64"), event(&[&[0x10], &vec![0xFF; room][..]].concat())),
        bomb("bytes of all there is", one("bytes"), event(&run(2, &vec![0xFF; room]))),
        bomb("a field again and again", one("int32"), event(&repeated(&[0x10, 1]))),
        bomb("a text again and again", one("string"), event(&repeated(&[0x12, 0]))),
        bomb("a message again and again", one("google.protobuf.Int32Value"), event(&repeated(&[0x12, 0]))),
        bomb("a value again and again within its message", one("google.protobuf.Int32Value"), event(&run(2, &repeated(&[8, 1])))),
        bomb("unknown fields", one("int32"), event(&repeated(&[0xF8, 7, 1]))),
        bomb("groups within groups", one("int32"), event(&repeated(&[0x13]))),
        bomb("rows again and again", one("int32"), repeated(&[0x0A, 2, 8, 1])),
        bomb("numbers packed", one("repeated int32"), event(&run(2, &vec![1; room]))),
        bomb("packed and empty again and again", one("repeated int32"), event(&repeated(&[0x12, 0]))),
        bomb("numbers by themselves", one("repeated int32"), event(&repeated(&[0x10, 1]))),
        bomb("empty texts", one("repeated string"), event(&repeated(&[0x12, 0]))),
        bomb("symbols", schema("repeated E v = 2;", "enum E { A_LONG_NAME_OF_NOTHING = 0; }"), event(&run(2, &vec![0; room]))),
        bomb(
            "long symbols",
            schema("repeated E v = 2; repeated E w = 3;", &format!("enum E {{ {} = 0; }}", "A".repeat(1_000))),
            event(&[run(2, &[0; 400_000]), run(3, &[0; 400_000])].concat()),
        ),
        bomb(
            "columns of a long symbol",
            many("E", 4_000).replace("message Envelope", &format!("enum E {{ {} = 0; }} message Envelope", "A".repeat(1_000))),
            event(&[]),
        ),
        bomb("arrays whose elements are scattered", many("repeated int32", 4_000), event(&scattered(4_000))),
        bomb("some arrays whose elements are scattered", many("repeated int32", 9), event(&scattered(9))),
        bomb("a message within itself", schema("Row v = 2;", ""), event(&deep)),
        bomb("as many columns as may be", many("int64", 4_000), event(&all_columns)),
        bomb("as many columns and none of them sent", many("int64", 4_000), event(&[])),
        bomb("more columns than may be", many("int64", 12_000), event(&[])),
        bomb("a decimal of all there is", one("confluent.type.Decimal"), event(&run(2, &run(1, &vec![0x7F; room])))),
        bomb("a decimal as large as it may be", one("confluent.type.Decimal"), event(&run(2, &run(1, &[0x7F; 58_000])))),
        bomb("a decimal with a great scale", one("confluent.type.Decimal"), event(&run(2, &[run(1, &[1]), varint(3, (1 << 31) - 1)].concat()))),
        keyed("a key of many columns", (2..4_000).flat_map(|number| varint(number, 1)).collect(), wide_key(3_998)),
        keyed("a key of many columns and unknown fields", repeated(&varint(100_000, 1)), wide_key(3_998)),
    ]);
}

/// The same in Protobuf.
#[test]
fn protobuf_schemas_without_end() {
    let message = |piece: &str| format!("syntax = \"proto3\"; message M {{ {} }}", fill(piece, 100));
    let texts = [
        ("deep messages", fill("message M { ", 100)),
        ("deep options", format!("message M {{ optional int32 a = 1 [(o) = {} ]; }}", fill("{ a: ", 200))),
        ("deep lists", format!("message M {{ optional int32 a = 1 [(o) = {{ a: {} }} ]; }}", fill("[", 200))),
        ("deep groups", fill("message M { optional group G = 1 { ", 100)),
        ("hidden depth", fill("message M { /* } */ ", 100)),
        ("depth in strings", fill("message M { option a = \"}\"; ", 100)),
        ("fields", message("int32 a=1;")),
        ("fields of one type", message("M a=1;")),
        ("fields of an unknown type", message("X a=1;")),
        ("numbered fields", format!("syntax = \"proto3\"; message M {{ {} }}", numbered(100, |n| format!("int32 a{n}={};", n + 1)))),
        ("options", format!("message M {{ optional int32 a = 1 [{}a=1]; }}", fill("a=1,", 100))),
        ("options of the file", fill("option a=1;", 0)),
        ("parameters", format!("message M {{ optional int32 a = 1 [(confluent.field_meta) = {{ {} }}]; }}", fill("key:\"a\" value:\"b\" ", 200))),
        ("symbols", format!("enum E {{ {} }}", fill("A=0;", 100))),
        ("messages", fill("message M{}", 0)),
        ("maps", message("map<int32,int32> a=1;")),
        ("oneofs", message("oneof o{int32 a=1;}")),
        ("reserved numbers", format!("message M {{ reserved {}1; }}", fill("1,", 100))),
        ("reserved names", format!("message M {{ reserved {}\"a\"; }}", fill("\"a\",", 100))),
        ("extensions", fill("extend M{optional int32 a=1;}", 0)),
        ("services", fill("service S{rpc R(M)returns(M);}", 0)),
        ("imports", fill("import \"a\";", 0)),
        ("imports of what is known", fill("import \"google/protobuf/struct.proto\";", 0)),
        ("dots", format!("package a{};", fill(".a", 100))),
        ("a name", format!("message {} {{}}", fill("a", 100))),
        ("comments", fill("//\n", 0)),
        ("blocks of comments", fill("/**/", 0)),
        ("an open comment", format!("/*{}", fill("a", 100))),
        ("an open string", format!("option a = \"{}", fill("a", 100))),
        ("escapes", format!("option a = \"{}\";", fill("\\x41", 100))),
        ("semicolons", fill(";", 0)),
        ("words", fill("message ", 0)),
        ("numbers", fill("1 ", 0)),
        ("digits", fill("1", 0)),
        ("signs", fill("=", 0)),
        ("minus", fill("-", 0)),
        ("quotes", fill("\"\"", 0)),
        ("lines", fill("\n", 0)),
        ("blanks", fill(" ", 0)),
        ("not ASCII", fill("é", 0)),
        ("bad characters", fill("@", 0)),
        ("closing braces", fill("}", 0)),
        ("spread errors", fill("message { } ", 0)),
        ("bad fields", format!("message M {{ {} }}", fill("a b c ", 100))),
    ];
    let mut failed = Vec::new();
    for (name, text) in texts {
        let read = within(text.len(), || ProtobufSchema::parse(&text, &[]).is_ok());
        failed.extend(read.err().map(|why| format!("{name}: {why}")));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Schemas that a registry may hold.
#[test]
fn avro_schemas_without_end() {
    let nest = |open: &str| fill(open, 100);
    let union = format!("[\"null\"{}]", fill(",\"int\"", 100));
    let texts = [
        ("deep", nest("[")),
        ("deep types", nest(r#"{"type":"#)),
        ("deep arrays", nest(r#"{"type":"array","items":"#)),
        ("a wide union", union),
        ("a wide union of objects", format!("[\"null\"{}]", fill(",{\"type\":\"int\"}", 100))),
        ("many symbols", format!(r#"{{"type":"enum","name":"E","symbols":["A"{}]}}"#, fill(",\"\"", 100))),
        (
            "many fields",
            format!(r#"{{"type":"record","name":"R","fields":[{{"name":"a","type":"int"}}{}]}}"#, fill(r#",{"name":"","type":"int"}"#, 100)),
        ),
        ("many names", format!("[\"null\"{}]", numbered(100, |n| format!(r#",{{"type":"fixed","name":"F{n}","size":1}}"#)))),
        ("many small values", format!("[\"null\"{}]", fill(",0", 100))),
        ("many empty lists", format!("[\"null\"{}]", fill(",[]", 100))),
        ("many objects", format!(r#"{{"type":"int","a":[{}0]}}"#, fill(r#"{"a":0},"#, 100))),
        ("many lists", format!(r#"{{"type":"int","a":[{}0]}}"#, fill("[0],", 100))),
        ("many empty objects", format!(r#"{{"type":"int","a":[{}0]}}"#, fill("{},", 100))),
    ];
    let mut failed = Vec::new();
    for (name, text) in texts {
        let read = within(text.len(), || Schema::parse(&text, &[]).is_ok());
        failed.extend(read.err().map(|why| format!("{name}: {why}")));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let (own, mut list) = (r#"{"type":"record","name":"R","fields":[{"name":"r","type":{"type":"array","items":"R"}}]}"#, Vec::new());
    (0..1_000_000).for_each(|_| put_long(&mut list, 1));
    let schema = Schema::parse(own, &[]).expect("a schema");
    let skip = || schema.skip(schema.root(), &mut Reader::new(&list), &mut Budget::of(list.len()));
    assert!(within(list.len(), skip).expect("within the limits").is_err());
}

/// The log is ours, but others may write to its topic.
#[test]
fn canonical_bytes_without_end() {
    let column = |name: &str, ty: &str| Column { name: name.to_owned(), ty: ty.parse().expect(ty), nullable: true };
    let schema = TableSchema::new("t", vec![column("id", "int64"), column("n", "numeric"), column("d", "decimal(38,2)")], &["id"]).expect("a schema");
    let number = |scale: i64, unscaled: &[u8]| {
        let mut out = vec![2, 2, 2];
        put_long(&mut out, scale);
        landfall_schemas::wire::put_bytes(&mut out, unscaled);
        out.push(0);
        out
    };
    let mut long = vec![2, 2, 0, 2];
    landfall_schemas::wire::put_bytes(&mut long, &[0x7F; 1_000_000]);
    let rows = [number(i64::from(i32::MIN), &[1]), number(i64::from(i32::MAX), &[1]), number(0, &[0x7F; 1_000_000]), number(147_456, &[1]), long];
    for row in rows {
        let mut text = String::new();
        let written = within(row.len(), || {
            text.clear();
            row::values(schema.columns(), &row).try_for_each(|found| found.map(|(column, value)| value.write_text(column.ty, &mut text)))
        });
        assert!(written.expect("within the limits").is_err(), "{:02x?}", &row[..8]);
    }
    // A change whose list of columns that were not sent has no end.
    let body = |count: i64, more: &[u8]| {
        let mut out = vec![0; 10];
        put_long(&mut out, count);
        [out.as_slice(), more].concat()
    };
    for body in [body(i64::MAX, &[0; 1_000_000]), body(i64::MIN, &[0; 1_000_000]), body(1 << 30, &[0; 10])] {
        assert!(within(body.len(), || Change::decode(&schema, &body).is_err()).expect("within the limits"));
    }
    assert!(change::split_fingerprint(&[0xC3]).is_err());
}

#[test]
fn contracts_and_documents_without_end() {
    let outer = |inner: &str| format!("{{\"landfall\":{{\"version\":1,\"table\":\"t\",\"key\":[\"id\"],\"columns\":[{inner}]}}}}");
    let id = r#"{"name":"id","type":"int64","nullable":false}"#;
    let many = numbered(200, |n| format!(r#",{{"name":"{n}","type":"int64","nullable":false}}"#));
    let texts = [
        outer(&format!("{id}{many}")),
        outer(&fill("{},", 200)),
        fill("[", 10),
        format!("{{\"landfall\":{}", fill("{\"version\":", 100)),
        outer(&fill("[],", 100)),
    ];
    for text in &texts {
        let parsed = within(text.len(), || contract::parse(text).is_ok());
        assert!(parsed.is_ok(), "{}: {parsed:?}", &text[..60]);
        let _ = within(text.len(), || json::is_document(text)).expect("within the limits");
    }
    let type_text = fill("decimal(", 0);
    assert!(within(type_text.len(), || type_text.parse::<LogicalType>().is_err()).expect("within the limits"));
}

/// Aliases within aliases, nesting, and what else YAML may be asked for.
#[test]
fn topologies_without_end() {
    let mut laughs = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for n in 1..12 {
        let alias = format!("*a{},", n - 1).repeat(10);
        laughs.push_str(&format!("a{n}: &a{n} [{}]\n", alias.trim_end_matches(',')));
    }
    let texts = [
        ("aliases", laughs),
        ("lists", fill("[", 10)),
        ("maps", fill("{a: ", 10)),
        ("dashes", fill("- ", 10)),
        ("indents", (0..1_400).map(|n| format!("{}a:\n", " ".repeat(n))).collect()),
        ("keys", numbered(10, |n| format!("a{n}: 1\n"))),
        ("one key", fill("topology: a\n", 10)),
        ("documents", fill("---\n", 10)),
        ("a text", fill("a", 10)),
        ("references", fill("${env:A}", 10)),
        ("tables", format!("topology: t\ntables:\n{}", numbered(100, |n| format!("  - {{ id: t{n}, source: s }}\n")))),
    ];
    let mut failed = Vec::new();
    for (name, text) in texts {
        let documents = [Document::new("landfall.yaml", text.as_str())];
        // It is read once, by hand, so it may take longer than a record.
        let (checked, allocated) = crate::allocations::during(|| check(&documents, &|_| Err(LookupError::new("is not set"))));
        let before = super::measure::cpu();
        drop(check(&documents, &|_| Err(LookupError::new("is not set"))));
        let took = super::measure::cpu() - before;
        if checked.plan.is_some() || allocated.peak > 256 << 20 || took.as_secs() >= 5 {
            failed.push(format!("{name}: {} bytes of memory, {took:?}, a plan: {}", allocated.peak, checked.plan.is_some()));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
