//! State by key, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, new_null_array};
use arrow_row::RowConverter;
use arrow_schema::{Field, FieldRef, Schema, SchemaRef};

use super::groups::{KeyEncoder, converter, key_group, refused};
use super::timers::Timers;
use crate::ErrorKind;
use crate::error::{Error, Result};
use crate::watermark::Watermark;

type Bytes = Box<[u8]>;

/// State of one subtask of a keyed operator: one row of values for each key.
///
/// Rows are read and written by *slots*: [`KeyedState::slots`] finds the keys of a batch, each once, with their values; the
/// operator folds the rows of the batch into the slots and puts them back.
#[derive(Debug)]
pub struct KeyedState {
    /// Of each input; their types are the same.
    inputs: Vec<KeyEncoder>,
    key_fields: Vec<FieldRef>,
    /// Reads encoded keys and values back.
    key_rows: RowConverter,
    value_rows: RowConverter,
    value_fields: Vec<FieldRef>,
    value_schema: SchemaRef,
    /// What stands for a key that is not there.
    nothing: Bytes,
    groups: BTreeMap<u32, BTreeMap<Bytes, Bytes>>,
    /// Keys that were put or removed since the last snapshot.
    changed: BTreeSet<(u32, Bytes)>,
    owned: Range<u32>,
    row_count: u64,
    byte_count: u64,
    timers: Option<Timers>,
    watermark: Option<Watermark>,
}

/// The keys of a batch, each once.
#[derive(Debug)]
pub struct Slots {
    /// For each row of the batch the number of its key's slot.
    pub of_row: Vec<usize>,
    /// One row for each slot: the values that are kept; null where there are none. Schema: the operator's state.
    pub values: RecordBatch,
    /// One for each slot: whether values are kept.
    pub found: BooleanArray,
    keys: Vec<(u32, Bytes)>,
}

impl Slots {
    /// Number of slots.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True for a batch without rows.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl KeyedState {
    /// Empty state of the key groups `owned`. Errors: `InvalidInput`, a type cannot be kept.
    pub(crate) fn new(inputs: Vec<KeyEncoder>, values: &[FieldRef], owned: Range<u32>) -> Result<Self> {
        let kept =
            |error| Error::new(ErrorKind::InvalidInput, "these columns cannot be state").with_source(error);
        // Null stands for a key that is not there, so every column can be null.
        let value_fields: Vec<FieldRef> =
            values.iter().map(|field| Arc::new(Field::clone(field).with_nullable(true))).collect();
        let value_rows = converter(&value_fields).map_err(kept)?;
        let nulls: Vec<ArrayRef> =
            value_fields.iter().map(|field| new_null_array(field.data_type(), 1)).collect();
        let nothing = value_rows.convert_columns(&nulls).map_err(kept)?.row(0).as_ref().into();
        // Names of the first input; a key may be null, whatever the inputs say.
        let key_fields: Vec<FieldRef> = inputs.first().map_or(&[][..], KeyEncoder::fields).to_vec();
        let key_fields: Vec<FieldRef> =
            key_fields.iter().map(|field| Arc::new(Field::clone(field).with_nullable(true))).collect();
        Ok(KeyedState {
            key_rows: converter(&key_fields).map_err(kept)?,
            key_fields,
            inputs,
            value_rows,
            value_schema: Arc::new(Schema::new(value_fields.clone())),
            value_fields,
            nothing,
            groups: BTreeMap::new(),
            changed: BTreeSet::new(),
            owned,
            row_count: 0,
            byte_count: 0,
            timers: None,
            watermark: None,
        })
    }

    /// Keys are due at the time in this value column. Before anything is kept. Errors: `InvalidInput`, there is no such
    /// column, or it holds no time.
    pub(crate) fn time_by(&mut self, column: &str) -> Result<()> {
        self.timers = Some(Timers::new(&self.value_schema, column)?);
        Ok(())
    }

    /// The watermark that this subtask was told last; that of the checkpoint after a start. A row is late when its event
    /// time is at or before it.
    pub fn watermark(&self) -> Option<Watermark> {
        self.watermark
    }

    pub(crate) fn set_watermark(&mut self, watermark: Option<Watermark>) {
        self.watermark = watermark;
    }

    /// The keys that are due at `watermark`, earliest first, at most `rows_max`, with their values. Cost: those keys, and the
    /// logarithm of all. None without a [`timer_column`](crate::operator::KeyedOperatorFactory::timer_column).
    pub fn due(&self, watermark: Watermark, rows_max: usize) -> Result<Slots> {
        let due = self.timers.iter().flat_map(|timers| timers.due(watermark)).take(rows_max);
        let keys: Vec<(u32, Bytes)> = due.cloned().collect();
        let kept = keys.iter().filter_map(|(group, key)| self.groups.get(group)?.get(key));
        let values = self.decode_values(kept)?;
        let found = keys.iter().map(|_| Some(true)).collect();
        Ok(Slots { of_row: Vec::new(), values, found, keys })
    }

    /// The key columns of `slots`, one row for each; names as in the first input.
    pub fn keys(&self, slots: &Slots) -> Result<RecordBatch> {
        let parser = self.key_rows.parser();
        let columns = self.key_rows.convert_rows(slots.keys.iter().map(|(_, key)| parser.parse(key)));
        let schema = Arc::new(Schema::new(self.key_fields.clone()));
        RecordBatch::try_new(schema, columns.map_err(refused)?).map_err(refused)
    }

    /// Keys that values are kept for.
    pub fn len(&self) -> u64 {
        self.row_count
    }

    /// True when nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.row_count == 0
    }

    /// Bytes of keys and values as they are kept, without what holds them together.
    pub fn byte_count(&self) -> u64 {
        self.byte_count
    }

    /// Schema of the values: the operator's state, every column nullable.
    pub fn value_schema(&self) -> &SchemaRef {
        &self.value_schema
    }

    /// Finds the keys of a batch of input `input`. Errors: `Bug`, there is no such input, the batch has another schema, or a
    /// key of another subtask.
    pub fn slots(&self, input: usize, batch: &RecordBatch) -> Result<Slots> {
        let Some(keys) = self.inputs.get(input) else {
            return Err(Error::new(ErrorKind::Bug, format!("a keyed operator has no input {input}")));
        };
        let encoded = keys.encode(batch)?;
        let mut numbers: BTreeMap<Bytes, usize> = BTreeMap::new();
        let mut of_row = Vec::with_capacity(batch.num_rows());
        let mut keys = Vec::new();
        for key in encoded.iter() {
            let key: &[u8] = key.as_ref();
            if let Some(number) = numbers.get(key) {
                of_row.push(*number);
                continue;
            }
            let group = key_group(key);
            if !self.owned.contains(&group) {
                let context = format!("a key of group {group} came to the owner of {:?}", self.owned);
                return Err(Error::new(ErrorKind::Bug, context));
            }
            numbers.insert(key.into(), keys.len());
            of_row.push(keys.len());
            keys.push((group, Bytes::from(key)));
        }
        let kept: Vec<Option<&Bytes>> =
            keys.iter().map(|(group, key)| self.groups.get(group).and_then(|rows| rows.get(key))).collect();
        let found = kept.iter().map(|value| Some(value.is_some())).collect();
        let values = self.decode_values(kept.into_iter().map(|value| value.unwrap_or(&self.nothing)))?;
        Ok(Slots { of_row, values, found, keys })
    }

    /// Keeps `values`, one row for each slot, for the keys of `slots`; where `mask` is false, nothing changes. Errors:
    /// `InvalidInput`, they are other columns or another number of rows.
    pub fn put(&mut self, slots: &Slots, values: &RecordBatch, mask: Option<&BooleanArray>) -> Result<()> {
        let fits = values.num_rows() == slots.len()
            && mask.is_none_or(|mask| mask.len() == slots.len())
            && values.num_columns() == self.value_fields.len()
            && values.columns().iter().zip(&self.value_fields).all(|(a, b)| a.data_type() == b.data_type());
        if !fits {
            let context = format!(
                "state is put as {} rows of {}, it must be {} rows of {}",
                values.num_rows(),
                values.schema(),
                slots.len(),
                self.value_schema
            );
            return Err(Error::new(ErrorKind::InvalidInput, context));
        }
        let encoded = self.value_rows.convert_columns(values.columns()).map_err(refused)?;
        let times = self.times_of(values.columns())?;
        for (slot, (key, value)) in slots.keys.iter().zip(encoded.iter()).enumerate() {
            let value: &[u8] = value.as_ref();
            let is_wanted = mask.is_none_or(|mask| mask.is_valid(slot) && mask.value(slot));
            let kept = self.groups.get(&key.0).and_then(|rows| rows.get(&key.1));
            if is_wanted && kept.is_none_or(|kept| **kept != *value) {
                self.set(key, Some(value.into()));
                self.set_timer(key, times.get(slot).copied().flatten());
                self.changed.insert(key.clone());
            }
        }
        Ok(())
    }

    /// Forgets the keys of `slots` where `mask` is true.
    pub fn remove(&mut self, slots: &Slots, mask: &BooleanArray) {
        for (slot, key) in slots.keys.iter().enumerate() {
            if mask.is_valid(slot) && mask.value(slot) && self.set(key, None) {
                self.changed.insert(key.clone());
            }
        }
    }

    /// Sets or forgets one key; true when something was kept for it before.
    pub(super) fn set(&mut self, (group, key): &(u32, Bytes), value: Option<Bytes>) -> bool {
        let rows = self.groups.entry(*group).or_default();
        let added = value.as_ref().map_or(0, |value| (key.len() + value.len()) as u64);
        let is_added = value.is_some();
        if let (false, Some(timers)) = (is_added, &mut self.timers) {
            timers.set(&(*group, key.clone()), None);
        }
        let before = match value {
            Some(value) => rows.insert(key.clone(), value),
            None => rows.remove(key),
        };
        let removed = before.as_ref().map_or(0, |before| (key.len() + before.len()) as u64);
        self.row_count = self.row_count + u64::from(is_added) - u64::from(before.is_some());
        self.byte_count = self.byte_count + added - removed;
        before.is_some()
    }

    fn set_timer(&mut self, key: &(u32, Bytes), time: Option<i64>) {
        if let Some(timers) = &mut self.timers {
            timers.set(key, time);
        }
    }

    /// When the key of each row of `values` is due; nothing without a timer column.
    fn times_of(&self, values: &[ArrayRef]) -> Result<Vec<Option<i64>>> {
        self.timers.as_ref().map_or(Ok(Vec::new()), |timers| timers.read(values))
    }

    /// Everything that is kept of the owned groups, in batches of at most `rows_max` rows: keys, then values.
    pub fn scan(&self, rows_max: usize) -> Result<Vec<RecordBatch>> {
        let rows: Vec<(&Bytes, Option<&Bytes>)> =
            self.groups.values().flatten().map(|(key, value)| (key, Some(value))).collect();
        rows.chunks(rows_max.max(1)).map(|chunk| self.batch(chunk, false)).collect()
    }

    /// The keys that were put or removed since the last snapshot.
    pub(super) fn changed(&self) -> &BTreeSet<(u32, Bytes)> {
        &self.changed
    }

    /// The keys that were put or removed are in a snapshot.
    pub(super) fn forget_changes(&mut self) {
        self.changed.clear();
    }

    /// Every key counts as put: what is stored is not what is kept.
    pub(super) fn change_all(&mut self) {
        let all = self.groups.iter().flat_map(|(group, rows)| rows.keys().map(|key| (*group, key.clone())));
        self.changed.extend(all);
    }

    /// What is kept for `keys` now; those that nothing is kept for are marked as removed.
    pub(super) fn rows_of(&self, keys: &BTreeSet<(u32, Bytes)>) -> Result<RecordBatch> {
        let rows: Vec<(&Bytes, Option<&Bytes>)> = keys
            .iter()
            .map(|(group, key)| (key, self.groups.get(group).and_then(|rows| rows.get(key))))
            .collect();
        self.batch(&rows, true)
    }

    /// Number of keys that have changed since the last snapshot.
    pub(super) fn changed_count(&self) -> u64 {
        self.changed.len() as u64
    }

    /// What is kept of `groups`.
    pub(super) fn of_groups(&self, groups: Range<u32>) -> Result<RecordBatch> {
        let rows: Vec<(&Bytes, Option<&Bytes>)> = self
            .groups
            .range(groups)
            .flat_map(|(_, rows)| rows)
            .map(|(key, value)| (key, Some(value)))
            .collect();
        self.batch(&rows, true)
    }

    /// Number of key columns.
    pub(super) fn key_count(&self) -> usize {
        self.key_fields.len()
    }

    /// The key groups that this subtask owns.
    pub(super) fn owned(&self) -> &Range<u32> {
        &self.owned
    }

    /// Takes rows of a stored part: those of the groups that `wanted` says.
    pub(super) fn load(&mut self, rows: &RecordBatch, wanted: impl Fn(u32) -> bool) -> Result<()> {
        let key_count = self.key_count();
        let keys = self.key_rows.convert_columns(&rows.columns()[..key_count]).map_err(refused)?;
        let stored = &rows.columns()[key_count..rows.num_columns() - 1];
        let values = self.value_rows.convert_columns(stored).map_err(refused)?;
        let times = self.times_of(stored)?;
        let is_removed = rows.column(rows.num_columns() - 1);
        let is_removed = is_removed
            .as_any()
            .downcast_ref::<BooleanArray>()
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, "a part of state has no column of removed keys"))?;
        for (index, (key, value)) in keys.iter().zip(values.iter()).enumerate() {
            let key: Bytes = key.as_ref().into();
            let group = key_group(&key);
            if self.owned.contains(&group) && wanted(group) {
                let is_kept = !is_removed.value(index);
                let (key, value) = ((group, key), is_kept.then(|| value.as_ref().into()));
                self.set(&key, value);
                if is_kept {
                    self.set_timer(&key, times.get(index).copied().flatten());
                }
            }
        }
        Ok(())
    }

    /// Schema of stored parts: keys, values, and whether the key was removed.
    pub(super) fn stored_schema(&self) -> SchemaRef {
        let mut fields = self.key_fields.clone();
        fields.extend(self.value_fields.iter().cloned());
        fields.push(Arc::new(Field::new(REMOVED, arrow_schema::DataType::Boolean, false)));
        Arc::new(Schema::new(fields))
    }

    fn batch(&self, rows: &[(&Bytes, Option<&Bytes>)], is_stored: bool) -> Result<RecordBatch> {
        let parser = self.key_rows.parser();
        let mut columns =
            self.key_rows.convert_rows(rows.iter().map(|(key, _)| parser.parse(key))).map_err(refused)?;
        let values = self.decode_values(rows.iter().map(|(_, value)| value.unwrap_or(&self.nothing)))?;
        columns.extend(values.columns().iter().cloned());
        let schema = self.stored_schema();
        if !is_stored {
            let shown = Schema::new(schema.fields()[..columns.len()].to_vec());
            return RecordBatch::try_new(Arc::new(shown), columns).map_err(refused);
        }
        let is_removed: BooleanArray = rows.iter().map(|(_, value)| Some(value.is_none())).collect();
        columns.push(Arc::new(is_removed));
        RecordBatch::try_new(schema, columns).map_err(refused)
    }

    fn decode_values<'a>(&self, rows: impl Iterator<Item = &'a Bytes>) -> Result<RecordBatch> {
        let parser = self.value_rows.parser();
        let columns = self.value_rows.convert_rows(rows.map(|row| parser.parse(row))).map_err(refused)?;
        RecordBatch::try_new(self.value_schema.clone(), columns).map_err(refused)
    }
}

/// Name of the column that marks removed keys in stored parts.
pub(super) const REMOVED: &str = "_removed";
