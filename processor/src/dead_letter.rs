//! Dead letters: what became of a record that nobody could take, written durably before any watermark passes it (law 11).
//!
//! One JSON record in `<topology>.dead-letters`, keyed by the position of the source record. It names position, code and reason and holds a
//! bounded excerpt; the record itself stays where it was written.

use serde::{Deserialize, Serialize};

/// Bytes of a record that a letter shows.
const EXCERPT_BYTES: usize = 256;

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// Stable code of the reason.
    pub code: String,
    /// The reason in words.
    pub reason: String,
    /// Id of the table in the topology.
    pub table: String,
    /// The replica that could not take it; none where the record could not be read at all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replica: Option<String>,
    /// Source topic.
    pub topic: String,
    /// Source partition.
    pub partition: i32,
    /// Source offset.
    pub offset: i64,
    /// The record's key, printable and bounded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    /// The beginning of the record's value, printable.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub excerpt: Option<String>,
}

impl Letter {
    /// The Kafka key under which it stands.
    pub fn record_key(&self) -> String {
        match &self.replica {
            Some(replica) => format!("{}/{}/{}/{replica}", self.topic, self.partition, self.offset),
            None => format!("{}/{}/{}", self.topic, self.partition, self.offset),
        }
    }
}

/// The beginning of some bytes as text: everything that is no printable character is escaped (RELIABILITY.md D 17).
pub fn excerpt(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(EXCERPT_BYTES)];
    let mut text = String::with_capacity(head.len());
    for chunk in head.utf8_chunks() {
        for c in chunk.valid().chars() {
            let hostile = c.is_control() || matches!(c, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
            if hostile { text.extend(c.escape_unicode()) } else { text.push(c) }
        }
        chunk.invalid().iter().for_each(|b| text.push_str(&format!("\\x{b:02x}")));
    }
    if bytes.len() > head.len() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_bounded_and_printable() {
        assert_eq!(excerpt(b"a\nb\x1b\xff"), "a\\u{a}b\\u{1b}\\xff");
        assert_eq!(excerpt("\u{202E}x".as_bytes()), "\\u{202e}x");
        assert!(excerpt(&[b'a'; 1000]).chars().count() == EXCERPT_BYTES + 1);
    }
}
