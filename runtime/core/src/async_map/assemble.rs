//! From rows that are done, each of a batch of its own perhaps, to batches.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{FieldRef, SchemaRef};
use arrow_select::concat::concat;
use arrow_select::interleave::interleave;

use super::{AsyncOutcome, AsyncRow, Done, Fate};
use crate::ErrorKind;
use crate::coordinates::{RejectKind, parked_schema, rejected_batch, user_column_count};
use crate::error::{Error, Result};

/// Makes batches of what a function returned.
#[derive(Debug)]
pub(crate) struct Assembler {
    /// Name of the operator, for errors.
    name: String,
    output: SchemaRef,
    /// Columns that the function appends.
    appended: Vec<FieldRef>,
}

/// Batches of rows that are done.
#[derive(Debug, Default)]
pub(crate) struct Assembled {
    pub(crate) rows: Option<RecordBatch>,
    pub(crate) rejected: Option<RecordBatch>,
    /// Rows whose records are to be parked; schema [`parked_schema`].
    pub(crate) parked: Option<RecordBatch>,
    /// Rows that the function dropped.
    pub(crate) dropped_count: u64,
}

impl Assembler {
    pub(crate) fn new(name: &str, output: SchemaRef, appended: Vec<FieldRef>) -> Self {
        Assembler { name: name.to_owned(), output, appended }
    }

    /// Errors: `InvalidInput`, the function returned other columns than it had said; `Bug`, arrow refused them.
    pub(crate) fn assemble(&self, done: Vec<Done>) -> Result<Assembled> {
        let mut kept: Vec<(AsyncRow, Vec<ArrayRef>)> = Vec::new();
        let mut rejected: Vec<(AsyncRow, String)> = Vec::new();
        let mut parked: Vec<AsyncRow> = Vec::new();
        let mut dropped_count = 0;
        for Done { row, fate } in done {
            match fate {
                Fate::Outcome(AsyncOutcome::Columns(columns)) => {
                    self.check(&columns)?;
                    kept.push((row, columns));
                }
                Fate::Outcome(AsyncOutcome::Drop) => dropped_count += 1,
                Fate::Outcome(AsyncOutcome::Reject(error)) => rejected.push((row, error)),
                Fate::Parked => parked.push(row),
            }
        }
        let (rows, rejected) = (self.rows(&kept)?, self.rejected(&rejected)?);
        Ok(Assembled { rows, rejected, parked: self.parked(&parked)?, dropped_count })
    }

    fn check(&self, columns: &[ArrayRef]) -> Result<()> {
        let fits = columns.len() == self.appended.len()
            && columns.iter().zip(&self.appended).all(|(column, field)| {
                column.len() == 1
                    && column.data_type() == field.data_type()
                    && (field.is_nullable() || column.null_count() == 0)
            });
        if fits {
            return Ok(());
        }
        let want: Vec<String> =
            self.appended.iter().map(|field| format!("{} {}", field.name(), field.data_type())).collect();
        let got: Vec<String> =
            columns.iter().map(|column| format!("{} x {}", column.len(), column.data_type())).collect();
        let context = format!(
            "{}: the function must return one value for each of ({}), it returned ({})",
            self.name,
            want.join(", "),
            got.join(", ")
        );
        Err(Error::new(ErrorKind::InvalidInput, context))
    }

    fn rows(&self, kept: &[(AsyncRow, Vec<ArrayRef>)]) -> Result<Option<RecordBatch>> {
        let Some((first, _)) = kept.first() else { return Ok(None) };
        let picks = Picks::of(kept.iter().map(|(row, _)| row));
        let users = user_column_count(first.batch().schema_ref());
        let width = first.batch().num_columns();
        let mut columns = picks.take(0..users).map_err(|error| self.refused(error))?;
        for index in 0..self.appended.len() {
            let values: Vec<&dyn arrow_array::Array> =
                kept.iter().map(|(_, appended)| appended[index].as_ref()).collect();
            columns.push(concat(&values).map_err(|error| self.refused(error))?);
        }
        columns.extend(picks.take(users..width).map_err(|error| self.refused(error))?);
        let rows = RecordBatch::try_new(self.output.clone(), columns).map_err(|error| self.refused(error))?;
        Ok(Some(rows))
    }

    fn rejected(&self, rejected: &[(AsyncRow, String)]) -> Result<Option<RecordBatch>> {
        let Some(columns) = self.hidden(rejected.iter().map(|(row, _)| row))? else { return Ok(None) };
        let errors = rejected.iter().map(|(_, error)| (RejectKind::Call, format!("{}: {error}", self.name)));
        let rows = rejected_batch(columns, errors).map_err(|error| self.refused(error))?;
        Ok(Some(rows))
    }

    fn parked(&self, parked: &[AsyncRow]) -> Result<Option<RecordBatch>> {
        let Some(columns) = self.hidden(parked.iter())? else { return Ok(None) };
        let rows = RecordBatch::try_new(parked_schema(), columns).map_err(|error| self.refused(error))?;
        Ok(Some(rows))
    }

    /// The hidden columns of `rows`; `None` without any.
    fn hidden<'a>(&self, rows: impl Iterator<Item = &'a AsyncRow> + Clone) -> Result<Option<Vec<ArrayRef>>> {
        let Some(first) = rows.clone().next() else { return Ok(None) };
        let users = user_column_count(first.batch().schema_ref());
        let picks = Picks::of(rows);
        let columns = picks.take(users..first.batch().num_columns()).map_err(|error| self.refused(error))?;
        Ok(Some(columns))
    }

    fn refused(&self, error: arrow_schema::ArrowError) -> Error {
        let context = format!("{}: rows that are done do not make a batch", self.name);
        Error::new(ErrorKind::Bug, context).with_source(error)
    }
}

/// Rows of several batches.
struct Picks<'a> {
    batches: Vec<&'a Arc<RecordBatch>>,
    picks: Vec<(usize, usize)>,
}

impl<'a> Picks<'a> {
    fn of(rows: impl Iterator<Item = &'a AsyncRow>) -> Self {
        let mut batches: Vec<&Arc<RecordBatch>> = Vec::new();
        let mut picks = Vec::new();
        for row in rows {
            let batch = row.shared_batch();
            // Rows mostly leave near those that they came with.
            let index = match batches.iter().rposition(|known| Arc::ptr_eq(known, batch)) {
                Some(index) => index,
                None => {
                    batches.push(batch);
                    batches.len() - 1
                }
            };
            picks.push((index, row.index()));
        }
        Picks { batches, picks }
    }

    fn take(
        &self,
        columns: std::ops::Range<usize>,
    ) -> std::result::Result<Vec<ArrayRef>, arrow_schema::ArrowError> {
        columns
            .map(|index| {
                let of_batches: Vec<&dyn arrow_array::Array> =
                    self.batches.iter().map(|batch| batch.column(index).as_ref()).collect();
                interleave(&of_batches, &self.picks)
            })
            .collect()
    }
}
