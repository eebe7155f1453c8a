//! Writing the state of a subtask at a barrier.

use std::collections::BTreeSet;
use std::ops::Range;

use arrow_array::RecordBatch;
use sharestream_base::ids::CheckpointId;
use sharestream_base::planted::{Bug, is_planted};
use sharestream_checkpoints::{CheckpointStore, Owner, StatePart, StatePartKind, StatePartPlace};

use super::ipc;
use super::keyed::KeyedState;
use super::ledger::{LEVELS, Ledger};
use crate::error::Result;

/// What a subtask tells of its state with a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateReport {
    /// Stable id of the operator.
    pub(crate) operator: String,
    pub(crate) state_version: u32,
    pub(crate) key_groups: u32,
    /// All parts of the subtask, in the order in which they are read.
    pub(crate) parts: Vec<StatePart>,
    /// Bytes that were written for this barrier: what has changed.
    pub(crate) delta_bytes: u64,
    /// Bytes that were written for this barrier so that old parts can go.
    pub(crate) base_bytes: u64,
    /// Bytes of the state in memory.
    pub(crate) state_bytes: u64,
}

/// Rows of one base part, at most about so many bytes in memory: a larger state is written as several.
const PART_BYTES_MAX: u64 = 32 << 20;

type Key = (u32, Box<[u8]>);

/// Knows the parts of one subtask, and writes new ones.
pub(crate) struct StateWriter {
    store: CheckpointStore,
    owner: Owner,
    operator: String,
    state_version: u32,
    subtask: usize,
    ledger: Ledger,
    /// Keys that have changed since the last delta of each level above the lowest.
    changed: [BTreeSet<Key>; LEVELS - 1],
}

/// What a barrier writes: taken out of the state at once, written while the job goes on.
pub(crate) struct Snapshot {
    checkpoint: CheckpointId,
    pieces: Vec<Piece>,
    state_bytes: u64,
}

struct Piece {
    rows: RecordBatch,
    kind: StatePartKind,
    groups: Range<u32>,
    level: usize,
}

impl StateWriter {
    pub(crate) fn new(
        store: CheckpointStore,
        owner: Owner,
        operator: String,
        state_version: u32,
        subtask: usize,
        ledger: Ledger,
    ) -> Self {
        let changed = Default::default();
        StateWriter { store, owner, operator, state_version, subtask, ledger, changed }
    }

    /// Takes what must be written out of `state`, as it is now. Errors: `Bug`.
    pub(crate) fn take(&mut self, checkpoint: CheckpointId, state: &mut KeyedState) -> Result<Snapshot> {
        let row_count = state.len();
        let (changed_count, state_bytes) = (state.changed_count(), state.byte_count());
        // A set of keys that is nearly the state is no delta, and only costs memory.
        if self.changed.iter().any(|keys| (keys.len() as u64).saturating_mul(4) >= row_count.max(1)) {
            self.ledger.freeze();
            self.changed.iter_mut().for_each(BTreeSet::clear);
        }
        for level in &mut self.changed {
            level.extend(state.changed().iter().cloned());
        }
        let plan = self.ledger.plan(changed_count, row_count);
        let mut pieces = Vec::new();
        let owned = state.owned().clone();
        if let Some(level) = plan.delta_level.filter(|_| !is_planted(Bug::StateChangesNotWritten)) {
            let rows = match level {
                0 => state.rows_of(state.changed())?,
                level => state.rows_of(&self.changed[level - 1])?,
            };
            self.changed[..level].iter_mut().for_each(BTreeSet::clear);
            pieces.push(Piece { rows, kind: StatePartKind::Delta, groups: owned.clone(), level });
        }
        if plan.base.as_ref() == Some(&owned) {
            self.changed.iter_mut().for_each(BTreeSet::clear);
        }
        for groups in plan.base.into_iter().flat_map(|groups| split(groups, state)) {
            let rows = state.of_groups(groups.clone())?;
            pieces.push(Piece { rows, kind: StatePartKind::Base, groups, level: 0 });
        }
        state.forget_changes();
        Ok(Snapshot { checkpoint, pieces, state_bytes })
    }

    /// Writes what was taken, and reports all parts. Errors: those of the store; the attempt is over then, for what was
    /// taken is in no checkpoint.
    pub(crate) async fn write(&mut self, snapshot: Snapshot) -> Result<StateReport> {
        let Snapshot { checkpoint, pieces, state_bytes } = snapshot;
        let (mut delta_bytes, mut base_bytes) = (0, 0);
        for (number, Piece { rows, kind, groups, level }) in pieces.into_iter().enumerate() {
            let bytes = ipc::encode(&rows)?;
            let length = bytes.len() as u64;
            let place =
                StatePartPlace { checkpoint, operator: &self.operator, subtask: self.subtask, number };
            let (name, sha256) = self.store.write_state(&self.owner, place, bytes).await?;
            match kind {
                StatePartKind::Delta => delta_bytes += length,
                StatePartKind::Base => base_bytes += length,
            }
            let part = StatePart {
                name,
                sha256,
                bytes: length,
                rows: rows.num_rows() as u64,
                kind,
                checkpoint,
                first_group: groups.start,
                last_group: groups.end - 1,
            };
            self.ledger.written(part, level);
        }
        Ok(StateReport {
            operator: self.operator.clone(),
            state_version: self.state_version,
            key_groups: super::KEY_GROUPS,
            parts: self.ledger.parts(),
            delta_bytes,
            base_bytes,
            state_bytes,
        })
    }
}

/// Cuts `groups` so that no part becomes too large. Keys are spread evenly, so groups are taken to be of one size.
fn split(groups: Range<u32>, state: &KeyedState) -> Vec<Range<u32>> {
    let owned_count = (state.owned().end - state.owned().start).max(1);
    let group_bytes = (state.byte_count() / u64::from(owned_count)).max(1);
    let step = u32::try_from(PART_BYTES_MAX / group_bytes).unwrap_or(u32::MAX).max(1);
    let mut parts = Vec::new();
    let mut start = groups.start;
    while start < groups.end {
        let end = start.saturating_add(step).min(groups.end);
        parts.push(start..end);
        start = end;
    }
    parts
}
