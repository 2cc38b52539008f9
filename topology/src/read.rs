//! The tree into the model, through serde, with every problem reported.
//!
//! The model structs derive `Deserialize`; this is the deserialiser behind them. It reports an unknown key, a wrong kind or an
//! unknown word as an issue and goes on, because each field is a [`crate::field::Field`] that catches its own failure. It also
//! replaces references in texts, except in secrets and addresses, which are looked up only when the plan is built.
//! It must never put the value of a secret into a message.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::{StrDeserializer, StringDeserializer, U32Deserializer};
use serde::de::{self, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor};

use crate::field::FIELD;
use crate::issue::{At, Code, Finding, shown, visible};
use crate::issues::Issues;
use crate::mask::Mask;
use crate::nearest::nearest;
use crate::secret::{self, Lookup, Unresolved};
use crate::tree::{Kind, Node, key_text};

/// Newtype that wants a text as written, references and all; what it holds is masked in excerpts.
pub(crate) const RAW: &str = "$raw";
/// Newtype that wants a text as written; a password in it is masked wherever it is shown (`mask.rs`).
pub(crate) const ADDRESS: &str = "$address";
/// Newtype that wants the text of any scalar: durations and sizes may be numbers or words.
pub(crate) const SCALAR: &str = "$scalar";
/// Enum whose variant follows from the kind of the value: `List` or `Map`.
pub(crate) const BY_KIND: &str = "$by_kind";
/// Newtype that takes whatever stands there.
pub(crate) const ANYTHING: &str = "$anything";

/// What a file is read with.
pub(crate) struct Reader<'a> {
    pub(crate) issues: &'a Issues<'a>,
    pub(crate) lookup: &'a Lookup<'a>,
    pub(crate) file: u32,
}

impl Reader<'_> {
    /// Reads a whole tree.
    pub(crate) fn read<'n, T: de::Deserialize<'n>>(&'n self, node: &'n Node) -> Option<T> {
        let cursor = Cursor { reader: self, node, path: String::new() };
        let at = cursor.at();
        match T::deserialize(cursor) {
            Ok(value) => Some(value),
            Err(error) => {
                error.report(self.issues, &at);
                None
            }
        }
    }
}

/// Why a value was not read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// An issue says so already.
    Reported,
    /// A type refused the value with this message.
    Refused(String),
}

impl ReadError {
    fn report(&self, issues: &Issues<'_>, at: &At) {
        if let Self::Refused(message) = self {
            issues.push(at, Finding::new(Code::BadValue, message.as_str()));
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reported => f.write_str("reported"),
            Self::Refused(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Refused(message.to_string())
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::Refused(format!("the value must be {expected}"))
    }
}

/// One value of the tree with its path.
#[derive(Clone)]
struct Cursor<'n> {
    reader: &'n Reader<'n>,
    node: &'n Node,
    path: String,
}

impl<'n> Cursor<'n> {
    fn at(&self) -> At {
        At { file: self.reader.file, line: self.node.line, column: self.node.column, width: self.node.width, path: self.path.clone() }
    }

    fn report(&self, finding: Finding) -> ReadError {
        self.reader.issues.push(&self.at(), finding);
        ReadError::Reported
    }

    fn child(&self, node: &'n Node, path: String) -> Self {
        Self { reader: self.reader, node, path }
    }

    /// The refusal of a value that is not of the wanted kind.
    fn wrong(&self, wanted: &str) -> ReadError {
        if matches!(self.node.kind, Kind::Null) {
            let finding = Finding::new(Code::EmptyValue, format!("there is no value; {wanted} is expected"));
            return self.report(finding.hint("give it a value, or leave the key out"));
        }
        let message = format!("{wanted} is expected, not {}", self.node.kind.noun());
        let finding = Finding::new(Code::WrongKind, message);
        self.report(match (&self.node.kind, wanted) {
            (Kind::Text { .. } | Kind::Number(_) | Kind::Bool(_), "a list") => finding.hint("put it into brackets: [a, b]"),
            _ => finding,
        })
    }

    /// A text with its references replaced; `self` is a text node.
    fn resolved(&self, text: &'n str) -> Result<Cow<'n, str>, ReadError> {
        if !text.contains("${") {
            return Ok(Cow::Borrowed(text));
        }
        secret::resolve(text, self.reader.lookup).map(Cow::Owned).map_err(|error| self.report(unresolved(&error)))
    }

    /// The text of a field that wants one.
    fn text(&self) -> Result<Cow<'n, str>, ReadError> {
        match &self.node.kind {
            Kind::Text { text, plain } => {
                if *plain && is_yaml11_bool(text) {
                    let message = format!("{} without quotes is true or false to YAML 1.1", shown(text));
                    return Err(self.report(Finding::new(Code::YamlAmbiguous, message).hint("put it in quotes")));
                }
                self.resolved(text)
            }
            Kind::Number(text) => {
                let message = format!("{} without quotes is a number, and a text is expected", shown(text));
                Err(self.report(Finding::new(Code::YamlAmbiguous, message).hint("put it in quotes")))
            }
            Kind::Bool(_) => {
                let message = "true and false without quotes are no text, and a text is expected";
                Err(self.report(Finding::new(Code::YamlAmbiguous, message).hint("put it in quotes")))
            }
            Kind::Null | Kind::List(_) | Kind::Map(_) => Err(self.wrong("a text")),
        }
    }

    /// The digits of a field that wants a whole number.
    fn number<N: std::str::FromStr>(&self, wanted: &str) -> Result<N, ReadError> {
        let text = match &self.node.kind {
            Kind::Number(text) => Cow::Borrowed(text.as_str()),
            // A reference may stand for a number.
            Kind::Text { text, .. } if text.contains("${") => self.resolved(text)?,
            _ => return Err(self.wrong(wanted)),
        };
        self.refuse_leading_zero(&text)?;
        text.trim().parse().map_err(|_| {
            let message = format!("{wanted} is expected, not {}", self.spelling());
            self.report(Finding::new(Code::BadValue, message))
        })
    }

    fn refuse_leading_zero(&self, text: &str) -> Result<(), ReadError> {
        let digits = text.trim_start_matches(['-', '+']);
        let octal = digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
        if !octal {
            return Ok(());
        }
        let message = format!("{} has a leading zero, which is octal to YAML 1.1", self.spelling());
        Err(self.report(Finding::new(Code::YamlAmbiguous, message).hint("write the number without it")))
    }

    /// The text of a number or a word.
    fn scalar(&self) -> Result<Cow<'n, str>, ReadError> {
        match &self.node.kind {
            Kind::Text { text, .. } => self.resolved(text),
            Kind::Number(text) => {
                self.refuse_leading_zero(text)?;
                Ok(Cow::Borrowed(text))
            }
            Kind::Bool(value) => Ok(Cow::Borrowed(if *value { "true" } else { "false" })),
            Kind::Null | Kind::List(_) | Kind::Map(_) => Err(self.wrong("a number or a text")),
        }
    }

    /// What the file says here, for a message: never a looked-up value.
    fn spelling(&self) -> String {
        match &self.node.kind {
            Kind::Text { text, .. } | Kind::Number(text) => shown(text),
            other => other.noun().to_owned(),
        }
    }

    /// Hides the value in excerpts if it may be a secret.
    fn mask(&self) {
        if let Kind::Text { text, .. } | Kind::Number(text) = &self.node.kind
            && !secret::is_reference(text)
        {
            self.reader.issues.mask(Mask { file: self.reader.file, line: self.node.line, column: self.node.column, width: self.node.width });
        }
    }
}

/// What to say of a text whose references lead nowhere.
pub(crate) fn unresolved(error: &Unresolved) -> Finding {
    match error {
        Unresolved::Malformed(what) => {
            Finding::new(Code::UnresolvedReference, *what).hint("write ${env:NAME} or ${file:PATH}; a literal ${ is written $${")
        }
        Unresolved::Missing(reference, why) => Finding::new(Code::UnresolvedReference, format!("{reference} {why}")),
    }
}

/// Words that YAML 1.1 reads as true or false and YAML 1.2 as text.
fn is_yaml11_bool(text: &str) -> bool {
    ["yes", "no", "on", "off", "y", "n"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty, $wanted:literal;)+) => {
        $(fn $method<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
            visitor.$visit(self.number::<$type>($wanted)?)
        })+
    };
}

impl<'n> de::Deserializer<'n> for Cursor<'n> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'n>>(self, _: V) -> Result<V::Value, ReadError> {
        // No model type leaves its kind open except through the names below.
        Err(self.report(Finding::new(Code::WrongKind, "a value of this kind is not expected")))
    }

    fn deserialize_ignored_any<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_unit()
    }

    fn deserialize_bool<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.node.kind {
            Kind::Bool(value) => visitor.visit_bool(*value),
            Kind::Text { text, plain: true } if is_yaml11_bool(text) => {
                let message = format!("{} is true or false to YAML 1.1 only", shown(text));
                Err(self.report(Finding::new(Code::YamlAmbiguous, message).hint("write true or false")))
            }
            Kind::Text { text, .. } if text.contains("${") => match self.resolved(text)?.as_ref() {
                "true" => visitor.visit_bool(true),
                "false" => visitor.visit_bool(false),
                _ => Err(self.wrong("true or false")),
            },
            _ => Err(self.wrong("true or false")),
        }
    }

    numbers! {
        deserialize_u16 visit_u16 u16, "a whole number from 0 to 65535";
        deserialize_u32 visit_u32 u32, "a whole number from 0 to 4294967295";
        deserialize_u64 visit_u64 u64, "a whole number";
        deserialize_i64 visit_i64 i64, "a whole number";
    }

    fn deserialize_str<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.text()? {
            Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
            Cow::Owned(text) => visitor.visit_string(text),
        }
    }

    fn deserialize_string<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match key_text(self.node) {
            Some(text) => visitor.visit_str(&text),
            None => Err(self.wrong("a key")),
        }
    }

    fn deserialize_option<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'n>>(self, name: &'static str, visitor: V) -> Result<V::Value, ReadError> {
        match name {
            FIELD => visitor.visit_seq(Placed { cursor: self, step: 0 }),
            RAW | ADDRESS => {
                if name == RAW {
                    self.mask();
                }
                match &self.node.kind {
                    Kind::Text { text, .. } | Kind::Number(text) => visitor.visit_newtype_struct(StrDeserializer::new(text)),
                    _ => Err(self.wrong("a text")),
                }
            }
            SCALAR => visitor.visit_newtype_struct(StringDeserializer::new(self.scalar()?.into_owned())),
            ANYTHING => visitor.visit_newtype_struct(().into_deserializer()),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_seq<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.node.kind {
            Kind::List(items) => visitor.visit_seq(Items { cursor: &self, items, next: 0 }),
            _ => Err(self.wrong("a list")),
        }
    }

    fn deserialize_map<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.node.kind {
            Kind::Map(entries) => {
                let entries = unique(&self, entries);
                visitor.visit_map(Pairs { cursor: &self, entries, next: 0 })
            }
            _ => Err(self.wrong("a mapping")),
        }
    }

    fn deserialize_struct<V: Visitor<'n>>(self, _: &'static str, fields: &'static [&'static str], visitor: V) -> Result<V::Value, ReadError> {
        let Kind::Map(entries) = &self.node.kind else {
            return Err(self.wrong("a mapping"));
        };
        let mut entries = unique(&self, entries);
        entries.retain(|(key, value)| known_key(&self, key, value, fields));
        visitor.visit_map(Pairs { cursor: &self, entries, next: 0 })
    }

    fn deserialize_enum<V: Visitor<'n>>(self, name: &'static str, variants: &'static [&'static str], visitor: V) -> Result<V::Value, ReadError> {
        if name == BY_KIND {
            let variant = match &self.node.kind {
                Kind::List(_) => "List",
                Kind::Map(_) => "Map",
                _ => return Err(self.wrong("a list or a mapping")),
            };
            return visitor.visit_enum(Choice { cursor: self, variant });
        }
        let text = self.text()?;
        if let Some(variant) = variants.iter().find(|v| **v == text) {
            return visitor.visit_enum(Choice { cursor: self, variant });
        }
        let code = if name == "ChangeSignal" { Code::SignalInvalid } else { Code::UnknownValue };
        let finding = Finding::new(code, format!("{} is not known here", self.spelling()))
            .nearest(nearest(&text, variants.iter().copied()))
            .hint(format!("one of {}", variants.join(", ")));
        Err(self.report(finding))
    }

    serde::forward_to_deserialize_any! {
        <W: Visitor<'n>>
        i8 i16 i32 i128 u8 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct
    }
}

/// True for a key that a struct has; else reports it, with the nearest, and hides its value.
fn known_key(cursor: &Cursor<'_>, key: &Node, value: &Node, fields: &[&'static str]) -> bool {
    let Some(text) = key_text(key) else {
        cursor.child(key, cursor.path.clone()).wrong("a key");
        return false;
    };
    if fields.contains(&text.as_ref()) {
        return true;
    }
    let path = cursor.at().child(&visible(&text)).path;
    // Likely a misspelt key, perhaps of a secret.
    mask_all(cursor, value);
    let mut listed = fields.to_vec();
    listed.sort_unstable();
    cursor.child(key, path).report(
        Finding::new(Code::UnknownKey, format!("there is no key {} here", shown(&text)))
            .nearest(nearest(&text, fields.iter().copied()))
            .hint(format!("known keys: {}", listed.join(", "))),
    );
    false
}

fn mask_all(cursor: &Cursor<'_>, node: &Node) {
    match &node.kind {
        Kind::List(items) => items.iter().for_each(|item| mask_all(cursor, item)),
        Kind::Map(entries) => entries.iter().for_each(|(_, value)| mask_all(cursor, value)),
        Kind::Null => {}
        Kind::Bool(_) | Kind::Number(_) | Kind::Text { .. } => {
            cursor.reader.issues.mask(Mask { file: cursor.reader.file, line: node.line, column: node.column, width: node.width })
        }
    }
}

/// The first entry of each key; the others are reported.
fn unique<'n>(cursor: &Cursor<'n>, entries: &'n [(Node, Node)]) -> Vec<(&'n Node, &'n Node)> {
    let mut first: std::collections::HashMap<Cow<'n, str>, &Node> = std::collections::HashMap::new();
    let mut kept = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        if let Some(text) = key_text(key) {
            if let Some(before) = first.get(&text) {
                let message = format!("key {} stands here twice, first on line {}", shown(&text), before.line);
                let path = cursor.at().child(&visible(&text)).path;
                mask_all(cursor, value);
                cursor.child(key, path).report(Finding::new(Code::DuplicateKey, message).hint("remove one of the two"));
                continue;
            }
            first.insert(text, key);
        }
        kept.push((key, value));
    }
    kept
}

/// The place of a value, then the value: what `Field` reads.
struct Placed<'n> {
    cursor: Cursor<'n>,
    step: u8,
}

impl<'n> SeqAccess<'n> for Placed<'n> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'n>>(&mut self, seed: T) -> Result<Option<T::Value>, ReadError> {
        let node = self.cursor.node;
        let number = |number: u32| U32Deserializer::new(number);
        self.step += 1;
        let value = match self.step {
            1 => seed.deserialize(number(self.cursor.reader.file))?,
            2 => seed.deserialize(number(node.line))?,
            3 => seed.deserialize(number(node.column))?,
            4 => seed.deserialize(number(node.width))?,
            5 => seed.deserialize(StringDeserializer::new(self.cursor.path.clone()))?,
            6 => match seed.deserialize(self.cursor.clone()) {
                Ok(value) => value,
                Err(error) => {
                    error.report(self.cursor.reader.issues, &self.cursor.at());
                    return Err(ReadError::Reported);
                }
            },
            _ => return Ok(None),
        };
        Ok(Some(value))
    }
}

/// The items of a list.
struct Items<'c, 'n> {
    cursor: &'c Cursor<'n>,
    items: &'n [Node],
    next: usize,
}

impl<'n> SeqAccess<'n> for Items<'_, 'n> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'n>>(&mut self, seed: T) -> Result<Option<T::Value>, ReadError> {
        let Some(item) = self.items.get(self.next) else {
            return Ok(None);
        };
        let path = format!("{}[{}]", self.cursor.path, self.next);
        self.next += 1;
        seed.deserialize(self.cursor.child(item, path)).map(Some)
    }
}

/// The entries of a mapping.
struct Pairs<'c, 'n> {
    cursor: &'c Cursor<'n>,
    entries: Vec<(&'n Node, &'n Node)>,
    next: usize,
}

impl<'n> Pairs<'_, 'n> {
    fn path(&self, key: &Node) -> String {
        let key = key_text(key).unwrap_or(Cow::Borrowed("?"));
        self.cursor.at().child(&visible(&key)).path
    }
}

impl<'n> MapAccess<'n> for Pairs<'_, 'n> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'n>>(&mut self, seed: K) -> Result<Option<K::Value>, ReadError> {
        let Some((key, _)) = self.entries.get(self.next) else {
            return Ok(None);
        };
        seed.deserialize(self.cursor.child(key, self.path(key))).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'n>>(&mut self, seed: T) -> Result<T::Value, ReadError> {
        let (key, value) = *self.entries.get(self.next).ok_or(ReadError::Reported)?;
        self.next += 1;
        seed.deserialize(self.cursor.child(value, self.path(key)))
    }
}

/// A chosen variant and the value it is read from.
struct Choice<'n> {
    cursor: Cursor<'n>,
    variant: &'static str,
}

impl<'n> EnumAccess<'n> for Choice<'n> {
    type Error = ReadError;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'n>>(self, seed: T) -> Result<(T::Value, Self), ReadError> {
        let variant = seed.deserialize(StrDeserializer::<ReadError>::new(self.variant))?;
        Ok((variant, self))
    }
}

impl<'n> VariantAccess<'n> for Choice<'n> {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'n>>(self, seed: T) -> Result<T::Value, ReadError> {
        seed.deserialize(self.cursor)
    }

    fn tuple_variant<V: Visitor<'n>>(self, _: usize, _: V) -> Result<V::Value, ReadError> {
        Err(self.cursor.wrong("another value"))
    }

    fn struct_variant<V: Visitor<'n>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, ReadError> {
        Err(self.cursor.wrong("another value"))
    }
}
