//! Postgres: column types, column names, and the values that it cannot hold.
//!
//! The table below was checked against a real server (the suite lands and reads back every type). What is refused: NUL in text, documents that
//! `jsonb` does not take, days and instants outside Postgres' calendar, decimals beyond `numeric`, keys longer than an index entry. A fraction
//! of a second finer than micros is cut. The conversions are shared by [`refuse`] and the encoder, so the two cannot disagree.

pub mod json;

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{NameError, Refusal, micros, within};
use crate::avro::crc64;
use crate::decimal::Decimal;
use crate::row;
use crate::table::TableSchema;
use crate::types::{BITS_MAX, ElementType, LogicalType};
use crate::value::{INFINITY, NEGATIVE_INFINITY, Value};
use crate::wire::{Reader, WireError};

/// The longest name in bytes (`NAMEDATALEN` - 1); Postgres cuts longer ones without a word.
pub const NAME_BYTES_MAX: usize = 63;
/// Most columns of a replica: a table takes 1600 (`MaxHeapAttributeNumber`), and the stage needs one of its own.
pub const COLUMNS_MAX: usize = 1599;
/// Most columns of a key (`INDEX_MAX_KEYS`).
pub const KEY_COLUMNS_MAX: usize = 32;
/// The greatest entry of a B-tree in bytes: a third of a page (`BTMaxItemSize`).
pub const KEY_BYTES_MAX: usize = 2704;
/// The longest text or byte string: the engine's allocation limit of 1 GiB less the room for its own headers.
pub const FIELD_BYTES_MAX: usize = (1 << 30) - 1024;
/// The greatest declared precision of `numeric(p,s)`; an undeclared `numeric` holds more.
pub const DECLARED_PRECISION_MAX: u32 = 1000;
/// Digits that `numeric` holds before the point.
pub const NUMERIC_WHOLE_DIGITS_MAX: i64 = 131_072;
/// Digits that `numeric` holds behind the point.
pub const NUMERIC_SCALE_MAX: i32 = 16_383;

/// Days from Postgres' epoch, 2000-01-01, back to 1970-01-01.
const EPOCH_DAYS: i64 = 10_957;
/// Micros of the same.
const EPOCH_MICROS: i64 = EPOCH_DAYS * 86_400_000_000;
/// Days that a `date` holds, since 2000-01-01: from 4713-11-24 BC (Julian day 0) to the end of the year 5874897. `infinity` lies outside.
const DATES: std::ops::Range<i64> = -2_451_545..2_145_031_949;
/// Micros that a timestamp holds, since 2000-01-01: from the same day to the end of the year 294276. `infinity` lies outside.
const TIMESTAMPS: std::ops::Range<i64> = -211_813_488_000_000_000..9_223_371_331_200_000_000;

/// Names of the columns that every table has already.
const SYSTEM_COLUMNS: [&str; 6] = ["ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"];

/// The column type of a logical type, as `format_type` of the server writes it.
pub fn column_type(ty: LogicalType) -> Cow<'static, str> {
    Cow::Borrowed(match ty {
        LogicalType::Bool => "boolean",
        LogicalType::Int8 | LogicalType::UInt8 | LogicalType::Int16 => "smallint",
        LogicalType::UInt16 | LogicalType::Int32 => "integer",
        LogicalType::UInt32 | LogicalType::Int64 => "bigint",
        LogicalType::UInt64 => "numeric(20,0)",
        LogicalType::Float32 => "real",
        LogicalType::Float64 => "double precision",
        LogicalType::Decimal { precision, scale } if precision <= DECLARED_PRECISION_MAX => {
            return Cow::Owned(format!("numeric({precision},{scale})"));
        }
        LogicalType::Decimal { .. } | LogicalType::Numeric => "numeric",
        LogicalType::Text => "text",
        LogicalType::Bytes => "bytea",
        LogicalType::Uuid => "uuid",
        LogicalType::Date => "date",
        // Always six digits: fewer would round a value that has more than its column declared.
        LogicalType::Time { .. } => "time(6) without time zone",
        LogicalType::Timestamp { .. } => "timestamp(6) without time zone",
        LogicalType::TimestampTz { .. } => "timestamp(6) with time zone",
        LogicalType::Duration { .. } | LogicalType::Interval => "interval",
        LogicalType::Bits { length } => return Cow::Owned(format!("bit({length})")),
        LogicalType::Json => "jsonb",
        LogicalType::Array(element) => return Cow::Owned(format!("{}[]", column_type(element.widen()))),
    })
}

/// The server's number of an element's type (`pg_type.dat`), which the wire form of an array carries.
pub const fn element_oid(element: ElementType) -> u32 {
    match element {
        ElementType::Bool => 16,
        ElementType::Bytes => 17,
        ElementType::Int64 | ElementType::UInt32 => 20,
        ElementType::Int8 | ElementType::UInt8 | ElementType::Int16 => 21,
        ElementType::UInt16 | ElementType::Int32 => 23,
        ElementType::Text => 25,
        ElementType::Float32 => 700,
        ElementType::Float64 => 701,
        ElementType::Date => 1082,
        ElementType::Time { .. } => 1083,
        ElementType::Timestamp { .. } => 1114,
        ElementType::TimestampTz { .. } => 1184,
        ElementType::Duration { .. } | ElementType::Interval => 1186,
        ElementType::Bits { .. } => 1560,
        ElementType::UInt64 | ElementType::Decimal { .. } | ElementType::Numeric => 1700,
        ElementType::Uuid => 2950,
        ElementType::Json => 3802,
        ElementType::Array(never) => match never {},
    }
}

/// The logical type whose values a column type holds, from the server's `format_type`; `None` for types that have none yet.
pub fn logical_type(column_type: &str) -> Option<LogicalType> {
    if let Some(element) = column_type.strip_suffix("[]") {
        return logical_type(element)?.element().map(LogicalType::Array);
    }
    let (name, arguments) = match column_type.split_once('(') {
        Some((name, rest)) => {
            let (arguments, tail) = rest.split_once(')')?;
            (format!("{name}{tail}"), Some(arguments))
        }
        None => (column_type.to_owned(), None),
    };
    let digits = arguments.map_or(Some(6), |a| a.parse().ok());
    Some(match name.as_str() {
        "boolean" => LogicalType::Bool,
        "smallint" => LogicalType::Int16,
        "integer" => LogicalType::Int32,
        "bigint" => LogicalType::Int64,
        "real" => LogicalType::Float32,
        "double precision" => LogicalType::Float64,
        "numeric" => match arguments {
            None => LogicalType::Numeric,
            Some(arguments) => {
                let (precision, scale) = arguments.split_once(',')?;
                LogicalType::decimal(precision.parse().ok()?, scale.parse().ok()?)?
            }
        },
        "text" | "character varying" => LogicalType::Text,
        "bytea" => LogicalType::Bytes,
        "uuid" => LogicalType::Uuid,
        "date" => LogicalType::Date,
        "time without time zone" => LogicalType::Time { digits: digits? },
        "timestamp without time zone" => LogicalType::Timestamp { digits: digits? },
        "timestamp with time zone" => LogicalType::TimestampTz { digits: digits? },
        "interval" => LogicalType::Interval,
        "bit" => LogicalType::Bits { length: arguments.and_then(|a| a.parse().ok()).filter(|n| (1..=BITS_MAX).contains(n))? },
        "json" | "jsonb" => LogicalType::Json,
        _ => return None,
    })
}

/// True where Postgres' `=` tells any two values apart that are not the same: not so for floats (-0 = 0), for `numeric` without a declared
/// scale (1.0 = 1.00), for documents, whose numbers compare as such, and for intervals (a month = 30 days).
pub const fn equality_is_identity(ty: LogicalType) -> bool {
    match ty {
        LogicalType::Float32 | LogicalType::Float64 | LogicalType::Numeric | LogicalType::Json | LogicalType::Interval => false,
        LogicalType::Decimal { precision, .. } => precision <= DECLARED_PRECISION_MAX,
        LogicalType::Array(element) => equality_is_identity(element.widen()),
        _ => true,
    }
}

/// Whether any value of a type can be refused: those of the others need not be looked at.
pub const fn may_refuse(ty: LogicalType) -> bool {
    match ty {
        LogicalType::Decimal { precision, .. } => precision > DECLARED_PRECISION_MAX,
        LogicalType::Numeric
        | LogicalType::Text
        | LogicalType::Json
        | LogicalType::Bytes
        | LogicalType::Date
        | LogicalType::Time { .. }
        | LogicalType::Timestamp { .. }
        | LogicalType::TimestampTz { .. } => true,
        LogicalType::Array(element) => may_refuse(element.widen()),
        _ => false,
    }
}

/// Whether a fraction of a second is finer than micros, so that it is cut.
pub fn cuts(ty: LogicalType, value: &Value<'_>) -> bool {
    super::cuts_micros(ty, value)
}

/// Whether a value of a column cannot be held exactly, and why. NULL is always held.
pub fn refuse(ty: LogicalType, value: &Value<'_>) -> Option<Refusal> {
    match *value {
        Value::Text(v) if v.len() > FIELD_BYTES_MAX => Some(Refusal::Range),
        Value::Text(v) => v.as_bytes().contains(&0).then_some(Refusal::Nul),
        Value::Bytes(v) => (v.len() > FIELD_BYTES_MAX).then_some(Refusal::Range),
        Value::Json(v) => json::refuse(v),
        Value::Date(days) => date(days).err(),
        Value::Time(units) => time(ty, units).err(),
        Value::Timestamp(units) => timestamp(ty, units).err(),
        Value::Decimal(v) => match ty {
            LogicalType::Decimal { precision, .. } if precision <= DECLARED_PRECISION_MAX => None,
            _ => numeric(&v).err(),
        },
        Value::Array(v) => super::refuse_elements(&v, refuse),
        _ => None,
    }
}

/// The column of a key that cannot be held, by its place in the table: for its value, or as the longest of a key that is too long for an index
/// entry. There the uncompressed size decides: a store that holds a row holds every later one of its key. `key` is encoded as `Delta::key` is,
/// without unions and in key order.
pub fn refuse_key(schema: &TableSchema, key: &[u8]) -> Result<Option<(usize, Refusal)>, WireError> {
    // Below this no key can be too long: 32 columns of 24 bytes, and text, bytes and decimals at most double.
    const ALWAYS_FITS: usize = (KEY_BYTES_MAX - KEY_COLUMNS_MAX * 24) / 2;
    // Two keys that differ in what is cut would be one row.
    let exactly = |ty, value: &Value<'_>| refuse(ty, value).or(cuts(ty, value).then_some(Refusal::Precision));
    if let Some(refused) = super::refuse_key(schema, key, exactly)? {
        return Ok(Some(refused));
    }
    if key.len() <= ALWAYS_FITS {
        return Ok(None);
    }
    let mut reader = Reader::new(key);
    // The entry's own header, and the bitmap of NULLs that it never needs but may align for.
    let (mut bytes, mut longest) = (16, (0, 0));
    for at in schema.key() {
        let size = match row::read_plain(schema.columns()[*at].ty, &mut reader)? {
            // A length of four bytes, aligned to four.
            Value::Text(v) => v.len() + 7,
            Value::Bytes(v) => v.len() + 7,
            // 2.41 digits a byte, two bytes for four digits; both ends may hold a group in part.
            Value::Decimal(v) => v.unscaled.len() * 5 / 4 + 16,
            _ => 24,
        };
        bytes += size;
        longest = longest.max((size, *at));
    }
    Ok((bytes > KEY_BYTES_MAX).then_some((longest.1, Refusal::KeyLength)))
}

/// Days since 2000-01-01 of a day since 1970-01-01.
pub fn date(days: i32) -> Result<i32, Refusal> {
    let days = i64::from(days) - EPOCH_DAYS;
    within(days, &DATES).and_then(|days| i32::try_from(days).map_err(|_| Refusal::Range))
}

/// Micros since midnight of a time in its type's unit.
pub fn time(ty: LogicalType, units: i64) -> Result<i64, Refusal> {
    within(micros(ty, units), &(0..=86_400_000_000))
}

/// Micros of a duration in its type's unit.
pub const fn duration(ty: LogicalType, units: i64) -> i64 {
    micros(ty, units)
}

/// Micros since 2000-01-01 of a timestamp in its type's unit since 1970-01-01; infinity is the same number in both.
pub fn timestamp(ty: LogicalType, units: i64) -> Result<i64, Refusal> {
    if matches!(units, INFINITY | NEGATIVE_INFINITY) {
        return Ok(units);
    }
    within(micros(ty, units).checked_sub(EPOCH_MICROS).ok_or(Refusal::Range)?, &TIMESTAMPS)
}

/// Whether a decimal fits a `numeric` without declared digits.
pub fn numeric(value: &Decimal<'_>) -> Result<(), Refusal> {
    if value.scale > NUMERIC_SCALE_MAX {
        return Err(Refusal::Precision);
    }
    if value.is_zero() {
        return Ok(());
    }
    // A byte has at most 2.4083 digits; the exact count is taken only where that bound does not settle it.
    let digits_max = value.unscaled.len() as i64 * 24_083 / 10_000 + 1;
    let whole = |digits: i64| digits - i64::from(value.scale) <= NUMERIC_WHOLE_DIGITS_MAX;
    if whole(digits_max) || whole(value.digits().1.len() as i64) { Ok(()) } else { Err(Refusal::Range) }
}

/// The name of a column in Postgres. Up to 63 bytes it is the source's own; a longer one is cut at a character and ends in `_` and eight hex
/// digits of a hash of the whole, so it is the same in every process.
pub fn column_name(name: &str) -> Result<Cow<'_, str>, NameError> {
    if name.is_empty() || name.contains('\0') {
        return Err(NameError::Impossible { name: name.to_owned() });
    }
    if SYSTEM_COLUMNS.contains(&name) {
        return Err(NameError::System { name: name.to_owned() });
    }
    if name.len() <= NAME_BYTES_MAX {
        return Ok(Cow::Borrowed(name));
    }
    const SUFFIX_BYTES: usize = 9;
    let cut = name.floor_char_boundary(NAME_BYTES_MAX - SUFFIX_BYTES);
    Ok(Cow::Owned(format!("{}_{:08x}", &name[..cut], crc64(name.as_bytes()) >> 32)))
}

/// The names of a table's columns in Postgres, in the order of the columns.
pub fn column_names(schema: &TableSchema) -> Result<Vec<String>, NameError> {
    let columns = schema.columns();
    for (count, max) in [(columns.len(), COLUMNS_MAX), (schema.key().len(), KEY_COLUMNS_MAX)] {
        if count > max {
            return Err(NameError::Count { count, max });
        }
    }
    let mut names = Vec::with_capacity(columns.len());
    let mut by_name = BTreeMap::new();
    for column in columns {
        let name = column_name(&column.name)?.into_owned();
        if let Some(first) = by_name.insert(name.clone(), &column.name) {
            return Err(NameError::Collision { first: first.clone(), second: column.name.clone() });
        }
        names.push(name);
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Column;

    fn ty(text: &str) -> LogicalType {
        text.parse().expect(text)
    }

    #[test]
    fn column_types_read_back_as_a_type_of_the_same_values() {
        for (logical, column, back) in [
            ("bool", "boolean", "bool"),
            ("int8", "smallint", "int16"),
            ("uint8", "smallint", "int16"),
            ("uint16", "integer", "int32"),
            ("uint32", "bigint", "int64"),
            ("uint64", "numeric(20,0)", "decimal(20,0)"),
            ("decimal(1000,3)", "numeric(1000,3)", "decimal(1000,3)"),
            ("decimal(1001,3)", "numeric", "numeric"),
            ("timestamp(9)", "timestamp(6) without time zone", "timestamp(6)"),
            ("timestamptz(3)", "timestamp(6) with time zone", "timestamptz(6)"),
            ("time(0)", "time(6) without time zone", "time(6)"),
            ("json", "jsonb", "json"),
        ] {
            assert_eq!(column_type(ty(logical)), column);
            assert_eq!(logical_type(column), Some(ty(back)), "{column}");
        }
        assert_eq!(logical_type("character varying(20)"), Some(LogicalType::Text));
        assert_eq!(logical_type("numeric(5,-2)"), Some(ty("decimal(7,0)")));
        assert_eq!(logical_type("numeric(10,2)[]"), Some(ty("array(decimal(10,2))")));
        assert_eq!(column_type(ty("array(timestamptz(3))")), "timestamp(6) with time zone[]");
        assert_eq!(logical_type("interval"), Some(LogicalType::Interval));
        assert_eq!(logical_type("bit(12)"), Some(ty("bits(12)")));
    }

    /// The bounds are those of the manual, table 8.9: 4713 BC to 5874897 AD for dates, to 294276 AD for timestamps.
    #[test]
    fn days_and_instants_outside_the_calendar_are_refused() {
        let day = |y, m, d| i32::try_from(crate::civil::days_of_date(y, m, d).expect("a date")).expect("in range");
        assert_eq!(date(day(2000, 1, 1)), Ok(0));
        assert_eq!(date(day(-4712, 1, 1) - 38), Ok(-2_451_545), "Julian day 0 is 4714-11-24 BC, proleptic Gregorian");
        assert_eq!(date(day(-4712, 1, 1) - 39), Err(Refusal::Range));
        assert_eq!(date(day(5_874_897, 12, 31)), Ok(2_145_031_948));
        assert_eq!(date(day(5_874_898, 1, 1)), Err(Refusal::Range));
        assert_eq!(date(i32::MIN), Err(Refusal::Range));
        assert_eq!(date(i32::MAX), Err(Refusal::Range));
        // Micros since 1970 end thirty years before Postgres' own do: the last finite one is an instant there, never `infinity`.
        assert_eq!(timestamp(ty("timestamp(6)"), i64::MAX - 1), Ok(9_222_425_352_054_775_806));
        assert_eq!(timestamp(ty("timestamp(9)"), INFINITY), Ok(i64::MAX));
        let first = (crate::civil::days_of_date(-4712, 1, 1).expect("a date") - 38) * 86_400_000_000;
        assert_eq!(timestamp(ty("timestamptz(6)"), first), Ok(-211_813_488_000_000_000));
        for never in [first - 1, i64::MIN + 1, i64::MIN + EPOCH_MICROS] {
            assert_eq!(timestamp(ty("timestamptz(6)"), never), Err(Refusal::Range));
        }
    }

    #[test]
    fn nanos_are_cut_and_no_second_changes() {
        assert_eq!(timestamp(ty("timestamp(9)"), 946_684_800_000_001_000), Ok(1));
        assert_eq!(timestamp(ty("timestamp(9)"), 946_684_800_000_001_999), Ok(1));
        assert_eq!(timestamp(ty("timestamp(9)"), -1), Ok(-EPOCH_MICROS - 1), "23:59:59.999999999 before, 23:59:59.999999 after");
        assert_eq!(time(ty("time(7)"), 86_400_000_000_000), Ok(86_400_000_000));
        assert_eq!(time(ty("time(7)"), 46_801_702_905_100), Ok(46_801_702_905));
        assert!(cuts(ty("time(9)"), &Value::Time(1)) && !cuts(ty("time(9)"), &Value::Time(1000)) && !cuts(ty("time(6)"), &Value::Time(1)));
        assert!(!cuts(ty("timestamp(9)"), &Value::Timestamp(INFINITY)));
    }

    #[test]
    fn decimals_beyond_numeric_are_refused() {
        let fits = |unscaled: &[u8], scale| numeric(&Decimal { unscaled, scale });
        assert_eq!(fits(&[1], NUMERIC_SCALE_MAX), Ok(()));
        assert_eq!(fits(&[1], NUMERIC_SCALE_MAX + 1), Err(Refusal::Precision));
        assert_eq!(fits(&[9], -131_071), Ok(()));
        assert_eq!(fits(&[10], -131_071), Err(Refusal::Range));
        assert_eq!(fits(&[10], -131_070), Ok(()));
        assert_eq!(fits(&[0], -147_000), Ok(()));
        assert_eq!(refuse(ty("decimal(38,2)"), &Value::Decimal(Decimal { unscaled: &[0x7F; 16], scale: 2 })), None);
    }

    #[test]
    fn text_with_nul_is_refused_and_bytes_are_not() {
        assert_eq!(refuse(ty("text"), &Value::Text("a\0b")), Some(Refusal::Nul));
        assert_eq!(refuse(ty("text"), &Value::Text("a\u{1}")), None);
        assert_eq!(refuse(ty("bytes"), &Value::Bytes(&[0])), None);
        assert_eq!(refuse(ty("text"), &Value::Null), None);
    }

    fn schema(names: &[&str], key: &[&str]) -> TableSchema {
        let columns = names.iter().map(|n| Column { name: (*n).to_owned(), ty: LogicalType::Text, nullable: true }).collect();
        TableSchema::new("t", columns, key).expect("valid")
    }

    #[test]
    fn long_names_are_cut_alike_and_never_meet() {
        let long = "ü".repeat(40);
        let name = column_name(&long).expect("a name");
        assert!(name.len() <= NAME_BYTES_MAX && name.starts_with("üü"), "{name}");
        assert_ne!(column_name(&format!("{long}x")), column_name(&format!("{long}y")));
        assert_eq!(column_name(&"x".repeat(63)).expect("a name"), "x".repeat(63));
        let collision = column_names(&schema(&["id", &long, &name], &["id"]));
        assert_eq!(collision.map_err(|e| e.code()), Err("scd.column_collision"));
        assert_eq!(column_names(&schema(&["ID", "id", "Id"], &["id"])).expect("three names"), ["ID", "id", "Id"]);
        for (name, code) in [("", "scd.column_name"), ("a\0", "scd.column_name"), ("xmin", "scd.reserved_column")] {
            assert_eq!(column_name(name).map_err(|e| e.code()), Err(code));
        }
    }

    #[test]
    fn keys_longer_than_an_index_entry_are_refused() {
        let schema = schema(&["id"], &["id"]);
        let refusal = |bytes: usize| {
            let mut key = Vec::new();
            crate::wire::put_bytes(&mut key, "k".repeat(bytes).as_bytes());
            refuse_key(&schema, &key)
        };
        assert_eq!(refusal(100), Ok(None));
        assert_eq!(refusal(2600), Ok(None));
        assert_eq!(refusal(2690), Ok(Some((0, Refusal::KeyLength))));
    }

    #[test]
    fn a_key_is_never_cut() {
        let columns = vec![Column { name: "at".to_owned(), ty: ty("timestamp(9)"), nullable: false }];
        let schema = TableSchema::new("t", columns, &["at"]).expect("valid");
        let refusal = |units| {
            let mut key = Vec::new();
            row::put_plain(ty("timestamp(9)"), Value::Timestamp(units), &mut key).expect("fits");
            refuse_key(&schema, &key)
        };
        assert_eq!(refusal(1_000), Ok(None));
        assert_eq!(refusal(1_001), Ok(Some((0, Refusal::Precision))));
        assert_eq!(refusal(INFINITY), Ok(None));
    }

    #[test]
    fn a_key_is_refused_for_the_value_of_a_column() {
        let columns = [("day", "date"), ("v", "text"), ("id", "text")];
        let columns = columns.map(|(name, ty)| Column { name: name.to_owned(), ty: ty.parse().expect(ty), nullable: false });
        let schema = TableSchema::new("t", columns.to_vec(), &["id", "day"]).expect("valid");
        let key = |id: &str, day: i32| {
            let mut key = Vec::new();
            row::put_plain(ty("text"), Value::Text(id), &mut key).expect("a text");
            row::put_plain(ty("date"), Value::Date(day), &mut key).expect("a day");
            key
        };
        assert_eq!(refuse_key(&schema, &key("a", 0)), Ok(None));
        assert_eq!(refuse_key(&schema, &key("a\0", 0)), Ok(Some((2, Refusal::Nul))));
        assert_eq!(refuse_key(&schema, &key("a", i32::MAX)), Ok(Some((0, Refusal::Range))));
        let other = crate::store::refuse_key(&schema, &key("a\0", 0), crate::store::duckdb::refuse);
        assert_eq!(other, Ok(None), "DuckDB holds NUL");
        assert!(refuse_key(&schema, &key("a", 0)[..1]).is_err());
    }
}
