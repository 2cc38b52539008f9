//! The schemas of a registry that a topic's records name, and what they mean for its table.
//!
//! The caller asks the registry ([`super::Decoder::wanted`]) and brings what it says; nothing here waits. What a schema means is worked out the first
//! time that a record uses it, as a key and as a value apart.

use std::sync::Arc;

use hashbrown::HashMap;

use super::avro::{self, Layout};
use super::decoder::ValueSchema;
use super::envelope::Layouts;
use super::plan::KeyShape;
use super::reject::{Code, Reject};
use super::{Encoding, Options};
use crate::avro::{Frame, Reference, Schema, frame};

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
    /// A schema of another kind, by its name.
    Other(String),
    /// There is none of that id. It is asked for again once this is forgotten ([`super::Decoder::forget_unknown`]).
    Unknown,
}

/// A key in Avro: its shape, and how its bytes lie.
pub(super) type KeyLayout = (Arc<KeyShape>, Arc<Layout>);
/// A value in Avro: what its schema describes, and how its bytes lie.
pub(super) type ValueLayout = (ValueSchema, Arc<Layouts>);

/// A row without an envelope in Avro: its columns, and how its bytes lie.
pub(super) type RowLayout = (ValueSchema, Arc<Layout>);

/// What is known of a topic's registered schemas.
#[derive(Debug, Default)]
pub(super) struct Registry {
    brought: HashMap<u64, Result<Arc<Schema>, Reject>, foldhash::fast::FixedState>,
    keys: HashMap<u64, Result<KeyLayout, Reject>, foldhash::fast::FixedState>,
    values: HashMap<u64, Result<ValueLayout, Reject>, foldhash::fast::FixedState>,
    rows: HashMap<u64, Result<RowLayout, Reject>, foldhash::fast::FixedState>,
}

impl Registry {
    /// The frame of a key or a value, where it has one or must have one; `None` for JSON.
    #[inline]
    pub(super) fn frame<'a>(options: &Options, encoding: Encoding, bytes: &'a [u8], part: &str) -> Option<Result<Frame<'a>, Reject>> {
        let is_framed = match encoding {
            Encoding::Detected => bytes.first() == Some(&0),
            Encoding::Json => false,
            Encoding::Avro => true,
        };
        is_framed.then(|| {
            let framed = frame(bytes, options.registry.unwrap_or_default());
            let framed = framed.map_err(|e| Reject::new(Code::FrameInvalid, format!("the {part} is no registered record: {e}")))?;
            options.registry.map(|_| framed).ok_or_else(|| {
                let table = &options.table;
                let reason = format!("records of table {table:?} are framed by a schema registry, and no registry is given (`kafka.registry`)");
                Reject::new(Code::RegistryMissing, reason)
            })
        })
    }

    /// Whether nothing is known of an id yet.
    #[inline]
    pub(super) fn lacks(&self, id: u64) -> bool {
        !self.brought.contains_key(&id)
    }

    /// Takes in what the registry says.
    pub(super) fn bring(&mut self, id: u64, registered: &Registered) {
        if self.brought.len() >= KEPT_MAX {
            *self = Self::default();
        }
        let refuse = |code, what: String| Err(Reject::new(code, format!("schema {id} of the registry {what}")));
        let schema = match registered {
            Registered::Avro { text, references } => match Schema::parse(text, references) {
                Ok(schema) => Ok(Arc::new(schema)),
                Err(error) => refuse(Code::RegistrySchema, format!("cannot be read: {error}")),
            },
            Registered::Other(kind) => refuse(Code::RegistrySchema, format!("is of type {kind}, and only AVRO is read here yet")),
            Registered::Unknown => refuse(Code::RegistryUnknown, "does not exist".to_owned()),
        };
        let _ = (self.keys.remove(&id), self.values.remove(&id), self.rows.remove(&id), self.brought.insert(id, schema));
    }

    /// Forgets that ids do not exist.
    pub(super) fn forget_unknown(&mut self) {
        let is_known = |known: &Result<_, Reject>| !matches!(known, Err(Reject { code: Code::RegistryUnknown, .. }));
        self.brought.retain(|_, schema| is_known(&schema.as_ref().map(drop).map_err(Clone::clone)));
        self.keys.retain(|_, key| is_known(&key.as_ref().map(drop).map_err(Clone::clone)));
        self.values.retain(|_, value| is_known(&value.as_ref().map(drop).map_err(Clone::clone)));
        self.rows.retain(|_, row| is_known(&row.as_ref().map(drop).map_err(Clone::clone)));
    }

    fn schema(&self, id: u64) -> Result<Arc<Schema>, Reject> {
        let unasked = || Reject::new(Code::RegistryUnknown, format!("schema {id} has not been asked for"));
        self.brought.get(&id).cloned().unwrap_or_else(|| Err(unasked()))
    }

    /// What a schema means as a key.
    pub(super) fn key(&mut self, id: u64, options: &Options, next_id: &mut u32) -> Result<KeyLayout, Reject> {
        if let Some(key) = self.keys.get(&id) {
            return key.clone();
        }
        let compile = |schema: Arc<Schema>| {
            if let Some(name) = options.scalar_key()
                && schema.record(schema.root()).is_none()
            {
                let fields = avro::connect_scalar(&schema, name).compile(options, false)?;
                let field = fields.into_iter().next().ok_or_else(|| Reject::new(Code::KeyMissing, "the record key is no column"))?;
                *next_id += 1;
                return Ok((Arc::new(KeyShape::scalar(*next_id, field)), Arc::new(Layout::of_scalar(&schema))));
            }
            let not_columns = || Reject::new(Code::KeyMissing, "the registered schema of the key is not a record of key columns");
            let layout = Layout::of(&schema, schema.root()).ok_or_else(not_columns)?;
            let fields = avro::connect(&schema, schema.root()).ok_or_else(not_columns)?.compile(options, false)?;
            *next_id += 1;
            let order = (0..fields.len()).collect();
            Ok((Arc::new(KeyShape::new(*next_id, fields, order)), Arc::new(layout)))
        };
        let key = self.schema(id).and_then(compile);
        self.keys.entry(id).insert(key).get().clone()
    }

    /// What a schema means as a row without an envelope.
    pub(super) fn row(&mut self, id: u64, options: &Options, next_id: &mut u32) -> Result<RowLayout, Reject> {
        if let Some(row) = self.rows.get(&id) {
            return row.clone();
        }
        let compile = |schema: Arc<Schema>| {
            let not_a_row = || Reject::new(Code::EnvelopeSchema, "the registered schema of the value is not a record");
            let layout = Layout::of(&schema, schema.root()).ok_or_else(not_a_row)?;
            let row = avro::connect(&schema, schema.root()).ok_or_else(not_a_row)?;
            *next_id += 1;
            Ok((ValueSchema::Rows { id: *next_id, fields: row.compile(options, false).map(Arc::new) }, Arc::new(layout)))
        };
        let row = self.schema(id).and_then(compile);
        self.rows.entry(id).insert(row).get().clone()
    }

    /// What a schema means as a value.
    #[inline]
    pub(super) fn value(&mut self, id: u64, options: &Options, next_id: &mut u32) -> Result<ValueLayout, Reject> {
        if let Some(value) = self.values.get(&id) {
            return value.clone();
        }
        let compile = |schema: Arc<Schema>| {
            let (layouts, row) = Layouts::of(&schema)?;
            let value = match row.and_then(|row| avro::connect(&schema, row)) {
                None => ValueSchema::Other,
                Some(row) => {
                    *next_id += 1;
                    ValueSchema::Rows { id: *next_id, fields: row.compile(options, avro::has_spans(&schema)).map(Arc::new) }
                }
            };
            Ok((value, Arc::new(layouts)))
        };
        let value = self.schema(id).and_then(compile);
        self.values.entry(id).insert(value).get().clone()
    }
}
