//! Durations and sizes as people write them.
//!
//! A bare number is seconds (durations) or bytes (sizes); `200ms`, `1.5h`, `7d`, `16MiB`, `1GB` work everywhere. Values are exact: a
//! fraction finer than a millisecond or a byte is refused rather than rounded. Messages never repeat the value.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

/// The text of a number or a word (see `read::SCALAR`).
#[derive(Deserialize)]
#[serde(rename = "$scalar")]
pub(crate) struct ScalarText(pub(crate) String);

/// Longest duration: a century.
const DURATION_DAYS_MAX: i128 = 36_500;
const MS_PER_DAY: i128 = 86_400_000;

/// A span of time in milliseconds; negative values are told from positive ones only where the field is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "ScalarText")]
pub struct Duration {
    ms: i64,
}

impl Duration {
    /// A whole number of milliseconds.
    pub(crate) const fn from_ms(ms: i64) -> Self {
        Self { ms }
    }

    /// True below zero.
    pub(crate) const fn is_negative(self) -> bool {
        self.ms < 0
    }

    /// The span; nothing for a negative one.
    pub(crate) fn to_std(self) -> Option<std::time::Duration> {
        u64::try_from(self.ms).ok().map(std::time::Duration::from_millis)
    }

    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = split(text);
        let unit = match unit {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => MS_PER_DAY,
            "w" => 7 * MS_PER_DAY,
            _ => return None,
        };
        let ms = exact(number, unit)?;
        if ms.abs() > DURATION_DAYS_MAX * MS_PER_DAY {
            return None;
        }
        i64::try_from(ms).ok().map(Self::from_ms)
    }
}

impl TryFrom<ScalarText> for Duration {
    type Error = &'static str;

    fn try_from(text: ScalarText) -> Result<Self, Self::Error> {
        Self::parse(&text.0).ok_or("a duration is expected: seconds, or a number with ms, s, m, h, d or w")
    }
}

impl fmt::Display for Duration {
    /// The shortest exact spelling, such as `5s`, `200ms`, `7d`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
        match units.iter().find(|(_, ms)| self.ms != 0 && self.ms % ms == 0) {
            Some((unit, ms)) => write!(f, "{}{unit}", self.ms / ms),
            None if self.ms == 0 => f.write_str("0"),
            None => write!(f, "{}ms", self.ms),
        }
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["number", "string"],
            "pattern": r"^(-?[0-9]+(\.[0-9]+)?\s*(ms|s|m|min|h|d|w)?|\$\{.*\})$",
            "description": "Seconds, or a number with a unit: `200ms`, `5s`, `10m`, `2h`, `7d`, `1w`.",
        })
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "ScalarText")]
pub struct Size {
    bytes: u64,
}

impl Size {
    /// The bytes.
    pub(crate) const fn bytes(self) -> u64 {
        self.bytes
    }

    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = split(text);
        let unit = match unit {
            "" | "B" => 1,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return None,
        };
        let bytes = u64::try_from(exact(number, unit)?).ok()?;
        Some(Self { bytes })
    }
}

impl TryFrom<ScalarText> for Size {
    type Error = &'static str;

    fn try_from(text: ScalarText) -> Result<Self, Self::Error> {
        Self::parse(&text.0).ok_or("a size is expected: bytes, or a number with KiB, MiB, GiB, kB, MB or GB")
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"],
            "pattern": r"^([0-9]+(\.[0-9]+)?\s*(B|kB|KB|MB|GB|KiB|MiB|GiB)?|\$\{.*\})$",
            "description": "Bytes, or a number with a unit: `16MiB`, `1GiB`, `64kB`.",
        })
    }
}

/// Number and unit of a text such as `1.5 h`.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

/// `number` times `unit`, if that is a whole number.
fn exact(number: &str, unit: i128) -> Option<i128> {
    let (negative, digits) = match number.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, number),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |text: &str| text.len() <= 18 && text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !plain(whole) || !plain(fraction) || digits.ends_with('.') {
        return None;
    }
    let mut value = whole.parse::<i128>().ok()?.checked_mul(unit)?;
    if !fraction.is_empty() {
        let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let part = fraction.parse::<i128>().ok()?.checked_mul(unit)?;
        if part % scale != 0 {
            return None;
        }
        value = value.checked_add(part / scale)?;
    }
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::{Duration, Size};

    #[test]
    fn durations() {
        for (text, ms) in [
            ("0", 0),
            ("5", 5_000),
            ("0.2", 200),
            ("200ms", 200),
            ("1.5s", 1_500),
            ("10 m", 600_000),
            ("2h", 7_200_000),
            ("7d", 604_800_000),
            ("1w", 604_800_000),
            ("-1", -1_000),
        ] {
            assert_eq!(Duration::parse(text), Some(Duration::from_ms(ms)), "{text}");
        }
        for text in ["", "s", "5 parsecs", "0.5ms", "1e3", "5.", ".5", "--1", "1-", "99999999d", "0x10"] {
            assert_eq!(Duration::parse(text), None, "{text}");
        }
        for text in ["0", "200ms", "5s", "90s", "7d", "1h"] {
            assert_eq!(Duration::parse(text).map(|d| d.to_string()).as_deref(), Some(text));
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("0", 0), ("1024", 1024), ("16MiB", 16 << 20), ("1.5 KiB", 1536), ("1GB", 1_000_000_000)] {
            assert_eq!(Size::parse(text).map(Size::bytes), Some(bytes), "{text}");
        }
        for text in ["", "MiB", "-1", "1.5", "16 mib", "99999999999999999999"] {
            assert_eq!(Size::parse(text), None, "{text}");
        }
    }
}
