//! When keys are due.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::{Array, ArrayRef};
use arrow_schema::Schema;

use crate::ErrorKind;
use crate::error::{Error, Result};
use crate::watermark::{Watermark, times_of};

type Key = (u32, Box<[u8]>);

/// The keys of a subtask in order of their times. It follows from the values, so no checkpoint has it.
#[derive(Debug)]
pub(super) struct Timers {
    column: usize,
    times: BTreeMap<Key, i64>,
    by_time: BTreeSet<(i64, Key)>,
}

impl Timers {
    /// By the value column `name`. Errors: `InvalidInput`, there is none, or it holds no time.
    pub(super) fn new(values: &Schema, name: &str) -> Result<Self> {
        let Ok(column) = values.index_of(name) else {
            let context = format!("there is no state column '{name}' for timers");
            return Err(Error::new(ErrorKind::InvalidInput, context));
        };
        times_of(&arrow_array::new_empty_array(values.field(column).data_type()))
            .map_err(|error| error.within(&format!("state column '{name}' for timers")))?;
        Ok(Timers { column, times: BTreeMap::new(), by_time: BTreeSet::new() })
    }

    /// The time of each row of values.
    pub(super) fn read(&self, values: &[ArrayRef]) -> Result<Vec<Option<i64>>> {
        let Some(column) = values.get(self.column) else { return Ok(Vec::new()) };
        let (times, _) = times_of(column)?;
        Ok(times.iter().enumerate().map(|(row, time)| column.is_valid(row).then_some(*time)).collect())
    }

    pub(super) fn set(&mut self, key: &Key, time: Option<i64>) {
        let before = match time {
            Some(time) => self.times.insert(key.clone(), time),
            None => self.times.remove(key),
        };
        if before == time {
            return;
        }
        if let Some(before) = before {
            self.by_time.remove(&(before, key.clone()));
        }
        if let Some(time) = time {
            self.by_time.insert((time, key.clone()));
        }
    }

    /// The keys whose time is at or before the watermark, earliest first.
    pub(super) fn due(&self, watermark: Watermark) -> impl Iterator<Item = &Key> {
        self.by_time.iter().take_while(move |(time, _)| *time <= watermark.0).map(|(_, key)| key)
    }
}
