//! Damage that knows a little of what it damages: members and lists of JSON, numbers and lengths, the words of the formats.
//!
//! Random bytes die at the first check of a format, so what is damaged are real records, and mostly in a way that leaves them well formed.

use super::case::Case;
use crate::dice::Dice;

/// The longest part that damage makes.
const BYTES_MAX: usize = 64 << 10;

/// Words that mean something to one of the formats.
const WORDS: &[&str] = &[
    "\"",
    "\\",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "null",
    "true",
    "false",
    "-",
    "+",
    ".",
    "e",
    "E+",
    "\\ud800",
    "\\u0000",
    "\\u0061",
    "{}",
    "[]",
    "\"\"",
    "NaN",
    "Infinity",
    "-Infinity",
    "POSITIVE_INFINITY",
    "infinity",
    "__debezium_unavailable_value",
    "\"schema\":",
    "\"payload\":",
    "\"before\":",
    "\"after\":",
    "\"op\":\"c\"",
    "\"op\":\"t\"",
    "\"source\":",
    "\"transaction\":",
    "\"data\":",
    "\"old\":",
    "\"pkNames\":",
    "\"mysqlType\":",
    "\"isDdl\":true",
    "\"type\":\"update\"",
    "\"scale\":",
    "\"value\":",
    "\"fields\":",
    "\"optional\":true",
    "\"parameters\":",
    "\"name\":",
    "\"namespace\":\"\"",
    "\"logicalType\":\"decimal\"",
    "\"precision\":",
    "\"items\":",
    "\"symbols\":",
    "\"size\":",
    "\"connect.name\":",
    "io.debezium.time.MicroTimestamp",
    "org.apache.kafka.connect.data.Decimal",
    "io.debezium.data.VariableScaleDecimal",
    "struct",
    "record",
    "enum",
    "fixed",
    "array",
    "map",
    "union",
    "string",
    "bytes",
    "int64",
    "snapshot",
    "incremental",
    "__deleted",
    "__op",
    "0000-00-00",
    "24:00:00",
    "T",
    "Z",
    "+14:00",
    "-4713-11-24",
    "+294276-12-31",
    "decimal(",
    "timestamptz(",
    "unsigned",
    "(9)",
    "\u{feff}",
    "\u{2028}",
    "é",
    "𝄞",
    "\t",
    "\n",
    "  - ",
    ": ",
    "&a ",
    "*a",
    "${env:",
    "| ",
    "<<: ",
    "!!str ",
];

/// Numbers at their ends.
const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "1",
    "-1",
    "127",
    "128",
    "255",
    "256",
    "32768",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e5",
    "1E-5",
    "1e999",
    "-1e-999",
    "1e2147483648",
    "1e147455",
    "0.1",
    "1.000",
    "99999999999999999999999999999999999999999",
    "147456",
    "131073",
];

/// Varints, as lengths and counts are written, at theirs.
const LONGS: &[i64] =
    &[0, 1, -1, 2, 63, 64, -64, -65, 127, 128, 1 << 20, 1 << 26, i32::MAX as i64, i32::MIN as i64, 1 << 32, i64::MAX, i64::MIN, i64::MIN + 1];

/// Bytes that mean something to one of the formats.
const BYTES: &[u8] = &[0, 1, 2, 3, 4, 0x7F, 0x80, 0xC3, 0xFE, 0xFF, b' ', b'"', b'0', b'9', b'\\', b'{', b'}'];

/// Damages one part of a case, sometimes with a piece of another.
pub(crate) fn damage(case: &mut Case, others: &[Case], dice: &mut Dice) {
    if dice.chance(1, 40) {
        case.variant = dice.pick(others).variant;
    }
    for _ in 0..=dice.below(3) {
        // The longest part is where most of a format is.
        let longest = (0..case.parts.len()).max_by_key(|i| case.parts[*i].as_ref().map_or(0, Vec::len)).unwrap_or_default();
        let part = if dice.chance(2, 3) { longest } else { dice.below(case.parts.len()) };
        let other = dice.pick(others).parts.get(part).cloned().flatten();
        match &mut case.parts[part] {
            bytes @ Some(_) if dice.chance(1, 100) => *bytes = None,
            bytes @ None => *bytes = other.filter(|_| dice.chance(1, 10)),
            Some(bytes) => {
                alter(bytes, other.as_deref().unwrap_or_default(), dice);
                bytes.truncate(BYTES_MAX);
            }
        }
    }
}

fn alter(bytes: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    let at = dice.below(bytes.len() + 1);
    match dice.below(18) {
        0 => bytes.truncate(at),
        1 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
        2 if at < bytes.len() => bytes[at] = *dice.pick(BYTES),
        3 => bytes.insert(at, *dice.pick(BYTES)),
        4 => drop(bytes.drain(at..end(at, 40, bytes.len(), dice))),
        5 => {
            let piece = bytes[at..end(at, 200, bytes.len(), dice)].to_vec();
            let to = dice.below(bytes.len() + 1);
            put(bytes, to, to, &piece);
        }
        6 => put(bytes, at, at, dice.pick(WORDS).as_bytes()),
        // What follows begins with a piece of another input.
        7 => {
            let from = dice.below(other.len() + 1);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        8 => {
            let from = dice.below(other.len() + 1);
            put(bytes, at, at, &other[from..end(from, 200, other.len(), dice)]);
        }
        9 | 10 => number(bytes, at, dice),
        11 => varint(bytes, at, dice),
        12 => {
            let (piece, times) = (bytes[at..end(at, 12, bytes.len(), dice)].to_vec(), 1 + dice.below(300));
            put(bytes, at, at, &piece.repeat(times));
        }
        13 | 14 => member(bytes, at, dice),
        _ => value(bytes, at, other, dice),
    }
}

/// An end up to so many bytes behind a start.
fn end(from: usize, most: usize, len: usize, dice: &mut Dice) -> usize {
    (from + 1 + dice.below(most)).min(len)
}

fn put(bytes: &mut Vec<u8>, from: usize, to: usize, piece: &[u8]) {
    drop(bytes.splice(from..to, piece.iter().copied()));
}

/// Replaces the next number that is written in digits.
fn number(bytes: &mut Vec<u8>, at: usize, dice: &mut Dice) {
    let Some(from) = bytes[at..].iter().position(u8::is_ascii_digit).map(|n| at + n) else { return };
    let len = bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let long = "9".repeat(1 + dice.below(200));
    let with = if dice.chance(1, 8) { &long } else { *dice.pick(NUMBERS) };
    put(bytes, from, from + len, with.as_bytes());
}

/// Writes a varint over what may be one.
fn varint(bytes: &mut Vec<u8>, at: usize, dice: &mut Dice) {
    let len = bytes[at..].iter().take_while(|b| **b >= 0x80).count() + 1;
    let mut long = Vec::new();
    landfall_schemas::wire::put_long(&mut long, *dice.pick(LONGS));
    let to = (at + len).min(bytes.len());
    put(bytes, at, to, &long);
}

/// Where a value of JSON ends that begins there.
fn value_end(bytes: &[u8], from: usize) -> usize {
    let (mut depth, mut quoted, mut at) = (0_u32, false, from);
    while let Some(b) = bytes.get(at) {
        match b {
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => depth += 1,
            b'}' | b']' if !quoted && depth == 0 => return at,
            b'}' | b']' if !quoted => depth -= 1,
            b',' if !quoted && depth == 0 => return at,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Leaves a member of an object out, says it twice, or moves it.
fn member(bytes: &mut Vec<u8>, at: usize, dice: &mut Dice) {
    let Some(from) = bytes[at..].windows(2).position(|w| matches!(w, b",\"" | b"{\"")).map(|n| at + n + 1) else { return };
    let to = value_end(bytes, from);
    let piece = [&bytes[from..to], b","].concat();
    match dice.below(3) {
        0 => {
            let with_comma = if bytes.get(to) == Some(&b',') { to + 1 } else { to };
            drop(bytes.drain(from..with_comma));
        }
        1 => put(bytes, from, from, &piece),
        _ => {
            let after = dice.below(bytes.len() + 1);
            let Some(place) = bytes[after..].windows(2).position(|w| matches!(w, b",\"" | b"{\"")).map(|n| after + n + 1) else { return };
            put(bytes, place, place, &piece);
        }
    }
}

/// Puts another value behind a colon: one of the same document, one of another, a word, or the value in a list.
fn value(bytes: &mut Vec<u8>, at: usize, other: &[u8], dice: &mut Dice) {
    let next = |bytes: &[u8], at: usize| Some(at + bytes.get(at..)?.iter().position(|b| *b == b':')? + 1);
    let Some(from) = next(bytes, at) else { return };
    let to = value_end(bytes, from);
    let with = match dice.below(5) {
        0 => dice.pick(&["null", "0", "\"\"", "{}", "[]", "true", "\"x\"", "[null]", "{\"a\":1}"]).as_bytes().to_vec(),
        1 => dice.pick(NUMBERS).as_bytes().to_vec(),
        2 => [b"[", &bytes[from..to], b"]"].concat(),
        n => {
            let source = if n == 3 { other } else { bytes.as_slice() };
            let Some(begin) = next(source, dice.below(source.len() + 1)) else { return };
            source[begin..value_end(source, begin)].to_vec()
        }
    };
    put(bytes, from, to, &with);
}
