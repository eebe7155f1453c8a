//! Tables for people.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// A table; columns whose every cell is a number are aligned right.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let is_number = |cell: &String| {
        !cell.is_empty() && cell.chars().all(|c| c.is_ascii_digit() || matches!(c, ',' | '.' | '-'))
    };
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    if !header.is_empty() {
        table.set_header(header);
    }
    let width = rows.iter().map(Vec::len).max().unwrap_or(header.len());
    let right: Vec<usize> = (0..width)
        .filter(|index| !rows.is_empty() && rows.iter().all(|row| row.get(*index).is_some_and(is_number)))
        .collect();
    for row in rows {
        table.add_row(row);
    }
    for index in right {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// Columns of a table whose cells are sentences, where the shell does not say how many there are.
const COLUMNS: u16 = 140;

/// A table whose cells are sentences: broken into lines, so that a row fits.
pub(crate) fn wrapped_table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let told = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let mut table = Table::new();
    table
        .load_preset(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(told.filter(|columns| *columns >= 60).unwrap_or(COLUMNS))
        .set_header(header);
    for row in rows {
        table.add_row(row);
    }
    table.to_string()
}
