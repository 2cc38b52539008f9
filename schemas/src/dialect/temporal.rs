//! Dates and times as text, read exactly: ISO 8601 as Java writes it, any number of digits, any offset, any year.
//!
//! Case TMP-04: digits of a second vary from record to record, so no fixed pattern will do; case TMP-05: years have signs and more than four
//! digits, and the year 0 is 1 BC. Nothing rounds: what a type of micros gets beyond them is cut ([`is_cut`]), so that no second changes; fewer
//! digits than micros that a type keeps are a fault, unless zeros are missing.

use super::reject::Fault;
use crate::civil;
use crate::types::LogicalType;
use crate::value::{INFINITY, Interval, NEGATIVE_INFINITY, per_second};

/// Digits of micros.
const MICRO_DIGITS: usize = 6;

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
    if let Some(at) = INFINITE_MICROS.iter().position(infinite) {
        return Ok(if at == 0 { INFINITY } else { NEGATIVE_INFINITY });
    }
    if count.div_euclid(unit) < FIRST_DAY * DAY {
        return Err(Fault::Range);
    }
    finite(scaled(count, unit, ty)?)
}

/// The seconds of the first and the last instant that Protobuf has: those of the years 1 to 9999.
const INSTANTS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// An instant of Protobuf in the units of `ty`. One that is finer than micros is counted where these are all that the type keeps.
pub(super) fn instant(seconds: i64, nanos: i32, ty: LogicalType, cut: &mut u64) -> Result<i64, Fault> {
    if !INSTANTS.contains(&seconds) || !(0..1_000_000_000).contains(&nanos) {
        return Err(Fault::Range);
    }
    let unit = per_second(ty);
    let finest = 1_000_000_000 / unit;
    *cut += u64::from(i64::from(nanos) % finest != 0);
    let count = seconds.checked_mul(unit).and_then(|count| count.checked_add(i64::from(nanos) / finest)).ok_or(Fault::Range)?;
    finite(scaled(count, unit, ty)?)
}

/// A span as a count of `unit`s to the second in the units of `ty`. What does not fit arrives as the last number of either sign.
pub(super) fn duration(count: i64, unit: i64, ty: LogicalType) -> Result<i64, Fault> {
    finite(count).and_then(|count| scaled(count, unit, ty))
}

fn finite(count: i64) -> Result<i64, Fault> {
    if matches!(count, INFINITY | NEGATIVE_INFINITY) { Err(Fault::Range) } else { Ok(count) }
}

/// A count of `unit`s to the second in the units of `ty`, whose digits must hold it; only what is finer than micros is cut.
pub(super) fn scaled(count: i64, unit: i64, ty: LogicalType) -> Result<i64, Fault> {
    let target = per_second(ty);
    let count = if target >= unit { count.checked_mul(target / unit).ok_or(Fault::Range)? } else { count.div_euclid(unit / target) };
    let finest = target / 10_i64.pow(digits(ty).into());
    if count % finest == 0 { Ok(count) } else { Err(Fault::Precision) }
}

fn digits(ty: LogicalType) -> u8 {
    match ty {
        LogicalType::Time { digits } | LogicalType::Timestamp { digits } | LogicalType::TimestampTz { digits } | LogicalType::Duration { digits } => {
            digits.min(9)
        }
        _ => 0,
    }
}

/// Whether a text has a fraction of a second that is finer than micros, in a type that counts these.
pub(super) fn is_cut(text: &str, ty: LogicalType) -> bool {
    let Some((_, fraction)) = text.split_once('.').filter(|_| !ty.counts_nanos()) else { return false };
    fraction.bytes().take_while(u8::is_ascii_digit).skip(MICRO_DIGITS).any(|b| b != b'0')
}

/// A date: `2024-02-29`, `-0043-03-15`, `+10000-01-01`. A `Z` behind it, as isostring mode has it, says nothing.
pub(super) fn parse_date(text: &str) -> Result<i32, Fault> {
    if infinity(text).is_some() {
        return Err(Fault::Infinite);
    }
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
    if let Some(infinity) = infinity(text) {
        return Ok(infinity);
    }
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
    finite(time.within(days * DAY - offset, ty)?)
}

/// A timestamp as connectors write nearly all of them, `2024-02-29T13:51:30.123456Z` with up to six digits; `None` for every other spelling and for
/// what is none, which [`parse_timestamp`] is for.
pub(super) fn usual_timestamp(text: &[u8], ty: LogicalType) -> Option<i64> {
    let (clock, rest) = text.split_first_chunk::<19>()?;
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, b'T', h1, h2, b':', n1, n2, b':', s1, s2] = clock else { return None };
    let two = |high: &u8, low: &u8| (high.is_ascii_digit() && low.is_ascii_digit()).then(|| (high - b'0') * 10 + (low - b'0'));
    let year = i64::from(two(y1, y2)?) * 100 + i64::from(two(y3, y4)?);
    let [month, day, hours, minutes, seconds] = [two(m1, m2)?, two(d1, d2)?, two(h1, h2)?, two(n1, n2)?, two(s1, s2)?];
    let fraction = match rest {
        [b'Z'] => &[],
        [b'.', fraction @ .., b'Z'] if (1..=MICRO_DIGITS).contains(&fraction.len()) && fraction.iter().all(u8::is_ascii_digit) => fraction,
        _ => return None,
    };
    if hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    let micros = fraction.iter().fold((0, 1_000_000), |(sum, unit), b| (sum + i64::from(b - b'0') * (unit / 10), unit / 10)).0;
    let finest = 10_i64.pow(MICRO_DIGITS.saturating_sub(digits(ty).into()) as u32);
    if micros % finest != 0 {
        return None;
    }
    let seconds = civil::days_of_date(year, month, day)? * DAY + i64::from(hours) * 3600 + i64::from(minutes) * 60 + i64::from(seconds);
    seconds.checked_mul(1_000_000)?.checked_add(micros)?.checked_mul(per_second(ty) / 1_000_000)
}

/// Case TMP-03: infinity as text.
fn infinity(text: &str) -> Option<i64> {
    let (unsigned, infinity) = text.strip_prefix('-').map_or((text.strip_prefix('+').unwrap_or(text), INFINITY), |rest| (rest, NEGATIVE_INFINITY));
    unsigned.eq_ignore_ascii_case("infinity").then_some(infinity)
}

/// A span of time: `-838:59:59.5`, with any number of hours.
pub(super) fn parse_duration(text: &str, ty: LogicalType) -> Result<i64, Fault> {
    let (sign, unsigned) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (hours, rest) = unsigned.split_once(':').ok_or(Fault::Kind)?;
    let hours = number(hours).ok_or(Fault::Kind)?;
    // What stands behind the hours is the clock's.
    let (clock, rest) = take_clock(0, rest).ok_or(Fault::Kind)?;
    if !rest.is_empty() {
        return Err(Fault::Kind);
    }
    Ok(sign * clock.within(hours * 3600, ty)?)
}

/// A span of the calendar in ISO 8601, every part with a sign of its own (case TMP-08): `P0Y-1M3DT0H0M-0.5S`.
pub(super) fn parse_interval(text: &str) -> Result<Interval, Fault> {
    let mut rest = text.strip_prefix('P').filter(|rest| !rest.is_empty()).ok_or(Fault::Kind)?;
    let (mut months, mut days, mut micros) = (0_i64, 0_i64, 0_i128);
    let mut last = 0;
    let mut is_time = false;
    while !rest.is_empty() {
        if let Some(time) = rest.strip_prefix('T').filter(|time| !is_time && !time.is_empty()) {
            (is_time, rest) = (true, time);
            continue;
        }
        let end = rest.find(|c: char| c.is_ascii_alphabetic()).ok_or(Fault::Kind)?;
        let (amount, unit) = (&rest[..end], rest.as_bytes()[end]);
        rest = &rest[end + 1..];
        // Units come in their order, each once; weeks are days.
        let place = b"YMWDHMS".iter().enumerate().position(|(at, u)| *u == unit && (at > 3) == is_time && at >= last).ok_or(Fault::Kind)?;
        last = place + 1;
        if unit == b'S' {
            micros += i128::from(seconds(amount)?);
            continue;
        }
        let amount: i64 = amount.strip_prefix('+').unwrap_or(amount).parse().map_err(|_| Fault::Kind)?;
        match place {
            0 => months = amount.checked_mul(12).ok_or(Fault::Range)?,
            1 => months = months.checked_add(amount).ok_or(Fault::Range)?,
            2 => days = amount.checked_mul(7).ok_or(Fault::Range)?,
            3 => days = days.checked_add(amount).ok_or(Fault::Range)?,
            4 => micros += i128::from(amount) * 3_600_000_000,
            _ => micros += i128::from(amount) * 60_000_000,
        }
    }
    if last == 0 || text.ends_with('T') {
        return Err(Fault::Kind);
    }
    let part = |v: i64| i32::try_from(v).map_err(|_| Fault::Range);
    Ok(Interval { months: part(months)?, days: part(days)?, micros: i64::try_from(micros).map_err(|_| Fault::Range)? })
}

/// Micros of seconds as text; the sign may stand before a zero.
fn seconds(text: &str) -> Result<i64, Fault> {
    let (sign, unsigned) = text.strip_prefix('-').map_or((1, text.strip_prefix('+').unwrap_or(text)), |rest| (-1, rest));
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
    let whole: i64 = whole.bytes().all(|b| b.is_ascii_digit()).then(|| whole.parse().ok()).flatten().ok_or(Fault::Kind)?;
    let kept = fraction.trim_end_matches('0');
    if fraction.is_empty() || !kept.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Fault::Kind);
    }
    if kept.len() > MICRO_DIGITS {
        return Err(Fault::Precision);
    }
    let fraction = kept.bytes().fold((0, 1_000_000), |(sum, unit), b| (sum + i64::from(b - b'0') * (unit / 10), unit / 10)).0;
    whole.checked_mul(1_000_000).and_then(|micros| micros.checked_add(fraction)).map(|micros| sign * micros).ok_or(Fault::Range)
}

/// Seconds of a day and the digits behind them.
struct Clock<'a> {
    seconds: i64,
    fraction: &'a str,
}

impl Clock<'_> {
    fn within(&self, base: i64, ty: LogicalType) -> Result<i64, Fault> {
        let finest = if ty.counts_nanos() { self.fraction.len() } else { self.fraction.len().min(MICRO_DIGITS) };
        let kept = self.fraction[..finest].trim_end_matches('0');
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
    let (clock, rest) = take_clock(hours, text.get(2..)?.strip_prefix(':')?)?;
    let valid = clock.seconds < DAY || (clock.seconds == DAY && clock.fraction.bytes().all(|b| b == b'0'));
    valid.then_some((clock, rest))
}

/// What stands behind the hours and their colon.
fn take_clock(hours: i64, text: &str) -> Option<(Clock<'_>, &str)> {
    let minutes = number(text.get(..2)?)?;
    let mut rest = &text[2..];
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
    (minutes < 60 && seconds < 60).then_some((Clock { seconds: hours * 3600 + minutes * 60 + seconds, fraction }, rest))
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
        assert_eq!(micros("2023-09-08T13:00:01.9999999Z"), Ok(1_694_178_001_999_999), "cut, never rounded: the second stays");
        assert_eq!(micros("1969-12-31T23:59:59.9999999Z"), Ok(-1));
        assert!(is_cut("2023-09-08T13:00:01.9999999Z", ty("timestamptz(6)")) && !is_cut("2023-09-08T13:00:01.9999990Z", ty("timestamptz(6)")));
        assert!(!is_cut("2023-09-08T13:00:01.9999999Z", ty("timestamptz(9)")));
        assert_eq!(parse_timestamp("2023-09-08T13:00:01.9999Z", ty("timestamptz(3)")), Err(Fault::Precision));
        assert_eq!(micros("2023-09-08T13:00:01.999999000Z"), Ok(1_694_178_001_999_999));
        assert_eq!(micros("2023-09-08T13:00Z"), Ok(1_694_178_000_000_000));
        assert_eq!(parse_timestamp("2023-09-08T13:00:01.9999999Z", ty("timestamptz(9)")), Ok(1_694_178_001_999_999_900));
        assert_eq!(parse_timestamp("2023-09-08 13:00:01", ty("timestamp(0)")), Ok(1_694_178_001_000_000));
        assert_eq!(micros("2023-09-08T13:00:01"), Err(Fault::Kind));
        assert_eq!(micros("2023-09-08T13:00:01-03:30"), Ok(1_694_190_601_000_000));
    }

    #[test]
    fn the_usual_spelling_says_what_it_says_in_any() {
        let text = "2024-02-29T13:51:30.123456Z";
        let types = ["timestamptz(6)", "timestamp(6)", "timestamp(3)", "timestamptz(0)", "timestamp(9)"].map(ty);
        let mut usual = 0;
        for len in 0..=6 {
            let fraction = if len == 0 { "Z".to_owned() } else { format!(".{}Z", &"123456"[..len]) };
            let whole = format!("{}{fraction}", &text[..19]);
            for (at, _) in whole.char_indices() {
                for byte in b"0123459-+.:TZ " {
                    let mut damaged = whole.clone().into_bytes();
                    damaged[at] = *byte;
                    for ty in types {
                        let Some(units) = usual_timestamp(&damaged, ty) else { continue };
                        usual += 1;
                        let text = std::str::from_utf8(&damaged).expect("text");
                        assert_eq!((Ok(units), false), (parse_timestamp(text, ty), is_cut(text, ty)), "{text} as {ty}");
                    }
                }
            }
        }
        assert!(usual > 1_000, "{usual}");
        assert_eq!(usual_timestamp(text.as_bytes(), ty("timestamptz(6)")), Some(1_709_214_690_123_456));
        for odd in [
            "2024-02-29T13:51:30.1234567Z",
            "2024-02-29T13:51:30",
            "2024-02-29T13:51:30+01:00",
            "2023-02-29T13:51:30Z",
            "+18250-07-09T05:04:03Z",
            "infinity",
        ] {
            assert_eq!(usual_timestamp(odd.as_bytes(), ty("timestamptz(6)")), None, "{odd}");
        }
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
        for (text, infinity) in [("infinity", INFINITY), ("-infinity", NEGATIVE_INFINITY), ("Infinity", INFINITY)] {
            assert_eq!(parse_timestamp(text, ty("timestamptz(6)")), Ok(infinity));
            assert_eq!(parse_date(text), Err(Fault::Infinite));
        }
        // As captured from a Postgres connector, see tests/fixtures.
        assert_eq!(timestamp(9_223_372_036_825_200_000, 1_000_000, ty("timestamp(6)")), Ok(INFINITY));
        assert_eq!(timestamp(-9_223_372_036_832_400, 1_000, ty("timestamp(3)")), Ok(NEGATIVE_INFINITY));
        assert_eq!(timestamp(i64::MAX, 1_000_000_000, ty("timestamp(9)")), Err(Fault::Range), "the wreck of a number that did not fit");
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
        assert_eq!(timestamp(100, 1_000_000_000, ty("timestamp(6)")), Ok(0), "100 ns are cut");
        assert_eq!(timestamp(1_001, 1_000_000, ty("timestamp(3)")), Err(Fault::Precision));
        assert_eq!(timestamp(1_000, 1_000_000, ty("timestamp(3)")), Ok(1_000));
    }

    #[test]
    fn case_tmp_07_spans_have_a_sign_and_any_number_of_hours() {
        let micros = |text| parse_duration(text, ty("duration(6)"));
        assert_eq!(micros("-838:59:59"), Ok(-3_020_399_000_000));
        assert_eq!(micros("838:59:59.5"), Ok(3_020_399_500_000));
        assert_eq!(micros("00:00:00.000001"), Ok(1));
        assert_eq!(duration(3_020_399_000_000, 1_000_000, ty("duration(6)")), Ok(3_020_399_000_000));
        assert_eq!(duration(i64::MAX, 1_000_000, ty("duration(6)")), Err(Fault::Range), "178000000 years, as a connector counts them");
        for text in ["", "12", "12:60:00", "12:00:60", "--1:00:00", ":00:00", "1:00:00x", "9999999999:00:00"] {
            assert!(micros(text).is_err(), "{text}");
        }
    }

    #[test]
    fn case_tmp_08_every_part_of_an_interval_has_its_sign() {
        let interval = |months, days, micros| Ok(Interval { months, days, micros });
        assert_eq!(parse_interval("P2Y5M7DT6H8M9.25S"), interval(29, 7, 22_089_250_000));
        assert_eq!(parse_interval("P0Y-1M3DT0H0M-0.5S"), interval(-1, 3, -500_000));
        assert_eq!(parse_interval("P-1Y-2M3DT-4H-5M-6.000001S"), interval(-14, 3, -14_706_000_001));
        assert_eq!(parse_interval("P178000000Y0M0DT0H0M0S"), interval(2_136_000_000, 0, 0));
        assert_eq!(parse_interval("P2W"), interval(0, 14, 0));
        assert_eq!(parse_interval("PT1.0000001S"), Err(Fault::Precision));
        assert_eq!(parse_interval("P999999999Y"), Err(Fault::Range));
        for text in ["", "P", "PT", "P1", "1Y", "P1DT", "PT1D", "P1H", "P1M1Y", "P1Y1Y", "P1.5Y", "PT1.S", "PTS", "P--1Y", "PéY", "P1YT1H1H"] {
            assert_eq!(parse_interval(text), Err(Fault::Kind), "{text}");
        }
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
