//! The transactional sink: rows and dead letters as records, written by every subtask into the one transaction of the
//! epoch.
//!
//! A transaction spans many writers because each subtask owns its partitions alone (KIP-1310's idea): subtask `s` of
//! `n` owns the partitions `p` with `p mod n = s`, of the output topic and of the dead letter topic, with sequence
//! numbers of its own.

mod factory;
mod kafka_sink;
mod keys;
mod router;
mod writer;

pub(crate) use factory::{BatchBounds, KafkaSinkFactory};
pub use router::KeyRouter;

use sharestream_base::ids::PartitionIndex;

/// The subtask that owns a partition.
pub(crate) fn owner_of(partition: PartitionIndex, subtask_count: usize) -> usize {
    usize::try_from(partition.0).unwrap_or(0) % subtask_count.max(1)
}

/// The partitions that a subtask owns, of `partition_count`.
pub(crate) fn owned_partitions(
    subtask: usize,
    subtask_count: usize,
    partition_count: i32,
) -> Vec<PartitionIndex> {
    (0..partition_count)
        .map(PartitionIndex)
        .filter(|partition| owner_of(*partition, subtask_count) == subtask)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_has_one_owner() {
        for (subtask_count, partition_count) in [(1, 1), (1, 8), (3, 8), (4, 4), (5, 3)] {
            let mut all: Vec<PartitionIndex> = (0..subtask_count)
                .flat_map(|subtask| owned_partitions(subtask, subtask_count, partition_count))
                .collect();
            all.sort();
            assert_eq!(all, (0..partition_count).map(PartitionIndex).collect::<Vec<_>>());
        }
    }
}
