//! A start of the broker on a folder that may hold anything.
//!
//! The first byte says whether the folder is marked as clean, and of what the files are made: raw bytes, or frames
//! with right checksums. Then come the parts: frames of the journal, and segments of one partition.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sharestream_broker::fuzzing;
use sharestream_fuzz::seeds::{Seeds, part};
use sharestream_fuzz::{Parts, bounded};
use sharestream_wire::records::{BatchBuilder, BatchMeta, control};

const FRAMED: u8 = 2;

fuzz_target!(init: write_seeds(), |data: &[u8]| {
    let mut parts = Parts(data);
    let mode = parts.byte();
    let journal = file(&mut parts, mode, true);
    let mut segments = Vec::new();
    while !parts.is_empty() && segments.len() < 8 {
        let base = i64::from(parts.byte());
        // Some begin where offsets end.
        let base = if base > 250 { i64::MAX - base } else { base };
        segments.push((base, file(&mut parts, mode, false)));
    }
    bounded(data.len(), 64, 128 * 1024, || fuzzing::data_folder(journal, segments, mode & 1 == 1));
});

fn file(parts: &mut Parts, mode: u8, journal: bool) -> Vec<u8> {
    if mode & FRAMED == 0 {
        return parts.part().to_vec();
    }
    let frames = parts.byte() % 8;
    let frames: Vec<(u8, &[u8])> = (0..frames).map(|_| (parts.byte(), parts.part())).collect();
    fuzzing::file_of_frames(journal, frames)
}

fn write_seeds() {
    let Some(mut seeds) = Seeds::asked_for() else { return };
    let frame = |kind: u8, payload: &[u8]| [&[kind][..], &part(payload)].concat();
    let journal = [
        frame(1, br#"{"cluster":{"id":"c"}}"#),
        frame(1, br#"{"topic":{"id":"t","name":"n","internal":false,"homes":[0,1],"configs":{"a":"b"}}}"#),
        frame(1, br#"{"leader":{"topic":"t","partition":1,"epoch":4,"home":2}}"#),
        frame(1, br#"{"group_config":{"group":"g","key":"k","value":null}}"#),
        frame(1, br#"{"producer_ids":{"end":1000}}"#),
        frame(1, br#"{"feature":{"name":"share.version","level":2}}"#),
        frame(1, br#"{"topic_deleted":{"id":"t"}}"#),
    ];
    let journal = [&[7][..], &journal.concat()].concat();
    // First offset, covered end, start of the log; states of one producer.
    let numbers = |base: i64, covered: i64| [base, covered, 0].map(i64::to_be_bytes).concat();
    let window = [&[1, 0, 0, 0, 0, 0, 0, 0, 1][..], &[0; 15], &[1]].concat();
    let producer = [&[0, 0, 0, 1][..], &[0; 7], &[4, 0, 5, 0, 0, 0, 1], &[0; 8], &window].concat();
    let producers = [&producer[..], &[2], &[0; 8], &[2, 0, 5, 1], &[0; 8]].concat();
    let mut builder = BatchBuilder::new();
    builder.append(5, Some(b"k"), Some(b"v"), &[]).expect("a small record");
    builder.append(6, None, None, &[]).expect("a small record");
    let meta = BatchMeta {
        producer_id: 4,
        producer_epoch: 5,
        base_sequence: 0,
        transactional: true,
        ..BatchMeta::default()
    };
    let batch = builder.build(&meta).expect("a small batch");
    let meta = control::MarkerMeta {
        coordinator_epoch: 1,
        producer_id: 4,
        producer_epoch: 5,
        timestamp_ms: 6,
        base_offset: 2,
        leader_epoch: 0,
    };
    let marker = control::encode(control::ControlMarker::Commit, &meta).expect("a marker");
    let first = [
        frame(1, &[&numbers(0, -1)[..], &[0; 4]].concat()),
        frame(2, &[&[2][..], &batch].concat()),
        frame(2, &[&[2][..], &marker].concat()),
        frame(3, &1i64.to_be_bytes()),
    ];
    let first = [&[0, 4][..], &first.concat()].concat();
    let second = [&[3, 1][..], &frame(1, &[&numbers(3, 9)[..], &producers].concat())].concat();
    for mode in [FRAMED, FRAMED | 1] {
        seeds.put(&[&[mode], &journal]);
        seeds.put(&[&[mode], &[0], &first]);
        seeds.put(&[&[mode], &journal, &first, &second]);
    }
    let raw = fuzzing::file_of_frames(true, [(1, &br#"{"producer_ids":{"end":1}}"#[..])]);
    seeds.put(&[&[0], &part(&raw), &[0], &part(&fuzzing::file_of_frames(false, []))]);
}
