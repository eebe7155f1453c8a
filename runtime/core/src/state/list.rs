//! State without keys: the rows that each subtask keeps, one part for each.
//!
//! ```text
//! barrier n:  rows of subtask i --> one part, unless they are what its last part has
//! start:      as many subtasks as parts: each its own part, which goes on to stand for it
//!             otherwise: all rows, by subtask, one after the other, cut into equal shares (or, for a union, all to all)
//! ```
//!
//! Parts of such an operator have one key group in their manifest, and the subtask that wrote a part where others have the
//! first and last of their key groups.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use sharestream_base::ids::CheckpointId;
use sharestream_checkpoints::{CheckpointStore, Manifest, Owner, StatePart, StatePartKind, StatePartPlace};

use super::ipc;
use super::restore::{RestoredOperator, check_columns};
use super::snapshot::StateReport;
use crate::ErrorKind;
use crate::error::{Error, Result};
use crate::operator::{Redistribution, StatefulOperatorFactory};

/// Key groups of state without keys.
pub(super) const NO_KEY_GROUPS: u32 = 1;
/// Bytes in memory of the rows of one subtask: they are written whole whenever any has changed.
const LIST_BYTES_MAX: usize = 256 << 20;

/// Knows the part of one subtask, and writes new ones.
pub(crate) struct ListWriter {
    store: CheckpointStore,
    owner: Owner,
    operator: String,
    state_version: u32,
    subtask: usize,
    schema: SchemaRef,
    /// The rows that the newest part holds.
    last: Option<(RecordBatch, StatePart)>,
}

/// What a barrier writes.
pub(crate) struct ListSnapshot {
    checkpoint: CheckpointId,
    rows: RecordBatch,
}

impl ListWriter {
    pub(crate) fn new(
        (store, owner): (&CheckpointStore, &Owner),
        factory: &dyn StatefulOperatorFactory,
        subtask: usize,
        last: Option<(RecordBatch, StatePart)>,
    ) -> Self {
        ListWriter {
            store: store.clone(),
            owner: owner.clone(),
            operator: factory.id().to_owned(),
            state_version: factory.state_version(),
            subtask,
            schema: schema_of(factory),
            last,
        }
    }

    /// Takes what the operator gave at a barrier. Errors: `InvalidInput`, other columns than it has said, or too much.
    pub(crate) fn take(&self, checkpoint: CheckpointId, rows: &RecordBatch) -> Result<ListSnapshot> {
        let id = &self.operator;
        let invalid = |what: String| Error::new(ErrorKind::InvalidInput, format!("operator {id} {what}"));
        let rows = RecordBatch::try_new(self.schema.clone(), rows.columns().to_vec())
            .map_err(|error| invalid("keeps other columns than it says".to_owned()).with_source(error))?;
        let bytes = rows.get_array_memory_size();
        if bytes > LIST_BYTES_MAX {
            return Err(invalid(format!(
                "keeps {bytes} bytes without keys in subtask {}, at most {LIST_BYTES_MAX} can be: keep it by key",
                self.subtask
            )));
        }
        Ok(ListSnapshot { checkpoint, rows })
    }

    /// Writes what was taken, unless nothing has changed. Errors: those of the store; the attempt is over then.
    pub(crate) async fn write(&mut self, snapshot: ListSnapshot) -> Result<StateReport> {
        let ListSnapshot { checkpoint, rows } = snapshot;
        let state_bytes = rows.get_array_memory_size() as u64;
        let mut written_bytes = 0;
        let part = match self.last.take() {
            Some((last, part)) if last == rows => part,
            Some(_) | None => {
                let bytes = ipc::encode(&rows)?;
                written_bytes = bytes.len() as u64;
                let place =
                    StatePartPlace { checkpoint, operator: &self.operator, subtask: self.subtask, number: 0 };
                let (name, sha256) = self.store.write_state(&self.owner, place, bytes).await?;
                let subtask = u32::try_from(self.subtask).unwrap_or(u32::MAX);
                StatePart {
                    name,
                    sha256,
                    bytes: written_bytes,
                    rows: rows.num_rows() as u64,
                    kind: StatePartKind::Base,
                    checkpoint,
                    first_group: subtask,
                    last_group: subtask,
                }
            }
        };
        let parts = vec![part.clone()];
        self.last = Some((rows, part));
        Ok(StateReport {
            operator: self.operator.clone(),
            state_version: self.state_version,
            key_groups: NO_KEY_GROUPS,
            parts,
            delta_bytes: written_bytes,
            base_bytes: 0,
            state_bytes,
        })
    }
}

/// The rows that a checkpoint has of an operator, of all subtasks, to look at. Errors: `Corrupt`, `InvalidInput` and `Retry`, as
/// at the start of a job.
pub async fn read_list_state(
    store: &CheckpointStore,
    manifest: &Manifest,
    factory: &dyn StatefulOperatorFactory,
) -> Result<RecordBatch> {
    let snapshot = manifest.operators.iter().find(|operator| operator.operator == factory.id());
    restore_list(RestoredOperator { store, snapshot }, factory, 0, 1).await.map(|(rows, _)| rows)
}

fn schema_of(factory: &dyn StatefulOperatorFactory) -> SchemaRef {
    Arc::new(Schema::new(factory.state_fields()))
}

/// The rows of `subtask` of `parallelism`, and the part that holds just these, where there is one. Errors: `Corrupt` (a part
/// is missing, damaged or not what its operator wrote), `InvalidInput` (the operator has changed what it keeps), `Retry`
/// (the store).
pub(crate) async fn restore_list(
    restored: RestoredOperator<'_>,
    factory: &dyn StatefulOperatorFactory,
    subtask: usize,
    parallelism: usize,
) -> Result<(RecordBatch, Option<StatePart>)> {
    let schema = schema_of(factory);
    let Some(snapshot) = restored.snapshot else { return Ok((RecordBatch::new_empty(schema), None)) };
    let id = factory.id();
    if snapshot.key_groups != NO_KEY_GROUPS {
        let context = format!(
            "operator {id} keeps state by key in the checkpoint and without keys now: give it another id"
        );
        return Err(Error::new(ErrorKind::InvalidInput, context));
    }
    let mut parts: Vec<&StatePart> = snapshot.parts.iter().collect();
    parts.sort_by_key(|part| part.first_group);
    if (0u32..).zip(&parts).any(|(subtask, part)| part.first_group != subtask) {
        let context = format!("state of operator {id} has {} parts, of other subtasks", parts.len());
        return Err(Error::new(ErrorKind::Corrupt, context));
    }
    let rule = factory.redistribution();
    let counts: Vec<u64> = parts.iter().map(|part| part.rows).collect();
    let is_upgraded = snapshot.state_version != factory.state_version();
    let mut batches = Vec::new();
    for (part, wanted) in parts.iter().zip(wanted_rows(&counts, rule, subtask, parallelism)) {
        if wanted.is_empty() {
            continue;
        }
        let read = ipc::decode(&part.name, restored.store.read_state(part).await?)?;
        let count: usize = read.iter().map(RecordBatch::num_rows).sum();
        let (Some(first), true) = (read.first(), count as u64 == part.rows) else {
            let context =
                format!("state part {} has {count} rows, its manifest says {}", part.name, part.rows);
            return Err(Error::new(ErrorKind::Corrupt, context));
        };
        let stored = concat_batches(&first.schema(), &read).map_err(bug)?;
        // Both are at most the number of rows that were read.
        let rows = stored.slice(wanted.start as usize, (wanted.end - wanted.start) as usize);
        let rows = match is_upgraded {
            true => factory
                .upgrade_state(snapshot.state_version, rows)
                .map_err(|error| error.within(&format!("upgrading the state of operator {id}")))?,
            false => rows,
        };
        check_columns(&rows.schema(), &schema, id, is_upgraded)?;
        batches.push(RecordBatch::try_new(schema.clone(), rows.columns().to_vec()).map_err(bug)?);
    }
    let rows = concat_batches(&schema, &batches).map_err(bug)?;
    let is_own = rule == Redistribution::Split && parts.len() == parallelism && !is_upgraded;
    let own = parts.get(subtask).filter(|_| is_own).map(|part| (*part).clone());
    Ok((rows, own))
}

/// Which rows of each part a subtask gets.
fn wanted_rows(counts: &[u64], rule: Redistribution, subtask: usize, parallelism: usize) -> Vec<Range<u64>> {
    if rule == Redistribution::Union {
        return counts.iter().map(|count| 0..*count).collect();
    }
    if counts.len() == parallelism {
        return (0..)
            .zip(counts)
            .map(|(part, count)| if part == subtask { 0..*count } else { 0..0 })
            .collect();
    }
    let total: u128 = counts.iter().map(|count| u128::from(*count)).sum();
    let bound = |index: usize| {
        // A share of a sum of row counts that are in memory.
        u64::try_from(total * index as u128 / parallelism.max(1) as u128).unwrap_or(u64::MAX)
    };
    let (first, end) = (bound(subtask), bound(subtask + 1));
    let mut start = 0;
    let mut wanted = Vec::new();
    for count in counts {
        let cut = |at: u64| at.clamp(start, start + count) - start;
        wanted.push(cut(first)..cut(end));
        start += count;
    }
    wanted
}

fn bug(error: arrow_schema::ArrowError) -> Error {
    Error::new(ErrorKind::Bug, "arrow refused rows of state").with_source(error)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn with_as_many_subtasks_each_has_its_own_and_with_others_equal_shares() {
        let wanted =
            |subtask, parallelism| wanted_rows(&[5, 0, 1], Redistribution::Split, subtask, parallelism);
        assert_eq!(wanted(0, 3), [0..5, 0..0, 0..0]);
        assert_eq!(wanted(2, 3), [0..0, 0..0, 0..1]);
        assert_eq!(wanted(0, 2), [0..3, 0..0, 0..0]);
        assert_eq!(wanted(1, 2), [3..5, 0..0, 0..1]);
        assert_eq!(wanted_rows(&[5, 1], Redistribution::Union, 1, 2), [0..5, 0..1]);
    }

    proptest! {
        #[test]
        fn every_row_goes_to_exactly_one_subtask(
            counts in proptest::collection::vec(0u64..20, 1..9),
            parallelism in 1usize..9,
        ) {
            let mut seen: Vec<Vec<u32>> = counts.iter().map(|count| vec![0; *count as usize]).collect();
            for subtask in 0..parallelism {
                let wanted = wanted_rows(&counts, Redistribution::Split, subtask, parallelism);
                for (part, rows) in wanted.into_iter().enumerate() {
                    rows.for_each(|row| seen[part][row as usize] += 1);
                }
            }
            prop_assert!(seen.iter().flatten().all(|count| *count == 1));
        }
    }
}
