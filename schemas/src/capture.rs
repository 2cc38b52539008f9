//! Captured Kafka records, one a line of JSON: what `landfall convert` reads and what the shipped fixtures are.
//!
//! A line holds topic, partition, offset, timestamp, headers, key and value. Bytes that are UTF-8 travel as text (`key`, `value`), other bytes
//! as base64 (`key_b64`, `value_b64`); `null` is a null of Kafka, never an empty text. This is for people and tests, not a hot path.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// One Kafka record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Offset in the partition.
    pub offset: i64,
    /// Millis since 1970 UTC, as the broker has them.
    pub timestamp: Option<i64>,
    /// Key; `None` for Kafka's null.
    pub key: Option<Vec<u8>>,
    /// Value; `None` for Kafka's null, a tombstone.
    pub value: Option<Vec<u8>>,
    /// Headers in their order: name and value.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

/// A line that is no captured record.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Not JSON of this shape.
    #[error("a line is not a captured record")]
    Shape(#[from] serde_json::Error),
    /// A member that promises base64 holds something else.
    #[error("{member} of a captured record is not base64")]
    Base64 {
        /// The member.
        member: &'static str,
        /// What is wrong with it.
        #[source]
        source: base64::DecodeError,
    },
}

#[derive(Default, Serialize, Deserialize)]
struct Line {
    topic: String,
    partition: i32,
    offset: i64,
    #[serde(default)]
    timestamp: Option<i64>,
    #[serde(default)]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_b64: Option<String>,
    #[serde(default)]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_b64: Option<String>,
    #[serde(default)]
    headers: Vec<HeaderLine>,
}

#[derive(Serialize, Deserialize)]
struct HeaderLine {
    name: String,
    #[serde(default)]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value_b64: Option<String>,
}

impl Record {
    /// Reads one line.
    pub fn parse(line: &str) -> Result<Self, CaptureError> {
        let line: Line = serde_json::from_str(line)?;
        let headers =
            line.headers.into_iter().map(|h| Ok((h.name, bytes("a header", h.value, h.value_b64)?))).collect::<Result<_, CaptureError>>()?;
        Ok(Self {
            topic: line.topic,
            partition: line.partition,
            offset: line.offset,
            timestamp: line.timestamp,
            key: bytes("the key", line.key, line.key_b64)?,
            value: bytes("the value", line.value, line.value_b64)?,
            headers,
        })
    }

    /// Appends the record as one line, without its line end.
    pub fn write(&self, out: &mut String) {
        let (key, key_b64) = text(self.key.as_deref());
        let (value, value_b64) = text(self.value.as_deref());
        let header = |(name, value): &(String, Option<Vec<u8>>)| {
            let (value, value_b64) = text(value.as_deref());
            HeaderLine { name: name.clone(), value, value_b64 }
        };
        let line = Line {
            topic: self.topic.clone(),
            partition: self.partition,
            offset: self.offset,
            timestamp: self.timestamp,
            key,
            key_b64,
            value,
            value_b64,
            headers: self.headers.iter().map(header).collect(),
        };
        out.push_str(&serde_json::to_string(&line).expect("strings and numbers always serialise"));
    }

    /// The value of the first header of a name.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(n, _)| n == name)?.1.as_deref()
    }
}

fn bytes(member: &'static str, text: Option<String>, base64: Option<String>) -> Result<Option<Vec<u8>>, CaptureError> {
    match base64 {
        Some(base64) => STANDARD.decode(base64).map(Some).map_err(|source| CaptureError::Base64 { member, source }),
        None => Ok(text.map(String::into_bytes)),
    }
}

fn text(bytes: Option<&[u8]>) -> (Option<String>, Option<String>) {
    match bytes.map(|b| (std::str::from_utf8(b), b)) {
        None => (None, None),
        Some((Ok(text), _)) => (Some(text.to_owned()), None),
        Some((Err(_), raw)) => (None, Some(STANDARD.encode(raw))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_in_and_comes_out() {
        let line = r#"{"topic":"t","partition":2,"offset":7,"timestamp":9,"key":null,"value":null,"value_b64":"/w==","headers":[{"name":"h","value":"ű"},{"name":"n","value":null}]}"#;
        let record = Record::parse(line).expect("a record");
        assert_eq!((record.key.as_deref(), record.value.as_deref()), (None, Some(&[0xFF_u8][..])));
        assert_eq!(record.header("h"), Some("ű".as_bytes()));
        let mut out = String::new();
        record.write(&mut out);
        assert_eq!(out, line);
    }

    #[test]
    fn empty_is_not_null() {
        let record = Record::parse(r#"{"topic":"t","partition":0,"offset":0,"key":"","value":null}"#).expect("a record");
        assert_eq!((record.key, record.value, record.timestamp), (Some(Vec::new()), None, None));
    }

    #[test]
    fn what_is_no_record_is_refused() {
        assert!(matches!(Record::parse("{}"), Err(CaptureError::Shape(_))));
        let line = r#"{"topic":"t","partition":0,"offset":0,"key_b64":"?"}"#;
        assert!(matches!(Record::parse(line), Err(CaptureError::Base64 { member: "the key", .. })));
    }
}
