//! What the subtasks of a stage own, made when an attempt connects.

use sharestream_checkpoints::{CheckpointStore, Owner};

use super::physical::{Body, Restored};
use super::stages::{Stage, StageWork};
use crate::ErrorKind;
use crate::error::{Error, Result};
use crate::operator::{KeyedOperatorFactory, StatefulOperatorFactory};
use crate::state::{ListWriter, RestoredOperator, StateWriter, restore, restore_list};
use crate::task::keyed::{AsList, ByKey};

pub(super) async fn body(stage: &Stage, subtask: usize, restored: Restored<'_>) -> Result<Body> {
    match &stage.work {
        StageWork::Chain(operators) => {
            let chain = operators.iter().map(|operator| {
                let place = format!("operator {}", operator.name());
                operator.create(subtask).map_err(|error| error.within(&place))
            });
            Ok(Body::Chain(chain.collect::<Result<Vec<_>>>()?))
        }
        StageWork::AsyncMap { .. } => Ok(Body::AsyncMap),
        StageWork::Stateful(factory) => {
            let place = format!("operator {} subtask {subtask}", factory.name());
            let body = stateful_body(stage, factory.as_ref(), subtask, restored).await;
            body.map_err(|error| error.within(&place))
        }
        StageWork::Keyed(factory) => {
            let place = format!("operator {} subtask {subtask}", factory.name());
            keyed_body(stage, factory.as_ref(), subtask, restored).await.map_err(|error| error.within(&place))
        }
    }
}

async fn keyed_body(
    stage: &Stage,
    factory: &dyn KeyedOperatorFactory,
    subtask: usize,
    restored: Restored<'_>,
) -> Result<Body> {
    let watermark = restored.watermark;
    let ((store, owner), restored) = state_of(factory.id(), restored)?;
    let keys = stage.keys_of_each_input()?;
    let (mut state, ledger) = restore(restored, factory, keys, subtask, stage.parallelism).await?;
    state.set_watermark(watermark);
    let operator = factory.create(subtask)?;
    let (id, version) = (factory.id().to_owned(), factory.state_version());
    let writer = StateWriter::new(store.clone(), owner.clone(), id, version, subtask, ledger);
    Ok(Body::Keyed(Box::new((ByKey { operator, state }, writer))))
}

async fn stateful_body(
    stage: &Stage,
    factory: &dyn StatefulOperatorFactory,
    subtask: usize,
    restored: Restored<'_>,
) -> Result<Body> {
    let watermark = restored.watermark;
    let (owned, restored) = state_of(factory.id(), restored)?;
    let (rows, part) = restore_list(restored, factory, subtask, stage.parallelism).await?;
    let mut operator = factory.create(subtask)?;
    operator.restore(rows.clone(), watermark)?;
    let writer = ListWriter::new(owned, factory, subtask, part.map(|part| (rows, part)));
    Ok(Body::Stateful(Box::new((AsList { operator }, writer))))
}

/// Where the state of operator `id` is written to, and what it is restored from.
fn state_of<'a>(
    id: &str,
    restored: Restored<'a>,
) -> Result<((&'a CheckpointStore, &'a Owner), RestoredOperator<'a>)> {
    let Some((store, owner)) = restored.store else {
        return Err(Error::new(ErrorKind::Bug, "it keeps state, and there is no checkpoint store"));
    };
    let operators = restored.manifest.map_or(&[][..], |manifest| &manifest.operators);
    let snapshot = operators.iter().find(|operator| operator.operator == id);
    Ok(((store, owner), RestoredOperator { store, snapshot }))
}
