//! The rules of every sink, over ClickHouse, and how a table is read back.
//!
//! Floats are asked for as bits and texts as bytes, so that a value comes back as it was written.

use landfall::sink::{Sink, Target};
use landfall_schemas::store::{Refusal, clickhouse};
use landfall_schemas::{LogicalType, Value};

use super::Store;
use crate::conformance::{any_value, captured, list, run};

#[test]
fn conformance() {
    let store = Store::new("conformance");
    let mut make = || Box::new(store.sink()) as Box<dyn Sink>;
    let mut read = |target: &Target| live_texts(&store, target);
    run(&mut make, &mut read, |ty, value| {
        let mut text = String::new();
        value.write_text(ty, &mut text);
        // The suite expects a numeric key with its trailing zeros, and ClickHouse keeps it without: the tests here look at those.
        let zeros = ty == LogicalType::Numeric && text.contains('.') && text.ends_with('0');
        // An array that is NULL comes back as an empty one.
        clickhouse::refuse(ty, value).or((zeros || clickhouse::cuts(ty, value)).then_some(Refusal::Precision))
    });
}

#[test]
fn any_value_is_kept_or_refused() {
    let store = Store::new("any_value");
    let mut make = || Box::new(store.sink()) as Box<dyn Sink>;
    any_value("clickhouse", &mut make, &mut |target| live_texts(&store, target), |ty, value| {
        clickhouse::refuse(ty, value).or(clickhouse::cuts(ty, value).then_some(Refusal::Precision))
    });
}

#[test]
fn captured_values_are_kept_or_refused() {
    let store = Store::new("captured");
    let mut make = || Box::new(store.sink()) as Box<dyn Sink>;
    captured("clickhouse", None, &mut make, &mut |target| live_texts(&store, target), |ty, value| {
        clickhouse::refuse(ty, value).or(clickhouse::cuts(ty, value).then_some(Refusal::Precision))
    });
}

/// What the server is asked for so that a value comes back to the last bit.
fn question(column: &str, ty: LogicalType) -> String {
    match ty {
        LogicalType::Float32 => format!("toString(reinterpretAsUInt32({column}))"),
        LogicalType::Float64 => format!("toString(reinterpretAsUInt64({column}))"),
        LogicalType::Text | LogicalType::Bytes | LogicalType::Json => format!("lower(hex({column}))"),
        LogicalType::Decimal { precision: ..=76, scale } => format!("toDecimalString({column}, {scale})"),
        LogicalType::Array(element) => format!("lower(hex(toJSONString(arrayMap(e -> {}, {column}))))", question("e", element.widen())),
        _ => format!("toString({column})"),
    }
}

/// The live rows of a replica, each value as `Value::write_text` writes it: read as bytes and numbers, with nothing of the sink.
fn live_texts(store: &Store, target: &Target) -> Vec<Vec<Option<String>>> {
    let quoted = |name: &str| format!("`{}`", name.replace('\\', "\\\\").replace('`', "\\`"));
    let columns = target.schema.columns();
    let asked: Vec<String> = columns.iter().map(|c| question(&quoted(&c.name), c.ty)).collect();
    let answer = store.ask(&format!("SELECT {} FROM {{db}}.{} FORMAT TSV", asked.join(", "), quoted(&format!("{}_live", target.table))));
    let text = |ty: LogicalType, found: &str| (found != "\\N").then(|| text(ty, found));
    answer.lines().map(|line| columns.iter().zip(line.split('\t')).map(|(c, found)| text(c.ty, found)).collect()).collect()
}

/// The answer to that as `Value::write_text` writes the value.
fn text(ty: LogicalType, found: &str) -> String {
    let bytes = || (0..found.len()).step_by(2).map(|i| u8::from_str_radix(&found[i..i + 2], 16).expect("hex")).collect::<Vec<u8>>();
    let mut out = String::new();
    match ty {
        LogicalType::Text | LogicalType::Json => out = String::from_utf8(bytes()).expect("text"),
        LogicalType::Array(element) => out = list(element.widen(), std::str::from_utf8(&bytes()).expect("text"), text),
        LogicalType::Float32 => Value::Float32(f32::from_bits(found.parse().expect("bits"))).write_text(ty, &mut out),
        LogicalType::Float64 => Value::Float64(f64::from_bits(found.parse().expect("bits"))).write_text(ty, &mut out),
        LogicalType::Time { .. } => Value::Time(found.parse().expect("units")).write_text(ty, &mut out),
        LogicalType::Duration { .. } => Value::Duration(found.parse().expect("units")).write_text(ty, &mut out),
        LogicalType::Timestamp { digits } | LogicalType::TimestampTz { digits } => {
            let (seconds, fraction) = found.split_once('.').expect("a fraction");
            // More digits than the type has would be a value of another precision.
            let (kept, rest) = fraction.split_at(digits.into());
            assert!(digits < 6 || rest.is_empty() || rest.bytes().all(|b| b == b'0'), "{found} for {ty}");
            out = seconds.replace(' ', "T");
            if digits > 0 {
                out += &format!(".{kept}");
            }
            if matches!(ty, LogicalType::TimestampTz { .. }) {
                out.push('Z');
            }
        }
        _ => out.push_str(found),
    }
    out
}
