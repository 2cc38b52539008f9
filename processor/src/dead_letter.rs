//! Dead letters: what became of a record that nobody could take, written durably before any watermark passes it (law 11).
//!
//! JSON records in `<topology>.dead-letters`, under the position of the source record as their key. A [`Letter`] names position, code, reason
//! and hint and holds a bounded excerpt; the record itself stands whole beside it, in the header [`HEADER`], so that it can be replayed when its
//! topic has let go of it. It does not where it is larger than [`RECORD_BYTES_MAX`], or where columns of its table are left out or masked: then
//! a replay reads its topic again. What is asked for and done about a letter is a [`Note`] under the same key. Nothing in the topic is ever
//! altered or compacted away: the notes that follow a letter say what became of it.

use landfall_schemas::dialect::Headers;
use landfall_schemas::value::push_hex;
use landfall_schemas::wire::{Reader, WireError, put_bytes, put_long, put_varint};
use serde::{Deserialize, Serialize};

/// Bytes of a record that a letter shows.
const EXCERPT_BYTES: usize = 256;

/// Bytes of a record that a letter keeps: half of what a broker takes unless it is told otherwise.
pub const RECORD_BYTES_MAX: usize = 512 << 10;

/// Name of the header that holds the record of a letter.
pub const HEADER: &str = "landfall.record";

/// Code of a letter that nothing is wrong with: an event before it has its key parked.
pub const PARKED: &str = "parked";

/// Code of a letter whose record cannot be replayed, because it is nowhere any more.
pub const RECORD_GONE: &str = "replay.record_gone";

/// A dead letter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// Stable code of the reason.
    pub code: String,
    /// The reason in words.
    pub reason: String,
    /// What can be done about it.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub hint: String,
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
    /// When the record was written to its topic, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub time: Option<String>,
    /// The record's key, printable and bounded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    /// The beginning of the record's value, printable.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub excerpt: Option<String>,
    /// Digests of the keys behind which later events wait; none where keys of the table are not parked, or its key could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub parks: Vec<String>,
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

/// What a note says of a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Act {
    /// Somebody asks for it to be replayed.
    Replay,
    /// Its changes are in the log of its table.
    Replayed,
    /// Somebody has dropped it.
    Dropped,
    /// It was replayed, and a tombstone of its key had deleted meanwhile what it says.
    Superseded,
}

/// What is asked for or done about a letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// What.
    pub act: Act,
    /// The letter by its offset in the dead-letter topic. A letter of the same record that stands behind it is another verdict, which this says
    /// nothing of.
    pub letter: i64,
}

/// The place that the Kafka key of a letter names: topic, partition, offset, replica. A topic's name has no slash.
pub fn parse_key(key: &str) -> Option<(&str, i32, i64, Option<&str>)> {
    let mut parts = key.splitn(4, '/');
    let (topic, partition, offset) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some((topic, partition, offset, parts.next()))
}

/// A digest of a key as a letter writes it.
pub fn digest_text(digest: &[u8; 16]) -> String {
    let mut text = String::with_capacity(32);
    push_hex(&mut text, digest);
    text
}

/// The digest that a letter has written.
pub fn parse_digest(text: &str) -> Option<[u8; 16]> {
    u128::from_str_radix(text, 16).ok().filter(|_| text.len() == 32).map(u128::to_be_bytes)
}

/// A record as it stood in its topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Its time, millis since 1970 UTC.
    pub millis: Option<i64>,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// Its headers, in order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Kept {
    const LAYOUT: u8 = 1;

    /// The value of [`HEADER`]; none for a record that is too large to be kept.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let length = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
        let bytes = length(&self.key) + length(&self.value) + self.headers.iter().map(|(name, value)| name.len() + length(value)).sum::<usize>();
        if bytes > RECORD_BYTES_MAX {
            return None;
        }
        let mut out = Vec::with_capacity(bytes + 64);
        let put = |out: &mut Vec<u8>, bytes: Option<&[u8]>| {
            out.push(u8::from(bytes.is_some()));
            put_bytes(out, bytes.unwrap_or_default());
        };
        out.push(Self::LAYOUT);
        put_long(&mut out, self.millis.unwrap_or(-1));
        put(&mut out, self.key.as_deref());
        put(&mut out, self.value.as_deref());
        put_varint(&mut out, self.headers.len() as u64);
        for (name, value) in &self.headers {
            put_bytes(&mut out, name.as_bytes());
            put(&mut out, value.as_deref());
        }
        Some(out)
    }

    /// Reads the value of [`HEADER`].
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        fn part(reader: &mut Reader<'_>) -> Result<Option<Vec<u8>>, WireError> {
            let is_there = reader.byte()? == 1;
            let bytes = reader.bytes()?;
            Ok(is_there.then(|| bytes.to_vec()))
        }
        let mut reader = Reader::new(bytes);
        if reader.byte()? != Self::LAYOUT {
            return Err(WireError::Index);
        }
        let mut kept =
            Self { millis: Some(reader.long()?).filter(|ms| *ms >= 0), key: part(&mut reader)?, value: part(&mut reader)?, headers: Vec::new() };
        for _ in 0..reader.varint()? {
            let name = std::str::from_utf8(reader.bytes()?).map_err(|_| WireError::Text)?.to_owned();
            kept.headers.push((name, part(&mut reader)?));
        }
        reader.finish()?;
        Ok(kept)
    }
}

impl Headers for Kept {
    fn get(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(n, _)| n == name)?.1.as_deref()
    }
}

/// What can be done about a letter, by its code.
pub fn hint(code: &str) -> &'static str {
    match code {
        PARKED => "it follows by itself once the letters of its key before it are replayed or dropped",
        RECORD_GONE => {
            "the topic holds the record no longer and the letter had no room for it; drop the letter, and let the source send the row again"
        }
        "record.too_large" => {
            "no broker takes it; raise kafka.client message.max.bytes where that is lowered, then replay it, or leave the column out"
        }
        "change.unresolved_column" => "a later change that has the column puts it right; REPLICA IDENTITY FULL sends every column",
        "registry.schema_unknown" => "once the registry has the schema, replay it",
        "scd.null_key" | "key.missing" => "name the key with primary_key where another column tells rows apart, then replay it; else drop it",
        "key.mismatch" => "the row has moved to another key and its own record says so; drop it where a later record of the key was taken",
        _ if code.starts_with("json.") || code.starts_with("avro.") || code.starts_with("frame.") || code.starts_with("envelope.") => {
            "the record is no change event as it stands: let its producer send it again and drop it, or replay it once this version reads it"
        }
        _ if code.starts_with("schema.") => {
            "the record has other columns than the table by now; replay it under a topology that takes them, or drop it"
        }
        "value.not_as_inferred" => {
            "the column has the type that its first records had: let the source mend the row and drop this; or declare a type that takes both, \
             `columns: { types: … }`, under a new id of the table: rows that were written with the inferred type stop it as schema.type_changed"
        }
        _ if code.starts_with("value.") => "tell in the topology how the connector writes the column, or mend the source, then replay it; or drop it",
        _ => "mend what the reason names, then replay it; or drop it",
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

/// A time of Kafka, for people.
pub fn time_text(millis: i64) -> Option<String> {
    Some(jiff::Timestamp::from_millisecond(millis).ok()?.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
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

    #[test]
    fn a_record_is_kept_whole_up_to_its_bound() {
        let headers = vec![("a".to_owned(), Some(vec![1, 2])), ("b".to_owned(), None)];
        let kept = Kept { millis: Some(5), key: Some(b"k".to_vec()), value: None, headers };
        let bytes = kept.encode().expect("small");
        assert_eq!(Kept::decode(&bytes), Ok(kept.clone()));
        assert_eq!((kept.get("a"), kept.get("b"), kept.get("c")), (Some(&[1, 2][..]), None, None));
        for end in 0..bytes.len() {
            assert!(Kept::decode(&bytes[..end]).is_err());
        }
        let empty = Kept { value: Some(Vec::new()), ..Kept::default() };
        assert_eq!(Kept::decode(&empty.encode().expect("small")), Ok(empty), "an empty value is not none");
        assert_eq!(Kept { value: Some(vec![0; RECORD_BYTES_MAX + 1]), ..Kept::default() }.encode(), None);
    }

    #[test]
    fn keys_of_letters_name_places() {
        assert_eq!(parse_key("a.b/3/17"), Some(("a.b", 3, 17, None)));
        assert_eq!(parse_key("a.b/3/17/serving.t/x"), Some(("a.b", 3, 17, Some("serving.t/x"))));
        assert_eq!((parse_key("a.b/3"), parse_key("a/x/1"), parse_key("")), (None, None, None));
        let digest = [0xAB; 16];
        assert_eq!(parse_digest(&digest_text(&digest)), Some(digest));
        assert_eq!((parse_digest("ab"), parse_digest(&"x".repeat(32))), (None, None));
    }

    #[test]
    fn a_note_is_no_letter_and_a_letter_no_note() {
        let note = serde_json::to_string(&Note { act: Act::Superseded, letter: 7 }).unwrap();
        assert_eq!(note, r#"{"act":"superseded","letter":7}"#);
        assert!(serde_json::from_str::<Letter>(&note).is_err());
        let letter = serde_json::to_string(&Letter { code: "x".to_owned(), ..Letter::default() }).unwrap();
        assert!(serde_json::from_str::<Note>(&letter).is_err());
    }
}
