//! Dates and timestamps as text: the common spelling by hand, every other by arrow.

use arrow_array::types::Date32Type;
use arrow_cast::parse::{Parser, string_to_timestamp_nanos};

const DAY_MS: i64 = 86_400_000;

/// Days since 1970-01-01 of a proleptic Gregorian date (Howard Hinnant's `days_from_civil`).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    let mut value = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(value)
}

/// `2013-01-31` as days since 1970-01-01.
fn plain_date(text: &[u8]) -> Option<i64> {
    if text.len() != 10 || text[4] != b'-' || text[7] != b'-' {
        return None;
    }
    let (year, month, day) = (number(&text[..4])?, number(&text[5..7])?, number(&text[8..])?);
    let exists = (1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day);
    exists.then(|| days_from_civil(year, month, day))
}

/// A date as days since 1970-01-01.
pub(super) fn parse_date(text: &str) -> Option<i32> {
    match plain_date(text.as_bytes()) {
        Some(days) => i32::try_from(days).ok(),
        None => Date32Type::parse(text),
    }
}

/// A timestamp as Unix milliseconds.
pub(super) fn parse_timestamp_ms(text: &str) -> Option<i64> {
    plain_timestamp(text.as_bytes())
        .or_else(|| string_to_timestamp_nanos(text).ok().map(|nanos| nanos.div_euclid(1_000_000)))
}

/// `2013-01-31T10:00:00Z`, with `.123` optional.
fn plain_timestamp(text: &[u8]) -> Option<i64> {
    let (time, milliseconds) = match text {
        [time @ .., b'.', a, b, c, b'Z'] if time.len() == 19 => (time, number(&[*a, *b, *c])?),
        [time @ .., b'Z'] if time.len() == 19 => (time, 0),
        _ => return None,
    };
    if !matches!(time[10], b'T' | b' ') || time[13] != b':' || time[16] != b':' {
        return None;
    }
    let days = plain_date(&time[..10])?;
    let (hour, minute, second) = (number(&time[11..13])?, number(&time[14..16])?, number(&time[17..])?);
    let exists = hour < 24 && minute < 60 && second < 60;
    exists.then(|| days * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1_000 + milliseconds)
}

fn write_digits(out: &mut Vec<u8>, value: i64, width: usize) {
    let text = out.len();
    out.resize(text + width, b'0');
    let mut rest = value;
    for slot in out[text..].iter_mut().rev() {
        *slot = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

/// Years that four digits hold.
fn is_plain_year(year: i64) -> bool {
    (0..=9_999).contains(&year)
}

/// Writes `2013-01-31`; a year that four digits do not hold gets its sign (ISO 8601's expanded form).
pub(super) fn write_date(out: &mut Vec<u8>, days: i64) {
    let (year, month, day) = civil_from_days(days);
    if is_plain_year(year) {
        write_digits(out, year, 4);
    } else {
        out.push(if year < 0 { b'-' } else { b'+' });
        write_digits(out, year.abs(), 6);
    }
    out.push(b'-');
    write_digits(out, month, 2);
    out.push(b'-');
    write_digits(out, day, 2);
}

/// Writes `2013-01-31T10:00:00Z`, with the fraction in as many digits as it needs (0, 3, 6 or 9). `per_second` is
/// the number of units in a second.
pub(super) fn write_timestamp(out: &mut Vec<u8>, value: i64, per_second: i64, zulu: bool) {
    let (seconds, fraction) = (value.div_euclid(per_second), value.rem_euclid(per_second));
    write_date(out, seconds.div_euclid(86_400));
    let second_of_day = seconds.rem_euclid(86_400);
    for (mark, part) in
        [(b'T', second_of_day / 3_600), (b':', second_of_day / 60 % 60), (b':', second_of_day % 60)]
    {
        out.push(mark);
        write_digits(out, part, 2);
    }
    if fraction != 0 {
        let nanos = fraction * (1_000_000_000 / per_second);
        out.push(b'.');
        if nanos % 1_000_000 == 0 {
            write_digits(out, nanos / 1_000_000, 3);
        } else if nanos % 1_000 == 0 {
            write_digits(out, nanos / 1_000, 6);
        } else {
            write_digits(out, nanos, 9);
        }
    }
    if zulu {
        out.push(b'Z');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dates_and_timestamps_are_read_as_arrow_reads_them() {
        for text in ["1970-01-01", "2012-02-29", "1900-03-01", "0001-01-01", "9999-12-31"] {
            assert_eq!(
                plain_date(text.as_bytes()).map(|days| days as i32),
                Date32Type::parse(text),
                "{text}"
            );
        }
        for text in ["2013-02-29", "2013-00-10", "2013-13-01", "2013-01-32", "13-1-1", "NA", ""] {
            assert_eq!(parse_date(text), None, "{text}");
        }
        for text in ["2013-01-01T10:00:00Z", "1969-12-31 23:59:59.999Z", "2013-01-01T10:00:00+02:00"] {
            let expected = string_to_timestamp_nanos(text).unwrap().div_euclid(1_000_000);
            assert_eq!(parse_timestamp_ms(text), Some(expected), "{text}");
        }
        for text in ["2013-01-01T24:00:00Z", "2013-01-01T10:60:00Z", "NA", ""] {
            assert_eq!(parse_timestamp_ms(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_timestamp_reads_as_it_was_written(ms in -62_000_000_000_000i64..253_000_000_000_000) {
            let mut text = Vec::new();
            write_timestamp(&mut text, ms, 1_000, true);
            let text = String::from_utf8(text).unwrap();
            prop_assert_eq!(parse_timestamp_ms(&text), Some(ms), "{}", text);
        }
    }
}
