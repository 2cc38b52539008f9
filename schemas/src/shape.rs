//! What the values of a member have been, where nobody says its type, and the column type that this comes to (SEMANTICS.md B.1, B.2).
//!
//! A [`Shape`] is the set of the kinds of values that were seen. Joining is the union of sets, so it is idempotent, commutative, associative and
//! only ever loosens: what comes of a sample never depends on its order. Lengths, bounds and formats are left out on purpose: no column type
//! hangs on them. A string that looks like a date stays text, since the next one may not look like one; exactness comes before convenience.

use crate::json::Token;
use crate::types::LogicalType;

/// The kinds of values that a member has had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shape(u8);

impl Shape {
    /// Nothing was seen yet: the bottom of the lattice.
    pub const NOTHING: Self = Self(0);
    /// `null`, which every column takes.
    pub const NULL: Self = Self(1);
    /// `true` and `false`.
    pub const BOOL: Self = Self(1 << 1);
    /// A whole number within 64 bits.
    pub const INTEGER: Self = Self(1 << 2);
    /// A whole number beyond them.
    pub const LARGE: Self = Self(1 << 3);
    /// A number with a fraction or an exponent.
    pub const FRACTION: Self = Self(1 << 4);
    /// A string.
    pub const STRING: Self = Self(1 << 5);
    /// An array.
    pub const ARRAY: Self = Self(1 << 6);
    /// An object.
    pub const OBJECT: Self = Self(1 << 7);

    /// Numbers of every kind.
    pub const NUMBERS: Self = Self(Self::INTEGER.0 | Self::LARGE.0 | Self::FRACTION.0);

    /// The shape of one value.
    pub fn of(token: &Token<'_>) -> Self {
        match token {
            Token::Null => Self::NULL,
            Token::Bool(_) => Self::BOOL,
            Token::Number(digits) if digits.bytes().any(|b| matches!(b, b'.' | b'e' | b'E')) => Self::FRACTION,
            Token::Number(digits) if digits.parse::<i64>().is_ok() => Self::INTEGER,
            Token::Number(_) => Self::LARGE,
            Token::String(_) => Self::STRING,
            Token::Array(_) => Self::ARRAY,
            Token::Object(_) => Self::OBJECT,
        }
    }

    /// The least shape that covers both.
    #[must_use]
    pub const fn join(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every kind of the other is one of this.
    pub const fn covers(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The type of a column that takes every value seen, exactly; `None` where none but NULL was seen, so there is no column yet.
    ///
    /// Numbers are never floats: whole ones are `int64` while they fit, all others `numeric`. Kinds that disagree are documents, which keep each
    /// value as it was written: a number made text would be equal to a string of its digits.
    pub const fn column(self) -> Option<LogicalType> {
        let kinds = Self(self.0 & !Self::NULL.0);
        if kinds.0 == 0 {
            return None;
        }
        Some(if Self::BOOL.covers(kinds) {
            LogicalType::Bool
        } else if Self::INTEGER.covers(kinds) {
            LogicalType::Int64
        } else if Self::NUMBERS.covers(kinds) {
            LogicalType::Numeric
        } else if Self::STRING.covers(kinds) {
            LogicalType::Text
        } else {
            LogicalType::Json
        })
    }

    /// The type of a key column, likewise; else what was seen that no key can be.
    pub const fn key_column(self) -> Result<Option<LogicalType>, &'static str> {
        match self.column() {
            Some(LogicalType::Json) => Err("values of several kinds, or objects or arrays"),
            Some(_) if self.covers(Self::FRACTION) => Err("numbers with a fraction or an exponent, which may be floats"),
            column => Ok(column),
        }
    }

    /// A shape that the type of a column stands for: what it takes where it was inferred.
    pub const fn of_column(ty: LogicalType) -> Self {
        match ty {
            LogicalType::Bool => Self::BOOL,
            LogicalType::Int8 | LogicalType::Int16 | LogicalType::Int32 | LogicalType::Int64 => Self::INTEGER,
            LogicalType::UInt8 | LogicalType::UInt16 | LogicalType::UInt32 => Self::INTEGER,
            LogicalType::Numeric | LogicalType::Float32 | LogicalType::Float64 => Self::NUMBERS,
            LogicalType::Text => Self::STRING,
            _ => Self(u8::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Scanner;

    fn all() -> impl Iterator<Item = Shape> + Clone {
        (0..=u8::MAX).map(Shape)
    }

    fn of(text: &str) -> Shape {
        Shape::of(&Scanner::new(text).value().expect(text))
    }

    fn column(texts: &[&str]) -> Option<String> {
        texts.iter().fold(Shape::NOTHING, |shape, text| shape.join(of(text))).column().map(|ty| ty.to_string())
    }

    /// The lattice is small enough to be looked at whole: 256 shapes, and every pair and triple of them.
    #[test]
    fn joining_is_idempotent_commutative_associative_and_only_loosens() {
        for a in all() {
            assert_eq!((a.join(a), a.join(Shape::NOTHING)), (a, a));
            for b in all() {
                let joined = a.join(b);
                assert_eq!(joined, b.join(a));
                assert!(joined.covers(a) && joined.covers(b));
                assert!(all().filter(|c| c.covers(a) && c.covers(b)).all(|c| c.covers(joined)), "it is the least");
                for c in all().step_by(7) {
                    assert_eq!(joined.join(c), a.join(b.join(c)));
                }
            }
        }
    }

    #[test]
    fn a_wider_shape_has_a_column_that_takes_all_that_a_narrower_one_takes() {
        for a in all() {
            for b in all().filter(|b| b.covers(a)) {
                let takes = |shape: Shape| shape.column().map_or(Shape::NULL, |ty| Shape::of_column(ty).join(Shape::NULL));
                assert!(takes(b).covers(takes(a)) && takes(b).covers(b), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn columns_are_exact() {
        for (texts, expected) in [
            (&["null"][..], None),
            (&[], None),
            (&["1", "-9223372036854775808", "null"], Some("int64")),
            (&["1", "9223372036854775808"], Some("numeric")),
            (&["1", "1.5"], Some("numeric")),
            (&["1e3"], Some("numeric")),
            (&["\"2024-01-01\"", "\"x\""], Some("text")),
            (&["true", "false"], Some("bool")),
            (&["true", "1"], Some("json")),
            (&["1", "\"1\""], Some("json")),
            (&["{}", "[]", "null"], Some("json")),
            (&["1", "[1]"], Some("json")),
        ] {
            assert_eq!(column(texts).as_deref(), expected, "{texts:?}");
        }
    }

    #[test]
    fn keys_are_neither_floats_nor_documents() {
        let key = |texts: &[&str]| texts.iter().fold(Shape::NOTHING, |s, t| s.join(of(t))).key_column().map(|ty| ty.map(|ty| ty.to_string()));
        assert_eq!(key(&["1"]), Ok(Some("int64".to_owned())));
        assert_eq!(key(&["1", "99999999999999999999"]), Ok(Some("numeric".to_owned())));
        assert_eq!(key(&["\"a\""]), Ok(Some("text".to_owned())));
        assert_eq!(key(&["null"]), Ok(None));
        assert!(key(&["1", "1.5"]).is_err() && key(&["1", "\"a\""]).is_err() && key(&["{}"]).is_err());
    }
}
