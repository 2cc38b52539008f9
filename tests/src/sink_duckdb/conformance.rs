//! The rules of every sink, over DuckDB. The suite reads while sinks have the file, so it reads through the process that does.

use std::path::Path;

use landfall::sink::duckdb::query::{Limits, run};
use landfall::sink::{Sink, Target};
use landfall_schemas::store::{Refusal, duckdb as types};
use landfall_schemas::value::Interval;
use landfall_schemas::{LogicalType, Value};

use super::sink;
use crate::conformance::Rows;

#[test]
fn conformance() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("replicas.duckdb");
    let mut make = || Box::new(sink(&path)) as Box<dyn Sink>;
    let mut read = |target: &Target| read(&path, target);
    crate::conformance::run(&mut make, &mut read, |ty, value| {
        let mut text = String::new();
        value.write_text(ty, &mut text);
        // The suite expects a key's digits as they came; DuckDB keeps them without zeros at the end (case DEC-17 is tested in `types`).
        let zeros = ty == LogicalType::Numeric && text.contains('.') && text.ends_with('0');
        // What is cut comes back as another value: the cases of times look at that.
        types::refuse(ty, value).or((zeros || types::cuts(ty, value)).then_some(Refusal::Precision))
    });
}

#[test]
fn any_value_is_kept_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("replicas.duckdb");
    let mut make = || Box::new(sink(&path)) as Box<dyn Sink>;
    crate::conformance::any_value("duckdb", &mut make, &mut |target| read(&path, target), |ty, value| {
        types::refuse(ty, value).or(types::cuts(ty, value).then_some(Refusal::Precision))
    });
}

#[test]
fn captured_values_are_kept_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("replicas.duckdb");
    let mut make = || Box::new(sink(&path)) as Box<dyn Sink>;
    crate::conformance::captured("duckdb", None, &mut make, &mut |target| read(&path, target), |ty, value| {
        types::refuse(ty, value).or(types::cuts(ty, value).then_some(Refusal::Precision))
    });
}

fn read(path: &Path, target: &Target) -> Rows {
    let columns: Vec<String> = target.schema.columns().iter().map(|c| expression(&format!("\"{}\"", c.name.replace('"', "\"\"")), c.ty)).collect();
    let query = format!("SELECT {} FROM main.\"{}\"", columns.join(", "), target.table.replace('"', "\"\""));
    let limits = Limits { rows: usize::MAX, bytes: usize::MAX, time: std::time::Duration::from_secs(60) };
    let rows = run(path, None, &query, &limits).expect("reads").rows;
    let texts = |row: Vec<Option<String>>| target.schema.columns().iter().zip(row).map(|(c, v)| v.map(|v| canonical(c.ty, &v))).collect();
    rows.into_iter().map(texts).collect()
}

/// A column as an expression whose text has every digit: counts instead of calendars.
fn expression(name: &str, ty: LogicalType) -> String {
    match ty {
        LogicalType::Array(element) => format!("to_json(list_transform({name}, e -> ({})::VARCHAR))::VARCHAR", expression("e", element.widen())),
        LogicalType::Date => format!("{name} - DATE '1970-01-01'"),
        LogicalType::Timestamp { .. } if ty.counts_nanos() => finite(name, "epoch_ns"),
        LogicalType::Timestamp { .. } | LogicalType::TimestampTz { .. } => finite(name, "epoch_us"),
        // Its parts: a text would bring hours and days together.
        LogicalType::Duration { .. } | LogicalType::Interval => format!(
            "(datepart('year', {name}) * 12 + datepart('month', {name}))::VARCHAR || ' ' || datepart('day', {name})::VARCHAR || ' ' || \
             (datepart('hour', {name})::HUGEINT * 3600000000 + datepart('minute', {name}) * 60000000 + datepart('microsecond', {name}))::VARCHAR"
        ),
        LogicalType::Time { .. } if !ty.counts_nanos() => format!("epoch_us({name})"),
        LogicalType::Bytes => format!("lower(hex({name}))"),
        _ => name.to_owned(),
    }
}

/// The count of a timestamp, or the word that it is.
fn finite(name: &str, count: &str) -> String {
    format!("CASE WHEN isfinite({name}) THEN {count}({name})::VARCHAR ELSE {name}::VARCHAR END")
}

/// The same as the schemas crate writes the value.
fn canonical(ty: LogicalType, text: &str) -> String {
    if let LogicalType::Array(element) = ty {
        return crate::conformance::list(element.widen(), text, canonical);
    }
    let number = || text.parse::<i64>().expect("a count");
    if text.ends_with("infinity") {
        return text.to_owned();
    }
    let value = match ty {
        // A decimal that is all fraction has no zero in front.
        LogicalType::Decimal { .. } if text.trim_start_matches('-').starts_with('.') => return text.replacen('.', "0.", 1),
        LogicalType::Float32 => Value::Float32(text.parse().expect("a float")),
        LogicalType::Float64 => Value::Float64(text.parse().expect("a float")),
        LogicalType::Date => Value::Date(number().try_into().expect("days")),
        LogicalType::TimestampTz { .. } if ty.counts_nanos() => Value::Timestamp(number() * 1_000),
        LogicalType::Timestamp { .. } | LogicalType::TimestampTz { .. } => Value::Timestamp(number()),
        LogicalType::Time { .. } if ty.counts_nanos() => {
            let (clock, fraction) = text.split_once('.').unwrap_or((text, ""));
            let seconds = clock.split(':').fold(0, |sum, part| sum * 60 + part.parse::<i64>().expect("a part of a time"));
            Value::Time(seconds * 1_000_000_000 + format!("{fraction:0<9}").parse::<i64>().expect("a fraction"))
        }
        LogicalType::Time { .. } => Value::Time(number()),
        LogicalType::Duration { .. } | LogicalType::Interval => {
            let parts: Vec<i64> = text.split(' ').map(|part| part.parse().expect("a part")).collect();
            match (ty, <[i64; 3]>::try_from(parts).expect("three parts")) {
                (LogicalType::Interval, [months, days, micros]) => {
                    Value::Interval(Interval { months: months.try_into().expect("months"), days: days.try_into().expect("days"), micros })
                }
                (_, [0, 0, micros]) => Value::Duration(if ty.counts_nanos() { micros * 1_000 } else { micros }),
                _ => return text.to_owned(),
            }
        }
        _ => return text.to_owned(),
    };
    let mut out = String::new();
    value.write_text(ty, &mut out);
    out
}
