//! Envelopes, rows and keys in Protobuf: what the fields of a message are, worked out once per registered message.
//!
//! Fields stand in any order, may be absent and may be repeated, so a message is gone through once to note where each field lies ([`Slot`]), and
//! then its members are taken in the order of the schema. A message becomes the Connect schema that it was made of, as far as the converter tells
//! it: Connect's own logical types are messages of Google's and Confluent's; semantic names of a connector are not told at all, so a declared
//! type says what such an integer means ([`Connect::bare`]). Absent means NULL where a field has presence, and its default where it has none.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::connect::Schema as Connect;
use super::datum::Datum;
use super::layout::Top;
use super::reject::Fault;
use crate::civil;
use crate::protobuf::{Field, Kind, MessageId, Presence, Scalar, Schema, Tag, WireType};
use crate::wire::{Reader, WireError};

/// How often the bytes of a record may be gone through for arrays whose elements lie scattered among other fields.
const PASSES_MAX: usize = 8;

/// How the fields of a message lie.
#[derive(Debug)]
pub(super) struct Layout {
    schema: Arc<Schema>,
    /// In the order of the schema.
    members: Vec<Take>,
    /// Number → member, by number.
    numbers: Vec<(u32, usize)>,
    has_arrays: bool,
}

/// How one field is taken.
#[derive(Clone, Copy, Debug)]
struct Take {
    how: How,
    presence: Presence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Scalar(Scalar),
    /// A message that holds a value, so that it may be absent.
    Wrapper(Scalar),
    /// Values, each behind a tag of its own, or packed.
    Array(Scalar, u32),
    Timestamp,
    Date,
    TimeOfDay,
    /// A decimal with its scale: the numbers of the fields for the unscaled integer and the scale.
    Decimal {
        value: u32,
        scale: u32,
    },
    /// A geometry: the numbers of its fields.
    Geometry {
        wkb: u32,
        srid: u32,
    },
    /// A message, read by whoever knows what it is.
    Message,
    /// Of no use to a column.
    Pass,
}

/// Where the last of a field's values lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Absent,
    Number(u64),
    Run { start: u32, end: u32 },
}

/// What an absent field of a message stands for, by its name, where it has no presence: its default, or nothing.
pub(super) type Defaults = fn(&str) -> bool;

impl Layout {
    /// The layout of a message.
    pub(super) fn of(schema: &Arc<Schema>, message: MessageId, has_default: Defaults) -> Self {
        let fields = &schema.message(message).fields;
        let take = |field: &Field| {
            let is_told = field.presence != Presence::Implicit || has_default(&field.name);
            Take { how: how(schema, field), presence: if is_told { field.presence } else { Presence::Explicit } }
        };
        let members: Vec<Take> = fields.iter().map(take).collect();
        let mut numbers: Vec<(u32, usize)> = fields.iter().enumerate().map(|(member, field)| (field.number, member)).collect();
        numbers.sort_unstable();
        let has_arrays = members.iter().any(|take| matches!(take.how, How::Array(..)));
        Self { schema: Arc::clone(schema), members, numbers, has_arrays }
    }

    /// How many members it has.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether values of it are symbols, whose text only the schema has.
    pub(super) fn has_symbols(&self) -> bool {
        self.members.iter().any(|take| matches!(take.how, How::Scalar(Scalar::Enum(_))))
    }

    /// Notes where the fields of a message lie; `slots` has one for each member, absent.
    pub(super) fn gather(&self, bytes: &[u8], slots: &mut [Slot]) -> Result<(), WireError> {
        let length = u32::try_from(bytes.len()).map_err(|_| WireError::Number)?;
        let mut reader = Reader::new(bytes);
        let mut next = 0;
        while !reader.rest().is_empty() {
            let begun = length - reader.rest().len() as u32;
            let tag = Tag::take(&mut reader)?;
            // Fields mostly stand in the order of their numbers.
            let at = match self.numbers.get(next) {
                Some((number, _)) if *number == tag.number => next,
                _ => match self.numbers.binary_search_by_key(&tag.number, |(number, _)| *number) {
                    Ok(at) => at,
                    Err(_) => {
                        tag.pass(&mut reader)?;
                        continue;
                    }
                },
            };
            next = at + 1;
            let member = self.numbers[at].1;
            let (Some(take), Some(slot)) = (self.members.get(member), slots.get_mut(member)) else { return Err(WireError::Index) };
            if let How::Array(scalar, _) = take.how {
                if tag.wire != WireType::Run && tag.wire != wire_type(scalar) {
                    return Err(WireError::Kind);
                }
                tag.pass(&mut reader)?;
                let start = if let Slot::Run { start, .. } = slot { *start } else { begun };
                *slot = Slot::Run { start, end: length - reader.rest().len() as u32 };
                continue;
            }
            let is_message = !matches!(take.how, How::Scalar(_) | How::Pass);
            if take.how != How::Pass && tag.wire != if let How::Scalar(scalar) = take.how { wire_type(scalar) } else { WireType::Run } {
                return Err(WireError::Kind);
            }
            // Two halves of a message would have to be made one.
            if is_message && *slot != Slot::Absent {
                return Err(WireError::Twice);
            }
            *slot = match tag.wire {
                WireType::Varint => Slot::Number(reader.varint()?),
                WireType::Fixed64 => Slot::Number(u64::from_le_bytes(reader.array()?)),
                WireType::Fixed32 => Slot::Number(u32::from_le_bytes(reader.array()?).into()),
                WireType::Run => {
                    let run = crate::protobuf::run(&mut reader)?;
                    let end = length - reader.rest().len() as u32;
                    Slot::Run { start: end - run.len() as u32, end }
                }
            };
        }
        if self.has_arrays {
            let all: usize = slots.iter().zip(&self.members).map(|(slot, take)| scattered(*slot, take.how)).sum();
            if all > PASSES_MAX * bytes.len() {
                return Err(WireError::Number);
            }
        }
        let is_missing = |(take, slot): (&Take, &Slot)| take.presence == Presence::Required && *slot == Slot::Absent;
        if self.members.iter().zip(&*slots).any(is_missing) { Err(WireError::Missing) } else { Ok(()) }
    }

    /// Hands over the members of the message that is all that is left, in their order; the symbol of an enum by its place.
    #[inline]
    pub(super) fn each<'a, E>(
        &self,
        reader: &mut Reader<'a>,
        slots: &mut Vec<Slot>,
        wire: impl Fn(WireError) -> E,
        mut give: impl FnMut(usize, Datum<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = reader.rest();
        slots.clear();
        slots.resize(self.members.len(), Slot::Absent);
        self.gather(bytes, slots).map_err(&wire)?;
        for (member, (take, slot)) in self.members.iter().zip(&*slots).enumerate() {
            give(member, self.datum(take, *slot, bytes).map_err(&wire)?)?;
        }
        *reader = Reader::new(&[]);
        Ok(())
    }

    /// The value of one member of a message that has been gathered.
    pub(super) fn member<'a>(&'a self, member: usize, slots: &[Slot], bytes: &'a [u8]) -> Option<Datum<'a>> {
        let datum = self.datum(self.members.get(member)?, *slots.get(member)?, bytes).ok()?;
        self.named(member, datum).ok()
    }

    /// The text of a symbol, the elements of an array; anything else as it is.
    #[inline]
    pub(super) fn named<'a>(&'a self, member: usize, datum: Datum<'a>) -> Result<Datum<'a>, WireError> {
        match (datum, self.members.get(member).map(|take| take.how)) {
            (Datum::Blocks(bytes), Some(How::Array(scalar, number))) => {
                Ok(Datum::Items(super::layout::Items::Protobuf(Items { schema: &self.schema, scalar, number, bytes })))
            }
            (Datum::Symbol(place), Some(How::Scalar(scalar) | How::Wrapper(scalar))) => text_of(&self.schema, scalar, place),
            (Datum::Blocks(_) | Datum::Symbol(_), _) => Err(WireError::Index),
            (datum, _) => Ok(datum),
        }
    }

    fn datum<'a>(&self, take: &Take, slot: Slot, bytes: &'a [u8]) -> Result<Datum<'a>, WireError> {
        let run = match slot {
            Slot::Absent => return absent(&self.schema, take),
            Slot::Number(number) => {
                let How::Scalar(scalar) = take.how else { return Ok(Datum::Unreadable) };
                return number_of(&self.schema, scalar, number);
            }
            Slot::Run { start, end } => bytes.get(start as usize..end as usize).ok_or(WireError::Truncated)?,
        };
        Ok(match take.how {
            How::Scalar(scalar) => run_of(scalar, run)?,
            How::Array(..) => Datum::Blocks(run),
            How::Wrapper(scalar) => wrapped(&self.schema, scalar, run)?,
            How::Timestamp => {
                let [seconds, nanos] = numbers(run, [1, 2])?;
                Datum::Instant { seconds: seconds.cast_signed(), nanos: int32(nanos)? }
            }
            How::Date => date(run)?,
            How::TimeOfDay => time_of_day(run)?,
            How::Decimal { value, scale } => {
                let (unscaled, number) = run_and_number(run, value, scale)?;
                Datum::VariableDecimal { scale: int32(number.unwrap_or(0))?.into(), unscaled: unscaled.unwrap_or_default() }
            }
            How::Geometry { wkb, srid } => match run_and_number(run, wkb, srid)? {
                (Some(wkb), srid) => Datum::Geometry { wkb, srid: srid.map(int32).transpose()?.map(i64::from) },
                (None, _) => Datum::Unreadable,
            },
            How::Message | How::Pass => Datum::Unreadable,
        })
    }
}

/// The members of the outermost message of a record.
#[derive(Debug)]
pub(super) struct Fields<'l, 'a> {
    layout: &'l Layout,
    bytes: &'a [u8],
    slots: SmallVec<[Slot; 16]>,
}

impl<'l, 'a> Fields<'l, 'a> {
    /// Gathers them; it is all that is left, and strictly so.
    pub(super) fn of(layout: &'l Layout, bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut slots = SmallVec::new();
        slots.resize(layout.len(), Slot::Absent);
        layout.gather(bytes, &mut slots)?;
        Ok(Self { layout, bytes, slots })
    }
}

impl<'a> Top<'a> for Fields<'_, 'a> {
    fn datum(&mut self, member: usize) -> Result<Datum<'a>, WireError> {
        let (Some(take), Some(slot)) = (self.layout.members.get(member), self.slots.get(member)) else { return Err(WireError::Index) };
        self.layout.datum(take, *slot, self.bytes)
    }

    fn record<E>(
        &mut self,
        member: usize,
        wire: impl Fn(WireError) -> E,
        read: impl FnOnce(&mut Reader<'a>, &mut crate::avro::Budget) -> Result<bool, E>,
        pass: impl FnOnce(&mut Reader<'a>, &mut crate::avro::Budget) -> Result<(), WireError>,
    ) -> Result<Option<&'a [u8]>, E> {
        let Some(Slot::Run { start, end }) = self.slots.get(member) else { return Ok(None) };
        let bytes = self.bytes.get(*start as usize..*end as usize).ok_or_else(|| wire(WireError::Truncated))?;
        let mut budget = crate::avro::Budget::of(bytes.len());
        if !read(&mut Reader::new(bytes), &mut budget)? {
            pass(&mut Reader::new(bytes), &mut budget).map_err(wire)?;
        }
        Ok(Some(bytes))
    }
}

/// The elements of an array: those of its bytes that have its number, one by one or packed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Items<'a> {
    schema: &'a Schema,
    scalar: Scalar,
    number: u32,
    bytes: &'a [u8],
}

impl<'a> Items<'a> {
    /// Hands over one element after the other.
    pub(super) fn each(&self, mut give: impl FnMut(Datum<'a>) -> Result<(), Fault>) -> Result<(), Fault> {
        let bad = |_| Fault::Kind;
        let named = |datum| if let Datum::Symbol(place) = datum { text_of(self.schema, self.scalar, place) } else { Ok(datum) };
        let mut reader = Reader::new(self.bytes);
        while !reader.rest().is_empty() {
            let tag = Tag::take(&mut reader).map_err(bad)?;
            let is_run = matches!(self.scalar, Scalar::String | Scalar::Bytes);
            match tag.wire {
                _ if tag.number != self.number => tag.pass(&mut reader).map_err(bad)?,
                WireType::Run if is_run => give(run_of(self.scalar, crate::protobuf::run(&mut reader).map_err(bad)?).map_err(bad)?)?,
                WireType::Run => {
                    let mut packed = Reader::new(crate::protobuf::run(&mut reader).map_err(bad)?);
                    while !packed.rest().is_empty() {
                        let number = take_number(wire_type(self.scalar), &mut packed).map_err(bad)?;
                        give(number_of(self.schema, self.scalar, number).and_then(named).map_err(bad)?)?;
                    }
                }
                wire => {
                    let number = take_number(wire, &mut reader).map_err(bad)?;
                    give(number_of(self.schema, self.scalar, number).and_then(named).map_err(bad)?)?;
                }
            }
        }
        Ok(())
    }
}

fn scattered(slot: Slot, how: How) -> usize {
    match (slot, how) {
        (Slot::Run { start, end }, How::Array(..)) => (end - start) as usize,
        _ => 0,
    }
}

fn how(schema: &Schema, field: &Field) -> How {
    let is_many = field.presence == Presence::Repeated;
    let id = match field.kind {
        Kind::Scalar(scalar) if is_many => return How::Array(scalar, field.number),
        Kind::Scalar(scalar) => return How::Scalar(scalar),
        Kind::Message(id) if !is_many => id,
        Kind::Message(_) | Kind::Group => return How::Pass,
    };
    let message = schema.message(id);
    let is = |fields: &[(u32, &str, Scalar)]| {
        let same = |(f, (number, name, scalar)): (&Field, &(u32, &str, Scalar))| {
            (f.number, f.name.as_str(), f.kind, f.presence) == (*number, *name, Kind::Scalar(*scalar), Presence::Implicit)
        };
        message.fields.len() == fields.len() && message.fields.iter().zip(fields).all(same)
    };
    let number = |name: &str, wanted: Scalar| {
        let field = message.fields.iter().find(|f| f.name == name && f.presence != Presence::Repeated)?;
        (field.kind == Kind::Scalar(wanted)).then_some(field.number)
    };
    // Messages of others may have the names of these; what is in them must be what is expected.
    match message.name.as_str() {
        "google.protobuf.Timestamp" if is(&[(1, "seconds", Scalar::Int64), (2, "nanos", Scalar::Int32)]) => return How::Timestamp,
        "google.type.Date" if is(&[(1, "year", Scalar::Int32), (2, "month", Scalar::Int32), (3, "day", Scalar::Int32)]) => return How::Date,
        "google.type.TimeOfDay"
            if is(&[(1, "hours", Scalar::Int32), (2, "minutes", Scalar::Int32), (3, "seconds", Scalar::Int32), (4, "nanos", Scalar::Int32)]) =>
        {
            return How::TimeOfDay;
        }
        "confluent.type.Decimal" if is(&[(1, "value", Scalar::Bytes), (2, "precision", Scalar::Uint32), (3, "scale", Scalar::Int32)]) => {
            return How::Decimal { value: 1, scale: 3 };
        }
        name => {
            if let (Some("google.protobuf"), [f]) = (name.rsplit_once('.').map(|(package, _)| package), message.fields.as_slice())
                && let (Kind::Scalar(scalar), true) = (f.kind, f.number == 1 && f.name == "value" && f.presence == Presence::Implicit)
            {
                return How::Wrapper(scalar);
            }
        }
    }
    match semantic_name(message.name.as_str()) {
        Some(VARIABLE_DECIMAL) => match (number("value", Scalar::Bytes), number("scale", Scalar::Int32)) {
            (Some(value), Some(scale)) if message.fields.len() == 2 => How::Decimal { value, scale },
            _ => How::Message,
        },
        Some(_) => match (number("wkb", Scalar::Bytes), number("srid", Scalar::Int32)) {
            (Some(wkb), Some(srid)) => How::Geometry { wkb, srid },
            _ => How::Message,
        },
        None if message.is_entry => How::Pass,
        None => How::Message,
    }
}

const VARIABLE_DECIMAL: &str = "io.debezium.data.VariableScaleDecimal";

/// The name of a connector's struct, of which the converter leaves the last part.
fn semantic_name(message: &str) -> Option<&'static str> {
    Some(match message.rsplit('.').next().unwrap_or_default() {
        "VariableScaleDecimal" => VARIABLE_DECIMAL,
        "Geometry" => "io.debezium.data.geometry.Geometry",
        "Geography" => "io.debezium.data.geometry.Geography",
        "Point" => "io.debezium.data.geometry.Point",
        _ => return None,
    })
}

fn wire_type(scalar: Scalar) -> WireType {
    match scalar {
        Scalar::Double | Scalar::Fixed64 | Scalar::Sfixed64 => WireType::Fixed64,
        Scalar::Float | Scalar::Fixed32 | Scalar::Sfixed32 => WireType::Fixed32,
        Scalar::String | Scalar::Bytes => WireType::Run,
        _ => WireType::Varint,
    }
}

fn take_number(wire: WireType, reader: &mut Reader<'_>) -> Result<u64, WireError> {
    match wire {
        WireType::Varint => reader.varint(),
        WireType::Fixed64 => Ok(u64::from_le_bytes(reader.array()?)),
        WireType::Fixed32 => Ok(u32::from_le_bytes(reader.array()?).into()),
        WireType::Run => Err(WireError::Kind),
    }
}

/// A number of 32 bits: a negative one has the bits of one of 64 in front, or, as some write it, none.
fn int32(number: u64) -> Result<i32, WireError> {
    i32::try_from(number.cast_signed()).or_else(|_| u32::try_from(number).map(u32::cast_signed)).map_err(|_| WireError::Number)
}

fn number_of(schema: &Schema, scalar: Scalar, number: u64) -> Result<Datum<'static>, WireError> {
    let zigzag = |n: u64| (n >> 1).cast_signed() ^ -((n & 1).cast_signed());
    Ok(match scalar {
        Scalar::Double => Datum::Float64(f64::from_bits(number)),
        Scalar::Float => Datum::Float32(f32::from_bits(u32::try_from(number).map_err(|_| WireError::Number)?)),
        Scalar::Int32 => Datum::Integer(int32(number)?.into()),
        Scalar::Int64 | Scalar::Sfixed64 => Datum::Integer(number.cast_signed()),
        // As numbers of 64 bits without a sign go through here (case DEC-03).
        Scalar::Uint64 | Scalar::Fixed64 => Datum::Integer(number.cast_signed()),
        Scalar::Uint32 | Scalar::Fixed32 => Datum::Integer(u32::try_from(number).map_err(|_| WireError::Number)?.into()),
        Scalar::Sint32 => Datum::Integer(i32::try_from(zigzag(number)).map_err(|_| WireError::Number)?.into()),
        Scalar::Sint64 => Datum::Integer(zigzag(number)),
        Scalar::Sfixed32 => Datum::Integer(u32::try_from(number).map_err(|_| WireError::Number)?.cast_signed().into()),
        Scalar::Bool => Datum::Bool(number != 0),
        // Its text is not known, and its number is not what other values of the column are.
        Scalar::Enum(id) => Datum::Symbol(schema.symbol(id, int32(number)?).ok_or(WireError::Index)?),
        Scalar::String | Scalar::Bytes => return Err(WireError::Kind),
    })
}

fn run_of(scalar: Scalar, run: &[u8]) -> Result<Datum<'_>, WireError> {
    match scalar {
        Scalar::String => std::str::from_utf8(run).map(Datum::Text).map_err(|_| WireError::Text),
        Scalar::Bytes => Ok(Datum::Bytes(run)),
        _ => Err(WireError::Kind),
    }
}

fn text_of<'a>(schema: &'a Schema, scalar: Scalar, place: usize) -> Result<Datum<'a>, WireError> {
    let Scalar::Enum(id) = scalar else { return Err(WireError::Index) };
    schema.symbol_text(id, place).map(Datum::Text).ok_or(WireError::Index)
}

fn default(schema: &Schema, scalar: Scalar) -> Result<Datum<'static>, WireError> {
    match scalar {
        Scalar::String => Ok(Datum::Text("")),
        Scalar::Bytes => Ok(Datum::Bytes(&[])),
        scalar => number_of(schema, scalar, 0),
    }
}

fn absent(schema: &Schema, take: &Take) -> Result<Datum<'static>, WireError> {
    match (take.presence, take.how) {
        (Presence::Implicit, How::Scalar(scalar)) => default(schema, scalar),
        (Presence::Repeated, How::Array(..)) => Ok(Datum::Blocks(&[])),
        _ => Ok(Datum::Null),
    }
}

/// The value of a wrapper, its default where it is not there.
fn wrapped<'a>(schema: &Schema, scalar: Scalar, run: &'a [u8]) -> Result<Datum<'a>, WireError> {
    let mut found = None;
    let mut reader = Reader::new(run);
    while !reader.rest().is_empty() {
        let tag = Tag::take(&mut reader)?;
        if tag.number != 1 {
            tag.pass(&mut reader)?;
        } else if tag.wire != wire_type(scalar) {
            return Err(WireError::Kind);
        } else if tag.wire == WireType::Run {
            found = Some(run_of(scalar, crate::protobuf::run(&mut reader)?)?);
        } else {
            found = Some(number_of(schema, scalar, take_number(tag.wire, &mut reader)?)?);
        }
    }
    found.map_or_else(|| default(schema, scalar), Ok)
}

/// The varints of these fields of a message, 0 where they are not there.
fn numbers<const N: usize>(run: &[u8], wanted: [u32; N]) -> Result<[u64; N], WireError> {
    let mut found = [0_u64; N];
    let mut reader = Reader::new(run);
    while !reader.rest().is_empty() {
        let tag = Tag::take(&mut reader)?;
        match wanted.iter().position(|number| *number == tag.number) {
            None => tag.pass(&mut reader)?,
            Some(at) if tag.wire == WireType::Varint => found[at] = reader.varint()?,
            Some(_) => return Err(WireError::Kind),
        }
    }
    Ok(found)
}

/// The bytes of one field of a message and the varint of another, where they are there.
fn run_and_number(bytes: &[u8], run: u32, number: u32) -> Result<(Option<&[u8]>, Option<u64>), WireError> {
    let mut found = (None, None);
    let mut reader = Reader::new(bytes);
    while !reader.rest().is_empty() {
        let tag = Tag::take(&mut reader)?;
        match tag.wire {
            WireType::Run if tag.number == run => found.0 = Some(crate::protobuf::run(&mut reader)?),
            WireType::Varint if tag.number == number => found.1 = Some(reader.varint()?),
            _ if tag.number == run || tag.number == number => return Err(WireError::Kind),
            _ => tag.pass(&mut reader)?,
        }
    }
    Ok(found)
}

/// A date that names a day; one of a year or a month alone is none.
fn date(run: &[u8]) -> Result<Datum<'static>, WireError> {
    let [year, month, day] = numbers(run, [1, 2, 3])?.map(int32);
    let small = |number: i32| u8::try_from(number).map_err(|_| WireError::Number);
    let year = i64::from(year?);
    let days = civil::days_of_date(year, small(month?)?, small(day?)?).filter(|_| year > 0);
    days.map(Datum::Integer).ok_or(WireError::Number)
}

/// A time of day in nanos; 24:00 is one, as it is in Postgres.
fn time_of_day(run: &[u8]) -> Result<Datum<'static>, WireError> {
    let [hours, minutes, seconds, nanos] = numbers(run, [1, 2, 3, 4])?.map(int32);
    let within = |number: i32, most: i32| if (0..=most).contains(&number) { Ok(i64::from(number)) } else { Err(WireError::Number) };
    let seconds = within(hours?, 24)? * 3_600 + within(minutes?, 59)? * 60 + within(seconds?, 59)?;
    let time = seconds * super::field::NANOS + within(nanos?, 999_999_999)?;
    if time > 86_400 * super::field::NANOS { Err(WireError::Number) } else { Ok(Datum::Integer(time)) }
}

/// The Connect schema of a message.
pub(super) fn connect(schema: &Schema, message: MessageId) -> Connect<'_> {
    Connect::row_of(schema.message(message).fields.iter().map(|field| column(schema, field)).collect())
}

fn column<'a>(schema: &'a Schema, field: &'a Field) -> Connect<'a> {
    let is_optional = field.presence == Presence::Explicit;
    let mut parameters: BTreeMap<Cow<'_, str>, Cow<'_, str>> =
        field.parameters.iter().map(|(k, v)| (Cow::from(k.as_str()), Cow::from(v.as_str()))).collect();
    let mut name = field.parameters.get("connect.name").map(String::as_str);
    let primitive = match how(schema, field) {
        How::Scalar(scalar) | How::Wrapper(scalar) => primitive(scalar, field),
        How::Array(scalar, _) => {
            let items = Connect::column(&field.name, primitive(scalar, field), name, false, parameters);
            return Connect::array_of(&field.name, items.bare(), false);
        }
        How::Timestamp => "google.protobuf.Timestamp",
        How::Date => "google.type.Date",
        How::TimeOfDay => "google.type.TimeOfDay",
        How::Decimal { .. } if message_name(schema, field) == "confluent.type.Decimal" => {
            if let Some(precision) = parameters.remove("precision") {
                let _ = parameters.insert(Cow::from("connect.decimal.precision"), precision);
            }
            name = Some("org.apache.kafka.connect.data.Decimal");
            "struct"
        }
        How::Decimal { .. } | How::Geometry { .. } => {
            name = name.or_else(|| semantic_name(message_name(schema, field)));
            "struct"
        }
        // Named so that nothing takes them for what JSON would hold: there is no reader for them.
        How::Message | How::Pass => match (field.kind, field.presence) {
            (Kind::Message(id), Presence::Repeated) if schema.message(id).is_entry => "map of Protobuf",
            (Kind::Message(_), Presence::Repeated) => "messages of Protobuf",
            (Kind::Group, _) => "group of Protobuf",
            _ => "message of Protobuf",
        },
    };
    Connect::column(&field.name, primitive, name, is_optional, parameters).bare()
}

fn message_name<'a>(schema: &'a Schema, field: &Field) -> &'a str {
    if let Kind::Message(id) = field.kind { &schema.message(id).name } else { "" }
}

fn primitive(scalar: Scalar, field: &Field) -> &str {
    match scalar {
        Scalar::Bool => "boolean",
        Scalar::Int32 | Scalar::Sint32 | Scalar::Sfixed32 => match field.parameters.get("connect.type").map(String::as_str) {
            Some(narrow @ ("int8" | "int16")) => narrow,
            _ => "int32",
        },
        Scalar::Int64 | Scalar::Sint64 | Scalar::Sfixed64 => "int64",
        Scalar::Uint32 | Scalar::Fixed32 => "uint32",
        Scalar::Uint64 | Scalar::Fixed64 => "uint64",
        Scalar::Float => "float32",
        Scalar::Double => "float64",
        Scalar::String | Scalar::Enum(_) => "string",
        Scalar::Bytes => "bytes",
    }
}
