//! Which partition a record goes to, as Kafka's Java client chooses it.

use sharestream_base::Rng;
use sharestream_base::ids::PartitionIndex;
use sharestream_wire::murmur2;

/// Keyed records by the hash of their key; records without a key in runs, so that batches fill.
#[derive(Debug)]
pub struct Partitioner {
    rng: Rng,
    sticky: i32,
    left_in_run: u32,
}

/// Records without a key that follow one another into one partition.
const RUN: u32 = 1_000;

impl Partitioner {
    /// A partitioner; `rng` chooses where runs go.
    pub fn new(rng: Rng) -> Self {
        Partitioner { rng, sticky: 0, left_in_run: 0 }
    }

    /// The partition of a record among `partition_count` (at least 1).
    pub fn partition(&mut self, key: Option<&[u8]>, partition_count: i32) -> PartitionIndex {
        if let Some(key) = key {
            return PartitionIndex(murmur2::partition_for_key(key, partition_count));
        }
        if self.left_in_run == 0 || self.sticky >= partition_count {
            let count = u64::try_from(partition_count).unwrap_or(1);
            self.sticky = i32::try_from(self.rng.below(count)).unwrap_or(0);
            self.left_in_run = RUN;
        }
        self.left_in_run -= 1;
        PartitionIndex(self.sticky)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_has_one_partition_and_no_key_has_runs() {
        let mut partitioner = Partitioner::new(Rng::seeded(1));
        let first = partitioner.partition(Some(b"UA"), 8);
        assert_eq!(partitioner.partition(Some(b"UA"), 8), first);
        let run: Vec<_> = (0..RUN).map(|_| partitioner.partition(None, 8)).collect();
        assert!(run.iter().all(|partition| *partition == run[0] && (0..8).contains(&partition.0)));
    }
}
