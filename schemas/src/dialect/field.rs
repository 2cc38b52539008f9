//! One member of a row: its column, and what its values are written as.
//!
//! What a number or a string means follows from the column's semantic type alone, which the plan has worked out once; the size of a number or
//! the look of a string decides nothing (cases TMP-02, DEC-16).

use std::convert::Infallible;

use crate::json::JsonStr;
use crate::types::LogicalType;

/// Millis to the second.
pub(super) const MILLIS: i64 = 1_000;
/// Micros to the second.
pub(super) const MICROS: i64 = 1_000_000;
/// Nanos to the second.
pub(super) const NANOS: i64 = 1_000_000_000;

/// What a column's values are written as.
pub(super) type Wire = WireOf<ElementWire>;

/// What an array's elements are written as.
pub(super) type ElementWire = WireOf<Infallible>;

/// What values are written as. `A` is what an array's elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireOf<A> {
    Bool,
    Integer,
    /// A signed 64-bit number that holds an unsigned one (case DEC-03).
    Wrapped,
    Float32,
    Float64,
    /// Base64 of the unscaled integer, at the schema's scale (case DEC-01).
    Decimal {
        scale: i32,
    },
    /// An unscaled integer whose scale is not told: no value can be made of it.
    NoScale,
    /// A struct of scale and unscaled integer (case DEC-02).
    VariableDecimal,
    /// A number as text.
    DecimalText,
    Text,
    Json,
    Bytes(BinaryStrings),
    Uuid,
    /// Days since 1970-01-01.
    Days,
    /// Units since midnight, or those of a span.
    Time {
        per_second: i64,
    },
    /// Units since 1970-01-01T00:00:00.
    Timestamp {
        per_second: i64,
    },
    /// ISO 8601 text of a date, a time, a timestamp or an interval, as the type says.
    Iso,
    /// Base64 of bits, the least significant byte first; bytes of zeros at the end may be absent (case DEC-08).
    Bits,
    /// A struct of well-known binary and the number of its reference system (case DEC-15).
    Geometry,
    /// A value of MongoDB's documents, which says its own type.
    Extended,
    /// No schema part, and nothing declared: exactly the kinds of values that the type was inferred from.
    Literal,
    /// Elements, one behind the other.
    Array(A),
    /// No schema part: whatever a connector may write for the declared type.
    Declared {
        decimal_strings: DecimalStrings,
        binary_strings: BinaryStrings,
        /// Whether a date of zeros is NULL.
        zero_dates: bool,
    },
}

/// The arms of a match that takes a wire to the same one of the other kind.
macro_rules! same {
    ($wire:expr, $array:pat => $otherwise:expr, $wrap:path) => {
        $wrap(match $wire {
            WireOf::Bool => WireOf::Bool,
            WireOf::Integer => WireOf::Integer,
            WireOf::Wrapped => WireOf::Wrapped,
            WireOf::Float32 => WireOf::Float32,
            WireOf::Float64 => WireOf::Float64,
            WireOf::Decimal { scale } => WireOf::Decimal { scale },
            WireOf::NoScale => WireOf::NoScale,
            WireOf::VariableDecimal => WireOf::VariableDecimal,
            WireOf::DecimalText => WireOf::DecimalText,
            WireOf::Text => WireOf::Text,
            WireOf::Json => WireOf::Json,
            WireOf::Bytes(strings) => WireOf::Bytes(strings),
            WireOf::Uuid => WireOf::Uuid,
            WireOf::Days => WireOf::Days,
            WireOf::Time { per_second } => WireOf::Time { per_second },
            WireOf::Timestamp { per_second } => WireOf::Timestamp { per_second },
            WireOf::Iso => WireOf::Iso,
            WireOf::Bits => WireOf::Bits,
            WireOf::Geometry => WireOf::Geometry,
            WireOf::Extended => WireOf::Extended,
            WireOf::Literal => WireOf::Literal,
            WireOf::Declared { decimal_strings, binary_strings, zero_dates } => WireOf::Declared { decimal_strings, binary_strings, zero_dates },
            $array => $otherwise,
        })
    };
}

impl ElementWire {
    /// The same as a column's.
    pub(super) fn widen(self) -> Wire {
        same!(self, WireOf::Array(never) => match never {}, std::convert::identity)
    }
}

impl Wire {
    /// The same as an element's; `None` for an array.
    pub(super) fn element(self) -> Option<ElementWire> {
        same!(self, WireOf::Array(_) => return None, Some)
    }
}

/// What a string holds in a column of bytes (`binary.handling.mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BinaryStrings {
    /// Base64.
    #[default]
    Base64,
    /// Base64 with the alphabet for URLs and file names.
    Base64UrlSafe,
    /// Two hexadecimal digits a byte.
    Hex,
}

/// What a string stands for in a column that is declared as a decimal, where no schema part says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecimalStrings {
    /// The number as text (`decimal.handling.mode=string`, or a converter with `decimal.format=NUMERIC`).
    #[default]
    Numbers,
    /// Base64 of the unscaled integer at the declared scale, which is Debezium's own default.
    Base64,
}

/// A member of a row or of a key.
#[derive(Clone, Debug)]
pub(super) struct Field {
    /// Its name.
    pub(super) name: String,
    /// Its name as JSON writes it, with quotes and colon, to compare without unescaping.
    pub(super) quoted: String,
    /// `None` for a column that is excluded.
    pub(super) wire: Option<Wire>,
    /// The column's type.
    pub(super) ty: LogicalType,
    /// What the source says.
    pub(super) nullable: bool,
    /// Whether its type is to be inferred and is not known yet: no column, as long as nothing stands there but NULL.
    pub(super) is_untyped: bool,
}

impl Field {
    pub(super) fn new(name: String, wire: Option<Wire>, ty: LogicalType, nullable: bool) -> Self {
        let quoted = format!("{}:", serde_json::Value::from(name.as_str()));
        Self { name, quoted, wire, ty, nullable, is_untyped: false }
    }

    /// A member that nothing is known of yet.
    pub(super) fn untyped(name: String) -> Self {
        Self { is_untyped: true, ..Self::new(name, None, LogicalType::Text, true) }
    }

    pub(super) fn is_named(&self, name: &JsonStr<'_>) -> bool {
        name.is(&self.name)
    }
}
