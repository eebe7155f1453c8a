//! The `columns` of a source: names, types, order.

use std::collections::BTreeMap;

use sharestream_kafka::formats::{Column, ColumnType};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::reader::{At, Section, string_value, wrong_type};
use super::report::Problems;
use super::suggest;

/// Reads `columns`: a list of `{ name, type, nullable }`, or a table of `name = "type"` in the order of the text.
pub(crate) fn read(section: &mut Section<'_>, problems: &mut Problems) -> Option<Vec<At<Column>>> {
    let example = "columns = [{ name = \"id\", type = \"int64\" }]";
    if !section.require("columns", example, problems) {
        return None;
    }
    let value = section.value("columns")?;
    let columns = match value.get_ref() {
        DeValue::Array(items) => items.iter().filter_map(|item| from_item(item, problems)).collect(),
        DeValue::Table(table) => from_table(table, problems),
        other => {
            wrong_type(problems, value.span(), "source.columns", "a list of { name, type }", other);
            return None;
        }
    };
    check_names(&columns, value, problems);
    Some(columns)
}

fn from_item(item: &Spanned<DeValue<'_>>, problems: &mut Problems) -> Option<At<Column>> {
    let DeValue::Table(table) = item.get_ref() else {
        wrong_type(
            problems,
            item.span(),
            "a column",
            "a table { name = \"..\", type = \"..\" }",
            item.get_ref(),
        );
        return None;
    };
    let mut column = Section::new("source.columns", item.span(), table);
    let name = column.required_string("name", "id", problems);
    let type_name = column.required_string("type", "int64", problems);
    let nullable = column.boolean("nullable", problems).is_some_and(|nullable| nullable.value);
    column.finish(problems);
    let (name, type_name) = (name?, type_name?);
    let (column_type, marked) = column_type(&type_name, problems)?;
    Some(At::new(Column { name: name.value, column_type, nullable: nullable || marked }, name.span))
}

fn from_table(table: &DeTable<'_>, problems: &mut Problems) -> Vec<At<Column>> {
    let mut entries: Vec<_> = table.iter().collect();
    // A CSV line has an order, a TOML table has none: the order of the text is the one the user sees.
    entries.sort_by_key(|(name, _)| name.span().start);
    let mut columns = Vec::new();
    for (name, value) in entries {
        let Some(type_name) = string_value(value, &format!("source.columns.{}", name.get_ref()), problems)
        else {
            continue;
        };
        if let Some((column_type, nullable)) = column_type(&type_name, problems) {
            columns.push(At::new(
                Column { name: name.get_ref().to_string(), column_type, nullable },
                name.span(),
            ));
        }
    }
    columns
}

fn check_names(columns: &[At<Column>], list: &Spanned<DeValue<'_>>, problems: &mut Problems) {
    if columns.is_empty() && problems.is_empty() {
        problems.add(&list.span(), "source.columns must name at least one column");
    }
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, column) in columns.iter().enumerate() {
        let name = column.value.name.as_str();
        if let Some(first) = seen.insert(name, index) {
            let message = format!("column '{name}' is named twice (columns {} and {})", first + 1, index + 1);
            problems.add(&column.span, message);
        }
        if name.starts_with('_') {
            let help = "names with a leading underscore belong to the record's own columns, such as _offset";
            problems.add_with_help(&column.span, format!("column '{name}' cannot start with '_'"), help);
        }
    }
}

/// The type that a name means, and whether it ends with the `?` that allows null.
fn column_type(name: &At<String>, problems: &mut Problems) -> Option<(ColumnType, bool)> {
    let (word, nullable) = match name.value.strip_suffix('?') {
        Some(word) => (word.trim_end(), true),
        None => (name.value.as_str(), false),
    };
    let word = match word.to_ascii_lowercase() {
        word if word == "bool" => "boolean".to_owned(),
        word if word == "utf8" => "string".to_owned(),
        word => word,
    };
    if let Some(column_type) = ColumnType::from_name(&word) {
        return Some((column_type, nullable));
    }
    let names: Vec<&str> = ColumnType::ALL.iter().map(|known| known.name()).collect();
    let help = match suggest::nearest(&word, names.iter().copied()) {
        Some(near) => {
            format!("did you mean \"{near}\"? (one of {}; a ? behind it allows null)", names.join(", "))
        }
        None => format!("use one of {}; a ? behind it allows null", names.join(", ")),
    };
    problems.add_with_help(&name.span, format!("'{}' is not a column type", name.value), help);
    None
}
