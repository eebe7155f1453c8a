//! Finds the rows that fail.
//!
//! A kernel that fails for a whole batch does not say for which row. So the batch is halved until the failing rows
//! stand alone. The result of a row is thereby defined as what it gives alone: where a batch fails only because
//! `AND` evaluated its right side for rows that the left side had ruled out, those rows do not fail.
//!
//! Cost: one evaluation when nothing fails, about `2 * log2(rows)` evaluations per failing row.

use std::ops::Range;

use datafusion_common::DataFusionError;
use datafusion_common::arrow::error::ArrowError;
use sharestream_core::{Error, ErrorKind};

use crate::error::first_lower;

/// Longest error text of one row; it travels in a dead letter's header.
const TEXT_CHARS_MAX: usize = 400;

/// Evaluation of some rows failed.
#[derive(Debug)]
pub(crate) struct EvaluationError {
    /// The clause or output column.
    pub(crate) place: String,
    pub(crate) source: DataFusionError,
}

/// A row that fails alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedRow {
    pub(crate) row: usize,
    pub(crate) error: String,
}

/// What became of the rows of a batch.
#[derive(Debug)]
pub(crate) struct Evaluated<T> {
    /// Results for ranges without failing rows, ascending.
    pub(crate) pieces: Vec<(Range<usize>, T)>,
    /// The failing rows, ascending.
    pub(crate) failed: Vec<FailedRow>,
}

/// Evaluates `rows`, apart from those that fail. Errors: `Bug`, when an expression is not at fault for its input.
pub(crate) fn evaluate_rows<T>(
    rows: Range<usize>,
    mut evaluate: impl FnMut(Range<usize>) -> Result<T, EvaluationError>,
) -> Result<Evaluated<T>, Error> {
    let mut evaluated = Evaluated { pieces: Vec::new(), failed: Vec::new() };
    // Later halves below earlier ones, so that results come in order.
    let mut todo = vec![rows];
    while let Some(rows) = todo.pop() {
        match evaluate(rows.clone()) {
            Ok(result) => evaluated.pieces.push((rows, result)),
            Err(error) if !is_due_to_input(&error.source) => {
                let context = format!("sql {} cannot be evaluated", error.place);
                return Err(Error::new(ErrorKind::Bug, context).with_source(error.source));
            }
            Err(error) if rows.len() <= 1 => {
                evaluated.failed.push(FailedRow { row: rows.start, error: text(&error) });
            }
            Err(_) => {
                let middle = rows.start + rows.len() / 2;
                todo.push(middle..rows.end);
                todo.push(rows.start..middle);
            }
        }
    }
    Ok(evaluated)
}

/// False for errors that no other input would avoid: a defect must not turn good records into dead letters.
fn is_due_to_input(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::ArrowError(error, _) => !matches!(
            error.as_ref(),
            ArrowError::NotYetImplemented(_) | ArrowError::SchemaError(_) | ArrowError::MemoryError(_)
        ),
        DataFusionError::Internal(_)
        | DataFusionError::NotImplemented(_)
        | DataFusionError::Configuration(_)
        | DataFusionError::SchemaError(..)
        | DataFusionError::ResourcesExhausted(_) => false,
        _ => true,
    }
}

fn text(error: &EvaluationError) -> String {
    let message = match error.source.find_root() {
        DataFusionError::ArrowError(error, _) => error.to_string(),
        other => other.message().into_owned(),
    };
    let first_line = message.lines().next().unwrap_or_default();
    let shown: String = first_lower(first_line).chars().take(TEXT_CHARS_MAX).collect();
    format!("sql {}: {shown}", error.place)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fails(place: &str, source: DataFusionError) -> EvaluationError {
        EvaluationError { place: place.to_owned(), source }
    }

    proptest! {
        #[test]
        fn exactly_the_failing_rows_are_found_in_order(bad in proptest::collection::vec(any::<bool>(), 0..70)) {
            let evaluated = evaluate_rows(0..bad.len(), |rows| {
                match bad[rows.clone()].iter().any(|bad| *bad) {
                    true => Err(fails("WHERE", DataFusionError::Execution("no".to_owned()))),
                    false => Ok(rows.len()),
                }
            })
            .unwrap();
            let found: Vec<usize> = evaluated.failed.iter().map(|failed| failed.row).collect();
            let expected: Vec<usize> = (0..bad.len()).filter(|row| bad[*row]).collect();
            prop_assert_eq!(found, expected);
            let good: Vec<usize> = evaluated.pieces.into_iter().flat_map(|(rows, _)| rows).collect();
            let expected: Vec<usize> = (0..bad.len()).filter(|row| !bad[*row]).collect();
            prop_assert_eq!(good, expected);
        }
    }

    #[test]
    fn one_bad_row_costs_two_evaluations_per_halving() {
        let mut count = 0;
        evaluate_rows(0..1024, |rows| {
            count += 1;
            match rows.contains(&700) {
                true => Err(fails("WHERE", DataFusionError::Execution("no".to_owned()))),
                false => Ok(()),
            }
        })
        .unwrap();
        assert_eq!(count, 21);
    }

    #[test]
    fn a_defect_is_no_fault_of_a_row() {
        let result = evaluate_rows(0..4, |_| -> Result<(), _> {
            Err(fails("column 'x'", DataFusionError::Internal("impossible".to_owned())))
        });
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Bug);
    }
}
