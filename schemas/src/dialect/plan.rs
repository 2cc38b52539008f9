//! How the members of a row or a key become canonical bytes, worked out once per shape and kept.
//!
//! A plan is made of what a record says (its fields and the names of its key), nothing else: equal records give equal plans in every process.
//! Connectors write members in the order of their schema, so a row is written while it is read, in one pass; any other order is gathered
//! first. Members that the record's own schema has and its row lacks were not sent, which is not NULL (case TOA-04).

use std::sync::Arc;

use smallvec::SmallVec;

use super::Options;
use super::datum::{self, Datum, Unpacked};
use super::field::Field;
use super::layout::Layout;
use super::open::Open;
use super::placeholder::Placeholder;
use super::protobuf::Slot;
use super::reject::{Code, Fault, Reject};
use super::verbatim::Copied;
use super::{avro, literal, protobuf};
use crate::avro::Budget;
use crate::contract::{self, Fingerprint};
use crate::json::{Scanner, Token};
use crate::mask::Mask;
use crate::row;
use crate::table::{COLUMNS_MAX, Column, ColumnSet, TableSchema};
use crate::value::Value;
use crate::wire::Reader;
use crate::{key, types::LogicalType};

/// The members of a key, in the order in which the record has them.
#[derive(Debug)]
pub(super) struct KeyShape {
    /// Tells shapes apart, within one decoder.
    pub(super) id: u32,
    pub(super) fields: Vec<Field>,
    /// Key position → member.
    pub(super) order: Vec<usize>,
    /// Whether the key is one value rather than an object of members.
    pub(super) is_scalar: bool,
    /// Names in key order.
    pub(super) names: Vec<String>,
}

impl KeyShape {
    pub(super) fn new(id: u32, fields: Vec<Field>, order: Vec<usize>) -> Self {
        let names = order.iter().filter_map(|i| fields.get(*i)).map(|f| f.name.clone()).collect();
        Self { id, fields, order, names, is_scalar: false }
    }

    /// The shape of a key that is the value of one column.
    pub(super) fn scalar(id: u32, field: Field) -> Self {
        Self { is_scalar: true, ..Self::new(id, vec![field], vec![0]) }
    }

    pub(super) fn member(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|f| f.name == name)
    }
}

/// Where a column comes from that stands beside its row.
#[derive(Clone, Debug)]
pub(super) enum Beside {
    /// A member of the record key.
    Key(usize),
    /// A header of the record, by its name.
    Header(String),
}

/// The tokens of a record key, by member.
pub(super) type KeyTokens<'a> = SmallVec<[Option<Token<'a>>; 4]>;

/// What stands for the values of a column that are there.
#[derive(Clone, Debug)]
pub(super) enum Substitute {
    /// A mask of their text.
    Mask(Mask),
    /// Their text.
    Text,
}

/// How rows of one shape are written.
#[derive(Debug)]
pub(super) struct Plan {
    /// Those that records have, then those that they lack.
    fields: Vec<Field>,
    /// How many of the fields the rows lack: columns that stand beside them, then those that are declared and stand nowhere.
    lacking: usize,
    /// Where the first of these come from.
    beside: Vec<Beside>,
    /// What of a row is no column, where rows have any of the members in any order.
    pub(super) open: Option<Open>,
    /// Member → position in the key.
    key_positions: Vec<Option<usize>>,
    /// Names of the key columns in the source, in key order.
    key_names: Vec<String>,
    /// Member → how its values are copied from Avro.
    copied: Vec<Copied>,
    /// Member → what stands for its values; empty where nothing does for any.
    substitutes: Vec<Option<Substitute>>,
    pub(super) schema: Arc<TableSchema>,
    pub(super) fingerprint: Fingerprint,
}

impl Plan {
    /// A plan of fields, the last `lacking` of which no row has.
    pub(super) fn new(options: &Options, fields: Vec<Field>, lacking: usize, key: &[String]) -> Result<Self, Reject> {
        let substitutes: Vec<Option<Substitute>> = fields.iter().map(|f| options.substitute(&f.name)).collect();
        if let Some((hidden, _)) = fields.iter().zip(&substitutes).find(|(f, other)| other.is_some() && key.contains(&f.name)) {
            let reason = format!("column {:?} of table {:?} is masked or made text, and its key needs it as it is", hidden.name, options.table);
            return Err(Reject::new(Code::KeyType, reason));
        }
        let column = |(f, other): (&Field, &Option<Substitute>)| {
            let ty = if other.is_some() { LogicalType::Text } else { f.ty };
            f.wire.map(|_| Column { name: options.renamed(&f.name).to_owned(), ty, nullable: f.nullable })
        };
        let columns = fields.iter().zip(&substitutes).filter_map(column).collect();
        let names: Vec<&str> = key.iter().map(|name| options.renamed(name)).collect();
        let schema = TableSchema::new(&options.table, columns, &names)?;
        let copied = fields.iter().zip(&substitutes).map(|(f, other)| if other.is_some() { Copied::No } else { Copied::of(f) }).collect();
        let substitutes = if substitutes.iter().any(Option::is_some) { substitutes } else { Vec::new() };
        let (_, fingerprint) = contract::of(&schema);
        let key_positions = fields.iter().map(|f| f.wire.and(key.iter().position(|k| *k == f.name))).collect();
        let key_names = key.to_vec();
        Ok(Self {
            fields,
            lacking,
            beside: Vec::new(),
            open: None,
            key_positions,
            key_names,
            copied,
            substitutes,
            schema: Arc::new(schema),
            fingerprint,
        })
    }

    /// The same, where the first of the fields that rows lack stand beside them.
    pub(super) fn with(self, beside: Vec<Beside>, open: Option<Open>) -> Self {
        Self { beside, open, ..self }
    }

    /// Where the first of the fields come from that rows lack.
    pub(super) fn beside(&self) -> &[Beside] {
        &self.beside
    }

    /// Whether a field is part of the key.
    pub(super) fn is_key(&self, member: usize) -> bool {
        self.key_positions.get(member).is_some_and(Option::is_some)
    }

    /// All fields.
    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The fields that records have.
    pub(super) fn present(&self) -> &[Field] {
        &self.fields[..self.fields.len() - self.lacking]
    }

    /// The name that a key column has in the source.
    pub(super) fn key_name(&self, position: usize) -> &str {
        self.key_names.get(position).map_or("", String::as_str)
    }

    pub(super) fn key_type(&self, position: usize) -> Option<(&str, LogicalType)> {
        let column = self.schema.columns().get(*self.schema.key().get(position)?)?;
        Some((&column.name, column.ty))
    }
}

/// A row as it lies in its record.
#[derive(Clone, Debug)]
pub(super) enum Image<'a> {
    /// The text of an object.
    Json(&'a str),
    /// The bytes of a registered record, and how they lie.
    Registered(&'a [u8], Arc<Layout>),
}

/// Whether a row has the members of a plan in the plan's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Written,
    OtherMembers,
}

/// An encoded row under construction, with where its key columns lie.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) bytes: Vec<u8>,
    pub(super) unauthored: ColumnSet,
    /// Columns of members that stand nowhere in the row, of those that were not sent.
    absent: ColumnSet,
    key_spans: SmallVec<[(usize, usize); 4]>,
    column: usize,
}

/// What rows and keys are written with, kept from record to record.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) placeholder: Placeholder,
    pub(super) unpacked: Unpacked,
    /// Where the fields of a row lie that are not in order.
    pub(super) slots: Vec<Slot>,
    /// The text of a value that another stands for, and its mask.
    pub(super) masked: (String, String),
    /// How many digits decimals of this record may still be moved by.
    digits: u32,
}

/// How many digits the decimals of one record may be moved by to the scales of their columns: a few bytes, `1e139000`, may ask for as many.
const MOVED_DIGITS_MAX: u32 = 1 << 20;
/// What the elements of the arrays of one record may come to: so many bytes, and so often as many as the record has.
const ELEMENTS_BYTES_FREE: usize = 4 << 20;
const ELEMENTS_FACTOR: usize = 4;
/// A move by so few digits is arithmetic on one word.
pub(super) const MOVED_FREELY: u32 = 38;

/// The most that a buffer keeps between records; one great row may not hold its memory for ever.
const BUFFER_BYTES_MAX: usize = 1 << 20;

impl Writer {
    pub(super) fn new(placeholder: Placeholder) -> Self {
        Self { placeholder, unpacked: Unpacked::default(), slots: Vec::new(), masked: Default::default(), digits: MOVED_DIGITS_MAX }
    }

    /// Begins with a record of so many bytes: gives back what an uncommonly large value has needed.
    pub(super) fn begin(&mut self, bytes: usize) {
        self.digits = MOVED_DIGITS_MAX;
        self.unpacked.elements = ELEMENTS_BYTES_FREE + ELEMENTS_FACTOR * bytes;
        let Unpacked { text, bytes, items, .. } = &mut self.unpacked;
        if text.capacity() > BUFFER_BYTES_MAX {
            *text = String::new();
        }
        for buffer in [bytes, items] {
            if buffer.capacity() > BUFFER_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
    }
}

/// Takes what a value costs from what its record may.
#[inline]
fn spend(digits: &mut u32, ty: LogicalType, value: &Value<'_>) -> Result<(), Fault> {
    let (LogicalType::Decimal { scale, .. }, Value::Decimal(value)) = (ty, value) else { return Ok(()) };
    let by = value.scale.abs_diff(scale as i32);
    if by > MOVED_FREELY {
        *digits = digits.checked_sub(by).ok_or(Fault::Range)?;
    }
    Ok(())
}

impl Row {
    /// Gives back what an uncommonly large row has needed.
    pub(super) fn trim(&mut self) {
        if self.bytes.capacity() > BUFFER_BYTES_MAX {
            self.bytes = Vec::new();
        }
    }

    pub(super) fn start(&mut self, plan: &Plan) {
        self.bytes.clear();
        self.unauthored.clear();
        self.absent.clear();
        self.key_spans.clear();
        self.key_spans.resize(plan.schema.key().len(), (0, 0));
        self.column = 0;
    }

    /// Writes the place of a member that stands nowhere in an open row.
    pub(super) fn put_absent(&mut self, plan: &Plan, member: usize, writer: &mut Writer) -> Result<(), Reject> {
        self.absent.insert(self.column);
        self.put(plan, member, None, writer)
    }

    pub(super) fn put(&mut self, plan: &Plan, member: usize, datum: Option<Datum<'_>>, writer: &mut Writer) -> Result<(), Reject> {
        let field = &plan.fields[member];
        let Some(wire) = field.wire else {
            return match &datum {
                Some(datum) if field.is_untyped && !literal::says_nothing(datum, &writer.placeholder) => {
                    Err(Reject::untyped(plan.schema.table(), [field.name.as_str()]))
                }
                _ => Ok(()),
            };
        };
        let fault = |fault: Fault| field.reject(fault, plan.schema.table(), datum.as_ref());
        let start = self.bytes.len();
        let value = match datum {
            Some(datum) => datum::read(wire, field.ty, datum, &writer.placeholder, &mut writer.unpacked).map_err(fault)?,
            None => None,
        };
        match value {
            Some(value) => {
                spend(&mut writer.digits, field.ty, &value).map_err(fault)?;
                match plan.substitutes.get(member) {
                    Some(Some(other)) if !value.is_null() => {
                        let (clear, mask) = &mut writer.masked;
                        let text = match other {
                            Substitute::Mask(by) => {
                                by.write(field.ty, &value, clear, mask);
                                mask
                            }
                            Substitute::Text => {
                                clear.clear();
                                value.write_text(field.ty, clear);
                                clear
                            }
                        };
                        row::put(LogicalType::Text, Value::Text(text), &mut self.bytes)
                    }
                    _ => row::put(field.ty, value, &mut self.bytes),
                }
                .map_err(|e| fault(e.into()))?;
                if let Some(position) = plan.key_positions[member] {
                    self.key_spans[position] = (start, self.bytes.len());
                }
            }
            None => {
                self.bytes.push(0);
                self.unauthored.insert(self.column);
            }
        }
        self.column += 1;
        Ok(())
    }

    /// Takes and writes a row whose members stand in the plan's order, all of them. Otherwise the scanner may stand anywhere in it.
    pub(super) fn write(&mut self, plan: &Plan, scanner: &mut Scanner<'_>, writer: &mut Writer) -> Result<Fit, Reject> {
        if let Some(open) = &plan.open {
            return self.write_open(plan, open, scanner, writer);
        }
        self.start(plan);
        let json = |e| Reject::json("row", e);
        scanner.enter_object().map_err(json)?;
        let present = plan.present();
        for (member, field) in present.iter().enumerate() {
            let first = member == 0;
            if !scanner.named(first, &field.quoted) {
                match scanner.member(first).map_err(json)? {
                    Some(name) if field.is_named(&name) => {}
                    _ => return Ok(Fit::OtherMembers),
                }
            }
            self.put(plan, member, Some(Datum::Json(scanner.value().map_err(json)?)), writer)?;
        }
        let is_more = scanner.member(present.is_empty()).map_err(json)?.is_some();
        for member in present.len()..plan.fields.len() {
            self.put(plan, member, None, writer)?;
        }
        Ok(if is_more { Fit::OtherMembers } else { Fit::Written })
    }

    /// The row is new, so it was never given a value for what it lacks: NULL, where it would else be what it was.
    pub(super) fn author_lacking(&mut self, plan: &Plan) {
        self.unauthored.truncate(plan.schema.columns().len() - plan.lacking);
        self.unauthored.remove_all(&self.absent);
    }

    /// Fills in the columns that stand beside the row, once that has been written.
    pub(super) fn complete<'a>(&mut self, plan: &Plan, writer: &mut Writer, datum: impl Fn(&Beside, LogicalType) -> Datum<'a>) -> Result<(), Reject> {
        if plan.beside.is_empty() {
            return Ok(());
        }
        // Each of the fields that it lacks has been written as one byte.
        self.bytes.truncate(self.bytes.len() - plan.lacking);
        self.column -= plan.lacking;
        self.unauthored.truncate(self.column);
        let present = plan.present().len();
        for (member, beside) in (present..).zip(&plan.beside) {
            self.put(plan, member, Some(datum(beside, plan.fields[member].ty)), writer)?;
        }
        (present + plan.beside.len()..plan.fields.len()).try_for_each(|member| self.put(plan, member, None, writer))
    }

    /// Takes and writes a registered row.
    pub(super) fn write_registered(
        &mut self,
        plan: &Plan,
        layout: &Layout,
        reader: &mut Reader<'_>,
        budget: &mut Budget,
        writer: &mut Writer,
    ) -> Result<(), Reject> {
        self.start(plan);
        match layout {
            Layout::Avro(layout) => self.write_avro(plan, layout, reader, budget, writer)?,
            Layout::Protobuf(layout) => self.write_protobuf(plan, layout, reader, writer)?,
        }
        (plan.present().len()..plan.fields.len()).try_for_each(|member| self.put(plan, member, None, writer))
    }

    fn write_avro(
        &mut self,
        plan: &Plan,
        layout: &avro::Layout,
        reader: &mut Reader<'_>,
        budget: &mut Budget,
        writer: &mut Writer,
    ) -> Result<(), Reject> {
        for (member, (take, copied)) in layout.takes().iter().zip(&plan.copied).enumerate() {
            let start = self.bytes.len();
            if copied.copy(take, reader, &writer.placeholder, &mut self.bytes) {
                if let Some(position) = plan.key_positions[member] {
                    self.key_spans[position] = (start, self.bytes.len());
                }
                self.column += 1;
                continue;
            }
            let datum = layout.value(member, reader, budget).map_err(|e| Reject::unregistered(Code::AvroInvalid, "row", e))?;
            self.put(plan, member, Some(datum), writer)?;
        }
        Ok(())
    }

    fn write_protobuf(&mut self, plan: &Plan, layout: &protobuf::Layout, reader: &mut Reader<'_>, writer: &mut Writer) -> Result<(), Reject> {
        let invalid = |e| Reject::unregistered(Code::ProtobufInvalid, "row", e);
        // The writer itself is needed for each value.
        let mut slots = std::mem::take(&mut writer.slots);
        let written = layout.each(reader, &mut slots, invalid, |member, datum| match datum {
            Datum::Blocks(_) | Datum::Symbol(_) => self.put(plan, member, Some(layout.named(member, datum).map_err(invalid)?), writer),
            datum => self.put(plan, member, Some(datum), writer),
        });
        writer.slots = slots;
        written
    }

    /// Writes a row, in whatever order its members stand.
    pub(super) fn write_image(&mut self, plan: &Plan, image: &Image<'_>, writer: &mut Writer) -> Result<(), Reject> {
        match image {
            Image::Json(text) => match self.write(plan, &mut Scanner::new(text), writer)? {
                Fit::Written => Ok(()),
                // It may hold the key alone.
                Fit::OtherMembers => match &plan.open {
                    Some(open) => {
                        let tokens = open.gather(plan, text, writer)?;
                        self.write_tokens(plan, tokens, writer)
                    }
                    None => self.write_gathered(plan, text, writer),
                },
            },
            Image::Registered(bytes, layout) => self.write_registered(plan, layout, &mut Reader::new(bytes), &mut Budget::of(bytes.len()), writer),
        }
    }

    /// Writes a row as it was before what altered it: the members of `old` where it has them, those of the row else.
    pub(super) fn write_former(&mut self, plan: &Plan, text: &str, old: &str, writer: &mut Writer) -> Result<(), Reject> {
        let gathered = |text| match &plan.open {
            Some(open) => open.gather(plan, text, writer),
            None => gather(&plan.fields, text, "row"),
        };
        let (tokens, former) = (gathered(text)?, gathered(old)?);
        self.start(plan);
        for (member, (token, former)) in tokens.into_iter().zip(former).enumerate() {
            self.put(plan, member, former.or(token).map(Datum::Json), writer)?;
        }
        Ok(())
    }

    /// Writes a row in any order; members that are absent were not sent.
    fn write_gathered(&mut self, plan: &Plan, text: &str, writer: &mut Writer) -> Result<(), Reject> {
        // A column that stands beside the row is no member of it.
        let members = if plan.beside.is_empty() { &plan.fields } else { plan.present() };
        let tokens = gather(members, text, "row")?;
        self.start(plan);
        for (member, token) in tokens.into_iter().enumerate() {
            self.put(plan, member, token.map(Datum::Json), writer)?;
        }
        (members.len()..plan.fields.len()).try_for_each(|member| self.put(plan, member, None, writer))
    }

    /// Writes a row whose members have been found already; those that are `None` were not sent.
    pub(super) fn write_found<'a>(&mut self, plan: &Plan, data: impl Iterator<Item = Option<Datum<'a>>>, writer: &mut Writer) -> Result<(), Reject> {
        self.start(plan);
        data.enumerate().try_for_each(|(member, datum)| self.put(plan, member, datum, writer))
    }

    /// Appends the value of one key column to a key.
    pub(super) fn append_key(&self, plan: &Plan, position: usize, key: &mut Key) -> Result<(), Reject> {
        let table = plan.schema.table();
        let Some((name, ty)) = plan.key_type(position) else { return Err(Reject::new(Code::KeyMissing, "no such key column")) };
        let (start, end) = self.key_spans.get(position).copied().unwrap_or_default();
        match self.bytes.get(start..end) {
            None | Some([]) => Err(Reject::new(Code::KeyMissing, format!("the row does not carry key column {name:?} of table {table:?}"))),
            Some([0, ..]) => Err(null_key(table, name)),
            Some([_, plain @ ..]) => {
                let value = row::read_plain(ty, &mut Reader::new(plain)).map_err(|_| Fault::Kind.reject(table, name, ty))?;
                key.push(table, name, ty, value)
            }
        }
    }

    /// The whole key of the row.
    pub(super) fn key(&self, plan: &Plan, key: &mut Key) -> Result<(), Reject> {
        key.clear();
        (0..plan.schema.key().len()).try_for_each(|position| self.append_key(plan, position, key))
    }

    /// Whether the row's key columns hold exactly the bytes of a key, in which case they are equal; different bytes may be equal still.
    pub(super) fn has_plain_key(&self, key: &Key) -> bool {
        let mut rest = key.plain.as_slice();
        for (start, end) in &self.key_spans {
            let plain = self.bytes.get(start + 1..*end).filter(|plain| !plain.is_empty());
            match plain.and_then(|plain| rest.strip_prefix(plain)) {
                Some(tail) => rest = tail,
                None => return false,
            }
        }
        rest.is_empty()
    }
}

/// A key in both of its encodings.
#[derive(Debug, Default)]
pub(super) struct Key {
    /// The Kafka key of the log.
    pub(super) canonical: Vec<u8>,
    /// `Change::key`.
    pub(super) plain: Vec<u8>,
}

/// The longest integer of a number in a key: more than fits into an index of any source, and few enough digits to be written one by one.
const KEY_NUMBER_BYTES_MAX: usize = 4 << 10;

impl Key {
    pub(super) fn clear(&mut self) {
        self.canonical.clear();
        self.plain.clear();
    }

    fn push(&mut self, table: &str, column: &str, ty: LogicalType, value: Value<'_>) -> Result<(), Reject> {
        if value.is_null() {
            return Err(null_key(table, column));
        }
        if matches!(value, Value::Decimal(number) if number.unscaled.len() > KEY_NUMBER_BYTES_MAX) {
            return Err(Fault::Range.reject(table, column, ty));
        }
        row::put_plain(ty, value, &mut self.plain).map_err(|e| Fault::from(e).reject(table, column, ty))?;
        let refused = |_| Reject::new(Code::KeyType, format!("column {column:?} of table {table:?}, type {ty}, cannot be a key"));
        key::encode(ty, value, &mut self.canonical).map_err(refused)
    }

    /// Appends one member of a record key, read as its column's type.
    pub(super) fn push_member(
        &mut self,
        plan: &Plan,
        position: usize,
        field: &Field,
        datum: Option<Datum<'_>>,
        writer: &mut Writer,
    ) -> Result<(), Reject> {
        let table = plan.schema.table();
        let missing = || Reject::new(Code::KeyMissing, format!("the record key lacks column {:?} of table {table:?}", field.name));
        let (Some((_, ty)), Some(wire), Some(datum)) = (plan.key_type(position), field.wire, datum) else { return Err(missing()) };
        let value = datum::read(wire, ty, datum, &writer.placeholder, &mut writer.unpacked);
        match value.map_err(|f| field.reject(f, table, Some(&datum)))? {
            Some(value) => {
                spend(&mut writer.digits, ty, &value).map_err(|f| f.reject(table, &field.name, ty))?;
                self.push(table, &field.name, ty, value)
            }
            None => Err(missing()),
        }
    }
}

pub(super) fn null_key(table: &str, column: &str) -> Reject {
    Reject::new(Code::NullKey, format!("key column {column:?} of table {table:?} is NULL"))
}

/// The tokens of an object by member of `fields`, in whatever order they stand.
pub(super) fn gather<'a>(fields: &[Field], text: &'a str, part: &str) -> Result<KeyTokens<'a>, Reject> {
    let json = |e| Reject::json(part, e);
    let mut tokens: KeyTokens<'a> = SmallVec::new();
    tokens.resize(fields.len(), None);
    let mut scanner = Scanner::new(text);
    scanner.enter_object().map_err(json)?;
    let mut next = 0;
    loop {
        let guessed = fields.get(next).is_some_and(|f| scanner.named(next == 0, &f.quoted));
        let member = if guessed {
            Some(next)
        } else {
            let Some(name) = scanner.member(next == 0).map_err(json)? else { break };
            fields.iter().position(|f| f.is_named(&name))
        };
        let Some(member) = member else {
            return Err(Reject::new(Code::EnvelopeUnknownColumn, format!("a {part} has a member that its schema part lacks")));
        };
        let token = scanner.value().map_err(json)?;
        if tokens[member].replace(token).is_some() {
            return Err(Reject::new(Code::JsonDuplicateKey, format!("a {part} has member {:?} twice", fields[member].name)));
        }
        next += 1;
    }
    Ok(tokens)
}

/// Whether an object has exactly the members of `fields`, in their order.
pub(super) fn has_members(fields: &[Field], text: &str) -> bool {
    let mut scanner = Scanner::new(text);
    if scanner.enter_object().is_err() {
        return false;
    }
    for (member, field) in fields.iter().enumerate() {
        let first = member == 0;
        let is_next = scanner.named(first, &field.quoted) || matches!(scanner.member(first), Ok(Some(name)) if field.is_named(&name));
        if !is_next || scanner.value().is_err() {
            return false;
        }
    }
    scanner.member(fields.is_empty()) == Ok(None)
}

/// The names of an object's members.
pub(super) fn names(text: &str, part: &str) -> Result<Vec<String>, Reject> {
    let json = |e| Reject::json(part, e);
    let mut scanner = Scanner::new(text);
    scanner.enter_object().map_err(json)?;
    let mut names: Vec<String> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    while let Some(name) = scanner.member(names.is_empty()).map_err(json)? {
        let mut text = String::new();
        if !name.unescape(&mut text) {
            return Err(Reject::new(Code::JsonInvalid, format!("a {part} has a member whose name is no text")));
        }
        if !seen.insert(text.clone()) {
            return Err(Reject::new(Code::JsonDuplicateKey, format!("a {part} has member {text:?} twice")));
        }
        if names.len() == COLUMNS_MAX {
            return Err(Reject::too_many(part, COLUMNS_MAX + 1));
        }
        let _ = scanner.value().map_err(json)?;
        names.push(text);
    }
    Ok(names)
}

/// A few of the most recently used things, the last one first.
#[derive(Debug)]
pub(super) struct Recent<T> {
    items: Vec<T>,
}

/// How many a [`Recent`] keeps: a table's schema changes seldom, and old and new alternate for a moment only.
const RECENT_MAX: usize = 4;

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { items: Vec::with_capacity(RECENT_MAX) }
    }
}

impl<T> Recent<T> {
    pub(super) fn first(&self) -> Option<&T> {
        self.items.first()
    }

    pub(super) fn find(&mut self, is_wanted: impl Fn(&T) -> bool) -> Option<&T> {
        let at = self.items.iter().position(is_wanted)?;
        self.items[..=at].rotate_right(1);
        self.items.first()
    }

    pub(super) fn put(&mut self, item: T) -> &T {
        self.items.truncate(RECENT_MAX - 1);
        self.items.insert(0, item);
        &self.items[0]
    }
}
