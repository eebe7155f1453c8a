//! The outcome topic: every offset is decided once, effects lie where they were decided, incarnations take turns.

use std::collections::{BTreeMap, BTreeSet};

use sharestream_broker::inspect::Fate;
use sharestream_client::Client;
use sharestream_core::decision::Decision;
use sharestream_kafka::outcome::{
    JudgedOutcome, LogEntry, OutcomeLog, OutcomeRecord, ReplayGeneration, Verdict, outcome_partition,
    read_outcomes,
};

use super::effects::is_shown;
use super::logs::{Logged, Logs, Writer};
use super::watch::{Said, Watch};
use super::{Checker, Counts, Finding, Place, Witnesses, state};
use crate::plan::Plan;
use crate::workload::{DEAD_LETTERS, Fate as RecordFate, GROUP, OUTCOMES, OUTPUT, SOURCE};

pub(super) async fn check(
    client: &Client,
    logs: &Logs,
    plan: &Plan,
    witnesses: &Witnesses,
    counts: &mut Counts,
) -> anyhow::Result<(Vec<Finding>, DecidedBy)> {
    let info = client.fresh_topic(OUTCOMES).await?;
    let partition = outcome_partition(GROUP, i32::try_from(info.partitions.len())?);
    let mut log = OutcomeLog::new();
    read_outcomes(client, OUTCOMES, partition, &mut log).await?;
    let outcomes = if plan.ledger.is_some() {
        // Of a topic that is compacted the rest says little.
        seen_outcomes(logs, &witnesses.watch)
    } else {
        log.into_outcomes()
    };
    let committed: Vec<&JudgedOutcome> =
        outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Committed).collect();
    counts.commits = committed.len() as u64;
    counts.aborts = outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Aborted).count() as u64;
    let mut found = chains(&committed);
    let decided = decided_by(&committed, plan, witnesses.watch.generation(), &mut found);
    counts.decided = decided.decision_count();
    found.extend(effects_lie_inside(logs, &decided));
    if plan.operators.is_stateful {
        found.extend(state::check(&committed, logs, &witnesses.objects).await?);
    }
    if !plan.at_least_once {
        found.extend(complete(logs, plan, &decided, &witnesses.watch));
    }
    Ok((found, decided))
}

/// The replay generation of each transaction.
pub(super) fn generations(watch: &Watch) -> BTreeMap<Writer, ReplayGeneration> {
    let seen = watch.outcome_topic();
    let generations = seen.into_iter().filter_map(|seen| match &seen.entry.said {
        Said::Entry(LogEntry::Outcome(record)) => Some((writer_of(record), record.generation)),
        Said::Entry(_) | Said::Tombstone | Said::Marker { .. } => None,
    });
    generations.collect()
}

fn writer_of(record: &OutcomeRecord) -> Writer {
    Writer { producer_id: record.producer_id.0, producer_epoch: record.producer_epoch.0 }
}

/// Outcomes that were seen while they were there.
fn seen_outcomes(logs: &Logs, watch: &Watch) -> Vec<JudgedOutcome> {
    let effects = [OUTPUT, DEAD_LETTERS].into_iter().flat_map(|topic| logs.of(topic));
    let committed: BTreeSet<Writer> =
        effects.filter(|record| record.is_committed()).map(|record| record.writer).collect();
    let seen = watch.outcome_topic();
    let judged = seen.into_iter().filter_map(|seen| {
        let Said::Entry(LogEntry::Outcome(record)) = &seen.entry.said else { return None };
        let writer = writer_of(record);
        let verdict = match seen.fate {
            Fate::Plain | Fate::Committed => Verdict::Committed,
            // It was compacted away before its fate was seen: its effects tell.
            Fate::Open if committed.contains(&writer) => Verdict::Committed,
            Fate::Open => Verdict::Open,
            Fate::Aborted | Fate::CommitMarker | Fate::AbortMarker => Verdict::Aborted,
        };
        Some(JudgedOutcome { offset: seen.offset, verdict, record: (**record).clone() })
    });
    judged.collect()
}

/// Committed outcomes of one replica: ids and incarnations only rise, and each names the one before.
fn chains(committed: &[&JudgedOutcome]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut last: BTreeMap<(&str, &str), &JudgedOutcome> = BTreeMap::new();
    for outcome in committed {
        let record = &outcome.record;
        let replica = (record.job.as_str(), record.instance.as_str());
        let before = last.insert(replica, outcome).map(|outcome| &outcome.record);
        let name = format!("{}/{} checkpoint {}", record.job, record.instance, record.checkpoint);
        if record.predecessor != before.map(|before| before.checkpoint) {
            let text = format!(
                "{name} names {:?} as its predecessor, but {:?} was committed before it",
                record.predecessor,
                before.map(|before| before.checkpoint)
            );
            found.push(Finding::new(Checker::Outcomes, text));
        }
        if let Some(before) = before
            && (before.checkpoint >= record.checkpoint || before.job_epoch > record.job_epoch)
        {
            let text = format!(
                "{name} of incarnation {} was committed after checkpoint {} of incarnation {}",
                record.job_epoch, before.checkpoint, before.job_epoch
            );
            found.push(Finding::new(Checker::Outcomes, text));
        }
    }
    found
}

/// A decision: whose, and which.
#[derive(Clone, Copy)]
struct Decided {
    writer: Writer,
    decision: Decision,
    generation: ReplayGeneration,
}

/// All committed decisions, by source record.
#[derive(Default)]
pub(super) struct DecidedBy {
    by_place: BTreeMap<Place, Vec<Decided>>,
    /// The last replay generation: what was decided before it does not count any more.
    generation: ReplayGeneration,
}

impl DecidedBy {
    /// Decisions in any generation.
    fn ever(&self, place: Place) -> &[Decided] {
        self.by_place.get(&place).map_or(&[], Vec::as_slice)
    }

    fn of(&self, place: Place) -> impl Iterator<Item = &Decided> {
        self.ever(place).iter().filter(|decided| decided.generation == self.generation)
    }

    /// True when a committed outcome decides the record.
    pub(super) fn is_decided(&self, place: Place) -> bool {
        self.of(place).next().is_some()
    }

    /// True when a committed outcome says that the record has no effect but a dead letter, or none at all.
    pub(super) fn is_given_up(&self, place: Place) -> bool {
        self.of(place).any(|decided| decided.decision != Decision::Accept)
    }

    /// How many records were decided, gaps not counted.
    fn decision_count(&self) -> u64 {
        let all = self.by_place.values().flatten();
        all.filter(|decided| decided.decision != Decision::Gap).count() as u64
    }

    /// One decision, made by hand.
    #[cfg(test)]
    pub(super) fn insert(&mut self, place: Place, decision: Decision) {
        let writer = Writer { producer_id: 0, producer_epoch: 0 };
        let generation = ReplayGeneration::default();
        self.by_place.entry(place).or_default().push(Decided { writer, decision, generation });
    }
}

fn decided_by(
    committed: &[&JudgedOutcome],
    plan: &Plan,
    generation: ReplayGeneration,
    found: &mut Vec<Finding>,
) -> DecidedBy {
    let mut decided: BTreeMap<Place, Vec<Decided>> = BTreeMap::new();
    for outcome in committed {
        let record = &outcome.record;
        let writer = writer_of(record);
        for partition in &record.partitions {
            for range in &partition.ranges {
                for offset in range.first.0..=range.last.0 {
                    let place = Place { partition: partition.partition.0, offset };
                    decided.entry(place).or_default().push(Decided {
                        writer,
                        decision: range.decision,
                        generation: record.generation,
                    });
                }
            }
        }
    }
    if !plan.at_least_once {
        for (place, decisions) in &decided {
            let mut counts: BTreeMap<ReplayGeneration, u64> = BTreeMap::new();
            for decided in decisions {
                *counts.entry(decided.generation).or_default() += 1;
            }
            for (generation, count) in counts.into_iter().filter(|(_, count)| *count > 1) {
                let text = format!("{count} committed outcomes decide it in replay generation {generation}");
                found.push(Finding::about(Checker::Outcomes, *place, text));
            }
        }
    }
    DecidedBy { by_place: decided, generation }
}

/// Every effect was written by a transaction that decides its record.
fn effects_lie_inside(logs: &Logs, decided: &DecidedBy) -> Vec<Finding> {
    let mut found = Vec::new();
    for topic in [OUTPUT, DEAD_LETTERS] {
        for record in logs.of(topic).iter().filter(|record| record.is_committed()) {
            let Some(provenance) = record.provenance else { continue };
            let place = Place { partition: provenance.partition.0, offset: provenance.offset.0 };
            let decisions = decided.ever(place);
            if !decisions.iter().any(|decided| decided.writer == record.writer) {
                let text = format!(
                    "{topic}/{}/{} is an effect of it in a transaction that does not decide it",
                    record.partition, record.offset
                );
                found.push(Finding::about(Checker::Outcomes, place, text));
            }
        }
    }
    found
}

/// Every record that the group was shown is decided, and by the kind of decision that it must have.
fn complete(logs: &Logs, plan: &Plan, decided: &DecidedBy, watch: &Watch) -> Vec<Finding> {
    let mut found = Vec::new();
    // What became of a record before a reset says nothing of what had to become of it after.
    let (generations, last) = (generations(watch), watch.generation());
    let is_last = |record: &&Logged| generations.get(&record.writer).copied().unwrap_or(last) == last;
    let dead: BTreeSet<Place> = logs
        .of(DEAD_LETTERS)
        .iter()
        .filter(|record| record.is_committed())
        .filter(is_last)
        .filter_map(|record| record.provenance)
        .map(|source| Place { partition: source.partition.0, offset: source.offset.0 })
        .collect();
    for record in logs.of(SOURCE).iter().filter(|record| is_shown(record, plan)) {
        let place = Place { partition: record.partition.0, offset: record.offset.0 };
        let Some(decision) = decided.of(place).next() else {
            found.push(Finding::about(Checker::Outcomes, place, "no committed outcome decides it"));
            continue;
        };
        let must_reject =
            dead.contains(&place) || record.id.is_some_and(|id| RecordFate::of(id).is_dead_letter());
        let expected = if must_reject { Decision::Reject } else { Decision::Accept };
        if decision.decision != expected {
            let text = format!("it was decided {:?}, not {expected:?}", decision.decision);
            found.push(Finding::about(Checker::Outcomes, place, text));
        }
    }
    found
}
