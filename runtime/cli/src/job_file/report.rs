//! Everything that is wrong with a job file, each fault with its place and what to do about it.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Bytes of the text that are at fault.
    pub(crate) span: Range<usize>,
    /// What is wrong: lower case, no full stop.
    pub(crate) message: String,
    /// What to write instead.
    pub(crate) help: Option<String>,
    /// True when the line at fault must not be shown: a secret may be in it.
    pub(crate) is_hidden: bool,
}

/// Collects faults while the file is read; nothing stops at the first one.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    /// Notes a fault without advice.
    pub(crate) fn add(&mut self, span: &Range<usize>, message: impl Into<String>) {
        self.0.push(Problem { span: span.clone(), message: message.into(), help: None, is_hidden: false });
    }

    /// Notes a fault in a line that must not be shown: a secret may be in it.
    pub(crate) fn add_hidden(&mut self, span: &Range<usize>, message: impl Into<String>) {
        self.0.push(Problem { span: span.clone(), message: message.into(), help: None, is_hidden: true });
    }

    /// Notes a fault and what to do about it.
    pub(crate) fn add_with_help(
        &mut self,
        span: &Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let help = Some(help.into());
        self.0.push(Problem { span: span.clone(), message: message.into(), help, is_hidden: false });
    }

    /// Number of faults.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// True when nothing was found.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The faults as one error, in the order of the text. What stands behind `file_end` is the command line.
    pub(crate) fn into_error(mut self, path: &Path, text: &str, file_end: usize) -> JobFileError {
        self.0.sort_by_key(|problem| (problem.span.start, problem.span.end));
        JobFileError { path: path.to_owned(), text: text.to_owned(), file_end, problems: self.0 }
    }
}

/// A job file that cannot be used.
#[derive(Clone, Debug)]
pub(crate) struct JobFileError {
    path: PathBuf,
    text: String,
    file_end: usize,
    problems: Vec<Problem>,
}

impl JobFileError {
    fn is_of_command_line(&self, problem: &Problem) -> bool {
        problem.span.start > self.file_end
    }
}

impl std::error::Error for JobFileError {}

impl fmt::Display for JobFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            self.write_problem(f, problem)?;
        }
        let plural = if self.problems.len() == 1 { "" } else { "s" };
        let given = self.problems.iter().filter(|problem| self.is_of_command_line(problem)).count();
        write!(f, "{} error{plural} in ", self.problems.len())?;
        match given {
            0 => write!(f, "{}", self.path.display()),
            all if all == self.problems.len() => f.write_str("the command line"),
            _some => write!(f, "{} and the command line", self.path.display()),
        }
    }
}

/// Where a byte of the text is: line and column from 1, and the line itself.
fn place(text: &str, at: usize) -> (usize, usize, &str) {
    let at = at.min(text.len());
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
    let line = text[..start].matches('\n').count() + 1;
    (line, text[start..at].chars().count() + 1, text[start..end].trim_end())
}

impl JobFileError {
    fn write_problem(&self, f: &mut fmt::Formatter<'_>, problem: &Problem) -> fmt::Result {
        let (line, column, source) = place(&self.text, problem.span.start);
        let line = if self.is_of_command_line(problem) {
            writeln!(f, "command line: {}", problem.message)?;
            String::new()
        } else {
            writeln!(f, "{}:{line}:{column}: {}", self.path.display(), problem.message)?;
            line.to_string()
        };
        if !source.is_empty() && !problem.is_hidden {
            let indent: String =
                source.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            let width = self
                .text
                .get(problem.span.clone())
                .map_or(1, |part| part.lines().next().unwrap_or("").chars().count());
            let marker = "^".repeat(width.clamp(1, 60));
            writeln!(f, "{line:>5} | {source}")?;
            writeln!(f, "      | {indent}{marker}")?;
        }
        if let Some(help) = &problem.help {
            writeln!(f, "      = {help}")?;
        }
        writeln!(f)
    }
}
