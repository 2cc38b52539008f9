//! What commands print on: tables, headings and lines, for a terminal or for a file.
//!
//! On a terminal tables fit its width and carry colour, unless `NO_COLOR` is set; elsewhere every row is one line and there is no colour. All text
//! of others (rows, keys, names of topics) passes [`printable`], so that nothing printed steers a terminal. Commands get a `Paper` and
//! never know where it ends, so tests compare texts exactly.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};

use clap::ValueEnum;
use clap::builder::Resettable;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use serde::Serialize;

/// Who reads what is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// People.
    #[default]
    #[value(help = Resettable::Reset)]
    Text,
    /// Machines.
    #[value(help = Resettable::Reset)]
    Json,
}

/// How a cell is meant; colour repeats only what the words say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// Nothing special.
    #[default]
    Plain,
    /// All is well.
    Good,
    /// Worth a look.
    Odd,
    /// Somebody must act.
    Bad,
}

/// One cell: its text, its mood, and whether it is a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    text: String,
    mood: Mood,
    number: bool,
}

impl Field {
    /// Text with a mood.
    pub fn of(text: impl Into<String>, mood: Mood) -> Self {
        Self { text: text.into(), mood, number: false }
    }

    /// A number: it stands on the right.
    pub fn number(n: impl ToString) -> Self {
        Self { text: n.to_string(), mood: Mood::Plain, number: true }
    }
}

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        Self::of(text, Mood::Plain)
    }
}

impl From<String> for Field {
    fn from(text: String) -> Self {
        Self::of(text, Mood::Plain)
    }
}

/// Something to print on.
pub struct Paper<'a> {
    out: &'a mut dyn Write,
    width: Option<u16>,
    colour: bool,
}

impl std::fmt::Debug for Paper<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Paper").field("width", &self.width).field("colour", &self.colour).finish_non_exhaustive()
    }
}

impl<'a> Paper<'a> {
    /// Paper of a width; none means that lines may be as long as they are.
    pub fn new(out: &'a mut dyn Write, width: Option<u16>, colour: bool) -> Self {
        Self { out, width, colour }
    }

    /// Paper over standard output, as it is.
    pub fn stdout(out: &'a mut dyn Write) -> Self {
        let terminal = io::stdout().is_terminal();
        let width = if terminal { Table::new().width().filter(|w| *w > 0) } else { None };
        Self::new(out, width, terminal && wants_colour())
    }

    /// True where somebody looks at it.
    pub fn is_terminal(&self) -> bool {
        self.width.is_some()
    }

    /// One line.
    pub fn line(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        writeln!(self.out, "{}", text.as_ref())
    }

    /// One line, wrapped behind an indent where there is a width.
    pub fn indented(&mut self, indent: &str, text: &str) -> io::Result<()> {
        let width = self.width.map_or(usize::MAX, |w| usize::from(w).saturating_sub(indent.len()).max(20));
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
                writeln!(self.out, "{indent}{line}")?;
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        writeln!(self.out, "{indent}{line}")
    }

    /// The title of what follows.
    pub fn title(&mut self, text: &str) -> io::Result<()> {
        if self.colour { writeln!(self.out, "\x1b[1m{text}\x1b[0m") } else { writeln!(self.out, "{text}") }
    }

    /// A word in the colour of a mood.
    pub fn word(&self, text: &str, mood: Mood) -> String {
        let code = match mood {
            Mood::Plain => "",
            Mood::Good => "32",
            Mood::Odd => "33",
            Mood::Bad => "31",
        };
        if self.colour && !code.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Something for machines, on one line.
    pub fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut *self.out, value).map_err(io::Error::from)?;
        self.out.write_all(b"\n")
    }

    /// Clears the screen, to draw it anew.
    pub fn clear(&mut self) -> io::Result<()> {
        self.out.write_all(b"\x1b[H\x1b[2J\x1b[3J")
    }

    /// Hands over what was printed so far.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// A table.
    pub fn table<R: IntoIterator<Item = Field>>(&mut self, headers: &[&str], rows: impl IntoIterator<Item = R>) -> io::Result<()> {
        let mut table = Table::new();
        let _ = table.load_preset(presets::NOTHING);
        match self.width {
            Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
            None => table.set_content_arrangement(ContentArrangement::Disabled),
        };
        if self.colour {
            table.enforce_styling()
        } else {
            table.force_no_tty()
        };
        let _ = table.set_header(headers.iter().map(|h| {
            let cell = Cell::new(printable(h));
            if self.colour { cell.add_attribute(Attribute::Bold) } else { cell }
        }));
        for row in rows {
            let _ = table.add_row(row.into_iter().map(|field| {
                let cell = Cell::new(printable(&field.text));
                let cell = if field.number { cell.set_alignment(CellAlignment::Right) } else { cell };
                match field.mood {
                    Mood::Plain => cell,
                    Mood::Good => cell.fg(Color::Green),
                    Mood::Odd => cell.fg(Color::Yellow),
                    Mood::Bad => cell.fg(Color::Red),
                }
            }));
        }
        // Columns stand two blanks apart, and no line ends in blanks.
        let last = headers.len().saturating_sub(1);
        for (at, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, if at == last { 0 } else { 2 }));
        }
        for line in table.lines() {
            let line = if self.colour { line.as_str() } else { line.trim_end() };
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }
}

impl Write for Paper<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.out.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Whether the person wants colour: <https://no-color.org>, and a terminal that is no typewriter.
pub fn wants_colour() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Text that steers no terminal: control and direction characters are escaped (RELIABILITY.md D 17).
pub fn printable(text: &str) -> Cow<'_, str> {
    let hostile = |c: char| c.is_control() || matches!(c, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    if !text.contains(hostile) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if hostile(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// A count with its noun: `1 row`, `12 345 rows`.
pub fn counted(n: u64, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(n))
}

/// A number in groups of three digits.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// What a command prints on plain paper of a width.
#[cfg(test)]
pub(crate) fn printed(width: Option<u16>, act: impl FnOnce(&mut Paper<'_>)) -> String {
    let mut out = Vec::new();
    act(&mut Paper::new(&mut out, width, false));
    String::from_utf8(out).expect("commands print text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_fit_and_lines_end_without_blanks() {
        let rows =
            || [[Field::from("orders"), Field::number(12), Field::from("a text that is rather long")], ["o".into(), Field::number(7), "b".into()]];
        let wide = printed(None, |p| p.table(&["table", "rows", "note"], rows()).unwrap());
        assert_eq!(wide, "table   rows  note\norders    12  a text that is rather long\no          7  b\n");
        let narrow = printed(Some(30), |p| p.table(&["table", "rows", "note"], rows()).unwrap());
        assert!(narrow.lines().all(|l| l.chars().count() <= 30), "{narrow}");
        assert!(narrow.lines().count() > 3, "{narrow}");
    }

    #[test]
    fn nothing_steers_a_terminal() {
        assert_eq!(printable("plain ű"), "plain ű");
        assert_eq!(printable("a\u{1b}[31m\nb\u{202E}"), "a\\u{1b}[31m\\nb\\u{202e}");
    }

    #[test]
    fn numbers_are_grouped() {
        for (n, text) in [(0, "0 rows"), (1, "1 row"), (999, "999 rows"), (1_000, "1 000 rows"), (1_234_567, "1 234 567 rows")] {
            assert_eq!(counted(n, "row"), text);
        }
    }

    #[test]
    fn long_lines_are_wrapped_behind_their_indent() {
        let text = printed(Some(26), |p| p.indented("    ", "rename or drop the table or name another").unwrap());
        assert_eq!(text, "    rename or drop the\n    table or name another\n");
    }
}
