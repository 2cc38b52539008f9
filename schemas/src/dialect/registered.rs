//! The schemas of a registry that a topic's records name, and what they mean for its table.
//!
//! The caller asks the registry ([`super::Decoder::wanted`]) and brings what it says; nothing here waits. What a schema means is worked out the first
//! time that a record uses it, as a key and as a value apart; a schema of Protobuf has a meaning for each of its messages.

use std::sync::Arc;

use hashbrown::HashMap;

use super::decoder::ValueSchema;
use super::envelope::Layouts;
use super::layout::{Layout, RecordId, Schema};
use super::plan::KeyShape;
use super::reject::{Code, Reject};
use super::{Dialect, Encoding, Options};
use crate::avro::{Frame, Reference, SchemaId, frame, single_object};
use crate::wire::Reader;
use crate::{avro, protobuf};

/// The most schemas that are kept of one topic; a topic that names more is asked for again from the start.
const KEPT_MAX: usize = 4096;

/// What a registry says of an id.
#[derive(Clone, Debug)]
pub enum Registered {
    /// A schema of Avro, with what it refers to before what refers to it.
    Avro {
        /// Its text.
        text: String,
        /// The schemas that it refers to.
        references: Vec<Reference>,
    },
    /// A schema of Protobuf, with the files that it imports.
    Protobuf {
        /// Its text.
        text: String,
        /// The files that it imports, and those that they import, by the names under which they are imported.
        references: Vec<Reference>,
    },
    /// A schema of another kind, by its name.
    Other(String),
    /// There is none of that id. It is asked for again once this is forgotten ([`super::Decoder::forget_unknown`]).
    Unknown,
}

/// A registered key: its shape, and how its bytes lie.
pub(super) type KeyLayout = (Arc<KeyShape>, Arc<Layout>);
/// A registered value: what its schema describes, and how its bytes lie.
pub(super) type ValueLayout = (ValueSchema, Arc<Layouts>);

/// The schemas that were brought, or why there is none.
type Brought = HashMap<SchemaId, Result<Schema, Reject>, foldhash::fast::FixedState>;

/// What is known of a topic's registered schemas.
#[derive(Debug, Default)]
pub(super) struct Registry {
    brought: Brought,
    keys: HashMap<SchemaId, Meaning<KeyLayout>, foldhash::fast::FixedState>,
    values: HashMap<SchemaId, Meaning<ValueLayout>, foldhash::fast::FixedState>,
}

/// What a schema means.
#[derive(Debug)]
enum Meaning<T> {
    /// One thing.
    One(Result<T, Reject>),
    /// Something for each message that records have named.
    Messages(Arc<protobuf::Schema>, HashMap<RecordId, Result<T, Reject>, foldhash::fast::FixedState>),
}

impl<T: Clone> Meaning<T> {
    fn of(schema: Result<Schema, Reject>, compile: impl FnOnce(&Schema, RecordId) -> Result<T, Reject>) -> Self {
        match schema {
            Err(reject) => Self::One(Err(reject)),
            Ok(Schema::Protobuf(schema)) => Self::Messages(schema, HashMap::default()),
            Ok(Schema::Avro(schema)) => {
                let root = schema.root();
                Self::One(compile(&Schema::Avro(schema), root))
            }
        }
    }

    /// What it means for a record, from whose body the indexes of its message are taken.
    #[inline]
    fn get(&mut self, framed: &mut Frame<'_>, part: &str, compile: impl FnOnce(&Schema, RecordId) -> Result<T, Reject>) -> Result<T, Reject> {
        let (schema, messages) = match self {
            Self::One(meaning) => return meaning.clone(),
            Self::Messages(schema, messages) => (schema, messages),
        };
        let mut reader = Reader::new(framed.body);
        let message = schema.named(&mut reader).map_err(|error| {
            Reject::new(Code::ProtobufInvalid, format!("the {part} names no message of its registered schema behind its id: {error}"))
        })?;
        framed.body = reader.rest();
        messages.entry(message).or_insert_with(|| compile(&Schema::Protobuf(Arc::clone(schema)), message)).clone()
    }
}

impl Registry {
    /// The frame of a key or a value, where it has one or must have one; `None` for JSON.
    #[inline]
    pub(super) fn frame<'a>(options: &Options, encoding: Encoding, bytes: &'a [u8], part: &str) -> Option<Result<Frame<'a>, Reject>> {
        let invalid = |e| Reject::new(Code::FrameInvalid, format!("the {part} is no registered record: {e}"));
        let is_framed = match encoding {
            Encoding::Detected => bytes.first() == Some(&0),
            Encoding::Json => false,
            Encoding::Avro | Encoding::Protobuf => true,
        };
        if matches!(encoding, Encoding::Detected | Encoding::Avro)
            && let Some(framed) = single_object(bytes)
        {
            return Some(framed.map_err(invalid));
        }
        is_framed.then(|| {
            let framed = frame(bytes, options.registry.unwrap_or_default()).map_err(invalid)?;
            options.registry.map(|_| framed).ok_or_else(|| {
                let table = &options.table;
                let reason = format!("records of table {table:?} are framed by a schema registry, and no registry is given (`kafka.registry`)");
                Reject::new(Code::RegistryMissing, reason)
            })
        })
    }

    /// The id that a registry is to be asked for, where nothing is known of it yet.
    #[inline]
    pub(super) fn lacking(&self, id: SchemaId) -> Option<u64> {
        let SchemaId::Registered(number) = id else { return None };
        (!self.brought.contains_key(&id)).then_some(number)
    }

    /// What framed records are written in, for people: as their schema says, where it is known, else as the options do.
    pub(super) fn format(&self, encoding: Encoding, id: Option<SchemaId>) -> &'static str {
        match (id.and_then(|id| self.brought.get(&id)), encoding) {
            (Some(Ok(Schema::Protobuf(_))), _) | (None | Some(Err(_)), Encoding::Protobuf) => "protobuf",
            _ => "avro",
        }
    }

    /// Takes in what the registry says.
    pub(super) fn bring(&mut self, id: SchemaId, registered: &Registered) {
        if self.brought.len() >= KEPT_MAX {
            // Those of the single-object encoding are given once, and nobody is asked for them again.
            self.brought.retain(|id, _| matches!(id, SchemaId::Fingerprint(_)));
            (self.keys, self.values) = Default::default();
        }
        let refuse = |code, what: String| Err(Reject::new(code, format!("{id} {what}")));
        let schema = match registered {
            Registered::Avro { text, references } => match avro::Schema::parse(text, references) {
                Ok(schema) => Ok(Schema::Avro(Arc::new(schema))),
                Err(error) => refuse(Code::RegistrySchema, format!("cannot be read: {error}")),
            },
            Registered::Protobuf { text, references } => match protobuf::Schema::parse(text, references) {
                Ok(schema) => Ok(Schema::Protobuf(Arc::new(schema))),
                Err(error) => refuse(Code::RegistrySchema, format!("cannot be read: {error}")),
            },
            Registered::Other(kind) => refuse(Code::RegistrySchema, format!("is of type {kind}, and only AVRO and PROTOBUF are read here")),
            Registered::Unknown => refuse(Code::RegistryUnknown, "does not exist".to_owned()),
        };
        let _ = (self.keys.remove(&id), self.values.remove(&id), self.brought.insert(id, schema));
    }

    /// Forgets that ids do not exist.
    pub(super) fn forget_unknown(&mut self) {
        fn is_known<T>(known: &Result<T, Reject>) -> bool {
            !matches!(known, Err(Reject { code: Code::RegistryUnknown, .. }))
        }
        fn is_meant<T>(meaning: &Meaning<T>) -> bool {
            if let Meaning::One(known) = meaning { is_known(known) } else { true }
        }
        self.brought.retain(|_, schema| is_known(schema));
        self.keys.retain(|_, key| is_meant(key));
        self.values.retain(|_, value| is_meant(value));
    }

    /// The schema of an id, of which records may be that are said to be in an encoding.
    fn schema(brought: &Brought, id: SchemaId, encoding: Encoding) -> Result<Schema, Reject> {
        let unasked = || match id {
            SchemaId::Registered(_) => Reject::new(Code::RegistryUnknown, format!("{id} has not been asked for")),
            SchemaId::Fingerprint(_) => Reject::new(Code::FingerprintUnknown, format!("{id} is none of those that are given (`cdc.schemas`)")),
        };
        let schema = brought.get(&id).cloned().unwrap_or_else(|| Err(unasked()))?;
        let other = match (&schema, encoding) {
            (Schema::Avro(_), Encoding::Protobuf) => "AVRO, and values are said to be in Protobuf",
            (Schema::Protobuf(_), Encoding::Avro) => "PROTOBUF, and values are said to be in Avro",
            _ => return Ok(schema),
        };
        Err(Reject::new(Code::FrameInvalid, format!("{id} is of type {other}")))
    }

    /// What a record's schema means as a key; what stands between its frame and its bytes is taken off.
    pub(super) fn key(&mut self, framed: &mut Frame<'_>, options: &Options, next_id: &mut u32) -> Result<KeyLayout, Reject> {
        let mut compile = |schema: &Schema, record| {
            if let (Some(name), Schema::Avro(avro)) = (options.scalar_key(), schema)
                && avro.record(record).is_none()
            {
                let fields = super::avro::connect_scalar(avro, name).compile(options, false)?;
                let field = fields.into_iter().next().ok_or_else(|| Reject::new(Code::KeyMissing, "the record key is no column"))?;
                *next_id += 1;
                let layout = Layout::Avro(super::avro::Layout::of_scalar(avro));
                return Ok((Arc::new(KeyShape::scalar(*next_id, field)), Arc::new(layout)));
            }
            let not_columns = || Reject::new(Code::KeyMissing, "the registered schema of the key is not a record of key columns");
            let layout = schema.layout(record, |_| true).ok_or_else(not_columns)?;
            let fields = schema.connect(record).ok_or_else(not_columns)?.compile(options, false)?;
            *next_id += 1;
            let order = (0..fields.len()).collect();
            Ok((Arc::new(KeyShape::new(*next_id, fields, order)), Arc::new(layout)))
        };
        let id = framed.id;
        let key = self.keys.entry(id).or_insert_with(|| Meaning::of(Self::schema(&self.brought, id, Encoding::Detected), &mut compile));
        key.get(framed, "key", compile)
    }

    /// What a record's schema means as a value; what stands between its frame and its bytes is taken off.
    #[inline]
    pub(super) fn value(&mut self, framed: &mut Frame<'_>, options: &Options, next_id: &mut u32) -> Result<ValueLayout, Reject> {
        let mut compile = |schema: &Schema, record| {
            let of = if matches!(options.dialect, Dialect::Flattened | Dialect::Plain) { Layouts::of_row } else { Layouts::of };
            let (layouts, row) = of(schema, record)?;
            let value = match row.and_then(|row| schema.connect(row)) {
                None => ValueSchema::Other,
                Some(row) => {
                    *next_id += 1;
                    ValueSchema::Rows { id: *next_id, fields: row.compile(options, schema.has_spans()).map(Arc::new) }
                }
            };
            Ok((value, Arc::new(layouts)))
        };
        let id = framed.id;
        let value = self.values.entry(id).or_insert_with(|| Meaning::of(Self::schema(&self.brought, id, options.encoding), &mut compile));
        value.get(framed, "value", compile)
    }
}
