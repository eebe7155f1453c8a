//! The cut against a model that looks at every offset of every event by itself.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sharestream_base::ids::{PartitionIndex, TopicId};
use sharestream_core::commit::AckMode;
use sharestream_core::decision::{DecidedRange, Decision};

use super::*;
use crate::outcome::{Beginning, BegunPartition, OutcomeCounts, OutcomePartition, ReplayGeneration};

const GROUP: &str = "g";

fn source() -> SourcePartition {
    SourcePartition { topic_id: TopicId::default(), partition: PartitionIndex(0) }
}

fn outcome(producer: i64, epoch: i16, generation: u32, offsets: &BTreeSet<i64>) -> OutcomeRecord {
    let mut decisions = Decisions::new();
    for offset in offsets {
        let decision = if offset % 5 == 0 { Decision::Reject } else { Decision::Accept };
        decisions.set(source(), DecidedRange { first: Offset(*offset), last: Offset(*offset), decision });
    }
    OutcomeRecord {
        format_version: 2,
        job: "j".to_owned(),
        instance: producer.to_string(),
        job_epoch: JobEpoch(1),
        checkpoint: CheckpointId(u64::try_from(epoch).unwrap()),
        predecessor: None,
        manifest: None,
        mode: AckMode::Ledger,
        group: GROUP.to_owned(),
        partitions: OutcomePartition::of(&decisions, |_| String::new()),
        transactional_id: format!("j.{producer}"),
        producer_id: ProducerId(producer),
        producer_epoch: ProducerEpoch(epoch),
        deadline_ms: 0,
        counts: OutcomeCounts::of(&decisions),
        generation: ReplayGeneration(generation),
    }
}

/// What happens to one transaction.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A producer claims so many undecided offsets from one on.
    Claim { producer: i64, from: i64, count: usize },
    /// Its transaction ends.
    End { producer: i64, committed: bool },
    /// The broker passes the decided prefix.
    Advance,
    /// A floor follows the start offset, and what is below is tombstoned from the front.
    Floor,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0i64..3, 0i64..30, 1usize..5).prop_map(|(producer, from, count)| Event::Claim { producer, from, count }),
        4 => (0i64..3, proptest::bool::weighted(0.7)).prop_map(|(producer, committed)| Event::End { producer, committed }),
        2 => Just(Event::Advance),
        1 => Just(Event::Floor),
    ]
}

/// A group, offset by offset, and the log that tells of it.
#[derive(Default)]
struct World {
    log: Vec<Entry>,
    open: BTreeMap<i64, (usize, BTreeSet<i64>)>,
    epochs: BTreeMap<i64, i16>,
    decided: BTreeSet<i64>,
    claimed: BTreeSet<i64>,
    start: i64,
}

#[derive(Clone)]
enum Entry {
    Outcome(Box<OutcomeRecord>, BTreeSet<i64>),
    Marker(i64, i16, bool),
    Floor(i64),
}

impl World {
    fn happens(&mut self, event: Event) {
        match event {
            Event::Claim { producer, from, count } if !self.open.contains_key(&producer) => {
                let free = (from..).filter(|offset| !self.claimed.contains(offset) && *offset >= self.start);
                let offsets: BTreeSet<i64> = free.take(count).collect();
                self.claimed.extend(&offsets);
                let epoch = self.epochs.entry(producer).or_default();
                *epoch += 1;
                let record = outcome(producer, *epoch, 0, &offsets);
                self.open.insert(producer, (self.log.len(), offsets.clone()));
                self.log.push(Entry::Outcome(Box::new(record), offsets));
            }
            Event::End { producer, committed } => {
                let Some((_, offsets)) = self.open.remove(&producer) else { return };
                for offset in &offsets {
                    if committed {
                        self.decided.insert(*offset);
                    } else {
                        self.claimed.remove(offset);
                    }
                }
                self.log.push(Entry::Marker(producer, self.epochs[&producer] + 1, committed));
            }
            Event::Advance => {
                while self.decided.contains(&self.start) {
                    self.start += 1;
                }
            }
            Event::Floor => self.log.push(Entry::Floor(self.start)),
            Event::Claim { .. } => {}
        }
    }
}

fn feed(cut: &mut Cut, position: usize, entry: &Entry) {
    let position = Offset(i64::try_from(position).unwrap());
    match entry {
        Entry::Outcome(record, _) => cut.outcome(position, (**record).clone()),
        Entry::Marker(producer, epoch, committed) => {
            cut.marker(ProducerId(*producer), ProducerEpoch(*epoch), position, *committed).unwrap();
        }
        Entry::Floor(floor) => cut.floor(
            position,
            &FloorRecord {
                format_version: 2,
                group: GROUP.to_owned(),
                generation: ReplayGeneration(0),
                topic: String::new(),
                topic_id: TopicId::default(),
                partition: PartitionIndex(0),
                floor: Offset(*floor),
                initial: Offset(0),
                counts: OutcomeCounts::default(),
                passed: 0,
            },
        ),
    }
}

/// Every offset that a standing says is decided.
fn offsets_of(standing: &Standing) -> BTreeSet<i64> {
    let start = standing.starts[&source()].0;
    let above = standing.decided.of(source()).flat_map(|range| range.first.0..=range.last.0);
    (0..start).chain(above).collect()
}

proptest! {
    /// Whatever happens between the reading of the start offset and the end of the log, and behind it: exactly what was
    /// claimed below the end and committed is decided.
    #[test]
    fn exactly_what_committed_below_the_end_is_decided(
        events in proptest::collection::vec(event(), 1..60),
        read_at in 0usize..60, sealed_at in 0usize..60
    ) {
        let (read_at, sealed_at) = (read_at.min(sealed_at), sealed_at);
        let mut world = World::default();
        let (mut start, mut end) = (0, 0);
        for (index, event) in events.iter().enumerate() {
            if index == read_at { start = world.start; }
            if index == sealed_at { end = world.log.len(); }
            world.happens(*event);
        }
        if events.len() <= read_at { start = world.start; }
        if events.len() <= sealed_at { end = world.log.len(); }
        let below_end: BTreeSet<i64> = world.open.values().filter(|(at, _)| *at < end)
            .flat_map(|(_, offsets)| offsets.clone()).collect();
        prop_assume!(below_end.is_empty());

        let starts = Starts::from([(source(), Offset(start))]);
        let mut cut = Cut::new(GROUP, starts);
        for (position, entry) in world.log.iter().enumerate() {
            if position == end { cut.seal(Offset(i64::try_from(end).unwrap())); }
            feed(&mut cut, position, entry);
        }
        cut.seal(Offset(i64::try_from(end).unwrap()));
        prop_assert!(cut.is_settled());
        let standing = cut.standing();

        let mut expected = BTreeSet::new();
        let mut open: BTreeMap<i64, (usize, &BTreeSet<i64>)> = BTreeMap::new();
        for (position, entry) in world.log.iter().enumerate() {
            match entry {
                Entry::Outcome(record, offsets) => { open.insert(record.producer_id.0, (position, offsets)); }
                Entry::Marker(producer, _, committed) => {
                    if let Some((at, offsets)) = open.remove(producer)
                        && *committed && at < end {
                        expected.extend(offsets);
                    }
                }
                Entry::Floor(_) => {}
            }
        }
        prop_assert_eq!(offsets_of(&standing), expected);
        let start = standing.starts[&source()];
        prop_assert!(standing.decided.get(source(), start).is_none(), "the start offset is not decided");
        let faults: Vec<_> = standing.decided.of(source()).filter(|range| range.first <= start).collect();
        prop_assert!(faults.is_empty(), "{:?}", faults);
    }
}

fn generation(number: u32, ready: bool, begins: Option<Beginning>) -> GenerationRecord {
    let (group, generation) = (GROUP.to_owned(), ReplayGeneration(number));
    GenerationRecord { format_version: 3, group, generation, ready, begins: begins.map(Box::new) }
}

#[test]
fn a_generation_forgets_what_was_decided_but_for_what_its_savepoint_had() {
    let mut cut = Cut::new(GROUP, Starts::from([(source(), Offset(3))]));
    feed(&mut cut, 0, &Entry::Outcome(Box::new(outcome(1, 1, 0, &(0..20).collect())), BTreeSet::new()));
    feed(&mut cut, 1, &Entry::Marker(1, 2, true));
    feed(&mut cut, 2, &Entry::Floor(10));
    let range = DecidedRange { first: Offset(5), last: Offset(6), decision: Decision::Accept };
    let partition = BegunPartition {
        topic: String::new(),
        topic_id: TopicId::default(),
        partition: PartitionIndex(0),
        start_offset: Offset(3),
        decided: vec![range],
    };
    let begins = Beginning { since_ms: 0, rewind: None, partitions: vec![partition] };
    cut.generation(Offset(3), &generation(1, false, Some(begins)));
    assert!(!cut.standing().is_ready());
    cut.generation(Offset(4), &generation(1, true, None));
    // A claim of before it says nothing; one of it does.
    feed(&mut cut, 5, &Entry::Outcome(Box::new(outcome(2, 1, 0, &BTreeSet::from([9]))), BTreeSet::new()));
    feed(&mut cut, 6, &Entry::Marker(2, 2, true));
    assert!(!cut.standing().decides);
    feed(&mut cut, 7, &Entry::Outcome(Box::new(outcome(1, 3, 1, &BTreeSet::from([3, 8]))), BTreeSet::new()));
    feed(&mut cut, 8, &Entry::Marker(1, 4, true));
    cut.seal(Offset(9));
    let standing = cut.standing();
    assert!(standing.is_ready() && standing.decides && cut.is_settled());
    assert_eq!(offsets_of(&standing), BTreeSet::from([0, 1, 2, 3, 5, 6, 8]));
    assert_eq!(standing.last_position, Some(Offset(7)));
    assert_eq!(standing.last[&("j".to_owned(), "1".to_owned())].checkpoint, CheckpointId(3));
}

#[test]
fn an_outcome_whose_own_marker_is_gone_is_read_again_and_an_open_one_is_named() {
    let mut cut = Cut::new(GROUP, Starts::new());
    feed(&mut cut, 0, &Entry::Outcome(Box::new(outcome(1, 1, 0, &BTreeSet::from([1]))), BTreeSet::new()));
    cut.seal(Offset(1));
    assert!(!cut.is_settled());
    assert_eq!(cut.standing().open, ["j.1"]);
    let error = cut.marker(ProducerId(1), ProducerEpoch(4), Offset(2), true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry);
}
