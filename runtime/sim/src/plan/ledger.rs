//! Plans in ledger mode: settings that make claims expire, floors rise and compaction run within seconds, and scenes about
//! the moments in which replicas dispute a record.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sharestream_core::commit::CommitStep;

use super::draw::{Dice, millis};
use super::plots::make_plot;
use super::{Fault, Moment, Plan, Request, TimedFault, Way, WorkerPlan};

/// Of so many seeds in a hundred, the job runs in ledger mode.
const LEDGER_PERCENT: u64 = 35;
/// Steps between a claim and the end of its transaction.
pub(super) const CLAIMED: [CommitStep; 4] =
    [CommitStep::AfterOutcome, CommitStep::BeforeStaging, CommitStep::AfterStaging, CommitStep::BeforeEndTxn];
/// Steps at which a transaction is committed, and its records are not acknowledged.
const COMMITTED: [CommitStep; 3] =
    [CommitStep::DuringEndTxn, CommitStep::AfterEndTxn, CommitStep::BeforeCompleted];

/// Settings of a run in ledger mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LedgerPlan {
    /// `commit-deadline`: half of it is the time after which anyone may end the owner of a claim.
    pub commit_deadline: Duration,
    /// Partitions of the outcome topic.
    pub outcome_partitions: i32,
    /// `segment.bytes` of the outcome topic: what lies in a closed segment may be compacted.
    pub segment_bytes: u32,
    /// `delete.retention.ms` of the outcome topic: how long markers and tombstones outlive what they end.
    pub delete_retention: Duration,
    /// `share.session.timeout.ms` of the group, where it is not the broker's default.
    #[serde(default)]
    pub session_timeout: Option<Duration>,
}

/// Turns some plans into ones of ledger mode. All that is drawn here is drawn apart, so that the others stay what they were.
pub(super) fn make_ledger(plan: &mut Plan) {
    let dice = Dice::of(plan.seed, "ledger");
    if !dice.chance(LEDGER_PERCENT) {
        return;
    }
    plan.at_least_once = false;
    plan.ledger = Some(draw_ledger(&dice));
    plan.group.lock_duration = match dice.between(0, 3) {
        0 => plan.group.lock_duration,
        1 => dice.ms(8_000, 15_000),
        _ => dice.ms(3_000, 8_000),
    };
    while let (Some(first), true) = (plan.workers.first(), plan.workers.len() < 2 && dice.chance(90)) {
        let other = WorkerPlan { starts_at: dice.ms(0, 3_000), ..first.clone() };
        plan.workers.push(other);
    }
    if plan.faults.is_empty() || dice.chance(30) {
        return;
    }
    if dice.chance(30) {
        return make_plot(&dice, plan);
    }
    if dice.chance(75) {
        plan.faults.clear();
    }
    let busy_ms = millis(plan.busy_for);
    let once = match dice.between(0, 9) {
        0 | 1 => Some(Fault::RollOut { worker: dice.index(plan.workers.len()) }),
        2 | 3 => Some(Fault::ResetGroup),
        _ => None,
    };
    let at = dice.ms(busy_ms / 4, busy_ms);
    if once == Some(Fault::ResetGroup) && dice.chance(40) {
        // For longer than a session lasts: the group is reset while it is out.
        let pause =
            Fault::PauseWorker { worker: dice.index(plan.workers.len()), lasts: dice.ms(46_000, 70_000) };
        plan.faults.push(TimedFault { at: at.saturating_sub(dice.ms(0, 3_000)), fault: pause });
    }
    plan.faults.extend(once.map(|fault| TimedFault { at, fault }));
    for _ in 0..dice.pick(&[1, 2, 2, 3, 4]) {
        let at = dice.ms(500.min(busy_ms), busy_ms * 3 / 4);
        plan.faults.extend(draw_scene(&dice, plan, at));
    }
}

/// Settings that make much happen within seconds.
pub(super) fn draw_ledger(dice: &Dice) -> LedgerPlan {
    LedgerPlan {
        commit_deadline: Duration::from_millis(dice.pick(&[2_000, 4_000, 4_000, 10_000])),
        outcome_partitions: dice.pick(&[1, 4]),
        segment_bytes: dice.pick(&[200, 1_500, 1_500, 6_000, 16 << 20]),
        delete_retention: Duration::from_millis(dice.pick(&[500, 3_000, 86_400_000])),
        session_timeout: None,
    }
}

/// The scene in which a late owner of `worker` commits while its transaction is ended.
pub(super) fn draw_end_of_a_late_owner(dice: &Dice, plan: &Plan, worker: usize) -> Fault {
    Scene { dice, plan, worker }.commits_while_it_is_ended()
}

fn draw_scene(dice: &Dice, plan: &Plan, at: Duration) -> Vec<TimedFault> {
    let scene = Scene { dice, plan, worker: dice.index(plan.workers.len()) };
    let one = |fault: Fault| vec![TimedFault { at, fault }];
    match dice.between(0, 14) {
        0 => one(scene.dies_with_a_claim()),
        1..=3 => one(scene.disputed()),
        4 => one(scene.late_beyond_its_locks()),
        5 | 6 => one(scene.committed_and_not_acknowledged()),
        7 => one(scene.unanswered_end()),
        8 | 9 => one(scene.late_end()),
        10 => one(scene.stands_still_before_its_claim()),
        11 => one(scene.stands_still_while_the_log_is_compacted()),
        12 | 13 => one(scene.commits_while_it_is_ended()),
        _ => one(scene.silent_reader()),
    }
}

struct Scene<'a> {
    dice: &'a Dice,
    plan: &'a Plan,
    worker: usize,
}

fn now(fault: Fault) -> TimedFault {
    TimedFault { at: Duration::ZERO, fault }
}

impl Scene<'_> {
    fn step(&self, worker: usize, steps: &[CommitStep]) -> Moment {
        Moment::Step { worker, step: self.dice.pick(steps) }
    }

    /// Another worker, if there is one.
    fn other(&self) -> usize {
        let count = self.plan.workers.len();
        if count > 1 { (self.worker + 1 + self.dice.index(count - 1)) % count } else { 0 }
    }

    fn claim_deadline(&self) -> Duration {
        self.plan.ledger.as_ref().map_or(Duration::from_secs(5), |ledger| ledger.commit_deadline / 2)
    }

    /// Shorter than, about as long as, and longer than a claim is waited for.
    fn around_the_deadline(&self) -> Duration {
        let deadline = millis(self.claim_deadline());
        match self.dice.between(0, 3) {
            0 => self.dice.ms(50, 500),
            1 => self.dice.ms(deadline.saturating_sub(500), deadline + 500),
            2 => self.dice.ms(50, deadline),
            _ => self.dice.ms(deadline, deadline + 8_000),
        }
    }

    fn weather(&self) -> TimedFault {
        let lasts = self.dice.ms(200, 4_000);
        now(Fault::Weather { lasts, delay_max: self.dice.ms(20, 400), loss_percent: 0 })
    }

    /// The owner of an open claim is gone for a while; its records are with others at once, or when their locks expire.
    fn dies_with_a_claim(&self) -> Fault {
        let step = self.dice.pick(&CLAIMED);
        let down = if self.dice.chance(50) { self.dice.ms(1, 3_000) } else { self.dice.ms(5_000, 40_000) };
        if self.dice.chance(50) {
            return Fault::KillWorkerAt { worker: self.worker, step, down };
        }
        let kill = Fault::KillWorker { worker: self.worker, down, power: self.dice.chance(50) };
        let moment = Moment::Step { worker: self.worker, step };
        Fault::When { moment, hold: Duration::ZERO, then: vec![now(kill)] }
    }

    /// The owner of a claim stands still, its records go to others at once, and it comes back.
    fn disputed(&self) -> Fault {
        let moment = self.step(self.worker, &CLAIMED);
        let mut then = vec![now(Fault::Reset { worker: self.worker })];
        if self.dice.chance(30) {
            then.push(self.weather());
        }
        if self.dice.chance(50) {
            return Fault::When { moment, hold: self.around_the_deadline(), then };
        }
        // It comes back just when somebody else has claimed what it holds, or is about to end it.
        let other = self.other();
        let theirs = if self.dice.chance(60) {
            self.step(other, &[CommitStep::AfterOutcome, CommitStep::BeforeStaging])
        } else {
            Moment::WorkerSends { worker: other, request: Request::InitProducerId }
        };
        let hold = if self.dice.chance(30) { Duration::ZERO } else { self.dice.ms(5, 1_500) };
        let mut back = vec![now(Fault::ResumeWorker { worker: self.worker })];
        if self.dice.chance(70) {
            back.push(self.weather());
        }
        let armed = self.dice.ms(0, 50);
        then.push(TimedFault { at: armed, fault: Fault::When { moment: theirs, hold, then: back } });
        Fault::When { moment, hold: self.dice.ms(4_000, 30_000), then }
    }

    /// The owner of a claim stands still for longer than the locks of its records last.
    fn late_beyond_its_locks(&self) -> Fault {
        let hold = self.plan.group.lock_duration + self.dice.ms(0, 6_000);
        Fault::When { moment: self.step(self.worker, &CLAIMED), hold, then: Vec::new() }
    }

    /// Acknowledgements are lost after the commit: with the process, or with the connections.
    fn committed_and_not_acknowledged(&self) -> Fault {
        if self.dice.chance(30) {
            // Its markers are late as well.
            let reset = Fault::Reset { worker: self.worker };
            let mute = now(Fault::Mute { lasts: self.dice.ms(300, 4_000) });
            let then = vec![mute, TimedFault { at: self.dice.ms(3, 60), fault: reset }];
            return Fault::When { moment: self.sends_end(), hold: Duration::ZERO, then };
        }
        let moment = self.step(self.worker, &COMMITTED);
        let down = self.dice.ms(1, 4_000);
        let (hold, lost) = match self.dice.between(0, 3) {
            0 => (Duration::ZERO, Fault::KillWorker { worker: self.worker, down, power: true }),
            1 => (Duration::ZERO, Fault::KillWorker { worker: self.worker, down, power: false }),
            2 => (self.dice.ms(10, 3_000), Fault::Reset { worker: self.worker }),
            _ => {
                let (node, lasts) = (self.dice.index(self.plan.nodes), self.plan.group.lock_duration);
                (Duration::ZERO, Fault::Cut { worker: self.worker, node, lasts, way: Way::There })
            }
        };
        Fault::When { moment, hold, then: vec![now(lost)] }
    }

    fn sends_end(&self) -> Moment {
        Moment::WorkerSends { worker: self.worker, request: Request::EndTxn }
    }

    /// EndTxn has no answer for as long as it is asked for.
    fn unanswered_end(&self) -> Fault {
        let deadline = self.claim_deadline() * 2;
        let lasts = deadline + self.dice.ms(0, 4_000);
        let mut then = vec![now(Fault::Silence { lasts })];
        if self.dice.chance(50) {
            // What was on the way then is lost for good.
            let at = lasts.saturating_sub(Duration::from_millis(1));
            then.push(TimedFault { at, fault: Fault::Reset { worker: self.worker } });
        }
        Fault::When { moment: self.sends_end(), hold: Duration::ZERO, then }
    }

    /// EndTxn is on its way while its sender is dead, or believed to be.
    fn late_end(&self) -> Fault {
        let worker = self.worker;
        let lasts = if self.dice.chance(50) {
            self.around_the_deadline()
        } else {
            self.plan.group.lock_duration + self.dice.ms(0, 6_000)
        };
        let mut then = vec![now(Fault::Silence { lasts })];
        if self.dice.chance(60) {
            let down = self.dice.ms(1, 20_000);
            then.push(TimedFault {
                at: self.dice.ms(0, 20),
                fault: Fault::KillWorker { worker, down, power: true },
            });
        }
        Fault::When { moment: self.sends_end(), hold: Duration::ZERO, then }
    }

    /// An epoch is sealed, and claimed when others have decided its records and floors have passed them.
    fn stands_still_before_its_claim(&self) -> Fault {
        let steps = [CommitStep::BeforeManifest, CommitStep::AfterManifest];
        let moment = self.step(self.worker, &steps);
        if self.dice.chance(50) {
            let then = vec![now(Fault::Reset { worker: self.worker })];
            return Fault::When { moment, hold: self.dice.ms(500, 10_000), then };
        }
        let hold = self.plan.group.lock_duration + self.dice.ms(0, 4_000);
        Fault::When { moment, hold, then: Vec::new() }
    }

    /// A replica has read an open claim, and stands still until claim and marker are compacted away (F7).
    fn stands_still_while_the_log_is_compacted(&self) -> Fault {
        let other = self.other();
        let lasts = self.dice.ms(4_000, 12_000);
        let pause = Fault::PauseWorker { worker: other, lasts };
        let kill = Fault::KillWorker { worker: self.worker, down: self.dice.ms(1, 2_000), power: false };
        let at = self.dice.ms(100, 400);
        let moment = self.step(self.worker, &CLAIMED);
        let then = vec![TimedFault { at, fault: pause }, TimedFault { at: at + at, fault: kill }];
        Fault::When { moment, hold: at + at, then }
    }

    /// Somebody ends the transaction of a late owner, which commits just before the request arrives. Success of that request
    /// then comes before the commit marker is read.
    fn commits_while_it_is_ended(&self) -> Fault {
        let (worker, other) = (self.worker, self.other());
        let lasts = self.dice.ms(300, 900);
        let back = TimedFault { at: self.dice.ms(60, 200), fault: Fault::ResumeWorker { worker } };
        let ending = Fault::When {
            moment: Moment::WorkerSends { worker: other, request: Request::InitProducerId },
            hold: lasts + self.dice.ms(20, 500),
            then: vec![now(Fault::Silence { lasts }), back],
        };
        let then = vec![now(Fault::Reset { worker }), now(ending)];
        Fault::When { moment: self.step(worker, &CLAIMED[2..]), hold: Duration::from_secs(30), then }
    }

    /// What the brokers send to a replica comes late.
    fn silent_reader(&self) -> Fault {
        let node = self.dice.index(self.plan.nodes);
        let lasts = self.dice.ms(200, 12_000);
        let cut = Fault::Cut { worker: self.worker, node, lasts, way: Way::Back };
        let steps = [CommitStep::BeforeManifest, CommitStep::AfterOutcome, CommitStep::AfterEndTxn];
        let moment = self.step(self.worker, &steps);
        let mut then = vec![now(cut)];
        if self.dice.chance(40) {
            then.push(now(Fault::Reset { worker: self.other() }));
        }
        Fault::When { moment, hold: Duration::ZERO, then }
    }
}
