//! CSV decoding, one record at a time, straight into the columns.

use arrow_array::ArrayRef;
use arrow_schema::ArrowError;

use super::RowError;
use super::columns::ColumnBuilder;
use super::schema::CsvFormat;

const QUOTE: u8 = b'"';

/// Decodes CSV lines.
#[derive(Debug)]
pub struct CsvDecoder {
    columns: Vec<ColumnBuilder>,
    delimiter: u8,
    nulls: Vec<String>,
    row_count: usize,
    /// Unescaped text of the quoted field at hand.
    unquoted: String,
}

impl CsvDecoder {
    pub(super) fn new(format: &CsvFormat) -> Self {
        CsvDecoder {
            columns: format.columns.iter().map(ColumnBuilder::new).collect(),
            // Validated with the settings; a decoder of other settings splits nothing.
            delimiter: u8::try_from(format.delimiter).unwrap_or(b','),
            nulls: format.nulls.clone(),
            row_count: 0,
            unquoted: String::new(),
        }
    }

    /// Adds the row of one line; a line end at the end of `line` is ignored.
    pub(super) fn decode(&mut self, line: &str) -> Result<(), RowError> {
        let line = line.strip_suffix('\n').map_or(line, |line| line.strip_suffix('\r').unwrap_or(line));
        let result =
            if line.as_bytes().contains(&QUOTE) { self.decode_quoted(line) } else { self.decode_plain(line) };
        match result {
            Ok(()) => self.row_count += 1,
            Err(_) => {
                for column in &mut self.columns {
                    column.truncate(self.row_count);
                }
            }
        }
        result
    }

    /// A line without any quote: fields are what stands between delimiters.
    fn decode_plain(&mut self, line: &str) -> Result<(), RowError> {
        if line.as_bytes().contains(&b'\n') {
            return Err(RowError::BadCsv { what: "more than one line" });
        }
        let expected = self.columns.len();
        let bytes = line.as_bytes();
        let mut start = 0;
        for (index, column) in self.columns.iter_mut().enumerate() {
            if start > bytes.len() {
                return Err(RowError::ColumnCount { expected, found: index });
            }
            let rest = &bytes[start..];
            let length = rest.iter().position(|byte| *byte == self.delimiter).unwrap_or(rest.len());
            push_field(column, &self.nulls, &line[start..start + length])?;
            start += length + 1;
        }
        if start <= bytes.len() {
            let more = bytes[start..].iter().filter(|byte| **byte == self.delimiter).count() + 1;
            return Err(RowError::ColumnCount { expected, found: expected + more });
        }
        Ok(())
    }

    /// A line with quotes somewhere.
    fn decode_quoted(&mut self, line: &str) -> Result<(), RowError> {
        let expected = self.columns.len();
        let mut rest = Some(line);
        let mut found = 0;
        while let Some(text) = rest {
            let column = self.columns.get_mut(found);
            found += 1;
            if text.as_bytes().first() == Some(&QUOTE) {
                rest = unquote(&text[1..], self.delimiter, &mut self.unquoted)?;
                if let Some(column) = column {
                    // A quoted field is never null: that is how a text that spells a null is written.
                    column.push_text(&self.unquoted)?;
                }
            } else {
                let end = text.as_bytes().iter().position(|byte| *byte == self.delimiter);
                let field = &text[..end.unwrap_or(text.len())];
                if field.contains('\n') {
                    return Err(RowError::BadCsv { what: "more than one line" });
                }
                rest = end.map(|end| &text[end + 1..]);
                if let Some(column) = column {
                    push_field(column, &self.nulls, field)?;
                }
            }
        }
        if found == expected { Ok(()) } else { Err(RowError::ColumnCount { expected, found }) }
    }

    pub(super) fn finish(&mut self) -> Result<Vec<ArrayRef>, ArrowError> {
        self.row_count = 0;
        self.columns.iter_mut().map(ColumnBuilder::finish).collect()
    }
}

#[inline]
fn push_field(column: &mut ColumnBuilder, nulls: &[String], field: &str) -> Result<(), RowError> {
    if nulls.iter().any(|null| null == field) { column.push_null() } else { column.push_text(field) }
}

/// Reads a quoted field whose opening quote is gone; gives what follows its delimiter, `None` at the line's end.
fn unquote<'a>(text: &'a str, delimiter: u8, out: &mut String) -> Result<Option<&'a str>, RowError> {
    out.clear();
    let mut rest = text;
    loop {
        let Some(quote) = rest.find('"') else {
            return Err(RowError::BadCsv { what: "a quoted field has no end" });
        };
        out.push_str(&rest[..quote]);
        rest = &rest[quote + 1..];
        match rest.as_bytes().first() {
            None => return Ok(None),
            Some(&QUOTE) => {
                out.push('"');
                rest = &rest[1..];
            }
            Some(&byte) if byte == delimiter => return Ok(Some(&rest[1..])),
            Some(_) => return Err(RowError::BadCsv { what: "text after the end of a quoted field" }),
        }
    }
}
