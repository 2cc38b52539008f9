//! Envelopes, rows and keys in Avro: how their members lie in the bytes, worked out once per registered schema.
//!
//! A writer's schema becomes the Connect schema that it was made of, so columns get their types by the rules of `connect`, whatever the
//! encoding; a [`Layout`] then takes one value after the other from the bytes, by the branch that the writer's schema says (case ENC-03).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::connect::Schema as Connect;
use super::datum::Datum;
use super::layout::Top;
use super::reject::Fault;
use crate::avro::{Budget, Kind, Member, NodeId, Schema};
use crate::wire::{Reader, WireError};

/// How the members of a record lie, in their order.
#[derive(Debug)]
pub(super) struct Layout {
    schema: Arc<Schema>,
    /// The members.
    members: Vec<Take>,
}

/// How one member is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Take {
    /// Index of null, where the type is a union with it.
    null: Option<i64>,
    node: NodeId,
    pub(super) how: How,
}

/// What a member's values are, as they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Boolean,
    Integer,
    Float,
    Double,
    Bytes,
    Text,
    Fixed(usize),
    Symbol,
    /// A record of scale and unscaled integer.
    VariableDecimal,
    /// A record of a geometry.
    Geometry,
    /// Elements that are read by themselves.
    Array,
    /// Of no use to a column; passed over.
    Pass,
}

impl Layout {
    /// The layout of a record, or of a union of one with null.
    pub(super) fn of(schema: &Arc<Schema>, record: NodeId) -> Option<Self> {
        let members = schema.record(record)?.iter().map(|m| Take::of(schema, m.node)).collect();
        Some(Self { schema: Arc::clone(schema), members })
    }

    /// The layout of a value that is no record: one member.
    pub(super) fn of_scalar(schema: &Arc<Schema>) -> Self {
        Self { schema: Arc::clone(schema), members: vec![Take::of(schema, schema.root())] }
    }

    /// Hands over the members of the record that stands next, in their order; the symbol of an enum by its index. Always in line: it is the loop
    /// over the values of every row.
    #[inline(always)]
    pub(super) fn each<'a, E>(
        &self,
        reader: &mut Reader<'a>,
        budget: &mut Budget,
        wire: impl Fn(WireError) -> E,
        mut give: impl FnMut(usize, Datum<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (member, take) in self.members.iter().enumerate() {
            match take.take(&self.schema, reader, budget) {
                Ok(datum) => give(member, datum)?,
                Err(error) => return Err(wire(error)),
            }
        }
        Ok(())
    }

    /// How its members are taken, in their order.
    pub(super) fn takes(&self) -> &[Take] {
        &self.members
    }

    /// The value of a member, which stands next.
    #[inline]
    pub(super) fn value<'s, 'a: 's>(&'s self, member: usize, reader: &mut Reader<'a>, budget: &mut Budget) -> Result<Datum<'s>, WireError> {
        let datum = self.members.get(member).ok_or(WireError::Index)?.take(&self.schema, reader, budget)?;
        match datum {
            Datum::Blocks(_) | Datum::Symbol(_) => self.named(member, datum),
            datum => Ok(datum),
        }
    }

    /// What a member takes, which stands next.
    #[inline]
    pub(super) fn next<'a>(&self, take: &Take, reader: &mut Reader<'a>, budget: &mut Budget) -> Result<Datum<'a>, WireError> {
        take.take(&self.schema, reader, budget)
    }

    /// Passes over a member, which stands next.
    #[inline]
    pub(super) fn pass_member(&self, take: &Take, reader: &mut Reader<'_>, budget: &mut Budget) -> Result<(), WireError> {
        take.pass(&self.schema, reader, budget)
    }

    /// Whether values of it are symbols, whose text only the schema has.
    pub(super) fn has_symbols(&self) -> bool {
        self.members.iter().any(|take| take.how == How::Symbol)
    }

    /// The text of a symbol, the elements of an array; anything else as it is.
    #[inline]
    pub(super) fn named<'a>(&'a self, member: usize, datum: Datum<'a>) -> Result<Datum<'a>, WireError> {
        let take = self.members.get(member).ok_or(WireError::Index)?;
        if let Datum::Blocks(blocks) = datum {
            let Kind::Array(item) = self.schema.node(take.node).kind else { return Err(WireError::Index) };
            return Ok(Datum::Items(super::layout::Items::Avro(Items { schema: &self.schema, take: Take::of(&self.schema, item), blocks })));
        }
        let Datum::Symbol(symbol) = datum else { return Ok(datum) };
        let Kind::Enum(symbols) = &self.schema.node(take.node).kind else { return Err(WireError::Index) };
        symbols.get(symbol).map(|text| Datum::Text(text)).ok_or(WireError::Index)
    }

    /// Passes over all members.
    pub(super) fn pass(&self, reader: &mut Reader<'_>, budget: &mut Budget) -> Result<(), WireError> {
        self.members.iter().try_for_each(|take| take.pass(&self.schema, reader, budget))
    }

    /// One member of a record whose bytes have been passed over before.
    pub(super) fn member<'a>(&'a self, member: usize, bytes: &'a [u8]) -> Option<Datum<'a>> {
        let (mut reader, mut budget) = (Reader::new(bytes), Budget::of(bytes.len()));
        for take in self.members.get(..member)? {
            take.pass(&self.schema, &mut reader, &mut budget).ok()?;
        }
        let datum = self.members.get(member)?.take(&self.schema, &mut reader, &mut budget).ok()?;
        self.named(member, datum).ok()
    }
}

/// The members of the outermost record, which lie one behind the other.
#[derive(Debug)]
pub(super) struct Members<'l, 'r, 'a> {
    pub(super) layout: &'l Layout,
    pub(super) reader: &'r mut Reader<'a>,
    pub(super) budget: &'r mut Budget,
}

impl<'a> Top<'a> for Members<'_, '_, 'a> {
    #[inline]
    fn datum(&mut self, member: usize) -> Result<Datum<'a>, WireError> {
        let take = self.layout.members.get(member).ok_or(WireError::Index)?;
        take.take(&self.layout.schema, self.reader, self.budget)
    }

    #[inline]
    fn record<E>(
        &mut self,
        member: usize,
        wire: impl Fn(WireError) -> E,
        read: impl FnOnce(&mut Reader<'a>, &mut Budget) -> Result<bool, E>,
        pass: impl FnOnce(&mut Reader<'a>, &mut Budget) -> Result<(), WireError>,
    ) -> Result<Option<&'a [u8]>, E> {
        let take = self.layout.members.get(member).ok_or_else(|| wire(WireError::Index))?;
        if !take.is_present(self.reader).map_err(&wire)? {
            return Ok(None);
        }
        let start = *self.reader;
        if !read(self.reader, self.budget)? {
            *self.reader = start;
            pass(self.reader, self.budget).map_err(&wire)?;
        }
        Ok(Some(&start.rest()[..start.rest().len() - self.reader.rest().len()]))
    }
}

/// The elements of an array, which lie in blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Items<'a> {
    schema: &'a Schema,
    take: Take,
    blocks: &'a [u8],
}

impl<'a> Items<'a> {
    /// Hands over one element after the other.
    pub(super) fn each(&self, mut give: impl FnMut(Datum<'a>) -> Result<(), Fault>) -> Result<(), Fault> {
        let bad = |_| Fault::Kind;
        // They have been passed over once, within the budget of their record.
        let (mut reader, mut budget) = (Reader::new(self.blocks), Budget::of(self.blocks.len()));
        loop {
            let count = reader.long().map_err(bad)?;
            if count == 0 {
                return reader.finish().map_err(bad);
            }
            if count < 0 {
                let _ = reader.long().map_err(bad)?;
            }
            for _ in 0..count.unsigned_abs() {
                budget.spend(1).map_err(bad)?;
                give(self.take.take(self.schema, &mut reader, &mut budget).map_err(bad)?)?;
            }
        }
    }
}

impl Take {
    pub(super) fn of(schema: &Schema, id: NodeId) -> Self {
        let Some((null, node)) = schema.optional(id) else { return Self { null: None, node: id, how: How::Pass } };
        let how = match &schema.node(node).kind {
            Kind::Boolean => How::Boolean,
            Kind::Int | Kind::Long => How::Integer,
            Kind::Float => How::Float,
            Kind::Double => How::Double,
            Kind::Bytes => How::Bytes,
            Kind::String => How::Text,
            Kind::Fixed(size) => How::Fixed(*size),
            Kind::Enum(_) => How::Symbol,
            Kind::Record(members) if is_variable_decimal(schema, members) => How::VariableDecimal,
            Kind::Record(members) if is_geometry(schema, members) => How::Geometry,
            Kind::Array(_) => How::Array,
            _ => How::Pass,
        };
        Self { null: null.map(|n| n as i64), node, how }
    }

    /// Whether a value follows: false for null.
    #[inline]
    pub(super) fn is_present(&self, reader: &mut Reader<'_>) -> Result<bool, WireError> {
        let Some(null) = self.null else { return Ok(true) };
        match reader.long()? {
            branch if branch == null => Ok(false),
            0 | 1 => Ok(true),
            _ => Err(WireError::Index),
        }
    }

    #[inline]
    fn take<'a>(&self, schema: &Schema, reader: &mut Reader<'a>, budget: &mut Budget) -> Result<Datum<'a>, WireError> {
        if !self.is_present(reader)? {
            return Ok(Datum::Null);
        }
        Ok(match self.how {
            How::Boolean => match reader.byte()? {
                0 => Datum::Bool(false),
                1 => Datum::Bool(true),
                _ => return Err(WireError::Index),
            },
            How::Integer => Datum::Integer(reader.long()?),
            How::Float => Datum::Float32(f32::from_le_bytes(reader.array()?)),
            How::Double => Datum::Float64(f64::from_le_bytes(reader.array()?)),
            How::Bytes => Datum::Bytes(reader.bytes()?),
            How::Text => Datum::Text(reader.text()?),
            How::Fixed(size) => Datum::Bytes(reader.take(size)?),
            How::Symbol => Datum::Symbol(usize::try_from(reader.long()?).map_err(|_| WireError::Index)?),
            How::VariableDecimal => Datum::VariableDecimal { scale: reader.long()?, unscaled: reader.bytes()? },
            How::Geometry => geometry(schema, self.node, reader, budget)?,
            How::Array => {
                let start = reader.rest();
                schema.skip(self.node, reader, budget)?;
                Datum::Blocks(&start[..start.len() - reader.rest().len()])
            }
            How::Pass => {
                schema.skip(self.node, reader, budget)?;
                Datum::Unreadable
            }
        })
    }

    /// Passes over the value.
    fn pass(&self, schema: &Schema, reader: &mut Reader<'_>, budget: &mut Budget) -> Result<(), WireError> {
        if !self.is_present(reader)? {
            return Ok(());
        }
        match self.how {
            How::Integer => reader.pass_varint()?,
            How::Bytes | How::Text => drop(reader.bytes()?),
            How::Boolean => drop(reader.byte()?),
            _ => schema.skip(self.node, reader, budget)?,
        }
        Ok(())
    }
}

fn is_variable_decimal(schema: &Schema, members: &[Member]) -> bool {
    let is = |member: &Member, name: &str, kinds: &[Kind]| member.name == name && kinds.contains(&schema.node(member.node).kind);
    matches!(members, [scale, value] if is(scale, "scale", &[Kind::Int, Kind::Long]) && is(value, "value", &[Kind::Bytes]))
}

/// Whether a record is what a connector writes of a geometry: its binary and, a point, its coordinates.
fn is_geometry(schema: &Schema, members: &[Member]) -> bool {
    let kind = |member: &Member| schema.optional(member.node).map(|(_, id)| &schema.node(id).kind);
    let fits = |member: &Member| match (member.name.as_str(), kind(member)) {
        ("wkb", Some(Kind::Bytes)) | ("srid", Some(Kind::Int | Kind::Long)) => true,
        ("x" | "y", Some(kind)) => *kind == Kind::Double,
        _ => false,
    };
    members.iter().all(fits) && members.iter().any(|m| m.name == "wkb")
}

fn geometry<'a>(schema: &Schema, record: NodeId, reader: &mut Reader<'a>, budget: &mut Budget) -> Result<Datum<'a>, WireError> {
    let (mut wkb, mut srid) = (None, None);
    for member in schema.record(record).unwrap_or_default() {
        match (member.name.as_str(), Take::of(schema, member.node).take(schema, reader, budget)?) {
            ("wkb", Datum::Bytes(bytes)) => wkb = Some(bytes),
            ("srid", Datum::Integer(number)) => srid = Some(number),
            _ => {}
        }
    }
    Ok(wkb.map_or(Datum::Unreadable, |wkb| Datum::Geometry { wkb, srid }))
}

/// The Connect schema of a record: what a connector's schema part would say.
pub(super) fn connect<'a>(schema: &'a Schema, record: NodeId) -> Option<Connect<'a>> {
    Some(Connect::row_of(schema.record(record)?.iter().map(|member| column(schema, &member.name, member.node)).collect()))
}

/// The Connect schema of a row of one column: the whole value.
pub(super) fn connect_scalar<'a>(schema: &'a Schema, name: &'a str) -> Connect<'a> {
    Connect::row_of(vec![column(schema, name, schema.root())])
}

/// The Connect schema of a member, or of an array's elements under the member's name.
fn column<'a>(schema: &'a Schema, member: &'a str, node: NodeId) -> Connect<'a> {
    let Some((null, id)) = schema.optional(node) else { return Connect::column(member, "union", None, true, BTreeMap::new()) };
    if let Kind::Array(item) = schema.node(id).kind {
        // Arrays within arrays are of no use; their schemas end here.
        let is_deeper = schema.optional(item).is_some_and(|(_, item)| matches!(schema.node(item).kind, Kind::Array(_)));
        let items = if is_deeper { Connect::column(member, "array of arrays", None, true, BTreeMap::new()) } else { column(schema, member, item) };
        return Connect::array_of(member, items, null.is_some());
    }
    let node = schema.node(id);
    let decimal = "org.apache.kafka.connect.data.Decimal";
    let mut parameters: BTreeMap<Cow<'_, str>, Cow<'_, str>> =
        node.parameters.iter().map(|(k, v)| (Cow::from(k.as_str()), Cow::from(v.as_str()))).collect();
    let named = node.connect_name.as_deref();
    let name = named.or_else(|| {
        Some(match (node.logical.as_deref()?, &node.kind) {
            ("date", Kind::Int) => "io.debezium.time.Date",
            ("time-millis", Kind::Int) => "io.debezium.time.Time",
            ("time-micros", Kind::Long) => "io.debezium.time.MicroTime",
            ("local-timestamp-millis", Kind::Long) => "io.debezium.time.Timestamp",
            ("local-timestamp-micros", Kind::Long) => "io.debezium.time.MicroTimestamp",
            ("local-timestamp-nanos", Kind::Long) => "io.debezium.time.NanoTimestamp",
            (instant @ ("timestamp-millis" | "timestamp-micros" | "timestamp-nanos"), Kind::Long) => instant,
            ("uuid", Kind::String | Kind::Fixed(16)) => "io.debezium.data.Uuid",
            ("decimal", Kind::Bytes | Kind::Fixed(_)) => decimal,
            // What a reader does not know of is to be read as what is under it.
            _ => return None,
        })
    });
    if name == Some(decimal) {
        let _ = parameters.entry(Cow::from("scale")).or_insert_with(|| node.scale.unwrap_or(0).to_string().into());
        // A connector's decimal without a precision of its own gets one from the converter, which means nothing.
        if let (None, Some(precision)) = (named, node.precision) {
            let _ = parameters.entry(Cow::from("connect.decimal.precision")).or_insert_with(|| precision.to_string().into());
        }
    }
    let primitive = match &node.kind {
        Kind::Boolean => "boolean",
        Kind::Int => node.connect_type.as_deref().filter(|t| matches!(*t, "int8" | "int16")).unwrap_or("int32"),
        Kind::Long => "int64",
        Kind::Float => "float32",
        Kind::Double => "float64",
        Kind::Fixed(16) if name == Some("io.debezium.data.Uuid") => "string",
        Kind::Bytes | Kind::Fixed(_) => "bytes",
        Kind::String | Kind::Enum(_) => "string",
        Kind::Record(members) if is_variable_decimal(schema, members) || is_geometry(schema, members) => "struct",
        // Named so that nothing takes them for what JSON would hold: there is no reader for them yet.
        Kind::Array(_) => "array",
        Kind::Map(_) => "map of Avro",
        Kind::Record(_) => "record of Avro",
        Kind::Null => "null",
        Kind::Union(_) => "union",
    };
    Connect::column(member, primitive, name, null.is_some(), parameters)
}

/// Whether an envelope is of a connector whose times are spans ([`Connect::has_spans`]).
pub(super) fn has_spans(schema: &Schema) -> bool {
    let source = schema.record(schema.root()).and_then(|members| members.iter().find(|m| m.name == "source"));
    let node = source.and_then(|m| schema.optional(m.node)).map(|(_, id)| schema.node(id));
    node.and_then(|node| node.connect_name.as_deref()).is_some_and(super::connect::has_spans)
}
