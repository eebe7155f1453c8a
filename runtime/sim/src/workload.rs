//! What the records are, what must become of each, and the operator that makes it so.
//!
//! A record `id` has the value `<id>,<n>`. Its fate depends on `id` alone, so what must be in the output is computed
//! and not remembered.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BooleanArray, Int32Array, RecordBatch, UInt64Array};
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use arrow_select::take::take_record_batch;
use sharestream_core::operator::{Operator, OperatorFactory, OperatorOutput};
use sharestream_core::{Error, Result, coordinates};

/// Source topic.
pub(crate) const SOURCE: &str = "numbers";
/// Output topic.
pub(crate) const OUTPUT: &str = "output";
/// Dead letter topic.
pub(crate) const DEAD_LETTERS: &str = "dead";
/// Outcome topic.
pub(crate) const OUTCOMES: &str = "outcomes";
/// Share group.
pub(crate) const GROUP: &str = "group";
/// Job.
pub(crate) const JOB: &str = "job";

/// What must become of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// So many output rows.
    Rows(i32),
    /// Nothing.
    Filtered,
    /// One dead letter: it does not decode.
    Undecodable,
    /// One dead letter: the operator rejects the row.
    Refused,
}

impl Fate {
    /// The fate of record `id`.
    pub(crate) fn of(id: i64) -> Fate {
        match id % 20 {
            0 => Fate::Undecodable,
            1 => Fate::Refused,
            2..=5 => Fate::Filtered,
            6..=11 => Fate::Rows(2),
            _ => Fate::Rows(1),
        }
    }

    /// Output rows that it must have.
    pub(crate) fn rows(self) -> i32 {
        match self {
            Fate::Rows(count) => count,
            Fate::Filtered | Fate::Undecodable | Fate::Refused => 0,
        }
    }

    /// True when it must have one dead letter.
    pub(crate) fn is_dead_letter(self) -> bool {
        matches!(self, Fate::Undecodable | Fate::Refused)
    }
}

/// Value of record `id`.
pub(crate) fn value(id: i64) -> String {
    if Fate::of(id) == Fate::Undecodable { format!("{id},NA") } else { format!("{id},{}", id * 2) }
}

/// The id in a value of the source or the output (JSON there).
pub(crate) fn id_of(value: &[u8]) -> Option<i64> {
    if value.first() == Some(&b'{') {
        return serde_json::from_slice::<serde_json::Value>(value).ok()?.get("id")?.as_i64();
    }
    std::str::from_utf8(value).ok()?.split(',').next()?.parse().ok()
}

/// Filters, doubles, rejects or passes on a row by its id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByFate;

impl Operator for ByFate {
    fn process(&mut self, batch: RecordBatch) -> Result<OperatorOutput> {
        let failed = |error: arrow_schema::ArrowError| {
            Error::new(sharestream_base::ErrorKind::Bug, "the operator of the simulation").with_source(error)
        };
        let ids = batch.column(0).as_primitive::<Int64Type>().clone();
        let is_refused = ids.values().iter().map(|id| Some(Fate::of(*id) == Fate::Refused));
        let refused = filter_record_batch(&batch, &BooleanArray::from_iter(is_refused)).map_err(failed)?;
        let user = coordinates::user_column_count(&batch.schema());
        let columns: Vec<ArrayRef> = refused.columns()[user..].to_vec();
        let errors = vec![(coordinates::RejectKind::Transform, "refused"); refused.num_rows()];
        let rejected = coordinates::rejected_batch(columns, errors).map_err(failed)?;

        let (mut indices, mut ordinals) = (Vec::new(), Vec::new());
        for (index, id) in ids.values().iter().enumerate() {
            for ordinal in 0..Fate::of(*id).rows() {
                indices.push(index as u64);
                ordinals.push(ordinal);
            }
        }
        let taken = take_record_batch(&batch, &UInt64Array::from(indices)).map_err(failed)?;
        let mut columns = taken.columns().to_vec();
        let place = batch.schema().index_of(coordinates::ORDINAL).map_err(failed)?;
        columns[place] = Arc::new(Int32Array::from(ordinals));
        let rows = RecordBatch::try_new(batch.schema(), columns).map_err(failed)?;
        Ok(OperatorOutput { rows: Some(rows), rejected: Some(rejected) })
    }
}

impl OperatorFactory for ByFate {
    fn name(&self) -> &str {
        "by-fate"
    }

    fn output_schema(&self, input: SchemaRef) -> Result<SchemaRef> {
        Ok(input)
    }

    fn create(&self, _subtask: usize) -> Result<Box<dyn Operator>> {
        Ok(Box::new(ByFate))
    }
}
