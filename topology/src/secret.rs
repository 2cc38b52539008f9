//! Secrets and the references that lead to them.
//!
//! A file holds no secret, only `${env:NAME}` or `${file:PATH}`; the value is looked up when the plan is built and lives in
//! [`Secret`], which cannot be printed or serialised by accident. Other texts may hold references too, among literal parts.
//! Nothing here may put a looked-up value into a message.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

/// A value that must not be seen: prints as `***`, has no serialisation, and is wiped when dropped.
///
/// ```compile_fail,E0277
/// fn serialisable<T: serde::Serialize>() {}
/// serialisable::<landfall_topology::Secret>();
/// ```
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    pub(crate) fn new(value: String) -> Self {
        Self(SecretString::from(value))
    }

    /// The value, for the one call that needs it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for Secret {}

/// Where a value is kept outside the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// `${env:NAME}`: a variable of the process environment.
    Env(String),
    /// `${file:PATH}`: the content of a file, without one line end at its end.
    File(String),
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "environment variable {}", crate::issue::shown(name)),
            Self::File(path) => write!(f, "file {}", crate::issue::shown(path)),
        }
    }
}

/// Why a reference has no value: a fragment that continues `environment variable "X" …`, never the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct LookupError {
    reason: String,
}

impl LookupError {
    /// A reason such as `is not set`.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

/// How [`crate::check`] finds the value behind a reference.
pub type Lookup<'a> = dyn Fn(&Reference) -> Result<String, LookupError> + 'a;

/// A text in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part<'t> {
    Literal(Cow<'t, str>),
    Reference(Reference),
}

/// Splits a text at its references; `$${` stands for a literal `${`.
///
/// The error is a message fragment for an unfinished or unknown reference.
pub(crate) fn parts(text: &str) -> Result<Vec<Part<'_>>, &'static str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let before = rest.get(..start).unwrap_or_default();
        let after = rest.get(start + 2..).unwrap_or_default();
        if let Some(escaped) = before.strip_suffix('$') {
            parts.push(Part::Literal(Cow::Owned(format!("{escaped}${{"))));
            rest = after;
            continue;
        }
        if !before.is_empty() {
            parts.push(Part::Literal(Cow::Borrowed(before)));
        }
        let (inner, tail) = after.split_once('}').ok_or("a reference without a closing brace")?;
        let reference = match inner.split_once(':') {
            Some(("env", name)) if is_variable(name) => Reference::Env(name.to_owned()),
            Some(("file", path)) if !path.is_empty() => Reference::File(path.to_owned()),
            _ => return Err("a reference that is neither ${env:NAME} nor ${file:PATH}"),
        };
        parts.push(Part::Reference(reference));
        rest = tail;
    }
    if !rest.is_empty() {
        parts.push(Part::Literal(Cow::Borrowed(rest)));
    }
    Ok(parts)
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Why a text could not be resolved.
#[derive(Debug)]
pub(crate) enum Unresolved {
    /// The text is no proper reference.
    Malformed(&'static str),
    /// The reference leads nowhere.
    Missing(Reference, LookupError),
}

/// A text with every reference replaced by its value.
pub(crate) fn resolve(text: &str, lookup: &Lookup<'_>) -> Result<String, Unresolved> {
    let mut out = String::new();
    for part in parts(text).map_err(Unresolved::Malformed)? {
        match part {
            Part::Literal(literal) => out.push_str(&literal),
            Part::Reference(reference) => match lookup(&reference) {
                Ok(value) => out.push_str(&value),
                Err(error) => return Err(Unresolved::Missing(reference, error)),
            },
        }
    }
    Ok(out)
}

/// True if a text is one reference and nothing else.
pub(crate) fn is_reference(text: &str) -> bool {
    matches!(parts(text).as_deref(), Ok([Part::Reference(_)]))
}

/// A secret as written: the text of the file, its references not looked up.
#[derive(Clone, Deserialize)]
#[serde(rename = "$raw")]
pub struct SecretText(pub(crate) String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl JsonSchema for SecretText {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^\$\{(env:[A-Za-z0-9_]+|file:[^}]+)\}$",
            "description": "A reference to a secret, `${env:NAME}` or `${file:PATH}`; a secret itself is refused.",
        })
    }
}

/// A connection address as written; it may hold a password, if that is a reference.
#[derive(Clone, Deserialize)]
#[serde(rename = "$address")]
pub struct UrlText(pub(crate) String);

impl fmt::Debug for UrlText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl JsonSchema for UrlText {
    fn schema_name() -> Cow<'static, str> {
        "Url".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 1,
            "description": "An address, or a reference to one, `${env:NAME}` or `${file:PATH}`; a password in it must be a reference.",
        })
    }
}
