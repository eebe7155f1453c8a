//! Fills the source topic while faults happen, and remembers what the brokers acknowledged.

use std::collections::{BTreeMap, BTreeSet};

use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_base::{Env, Rng};
use sharestream_client::{
    BatchWriter, Client, Producer, TransactionConfig, TransactionSession, WriterConfig, Written,
};

use crate::plan::Plan;
use crate::workload::{SOURCE, value};

/// Most records of one batch.
const BATCH_RECORDS_MAX: u64 = 20;

/// What the loader knows at its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loaded {
    /// Acknowledged records: place and id.
    pub(crate) acknowledged: BTreeMap<(PartitionIndex, Offset), i64>,
    /// Ids in transactions that are known to have been aborted.
    pub(crate) aborted: BTreeSet<i64>,
    /// Ids of which nothing is known: the answer got lost.
    pub(crate) unknown: BTreeSet<i64>,
}

/// Fills the topic.
pub(crate) struct Loader {
    client: Client,
    rng: Rng,
    plan: Plan,
    producer: Option<Producer>,
    session: Option<(TransactionSession, BatchWriter)>,
    loaded: Loaded,
}

enum BatchEnd {
    Acknowledged(Vec<Written>),
    Aborted,
    Unknown,
}

impl Loader {
    /// A loader over `client`.
    pub(crate) fn new(client: Client, env: &Env, plan: &Plan) -> Self {
        Loader {
            client,
            rng: env.rng.fork("loader"),
            plan: plan.clone(),
            producer: None,
            session: None,
            loaded: Loaded::default(),
        }
    }

    /// Writes all records of the plan, spread over its busy time. Errors of single batches are remembered, not
    /// returned: the records may or may not be there.
    pub(crate) async fn run(mut self, env: Env) -> Loaded {
        let started_at = env.clock.now();
        let total = i64::try_from(self.plan.record_count).unwrap_or(i64::MAX);
        let (mut next, mut batch_index) = (0, 0u64);
        while next < total {
            let done = next as f64 / total as f64;
            env.clock.sleep_until(started_at + self.plan.busy_for.mul_f64(done * 0.9)).await;
            let count = i64::try_from(1 + self.rng.below(BATCH_RECORDS_MAX)).unwrap_or(1).min(total - next);
            let partitions = u64::try_from(self.plan.source_partitions).unwrap_or(1);
            let mut ids: BTreeMap<PartitionIndex, Vec<i64>> = BTreeMap::new();
            for id in next..next + count {
                let partition = i32::try_from(self.rng.below(partitions)).unwrap_or(0);
                ids.entry(PartitionIndex(partition)).or_default().push(id);
            }
            next += count;
            batch_index += 1;
            let per_transaction = self.plan.batches_per_transaction;
            let end = if per_transaction > 0 && batch_index.is_multiple_of(per_transaction) {
                let commits = (batch_index / per_transaction).is_multiple_of(2);
                self.in_transaction(&ids, &env, commits).await
            } else {
                self.plain(&ids, &env).await
            };
            self.remember(ids, end);
        }
        self.loaded
    }

    fn remember(&mut self, ids: BTreeMap<PartitionIndex, Vec<i64>>, end: BatchEnd) {
        match end {
            BatchEnd::Aborted => self.loaded.aborted.extend(ids.into_values().flatten()),
            BatchEnd::Unknown => self.loaded.unknown.extend(ids.into_values().flatten()),
            BatchEnd::Acknowledged(written) => {
                let mut left = ids;
                for batch in written {
                    let count = usize::try_from(batch.record_count).unwrap_or(0);
                    let Some(ids) = left.get_mut(&batch.partition) else { continue };
                    let taken: Vec<i64> = ids.drain(..count.min(ids.len())).collect();
                    match batch.base_offset {
                        Some(base) => {
                            for (offset, id) in (base.0..).zip(taken) {
                                self.loaded.acknowledged.insert((batch.partition, Offset(offset)), id);
                            }
                        }
                        None => self.loaded.unknown.extend(taken),
                    }
                }
                self.loaded.unknown.extend(left.into_values().flatten());
            }
        }
    }

    async fn plain(&mut self, ids: &BTreeMap<PartitionIndex, Vec<i64>>, env: &Env) -> BatchEnd {
        let mut producer = match self.producer.take() {
            Some(producer) => producer,
            None => match Producer::connect(self.client.clone(), WriterConfig::default()).await {
                Ok(producer) => producer,
                Err(_) => return BatchEnd::Unknown,
            },
        };
        match append_and_flush(producer.writer(), ids, env).await {
            Ok(written) => {
                self.producer = Some(producer);
                BatchEnd::Acknowledged(written)
            }
            Err(_) => BatchEnd::Unknown,
        }
    }

    async fn in_transaction(
        &mut self,
        ids: &BTreeMap<PartitionIndex, Vec<i64>>,
        env: &Env,
        commits: bool,
    ) -> BatchEnd {
        let Ok((mut session, mut writer)) = self.take_session().await else { return BatchEnd::Unknown };
        let Ok(identity) = session.begin() else { return BatchEnd::Unknown };
        writer.set_identity(&identity);
        let Ok(written) = append_and_flush(&mut writer, ids, env).await else {
            // The next session of the same id aborts it.
            return BatchEnd::Unknown;
        };
        let end = if commits { session.commit().await } else { session.abort().await };
        match end {
            Ok(()) => {
                self.session = Some((session, writer));
                if commits { BatchEnd::Acknowledged(written) } else { BatchEnd::Aborted }
            }
            Err(_) => BatchEnd::Unknown,
        }
    }

    async fn take_session(&mut self) -> sharestream_client::Result<(TransactionSession, BatchWriter)> {
        if let Some(session) = self.session.take() {
            return Ok(session);
        }
        let mut session = TransactionSession::new(self.client.clone(), TransactionConfig::new("loader"))?;
        session.init().await?;
        Ok((session, BatchWriter::new(self.client.clone(), WriterConfig::default())))
    }
}

async fn append_and_flush(
    writer: &mut BatchWriter,
    ids: &BTreeMap<PartitionIndex, Vec<i64>>,
    env: &Env,
) -> sharestream_client::Result<Vec<Written>> {
    for (partition, ids) in ids {
        for id in ids {
            let (key, value, now_ms) = (format!("key-{}", id % 7), value(*id), env.clock.wall_ms());
            let (key, value) = (key.as_bytes(), value.as_bytes());
            writer.append(SOURCE, *partition, now_ms, Some(key), Some(value), &[]).await?;
        }
    }
    writer.flush().await
}
