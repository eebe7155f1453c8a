//! The offsets that an [`AsyncMap`](super::AsyncMap) still works on when a barrier passes.
//!
//! Thousands of rows may wait, at every barrier, so what is the same for neighbours is looked up once.

use std::sync::Arc;

use arrow_array::{Array as _, RecordBatch};
use sharestream_base::ids::Offset;

use super::AsyncRow;
use crate::ErrorKind;
use crate::coordinates::Coordinates;
use crate::decision::{DecidedRange, Decision, Decisions, SourcePartition};
use crate::error::{Error, Result};

/// The source partition of the row before.
struct Known<'a> {
    batch: &'a Arc<RecordBatch>,
    hidden: Coordinates<'a>,
    topic: usize,
    partition: SourcePartition,
}

/// Offsets that follow each other.
#[derive(Clone, Copy)]
struct Run {
    partition: SourcePartition,
    first: Offset,
    last: Offset,
}

/// The offsets of `rows`. Errors: `Bug`, one of them is there as several rows: offsets are told apart by nothing else, so
/// that one would be torn.
pub(crate) fn deferred<'a>(rows: impl Iterator<Item = &'a AsyncRow>) -> Result<Decisions> {
    let mut deferred = Decisions::new();
    let mut known: Option<Known<'a>> = None;
    let mut run: Option<Run> = None;
    for row in rows {
        let (partition, offset) = source(row, &mut known)?;
        match &mut run {
            Some(run) if run.partition == partition && run.last.next() == offset => run.last = offset,
            run => {
                if let Some(run) = run.take() {
                    add(&mut deferred, run)?;
                }
                *run = Some(Run { partition, first: offset, last: offset });
            }
        }
    }
    if let Some(run) = run {
        add(&mut deferred, run)?;
    }
    Ok(deferred)
}

fn source<'a>(row: &'a AsyncRow, known: &mut Option<Known<'a>>) -> Result<(SourcePartition, Offset)> {
    let index = row.index();
    if let Some(known) = known
        && Arc::ptr_eq(known.batch, row.shared_batch())
        && known.hidden.parked.is_null(index)
        && known.topic == known.hidden.topic_ids.number(index)
        && known.partition.partition.0 == known.hidden.partitions.value(index)
    {
        return Ok((known.partition, Offset(known.hidden.offsets.value(index))));
    }
    let hidden = Coordinates::of(row.batch())?;
    let (partition, offset) = hidden.source(index)?;
    if !hidden.parked.is_null(index) {
        // Its copy says where it is; what it had before says nothing of its neighbours.
        return Ok((partition, offset));
    }
    let topic = hidden.topic_ids.number(index);
    *known = Some(Known { batch: row.shared_batch(), hidden, topic, partition });
    Ok((partition, offset))
}

fn add(deferred: &mut Decisions, run: Run) -> Result<()> {
    let Run { partition, first, last } = run;
    if deferred.overlaps(partition, first, last) {
        let context = format!(
            "offsets {first} to {last} of {}/{} reached this operator as several rows, although operators in front of it \
             promise at most one for each record (rows_per_record)",
            partition.topic_id, partition.partition
        );
        return Err(Error::new(ErrorKind::Bug, context));
    }
    deferred.set(partition, DecidedRange { first, last, decision: Decision::Accept });
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow_array::{
        ArrayRef, BinaryViewArray, DictionaryArray, Int16Array, Int32Array, Int64Array, StringArray,
        TimestampMillisecondArray,
    };
    use arrow_schema::Schema;
    use sharestream_base::ids::{PartitionIndex, TopicId};

    use super::*;
    use crate::coordinates::with_coordinates;

    /// Rows at (partition, offset), as one batch.
    fn rows(at: &[(i32, i64)]) -> Vec<AsyncRow> {
        let count = at.len();
        let dictionary = |text: String| -> ArrayRef {
            let numbers = Int16Array::from(vec![0; count]);
            Arc::new(DictionaryArray::new(numbers, Arc::new(StringArray::from(vec![text]))))
        };
        let bytes = || -> ArrayRef { Arc::new(BinaryViewArray::from(vec![None::<&[u8]>; count])) };
        let columns: Vec<ArrayRef> = vec![
            dictionary("t".to_owned()),
            dictionary(TopicId::default().to_string()),
            Arc::new(Int32Array::from_iter_values(at.iter().map(|(partition, _)| *partition))),
            Arc::new(Int64Array::from_iter_values(at.iter().map(|(_, offset)| *offset))),
            Arc::new(Int32Array::from(vec![0; count])),
            Arc::new(TimestampMillisecondArray::from(vec![0; count]).with_timezone("UTC")),
            Arc::new(Int16Array::from(vec![1; count])),
            bytes(),
            bytes(),
            bytes(),
            Arc::new(StringArray::new_null(count)),
        ];
        let batch = RecordBatch::try_new(with_coordinates(&Schema::empty()), columns).unwrap();
        let batch = Arc::new(batch);
        (0..count).map(|index| AsyncRow::new(batch.clone(), index)).collect()
    }

    fn partition(index: i32) -> SourcePartition {
        SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(index) }
    }

    #[test]
    fn runs_of_several_batches_and_partitions_come_together() {
        let mut all = rows(&[(0, 5), (0, 6), (1, 7), (0, 7), (0, 9)]);
        all.extend(rows(&[(0, 8), (1, 0)]));
        let deferred = deferred(all.iter()).unwrap();
        let mut wanted = Decisions::new();
        for (index, first, last) in [(0, 5, 9), (1, 7, 7), (1, 0, 0)] {
            let range = DecidedRange { first: Offset(first), last: Offset(last), decision: Decision::Accept };
            wanted.set(partition(index), range);
        }
        assert_eq!(deferred, wanted);
    }

    #[test]
    fn two_rows_of_one_offset_are_a_defect_wherever_they_stand() {
        for at in [&[(0, 5), (0, 5)][..], &[(0, 5), (0, 6), (1, 1), (0, 6)], &[(0, 4), (0, 3), (0, 4)]] {
            let error = deferred(rows(at).iter()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Bug, "{at:?}");
            assert!(error.to_string().contains("rows_per_record"), "{error}");
        }
    }
}
