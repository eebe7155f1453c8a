//! Event times of the rows of a batch.

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_array::{Array, RecordBatch};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Schema, TimeUnit};
use sharestream_base::ids::Offset;

use super::EventTimes;
use crate::ErrorKind;
use crate::coordinates::Coordinates;
use crate::decision::SourcePartition;
use crate::error::{Error, Result};

/// The values of a column as Unix milliseconds, and which of them are there. A timestamp of any unit, rounded down; `Int64` as
/// it is. Errors: `InvalidInput`, it is something else.
pub fn times_of(column: &dyn Array) -> Result<(Cow<'_, [i64]>, Option<&NullBuffer>)> {
    let nulls = column.nulls();
    let scaled =
        |values: &[i64], unit: i64| Cow::Owned(values.iter().map(|value| value.div_euclid(unit)).collect());
    let values = match column.data_type() {
        DataType::Int64 => Cow::Borrowed(&column.as_primitive::<Int64Type>().values()[..]),
        DataType::Timestamp(TimeUnit::Second, _) => {
            let seconds = column.as_primitive::<TimestampSecondType>().values();
            Cow::Owned(seconds.iter().map(|value| value.saturating_mul(1_000)).collect())
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            Cow::Borrowed(&column.as_primitive::<TimestampMillisecondType>().values()[..])
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            scaled(column.as_primitive::<TimestampMicrosecondType>().values(), 1_000)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            scaled(column.as_primitive::<TimestampNanosecondType>().values(), 1_000_000)
        }
        other => {
            let context = format!("{other} is no event time: it must be a timestamp, or int64 milliseconds");
            return Err(Error::new(ErrorKind::InvalidInput, context));
        }
    };
    Ok((values, nulls))
}

/// Reads the event times of batches of one source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventTimeReader {
    column: usize,
}

impl EventTimeReader {
    /// For the column `name` of `schema`. Errors: `InvalidInput`, there is none, or it is no time.
    pub(crate) fn new(schema: &Schema, name: &str) -> Result<Self> {
        let Ok(column) = schema.index_of(name) else {
            let have: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            let context = format!("there is no event time column '{name}' among {}", have.join(", "));
            return Err(Error::new(ErrorKind::InvalidInput, context));
        };
        let empty = arrow_array::new_empty_array(schema.field(column).data_type());
        times_of(&empty).map_err(|error| error.within(&format!("event time column '{name}'")))?;
        Ok(EventTimeReader { column })
    }

    /// Notes the times of a batch that is handed on.
    pub(crate) fn read(self, rows: &RecordBatch, epoch: &mut EventTimesOfEpoch) -> Result<()> {
        let (times, nulls) = times_of(rows.column(self.column))?;
        let hidden = Coordinates::of(rows)?;
        let mut row = 0;
        while row < rows.num_rows() {
            // A run of rows of one partition: the latest of its times counts once the highest of its offsets is decided.
            let (partition, topic) = (hidden.partitions.value(row), hidden.topic_ids.number(row));
            let (source, mut last) = hidden.source(row)?;
            let mut latest = None;
            while row < rows.num_rows()
                && hidden.partitions.value(row) == partition
                && hidden.topic_ids.number(row) == topic
            {
                last = last.max(Offset(hidden.offsets.value(row)));
                if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                    latest = latest.max(Some(times[row]));
                }
                row += 1;
            }
            if let Some(latest) = latest {
                epoch.add(source, last, latest);
            }
        }
        Ok(())
    }
}

/// Times of one partition that an epoch keeps apart; then neighbours are merged.
const APART_MAX: usize = 512;

/// What a source subtask has noted since the last barrier.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventTimesOfEpoch {
    times: EventTimes,
}

impl EventTimesOfEpoch {
    fn add(&mut self, source: SourcePartition, offset: Offset, time: i64) {
        let times = self.times.entry(source).or_default();
        times.push((offset, time));
        if times.len() >= APART_MAX {
            times.sort_unstable();
            let merged = times
                .chunks(2)
                .filter_map(|pair| Some((pair.last()?.0, pair.iter().map(|(_, time)| *time).max()?)));
            *times = merged.collect();
        }
    }

    /// All that was noted, for the barrier.
    pub(crate) fn take(&mut self) -> EventTimes {
        std::mem::take(&mut self.times)
    }
}
