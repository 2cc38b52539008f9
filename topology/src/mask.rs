//! Which parts of a source line may be a secret.
//!
//! A file under repair is exactly where a literal password stands, often beside the mistake, and a misspelt key or broken YAML leaves
//! the reader nothing to mark. So there are two nets: the stretches that the reader marks, and the look of the line itself. Too much
//! is hidden rather than too little; it costs a reader of the message nothing that the file does not show.

/// Parts of a key that make its value a secret, whatever the key is.
const SECRET_WORDS: &[&str] = &["pass", "pasw", "pwd", "secret", "token", "credential"];

/// A stretch of a file that no excerpt may show.
#[derive(Clone, Debug)]
pub(crate) struct Mask {
    pub(crate) file: u32,
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// Characters of this line.
    pub(crate) width: u32,
}

/// For each character of a line, whether to hide it; `above` are the lines before it, `masks` those of this line.
pub(crate) fn hidden<'a>(line: &[char], above: impl Iterator<Item = &'a str>, masks: impl Iterator<Item = &'a Mask>) -> Vec<bool> {
    let mut hidden = vec![continues_secret(line, above); line.len()];
    for mask in masks {
        hide(&mut hidden, (mask.column as usize).saturating_sub(1), mask.width as usize);
    }
    hide_after_keys(line, &mut hidden);
    hide_userinfo(line, &mut hidden);
    hidden
}

fn hide(hidden: &mut [bool], from: usize, width: usize) {
    for flag in hidden.iter_mut().skip(from).take(width) {
        *flag = true;
    }
}

/// True for a line that belongs to the value of a secret above it: a block, a text over several lines, a list.
fn continues_secret<'a>(line: &[char], above: impl Iterator<Item = &'a str>) -> bool {
    let indent = |text: &str| text.chars().take_while(|c| c.is_whitespace()).count();
    let own = line.iter().take_while(|c| c.is_whitespace()).count();
    let parent = above.filter(|text| !text.trim().is_empty() && indent(text) < own).last();
    parent.is_some_and(|text| {
        let chars: Vec<char> = text.chars().collect();
        keys(&chars).next().is_some()
    })
}

/// The places behind the colon (or equals sign) of each key that sounds like a secret.
fn keys(line: &[char]) -> impl Iterator<Item = usize> {
    let lower: Vec<char> = line.iter().map(char::to_ascii_lowercase).collect();
    (0..lower.len()).filter_map(move |at| {
        let rest = lower.get(at..)?;
        let is_word = SECRET_WORDS.iter().any(|word| {
            let mut chars = rest.iter();
            word.chars().all(|c| chars.next() == Some(&c))
        });
        if !is_word {
            return None;
        }
        // To the end of the key, its quote, and blanks: a word in a value is none of ours.
        let end = rest.iter().position(|c| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '"' | '\'')))?;
        let blanks = rest.iter().skip(end).take_while(|c| c.is_whitespace()).count();
        let separator = rest.get(end + blanks)?;
        matches!(separator, ':' | '=').then_some(at + end + blanks + 1)
    })
}

/// Hides what follows a key that sounds like a secret, to the end of the line; a reference is no secret, and seeing it helps.
fn hide_after_keys(line: &[char], hidden: &mut [bool]) {
    for start in keys(line) {
        let blanks = line.iter().skip(start).take_while(|c| c.is_whitespace()).count();
        let rest: String = line.iter().skip(start + blanks).collect();
        if !["${", "\"${", "'${"].iter().any(|reference| rest.starts_with(reference)) {
            hide(hidden, start + blanks, usize::MAX);
        }
    }
}

/// Hides the password of a `scheme://user:password@host`; the password may hold anything, so the last `@` of the line ends it.
fn hide_userinfo(line: &[char], hidden: &mut [bool]) {
    let Some(last) = line.iter().rposition(|c| *c == '@') else {
        return;
    };
    for (start, _) in line.windows(3).enumerate().filter(|(_, w)| *w == [':', '/', '/']) {
        let userinfo = line.get(start + 3..last).unwrap_or_default();
        if let Some(colon) = userinfo.iter().position(|c| *c == ':') {
            let from = start + 3 + colon + 1;
            hide(hidden, from, last - from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::hidden;

    fn masked(above: &str, line: &str) -> String {
        let chars: Vec<char> = line.chars().collect();
        let hidden = hidden(&chars, above.lines(), [].iter());
        chars.iter().zip(hidden).map(|(c, hide)| if hide { '*' } else { *c }).collect()
    }

    #[test]
    fn secrets_by_the_look_of_the_line() {
        for (line, wanted) in [
            ("password: abc", "password: ***"),
            ("{ user: u, Pass: abc }", "{ user: u, Pass: *****"),
            ("\"my-secret\" : abc", "\"my-secret\" : ***"),
            ("password: ${env:X}", "password: ${env:X}"),
            ("password: '${env:X}', pwd: abc", "password: '${env:X}', pwd: ***"),
            ("url: http://u:abc@h", "url: http://u:***@h"),
            ("url: http://u:a,b c@h", "url: http://u:*****@h"),
            ("url: http://h:80/", "url: http://h:80/"),
            ("url: h?password=abc", "url: h?password=***"),
            ("id: passengers", "id: passengers"),
            ("{ id: tokens, store: local }", "{ id: tokens, store: local }"),
        ] {
            assert_eq!(masked("", line), wanted);
        }
    }

    #[test]
    fn what_stands_below_a_secret_belongs_to_it() {
        assert_eq!(masked("  password: |\n    abc", "    def"), "*******");
        assert_eq!(masked("  password:\n", "    - def"), "*********");
        assert_eq!(masked("  password: ${env:X}\n", "  user: def"), "  user: def");
        assert_eq!(masked("  - id: passengers\n", "    name: def"), "    name: def");
    }
}
