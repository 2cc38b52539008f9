//! Dates and times as text, read exactly: ISO 8601 as Java writes it, any number of digits, any offset, any year.
//!
//! Case TMP-04: digits of a second vary from record to record, so no fixed pattern will do; case TMP-05: years have signs and more than four
//! digits, and the year 0 is 1 BC. Nothing rounds: digits that the target does not keep are a fault, unless they are zeros.

use super::reject::Fault;
use crate::civil;
use crate::types::LogicalType;
use crate::value::per_second;

/// Seconds of a day.
const DAY: i64 = 86_400;

/// The earliest day of any source: 24 November 4714 BC, where the Julian calendar of Postgres begins. What lies before it is the wreck of a
/// number that did not fit, such as an infinite date or the year 294276 in micros.
const FIRST_DAY: i64 = -2_440_588;

/// Micros that Debezium's Postgres connector sends for infinite timestamps.
const INFINITE_MICROS: [i64; 2] = [9_223_372_036_825_200_000, -9_223_372_036_832_400_000];

/// A day number, where a source can hold it.
pub(super) fn day(days: i64) -> Result<i32, Fault> {
    if days < FIRST_DAY { Err(Fault::Range) } else { i32::try_from(days).map_err(|_| Fault::Range) }
}

/// A count of `unit`s to the second, since the epoch, in the units of `ty`.
pub(super) fn timestamp(count: i64, unit: i64, ty: LogicalType) -> Result<i64, Fault> {
    let infinite = |micros: &i64| match unit {
        1_000 => micros / 1_000 == count,
        1_000_000 => *micros == count,
        _ => false,
    };
    if INFINITE_MICROS.iter().any(infinite) {
        return Err(Fault::Infinite);
    }
    if count.div_euclid(unit) < FIRST_DAY * DAY {
        return Err(Fault::Range);
    }
    scaled(count, unit, ty)
}

/// A count of `unit`s to the second in the units of `ty`, whose digits must hold it.
pub(super) fn scaled(count: i64, unit: i64, ty: LogicalType) -> Result<i64, Fault> {
    let target = per_second(ty);
    let count = if target >= unit {
        count.checked_mul(target / unit).ok_or(Fault::Range)?
    } else if count % (unit / target) == 0 {
        count / (unit / target)
    } else {
        return Err(Fault::Precision);
    };
    let finest = target / 10_i64.pow(digits(ty).into());
    if count % finest == 0 { Ok(count) } else { Err(Fault::Precision) }
}

fn digits(ty: LogicalType) -> u8 {
    match ty {
        LogicalType::Time { digits } | LogicalType::Timestamp { digits } | LogicalType::TimestampTz { digits } => digits.min(9),
        _ => 0,
    }
}

/// A date: `2024-02-29`, `-0043-03-15`, `+10000-01-01`. A `Z` behind it, as isostring mode has it, says nothing.
pub(super) fn parse_date(text: &str) -> Result<i32, Fault> {
    refuse_infinity(text)?;
    let (days, rest) = take_date(text).ok_or(Fault::Kind)?;
    if matches!(rest, "" | "Z") { day(days) } else { Err(Fault::Kind) }
}

/// A time of day in the units of `ty`: `13:51:30.123`, `24:00`; a `Z` behind it says nothing.
pub(super) fn parse_time(text: &str, ty: LogicalType) -> Result<i64, Fault> {
    let (time, rest) = take_time(text).ok_or(Fault::Kind)?;
    if matches!(rest, "" | "Z") { time.within(0, ty) } else { Err(Fault::Kind) }
}

/// A timestamp in the units of `ty`. One with a zone needs `Z` or an offset, one without may have a `Z`, which says nothing there.
pub(super) fn parse_timestamp(text: &str, ty: LogicalType) -> Result<i64, Fault> {
    refuse_infinity(text)?;
    let (days, rest) = take_date(text).ok_or(Fault::Kind)?;
    let rest = rest.strip_prefix(['T', ' ']).ok_or(Fault::Kind)?;
    let (time, rest) = take_time(rest).ok_or(Fault::Kind)?;
    let zoned = matches!(ty, LogicalType::TimestampTz { .. });
    let offset = match rest {
        "" if !zoned => 0,
        "Z" => 0,
        _ if zoned => take_offset(rest).ok_or(Fault::Kind)?,
        _ => return Err(Fault::Kind),
    };
    // Its instant is what a source can hold or not, not the date that stands for it elsewhere.
    if days * DAY + time.seconds - offset < FIRST_DAY * DAY {
        return Err(Fault::Range);
    }
    time.within(days * DAY - offset, ty)
}

fn refuse_infinity(text: &str) -> Result<(), Fault> {
    if text.trim_start_matches(['-', '+']).eq_ignore_ascii_case("infinity") { Err(Fault::Infinite) } else { Ok(()) }
}

/// Seconds of a day and the digits behind them.
struct Clock<'a> {
    seconds: i64,
    fraction: &'a str,
}

impl Clock<'_> {
    fn within(&self, base: i64, ty: LogicalType) -> Result<i64, Fault> {
        let kept = self.fraction.trim_end_matches('0');
        if kept.len() > usize::from(digits(ty)) {
            return Err(Fault::Precision);
        }
        let per = per_second(ty);
        let fraction = kept.bytes().fold((0, per), |(sum, unit), b| (sum + i64::from(b - b'0') * (unit / 10), unit / 10)).0;
        (base + self.seconds).checked_mul(per).and_then(|units| units.checked_add(fraction)).ok_or(Fault::Range)
    }
}

fn take_date(text: &str) -> Option<(i64, &str)> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let dash = unsigned.find('-').filter(|dash| (4..=9).contains(dash))?;
    let year = number(&unsigned[..dash])?;
    let rest = &unsigned[dash + 1..];
    let month = number(rest.get(..2)?)?;
    let day = number(rest.get(2..)?.strip_prefix('-')?.get(..2)?)?;
    let days = civil::days_of_date(if negative { -year } else { year }, month as u8, day as u8)?;
    Some((days, &rest[5..]))
}

fn take_time(text: &str) -> Option<(Clock<'_>, &str)> {
    let hours = number(text.get(..2)?)?;
    let minutes = number(text.get(2..)?.strip_prefix(':')?.get(..2)?)?;
    let mut rest = &text[5..];
    let mut seconds = 0;
    let mut fraction = "";
    if let Some(tail) = rest.strip_prefix(':') {
        seconds = number(tail.get(..2)?)?;
        rest = &tail[2..];
        if let Some(tail) = rest.strip_prefix('.') {
            let end = tail.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(tail.len());
            if end == 0 {
                return None;
            }
            (fraction, rest) = tail.split_at(end);
        }
    }
    let total = hours * 3600 + minutes * 60 + seconds;
    let valid = minutes < 60 && seconds < 60 && (total < DAY || (total == DAY && fraction.bytes().all(|b| b == b'0')));
    valid.then_some((Clock { seconds: total, fraction }, rest))
}

/// Seconds east of Greenwich: `+03:00`, `-0330`, `+14`, `+05:30:15`.
fn take_offset(text: &str) -> Option<i64> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (mut seconds, mut unit) = (0, 3600);
    let mut rest = &text[1..];
    while !rest.is_empty() {
        let part = number(rest.get(..2)?)?;
        if unit == 0 || (unit < 3600 && part >= 60) || part > 23 && unit == 3600 {
            return None;
        }
        seconds += part * unit;
        unit /= 60;
        rest = &rest[2..];
        if let Some(tail) = rest.strip_prefix(':') {
            rest = tail;
            if rest.is_empty() {
                return None;
            }
        }
    }
    (unit < 3600).then_some(sign * seconds)
}

/// Up to nine digits and nothing else.
fn number(text: &str) -> Option<i64> {
    if text.is_empty() || text.len() > 9 {
        return None;
    }
    text.bytes().try_fold(0, |n, b| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ty(text: &str) -> LogicalType {
        text.parse().expect(text)
    }

    #[test]
    fn case_tmp_04_digits_and_offsets_vary() {
        let micros = |text| parse_timestamp(text, ty("timestamptz(6)"));
        assert_eq!(micros("2023-09-08T13:00:01Z"), Ok(1_694_178_001_000_000));
        assert_eq!(micros("2023-09-08T16:00:01.702905+03:00"), Ok(1_694_178_001_702_905));
        assert_eq!(micros("2023-09-08T13:00:01.7Z"), Ok(1_694_178_001_700_000));
        assert_eq!(micros("2023-09-08T13:00:01.9999999Z"), Err(Fault::Precision));
        assert_eq!(micros("2023-09-08T13:00:01.999999000Z"), Ok(1_694_178_001_999_999));
        assert_eq!(micros("2023-09-08T13:00Z"), Ok(1_694_178_000_000_000));
        assert_eq!(parse_timestamp("2023-09-08T13:00:01.9999999Z", ty("timestamptz(9)")), Ok(1_694_178_001_999_999_900));
        assert_eq!(parse_timestamp("2023-09-08 13:00:01", ty("timestamp(0)")), Ok(1_694_178_001_000_000));
        assert_eq!(micros("2023-09-08T13:00:01"), Err(Fault::Kind));
        assert_eq!(micros("2023-09-08T13:00:01-03:30"), Ok(1_694_190_601_000_000));
    }

    #[test]
    fn case_tmp_05_years_beyond_four_digits() {
        let micros = |text| parse_timestamp(text, ty("timestamptz(6)"));
        assert_eq!(micros("+18250-07-09T05:04:03.020100Z"), Ok(513_763_535_043_020_100));
        assert_eq!(micros("-4712-01-01T00:00:00.000000Z"), Ok(-210_863_520_000_000_000));
        assert_eq!(micros("-0043-03-15T12:00:00.000001Z"), Ok(-63_517_780_799_999_999));
        assert_eq!(micros("+294276-12-31T23:59:59.999999Z"), Err(Fault::Range));
        assert_eq!(micros("-4800-01-01T00:00:00Z"), Err(Fault::Range));
        assert_eq!(micros("-4713-11-24T00:00:00Z"), Ok(-210_866_803_200_000_000));
        assert_eq!(micros("-4713-11-24T00:00:01+03:00"), Err(Fault::Range));
        assert_eq!(micros("-4713-11-23T23:00:00-01:00"), Ok(-210_866_803_200_000_000));
        assert_eq!(parse_date("-4713-11-24"), Ok(-2_440_588));
        assert_eq!(parse_date("-4713-11-23"), Err(Fault::Range));
        assert_eq!(parse_date("+5874897-12-31"), Ok(2_145_042_905));
    }

    #[test]
    fn infinities_and_wrecks_have_names() {
        for text in ["infinity", "-infinity", "Infinity"] {
            assert_eq!(parse_timestamp(text, ty("timestamptz(6)")), Err(Fault::Infinite));
            assert_eq!(parse_date(text), Err(Fault::Infinite));
        }
        // As captured from a Postgres connector, see tests/fixtures.
        assert_eq!(timestamp(9_223_372_036_825_200_000, 1_000_000, ty("timestamp(6)")), Err(Fault::Infinite));
        assert_eq!(timestamp(-9_223_372_036_832_400, 1_000, ty("timestamp(3)")), Err(Fault::Infinite));
        assert_eq!(timestamp(-9_223_372_036_853_775_810, 1_000_000, ty("timestamp(6)")), Err(Fault::Range));
        assert_eq!(timestamp(9_224_318_015_999_999, 1_000, ty("timestamp(3)")), Err(Fault::Range));
        for wreck in [-622_191_234, -625_821_272, -2_147_472_692, -2_147_472_691] {
            assert_eq!(day(wreck), Err(Fault::Range));
        }
    }

    #[test]
    fn case_tmp_02_the_unit_is_given_never_guessed() {
        for (count, unit) in [(-2_208_988_800_000, 1_000), (-2_208_988_800_000_000, 1_000_000)] {
            assert_eq!(timestamp(count, unit, ty("timestamp(6)")), Ok(-2_208_988_800_000_000));
        }
        assert_eq!(timestamp(-2_208_988_800_000_000_000, 1_000_000_000, ty("timestamp(9)")), Ok(-2_208_988_800_000_000_000));
        assert_eq!(timestamp(100, 1_000_000_000, ty("timestamp(6)")), Err(Fault::Precision));
        assert_eq!(timestamp(1_001, 1_000_000, ty("timestamp(3)")), Err(Fault::Precision));
        assert_eq!(timestamp(1_000, 1_000_000, ty("timestamp(3)")), Ok(1_000));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in
            ["", "2023", "2023-02-30", "2023-13-01", "23-01-01", "2023-1-1", "2023-01-01T", "2023-01-01x", "é023-01-01", "20é3-01-01", "2023-01-0é"]
        {
            assert!(parse_date(text).is_err(), "{text}");
        }
        for text in ["", "24:00:01", "12:60", "12:00:60", "1:00", "12:00:00.", "12:00:00.é", "12:é", "-1:00:00", "12:00:00+01"] {
            assert!(parse_time(text, ty("time(6)")).is_err(), "{text}");
        }
        assert_eq!(parse_time("24:00:00.000", ty("time(6)")), Ok(86_400_000_000));
        for offset in ["+", "+3", "+24:00", "+03:60", "+03:", "03:00", "+03:00:00:00", "+é"] {
            assert!(parse_timestamp(&format!("2023-01-01T00:00:00{offset}"), ty("timestamptz(6)")).is_err(), "{offset}");
        }
    }
}
