//! From the stream that the user described to stages: what runs as one task for each subtask.

use std::sync::Arc;

use arrow_schema::SchemaRef;

use super::stream::{Exchange, Stream, StreamStep};
use crate::async_map::{AsyncMap, BarrierRule};
use crate::operator::{OperatorFactory, RowsPerRecord};

/// A stage between the source and the sink.
pub(crate) struct Stage {
    pub(crate) work: StageWork,
    pub(crate) parallelism: usize,
    /// How its rows get here.
    pub(crate) from: Exchange,
}

/// What each subtask of a stage does.
pub(crate) enum StageWork {
    /// Operators, one after the other.
    Chain(Vec<Arc<dyn OperatorFactory>>),
    /// Calls to the outside; `output` is the schema that it gives.
    AsyncMap { map: AsyncMap, rule: BarrierRule, output: SchemaRef },
}

impl StageWork {
    /// Name of its tasks.
    pub(crate) fn name(&self) -> &str {
        match self {
            StageWork::Chain(_) => "operator",
            StageWork::AsyncMap { map, .. } => map.name(),
        }
    }
}

/// Cuts a stream into stages. `schema_behind` is the schema behind each step of the stream.
///
/// Whether a barrier may pass an [`AsyncMap`] while calls run is decided here (DESIGN section 6): deferred offsets are
/// told apart by offset alone, so each must be one row on one path, and state upstream would have counted them already.
pub(super) fn stages_of(stream: &Stream, schema_behind: &[SchemaRef]) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    let mut parallelism = stream.source_parallelism;
    let mut from = Exchange::Forward;
    let mut may_defer = true;
    for (step, schema) in stream.steps.iter().zip(schema_behind) {
        match step {
            StreamStep::Exchange { exchange, parallelism: wanted } => {
                (parallelism, from) = (*wanted, *exchange);
            }
            StreamStep::Operator(operator) => {
                may_defer &= operator.rows_per_record() == RowsPerRecord::AtMostOne;
                match stages.last_mut() {
                    Some(Stage { work: StageWork::Chain(chain), .. }) if from == Exchange::Forward => {
                        chain.push(operator.clone());
                    }
                    Some(_) | None => {
                        let work = StageWork::Chain(vec![operator.clone()]);
                        stages.push(Stage { work, parallelism, from });
                    }
                }
                from = Exchange::Forward;
            }
            StreamStep::AsyncMap(map) => {
                let rule = if may_defer { BarrierRule::Defer } else { BarrierRule::Wait };
                let work = StageWork::AsyncMap { map: map.clone(), rule, output: schema.clone() };
                stages.push(Stage { work, parallelism, from });
                from = Exchange::Forward;
            }
        }
    }
    stages
}
