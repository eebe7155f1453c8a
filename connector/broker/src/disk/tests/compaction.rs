//! Compaction: what it leaves, how far it goes, and crashes in every step of it.

use super::*;

const COMPACT: [(&str, &str); 3] =
    [("cleanup.policy", "compact"), ("segment.bytes", "150"), ("min.cleanable.dirty.ratio", "0")];
/// Long after every record: nothing is young, and what is deleted has outlived `delete.retention.ms`.
const LATER_MS: i64 = 1_000_000_000_000;

fn clean(machine: &Machine, now_ms: i64) -> bool {
    let cleaning = machine.led().keep_up(now_ms);
    let any = cleaning.is_some();
    if let Some(cleaning) = cleaning {
        cleaning.run();
    }
    any
}

fn latest(partition: &Partition) -> BTreeMap<String, Option<String>> {
    committed(partition).into_iter().map(|(_, key, value)| (key, value)).collect()
}

#[tokio::test]
async fn of_each_key_the_last_committed_record_stays_and_every_offset_its_record() {
    let machine = Machine::start(FaultyFiles::default()).unwrap();
    machine.create(&COMPACT);
    let led = machine.led();
    for round in 0..5 {
        plain(&led, "a", &format!("a{round}")).unwrap();
        plain(&led, "b", &format!("b{round}")).unwrap();
    }
    append(&led, Some((7, 0, 0)), true, "a", Some("aborted")).unwrap();
    mark(&led, 7, 1, false).unwrap();
    append(&led, Some((7, 1, 0)), true, "c", Some("committed")).unwrap();
    mark(&led, 7, 2, true).unwrap();
    append(&led, None, false, "b", None).unwrap();
    plain(&led, "z", "growing").unwrap();
    plain(&led, "z", "growing").unwrap();
    let (before, ends) = (committed(&machine.partition()), led.ends());
    assert!(clean(&machine, 2_000));
    assert!(!clean(&machine, 2_000), "there is nothing new");
    let after = committed(&machine.partition());
    assert!(after.iter().all(|record| before.contains(record)), "a record moved or changed: {after:?}");
    let text = |value: &str| Some(value.to_owned());
    let expected = [("a", text("a4")), ("b", None), ("c", text("committed")), ("z", text("growing"))];
    assert_eq!(latest(&machine.partition()), expected.map(|(key, value)| (key.to_owned(), value)).into());
    assert_eq!(after.iter().filter(|(_, key, _)| key != "z").count(), 3);
    assert_eq!((led.ends().high_watermark, led.ends().log_start), (ends.high_watermark, ends.log_start));
    // The markers are young still; later the abort marker and the deletion go, the commit marker stays with its data.
    let markers =
        |partition: &Partition| partition.batches().iter().filter(|one| one.header.is_control()).count();
    assert_eq!(markers(&machine.partition()), 2);
    plain(&led, "a", "a5").unwrap();
    plain(&led, "z", "growing").unwrap();
    plain(&led, "z", "growing").unwrap();
    assert!(clean(&machine, LATER_MS));
    assert_eq!(markers(&machine.partition()), 1);
    assert!(!latest(&machine.partition()).contains_key("b"));
    let left = look(&machine);
    assert_eq!(look(&Machine::start(machine.files.after_kill()).unwrap()), left);
}

fn look(machine: &Machine) -> (Vec<RawBatch>, crate::log::LogEnds) {
    let partition = machine.partition();
    (partition.batches(), partition.ends())
}

#[tokio::test]
async fn nothing_undecided_is_compacted_and_nothing_behind_it() {
    let machine = Machine::start(FaultyFiles::default()).unwrap();
    machine.create(&COMPACT);
    let led = machine.led();
    plain(&led, "a", "old").unwrap();
    plain(&led, "a", "older than the open one").unwrap();
    append(&led, Some((7, 0, 0)), true, "a", Some("open")).unwrap();
    for _ in 0..6 {
        plain(&led, "a", "behind the open one").unwrap();
    }
    assert!(clean(&machine, LATER_MS));
    let offsets: Vec<i64> = led.batches().iter().map(|batch| batch.header.base_offset).collect();
    assert_eq!(
        offsets,
        [1, 2, 3, 4, 5, 6, 7, 8],
        "only what lies below the last stable offset was looked at"
    );
    mark(&led, 7, 1, false).unwrap();
    plain(&led, "z", "growing").unwrap();
    plain(&led, "z", "growing").unwrap();
    assert!(clean(&machine, 2_000));
    assert_eq!(
        committed(&machine.partition())[0],
        (8, "a".to_owned(), Some("behind the open one".to_owned()))
    );
}

#[tokio::test]
async fn a_record_is_not_given_up_for_an_aborted_one_whose_marker_lies_behind() {
    let machine = Machine::start(FaultyFiles::default()).unwrap();
    machine.create(&[
        ("cleanup.policy", "compact"),
        ("segment.bytes", "400"),
        ("min.cleanable.dirty.ratio", "0"),
    ]);
    let led = machine.led();
    plain(&led, "a", "kept").unwrap();
    let mut sequence = 0;
    while machine.files.named(".log").iter().filter(|path| path.starts_with("topics")).count() < 2 {
        append(&led, Some((7, 0, sequence)), true, "a", Some("aborted")).unwrap();
        sequence += 1;
    }
    // The marker is in the segment that grows.
    mark(&led, 7, 1, false).unwrap();
    assert!(clean(&machine, LATER_MS));
    let kept = vec![(0, "a".to_owned(), Some("kept".to_owned()))];
    assert_eq!(committed(&machine.partition()), kept);
    assert_eq!(committed(&Machine::start(machine.files.after_kill()).unwrap().partition()), kept);
}

#[tokio::test]
async fn old_records_go_by_time_and_open_ones_stay() {
    let machine = Machine::start(FaultyFiles::default()).unwrap();
    machine.create(&[("retention.ms", "1000"), ("segment.bytes", "200")]);
    let led = machine.led();
    plain(&led, "a", "1").unwrap();
    plain(&led, "a", "2").unwrap();
    append(&led, Some((7, 0, 0)), true, "a", Some("open")).unwrap();
    plain(&led, "a", "3").unwrap();
    assert!(!clean(&machine, 2_000), "retention alone plans nothing");
    assert_eq!(led.ends().log_start, Offset(0), "every record is exactly as old as it may be");
    clean(&machine, 2_001);
    assert_eq!(led.ends().log_start, Offset(2));
    mark(&led, 7, 1, true).unwrap();
    clean(&machine, 2_001);
    assert_eq!(led.ends().log_start, Offset(4), "the marker is younger");
    let again = Machine::start(machine.files.after_kill()).unwrap();
    assert_eq!(again.led().ends(), led.ends());
}

/// The log before a compaction and the operations that it takes.
fn written() -> Machine {
    let machine = Machine::start(FaultyFiles::default()).unwrap();
    machine.create(&COMPACT);
    let led = machine.led();
    for round in 0..12 {
        plain(&led, ["a", "b", "c"][round % 3], &round.to_string()).unwrap();
    }
    machine
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_compaction_loses_no_last_record() {
    let machine = written();
    let expected = latest(&machine.partition());
    let before = machine.files.operations();
    assert!(clean(&machine, LATER_MS));
    let steps = machine.files.operations() - before;
    assert!(steps > 5, "{steps}");
    assert!(machine.files.named(".compacted").is_empty());
    for dies_after in 0..=steps {
        for seed in 0..20 {
            let machine = written();
            machine.sync().await.unwrap();
            machine.files.die_after(dies_after);
            clean(&machine, LATER_MS);
            for left in [machine.files.after_crash(&Rng::seeded(seed)), machine.files.after_kill()] {
                let again = Machine::start(left).unwrap();
                assert_eq!(latest(&again.partition()), expected, "died after {dies_after} of {steps}");
                assert_eq!(again.led().ends().high_watermark, Offset(12));
                plain(&again.led(), "a", "after").unwrap();
                clean(&again, LATER_MS);
                assert_eq!(latest(&again.partition())["a"], Some("after".to_owned()));
            }
        }
    }
}
