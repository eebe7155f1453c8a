//! Reading the state of a subtask at a start.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use sharestream_base::planted::{Bug, is_planted};
use sharestream_checkpoints::{CheckpointStore, Manifest, OperatorSnapshot, StatePart, StatePartKind};

use super::groups::KeyEncoder;
use super::keyed::KeyedState;
use super::ledger::Ledger;
use super::list::NO_KEY_GROUPS;
use super::{KEY_GROUPS, ipc, owned_groups};
use crate::ErrorKind;
use crate::error::{Error, Result};
use crate::operator::KeyedOperatorFactory;

/// The state that a checkpoint has of an operator, all of it, to look at. `input` is the schema of its (first) input.
/// Errors: `Corrupt`, `InvalidInput` and `Retry`, as at the start of a job.
pub async fn read_state(
    store: &CheckpointStore,
    manifest: &Manifest,
    factory: &dyn KeyedOperatorFactory,
    input: &Schema,
) -> Result<KeyedState> {
    let keys = KeyEncoder::new(input, &factory.key_columns(0))?;
    let snapshot = manifest.operators.iter().find(|operator| operator.operator == factory.id());
    let restored = RestoredOperator { store, snapshot };
    restore(restored, factory, vec![keys], 0, 1).await.map(|(state, _)| state)
}

/// State of one operator as the last committed checkpoint names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RestoredOperator<'a> {
    pub(crate) store: &'a CheckpointStore,
    /// `None`: the operator is new, or its job is.
    pub(crate) snapshot: Option<&'a OperatorSnapshot>,
}

/// The state of `subtask` of `parallelism`, and the ledger of its parts. Errors: `Corrupt` (a part is missing, damaged or
/// not what its operator wrote), `InvalidInput` (the operator has changed what it keeps), `Retry` (the store).
pub(crate) async fn restore(
    restored: RestoredOperator<'_>,
    factory: &dyn KeyedOperatorFactory,
    keys: Vec<KeyEncoder>,
    subtask: usize,
    parallelism: usize,
) -> Result<(KeyedState, Ledger)> {
    let owned = owned_groups(subtask, parallelism);
    let mut state = KeyedState::new(keys, &factory.state_fields(), owned.clone())?;
    if let Some(column) = factory.timer_column() {
        state.time_by(&column)?;
    }
    let Some(snapshot) = restored.snapshot else { return Ok((state, Ledger::new(owned, Vec::new()))) };
    let id = factory.id();
    if snapshot.key_groups == NO_KEY_GROUPS {
        let context = format!(
            "operator {id} keeps state without keys in the checkpoint and by key now: give it another id"
        );
        return Err(Error::new(ErrorKind::InvalidInput, context));
    }
    if snapshot.key_groups != KEY_GROUPS {
        let context = format!(
            "state of operator {id} has {} key groups, it must have {KEY_GROUPS}",
            snapshot.key_groups
        );
        return Err(Error::new(ErrorKind::Corrupt, context));
    }
    let touches = |part: &&StatePart| part.first_group < owned.end && part.last_group >= owned.start;
    let parts: Vec<StatePart> = snapshot.parts.iter().filter(touches).cloned().collect();
    let is_upgraded = snapshot.state_version != factory.state_version();
    let ledger = Ledger::new(owned.clone(), parts);
    for part in ledger.parts() {
        if is_planted(Bug::DeltasNotRestored) && part.kind == StatePartKind::Delta {
            continue;
        }
        let bytes = restored.store.read_state(&part).await?;
        for rows in ipc::decode(&part.name, bytes)? {
            let rows = upgraded(rows, factory, snapshot.state_version, &state)?;
            check_schema(&rows.schema(), &state, id, is_upgraded)?;
            state.load(&rows, |group| ledger.counts(&part, group))?;
        }
        tracing::debug!(part = part.name, rows = part.rows, "state read");
    }
    state.forget_changes();
    // Parts of an older version are all written anew at the first barrier.
    let ledger = if is_upgraded { Ledger::new(owned, Vec::new()) } else { ledger };
    if is_upgraded {
        state.change_all();
    }
    Ok((state, ledger))
}

/// Values as the operator keeps them now.
fn upgraded(
    rows: RecordBatch,
    factory: &dyn KeyedOperatorFactory,
    version: u32,
    state: &KeyedState,
) -> Result<RecordBatch> {
    if version == factory.state_version() {
        return Ok(rows);
    }
    let id = factory.id();
    let place = format!("upgrading the state of operator {id} from version {version}");
    let key_count = state.key_count();
    let removed = rows.num_columns() - 1;
    let bug = |error| Error::new(ErrorKind::Bug, place.clone()).with_source(error);
    let values = rows.project(&(key_count..removed).collect::<Vec<_>>()).map_err(bug)?;
    let values = factory.upgrade_state(version, values).map_err(|error| error.within(&place))?;
    let mut fields = rows.schema().fields()[..key_count].to_vec();
    fields.extend(values.schema().fields().iter().cloned());
    fields.push(rows.schema().fields()[removed].clone());
    let mut columns = rows.columns()[..key_count].to_vec();
    columns.extend(values.columns().iter().cloned());
    columns.push(rows.column(removed).clone());
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(bug)
}

fn check_schema(stored: &Schema, state: &KeyedState, id: &str, is_upgraded: bool) -> Result<()> {
    check_columns(stored, &state.stored_schema(), id, is_upgraded)
}

/// Checks that columns of a part are those that the operator `id` keeps now. Errors: `InvalidInput`.
pub(super) fn check_columns(stored: &Schema, wanted: &Schema, id: &str, is_upgraded: bool) -> Result<()> {
    let same = stored.fields().len() == wanted.fields().len()
        && stored
            .fields()
            .iter()
            .zip(wanted.fields())
            .all(|(a, b)| a.name() == b.name() && a.data_type() == b.data_type());
    if same {
        return Ok(());
    }
    let list = |schema: &Schema| {
        let fields = schema.fields().iter().map(|field| format!("{} {}", field.name(), field.data_type()));
        fields.collect::<Vec<_>>().join(", ")
    };
    let hint = if is_upgraded {
        "its upgrade_state made other columns than state_fields says"
    } else {
        "raise its state_version and give it an upgrade_state, or its id another name"
    };
    let context = format!(
        "operator {id} keeps ({}) in the checkpoint and ({}) now: {hint}",
        list(stored),
        list(wanted)
    );
    Err(Error::new(ErrorKind::InvalidInput, context))
}
