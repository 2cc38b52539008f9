//! The rows that the sources of the fixtures held, as their databases wrote them, and both sides' texts in the one form that they are compared in.
//!
//! What a database's own formatting adds is undone by rules of that database, never by looking at what was decoded.

use std::collections::BTreeMap;

use serde_json::Value as Json;

/// The text of a row's values by column, NULL as `None`.
pub(super) type Texts = BTreeMap<String, Option<String>>;

/// What a database holds: its columns with their declared types, and its rows by the text of their key.
pub(super) struct Expected {
    pub(super) columns: Vec<(String, String)>,
    pub(super) key: Vec<String>,
    pub(super) rows: BTreeMap<Vec<String>, Texts>,
}

/// What a fixture's source held.
pub(super) fn expected(name: &str) -> Expected {
    let path = format!("{}/../tests/fixtures/debezium/expected/{name}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut lines = text.lines().map(|line| serde_json::from_str::<Json>(line).expect(name));
    let head = lines.next().expect("a head");
    let strings = |json: &Json| -> Vec<String> { json.as_array().into_iter().flatten().map(|s| s.as_str().expect("text").to_owned()).collect() };
    let column = |c: &Json| (c[0].as_str().expect("a name").to_owned(), c[1].as_str().expect("a type").to_owned());
    let columns: Vec<_> = head["columns"].as_array().into_iter().flatten().map(column).collect();
    let mut key = strings(&head["primary_key"]);
    if key.is_empty() {
        // A table whose identity is an index over its NOT NULL columns.
        key = head["columns"].as_array().into_iter().flatten().filter(|c| c[2] == true).map(|c| c[0].as_str().expect("a name").to_owned()).collect();
    }
    let rows = lines
        .map(|row| {
            let row: Texts = columns.iter().map(|(name, ty)| (name.clone(), row[name].as_str().map(|text| canonical(ty, text)))).collect();
            (key.iter().map(|k| row[k].clone().expect("keys are not NULL")).collect(), row)
        })
        .collect();
    Expected { columns, key, rows }
}

/// A database's own text of a value, in the form that both sides are compared in.
fn canonical(ty: &str, text: &str) -> String {
    let trimmed = |text: &str| if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() };
    // Postgres writes `0044-03-15 12:00:00+00 BC` for what ISO 8601 calls the year -0043.
    let iso = |text: &str| {
        if text.ends_with("infinity") {
            return text.to_owned();
        }
        let (text, bc) = text.strip_suffix(" BC").map_or((text, false), |t| (t, true));
        let year_end = text.find('-').expect("a date");
        let year: i64 = text[..year_end].parse().expect("a year");
        let year = if bc { 1 - year } else { year };
        let year = if (0..=9999).contains(&year) { format!("{year:04}") } else { format!("{year:+05}") };
        format!("{year}{}", &text[year_end..])
    };
    if let Some(element) = ty.strip_suffix("[]") {
        let elements = elements(text);
        let element = |e: &Option<String>| e.as_ref().map_or_else(|| "NULL".to_owned(), |e| format!("{:?}", canonical(element, e)));
        return format!("[{}]", elements.iter().map(element).collect::<Vec<_>>().join(","));
    }
    match ty.split(['(', ' ']).next().expect("a type") {
        "real" | "float" => float::<f32>(text),
        "double" => float::<f64>(text),
        "money" => text.replace(['$', ','], ""),
        // Without a declared scale the connector drops trailing zeros of streamed values.
        "numeric" if ty == "numeric" => trimmed(text),
        "bytea" => text.trim_start_matches("\\x").to_owned(),
        "varbinary" | "binary" | "tinyblob" | "blob" | "longblob" => text.to_ascii_lowercase(),
        "character" if ty.starts_with("character(") => text.trim_end_matches(' ').to_owned(),
        "date" => iso(text),
        // MySQL's times may have three digits of hours; a sign is a sign.
        "time" => trimmed(text),
        // One bit is a boolean to its connectors.
        "bit" if ty == "bit(1)" => text.replace('0', "false").replace('1', "true"),
        // A cast writes the mask of a single address, too.
        "boolean" => text.replace('t', "true").replace("truerue", "true").replace('f', "false").replace("falsealse", "false"),
        "inet" => text.trim_end_matches(if text.contains(':') { "/128" } else { "/32" }).to_owned(),
        // MariaDB writes a bit string without the zeros before it.
        "bit" => text.trim_start_matches('0').to_owned(),
        "interval" => interval(text),
        // As written for this comparison: reference system, then well-known binary.
        "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "geometrycollection" => extended(text),
        "timestamp" | "datetime" => trimmed(&iso(text).replace("+00", "")),
        _ => text.to_owned(),
    }
}

/// The elements of Postgres' own text of an array of one dimension: `{1,NULL,"a,\"b"}`.
fn elements(text: &str) -> Vec<Option<String>> {
    let inner = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).expect("an array");
    let (mut found, mut rest) = (Vec::new(), inner.chars().peekable());
    while rest.peek().is_some() {
        let (mut element, mut is_quoted) = (String::new(), false);
        while let Some(c) = rest.next() {
            match c {
                '"' => {
                    is_quoted = !is_quoted || {
                        element.push('\u{0}');
                        false
                    }
                }
                '\\' => element.extend(rest.next()),
                ',' if !is_quoted => break,
                c => element.push(c),
            }
        }
        // A closing quote has left a mark, so that a quoted NULL is text.
        let was_quoted = element.contains('\u{0}');
        found.push((was_quoted || element != "NULL").then(|| element.replace('\u{0}', "")));
    }
    found
}

/// Postgres' own text of an interval (`-1 years -2 mons +3 days -04:05:06.000001`) in ISO 8601.
fn interval(text: &str) -> String {
    let (mut months, mut days, mut micros) = (0, 0, 0);
    let mut parts = text.split(' ');
    while let Some(part) = parts.next() {
        if part.contains(':') {
            let (sign, clock) = part.strip_prefix('-').map_or((1, part), |rest| (-1, rest));
            let units: Vec<&str> = clock.split([':', '.']).collect();
            let [hours, minutes, seconds] = [0, 1, 2].map(|at| units[at].parse::<i64>().expect("digits"));
            let fraction: i64 = units.get(3).map_or(0, |f| format!("{f:0<6}").parse().expect("digits"));
            micros = sign * (((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction);
            continue;
        }
        let amount: i32 = part.parse().expect("an amount");
        match parts.next().expect("a unit") {
            "year" | "years" => months += amount * 12,
            "mon" | "mons" => months += amount,
            _ => days = amount,
        }
    }
    let mut out = String::new();
    crate::value::Interval { months, days, micros }.write_iso(&mut out);
    out
}

/// `4326;0101000000…` as extended well-known binary, in the byte order that it is in; 0 is no reference system.
fn extended(text: &str) -> String {
    let Some((srid, wkb)) = text.split_once(';') else { return text.to_owned() };
    let (srid, wkb): (u32, String) = (srid.parse().expect("a number"), wkb.to_ascii_lowercase());
    if srid == 0 {
        return wkb;
    }
    let number: String = srid.to_le_bytes().iter().map(|b| format!("{b:02x}")).collect();
    format!("{}20{number}{}", &wkb[..8], &wkb[10..])
}

fn float<F: std::str::FromStr + std::fmt::Debug>(text: &str) -> String
where
    F::Err: std::fmt::Debug,
{
    format!("{:?}", text.parse::<F>().expect("a float"))
}

/// What was decoded, in that same form.
pub(super) fn decoded(ty: &str, text: &str) -> String {
    if let Some(element) = ty.strip_suffix("[]") {
        let json: Json = serde_json::from_str(text).expect("an array");
        let element = |e: &Json| match e {
            Json::Null => "NULL".to_owned(),
            Json::String(text) => format!("{:?}", decoded(element, text.strip_prefix("\\x").unwrap_or(text))),
            other => format!("{:?}", decoded(element, &other.to_string())),
        };
        return format!("[{}]", json.as_array().expect("an array").iter().map(element).collect::<Vec<_>>().join(","));
    }
    match ty.split(['(', ' ']).next().expect("a type") {
        "timestamp" | "datetime" => canonical("time", &text.replacen('T', " ", 1).replace('Z', "")),
        "date" | "money" | "interval" => text.to_owned(),
        _ => canonical(ty, text),
    }
}
