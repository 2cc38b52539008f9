//! A registered schema: its messages and enums with those of the files that it imports, in one list each, so that a message may contain itself.
//!
//! A library parses the syntax; what it is given is bounded first, in length, parts and nesting. Types are found by their names as Protobuf finds
//! them, from the innermost scope outwards. Files that nobody registered and everybody imports are known ([`super::known`]).

use std::collections::BTreeMap;

use hashbrown::HashMap;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto};

use super::{known, meta};
use crate::avro::{Reference, SYMBOL_BYTES_MAX};
use crate::wire::{Reader, WireError};

/// The longest text of a schema that is looked at, with what it refers to.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// The most statements and parts of statements that it may have: a table of as many columns as may be has no more than ten for each.
const PARTS_MAX: usize = 40_000;
/// The deepest that messages and options are written within each other.
const DEPTH_MAX: usize = 32;

/// Place of a message in its [`Schema`].
pub type MessageId = usize;
/// Place of an enum in its [`Schema`].
pub type EnumId = usize;

/// A schema with the types that it is made of.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    messages: Vec<Message>,
    enums: Vec<Vec<(i32, String)>>,
    /// The outermost messages of the registered file, in order.
    roots: Vec<MessageId>,
}

/// A message.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// Its full name.
    pub name: String,
    /// Its fields, in the order in which they are written.
    pub fields: Vec<Field>,
    /// The messages within it, in order; those of its maps among them, as they are in its descriptor.
    nested: Vec<MessageId>,
    /// Whether it is an entry of a map.
    pub is_entry: bool,
}

/// A field of a message.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// Its type.
    pub kind: Kind,
    /// What it means that it is absent.
    pub presence: Presence,
    /// What Confluent's converter says of it beside its type.
    pub parameters: BTreeMap<String, String>,
}

/// What a field's type is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value.
    Scalar(Scalar),
    /// A message.
    Message(MessageId),
    /// A group, which is not read.
    Group,
}

/// The types of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "Protobuf's own names")]
pub enum Scalar {
    Double,
    Float,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Bool,
    String,
    Bytes,
    Enum(EnumId),
}

/// What it means that a field is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Its default: nothing, zero, false.
    Implicit,
    /// That it was not set.
    Explicit,
    /// Nothing: it must be there.
    Required,
    /// That it has no elements.
    Repeated,
}

/// A text that is no schema of Protobuf.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// Too long.
    #[error("it is longer than {TEXT_BYTES_MAX} bytes")]
    Size,
    /// More statements than any table needs.
    #[error("it has more than {PARTS_MAX} parts")]
    Parts,
    /// Types within types without end.
    #[error("it is nested deeper than {DEPTH_MAX}")]
    Depth,
    /// Not the syntax.
    #[error("it is not the text of a schema of Protobuf: {0}")]
    Syntax(String),
    /// A name that nothing has.
    #[error("type {0:?} is named and nowhere described")]
    Unknown(String),
    /// An enum whose names are longer than any database's.
    #[error("an enum has a name of more than {SYMBOL_BYTES_MAX} bytes")]
    Symbol,
    /// A field without name or number.
    #[error("a field of {0:?} has no name or no number")]
    Field(String),
}

impl Schema {
    /// Reads a schema; what it refers to goes by the names under which it is imported.
    pub fn parse(text: &str, references: &[Reference]) -> Result<Self, SchemaError> {
        let mut bounds = Bounds::default();
        let files = references.iter().map(|r| (r.name.as_str(), r.text.as_str())).chain([("", text)]);
        let files: Vec<FileDescriptorProto> = files.map(|(name, text)| bounds.parse(name, text)).collect::<Result<_, _>>()?;
        let mut builder = Builder::default();
        let (registered, references) = files.split_last().ok_or(SchemaError::Size)?;
        for file in references {
            let _ = builder.take_in(file);
        }
        builder.schema.roots = builder.take_in(registered);
        let mut imported: Vec<&str> = files.iter().flat_map(|file| &file.dependency).map(String::as_str).collect();
        imported.sort_unstable();
        imported.dedup();
        let brought = |name: &str| references.iter().any(|file| file.name() == name);
        let known: Vec<FileDescriptorProto> = imported
            .into_iter()
            .filter(|name| !brought(name))
            .filter_map(known::file)
            .map(|text| bounds.parse("", text))
            .collect::<Result<_, _>>()?;
        for file in &known {
            let _ = builder.take_in(file);
        }
        if builder.schema.enums.iter().flatten().any(|(_, text)| text.len() > SYMBOL_BYTES_MAX) {
            return Err(SchemaError::Symbol);
        }
        for file in files.iter().chain(&known) {
            builder.fill(file)?;
        }
        Ok(builder.schema)
    }

    /// A message.
    #[inline]
    pub fn message(&self, id: MessageId) -> &Message {
        &self.messages[id]
    }

    /// The text of an enum's number, or its place in the enum's list.
    #[inline]
    pub(crate) fn symbol(&self, id: EnumId, number: i32) -> Option<usize> {
        self.enums.get(id)?.binary_search_by_key(&number, |(number, _)| *number).ok()
    }

    /// The text of a symbol, by its place.
    #[inline]
    pub(crate) fn symbol_text(&self, id: EnumId, place: usize) -> Option<&str> {
        self.enums.get(id)?.get(place).map(|(_, text)| text.as_str())
    }

    /// Takes the indexes that stand behind a frame's id, and finds the message that they name: how many there are, then each, from the outermost
    /// message inwards; a count of 0 is short for the first message (case ENC-04).
    #[inline]
    pub fn named(&self, reader: &mut Reader<'_>) -> Result<MessageId, WireError> {
        let count = usize::try_from(reader.long()?).ok().filter(|n| *n <= DEPTH_MAX).ok_or(WireError::Number)?;
        if count == 0 {
            return self.roots.first().copied().ok_or(WireError::Index);
        }
        let (mut within, mut found) = (self.roots.as_slice(), Err(WireError::Index));
        for _ in 0..count {
            let index = usize::try_from(reader.long()?).map_err(|_| WireError::Index)?;
            let id = *within.get(index).ok_or(WireError::Index)?;
            // Some writers count the entries of maps, which are messages of a descriptor and none of a text; where that matters, who wrote
            // this cannot be told.
            if within[..=index].iter().any(|id| self.messages[*id].is_entry) {
                return Err(WireError::Index);
            }
            within = &self.messages[id].nested;
            found = Ok(id);
        }
        found
    }
}

/// What all files of a schema come to.
#[derive(Default)]
struct Bounds {
    bytes: usize,
    parts: usize,
}

impl Bounds {
    /// Parses a file, unless it would take too much.
    fn parse(&mut self, name: &str, text: &str) -> Result<FileDescriptorProto, SchemaError> {
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes > TEXT_BYTES_MAX {
            return Err(SchemaError::Size);
        }
        self.parts = self.parts.saturating_add(parts(text)?);
        if self.parts > PARTS_MAX {
            return Err(SchemaError::Parts);
        }
        protox_parse::parse(name, text).map_err(|error| SchemaError::Syntax(error.to_string().chars().take(200).collect()))
    }
}

/// How many statements and parts of statements a text has; an error where they lie too deep within each other. Comments and strings do not count.
fn parts(text: &str) -> Result<usize, SchemaError> {
    let (mut parts, mut depth) = (0_usize, 0_usize);
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'/' if tail.first() == Some(&b'/') => {
                parts += 1;
                rest = &tail[tail.iter().position(|b| *b == b'\n').unwrap_or(tail.len())..];
            }
            b'/' if tail.first() == Some(&b'*') => {
                parts += 1;
                let end = tail.get(1..).and_then(|t| t.windows(2).position(|w| w == b"*/")).map_or(tail.len(), |at| at + 3);
                rest = &tail[end..];
            }
            quote @ (b'"' | b'\'') => {
                parts += 1;
                while let [next, tail @ ..] = rest {
                    rest = if *next == b'\\' { tail.get(1..).unwrap_or_default() } else { tail };
                    // A string ends with its line at the latest.
                    if next == quote || *next == b'\n' {
                        break;
                    }
                }
            }
            b'{' | b'[' | b'(' | b'<' => {
                (parts, depth) = (parts + 1, depth + 1);
                if depth > DEPTH_MAX {
                    return Err(SchemaError::Depth);
                }
            }
            b'}' | b']' | b')' | b'>' => depth = depth.saturating_sub(1),
            b';' | b',' | b'.' => parts += 1,
            0..=8 | 14..=31 | 127.. | b'@' | b'#' | b'$' | b'%' | b'^' | b'&' | b'`' | b'~' | b'\\' | b'|' | b'!' | b'?' | b'*' => {
                return Err(SchemaError::Syntax("it has characters that are none of its syntax".to_owned()));
            }
            _ => {}
        }
    }
    Ok(parts)
}

/// A name of a type.
#[derive(Clone, Copy)]
enum Named {
    Message(MessageId),
    Enum(EnumId),
}

#[derive(Default)]
struct Builder {
    schema: Schema,
    named: HashMap<String, Named>,
}

fn joined(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}

impl Builder {
    /// Takes in the names of a file; returns its outermost messages.
    fn take_in(&mut self, file: &FileDescriptorProto) -> Vec<MessageId> {
        file.enum_type.iter().for_each(|e| self.take_enum(file.package(), e));
        file.message_type.iter().map(|m| self.take_message(file.package(), m)).collect()
    }

    /// Messages are nested as deeply as the library lets them, which is not deep.
    fn take_message(&mut self, scope: &str, message: &DescriptorProto) -> MessageId {
        let name = joined(scope, message.name());
        let is_entry = message.options.as_ref().is_some_and(|o| o.map_entry());
        let id = self.schema.messages.len();
        self.schema.messages.push(Message { name: name.clone(), is_entry, ..Message::default() });
        let _ = self.named.entry(name.clone()).or_insert(Named::Message(id));
        message.enum_type.iter().for_each(|e| self.take_enum(&name, e));
        let nested = message.nested_type.iter().map(|m| self.take_message(&name, m)).collect();
        self.schema.messages[id].nested = nested;
        id
    }

    fn take_enum(&mut self, scope: &str, described: &EnumDescriptorProto) {
        let mut symbols: Vec<(i32, String)> = described.value.iter().map(|v| (v.number(), v.name().to_owned())).collect();
        // Of several names of a number the first one counts.
        symbols.sort_by_key(|(number, _)| *number);
        symbols.dedup_by_key(|(number, _)| *number);
        self.schema.enums.push(symbols);
        let id = self.schema.enums.len() - 1;
        let _ = self.named.entry(joined(scope, described.name())).or_insert(Named::Enum(id));
    }

    /// Fills in the fields of a file's messages, all names being known.
    fn fill(&mut self, file: &FileDescriptorProto) -> Result<(), SchemaError> {
        let is_proto3 = file.syntax() == "proto3";
        file.message_type.iter().try_for_each(|m| self.fill_message(file.package(), m, is_proto3))
    }

    fn fill_message(&mut self, scope: &str, message: &DescriptorProto, is_proto3: bool) -> Result<(), SchemaError> {
        let name = joined(scope, message.name());
        let fields = message.field.iter().map(|f| self.field(&name, f, is_proto3)).collect::<Result<Vec<_>, _>>()?;
        // One that another file describes already keeps its fields.
        if let Some(Named::Message(id)) = self.named.get(&name)
            && let Some(message) = self.schema.messages.get_mut(*id).filter(|m| m.fields.is_empty())
        {
            message.fields = fields;
        }
        message.nested_type.iter().try_for_each(|m| self.fill_message(&name, m, is_proto3))
    }

    fn field(&self, scope: &str, field: &FieldDescriptorProto, is_proto3: bool) -> Result<Field, SchemaError> {
        let short = |name: &str| name.chars().take(200).collect::<String>();
        let number = u32::try_from(field.number()).ok().filter(|n| *n > 0 && !field.name().is_empty());
        let number = number.ok_or_else(|| SchemaError::Field(short(scope)))?;
        let kind = match field.r#type.and_then(|ty| Type::try_from(ty).ok()) {
            Some(Type::Group) => Kind::Group,
            Some(ty) if scalar(ty).is_some() => scalar(ty).map_or(Kind::Group, Kind::Scalar),
            // What is named is known to be a message or an enum only here.
            _ => match self.find(scope, field.type_name()) {
                Some(Named::Message(id)) => Kind::Message(id),
                Some(Named::Enum(id)) => Kind::Scalar(Scalar::Enum(id)),
                None => return Err(SchemaError::Unknown(short(field.type_name()))),
            },
        };
        let is_scalar = matches!(kind, Kind::Scalar(_));
        let presence = match field.label() {
            Label::Repeated => Presence::Repeated,
            Label::Required => Presence::Required,
            // Members of a `oneof` are there or not, whatever they are; an `optional` of proto3 is one of a `oneof` of its own.
            Label::Optional if is_proto3 && is_scalar && field.oneof_index.is_none() && !field.proto3_optional() => Presence::Implicit,
            Label::Optional => Presence::Explicit,
        };
        let parameters = field.options.as_ref().map(|o| meta::parameters(&o.uninterpreted_option)).unwrap_or_default();
        Ok(Field { name: field.name().to_owned(), number, kind, presence, parameters })
    }

    /// The type of a name within a message: that of the innermost scope that has one.
    fn find(&self, scope: &str, name: &str) -> Option<Named> {
        if let Some(full) = name.strip_prefix('.') {
            return self.named.get(full).copied();
        }
        let mut scope = scope;
        loop {
            if let Some(found) = self.named.get(&joined(scope, name)) {
                return Some(*found);
            }
            if scope.is_empty() {
                return None;
            }
            scope = scope.rsplit_once('.').map_or("", |(outer, _)| outer);
        }
    }
}

fn scalar(ty: Type) -> Option<Scalar> {
    Some(match ty {
        Type::Double => Scalar::Double,
        Type::Float => Scalar::Float,
        Type::Int32 => Scalar::Int32,
        Type::Int64 => Scalar::Int64,
        Type::Uint32 => Scalar::Uint32,
        Type::Uint64 => Scalar::Uint64,
        Type::Sint32 => Scalar::Sint32,
        Type::Sint64 => Scalar::Sint64,
        Type::Fixed32 => Scalar::Fixed32,
        Type::Fixed64 => Scalar::Fixed64,
        Type::Sfixed32 => Scalar::Sfixed32,
        Type::Sfixed64 => Scalar::Sfixed64,
        Type::Bool => Scalar::Bool,
        Type::String => Scalar::String,
        Type::Bytes => Scalar::Bytes,
        Type::Enum | Type::Message | Type::Group => return None,
    })
}
