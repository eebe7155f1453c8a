//! The job file: TOML in, a checked [`JobFile`] or every fault at once out.

mod columns;
mod group_config;
mod model;
mod reader;
mod report;
mod sections;
mod suggest;
#[cfg(test)]
mod tests;

use std::path::Path;

use anyhow::Context;
use toml::de::DeTable;

pub(crate) use model::{
    AckModeSetting, Brokers, CheckpointSettings, Column, JobFile, SinkFormat, SinkSettings, SourceFormat,
    SourceSettings, Sql,
};
pub(crate) use report::JobFileError;

/// Reads the job file at `path`.
pub(crate) fn load(path: &Path) -> anyhow::Result<JobFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read job file {}", path.display()))?;
    Ok(parse(path, &text)?)
}

/// Reads a job file from text; `path` is for messages and for the folder that relative paths start from.
pub(crate) fn parse(path: &Path, text: &str) -> Result<JobFile, JobFileError> {
    let mut problems = report::Problems::default();
    let (table, syntax_errors) = DeTable::parse_recoverable(text);
    for error in &syntax_errors {
        let span = error.span().unwrap_or(0..0);
        problems.add(&span, format!("not TOML: {}", error.message().replace('\n', ", ")));
    }
    if !problems.is_empty() {
        // What was read around a syntax error is a guess; faults found in a guess would mislead.
        return Err(problems.into_error(path, text));
    }
    let file = reader::Section::new("", 0..0, table.get_ref());
    match sections::read(file, path, text, &mut problems) {
        Some(job) if problems.is_empty() => Ok(job),
        _ => Err(problems.into_error(path, text)),
    }
}
