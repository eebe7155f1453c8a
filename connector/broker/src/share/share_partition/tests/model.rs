//! The share partition against a model that keeps one cell for each offset.

use proptest::prelude::*;
use sharestream_base::Clock;

use super::super::super::record_state::{Intent, Settled, TxnOutcome};
use super::*;

const LIMITS: Limits = Limits {
    max_record_locks: 24,
    delivery_count_limit: 2,
    lock_duration: Duration::from_secs(10),
    dead_letters: false,
};

#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Available,
    Acquired(usize, Instant),
    Settling(Settled, WriteId, Option<usize>),
    Pending(i16, Intent, Option<(WriteId, usize, Option<TxnOutcome>)>),
    Done(Settled),
}

#[derive(Clone, Debug)]
enum Op {
    Grow(i64, bool),
    Acquire { member: usize, max: i64, strict: bool },
    Ack { member: usize, first: i64, types: Vec<i8> },
    Stage { member: usize, first: i64, count: i64, kind: i8, epoch: i16 },
    Resolve { epoch: i16, commit: bool },
    Close(usize),
    Wait(u64),
    Finish { pick: usize, ok: bool },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (1..9i64, prop::bool::weighted(0.2)).prop_map(|(n, aborted)| Op::Grow(n, aborted)),
        4 => (0..2usize, 1..30i64, any::<bool>())
            .prop_map(|(member, max, strict)| Op::Acquire { member, max, strict }),
        4 => (0..2usize, 0..40i64, prop::collection::vec(0..5i8, 1..8))
            .prop_map(|(member, first, types)| Op::Ack { member, first, types }),
        4 => (0..2usize, 0..40i64, 1..8i64, prop::sample::select(vec![0i8, 1, 3]), 0..3i16)
            .prop_map(|(member, first, count, kind, epoch)| Op::Stage { member, first, count, kind, epoch }),
        1 => (1..4i16, any::<bool>()).prop_map(|(epoch, commit)| Op::Resolve { epoch, commit }),
        1 => (0..2usize).prop_map(Op::Close),
        1 => (1..8u64).prop_map(Op::Wait),
        5 => (0..4usize, prop::bool::weighted(0.8)).prop_map(|(pick, ok)| Op::Finish { pick, ok }),
    ]
}

#[derive(Default)]
struct Model {
    /// Cell and delivery count of each offset from 0; below `start` they are done.
    cells: Vec<(Cell, u16)>,
    start: usize,
    marker_epoch: i16,
}

impl Model {
    fn given_back(count: u16) -> Settled {
        if count >= LIMITS.delivery_count_limit { Settled::Archived } else { Settled::Available }
    }

    fn advance(&mut self) {
        while matches!(
            self.cells.get(self.start),
            Some((Cell::Done(Settled::Acknowledged | Settled::Archived), _))
        ) {
            self.start += 1;
        }
    }

    /// Offsets acquired, by offset and delivery count.
    fn acquire(
        &mut self,
        member: usize,
        log: &[LogBatch],
        max: i64,
        strict: bool,
        deadline: Instant,
        write: WriteId,
    ) -> Vec<(i64, u16)> {
        let (mut left, mut taken) = (max, Vec::new());
        for batch in log {
            if left <= 0 {
                break;
            }
            let beyond = self.cells.len() as i64;
            for offset in batch.range.first.0..=batch.range.last.0 {
                if strict && left <= 0 {
                    break;
                }
                let index = offset as usize;
                if offset < beyond {
                    if index < self.start || self.cells[index].0 != Cell::Available {
                        continue;
                    }
                    if batch.aborted {
                        self.cells[index].0 = Cell::Settling(Settled::Archived, write, None);
                        continue;
                    }
                    let count = self.cells[index].1 + 1;
                    self.cells[index] = (Cell::Acquired(member, deadline), count);
                    taken.push((offset, count));
                    left -= 1;
                    continue;
                }
                // Aborted data needs no lock, so its batch may pass the bound in either mode.
                let exact = strict && !batch.aborted;
                let used = if exact { self.cells.len() as i64 } else { beyond } - self.start as i64;
                // In batch mode a batch that needs new room still has to have begun with some.
                if used >= LIMITS.max_record_locks || (!strict && offset == beyond && left <= 0) {
                    return taken;
                }
                if batch.aborted {
                    self.cells.push((Cell::Settling(Settled::Archived, write, None), 0));
                    continue;
                }
                self.cells.push((Cell::Acquired(member, deadline), 1));
                taken.push((offset, 1));
                left -= 1;
            }
        }
        taken
    }

    /// None when the whole call is refused.
    fn ack(
        &mut self,
        member: usize,
        first: i64,
        types: &[i8],
        deadline: Instant,
        write: WriteId,
    ) -> Option<()> {
        let mut next = self.cells.clone();
        for (index, kind) in types.iter().enumerate() {
            let index = first as usize + index;
            let (cell, count) = next.get_mut(index)?;
            if index < self.start {
                continue;
            }
            if !matches!(cell, Cell::Acquired(holder, _) if *holder == member) {
                return None;
            }
            *cell = match kind {
                0 | 3 => Cell::Settling(Settled::Archived, write, Some(member)),
                1 => Cell::Settling(Settled::Acknowledged, write, Some(member)),
                2 => Cell::Settling(Self::given_back(*count), write, Some(member)),
                _ => Cell::Acquired(member, deadline),
            };
        }
        self.cells = next;
        Some(())
    }

    fn stage(
        &mut self,
        member: usize,
        offsets: std::ops::Range<i64>,
        intent: Intent,
        epoch: i16,
        write: WriteId,
    ) -> Option<()> {
        if epoch < self.marker_epoch || (offsets.start as usize) < self.start {
            return None;
        }
        let mut next = self.cells.clone();
        for offset in offsets {
            let (cell, _) = next.get_mut(offset as usize)?;
            *cell = match cell.clone() {
                Cell::Acquired(holder, _) if holder == member => {
                    Cell::Pending(epoch, intent, Some((write, member, None)))
                }
                Cell::Pending(e, i, outstanding) if (e, i) == (epoch, intent) => {
                    Cell::Pending(e, i, outstanding.map(|(_, holder, resolved)| (write, holder, resolved)))
                }
                _ => return None,
            };
        }
        self.cells = next;
        Some(())
    }

    fn each(&mut self, change: impl Fn(&Cell, u16) -> Option<Cell>) {
        for (cell, count) in &mut self.cells[self.start..] {
            if let Some(next) = change(cell, *count) {
                *cell = next;
            }
        }
    }

    fn resolved(intent: Intent, outcome: TxnOutcome) -> Cell {
        match (outcome, intent) {
            (TxnOutcome::Abort, _) => Cell::Available,
            (TxnOutcome::Commit, Intent::Accept) => Cell::Done(Settled::Acknowledged),
            (TxnOutcome::Commit, Intent::Gap | Intent::Reject) => Cell::Done(Settled::Archived),
            // Not in this model: its group has no dead letter topic.
            (TxnOutcome::Commit, Intent::DeadLetter) => Cell::Done(Settled::Archiving),
        }
    }

    fn done(target: Settled) -> Cell {
        if target == Settled::Available { Cell::Available } else { Cell::Done(target) }
    }

    fn finish(&mut self, write: WriteId, ok: bool, deadline: Instant) {
        self.each(|cell, _| match cell {
            Cell::Settling(target, id, holder) if *id == write => Some(match holder {
                Some(holder) if !ok => Cell::Acquired(*holder, deadline),
                // The same write is sent again.
                None if !ok && *target != Settled::Available => Cell::Settling(*target, *id, None),
                _ => Self::done(*target),
            }),
            Cell::Pending(epoch, intent, Some((id, holder, resolved))) if *id == write => {
                Some(match (ok, resolved) {
                    (false, _) => Cell::Acquired(*holder, deadline),
                    (true, Some(outcome)) => Self::resolved(*intent, *outcome),
                    (true, None) => Cell::Pending(*epoch, *intent, None),
                })
            }
            _ => None,
        });
        self.advance();
    }
}

fn cell_of(state: &RecordState, members: &[MemberId]) -> Cell {
    let index = |member: &MemberId| members.iter().position(|m| m == member).unwrap();
    match state {
        RecordState::Available => Cell::Available,
        RecordState::Acquired { holder, lock_deadline } => Cell::Acquired(index(holder), *lock_deadline),
        RecordState::Settling { target, write, holder } => {
            Cell::Settling(*target, *write, holder.as_ref().map(index))
        }
        RecordState::TxnPending { staged, write } => {
            let outstanding = match write {
                StageWrite::Durable => None,
                StageWrite::Outstanding { write, holder, resolved } => {
                    Some((*write, index(holder), *resolved))
                }
            };
            Cell::Pending(staged.producer_epoch.0, staged.intent, outstanding)
        }
        RecordState::Acknowledged => Cell::Done(Settled::Acknowledged),
        RecordState::Archiving { .. } => Cell::Done(Settled::Archiving),
        RecordState::Archived => Cell::Done(Settled::Archived),
    }
}

fn run(ops: Vec<Op>) {
    let members = [MemberId::new("a"), MemberId::new("b")];
    let mut now = Clock::system().now();
    let mut partition = SharePartition::new(Offset(0), LIMITS);
    let mut model = Model::default();
    let mut log: Vec<LogBatch> = Vec::new();
    let mut writes: Vec<PendingWrite> = Vec::new();
    for op in ops {
        let write = WriteId(partition.last_write + 1);
        let deadline = now + LIMITS.lock_duration;
        match op.clone() {
            Op::Grow(count, aborted) => {
                let first = log.last().map_or(0, |batch| batch.range.last.0 + 1);
                log.push(LogBatch { range: range(first, first + count - 1), aborted });
            }
            Op::Acquire { member, max, strict } => {
                let mode = if strict { AcquireMode::RecordLimit } else { AcquireMode::BatchOptimized };
                let found = partition.acquire(&members[member], &log, max, mode, now);
                let expected = model.acquire(member, &log, max, strict, deadline, write);
                let offsets: Vec<(i64, u16)> = found
                    .acquired
                    .iter()
                    .flat_map(|a| (a.range.first.0..=a.range.last.0).map(|offset| (offset, a.delivery_count)))
                    .collect();
                assert_eq!(offsets, expected, "{op:?}");
                writes.extend(found.write);
            }
            Op::Ack { member, first, types } => {
                let last = first + types.len() as i64 - 1;
                let found = partition.acknowledge(&members[member], &[ack(first, last, &types)], now);
                let expected = model.ack(member, first, &types, deadline, write);
                assert_eq!(found.is_ok(), expected.is_some(), "{op:?}: {found:?}");
                writes.extend(found.ok().flatten());
            }
            Op::Stage { member, first, count, kind, epoch } => {
                let intent = match kind {
                    0 => Intent::Gap,
                    1 => Intent::Accept,
                    _ => Intent::Reject,
                };
                let producer = (ProducerId(9), ProducerEpoch(epoch));
                let found =
                    partition.stage(&members[member], producer, &[ack(first, first + count - 1, &[kind])]);
                let expected = model.stage(member, first..first + count, intent, epoch, write);
                assert_eq!(found.is_ok(), expected.is_some(), "{op:?}: {found:?}");
                writes.extend(found.ok().flatten());
            }
            Op::Resolve { epoch, commit } => {
                let outcome = if commit { TxnOutcome::Commit } else { TxnOutcome::Abort };
                partition.resolve(marker(epoch, outcome));
                model.marker_epoch = model.marker_epoch.max(epoch);
                model.each(|cell, _| match cell {
                    Cell::Pending(e, intent, None) if *e < epoch => Some(Model::resolved(*intent, outcome)),
                    Cell::Pending(e, intent, Some((write, holder, _))) if *e < epoch => {
                        Some(Cell::Pending(*e, *intent, Some((*write, *holder, Some(outcome)))))
                    }
                    _ => None,
                });
                model.advance();
            }
            Op::Close(member) => {
                writes.extend(partition.close_session(&members[member]));
                model.each(|cell, count| match cell {
                    Cell::Acquired(holder, _) if *holder == member => {
                        Some(Cell::Settling(Model::given_back(count), write, None))
                    }
                    Cell::Settling(target, id, Some(holder)) if *holder == member => {
                        Some(Cell::Settling(*target, *id, None))
                    }
                    _ => None,
                });
            }
            Op::Wait(seconds) => {
                now += Duration::from_secs(seconds);
                writes.extend(partition.expire_locks(now));
                model.each(|cell, count| match cell {
                    Cell::Acquired(_, deadline) if *deadline <= now => {
                        Some(Cell::Settling(Model::given_back(count), write, None))
                    }
                    _ => None,
                });
            }
            Op::Finish { pick, ok } => {
                if writes.is_empty() {
                    continue;
                }
                let pending = writes.remove(pick % writes.len());
                if ok {
                    partition.written(&pending);
                } else {
                    partition.write_failed(&pending, now);
                    writes.extend(partition.unsent_writes());
                }
                model.finish(pending.id, ok, deadline);
            }
        }
        partition.window().check();
        assert_eq!(partition.start_offset().0, model.start as i64, "{op:?}");
        assert_eq!(partition.end_offset().0, model.cells.len() as i64, "{op:?}");
        for (range, run) in partition.window().iter() {
            for offset in range.first.0..=range.last.0 {
                let (cell, count) = &model.cells[offset as usize];
                assert_eq!(
                    (&cell_of(&run.state, &members), run.delivery_count),
                    (cell, *count),
                    "{offset} {op:?}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn runs_behave_as_one_cell_for_each_offset(ops in prop::collection::vec(op(), 1..60)) {
        run(ops);
    }
}
