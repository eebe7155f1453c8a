//! Rows as JSON objects.

use super::encode::{Cells, write_serialized};

/// The columns of one batch with their names ready to write.
#[derive(Debug)]
pub(super) struct JsonRows {
    fields: Vec<Field>,
}

#[derive(Debug)]
struct Field {
    /// `{"name":` or `,"name":`.
    prefix: Vec<u8>,
    /// Values that JSON has no type for are written as strings.
    in_quotes: bool,
    cells: Cells,
}

impl JsonRows {
    pub(super) fn new(names: &[String], columns: Vec<Cells>) -> Self {
        let field = |(index, (name, cells)): (usize, (&String, Cells))| {
            let mut prefix = vec![if index == 0 { b'{' } else { b',' }];
            write_serialized(&mut prefix, name);
            prefix.push(b':');
            let in_quotes = matches!(cells, Cells::Date(_) | Cells::Timestamp { .. } | Cells::Binary(_));
            Field { prefix, in_quotes, cells }
        };
        JsonRows { fields: names.iter().zip(columns).enumerate().map(field).collect() }
    }

    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) {
        if self.fields.is_empty() {
            out.push(b'{');
        }
        for field in &self.fields {
            out.extend_from_slice(&field.prefix);
            if field.cells.is_null(row) {
                out.extend_from_slice(b"null");
            } else if let Some(text) = field.cells.text(row) {
                write_serialized(out, text);
            } else if field.in_quotes {
                out.push(b'"');
                field.cells.write_plain(row, out);
                out.push(b'"');
            } else {
                // A float that JSON cannot spell (NaN, infinities) comes out as null.
                field.cells.write_plain(row, out);
            }
        }
        out.push(b'}');
    }
}
