//! One source line with a caret, fit to be shown.
//!
//! A line is never shown raw: what may be a secret is masked (`mask.rs`), control and bidirectional characters are escaped, and a
//! long line is cut around the caret. The caret counts characters, as editors do.

use std::fmt;

use crate::issue::{At, push_visible};
use crate::mask::{self, Mask};

/// Characters of a line that are shown; longer lines are cut around the caret.
const WIDTH_MAX: usize = 120;

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
        let above = lines(text).take((at.line as usize).saturating_sub(1));
        let hidden = mask::hidden(&chars, above, masks.iter().filter(|m| m.file == at.file && m.line == at.line));
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
