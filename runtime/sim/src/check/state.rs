//! G1 and G2 for operator state: what is kept counts every record as often as the output shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::{DataType, Field, Schema};
use object_store::ObjectStore;
use sharestream_checkpoints::{CheckpointStore, JobKey, ManifestRef};
use sharestream_core::state::read_state;
use sharestream_kafka::outcome::JudgedOutcome;

use super::logs::Logs;
use super::{Checker, Finding};
use crate::operators::CountById;
use crate::workload::{JOB, OUTPUT};

/// Findings of so many ids are told; more say no more.
const TOLD_MAX: usize = 5;
const ROWS_MAX: usize = 1_000;

pub(super) async fn check(
    committed: &[&JudgedOutcome],
    logs: &Logs,
    objects: &Arc<dyn ObjectStore>,
) -> anyhow::Result<Vec<Finding>> {
    let mut last: BTreeMap<&str, &ManifestRef> = BTreeMap::new();
    for outcome in committed {
        if let Some(manifest) = &outcome.record.manifest {
            last.insert(&outcome.record.instance, manifest);
        }
    }
    // Replicas share the records, so what all of them keep adds up.
    let mut kept: BTreeMap<i64, i64> = BTreeMap::new();
    for (instance, manifest) in last {
        for (id, count) in counts(objects, instance, manifest).await.with_context(|| instance.to_owned())? {
            *kept.entry(id).or_default() += count;
        }
    }
    let mut shown: BTreeMap<i64, i64> = BTreeMap::new();
    for record in logs.of(OUTPUT).iter().filter(|record| record.is_committed()) {
        if let Some(id) = record.id {
            *shown.entry(id).or_default() += 1;
        }
    }
    let of = |counts: &BTreeMap<i64, i64>, id: &i64| counts.get(id).copied().unwrap_or(0);
    let ids: std::collections::BTreeSet<i64> = kept.keys().chain(shown.keys()).copied().collect();
    let wrong = ids.iter().filter(|id| of(&kept, id) != of(&shown, id));
    let tell = |id: &i64| {
        let text = format!(
            "state counts record {id} {} times, the output has {} rows of it",
            of(&kept, id),
            of(&shown, id)
        );
        Finding::new(Checker::State, text)
    };
    Ok(wrong.take(TOLD_MAX).map(tell).collect())
}

async fn counts(
    objects: &Arc<dyn ObjectStore>,
    instance: &str,
    manifest: &ManifestRef,
) -> anyhow::Result<Vec<(i64, i64)>> {
    let store = CheckpointStore::open(Arc::clone(objects), JobKey::new(JOB, instance)).await?;
    let manifest = store.load(manifest).await?;
    let input = Schema::new(vec![Field::new("id", DataType::Int64, true)]);
    let state = read_state(&store, &manifest, &CountById, &input).await?;
    let mut counts = Vec::new();
    for batch in state.scan(ROWS_MAX)? {
        let column = |index: usize| batch.column(index).as_primitive::<Int64Type>().values().to_vec();
        counts.extend(column(0).into_iter().zip(column(1)));
    }
    Ok(counts)
}
