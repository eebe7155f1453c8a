//! Stored records of the share coordinator, of the transaction coordinator and of the coordinator of offsets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sharestream_broker::fuzzing;
use sharestream_fuzz::seeds::{Seeds, part};
use sharestream_fuzz::{Parts, bounded};

fuzz_target!(init: write_seeds(), |data: &[u8]| {
    let mut parts = Parts(data);
    let kind = parts.byte();
    let key = parts.part();
    let value = parts.0;
    bounded(data.len(), 64, 64 * 1024, || match kind % 5 {
        0 => fuzzing::share_state_record(key, Some(value)),
        1 => fuzzing::share_state_record(key, None),
        2 => fuzzing::transaction_record(key, value),
        3 => fuzzing::consumer_offset_record(key, Some(value)),
        _ => fuzzing::consumer_offset_record(key, None),
    });
});

fn write_seeds() {
    let Some(mut seeds) = Seeds::asked_for() else { return };
    // Key of a share partition: kind, group, topic id, partition.
    let key = |kind: u8| part(&[&[0, kind, 0, 1, b'g'][..], &[7; 16], &[0, 0, 0, 2]].concat());
    // A batch: first and last offset, state, deliveries; when pending, producer id, epoch and type; no tags.
    let batch = [&[0; 15][..], &[9, 0, 0, 1, 0]].concat();
    let pending = [&[0; 15][..], &[9, 3, 0, 1], &[0; 7], &[8, 0, 5, 1, 0]].concat();
    for (version, batches) in [(0, [&[3][..], &batch, &batch].concat()), (1, [&[2][..], &pending].concat())] {
        let numbers = [&[0, version][..], &[0; 12], &[0; 8], &[0xff; 16]].concat();
        seeds.put(&[&[0], &key(0), &numbers, &batches, &[0]]);
        seeds.put(&[&[0], &key(1), &[0, version], &[0; 8], &[0; 8], &batches, &[0]]);
    }
    // Without a start offset there is no count of what is complete; with one it is the tagged field.
    let counted = [&[0; 21][..], &[5], &[0xff; 16]].concat();
    seeds.put(&[&[0], &key(0), &counted, &[2], &batch, &[1, 0, 4, 0, 0, 0, 12]]);
    seeds.put(&[&[1], &key(0)]);
    let ended = part(&[0, 100, 0, 0, 0, 0, 0, 0, 0, 8]);
    seeds.put(&[&[0], &ended, &[0, 0, 0, 5, 1]]);
    seeds.put(&[&[0], &ended, &[0, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 9]]);
    // Producer id, epoch, time out, status; partitions of a topic; two times; tagged fields.
    let key = part(&[0, 0, 0, 2, b't', b'x']);
    let partitions = [2, 2, b't', 3, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let next_id = [1, 8, 0, 0, 0, 0, 0, 0, 0, 9];
    let client = [2, 2, 0, 2];
    let identity = [&[0; 7][..], &[4, 0, 5]].concat();
    let ended = [&[0x90, 0x4e, 21, 0][..], &identity, &identity].concat();
    let previous = [&[0x91, 0x4e, 10][..], &identity].concat();
    for status in 0..=5 {
        let head = [&[0, 1][..], &[0; 7], &[4, 0, 5, 0, 0, 0, 60, status]].concat();
        let partitions = if (1..=3).contains(&status) { &partitions[..] } else { &[0] };
        let tags = [&[4][..], &next_id, &client, &ended, &previous].concat();
        seeds.put(&[&[2], &key, &head, partitions, &[0; 16], &tags]);
        seeds.put(&[&[2], &key, &head, partitions, &[0; 16], &[0]]);
    }
    // Group, topic, partition; offset, leader epoch, metadata, time, id of the topic.
    let key = part(&[0, 1, 0, 1, b'g', 0, 1, b't', 0, 0, 0, 2]);
    let value = [&[0, 4][..], &[0; 7], &[44], &[0xff; 4], &[2, b'm'], &[0; 8]].concat();
    seeds.put(&[&[3], &key, &value, &[1, 0, 16], &[7; 16]]);
    seeds.put(&[&[3], &key, &value, &[0]]);
    seeds.put(&[&[4], &key]);
    seeds.put(&[&[4], &part(&[0, 2, 0, 1, b'g'])]);
}
