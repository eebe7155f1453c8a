//! A planned statement as a step of a job graph.

use std::fmt;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use sharestream_core::operator::{Operator, OperatorFactory, RowsPerRecord};
use sharestream_core::{Error, ErrorKind, Result};

use crate::SqlError;
use crate::evaluate::SqlOperator;
use crate::planner::{self, CompiledSelect};

/// A stateless SELECT, planned. Cheap to clone; all subtasks share the compiled expressions.
#[derive(Clone)]
pub struct SqlTransform {
    select: Arc<CompiledSelect>,
    sql: String,
}

impl fmt::Debug for SqlTransform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlTransform").field("sql", &self.sql).finish_non_exhaustive()
    }
}

impl SqlTransform {
    /// Plans `sql` over a table `source` with the columns of `input`: the user's, then the hidden ones.
    ///
    /// # Errors
    /// What is wrong with the statement, where, and what to write instead.
    pub fn plan(sql: &str, input: SchemaRef) -> Result<SqlTransform, SqlError> {
        let select = Arc::new(planner::compile(sql, input)?);
        Ok(SqlTransform { select, sql: sql.to_owned() })
    }

    /// The output columns, then the hidden ones.
    pub fn schema(&self) -> SchemaRef {
        self.select.output_schema.clone()
    }
}

impl OperatorFactory for SqlTransform {
    fn name(&self) -> &str {
        "sql"
    }

    fn output_schema(&self, input: SchemaRef) -> Result<SchemaRef> {
        if !same_columns(&input, &self.select.input_schema) {
            let context = format!(
                "the sql transform was planned for columns [{}] and is given [{}]",
                described(&self.select.input_schema),
                described(&input)
            );
            return Err(Error::new(ErrorKind::InvalidInput, context));
        }
        Ok(self.schema())
    }

    /// A SELECT without UNNEST keeps a row or drops it.
    fn rows_per_record(&self) -> RowsPerRecord {
        RowsPerRecord::AtMostOne
    }

    fn create(&self, _subtask: usize) -> Result<Box<dyn Operator>> {
        Ok(Box::new(SqlOperator::new(self.select.clone())))
    }
}

/// Names and types decide; whether nulls are declared does not change the expressions.
fn same_columns(a: &Schema, b: &Schema) -> bool {
    let columns = |schema: &Schema| -> Vec<_> {
        schema.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect()
    };
    columns(a) == columns(b)
}

fn described(schema: &Schema) -> String {
    let fields = schema.fields().iter();
    fields.map(|field| format!("{} {}", field.name(), field.data_type())).collect::<Vec<_>>().join(", ")
}
