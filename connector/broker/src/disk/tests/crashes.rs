//! Random work, then the machine goes down: the log is as it was after some step that is not before the last sync.

use proptest::prelude::*;
use sharestream_base::Rng;
use sharestream_base::ids::LeaderEpoch;

use super::*;
use crate::log::{LogEnds, ProducerSummary};

#[derive(Clone, Debug)]
enum Step {
    Plain,
    Write { producer: usize },
    End { producer: usize, commit: bool },
    Delete { keep: i64 },
    ShortWrite,
    Sync,
    Lead,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Plain),
        4 => (0usize..3).prop_map(|producer| Step::Write { producer }),
        2 => (0usize..3, any::<bool>()).prop_map(|(producer, commit)| Step::End { producer, commit }),
        1 => (0i64..12).prop_map(|keep| Step::Delete { keep }),
        1 => Just(Step::ShortWrite),
        2 => Just(Step::Sync),
        1 => Just(Step::Lead),
    ]
}

#[derive(Clone, Debug, PartialEq)]
struct Seen {
    ends: LogEnds,
    batches: Vec<RawBatch>,
    producers: Vec<ProducerSummary>,
}

fn look(partition: &Partition) -> Seen {
    Seen { ends: partition.ends(), batches: partition.batches(), producers: partition.producers() }
}

#[derive(Default)]
struct Writers([(i16, i32); 3]);

impl Writers {
    fn take(&mut self, machine: &Machine, step: &Step) {
        let led = machine.led();
        match step {
            Step::Plain => assert!(plain(&led, "k", "plain").is_ok()),
            Step::Write { producer } => {
                let (epoch, sequence) = self.0[*producer];
                let id = 100 + *producer as i64;
                if append(&led, Some((id, epoch, sequence)), true, "k", Some("transactional")).is_ok() {
                    self.0[*producer].1 += 1;
                }
            }
            Step::End { producer, commit } => {
                let epoch = self.0[*producer].0 + 1;
                if mark(&led, 100 + *producer as i64, epoch, *commit).is_ok() {
                    self.0[*producer] = (epoch, 0);
                }
            }
            Step::Delete { keep } => drop(led.delete_before(led.ends().high_watermark.plus(-keep))),
            Step::ShortWrite => {
                machine.files.fail_once(Failure::ShortWrite);
                assert_eq!(plain(&led, "k", "refused"), Err(ErrorCode::KafkaStorageError));
            }
            Step::Sync => {}
            Step::Lead => drop(machine.partition().lead(Some(NODE))),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn a_crash_leaves_the_log_as_it_was_after_a_step_that_is_not_before_the_last_sync(
        steps in prop::collection::vec(step(), 1..40),
        segment_bytes in 120usize..2_000,
        seed in any::<u64>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let machine = Machine::start(FaultyFiles::default()).unwrap();
        machine.create(&[("segment.bytes", &segment_bytes.to_string())]);
        runtime.block_on(machine.sync()).unwrap();
        let mut writers = Writers::default();
        let mut seen = vec![look(&machine.partition())];
        let (mut synced, mut synced_epoch) = (0, LeaderEpoch(0));
        for step in &steps {
            writers.take(&machine, step);
            seen.push(look(&machine.partition()));
            if matches!(step, Step::Sync) {
                runtime.block_on(machine.sync()).unwrap();
                (synced, synced_epoch) = (seen.len() - 1, machine.led().epoch());
            }
        }
        let again = Machine::start(machine.files.after_crash(&Rng::seeded(seed))).unwrap();
        let found = look(&again.partition());
        prop_assert!(again.led().epoch() > synced_epoch);
        let fits = |one: &Seen| {
            // The removal of old segments may be there without the note that says why.
            let start = found.ends.log_start;
            let above = |batches: &[RawBatch]| -> Vec<RawBatch> {
                batches.iter().filter(|batch| batch.header.next_offset() > start.0).cloned().collect()
            };
            one.ends.high_watermark == found.ends.high_watermark
                && one.ends.last_stable_offset == found.ends.last_stable_offset
                && one.producers == found.producers
                && one.ends.log_start <= start
                && above(&one.batches) == found.batches
        };
        prop_assert!(found.ends.log_start <= seen.last().unwrap().ends.log_start);
        prop_assert!(seen[synced..].iter().any(fits), "{found:?}\nis none of\n{:?}", &seen[synced..]);
        // It can be written as before, and the next crash finds that too.
        prop_assert_eq!(plain(&again.led(), "k", "after"), Ok(found.ends.high_watermark));
        runtime.block_on(again.sync()).unwrap();
        let third = Machine::start(again.files.after_crash(&Rng::seeded(seed ^ 1))).unwrap();
        prop_assert_eq!(look(&third.partition()), look(&again.partition()));
    }
}
