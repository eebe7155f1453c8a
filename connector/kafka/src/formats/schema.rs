//! What the job file says about record values.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use serde::{Deserialize, Serialize};
use sharestream_core::coordinates;

use super::avro::{AvroFormat, AvroFraming};

/// Format of the source's record values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Format {
    /// One CSV line in each record, without a header.
    Csv(CsvFormat),
    /// One JSON object in each record.
    Json(JsonFormat),
    /// One Avro datum in each record.
    Avro(AvroFormat),
    /// The value as it is, in one binary column named `value`.
    #[default]
    Raw,
}

/// CSV as RFC 4180 has it, one line in each record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct CsvFormat {
    /// Columns in order; every record must have exactly these.
    pub columns: Vec<Column>,
    /// Between fields: one ASCII character. Default `,`.
    pub delimiter: char,
    /// Unquoted fields that mean null, for example `NA`. Default none: then such a field is bad in a column of
    /// numbers.
    pub nulls: Vec<String>,
}

/// Flat JSON objects. Fields that the schema does not name are ignored, unless `strict`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct JsonFormat {
    /// Columns; a missing field is null.
    pub columns: Vec<Column>,
    /// A field that the schema does not name makes the record bad. Default false.
    pub strict: bool,
}

/// A column of the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Column {
    /// Name, as SQL sees it.
    pub name: String,
    /// Type.
    #[serde(rename = "type")]
    pub column_type: ColumnType,
    /// Nulls allowed. Default true.
    #[serde(default = "yes")]
    pub nullable: bool,
}

fn yes() -> bool {
    true
}

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ColumnType {
    /// 32-bit signed integer.
    Int32,
    /// 64-bit signed integer.
    Int64,
    /// 64-bit floating point.
    Float64,
    /// `true` or `false`.
    Boolean,
    /// UTF-8 text.
    String,
    /// `2013-01-31`.
    Date,
    /// RFC 3339, kept in UTC with milliseconds.
    Timestamp,
}

impl ColumnType {
    /// All types.
    pub const ALL: [ColumnType; 7] = [
        ColumnType::Int32,
        ColumnType::Int64,
        ColumnType::Float64,
        ColumnType::Boolean,
        ColumnType::String,
        ColumnType::Date,
        ColumnType::Timestamp,
    ];

    /// Name in job files.
    pub fn name(self) -> &'static str {
        match self {
            ColumnType::Int32 => "int32",
            ColumnType::Int64 => "int64",
            ColumnType::Float64 => "float64",
            ColumnType::Boolean => "boolean",
            ColumnType::String => "string",
            ColumnType::Date => "date",
            ColumnType::Timestamp => "timestamp",
        }
    }

    /// The type of a name in a job file.
    pub fn from_name(name: &str) -> Option<ColumnType> {
        ColumnType::ALL.into_iter().find(|column_type| column_type.name() == name)
    }

    /// The Arrow type.
    pub fn data_type(self) -> DataType {
        match self {
            ColumnType::Int32 => DataType::Int32,
            ColumnType::Int64 => DataType::Int64,
            ColumnType::Float64 => DataType::Float64,
            ColumnType::Boolean => DataType::Boolean,
            ColumnType::String => DataType::Utf8,
            ColumnType::Date => DataType::Date32,
            ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
        }
    }
}

impl Column {
    /// A nullable column.
    pub fn new(name: impl Into<String>, column_type: ColumnType) -> Self {
        Column { name: name.into(), column_type, nullable: true }
    }

    /// The column without nulls.
    #[must_use]
    pub fn not_null(mut self) -> Self {
        self.nullable = false;
        self
    }
}

impl Default for CsvFormat {
    fn default() -> Self {
        CsvFormat { columns: Vec::new(), delimiter: ',', nulls: Vec::new() }
    }
}

/// Name of the only column of the raw format.
pub(crate) const RAW_COLUMN: &str = "value";

impl Format {
    /// The user's columns.
    pub fn user_schema(&self) -> Schema {
        let columns = match self {
            Format::Csv(format) => &format.columns,
            Format::Json(format) => &format.columns,
            // Without a schema there are no columns; `faults` says why.
            Format::Avro(format) => return Schema::new(format.columns().unwrap_or_default()),
            Format::Raw => return Schema::new(vec![Field::new(RAW_COLUMN, DataType::BinaryView, true)]),
        };
        let field =
            |column: &Column| Field::new(&column.name, column.column_type.data_type(), column.nullable);
        Schema::new(columns.iter().map(field).collect::<Vec<_>>())
    }

    /// The user's columns, then the hidden ones: the schema of the source.
    pub fn schema(&self) -> SchemaRef {
        let schema: Arc<Schema> = coordinates::with_coordinates(&self.user_schema());
        schema
    }

    /// Whether each record names the schema that it was written with, so that the source needs a registry.
    pub fn names_schemas(&self) -> bool {
        matches!(self, Format::Avro(format) if format.framing == AvroFraming::Registry)
    }

    /// Everything that is wrong with the format, for the user.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let columns = match self {
            Format::Csv(format) => {
                let illegal = ['"', '\n', '\r'];
                if !format.delimiter.is_ascii() || illegal.contains(&format.delimiter) {
                    faults.push(format!(
                        "delimiter {:?} must be one ASCII character, no quote",
                        format.delimiter
                    ));
                }
                &format.columns
            }
            Format::Json(format) => &format.columns,
            Format::Avro(format) => {
                match format.columns() {
                    Ok(columns) => {
                        let names: Vec<&str> = columns.iter().map(|column| column.name().as_str()).collect();
                        check_names(&names, &mut faults);
                    }
                    Err(fault) => faults.push(format!("the Avro schema: {fault}")),
                }
                return faults;
            }
            Format::Raw => return faults,
        };
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        check_names(&names, &mut faults);
        faults
    }
}

fn check_names(names: &[&str], faults: &mut Vec<String>) {
    if names.is_empty() {
        faults.push("name at least one column".to_owned());
    }
    for (index, name) in names.iter().enumerate() {
        if name.is_empty() {
            faults.push(format!("column {} has no name", index + 1));
        } else if coordinates::is_reserved(name) {
            faults.push(format!("column '{name}' has the name of a hidden column"));
        } else if names[..index].contains(name) {
            faults.push(format!("column '{name}' is named twice"));
        }
    }
}
