//! Canal's flat messages: `data` is a list of rows, all of whose values are text, and `mysqlType` says what they are (case ENV-03).
//!
//! `old` stands beside `data`, row by row, with the former values of what an update altered. A message has no place in the binlog, so its offset
//! orders it. Bytes come as text in a coding of their own and shapes as they lie in memory; such columns are left out or stop the table by name.

use super::Ignored;
use super::datum::Datum;
use super::members;
use super::reject::{Code, Reject};
use super::source::{Number, Source};
use crate::change::Op;
use crate::json::{JsonError, Scanner, Token};
use crate::table::COLUMNS_MAX;
use crate::types::LogicalType;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Row(Op),
    Truncate,
    Ignored(Ignored),
}

/// The members of a message that matter, borrowed.
#[derive(Debug)]
pub(super) struct Canal<'a> {
    pub(super) kind: Kind,
    pub(super) source: Source<'a>,
    /// The object of types, by column.
    pub(super) types: &'a str,
    /// The list of key columns.
    pub(super) keys: &'a str,
    data: &'a str,
    old: &'a str,
}

/// An empty list, where a message has none.
const NOTHING: &str = "[]";

impl<'a> Canal<'a> {
    /// Reads a message.
    pub(super) fn parse(scanner: &mut Scanner<'a>) -> Result<Self, Reject> {
        let json = |e| Reject::json("value", e);
        let not_canal = || Reject::new(Code::EnvelopeInvalid, "the value is no message of Canal: it has no `type`");
        let (mut word, mut is_ddl) = (None, false);
        let mut canal = Self { kind: Kind::Truncate, source: Source::of_connector("mysql"), types: "{}", keys: NOTHING, data: NOTHING, old: NOTHING };
        if !members::enter(scanner).map_err(json)? {
            return Err(not_canal());
        }
        let mut first = true;
        while let Some(name) = scanner.member(first).map_err(json)? {
            first = false;
            match (name.raw, scanner.value().map_err(json)?) {
                ("type", Token::String(text)) => word = Some(text.raw),
                ("isDdl", Token::Bool(flag)) => is_ddl = flag,
                ("mysqlType", Token::Object(text)) => canal.types = text,
                ("pkNames", Token::Array(text)) => canal.keys = text,
                ("data", Token::Array(text)) => canal.data = text,
                ("old", Token::Array(text)) => canal.old = text,
                ("es", Token::Number(digits)) => {
                    canal.source.put(Source::member("ts_ms"), Number::Digits(digits).read().map_or(Datum::Null, Datum::Integer));
                }
                ("database", token) => canal.source.put(Source::member("db"), Datum::Json(token)),
                ("table", token) => canal.source.put(Source::member("table"), Datum::Json(token)),
                _ => {}
            }
        }
        canal.kind = match (word.ok_or_else(not_canal)?, is_ddl) {
            ("TRUNCATE", _) => Kind::Truncate,
            ("INSERT", false) => Kind::Row(Op::Create),
            ("UPDATE", false) => Kind::Row(Op::Update),
            ("DELETE", false) => Kind::Row(Op::Delete),
            (_, true) | ("QUERY", _) => Kind::Ignored(Ignored::SchemaChange),
            _ => return Err(Reject::new(Code::EnvelopeUnknownOp, "the type of a message of Canal is none that is known")),
        };
        Ok(canal)
    }

    /// The rows with what they were before, where that is said.
    pub(super) fn rows(&self) -> Result<Vec<(&'a str, Option<&'a str>)>, Reject> {
        let json = |e| Reject::json("value", e);
        let (data, old) = (elements(self.data).map_err(json)?, elements(self.old).map_err(json)?);
        let row = |(n, token): (usize, &Token<'a>)| match (token, old.get(n)) {
            (Token::Object(row), Some(Token::Object(old))) => Ok((*row, Some(*old))),
            (Token::Object(row), _) => Ok((*row, None)),
            _ => Err(Reject::new(Code::EnvelopeInvalid, "a row of a message of Canal is not an object")),
        };
        data.iter().enumerate().map(row).collect()
    }

    /// The names of the key columns.
    pub(super) fn key_names(&self) -> Result<Vec<String>, Reject> {
        let name = |token: &Token<'a>| {
            let mut text = String::new();
            matches!(token, Token::String(s) if s.unescape(&mut text)).then_some(text)
        };
        let names = elements(self.keys).map_err(|e| Reject::json("value", e))?;
        names.iter().map(name).collect::<Option<_>>().ok_or_else(|| Reject::new(Code::EnvelopeInvalid, "`pkNames` is no list of names"))
    }

    /// The columns with their types in MySQL's words.
    pub(super) fn columns(&self) -> Result<Vec<(String, String)>, Reject> {
        let json = |e| Reject::json("value", e);
        let mut scanner = Scanner::new(self.types);
        scanner.enter_object().map_err(json)?;
        let mut columns = Vec::new();
        while let Some(name) = scanner.member(columns.is_empty()).map_err(json)? {
            if columns.len() == COLUMNS_MAX {
                return Err(Reject::too_many("message of Canal", COLUMNS_MAX + 1));
            }
            let (mut column, mut ty) = (String::new(), String::new());
            let is_text = matches!(scanner.value().map_err(json)?, Token::String(s) if s.unescape(&mut ty));
            if !name.unescape(&mut column) || !is_text {
                return Err(Reject::new(Code::EnvelopeInvalid, "`mysqlType` is no object of types"));
            }
            columns.push((column, ty));
        }
        Ok(columns)
    }
}

/// The elements of a list that has been checked.
fn elements(list: &str) -> Result<Vec<Token<'_>>, JsonError> {
    let mut rest = list.get(1..list.len().saturating_sub(1)).unwrap_or_default().trim_ascii_start();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let mut scanner = Scanner::new(rest);
        found.push(scanner.value()?);
        rest = rest[scanner.position()..].trim_ascii_start();
        rest = rest.strip_prefix(',').map_or(rest, str::trim_ascii_start);
    }
    Ok(found)
}

/// The logical type of a column, by MySQL's words for it; `None` for one whose text says too little.
pub(super) fn logical_type(text: &str) -> Option<LogicalType> {
    let text = text.to_ascii_lowercase();
    let name = text.split(['(', ' ']).next().unwrap_or_default();
    let arguments = text.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(inside, _)| inside);
    let digits = || arguments.map_or(Some(0), |digits| digits.trim().parse().ok().filter(|digits| *digits <= 9));
    let integer = |signed, unsigned| Some(if text.contains("unsigned") { unsigned } else { signed });
    match name {
        "bool" | "boolean" | "tinyint" => integer(LogicalType::Int8, LogicalType::UInt8),
        "smallint" => integer(LogicalType::Int16, LogicalType::UInt16),
        "mediumint" | "int" | "integer" => integer(LogicalType::Int32, LogicalType::UInt32),
        "bigint" => integer(LogicalType::Int64, LogicalType::UInt64),
        "bit" => Some(LogicalType::UInt64),
        "year" => Some(LogicalType::Int32),
        "float" => Some(LogicalType::Float32),
        "double" | "real" => Some(LogicalType::Float64),
        "decimal" | "numeric" | "dec" => {
            let (precision, scale) = arguments.map_or(Some(("10", "0")), |both| Some(both.split_once(',').unwrap_or((both, "0"))))?;
            LogicalType::decimal(precision.trim().parse().ok()?, scale.trim().parse().ok()?)
        }
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "enum" | "set" | "time" => Some(LogicalType::Text),
        "date" => Some(LogicalType::Date),
        // As the server's session shows them, without a zone.
        "datetime" | "timestamp" => Some(LogicalType::Timestamp { digits: digits()? }),
        "json" => Some(LogicalType::Json),
        "uuid" => Some(LogicalType::Uuid),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_in_the_words_of_mysql() {
        let ty = |text: &str| logical_type(text).map(|ty| ty.to_string());
        for (text, expected) in [
            ("bigint(20) unsigned", "uint64"),
            ("int(8) unsigned zerofill", "uint32"),
            ("tinyint(1)", "int8"),
            ("decimal(10,2) unsigned", "decimal(10,2)"),
            ("decimal", "decimal(10,0)"),
            ("datetime(3)", "timestamp(3)"),
            ("timestamp", "timestamp(0)"),
            ("enum('a','unsigned')", "text"),
            ("double unsigned", "float64"),
        ] {
            assert_eq!(ty(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!((ty("varbinary(20)"), ty("geometry"), ty("")), (None, None, None));
        // A contract with such a type could not be read.
        assert_eq!((ty("timestamp(55)"), ty("decimal(200000,0)"), ty("decimal(1,-200000)")), (None, None, None));
    }

    #[test]
    fn lists_are_taken_apart() {
        let of = |list: &'static str| elements(list).map(|e| e.len()).map_err(drop);
        assert_eq!((of("[]"), of("[ ]"), of("[1]"), of(r#"[ {"a":[1,2]} , "x,y" , null ]"#)), (Ok(0), Ok(0), Ok(1), Ok(3)));
    }
}
