//! G1 and G2: every record has its effects, once.

use std::collections::BTreeMap;

use sharestream_kafka::outcome::ReplayGeneration;

use super::logs::{Fate as TransactionFate, Logged, Logs};
use super::outcomes;
use super::watch::Watch;
use super::{Checker, Counts, Finding, Place};
use crate::plan::Plan;
use crate::workload::{DEAD_LETTERS, Fate, OUTPUT, SOURCE};

/// Deliveries before the limit from which a record may be dead-lettered instead of processed: the default of
/// `delivery-reserve`.
const DELIVERY_RESERVE: i16 = 2;

#[derive(Default)]
struct Effects {
    /// Output rows by ordinal.
    rows: BTreeMap<i32, u64>,
    dead_letters: Vec<Option<i16>>,
}

/// Which source records the group is shown: with read_committed those that are not aborted, else all.
pub(super) fn is_shown(record: &Logged, plan: &Plan) -> bool {
    record.is_committed() || (!plan.group.read_committed && record.fate == TransactionFate::Aborted)
}

pub(super) fn check(logs: &Logs, plan: &Plan, watch: &Watch, counts: &mut Counts) -> Vec<Finding> {
    let mut found = Vec::new();
    // In each replay generation every record is processed anew.
    let mut effects: BTreeMap<Place, BTreeMap<ReplayGeneration, Effects>> = BTreeMap::new();
    let (generations, last) = (outcomes::generations(watch), watch.generation());
    let ids: BTreeMap<Place, i64> =
        logs.of(SOURCE).iter().filter_map(|record| Some((place_of(record), record.id?))).collect();
    for (topic, record) in committed_effects(logs) {
        let Some(provenance) = record.provenance else {
            let text =
                format!("{topic}/{}/{} does not say where it comes from", record.partition, record.offset);
            found.push(Finding::new(Checker::Effects, text));
            continue;
        };
        let place = Place { partition: provenance.partition.0, offset: provenance.offset.0 };
        if Some(provenance.topic_id) != logs.source_id || ids.get(&place).copied() != record.id {
            let text = format!(
                "{topic}/{}/{} has the value of record {:?}, not of its source",
                record.partition, record.offset, record.id
            );
            found.push(Finding::about(Checker::Effects, place, text));
        }
        let generation = generations.get(&record.writer).copied().unwrap_or(last);
        let entry = effects.entry(place).or_default().entry(generation).or_default();
        if topic == OUTPUT {
            *entry.rows.entry(provenance.ordinal).or_default() += 1;
            counts.outputs += 1;
        } else {
            entry.dead_letters.push(record.delivery_count);
            counts.dead_letters += 1;
        }
    }
    for record in logs.of(SOURCE) {
        let place = place_of(record);
        let mut effects = effects.remove(&place).unwrap_or_default();
        if !is_shown(record, plan) {
            if !effects.is_empty() {
                found.push(Finding::about(Checker::Effects, place, "it was aborted and has effects"));
            }
            continue;
        }
        counts.records += 1;
        // Before a reset some may have been undecided.
        effects.entry(last).or_default();
        for effects in effects.values() {
            if let Some(text) = judge(record, effects, plan, counts) {
                found.push(Finding::about(Checker::Effects, place, text));
            }
        }
    }
    for place in effects.into_keys() {
        found.push(Finding::about(
            Checker::Effects,
            place,
            "there are effects of a record that does not exist",
        ));
    }
    found
}

fn place_of(record: &Logged) -> Place {
    Place { partition: record.partition.0, offset: record.offset.0 }
}

fn committed_effects(logs: &Logs) -> impl Iterator<Item = (&'static str, &Logged)> {
    [OUTPUT, DEAD_LETTERS].into_iter().flat_map(|topic| {
        logs.of(topic).iter().filter(|record| record.is_committed()).map(move |record| (topic, record))
    })
}

/// What is wrong with the effects of one record.
fn judge(record: &Logged, effects: &Effects, plan: &Plan, counts: &mut Counts) -> Option<String> {
    let id = record.id?;
    let fate = Fate::of(id);
    let row_total: u64 = effects.rows.values().sum();
    let letters = effects.dead_letters.len();
    let describe = || {
        format!("record {id} must have {fate:?}, and has rows {:?} and {letters} dead letters", effects.rows)
    };

    let limit = i16::try_from(plan.group.delivery_limit).unwrap_or(i16::MAX);
    let is_near_limit = |count: &Option<i16>| count.is_some_and(|count| count > limit - DELIVERY_RESERVE);
    if letters == 1 && row_total == 0 && effects.dead_letters.iter().all(is_near_limit) {
        counts.near_limit += u64::from(!fate.is_dead_letter());
        return None;
    }
    let expected_rows = u64::try_from(fate.rows()).unwrap_or(0);
    let expected_letters = usize::from(fate.is_dead_letter());
    let complete = (0..fate.rows()).all(|ordinal| effects.rows.contains_key(&ordinal))
        && letters >= expected_letters
        && effects.rows.len() as u64 == expected_rows;
    let extra = row_total.saturating_sub(expected_rows)
        + u64::try_from(letters.saturating_sub(expected_letters)).unwrap_or(0);
    if plan.at_least_once && complete {
        counts.doubled += extra;
        return None;
    }
    if !complete {
        return Some(format!("lost or torn: {}", describe()));
    }
    (extra > 0).then(|| format!("doubled: {}", describe()))
}
