//! From keys to key groups to subtasks.

use std::ops::Range;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{ArrowError, FieldRef, Schema};
use arrow_select::take::take_record_batch;
use twox_hash::XxHash64;

use crate::ErrorKind;
use crate::error::{Error, Result};
use crate::sink::Router;

/// Key groups of every keyed operator: the unit in which state moves between subtasks, and so the highest parallelism.
/// It is part of every checkpoint and never changes.
pub const KEY_GROUPS: u32 = 128;

/// The key group of an encoded key: xxHash64 with seed 0, modulo [`KEY_GROUPS`].
pub fn key_group(key: &[u8]) -> u32 {
    // The remainder of a small divisor fits.
    (XxHash64::oneshot(0, key) % u64::from(KEY_GROUPS)) as u32
}

/// The key groups of one subtask: equal shares, in order.
pub fn owned_groups(subtask: usize, parallelism: usize) -> Range<u32> {
    let bound = |index: usize| {
        let share = u64::from(KEY_GROUPS) * index as u64 / parallelism.max(1) as u64;
        u32::try_from(share).unwrap_or(KEY_GROUPS)
    };
    bound(subtask)..bound(subtask + 1)
}

/// The subtask that owns a key group.
fn owner_of(group: u32, parallelism: usize) -> usize {
    // The inverse of the bounds above: the last subtask whose range begins at or below the group.
    let guess = (u64::from(group) * parallelism as u64 / u64::from(KEY_GROUPS)) as usize;
    if owned_groups(guess, parallelism).contains(&group) { guess } else { guess + 1 }
}

/// Encodes key columns as bytes that are equal where the keys are.
#[derive(Debug)]
pub(crate) struct KeyEncoder {
    converter: RowConverter,
    columns: Vec<usize>,
    fields: Vec<FieldRef>,
}

impl KeyEncoder {
    /// For the key columns `names` of `schema`. Errors: `InvalidInput`, there is no such column, or its type cannot be
    /// a key.
    pub(crate) fn new(schema: &Schema, names: &[String]) -> Result<Self> {
        let invalid = |what: String| Error::new(ErrorKind::InvalidInput, what);
        if names.is_empty() {
            return Err(invalid("a keyed operator needs at least one key column".to_owned()));
        }
        let mut columns = Vec::new();
        let mut fields = Vec::new();
        for name in names {
            let index = schema.index_of(name).map_err(|_| {
                let have: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
                invalid(format!("there is no key column '{name}' among {}", have.join(", ")))
            })?;
            columns.push(index);
            fields.push(schema.fields()[index].clone());
        }
        let converter = converter(&fields).map_err(|error| {
            invalid(format!("these columns cannot be keys: {}", names.join(", "))).with_source(error)
        })?;
        Ok(KeyEncoder { converter, columns, fields })
    }

    /// The key columns.
    pub(crate) fn fields(&self) -> &[FieldRef] {
        &self.fields
    }

    /// The encoded keys of a batch. Errors: `Bug`, it has another schema.
    pub(crate) fn encode(&self, batch: &RecordBatch) -> Result<Rows> {
        let columns: Vec<ArrayRef> = self
            .columns
            .iter()
            .map(|index| batch.columns().get(*index).cloned())
            .collect::<Option<_>>()
            .ok_or_else(|| Error::new(ErrorKind::Bug, "a batch came without its key columns"))?;
        self.converter.convert_columns(&columns).map_err(refused)
    }
}

pub(super) fn converter(fields: &[FieldRef]) -> std::result::Result<RowConverter, ArrowError> {
    RowConverter::new(fields.iter().map(|field| SortField::new(field.data_type().clone())).collect())
}

pub(super) fn refused(error: ArrowError) -> Error {
    Error::new(ErrorKind::Bug, "arrow refused rows of a keyed operator").with_source(error)
}

/// Sends each row to the subtask that owns its key.
#[derive(Debug)]
pub(crate) struct KeyRouter {
    keys: KeyEncoder,
    subtask_count: usize,
}

impl KeyRouter {
    pub(crate) fn new(keys: KeyEncoder, subtask_count: usize) -> Self {
        KeyRouter { keys, subtask_count }
    }
}

impl Router for KeyRouter {
    fn route(&mut self, rows: RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        if self.subtask_count == 1 {
            return Ok(vec![(0, rows)]);
        }
        let keys = self.keys.encode(&rows)?;
        let mut picks: Vec<Vec<u32>> = vec![Vec::new(); self.subtask_count];
        for (index, key) in (0u32..).zip(keys.iter()) {
            picks[owner_of(key_group(key.as_ref()), self.subtask_count)].push(index);
        }
        let row_count = rows.num_rows();
        let mut parts = Vec::new();
        for (subtask, picked) in picks.into_iter().enumerate() {
            if picked.len() == row_count {
                return Ok(vec![(subtask, rows)]);
            }
            if !picked.is_empty() {
                let part = take_record_batch(&rows, &UInt32Array::from(picked)).map_err(refused)?;
                parts.push((subtask, part));
            }
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int64Array, StringArray};
    use arrow_schema::{DataType, Field};

    use super::*;

    #[test]
    fn every_group_has_one_owner_at_every_parallelism() {
        for parallelism in 1..=KEY_GROUPS as usize {
            let mut next = 0;
            for subtask in 0..parallelism {
                let groups = owned_groups(subtask, parallelism);
                assert_eq!(groups.start, next);
                for group in groups.clone() {
                    assert_eq!(owner_of(group, parallelism), subtask, "{group} of {parallelism}");
                }
                next = groups.end;
            }
            assert_eq!(next, KEY_GROUPS);
        }
    }

    /// Stored checkpoints hold rows by key group: neither the hash nor the encoding may change unnoticed.
    #[test]
    fn the_groups_of_known_keys_never_change() {
        let schema =
            Schema::new(vec![Field::new("a", DataType::Int64, false), Field::new("b", DataType::Utf8, true)]);
        let keys = KeyEncoder::new(&schema, &["a".to_owned(), "b".to_owned()]).unwrap();
        let b = StringArray::from(vec![
            Some(""),
            None,
            Some("x"),
            Some("a longer text than a block of 32 bytes"),
        ]);
        let batch = RecordBatch::try_new(
            Arc::new(schema),
            vec![Arc::new(Int64Array::from(vec![0, 1, -1, i64::MAX])), Arc::new(b)],
        )
        .unwrap();
        let groups: Vec<u32> =
            keys.encode(&batch).unwrap().iter().map(|key| key_group(key.as_ref())).collect();
        assert_eq!(groups, [124, 13, 82, 8]);
    }

    #[test]
    fn a_missing_key_column_is_named_with_those_that_are_there() {
        let schema = Schema::new(vec![Field::new("a", DataType::Int64, false)]);
        let error = KeyEncoder::new(&schema, &["b".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("'b' among a"), "{error}");
    }
}
