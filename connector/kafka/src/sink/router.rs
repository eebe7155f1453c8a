//! Rows to sink subtasks: to the one that owns the partition of the row's key.

use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;
use sharestream_base::ids::PartitionIndex;
use sharestream_core::sink::Router;
use sharestream_wire::murmur2::partition_for_key;

use super::keys::Keys;
use super::owner_of;
use crate::Result;
use crate::config::SinkKey;
use crate::error::arrow_error;

/// Routes by the key's partition, as Kafka's default partitioner chooses it; rows without a key take turns.
#[derive(Debug)]
pub struct KeyRouter {
    key: SinkKey,
    partition_count: i32,
    rows_by_subtask: Vec<Vec<u32>>,
    /// Whose turn it is for a row without a key.
    turn: usize,
}

impl KeyRouter {
    /// A router to `subtask_count` subtasks that together write `partition_count` partitions (at least 1 each).
    pub fn new(key: SinkKey, partition_count: i32, subtask_count: usize) -> Self {
        KeyRouter {
            key,
            partition_count: partition_count.max(1),
            rows_by_subtask: vec![Vec::new(); subtask_count.max(1)],
            turn: 0,
        }
    }

    fn subtask_of(&mut self, key: Option<&[u8]>) -> usize {
        let subtask_count = self.rows_by_subtask.len();
        match key {
            Some(key) => {
                owner_of(PartitionIndex(partition_for_key(key, self.partition_count)), subtask_count)
            }
            None => {
                // Only subtasks that own a partition get a turn.
                let owners = subtask_count.min(usize::try_from(self.partition_count).unwrap_or(1));
                self.turn = (self.turn + 1) % owners;
                self.turn
            }
        }
    }
}

impl Router for KeyRouter {
    fn route(&mut self, rows: RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        if self.rows_by_subtask.len() == 1 {
            return Ok(vec![(0, rows)]);
        }
        let keys = Keys::bind(&self.key, &rows).map_err(arrow_error("keys of output rows"))?;
        for row in 0..rows.num_rows() {
            let subtask = self.subtask_of(keys.key(row));
            self.rows_by_subtask[subtask].push(row as u32);
        }
        let mut parts = Vec::new();
        for (subtask, indexes) in self.rows_by_subtask.iter_mut().enumerate() {
            if indexes.len() == rows.num_rows() && !indexes.is_empty() {
                indexes.clear();
                return Ok(vec![(subtask, rows)]);
            }
            if !indexes.is_empty() {
                let indexes = UInt32Array::from(std::mem::take(indexes));
                let part = take_record_batch(&rows, &indexes).map_err(arrow_error("routed rows"))?;
                parts.push((subtask, part));
            }
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::{Array, StringArray};
    use arrow_schema::{DataType, Field, Schema};

    use super::*;

    fn rows(keys: &[Option<&str>]) -> RecordBatch {
        let schema = Schema::new(vec![Field::new("carrier", DataType::Utf8, true)]);
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(StringArray::from(keys.to_vec()))]).unwrap()
    }

    #[test]
    fn a_key_goes_to_the_owner_of_its_partition_and_no_row_is_lost() {
        let keys = ["UA", "DL", "AA", "B6", "EV", "UA", "MQ", "US", "WN", "UA"];
        let mut router = KeyRouter::new(SinkKey::Column("carrier".to_owned()), 8, 3);
        let parts = router.route(rows(&keys.map(Some))).unwrap();
        let mut seen = Vec::new();
        for (subtask, part) in parts {
            for key in part.column(0).as_string::<i32>().iter().flatten() {
                assert_eq!(partition_for_key(key.as_bytes(), 8) as usize % 3, subtask);
                seen.push(key.to_owned());
            }
        }
        seen.sort();
        let mut expected = keys.to_vec();
        expected.sort();
        assert_eq!(seen, expected);
    }

    #[test]
    fn rows_without_a_key_take_turns_among_the_subtasks_that_own_a_partition() {
        let mut router = KeyRouter::new(SinkKey::Column("carrier".to_owned()), 2, 3);
        let parts = router.route(rows(&[None; 10])).unwrap();
        let counts: Vec<_> = parts.iter().map(|(subtask, part)| (*subtask, part.column(0).len())).collect();
        assert_eq!(counts, [(0, 5), (1, 5)]);
    }

    #[test]
    fn one_subtask_gets_the_batch_as_it_is() {
        let mut router = KeyRouter::new(SinkKey::None, 8, 1);
        let batch = rows(&[Some("UA"), None]);
        assert_eq!(router.route(batch.clone()).unwrap(), vec![(0, batch)]);
    }
}
