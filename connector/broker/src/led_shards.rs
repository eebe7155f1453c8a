//! Shards of coordinators: each partition of an internal topic that this node leads, as it was replayed from its log.
//!
//! A shard is loaded at its first use and belongs to the leader epoch that it was loaded under: it is loaded anew when
//! this node leads again, and forgotten when another does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_wire::records::RawBatch;

use crate::error::ErrorCode;
use crate::log::{Isolation, Led, Partition};
use crate::node::Node;

/// Bytes that one step of a replay reads.
const REPLAY_BYTES: usize = 4 * 1024 * 1024;

/// One partition of a coordinator's topic with what its log says.
pub(crate) trait LedShard: Sized {
    /// The topic.
    const TOPIC: &'static str;

    /// Replays the log. Errors: CORRUPT_MESSAGE and those of reading.
    fn load(node: &Node, led: Led) -> Result<Self, ErrorCode>;

    /// The right under which it was loaded.
    fn led(&self) -> &Led;
}

/// The shards of one kind that a node has loaded.
#[derive(Debug)]
pub(crate) struct LedShards<S> {
    loaded: Mutex<BTreeMap<PartitionIndex, Arc<Mutex<S>>>>,
}

impl<S> Default for LedShards<S> {
    fn default() -> Self {
        LedShards { loaded: Mutex::default() }
    }
}

impl<S: LedShard> LedShards<S> {
    /// A shard, loaded if need be. Errors: NOT_COORDINATOR, those of [`LedShard::load`].
    pub(crate) fn get(&self, node: &Node, index: PartitionIndex) -> Result<Arc<Mutex<S>>, ErrorCode> {
        let mut loaded = lock(&self.loaded);
        let Ok(led) = node.led(S::TOPIC, index) else {
            loaded.remove(&index);
            return Err(ErrorCode::NotCoordinator);
        };
        if let Some(shard) = loaded.get(&index)
            && lock(shard).led().epoch() == led.epoch()
        {
            return Ok(Arc::clone(shard));
        }
        let shard = Arc::new(Mutex::new(S::load(node, led)?));
        loaded.insert(index, Arc::clone(&shard));
        Ok(shard)
    }

    /// Every shard that this node leads and can load, ascending. What another leads is its business.
    pub(crate) fn every<'a>(
        &'a self,
        node: &'a Node,
    ) -> impl Iterator<Item = (PartitionIndex, Arc<Mutex<S>>)> + 'a {
        let count = node.cluster.topics.by_name(S::TOPIC).map_or(0, |topic| topic.partition_count());
        (0..count).map(PartitionIndex).filter_map(|index| Some((index, self.get(node, index).ok()?)))
    }

    /// The shards in memory, without loading any.
    pub(crate) fn loaded(&self) -> Vec<Arc<Mutex<S>>> {
        lock(&self.loaded).values().cloned().collect()
    }
}

/// A panic under the lock is a defect of ours; refusing the shard for ever would only hide it.
pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives every batch of a log from `from` to its end, which is the answer. Errors: those of `take` and of reading.
pub(crate) fn replay(
    log: &Partition,
    mut from: Offset,
    mut take: impl FnMut(&RawBatch) -> Result<(), ErrorCode>,
) -> Result<Offset, ErrorCode> {
    loop {
        let read = log.read(from, REPLAY_BYTES, Isolation::ReadUncommitted)?;
        if read.batches.is_empty() {
            return Ok(from);
        }
        for batch in &read.batches {
            from = Offset(batch.header.next_offset());
            take(batch)?;
        }
    }
}
