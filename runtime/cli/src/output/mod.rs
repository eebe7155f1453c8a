//! What is written to standard output: lines, tables, events.

mod progress;
mod table;

use std::io::Write;

pub(crate) use progress::{Reporter, Style};
pub(crate) use table::{table, wrapped_table};

/// Writes one line. A reader that has gone away (`| head`) ends the process quietly, as it does for every filter.
pub(crate) fn line(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.write_all(b"\n"));
    if written.and_then(|()| stdout.flush()).is_err() {
        std::process::exit(i32::from(crate::exit::Exit::Failed.code()));
    }
}

/// A number with its thousands apart.
pub(crate) fn thousands(number: impl TryInto<i128>) -> String {
    let number = number.try_into().unwrap_or_default();
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let cases =
            [(0, "0"), (999, "999"), (1_000, "1,000"), (336_776, "336,776"), (-1_234_567, "-1,234,567")];
        for (number, expected) in cases {
            assert_eq!(thousands(number), expected);
        }
    }
}
