//! A writer's schema: read from its own JSON, attributes and all, since libraries drop what primitives carry (case ENC-02).
//!
//! Types lie in one list and refer to each other by place, so that a type may contain itself. Nothing is resolved against a reader's schema:
//! what a record means is what its writer said, and how one schema follows another is decided behind this (law 12).

use std::collections::BTreeMap;

use hashbrown::HashMap;
use serde_json::{Map, Value as Json};

/// The longest text of a schema that is looked at.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// The most objects that it may have; a table of as many columns as may be has no more than three for each.
const OBJECTS_MAX: usize = 40_000;
/// The longest symbol of an enum, of which a byte of a record may be short: no database has longer ones.
pub(crate) const SYMBOL_BYTES_MAX: usize = 1 << 10;
/// The deepest that types are written within each other.
const DEPTH_MAX: usize = 64;

/// Place of a type in its [`Schema`].
pub type NodeId = usize;

/// A schema with the types that it is made of.
#[derive(Clone, Debug)]
pub struct Schema {
    nodes: Vec<Node>,
    root: NodeId,
}

/// A type and what its writer says of it beside.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// `connect.name`: the semantic type, where a connector wrote it.
    pub connect_name: Option<String>,
    /// `connect.type`: the integer that it was before Avro, which has but two.
    pub connect_type: Option<String>,
    /// `connect.parameters`.
    pub parameters: BTreeMap<String, String>,
    /// `logicalType`.
    pub logical: Option<String>,
    /// Digits of a decimal.
    pub precision: Option<u32>,
    /// Digits behind a decimal's point.
    pub scale: Option<i32>,
}

/// What a type is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "Avro's own names")]
pub enum Kind {
    #[default]
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed(usize),
    Enum(Vec<String>),
    Array(NodeId),
    Map(NodeId),
    Record(Vec<Member>),
    Union(Vec<NodeId>),
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its type.
    pub node: NodeId,
}

/// A schema that another one refers to, under the name by which it does.
#[derive(Clone, Debug)]
pub struct Reference {
    /// Full name of the type.
    pub name: String,
    /// Its schema's text.
    pub text: String,
}

/// A text that is no Avro schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// Not JSON, or too long.
    #[error("it is not the JSON of a schema")]
    Json,
    /// More objects than any table needs.
    #[error("it has more than {OBJECTS_MAX} objects")]
    Size,
    /// A type that is not written as Avro says.
    #[error("{0} is no type of Avro")]
    Type(String),
    /// A name that nothing has.
    #[error("type {0:?} is named and nowhere described")]
    Unknown(String),
    /// Types within types without end.
    #[error("types lie deeper within each other than {DEPTH_MAX}")]
    Depth,
}

impl Schema {
    /// Reads a schema; what it refers to comes first, in an order in which each knows those before it.
    pub fn parse(text: &str, references: &[Reference]) -> Result<Self, SchemaError> {
        let mut parser = Parser::default();
        for reference in references {
            let root = parser.text(&reference.text)?;
            let _ = parser.named.entry(reference.name.clone()).or_insert(root);
        }
        let root = parser.text(text)?;
        Ok(Self { nodes: parser.nodes, root })
    }

    /// The outermost type.
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// A type.
    #[inline]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// The fields of a record, or of the one record of a union with null.
    pub fn record(&self, id: NodeId) -> Option<&[Member]> {
        match &self.node(id).kind {
            Kind::Record(members) => Some(members),
            Kind::Union(_) => self.optional(id).and_then(|(_, inner)| if inner == id { None } else { self.record(inner) }),
            _ => None,
        }
    }

    /// A type apart from null: the place of null in its union, if any, and the other type. `None` for a union of several.
    pub fn optional(&self, id: NodeId) -> Option<(Option<usize>, NodeId)> {
        let Kind::Union(branches) = &self.node(id).kind else { return Some((None, id)) };
        let null = branches.iter().position(|b| self.node(*b).kind == Kind::Null);
        match (branches.as_slice(), null) {
            ([_, _], Some(null)) => Some((Some(null), branches[1 - null])),
            _ => None,
        }
    }
}

#[derive(Default)]
struct Parser {
    nodes: Vec<Node>,
    named: HashMap<String, NodeId>,
}

impl Parser {
    fn text(&mut self, text: &str) -> Result<NodeId, SchemaError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(SchemaError::Json);
        }
        if text.bytes().filter(|b| *b == b'{').count() > OBJECTS_MAX {
            return Err(SchemaError::Size);
        }
        let json: Json = serde_json::from_str(text).map_err(|_| SchemaError::Json)?;
        self.node(&json, "", 0)
    }

    fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn node(&mut self, json: &Json, namespace: &str, depth: usize) -> Result<NodeId, SchemaError> {
        if depth > DEPTH_MAX {
            return Err(SchemaError::Depth);
        }
        match json {
            Json::String(name) => match primitive(name) {
                Some(kind) => Ok(self.push(Node { kind, ..Node::default() })),
                None => self.find(name, namespace),
            },
            Json::Array(branches) => {
                let branches = branches.iter().map(|b| self.node(b, namespace, depth + 1)).collect::<Result<Vec<_>, _>>()?;
                if branches.is_empty() {
                    return Err(SchemaError::Type("a union of nothing".to_owned()));
                }
                Ok(self.push(Node { kind: Kind::Union(branches), ..Node::default() }))
            }
            Json::Object(object) => self.object(object, namespace, depth),
            _ => Err(SchemaError::Type("what is neither text, list nor object".to_owned())),
        }
    }

    fn object(&mut self, object: &Map<String, Json>, namespace: &str, depth: usize) -> Result<NodeId, SchemaError> {
        let Some(ty) = object.get("type") else { return Err(SchemaError::Type("an object without a type".to_owned())) };
        let Json::String(word) = ty else { return self.node(ty, namespace, depth + 1) };
        let mut node = attributes(object);
        if let Some(kind) = primitive(word) {
            node.kind = kind;
            return Ok(self.push(node));
        }
        let of = |member: &str| object.get(member).ok_or_else(|| SchemaError::Type(format!("a type {word:?} without {member:?}")));
        match word.as_str() {
            "array" => node.kind = Kind::Array(self.node(of("items")?, namespace, depth + 1)?),
            "map" => node.kind = Kind::Map(self.node(of("values")?, namespace, depth + 1)?),
            "fixed" => {
                let size = of("size")?.as_u64().and_then(|n| usize::try_from(n).ok());
                node.kind = Kind::Fixed(size.ok_or_else(|| SchemaError::Type("a fixed of no size".to_owned()))?);
                return self.name(object, namespace, node).map(|(id, _)| id);
            }
            "enum" => {
                let symbols = of("symbols")?.as_array().map(Vec::as_slice).unwrap_or_default();
                let symbols: Vec<String> = symbols.iter().map(|s| s.as_str().unwrap_or_default().to_owned()).collect();
                if symbols.iter().any(|symbol| symbol.len() > SYMBOL_BYTES_MAX) {
                    return Err(SchemaError::Type(format!("an enum with a symbol of more than {SYMBOL_BYTES_MAX} bytes")));
                }
                node.kind = Kind::Enum(symbols);
                return self.name(object, namespace, node).map(|(id, _)| id);
            }
            "record" | "error" => {
                let (id, inner) = self.name(object, namespace, node)?;
                let mut members = Vec::new();
                for field in of("fields")?.as_array().map(Vec::as_slice).unwrap_or_default() {
                    let (Some(Json::String(name)), Some(ty)) = (field.get("name"), field.get("type")) else {
                        return Err(SchemaError::Type("a field without name or type".to_owned()));
                    };
                    let mut at = self.node(ty, &inner, depth + 1)?;
                    // Java's own writers put the logical type beside a primitive's name, into the field.
                    if let (Json::String(word), Json::Object(field)) = (ty, field)
                        && field.contains_key("logicalType")
                        && let Some(kind) = primitive(word)
                    {
                        at = self.push(Node { kind, ..attributes(field) });
                    }
                    members.push(Member { name: name.clone(), node: at });
                }
                self.nodes[id].kind = Kind::Record(members);
                return Ok(id);
            }
            name => return self.find(name, namespace),
        }
        Ok(self.push(node))
    }

    /// Takes a named type in; returns the namespace that holds within it.
    fn name(&mut self, object: &Map<String, Json>, namespace: &str, node: Node) -> Result<(NodeId, String), SchemaError> {
        let text = |member: &str| object.get(member).and_then(Json::as_str);
        let name = text("name").ok_or_else(|| SchemaError::Type("a named type without a name".to_owned()))?;
        let full = match (name.contains('.'), text("namespace").unwrap_or(namespace)) {
            (true, _) | (_, "") => name.to_owned(),
            (false, namespace) => format!("{namespace}.{name}"),
        };
        let id = self.push(node);
        let inner = full.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
        let _ = self.named.insert(full, id);
        Ok((id, inner))
    }

    fn find(&self, name: &str, namespace: &str) -> Result<NodeId, SchemaError> {
        let within = if name.contains('.') { None } else { self.named.get(&format!("{namespace}.{name}")) };
        within.or_else(|| self.named.get(name)).copied().ok_or_else(|| SchemaError::Unknown(name.chars().take(200).collect()))
    }
}

fn attributes(object: &Map<String, Json>) -> Node {
    let text = |member: &str| object.get(member).and_then(Json::as_str).map(str::to_owned);
    let parameters = object.get("connect.parameters").and_then(Json::as_object);
    let digits = |member: &str| object.get(member).and_then(Json::as_i64);
    Node {
        kind: Kind::Null,
        connect_name: text("connect.name"),
        connect_type: text("connect.type"),
        parameters: parameters.into_iter().flatten().filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect(),
        logical: text("logicalType"),
        precision: digits("precision").and_then(|n| u32::try_from(n).ok()),
        scale: digits("scale").and_then(|n| i32::try_from(n).ok()),
    }
}

fn primitive(name: &str) -> Option<Kind> {
    Some(match name {
        "null" => Kind::Null,
        "boolean" => Kind::Boolean,
        "int" => Kind::Int,
        "long" => Kind::Long,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "bytes" => Kind::Bytes,
        "string" => Kind::String,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Schema, SchemaError> {
        Schema::parse(text, &[])
    }

    #[test]
    fn case_enc_02_primitives_keep_what_is_said_of_them() {
        let text = r#"{"type":"record","name":"R","namespace":"a.b","fields":[
            {"name":"ts","type":["null",{"type":"long","connect.version":1,"connect.name":"io.debezium.time.MicroTimestamp"}],"default":null},
            {"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":10,"scale":2,"connect.parameters":{"scale":"2"}},"default":"\u0000"},
            {"name":"again","type":["R","null"]}]}"#;
        let schema = parse(text).expect("a schema");
        let members = schema.record(schema.root()).expect("a record");
        let (null, ts) = schema.optional(members[0].node).expect("one type");
        assert_eq!((null, schema.node(ts).connect_name.as_deref()), (Some(0), Some("io.debezium.time.MicroTimestamp")));
        let d = schema.node(members[1].node);
        assert_eq!((d.precision, d.scale, d.parameters.get("scale").map(String::as_str)), (Some(10), Some(2), Some("2")));
        assert_eq!(schema.optional(members[2].node), Some((Some(1), schema.root())), "a type may hold itself");
    }

    #[test]
    fn names_are_found_across_references() {
        let references = [Reference { name: "x.Y".to_owned(), text: r#"{"type":"enum","name":"Y","namespace":"x","symbols":["A"]}"#.to_owned() }];
        let schema = Schema::parse(r#"{"type":"record","name":"R","fields":[{"name":"y","type":"x.Y"}]}"#, &references).expect("a schema");
        let members = schema.record(schema.root()).expect("a record");
        assert_eq!(schema.node(members[0].node).kind, Kind::Enum(vec!["A".to_owned()]));
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        assert_eq!(parse("{").map(drop), Err(SchemaError::Json));
        assert_eq!(parse("\"other\"").map(drop), Err(SchemaError::Unknown("other".to_owned())));
        assert!(matches!(parse("[]"), Err(SchemaError::Type(_))));
        assert!(matches!(parse(r#"{"type":"array"}"#), Err(SchemaError::Type(_))));
        let deep = format!("{}\"int\"{}", r#"{"type":"array","items":"#.repeat(70), "}".repeat(70));
        assert_eq!(parse(&deep).map(drop), Err(SchemaError::Depth));
    }
}
