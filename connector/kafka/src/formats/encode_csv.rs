//! Rows as CSV lines.

use serde::{Deserialize, Serialize};

use super::encode::Cells;

/// CSV of the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct CsvOutput {
    /// Between fields: one ASCII character. Default `,`.
    pub delimiter: char,
    /// Written for null, never in quotes; a text that spells it is quoted. Default empty.
    pub null: String,
}

impl Default for CsvOutput {
    fn default() -> Self {
        CsvOutput { delimiter: ',', null: String::new() }
    }
}

impl CsvOutput {
    /// What is wrong with the settings, for the user.
    pub(super) fn check(&self) -> Result<(), String> {
        let special = |c: char| c == self.delimiter || matches!(c, '"' | '\n' | '\r');
        if !self.delimiter.is_ascii() || matches!(self.delimiter, '"' | '\n' | '\r') {
            return Err(format!("csv delimiter {:?} must be one ASCII character, no quote", self.delimiter));
        }
        if self.null.contains(special) {
            return Err(format!(
                "csv null {:?} must not hold the delimiter, a quote or a line end",
                self.null
            ));
        }
        Ok(())
    }
}

/// The columns of one batch.
#[derive(Debug)]
pub(super) struct CsvRows {
    delimiter: u8,
    null: String,
    columns: Vec<Cells>,
}

impl CsvRows {
    pub(super) fn new(format: &CsvOutput, columns: Vec<Cells>) -> Self {
        let delimiter = u8::try_from(format.delimiter).unwrap_or(b',');
        CsvRows { delimiter, null: format.null.clone(), columns }
    }

    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) {
        for (index, cells) in self.columns.iter().enumerate() {
            if index > 0 {
                out.push(self.delimiter);
            }
            if cells.is_null(row) {
                out.extend_from_slice(self.null.as_bytes());
            } else if let Some(text) = cells.text(row) {
                self.write_text(text, out);
            } else {
                cells.write_plain(row, out);
            }
        }
    }

    fn write_text(&self, text: &str, out: &mut Vec<u8>) {
        let special = |byte: &u8| *byte == self.delimiter || matches!(byte, b'"' | b'\n' | b'\r');
        if text != self.null && !text.as_bytes().iter().any(special) {
            out.extend_from_slice(text.as_bytes());
            return;
        }
        out.push(b'"');
        for byte in text.as_bytes() {
            if *byte == b'"' {
                out.push(b'"');
            }
            out.push(*byte);
        }
        out.push(b'"');
    }
}
