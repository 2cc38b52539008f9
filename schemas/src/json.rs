//! A borrowing JSON scanner for the dialects: tokens are slices of the document, numbers stay text, nothing is allocated.
//!
//! Dialects read documents whose shape they know, so they pull members one by one and pass over the rest; a tree of values would cost an
//! allocation per member and turn numbers into floats (case DEC-07). The grammar is RFC 8259, strict: what is passed over is checked as
//! well. Total: any text gives tokens or a [`JsonError`], and nesting is bounded by [`DEPTH_MAX`].

/// The deepest nesting that is read.
pub const DEPTH_MAX: u32 = 128;

/// A document that is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct JsonError {
    /// Where, in bytes from the start of the document.
    pub at: usize,
    /// What is wrong there.
    pub what: &'static str,
}

/// One value, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, exactly as written.
    Number(&'a str),
    /// A string.
    String(JsonStr<'a>),
    /// An object, braces included, checked.
    Object(&'a str),
    /// An array, brackets included, checked.
    Array(&'a str),
}

/// The inside of a string literal; its escapes are well formed, except that surrogates may not pair up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonStr<'a> {
    /// The text between the quotes, escapes and all.
    pub raw: &'a str,
    /// Whether there is any escape in it.
    pub escaped: bool,
}

impl<'a> JsonStr<'a> {
    /// The text itself: borrowed where nothing is escaped, else written to `scratch`, which is cleared first. `None` where a surrogate has no
    /// partner, since no text holds that.
    pub fn text<'s>(&self, scratch: &'s mut String) -> Option<&'s str>
    where
        'a: 's,
    {
        if !self.escaped {
            return Some(self.raw);
        }
        scratch.clear();
        self.unescape(scratch).then_some(scratch.as_str())
    }

    /// True where the text is `other`; stops at the first difference and allocates nothing.
    pub fn is(&self, other: &str) -> bool {
        let (mut rest, mut other) = (self.raw, other);
        while self.escaped
            && let Some(at) = rest.find('\\')
        {
            let plain = other.strip_prefix(&rest[..at]);
            rest = &rest[at + 1..];
            let Some(tail) = plain.and_then(|tail| tail.strip_prefix(take_escape(&mut rest)?)) else { return false };
            other = tail;
        }
        rest == other
    }

    /// Appends the text; false where a surrogate has no partner.
    #[must_use]
    pub fn unescape(&self, out: &mut String) -> bool {
        let bytes = self.raw.as_bytes();
        let (mut from, mut at) = (0, 0);
        loop {
            // Of what is special only escapes stand in here.
            at = plain_end(bytes, at);
            out.push_str(&self.raw[from..at]);
            if at == bytes.len() {
                return true;
            }
            if let Some(b'"' | b'\\' | b'/') = bytes.get(at + 1) {
                // It stands for itself, so it goes with what follows.
                (from, at) = (at + 1, at + 2);
                continue;
            }
            let mut rest = &self.raw[at + 1..];
            let Some(c) = take_escape(&mut rest) else { return false };
            out.push(c);
            at = bytes.len() - rest.len();
            from = at;
        }
    }
}

/// Takes what stands behind a backslash; `None` for half of a surrogate pair.
fn take_escape(rest: &mut &str) -> Option<char> {
    let escape = rest.chars().next()?;
    *rest = &rest[escape.len_utf8()..];
    match escape {
        'b' => Some('\u{8}'),
        'f' => Some('\u{c}'),
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        'u' => take_unicode(rest),
        other => Some(other),
    }
}

fn take_unicode(rest: &mut &str) -> Option<char> {
    let high = take_unit(rest)?;
    if !(0xD800..0xDC00).contains(&high) {
        return char::from_u32(high);
    }
    *rest = rest.strip_prefix("\\u")?;
    let low = take_unit(rest).filter(|low| (0xDC00..0xE000).contains(low))?;
    char::from_u32(0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00))
}

fn take_unit(rest: &mut &str) -> Option<u32> {
    let (hex, tail) = rest.split_at_checked(4)?;
    *rest = tail;
    u32::from_str_radix(hex, 16).ok()
}

/// A position in a document.
#[derive(Clone, Copy, Debug)]
pub struct Scanner<'a> {
    text: &'a str,
    at: usize,
    /// Bytes of the document in front of the text.
    base: usize,
}

impl<'a> Scanner<'a> {
    /// Starts at the beginning.
    pub const fn new(text: &'a str) -> Self {
        Self::behind(0, text)
    }

    /// Starts at the beginning of what follows the first `base` bytes of a document; errors count from the document's start.
    pub const fn behind(base: usize, text: &'a str) -> Self {
        Self { text, at: 0, base }
    }

    /// Bytes passed so far.
    pub const fn position(&self) -> usize {
        self.at
    }

    /// The text between this position and a later one of the same document, without white space around it.
    pub fn up_to(&self, later: &Self) -> &'a str {
        self.text.get(self.at..later.at).unwrap_or_default().trim_ascii()
    }

    /// Takes the next value.
    pub fn value(&mut self) -> Result<Token<'a>, JsonError> {
        self.space();
        let start = self.at;
        Ok(match self.peek() {
            Some(b'"') => Token::String(self.string()?),
            Some(b'{') => {
                self.pass_object(DEPTH_MAX)?;
                Token::Object(&self.text[start..self.at])
            }
            Some(b'[') => {
                self.pass_array(DEPTH_MAX)?;
                Token::Array(&self.text[start..self.at])
            }
            Some(b'n') => {
                self.word("null")?;
                Token::Null
            }
            Some(b't') => {
                self.word("true")?;
                Token::Bool(true)
            }
            Some(b'f') => {
                self.word("false")?;
                Token::Bool(false)
            }
            _ => Token::Number(self.number()?),
        })
    }

    /// Takes a `null` where one stands next.
    pub fn null(&mut self) -> bool {
        self.space();
        self.word("null").is_ok()
    }

    /// Enters an object; its members follow by [`Scanner::member`].
    pub fn enter_object(&mut self) -> Result<(), JsonError> {
        self.space();
        self.expect(b'{', "an object is missing")
    }

    /// Takes the name of the next member up to its colon, or leaves the object at its end. `first` is true for the first call.
    #[inline]
    pub fn member(&mut self, first: bool) -> Result<Option<JsonStr<'a>>, JsonError> {
        // Converters write no white space, so this is the path of nearly every member.
        if !first && self.text.as_bytes().get(self.at..self.at + 2) == Some(b",\"") {
            self.at += 1;
        } else if self.is_end(first)? {
            return Ok(None);
        }
        let name = self.string()?;
        self.space();
        self.expect(b':', "a colon is missing")?;
        Ok(Some(name))
    }

    /// Takes the name of the next member and its colon where they stand exactly as in `quoted` (`"name":`), with no white space. False leaves
    /// everything to [`Scanner::member`]. Knowing what comes next, as one does with documents of one writer, spares looking for its end.
    #[inline]
    pub fn named(&mut self, first: bool, quoted: &str) -> bool {
        let bytes = self.text.as_bytes();
        let at = if first { self.at } else { self.at + 1 };
        let found = (first || bytes.get(self.at) == Some(&b',')) && bytes.get(at..).is_some_and(|rest| begins(rest, quoted.as_bytes()));
        if found {
            self.at = at + quoted.len();
        }
        found
    }

    /// Enters an array; its elements follow by [`Scanner::element`].
    pub fn enter_array(&mut self) -> Result<(), JsonError> {
        self.space();
        self.expect(b'[', "an array is missing")
    }

    /// Takes the next element of an array, or leaves the array at its end. `first` is true for the first call.
    pub fn element(&mut self, first: bool) -> Result<Option<Token<'a>>, JsonError> {
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(None);
        }
        if !first {
            self.expect(b',', "a comma or the end of an array is missing")?;
        }
        self.value().map(Some)
    }

    /// Leaves the object at its end, or goes to the name of its next member.
    fn is_end(&mut self, first: bool) -> Result<bool, JsonError> {
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(true);
        }
        if !first {
            self.expect(b',', "a comma or the end of an object is missing")?;
            self.space();
        }
        Ok(false)
    }

    /// Ends the reading: only white space may be left.
    pub fn finish(&mut self) -> Result<(), JsonError> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { Err(self.error("something follows the end of the document")) }
    }

    #[cold]
    fn error(&self, what: &'static str) -> JsonError {
        JsonError { at: self.base + self.at, what }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline]
    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    #[inline]
    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), JsonError> {
        if self.peek() != Some(byte) {
            return Err(self.error(what));
        }
        self.at += 1;
        Ok(())
    }

    fn word(&mut self, word: &'static str) -> Result<(), JsonError> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.error("a value is missing"));
        }
        self.at += word.len();
        Ok(())
    }

    #[inline]
    fn string(&mut self) -> Result<JsonStr<'a>, JsonError> {
        let start = self.at + 1;
        let escaped = self.pass_string()?;
        Ok(JsonStr { raw: &self.text[start..self.at - 1], escaped })
    }

    /// Passes over a string; true where it has escapes.
    #[inline]
    fn pass_string(&mut self) -> Result<bool, JsonError> {
        self.expect(b'"', "a string is missing")?;
        self.at = plain_end(self.text.as_bytes(), self.at);
        let escaped = self.peek() != Some(b'"');
        if escaped {
            self.pass_escapes()?;
        }
        self.at += 1;
        Ok(escaped)
    }

    /// Goes on from an escape to the end of its string.
    fn pass_escapes(&mut self) -> Result<(), JsonError> {
        let bytes = self.text.as_bytes();
        loop {
            match bytes.get(self.at) {
                Some(b'"') => return Ok(()),
                Some(b'\\') => match bytes.get(self.at + 1) {
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
                    Some(b'u') if bytes.get(self.at + 2..self.at + 6).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) => self.at += 6,
                    _ => return Err(self.error("an escape is not one of JSON's")),
                },
                Some(_) => return Err(self.error("a control character stands in a string")),
                None => return Err(self.error("a string does not end")),
            }
            self.at = plain_end(bytes, self.at);
        }
    }

    #[inline]
    fn number(&mut self) -> Result<&'a str, JsonError> {
        let (bytes, start) = (self.text.as_bytes(), self.at);
        let whole = start + usize::from(self.peek() == Some(b'-'));
        let end = digits_end(bytes, whole);
        if end == whole || (bytes[whole] == b'0' && end > whole + 1) {
            return Err(self.error("a value is missing"));
        }
        self.at = end;
        if let Some(b'.' | b'e' | b'E') = bytes.get(end) {
            self.pass_fraction()?;
        }
        Ok(&self.text[start..self.at])
    }

    /// Goes on from the end of a number's whole part.
    fn pass_fraction(&mut self) -> Result<(), JsonError> {
        let bytes = self.text.as_bytes();
        if bytes.get(self.at) == Some(&b'.') {
            let fraction = self.at + 1;
            let end = digits_end(bytes, fraction);
            if end == fraction {
                return Err(self.error("a number ends in its point"));
            }
            self.at = end;
        }
        if let Some(b'e' | b'E') = bytes.get(self.at) {
            let exponent = self.at + 1 + usize::from(matches!(bytes.get(self.at + 1), Some(b'+' | b'-')));
            let end = digits_end(bytes, exponent);
            if end == exponent {
                return Err(self.error("a number has no exponent"));
            }
            self.at = end;
        }
        Ok(())
    }

    fn pass(&mut self, depth: u32) -> Result<(), JsonError> {
        self.space();
        match self.peek() {
            Some(b'{') => self.pass_object(depth),
            Some(b'[') => self.pass_array(depth),
            Some(b'"') => self.pass_string().map(drop),
            Some(b'n') => self.word("null"),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            _ => self.number().map(drop),
        }
    }

    fn pass_object(&mut self, depth: u32) -> Result<(), JsonError> {
        let inner = depth.checked_sub(1).ok_or_else(|| self.error("values are nested too deeply"))?;
        self.at += 1;
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.pass_string()?;
            self.space();
            self.expect(b':', "a colon is missing")?;
            self.pass(inner)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.error("a comma or the end of an object is missing")),
            }
            self.space();
        }
    }

    fn pass_array(&mut self, depth: u32) -> Result<(), JsonError> {
        let inner = depth.checked_sub(1).ok_or_else(|| self.error("values are nested too deeply"))?;
        self.at += 1;
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.pass(inner)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.error("a comma or the end of an array is missing")),
            }
        }
    }
}

/// True for a text that is one JSON value, whatever it holds.
pub fn is_document(text: &str) -> bool {
    let mut scanner = Scanner::new(text);
    scanner.pass(DEPTH_MAX).and_then(|()| scanner.finish()).is_ok()
}

/// Whether bytes begin with others. Names are short, so a call costs more than the comparison: up to 16 bytes are two words that overlap.
#[inline]
fn begins(bytes: &[u8], with: &[u8]) -> bool {
    let Some(bytes) = bytes.get(..with.len()) else { return false };
    match with.len() {
        8..=16 => bytes.first_chunk::<8>() == with.first_chunk() && bytes.last_chunk::<8>() == with.last_chunk(),
        4..8 => bytes.first_chunk::<4>() == with.first_chunk() && bytes.last_chunk::<4>() == with.last_chunk(),
        _ => bytes == with,
    }
}

/// The first byte from `at` on that is a quote, a backslash or a control character, or the end. Eight bytes at a time: strings are most of
/// what a document holds.
#[inline]
fn plain_end(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let zero = |w: u64| w.wrapping_sub(ONES) & !w & HIGHS;
    while let Some(chunk) = bytes.get(at..).and_then(|b| b.first_chunk::<8>()) {
        let w = u64::from_le_bytes(*chunk);
        let control = w.wrapping_sub(ONES * 0x20) & !w & HIGHS;
        let found = zero(w ^ (ONES * 0x22)) | zero(w ^ (ONES * 0x5C)) | control;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|b| !matches!(b, b'"' | b'\\' | 0..0x20)) {
        at += 1;
    }
    at
}

/// The first byte from `at` on that is no digit, or the end.
#[inline]
fn digits_end(bytes: &[u8], mut at: usize) -> usize {
    const ZEROS: u64 = 0x3030_3030_3030_3030;
    const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    while let Some(chunk) = bytes.get(at..).and_then(|b| b.first_chunk::<8>()) {
        // Digits are 0 to 9 now: whatever is more sets the high bit of its byte, by itself or by the addition, which carries nowhere.
        let w = u64::from_le_bytes(*chunk) ^ ZEROS;
        let found = (((w & LOW) + 0x7676_7676_7676_7676) | w) & !LOW;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<Token<'_>, JsonError> {
        let mut scanner = Scanner::new(text);
        let token = scanner.value()?;
        scanner.finish()?;
        Ok(token)
    }

    fn string(text: &str) -> Option<String> {
        match one(text) {
            Ok(Token::String(s)) => s.text(&mut String::new()).map(str::to_owned),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn tokens_are_what_was_written() {
        assert_eq!(one(" null "), Ok(Token::Null));
        assert_eq!(one("true"), Ok(Token::Bool(true)));
        for number in ["0", "-0", "12.50", "9007199254740993", "-1.5E+300", "1e5", "481516234299999900001"] {
            assert_eq!(one(number), Ok(Token::Number(number)));
        }
        assert_eq!(one("{\"a\": [1, {}]}"), Ok(Token::Object("{\"a\": [1, {}]}")));
        assert_eq!(one("[ ]"), Ok(Token::Array("[ ]")));
    }

    #[test]
    fn a_name_is_known_by_all_of_its_bytes() {
        for length in 3..40 {
            let quoted = format!("\"{}\":", "n".repeat(length - 3));
            let text = format!("{quoted}1");
            assert!(Scanner::new(&text).named(true, &quoted), "{quoted}");
            assert!(!Scanner::new(&text[..length - 1]).named(true, &quoted), "{quoted} is cut");
            for at in 0..length {
                let mut other = text.clone().into_bytes();
                other[at] = b'x';
                let other = String::from_utf8(other).expect("ASCII");
                assert!(!Scanner::new(&other).named(true, &quoted), "{quoted} is not {other}");
            }
        }
    }

    #[test]
    fn the_grammar_is_strict() {
        for text in [
            "",
            "nul",
            "01",
            "1.",
            ".5",
            "-",
            "+1",
            "1e",
            "NaN",
            "Infinity",
            "'a'",
            "\"a",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\t\"",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{\"a\"}",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\":1 \"b\":2}",
            "1 2",
            "{}}",
            "[",
            "{",
        ] {
            assert!(one(text).is_err(), "{text}");
            assert!(!is_document(text), "{text}");
        }
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(is_document(&deep(128)));
        assert!(!is_document(&deep(129)));
        assert!(!is_document(&"[".repeat(1_000_000)));
    }

    #[test]
    fn strings_lose_their_escapes_and_nothing_else() {
        assert_eq!(string(r#""plain ünï 日本 😀""#).as_deref(), Some("plain ünï 日本 😀"));
        assert_eq!(string(r#""\"\\\/\b\f\n\r\t\u0041\u00e9\ud83d\ude00\u0000""#).as_deref(), Some("\"\\/\u{8}\u{c}\n\r\tAé😀\0"));
        for lone in [r#""\ud83d""#, r#""\ude00""#, r#""\ud83d\u0041""#, r#""\ud83dx""#] {
            assert_eq!(string(lone), None, "{lone}");
        }
        for n in 0..40 {
            let text = format!("\"{}\\n{}\"", "x".repeat(n), "é".repeat(n));
            assert_eq!(string(&text), Some(format!("{}\n{}", "x".repeat(n), "é".repeat(n))));
        }
    }

    #[test]
    fn names_are_compared_without_their_escapes() {
        let escaped = JsonStr { raw: r#"quoted \"col\""#, escaped: true };
        assert!(escaped.is("quoted \"col\""));
        assert!(!escaped.is("quoted col"));
        assert!(!escaped.is("quoted \"col\" and more") && !escaped.is("quoted \"col"));
        assert!(JsonStr { raw: r"\u0061\ud83d\ude00", escaped: true }.is("a😀"));
        assert!(!JsonStr { raw: r"a\ud83d", escaped: true }.is("a"));
        assert!(JsonStr { raw: "id", escaped: false }.is("id"));
    }

    #[test]
    fn digits_end_where_they_end() {
        for n in 1..40 {
            for end in ["", "}", ":", "/", "٣", "e5"] {
                let digits = "1234567890".repeat(4)[..n].to_owned();
                let text = format!("{digits}{end}");
                assert_eq!(digits_end(text.as_bytes(), 0), n, "{text}");
            }
        }
    }

    #[test]
    fn a_name_that_is_known_beforehand_is_taken_whole_or_not_at_all() {
        let mut scanner = Scanner::new(r#"{"a":1,"bc":2, "d":3}"#);
        scanner.enter_object().expect("an object");
        assert!(!scanner.named(true, "\"bc\":"));
        assert!(scanner.named(true, "\"a\":"));
        assert_eq!(scanner.value(), Ok(Token::Number("1")));
        assert!(!scanner.named(false, "\"b\":"));
        assert!(scanner.named(false, "\"bc\":"));
        assert_eq!(scanner.value(), Ok(Token::Number("2")));
        assert!(!scanner.named(false, "\"d\":"), "white space is left to `member`");
        assert_eq!(scanner.member(false).map(|name| name.map(|n| n.raw)), Ok(Some("d")));
    }

    #[test]
    fn members_come_one_by_one() {
        let mut scanner = Scanner::new(" {\"a\": 1, \"b\" :null } ");
        scanner.enter_object().expect("an object");
        let mut names = Vec::new();
        while let Some(name) = scanner.member(names.is_empty()).expect("members") {
            names.push((name.raw, scanner.value().expect("a value")));
        }
        scanner.finish().expect("nothing else");
        assert_eq!(names, [("a", Token::Number("1")), ("b", Token::Null)]);
    }
}
