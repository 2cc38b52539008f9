//! Just enough of a tokenizer to find a statement's first keyword and its trailing FORMAT clause.
//!
//! The engine's C API takes the format apart from the statement, HTTP clients send both in one text. Never judges a statement.

#[derive(Debug, Clone, PartialEq)]
pub struct Word<'a> {
    pub text: &'a str,
    pub start: usize,
    pub end: usize,
}

/// Bare words at the top level: outside strings, quoted names, comments and brackets.
pub fn words(s: &str) -> Vec<Word<'_>> {
    let b = s.as_bytes();
    let (mut i, mut depth, mut out) = (0, 0i32, Vec::new());
    while i < b.len() {
        match b[i] {
            q @ (b'\'' | b'"' | b'`') => {
                i += 1;
                while i < b.len() && b[i] != q {
                    i += if b[i] == b'\\' { 2 } else { 1 };
                }
                i += 1;
            }
            b'-' if b.get(i + 1) == Some(&b'-') => {
                while i < b.len() && b[i] != b'\n' {
                    i += 1
                }
            }
            b'#' if matches!(b.get(i + 1), Some(b' ' | b'!')) => {
                while i < b.len() && b[i] != b'\n' {
                    i += 1
                }
            }
            b'/' if b.get(i + 1) == Some(&b'*') => {
                i += 2;
                while i < b.len() && !(b[i] == b'*' && b.get(i + 1) == Some(&b'/')) {
                    i += 1
                }
                i += 2;
            }
            b'(' | b'[' | b'{' => {
                depth += 1;
                i += 1
            }
            b')' | b']' | b'}' => {
                depth -= 1;
                i += 1
            }
            c if c.is_ascii_alphanumeric() || c == b'_' => {
                let start = i;
                while i < b.len() && (b[i].is_ascii_alphanumeric() || b[i] == b'_' || b[i] == b'.') {
                    i += 1
                }
                if depth == 0 {
                    out.push(Word { text: &s[start..i], start, end: i })
                }
            }
            _ => i += 1,
        }
    }
    out
}

pub fn is(w: &Word<'_>, k: &str) -> bool {
    w.text.eq_ignore_ascii_case(k)
}

pub struct Split<'a> {
    /// The statement without its FORMAT clause.
    pub rest: String,
    pub format: Option<&'a str>,
    pub first: String,
    /// Top-level SELECT or WITH in an INSERT.
    pub has_select: bool,
}

/// Splits `... FORMAT name [SETTINGS ...]` off a statement that carries no inline data.
pub fn split(sql: &str) -> Split<'_> {
    let w = words(sql);
    let first = w.first().map(|w| w.text.to_ascii_uppercase()).unwrap_or_default();
    let has_select = w.iter().any(|w| is(w, "SELECT") || is(w, "WITH"));
    let mut at = None;
    for (i, x) in w.iter().enumerate().rev() {
        if is(x, "FORMAT") && i + 1 < w.len() {
            // Only when nothing but a SETTINGS clause follows the name.
            let tail = sql[w[i + 1].end..].trim_start();
            let ok = tail.is_empty() || tail.trim_end() == ";" || w.get(i + 2).is_some_and(|n| is(n, "SETTINGS"));
            if ok && !sql[x.end..w[i + 1].start].contains('(') {
                at = Some((x.start, w[i + 1].clone()));
            }
            break;
        }
    }
    if at.is_none()
        && first == "INSERT"
        && !has_select
        && let Some(v) = w.last().filter(|v| is(v, "VALUES") && sql[v.end..].trim().is_empty())
    {
        return Split { rest: sql[..v.start].to_string(), format: Some("Values"), first, has_select };
    }
    match at {
        Some((start, name)) => Split {
            rest: format!("{} {}", &sql[..start], sql[name.end..].trim_end().trim_end_matches(';')),
            format: Some(&sql[name.start..name.end]),
            first,
            has_select,
        },
        None => Split { rest: sql.to_string(), format: None, first, has_select },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn splits() {
        let s = split("INSERT INTO t (`a`, b) SETTINGS x = 1 FORMAT RowBinary");
        assert_eq!((s.format, s.rest.trim()), (Some("RowBinary"), "INSERT INTO t (`a`, b) SETTINGS x = 1"));
        let s = split("SELECT 'x FORMAT CSV' -- FORMAT TSV\n");
        assert_eq!(s.format, None);
        let s = split("select format('{}', 1) FORMAT JSONEachRow settings max_threads=1;");
        assert_eq!((s.format, s.rest.as_str()), (Some("JSONEachRow"), "select format('{}', 1)   settings max_threads=1"));
        let s = split("INSERT INTO db.t VALUES");
        assert_eq!((s.format, s.rest.trim()), (Some("Values"), "INSERT INTO db.t"));
        assert!(split("INSERT INTO t SELECT * FROM input('a String') FORMAT CSV").has_select);
        assert_eq!(split("INSERT INTO t FORMAT CSV\n1,2\n").format, None);
    }
}
