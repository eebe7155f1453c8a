//! What a replica's own outcomes say about where it stands. Pure.

use sharestream_base::ErrorKind;
use sharestream_core::commit::LastCommitted;

use super::read::{JudgedOutcome, Verdict};
use crate::{Error, Result};

/// The last committed checkpoint of one replica, from its outcomes in order of offset.
///
/// `Ok(None)`: a record has no marker yet, although recovery has ended every transaction of the replica: read again.
///
/// # Errors
/// `Corrupt` when committed checkpoints do not follow one another: a record is missing, or two incarnations have both
/// committed.
pub(crate) fn last_committed(outcomes: &[JudgedOutcome]) -> Result<Option<LastCommitted>> {
    let mut last = LastCommitted::default();
    let mut generation = None;
    for JudgedOutcome { offset, verdict, record } in outcomes {
        last.highest_seen = last.highest_seen.max(Some(record.checkpoint));
        last.highest_job_epoch = last.highest_job_epoch.max(Some(record.job_epoch));
        match verdict {
            Verdict::Open => return Ok(None),
            Verdict::Aborted => continue,
            Verdict::Committed => {}
        }
        // Floors and tombstones are of one replay generation, so a new one may follow on a hole; and tombstones take a
        // replica's outcomes in their order, so within a generation what is left has none.
        let is_new_generation = generation.is_some_and(|generation| record.generation > generation);
        generation = Some(record.generation);
        if let Some(before) = last.checkpoint
            && record.predecessor != Some(before)
            && !is_new_generation
        {
            let named = record.predecessor.map_or_else(|| "none".to_owned(), |id| id.to_string());
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!(
                    "outcome at offset {offset}: checkpoint {} of {}/{} names predecessor {named}, but {before} was \
                     committed before it",
                    record.checkpoint, record.job, record.instance
                ),
            ));
        }
        last.checkpoint = Some(record.checkpoint);
        last.manifest = record.manifest.clone();
    }
    Ok(Some(last))
}
