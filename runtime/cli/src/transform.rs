//! The SQL and the calls of a job file, planned; their faults are faults of the file.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use sharestream_base::Clock;
use sharestream_core::async_map::AsyncMap;
use sharestream_core::coordinates;
use sharestream_core::operator::OperatorFactory;
use sharestream_http::HttpFunction;
use sharestream_sql::SqlTransform;

use crate::job_file::JobFile;

/// What happens between source and sink.
#[derive(Clone)]
pub(crate) struct Plan {
    /// The transform, if the job has one.
    pub(crate) transform: Option<Arc<SqlTransform>>,
    /// Columns in front of each call, in order.
    pub(crate) call_inputs: Vec<SchemaRef>,
    /// Columns in front of the sink.
    pub(crate) output: SchemaRef,
}

/// Plans the job and checks it against source and sink.
pub(crate) fn plan(job: &JobFile) -> anyhow::Result<Plan> {
    let input = job.source.format.schema();
    let (transform, mut output) = match &job.transform {
        Some(sql) => {
            let transform = SqlTransform::plan(&sql.text, input.clone())
                .map_err(|error| job.sql_fault(error.line.zip(error.column), error.message, error.hint))?;
            let output = transform.output_schema(input)?;
            (Some(Arc::new(transform)), output)
        }
        None => (None, input),
    };
    let mut call_inputs = Vec::new();
    for stage in &job.http {
        let behind = stage.settings.output_schema(&output);
        call_inputs.push(std::mem::replace(&mut output, behind));
    }
    job.check_calls(&call_inputs)?;
    check_key(job, &output)?;
    Ok(Plan { transform, call_inputs, output })
}

fn check_key(job: &JobFile, output: &SchemaRef) -> anyhow::Result<()> {
    let columns = &output.fields()[..coordinates::user_column_count(output)];
    if let Some(key) = &job.sink.key
        && !columns.iter().any(|column| column.name() == key)
    {
        let names: Vec<&str> = columns.iter().map(|column| column.name().as_str()).collect();
        let what = if job.http.is_empty() { "this SELECT" } else { "the rows behind the calls" };
        let message = format!("sink.key '{key}' is not a column of {what}");
        return Err(job.sql_fault(None, message, Some(format!("it gives {}", names.join(", ")))).into());
    }
    Ok(())
}

/// The calls of the job, with their secrets read. `cluster_id` stands before each idempotency key.
pub(crate) async fn calls(
    job: &JobFile,
    plan: &Plan,
    cluster_id: Option<&str>,
    clock: &Clock,
) -> sharestream_core::Result<Vec<AsyncMap>> {
    let mut maps = Vec::new();
    for (stage, input) in job.http.iter().zip(&plan.call_inputs) {
        let function = HttpFunction::connect(stage.settings.clone(), input, cluster_id, clock.clone()).await;
        let function = function.map_err(|error| error.within(&format!("[[http]] {}", stage.name)))?;
        maps.push(AsyncMap::new(&stage.name, Arc::new(function)).options(stage.options.clone()));
    }
    Ok(maps)
}
