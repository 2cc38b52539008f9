//! The schema part of a record: Connect's schema as JSON, turned into fields once and then kept.
//!
//! A column's type is its semantic name with its parameters, never the primitive under it (case TMP-02); names that are not known are not
//! guessed at, they stop the table unless the column is excluded or its type declared. Which primitive carries which semantic type is
//! checked here too, so that reading a row needs to check tokens only.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::field::{BinaryStrings, DecimalStrings, Field, MICROS, MILLIS, NANOS, Wire};
use super::reject::{Code, Reject};
use super::{Options, declared_type};
use crate::table::COLUMNS_MAX;
use crate::types::{BITS_MAX, ElementType, LogicalType};

/// Bits of a scale in a Postgres type modifier: negative scales appear as `2048 - n` (STACK.md).
const POSTGRES_SCALE_MODULUS: i32 = 2048;
/// The greatest scale that a Postgres column declares.
const POSTGRES_SCALE_MAX: i32 = 1000;

/// What an array of a registered record is called here: its elements are no tokens of JSON.
const REGISTERED_ARRAY: &str = "array of elements";

/// The scale that stands for none.
const ORACLE_NO_SCALE: i32 = 127;

/// A Connect schema, as far as it matters.
#[derive(Debug, Deserialize)]
pub(super) struct Schema<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(default)]
    optional: bool,
    #[serde(borrow, default)]
    field: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    fields: Option<Vec<Schema<'a>>>,
    /// What an array's elements are.
    #[serde(borrow, default)]
    items: Option<Box<Schema<'a>>>,
    #[serde(borrow, default)]
    parameters: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    /// Whether its writer left semantic names out.
    #[serde(skip)]
    is_bare: bool,
}

impl<'a> Schema<'a> {
    /// Reads the text of a schema part; `part` is `key` or `value`.
    pub(super) fn parse(text: &'a str, part: &str) -> Result<Self, Reject> {
        // The error of serde would quote the schema, which may hold a default value.
        let reject = |e: serde_json::Error| {
            Reject::new(Code::EnvelopeSchema, format!("the schema part of the {part} is not a Connect schema (at {})", e.column()))
        };
        serde_json::from_str(text).map_err(reject)
    }

    /// A column that another encoding describes.
    pub(super) fn column(
        field: &'a str,
        r#type: &'a str,
        name: Option<&'a str>,
        optional: bool,
        parameters: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    ) -> Self {
        Self {
            r#type: r#type.into(),
            name: name.map(Cow::from),
            optional,
            field: Some(field.into()),
            fields: None,
            items: None,
            parameters: Some(parameters),
            is_bare: false,
        }
    }

    /// The same, by a writer that leaves semantic names out: what a primitive means is not told, so it may be declared.
    pub(super) fn bare(self) -> Self {
        Self { is_bare: true, ..self }
    }

    /// An array of such columns.
    pub(super) fn array_of(field: &'a str, items: Self, optional: bool) -> Self {
        let items = Some(Box::new(items));
        Self {
            r#type: REGISTERED_ARRAY.into(),
            name: None,
            optional,
            field: Some(field.into()),
            fields: None,
            items,
            parameters: None,
            is_bare: false,
        }
    }

    /// The same, under the name of a column.
    pub(super) fn named(self, field: &'a str) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// Whether it describes an object of members rather than one value.
    pub(super) fn has_members(&self) -> bool {
        self.fields.is_some()
    }

    /// A row of such columns.
    pub(super) fn row_of(columns: Vec<Self>) -> Self {
        Self {
            r#type: "struct".into(),
            name: None,
            optional: false,
            field: None,
            fields: Some(columns),
            items: None,
            parameters: None,
            is_bare: false,
        }
    }

    /// The fields of a struct.
    pub(super) fn fields(&self) -> &[Self] {
        self.fields.as_deref().unwrap_or_default()
    }

    /// The row type of an envelope, or `None` for the schema of something else.
    pub(super) fn row(&self) -> Option<&Self> {
        let member = |name: &str| self.fields().iter().find(|f| f.field.as_deref() == Some(name));
        member("op")?;
        member("after").or_else(|| member("before"))
    }

    /// Whether an envelope is of a connector whose times are spans: it names itself in the type of its source block.
    pub(super) fn has_spans(&self) -> bool {
        let source = self.fields().iter().find(|f| f.field.as_deref() == Some("source"));
        source.and_then(|s| s.name.as_deref()).is_some_and(has_spans)
    }

    /// The fields of a row or a key as they are read. Everything that cannot be read is named at once. With `spans`, a time is not one of day.
    pub(super) fn compile(&self, options: &Options, spans: bool) -> Result<Vec<Field>, Reject> {
        if self.fields().len() > COLUMNS_MAX {
            return Err(Reject::too_many("schema part", self.fields().len()));
        }
        let mut fields = Vec::with_capacity(self.fields().len());
        let (mut unsupported, mut conflicts) = (Vec::new(), Vec::new());
        for schema in self.fields() {
            let name = schema.field.as_deref().unwrap_or_default().to_owned();
            if options.leaves_out(&name) {
                fields.push(Field::new(name, None, LogicalType::Text, true));
                continue;
            }
            let natural = schema.natural().map(|(wire, ty)| match (wire, ty) {
                // MySQL's reach from -838 to 838 hours, at whatever precision (case TMP-07).
                (Wire::Time { .. }, LogicalType::Time { digits }) if spans || has_spans(options.connector) => {
                    (wire, LogicalType::Duration { digits })
                }
                natural => natural,
            });
            let read = match (declared_type(options, &name), natural) {
                (Some(declared), natural) => match schema.as_declared(declared, natural, options) {
                    Some(wire) => Some((wire, declared)),
                    None => {
                        conflicts.push(format!("{name:?} ({} as {declared})", schema.label()));
                        None
                    }
                },
                (None, Some(natural)) => Some(natural),
                (None, None) => {
                    unsupported.push(format!("{name:?} ({})", schema.label()));
                    None
                }
            };
            if let Some((wire, ty)) = read {
                fields.push(Field::new(name, Some(wire), ty, schema.optional));
            }
        }
        let table = &options.table;
        if !unsupported.is_empty() {
            let reason = format!("table {table:?} has columns of types that cannot be represented yet: {}", super::list(&unsupported));
            return Err(Reject::new(Code::TypeUnsupported, reason));
        }
        if !conflicts.is_empty() {
            let reason = format!("table {table:?} has columns that cannot be read as their declared types: {}", super::list(&conflicts));
            return Err(Reject::new(Code::TypesConflict, reason));
        }
        Ok(fields)
    }

    /// What messages call the type.
    fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.r#type)
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.as_ref()?.get(name).map(Cow::as_ref)
    }

    /// The type in the source database, in upper case, where the connector propagates it.
    fn source_type(&self) -> String {
        self.parameter("__debezium.source.column.type").unwrap_or_default().to_ascii_uppercase()
    }

    /// How the column is read by its own schema, or `None` where no logical type represents it.
    fn natural(&self) -> Option<(Wire, LogicalType)> {
        let primitive = self.r#type.as_ref();
        let Some(name) = self.name.as_deref() else { return self.primitive() };
        let time = |per_second, digits| Some((Wire::Time { per_second }, LogicalType::Time { digits }));
        let timestamp = |per_second, digits| Some((Wire::Timestamp { per_second }, LogicalType::Timestamp { digits }));
        match (name, primitive) {
            ("io.debezium.time.Date" | "org.apache.kafka.connect.data.Date", "int32") => Some((Wire::Days, LogicalType::Date)),
            ("io.debezium.time.Time" | "org.apache.kafka.connect.data.Time", "int32") => time(MILLIS, 3),
            ("io.debezium.time.MicroTime", "int64") => time(MICROS, 6),
            ("io.debezium.time.NanoTime", "int64") => time(NANOS, 9),
            ("io.debezium.time.Timestamp" | "org.apache.kafka.connect.data.Timestamp", "int64") => timestamp(MILLIS, 3),
            ("io.debezium.time.MicroTimestamp", "int64") => timestamp(MICROS, 6),
            ("io.debezium.time.NanoTimestamp", "int64") => timestamp(NANOS, 9),
            // Avro's own instants; a connector's have names of Connect.
            ("timestamp-millis", "int64") => Some((Wire::Timestamp { per_second: MILLIS }, LogicalType::TimestampTz { digits: 3 })),
            ("timestamp-micros", "int64") => Some((Wire::Timestamp { per_second: MICROS }, LogicalType::TimestampTz { digits: 6 })),
            ("timestamp-nanos", "int64") => Some((Wire::Timestamp { per_second: NANOS }, LogicalType::TimestampTz { digits: 9 })),
            ("io.debezium.time.MicroDuration", "int64") => Some((Wire::Time { per_second: MICROS }, LogicalType::Duration { digits: 6 })),
            ("io.debezium.time.NanoDuration", "int64") => Some((Wire::Time { per_second: NANOS }, LogicalType::Duration { digits: 9 })),
            ("io.debezium.time.Interval", "string") => Some((Wire::Iso, LogicalType::Interval)),
            ("io.debezium.time.ZonedTimestamp", "string") => Some((Wire::Iso, LogicalType::TimestampTz { digits: 6 })),
            ("io.debezium.time.Year", "int32") => Some((Wire::Integer, LogicalType::Int32)),
            ("org.apache.kafka.connect.data.Decimal", "bytes") => self.decimal(),
            // In Protobuf each value tells its scale, whether the column has one or not.
            ("org.apache.kafka.connect.data.Decimal", "struct") => {
                Some((Wire::VariableDecimal, self.decimal().map_or(LogicalType::Numeric, |(_, ty)| ty)))
            }
            ("io.debezium.data.VariableScaleDecimal", "struct") => Some((Wire::VariableDecimal, LogicalType::Numeric)),
            ("io.debezium.data.Json", "string") => Some((Wire::Json, LogicalType::Json)),
            ("io.debezium.data.Uuid", "string") => Some((Wire::Uuid, LogicalType::Uuid)),
            ("io.debezium.data.Bits", "bytes") => {
                let length = self.parameter("length")?.parse().ok().filter(|n| (1..=BITS_MAX).contains(n))?;
                Some((Wire::Bits, LogicalType::Bits { length }))
            }
            ("io.debezium.data.geometry.Geometry" | "io.debezium.data.geometry.Geography" | "io.debezium.data.geometry.Point", "struct") => {
                Some((Wire::Geometry, LogicalType::Bytes))
            }
            (
                "io.debezium.time.ZonedTime"
                | "io.debezium.data.Enum"
                | "io.debezium.data.EnumSet"
                | "io.debezium.data.Xml"
                | "io.debezium.data.Ltree"
                | "io.debezium.data.Tsvector",
                "string",
            ) => Some((Wire::Text, LogicalType::Text)),
            _ => None,
        }
    }

    fn primitive(&self) -> Option<(Wire, LogicalType)> {
        let source_type = self.source_type();
        let unsigned = source_type.contains("UNSIGNED");
        let integer = |signed, unsigned_type| Some((Wire::Integer, if unsigned { unsigned_type } else { signed }));
        match self.r#type.as_ref() {
            "boolean" => Some((Wire::Bool, LogicalType::Bool)),
            "int8" => integer(LogicalType::Int8, LogicalType::UInt8),
            "int16" if source_type.starts_with("TINYINT") => integer(LogicalType::Int16, LogicalType::UInt8),
            "int16" => integer(LogicalType::Int16, LogicalType::UInt16),
            "int32" if source_type.starts_with("SMALLINT") => integer(LogicalType::Int32, LogicalType::UInt16),
            "int32" => integer(LogicalType::Int32, LogicalType::UInt32),
            "int64" if unsigned && (source_type.starts_with("BIGINT") || source_type.starts_with("INT8")) => {
                Some((Wire::Wrapped, LogicalType::UInt64))
            }
            "int64" => integer(LogicalType::Int64, LogicalType::UInt32),
            "uint32" => Some((Wire::Integer, LogicalType::UInt32)),
            "uint64" => Some((Wire::Wrapped, LogicalType::UInt64)),
            // What Connect's converter makes of its own timestamps, dates and times, none of which has a zone.
            "google.protobuf.Timestamp" => Some((Wire::Timestamp { per_second: NANOS }, LogicalType::Timestamp { digits: 6 })),
            "google.type.Date" => Some((Wire::Days, LogicalType::Date)),
            "google.type.TimeOfDay" => Some((Wire::Time { per_second: NANOS }, LogicalType::Time { digits: 6 })),
            "float" | "float32" => Some((Wire::Float32, LogicalType::Float32)),
            "double" | "float64" => Some((Wire::Float64, LogicalType::Float64)),
            "string" if ["NUMERIC", "DECIMAL", "NUMBER"].iter().any(|t| source_type.starts_with(t)) => {
                Some((Wire::DecimalText, LogicalType::Numeric))
            }
            "string" => Some((Wire::Text, LogicalType::Text)),
            "bytes" => Some((Wire::Bytes(BinaryStrings::Base64), LogicalType::Bytes)),
            "array" | REGISTERED_ARRAY => {
                let (wire, ty) = self.items.as_ref()?.natural()?;
                // A string of bits takes more than what carries it, which an array would multiply.
                let element = ty.element().filter(|element| !matches!(element, ElementType::Bits { .. }))?;
                Some((Wire::Array(wire.element()?), LogicalType::Array(element)))
            }
            _ => None,
        }
    }

    /// A decimal of declared precision keeps it; one without (money) carries its scale in each value.
    fn decimal(&self) -> Option<(Wire, LogicalType)> {
        let scale: i32 = self.parameter("scale")?.parse().ok()?;
        let wire = Wire::Decimal { scale };
        let Some(precision) = self.parameter("connect.decimal.precision") else { return Some((wire, LogicalType::Numeric)) };
        let precision: u32 = precision.parse().ok().filter(|p| (1..=crate::types::DECIMAL_PRECISION_MAX).contains(p))?;
        // The values of numeric(5,-2) come at scale 2046, so the wire keeps that; the column is what the modifier meant.
        let declared = if (POSTGRES_SCALE_MODULUS - POSTGRES_SCALE_MAX..POSTGRES_SCALE_MODULUS).contains(&scale) {
            scale - POSTGRES_SCALE_MODULUS
        } else {
            scale
        };
        // Oracle's word for a number without a declared scale; as a scale it would make every value tiny (case DEC-17).
        if declared == ORACLE_NO_SCALE && precision < ORACLE_NO_SCALE.unsigned_abs() {
            return Some((Wire::NoScale, LogicalType::Numeric));
        }
        Some((wire, LogicalType::decimal(precision, declared)?))
    }

    /// How the column is read as a type that the topology declares, or `None` where that would need a guess or lose something.
    fn as_declared(&self, declared: LogicalType, natural: Option<(Wire, LogicalType)>, options: &Options) -> Option<Wire> {
        let (any, decimal_strings) = (options.any(), options.decimal_strings);
        let is_text = self.r#type == "string";
        let is_decimal = matches!(declared, LogicalType::Decimal { .. } | LogicalType::Numeric);
        let Some((wire, ty)) = natural else {
            return match declared {
                LogicalType::Text if is_text => Some(Wire::Text),
                LogicalType::Json if matches!(self.r#type.as_ref(), "array" | "map" | "struct") => Some(any),
                LogicalType::Bytes if self.r#type == "bytes" => Some(Wire::Bytes(BinaryStrings::Base64)),
                LogicalType::Date | LogicalType::Time { .. } | LogicalType::Timestamp { .. } if is_text => Some(Wire::Iso),
                _ => None,
            };
        };
        if ty == declared {
            return Some(wire);
        }
        if self.is_bare
            && let Some(wire) = bare(wire, &self.r#type, declared)
        {
            return Some(wire);
        }
        match (wire, declared) {
            // Of Avro's arrays there is no text that a document could keep.
            (Wire::Array(_), LogicalType::Json) if self.r#type == "array" => Some(any),
            (Wire::Integer | Wire::Wrapped, LogicalType::UInt64) if self.r#type == "int64" => Some(Wire::Wrapped),
            (
                Wire::Integer,
                LogicalType::Int8
                | LogicalType::Int16
                | LogicalType::Int32
                | LogicalType::Int64
                | LogicalType::UInt8
                | LogicalType::UInt16
                | LogicalType::UInt32
                | LogicalType::UInt64,
            ) => Some(Wire::Integer),
            (Wire::Integer, LogicalType::Bool) => Some(any),
            (Wire::Integer, _) if is_decimal => Some(Wire::DecimalText),
            (Wire::Decimal { .. } | Wire::VariableDecimal | Wire::DecimalText, _) if is_decimal => Some(wire),
            // The double mode of decimals: its digits are those that the connector left.
            (Wire::Float32 | Wire::Float64, _) if is_decimal => Some(Wire::DecimalText),
            (Wire::Time { .. }, LogicalType::Time { .. } | LogicalType::Duration { .. })
            | (Wire::Timestamp { .. }, LogicalType::Timestamp { .. }) => Some(wire),
            (Wire::Iso, LogicalType::TimestampTz { .. }) => Some(wire),
            (Wire::Text, _) if is_decimal && decimal_strings == DecimalStrings::Numbers => Some(Wire::DecimalText),
            (Wire::Text, LogicalType::Json) => Some(Wire::Json),
            (Wire::Text, LogicalType::Uuid) => Some(Wire::Uuid),
            (Wire::Text, LogicalType::Bytes) => options.binary_strings.map(Wire::Bytes),
            (
                Wire::Text,
                LogicalType::Date
                | LogicalType::Time { .. }
                | LogicalType::Timestamp { .. }
                | LogicalType::TimestampTz { .. }
                | LogicalType::Duration { .. }
                | LogicalType::Interval,
            ) => Some(Wire::Iso),
            (_, LogicalType::Text) if is_text => Some(Wire::Text),
            _ => None,
        }
    }
}

/// How a primitive whose meaning is not told is read as a declared type: an integer in the unit of the type's digits, as without a schema part.
fn bare(wire: Wire, primitive: &str, declared: LogicalType) -> Option<Wire> {
    let unit = |digits: u8| match digits {
        0..=3 => MILLIS,
        4..=6 => MICROS,
        _ => NANOS,
    };
    match (wire, primitive, declared) {
        (Wire::Integer, "int32", LogicalType::Date) => Some(Wire::Days),
        (Wire::Integer, "int32" | "int64", LogicalType::Time { digits } | LogicalType::Duration { digits }) => {
            Some(Wire::Time { per_second: unit(digits) })
        }
        (Wire::Integer, "int64", LogicalType::Timestamp { digits } | LogicalType::TimestampTz { digits }) => {
            Some(Wire::Timestamp { per_second: unit(digits) })
        }
        (Wire::Timestamp { .. }, _, LogicalType::TimestampTz { .. }) => Some(wire),
        (Wire::Integer, "int64", LogicalType::UInt64) => Some(Wire::Wrapped),
        (Wire::Bytes(_), "bytes", LogicalType::Bits { .. }) => Some(Wire::Bits),
        _ => None,
    }
}

/// Whether the times of a connector, named somehow, are spans.
pub(super) fn has_spans(name: &str) -> bool {
    ["mysql", "mariadb"].iter().any(|connector| name.split('.').any(|part| part == *connector))
}
