//! Which documents Postgres' `jsonb` takes: one pass over the bytes, without memory and without recursion.
//!
//! `jsonb` is stricter than JSON: no `\u0000`, no half of a surrogate pair, numbers within `numeric`, nesting within the server's stack. One
//! document that it refuses would fail the whole batch, so each is checked before it is folded. A bit stack remembers the open brackets.

use super::super::Refusal;
use super::{NUMERIC_SCALE_MAX, NUMERIC_WHOLE_DIGITS_MAX};

/// Deepest nesting that passes. The server's stack (`max_stack_depth`, 2 MB by default) holds some thousands; sources stay far below.
pub const DEPTH_MAX: usize = 1024;
/// Longest document: each of its strings and containers must stay below 2^28 bytes (`JENTRY_OFFLENMASK`).
pub const DOCUMENT_BYTES_MAX: usize = 1 << 27;

/// Whether `jsonb` refuses a document, and why.
pub fn refuse(text: &str) -> Option<Refusal> {
    if text.len() > DOCUMENT_BYTES_MAX {
        return Some(Refusal::Range);
    }
    Scanner { rest: text.as_bytes(), open: [0; DEPTH_MAX / 64], depth: 0 }.document().err()
}

struct Scanner<'a> {
    rest: &'a [u8],
    /// A bit for each open bracket: 1 for an object.
    open: [u64; DEPTH_MAX / 64],
    depth: usize,
}

impl Scanner<'_> {
    fn document(&mut self) -> Result<(), Refusal> {
        loop {
            // A value begins here, or an empty container ends.
            let done = match self.token()? {
                b'{' => {
                    self.push(true)?;
                    if self.peek()? == b'}' {
                        let _ = self.token()?;
                        self.depth -= 1;
                        true
                    } else {
                        self.name()?;
                        false
                    }
                }
                b'[' => {
                    self.push(false)?;
                    if self.peek()? == b']' {
                        let _ = self.token()?;
                        self.depth -= 1;
                        true
                    } else {
                        false
                    }
                }
                first => {
                    self.scalar(first)?;
                    true
                }
            };
            if done && self.close()? {
                self.blanks();
                return if self.rest.is_empty() { Ok(()) } else { Err(self.stray()) };
            }
        }
    }

    /// Behind a value: takes commas and closing brackets up to the next value; true where the document's own value ended.
    fn close(&mut self) -> Result<bool, Refusal> {
        loop {
            if self.depth == 0 {
                return Ok(true);
            }
            let object = self.in_object();
            match self.token()? {
                b',' => {
                    if object {
                        self.name()?;
                    }
                    return Ok(false);
                }
                b'}' if object => self.depth -= 1,
                b']' if !object => self.depth -= 1,
                _ => return Err(Refusal::Malformed),
            }
        }
    }

    fn push(&mut self, object: bool) -> Result<(), Refusal> {
        let word = self.open.get_mut(self.depth / 64).ok_or(Refusal::Range)?;
        let bit = 1 << (self.depth % 64);
        *word = if object { *word | bit } else { *word & !bit };
        self.depth += 1;
        Ok(())
    }

    fn in_object(&self) -> bool {
        let at = self.depth - 1;
        self.open[at / 64] >> (at % 64) & 1 == 1
    }

    fn name(&mut self) -> Result<(), Refusal> {
        if self.token()? != b'"' {
            return Err(Refusal::Malformed);
        }
        self.string()?;
        if self.token()? == b':' { Ok(()) } else { Err(Refusal::Malformed) }
    }

    fn scalar(&mut self, first: u8) -> Result<(), Refusal> {
        match first {
            b'"' => self.string(),
            b't' => self.word(b"rue"),
            b'f' => self.word(b"alse"),
            b'n' => self.word(b"ull"),
            b'-' => {
                let digit = self.take()?;
                self.number(digit)
            }
            digit => self.number(digit),
        }
    }

    fn word(&mut self, tail: &[u8]) -> Result<(), Refusal> {
        self.rest = self.rest.strip_prefix(tail).ok_or(Refusal::Malformed)?;
        Ok(())
    }

    /// Behind the opening quote, up to and with the closing one.
    fn string(&mut self) -> Result<(), Refusal> {
        loop {
            let plain = self.rest.iter().position(|b| *b == b'"' || *b == b'\\' || *b < 0x20).ok_or(Refusal::Malformed)?;
            let (stop, rest) = (self.rest[plain], &self.rest[plain + 1..]);
            self.rest = rest;
            match stop {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                0 => return Err(Refusal::Nul),
                _ => return Err(Refusal::Malformed),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Refusal> {
        match self.take()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => match self.hex()? {
                0 => Err(Refusal::Nul),
                0xDC00..=0xDFFF => Err(Refusal::Malformed),
                0xD800..=0xDBFF => {
                    self.word(b"\\u")?;
                    if (0xDC00..=0xDFFF).contains(&self.hex()?) { Ok(()) } else { Err(Refusal::Malformed) }
                }
                _ => Ok(()),
            },
            _ => Err(Refusal::Malformed),
        }
    }

    fn hex(&mut self) -> Result<u32, Refusal> {
        let mut code = 0;
        for _ in 0..4 {
            code = code << 4 | char::from(self.take()?).to_digit(16).ok_or(Refusal::Malformed)?;
        }
        Ok(code)
    }

    /// Behind the first digit.
    fn number(&mut self, first: u8) -> Result<(), Refusal> {
        let mut whole = match first {
            b'0' => 1,
            b'1'..=b'9' => 1 + self.digits(),
            0 => return Err(Refusal::Nul),
            _ => return Err(Refusal::Malformed),
        };
        let mut fraction = 0;
        if self.skip(|b| b == b'.') {
            fraction = self.digits();
            if fraction == 0 {
                return Err(Refusal::Malformed);
            }
        }
        if self.skip(|b| b == b'e' || b == b'E') {
            let exponent = self.exponent()?;
            whole += exponent;
            fraction -= exponent;
        }
        // As `numeric` counts: digits before the point, and digits behind it, of the number written out.
        if whole > NUMERIC_WHOLE_DIGITS_MAX || fraction > i64::from(NUMERIC_SCALE_MAX) { Err(Refusal::Range) } else { Ok(()) }
    }

    fn exponent(&mut self) -> Result<i64, Refusal> {
        let negative = self.rest.first() == Some(&b'-');
        let _ = self.skip(|b| b == b'-' || b == b'+');
        let digits = self.rest;
        let count = self.digits() as usize;
        if count == 0 {
            return Err(Refusal::Malformed);
        }
        let value = digits[..count].iter().fold(0_i64, |v, b| (v * 10 + i64::from(b - b'0')).min(1 << 30));
        Ok(if negative { -value } else { value })
    }

    fn digits(&mut self) -> i64 {
        let count = self.rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(self.rest.len());
        self.rest = &self.rest[count..];
        count as i64
    }

    fn skip(&mut self, wanted: impl Fn(u8) -> bool) -> bool {
        match self.rest {
            [first, rest @ ..] if wanted(*first) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn take(&mut self) -> Result<u8, Refusal> {
        let (first, rest) = self.rest.split_first().ok_or(Refusal::Malformed)?;
        self.rest = rest;
        Ok(*first)
    }

    fn blanks(&mut self) {
        let count = self.rest.iter().position(|b| !matches!(b, b' ' | b'\t' | b'\n' | b'\r')).unwrap_or(self.rest.len());
        self.rest = &self.rest[count..];
    }

    fn peek(&mut self) -> Result<u8, Refusal> {
        self.blanks();
        self.rest.first().copied().ok_or(Refusal::Malformed)
    }

    fn token(&mut self) -> Result<u8, Refusal> {
        self.blanks();
        self.take()
    }

    fn stray(&self) -> Refusal {
        if self.rest.first() == Some(&0) { Refusal::Nul } else { Refusal::Malformed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_that_pass() {
        for text in [
            "null",
            " [ ] ",
            "{}",
            "0",
            "-0.5e-3",
            "\"\"",
            "[1, [2, {\"a\": []}], {}]",
            "{\"a\": 1.10, \"b\": [null, true, false]}",
            "\"\\ud83d\\ude00 \\u00e9 \\n\"",
            "1e131071",
            "1e-16383",
        ] {
            assert_eq!(refuse(text), None, "{text}");
        }
        let deep = format!("{}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
        assert_eq!(refuse(&deep), None);
    }

    #[test]
    fn documents_that_do_not() {
        for (text, why) in [
            ("", Refusal::Malformed),
            ("[", Refusal::Malformed),
            ("[1,]", Refusal::Malformed),
            ("{\"a\"}", Refusal::Malformed),
            ("{\"a\":1,}", Refusal::Malformed),
            ("{a:1}", Refusal::Malformed),
            ("[1}", Refusal::Malformed),
            ("1 2", Refusal::Malformed),
            ("01", Refusal::Malformed),
            ("1.", Refusal::Malformed),
            ("-", Refusal::Malformed),
            ("NaN", Refusal::Malformed),
            ("tru", Refusal::Malformed),
            ("\"\\x\"", Refusal::Malformed),
            ("\"\t\"", Refusal::Malformed),
            ("\"\\u000\"", Refusal::Malformed),
            ("\"\\ud800\"", Refusal::Malformed),
            ("\"\\ud800\\u0041\"", Refusal::Malformed),
            ("\"\\udc00\"", Refusal::Malformed),
            ("{\"\\u0000\": 1}", Refusal::Nul),
            ("\"\0\"", Refusal::Nul),
            ("1e131072", Refusal::Range),
            ("1e-16384", Refusal::Range),
            ("1e999999999999999999999", Refusal::Range),
        ] {
            assert_eq!(refuse(text), Some(why), "{text:?}");
        }
        let deep = format!("{}{}", "[".repeat(DEPTH_MAX + 1), "]".repeat(DEPTH_MAX + 1));
        assert_eq!(refuse(&deep), Some(Refusal::Range));
    }

    /// An independent parser agrees about what JSON is, on every prefix and every one-byte change of a document that uses all of it.
    #[test]
    fn agrees_with_another_parser_about_the_grammar() {
        let document = "{\"k\\\"\": [1, -2.5e+3, true, false, null, \"\\u00e9x\"], \"o\": {\"\": []}}";
        let check = |text: &str| {
            let json = serde_json::from_str::<serde_json::Value>(text).is_ok();
            assert_eq!(refuse(text).is_none(), json, "{text:?}");
        };
        for end in (0..=document.len()).filter(|e| document.is_char_boundary(*e)) {
            check(&document[..end]);
        }
        for at in 0..document.len() {
            for byte in b"\"\\{}[]:,.0e-+ ntx\n" {
                let mut changed = document.as_bytes().to_vec();
                changed[at] = *byte;
                check(std::str::from_utf8(&changed).expect("ASCII stays ASCII"));
            }
        }
    }
}
