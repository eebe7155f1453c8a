//! Checks on a graph before anything is connected: parts, names, parallelism, schemas, settings.

use arrow_schema::SchemaRef;

use super::logical::{JobBuilder, JobGraph};
use super::stages::stages_of;
use super::stream::{Stream, StreamStep};
use crate::coordinates;
use crate::error::{Error, Result};
use crate::sink::SinkFactory;
use crate::{ErrorKind, StepHook};

/// Subtasks of one role. More than any sensible machine has cores, low enough that a mistyped number is caught.
const PARALLELISM_MAX: usize = 256;
const NAME_CHARS_MAX: usize = 100;

/// Checks everything and reports every fault at once.
pub(super) fn check(builder: JobBuilder) -> Result<JobGraph> {
    let mut faults = builder.options.faults();
    check_name("job name", &builder.id.job, &mut faults);
    check_name("instance name", &builder.id.instance, &mut faults);
    if let Some((_, parallelism)) = &builder.source {
        check_parallelism("source", *parallelism, &mut faults);
    }
    if let Some((_, parallelism)) = &builder.sink {
        check_parallelism("sink", *parallelism, &mut faults);
    }
    let JobBuilder { id, source, steps, sink, protocol, store, options, step_hook } = builder;
    let stream = source.map(|(source, source_parallelism)| Stream { source, source_parallelism, steps });
    let schemas = stream.as_ref().map(|stream| {
        check_steps(stream, &mut faults);
        check_schemas(stream, sink.as_ref().map(|(sink, _)| sink.as_ref()), &mut faults)
    });
    for (missing, name) in
        [(stream.is_none(), "source"), (sink.is_none(), "sink"), (protocol.is_none(), "commit protocol")]
    {
        if missing {
            faults.push(format!("the job has no {name}"));
        }
    }
    let (Some(stream), Some(schemas), Some((sink, sink_parallelism)), Some(protocol), true) =
        (stream, schemas, sink, protocol, faults.is_empty())
    else {
        return Err(Error::new(ErrorKind::InvalidInput, format!("job {id}: {}", faults.join("; "))));
    };
    let no_hook: StepHook = std::sync::Arc::new(|_, _| {});
    Ok(JobGraph {
        id,
        stages: stages_of(&stream, &schemas),
        source: stream.source,
        source_parallelism: stream.source_parallelism,
        sink,
        sink_parallelism,
        protocol,
        store,
        options,
        step_hook: step_hook.unwrap_or(no_hook),
    })
}

/// The characters that Kafka allows in names of topics and that object stores allow in paths.
fn check_name(what: &str, name: &str, faults: &mut Vec<String>) {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(good) || name.starts_with('.') {
        faults.push(format!(
            "{what} '{name}' must have 1 to {NAME_CHARS_MAX} letters, digits, '.', '_' or '-', and not begin with '.'"
        ));
    }
}

fn check_parallelism(what: &str, parallelism: usize, faults: &mut Vec<String>) {
    if !(1..=PARALLELISM_MAX).contains(&parallelism) {
        faults.push(format!("{what} parallelism is {parallelism}, it must be 1 to {PARALLELISM_MAX}"));
    }
}

/// An exchange needs a stage behind it; the sink has its own.
fn check_steps(stream: &Stream, faults: &mut Vec<String>) {
    for step in &stream.steps {
        match step {
            StreamStep::Operator(_) => {}
            StreamStep::AsyncMap(map) => faults.extend(map.faults()),
            StreamStep::Exchange { parallelism, .. } => check_parallelism("rebalance", *parallelism, faults),
        }
    }
    if let Some(StreamStep::Exchange { .. }) = stream.steps.last() {
        faults.push("a rebalance has no operator behind it: the sink spreads its rows itself".to_owned());
    }
}

/// Follows the schema from the source to the sink; the first part that refuses it ends the walk, because what
/// follows has no schema to check. Gives the schema behind each step.
fn check_schemas(
    stream: &Stream,
    sink: Option<&dyn SinkFactory>,
    faults: &mut Vec<String>,
) -> Vec<SchemaRef> {
    let mut behind = Vec::new();
    let mut schema = stream.source.schema();
    if let Err(fault) = check_coordinates(stream.source.name(), &schema) {
        faults.push(fault);
        return behind;
    }
    for step in &stream.steps {
        let (name, output) = match step {
            StreamStep::Operator(operator) => (operator.name(), operator.output_schema(schema)),
            StreamStep::AsyncMap(map) => (map.name(), map.output_schema(&schema)),
            StreamStep::Exchange { .. } => ("rebalance", Ok(schema)),
        };
        schema = match output {
            Ok(schema) => schema,
            Err(error) => {
                faults.push(format!("operator {name}: {error}"));
                return behind;
            }
        };
        if let Err(fault) = check_coordinates(name, &schema) {
            faults.push(fault);
            return behind;
        }
        behind.push(schema.clone());
    }
    if let Some(sink) = sink
        && let Err(error) = sink.check_schema(schema)
    {
        faults.push(format!("sink {}: {error}", sink.name()));
    }
    behind
}

fn check_coordinates(name: &str, schema: &SchemaRef) -> std::result::Result<(), String> {
    let hidden = coordinates::fields();
    let start = coordinates::user_column_count(schema);
    let ends_with_hidden = schema.fields().len() >= hidden.len()
        && schema.fields()[start..]
            .iter()
            .zip(&hidden)
            .all(|(have, want)| have.name() == want.name() && have.data_type() == want.data_type());
    if ends_with_hidden {
        Ok(())
    } else {
        Err(format!("the schema of {name} does not end with the hidden columns {:?}", coordinates::COLUMNS))
    }
}
