//! What a job says about Avro.

use arrow_schema::FieldRef;
use serde::{Deserialize, Serialize};

use super::arrow;
use super::derive::derive;
use super::registry::SchemaId;
use super::schema::AvroSchema;

/// Avro values of the source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AvroFormat {
    /// The reader's schema: JSON of a record, whose fields are the columns.
    pub schema: String,
    /// Who says what a value was written with. Default [`AvroFraming::None`].
    pub framing: AvroFraming,
}

/// What stands in front of a datum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AvroFraming {
    /// Nothing: all values were written with the reader's schema.
    #[default]
    None,
    /// A zero byte, and the id of the writer's schema in a registry, as Confluent's serializers have it.
    Registry,
}

/// Avro values of the sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AvroOutput {
    /// JSON of the record that is written; its fields are the columns by name. Default: made from the columns.
    pub schema: Option<String>,
    /// Name of the record that is made from the columns. Default `Row`.
    pub record_name: String,
    /// Id of the schema in a registry, written in front of each datum behind a zero byte. Default: nothing is written there.
    pub schema_id: Option<SchemaId>,
}

impl Default for AvroOutput {
    fn default() -> Self {
        AvroOutput::new("Row", None)
    }
}

impl AvroFormat {
    /// The columns, or what is wrong with the schema.
    pub(in crate::formats) fn columns(&self) -> Result<Vec<FieldRef>, String> {
        arrow::columns(&AvroSchema::parse(&self.schema)?)
    }
}

impl AvroOutput {
    /// Records of this name, by this schema where one is given.
    pub fn new(record_name: impl Into<String>, schema: Option<String>) -> Self {
        AvroOutput { schema, record_name: record_name.into(), schema_id: None }
    }

    /// JSON of the schema that rows of these columns are written with: the one that was given, or the one that they make.
    ///
    /// # Errors
    /// Columns that Avro has no type for; a given schema is not held against them.
    pub fn schema_of(&self, columns: &[FieldRef]) -> Result<String, String> {
        match &self.schema {
            Some(text) => Ok(text.clone()),
            None => derive(&self.record_name, columns),
        }
    }

    /// What is written in front of each datum.
    pub(in crate::formats) fn prefix(&self) -> Vec<u8> {
        let Some(SchemaId(id)) = self.schema_id else { return Vec::new() };
        let mut prefix = vec![super::decoder::MAGIC];
        prefix.extend_from_slice(&id.to_be_bytes());
        prefix
    }
}
