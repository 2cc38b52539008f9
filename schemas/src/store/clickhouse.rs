//! ClickHouse: column types, and what they cannot hold.
//!
//! | logical | column | kept how |
//! |---|---|---|
//! | `bool`, integers, floats, `uuid` | `Bool`, `Int8`…`UInt64`, `Float32/64`, `UUID` | as they are, NaN and -0 too |
//! | `decimal(p,s)`, p ≤ 76 | `Decimal(p, s)` | exactly |
//! | `decimal(p,s)`, p > 76; `numeric` | `String` | plain digits at the value's own scale, never an exponent (`1.10` stays `1.10`); in a key without trailing zeros, since equal keys must be one row |
//! | `text`, `json`, `bytes` | `String` | byte for byte; a `String` may hold anything, NUL too |
//! | `date` | `Date32` | never `Date`, which saturates (case TMP-01) |
//! | `timestamp`, `timestamptz` | `DateTime64(6, 'UTC')`, beyond 6 digits `DateTime64(9, 'UTC')` | the number that the value is |
//! | `time`, `duration` | `Int64` | micros, of a time since midnight, beyond 6 digits nanos; 24:00:00 is kept. `Time64` would be a newer server's, behind a setting |
//! | `interval` | `String` | its ISO 8601 text, as Debezium writes it (`P0Y-1M3DT0H0M-0.5S`) |
//! | `bits(n)` | `String` | n digits 0 and 1 |
//! | `array(t)` | `Array(Nullable(T))` | as its elements are. An array cannot be NULL there: it lands as an empty one, which is counted (case DEC-13) |
//!
//! Dates and times are held from 1900 to 2299, the range that every server documents. Newer ones take and print the years 1 to 9999 for
//! `DateTime64` (seen on 26.7), older ones wrap silently, so what lies outside is refused on all; and so are infinity and NaN of times and
//! decimals, which no type has.

use std::fmt;

use super::{NameError, Refusal};
use crate::types::{ElementType, LogicalType};
use crate::value::{INFINITY, NEGATIVE_INFINITY, Value, per_second};

/// The most digits of a `Decimal`: what 256 bits hold.
pub const DECIMAL_PRECISION_MAX: u32 = 76;

/// Days from 1970-01-01 to 1900-01-01, the first that every server holds.
const FIRST_DAY: i64 = -25_567;
/// Days from 1970-01-01 to 2299-12-31, the last that every server holds.
const LAST_DAY: i64 = 120_529;

/// The type of a column, without `Nullable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// `Bool`: one byte, 0 or 1.
    Bool,
    /// `Int8` to `Int64`, by bits.
    Int(u8),
    /// `UInt8` to `UInt64`, by bits.
    UInt(u8),
    /// `Float32`.
    Float32,
    /// `Float64`.
    Float64,
    /// `Decimal(p, s)`, p up to [`DECIMAL_PRECISION_MAX`].
    Decimal {
        /// Digits in all.
        precision: u8,
        /// Digits behind the point.
        scale: u8,
    },
    /// `String`: any bytes.
    String,
    /// `UUID`.
    Uuid,
    /// `Date32`.
    Date32,
    /// `DateTime64(n, 'UTC')` of 6 or 9 digits.
    DateTime64(u8),
    /// `Array(Nullable(T))`.
    Array(ElementType),
}

impl ColumnType {
    /// Bytes of a value on the wire and on disk; `None` where it has a length of its own.
    pub const fn width(self) -> Option<usize> {
        Some(match self {
            Self::Bool => 1,
            Self::Int(bits) | Self::UInt(bits) => bits as usize / 8,
            Self::Float32 | Self::Date32 => 4,
            Self::Float64 | Self::DateTime64(_) => 8,
            Self::Decimal { precision: 0..=9, .. } => 4,
            Self::Decimal { precision: 10..=18, .. } => 8,
            Self::Decimal { precision: 19..=38, .. } | Self::Uuid => 16,
            Self::Decimal { .. } => 32,
            Self::String | Self::Array(_) => return None,
        })
    }

    /// Whether the type goes into `Nullable`.
    pub const fn is_nullable(self) -> bool {
        !matches!(self, Self::Array(_))
    }
}

/// The text that the server prints for the type, so that the two can be compared.
impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("Bool"),
            Self::Int(bits) => write!(f, "Int{bits}"),
            Self::UInt(bits) => write!(f, "UInt{bits}"),
            Self::Float32 => f.write_str("Float32"),
            Self::Float64 => f.write_str("Float64"),
            Self::Decimal { precision, scale } => write!(f, "Decimal({precision}, {scale})"),
            Self::String => f.write_str("String"),
            Self::Uuid => f.write_str("UUID"),
            Self::Date32 => f.write_str("Date32"),
            Self::DateTime64(digits) => write!(f, "DateTime64({digits}, 'UTC')"),
            Self::Array(element) => write!(f, "Array(Nullable({}))", column_type(element.widen())),
        }
    }
}

/// The column type of a logical type.
pub const fn column_type(ty: LogicalType) -> ColumnType {
    match ty {
        LogicalType::Bool => ColumnType::Bool,
        LogicalType::Int8 => ColumnType::Int(8),
        LogicalType::Int16 => ColumnType::Int(16),
        LogicalType::Int32 => ColumnType::Int(32),
        LogicalType::Int64 | LogicalType::Time { .. } | LogicalType::Duration { .. } => ColumnType::Int(64),
        LogicalType::UInt8 => ColumnType::UInt(8),
        LogicalType::UInt16 => ColumnType::UInt(16),
        LogicalType::UInt32 => ColumnType::UInt(32),
        LogicalType::UInt64 => ColumnType::UInt(64),
        LogicalType::Float32 => ColumnType::Float32,
        LogicalType::Float64 => ColumnType::Float64,
        LogicalType::Decimal { precision, scale } if precision <= DECIMAL_PRECISION_MAX => {
            ColumnType::Decimal { precision: precision as u8, scale: scale as u8 }
        }
        LogicalType::Decimal { .. }
        | LogicalType::Numeric
        | LogicalType::Text
        | LogicalType::Json
        | LogicalType::Bytes
        | LogicalType::Interval
        | LogicalType::Bits { .. } => ColumnType::String,
        LogicalType::Array(element) => ColumnType::Array(element),
        LogicalType::Uuid => ColumnType::Uuid,
        LogicalType::Date => ColumnType::Date32,
        LogicalType::Timestamp { .. } | LogicalType::TimestampTz { .. } => ColumnType::DateTime64(if ty.counts_nanos() { 9 } else { 6 }),
    }
}

/// The logical type that a column's values have, with whether the column is Nullable: the way back, for a column that exists already. A
/// `String` is text and an `Int64` a number, whatever they were made of. `None` for types that no logical type stands for.
pub fn logical_type(text: &str) -> Option<(LogicalType, bool)> {
    let inside = |text: &str, name: &str| Some(text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')?.to_owned());
    let text = inside(text, "LowCardinality").unwrap_or_else(|| text.to_owned());
    if let Some(inner) = inside(&text, "Nullable") {
        return logical_type(&inner).map(|(ty, _)| (ty, true));
    }
    if let Some(inner) = inside(&text, "Array") {
        return logical_type(&inner)?.0.element().map(|element| (LogicalType::Array(element), false));
    }
    let ty = match text.as_str() {
        "Bool" => LogicalType::Bool,
        "Int8" => LogicalType::Int8,
        "Int16" => LogicalType::Int16,
        "Int32" => LogicalType::Int32,
        "Int64" => LogicalType::Int64,
        "UInt8" => LogicalType::UInt8,
        "UInt16" => LogicalType::UInt16,
        "UInt32" => LogicalType::UInt32,
        "UInt64" => LogicalType::UInt64,
        "Float32" => LogicalType::Float32,
        "Float64" => LogicalType::Float64,
        "String" => LogicalType::Text,
        "UUID" => LogicalType::Uuid,
        "Date32" => LogicalType::Date,
        _ => match inside(&text, "Decimal") {
            Some(digits) => {
                let (precision, scale) = digits.split_once(',')?;
                LogicalType::Decimal { precision: precision.trim().parse().ok()?, scale: scale.trim().parse().ok()? }
            }
            None => {
                let arguments = inside(&text, "DateTime64")?;
                let (digits, zone) = arguments.split_once(',').map_or((arguments.as_str(), ""), |(digits, zone)| (digits, zone.trim()));
                let digits = digits.trim().parse().ok()?;
                if zone.is_empty() { LogicalType::Timestamp { digits } } else { LogicalType::TimestampTz { digits } }
            }
        },
    };
    Some((ty, false))
}

/// Whether any value of a type can be refused: those of the others need not be looked at.
pub const fn may_refuse(ty: LogicalType) -> bool {
    use crate::types::Type::{Array, Date, Decimal, Numeric, Timestamp, TimestampTz};
    // Of an array it counts, too, that it is NULL.
    matches!(ty, Date | Timestamp { .. } | TimestampTz { .. } | Decimal { .. } | Numeric | Array(_))
}

/// Whether less of a value is kept than it has: an array that is NULL lands as an empty one.
pub const fn cuts(ty: LogicalType, value: &Value<'_>) -> bool {
    matches!((ty, value), (LogicalType::Array(_), Value::Null))
}

/// Why a value of a type cannot be held exactly, if it cannot: a day or an instant outside the range, infinity, a decimal that is no number.
/// Everything else has a column type that takes each of its values. Costs a comparison.
pub fn refuse(ty: LogicalType, value: &Value<'_>) -> Option<Refusal> {
    let held = match *value {
        Value::NotFinite(v) => return Some(super::no_number(v)),
        Value::Array(v) => return super::refuse_elements(&v, refuse),
        Value::Timestamp(INFINITY | NEGATIVE_INFINITY) => return Some(Refusal::Infinite),
        Value::Date(days) => (FIRST_DAY..=LAST_DAY).contains(&i64::from(days)),
        Value::Timestamp(units) => (FIRST_DAY..=LAST_DAY).contains(&units.div_euclid(per_second(ty) * 86_400)),
        _ => true,
    };
    if held { None } else { Some(Refusal::Range) }
}

/// Whether a column may have a name; names are kept as they are, in any case and script. The engine keeps three names for itself.
pub fn column_name(name: &str) -> Result<(), NameError> {
    match name {
        "" => Err(NameError::Impossible { name: name.to_owned() }),
        "_row_exists" | "_block_number" | "_block_offset" => Err(NameError::System { name: name.to_owned() }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::civil::days_of_date;

    fn ty(text: &str) -> LogicalType {
        text.parse().expect(text)
    }

    #[test]
    fn types_of_the_table_at_the_top() {
        for (logical, column, width) in [
            ("bool", "Bool", Some(1)),
            ("int8", "Int8", Some(1)),
            ("int64", "Int64", Some(8)),
            ("uint64", "UInt64", Some(8)),
            ("float32", "Float32", Some(4)),
            ("decimal(9,9)", "Decimal(9, 9)", Some(4)),
            ("decimal(10,2)", "Decimal(10, 2)", Some(8)),
            ("decimal(38,0)", "Decimal(38, 0)", Some(16)),
            ("decimal(39,1)", "Decimal(39, 1)", Some(32)),
            ("decimal(76,38)", "Decimal(76, 38)", Some(32)),
            ("decimal(77,0)", "String", None),
            ("numeric", "String", None),
            ("text", "String", None),
            ("bytes", "String", None),
            ("json", "String", None),
            ("uuid", "UUID", Some(16)),
            ("date", "Date32", Some(4)),
            ("time(3)", "Int64", Some(8)),
            ("timestamp(0)", "DateTime64(6, 'UTC')", Some(8)),
            ("timestamptz(6)", "DateTime64(6, 'UTC')", Some(8)),
            ("timestamptz(7)", "DateTime64(9, 'UTC')", Some(8)),
            ("duration(6)", "Int64", Some(8)),
            ("interval", "String", None),
            ("bits(64)", "String", None),
        ] {
            assert_eq!(column_type(ty(logical)).to_string(), column);
            assert_eq!(column_type(ty(logical)).width(), width, "{logical}");
        }
    }

    #[test]
    fn a_column_that_exists_tells_its_logical_type() {
        for logical in ["bool", "int8", "uint32", "float64", "decimal(76,38)", "text", "uuid", "date", "timestamptz(6)", "timestamptz(9)"] {
            let column = column_type(ty(logical));
            assert_eq!(logical_type(&column.to_string()), Some((ty(logical), false)));
            assert_eq!(logical_type(&format!("Nullable({column})")), Some((ty(logical), true)));
        }
        assert_eq!(logical_type("LowCardinality(Nullable(String))"), Some((LogicalType::Text, true)));
        assert_eq!(logical_type("DateTime64(3)"), Some((ty("timestamp(3)"), false)));
        assert_eq!(logical_type("Array(Nullable(Int32))"), Some((ty("array(int32)"), false)));
        for unknown in ["Array(Array(String))", "Date", "Decimal(9)", "Nullable(", ""] {
            assert_eq!(logical_type(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn days_and_instants_outside_of_1900_to_2299_are_refused() {
        let day = |y, m, d| i32::try_from(days_of_date(y, m, d).expect("a date")).expect("small");
        for (days, held) in [
            (day(1900, 1, 1), true),
            (day(1899, 12, 31), false),
            (day(2299, 12, 31), true),
            (day(2300, 1, 1), false),
            (i32::MAX, false),
            (i32::MIN, false),
        ] {
            assert_eq!(refuse(LogicalType::Date, &Value::Date(days)).is_none(), held);
        }
        let first = i64::from(day(1900, 1, 1)) * 86_400_000_000;
        let end = i64::from(day(2300, 1, 1)) * 86_400_000_000;
        for (micros, held) in [(first, true), (first - 1, false), (end - 1, true), (end, false), (i64::MAX - 1, false), (i64::MIN + 1, false)] {
            let refused = refuse(ty("timestamp(6)"), &Value::Timestamp(micros));
            assert_eq!(refused, (!held).then_some(Refusal::Range), "{micros}");
        }
        for infinite in [INFINITY, NEGATIVE_INFINITY] {
            assert_eq!(refuse(ty("timestamp(9)"), &Value::Timestamp(infinite)), Some(Refusal::Infinite));
        }
        assert_eq!(refuse(ty("timestamptz(9)"), &Value::Timestamp(first * 1000)), None);
        assert_eq!(refuse(ty("timestamptz(9)"), &Value::Timestamp(first * 1000 - 1)), Some(Refusal::Range));
        assert_eq!(refuse(ty("timestamptz(9)"), &Value::Timestamp(i64::MAX - 1)), None);
    }

    #[test]
    fn everything_else_is_held() {
        for (logical, value) in
            [("text", Value::Text("\0")), ("json", Value::Json("\"\\u0000\"")), ("float64", Value::Float64(f64::NAN)), ("date", Value::Null)]
        {
            assert_eq!(refuse(ty(logical), &value), None, "{logical}");
        }
    }

    #[test]
    fn names() {
        for name in ["id", "ID", "日本", " ", "a`b", "select", "_part", "\0"] {
            assert_eq!(column_name(name), Ok(()), "{name:?}");
        }
        assert!(matches!(column_name(""), Err(NameError::Impossible { .. })));
        assert!(matches!(column_name("_row_exists"), Err(NameError::System { .. })));
    }
}
