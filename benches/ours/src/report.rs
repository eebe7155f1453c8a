//! What a measurement prints: one table, or one JSON object a row.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde_json::Value;

/// Prints the rows, objects with the same keys: all of them as JSON, or these columns as a table.
pub(crate) fn print(rows: &[Value], columns: &[&str], as_json: bool) {
    if as_json {
        rows.iter().for_each(|row| println!("{row}"));
        return;
    }
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_header(columns);
    for row in rows {
        table.add_row(columns.iter().map(|column| cell(&row[*column])));
    }
    for (index, name) in columns.iter().enumerate() {
        if let Some(column) =
            table.column_mut(index).filter(|_| rows.iter().all(|row| row[*name].is_number()))
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The middle one; zero of none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// With so many digits behind the point.
pub(crate) fn rounded(value: f64, digits: i32) -> f64 {
    let factor = 10f64.powi(digits);
    (value * factor).round() / factor
}

/// `1.5` milliseconds as the command line has it.
pub(crate) fn milliseconds(text: &str) -> Result<std::time::Duration, String> {
    let number = text.parse::<f64>().map_err(|_| format!("'{text}' is no number of milliseconds"))?;
    std::time::Duration::try_from_secs_f64(number / 1e3).map_err(|error| error.to_string())
}
