//! Arrays: their elements, read one after the other into one run of canonical bytes.

use super::datum::Unpacked;
use super::plan::MOVED_FREELY;
use super::reject::Fault;
use crate::json::{Scanner, Token};
use crate::row;
use crate::types::{ElementType, LogicalType};
use crate::value::{Array, Value};

/// Reads the elements of a JSON array; `put` writes one that is not NULL.
pub(super) fn json_array<'s>(
    ty: LogicalType,
    token: &Token<'_>,
    unpacked: &'s mut Unpacked,
    put: impl Fn(Token<'_>, LogicalType, &mut Unpacked, &mut Vec<u8>) -> Result<(), Fault>,
) -> Result<Value<'s>, Fault> {
    let Token::Array(raw) = token else { return Err(Fault::Kind) };
    let mut scanner = Scanner::new(raw);
    scanner.enter_array().map_err(|_| Fault::Kind)?;
    let mut elements = Elements::of(ty, unpacked)?;
    let mut first = true;
    while let Some(token) = scanner.element(first).map_err(|_| Fault::Kind)? {
        first = false;
        elements.add(|ty, unpacked, out| match token {
            Token::Null => row::put(ty, Value::Null, out).map_err(Fault::from),
            token => put(token, ty, unpacked, out),
        })?;
    }
    Ok(elements.value())
}

/// Writes an element. Those that ask for many digits are refused: they have no part in the budget of their record.
pub(super) fn put_element(ty: LogicalType, value: Value<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    if let (LogicalType::Decimal { scale, .. }, Value::Decimal(v)) = (ty, &value)
        && (i64::from(v.scale) - i64::from(scale)).unsigned_abs() > MOVED_FREELY.into()
        && !v.is_zero()
    {
        return Err(Fault::Range);
    }
    row::put(ty, value, out).map_err(Fault::from)
}

/// The elements of an array, one after the other; each has the buffers of a value for itself while it is read.
pub(super) struct Elements<'s> {
    element: ElementType,
    len: usize,
    items: Vec<u8>,
    unpacked: &'s mut Unpacked,
}

impl<'s> Elements<'s> {
    pub(super) fn of(ty: LogicalType, unpacked: &'s mut Unpacked) -> Result<Self, Fault> {
        let LogicalType::Array(element) = ty else { return Err(Fault::Kind) };
        let mut items = std::mem::take(&mut unpacked.items);
        items.clear();
        Ok(Self { element, len: 0, items, unpacked })
    }

    pub(super) fn add(&mut self, put: impl FnOnce(LogicalType, &mut Unpacked, &mut Vec<u8>) -> Result<(), Fault>) -> Result<(), Fault> {
        self.len += 1;
        put(self.element.widen(), self.unpacked, &mut self.items)?;
        if self.items.len() > self.unpacked.elements { Err(Fault::Range) } else { Ok(()) }
    }

    pub(super) fn value(self) -> Value<'s> {
        let Self { element, len, items, unpacked } = self;
        unpacked.elements -= items.len();
        unpacked.items = items;
        Value::Array(Array { element, len, items: &unpacked.items })
    }
}
