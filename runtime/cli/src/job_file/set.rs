//! `--set section.key=value`: what the command line puts in place of what the job file says.
//!
//! The arguments stand behind the file's text, a line each, so that a fault in one has a place like every other.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::report::Problems;

/// What a line of the command line begins with in messages.
const OPTION: &str = "--set ";

/// The file's text with the arguments behind it.
pub(crate) struct Text {
    /// Everything.
    pub(crate) all: String,
    /// End of the file's own text; the rest comes from the command line.
    pub(crate) file_end: usize,
    /// Where each argument stands.
    arguments: Vec<Range<usize>>,
}

impl Text {
    /// Puts `arguments`, each `section.key=value`, behind `file`.
    pub(crate) fn new(file: &str, arguments: &[String]) -> Text {
        let mut all = file.to_owned();
        let mut places = Vec::with_capacity(arguments.len());
        for argument in arguments {
            all.push('\n');
            all.push_str(OPTION);
            let start = all.len();
            all.push_str(argument);
            places.push(start..all.len());
        }
        Text { all, file_end: file.len(), arguments: places }
    }

    /// The values of the arguments as TOML documents `k=value` that are padded so that their places are those of
    /// [`Text::all`].
    pub(crate) fn padded_values(&self) -> Vec<String> {
        let padded = |argument: &Range<usize>| {
            let value = self.value_of(argument);
            // At least `--set ` and a `=` stand before the value, so there is room.
            format!("{}k={}", " ".repeat(value.start - 2), &self.all[value])
        };
        self.arguments.iter().map(padded).collect()
    }

    /// Puts the values into the table. `padded`: of [`Text::padded_values`].
    pub(crate) fn put_into<'a>(
        &'a self,
        table: &mut DeTable<'a>,
        padded: &'a [String],
        problems: &mut Problems,
    ) {
        for (argument, padded) in self.arguments.iter().zip(padded) {
            let value_span = self.value_of(argument);
            let key = argument.start..value_span.start.saturating_sub(1).max(argument.start);
            let text = &self.all[key.clone()];
            let has_value = self.all[argument.clone()].contains('=');
            if !has_value || text.split('.').any(|part| part.trim().is_empty()) {
                let text = &self.all[argument.clone()];
                let help = "write section.key=value, for example source.brokers=localhost:9092";
                problems.add_with_help(argument, format!("'{text}' sets nothing"), help);
                continue;
            }
            let Some(value) = self.value(value_span, padded, problems) else { continue };
            let mut path = Vec::new();
            let mut start = key.start;
            for part in text.split('.') {
                path.push((start..start + part.len(), part.trim()));
                start += part.len() + 1;
            }
            put(table, &path, value, problems);
        }
    }

    /// The part behind the first `=`; empty at the end when there is none.
    fn value_of(&self, argument: &Range<usize>) -> Range<usize> {
        let text = &self.all[argument.clone()];
        let start = text.find('=').map_or(argument.end, |equals| argument.start + equals + 1);
        start..argument.end
    }

    /// A TOML value, or else the bare text as a string: `--set sink.topic=late` needs no quotes.
    fn value<'a>(
        &'a self,
        span: Range<usize>,
        padded: &'a str,
        problems: &mut Problems,
    ) -> Option<Spanned<DeValue<'a>>> {
        let text = &self.all[span.clone()];
        let parsed = DeTable::parse(padded).map(Spanned::into_inner);
        match parsed {
            // A line break in the text could begin a second setting; then it is text.
            Ok(mut table) if table.len() == 1 => table.remove("k"),
            Err(error) if text.starts_with(['"', '\'', '[', '{']) => {
                let message = format!("not a TOML value: {}", error.message().replace('\n', ", "));
                problems.add(&span, message);
                None
            }
            Ok(_) | Err(_) => Some(Spanned::new(span, DeValue::String(Cow::Borrowed(text)))),
        }
    }
}

/// Puts `value` where `path` leads; sections on the way are made. Names nobody knows are found by the reader later.
fn put<'a>(
    table: &mut DeTable<'a>,
    path: &[(Range<usize>, &'a str)],
    value: Spanned<DeValue<'a>>,
    problems: &mut Problems,
) {
    let Some(((span, first), rest)) = path.split_first() else { return };
    // Kafka's names have dots, and a file may have them in quotes: then the rest of the path is one key.
    let whole = path.iter().map(|(_, part)| *part).collect::<Vec<_>>().join(".");
    if rest.is_empty() || table.contains_key(whole.as_str()) {
        table.remove(whole.as_str());
        table.insert(Spanned::new(span.clone(), Cow::Owned(whole)), value);
        return;
    }
    if !table.contains_key(*first) {
        let section = Spanned::new(span.clone(), DeValue::Table(DeTable::new()));
        table.insert(Spanned::new(span.clone(), Cow::Borrowed(*first)), section);
    }
    match table.get_mut(*first).map(Spanned::get_mut) {
        Some(DeValue::Table(inner)) => put(inner, rest, value, problems),
        Some(_) => {
            problems.add(span, format!("'{first}' is no section, so there is no '{}' in it", rest[0].1))
        }
        None => {}
    }
}
