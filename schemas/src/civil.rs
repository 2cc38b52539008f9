//! Days and calendar dates over the whole range that sources can hold.
//!
//! Postgres dates run from 4713 BC to the year 5874897, beyond what calendar libraries take, and nothing here needs a time zone: only the
//! proleptic Gregorian calendar, in both directions. The arithmetic counts eras of 400 years, each exactly 146 097 days long.

use std::fmt::Write as _;

/// A date: astronomical year (0 is 1 BC), month 1–12, day 1–31.
pub fn date_of_days(days: i64) -> (i64, u8, u8) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = (doy - (153 * mp + 2) / 5 + 1) as u8;
    let month = if mp < 10 { mp + 3 } else { mp - 9 } as u8;
    (yoe + era * 400 + i64::from(month <= 2), month, day)
}

/// Days since 1970-01-01 of a date, or `None` where month or day do not exist.
pub fn days_of_date(year: i64, month: u8, day: u8) -> Option<i64> {
    if !(1..=12).contains(&month) || day == 0 || day > days_in_month(year, month) || year.unsigned_abs() > 10_000_000 {
        return None;
    }
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let mp = (i64::from(month) + 9) % 12;
    let doy = (153 * mp + 2) / 5 + i64::from(day) - 1;
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    Some(era * 146_097 + doe - 719_468)
}

fn days_in_month(year: i64, month: u8) -> u8 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Appends `YYYY-MM-DD`; years beyond four digits get a sign, as ISO 8601 asks.
pub fn push_date(out: &mut String, days: i64) {
    let (year, month, day) = date_of_days(days);
    let written = match year {
        0..=9999 => write!(out, "{year:04}-{month:02}-{day:02}"),
        _ => write!(out, "{year:+05}-{month:02}-{day:02}"),
    };
    written.expect("a String takes every write");
}

/// Appends `HH:MM:SS` and a fraction of `digits` digits for a time given in units of `per_second` to the second.
pub fn push_time(out: &mut String, units: i64, per_second: i64, digits: u8) {
    let seconds = units.div_euclid(per_second);
    let fraction = units.rem_euclid(per_second);
    write!(out, "{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60).expect("a String takes every write");
    if digits > 0 {
        let nanos = fraction * (1_000_000_000 / per_second);
        let text = format!("{nanos:09}");
        out.push('.');
        out.push_str(&text[..usize::from(digits.min(9))]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_days() {
        for (days, date) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (2_932_896, "9999-12-31"),
            (-719_162, "0001-01-01"),
            (-719_528, "0000-01-01"),
            (106_751_991, "+294247-01-10"),
        ] {
            let mut text = String::new();
            push_date(&mut text, days);
            assert_eq!(text, date);
        }
    }

    #[test]
    fn both_directions_agree() {
        for days in (-2_500_000..=2_200_000_000_i64).step_by(99_991) {
            let (y, m, d) = date_of_days(days);
            if y.unsigned_abs() <= 10_000_000 {
                assert_eq!(days_of_date(y, m, d), Some(days));
            }
        }
        for (y, m, d) in [(2023, 2, 29), (2023, 0, 1), (2023, 13, 1), (2023, 4, 31), (2023, 1, 0), (1900, 2, 29)] {
            assert_eq!(days_of_date(y, m, d), None);
        }
    }
}
