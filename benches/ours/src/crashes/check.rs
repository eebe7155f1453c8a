//! Is every record there once, with the right number? Trusts nothing but the committed output, the state of the last
//! checkpoint, and what was sent.

use std::collections::BTreeMap;

use anyhow::Context;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use serde_json::Value;
use sharestream_checkpoints::{CheckpointStore, Inspection};
use sharestream_core::state::read_state;

use crate::worker::{Count, counted_schema};

/// Rows of one batch of state.
const SCAN_ROWS: usize = 4_096;

/// Key of the record with this id: neighbours have different ones.
pub(super) fn key_of(id: i64) -> i64 {
    id * 7 % 61
}

/// One record of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    key: i64,
    id: i64,
    /// Its number among the records of its key, where the job counts.
    count: Option<i64>,
}

impl Row {
    /// From `key,id` of the job without state, or from a JSON object of the one that counts.
    pub(super) fn parse(value: &[u8]) -> anyhow::Result<Row> {
        let text = std::str::from_utf8(value).context("the output is text")?;
        if let Some((key, id)) = text.split_once(',').filter(|_| !text.starts_with('{')) {
            return Ok(Row { key: key.parse()?, id: id.parse()?, count: None });
        }
        let object: Value = serde_json::from_str(text).with_context(|| format!("'{text}' is no row"))?;
        let field = |name: &str| object[name].as_i64().with_context(|| format!("'{text}' has no {name}"));
        Ok(Row { key: field("key")?, id: field("id")?, count: Some(field("count")?) })
    }
}

/// What is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wrong {
    /// Records that the output lacks.
    pub(super) lost: u64,
    /// Records that it has too often.
    pub(super) doubled: u64,
    /// Records whose output and state disagree: a count that is not theirs, a key whose last state is not what the output
    /// says.
    pub(super) torn: u64,
}

/// Checks the output of a job that was sent the ids from 0 to `sent`; `state` is the last one of a job that counts.
pub(super) fn check(sent: i64, output: &[Row], state: Option<&BTreeMap<i64, i64>>) -> Wrong {
    let mut wrong = Wrong::default();
    let mut seen: BTreeMap<i64, u64> = BTreeMap::new();
    let mut counts: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for row in output {
        *seen.entry(row.id).or_default() += 1;
        counts.entry(row.key).or_default().extend(row.count);
        // What was never sent, or came out under another key, is nobody's.
        wrong.torn += u64::from(row.id < 0 || row.id >= sent || row.key != key_of(row.id));
    }
    wrong.lost = (0..sent).filter(|id| !seen.contains_key(id)).count() as u64;
    wrong.doubled = seen.values().map(|times| times - 1).sum();
    let Some(state) = state else { return wrong };
    let mut expected: BTreeMap<i64, i64> = BTreeMap::new();
    (0..sent).for_each(|id| *expected.entry(key_of(id)).or_default() += 1);
    for (key, counts) in &mut counts {
        counts.sort_unstable();
        wrong.torn += (1..).zip(counts.iter()).filter(|(number, count)| number != *count).count() as u64;
        expected.entry(*key).or_default();
    }
    wrong.torn += expected.iter().filter(|(key, count)| state.get(key) != Some(count)).count() as u64;
    wrong.torn += state.keys().filter(|key| !expected.contains_key(key)).count() as u64;
    wrong
}

/// The counts by key in the last completed checkpoint.
pub(super) async fn last_state(store: &CheckpointStore) -> anyhow::Result<BTreeMap<i64, i64>> {
    let inspection = Inspection::of(store).await?;
    let last = inspection.last_completed().context("a checkpoint is completed")?;
    let (_, manifest) = last.manifest.as_ref().map_err(|why| anyhow::anyhow!("{why}"))?;
    let state = read_state(store, manifest, &Count, &counted_schema()).await?;
    let mut counts = BTreeMap::new();
    for batch in state.scan(SCAN_ROWS)? {
        let column = |index: usize| batch.column(index).as_primitive::<Int64Type>().values().to_vec();
        counts.extend(column(0).into_iter().zip(column(1)));
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: i64 = 200;

    /// What a job that counts writes, and its last state.
    fn right() -> (Vec<Row>, BTreeMap<i64, i64>) {
        let mut state: BTreeMap<i64, i64> = BTreeMap::new();
        let rows = (0..SENT).map(|id| {
            let count = state.entry(key_of(id)).or_default();
            *count += 1;
            Row { key: key_of(id), id, count: Some(*count) }
        });
        (rows.collect(), state)
    }

    #[test]
    fn rows_of_both_jobs_are_read() {
        assert_eq!(Row::parse(b"7,1").unwrap(), Row { key: 7, id: 1, count: None });
        let counted = Row { key: 7, id: 1, count: Some(3) };
        assert_eq!(Row::parse(br#"{"key":7,"id":1,"count":3}"#).unwrap(), counted);
        for bad in [&b"7"[..], b"a,b", b"{}", br#"{"key":7,"id":1}"#, b"\xff"] {
            assert!(Row::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_right_is_found_right() {
        let (rows, state) = right();
        assert_eq!(check(SENT, &rows, Some(&state)), Wrong::default());
        let plain: Vec<Row> = rows.iter().map(|row| Row { count: None, ..*row }).collect();
        assert_eq!(check(SENT, &plain, None), Wrong::default());
    }

    type Change<'a> = &'a dyn Fn(&mut Vec<Row>, &mut BTreeMap<i64, i64>);

    #[test]
    fn whatever_is_wrong_is_found() {
        let (rows, state) = right();
        let found = |change: Change<'_>| {
            let (mut rows, mut state) = (rows.clone(), state.clone());
            change(&mut rows, &mut state);
            let Wrong { lost, doubled, torn } = check(SENT, &rows, Some(&state));
            (lost, doubled, torn)
        };
        let last = SENT - 1;
        assert_eq!(found(&|rows, _| rows.truncate(SENT as usize - 1)), (1, 0, 0));
        // The last of its four was counted as the first: state was lost before it.
        assert_eq!(found(&|rows, _| rows[last as usize].count = Some(1)), (0, 0, 3));
        assert_eq!(found(&|rows, _| rows.push(Row { count: Some(5), ..rows[0] })), (0, 1, 0));
        assert_eq!(found(&|rows, _| rows.push(Row { count: Some(1), ..rows[0] })), (0, 1, 4));
        assert_eq!(found(&|_, state| *state.get_mut(&0).unwrap() += 1), (0, 0, 1), "counted, not written");
        assert_eq!(found(&|_, state| state.retain(|key, _| *key != 0)), (0, 0, 1));
        assert_eq!(found(&|_, state| state.extend([(99, 1)])), (0, 0, 1));
        assert_eq!(found(&|rows, _| rows[3].id = SENT + 3), (1, 0, 1));
    }
}
