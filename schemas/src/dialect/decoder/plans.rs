//! Plans: how the rows of a shape are written, worked out once and kept. What a plan is made of is what a record says, never what came before it.

use std::sync::Arc;

use super::super::connect::Schema;
use super::super::document::{Opened, open};
use super::super::field::{BinaryStrings, Field, Wire};
use super::super::plan::{self, Beside, Fit, Image, KeyShape, Plan};
use super::super::reject::{Code, Reject};
use super::super::{Dialect, declared_type, list};
use super::keys::KeyDocument;
use super::{Decoder, Planned, ValueSchema};
use crate::json::Scanner;
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
            None => self.bare_plans.first().filter(|(_, key, _)| *key == key_id).map(|(_, _, plan)| plan),
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
                (Some(Image::Json(text)), _) => self.bare_plan(text, is_delete, key_id, shape),
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

    /// The plan of a record that says nothing but a key: the key columns are all that it knows.
    pub(super) fn key_plan(&mut self, document: &KeyDocument<'_>) -> Planned {
        let shape = &document.shape;
        if let Some((_, plan)) = self.key_plans.find(|(id, _)| *id == shape.id) {
            return plan.clone();
        }
        let names = self.options.primary_key.as_ref().unwrap_or(&shape.names);
        let field = |name: &String| shape.member(name).map(|i| shape.fields[i].clone()).ok_or_else(|| self.key_lacks(name));
        let plan = names.iter().map(field).collect::<Result<_, _>>().and_then(|fields| self.plan_of(fields, 0, Vec::new(), Some(shape)));
        self.key_plans.put((shape.id, plan)).1.clone()
    }

    /// The plan of rows with these members. What is declared beside them is a column all the same: a new row has NULL there, an update keeps what
    /// stood there (cases ENV-01, TOA-04).
    pub(super) fn bare_plan_of(&self, mut fields: Vec<Field>, shape: Option<&Arc<KeyShape>>) -> Planned {
        let beside = self.beside(&mut fields, shape)?;
        let is_lacking = |name: &&String| !fields.iter().any(|f| f.name == **name) && !self.options.leaves_out(name);
        let declared = self.options.types.iter().map(|(name, _)| name).filter(|_| self.options.types_are_columns);
        let lacking: Vec<String> = declared.filter(is_lacking).cloned().collect();
        fields.extend(self.declared_fields(&lacking)?);
        self.plan_of(fields, lacking.len(), beside, shape)
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
        self.plan_of(fields, 0, beside, shape)
    }

    /// The plan of fields, behind whose present ones those beside the row stand, then others that rows lack.
    fn plan_of(&self, fields: Vec<Field>, lacking: usize, beside: Vec<Beside>, shape: Option<&Arc<KeyShape>>) -> Planned {
        let key = match (&self.options.primary_key, shape) {
            (Some(names), _) => names,
            (None, Some(shape)) => &shape.names,
            (None, None) => return Err(self.no_key()),
        };
        let plan = Plan::new(&self.options, fields, lacking + beside.len(), key)?;
        Ok(Arc::new(plan.with(beside)))
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
