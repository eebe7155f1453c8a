//! Random interleavings of everything that can happen to a few replicas and records, against an oracle that knows all.
//!
//! The code under test makes every decision: views, verdicts, floors, tombstones, drops. The environment is an adversary:
//! it delivers any record to any replica at any time, lets replicas read as slowly as it likes, delays and loses EndTxn and
//! acknowledgements, ends transactions, crashes replicas, compacts entry by entry, and resets the group.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sharestream_base::ids::Offset;
use sharestream_core::decision::{Decisions, SourcePartition};

use super::log::{Claimer, GROUP, Log, decisions, partition};
use crate::ledger::arbiter::{OwnClaim, Verdict, judge};
use crate::ledger::floor::{KeeperIs, Plan, StartOffsets, examine, floors_of, plan};
use crate::ledger::view::View;
use crate::outcome::ReplayGeneration;

const REPLICAS: u8 = 3;
const RECORDS: i64 = 4;
const CLAIMS_MAX: usize = 9;
const CLAIM_MS: i64 = 4;

/// A transaction at its coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Transaction {
    Empty,
    Ongoing {
        epoch: i16,
        claim: usize,
    },
    /// Decided; the marker is to be written.
    Prepared {
        claim: usize,
        committed: bool,
    },
}

#[derive(Clone, Debug)]
enum Phase {
    /// Without a producer epoch.
    Starting,
    Idle,
    Claimed {
        claim: usize,
        own: OwnClaim,
        ended: BTreeSet<Offset>,
    },
    Committing {
        claim: usize,
    },
}

#[derive(Clone, Debug)]
struct Replica {
    phase: Phase,
    view: View,
    epoch: i16,
    is_member: bool,
    /// Start offsets that its keeper has asked for, with what was looked at before.
    asked: Option<(ReplayGeneration, StartOffsets, StartOffsets)>,
    /// What its keeper is about to write.
    planned: Option<Plan>,
}

/// A claim as the oracle knows it.
#[derive(Clone, Debug)]
struct Claimed {
    records: BTreeSet<i64>,
    generation: u32,
    /// `None`: its transaction is not decided.
    committed: Option<bool>,
    epoch: i16,
    owner: u8,
    commit_in_flight: bool,
}

struct World {
    log: Log,
    replicas: Vec<Replica>,
    transactions: Vec<Transaction>,
    claims: Vec<Claimed>,
    acknowledged: BTreeSet<i64>,
    generation: u32,
    reset_step: u8,
    now_ms: i64,
    /// Records that are handed out.
    records: i64,
    /// The last replica reads only when it must, and keepers and the cleaner are busy: what lies behind a floor matters
    /// only to those who lag behind all of that.
    is_lazy: bool,
}

type Step = Result<(), String>;

impl World {
    fn new(profile: u32) -> World {
        let is_lazy = profile % 2 == 1;
        let log = Log::default();
        let replica = Replica {
            phase: Phase::Starting,
            view: log.view(),
            epoch: 0,
            is_member: true,
            asked: None,
            planned: None,
        };
        World {
            log,
            replicas: vec![replica; usize::from(REPLICAS)],
            transactions: vec![Transaction::Empty; usize::from(REPLICAS)],
            claims: Vec::new(),
            acknowledged: BTreeSet::new(),
            generation: 0,
            reset_step: 0,
            now_ms: 0,
            records: if is_lazy { 2 } else { RECORDS },
            is_lazy,
        }
    }

    /// Records with a committed effect in the present generation; while a reset has begun and the offsets are not reset,
    /// of either one: acknowledgements of that time are forgotten with the offsets.
    fn effects(&self) -> BTreeSet<i64> {
        let counts = |claim: &&Claimed| {
            claim.committed == Some(true) && (claim.generation == self.generation || self.reset_step == 1)
        };
        self.claims.iter().filter(counts).flat_map(|claim| claim.records.iter().copied()).collect()
    }

    fn start_offset(&self) -> Offset {
        let first = (0..self.records).find(|record| !self.acknowledged.contains(record));
        Offset(first.unwrap_or(self.records))
    }

    fn check(&self) -> Step {
        let mut seen: BTreeMap<(u32, i64), usize> = BTreeMap::new();
        for (number, claim) in
            self.claims.iter().enumerate().filter(|(_, claim)| claim.committed == Some(true))
        {
            for record in &claim.records {
                if let Some(other) = seen.insert((claim.generation, *record), number) {
                    return Err(format!("record {record} has two effects, of claims {other} and {number}"));
                }
            }
        }
        if let Some(record) = self.acknowledged.difference(&self.effects()).next() {
            return Err(format!("record {record} is acknowledged without an effect"));
        }
        Ok(())
    }

    /// Makes the step that `choice` names, if it can be made.
    fn step(&mut self, choice: u32) -> Step {
        let at = (choice as usize / 64) % usize::from(REPLICAS);
        let more = choice / 256;
        let kind = choice % 64;
        let is_at_leisure = at + 1 == usize::from(REPLICAS) && matches!(self.replicas[at].phase, Phase::Idle);
        if self.is_lazy && is_at_leisure && (8..=22).contains(&kind) {
            return match kind % 4 {
                0 => {
                    self.compact(more);
                    Ok(())
                }
                1 => self.keep(more as usize % 2),
                2 => {
                    self.ask_start_offsets(more as usize % 2);
                    Ok(())
                }
                _ => self.deliver_decided(0, more),
            };
        }
        match kind {
            0..=7 => self.claim(at, more),
            8..=14 => self.log_read(at, 1 + more as usize % 3),
            15..=22 => self.log_read(at, usize::MAX),
            23..=32 => self.judge(at),
            33..=37 => self.commit_arrives(more),
            38..=43 => self.write_marker(at),
            44..=46 => self.learn(at, more),
            47 => self.crash(at),
            48 => self.fence(at),
            49 => self.now_ms += 1 + i64::from(more % 4),
            50..=51 => self.ask_start_offsets(at),
            52..=53 => return self.keep(at),
            54..=57 => self.compact(more),
            58..=59 => return self.deliver_decided(at, more),
            60..=62 => self.go_on(at),
            _ => self.reset(more),
        }
        Ok(())
    }

    /// A replica that was handed records claims those that its view does not know as decided.
    fn claim(&mut self, at: usize, more: u32) {
        let World { log, replicas, claims, transactions, now_ms, records: count, .. } = self;
        let replica = &mut replicas[at];
        // The coordinator takes no partition into a transaction before the markers of the last one are written.
        let may_begin = matches!(replica.phase, Phase::Idle) && transactions[at] == Transaction::Empty;
        if !may_begin || !replica.is_member || claims.len() >= CLAIMS_MAX {
            return;
        }
        let is_known = |record: &i64| is_decided(&replica.view, *record);
        let wanted = (0..*count).filter(|record| more >> record & 1 == 1);
        let records: BTreeSet<i64> = wanted.filter(|record| !is_known(record)).collect();
        if records.is_empty() {
            return;
        }
        let ranges: Vec<(i32, i64, i64)> = records.iter().map(|record| (0, *record, *record)).collect();
        let decisions = decisions(&ranges);
        let claimer = Claimer {
            generation: replica.view.generation().0,
            deadline_ms: *now_ms + CLAIM_MS,
            ..Claimer::new(at as u8, replica.epoch)
        };
        let position = log.claim(&claimer, &decisions);
        let own = claimer.own(position, decisions);
        let claim = claims.len();
        claims.push(Claimed {
            records,
            generation: claimer.generation,
            committed: None,
            epoch: replica.epoch,
            owner: at as u8,
            commit_in_flight: false,
        });
        transactions[at] = Transaction::Ongoing { epoch: replica.epoch, claim };
        replica.phase = Phase::Claimed { claim, own, ended: BTreeSet::new() };
    }

    fn log_read(&mut self, at: usize, count: usize) {
        let replica = &mut self.replicas[at];
        self.log.read(&mut replica.view, count);
        if replica.view.must_be_rebuilt() {
            replica.view = self.log.view();
        }
    }

    fn judge(&mut self, at: usize) {
        let Phase::Claimed { claim, own, ended } = &self.replicas[at].phase else { return };
        let claim = *claim;
        match judge(&self.replicas[at].view, own, self.now_ms, |on| ended.contains(&on)) {
            Verdict::Commit => {
                self.claims[claim].commit_in_flight = true;
                self.replicas[at].phase = Phase::Committing { claim };
            }
            Verdict::Abort(_) => {
                self.end(at, self.claims[claim].epoch, false);
                self.replicas[at].phase = Phase::Starting;
            }
            Verdict::EndOther { on, producer_id, producer_epoch, .. } => {
                if let Phase::Claimed { ended, .. } = &mut self.replicas[at].phase {
                    ended.insert(on);
                }
                let owner = usize::try_from(producer_id.0).unwrap();
                self.end(owner, producer_epoch.0, false);
            }
            Verdict::ReadOn | Verdict::Wait { .. } => {}
        }
    }

    /// The coordinator decides, if this is the transaction that runs.
    fn end(&mut self, at: usize, epoch: i16, committed: bool) {
        if let Transaction::Ongoing { epoch: running, claim } = self.transactions[at]
            && running == epoch
        {
            self.claims[claim].committed = Some(committed);
            self.transactions[at] = Transaction::Prepared { claim, committed };
        }
    }

    /// An EndTxn arrives, maybe after its sender's death.
    fn commit_arrives(&mut self, more: u32) {
        let in_flight: Vec<usize> =
            (0..self.claims.len()).filter(|claim| self.claims[*claim].commit_in_flight).collect();
        let Some(claim) = in_flight.get(more as usize % in_flight.len().max(1)).copied() else { return };
        self.claims[claim].commit_in_flight = false;
        let (owner, epoch) = (usize::from(self.claims[claim].owner), self.claims[claim].epoch);
        self.end(owner, epoch, true);
    }

    fn write_marker(&mut self, at: usize) {
        if let Transaction::Prepared { committed, .. } = self.transactions[at] {
            self.log.marker(at as u8, committed);
            self.transactions[at] = Transaction::Empty;
        }
    }

    /// EndTxn is answered, or not; the acknowledgements reach the group, or not.
    fn learn(&mut self, at: usize, more: u32) {
        let Phase::Committing { claim } = self.replicas[at].phase else { return };
        let answered = self.claims[claim].committed;
        let is_lost = more.is_multiple_of(4);
        match answered {
            Some(true) if !is_lost => {
                if !more.is_multiple_of(3)
                    && self.replicas[at].is_member
                    && self.claims[claim].generation == self.generation
                {
                    let records = self.claims[claim].records.clone();
                    self.acknowledged.extend(records);
                }
                self.replicas[at].phase = Phase::Idle;
                self.replicas[at].epoch += 1;
            }
            // Refused or unknown: the attempt ends.
            Some(_) => self.replicas[at].phase = Phase::Starting,
            None if is_lost => self.replicas[at].phase = Phase::Starting,
            None => {}
        }
    }

    /// A process dies; another one starts and reads the log to its end before it is shown to anyone.
    fn crash(&mut self, at: usize) {
        let is_member = self.replicas[at].is_member;
        let epoch = self.replicas[at].epoch;
        let view = self.log.view();
        self.replicas[at] =
            Replica { phase: Phase::Starting, view, epoch, is_member, asked: None, planned: None };
    }

    /// Somebody, or the time-out, ends the open transaction.
    fn fence(&mut self, at: usize) {
        if let Transaction::Ongoing { epoch, .. } = self.transactions[at] {
            self.end(at, epoch, false);
        }
    }

    /// A replica without an epoch takes one; a member that is out joins.
    fn go_on(&mut self, at: usize) {
        match (&self.replicas[at].phase, &self.transactions[at]) {
            (Phase::Starting, Transaction::Ongoing { .. }) => self.fence(at),
            (Phase::Starting, Transaction::Empty) => {
                self.replicas[at].epoch += 1;
                self.replicas[at].phase = Phase::Idle;
                self.log_read(at, usize::MAX);
            }
            (Phase::Starting, Transaction::Prepared { .. }) => {}
            (Phase::Idle, _) if !self.replicas[at].is_member => {
                // R4.
                self.log_read(at, usize::MAX);
                self.replicas[at].is_member = true;
            }
            (Phase::Idle | Phase::Claimed { .. } | Phase::Committing { .. }, _) => {}
        }
    }

    /// The keeper's round in three parts, between which anything may happen: ask, plan, write.
    fn ask_start_offsets(&mut self, at: usize) {
        let starts = BTreeMap::from([(partition(0), self.start_offset())]);
        let replica = &mut self.replicas[at];
        if replica.view.is_generation_ready() {
            replica.asked = Some((replica.view.generation(), floors_of(&replica.view), starts));
        }
    }

    fn keep(&mut self, at: usize) -> Step {
        if let Some(planned) = self.replicas[at].planned.take() {
            for floor in &planned.floors {
                self.log.floor(floor);
            }
            for key in &planned.tombstones {
                self.log.tombstone(key);
            }
            return Ok(());
        }
        let Some((generation, before, starts)) = self.replicas[at].asked.take() else { return Ok(()) };
        self.log_read(at, usize::MAX);
        let view = &self.replicas[at].view;
        if view.generation() != generation || !view.is_generation_ready() {
            return Ok(());
        }
        if let Some(finding) = examine(view, &before, &starts).first() {
            return Err(format!("a keeper finds {finding:?} without a foreign consumer"));
        }
        let instance = at.to_string();
        let keeper = KeeperIs { group: GROUP, job: "j", instance: &instance, now_ms: self.now_ms };
        let planned = plan(view, keeper, &starts, |_| "t".to_owned());
        self.replicas[at].planned = Some(planned);
        Ok(())
    }

    fn compact(&mut self, more: u32) {
        let removable = self.log.removable();
        if let Some(at) = removable.get(more as usize % removable.len().max(1)) {
            self.log.remove(*at);
        }
    }

    /// The group hands a record to a member, which drops and acknowledges it when its view knows it as decided.
    fn deliver_decided(&mut self, at: usize, more: u32) -> Step {
        let replica = &self.replicas[at];
        let record = i64::from(more) % self.records;
        if !replica.is_member || !is_decided(&replica.view, record) {
            return Ok(());
        }
        if !self.effects().contains(&record) {
            return Err(format!("replica {at} drops record {record}, which has no effect"));
        }
        self.acknowledged.insert(record);
        Ok(())
    }

    /// The steps of a reset: the generation, the offsets of an empty group, ready.
    fn reset(&mut self, more: u32) {
        match self.reset_step {
            0 if more.is_multiple_of(4) => {
                self.log.generation(1, false);
                self.reset_step = 1;
            }
            1 => {
                self.generation = 1;
                self.acknowledged.clear();
                for at in 0..self.replicas.len() {
                    self.replicas[at].is_member = false;
                    // An open epoch ends before its replica joins again.
                    if matches!(self.replicas[at].phase, Phase::Claimed { .. }) {
                        self.replicas[at].phase = Phase::Starting;
                    }
                }
                self.reset_step = 2;
            }
            2 => {
                self.log.generation(1, true);
                self.reset_step = 3;
            }
            _ => {}
        }
    }
}

fn is_decided(view: &View, record: i64) -> bool {
    let source: SourcePartition = partition(0);
    let committed: &Decisions = view.committed();
    view.floor(source).is_some_and(|floor| Offset(record) < floor)
        || committed.get(source, Offset(record)).is_some()
}

fn run(choices: impl IntoIterator<Item = u32>) -> Step {
    let mut choices = choices.into_iter();
    let mut world = World::new(choices.next().unwrap_or_default());
    for choice in choices {
        world.step(choice)?;
        world.check()?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    /// No record has two effects, and none is acknowledged, or dropped, without one.
    #[test]
    fn no_interleaving_doubles_or_loses_a_record(choices in proptest::collection::vec(any::<u32>(), 0..400)) {
        if let Err(broken) = run(choices) {
            return Err(TestCaseError::fail(broken));
        }
    }
}

/// The environment is strong enough: each of these mistakes is found by it.
#[cfg(feature = "planted-bugs")]
#[test]
fn planted_mistakes_are_found_by_random_interleavings() {
    use sharestream_base::Rng;
    use sharestream_base::planted::{Bug, with};

    const RUNS: u64 = 20_000;
    let bugs = [
        Bug::ClaimPositionNotAwaited,
        Bug::OpenClaimIgnored,
        Bug::CommittedClaimIgnored,
        Bug::DeadOwnerPresumedAborted,
        Bug::FenceCountedAsAbort,
        Bug::OwnClaimsSkipped,
        Bug::FloorOverHole,
        Bug::FloorOverOpenClaim,
        Bug::TombstoneBeforeFloorReadBack,
        Bug::FloorNotConsulted,
        Bug::LastFloorCounts,
        Bug::GenerationIgnored,
        Bug::OlderGenerationCommits,
    ];
    let mut missed = Vec::new();
    for bug in bugs {
        let found = (0..RUNS).find_map(|seed| {
            let rng = Rng::seeded(seed);
            let choices = (0..400).map(|_| rng.below(1 << 32) as u32);
            with(Some(bug), || run(choices)).err().map(|broken| (seed, broken))
        });
        match found {
            Some((seed, broken)) => println!("{bug}: seed {seed}: {broken}"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found in {RUNS} runs: {missed:?}");
}
