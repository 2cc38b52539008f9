//! One source line with a caret, fit to be shown.
//!
//! A file under repair is exactly where a literal password stands, often beside the mistake. So a line is never shown raw: the
//! stretches that the reader marked are masked, and so is whatever follows a key that sounds like a secret, since a misspelt key
//! or broken YAML has no marks. Control and bidirectional characters are escaped.

use std::fmt;

use crate::issue::{At, push_visible};

/// Characters of a line that are shown; longer lines are cut around the caret.
const WIDTH_MAX: usize = 120;

/// Parts of a key that make its value a secret, whatever the key is.
const SECRET_WORDS: &[&str] = &["pass", "secret", "token", "credential", "pwd"];

/// A stretch of a file that no excerpt may show.
#[derive(Clone, Debug)]
pub(crate) struct Mask {
    pub(crate) file: u32,
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// Characters of this line.
    pub(crate) width: u32,
}

/// A masked line and where its caret stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Excerpt {
    text: String,
    caret: usize,
    width: usize,
}

impl Excerpt {
    /// The line of a place; nothing where the line is empty.
    pub(crate) fn of(text: &str, at: &At, masks: &[Mask]) -> Option<Self> {
        let line = lines(text).nth((at.line as usize).checked_sub(1)?)?.trim_end();
        if line.is_empty() {
            return None;
        }
        let chars: Vec<char> = line.chars().collect();
        let mut hidden = secret_stretches(&chars);
        for mask in masks.iter().filter(|m| m.file == at.file && m.line == at.line) {
            let from = (mask.column as usize).saturating_sub(1);
            for flag in hidden.iter_mut().skip(from).take(mask.width as usize) {
                *flag = true;
            }
        }
        let column = (at.column as usize).saturating_sub(1).min(chars.len());
        let end = (column + (at.width as usize).max(1)).min(chars.len().max(column + 1));
        let from = column.saturating_sub(WIDTH_MAX / 2);
        let mut excerpt = Self { text: String::new(), caret: 0, width: 1 };
        if from > 0 {
            excerpt.text.push('…');
        }
        let mut was_hidden = false;
        for (place, c) in chars.iter().enumerate().skip(from) {
            if place == column {
                let shown = excerpt.text.chars().count();
                // Inside a masked stretch the caret stands under its asterisks.
                let inside = was_hidden && hidden.get(place) == Some(&true);
                excerpt.caret = if inside { shown.saturating_sub(3) } else { shown };
            }
            if place - from >= WIDTH_MAX {
                excerpt.text.push('…');
                break;
            }
            match hidden.get(place) {
                Some(true) if was_hidden => {}
                Some(true) => excerpt.text.push_str("***"),
                _ => push_visible(&mut excerpt.text, *c),
            }
            was_hidden = hidden.get(place) == Some(&true);
            if place + 1 == end {
                excerpt.width = excerpt.text.chars().count().saturating_sub(excerpt.caret).max(1);
            }
        }
        if column >= chars.len() {
            excerpt.caret = excerpt.text.chars().count();
        }
        Some(excerpt)
    }

    /// Writes the line and the caret below it.
    pub(crate) fn write(&self, f: &mut fmt::Formatter<'_>, line: u32) -> fmt::Result {
        let number = line.to_string();
        writeln!(f, "  {number} | {}", self.text)?;
        let pad = " ".repeat(number.len());
        writeln!(f, "  {pad} | {}{}", " ".repeat(self.caret), "^".repeat(self.width))
    }
}

/// Lines as YAML counts them: a lone carriage return ends one too.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.find(['\n', '\r']) else {
            rest = None;
            return Some(text);
        };
        let (line, tail) = text.split_at(end);
        rest = tail.strip_prefix("\r\n").or_else(|| tail.get(1..));
        Some(line)
    })
}

/// Marks what follows a colon behind a secret-sounding key, up to the end of the line or the flow entry.
fn secret_stretches(chars: &[char]) -> Vec<bool> {
    let mut hidden = vec![false; chars.len()];
    let lower: String = chars.iter().map(char::to_ascii_lowercase).collect();
    let lower: Vec<char> = lower.chars().collect();
    let mut at = 0;
    while at < lower.len() {
        let word = SECRET_WORDS.iter().any(|w| {
            let mut rest = lower.get(at..).unwrap_or_default().iter();
            w.chars().all(|c| rest.next() == Some(&c))
        });
        if !word {
            at += 1;
            continue;
        }
        let separator = lower.iter().skip(at).position(|c| matches!(c, ':' | '='));
        let Some(colon) = separator.map(|offset| at + offset) else {
            return hidden;
        };
        let value = chars.iter().enumerate().skip(colon + 1).find(|(_, c)| !c.is_whitespace()).map_or(chars.len(), |(place, _)| place);
        let rest: String = chars.get(value..).unwrap_or_default().iter().collect();
        // A reference is no secret, and seeing it helps.
        let stop = if ["${", "\"${", "'${"].iter().any(|start| rest.starts_with(start)) {
            rest.chars().position(|c| c == '}').map_or(chars.len(), |p| value + p + 1)
        } else {
            for flag in hidden.iter_mut().skip(value) {
                *flag = true;
            }
            chars.len()
        };
        at = stop.max(at + 1);
    }
    mask_userinfo(chars, &mut hidden);
    hidden
}

/// Marks the password of a `scheme://user:password@host`.
fn mask_userinfo(chars: &[char], hidden: &mut [bool]) {
    let text: String = chars.iter().collect();
    let mut search = 0;
    while let Some(found) = text.get(search..).and_then(|t| t.find("://")) {
        let start = search + found + 3;
        let rest = text.get(start..).unwrap_or_default();
        let authority: &str = rest.split(['"', '\'', ' ', ',']).next().unwrap_or_default();
        if let Some(at_sign) = authority.rfind('@')
            && let Some(colon) = authority.find(':').filter(|colon| *colon < at_sign)
        {
            let from = text.get(..start + colon + 1).unwrap_or_default().chars().count();
            let to = text.get(..start + at_sign).unwrap_or_default().chars().count();
            for flag in hidden.iter_mut().take(to).skip(from) {
                *flag = true;
            }
        }
        search = start;
    }
}
