//! The check itself: a pure function from facts to a report.
//!
//! For every offset below the share-partition start offset it asks for exactly one fate, for every effect for the
//! committed outcome that covers it, and for every outcome for its effects (DESIGN sections 1 and 9).

use std::collections::BTreeMap;

use sharestream_core::decision::{Decision, SourcePartition};

use super::facts::{Claim, Effect, Expected, Facts, PartitionFacts};
use super::report::{Fault, Report, Violation};

/// What is known about one offset.
#[derive(Clone, Copy, Default)]
struct Fate {
    /// The last outcome's decision.
    decision: Option<Decision>,
    /// Some outcome accepted it; without exactly once there may be several.
    accepted: bool,
    /// Some outcome rejected it.
    rejected: bool,
    /// Committed outcomes that decided on it.
    claims: u16,
    /// Different ordinals that were output.
    outputs: u32,
    /// Sum of the digests of those.
    digest: u64,
    /// Dead letters, copies not counted.
    dead_letters: u32,
    /// It was parked: there is a copy in the parking topic.
    is_parked: bool,
}

impl Fate {
    /// A dead letter that was accepted at the broker, so that the broker keeps none of its own, and nothing else.
    fn is_accepted_letter(&self) -> bool {
        self.dead_letters > 0 && self.outputs == 0 && self.accepted
    }
}

/// Offsets `base..base + fates.len()` of one partition.
struct Window<'a> {
    facts: &'a PartitionFacts,
    base: i64,
    fates: Vec<Fate>,
}

impl Window<'_> {
    fn fate(&mut self, offset: i64) -> Option<&mut Fate> {
        let index = usize::try_from(offset.checked_sub(self.base)?).ok()?;
        self.fates.get_mut(index)
    }

    fn expected(&self, offset: i64) -> Expected {
        usize::try_from(offset - self.facts.initial)
            .ok()
            .and_then(|index| self.facts.expected.get(index).copied())
            .unwrap_or(Expected::NoRecord)
    }

    fn violation(&self, fault: Fault, offset: i64) -> Violation {
        Violation {
            fault,
            topic: self.facts.topic.clone(),
            partition: self.facts.source.partition.0,
            first: offset,
            last: offset,
            detail: None,
        }
    }
}

/// Checks the facts. Never fails: what cannot be judged is a note of the report.
pub(crate) fn check(facts: &Facts) -> Report {
    let mut report = Report {
        records_out: facts.outputs.len() as u64,
        dead_lettered: facts.dead_letters.len() as u64,
        parked: facts.parked.len() as u64,
        open_transactions: facts.open_transactions.len() as u64,
        overdue_transactions: facts.open_transactions.iter().filter(|open| open.overdue).count() as u64,
        ..Report::default()
    };
    let mut claims: BTreeMap<SourcePartition, Vec<&Claim>> = BTreeMap::new();
    for claim in &facts.claims {
        claims.entry(claim.source).or_default().push(claim);
    }
    let outputs = by_source(&facts.outputs);
    let dead_letters = by_source(&facts.dead_letters);
    let parked = by_source(&facts.parked);
    for partition in &facts.partitions {
        let claims = claims.get(&partition.source).map_or(&[][..], Vec::as_slice);
        let outputs = outputs.get(&partition.source).map_or(&[][..], Vec::as_slice);
        let dead_letters = dead_letters.get(&partition.source).map_or(&[][..], Vec::as_slice);
        let parked = parked.get(&partition.source).map_or(&[][..], Vec::as_slice);
        let mut window = window(partition, claims, [outputs, dead_letters, parked]);
        apply_claims(&mut window, claims, facts.exactly_once, &mut report);
        apply_effects(&mut window, outputs, Kind::Output, &mut report);
        apply_effects(&mut window, dead_letters, Kind::DeadLetter, &mut report);
        apply_effects(&mut window, parked, Kind::Parked, &mut report);
        decide_below_floor(&mut window, &mut report);
        judge(&window, facts, &mut report);
    }
    check_chains(facts, &mut report);
    note_strangers(facts, &mut report);
    report
}

/// What is made of a copy must name the record that the copy names.
fn check_chains(facts: &Facts, report: &mut Report) {
    let origins: BTreeMap<(SourcePartition, i64), (SourcePartition, i64)> = facts
        .parked
        .iter()
        .filter_map(|copy| Some(((copy.stands_in?, copy.at.offset), copy.origin)))
        .collect();
    for effect in facts.outputs.iter().chain(&facts.dead_letters).chain(&facts.parked) {
        let Some(origin) = origins.get(&(effect.source, effect.offset)) else { continue };
        if *origin != effect.origin {
            let topic = facts.partitions.iter().find(|partition| partition.source == effect.source);
            let violation = Violation {
                fault: Fault::ChainBroken,
                topic: topic.map_or_else(|| effect.at.topic.clone(), |partition| partition.topic.clone()),
                partition: effect.source.partition.0,
                first: effect.offset,
                last: effect.offset,
                detail: Some(format!("at {}", effect.at)),
            };
            report.violated(violation, 1);
        }
    }
}

fn by_source(effects: &[Effect]) -> BTreeMap<SourcePartition, Vec<&Effect>> {
    let mut map: BTreeMap<SourcePartition, Vec<&Effect>> = BTreeMap::new();
    for effect in effects {
        map.entry(effect.source).or_default().push(effect);
    }
    for effects in map.values_mut() {
        effects.sort_by_key(|effect| (effect.offset, effect.ordinal, effect.at.partition, effect.at.offset));
    }
    map
}

fn window<'a>(facts: &'a PartitionFacts, claims: &[&Claim], effects: [&[&Effect]; 3]) -> Window<'a> {
    let effects = || effects.into_iter().flatten().map(|effect| effect.offset);
    let known_end = facts.initial + i64::try_from(facts.expected.len()).unwrap_or(i64::MAX);
    let base = effects().chain(claims.iter().map(|claim| claim.first)).min().unwrap_or(facts.initial);
    let base = base.min(facts.initial).max(0);
    let end = effects().chain(claims.iter().map(|claim| claim.last)).max().map_or(base, |last| last + 1);
    let end = end.max(facts.start_offset).max(facts.floor).max(known_end);
    let length = usize::try_from(end - base).unwrap_or(0);
    Window { facts, base, fates: vec![Fate::default(); length] }
}

fn apply_claims(window: &mut Window<'_>, claims: &[&Claim], exactly_once: bool, report: &mut Report) {
    for claim in claims {
        for offset in claim.first..=claim.last {
            let Some(fate) = window.fate(offset) else { continue };
            match claim.decision {
                Decision::Accept => fate.accepted = true,
                Decision::Reject => fate.rejected = true,
                Decision::Gap => {}
            }
            if claim.late {
                continue;
            }
            // The last outcome stands: where two overlap, that is a violation of its own below.
            fate.decision = Some(claim.decision);
            fate.claims = fate.claims.saturating_add(1);
        }
    }
    let mut index = 0;
    while index < window.fates.len() {
        let count = window.fates[index..].iter().take_while(|fate| fate.claims > 1).count();
        if count > 0 {
            let first = window.base + i64::try_from(index).unwrap_or(i64::MAX);
            note_overlap(window, claims, (first, count), exactly_once, report);
        }
        index += count.max(1);
    }
}

/// `count` offsets from `first` on were decided by more than one committed outcome.
fn note_overlap(
    window: &Window<'_>,
    claims: &[&Claim],
    (first, count): (i64, usize),
    exactly_once: bool,
    report: &mut Report,
) {
    if !exactly_once {
        report.decided_twice += count as u64;
        return;
    }
    let by: Vec<String> = claims
        .iter()
        .filter(|claim| claim.first <= first && first <= claim.last)
        .take(3)
        .map(|claim| format!("checkpoint {} at {}", claim.checkpoint, claim.at))
        .collect();
    let mut violation = window.violation(Fault::DecidedTwice, first);
    violation.last = first + i64::try_from(count).unwrap_or(i64::MAX) - 1;
    violation.detail = Some(by.join(", "));
    report.violated(violation, count as u64);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Output,
    DeadLetter,
    Parked,
}

/// `effects` are sorted by source offset and ordinal, so copies are neighbours.
/// Where a group was reset or went back to a savepoint, further copies are what was wanted.
fn apply_effects(window: &mut Window<'_>, effects: &[&Effect], kind: Kind, report: &mut Report) {
    let mut index = 0;
    while index < effects.len() {
        let first = effects[index];
        let copies = effects[index..]
            .iter()
            .take_while(|effect| (effect.offset, effect.ordinal) == (first.offset, first.ordinal))
            .count();
        let wanted = window.facts.copies_wanted(first.offset);
        if copies > wanted {
            let fault = match kind {
                Kind::Output => Fault::OutputDoubled,
                Kind::DeadLetter => Fault::DeadLetterDoubled,
                Kind::Parked => Fault::ParkedTwice,
            };
            let places: Vec<String> =
                effects[index..index + copies].iter().take(3).map(|effect| effect.at.to_string()).collect();
            let mut violation = window.violation(fault, first.offset);
            violation.detail = Some(format!("at {}", places.join(", ")));
            report.violated(violation, (copies - wanted) as u64);
        }
        if let Some(fate) = window.fate(first.offset) {
            match kind {
                Kind::Output => {
                    fate.outputs += 1;
                    fate.digest = fate.digest.wrapping_add(first.digest);
                }
                Kind::DeadLetter => fate.dead_letters += 1,
                Kind::Parked => fate.is_parked = true,
            }
        }
        index += copies;
    }
}

/// Below the floor every offset is decided, and its claim may have been removed: then the effects stand for it.
fn decide_below_floor(window: &mut Window<'_>, report: &mut Report) {
    for offset in window.facts.initial..window.facts.floor {
        let expected = window.expected(offset);
        let Some(fate) = window.fate(offset) else { continue };
        report.below_floor += 1;
        if fate.claims > 0 {
            continue;
        }
        let decision = match expected {
            _ if fate.dead_letters > 0 => Decision::Reject,
            // Without a dead letter it leaves no trace.
            Expected::RejectedUnkept if fate.outputs == 0 => Decision::Reject,
            Expected::NoRecord if fate.outputs == 0 => Decision::Gap,
            Expected::NoRecord | Expected::Rejected | Expected::RejectedUnkept | Expected::Rows { .. } => {
                Decision::Accept
            }
        };
        fate.decision = Some(decision);
        fate.accepted |= decision == Decision::Accept;
        fate.rejected |= decision == Decision::Reject;
    }
}

fn judge(window: &Window<'_>, all: &Facts, report: &mut Report) {
    let facts = window.facts;
    for (index, fate) in window.fates.iter().enumerate() {
        let offset = window.base + i64::try_from(index).unwrap_or(i64::MAX);
        let expected = window.expected(offset);
        // Below `initial` the input is gone: outcomes there cannot be compared with it.
        let is_known = offset >= facts.initial;
        let is_record = is_known && expected != Expected::NoRecord;
        if is_record {
            match fate.decision {
                Some(_) => report.records_in += 1,
                None if offset >= facts.start_offset => report.remaining += 1,
                None => {}
            }
        }
        let mut violated = |fault| report.violated(window.violation(fault, offset), 1);
        if fate.outputs > 0 && !fate.accepted {
            violated(Fault::OutputWithoutOutcome);
        }
        if fate.is_parked && !fate.accepted {
            violated(Fault::ParkedWithoutOutcome);
        }
        if fate.is_parked && (fate.outputs > 0 || fate.dead_letters > 0) {
            violated(Fault::ParkedAndProcessed);
        }
        let is_accepted_letter = all.broker_dead_letters && fate.is_accepted_letter();
        if fate.dead_letters > 0 && !fate.rejected && !is_accepted_letter {
            violated(Fault::DeadLetterWithoutOutcome);
        }
        match fate.decision {
            None => {
                if is_record && offset < facts.start_offset {
                    violated(Fault::PassedWithoutOutcome);
                }
            }
            Some(Decision::Accept) if is_accepted_letter => {
                if matches!(expected, Expected::Rows { .. }) {
                    report.dead_letters_without_fault += 1;
                }
            }
            // What it comes to is looked for at its copy.
            Some(Decision::Accept) if fate.is_parked => {}
            Some(Decision::Accept) => {
                judge_accepted(fate, expected, &mut violated);
                if is_record && fate.outputs == 0 {
                    report.filtered += 1;
                }
            }
            Some(Decision::Reject) => {
                let has_letter = fate.dead_letters > 0 || expected == Expected::RejectedUnkept;
                if !has_letter && all.rejects_leave_letters {
                    violated(Fault::DeadLetterMissing);
                }
                if matches!(expected, Expected::Rows { .. }) {
                    report.dead_letters_without_fault += 1;
                }
            }
            Some(Decision::Gap) => {
                if is_record {
                    violated(Fault::RecordAsGap);
                }
            }
        }
    }
    judge_share_state(window, all.has_ledger, report);
}

fn judge_accepted(fate: &Fate, expected: Expected, violated: &mut impl FnMut(Fault)) {
    match expected {
        Expected::NoRecord => {}
        Expected::Rejected | Expected::RejectedUnkept if fate.outputs == 0 => {
            violated(Fault::FaultyRecordAccepted);
        }
        Expected::Rejected | Expected::RejectedUnkept => violated(Fault::OutputDiffers),
        Expected::Rows { count, .. } if fate.outputs < count => violated(Fault::OutputMissing),
        Expected::Rows { count, digest } => {
            if fate.outputs > count || digest.is_some_and(|digest| fate.digest != digest) {
                violated(Fault::OutputDiffers);
            }
        }
    }
}

/// The decided prefix must lie below the start offset where an outcome is committed together with its acknowledgements.
/// In ledger mode they follow, and may fail: then they are made when the records come again.
fn judge_share_state(window: &Window<'_>, has_ledger: bool, report: &mut Report) {
    let mut offset = window.facts.start_offset_after.max(window.base);
    while let Some(fate) =
        usize::try_from(offset - window.base).ok().and_then(|index| window.fates.get(index))
    {
        if fate.decision.is_none() {
            break;
        }
        if has_ledger {
            report.unacknowledged += 1;
        } else {
            report.violated(window.violation(Fault::OutcomeNotAcknowledged, offset), 1);
        }
        offset += 1;
    }
}

/// Effects and outcomes of source partitions that are not the job's: another topic under the same name, most likely.
fn note_strangers(facts: &Facts, report: &mut Report) {
    let is_ours =
        |source: &SourcePartition| facts.partitions.iter().any(|partition| partition.source == *source);
    for (what, effects) in
        [("output", &facts.outputs), ("dead letter", &facts.dead_letters), ("parked", &facts.parked)]
    {
        let strangers = effects.iter().filter(|effect| !is_ours(&effect.source)).count();
        if strangers > 0 {
            let note = format!("{strangers} {what} records come from topics that the job file does not name");
            report.notes.push(note);
        }
    }
}
