//! Plans: how the rows of a shape are written, worked out once and kept. What a plan is made of is what a record says, never what came before it.

use std::sync::Arc;

use super::super::connect::Schema;
use super::super::document::{Opened, open};
use super::super::field::{BinaryStrings, Field, Wire};
use super::super::open::{self, Open};
use super::super::plan::{self, Beside, Fit, Image, KeyShape, Plan};
use super::super::reject::{Code, Reject};
use super::super::{Dialect, declared_type, inferred_type, list};
use super::keys::KeyDocument;
use super::{Decoder, Planned, ValueSchema};
use crate::json::{Scanner, Token};
use crate::types::LogicalType;

impl Decoder {
    /// The plan of the last row of a record like this one: a guess, which saves passing over the row before it is written.
    pub(super) fn guess(&self, schema: Option<&ValueSchema>, key: &Result<Option<KeyDocument<'_>>, Reject>) -> Option<Arc<Plan>> {
        let key_id = match key {
            Ok(Some(document)) if self.has_columns_of_key() => document.shape.id,
            Ok(_) => 0,
            Err(_) => return None,
        };
        let plan = match schema {
            Some(ValueSchema::Rows { id, .. }) => self.plans.first().filter(|(row, key, _)| row == id && *key == key_id).map(|(_, _, plan)| plan),
            Some(ValueSchema::Other) => None,
            None => {
                let plans = if self.is_open() { &self.open_plans } else { &self.bare_plans };
                plans.first().filter(|(_, key, _)| *key == key_id).map(|(_, _, plan)| plan)
            }
        };
        plan?.as_ref().ok().map(Arc::clone)
    }

    /// Whether the shape of the record key matters to the plan: not with a key of the options' own choosing, if the row holds all of its columns.
    fn has_columns_of_key(&self) -> bool {
        self.options.primary_key.is_none() || self.options.dialect == Dialect::Plain
    }

    /// The plan of a record's rows. Unless it deletes, its row has been written to `after` with it, perhaps on the way already: then `current`
    /// is the plan that it was written with.
    pub(super) fn plan(&mut self, schema: Option<ValueSchema>, image: Option<&Image<'_>>, is_delete: bool, key: Option<&KeyDocument<'_>>) -> Planned {
        let shape = key.map(|k| &k.shape).filter(|_| self.has_columns_of_key());
        let key_id = shape.map_or(0, |s| s.id);
        match schema {
            Some(ValueSchema::Rows { id, fields }) => {
                let plan = match self.plans.find(|(row, key, _)| *row == id && *key == key_id) {
                    Some((_, _, plan)) => plan.clone()?,
                    None => {
                        let plan = fields.and_then(|fields| self.new_plan(fields.to_vec(), shape)).map_err(Reject::of_the_table);
                        self.plans.put((id, key_id, plan)).2.clone()?
                    }
                };
                let is_written = self.current.as_ref().is_some_and(|written| Arc::ptr_eq(written, &plan));
                if let (Some(image), false, false) = (image, is_delete, is_written) {
                    self.after.write_image(&plan, image, &mut self.writer)?;
                }
                Ok(plan)
            }
            Some(ValueSchema::Other) => Err(Reject::new(Code::EnvelopeSchema, "the schema part describes no change event")),
            None => match (image, key) {
                (Some(Image::Json(text)), _) => self.bare_plan(text, is_delete, key_id, shape).map_err(|reject| {
                    let names = shape.map_or(&[][..], |shape| &shape.names);
                    self.without_key(reject, text, self.options.primary_key.as_deref().unwrap_or(names))
                }),
                (_, Some(key)) => self.key_plan(key),
                (_, None) => Err(self.no_key()),
            },
        }
    }

    /// The plan of a row without a schema part: the columns are the members that it has.
    pub(super) fn bare_plan(&mut self, text: &str, is_delete: bool, key_id: u32, shape: Option<&Arc<KeyShape>>) -> Planned {
        if let Some(written) = self.current.take().filter(|_| !is_delete) {
            return Ok(written);
        }
        if self.is_open() {
            return self.open_plan(text, is_delete, key_id, shape);
        }
        if let Some((_, key, Ok(plan))) = self.bare_plans.first()
            && *key == key_id
            && is_delete
            && plan::has_members(plan.present(), text)
        {
            return Ok(Arc::clone(plan));
        }
        // The last plan is the right one where its members stand in the row; what is wrong with a row is told by the plan of its own members.
        if let (Some((_, key, Ok(plan))), false) = (self.bare_plans.first(), is_delete)
            && *key == key_id
        {
            let plan = Arc::clone(plan);
            if let Ok(Fit::Written) = self.after.write(&plan, &mut Scanner::new(text), &mut self.writer) {
                return Ok(plan);
            }
        }
        let names = plan::names(text, "row")?;
        if names.is_empty() {
            return Err(Reject::new(Code::EnvelopeRowMissing, format!("a row of table {:?} has no members", self.options.table)));
        }
        let plan = match self.bare_plans.find(|(n, key, _)| *key == key_id && *n == names) {
            Some((_, _, plan)) => plan.clone()?,
            None => {
                let plan = self.declared_fields(&names).and_then(|fields| self.bare_plan_of(fields, shape));
                self.bare_plans.put((names, key_id, plan)).2.clone()?
            }
        };
        if !is_delete && self.after.write(&plan, &mut Scanner::new(text), &mut self.writer)? == Fit::OtherMembers {
            return Err(Reject::new(Code::EnvelopeInvalid, "a row does not have the members that were read from it"));
        }
        Ok(plan)
    }

    /// Whether rows without a schema part are read by what is settled of their table, rather than by the members that each has.
    fn is_open(&self) -> bool {
        // What a pattern declares is not said of this table alone.
        !self.options.inferred.is_empty() && (self.options.types_are_columns || self.options.types.is_empty())
    }

    /// The plan of such a row: the columns are all that are known.
    fn open_plan(&mut self, text: &str, is_delete: bool, key_id: u32, shape: Option<&Arc<KeyShape>>) -> Planned {
        if let (Some((_, key, Ok(plan))), false) = (self.open_plans.first(), is_delete)
            && *key == key_id
        {
            let plan = Arc::clone(plan);
            if let Ok(Fit::Written) = self.after.write(&plan, &mut Scanner::new(text), &mut self.writer) {
                return Ok(plan);
            }
        }
        // Of other rows than plain ones nothing stands beside them.
        let names = shape.filter(|_| self.options.dialect == Dialect::Plain).map_or(&[][..], |shape| &shape.names);
        let Some(beside) = open::lacking(text, names)? else {
            return Err(Reject::new(Code::EnvelopeRowMissing, format!("a row of table {:?} has no members", self.options.table)));
        };
        let beside: Vec<String> = beside.into_iter().cloned().collect();
        let plan = match self.open_plans.find(|(names, key, _)| *key == key_id && *names == beside) {
            Some((_, _, plan)) => plan.clone()?,
            None => {
                let plan = self.new_open_plan(&beside, shape);
                self.open_plans.put((beside, key_id, plan)).2.clone()?
            }
        };
        if !is_delete {
            self.after.write_image(&plan, &Image::Json(text), &mut self.writer)?;
        }
        Ok(plan)
    }

    fn new_open_plan(&self, beside: &[String], shape: Option<&Arc<KeyShape>>) -> Planned {
        let options = &self.options;
        let known = options.types.iter().chain(&options.inferred).map(|(name, _)| name);
        let is_header = |name: &String| options.headers.iter().any(|(column, _)| column == name);
        let mut names: Vec<String> = Vec::new();
        for name in known {
            if !names.contains(name) && !beside.contains(name) && !is_header(name) && !options.leaves_out(name) {
                names.push(name.clone());
            }
        }
        let mut fields = self.declared_fields(&names)?;
        let beside = self.beside(&mut fields, shape)?;
        let key = options.primary_key.as_deref().or_else(|| shape.map(|shape| shape.names.as_slice())).unwrap_or_default();
        let untyped: Vec<&str> = key.iter().filter(|name| !fields.iter().any(|f| f.name == **name)).map(String::as_str).collect();
        if !untyped.is_empty() && options.infer {
            return Err(Reject::untyped(&options.table, untyped));
        }
        self.plan_of(fields, 0, beside, shape, Some(Open::new(options)))
    }

    /// The plan of a record that says nothing but a key: the key columns are all that it knows.
    pub(super) fn key_plan(&mut self, document: &KeyDocument<'_>) -> Planned {
        let shape = &document.shape;
        if let Some((_, plan)) = self.key_plans.find(|(id, _)| *id == shape.id) {
            return plan.clone();
        }
        let names = self.options.primary_key.as_ref().unwrap_or(&shape.names);
        let field = |name: &String| shape.member(name).map(|i| shape.fields[i].clone()).ok_or_else(|| self.key_lacks(name));
        let plan = names.iter().map(field).collect::<Result<_, _>>().and_then(|fields| self.plan_of(fields, 0, Vec::new(), Some(shape), None));
        self.key_plans.put((shape.id, plan)).1.clone()
    }

    /// The plan of rows with these members. What is declared beside them is a column all the same: a new row has NULL there, an update keeps what
    /// stood there (cases ENV-01, TOA-04).
    pub(super) fn bare_plan_of(&self, mut fields: Vec<Field>, shape: Option<&Arc<KeyShape>>) -> Planned {
        let beside = self.beside(&mut fields, shape)?;
        let is_lacking = |name: &&String| !fields.iter().any(|f| f.name == **name) && !self.options.leaves_out(name);
        let declared = self.options.types.iter().map(|(name, _)| name).filter(|_| self.options.types_are_columns);
        let inferred = self.options.inferred.iter().map(|(name, _)| name).filter(|name| declared_type(&self.options, name).is_none());
        let lacking: Vec<String> = declared.chain(inferred).filter(is_lacking).cloned().collect();
        fields.extend(self.declared_fields(&lacking)?);
        self.plan_of(fields, lacking.len(), beside, shape, None)
    }

    /// Columns that stand beside a plain row: those of its record key, unless the row has them too, and the headers that are asked for.
    fn beside(&self, fields: &mut Vec<Field>, shape: Option<&Arc<KeyShape>>) -> Result<Vec<Beside>, Reject> {
        let mut beside = Vec::new();
        if self.options.dialect != Dialect::Plain {
            return Ok(beside);
        }
        for (member, field) in shape.iter().flat_map(|shape| shape.fields.iter().enumerate()) {
            if !fields.iter().any(|f| f.name == field.name) && !self.options.leaves_out(&field.name) {
                fields.push(field.clone());
                beside.push(Beside::Key(member));
            }
        }
        for (column, header) in &self.options.headers {
            if fields.iter().any(|f| f.name == *column) {
                let reason = format!("column {column:?} of table {:?} is to hold a header, and rows have a member of that name", self.options.table);
                return Err(Reject::new(Code::DuplicateColumn, reason));
            }
            let ty = declared_type(&self.options, column).unwrap_or(LogicalType::Text);
            let wire = if ty == LogicalType::Bytes { Wire::Bytes(BinaryStrings::Base64) } else { self.options.any() };
            fields.push(Field::new(column.clone(), Some(wire), ty, true));
            beside.push(Beside::Header(header.clone()));
        }
        Ok(beside)
    }

    pub(super) fn new_plan(&self, mut fields: Vec<Field>, shape: Option<&Arc<KeyShape>>) -> Planned {
        let beside = self.beside(&mut fields, shape)?;
        self.plan_of(fields, 0, beside, shape, None)
    }

    /// The plan of fields, behind whose present ones those beside the row stand, then others that rows lack.
    fn plan_of(&self, fields: Vec<Field>, lacking: usize, beside: Vec<Beside>, shape: Option<&Arc<KeyShape>>, open: Option<Open>) -> Planned {
        let key = match (&self.options.primary_key, shape) {
            (Some(names), _) => names,
            (None, Some(shape)) => &shape.names,
            (None, None) => return Err(self.no_key()),
        };
        let untyped: Vec<&str> = fields.iter().filter(|f| f.is_untyped && key.contains(&f.name)).map(|f| f.name.as_str()).collect();
        if !untyped.is_empty() {
            return Err(Reject::untyped(&self.options.table, untyped));
        }
        // Nothing but members without types, and the key is none of them: see `without_key`.
        if fields.iter().any(|f| f.is_untyped) && fields.iter().all(|f| f.wire.is_none()) {
            if key.is_empty() {
                return Err(self.no_key());
            }
            return Err(Reject::untyped(&self.options.table, key.iter().map(String::as_str)));
        }
        let plan = Plan::new(&self.options, fields, lacking + beside.len(), key)?;
        Ok(Arc::new(plan.with(beside, open)))
    }

    /// The fields of a row or key that has no schema part; every column that is not declared is named.
    pub(super) fn declared_fields(&self, names: &[String]) -> Result<Vec<Field>, Reject> {
        let any = self.options.any();
        let mut missing = Vec::new();
        let mut fields = Vec::with_capacity(names.len());
        for name in names {
            if self.options.leaves_out(name) {
                fields.push(Field::new(name.clone(), None, LogicalType::Text, true));
            } else if let Some(ty) = declared_type(&self.options, name) {
                fields.push(Field::new(name.clone(), Some(any), ty, true));
            } else if let Some(ty) = inferred_type(&self.options, name) {
                fields.push(Field::new(name.clone(), Some(Wire::Literal), ty, true));
            } else if self.options.infer {
                fields.push(Field::untyped(name.clone()));
            } else {
                missing.push(format!("{name:?}"));
            }
        }
        if missing.is_empty() {
            return Ok(fields);
        }
        let reason = format!(
            "records of table {:?} have no schema part, and no type is declared for {}; declare them, or let the converter send schemas",
            self.options.table,
            list(&missing)
        );
        Err(Reject::new(Code::TypesMissing, reason))
    }

    /// Where types of key columns are missing because a record has no value there, that is what is wrong with it.
    pub(super) fn without_key(&self, reject: Reject, text: &str, key: &[String]) -> Reject {
        if reject.code != Code::TypesMissing || !self.options.infer {
            return reject;
        }
        let is_untyped = |name: &&String| declared_type(&self.options, name).or_else(|| inferred_type(&self.options, name)).is_none();
        let mut missing: Vec<&String> = key.iter().filter(is_untyped).collect();
        let mut scanner = Scanner::new(text);
        let (mut first, mut name) = (true, String::new());
        if scanner.enter_object().is_err() {
            return reject;
        }
        while let Ok(Some(member)) = scanner.member(first) {
            first = false;
            name.clear();
            let is_null = matches!(scanner.value(), Ok(Token::Null)) && member.unescape(&mut name);
            if is_null && missing.contains(&&name) {
                return plan::null_key(&self.options.table, &name);
            }
            missing.retain(|column| !member.is(column));
        }
        match missing.first() {
            Some(column) => {
                let reason = format!("the row does not carry key column {column:?} of table {:?}", self.options.table);
                Reject::new(Code::KeyMissing, reason)
            }
            None => reject,
        }
    }

    pub(super) fn open_value<'a>(&mut self, bytes: &'a [u8]) -> Result<Opened<'a, ValueSchema>, Reject> {
        open(bytes, "value", &mut self.value_schemas, |text| {
            let schema = Schema::parse(text, "value")?;
            let is_row = matches!(self.options.dialect, Dialect::Flattened | Dialect::Plain);
            let row = if is_row { Some(&schema) } else { schema.row() };
            let Some(row) = row else { return Ok(ValueSchema::Other) };
            self.next_id += 1;
            Ok(ValueSchema::Rows { id: self.next_id, fields: row.compile(&self.options, schema.has_spans()).map(Arc::new) })
        })
    }
}
