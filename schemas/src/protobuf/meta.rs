//! What Confluent's converter says of a field beside its type: `(confluent.field_meta)`, in Protobuf's text format.

use std::collections::BTreeMap;

use prost_types::UninterpretedOption;

/// The option's name, with the dot that a full name may begin with left out.
const FIELD_META: &str = "confluent.field_meta";

/// The parameters of a field's options: pairs of `key` and `value` in messages of whatever nesting, as a map is written.
pub(super) fn parameters(options: &[UninterpretedOption]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for option in options {
        let is_meta = option.name.first().is_some_and(|part| part.is_extension && part.name_part.trim_start_matches('.') == FIELD_META);
        if let (true, Some(text)) = (is_meta, &option.aggregate_value) {
            read(text, &mut found);
        }
    }
    found
}

fn read(text: &str, found: &mut BTreeMap<String, String>) {
    let (mut key, mut value) = (None, None);
    let mut name = "";
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        match first {
            '"' | '\'' => {
                let (string, tail) = string(&rest[1..], first);
                match name {
                    "key" => key = Some(string),
                    "value" => value = Some(string),
                    _ => {}
                }
                rest = tail;
            }
            'a'..='z' | 'A'..='Z' | '_' => {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                (name, rest) = rest.split_at(end);
            }
            _ => {
                if matches!(first, '}' | '>') {
                    put(&mut key, &mut value, found);
                }
                rest = &rest[first.len_utf8()..];
            }
        }
        rest = rest.trim_start();
    }
    // `(confluent.field_meta).params = { key: "a", value: "b" }` is one of them without braces around it.
    put(&mut key, &mut value, found);
}

fn put(key: &mut Option<String>, value: &mut Option<String>, found: &mut BTreeMap<String, String>) {
    if let (Some(key), Some(value)) = (key.take(), value.take()) {
        let _ = found.insert(key, value);
    }
}

/// A string behind its quote, and what comes after it. Escapes that mean a byte stand for it as Latin letters do.
fn string(text: &str, quote: char) -> (String, &str) {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => return (out, &text[at + 1..]),
            '\\' => match chars.next() {
                Some((_, 'n')) => out.push('\n'),
                Some((_, 'r')) => out.push('\r'),
                Some((_, 't')) => out.push('\t'),
                Some((_, 'x')) => {
                    let mut digit = || chars.next().and_then(|(_, c)| c.to_digit(16)).unwrap_or(0);
                    out.push(char::from((digit() << 4 | digit()) as u8));
                }
                Some((_, other)) => out.push(other),
                None => break,
            },
            c => out.push(c),
        }
    }
    (out, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_however_they_are_written() {
        let texts = [
            r#"params : [ { key : "scale" , value : "2" } , { value : "10" , key : "precision" } ]"#,
            r#"doc : "a { key: \" b }" params { key : "scale" value : "2" } params < key : 'precision' value : '10' >"#,
        ];
        for text in texts {
            let mut found = BTreeMap::new();
            read(text, &mut found);
            let found: Vec<(&str, &str)> = found.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            assert_eq!(found, [("precision", "10"), ("scale", "2")], "{text}");
        }
        let mut found = BTreeMap::new();
        read(r#"key : "a" , value : "\x62\"""#, &mut found);
        assert_eq!(found.get("a").map(String::as_str), Some("b\""));
        for text in ["\"", "'\\", "key : \"", "{{{{", "key key value \"\\x"] {
            read(text, &mut found);
        }
    }
}
