//! Reads typed values out of TOML tables and keeps going after a fault.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::report::Problems;
use super::suggest;

/// A value and the bytes of the text it came from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct At<T> {
    /// The value.
    pub(crate) value: T,
    /// Where it stands.
    pub(crate) span: Range<usize>,
}

impl<T> At<T> {
    /// Puts the two together.
    pub(crate) fn new(value: T, span: Range<usize>) -> Self {
        At { value, span }
    }
}

/// One table of the file. Every getter makes its key known; [`Section::finish`] reports the keys nobody asked for.
pub(crate) struct Section<'a> {
    name: String,
    span: Range<usize>,
    table: &'a DeTable<'a>,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    /// The table called `name` (empty for the whole file), which begins at `span`.
    pub(crate) fn new(name: impl Into<String>, span: Range<usize>, table: &'a DeTable<'a>) -> Self {
        Section { name: name.into(), span, table, known: Vec::new() }
    }

    /// Where the table's header stands.
    pub(crate) fn span(&self) -> &Range<usize> {
        &self.span
    }

    /// The raw table.
    pub(crate) fn table(&self) -> &'a DeTable<'a> {
        self.table
    }

    /// The raw value of a key.
    pub(crate) fn value(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.known.push(key);
        self.table.get(key)
    }

    /// The table under a key.
    pub(crate) fn section(&mut self, key: &'static str, problems: &mut Problems) -> Option<Section<'a>> {
        self.known.push(key);
        let (name, value) = self.table.get_key_value(key)?;
        let path = if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) };
        match value.get_ref() {
            DeValue::Table(table) => Some(Section::new(path, name.span(), table)),
            other => {
                wrong_type(problems, value.span(), &path, "a table", other);
                None
            }
        }
    }

    /// The table under a key that must be there; `example` shows what to write.
    pub(crate) fn required_section(
        &mut self,
        key: &'static str,
        example: &str,
        end_of_text: usize,
        problems: &mut Problems,
    ) -> Option<Section<'a>> {
        if !self.table.contains_key(key) {
            self.known.push(key);
            let help = format!("add it, for example:\n          [{key}]\n          {example}");
            problems.add_with_help(&(end_of_text..end_of_text), format!("section [{key}] is missing"), help);
            return None;
        }
        self.section(key, problems)
    }

    /// A string.
    pub(crate) fn string(&mut self, key: &'static str, problems: &mut Problems) -> Option<At<String>> {
        let value = self.value(key)?;
        string_value(value, &self.full_name(key), problems)
    }

    /// A string that must be there and not be empty; `example` shows one.
    pub(crate) fn required_string(
        &mut self,
        key: &'static str,
        example: &str,
        problems: &mut Problems,
    ) -> Option<At<String>> {
        if !self.require(key, &format!("{key} = \"{example}\""), problems) {
            return None;
        }
        let text = self.string(key, problems)?;
        if text.value.trim().is_empty() {
            problems.add(&text.span, format!("{} must not be empty", self.full_name(key)));
            return None;
        }
        Some(text)
    }

    /// Reports a key that is missing; `example` is a line that would do.
    pub(crate) fn require(&mut self, key: &'static str, example: &str, problems: &mut Problems) -> bool {
        self.known.push(key);
        let there = self.table.contains_key(key);
        if !there {
            let message = format!("key '{key}' is missing in [{}]", self.name);
            problems.add_with_help(&self.span, message, format!("add it, for example: {example}"));
        }
        there
    }

    /// A list of strings; a single string counts as a list of one.
    pub(crate) fn strings(&mut self, key: &'static str, problems: &mut Problems) -> Option<Vec<At<String>>> {
        let value = self.value(key)?;
        let name = self.full_name(key);
        match value.get_ref() {
            DeValue::String(text) => Some(vec![At::new(text.to_string(), value.span())]),
            DeValue::Array(items) => {
                Some(items.iter().filter_map(|item| string_value(item, &name, problems)).collect())
            }
            other => {
                wrong_type(problems, value.span(), &name, "a string or a list of strings", other);
                None
            }
        }
    }

    /// A whole number within `range`.
    pub(crate) fn integer(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<i64>,
        problems: &mut Problems,
    ) -> Option<At<i64>> {
        let value = self.value(key)?;
        let name = self.full_name(key);
        let DeValue::Integer(digits) = value.get_ref() else {
            wrong_type(problems, value.span(), &name, "a whole number", value.get_ref());
            return None;
        };
        let number = i64::from_str_radix(digits.as_str(), digits.radix()).ok();
        match number.filter(|number| range.contains(number)) {
            Some(number) => Some(At::new(number, value.span())),
            None => {
                let message = format!("{name} must be from {} to {}", range.start(), range.end());
                problems.add(&value.span(), message);
                None
            }
        }
    }

    /// A size such as "256MiB", or a number of bytes, within `range`.
    pub(crate) fn bytes(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<u64>,
        problems: &mut Problems,
    ) -> Option<At<u64>> {
        let value = self.value(key)?;
        let name = self.full_name(key);
        let bytes = match value.get_ref() {
            DeValue::Integer(digits) => u64::from_str_radix(digits.as_str(), digits.radix()).ok(),
            DeValue::String(text) => parse_bytes(text),
            other => {
                wrong_type(problems, value.span(), &name, "a size such as \"256MiB\"", other);
                return None;
            }
        };
        let Some(bytes) = bytes else {
            let message = format!("{name} is not a size");
            let help =
                "write a number of bytes, or a number and KiB, MiB or GiB in quotes, for example \"256MiB\"";
            problems.add_with_help(&value.span(), message, help);
            return None;
        };
        if range.contains(&bytes) {
            return Some(At::new(bytes, value.span()));
        }
        let (least, most) = (range.start(), range.end());
        problems.add(&value.span(), format!("{name} must be from {least} to {most} bytes"));
        None
    }

    /// A duration such as "200ms", "5s" or "1m", within `range`.
    pub(crate) fn duration(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<Duration>,
        problems: &mut Problems,
    ) -> Option<At<Duration>> {
        let value = self.value(key)?;
        let name = self.full_name(key);
        let DeValue::String(text) = value.get_ref() else {
            wrong_type(
                problems,
                value.span(),
                &name,
                "a duration in quotes such as \"200ms\"",
                value.get_ref(),
            );
            return None;
        };
        let Some(duration) = parse_duration(text) else {
            let message = format!("{name} is not a duration: '{text}'");
            problems.add_with_help(
                &value.span(),
                message,
                "write a number and ms, s or m, for example \"200ms\"",
            );
            return None;
        };
        if range.contains(&duration) {
            return Some(At::new(duration, value.span()));
        }
        problems.add(&value.span(), format!("{name} must be from {:?} to {:?}", range.start(), range.end()));
        None
    }

    /// True or false.
    pub(crate) fn boolean(&mut self, key: &'static str, problems: &mut Problems) -> Option<At<bool>> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::Boolean(flag) => Some(At::new(*flag, value.span())),
            other => {
                wrong_type(problems, value.span(), &self.full_name(key), "true or false", other);
                None
            }
        }
    }

    /// One of a few words.
    pub(crate) fn one_of<T: Clone>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
        problems: &mut Problems,
    ) -> Option<At<T>> {
        let text = self.string(key, problems)?;
        if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == text.value) {
            return Some(At::new(choice.clone(), text.span));
        }
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let help = match suggest::nearest(&text.value, words.iter().copied()) {
            Some(word) => format!("did you mean \"{word}\"? (one of {})", words.join(", ")),
            None => format!("use one of {}", words.join(", ")),
        };
        problems.add_with_help(
            &text.span,
            format!("{} cannot be \"{}\"", self.full_name(key), text.value),
            help,
        );
        None
    }

    /// Reports every key that no getter asked for.
    pub(crate) fn finish(self, problems: &mut Problems) {
        for (key, value) in self.table {
            let word: &str = key.get_ref();
            if self.known.contains(&word) {
                continue;
            }
            let what = if matches!(value.get_ref(), DeValue::Table(_)) { "section" } else { "key" };
            let place = if self.name.is_empty() { String::new() } else { format!(" in [{}]", self.name) };
            let message = format!("unknown {what} '{word}'{place}");
            let help = match suggest::nearest(word, self.known.iter().copied()) {
                Some(near) => format!("did you mean '{near}'?"),
                None => format!("known here: {}", self.known.join(", ")),
            };
            problems.add_with_help(&key.span(), message, help);
        }
    }

    fn full_name(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }
}

/// The string in `value`, or a fault.
pub(crate) fn string_value(
    value: &Spanned<DeValue<'_>>,
    name: &str,
    problems: &mut Problems,
) -> Option<At<String>> {
    match value.get_ref() {
        DeValue::String(text) => Some(At::new(text.to_string(), value.span())),
        other => {
            wrong_type(problems, value.span(), name, "a string", other);
            None
        }
    }
}

/// Reports a value of the wrong type.
pub(crate) fn wrong_type(
    problems: &mut Problems,
    span: Range<usize>,
    name: &str,
    expected: &str,
    found: &DeValue<'_>,
) {
    let article = if found.type_str().starts_with(['a', 'i', 'o']) { "an" } else { "a" };
    problems.add(&span, format!("{name} must be {expected}, not {article} {}", found.type_str()));
}

/// "1024", "64KiB", "256MiB", "2GiB"; nothing else.
pub(crate) fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].trim() {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// "250ms", "5s", "1m"; nothing else.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    match text[digits..].trim() {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
        _ => None,
    }
}
