//! Rows that come from state, not from one source record.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryViewArray, DictionaryArray, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMillisecondArray,
};
use arrow_schema::{ArrowError, SchemaRef};
use sharestream_base::ids::TopicId;

/// A batch of rows that come from state: the user's `columns`, and hidden columns of no source record. They decide no offset;
/// the sink marks them with their checkpoint only (DESIGN section 9). `_timestamp` is `times_ms`, Unix milliseconds, one for
/// each row: the record timestamp of what is written. Topic and topic id are empty, partition and offset -1, the
/// ordinal is 0, key, value and headers are null. `schema`: the operator's output.
///
/// # Errors
/// The columns are not those of `schema`, or not of the same length as the times.
pub fn derived(
    schema: SchemaRef,
    columns: Vec<ArrayRef>,
    times_ms: Vec<i64>,
) -> std::result::Result<RecordBatch, ArrowError> {
    let count = times_ms.len();
    let text = |text: String| -> Result<ArrayRef, ArrowError> {
        let values: ArrayRef = Arc::new(StringArray::from(vec![text]));
        Ok(Arc::new(DictionaryArray::try_new(Int16Array::from(vec![0; count]), values)?))
    };
    let nothing = || -> ArrayRef { Arc::new(BinaryViewArray::from_iter((0..count).map(|_| None::<&[u8]>))) };
    let timestamps = TimestampMillisecondArray::from(times_ms).with_timezone("UTC");
    let mut columns = columns;
    columns.extend([
        text(String::new())?,
        text(TopicId::default().to_string())?,
        Arc::new(Int32Array::from(vec![-1; count])),
        Arc::new(Int64Array::from(vec![-1; count])),
        Arc::new(Int32Array::from(vec![0; count])),
        Arc::new(timestamps),
        Arc::new(Int16Array::from(vec![0; count])),
        nothing(),
        nothing(),
        nothing(),
        // Never parked.
        Arc::new(StringArray::new_null(count)),
    ]);
    RecordBatch::try_new(schema, columns)
}
