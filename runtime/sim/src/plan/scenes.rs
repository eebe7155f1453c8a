//! Scenes: faults that begin at a moment of the protocol and not at a time.
//!
//! The windows in which a mistake shows are milliseconds wide: between a stage and its marker, between a decision and
//! its last marker, between an owner record and the transactional ids. Faults at random times hardly ever meet them. A
//! scene waits for such a moment and draws the rest: which process stands still, for how long, what else breaks.

use std::time::Duration;

use sharestream_core::commit::CommitStep;

use super::draw::Dice;
use super::{Fault, Moment, MovedTopic, Plan, Request, TimedFault, Way};

/// Steps between the stage and the end of a transaction.
const STAGED: [CommitStep; 2] = [CommitStep::AfterStaging, CommitStep::BeforeEndTxn];
const WAYS: [Way; 3] = [Way::Both, Way::There, Way::Back];
const MOVED: [MovedTopic; 5] = [
    MovedTopic::Source,
    MovedTopic::Output,
    MovedTopic::Outcome,
    MovedTopic::ShareState,
    MovedTopic::TransactionState,
];

/// The faults of one scene, which waits for its moment from `at` on.
pub(super) fn draw_scene(dice: &Dice, plan: &Plan, at: Duration) -> Vec<TimedFault> {
    let scene = Scene { dice, plan, worker: dice.index(plan.workers.len()) };
    match dice.between(0, 18) {
        0 | 1 => vec![scene.at(at, scene.staged_and_moved())],
        2 | 3 => vec![scene.at(at, scene.staged_for_long())],
        4..=6 => vec![scene.at(at, scene.decided_without_a_participant())],
        7 | 8 => vec![scene.at(at, scene.late_stage())],
        9 | 10 => vec![scene.at(at, scene.unknown_end())],
        11 | 12 => vec![scene.open_while_another_starts(at)],
        13..=15 => scene.late_start(at),
        16 => vec![scene.at(at, scene.broker_request())],
        17 => vec![scene.at(at, scene.lost_answer())],
        _ => vec![scene.at(at, scene.any_step())],
    }
}

struct Scene<'a> {
    dice: &'a Dice,
    plan: &'a Plan,
    worker: usize,
}

impl Scene<'_> {
    fn at(&self, at: Duration, fault: Fault) -> TimedFault {
        TimedFault { at, fault }
    }

    fn when(&self, moment: Moment, hold: Duration, then: Vec<TimedFault>) -> Fault {
        Fault::When { moment, hold, then }
    }

    fn step(&self, step: CommitStep) -> Moment {
        Moment::Step { worker: self.worker, step }
    }

    /// At once, or a little later.
    fn soon(&self, fault: Fault) -> TimedFault {
        let at = match self.dice.between(0, 2) {
            0 => Duration::ZERO,
            1 => self.dice.ms(1, 20),
            _ => self.dice.ms(20, 1_000),
        };
        self.at(at, fault)
    }

    fn node(&self) -> usize {
        self.dice.index(self.plan.nodes)
    }

    fn way(&self) -> Way {
        self.dice.pick(&WAYS)
    }

    /// Most partitions of a topic have nothing to do with the moment, so mostly all move.
    fn move_leader(&self, topic: MovedTopic) -> Fault {
        let one = self.dice.chance(25).then(|| i32::try_from(self.dice.between(0, 7)).unwrap_or(0));
        Fault::MoveLeader { topic, partition: one }
    }

    fn kill_node(&self) -> Fault {
        Fault::KillNode { node: self.node(), down: self.dice.ms(100, 15_000) }
    }

    /// A node is silent: it stands still, or does not reach another.
    fn silent_node(&self, lasts: Duration) -> Fault {
        let (from, to) = (self.node(), self.node());
        if from == to || self.dice.chance(50) {
            Fault::PauseNode { node: from, lasts }
        } else {
            Fault::CutNodes { from, to, lasts, way: self.way() }
        }
    }

    /// Something at the brokers that lasts as long as it happens to.
    fn broker_fault(&self) -> Fault {
        match self.dice.between(0, 3) {
            0 => self.kill_node(),
            1 => self.silent_node(self.dice.outage()),
            _ => self.move_leader(self.dice.pick(&MOVED)),
        }
    }

    /// Between stage and marker a leader changes or dies.
    fn staged_and_moved(&self) -> Fault {
        let topic = self.dice.pick(&[
            MovedTopic::Source,
            MovedTopic::Source,
            MovedTopic::ShareState,
            MovedTopic::TransactionState,
        ]);
        let first = if self.dice.chance(70) { self.move_leader(topic) } else { self.kill_node() };
        let mut then = vec![self.at(Duration::ZERO, first)];
        if self.dice.chance(30) {
            then.push(self.soon(self.broker_fault()));
        }
        self.when(self.step(self.dice.pick(&STAGED)), self.dice.ms(1, 3_000), then)
    }

    /// The end of a transaction comes later than the locks of its records would have expired.
    fn staged_for_long(&self) -> Fault {
        let lasts = self.plan.group.lock_duration + self.dice.ms(0, 8_000);
        let node = self.node();
        match self.dice.between(0, 4) {
            0 => self.when(self.step(self.dice.pick(&STAGED)), lasts, Vec::new()),
            1..=3 => self.when(self.sends_end(), Duration::ZERO, vec![self.silence(lasts)]),
            _ => {
                let pause = Fault::PauseNode { node, lasts };
                self.when(self.step(CommitStep::BeforeEndTxn), Duration::ZERO, vec![self.soon_or_now(pause)])
            }
        }
    }

    fn sends_end(&self) -> Moment {
        Moment::WorkerSends { worker: self.worker, request: Request::EndTxn }
    }

    fn silence(&self, lasts: Duration) -> TimedFault {
        self.at(Duration::ZERO, Fault::Silence { lasts })
    }

    fn soon_or_now(&self, fault: Fault) -> TimedFault {
        let at = if self.dice.chance(70) { Duration::ZERO } else { self.dice.ms(1, 5) };
        self.at(at, fault)
    }

    /// The end is decided, and somebody cannot be told, for longer than a transaction may last; or its coordinator
    /// changes meanwhile.
    fn decided_without_a_participant(&self) -> Fault {
        let step = self.dice.pick(&[CommitStep::BeforeEndTxn, CommitStep::DuringEndTxn]);
        if self.dice.chance(50) {
            return self.when(self.step(step), Duration::ZERO, self.out_for_longer_than_a_transaction());
        }
        let mut then = vec![self.soon_or_now(self.silent_node(self.dice.ms(500, 12_000)))];
        if self.dice.chance(25) {
            then = vec![self.at(Duration::ZERO, Fault::Mute { lasts: self.dice.ms(500, 12_000) })];
            return self.when(self.sends_end(), Duration::ZERO, then);
        }
        if self.dice.chance(75) {
            let change = if self.dice.chance(75) {
                self.move_leader(MovedTopic::TransactionState)
            } else {
                self.kill_node()
            };
            then.push(self.at(self.dice.ms(2, 1_000), change));
        }
        self.when(self.step(step), Duration::ZERO, then)
    }

    /// A node stands still for longer than any transaction may last. What it was sent before the time-out would be read
    /// before anything that came after it, so mostly all of it is lost meanwhile.
    fn out_for_longer_than_a_transaction(&self) -> Vec<TimedFault> {
        let (node, until_reset) = (self.node(), self.dice.ms(44_000, 60_000));
        let lasts = until_reset + self.dice.ms(500, 15_000);
        let mut then = vec![self.soon_or_now(Fault::PauseNode { node, lasts })];
        if self.dice.chance(80) {
            then.push(self.at(until_reset, Fault::ResetNode { node }));
        }
        then
    }

    /// A stage is on its way for longer than its transaction lasts.
    fn late_stage(&self) -> Fault {
        let lasts =
            if self.dice.chance(60) { self.dice.ms(8_000, 25_000) } else { self.dice.ms(25_000, 60_000) };
        let (then, hold) = (vec![self.soon_or_now(self.silent_node(lasts))], Duration::ZERO);
        match self.dice.between(0, 5) {
            // Longer than a node waits for another, so that the stage is given up meanwhile.
            0..=2 => {
                let then = vec![self.silence(self.dice.ms(10_200, 25_000))];
                self.when(Moment::NodeSends { request: Request::WriteShareGroupState }, hold, then)
            }
            3 => {
                let request = Request::TxnShareAcknowledge;
                self.when(Moment::WorkerSends { worker: self.worker, request }, hold, then)
            }
            _ => {
                let step = self.dice.pick(&[CommitStep::BeforeStaging, CommitStep::BetweenStagedLeaders]);
                self.when(self.step(step), hold, then)
            }
        }
    }

    /// EndTxn has no answer for as long as it is asked for, and then everything is well again.
    fn unknown_end(&self) -> Fault {
        let step = self.dice.pick(&[CommitStep::BeforeEndTxn, CommitStep::DuringEndTxn]);
        let (node, lasts) = (self.node(), self.dice.ms(10_050, 13_000));
        let way = self.dice.pick(&[Way::Back, Way::Back, Way::Both]);
        let (moment, first) = if self.dice.chance(80) {
            // As long as it is asked for, or shorter.
            let lasts = if self.dice.chance(75) { lasts } else { self.dice.ms(50, 9_000) };
            (self.sends_end(), self.at(Duration::ZERO, Fault::LoseAnswer { lasts }))
        } else {
            let cut = Fault::Cut { worker: self.worker, node, lasts, way };
            (self.step(step), self.soon_or_now(cut))
        };
        let mut then = vec![first];
        if self.dice.chance(75) {
            // Whoever drains does not open the next epoch: this one is followed by the last.
            let stop = Fault::StopWorker { worker: self.worker, down: self.dice.ms(1, 5_000) };
            let at = if self.dice.chance(75) { self.dice.ms(1, 300) } else { self.dice.ms(300, 9_000) };
            then.push(self.at(at, stop));
        }
        self.when(moment, Duration::ZERO, then)
    }

    /// A transaction is open in the outcome partition while another replica starts, for the first time or again.
    fn open_while_another_starts(&self, at: Duration) -> TimedFault {
        let steps = [CommitStep::AfterOutcome, CommitStep::BeforeStaging, CommitStep::AfterStaging];
        let step = self.dice.pick(&steps);
        let (count, holder) = (self.plan.workers.len(), self.worker);
        let starter = if count > 1 { (holder + 1 + self.dice.index(count - 1)) % count } else { 0 };
        if starter != holder && self.dice.chance(70) {
            // The first start of the other one, if it has not started by then.
            let join = self.at(self.dice.ms(0, 500), Fault::Join { worker: starter });
            let at = Duration::ZERO;
            return self.at(at, self.when(self.step(step), self.dice.ms(1_000, 15_000), vec![join]));
        }
        let (down, power) = (self.dice.ms(1, 2_000), self.dice.chance(30));
        let kill = self.at(self.dice.ms(0, 3_000), Fault::KillWorker { worker: starter, down, power });
        self.at(at, self.when(self.step(step), self.dice.ms(2_000, 30_000), vec![kill]))
    }

    /// An incarnation stands still while it takes the job over, another one starts, and the first comes back.
    fn late_start(&self, at: Duration) -> Vec<TimedFault> {
        let (dice, worker) = (self.dice, self.worker);
        let request = dice.pick(&[
            Request::ListOffsets,
            Request::Produce,
            Request::FindCoordinator,
            Request::InitProducerId,
        ]);
        let lasts = match dice.between(0, 3) {
            0 | 1 => dice.ms(150, 1_000),
            2 => dice.ms(1_000, 6_000),
            _ => dice.outage(),
        };
        let zombie = self.at(Duration::ZERO, Fault::Zombie { worker, lasts });
        let begin = Fault::KillWorker { worker, down: dice.ms(1, 1_000), power: dice.chance(20) };
        let moment = Moment::WorkerSends { worker, request };
        vec![
            self.at(at, begin),
            self.at(at + Duration::from_millis(1), self.when(moment, Duration::ZERO, vec![zombie])),
        ]
    }

    /// Something breaks while one broker talks to another.
    fn broker_request(&self) -> Fault {
        let request = self.dice.pick(&[
            Request::WriteTxnMarkers,
            Request::WriteTxnMarkers,
            Request::WriteShareGroupState,
            Request::ReadShareGroupState,
            Request::AddPartitionsToTxn,
        ]);
        let hold = if self.dice.chance(60) { Duration::ZERO } else { self.dice.ms(1, 3_000) };
        let mut then = vec![if self.dice.chance(30) {
            self.silence(self.dice.outage())
        } else {
            self.soon_or_now(self.broker_fault())
        }];
        if self.dice.chance(30) {
            then.push(self.soon(self.broker_fault()));
        }
        self.when(Moment::NodeSends { request }, hold, then)
    }

    /// The answer to a worker is lost, and what it asked for was done; or the request is lost.
    fn lost_answer(&self) -> Fault {
        if self.dice.chance(40) {
            // Everything else goes on at once: whoever counts it as done would not be told otherwise.
            let request = self.dice.pick(&[
                Request::TxnShareAcknowledge,
                Request::TxnShareAcknowledge,
                Request::EndTxn,
            ]);
            let lose = self.at(Duration::ZERO, Fault::LoseRequest { lasts: self.dice.ms(2, 300) });
            return self.when(
                Moment::WorkerSends { worker: self.worker, request },
                Duration::ZERO,
                vec![lose],
            );
        }
        let request = self.dice.pick(&[
            Request::TxnShareAcknowledge,
            Request::Produce,
            Request::EndTxn,
            Request::InitProducerId,
        ]);
        let lose = self.at(Duration::ZERO, Fault::LoseAnswer { lasts: self.dice.ms(30, 2_000) });
        self.when(Moment::WorkerSends { worker: self.worker, request }, Duration::ZERO, vec![lose])
    }

    /// Anything, at any step.
    fn any_step(&self) -> Fault {
        let hold = if self.dice.chance(40) { Duration::ZERO } else { self.dice.outage() };
        let worker = self.dice.index(self.plan.workers.len());
        let store = Fault::Store {
            lasts: self.dice.ms(100, 5_000),
            failed_percent: self.dice.pick(&[0, 50, 100]),
            lost_percent: self.dice.pick(&[0, 50, 100]),
            delay_max: self.dice.ms(4, 1_000),
        };
        let fault = match self.dice.between(0, 4) {
            0 => Fault::Reset { worker },
            1 => Fault::Cut { worker, node: self.node(), lasts: self.dice.outage(), way: self.way() },
            2 | 3 if self.plan.workers.iter().any(|worker| worker.has_store) => store,
            _ => self.broker_fault(),
        };
        self.when(self.step(self.dice.pick(&CommitStep::ALL)), hold, vec![self.soon(fault)])
    }
}
