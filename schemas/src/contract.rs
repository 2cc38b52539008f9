//! The Avro contract of a table's changes: the writer schema that the single-object fingerprint names.
//!
//! One contract per table schema. It is plain Avro, so any Avro library reads the log; what Avro cannot say (exact types, original names,
//! the key) is the property `landfall` of the outer record. The namespace holds a hash of all of that, since Avro's fingerprint sees names
//! but not logical types: two schemas that differ in anything have two fingerprints.

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::avro::{canonical_form, crc64};
use crate::table::{Column, SchemaError, TableSchema};
use crate::types::LogicalType;

/// Version of the layout of `Change`; it is part of every contract, and every released one stays readable.
pub const VERSION: u32 = 1;

/// Identity of a contract: CRC-64-AVRO of its parsing canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub u64);

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A contract that is not one of ours, or not of a version that this build knows.
#[derive(Debug, thiserror::Error)]
pub enum ContractError {
    /// Not JSON, or without our property.
    #[error("not a contract of the change log")]
    Foreign(#[source] Option<serde_json::Error>),
    /// Written by a newer build.
    #[error("contract version {found} is newer than {VERSION}, the newest that this build reads")]
    Version {
        /// The version found.
        found: u32,
    },
    /// Columns and key contradict each other.
    #[error("a contract with an impossible table schema")]
    Schema(#[source] SchemaError),
}

#[derive(Serialize, Deserialize)]
struct Property {
    version: u32,
    table: String,
    key: Vec<String>,
    columns: Vec<ColumnProperty>,
}

#[derive(Serialize, Deserialize)]
struct ColumnProperty {
    name: String,
    r#type: LogicalType,
    nullable: bool,
}

/// What every contract of a table schema has in common: the property `landfall`, and the namespace that holds its hash.
fn identity(schema: &TableSchema) -> (Json, String) {
    let property = Property {
        version: VERSION,
        table: schema.table().to_owned(),
        key: schema.key_columns().map(|c| c.name.clone()).collect(),
        columns: schema.columns().iter().map(|c| ColumnProperty { name: c.name.clone(), r#type: c.ty, nullable: c.nullable }).collect(),
    };
    let property = serde_json::to_value(property).expect("strings and numbers always serialise");
    let hash = crc64(property.to_string().as_bytes());
    (property, format!("landfall.{}.s{hash:016x}", avro_name(schema.table())))
}

/// The fields of a record of columns.
fn fields<'c>(columns: impl Iterator<Item = &'c Column>, nullable: bool, defined: &mut Defined) -> Json {
    columns
        .map(|c| {
            let ty = avro_type(c.ty, defined);
            if nullable {
                json!({"name": avro_name(&c.name), "type": ["null", ty], "default": null})
            } else {
                json!({"name": avro_name(&c.name), "type": ty})
            }
        })
        .collect()
}

/// A contract with its property, and its fingerprint, which does not depend on that.
fn finished(mut contract: Json, property: Json) -> (String, Fingerprint) {
    let canonical = canonical_form(&contract, "");
    if let Json::Object(map) = &mut contract {
        map.insert("landfall".to_owned(), property);
    }
    (contract.to_string(), Fingerprint(crc64(canonical.as_bytes())))
}

/// The contract of whole rows of a table schema: the type `Row` of the change contract, standing alone. It is what the values of
/// `<log topic>.latest` name (ARCHITECTURE.md, The log).
pub fn of_rows(schema: &TableSchema) -> (String, Fingerprint) {
    let (property, namespace) = identity(schema);
    let contract = json!({
        "type": "record", "name": "Row", "namespace": namespace, "doc": "A whole row; columns that the source does not send are completed.",
        "fields": fields(schema.columns().iter(), true, &mut Defined::default()),
    });
    finished(contract, property)
}

/// The full name of the record that a contract is of; no two contracts have one.
pub fn name(schema: &TableSchema) -> String {
    format!("{}.Change", identity(schema).1)
}

/// The contract of a table schema as Avro JSON, with its fingerprint.
pub fn of(schema: &TableSchema) -> (String, Fingerprint) {
    let (property, namespace) = identity(schema);
    let mut defined = Defined::default();
    let contract = json!({
        "type": "record", "name": "Change", "namespace": namespace, "doc": "One change of one row, or a mark that concerns every row.",
        "fields": [
            {"name": "op", "doc": "c create, u update, d delete, r snapshot read, t truncate, s end of a full snapshot",
             "type": {"type": "enum", "name": "Op", "symbols": ["c", "u", "d", "r", "t", "s"]}},
            {"name": "sequence", "doc": "Order-preserving position in the source; null for a bare tombstone.", "type": ["null", "bytes"]},
            {"name": "event_time", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
            {"name": "source", "type": {"type": "record", "name": "Source", "fields": [
                {"name": "connector", "type": "string"}, {"name": "database", "type": "string"},
                {"name": "schema", "type": "string"}, {"name": "table", "type": "string"},
                {"name": "transaction", "type": ["null", "string"]}, {"name": "transaction_order", "type": ["null", "long"]}]}},
            {"name": "snapshot", "doc": "Id of the full snapshot that read the row, or that ended.", "type": ["null", "long"]},
            {"name": "unauthored", "doc": "Positions in Row of the columns that this change does not carry: neither NULL nor a value.",
             "type": {"type": "array", "items": "int"}},
            {"name": "key", "type": ["null", {"type": "record", "name": "Key", "fields": fields(schema.key_columns(), false, &mut defined)}]},
            {"name": "other_key", "doc": "Half of a key change: the new key of a delete, the former key of what created the row anew.",
             "type": ["null", "Key"]},
            {"name": "before", "type": ["null", {"type": "record", "name": "Row", "fields": fields(schema.columns().iter(), true, &mut defined)}]},
            {"name": "after", "type": ["null", "Row"]},
        ],
    });
    finished(contract, property)
}

/// Reads a contract back into the table schema that it was made of.
pub fn parse(text: &str) -> Result<TableSchema, ContractError> {
    #[derive(Deserialize)]
    struct Outer {
        landfall: Json,
    }
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let foreign = |e| ContractError::Foreign(Some(e));
    let outer: Outer = serde_json::from_str(text).map_err(foreign)?;
    let Version { version } = Version::deserialize(&outer.landfall).map_err(foreign)?;
    if version > VERSION {
        return Err(ContractError::Version { found: version });
    }
    let property: Property = serde_json::from_value(outer.landfall).map_err(foreign)?;
    let columns = property.columns.into_iter().map(|c| Column { name: c.name, ty: c.r#type, nullable: c.nullable }).collect();
    TableSchema::new(property.table, columns, &property.key).map_err(ContractError::Schema)
}

/// Which of the named column types a contract has defined already: Avro defines a name at its first use and refers to it after that.
#[derive(Default)]
struct Defined {
    uuid: bool,
    numeric: bool,
    interval: bool,
}

fn avro_type(ty: LogicalType, defined: &mut Defined) -> Json {
    let logical = |base: &str, name: &str| json!({"type": base, "logicalType": name});
    match ty {
        LogicalType::Bool => json!("boolean"),
        LogicalType::Int8 | LogicalType::Int16 | LogicalType::Int32 | LogicalType::UInt8 | LogicalType::UInt16 => json!("int"),
        LogicalType::Int64 | LogicalType::UInt32 => json!("long"),
        LogicalType::UInt64 => json!({"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0}),
        LogicalType::Float32 => json!("float"),
        LogicalType::Float64 => json!("double"),
        LogicalType::Decimal { precision, scale } => json!({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}),
        LogicalType::Numeric if std::mem::replace(&mut defined.numeric, true) => json!("Numeric"),
        LogicalType::Numeric => json!({"type": "record", "name": "Numeric", "doc": "unscaled divided by 10 to the power of scale", "fields": [
            {"name": "scale", "type": "int"}, {"name": "unscaled", "doc": "big-endian two's complement", "type": "bytes"}]}),
        LogicalType::Text => json!("string"),
        LogicalType::Bytes => json!("bytes"),
        LogicalType::Uuid if std::mem::replace(&mut defined.uuid, true) => json!("Uuid"),
        LogicalType::Uuid => json!({"type": "fixed", "name": "Uuid", "size": 16, "logicalType": "uuid"}),
        LogicalType::Date => logical("int", "date"),
        LogicalType::Time { digits } if digits <= 6 => logical("long", "time-micros"),
        LogicalType::Time { .. } => logical("long", "time-nanos"),
        LogicalType::Timestamp { digits } if digits <= 6 => logical("long", "local-timestamp-micros"),
        LogicalType::Timestamp { .. } => logical("long", "local-timestamp-nanos"),
        LogicalType::TimestampTz { digits } if digits <= 6 => logical("long", "timestamp-micros"),
        LogicalType::TimestampTz { .. } => logical("long", "timestamp-nanos"),
        LogicalType::Duration { .. } => json!("long"),
        LogicalType::Interval if std::mem::replace(&mut defined.interval, true) => json!("Interval"),
        LogicalType::Interval => {
            json!({"type": "record", "name": "Interval", "doc": "a span of the calendar; each part has its own sign", "fields": [
            {"name": "months", "type": "int"}, {"name": "days", "type": "int"}, {"name": "micros", "type": "long"}]})
        }
        LogicalType::Json | LogicalType::Bits { .. } => json!("string"),
        LogicalType::Array(element) => json!({"type": "array", "items": ["null", avro_type(element.widen(), defined)]}),
    }
}

/// An Avro name for any text: letters, digits and `_` stay, everything else (and `_x` itself, which marks an escape) is `_x` and hex.
fn avro_name(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let plain = c.is_ascii_alphabetic() || (c == '_' && rest.peek() != Some(&'x')) || (c.is_ascii_digit() && !out.is_empty());
        if plain {
            out.push(c);
        } else {
            out.push_str(&format!("_x{:x}_", u32::from(c)));
        }
    }
    if out.is_empty() { "_x_".to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(columns: &[(&str, &str)], key: &[&str]) -> TableSchema {
        let columns = columns.iter().map(|(n, t)| Column { name: (*n).to_owned(), ty: t.parse().expect(t), nullable: false }).collect();
        TableSchema::new("orders", columns, key).expect("a valid schema")
    }

    #[test]
    fn contracts_give_back_their_schema() {
        let schema = schema(&[("id", "uuid"), ("with space", "text"), ("日本", "numeric"), ("again", "uuid"), ("list", "array(uuid)")], &["id"]);
        let (text, _) = of(&schema);
        assert_eq!(parse(&text).expect("our own contract"), schema);
    }

    #[test]
    fn a_row_alone_has_a_contract_of_its_own() {
        let schema = schema(&[("id", "uuid"), ("n", "numeric"), ("again", "uuid"), ("span", "interval"), ("list", "array(numeric)")], &["id"]);
        let (text, fingerprint) = of_rows(&schema);
        assert_ne!(fingerprint, of(&schema).1);
        assert_eq!(parse(&text).expect("our own contract"), schema);
        // Each named type is defined where it first stands: another reader takes it as it is.
        let read = crate::avro::Schema::parse(&text, &[]).expect("an Avro schema");
        assert_eq!(read.record(read.root()).map(<[_]>::len), Some(5));
    }

    #[test]
    fn any_difference_gives_another_fingerprint() {
        let base = of(&schema(&[("id", "int32"), ("a", "date")], &["id"])).1;
        for other in [
            schema(&[("id", "int32"), ("a", "int32")], &["id"]),
            schema(&[("id", "int16"), ("a", "date")], &["id"]),
            schema(&[("a", "date"), ("id", "int32")], &["id"]),
            schema(&[("id", "int32"), ("a", "date")], &["id", "a"]),
            schema(&[("id", "int32"), ("b", "date")], &["id"]),
        ] {
            assert_ne!(of(&other).1, base);
        }
    }

    #[test]
    fn names_never_collide() {
        assert_eq!(avro_name("price"), "price");
        assert_eq!(avro_name("_x20_"), "_x5f_x20_");
        assert_eq!(avro_name(" "), "_x20_");
        assert_eq!(avro_name("1a"), "_x31_a");
    }

    #[test]
    fn foreign_and_newer_contracts_are_refused() {
        assert!(matches!(parse("{}"), Err(ContractError::Foreign(_))));
        assert!(matches!(parse("{\"landfall\":{\"version\":2}}"), Err(ContractError::Version { found: 2 })));
    }
}
