//! The rules of every sink, over Postgres, and how a table is read back.
//!
//! Floats, dates and times are asked for as numbers and bytes, so that no text of the server's stands between.

use std::collections::BTreeMap;

use landfall::sink::{Sink, Target};
use landfall_schemas::store::{Refusal, postgres};
use landfall_schemas::value::Interval;
use landfall_schemas::{LogicalType, Value};

use super::{Admin, Home, quoted};
use crate::conformance::{Rows, any_value, captured, list, run};

#[test]
fn postgres_conforms() {
    let home = Home::new("conformance");
    let mut make = || Box::new(home.sink()) as Box<dyn Sink>;
    let mut read = |target: &Target| home.read(target);
    // What is cut comes back as another value: the cases of times look at that.
    run(&mut make, &mut read, |ty, value| postgres::refuse(ty, value).or(postgres::cuts(ty, value).then_some(Refusal::Precision)));
    home.assert_no_open_transaction();
}

#[test]
fn any_value_is_kept_or_refused() {
    let home = Home::new("any_value");
    let mut make = || Box::new(home.sink()) as Box<dyn Sink>;
    any_value("postgres", &mut make, &mut |target| home.read(target), |ty, value| {
        postgres::refuse(ty, value).or(postgres::cuts(ty, value).then_some(Refusal::Precision))
    });
}

#[test]
fn captured_values_are_kept_or_refused() {
    let home = Home::new("captured");
    let mut make = || Box::new(home.sink()) as Box<dyn Sink>;
    // `jsonb` keeps what a document says, and has a notation of its own.
    let mut read = |target: &Target| {
        let mut rows = home.read(target);
        for row in &mut rows {
            for (text, _) in row.iter_mut().zip(target.schema.columns()).filter(|(_, column)| column.ty == LogicalType::Json) {
                *text = text.as_deref().map(document);
            }
        }
        rows
    };
    captured("postgres", Some(document), &mut make, &mut read, |ty, value| {
        postgres::refuse(ty, value).or(postgres::cuts(ty, value).then_some(Refusal::Precision))
    });
}

/// A document with its members in order and no white space.
fn document(text: &str) -> String {
    fn put(value: &serde_json::Value, out: &mut String) {
        match value {
            serde_json::Value::Object(members) => {
                let members: BTreeMap<&String, &serde_json::Value> = members.iter().collect();
                for (at, (name, value)) in members.into_iter().enumerate() {
                    out.push_str(if at == 0 { "{" } else { "," });
                    out.push_str(&format!("{}:", serde_json::Value::from(name.as_str())));
                    put(value, out);
                }
                out.push_str(if value.as_object().is_some_and(serde_json::Map::is_empty) { "{}" } else { "}" });
            }
            serde_json::Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    out.push_str(if at == 0 { "[" } else { "," });
                    put(item, out);
                }
                out.push_str(if items.is_empty() { "[]" } else { "]" });
            }
            // It writes out the zeros of an exponent.
            serde_json::Value::Number(number) if number.as_i64().is_none() => out.push_str(&format!("{:?}", number.as_f64().unwrap_or_default())),
            scalar => out.push_str(&scalar.to_string()),
        }
    }
    let mut out = String::new();
    put(&serde_json::from_str(text).expect("a document"), &mut out);
    out
}

/// The live rows of a replica as `Value::write_text` writes them; floats and times are taken as numbers, so that no text of
/// the server's stands between.
pub(super) fn read(admin: &Admin, schema: &str, target: &Target) -> Rows {
    let names = postgres::column_names(&target.schema).expect("names");
    let columns: Vec<String> = names.iter().zip(target.schema.columns()).map(|(name, column)| expression(&quoted(name), column.ty)).collect();
    let sql = format!("SELECT {} FROM {}.{}", columns.join(", "), quoted(schema), quoted(&target.table));
    let mut rows = admin.rows(&sql);
    for row in &mut rows {
        for (text, column) in row.iter_mut().zip(target.schema.columns()) {
            if let Some(text) = text {
                *text = canonical(column.ty, text);
            }
        }
    }
    rows
}

/// What the server is asked for of a column or an element.
fn expression(name: &str, ty: LogicalType) -> String {
    match ty {
        LogicalType::Float32 => format!("encode(float4send({name}), 'hex')"),
        LogicalType::Float64 => format!("encode(float8send({name}), 'hex')"),
        LogicalType::Bytes => format!("encode({name}, 'hex')"),
        LogicalType::Date => format!("({name} - DATE '1970-01-01')::text"),
        LogicalType::Time { .. } => format!("(extract(epoch FROM {name}) * 1000000)::bigint::text"),
        // `extract` rounds at the far end of the calendar.
        LogicalType::Timestamp { .. } => format!("encode(timestamp_send({name}), 'hex')"),
        LogicalType::TimestampTz { .. } => format!("encode(timestamptz_send({name}), 'hex')"),
        LogicalType::Duration { .. } | LogicalType::Interval => format!("encode(interval_send({name}), 'hex')"),
        LogicalType::Array(element) => format!(
            "CASE WHEN {name} IS NOT NULL THEN coalesce((SELECT '[' || string_agg(coalesce(to_json({})::text, 'null'), ',' ORDER BY n) || ']' \
             FROM unnest({name}) WITH ORDINALITY AS u(e, n)), '[]') END",
            expression("e", element.widen())
        ),
        _ => format!("{name}::text"),
    }
}

fn canonical(ty: LogicalType, text: &str) -> String {
    if let LogicalType::Array(element) = ty {
        return list(element.widen(), text, canonical);
    }
    let mut out = String::new();
    let nanos = if ty.counts_nanos() { 1000 } else { 1 };
    let value = match ty {
        LogicalType::Float32 => Value::Float32(f32::from_bits(u32::from_str_radix(text, 16).expect("bits"))),
        LogicalType::Float64 => Value::Float64(f64::from_bits(u64::from_str_radix(text, 16).expect("bits"))),
        LogicalType::Date => Value::Date(text.parse().expect("days")),
        LogicalType::Time { .. } => Value::Time(text.parse::<i64>().expect("micros") * nanos),
        LogicalType::Timestamp { .. } | LogicalType::TimestampTz { .. } => {
            // Micros since 2000-01-01.
            match u64::from_str_radix(text, 16).expect("bits").cast_signed() {
                infinite @ (i64::MIN | i64::MAX) => Value::Timestamp(infinite),
                micros => Value::Timestamp((micros + 946_684_800_000_000) * nanos),
            }
        }
        LogicalType::Duration { .. } | LogicalType::Interval => {
            // Micros, days, months.
            let bits = u128::from_str_radix(text, 16).expect("bits");
            let (micros, days, months) = ((bits >> 64) as i64, (bits >> 32) as i32, bits as i32);
            match ty {
                LogicalType::Interval => Value::Interval(Interval { months, days, micros }),
                _ if days == 0 && months == 0 => Value::Duration(micros * nanos),
                _ => return text.to_owned(),
            }
        }
        _ => return text.to_owned(),
    };
    value.write_text(ty, &mut out);
    out
}
