//! Types that nobody says: what the records of a topic tell of members without a schema part and without a declared type (SEMANTICS.md B.1, B.2).
//!
//! Records are looked at here, and only looked at: what they come to is settled elsewhere, once and for everybody, before any record is written
//! with it ([`Decoder::settle`](super::Decoder::settle)). Whatever a record is, looking at it fails at nothing, takes time in its length and keeps
//! no more than names and one byte of each; what cannot be read says nothing, and is told by name when it is decoded.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::datum::Datum;
use super::document::{Seen, close, open};
use super::envelope::{Envelope, Kind};
use super::maxwell::{self, Maxwell};
use super::placeholder::Placeholder;
use super::plan::{Image, Recent};
use super::registered::Registry;
use super::scalar::{self, KeyFormat};
use super::{Dialect, Encoding, Options, Record, declared_type, inferred_type, literal};
use crate::json::{Scanner, Token};
use crate::shape::Shape;
use crate::table::{COLUMNS_MAX, TableSchema};
use crate::types::LogicalType;

/// Members that are told apart; of those beyond nothing is known but that there are more. Never key columns, which come before.
const MEMBERS_MAX: usize = 5_000;
/// What the names of members may come to together.
const NAMES_BYTES_MAX: usize = 1 << 20;
/// Columns that a table may get before a record needs them: beyond, only members of the record that asks become some.
const AHEAD_MAX: usize = 1_000;
/// Members of record keys that are told apart.
const KEY_MEMBERS_MAX: usize = 64;

/// What records have said of members whose types nobody says.
#[derive(Debug)]
pub struct Members {
    options: Options,
    placeholder: Placeholder,
    headers: Recent<Seen<()>>,
    by_name: BTreeMap<String, usize>,
    found: Vec<Member>,
    names_bytes: usize,
    /// How many the first record had.
    first: Option<usize>,
    has_more: bool,
    /// Record keys that are single values.
    scalar: Shape,
    /// What records with a schema part have said.
    known: Option<Arc<TableSchema>>,
}

#[derive(Debug)]
struct Member {
    name: String,
    shape: Shape,
    is_key: bool,
}

/// What that comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inferred {
    /// Columns and their types, by their first appearance.
    pub columns: Vec<(String, LogicalType)>,
    /// Key columns for which there is no type, and what was seen of them.
    pub refused: Vec<(String, &'static str)>,
    /// Whether there were more members than are told apart, or than a table may have.
    pub has_more: bool,
}

impl Members {
    /// Nothing was looked at yet. Members with a declared type, with one that is settled, or that are left out are passed over.
    pub fn new(options: Options) -> Self {
        let has_placeholder = matches!(options.dialect, Dialect::Debezium | Dialect::Flattened);
        Self {
            placeholder: Placeholder::new(if has_placeholder { &options.placeholder } else { "" }),
            options,
            headers: Recent::default(),
            by_name: BTreeMap::new(),
            found: Vec::new(),
            names_bytes: 0,
            first: None,
            has_more: false,
            scalar: Shape::NOTHING,
            known: None,
        }
    }

    /// The same of a table that has had records with a schema part: where it said a number's size, the column keeps it (case ENV-01).
    #[must_use]
    pub fn of(self, known: Option<Arc<TableSchema>>) -> Self {
        Self { known, ..self }
    }

    /// Looks at a record. The first one should be the one that a type was missing for: all of its members become columns.
    pub fn see(&mut self, record: &Record<'_>) {
        if self.see_value(record.value).is_some() {
            let _ = record.key.and_then(|key| self.see_key(key));
        }
        let _ = self.first.get_or_insert(self.found.len());
    }

    /// What all of them come to.
    pub fn types(&self) -> Inferred {
        let mut inferred = Inferred { has_more: self.has_more, ..Inferred::default() };
        let known = self.options.types.len() + self.options.inferred.len();
        for (at, Member { name, shape, is_key }) in self.found.iter().enumerate() {
            let is_asked = self.first.is_none_or(|first| at < first);
            let room = if *is_key || is_asked { COLUMNS_MAX } else { AHEAD_MAX };
            let ty = if *is_key { shape.key_column() } else { Ok(shape.column()) };
            match ty {
                Ok(None) => {}
                Ok(Some(_)) if known + inferred.columns.len() >= room => inferred.has_more |= room == COLUMNS_MAX,
                Ok(Some(ty)) => inferred.columns.push((name.clone(), self.known_size(name, *shape).unwrap_or(ty))),
                Err(why) => inferred.refused.push((name.clone(), why)),
            }
        }
        let Some(name) = self.options.scalar_key().filter(|name| self.is_wanted(name)) else { return inferred };
        let is_told = self.by_name.get(name).is_some_and(|at| self.found[*at].shape.column().is_some());
        if self.scalar == Shape::NOTHING || is_told {
            return inferred;
        }
        // Text that is no number was seen, and then all of them are text as they stand.
        let ty = if self.scalar.covers(Shape::STRING) { Ok(Some(LogicalType::Text)) } else { self.scalar.key_column() };
        match ty {
            Ok(Some(ty)) => inferred.columns.push((name.to_owned(), ty)),
            Ok(None) => {}
            Err(why) => inferred.refused.push((name.to_owned(), why)),
        }
        inferred
    }

    /// The size that a number's column has already, where it takes all that was seen. Other types are written otherwise without a schema part, and are
    /// no numbers.
    fn known_size(&self, name: &str, shape: Shape) -> Option<LogicalType> {
        let column = self.known.as_ref()?.columns().iter().find(|column| column.name == self.options.renamed(name))?;
        let is_number = match column.ty {
            LogicalType::Int8 | LogicalType::Int16 | LogicalType::Int32 => Shape::INTEGER.covers(shape),
            LogicalType::UInt8 | LogicalType::UInt16 | LogicalType::UInt32 => Shape::INTEGER.covers(shape),
            LogicalType::Float32 | LogicalType::Float64 => Shape::NUMBERS.covers(shape),
            _ => false,
        };
        (is_number && self.options.substitute(name).is_none()).then_some(column.ty)
    }

    fn is_wanted(&self, name: &str) -> bool {
        let is_known = declared_type(&self.options, name).or_else(|| inferred_type(&self.options, name)).is_some();
        !is_known && !self.options.leaves_out(name)
    }

    fn is_of_key(&self, name: &str) -> bool {
        self.options.primary_key.as_ref().is_some_and(|key| key.iter().any(|column| column == name))
    }

    /// Looks at a value; nothing where it is no row of the table, so that its key says nothing either.
    fn see_value(&mut self, value: Option<&[u8]>) -> Option<()> {
        let Some(value) = value else { return Some(()) };
        if Registry::frame(&self.options, self.options.encoding, value, "value").is_some() {
            return Some(());
        }
        match self.options.dialect {
            Dialect::Debezium => {
                let mut opened = open(value, "value", &mut self.headers, |_| Ok(())).ok()?;
                let envelope = Envelope::parse(&mut opened.scanner, |_| false).ok()?;
                close(&mut opened, "value").ok()?;
                // A null in a wrapper is a tombstone.
                let Some(envelope) = envelope else { return Some(()) };
                let Kind::Row(_) = envelope.kind().ok()? else { return None };
                if opened.schema.is_none() {
                    for image in [&envelope.after, &envelope.before] {
                        if let Some(Image::Json(row)) = image {
                            self.see_row(row);
                        }
                    }
                }
            }
            Dialect::Flattened | Dialect::Plain => {
                let mut opened = open(value, "value", &mut self.headers, |_| Ok(())).ok()?;
                let token = opened.scanner.value().ok()?;
                close(&mut opened, "value").ok()?;
                match token {
                    Token::Object(row) if opened.schema.is_none() => self.see_row(row),
                    Token::Object(_) | Token::Null => {}
                    _ => return None,
                }
            }
            Dialect::Maxwell => {
                let mut scanner = Scanner::new(std::str::from_utf8(value).ok()?);
                let event = Maxwell::parse(&mut scanner, self.options.connector).ok()?;
                scanner.finish().ok()?;
                let maxwell::Kind::Row(_) = event.kind else { return None };
                if !self.options.is_wanted(event.source.database, event.source.table) {
                    return None;
                }
                [event.data, event.old].into_iter().flatten().for_each(|row| self.see_row(row));
            }
            // Messages of Canal name the types; documents of MongoDB say them with each value, and are kept whole where nothing is declared.
            Dialect::Canal | Dialect::Mongodb => return None,
        }
        Some(())
    }

    fn see_row(&mut self, row: &str) {
        let _ = self.see_members(row, false);
    }

    fn see_members(&mut self, text: &str, is_key: bool) -> Option<()> {
        let mut scanner = Scanner::new(text);
        scanner.enter_object().ok()?;
        let (mut first, mut name) = (true, String::new());
        while let Some(member) = scanner.member(first).ok()? {
            first = false;
            let token = scanner.value().ok()?;
            name.clear();
            if !member.unescape(&mut name) || literal::says_nothing(&Datum::Json(token), &self.placeholder) {
                continue;
            }
            let of_table = self.options.primary_key.is_none() || self.is_of_key(&name);
            // Other members of a record key are columns beside plain rows alone.
            if !is_key || of_table || self.options.dialect == Dialect::Plain {
                let is_key = (is_key && of_table) || self.is_of_key(&name);
                self.join(&name, Shape::of(&token), is_key);
            }
        }
        Some(())
    }

    fn join(&mut self, name: &str, shape: Shape, is_key: bool) {
        if let Some(at) = self.by_name.get(name) {
            let member = &mut self.found[*at];
            member.shape = member.shape.join(shape);
            member.is_key |= is_key;
            return;
        }
        if !self.is_wanted(name) {
            return;
        }
        let most = if is_key { MEMBERS_MAX + KEY_MEMBERS_MAX } else { MEMBERS_MAX };
        if self.found.len() >= most || self.names_bytes + name.len() > NAMES_BYTES_MAX {
            self.has_more = true;
            return;
        }
        self.names_bytes += name.len();
        let _ = self.by_name.insert(name.to_owned(), self.found.len());
        self.found.push(Member { name: name.to_owned(), shape, is_key });
    }

    fn see_key(&mut self, bytes: &[u8]) -> Option<()> {
        match self.options.dialect {
            Dialect::Maxwell => {
                for name in maxwell::key_names(bytes).ok()? {
                    if self.options.primary_key.is_none() {
                        self.join(&name, Shape::NOTHING, true);
                    }
                }
                return Some(());
            }
            Dialect::Canal | Dialect::Mongodb => return None,
            Dialect::Debezium | Dialect::Flattened | Dialect::Plain => {}
        }
        if !matches!(self.options.key_format, KeyFormat::Detected | KeyFormat::Json) {
            return None;
        }
        let is_detected = self.options.key_format == KeyFormat::Detected;
        if is_detected && Registry::frame(&self.options, Encoding::Detected, bytes, "key").is_some() {
            return None;
        }
        let is_single = self.options.scalar_key().is_some();
        if is_detected && is_single && scalar::is_text(bytes) {
            let text = std::str::from_utf8(bytes).ok()?;
            self.scalar = self.scalar.join(Shape::of(&scalar::detected(text, LogicalType::Json)));
            return Some(());
        }
        let mut opened = open(bytes, "key", &mut self.headers, |_| Ok(())).ok()?;
        let token = opened.scanner.value().ok()?;
        close(&mut opened, "key").ok()?;
        match token {
            _ if opened.schema.is_some() => None,
            Token::Object(text) => self.see_members(text, true),
            Token::Null => None,
            token if is_single => {
                self.scalar = self.scalar.join(Shape::of(&token));
                Some(())
            }
            _ => None,
        }
    }
}
