//! Why a record came to its change: which dialect and schema it was read by, what ordered it, and the rule that gave each value.
//!
//! For people, after the fact: nothing here is on the way of a record.

use super::decoder::Decoder;
use super::field::{BinaryStrings, DecimalStrings, ElementWire, Field, MICROS, MILLIS, Wire, WireOf};
use super::plan::{Beside, Plan, Substitute};
use super::{Dialect, Options, Order, Record, declared_type, inferred_type};
use crate::types::LogicalType;

/// What a record was read by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The dialect.
    pub dialect: Dialect,
    /// What its value is written in: `avro`, `json`, `protobuf`; `none` for a null.
    pub encoding: &'static str,
    /// Where the types of its columns come from.
    pub schema: String,
    /// What orders its change.
    pub order: &'static str,
    /// Its columns, and those that were left out.
    pub columns: Vec<ColumnRule>,
}

/// The rule by which a column was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnRule {
    /// Its name in the source.
    pub member: String,
    /// Its name behind the decoder, where it has another.
    pub renamed: Option<String>,
    /// Its type there; `None` where it is left out.
    pub ty: Option<LogicalType>,
    /// Whether it is part of the key.
    pub is_key: bool,
    /// The rule.
    pub rule: String,
}

impl Decoder {
    /// Explains the record that was decoded last, whose change names that connector; columns are those of its plan.
    pub fn explain(&self, record: &Record<'_>, connector: &str) -> Explanation {
        let options = self.options();
        let plan = self.last_plan();
        let rule = |(member, field): (usize, &Field)| {
            let renamed = options.renamed(&field.name);
            let ty = if options.substitute(&field.name).is_some() { LogicalType::Text } else { field.ty };
            ColumnRule {
                member: field.name.clone(),
                renamed: (renamed != field.name).then(|| renamed.to_owned()),
                ty: field.wire.map(|_| ty),
                is_key: plan.is_some_and(|plan| plan.is_key(member)),
                rule: plan.map_or_else(String::new, |plan| rule(options, plan, member, field)),
            }
        };
        Explanation {
            dialect: options.dialect,
            encoding: self.format(record).unwrap_or("none"),
            schema: self.schema_text(record),
            order: order(options, record, connector),
            columns: plan.map(|plan| plan.fields().iter().enumerate().map(rule).collect()).unwrap_or_default(),
        }
    }
}

fn order(options: &Options, record: &Record<'_>, connector: &str) -> &'static str {
    if record.value.is_none() && options.dialect != Dialect::Plain {
        return "behind the record of its key before it (a null value has no place of its own)";
    }
    match (options.order, connector) {
        (Order::Offset, _) => "its offset, within the epoch of its source",
        (_, "postgresql") => "the commit and the LSN of its source block",
        (_, "mysql" | "mariadb") => "the file, the position and the row of its source block",
        (_, "mongodb") => "the time and the ordinal of its source block",
        (Order::DialectElseOffset | Order::Dialect, _) => "its offset, since its connector tells no place",
    }
}

/// The rule of a field in words.
fn rule(options: &Options, plan: &Plan, member: usize, field: &Field) -> String {
    let Some(wire) = field.wire else {
        return if field.is_untyped { "no column yet: nothing but NULL was seen" } else { "left out" }.to_owned();
    };
    let present = plan.present().len();
    let mut text = match plan.beside().get(member.wrapping_sub(present)) {
        Some(Beside::Key(_)) => "the record key's, ".to_owned(),
        Some(Beside::Header(name)) => format!("header {name:?}, "),
        None if member >= present => {
            let how = if inferred_type(options, &field.name).is_some() { "inferred" } else { "declared" };
            return format!("{how}, and not in the row: NULL in a new row, kept in an update");
        }
        None => String::new(),
    };
    if declared_type(options, &field.name).is_some() {
        text.push_str("declared, ");
    } else if wire == Wire::Literal {
        text.push_str("inferred, ");
    }
    text.push_str(&wire_text(wire, field.ty));
    text.push_str(match options.substitute(&field.name) {
        Some(Substitute::Mask(_)) => ", masked",
        Some(Substitute::Text) => ", as its text",
        None => "",
    });
    text
}

fn wire_text(wire: Wire, ty: LogicalType) -> String {
    let unit = |per_second: i64| match per_second {
        MILLIS => "millis",
        MICROS => "micros",
        _ => "nanos",
    };
    let strings = |strings: BinaryStrings| match strings {
        BinaryStrings::Base64 => "bytes, base64 in JSON",
        BinaryStrings::Base64UrlSafe => "bytes in base64 for URLs",
        BinaryStrings::Hex => "bytes in hexadecimal",
    };
    match wire {
        WireOf::Bool => "true or false".to_owned(),
        WireOf::Integer => "an integer".to_owned(),
        WireOf::Wrapped => "a signed integer of 64 bits that holds an unsigned one".to_owned(),
        WireOf::Float32 | WireOf::Float64 => "a float".to_owned(),
        WireOf::Decimal { scale } => format!("an unscaled integer, scale {scale}"),
        WireOf::NoScale => "an unscaled integer whose scale is not told".to_owned(),
        WireOf::VariableDecimal => "a scale and an unscaled integer".to_owned(),
        WireOf::DecimalText => "a number by its digits".to_owned(),
        WireOf::Text => "text".to_owned(),
        WireOf::Json => "a document in a string".to_owned(),
        WireOf::Bytes(how) => strings(how).to_owned(),
        WireOf::Uuid => "the text of a UUID".to_owned(),
        WireOf::Days => "days since 1970-01-01".to_owned(),
        WireOf::Time { per_second } if matches!(ty, LogicalType::Duration { .. }) => format!("{} of a span", unit(per_second)),
        WireOf::Time { per_second } => format!("{} since midnight", unit(per_second)),
        WireOf::Timestamp { per_second } => format!("{} since 1970", unit(per_second)),
        WireOf::Iso => "ISO 8601".to_owned(),
        WireOf::Bits => "bits, the lowest byte first".to_owned(),
        WireOf::Geometry => "well-known binary with its reference system".to_owned(),
        WireOf::Literal => "as its kind is written in JSON".to_owned(),
        WireOf::Extended => "extended JSON, which says its own type".to_owned(),
        WireOf::Array(element) => format!(
            "an array of: {}",
            wire_text(ElementWire::widen(element), if let LogicalType::Array(element) = ty { element.widen() } else { ty })
        ),
        WireOf::Declared { decimal_strings, binary_strings, .. } => match ty {
            LogicalType::Bytes => strings(binary_strings).to_owned(),
            LogicalType::Decimal { .. } if decimal_strings == DecimalStrings::Base64 => "a number, or its unscaled integer in base64".to_owned(),
            LogicalType::Time { digits }
            | LogicalType::Timestamp { digits }
            | LogicalType::TimestampTz { digits }
            | LogicalType::Duration { digits } => {
                let unit = match digits {
                    0..=3 => "millis",
                    4..=6 => "micros",
                    _ => "nanos",
                };
                format!("{unit} if it is a number (by the digits of its type), else ISO 8601")
            }
            LogicalType::Date => "days since 1970 if it is a number, else ISO 8601".to_owned(),
            _ => "as its type is written in JSON".to_owned(),
        },
    }
}
