//! The SQL of a job file, planned; its faults are faults of the file.

use std::sync::Arc;

use sharestream_core::coordinates;
use sharestream_core::operator::OperatorFactory;
use sharestream_sql::SqlTransform;

use crate::job_file::JobFile;

/// The transform of the job, if it has one, checked against source and sink.
pub(crate) fn plan(job: &JobFile) -> anyhow::Result<Option<Arc<SqlTransform>>> {
    let Some(sql) = &job.transform else { return Ok(None) };
    let input = job.source.format.schema();
    let transform = SqlTransform::plan(&sql.text, input.clone())
        .map_err(|error| job.sql_fault(error.line.zip(error.column), error.message, error.hint))?;
    let output = transform.output_schema(input)?;
    let columns = &output.fields()[..coordinates::user_column_count(&output)];
    if let Some(key) = &job.sink.key
        && !columns.iter().any(|column| column.name() == key)
    {
        let names: Vec<&str> = columns.iter().map(|column| column.name().as_str()).collect();
        let message = format!("sink.key '{key}' is not a column of this SELECT");
        return Err(job.sql_fault(None, message, Some(format!("it gives {}", names.join(", ")))).into());
    }
    Ok(Some(Arc::new(transform)))
}
