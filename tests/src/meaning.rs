//! The order of values by what they mean, worked out apart from every encoding: numbers as integers of any size, texts by their code points.

use std::cmp::Ordering;

use landfall_schemas::{Decimal, Value};
use num_bigint::BigInt;

/// A number as an integer and the digits behind its point.
fn number(value: &Value<'_>) -> Option<(BigInt, i64)> {
    match value {
        Value::Int(v) => Some(((*v).into(), 0)),
        Value::UInt(v) => Some(((*v).into(), 0)),
        Value::Decimal(Decimal { unscaled, scale }) => Some((BigInt::from_signed_bytes_be(unscaled), i64::from(*scale))),
        _ => None,
    }
}

/// How two values of one type that can be keys stand to each other; `None` for NULL, floats and documents, and for values of two kinds.
pub(crate) fn compare(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    if let (Some((a, of_a)), Some((b, of_b))) = (number(a), number(b)) {
        let scaled = |n: BigInt, by: i64| n * BigInt::from(10).pow(u32::try_from(by.max(0)).unwrap_or(0));
        return Some(scaled(a, of_b - of_a).cmp(&scaled(b, of_a - of_b)));
    }
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Text(a), Value::Text(b)) => Some(a.chars().cmp(b.chars())),
        (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
        (Value::Uuid(a), Value::Uuid(b)) => Some(u128::from_be_bytes(*a).cmp(&u128::from_be_bytes(*b))),
        (Value::Date(a), Value::Date(b)) => Some(a.cmp(b)),
        (Value::Time(a), Value::Time(b)) | (Value::Timestamp(a), Value::Timestamp(b)) | (Value::Duration(a), Value::Duration(b)) => Some(a.cmp(b)),
        (Value::Bits(a), Value::Bits(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

#[test]
fn numbers_compare_by_value() {
    let decimal = |unscaled: &'static [u8], scale| Value::Decimal(Decimal { unscaled, scale });
    assert_eq!(compare(&decimal(&[10], 1), &decimal(&[1], 0)), Some(Ordering::Equal));
    assert_eq!(compare(&decimal(&[0xFF], 3), &decimal(&[0xFF], 4)), Some(Ordering::Less));
    assert_eq!(compare(&Value::UInt(u64::MAX), &Value::Int(-1)), Some(Ordering::Greater));
    assert_eq!(compare(&Value::Int(1), &Value::Text("1")), None);
}
