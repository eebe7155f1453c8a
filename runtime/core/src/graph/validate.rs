//! Checks on a graph before anything is connected: parts, names, parallelism, schemas, settings.

use arrow_schema::SchemaRef;

use super::logical::{JobBuilder, JobGraph};
use super::stages::{Last, Planner};
use crate::coordinates;
use crate::error::{Error, Result};
use crate::watermark::EventTimeReader;
use crate::{ErrorKind, StepHook};

/// Subtasks of one role. More than any sensible machine has cores, low enough that a mistyped number is caught.
const PARALLELISM_MAX: usize = 256;
const NAME_CHARS_MAX: usize = 100;

/// Checks everything and reports every fault at once.
pub(super) fn check(builder: JobBuilder) -> Result<JobGraph> {
    let JobBuilder { id, stream, misplaced, sink, protocol, store, options, step_hook, workers, link } =
        builder;
    let mut planner = Planner::default();
    planner.faults = options.faults();
    check_name("job name", &id.job, &mut planner.faults);
    check_name("instance name", &id.instance, &mut planner.faults);
    if let Some((_, parallelism)) = &sink {
        check_parallelism("sink", *parallelism, &mut planner.faults);
    }
    for (missing, name) in
        [(stream.is_none(), "source"), (sink.is_none(), "sink"), (protocol.is_none(), "commit protocol")]
    {
        if missing {
            planner.faults.push(format!("the job has no {name}"));
        }
    }
    let early = |name: &String| format!("operator {name} was given before the source");
    planner.faults.extend(misplaced.iter().map(early));
    let last = stream.and_then(|stream| planner.plan(stream));
    if let (Some(last), Some((sink, _))) = (&last, &sink) {
        if let Err(error) = sink.check_schema(last.schema.clone()) {
            planner.faults.push(format!("sink {}: {error}", sink.name()));
        }
        if sink.gives_back() && !last.is_one_row {
            planner.faults.push(format!(
                "sink {}: rejected records are to be given back (policy release), but here a record may be several rows, or \
                 state has counted it, which a return would not undo: choose another policy",
                sink.name()
            ));
        }
    }
    if let (Some(name), Some((sink, _))) = (planner.parking.first(), &sink)
        && !sink.parks()
    {
        let fault = format!(
            "operator {name} parks records (park_after), and sink {} has no topic for them",
            sink.name()
        );
        planner.faults.push(fault);
    }
    if planner.has_state() && store.is_none() {
        let fault = "an operator keeps state, and the job has no checkpoint store to keep it in";
        planner.faults.push(fault.to_owned());
    }
    if let Some(event_time) = &options.event_time {
        if store.is_none() {
            let fault = "the job has event time, and no checkpoint store to keep its watermark in";
            planner.faults.push(fault.to_owned());
        }
        for source in &planner.plan.sources {
            if let Err(error) = EventTimeReader::new(&source.factory.schema(), &event_time.column) {
                planner.faults.push(format!("source {}: {error}", source.factory.name()));
            }
        }
    }
    let Planner { plan, faults, .. } = planner;
    let (Some(Last { upstream: last, .. }), Some((sink, sink_parallelism)), Some(protocol), true) =
        (last, sink, protocol, faults.is_empty())
    else {
        return Err(Error::new(ErrorKind::InvalidInput, format!("job {id}: {}", faults.join("; "))));
    };
    let no_hook: StepHook = std::sync::Arc::new(|_, _| {});
    let step_hook = step_hook.unwrap_or(no_hook);
    Ok(JobGraph {
        id,
        plan,
        last,
        sink,
        sink_parallelism,
        protocol,
        store,
        options,
        step_hook,
        workers,
        link,
    })
}

/// The characters that Kafka allows in names of topics and that object stores allow in paths.
pub(super) fn check_name(what: &str, name: &str, faults: &mut Vec<String>) {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(good) || name.starts_with('.') {
        faults.push(format!(
            "{what} '{name}' must have 1 to {NAME_CHARS_MAX} letters, digits, '.', '_' or '-', and not begin with '.'"
        ));
    }
}

pub(super) fn check_parallelism(what: &str, parallelism: usize, faults: &mut Vec<String>) {
    if !(1..=PARALLELISM_MAX).contains(&parallelism) {
        faults.push(format!("{what} parallelism is {parallelism}, it must be 1 to {PARALLELISM_MAX}"));
    }
}

pub(super) fn check_coordinates(name: &str, schema: &SchemaRef) -> std::result::Result<(), String> {
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
