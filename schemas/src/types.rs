//! Logical types: what a value means, whatever store or encoding carries it.
//!
//! A type is written as text (`int32`, `decimal(12,2)`, `timestamptz(6)`) in topology files, contracts and messages; [`LogicalType::from_str`]
//! and `Display` are inverse. Numbers of every width share one canonical key encoding, so a widened column keeps its keys (`key`).

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The greatest precision that a decimal may declare: what Postgres holds.
pub const DECIMAL_PRECISION_MAX: u32 = 131_072 + 16_383;

/// The longest string of bits: a value takes as many bytes, however short what carried it was.
pub const BITS_MAX: u32 = 8_192;

/// What the values of a column mean.
pub type LogicalType = Type<ElementType>;

/// What the elements of an array mean: any type but an array. Arrays of several dimensions come damaged from every connector (case DEC-13).
pub type ElementType = Type<Infallible>;

/// What values mean. `A` is what an array's elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type<A> {
    /// True or false.
    Bool,
    /// Signed, 8 bits.
    Int8,
    /// Signed, 16 bits.
    Int16,
    /// Signed, 32 bits.
    Int32,
    /// Signed, 64 bits.
    Int64,
    /// Unsigned, 8 bits.
    UInt8,
    /// Unsigned, 16 bits.
    UInt16,
    /// Unsigned, 32 bits.
    UInt32,
    /// Unsigned, 64 bits.
    UInt64,
    /// IEEE 754 binary32, with its NaN, infinities and negative zero.
    Float32,
    /// IEEE 754 binary64, with its NaN, infinities and negative zero.
    Float64,
    /// Exact decimal of a declared size: `precision` digits in all, `scale` of them behind the point, `scale <= precision`; or NaN.
    Decimal {
        /// Digits in all, from 1.
        precision: u32,
        /// Digits behind the point.
        scale: u32,
    },
    /// Exact decimal of any size; each value carries its own scale, which is kept; or NaN or ±infinity.
    Numeric,
    /// Unicode text.
    Text,
    /// Raw bytes.
    Bytes,
    /// 128-bit identifier.
    Uuid,
    /// Day of the proleptic Gregorian calendar.
    Date,
    /// Time of day without a zone, from 00:00 to 24:00; micros up to 6 digits, nanos beyond.
    Time {
        /// Digits of a second's fraction, 0 to 9.
        digits: u8,
    },
    /// Date and time of day without a zone; micros up to 6 digits, nanos beyond; and ±infinity, as Postgres has it.
    Timestamp {
        /// Digits of a second's fraction, 0 to 9.
        digits: u8,
    },
    /// An instant; micros up to 6 digits, nanos beyond, since 1970-01-01T00:00:00Z; and ±infinity, as Postgres has it.
    TimestampTz {
        /// Digits of a second's fraction, 0 to 9.
        digits: u8,
    },
    /// A signed span of time; micros up to 6 digits, nanos beyond. Not a time of day: MySQL's `TIME` reaches from -838 to 838 hours (case TMP-07).
    Duration {
        /// Digits of a second's fraction, 0 to 9.
        digits: u8,
    },
    /// A span of the calendar: months, days and micros, each of its own sign. A month is no number of days (case TMP-08).
    Interval,
    /// A string of so many bits.
    Bits {
        /// How many, from 1 to [`BITS_MAX`].
        length: u32,
    },
    /// A JSON document, kept as its text.
    Json,
    /// Any number of elements in order, each of which may be NULL.
    Array(A),
}

/// A type expression that names no logical type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no logical type is written {text:?}; known are {}", LogicalType::NAMES.join(", "))]
pub struct UnknownType {
    /// The expression as written.
    pub text: String,
}

impl LogicalType {
    /// The spellings, one a type, as messages and the JSON Schema list them.
    pub const NAMES: &'static [&'static str] = &[
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
        "decimal(p,s)",
        "numeric",
        "text",
        "bytes",
        "uuid",
        "date",
        "time(n)",
        "timestamp(n)",
        "timestamptz(n)",
        "duration(n)",
        "interval",
        "bits(n)",
        "json",
        "array(type)",
    ];

    /// True for the types whose times count in nanoseconds rather than microseconds.
    pub const fn counts_nanos(self) -> bool {
        match self {
            Self::Time { digits } | Self::Timestamp { digits } | Self::TimestampTz { digits } | Self::Duration { digits } => digits > 6,
            _ => false,
        }
    }

    /// True for floats, which are refused as keys: `0.1` has no equal in another width (ARCHITECTURE.md, The log).
    pub const fn is_float(self) -> bool {
        matches!(self, Self::Float32 | Self::Float64)
    }

    /// The decimal type that holds every value of a declared `precision` and a `scale` that may be negative or above the precision, as
    /// Postgres allows since 15 (`numeric(5,-2)`, `numeric(2,4)`); `None` where that is larger than a type can be.
    pub fn decimal(precision: u32, scale: i32) -> Option<Self> {
        let (precision, scale) = match u32::try_from(scale) {
            Ok(scale) => (precision.max(scale).max(1), scale),
            Err(_) => (precision.saturating_add(scale.unsigned_abs()).max(1), 0),
        };
        (precision <= DECIMAL_PRECISION_MAX).then_some(Self::Decimal { precision, scale })
    }
}

/// The arms of a match that takes a type to the same type of the other kind.
macro_rules! same {
    ($value:expr, $array:pat => $otherwise:expr, |$ty:ident| $wrap:expr) => {{
        let $ty = match $value {
            Type::Bool => Type::Bool,
            Type::Int8 => Type::Int8,
            Type::Int16 => Type::Int16,
            Type::Int32 => Type::Int32,
            Type::Int64 => Type::Int64,
            Type::UInt8 => Type::UInt8,
            Type::UInt16 => Type::UInt16,
            Type::UInt32 => Type::UInt32,
            Type::UInt64 => Type::UInt64,
            Type::Float32 => Type::Float32,
            Type::Float64 => Type::Float64,
            Type::Decimal { precision, scale } => Type::Decimal { precision, scale },
            Type::Numeric => Type::Numeric,
            Type::Text => Type::Text,
            Type::Bytes => Type::Bytes,
            Type::Uuid => Type::Uuid,
            Type::Date => Type::Date,
            Type::Time { digits } => Type::Time { digits },
            Type::Timestamp { digits } => Type::Timestamp { digits },
            Type::TimestampTz { digits } => Type::TimestampTz { digits },
            Type::Duration { digits } => Type::Duration { digits },
            Type::Interval => Type::Interval,
            Type::Bits { length } => Type::Bits { length },
            Type::Json => Type::Json,
            $array => $otherwise,
        };
        $wrap
    }};
}

impl ElementType {
    /// The same as a column's type.
    pub const fn widen(self) -> LogicalType {
        same!(self, Type::Array(never) => match never {}, |ty| ty)
    }
}

impl LogicalType {
    /// The same as an element's type; `None` for an array.
    pub const fn element(self) -> Option<ElementType> {
        same!(self, Type::Array(_) => return None, |ty| Some(ty))
    }
}

impl fmt::Display for LogicalType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Int8 => f.write_str("int8"),
            Self::Int16 => f.write_str("int16"),
            Self::Int32 => f.write_str("int32"),
            Self::Int64 => f.write_str("int64"),
            Self::UInt8 => f.write_str("uint8"),
            Self::UInt16 => f.write_str("uint16"),
            Self::UInt32 => f.write_str("uint32"),
            Self::UInt64 => f.write_str("uint64"),
            Self::Float32 => f.write_str("float32"),
            Self::Float64 => f.write_str("float64"),
            Self::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            Self::Numeric => f.write_str("numeric"),
            Self::Text => f.write_str("text"),
            Self::Bytes => f.write_str("bytes"),
            Self::Uuid => f.write_str("uuid"),
            Self::Date => f.write_str("date"),
            Self::Time { digits } => write!(f, "time({digits})"),
            Self::Timestamp { digits } => write!(f, "timestamp({digits})"),
            Self::TimestampTz { digits } => write!(f, "timestamptz({digits})"),
            Self::Duration { digits } => write!(f, "duration({digits})"),
            Self::Interval => f.write_str("interval"),
            Self::Bits { length } => write!(f, "bits({length})"),
            Self::Json => f.write_str("json"),
            Self::Array(element) => write!(f, "array({})", element.widen()),
        }
    }
}

impl FromStr for LogicalType {
    type Err = UnknownType;

    /// Reads a type expression; case and blanks do not matter, a time without digits has six.
    fn from_str(text: &str) -> Result<Self, UnknownType> {
        let unknown = || UnknownType { text: text.chars().take(64).collect() };
        let lower: String = text.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase).take(64).collect();
        let (name, arguments) = match lower.split_once('(') {
            Some((name, rest)) => (name, Some(rest.strip_suffix(')').ok_or_else(unknown)?)),
            None => (lower.as_str(), None),
        };
        let digits = || match arguments {
            None => Ok(6),
            Some(text) => text.parse::<u8>().ok().filter(|d| *d <= 9).ok_or_else(unknown),
        };
        let plain = |ty: Self| if arguments.is_none() { Ok(ty) } else { Err(unknown()) };
        match name {
            "bool" | "boolean" => plain(Self::Bool),
            "int8" => plain(Self::Int8),
            "int16" => plain(Self::Int16),
            "int32" => plain(Self::Int32),
            "int64" => plain(Self::Int64),
            "uint8" => plain(Self::UInt8),
            "uint16" => plain(Self::UInt16),
            "uint32" => plain(Self::UInt32),
            "uint64" => plain(Self::UInt64),
            "float32" => plain(Self::Float32),
            "float64" => plain(Self::Float64),
            "numeric" => plain(Self::Numeric),
            "decimal" => {
                let (p, s) = arguments.ok_or_else(unknown)?.split_once(',').ok_or_else(unknown)?;
                let precision = p.parse::<u32>().map_err(|_| unknown())?;
                let scale = s.parse::<u32>().map_err(|_| unknown())?;
                if precision == 0 || precision > DECIMAL_PRECISION_MAX || scale > precision {
                    return Err(unknown());
                }
                Ok(Self::Decimal { precision, scale })
            }
            "text" => plain(Self::Text),
            "bytes" => plain(Self::Bytes),
            "uuid" => plain(Self::Uuid),
            "date" => plain(Self::Date),
            "time" => Ok(Self::Time { digits: digits()? }),
            "timestamp" => Ok(Self::Timestamp { digits: digits()? }),
            "timestamptz" => Ok(Self::TimestampTz { digits: digits()? }),
            "duration" => Ok(Self::Duration { digits: digits()? }),
            "interval" => plain(Self::Interval),
            "bits" => {
                let length = arguments.ok_or_else(unknown)?.parse().map_err(|_| unknown())?;
                if (1..=BITS_MAX).contains(&length) { Ok(Self::Bits { length }) } else { Err(unknown()) }
            }
            "json" => plain(Self::Json),
            "array" => {
                let element: Self = arguments.ok_or_else(unknown)?.parse().map_err(|_| unknown())?;
                element.element().map(Self::Array).ok_or_else(unknown)
            }
            _ => Err(unknown()),
        }
    }
}

impl Serialize for LogicalType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LogicalType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_type_are_inverse() {
        for text in [
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
            "decimal(12,2)",
            "numeric",
            "text",
            "bytes",
            "uuid",
            "date",
            "time(3)",
            "timestamp(9)",
            "timestamptz(6)",
            "duration(6)",
            "interval",
            "bits(12)",
            "json",
            "array(text)",
            "array(decimal(12,2))",
            "array(timestamptz(6))",
        ] {
            assert_eq!(text.parse::<LogicalType>().expect(text).to_string(), text);
        }
        assert_eq!("Decimal( 12 , 2 )".parse(), Ok(LogicalType::Decimal { precision: 12, scale: 2 }));
        assert_eq!("timestamptz".parse(), Ok(LogicalType::TimestampTz { digits: 6 }));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "int",
            "int32(4)",
            "decimal",
            "decimal(0,0)",
            "decimal(2,4)",
            "decimal(12)",
            "time(10)",
            "time(-1)",
            "text)",
            "text(",
            "bits",
            "bits(0)",
            "bits(8193)",
            "interval(3)",
        ] {
            assert!(text.parse::<LogicalType>().is_err(), "{text}");
        }
    }

    #[test]
    fn odd_declared_scales_get_a_type_that_holds_their_values() {
        assert_eq!(LogicalType::decimal(5, -2), Some(LogicalType::Decimal { precision: 7, scale: 0 }));
        assert_eq!(LogicalType::decimal(2, 4), Some(LogicalType::Decimal { precision: 4, scale: 4 }));
        // A type without a spelling that is read again would make a contract that nobody reads.
        for (precision, scale) in [(DECIMAL_PRECISION_MAX + 1, 0), (1, i32::MAX), (u32::MAX, i32::MIN)] {
            assert_eq!(LogicalType::decimal(precision, scale), None);
        }
    }
}
