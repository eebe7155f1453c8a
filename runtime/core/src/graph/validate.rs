//! Checks on a graph before anything is connected: parts, names, parallelism, schemas, settings.

use arrow_schema::SchemaRef;

use super::logical::{JobBuilder, JobGraph};
use crate::coordinates;
use crate::error::{Error, Result};
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
    check_schemas(&builder, &mut faults);
    let JobBuilder { id, source, operators, sink, protocol, store, options, step_hook } = builder;
    for (missing, name) in
        [(source.is_none(), "source"), (sink.is_none(), "sink"), (protocol.is_none(), "commit protocol")]
    {
        if missing {
            faults.push(format!("the job has no {name}"));
        }
    }
    let (Some((source, source_parallelism)), Some((sink, sink_parallelism)), Some(protocol), true) =
        (source, sink, protocol, faults.is_empty())
    else {
        return Err(Error::new(ErrorKind::InvalidInput, format!("job {id}: {}", faults.join("; "))));
    };
    let no_hook: StepHook = std::sync::Arc::new(|_, _| {});
    Ok(JobGraph {
        id,
        source,
        source_parallelism,
        operators,
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

/// Follows the schema from the source to the sink; the first part that refuses it ends the walk, because what
/// follows has no schema to check.
fn check_schemas(builder: &JobBuilder, faults: &mut Vec<String>) {
    let Some((source, _)) = &builder.source else { return };
    let mut schema = source.schema();
    if let Err(fault) = check_coordinates(source.name(), &schema) {
        faults.push(fault);
        return;
    }
    for operator in &builder.operators {
        schema = match operator.output_schema(schema) {
            Ok(schema) => schema,
            Err(error) => {
                faults.push(format!("operator {}: {error}", operator.name()));
                return;
            }
        };
        if let Err(fault) = check_coordinates(operator.name(), &schema) {
            faults.push(fault);
            return;
        }
    }
    if let Some((sink, _)) = &builder.sink
        && let Err(error) = sink.check_schema(schema)
    {
        faults.push(format!("sink {}: {error}", sink.name()));
    }
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
