//! DuckDB: column types, and the values and names that they cannot hold.
//!
//! | logical | column | kept how |
//! |---|---|---|
//! | `bool`, integers, floats, `uuid`, `bytes` | `BOOLEAN`, `TINYINT`…`UBIGINT`, `FLOAT`, `DOUBLE`, `UUID`, `BLOB` | as they are, NaN and -0 too |
//! | `decimal(p,s)`, p ≤ 38 | `DECIMAL(p,s)` | exactly |
//! | `decimal(p,s)`, p > 38; `numeric` | `VARCHAR` | plain digits at the value's own scale (`1.10` stays `1.10`); a `numeric` in a key without trailing zeros, since equal keys are one row |
//! | `text` | `VARCHAR` | byte for byte, NUL too |
//! | `json` | `JSON` | its text, byte for byte; refused where DuckDB's own cast to JSON would refuse it, since one such document breaks every query over the column |
//! | `date` | `DATE` | the two days that mean ±infinity are refused |
//! | `time(0..6)`, beyond | `TIME`, `TIME_NS` | 24:00:00 too |
//! | `timestamp(0..6)`, beyond | `TIMESTAMP`, `TIMESTAMP_NS` | infinity too; those before the first day that DuckDB converts are refused |
//! | `timestamptz` | `TIMESTAMP WITH TIME ZONE` | infinity too; micros: nanos are cut |
//! | `duration` | `INTERVAL` | micros alone; nanos are cut |
//! | `interval` | `INTERVAL` | its three parts |
//! | `bits(n)` | `BIT` | its digits |
//! | `array(t)` | `T[]` | as its elements are |
//!
//! NaN and infinity of decimals are refused: no column type has them.
//!
//! Checked against DuckDB 1.5.6. Its infinities are ordinary numbers at the end of the range, so an unchecked finite value becomes one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::de::IgnoredAny;

use super::{NameError, Refusal, micros, within};
use crate::table::TableSchema;
use crate::types::{ElementType, LogicalType};
use crate::value::{INFINITY, NEGATIVE_INFINITY, Value};

/// The most digits of a `DECIMAL`: what 128 bits hold.
pub const DECIMAL_PRECISION_MAX: u32 = 38;

/// Days of a `DATE` since 1970-01-01: 5877642-06-25 BC to 5881580-07-10. One day further on either side means infinity.
const DAYS: std::ops::RangeInclusive<i32> = -2_147_483_646..=2_147_483_646;
/// Micros of a `TIMESTAMP` since 1970-01-01: 290309-12-22 BC, the first day that converts, to the micro before `infinity`.
const MICROS: std::ops::RangeInclusive<i64> = -9_223_372_022_400_000_000..=i64::MAX - 1;
/// Nanos of a `TIMESTAMP_NS` since 1970-01-01: 1677-09-22, the first day that converts, to the nano before `infinity`.
const NANOS: std::ops::RangeInclusive<i64> = -9_223_286_400_000_000_000..=i64::MAX - 1;

/// The column type of a logical type, as `duckdb_columns()` prints it.
pub fn column_type(ty: LogicalType) -> Cow<'static, str> {
    Cow::Borrowed(match ty {
        LogicalType::Bool => "BOOLEAN",
        LogicalType::Int8 => "TINYINT",
        LogicalType::Int16 => "SMALLINT",
        LogicalType::Int32 => "INTEGER",
        LogicalType::Int64 => "BIGINT",
        LogicalType::UInt8 => "UTINYINT",
        LogicalType::UInt16 => "USMALLINT",
        LogicalType::UInt32 => "UINTEGER",
        LogicalType::UInt64 => "UBIGINT",
        LogicalType::Float32 => "FLOAT",
        LogicalType::Float64 => "DOUBLE",
        LogicalType::Decimal { precision, scale } if precision <= DECIMAL_PRECISION_MAX => {
            return Cow::Owned(format!("DECIMAL({precision},{scale})"));
        }
        LogicalType::Decimal { .. } | LogicalType::Numeric | LogicalType::Text => "VARCHAR",
        LogicalType::Bytes => "BLOB",
        LogicalType::Uuid => "UUID",
        LogicalType::Date => "DATE",
        LogicalType::Time { .. } if ty.counts_nanos() => "TIME_NS",
        LogicalType::Time { .. } => "TIME",
        LogicalType::Timestamp { .. } if ty.counts_nanos() => "TIMESTAMP_NS",
        LogicalType::Timestamp { .. } => "TIMESTAMP",
        LogicalType::TimestampTz { .. } => "TIMESTAMP WITH TIME ZONE",
        LogicalType::Duration { .. } | LogicalType::Interval => "INTERVAL",
        LogicalType::Bits { .. } => "BIT",
        LogicalType::Json => "JSON",
        LogicalType::Array(element) => return Cow::Owned(format!("{}[]", column_type(element.widen()))),
    })
}

/// The logical type whose values a column type holds: the way back, for a column that exists already. A `VARCHAR` is text, whatever it was
/// made of. `None` for types that have no logical type yet.
pub fn logical_type(column_type: &str) -> Option<LogicalType> {
    if let Some(element) = column_type.strip_suffix("[]") {
        return logical_type(element)?.element().map(LogicalType::Array);
    }
    Some(match column_type {
        "BOOLEAN" => LogicalType::Bool,
        "TINYINT" => LogicalType::Int8,
        "SMALLINT" => LogicalType::Int16,
        "INTEGER" => LogicalType::Int32,
        "BIGINT" => LogicalType::Int64,
        "UTINYINT" => LogicalType::UInt8,
        "USMALLINT" => LogicalType::UInt16,
        "UINTEGER" => LogicalType::UInt32,
        "UBIGINT" => LogicalType::UInt64,
        "HUGEINT" => LogicalType::Decimal { precision: 39, scale: 0 },
        "FLOAT" => LogicalType::Float32,
        "DOUBLE" => LogicalType::Float64,
        "VARCHAR" => LogicalType::Text,
        "BLOB" => LogicalType::Bytes,
        "UUID" => LogicalType::Uuid,
        "DATE" => LogicalType::Date,
        "TIME" => LogicalType::Time { digits: 6 },
        "TIME_NS" => LogicalType::Time { digits: 9 },
        "TIMESTAMP_S" => LogicalType::Timestamp { digits: 0 },
        "TIMESTAMP_MS" => LogicalType::Timestamp { digits: 3 },
        "TIMESTAMP" => LogicalType::Timestamp { digits: 6 },
        "TIMESTAMP_NS" => LogicalType::Timestamp { digits: 9 },
        "TIMESTAMP WITH TIME ZONE" => LogicalType::TimestampTz { digits: 6 },
        "INTERVAL" => LogicalType::Interval,
        "JSON" => LogicalType::Json,
        _ => {
            let (precision, scale) = column_type.strip_prefix("DECIMAL(")?.strip_suffix(')')?.split_once(',')?;
            LogicalType::Decimal { precision: precision.trim().parse().ok()?, scale: scale.trim().parse().ok()? }
        }
    })
}

/// Whether any value of a type can be refused: those of the others need not be looked at.
pub const fn may_refuse(ty: LogicalType) -> bool {
    use crate::types::Type::{Array, Date, Decimal, Duration, Interval, Json, Numeric, Timestamp, TimestampTz};
    if let Array(element) = ty {
        return may_refuse(element.widen());
    }
    matches!(ty, Date | Timestamp { .. } | TimestampTz { .. } | Duration { .. } | Interval | Json | Decimal { .. } | Numeric)
}

/// Whether a fraction of a second is finer than its column, so that it is cut.
pub fn cuts(ty: LogicalType, value: &Value<'_>) -> bool {
    match ty {
        LogicalType::Array(ElementType::TimestampTz { .. } | ElementType::Duration { .. }) => super::cuts_micros(ty, value),
        LogicalType::TimestampTz { .. } | LogicalType::Duration { .. } => super::cuts_micros(ty, value),
        _ => false,
    }
}

/// Whether a value of a column cannot be held exactly, and why. NULL is always held.
pub fn refuse(ty: LogicalType, value: &Value<'_>) -> Option<Refusal> {
    match *value {
        Value::Date(days) => date(days).err(),
        Value::Timestamp(units) => timestamp(ty, units).err(),
        Value::Json(text) => document(text).err(),
        Value::NotFinite(v) => Some(super::no_number(v)),
        Value::Array(v) => super::refuse_elements(&v, refuse),
        // Read as text, whose sign comes after its digits are a number.
        Value::Duration(units) => (duration(ty, units) == i64::MIN).then_some(Refusal::Range),
        Value::Interval(v) => (v.micros == i64::MIN || v.months == i32::MIN || v.days == i32::MIN).then_some(Refusal::Range),
        _ => None,
    }
}

/// The same of a column of a key, which is not cut either: two keys that differ in what is cut would be one row.
pub fn refuse_in_key(ty: LogicalType, value: &Value<'_>) -> Option<Refusal> {
    refuse(ty, value).or(cuts(ty, value).then_some(Refusal::Precision))
}

/// Days since 1970-01-01 as `DATE` counts them.
pub fn date(days: i32) -> Result<i32, Refusal> {
    within(days, &DAYS)
}

/// Micros of a duration in its type's unit.
pub const fn duration(ty: LogicalType, units: i64) -> i64 {
    micros(ty, units)
}

/// A timestamp in its type's unit as its column counts it: nanos for `TIMESTAMP_NS`, micros for the others; infinity is the last number of
/// either sign.
pub fn timestamp(ty: LogicalType, units: i64) -> Result<i64, Refusal> {
    match ty {
        _ if units == INFINITY => Ok(i64::MAX),
        _ if units == NEGATIVE_INFINITY => Ok(-i64::MAX),
        LogicalType::Timestamp { .. } if ty.counts_nanos() => within(units, &NANOS),
        _ => within(micros(ty, units), &MICROS),
    }
}

/// Whether a text is a document to DuckDB: JSON, with every surrogate of an escaped pair in its place. Size and depth have no limit.
fn document(text: &str) -> Result<(), Refusal> {
    let _: IgnoredAny = serde_json::from_str(text).map_err(|_| Refusal::Malformed)?;
    if surrogates_pair(text.as_bytes()) { Ok(()) } else { Err(Refusal::Malformed) }
}

/// Whether each `\uD800`…`\uDBFF` is followed by a `\uDC00`…`\uDFFF`, and none of these stands alone, in JSON whose grammar was checked.
fn surrogates_pair(mut rest: &[u8]) -> bool {
    let mut high_before = false;
    loop {
        let Some(at) = rest.iter().position(|b| *b == b'\\') else { return !high_before };
        if high_before && at > 0 {
            return false;
        }
        let escape = rest.get(at + 1..).unwrap_or_default();
        let unit = match escape.split_first() {
            Some((b'u', hex)) => hex.get(..4).and_then(|h| std::str::from_utf8(h).ok()).and_then(|h| u16::from_str_radix(h, 16).ok()),
            _ => None,
        };
        let low = matches!(unit, Some(0xDC00..=0xDFFF));
        if low != high_before {
            return false;
        }
        high_before = matches!(unit, Some(0xD800..=0xDBFF));
        rest = escape.get(if unit.is_some() { 5 } else { 1 }..).unwrap_or_default();
    }
}

/// The names of a table's columns in DuckDB, in the order of the columns: the source's own. DuckDB compares names without regard to the case
/// of ASCII letters, and only of these (`Ä` and `ä` are two names).
pub fn column_names(schema: &TableSchema) -> Result<Vec<String>, NameError> {
    let mut folded = BTreeMap::new();
    for column in schema.columns() {
        if column.name.is_empty() || column.name.contains('\0') {
            return Err(NameError::Impossible { name: column.name.clone() });
        }
        if let Some(first) = folded.insert(column.name.to_ascii_lowercase(), &column.name) {
            return Err(NameError::Collision { first: first.clone(), second: column.name.clone() });
        }
    }
    Ok(schema.columns().iter().map(|c| c.name.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::civil::days_of_date;
    use crate::table::Column;

    fn ty(text: &str) -> LogicalType {
        text.parse().expect(text)
    }

    #[test]
    fn column_types_read_back_as_a_type_of_the_same_values() {
        for (logical, column, back) in [
            ("uint64", "UBIGINT", "uint64"),
            ("decimal(38,10)", "DECIMAL(38,10)", "decimal(38,10)"),
            ("decimal(39,10)", "VARCHAR", "text"),
            ("numeric", "VARCHAR", "text"),
            ("time(0)", "TIME", "time(6)"),
            ("time(7)", "TIME_NS", "time(9)"),
            ("timestamp(6)", "TIMESTAMP", "timestamp(6)"),
            ("timestamp(7)", "TIMESTAMP_NS", "timestamp(9)"),
            ("timestamptz(9)", "TIMESTAMP WITH TIME ZONE", "timestamptz(6)"),
            ("json", "JSON", "json"),
        ] {
            assert_eq!(column_type(ty(logical)), column);
            assert_eq!(logical_type(column), Some(ty(back)), "{column}");
        }
        assert_eq!(logical_type("INTEGER[]"), Some(ty("array(int32)")));
        assert_eq!(logical_type("INTERVAL"), Some(LogicalType::Interval));
    }

    /// The first and last days are those of DuckDB's documentation: 5877642-06-25 BC to 5881580-07-10 for dates, 290309-12-22 BC to
    /// 294247-01-10 for timestamps, 1677-09-22 to 2262-04-11 for nanos.
    #[test]
    fn a_finite_value_never_becomes_infinity() {
        let day = |y, m, d| days_of_date(y, m, d).expect("a date");
        for (days, fits) in
            [(day(5_881_580, 7, 10), true), (day(5_881_580, 7, 11), false), (day(-5_877_641, 6, 25), true), (day(-5_877_641, 6, 24), false)]
        {
            assert_eq!(date(i32::try_from(days).expect("in range")).is_ok(), fits, "{days}");
        }
        assert_eq!(refuse(ty("date"), &Value::Date(i32::MIN)), Some(Refusal::Range));
        let first = day(-290_308, 12, 22) * 86_400_000_000;
        for name in ["timestamp(6)", "timestamptz(0)"] {
            assert_eq!(timestamp(ty(name), first), Ok(first));
            for never in [first - 1, -i64::MAX, i64::MIN + 2] {
                assert_eq!(timestamp(ty(name), never), Err(Refusal::Range), "{name} {never}");
            }
        }
        let first = day(1677, 9, 22) * 86_400_000_000_000;
        assert_eq!(timestamp(ty("timestamp(9)"), first), Ok(first));
        for never in [first - 1, -i64::MAX] {
            assert_eq!(timestamp(ty("timestamp(7)"), never), Err(Refusal::Range), "{never}");
        }
    }

    #[test]
    fn nanos_of_an_instant_pass_only_where_micros_hold_them() {
        assert_eq!(timestamp(ty("timestamptz(9)"), -1_000), Ok(-1));
        assert_eq!(timestamp(ty("timestamptz(9)"), 1_001), Ok(1));
        assert_eq!(refuse_in_key(ty("timestamptz(9)"), &Value::Timestamp(1_001)), Some(Refusal::Precision));
        assert_eq!([timestamp(ty("timestamp(9)"), INFINITY), timestamp(ty("timestamptz(6)"), NEGATIVE_INFINITY)], [Ok(i64::MAX), Ok(-i64::MAX)]);
        assert_eq!(timestamp(ty("timestamptz(9)"), i64::MIN / 1000 * 1000), Ok(i64::MIN / 1000));
        assert_eq!(timestamp(ty("timestamp(9)"), 1_001), Ok(1_001));
        assert_eq!(refuse(ty("time(9)"), &Value::Time(1)), None);
    }

    #[test]
    fn documents_are_json_with_whole_surrogate_pairs() {
        let deep = "[".repeat(5_000) + &"]".repeat(5_000);
        for good in ["null", " {\"a\" : 1.000} ", "1e999999", r#"{"a":1,"a":2}"#, r#""\u0000""#, r#""\ud83d\ude00\\ud800""#, &deep] {
            assert_eq!(refuse(LogicalType::Json, &Value::Json(good)), None, "{good:.40}");
        }
        for bad in ["", "x", "[1,]", "NaN", "{\"a\":1", "1 2", "\"\u{1}\"", r#""\ud83d""#, r#""\ude00""#, r#""\ud83dx\ude00""#, r#""\ud83d\n""#] {
            assert_eq!(refuse(LogicalType::Json, &Value::Json(bad)), Some(Refusal::Malformed), "{bad}");
        }
    }

    #[test]
    fn names_that_differ_in_ascii_case_collide() {
        let check = |names: &[&str]| {
            let columns = names.iter().map(|n| Column { name: (*n).to_owned(), ty: LogicalType::Text, nullable: true }).collect();
            column_names(&TableSchema::new("t", columns, &names[..1]).expect("valid")).map_err(|e| e.code())
        };
        assert_eq!(
            check(&["id", "ä", "Ä", "with \"quotes\""]),
            Ok(vec!["id".to_owned(), "ä".to_owned(), "Ä".to_owned(), "with \"quotes\"".to_owned()])
        );
        assert_eq!(check(&["id", "ID"]), Err("scd.column_collision"));
        assert_eq!(check(&["id", ""]), Err("scd.column_name"));
        assert_eq!(check(&["id", "a\0b"]), Err("scd.column_name"));
    }
}
