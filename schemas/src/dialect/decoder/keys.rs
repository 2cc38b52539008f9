//! Keys: those that records carry, those of their rows, and the other side of a key change.

use std::sync::Arc;

use smallvec::SmallVec;

use super::super::Encoding;
use super::super::connect::Schema;
use super::super::datum::Datum;
use super::super::document::{close, open};
use super::super::field::{Field, Wire};
use super::super::layout::Layout;
use super::super::plan::{self, Image, KeyShape, KeyTokens, Plan};
use super::super::protobuf::Slot;
use super::super::registered::Registry;
use super::super::reject::{Code, Reject};
use super::super::scalar::{self, KeyFormat};
use super::super::{declared_type, inferred_type};
use super::{Decoder, KeySchema};
use crate::avro::Budget;
use crate::json::Token;
use crate::types::LogicalType;
use crate::wire::Reader;

fn not_members() -> Reject {
    Reject::new(Code::KeyMissing, "the record key is not an object of key columns, and no `primary_key` of one column says which it is")
}

/// A key document: its members, and the shape that says what they mean.
pub(super) struct KeyDocument<'a> {
    pub(super) shape: Arc<KeyShape>,
    pub(super) members: KeyMembers<'a>,
}

/// The members of a key, as they lie in their record.
pub(super) enum KeyMembers<'a> {
    Json(KeyTokens<'a>),
    /// The bytes of a registered record, how they lie, and where, if they are not in order.
    Registered(&'a [u8], Arc<Layout>, SmallVec<[Slot; 4]>),
    One(Datum<'a>),
}

impl KeyDocument<'_> {
    /// The value of a member.
    #[inline]
    pub(super) fn member(&self, member: usize) -> Option<Datum<'_>> {
        match &self.members {
            KeyMembers::Json(tokens) => tokens[member].map(Datum::Json),
            KeyMembers::Registered(bytes, layout, slots) => layout.member(member, bytes, slots),
            KeyMembers::One(datum) => (member == 0).then_some(*datum),
        }
    }
}

impl Decoder {
    pub(super) fn no_key(&self) -> Reject {
        let reason = format!("a record of table {:?} has no key, and no `primary_key` is given", self.options.table);
        Reject::new(Code::NullKey, reason)
    }

    /// The canonical key that a record's own key says, whatever its value is; `None` where it says none.
    pub fn key_of(&mut self, key: Option<&[u8]>) -> Option<&[u8]> {
        let document = self.open_key(key).ok()??;
        let plan = self.key_plan(&document).ok()?;
        self.key_of_record(&plan, &document).ok()?;
        Some(&self.key.canonical)
    }

    pub(super) fn key_lacks(&self, column: &str) -> Reject {
        let reason = format!("the record key lacks column {column:?} of the key of table {:?}", self.options.table);
        Reject::new(Code::KeyMissing, reason)
    }

    /// Whether `before` can be kept, and whether it says that the key changed; that key is left in `former_key` then.
    pub(super) fn read_before(&mut self, plan: &Plan, image: &Image<'_>) -> Result<(bool, bool), Reject> {
        let overridden = self.options.primary_key.is_some();
        match self.before.write_image(plan, image, &mut self.writer) {
            Ok(()) => {}
            Err(reject) if overridden => return Err(reject),
            // What its columns are is about to be known.
            Err(reject) if reject.code == Code::TypesMissing => return Err(reject),
            // Only the key is owed to anybody; an image that cannot be read is no image.
            Err(_) => return Ok((false, false)),
        }
        let has_before = self.before.unauthored.is_empty();
        if self.before.has_plain_key(&self.key) {
            return Ok((has_before, false));
        }
        match self.before.key(plan, &mut self.former_key) {
            Ok(()) => Ok((has_before, self.former_key.canonical != self.key.canonical)),
            Err(reject) if overridden => Err(reject),
            Err(_) => Ok((false, false)),
        }
    }

    /// The key of a row that has been written to `after`: that of the record, which must be the row's own, or the columns that the options
    /// name. Under fast DDL a record key may be newer than its row (STACK.md), and which of them is right cannot be told.
    pub(super) fn key_of_row(&mut self, plan: &Plan, document: Option<&KeyDocument<'_>>) -> Result<(), Reject> {
        if self.options.primary_key.is_some() {
            return self.after.key(plan, &mut self.key);
        }
        let Some(document) = document else { return Err(self.no_key()) };
        self.key_of_record(plan, document)?;
        if self.after.has_plain_key(&self.key) {
            return Ok(());
        }
        self.after.key(plan, &mut self.former_key)?;
        if self.former_key.canonical == self.key.canonical {
            return Ok(());
        }
        let reason = format!("the record key is not the key of its row in table {:?}", self.options.table);
        Err(Reject::new(Code::KeyMismatch, reason))
    }

    pub(super) fn key_of_record(&mut self, plan: &Plan, document: &KeyDocument<'_>) -> Result<(), Reject> {
        self.key.clear();
        let shape = &document.shape;
        for position in 0..plan.schema.key().len() {
            let name = plan.key_name(position);
            let member = match self.options.primary_key {
                None => shape.order.get(position).copied(),
                Some(_) => shape.member(name),
            };
            let Some(member) = member else { return Err(self.key_lacks(name)) };
            self.key.push_member(plan, position, &shape.fields[member], document.member(member), &mut self.writer)?;
        }
        Ok(())
    }

    /// Reads the key that a header names into `former_key`; false where it cannot be read, since no row is rejected for its headers.
    ///
    /// It has the members of the record key, as Connect's header converter writes them: JSON, with a schema part or without, in which the
    /// default converter writes decimals as numbers.
    pub(super) fn read_other_key(&mut self, plan: &Plan, document: Option<&KeyDocument<'_>>, header: &[u8]) -> bool {
        let Some(KeyDocument { shape, .. }) = document else { return false };
        let Ok(mut opened) = open(header, "header", &mut self.header_schemas, |_| Ok(())) else { return false };
        let Ok(Token::Object(text)) = opened.scanner.value() else { return false };
        let Ok(tokens) = plan::gather(&shape.fields, text, "header") else { return false };
        let mut shape = Arc::clone(shape);
        let is_decimal = |f: &Field| matches!(f.ty, LogicalType::Decimal { .. } | LogicalType::Numeric);
        if shape.fields.iter().zip(&tokens).any(|(f, token)| is_decimal(f) && matches!(token, Some(Token::Number(_)))) {
            let any = self.options.any();
            let as_number = |f: &Field| if is_decimal(f) { Field::new(f.name.clone(), Some(any), f.ty, f.nullable) } else { f.clone() };
            shape = Arc::new(KeyShape::new(shape.id, shape.fields.iter().map(as_number).collect(), shape.order.clone()));
        }
        std::mem::swap(&mut self.key, &mut self.former_key);
        let read = self.key_of_record(plan, &KeyDocument { shape, members: KeyMembers::Json(tokens) });
        std::mem::swap(&mut self.key, &mut self.former_key);
        read.is_ok()
    }

    /// The key of a delete: the record key's, and from `before` only what the record key lacks.
    pub(super) fn key_of_delete(&mut self, plan: &Plan, before: Option<&Image<'_>>, document: Option<&KeyDocument<'_>>) -> Result<(), Reject> {
        if self.options.primary_key.is_none() {
            let Some(document) = document else { return Err(self.no_key()) };
            return self.key_of_record(plan, document);
        }
        self.key.clear();
        let mut is_read = false;
        for position in 0..plan.schema.key().len() {
            let name = plan.key_name(position);
            let member = document.and_then(|d| Some((d, d.shape.member(name)?)));
            if let Some((document, member)) = member {
                self.key.push_member(plan, position, &document.shape.fields[member], document.member(member), &mut self.writer)?;
                continue;
            }
            let Some(image) = before else {
                let reason = format!("a delete carries no key column {name:?} of table {:?}", self.options.table);
                return Err(Reject::new(Code::KeyMissing, reason));
            };
            if !is_read {
                is_read = true;
                self.before.write_image(plan, image, &mut self.writer)?;
            }
            self.before.append_key(plan, position, &mut self.key)?;
        }
        Ok(())
    }

    /// Reads a record key; `None` where there is none.
    pub(super) fn open_key<'a>(&mut self, bytes: Option<&'a [u8]>) -> Result<Option<KeyDocument<'a>>, Reject> {
        let Some(bytes) = bytes else { return Ok(None) };
        let encoding = match self.options.key_format {
            KeyFormat::Detected => Encoding::Detected,
            KeyFormat::Json => Encoding::Json,
            format => {
                let shape = self.scalar_shape()?;
                let datum = match format.integer(bytes) {
                    Some(value) => Datum::Integer(value?),
                    None => {
                        let text = std::str::from_utf8(bytes).map_err(|e| Reject::json("key", e))?;
                        Datum::Json(scalar::token(text, shape.fields[0].ty))
                    }
                };
                return Ok(Some(KeyDocument { shape, members: KeyMembers::One(datum) }));
            }
        };
        if let Some(framed) = Registry::frame(&self.options, encoding, bytes, "key") {
            let mut framed = framed?;
            let (shape, layout) = self.registry.key(&mut framed, &self.options, &mut self.next_id)?;
            let mut reader = Reader::new(framed.body);
            let mut slots = SmallVec::new();
            let passed = layout.check(&mut reader, &mut Budget::of(framed.body.len()), &mut slots).and_then(|()| reader.finish());
            passed.map_err(|e| layout.invalid("key", e))?;
            return Ok(Some(KeyDocument { shape, members: KeyMembers::Registered(framed.body, layout, slots) }));
        }
        // Text that is no JSON is no key of members either.
        if let (Encoding::Detected, Some(name), true) = (encoding, self.options.scalar_key(), scalar::is_text(bytes)) {
            let ty = declared_type(&self.options, name).or_else(|| inferred_type(&self.options, name)).unwrap_or(LogicalType::Json);
            let text = std::str::from_utf8(bytes).map_err(|e| Reject::json("key", e))?;
            let (shape, datum) = (self.scalar_shape()?, Datum::Json(scalar::detected(text, ty)));
            return Ok(Some(KeyDocument { shape, members: KeyMembers::One(datum) }));
        }
        let mut opened = open(bytes, "key", &mut self.key_schemas, |text| {
            let schema = Schema::parse(text, "key")?;
            self.next_id += 1;
            let id = self.next_id;
            Ok(match self.options.scalar_key() {
                Some(name) if !schema.has_members() => {
                    let fields = Schema::row_of(vec![schema.named(name)]).compile(&self.options, false);
                    let field = fields.and_then(|fields| fields.into_iter().next().ok_or_else(not_members));
                    field.map(|field| Arc::new(KeyShape::scalar(id, field)))
                }
                _ => schema.compile(&self.options, false).map(|fields| {
                    let order = (0..fields.len()).collect();
                    Arc::new(KeyShape::new(id, fields, order))
                }),
            })
        })?;
        let token = opened.scanner.value().map_err(|e| Reject::json("key", e))?;
        close(&mut opened, "key")?;
        let shape = opened.schema.transpose()?;
        let text = match token {
            Token::Null => return Ok(None),
            Token::Object(text) if shape.as_ref().is_none_or(|shape| !shape.is_scalar) => text,
            token => {
                let shape = match shape {
                    Some(shape) if shape.is_scalar => shape,
                    None if self.options.scalar_key().is_some() => self.scalar_shape()?,
                    _ => return Err(not_members()),
                };
                return Ok(Some(KeyDocument { shape, members: KeyMembers::One(Datum::Json(token)) }));
            }
        };
        let Some(shape) = shape else { return self.open_bare_key(text).map(Some) };
        let tokens = plan::gather(&shape.fields, text, "key")?;
        Ok(Some(KeyDocument { shape, members: KeyMembers::Json(tokens) }))
    }

    /// The shape of a key that is one value without a schema; its type is declared, or follows from its format.
    fn scalar_shape(&mut self) -> KeySchema {
        if self.scalar_shape.is_none() {
            self.next_id += 1;
            let shape = self.options.scalar_key().ok_or_else(not_members).and_then(|name| {
                let format = self.options.key_format;
                let said = declared_type(&self.options, name).or(format.ty());
                let inferred = inferred_type(&self.options, name).filter(|_| said.is_none());
                let ty = said.or(inferred).ok_or_else(|| {
                    if self.options.infer {
                        return Reject::untyped(&self.options.table, [name]);
                    }
                    let reason = format!(
                        "record keys of table {:?} are single values, and no type is declared for column {name:?}; declare it, or say the key's format",
                        self.options.table
                    );
                    Reject::new(Code::TypesMissing, reason)
                })?;
                let is_integer = matches!(format, KeyFormat::Int16 | KeyFormat::Int32 | KeyFormat::Int64);
                let wire = match inferred {
                    Some(_) => Wire::Literal,
                    None if is_integer => Wire::Integer,
                    None => self.options.any(),
                };
                Ok(Arc::new(KeyShape::scalar(self.next_id, Field::new(name.to_owned(), Some(wire), ty, false))))
            });
            self.scalar_shape = Some(shape);
        }
        self.scalar_shape.clone().unwrap_or_else(|| Err(not_members()))
    }

    /// Reads a key without a schema part. Its columns are ordered as they were declared, however they stand in the record (case KEY-03).
    pub(super) fn open_bare_key<'a>(&mut self, text: &'a str) -> Result<KeyDocument<'a>, Reject> {
        if let Some((_, Ok(shape))) = self.bare_keys.first()
            && let Ok(tokens) = plan::gather(&shape.fields, text, "key")
            && tokens.iter().all(Option::is_some)
        {
            return Ok(KeyDocument { shape: Arc::clone(shape), members: KeyMembers::Json(tokens) });
        }
        let names = plan::names(text, "key")?;
        let shape = self.bare_shape(&names).map_err(|reject| {
            let key: Vec<String> = names.into_iter().filter(|name| self.is_key(name)).collect();
            self.without_key(reject, text, &key)
        })?;
        let tokens = plan::gather(&shape.fields, text, "key")?;
        Ok(KeyDocument { shape, members: KeyMembers::Json(tokens) })
    }

    /// Whether a member of a record key is one of the table's.
    fn is_key(&self, name: &str) -> bool {
        self.options.primary_key.as_ref().is_none_or(|key| key.iter().any(|column| column == name))
    }

    /// The shape of a key of these columns, whose types are declared.
    pub(super) fn bare_shape(&mut self, names: &[String]) -> KeySchema {
        match self.bare_keys.find(|(n, _)| n == names) {
            Some((_, shape)) => shape.clone(),
            None => {
                self.next_id += 1;
                let id = self.next_id;
                let shape = self.declared_fields(names).and_then(|fields| {
                    let untyped: Vec<&str> = fields.iter().filter(|f| f.is_untyped && self.is_key(&f.name)).map(|f| f.name.as_str()).collect();
                    if !untyped.is_empty() {
                        return Err(Reject::untyped(&self.options.table, untyped));
                    }
                    // Those that were declared first, then in the order in which they were settled: both are the same for everybody.
                    let (declared, inferred) = (&self.options.types, &self.options.inferred);
                    let place = |i: &usize| declared.iter().chain(inferred).position(|(name, _)| *name == fields[*i].name);
                    let mut order: Vec<usize> = (0..fields.len()).collect();
                    order.sort_by_key(place);
                    Ok(Arc::new(KeyShape::new(id, fields, order)))
                });
                self.bare_keys.put((names.to_vec(), shape)).1.clone()
            }
        }
    }
}
