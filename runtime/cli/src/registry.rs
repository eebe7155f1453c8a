//! Schemas that a job file leaves to a registry: settled before the job is planned, for the whole of the run.

use std::sync::Arc;

use anyhow::Context;
use arrow_schema::FieldRef;
use sharestream_base::Clock;
use sharestream_core::coordinates;
use sharestream_kafka::formats::{Format, OutputFormat, RowEncoder, SchemaRegistry};
use sharestream_registry::HttpRegistry;

use crate::failure::Refused;
use crate::job_file::JobFile;
use crate::transform;

/// What a registry is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A job is to run: what it writes may be registered.
    Run,
    /// What a job has done is to be checked: nothing is changed, and what it writes by must be there.
    Look,
    /// A job is to be checked before it runs: nothing is changed, and what it may register need not be there.
    Check,
}

/// The registry of the source, if it has one; `job` says the schemas afterwards.
pub(crate) async fn settle(
    job: &mut JobFile,
    clock: &Clock,
    purpose: Purpose,
) -> anyhow::Result<Option<Arc<dyn SchemaRegistry>>> {
    let source = match job.source.registry.clone() {
        Some(settings) => Some(Arc::new(HttpRegistry::new(settings, clock.clone()).await?)),
        None => None,
    };
    if let (Some(registry), Format::Avro(format)) = (&source, &mut job.source.format)
        && format.schema.is_empty()
    {
        let topic = job.source.topics.first().context("a job without a source topic")?;
        let subject = subject(topic);
        format.schema = registry.latest(&subject).await?.schema;
        let faults = job.source.format.faults();
        if !faults.is_empty() {
            let faults = faults.join("; ");
            return Err(Refused::error(format!(
                "the latest version of {subject}: {faults}; give another schema"
            )));
        }
    }
    settle_sink(job, clock, purpose).await?;
    Ok(source.map(|registry| registry as Arc<dyn SchemaRegistry>))
}

async fn settle_sink(job: &mut JobFile, clock: &Clock, purpose: Purpose) -> anyhow::Result<()> {
    let Some(sink) = job.sink.registry.clone() else { return Ok(()) };
    let columns = transform::plan(job)?.output;
    let OutputFormat::Avro(output) = &mut job.sink.format else { return Ok(()) };
    let users: Vec<FieldRef> = columns.fields()[..coordinates::user_column_count(&columns)].to_vec();
    let topic = &job.sink.topic;
    let refused = |fault: String| Refused::error(format!("sink {topic}: {fault}"));
    let schema = output.schema_of(&users).map_err(refused)?;
    // Before it is registered: nobody could write by a schema that the columns do not fit.
    output.schema = Some(schema.clone());
    RowEncoder::new(&OutputFormat::Avro(output.clone()), &columns).map_err(refused)?;
    let registry = HttpRegistry::new(sink.settings, clock.clone()).await?;
    if (purpose, sink.register) == (Purpose::Check, true) {
        return Ok(());
    }
    let subject = subject(topic);
    output.schema_id = Some(match (purpose, sink.register) {
        (Purpose::Run, true) => registry.register(&subject, &schema).await?,
        (Purpose::Look | Purpose::Check, _) | (_, false) => registry.look_up(&subject, &schema).await?,
    });
    Ok(())
}

/// The subject of a topic's values, as Confluent's serializers name it.
fn subject(topic: &str) -> String {
    format!("{topic}-value")
}
