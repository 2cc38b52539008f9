//! The canonical change as bytes: golden files, and an independent Avro library that must agree with them (issue "The journey", B).
//!
//! `schemas/golden/v<n>` holds, for each version of the layout, a contract as it is published and changes under it, one a line: name, the bytes
//! of the log record's value in hex, and the change as people read it. Files of a released version are never written again; those of the
//! version in work are rewritten by `UPDATE_GOLDEN=1 cargo test --workspace --test landfall golden::` and reviewed as data.
//!
//! What the bytes must be is said twice and apart: as a [`Change`], and as an Avro value built by hand for the `apache-avro` crate, which
//! reads the contract, computes its fingerprint and writes and reads the value by code of its own.

use std::fmt::Write as _;
use std::path::PathBuf;

use apache_avro::headers::{HeaderBuilder as _, RabinFingerprintHeader};
use apache_avro::types::Value as Avro;
use apache_avro::{GenericSingleObjectReader, GenericSingleObjectWriter, Schema};
use landfall_schemas::change::{self, SourceBlock};
use landfall_schemas::decimal::Decimal;
use landfall_schemas::types::ElementType;
use landfall_schemas::value::{Array, Interval};
use landfall_schemas::{Change, Column, ColumnSet, Op, Sequence, TableSchema, Value, contract, row};
use num_bigint::BigInt;

use crate::harness::stack;

/// A value as Landfall and as Avro have it.
type Cell = (Value<'static>, Avro);

/// A column with three values: the least, the greatest, and one that is easily got wrong.
struct Spec {
    name: &'static str,
    /// Its name in the contract: what is no letter, digit or `_` is written as `_x`, its code point in hex, `_`.
    avro: &'static str,
    ty: &'static str,
    cells: [Cell; 3],
}

/// The table's columns: every logical type, some twice where a second use is written differently in Avro.
fn specs() -> Vec<Spec> {
    let mut list = Vec::new();
    let mut add = |name, avro, ty, cells| list.push(Spec { name, avro, ty, cells });
    let int = |v: i32| (Value::Int(v.into()), Avro::Int(v));
    let long = |v: i64| (Value::Int(v), Avro::Long(v));
    add("id", "id", "int64", [i64::MIN, i64::MAX, -1].map(long));
    add("flag", "flag", "bool", [false, true, true].map(|v| (Value::Bool(v), Avro::Boolean(v))));
    add("i8", "i8", "int8", [i8::MIN, i8::MAX, 64].map(|v| int(v.into())));
    add("i16", "i16", "int16", [i16::MIN, i16::MAX, 8192].map(|v| int(v.into())));
    add("i32", "i32", "int32", [i32::MIN, i32::MAX, -65].map(int));
    add("u8", "u8", "uint8", [u8::MIN, u8::MAX, 127].map(|v| int(v.into())));
    add("u16", "u16", "uint16", [u16::MIN, u16::MAX, 0x7FFF].map(|v| int(v.into())));
    add("u32", "u32", "uint32", [u32::MIN, u32::MAX, 1 << 31].map(|v| long(v.into())));
    add("u64", "u64", "uint64", [u64::MIN, u64::MAX, 1 << 63].map(|v| (Value::UInt(v), avro_decimal(&v.into()))));
    add("f32", "f32", "float32", [f32::MIN, f32::MAX, f32::NAN].map(|v| (Value::Float32(v), Avro::Float(v))));
    add("f64", "f64", "float64", [f64::NEG_INFINITY, f64::MAX, -0.0].map(|v| (Value::Float64(v), Avro::Double(v))));
    add("price", "price", "decimal(5,2)", ["-99999", "99999", "0"].map(|v| decimal(v, 2)));
    let (nines, one) = ("9".repeat(100), format!("-1{}", "0".repeat(38)));
    add("wide", "wide", "decimal(100,30)", [&format!("-{nines}"), &nines, &one].map(|v| decimal(v, 30)));
    add("any", "any", "numeric", [numeric("-1", 40), numeric("1", -40), numeric("1230", 3)]);
    add("again", "again", "numeric", [numeric("-128", 0), numeric("127", 0), numeric("128", 0)]);
    add("note", "note", "text", ["", "\u{10FFFF}", "é\"\\\u{2028}日本"].map(|v| (Value::Text(v), Avro::String(v.to_owned()))));
    add("blob", "blob", "bytes", [&[] as &[u8], &[0xFF; 3], &[0, 0xC3, 1]].map(|v| (Value::Bytes(v), Avro::Bytes(v.to_vec()))));
    add("uid", "uid", "uuid", [uuid(0), uuid(u128::MAX), uuid(0x0123_4567_89AB_CDEF_0123_4567_89AB_CDEF)]);
    add("other uid", "other_x20_uid", "uuid", [uuid(0), uuid(u128::MAX), uuid(1)]);
    add("day", "day", "date", [i32::MIN, i32::MAX, -719_528].map(|v| (Value::Date(v), Avro::Date(v))));
    add("time 0", "time_x20_0", "time(0)", [0, 86_400_000_000, 1_000_000].map(|v| (Value::Time(v), Avro::TimeMicros(v))));
    add("time 6", "time_x20_6", "time(6)", [0, 86_400_000_000, 86_399_999_999].map(|v| (Value::Time(v), Avro::TimeMicros(v))));
    // Avro knows no time of day in nanos: a reader takes the number as it is.
    add("time 9", "time_x20_9", "time(9)", [0, 86_400_000_000_000, 86_399_999_999_999].map(|v| (Value::Time(v), Avro::Long(v))));
    let instant = |v: i64| Value::Timestamp(v);
    add("日時", "_x65e5__x6642_", "timestamp(3)", [i64::MIN, i64::MAX, -1000].map(|v| (instant(v), Avro::LocalTimestampMicros(v))));
    add("ts 6", "ts_x20_6", "timestamp(6)", [i64::MIN, i64::MAX, -1].map(|v| (instant(v), Avro::LocalTimestampMicros(v))));
    add("ts 9", "ts_x20_9", "timestamp(9)", [i64::MIN, i64::MAX, -1].map(|v| (instant(v), Avro::LocalTimestampNanos(v))));
    add("tz_0", "tz_0", "timestamptz(0)", [i64::MIN, i64::MAX, 0].map(|v| (instant(v), Avro::TimestampMicros(v))));
    add("tz_x6", "tz_x5f_x6", "timestamptz(6)", [i64::MIN, i64::MAX, 253_402_300_799_999_999].map(|v| (instant(v), Avro::TimestampMicros(v))));
    add("tz9", "tz9", "timestamptz(9)", [i64::MIN, i64::MAX, 1].map(|v| (instant(v), Avro::TimestampNanos(v))));
    add("span", "span", "duration(6)", [i64::MIN, i64::MAX, -3_020_399_000_000].map(|v| (Value::Duration(v), Avro::Long(v))));
    let parts = [(i32::MIN, i32::MAX, i64::MIN), (29, 7, 22_089_250_000), (-1, 3, -500_000)];
    add(
        "since",
        "since",
        "interval",
        parts.map(|(months, days, micros)| {
            let record = [("months", Avro::Int(months)), ("days", Avro::Int(days)), ("micros", Avro::Long(micros))];
            (Value::Interval(Interval { months, days, micros }), Avro::Record(record.map(|(name, v)| (name.to_owned(), v)).into()))
        }),
    );
    add("bits", "bits", "bits(3)", ["000", "111", "010"].map(|v| (Value::Bits(v), Avro::String(v.to_owned()))));
    let elements = [(0, &[][..]), (2, &[2, 2, 0]), (1, &[2, 5])];
    let element = |v: Option<i32>| v.map_or(Avro::Union(0, Box::new(Avro::Null)), |v| Avro::Union(1, Box::new(Avro::Int(v))));
    let lists = [vec![], vec![element(Some(1)), element(None)], vec![element(Some(-3))]];
    let mut lists = lists.into_iter();
    let list_of = |(len, items)| Value::Array(Array { element: ElementType::Int32, len, items });
    add("list", "list", "array(int32)", elements.map(|e| (list_of(e), Avro::Array(lists.next().expect("as many")))));
    add("doc", "doc", "json", ["null", "{}", "{\"a\": 1.0, \"a\":[]}"].map(|v| (Value::Json(v), Avro::String(v.to_owned()))));
    list
}

/// The key's columns, not in the order of the table's.
const KEY: [&str; 3] = ["uid", "id", "note"];

fn big(digits: &str) -> BigInt {
    digits.parse().expect("digits")
}

fn avro_decimal(value: &BigInt) -> Avro {
    Avro::Decimal(value.to_signed_bytes_be().into())
}

fn unscaled(digits: &str, scale: i32) -> Value<'static> {
    Value::Decimal(Decimal { unscaled: big(digits).to_signed_bytes_be().leak(), scale })
}

fn decimal(digits: &str, scale: i32) -> Cell {
    (unscaled(digits, scale), avro_decimal(&big(digits)))
}

fn numeric(digits: &str, scale: i32) -> Cell {
    let record = vec![("scale".to_owned(), Avro::Int(scale)), ("unscaled".to_owned(), Avro::Bytes(big(digits).to_signed_bytes_be()))];
    (unscaled(digits, scale), Avro::Record(record))
}

fn uuid(number: u128) -> Cell {
    (Value::Uuid(number.to_be_bytes()), Avro::Uuid(apache_avro::Uuid::from_u128(number)))
}

fn null() -> Avro {
    Avro::Union(0, Box::new(Avro::Null))
}

fn some(value: Avro) -> Avro {
    Avro::Union(1, Box::new(value))
}

fn record<const N: usize>(fields: [(&str, Avro); N]) -> Avro {
    Avro::Record(fields.map(|(name, value)| (name.to_owned(), value)).into())
}

/// Which values a row shows: of each column the one of that number, or NULL; the key's columns always have one.
#[derive(Clone, Copy)]
enum Shows {
    Cells(usize),
    Nulls(usize),
}

/// A row, encoded by Landfall and as Avro has it.
fn row_of(specs: &[Spec], schema: &TableSchema, shows: Shows, unauthored: &[usize]) -> (Vec<u8>, Avro) {
    let (mut bytes, mut fields) = (Vec::new(), Vec::new());
    for (at, (spec, column)) in specs.iter().zip(schema.columns()).enumerate() {
        let cell = match shows {
            _ if unauthored.contains(&at) => None,
            Shows::Cells(n) => Some(&spec.cells[n]),
            Shows::Nulls(n) => KEY.contains(&spec.name).then_some(&spec.cells[n]),
        };
        row::put(column.ty, cell.map_or(Value::Null, |c| c.0), &mut bytes).expect("it fits its type");
        fields.push((spec.avro.to_owned(), cell.map_or_else(null, |c| some(c.1.clone()))));
    }
    (bytes, Avro::Record(fields))
}

/// A key, encoded by Landfall and as Avro has it.
fn key_of(specs: &[Spec], schema: &TableSchema, cell: usize) -> (Vec<u8>, Avro) {
    let (mut bytes, mut fields) = (Vec::new(), Vec::new());
    for (name, column) in KEY.iter().zip(schema.key_columns()) {
        let spec = specs.iter().find(|s| s.name == *name).expect("a column of the table");
        row::put_plain(column.ty, spec.cells[cell].0, &mut bytes).expect("it fits its type");
        fields.push((spec.avro.to_owned(), spec.cells[cell].1.clone()));
    }
    (bytes, Avro::Record(fields))
}

fn table(specs: &[Spec]) -> TableSchema {
    let column = |s: &Spec| Column { name: s.name.to_owned(), ty: s.ty.parse().expect(s.ty), nullable: !KEY.contains(&s.name) };
    TableSchema::new("every type", specs.iter().map(column).collect(), &KEY).expect("a valid schema")
}

/// One change to be: each part once for Landfall and once for Avro.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    op: Op,
    sequence: Option<(u32, u64, u64, u32)>,
    event_time: Option<i64>,
    transaction: Option<(&'static str, i64)>,
    snapshot: Option<i64>,
    unauthored: &'static [usize],
    key: Option<usize>,
    other_key: Option<usize>,
    before: Option<Shows>,
    after: Option<Shows>,
}

/// Every op, NULL, least and greatest of every type, columns that the source did not send, and each optional part there and not there.
fn cases() -> Vec<Case> {
    let plain = Case {
        name: "",
        op: Op::Create,
        sequence: Some((0, 25_000_000, 25_000_100, 0)),
        event_time: Some(1_796_033_209_630_123),
        transaction: Some(("2597", 1)),
        snapshot: None,
        unauthored: &[],
        key: Some(0),
        other_key: None,
        before: None,
        after: None,
    };
    let cells = |n| Some(Shows::Cells(n));
    vec![
        Case { name: "create, the least of everything", after: cells(0), sequence: Some((0, 0, 0, 0)), event_time: Some(i64::MIN), ..plain },
        Case {
            name: "create, the greatest of everything",
            after: cells(1),
            key: Some(1),
            sequence: Some((u32::MAX, u64::MAX, u64::MAX, u32::MAX)),
            event_time: Some(i64::MAX),
            transaction: Some(("18446744073709551615", i64::MAX)),
            ..plain
        },
        Case { name: "create, NULL outside the key", after: Some(Shows::Nulls(0)), transaction: None, event_time: None, ..plain },
        Case { name: "update with the row before", op: Op::Update, key: Some(2), before: cells(2), after: cells(2), ..plain },
        Case { name: "update, columns not sent", op: Op::Update, key: Some(2), after: cells(2), unauthored: &[1, 12, 16, 29], ..plain },
        Case { name: "delete with the row before", op: Op::Delete, before: cells(0), ..plain },
        Case { name: "delete", op: Op::Delete, key: Some(1), ..plain },
        Case { name: "delete, half of a key change", op: Op::Delete, key: Some(1), other_key: Some(2), ..plain },
        Case { name: "create, half of a key change", key: Some(2), other_key: Some(1), after: cells(2), unauthored: &[16], ..plain },
        Case { name: "bare tombstone", op: Op::Delete, sequence: None, event_time: None, transaction: None, ..plain },
        Case { name: "row of a full snapshot", op: Op::Read, snapshot: Some(25_000_000), after: cells(1), key: Some(1), transaction: None, ..plain },
        Case { name: "row of an incremental snapshot", op: Op::Read, after: Some(Shows::Nulls(1)), key: Some(1), transaction: None, ..plain },
        Case { name: "truncate", op: Op::Truncate, key: None, ..plain },
        Case { name: "end of a full snapshot", op: Op::SnapshotEnd, key: None, snapshot: Some(i64::MAX), transaction: None, ..plain },
    ]
}

impl Case {
    /// The log record's value as Landfall writes it, and the change as people read it.
    fn bytes(&self, specs: &[Spec], schema: &TableSchema) -> Vec<u8> {
        let sequence = self.sequence.map(|(epoch, commit, order, ordinal)| Sequence::of_dialect(epoch, commit, order, ordinal));
        let key = self.key.map(|cell| key_of(specs, schema, cell).0);
        let other_key = self.other_key.map(|cell| key_of(specs, schema, cell).0);
        let before = self.before.map(|shows| row_of(specs, schema, shows, &[]).0);
        let after = self.after.map(|shows| row_of(specs, schema, shows, self.unauthored).0);
        let change = Change {
            op: self.op,
            sequence: sequence.as_ref().map(Sequence::as_bytes),
            event_time: self.event_time,
            source: SourceBlock {
                connector: "postgresql",
                database: "shop",
                schema: "public",
                table: "every type",
                transaction: self.transaction.map(|t| t.0),
                transaction_order: self.transaction.map(|t| t.1),
            },
            snapshot: self.snapshot,
            unauthored: self.unauthored.iter().copied().collect::<ColumnSet>(),
            key: key.as_deref(),
            other_key: other_key.as_deref(),
            before: before.as_deref(),
            after: after.as_deref(),
        };
        let mut out = Vec::new();
        change.encode(contract::of(schema).1, &mut out);
        out
    }

    /// The same as an Avro value, in the order of the contract's fields.
    fn avro(&self, specs: &[Spec], schema: &TableSchema) -> Avro {
        let optional = |value: Option<Avro>| value.map_or_else(null, some);
        let text = |text: &str| Avro::String(text.to_owned());
        // The letters of ARCHITECTURE.md, Canonical change, and `s` behind them.
        let symbol = ["c", "u", "d", "r", "t", "s"].iter().position(|s| *s == self.op.letter()).expect("one of the letters");
        let sequence = self.sequence.map(|(epoch, commit, order, ordinal)| {
            // Order-preserving: each part big-endian, one behind the other.
            let parts: [&[u8]; 4] = [&epoch.to_be_bytes(), &commit.to_be_bytes(), &order.to_be_bytes(), &ordinal.to_be_bytes()];
            Avro::Bytes(parts.concat())
        });
        record([
            ("op", Avro::Enum(symbol as u32, self.op.letter().to_owned())),
            ("sequence", optional(sequence)),
            ("event_time", optional(self.event_time.map(Avro::TimestampMicros))),
            (
                "source",
                record([
                    ("connector", text("postgresql")),
                    ("database", text("shop")),
                    ("schema", text("public")),
                    ("table", text("every type")),
                    ("transaction", optional(self.transaction.map(|t| text(t.0)))),
                    ("transaction_order", optional(self.transaction.map(|t| Avro::Long(t.1)))),
                ]),
            ),
            ("snapshot", optional(self.snapshot.map(Avro::Long))),
            ("unauthored", Avro::Array(self.unauthored.iter().map(|at| Avro::Int(*at as i32)).collect())),
            ("key", optional(self.key.map(|cell| key_of(specs, schema, cell).1))),
            ("other_key", optional(self.other_key.map(|cell| key_of(specs, schema, cell).1))),
            ("before", optional(self.before.map(|shows| row_of(specs, schema, shows, &[]).1))),
            ("after", optional(self.after.map(|shows| row_of(specs, schema, shows, self.unauthored).1))),
        ])
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, b| {
        write!(out, "{b:02x}").expect("text grows");
        out
    })
}

/// Name and bytes of a line. The change behind them is compared as text: not every reader of JSON takes numbers of 309 digits.
pub(crate) fn parts(line: &str) -> (&str, Vec<u8>) {
    let mut parts = line.split('"');
    let (name, bytes) = (parts.nth(3), parts.nth(3));
    (name.expect("a name"), unhex(bytes.expect("bytes")))
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hex")).collect()
}

fn folder(version: u32) -> PathBuf {
    stack::root().join(format!("schemas/golden/v{version}"))
}

/// A line of a golden file.
fn line(name: &str, bytes: &[u8], schema: &TableSchema) -> String {
    let (_, body) = change::split_fingerprint(bytes).expect("a single object");
    let mut text = format!("{{\"name\":\"{name}\",\"bytes\":\"{}\",\"change\":", hex(bytes));
    Change::decode(schema, body).and_then(|c| c.write_json(schema, &mut text)).unwrap_or_else(|e| panic!("{name}: {e}"));
    text.push('}');
    text
}

/// A schema without what the parsing canonical form leaves out. The specification writes `{"type":"long","logicalType":…}` as `"long"` there;
/// `apache-avro` 0.22 leaves `{"type":"long"}` and a decimal's precision and scale standing, so it is given the plain schema to begin with.
fn without_logical_types(text: &str) -> String {
    fn plain(schema: serde_json::Value) -> serde_json::Value {
        use serde_json::Value as Json;
        match schema {
            Json::Array(list) => list.into_iter().map(plain).collect(),
            Json::Object(mut map) => {
                let _ = map.remove("logicalType");
                match map.get("type").and_then(Json::as_str) {
                    Some("bytes" | "int" | "long") if !map.contains_key("name") => map["type"].clone(),
                    _ => map.into_iter().map(|(name, value)| (name, plain(value))).collect(),
                }
            }
            other => other,
        }
    }
    plain(serde_json::from_str(text).expect("JSON")).to_string()
}

#[test]
fn files_of_this_version_are_what_is_written() {
    let specs = specs();
    let schema = table(&specs);
    let mut changes = String::new();
    for case in cases() {
        changes.push_str(&line(case.name, &case.bytes(&specs, &schema), &schema));
        changes.push('\n');
    }
    let contract = format!("{}\n", contract::of(&schema).0);
    let folder = folder(contract::VERSION);
    for (name, text) in [("every-type.avsc", contract), ("every-type.jsonl", changes)] {
        let path = folder.join(name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, &text)).expect("the golden files can be written");
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for (number, (is, was)) in text.lines().zip(golden.lines()).enumerate() {
            assert!(is == was, "{} line {}: written is\n{is}\nwas\n{was}", path.display(), number + 1);
        }
        assert_eq!(text.lines().count(), golden.lines().count(), "{}", path.display());
    }
}

#[test]
fn files_of_every_version_are_read() {
    for version in 1..=contract::VERSION {
        let text = |name| std::fs::read_to_string(folder(version).join(name)).unwrap_or_else(|e| panic!("version {version}, {name}: {e}"));
        let contract = text("every-type.avsc");
        let schema = contract::parse(&contract).unwrap_or_else(|e| panic!("version {version}: {e}"));
        let changes = text("every-type.jsonl");
        assert!(changes.lines().count() >= 12, "version {version}: changes are missing");
        for golden in changes.lines() {
            let (name, bytes) = parts(golden);
            assert_eq!(line(name, &bytes, &schema), golden, "version {version}");
        }
    }
}

#[test]
fn apache_avro_agrees_with_contract_and_bytes() {
    let specs = specs();
    let schema = table(&specs);
    let (text, fingerprint) = contract::of(&schema);
    let avro = Schema::parse_str(&text).expect("the contract is Avro");
    let plain = Schema::parse_str(&without_logical_types(&text)).expect("the contract is Avro without logical types too");
    let theirs = plain.fingerprint::<apache_avro::rabin::Rabin>();
    assert_eq!(theirs.bytes, fingerprint.0.to_le_bytes(), "CRC-64-AVRO of the parsing canonical form\n{}", plain.canonical_form());
    let header = RabinFingerprintHeader::from_schema(&plain);
    let mut writer = GenericSingleObjectWriter::new_with_capacity_and_header_builder(&avro, 1 << 12, &header).expect("a writer");
    let reader = GenericSingleObjectReader::builder().schema(avro.clone()).header(header.build_header()).build().expect("a reader");
    let golden = std::fs::read_to_string(folder(contract::VERSION).join("every-type.jsonl")).expect("the golden file is there");
    for (case, line) in cases().into_iter().zip(golden.lines()) {
        let (name, golden) = parts(line);
        assert_eq!(name, case.name);
        let value = case.avro(&specs, &schema);
        assert!(value.validate(&avro), "{}: the value built by hand is not of the contract", case.name);
        let mut written = Vec::new();
        let _ = writer.write_value_ref(&value, &mut written).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        // A block may say how long it is, so that a reader passes over it at once; apache-avro's do not, and ours of elements do.
        if !format!("{value:?}").contains("Array([Union") {
            assert_eq!(hex(&written), hex(&golden), "{}: apache-avro writes other bytes", case.name);
        }
        let mut rest = golden.as_slice();
        let read = reader.read_value(&mut rest).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        assert!(rest.is_empty(), "{}: {} bytes are left over", case.name, rest.len());
        // By their text, since a NaN equals nothing; the bytes are compared above.
        assert_eq!(format!("{read:?}"), format!("{value:?}"), "{}: apache-avro reads something else", case.name);
    }
}

#[test]
fn every_type_is_there() {
    let found: Vec<String> = specs().iter().map(|s| s.ty.split('(').next().unwrap_or_default().to_owned()).collect();
    for name in landfall_schemas::LogicalType::NAMES {
        let name = name.split('(').next().unwrap_or_default();
        assert!(found.iter().any(|f| f == name), "no column is of type {name}");
    }
    let ops: Vec<Op> = cases().iter().map(|c| c.op).collect();
    assert!(Op::ALL.iter().all(|op| ops.contains(op)), "an op is missing");
}
