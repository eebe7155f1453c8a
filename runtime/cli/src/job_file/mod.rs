//! The job file: TOML in, a checked [`JobFile`] or every fault at once out.

mod across;
mod avro;
mod columns;
mod errors;
mod group_config;
mod http;
mod memory;
mod model;
mod reader;
mod report;
mod sections;
mod security;
mod set;
mod slow;
mod store;
mod suggest;
#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::Context;
use arrow_schema::SchemaRef;
use toml::de::DeTable;

use crate::failure::UnreadableInput;
pub(crate) use model::{AckModeSetting, Brokers, JobFile};
pub(crate) use report::JobFileError;

/// Reads the job file at `path`; `settings`, each `section.key=value`, replace what it says.
pub(crate) fn load(path: &Path, settings: &[String]) -> anyhow::Result<JobFile> {
    let text = std::fs::read_to_string(path)
        .with_context(|| UnreadableInput(format!("cannot read job file {}", path.display())))?;
    Ok(parse(path, &text, settings)?)
}

/// Reads a job file from text; `path` is for messages and for the folder that relative paths start from.
pub(crate) fn parse(path: &Path, file: &str, settings: &[String]) -> Result<JobFile, JobFileError> {
    let mut problems = report::Problems::default();
    let text = set::Text::new(file, settings);
    let padded = text.padded_values();
    let (table, syntax_errors) = DeTable::parse_recoverable(file);
    for error in &syntax_errors {
        let span = error.span().unwrap_or(0..0);
        problems.add(&span, format!("not TOML: {}", error.message().replace('\n', ", ")));
    }
    if !problems.is_empty() {
        // What was read around a syntax error is a guess; faults found in a guess would mislead.
        return Err(problems.into_error(path, &text.all, text.file_end));
    }
    let mut table = table.into_inner();
    text.put_into(&mut table, &padded, &mut problems);
    let section = reader::Section::new("", 0..0, &table);
    match sections::read(section, path, &text, &mut problems) {
        Some(job) if problems.is_empty() => Ok(job),
        _ => Err(problems.into_error(path, &text.all, text.file_end)),
    }
}

impl JobFile {
    /// Topic of parked records, if it has one.
    pub(crate) fn parking_topic(&self) -> Option<&String> {
        self.slow.as_ref().map(|slow| &slow.topic)
    }

    /// The topics that the group reads: the source topics, and that of parked records.
    pub(crate) fn acquired_topics(&self) -> Vec<String> {
        self.source.topics.iter().chain(self.parking_topic()).cloned().collect()
    }

    /// Faults of the calls that only the columns in front of each show; `inputs` are those, by call. Errors: all of them.
    pub(crate) fn check_calls(&self, inputs: &[SchemaRef]) -> Result<(), JobFileError> {
        let mut problems = report::Problems::default();
        for (stage, input) in self.http.iter().zip(inputs) {
            stage.check(Some(input), &mut problems);
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(problems.into_error(&self.path, &self.text, self.file_end))
    }

    /// A fault in the SQL as a fault of the file; `line` and `column` count from 1 within the statement.
    pub(crate) fn sql_fault(
        &self,
        place: Option<(u64, u64)>,
        message: impl Into<String>,
        help: Option<String>,
    ) -> JobFileError {
        let start = self.transform.as_ref().map_or(0, |sql| sql.start);
        let (line, column) = place.unwrap_or((1, 1));
        let statement = self.text.get(start..).unwrap_or("");
        let before: usize = statement
            .split_inclusive('\n')
            .take(usize::try_from(line.saturating_sub(1)).unwrap_or(0))
            .map(str::len)
            .sum();
        let rest = statement.get(before..).unwrap_or("");
        let columns = usize::try_from(column.saturating_sub(1)).unwrap_or(0);
        let at = start + before + rest.chars().take(columns).map(char::len_utf8).sum::<usize>();
        let word: usize = self
            .text
            .get(at..)
            .unwrap_or("")
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .count();
        let mut problems = report::Problems::default();
        let span = at..at + word.max(1);
        match help {
            Some(help) => problems.add_with_help(&span, message, help),
            None => problems.add(&span, message),
        }
        problems.into_error(&self.path, &self.text, self.file_end)
    }
}
