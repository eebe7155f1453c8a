//! From the stream that the user described to stages: what runs as one task for each subtask.

use std::sync::Arc;

use arrow_schema::SchemaRef;

use super::stream::{Exchange, Origin, Stream, StreamStep};
use super::validate::{check_coordinates, check_name, check_parallelism};
use sharestream_base::planted::{Bug, is_planted};

use crate::ErrorKind;
use crate::async_map::{AsyncMap, BarrierRule};
use crate::error::Error;
use crate::operator::{KeyedOperatorFactory, OperatorFactory, RowsPerRecord, StatefulOperatorFactory};
use crate::source::SourceFactory;
use crate::state::{KEY_GROUPS, KeyEncoder, KeyedState};

/// Sources and stages, each stage behind what it reads from.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) sources: Vec<PlannedSource>,
    pub(crate) stages: Vec<Stage>,
}

/// A source and its subtasks.
pub(crate) struct PlannedSource {
    pub(crate) factory: Arc<dyn SourceFactory>,
    pub(crate) parallelism: usize,
}

/// What a stage reads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Upstream {
    Source(usize),
    Stage(usize),
}

/// A stage between the sources and the sink.
pub(crate) struct Stage {
    pub(crate) work: StageWork,
    pub(crate) parallelism: usize,
    /// What it reads from, and how the rows get here. Several for an operator with several inputs.
    pub(crate) inputs: Vec<(Upstream, Exchange)>,
}

/// What each subtask of a stage does.
pub(crate) enum StageWork {
    /// Operators, one after the other.
    Chain(Vec<Arc<dyn OperatorFactory>>),
    /// Calls to the outside; `output` is the schema that it gives.
    AsyncMap { map: AsyncMap, rule: BarrierRule, output: SchemaRef },
    /// An operator that keeps state without keys.
    Stateful(Arc<dyn StatefulOperatorFactory>),
    /// An operator that keeps state by key.
    Keyed(Arc<dyn KeyedOperatorFactory>),
}

impl Stage {
    /// The encoder of the keys of each input of a keyed stage. Errors: those of [`KeyEncoder::new`]; `Bug`, the stage is
    /// not keyed.
    pub(crate) fn keys_of_each_input(&self) -> crate::Result<Vec<KeyEncoder>> {
        let keys = self.inputs.iter().map(|(_, exchange)| match exchange {
            Exchange::Keyed { columns, schema } => KeyEncoder::new(schema, columns),
            Exchange::Forward | Exchange::Rebalance => {
                Err(Error::new(ErrorKind::Bug, "a keyed stage has an input that does not go by key"))
            }
        });
        keys.collect()
    }
}

impl StageWork {
    /// Name of its tasks.
    pub(crate) fn name(&self) -> &str {
        match self {
            StageWork::Chain(_) => "operator",
            StageWork::AsyncMap { map, .. } => map.name(),
            StageWork::Stateful(operator) => operator.name(),
            StageWork::Keyed(operator) => operator.name(),
        }
    }
}

impl Plan {
    /// True when an operator keeps state, and so hears of watermarks.
    pub(crate) fn has_state(&self) -> bool {
        self.stages.iter().any(|stage| matches!(stage.work, StageWork::Stateful(_) | StageWork::Keyed(_)))
    }

    /// Subtasks of what a stage reads from.
    pub(crate) fn parallelism(&self, upstream: Upstream) -> usize {
        match upstream {
            Upstream::Source(index) => self.sources[index].parallelism,
            Upstream::Stage(index) => self.stages[index].parallelism,
        }
    }
}

/// The end of a stream that is planned so far.
struct End {
    upstream: Upstream,
    schema: SchemaRef,
    /// How the rows get to the next stage, and to how many subtasks.
    exchange: Exchange,
    parallelism: usize,
    /// Whether a barrier may pass an [`AsyncMap`] that follows while calls run (DESIGN section 6): deferred offsets are
    /// told apart by offset alone, so each must be one row on one path, and state upstream would have counted them.
    may_defer: bool,
}

/// What the sink reads from.
pub(super) struct Last {
    pub(super) upstream: Upstream,
    pub(super) schema: SchemaRef,
    /// Each record gets here as one row at most, on one path, and no state has counted it.
    pub(super) is_one_row: bool,
}

/// Plans streams, and collects what is wrong with them.
#[derive(Default)]
pub(super) struct Planner {
    pub(super) plan: Plan,
    pub(super) faults: Vec<String>,
    /// Ids of operators that keep state.
    state_ids: Vec<String>,
    /// Names of operators that park records.
    pub(super) parking: Vec<String>,
}

impl Planner {
    /// Plans `stream`; gives what the sink reads from. `None`: a fault ended the walk, because what follows has no schema to
    /// check.
    pub(super) fn plan(&mut self, stream: Stream) -> Option<Last> {
        let end = self.stream(stream)?;
        if end.exchange != Exchange::Forward {
            let fault = "a rebalance has no operator behind it: the sink spreads its rows itself";
            self.faults.push(fault.to_owned());
        }
        Some(Last { upstream: end.upstream, schema: end.schema, is_one_row: end.may_defer })
    }

    /// True when an operator keeps state.
    pub(super) fn has_state(&self) -> bool {
        !self.state_ids.is_empty()
    }

    fn stream(&mut self, stream: Stream) -> Option<End> {
        let Stream { origin, steps } = stream;
        let mut end = match origin {
            Origin::Source { factory, parallelism } => self.source(factory, parallelism)?,
            Origin::Connected { inputs, operator, parallelism } => {
                let [left, right] = *inputs;
                let left = self.stream(left);
                let right = self.stream(right);
                self.keyed(vec![left?, right?], operator, parallelism)?
            }
        };
        for step in steps {
            end = self.step(end, step)?;
        }
        Some(end)
    }

    fn source(&mut self, factory: Arc<dyn SourceFactory>, parallelism: usize) -> Option<End> {
        check_parallelism("source", parallelism, &mut self.faults);
        let schema = factory.schema();
        self.check_coordinates(factory.name(), &schema)?;
        let upstream = Upstream::Source(self.plan.sources.len());
        self.plan.sources.push(PlannedSource { factory, parallelism });
        Some(End { upstream, schema, exchange: Exchange::Forward, parallelism, may_defer: true })
    }

    fn step(&mut self, end: End, step: StreamStep) -> Option<End> {
        match step {
            StreamStep::Rebalance { parallelism } => {
                check_parallelism("rebalance", parallelism, &mut self.faults);
                Some(End { exchange: Exchange::Rebalance, parallelism, ..end })
            }
            StreamStep::Operator(operator) => {
                let schema = self.checked(operator.name(), operator.output_schema(end.schema.clone()))?;
                let may_defer = end.may_defer && operator.rows_per_record() == RowsPerRecord::AtMostOne;
                if let (Upstream::Stage(index), Exchange::Forward) = (end.upstream, &end.exchange)
                    && let StageWork::Chain(chain) = &mut self.plan.stages[index].work
                {
                    chain.push(operator);
                    return Some(End { schema, may_defer, ..end });
                }
                Some(self.stage(end, StageWork::Chain(vec![operator]), schema, may_defer))
            }
            StreamStep::AsyncMap(map) => {
                self.faults.extend(map.faults());
                let schema = self.checked(map.name(), map.output_schema(&end.schema))?;
                if map.settings().park_after.is_some() {
                    self.parking.push(map.name().to_owned());
                    if !end.may_defer {
                        self.faults.push(format!(
                            "operator {}: park_after parks whole records, but an operator in front of it keeps state, or may \
                             make several rows of one record (rows_per_record): leave park_after out, or move it in front",
                            map.name()
                        ));
                    }
                }
                let may_defer = end.may_defer || is_planted(Bug::BarrierPassesAwaitedCalls);
                let rule = if may_defer { BarrierRule::Defer } else { BarrierRule::Wait };
                let (output, may_defer) = (schema.clone(), end.may_defer);
                Some(self.stage(end, StageWork::AsyncMap { map, rule, output }, schema, may_defer))
            }
            StreamStep::Stateful(operator) => {
                let name = operator.name().to_owned();
                self.state_id(&name, operator.id());
                let schema = self.checked(&name, operator.output_schema(end.schema.clone()))?;
                Some(self.stage(end, StageWork::Stateful(operator), schema, false))
            }
            StreamStep::Keyed { operator, parallelism } => self.keyed(vec![end], operator, parallelism),
        }
    }

    fn stage(&mut self, end: End, work: StageWork, schema: SchemaRef, may_defer: bool) -> End {
        let End { upstream, exchange, parallelism, .. } = end;
        let behind = Upstream::Stage(self.plan.stages.len());
        self.plan.stages.push(Stage { work, parallelism, inputs: vec![(upstream, exchange)] });
        End { upstream: behind, schema, exchange: Exchange::Forward, parallelism, may_defer }
    }

    /// Notes the id of an operator that keeps state.
    fn state_id(&mut self, name: &str, id: &str) {
        check_name(&format!("id of operator {name}"), id, &mut self.faults);
        if self.state_ids.iter().any(|known| known == id) {
            self.faults.push(format!("operator {name}: another one keeps state under the id '{id}'"));
        }
        self.state_ids.push(id.to_owned());
    }

    fn keyed(
        &mut self,
        ends: Vec<End>,
        operator: Arc<dyn KeyedOperatorFactory>,
        parallelism: usize,
    ) -> Option<End> {
        let name = operator.name().to_owned();
        self.state_id(&name, operator.id());
        if !(1..=KEY_GROUPS as usize).contains(&parallelism) {
            self.faults
                .push(format!("operator {name}: parallelism is {parallelism}, it must be 1 to {KEY_GROUPS}"));
        }
        let schemas: Vec<SchemaRef> = ends.iter().map(|end| end.schema.clone()).collect();
        let schema = self.checked(&name, operator.output_schema(&schemas))?;
        let mut inputs = Vec::new();
        let mut key_types = Vec::new();
        for (index, End { upstream, schema, .. }) in ends.into_iter().enumerate() {
            let columns = operator.key_columns(index);
            match KeyEncoder::new(&schema, &columns) {
                Ok(keys) => {
                    key_types.push(
                        keys.fields().iter().map(|field| field.data_type().clone()).collect::<Vec<_>>(),
                    );
                    let state = KeyedState::new(vec![keys], &operator.state_fields(), 0..KEY_GROUPS);
                    let timer = operator.timer_column();
                    let checked =
                        state.and_then(|mut state| timer.map_or(Ok(()), |name| state.time_by(&name)));
                    if let Err(error) = checked {
                        self.faults.push(format!("operator {name}: {error}"));
                    }
                }
                Err(error) => self.faults.push(format!("operator {name}: input {index}: {error}")),
            }
            // Whatever spread the rows before, their keys decide now.
            inputs.push((upstream, Exchange::Keyed { columns, schema }));
        }
        if key_types.windows(2).any(|pair| pair[0] != pair[1]) {
            self.faults
                .push(format!("operator {name}: its inputs have keys of different types: {key_types:?}"));
        }
        let behind = Upstream::Stage(self.plan.stages.len());
        self.plan.stages.push(Stage { work: StageWork::Keyed(operator), parallelism, inputs });
        Some(End { upstream: behind, schema, exchange: Exchange::Forward, parallelism, may_defer: false })
    }

    fn checked(&mut self, name: &str, schema: crate::Result<SchemaRef>) -> Option<SchemaRef> {
        match schema {
            Ok(schema) => self.check_coordinates(name, &schema).map(|()| schema),
            Err(error) => {
                self.faults.push(format!("operator {name}: {error}"));
                None
            }
        }
    }

    fn check_coordinates(&mut self, name: &str, schema: &SchemaRef) -> Option<()> {
        check_coordinates(name, schema).map_err(|fault| self.faults.push(fault)).ok()
    }
}
