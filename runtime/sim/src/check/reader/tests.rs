use super::*;
use crate::check::logs::{Fate, Writer};

fn record(offset: i64, fate: Fate, digest: u64) -> Logged {
    Logged {
        partition: PartitionIndex(0),
        offset: Offset(offset),
        writer: Writer { producer_id: 0, producer_epoch: 0 },
        fate,
        id: None,
        provenance: None,
        delivery_count: None,
        digest,
    }
}

/// A reader that saw `seen` and stands at `next`, judged by `log`.
fn check(seen: &[(i64, u64)], next: i64, log: Vec<Logged>) -> String {
    let mut witness = Seen::default();
    for (offset, digest) in seen {
        witness.note(OUTPUT, PartitionIndex(0), Offset(*offset), *digest);
    }
    witness.position(OUTPUT, PartitionIndex(0)).next = Offset(next);
    let logs = Logs { topics: [(OUTPUT, log)].into(), source_id: None };
    witness.check(&logs).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_was_read_is_committed_as_it_was() {
    let log = || vec![record(0, Fate::Committed, 7), record(1, Fate::Aborted, 8), record(2, Fate::Plain, 9)];
    assert_eq!(check(&[(0, 7), (2, 9)], 3, log()), "");
    assert!(
        check(&[(0, 7), (1, 8), (2, 9)], 3, log())
            .contains("output/0/1 was read as committed and is Aborted")
    );
    assert!(check(&[(0, 6), (2, 9)], 3, log()).contains("output/0/0 holds another record"));
    assert!(check(&[(0, 7), (2, 9), (3, 1)], 4, log()).contains("output/0/3 was read and is not there"));
}

#[test]
fn nothing_committed_is_left_out() {
    let log = || vec![record(0, Fate::Committed, 7), record(1, Fate::Committed, 8)];
    assert!(check(&[(1, 8)], 2, log()).contains("output/0/0 is committed, and the reader went past it to 2"));
    assert!(check(&[(0, 7)], 1, log()).contains("output/0/1 is committed, and the reader stands at 1"));
}

#[test]
fn offsets_only_rise() {
    let log = || vec![record(0, Fate::Committed, 7), record(1, Fate::Committed, 8)];
    assert!(check(&[(1, 8), (0, 7)], 2, log()).contains("output/0/0 was read after 1"));
    assert!(check(&[(0, 7), (0, 7), (1, 8)], 2, log()).contains("output/0/0 was read after 0"));
}
