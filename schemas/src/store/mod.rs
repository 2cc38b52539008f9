//! What each store can hold: the tables logical type ↔ column type, and the values that a store cannot hold exactly.
//!
//! Every value of every logical type arrives exactly, or is refused by name; only a fraction of a second finer than a store's micros is cut,
//! which is counted (cases TMP-02, TMP-09). A refusal is found before the change is folded, so a batch never
//! meets a value that its store cannot take, and one bad record never holds up the others (law 11). Everything here is pure and allocates
//! nothing per value.

pub mod clickhouse;
pub mod duckdb;
pub mod postgres;

use std::ops::RangeBounds;

use crate::row;
use crate::table::TableSchema;
use crate::types::LogicalType;
use crate::value::{Array, INFINITY, NEGATIVE_INFINITY, NotFinite, Value};
use crate::wire::{Reader, WireError};

/// Why a store cannot hold a value exactly. The change that carries it is dead-lettered for the replicas in that store; others keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Text or a document with the character NUL in it.
    Nul,
    /// Outside the range, or above the size, of the column's type.
    Range,
    /// More digits than the column's type keeps; storing it would round.
    Precision,
    /// A document that is not one: the store checks what it takes.
    Malformed,
    /// A key too long for the store's index.
    KeyLength,
    /// Infinity, where the column's type has none.
    Infinite,
    /// NaN, where the column's type has none.
    NotANumber,
}

impl Refusal {
    /// The stable code under which it is reported and counted.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Nul => "value.nul",
            Self::Range => "value.out_of_range",
            Self::Precision => "value.too_precise",
            Self::Malformed => "value.malformed",
            Self::KeyLength => "value.key_too_long",
            Self::Infinite => "value.infinite",
            Self::NotANumber => "value.not_a_number",
        }
    }
}

/// The first column of a key that a store cannot hold, by its place in the table. `key` is encoded without unions and in key order;
/// `refuse` is the store's word on a value.
pub fn refuse_key(
    schema: &TableSchema,
    key: &[u8],
    refuse: impl Fn(LogicalType, &Value<'_>) -> Option<Refusal>,
) -> Result<Option<(usize, Refusal)>, WireError> {
    let mut reader = Reader::new(key);
    for at in schema.key() {
        let ty = schema.columns()[*at].ty;
        if let Some(refusal) = refuse(ty, &row::read_plain(ty, &mut reader)?) {
            return Ok(Some((*at, refusal)));
        }
    }
    Ok(None)
}

/// The nearest value that a store holds of a date or a timestamp which it refuses; `None` for values of other types, of which none is near another.
///
/// What a store holds of them is one stretch of time around 1970-01-01, so the way there is halved until its end is found. `refuse` is the
/// store's word on a value.
pub fn nearest(ty: LogicalType, value: &Value<'_>, refuse: impl Fn(LogicalType, &Value<'_>) -> Option<Refusal>) -> Option<Value<'static>> {
    let end = |refused: i64, of: &dyn Fn(i64) -> Value<'static>| {
        let is_held = |at: i64| refuse(ty, &of(at)).is_none();
        let (mut held, mut refused) = (0, i128::from(refused));
        if !is_held(0) {
            return None;
        }
        while (refused - held).abs() > 1 {
            let middle = held + (refused - held) / 2;
            if is_held(middle as i64) {
                held = middle;
            } else {
                refused = middle;
            }
        }
        Some(of(held as i64))
    };
    match *value {
        // Between two dates are dates only.
        Value::Date(days) => end(days.into(), &|days| Value::Date(days as i32)),
        Value::Timestamp(units) => end(units, &Value::Timestamp),
        _ => None,
    }
}

/// Micros of a time or timestamp in its type's unit; a finer fraction is cut, never rounded, so that no second changes (cases TMP-02, TMP-09).
const fn micros(ty: LogicalType, units: i64) -> i64 {
    if ty.counts_nanos() { units.div_euclid(1000) } else { units }
}

/// Whether a store whose times count micros keeps less of a value than it has. It is counted, and the landed value is the one before it.
fn cuts_micros(ty: LogicalType, value: &Value<'_>) -> bool {
    match *value {
        Value::Array(v) => v.values().map_while(Result::ok).any(|value| cuts_micros(v.element.widen(), &value)),
        Value::Timestamp(INFINITY | NEGATIVE_INFINITY) => false,
        Value::Time(units) | Value::Timestamp(units) | Value::Duration(units) => ty.counts_nanos() && units % 1000 != 0,
        _ => false,
    }
}

/// Why a store without decimals that are no numbers cannot hold one.
const fn no_number(value: NotFinite) -> Refusal {
    match value {
        NotFinite::Nan => Refusal::NotANumber,
        NotFinite::Infinity | NotFinite::NegativeInfinity => Refusal::Infinite,
    }
}

/// The first refusal of an array's elements. Bytes that are no elements are found by whoever writes them.
fn refuse_elements(array: &Array<'_>, refuse: impl Fn(LogicalType, &Value<'_>) -> Option<Refusal>) -> Option<Refusal> {
    let ty = array.element.widen();
    array.values().map_while(Result::ok).find_map(|value| refuse(ty, &value))
}

/// A count where a store's range has it.
fn within<T: PartialOrd>(count: T, range: &impl RangeBounds<T>) -> Result<T, Refusal> {
    if range.contains(&count) { Ok(count) } else { Err(Refusal::Range) }
}

/// Why the columns of a table cannot stand in a store under their own names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty, or with the character NUL in it.
    #[error("name {name:?} is empty or contains NUL, which the store refuses")]
    Impossible {
        /// The name as the source writes it.
        name: String,
    },
    /// The store uses the name itself.
    #[error("name {name:?} belongs to a system column of the store; rename the column")]
    System {
        /// The name as the source writes it.
        name: String,
    },
    /// Two names that the store cannot hold apart (SEMANTICS.md A.1.8).
    #[error("columns {first:?} and {second:?} would have one name in the store; rename one of them")]
    Collision {
        /// The name that comes first in the table.
        first: String,
        /// The other one.
        second: String,
    },
    /// More columns than a table of the store takes.
    #[error("{count} columns are more than the {max} that the store takes")]
    Count {
        /// Columns asked for.
        count: usize,
        /// Columns that the store takes.
        max: usize,
    },
}

impl NameError {
    /// The stable code under which it is reported.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Impossible { .. } => "scd.column_name",
            Self::System { .. } => "scd.reserved_column",
            Self::Collision { .. } => "scd.column_collision",
            Self::Count { .. } => "scd.column_count",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Refuse = fn(LogicalType, &Value<'_>) -> Option<Refusal>;

    #[test]
    fn the_nearest_value_is_the_last_that_is_held() {
        let day = |year, month, day| crate::civil::days_of_date(year, month, day).expect("a date");
        let micros = |days: i64| days * 86_400_000_000;
        let cases: [(Refuse, &str, i64, i64); 10] = [
            (clickhouse::refuse, "date", day(1899, 12, 31), day(1900, 1, 1)),
            (clickhouse::refuse, "date", day(9999, 12, 31), day(2299, 12, 31)),
            (clickhouse::refuse, "timestamp(6)", micros(day(1066, 10, 14)), micros(day(1900, 1, 1))),
            (clickhouse::refuse, "timestamptz(6)", micros(day(2300, 1, 1)), micros(day(2300, 1, 1)) - 1),
            (clickhouse::refuse, "timestamptz(3)", INFINITY, micros(day(2300, 1, 1)) - 1),
            (clickhouse::refuse, "timestamp(6)", NEGATIVE_INFINITY, micros(day(1900, 1, 1))),
            (clickhouse::refuse, "timestamp(9)", NEGATIVE_INFINITY, micros(day(1900, 1, 1)) * 1000),
            (postgres::refuse, "date", i64::from(i32::MAX), day(5_874_897, 12, 31)),
            (postgres::refuse, "timestamp(6)", NEGATIVE_INFINITY + 1, micros(day(-4_713, 11, 24))),
            (duckdb::refuse, "date", i64::from(i32::MIN), -2_147_483_646),
        ];
        for (refuse, ty, refused, held) in cases {
            let ty: LogicalType = ty.parse().expect(ty);
            let of = |units: i64| if ty == LogicalType::Date { Value::Date(units as i32) } else { Value::Timestamp(units) };
            assert!(refuse(ty, &of(refused)).is_some(), "{ty} {refused}");
            let near = nearest(ty, &of(refused), refuse);
            assert_eq!(near, Some(of(held)), "{ty} {refused}");
            assert_eq!(refuse(ty, &of(held)), None, "{ty} {held}");
        }
        assert_eq!(nearest(LogicalType::Text, &Value::Text("\0"), postgres::refuse), None);
        assert_eq!(nearest(LogicalType::Numeric, &Value::NotFinite(NotFinite::Nan), clickhouse::refuse), None);
    }
}
