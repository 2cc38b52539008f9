//! Every type arrives exactly: NULL, the ends of its range, and random values, read back by DuckDB's own crate as raw numbers and bytes.

use duckdb::types::{TimeUnit, ValueRef};
use landfall::sink::{Batch, Kind, Sink as _};
use landfall_schemas::{Decimal, LogicalType, Value};

use super::{Bench, begin, push, schema, target, texts};

/// Values that a type must hold, as DuckDB's own reader gives them back.
fn samples() -> Vec<(&'static str, Vec<(Value<'static>, Raw)>)> {
    let decimal = |v: i128, scale| Value::Decimal(Decimal { unscaled: Box::leak(Box::new(v.to_be_bytes())), scale });
    let digits38 = 10_i128.pow(38) - 1;
    let big: num_bigint::BigInt = num_bigint::BigInt::from(10).pow(60) - 1;
    let big = Value::Decimal(Decimal { unscaled: Box::leak(big.to_signed_bytes_be().into_boxed_slice()), scale: 10 });
    let nines = format!("{}.{}", "9".repeat(50), "9".repeat(10));
    let text = |v: &'static str| (Value::Text(v), Raw::Text(v.to_owned()));
    let json = |v: &'static str| (Value::Json(v), Raw::Text(v.to_owned()));
    let int = |v: i64| (Value::Int(v), Raw::Int(v.into()));
    let micros = |v: i64| (Value::Timestamp(v), Raw::Timestamp(TimeUnit::Microsecond, v));
    let nanos = |v: i64| (Value::Timestamp(v), Raw::Timestamp(TimeUnit::Nanosecond, v));
    let time = |v: i64| (Value::Time(v), Raw::Time(TimeUnit::Microsecond, v));
    vec![
        ("bool", vec![(Value::Bool(true), Raw::Int(1)), (Value::Bool(false), Raw::Int(0))]),
        ("int8", vec![int(i8::MIN.into()), int(i8::MAX.into())]),
        ("int16", vec![int(i16::MIN.into()), int(i16::MAX.into())]),
        ("int32", vec![int(i32::MIN.into()), int(i32::MAX.into())]),
        ("int64", vec![int(i64::MIN), int(i64::MAX)]),
        ("uint8", vec![int(0), int(255)]),
        ("uint16", vec![int(0), int(65_535)]),
        ("uint32", vec![int(0), int(u32::MAX.into())]),
        ("uint64", vec![(Value::UInt(u64::MAX), Raw::Int(u64::MAX.into())), (Value::UInt(0), Raw::Int(0))]),
        (
            "float32",
            [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::MIN_POSITIVE / 2.0, f32::MAX]
                .map(|v| (Value::Float32(v), Raw::Bits(v.to_bits().into())))
                .into(),
        ),
        (
            "float64",
            [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::MIN_POSITIVE / 2.0, f64::MAX]
                .map(|v| (Value::Float64(v), Raw::Bits(v.to_bits())))
                .into(),
        ),
        ("decimal(4,2)", vec![(decimal(9_999, 2), Raw::Int(9_999)), (decimal(-9_999, 2), Raw::Int(-9_999))]),
        ("decimal(9,0)", vec![(decimal(999_999_999, 0), Raw::Int(999_999_999)), (decimal(-1, 0), Raw::Int(-1))]),
        ("decimal(18,18)", vec![(decimal(10_i128.pow(18) - 1, 18), Raw::Int(10_i128.pow(18) - 1)), (decimal(-1, 18), Raw::Int(-1))]),
        ("decimal(38,10)", vec![(decimal(digits38, 10), Raw::Int(digits38)), (decimal(-digits38, 10), Raw::Int(-digits38))]),
        ("decimal(60,10)", vec![(big, Raw::Text(nines)), (decimal(-1, 10), Raw::Text("-0.0000000001".to_owned()))]),
        (
            "numeric",
            vec![
                (decimal(110, 2), Raw::Text("1.10".to_owned())),
                (decimal(7, -3), Raw::Text("7000".to_owned())),
                (decimal(0, 4), Raw::Text("0.0000".to_owned())),
            ],
        ),
        ("text", vec![text(""), text("a\0b"), text("ű😀\u{10FFFF}"), text("it's \"quoted\"\n")]),
        ("bytes", vec![(Value::Bytes(&[]), Raw::Blob(vec![])), (Value::Bytes(&[0, 255, b'\\', b'x']), Raw::Blob(vec![0, 255, b'\\', b'x']))]),
        (
            "uuid",
            vec![
                (Value::Uuid([0; 16]), Raw::Text("00000000-0000-0000-0000-000000000000".to_owned())),
                (Value::Uuid([0x80; 16]), Raw::Text("80808080-8080-8080-8080-808080808080".to_owned())),
                (Value::Uuid([0xFF; 16]), Raw::Text("ffffffff-ffff-ffff-ffff-ffffffffffff".to_owned())),
            ],
        ),
        ("date", [-2_147_483_646, -1, 0, 2_147_483_646].map(|v| (Value::Date(v), Raw::Date(v))).into()),
        ("time(3)", vec![time(0), time(1), time(86_399_999_999), time(86_400_000_000)]),
        (
            "time(7)",
            [(0, "00:00:00"), (1, "00:00:00.000000001"), (46_801_702_905_100, "13:00:01.7029051"), (86_400_000_000_000, "24:00:00")]
                .map(|(v, text)| (Value::Time(v), Raw::Text(text.to_owned())))
                .into(),
        ),
        ("timestamp(0)", vec![micros(-9_223_372_022_400_000_000), micros(-1), micros(i64::MAX - 1)]),
        ("timestamp(9)", vec![nanos(-9_223_286_400_000_000_000), nanos(-1), nanos(i64::MAX - 1)]),
        ("timestamptz(6)", vec![micros(-9_223_372_022_400_000_000), micros(-1), micros(i64::MAX - 1)]),
        ("timestamptz(9)", vec![(Value::Timestamp(-1_000), Raw::Timestamp(TimeUnit::Microsecond, -1))]),
        ("json", vec![json(r#"{"b" :1.000,  "a": 1e400, "a":"\u0000"}"#), json("null"), json(" [ ] ")]),
    ]
}

/// A value as DuckDB's crate reads it: nothing but numbers and bytes.
#[derive(Clone, Debug, PartialEq)]
enum Raw {
    Null,
    Int(i128),
    Bits(u64),
    Text(String),
    Blob(Vec<u8>),
    Date(i32),
    Time(TimeUnit, i64),
    Timestamp(TimeUnit, i64),
}

fn raw(value: ValueRef<'_>) -> Raw {
    match value {
        ValueRef::Null => Raw::Null,
        ValueRef::Boolean(v) => Raw::Int(v.into()),
        ValueRef::TinyInt(v) => Raw::Int(v.into()),
        ValueRef::SmallInt(v) => Raw::Int(v.into()),
        ValueRef::Int(v) => Raw::Int(v.into()),
        ValueRef::BigInt(v) => Raw::Int(v.into()),
        ValueRef::UTinyInt(v) => Raw::Int(v.into()),
        ValueRef::USmallInt(v) => Raw::Int(v.into()),
        ValueRef::UInt(v) => Raw::Int(v.into()),
        ValueRef::UBigInt(v) => Raw::Int(v.into()),
        ValueRef::Float(v) => Raw::Bits(v.to_bits().into()),
        ValueRef::Double(v) => Raw::Bits(v.to_bits()),
        ValueRef::Decimal(v) => Raw::Int(v.value()),
        ValueRef::Text(v) => Raw::Text(String::from_utf8(v.to_vec()).expect("UTF-8")),
        ValueRef::Blob(v) => Raw::Blob(v.to_vec()),
        ValueRef::Date32(v) => Raw::Date(v),
        ValueRef::Time64(unit, v) => Raw::Time(unit, v),
        ValueRef::Timestamp(unit, v) => Raw::Timestamp(unit, v),
        other => panic!("unexpected {other:?}"),
    }
}

#[test]
fn every_type_arrives_exactly() {
    let samples = samples();
    let names: Vec<String> = samples.iter().map(|(ty, _)| format!("c {ty}")).collect();
    let mut columns = vec![("id", "int32")];
    columns.extend(names.iter().zip(&samples).map(|(name, (ty, _))| (name.as_str(), *ty)));
    let schema = schema(&columns, &["id"]);
    let mut target = target("every_type", &schema);
    let mut bench = Bench::new();
    let (fence, next) = begin(&mut bench.sink, &mut target);
    let count = samples.iter().map(|(_, values)| values.len()).max().expect("samples") + 1;
    // Row i holds each type's i-th value, in turn, and the last row nothing but NULL; enough rows for several chunks and vectors.
    let rows = 40_000;
    let value = |i: usize, (_, values): &(&str, Vec<(Value<'static>, Raw)>)| {
        if i % count == count - 1 { (Value::Null, Raw::Null) } else { values[i % count % values.len()].clone() }
    };
    let mut batch = Batch::default();
    batch.reset(0, fence, next, rows as i64);
    for i in 0..rows {
        let mut values = vec![Value::Int(i as i64)];
        values.extend(samples.iter().map(|s| value(i, s).0));
        push(&mut batch, &schema, &values, true);
    }
    bench.sink.land(&target, &batch).expect("lands");
    bench.sink.idle().expect("closes");

    let connection = duckdb::Connection::open(bench.path()).expect("opens");
    let mut statement = connection
        .prepare(
            // DuckDB's crate cannot read TIME_NS as a number.
            r#"SELECT * REPLACE ("c time(7)"::VARCHAR AS "c time(7)") FROM every_type ORDER BY id"#,
        )
        .expect("prepares");
    let mut found = statement.query([]).expect("runs");
    let mut seen = 0;
    while let Some(row) = found.next().expect("a row") {
        assert_eq!(raw(row.get_ref(0).expect("id")), Raw::Int(seen as i128));
        for (at, sample) in samples.iter().enumerate() {
            assert_eq!(raw(row.get_ref(at + 1).expect("a value")), value(seen, sample).1, "row {seen}, type {}", sample.0);
        }
        seen += 1;
    }
    assert_eq!(seen, rows);
    let infinite: i64 = connection
        .query_row(r#"SELECT count(*) FROM every_type WHERE isinf("c date") OR isinf("c timestamp(0)") OR isinf("c timestamptz(6)")"#, [], |r| {
            r.get(0)
        })
        .expect("counts");
    assert_eq!(infinite, 0, "a finite value became infinity");
    let invalid: i64 = connection.query_row(r#"SELECT count(*) FROM every_type WHERE NOT json_valid("c json")"#, [], |r| r.get(0)).expect("counts");
    assert_eq!(invalid, 0);
}

#[test]
fn column_types_are_those_of_the_table() {
    for (ty, expected) in [
        ("uint64", "UBIGINT"),
        ("decimal(38,10)", "DECIMAL(38,10)"),
        ("time(0)", "TIME"),
        ("time(9)", "TIME_NS"),
        ("timestamp(9)", "TIMESTAMP_NS"),
        ("timestamptz(9)", "TIMESTAMP WITH TIME ZONE"),
        ("json", "JSON"),
    ] {
        assert_eq!(landfall_schemas::store::duckdb::column_type(ty.parse().expect(ty)), expected);
    }
    // And DuckDB prints them so: a table that was prepared is found unchanged when it is prepared again.
    let samples = samples();
    let names: Vec<String> = samples.iter().map(|(ty, _)| format!("c {ty}")).collect();
    let mut columns = vec![("id", "int32")];
    columns.extend(names.iter().zip(&samples).map(|(name, (ty, _))| (name.as_str(), *ty)));
    let mut bench = Bench::new();
    let mut target = target("twice", &schema(&columns, &["id"]));
    let _ = begin(&mut bench.sink, &mut target);
    bench.sink.prepare(&target).expect("covers already");
}

/// Every key type finds its row again: an update leaves one row, a delete none.
#[test]
fn every_key_type_finds_its_rows() {
    let mut bench = Bench::new();
    for (number, (ty, values)) in samples().into_iter().enumerate() {
        let logical: LogicalType = ty.parse().expect(ty);
        if logical.is_float() || logical == LogicalType::Json {
            continue;
        }
        let schema = schema(&[("k", ty), ("second", "text"), ("v", "int32")], &["second", "k"]);
        let mut target = target(&format!("key{number}"), &schema);
        let (fence, mut next) = begin(&mut bench.sink, &mut target);
        let mut batch = Batch::default();
        for round in 0..3_i64 {
            batch.reset(0, fence, next, round + 1);
            for (i, (value, _)) in values.iter().enumerate() {
                // The last round deletes every row but the first.
                push(&mut batch, &schema, &[*value, Value::Text("x\0"), Value::Int(round)], round < 2 || i == 0);
            }
            bench.sink.land(&target, &batch).expect("lands");
            next = Some(round + 1);
            let rows = bench.sink.query(&format!("SELECT count(*), min(v) FROM key{number}"), &Default::default()).expect("reads").rows;
            let expected = if round < 2 { values.len() } else { 1 };
            assert_eq!(rows, texts(&[&[&expected.to_string(), &round.to_string()]]), "{ty}, round {round}");
        }
    }
}

/// Case DEC-17: 3 and 3.0 are one key, whatever scale the text has.
#[test]
fn case_dec_17_numeric_keys_are_equal_by_value() {
    let schema = schema(&[("id", "numeric"), ("v", "text")], &["id"]);
    let mut target = target("dec17", &schema);
    let mut bench = Bench::new();
    let (fence, next) = begin(&mut bench.sink, &mut target);
    let mut batch = Batch::default();
    batch.reset(0, fence, next, 1);
    push(&mut batch, &schema, &[Value::Decimal(Decimal { unscaled: &[3], scale: 0 }), Value::Text("a")], true);
    push(&mut batch, &schema, &[Value::Decimal(Decimal { unscaled: &[5], scale: -2 }), Value::Text("x")], true);
    bench.sink.land(&target, &batch).expect("lands");
    batch.reset(0, fence, Some(1), 2);
    push(&mut batch, &schema, &[Value::Decimal(Decimal { unscaled: &[30], scale: 1 }), Value::Text("b")], true);
    push(&mut batch, &schema, &[Value::Decimal(Decimal { unscaled: &[0x01, 0xF4], scale: 0 }), Value::Text("y")], true);
    bench.sink.land(&target, &batch).expect("lands");
    assert_eq!(bench.read("SELECT * FROM dec17 ORDER BY v"), texts(&[&["3", "b"], &["500", "y"]]));
}

/// A value that the lander should have refused stops the landing by column; nothing of the batch is there.
#[test]
fn what_was_not_refused_in_time_stops_the_landing() {
    let schema = schema(&[("id", "int32"), ("day", "date")], &["id"]);
    let mut target = target("late", &schema);
    let mut bench = Bench::new();
    let (fence, next) = begin(&mut bench.sink, &mut target);
    let mut batch = Batch::default();
    batch.reset(0, fence, next, 5);
    push(&mut batch, &schema, &[Value::Int(1), Value::Date(0)], true);
    push(&mut batch, &schema, &[Value::Int(2), Value::Date(i32::MAX)], true);
    let error = bench.sink.land(&target, &batch).expect_err("infinity");
    assert_eq!(error.kind, Kind::Unsupported);
    assert!(error.detail.contains("\"day\""), "{error}");
    assert_eq!(bench.sink.cursor(&target, 0).expect("reads").expect("claimed").next, None);
    assert_eq!(bench.read("SELECT count(*) FROM late"), texts(&[&["0"]]));
}
