//! Runs a compiled SELECT on batches.
//!
//! The filter touches only the columns that the SELECT list reads and the hidden ones; columns that are passed
//! through unchanged are not evaluated but shared.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{ArrayBuilder, BooleanBuilder};
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::ArrowError;
use arrow_select::concat::concat_batches;
use arrow_select::filter::FilterBuilder;
use arrow_select::take::take;
use datafusion_common::DataFusionError;
use datafusion_common::cast::as_boolean_array;
use datafusion_physical_expr::PhysicalExpr;
use sharestream_core::coordinates::RejectKind;
use sharestream_core::operator::{Operator, OperatorOutput};
use sharestream_core::{Error, ErrorKind, Result, coordinates};

use crate::planner::CompiledSelect;
use crate::row_errors::{EvaluationError, FailedRow, evaluate_rows};

/// The operator of one subtask.
pub(crate) struct SqlOperator {
    select: Arc<CompiledSelect>,
}

impl SqlOperator {
    pub(crate) fn new(select: Arc<CompiledSelect>) -> Self {
        SqlOperator { select }
    }
}

impl Operator for SqlOperator {
    fn process(&mut self, batch: RecordBatch) -> Result<OperatorOutput> {
        let select = &*self.select;
        if batch.num_rows() == 0 {
            return Ok(OperatorOutput::default());
        }
        let mut rejected = Vec::new();
        let needed = match &select.predicate {
            None => Some(select.needed_columns(&batch, None)?),
            Some(predicate) => {
                let (mask, failed) = matching_rows(predicate, &batch)?;
                rejected.extend(rejected_rows(&batch, &failed)?);
                match mask.true_count() {
                    0 => None,
                    all if all == batch.num_rows() => Some(select.needed_columns(&batch, None)?),
                    _ => Some(select.needed_columns(&batch, Some(&mask))?),
                }
            }
        };
        let rows = match needed {
            None => None,
            Some(needed) => {
                let evaluated = evaluate_rows(0..needed.num_rows(), |rows| select.project(&needed, rows))?;
                rejected.extend(rejected_rows(&needed, &evaluated.failed)?);
                let mut pieces: Vec<RecordBatch> =
                    evaluated.pieces.into_iter().map(|(_, batch)| batch).collect();
                match pieces.len() {
                    0 => None,
                    1 => pieces.pop(),
                    _ => Some(concat_batches(&select.output_schema, &pieces).map_err(defect)?),
                }
            }
        };
        let rejected = match rejected.len() {
            0 | 1 => rejected.pop(),
            _ => Some(concat_batches(&coordinates::rejected_schema(), &rejected).map_err(defect)?),
        };
        Ok(OperatorOutput { rows, rejected })
    }
}

impl CompiledSelect {
    /// The needed columns of the rows that `mask` keeps.
    fn needed_columns(&self, batch: &RecordBatch, mask: Option<&BooleanArray>) -> Result<RecordBatch> {
        let columns = self.needed.iter().map(|index| batch.column(*index));
        let (columns, row_count) = match mask {
            None => (columns.cloned().collect(), batch.num_rows()),
            Some(mask) => {
                // The mask is turned into indexes or slices once for all columns.
                let filter = FilterBuilder::new(mask).optimize().build();
                let filtered = columns.map(|column| filter.filter(column)).collect::<Result<Vec<_>, _>>();
                (filtered.map_err(defect)?, filter.count())
            }
        };
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        RecordBatch::try_new_with_options(self.needed_schema.clone(), columns, &options).map_err(defect)
    }

    /// The output of some rows of the needed columns.
    fn project(&self, needed: &RecordBatch, rows: Range<usize>) -> Result<RecordBatch, EvaluationError> {
        let needed = &slice(needed, rows);
        let row_count = needed.num_rows();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.output_schema.fields().len());
        for output in &self.outputs {
            let value = output.expr.evaluate(needed).and_then(|value| value.into_array(row_count));
            columns.push(value.map_err(|source| at(format!("column '{}'", output.name), source))?);
        }
        let hidden = needed.num_columns() - coordinates::COLUMNS.len();
        columns.extend(needed.columns()[hidden..].iter().cloned());
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        RecordBatch::try_new_with_options(self.output_schema.clone(), columns, &options)
            .map_err(|error| at("output".to_owned(), DataFusionError::Internal(error.to_string())))
    }
}

/// Which rows WHERE keeps (null: it does not), and which fail in it.
fn matching_rows(
    predicate: &Arc<dyn PhysicalExpr>,
    batch: &RecordBatch,
) -> Result<(BooleanArray, Vec<FailedRow>)> {
    let evaluated = evaluate_rows(0..batch.num_rows(), |rows| {
        let batch = &slice(batch, rows);
        let value = predicate.evaluate(batch).and_then(|value| value.into_array(batch.num_rows()));
        let mask = value.and_then(|mask| as_boolean_array(&mask).cloned());
        mask.map_err(|source| at("WHERE".to_owned(), source))
    })?;
    let mut pieces = evaluated.pieces;
    if let ([(_, mask)], true) = (pieces.as_mut_slice(), evaluated.failed.is_empty()) {
        return Ok((mask.clone(), evaluated.failed));
    }
    let mut mask = BooleanBuilder::with_capacity(batch.num_rows());
    for (rows, piece) in &pieces {
        mask.append_n(rows.start - mask.len(), false); // the failed rows before this piece
        mask.append_array(piece);
    }
    mask.append_n(batch.num_rows() - mask.len(), false);
    Ok((mask.finish(), evaluated.failed))
}

/// The failed rows as a rejected batch: the hidden columns, which `batch` ends with, and the errors.
fn rejected_rows(batch: &RecordBatch, failed: &[FailedRow]) -> Result<Option<RecordBatch>> {
    if failed.is_empty() {
        return Ok(None);
    }
    let row = |failed: &FailedRow| u32::try_from(failed.row).map_err(defect);
    let indexes = UInt32Array::from(failed.iter().map(row).collect::<Result<Vec<_>>>()?);
    let hidden = batch.num_columns() - coordinates::COLUMNS.len();
    let columns = batch.columns()[hidden..].iter().map(|column| take(column, &indexes, None));
    let columns = columns.collect::<Result<Vec<_>, _>>().map_err(defect)?;
    let errors = failed.iter().map(|failed| (RejectKind::Transform, failed.error.as_str()));
    coordinates::rejected_batch(columns, errors).map(Some).map_err(defect)
}

fn slice(batch: &RecordBatch, rows: Range<usize>) -> RecordBatch {
    if rows.len() == batch.num_rows() { batch.clone() } else { batch.slice(rows.start, rows.len()) }
}

fn at(place: String, source: DataFusionError) -> EvaluationError {
    EvaluationError { place, source }
}

/// Arrow refuses what was checked before: no input can cause it.
fn defect(error: impl Into<DefectSource>) -> Error {
    Error::new(ErrorKind::Bug, "a sql batch could not be put together").with_source(error.into().0)
}

struct DefectSource(Box<dyn std::error::Error + Send + Sync>);

impl From<ArrowError> for DefectSource {
    fn from(error: ArrowError) -> Self {
        DefectSource(error.into())
    }
}

impl From<std::num::TryFromIntError> for DefectSource {
    fn from(error: std::num::TryFromIntError) -> Self {
        DefectSource(error.into())
    }
}
