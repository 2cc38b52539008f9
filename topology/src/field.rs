//! A field as written: absent, unreadable (and reported already), or a value and its place.
//!
//! The model is made of these, so that every later check can point at the line, and one bad value hides no other problem. A broken
//! field is silent from then on: whoever reads the model must not report it again.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::issue::At;

/// Name of the newtype through which [`Field`] asks the reader for the place.
pub(crate) const FIELD: &str = "$field";

/// A value of the model with its place.
#[derive(Clone, Debug, Default)]
pub enum Field<T> {
    /// The key is not written.
    #[default]
    Absent,
    /// The value could not be read; an issue says why.
    Broken(At),
    /// The value and its place.
    Given(T, At),
}

impl<T> Field<T> {
    /// The value, if there is a readable one.
    pub(crate) const fn get(&self) -> Option<&T> {
        match self {
            Self::Given(value, _) => Some(value),
            Self::Absent | Self::Broken(_) => None,
        }
    }

    /// The value and its place, if there is a readable one.
    pub(crate) const fn given(&self) -> Option<(&T, &At)> {
        match self {
            Self::Given(value, at) => Some((value, at)),
            Self::Absent | Self::Broken(_) => None,
        }
    }

    /// Where it is written, readable or not.
    pub(crate) const fn at(&self) -> Option<&At> {
        match self {
            Self::Given(_, at) | Self::Broken(at) => Some(at),
            Self::Absent => None,
        }
    }

    /// True if the key is not written at all.
    pub(crate) const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

impl<T: Copy> Field<T> {
    /// The value by copy.
    pub(crate) fn copied(&self) -> Option<T> {
        self.get().copied()
    }
}

impl<T> Field<Vec<T>> {
    /// The items; none where the list is absent or broken.
    pub(crate) fn items(&self) -> &[T] {
        self.get().map_or(&[], Vec::as_slice)
    }
}

impl Field<String> {
    /// The text by reference.
    pub(crate) fn text(&self) -> Option<&str> {
        self.get().map(String::as_str)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for FieldVisitor<T> {
            type Value = Field<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value of a topology file")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Field<T>, A::Error> {
                let mut number = || seq.next_element::<u32>()?.ok_or_else(|| A::Error::custom("no place"));
                let (file, line, column, width) = (number()?, number()?, number()?, number()?);
                let path = seq.next_element::<String>()?.ok_or_else(|| A::Error::custom("no path"))?;
                let at = At { file, line, column, width, path };
                // The reader has reported what is wrong; the rest of the file goes on.
                Ok(match seq.next_element::<T>() {
                    Ok(Some(value)) => Field::Given(value, at),
                    Ok(None) | Err(_) => Field::Broken(at),
                })
            }
        }

        deserializer.deserialize_newtype_struct(FIELD, FieldVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Field<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }
}

/// A mapping whose keys are the operator's own names, in the order written.
#[derive(Clone, Debug)]
pub struct Entries<T>(pub(crate) Vec<(Field<String>, Field<T>)>);

impl<T> Entries<T> {
    /// True without a single entry.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for EntriesVisitor<T> {
            type Value = Entries<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(key) = map.next_key()? {
                    entries.push((key, map.next_value()?));
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Entries<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Map_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        schemars::json_schema!({ "type": "object", "additionalProperties": value })
    }
}
