//! What is wrong with a statement, where, and what to write instead.

use std::fmt;

use datafusion_common::utils::datafusion_strsim::levenshtein;
use datafusion_common::{DataFusionError, SchemaError};
use datafusion_sql::sqlparser::ast::Spanned;
use datafusion_sql::sqlparser::parser::ParserError;

/// A statement that cannot be a transform.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqlError {
    /// What is wrong, lower case.
    pub message: String,
    /// Line in the statement, from 1, if known.
    pub line: Option<u64>,
    /// Column in that line, in characters from 1, if known.
    pub column: Option<u64>,
    /// What to do instead, if known.
    pub hint: Option<String>,
}

impl SqlError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        SqlError { message: message.into(), line: None, column: None, hint: None }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// At the start of a piece of the statement.
    #[must_use]
    pub(crate) fn at(self, node: &impl Spanned) -> Self {
        let start = node.span().start;
        self.at_location(start.line, start.column)
    }

    /// Line 0 means unknown, as in the parser.
    #[must_use]
    pub(crate) fn at_location(mut self, line: u64, column: u64) -> Self {
        if line > 0 {
            (self.line, self.column) = (Some(line), Some(column));
        }
        self
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, "line {line} column {column}: ")?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for SqlError {}

impl From<ParserError> for SqlError {
    fn from(error: ParserError) -> Self {
        let text = match error {
            ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
            ParserError::RecursionLimitExceeded => "expressions are nested too deeply".to_owned(),
        };
        // The parser writes the place behind its message and nowhere else.
        let Some((message, place)) = text.rsplit_once(" at Line: ") else {
            return SqlError::new(first_lower(&text));
        };
        let mut numbers = place.split(", Column: ").map(|number| number.trim().parse::<u64>());
        match (numbers.next(), numbers.next()) {
            (Some(Ok(line)), Some(Ok(column))) => {
                SqlError::new(first_lower(message)).at_location(line, column)
            }
            _ => SqlError::new(first_lower(&text)),
        }
    }
}

/// Turns an error of planning into ours; `columns` are the names that could have been meant.
pub(crate) fn from_planning(error: &DataFusionError, columns: &[&str]) -> SqlError {
    let place = error.diagnostic().and_then(|diagnostic| diagnostic.span).map(|span| span.start);
    let root = error.find_root();
    let ours = match root {
        DataFusionError::SchemaError(schema_error, _) => match schema_error.as_ref() {
            SchemaError::FieldNotFound { field, .. } => unknown_column(field.name(), columns),
            SchemaError::AmbiguousReference { field } => {
                SqlError::new(format!("column '{}' exists more than once in source", field.name()))
            }
            SchemaError::DuplicateQualifiedField { name, .. }
            | SchemaError::DuplicateUnqualifiedField { name } => {
                SqlError::new(format!("two output columns are named '{name}'"))
                    .hint("rename one of them with AS")
            }
        },
        _ => {
            let text = root.message().into_owned();
            let first_line = text.lines().next().unwrap_or_default();
            match first_line.contains("require unique expression names") {
                true => {
                    SqlError::new("two output columns have the same name").hint("rename one of them with AS")
                }
                false => SqlError::new(first_lower(first_line)),
            }
        }
    };
    match place {
        Some(start) => ours.at_location(start.line, start.column),
        None => ours,
    }
}

fn unknown_column(name: &str, columns: &[&str]) -> SqlError {
    let error = SqlError::new(format!("no column '{name}' in source"));
    match nearest(name, columns) {
        near if near.is_empty() => error.hint(format!("columns: {}", listed(columns))),
        near => {
            let quoted: Vec<String> = near.iter().map(|name| as_written(name)).collect();
            let capital = quoted.iter().any(|name| name.starts_with('"'));
            let why = if capital { "; such names need double quotes" } else { "" };
            error.hint(format!("did you mean {}?{why}", quoted.join(" or ")))
        }
    }
}

/// At most three of `candidates` that look like `name`, the nearest first.
pub(crate) fn nearest<'a>(name: &str, candidates: &[&'a str]) -> Vec<&'a str> {
    let name = name.to_lowercase();
    let allowed = 1 + name.chars().count() / 4;
    let mut near: Vec<(usize, &str)> = candidates
        .iter()
        .map(|candidate| (levenshtein(&name, &candidate.to_lowercase()), *candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .collect();
    near.sort();
    near.into_iter().take(3).map(|(_, candidate)| candidate).collect()
}

/// As it must be written in SQL: unquoted names are read as lower case.
fn as_written(name: &str) -> String {
    let plain = name
        .chars()
        .enumerate()
        .all(|(index, c)| c == '_' || c.is_ascii_lowercase() || (index > 0 && c.is_ascii_digit()));
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn listed(columns: &[&str]) -> String {
    const SHOWN: usize = 20;
    let mut text = columns.iter().take(SHOWN).map(|name| as_written(name)).collect::<Vec<_>>().join(", ");
    if columns.len() > SHOWN {
        text.push_str(", ...");
    }
    text
}

/// Messages of others begin with a capital, ours do not. An acronym stays.
pub(crate) fn first_lower(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if first.is_uppercase() && !second.is_uppercase() => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_owned(),
    }
}
