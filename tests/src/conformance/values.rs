//! Every type arrives exactly, as a value and as a key: the ends of its range, the odd values and random ones, and NULL.
//!
//! What a store refuses by name is left out; all else has to come back to the last digit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use landfall::sink::Claim;
use landfall_schemas::store::{Refusal, clickhouse, duckdb, postgres};
use landfall_schemas::types::ElementType;
use landfall_schemas::value::{Array, Interval, NotFinite};
use landfall_schemas::wire::Reader;
use landfall_schemas::{Decimal, LogicalType, TableSchema, Value, decimal, row};

use super::Store;
use super::world::{Random, World, encode, encode_key, schema};
use crate::fuzz::records;

/// Every type that a column can have, with sizes that stores treat differently.
pub(crate) const TYPES: &[&str] = &[
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "decimal(1,0)",
    "decimal(9,2)",
    "decimal(18,18)",
    "decimal(38,10)",
    "decimal(76,38)",
    "decimal(200,7)",
    "numeric",
    "text",
    "bytes",
    "uuid",
    "date",
    "time(0)",
    "time(3)",
    "time(6)",
    "time(9)",
    "timestamp(0)",
    "timestamp(3)",
    "timestamp(6)",
    "timestamp(9)",
    "timestamptz(0)",
    "timestamptz(6)",
    "timestamptz(9)",
    "duration(0)",
    "duration(6)",
    "duration(9)",
    "interval",
    "bits(1)",
    "bits(12)",
    "bits(70)",
    "json",
    "array(bool)",
    "array(int8)",
    "array(int64)",
    "array(uint32)",
    "array(uint64)",
    "array(float32)",
    "array(float64)",
    "array(decimal(10,2))",
    "array(decimal(50,3))",
    "array(numeric)",
    "array(text)",
    "array(bytes)",
    "array(uuid)",
    "array(date)",
    "array(time(6))",
    "array(time(9))",
    "array(timestamp(6))",
    "array(timestamp(9))",
    "array(timestamptz(6))",
    "array(duration(6))",
    "array(interval)",
    "array(bits(12))",
    "array(json)",
];

/// Whether values of a type can be keys.
pub(crate) const fn can_be_key(ty: LogicalType) -> bool {
    !ty.is_float() && !matches!(ty, LogicalType::Json | LogicalType::Interval | LogicalType::Array(_))
}

/// Encoded values (union index included) of a type: its ends, the odd ones, and `count` random ones; what the store refuses is left out.
pub(crate) fn samples(refuse: fn(LogicalType, &Value<'_>) -> Option<Refusal>, ty: LogicalType, random: &mut Random, count: usize) -> Vec<Vec<u8>> {
    if let LogicalType::Array(element) = ty {
        return arrays(refuse, element, random, count);
    }
    let mut found = Vec::new();
    let mut add = |value: Value<'_>| {
        let mut bytes = Vec::new();
        if refuse(ty, &value).is_none() && row::put(ty, value, &mut bytes).is_ok() {
            found.push(bytes);
        }
    };
    let ints = [0, 1, -1, i64::from(i8::MIN), 127, 128, 255, i64::from(i16::MIN), 32_767, 65_535, i64::from(i32::MIN), 2_147_483_647, 4_294_967_295];
    let wide = [i64::MIN, i64::MAX, 9_007_199_254_740_993, 946_684_800_000_000, -1_000_000, 253_402_300_799_999_999, 86_399_999_999, 86_400_000_000];
    for v in ints.into_iter().chain(wide) {
        add(Value::Int(v));
        add(Value::Time(v));
        add(Value::Timestamp(v));
        add(Value::Duration(v));
        for nanos in [1, 1_000] {
            add(Value::Time(v.saturating_mul(nanos)));
            add(Value::Timestamp(v.saturating_mul(nanos)));
            add(Value::Duration(v.saturating_mul(nanos)));
        }
        add(Value::Date(v.clamp(i32::MIN.into(), i32::MAX.into()) as i32));
    }
    // 0001-01-01, 1582-10-15, 1900-01-01, 2299-12-31, 9999-12-31, and the year 0.
    for days in [-719_162, -141_427, -25_567, 120_529, 2_932_896, -719_528] {
        add(Value::Date(days));
        add(Value::Timestamp(i64::from(days) * 86_400_000_000));
    }
    for (months, days, micros) in [(0, 0, 0), (29, 7, 22_089_250_000), (-1, 3, -500_000), (2_136_000_000, 0, 0), (-14, -3, 1), (1, 0, 0), (0, 30, 0)]
    {
        add(Value::Interval(Interval { months, days, micros }));
    }
    for v in [NotFinite::Nan, NotFinite::Infinity, NotFinite::NegativeInfinity] {
        add(Value::NotFinite(v));
    }
    if let LogicalType::Bits { length } = ty {
        for text in ["0", "1", "10", "01"] {
            add(Value::Bits(&text.repeat(length as usize)[..length as usize]));
        }
    }
    for v in [0, 1, u64::MAX, i64::MAX as u64 + 1] {
        add(Value::UInt(v));
    }
    for v in [0.0, -0.0, 0.1, -1.5, f32::MIN, f32::MAX, f32::MIN_POSITIVE, 1.0e-45, f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        add(Value::Float32(v));
    }
    for v in [0.0, -0.0, 0.1, 3.3, 1e-300, f64::MIN, f64::MAX, f64::MIN_POSITIVE, 5e-324, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        add(Value::Float64(v));
    }
    for text in ["0", "0.00", "1", "-1.28", "1.10", "99999999.99", "-0.000000000000000001", "12345678901234567890.1234567890", "-0.0001", "1E+40"] {
        add_decimal(text, &mut add);
    }
    if let LogicalType::Decimal { precision, scale } = ty {
        let nines = "9".repeat(precision as usize);
        let (whole, fraction) = nines.split_at((precision - scale) as usize);
        for sign in ["", "-"] {
            add_decimal(&format!("{sign}{whole}.{fraction}"), &mut add);
        }
    }
    add_decimal(&format!("-{}.{}", "9".repeat(70), "8".repeat(30)), &mut add);
    let long = "long ".repeat(2000);
    for text in ["", " ", "a", "NULL", "\\N", "tab\tline\nreturn\r", "quote ' \" \\ `", "ÄŐ日本\u{1F600}", "\u{1}\u{7f}\u{feff}", "a\0b", &long] {
        add(Value::Text(text));
        add(Value::Bytes(text.as_bytes()));
    }
    add(Value::Bytes(&[0, 1, 0xFE, 0xFF]));
    for id in [[0; 16], [0xFF; 16], *b"0123456789abcdef"] {
        add(Value::Uuid(id));
    }
    for text in
        ["{}", "[]", "null", "true", "\"text\"", "{\"a\": 1.10, \"b\": [null, true]}", "{\"ab\": -12.5, \"é\": \"ü\\n\"}", "12345678901234567890.5"]
    {
        add(Value::Json(text));
    }
    add(Value::Bool(true));
    add(Value::Bool(false));
    for _ in 0..count {
        add_random(ty, random, &mut add);
    }
    found
}

/// Encoded arrays: none of any length below eight is left out, nor any sample of an element, nor NULL among them.
fn arrays(refuse: fn(LogicalType, &Value<'_>) -> Option<Refusal>, element: ElementType, random: &mut Random, count: usize) -> Vec<Vec<u8>> {
    let mut elements = samples(refuse, element.widen(), random, count);
    elements.retain(|e| e.len() < 1000);
    elements.extend([vec![0], vec![0]]);
    (0..elements.len().max(count))
        .map(|at| {
            let len = at % 8;
            let items: Vec<u8> = (0..len).flat_map(|n| elements[(at + n * 7) % elements.len()].clone()).collect();
            let mut bytes = Vec::new();
            row::put(LogicalType::Array(element), Value::Array(Array { element, len, items: &items }), &mut bytes).expect("elements of their type");
            bytes
        })
        .collect()
}

/// As many values of a type as are asked for, or as a few rounds give of a small one.
pub(crate) fn drawn(ty: LogicalType, random: &mut Random, count: usize) -> Vec<Vec<u8>> {
    let mut all = samples(|_, _| None, ty, random, count);
    for _ in 0..10 {
        if all.len() >= count {
            break;
        }
        let mut add = |value: Value<'_>| {
            let mut bytes = Vec::new();
            if row::put(ty, value, &mut bytes).is_ok() {
                all.push(bytes);
            }
        };
        (0..count).for_each(|_| add_random(ty, random, &mut add));
    }
    all
}

fn add_decimal(text: &str, add: &mut impl FnMut(Value<'_>)) {
    let mut unscaled = Vec::new();
    let scale = decimal::parse_into(text, &mut unscaled).expect(text);
    add(Value::Decimal(Decimal { unscaled: &unscaled, scale }));
}

fn add_random(ty: LogicalType, random: &mut Random, add: &mut impl FnMut(Value<'_>)) {
    let bits = random.next();
    // All sizes are as likely, or every number would be a huge one.
    let int = (bits as i64) >> random.below(64);
    match ty {
        LogicalType::Float32 => add(Value::Float32(f32::from_bits(bits as u32))),
        LogicalType::Float64 => add(Value::Float64(f64::from_bits(bits))),
        LogicalType::UInt64 => add(Value::UInt(bits >> random.below(64))),
        LogicalType::Decimal { .. } | LogicalType::Numeric => {
            let digits: String = (0..=random.below(40)).map(|_| char::from(b'0' + random.below(10) as u8)).collect();
            let point = random.below(digits.len() as u64 + 1) as usize;
            let sign = if bits & 1 == 0 { "-" } else { "" };
            add_decimal(&format!("{sign}{}.{}", &digits[..point], &digits[point..]), add);
        }
        LogicalType::Text => {
            let text: String =
                (0..random.below(20)).filter_map(|_| char::from_u32(1 + (random.next() as u32 >> random.below(31)) % 0x11_0000)).collect();
            add(Value::Text(&text));
        }
        LogicalType::Bytes => {
            let bytes: Vec<u8> = (0..random.below(20)).map(|_| random.next() as u8).collect();
            add(Value::Bytes(&bytes));
        }
        LogicalType::Uuid => add(Value::Uuid((u128::from(bits) << 64 | u128::from(random.next())).to_be_bytes())),
        LogicalType::Json => add(Value::Json(&format!("{{\"n\": {int}, \"s\": [\"x\", {}]}}", bits.is_multiple_of(2)))),
        LogicalType::Bool => add(Value::Bool(bits & 1 == 0)),
        LogicalType::Date => add(Value::Date(random.below(100_000) as i32 - 20_000)),
        LogicalType::Time { .. } => add(Value::Time(random.below(86_400_000_000) as i64)),
        LogicalType::Timestamp { .. } | LogicalType::TimestampTz { .. } if ty.counts_nanos() => {
            add(Value::Timestamp((int >> 12) * 1_000));
            add(Value::Timestamp(int));
        }
        LogicalType::Timestamp { .. } | LogicalType::TimestampTz { .. } => add(Value::Timestamp(int >> 8)),
        LogicalType::Duration { .. } if ty.counts_nanos() => add(Value::Duration((int >> 12) * 1_000)),
        LogicalType::Duration { .. } => add(Value::Duration(int)),
        LogicalType::Interval => {
            let part = random.next() as i32 >> random.below(32);
            add(Value::Interval(Interval { months: part, days: (bits >> 32) as i32 >> random.below(32), micros: int }));
        }
        LogicalType::Bits { length } => {
            let digits: String = (0..length).map(|_| if random.below(2) == 0 { '0' } else { '1' }).collect();
            add(Value::Bits(&digits));
        }
        _ => add(Value::Int(int)),
    }
}

pub(super) fn every_type_arrives_exactly(store: &mut Store<'_>, name: &str) {
    let names: Vec<String> = TYPES.iter().map(|t| format!("c {t}")).collect();
    let columns: Vec<(&str, &str)> = std::iter::once(("id", "int64")).chain(names.iter().map(String::as_str).zip(TYPES.iter().copied())).collect();
    let schema = schema(&columns, &["id"]);
    let mut random = Random(7);
    let samples: Vec<Vec<Vec<u8>>> = schema.columns()[1..].iter().map(|c| samples(store.refuse, c.ty, &mut random, 300)).collect();
    for (column, samples) in schema.columns()[1..].iter().zip(&samples) {
        assert!(samples.len() > 1, "the store holds nothing of {}", column.ty);
    }
    let rows = samples.iter().map(Vec::len).max().unwrap_or(0);
    let mut world = World::new(store, name, schema.clone());
    let claim = world.claim(0);
    // First every value in its turn, then each value where another was, then NULL everywhere.
    let mut next = claim.next;
    for (turn, shift) in [0, 1, usize::MAX].into_iter().enumerate() {
        let changes: Vec<_> = (0..rows as i64)
            .map(|id| {
                let mut key = Vec::new();
                row::put_plain(LogicalType::Int64, Value::Int(id), &mut key).expect("fits");
                let mut row = vec![2];
                row.extend(&key);
                for samples in &samples {
                    match shift {
                        usize::MAX => row.push(0),
                        _ => row.extend(&samples[(id as usize + shift) % samples.len()]),
                    }
                }
                (key, Some(row))
            })
            .collect();
        let to = (turn as i64 + 1) * rows as i64;
        world.try_land(0, Claim { next, ..claim }, to, &changes).expect("lands");
        next = Some(to);
        world.check(store);
    }
    // Another process finds the columns as they are, by what the store calls their types, and lands into them.
    let mut other = world.elsewhere(store);
    other.sink.prepare(&other.target).expect("finds its own columns");
    let claim = other.claim(0);
    let mut key = Vec::new();
    row::put_plain(LogicalType::Int64, Value::Int(0), &mut key).expect("fits");
    let mut row = vec![2];
    row.extend(&key);
    samples.iter().for_each(|samples| row.extend(&samples[0]));
    let to = claim.next.unwrap_or(0) + 1;
    other.try_land(0, claim, to, &[(key, Some(row))]).expect("lands");
    other.check(store);
}

/// Rows of a table in which values are looked for: more would only take memory.
const ROWS_MAX: usize = 10_000;

/// Any value of any type is kept to the last digit or refused by name. Prints a line a type: `property`, the type, the store, how many values,
/// how many of them were refused and how many came back equal.
pub(super) fn any_value_is_kept_or_refused(store: &mut Store<'_>, called: &str, seed: u64, count: usize) {
    let names: Vec<String> = TYPES.iter().map(|t| format!("c {t}")).collect();
    let columns: Vec<(&str, &str)> = std::iter::once(("id", "int64")).chain(names.iter().map(String::as_str).zip(TYPES.iter().copied())).collect();
    let schema = schema(&columns, &["id"]);
    let mut sums = vec![[0; 3]; TYPES.len()];
    for round in 0..count.div_ceil(ROWS_MAX) {
        let mut random = Random(seed.wrapping_add(round as u64));
        let count = ROWS_MAX.min(count - round * ROWS_MAX);
        let mut kept = Vec::new();
        for (column, sums) in schema.columns()[1..].iter().zip(&mut sums) {
            let all = drawn(column.ty, &mut random, count);
            let is_held = |bytes: &&Vec<u8>| {
                let value = row::read(column.ty, &mut Reader::new(bytes)).expect("our own value");
                (store.refuse)(column.ty, &value).is_none()
            };
            let held: Vec<Vec<u8>> = all.iter().filter(is_held).cloned().collect();
            assert!(!held.is_empty(), "the store holds nothing of {}", column.ty);
            sums[0] += all.len();
            sums[1] += all.len() - held.len();
            sums[2] += held.len();
            kept.push(held);
        }
        lands(store, &format!("any_value_{round}"), schema.clone(), &kept);
    }
    for (ty, [values, refused, ok]) in TYPES.iter().zip(sums) {
        println!("property {ty} {called} {values} {refused} {ok}");
    }
}

/// The values of every capture, whatever wrote them and in whatever handling mode, are kept to the last digit or refused by name. That they are what
/// their source's own text says is held where they are decoded (`schemas/src/dialect/tests/golden.rs`), column by column. Prints a line a capture:
/// `fixtures`, the capture, the store, how many values of how many types, and how many were refused, by code.
pub(super) fn captured_values_are_kept_or_refused(store: &mut Store<'_>, called: &str, document: Option<fn(&str) -> String>) {
    for (at, (capture, types)) in records::captured().into_iter().enumerate() {
        let names: Vec<String> = types.keys().map(|ty| format!("c {ty}")).collect();
        let columns: Vec<(&str, &str)> =
            std::iter::once(("id", "int64")).chain(names.iter().map(String::as_str).zip(types.keys().map(String::as_str))).collect();
        let schema = schema(&columns, &["id"]);
        let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
        let mut kept = Vec::new();
        for (column, values) in schema.columns()[1..].iter().zip(types.values()) {
            let mut is_held = |bytes: &&Vec<u8>| {
                let value = row::read(column.ty, &mut Reader::new(bytes)).expect("a value that was decoded");
                let code = (store.refuse)(column.ty, &value).map(Refusal::code);
                code.into_iter().for_each(|code| *refused.entry(code).or_default() += 1);
                code.is_none()
            };
            // NULL is a value of every column.
            let mut held: Vec<Vec<u8>> = values.iter().filter(&mut is_held).cloned().collect();
            if let Some(document) = document.filter(|_| column.ty == LogicalType::Json) {
                for bytes in &mut held {
                    let Ok(Value::Json(text)) = row::read(column.ty, &mut Reader::new(bytes)) else { continue };
                    let text = document(text);
                    bytes.clear();
                    row::put(column.ty, Value::Json(&text), bytes).expect("a document");
                }
            }
            held.push(vec![0]);
            kept.push(held);
        }
        lands(store, &format!("captured_{at}"), schema, &kept);
        let count: usize = types.values().map(BTreeSet::len).sum();
        assert!(count > refused.values().sum(), "the store holds nothing of {capture}");
        println!("fixtures {capture} {called} {count} values of {} types, refused {refused:?}", types.len());
    }
}

/// Lands rows of values, all of which the store holds, and reads them back: as many rows as the column with the most values has, the others begin anew.
fn lands(store: &mut Store<'_>, name: &str, schema: Arc<TableSchema>, columns: &[Vec<Vec<u8>>]) {
    let rows = columns.iter().map(Vec::len).max().unwrap_or(0);
    let mut world = World::new(store, name, schema);
    let mut claim = world.claim(0);
    for ids in (0..rows).collect::<Vec<_>>().chunks(2_000) {
        let change = |id: &usize| {
            let mut key = Vec::new();
            row::put_plain(LogicalType::Int64, Value::Int(*id as i64), &mut key).expect("fits");
            let mut row = [&[2], key.as_slice()].concat();
            columns.iter().for_each(|held| row.extend(&held[id % held.len()]));
            (key, Some(row))
        };
        let changes: Vec<_> = ids.iter().map(change).collect();
        let next = claim.next.unwrap_or(0) + ids.len() as i64;
        world.try_land(0, claim, next, &changes).expect("lands");
        claim.next = Some(next);
    }
    world.check(store);
}

pub(super) fn every_type_that_can_be_a_key_is_one(store: &mut Store<'_>, name: &str) {
    let mut random = Random(11);
    for (at, text) in TYPES.iter().enumerate() {
        let ty: LogicalType = text.parse().expect(text);
        if !can_be_key(ty) {
            continue;
        }
        let schema = schema(&[("v", "text"), ("k", text)], &["k"]);
        let mut world = World::new(store, &format!("{name}_{at}"), schema);
        let claim = world.claim(0);
        let mut keys: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for sample in samples(store.refuse, ty, &mut random, 20) {
            // One sample a canonical value: 1.0 and 1.00 are one key. Long keys are another rule.
            let mut canonical = Vec::new();
            let value = row::read(ty, &mut Reader::new(&sample)).expect("our own value");
            // What is no number is no key.
            if matches!(value, Value::NotFinite(_)) {
                continue;
            }
            landfall_schemas::key::encode(ty, value, &mut canonical).expect("a key");
            if sample.len() < 1000 {
                let _ = keys.entry(canonical).or_insert(sample);
            }
        }
        let change = |sample: &Vec<u8>, text: Option<&str>| {
            let mut row = Vec::new();
            row::put(LogicalType::Text, text.map_or(Value::Null, Value::Text), &mut row).expect("fits");
            row.extend(sample);
            (sample[1..].to_vec(), text.map(|_| row))
        };
        let all: Vec<_> = keys.values().map(|s| change(s, Some("one"))).collect();
        world.try_land(0, claim, 100, &all).unwrap_or_else(|e| panic!("{text}: {e}"));
        world.check(store);
        let some: Vec<_> = keys.values().enumerate().map(|(i, s)| change(s, [None, Some("two"), Some("three")][i % 3])).collect();
        world.try_land(0, Claim { next: Some(100), ..claim }, 200, &some).unwrap_or_else(|e| panic!("{text}: {e}"));
        world.check(store);
    }
}

pub(super) fn a_key_of_several_columns_in_another_order(store: &mut Store<'_>, name: &str) {
    let schema = schema(&[("v", "text"), ("a", "int32"), ("b", "text"), ("c", "date")], &["c", "a", "b"]);
    let mut world = World::new(store, name, schema.clone());
    let claim = world.claim(0);
    let change = |a: i64, b: &str, c: i32, v: Option<&str>| {
        let values = [v.map_or(Value::Null, Value::Text), Value::Int(a), Value::Text(b), Value::Date(c)];
        (encode_key(&schema, &values), v.map(|_| encode(&schema, &values)))
    };
    let first = [change(1, "x", 1, Some("1")), change(1, "x", 2, Some("2")), change(2, "x", 1, Some("3")), change(1, "y", 1, Some("4"))];
    world.try_land(0, claim, 4, &first).expect("lands");
    world.check(store);
    let second = [change(1, "x", 1, None), change(2, "x", 1, Some("3b")), change(1, "y", 2, None)];
    world.try_land(0, Claim { next: Some(4), ..claim }, 8, &second).expect("lands");
    world.check(store);
}

pub(super) fn a_table_that_is_all_key(store: &mut Store<'_>, name: &str) {
    let schema = schema(&[("a", "int32"), ("b", "text")], &["a", "b"]);
    let mut world = World::new(store, name, schema.clone());
    let claim = world.claim(0);
    let change = |a: i64, b: &str, live: bool| {
        let values = [Value::Int(a), Value::Text(b)];
        (encode_key(&schema, &values), live.then(|| encode(&schema, &values)))
    };
    world.try_land(0, claim, 3, &[change(1, "x", true), change(1, "y", true)]).expect("lands");
    world.try_land(0, Claim { next: Some(3), ..claim }, 6, &[change(1, "x", true), change(1, "y", false), change(2, "z", true)]).expect("lands");
    world.check(store);
}

pub(super) fn changes_that_an_equals_sign_does_not_see(store: &mut Store<'_>, name: &str) {
    let schema = schema(&[("id", "int32"), ("f", "float64"), ("g", "float32"), ("n", "numeric"), ("j", "json"), ("t", "text")], &["id"]);
    let mut world = World::new(store, name, schema.clone());
    let claim = world.claim(0);
    let row = |f: f64, g: f32, unscaled: &[u8], scale: i32, j: &str, t: &str| {
        let number = Value::Decimal(Decimal { unscaled, scale });
        let values = [Value::Int(1), Value::Float64(f), Value::Float32(g), number, Value::Json(j), Value::Text(t)];
        (encode_key(&schema, &values), Some(encode(&schema, &values)))
    };
    let steps = [
        row(0.0, 0.0, &[10], 1, "{\"a\": 1.0}", "x"),
        row(-0.0, 0.0, &[10], 1, "{\"a\": 1.0}", "x"),
        row(-0.0, -0.0, &[10], 1, "{\"a\": 1.0}", "x"),
        row(-0.0, -0.0, &[100], 2, "{\"a\": 1.0}", "x"),
        row(-0.0, -0.0, &[100], 2, "{\"a\": 1.00}", "x"),
        row(-0.0, -0.0, &[100], 2, "{\"a\": 1.00}", "x "),
        row(f64::NAN, -0.0, &[1], 0, "null", "X"),
    ];
    let mut next = claim.next;
    for (at, step) in steps.into_iter().enumerate() {
        let to = at as i64 + 1;
        world.try_land(0, Claim { next, ..claim }, to, &[step]).expect("lands");
        next = Some(to);
        world.check(store);
    }
}

/// The lander looks at no value of the other types.
#[test]
fn only_values_of_types_that_may_be_refused_are() {
    type Says = (fn(LogicalType, &Value<'_>) -> Option<Refusal>, fn(LogicalType) -> bool);
    let stores: [Says; 3] =
        [(postgres::refuse, postgres::may_refuse), (clickhouse::refuse, clickhouse::may_refuse), (duckdb::refuse, duckdb::may_refuse)];
    let mut random = Random(81);
    let mut refused = [0; 3];
    for name in TYPES {
        let ty: LogicalType = name.parse().expect(name);
        for bytes in samples(|_, _| None, ty, &mut random, 200) {
            let value = row::read(ty, &mut Reader::new(&bytes)).expect("as it was put");
            for ((refuse, may), refused) in stores.iter().zip(&mut refused) {
                if let Some(refusal) = refuse(ty, &value) {
                    assert!(may(ty), "{name}: {value:?} is refused: {refusal:?}");
                    *refused += 1;
                }
            }
        }
    }
    assert!(refused.iter().all(|n| *n > 0), "{refused:?}");
}
