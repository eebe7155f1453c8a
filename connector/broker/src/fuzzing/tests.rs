//! The doors for fuzzing lead to where they should, and short random walks through them.

use sharestream_base::Rng;
use sharestream_wire::records::{BatchBuilder, BatchMeta};

use super::*;

/// Key of the share state of group `g`.
const SHARE_KEY: &[u8] = &[0, 0, 0, 1, b'g', 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 2];

/// A snapshot of no batches.
fn snapshot() -> Vec<u8> {
    [&[0; 2][..], &[0; 12], &[0; 8], &[0xff; 16], &[1, 0]].concat()
}

/// An empty state of a transactional id.
fn transaction() -> Vec<u8> {
    [&[0, 1][..], &[0; 8], &[0, 5], &[0, 0, 0, 60], &[0], &[0], &[0; 16], &[0]].concat()
}

/// Group `g`, topic `t`, partition 2.
const OFFSET_KEY: &[u8] = &[0, 1, 0, 1, b'g', 0, 1, b't', 0, 0, 0, 2];

/// Offset 9, metadata `m`, a time, and the id of the topic.
fn offset() -> Vec<u8> {
    [&[0, 4][..], &[0; 7], &[9], &[0xff; 4], &[2, b'm'], &[0; 8], &[1, 0, 16], &[7; 16]].concat()
}

/// First offset 0, covers nothing, the log begins at 0, no producers.
fn head() -> Vec<u8> {
    [&[0; 8][..], &[0xff; 8], &[0; 8], &[0; 4]].concat()
}

fn batch() -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.append(0, Some(b"k"), Some(b"v"), &[]).unwrap();
    [&[2], &builder.build(&BatchMeta::default()).unwrap()[..]].concat()
}

/// Changes one to four bytes.
fn changed(bytes: &[u8], rng: &Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(4) {
            0 => bytes.truncate(at.max(1)),
            1 => drop(bytes.splice(at..at, [0xff, 0xff, 0xff, 0xff, 0x0f])),
            2 => bytes[at] = 0xff,
            _ => bytes[at] = rng.below(256) as u8,
        }
    }
    bytes
}

#[test]
fn whole_records_and_folders_are_read() {
    assert!(share_state_record(SHARE_KEY, Some(&snapshot())));
    assert!(share_state_record(SHARE_KEY, None));
    assert!(transaction_record(&[0, 0, 0, 2, b't', b'x'], &transaction()));
    assert!(consumer_offset_record(OFFSET_KEY, Some(&offset())));
    assert!(consumer_offset_record(OFFSET_KEY, None));
    assert!(consumer_offset_record(&[0, 2, 0, 1, b'g'], None), "the end of a group");
    let journal = || file_of_frames(true, [(1, &br#"{"producer_ids":{"end":9}}"#[..])]);
    let segment = || file_of_frames(false, [(1, &head()[..]), (2, &batch())]);
    for clean in [true, false] {
        assert!(data_folder(journal(), vec![(0, segment())], clean));
    }
    assert!(!data_folder(journal(), vec![(1, segment())], true), "a segment of another offset");
    assert!(!data_folder(segment(), vec![], true), "a segment is no journal");
}

#[test]
fn changed_records_and_folders_make_nothing_panic() {
    let rng = Rng::seeded(3);
    let (snapshot, transaction, head, batch) = (snapshot(), transaction(), head(), batch());
    let offset = offset();
    let mut refused = 0;
    for _ in 0..3_000 {
        let records = [
            share_state_record(&changed(SHARE_KEY, &rng), Some(&changed(&snapshot, &rng))),
            transaction_record(&changed(&[0, 0, 0, 2, b't', b'x'], &rng), &changed(&transaction, &rng)),
            consumer_offset_record(&changed(OFFSET_KEY, &rng), Some(&changed(&offset, &rng))),
        ];
        refused += records.into_iter().filter(|read| !read).count();
        let frames = [changed(&head, &rng), changed(&batch, &rng), changed(&batch, &rng)];
        let frames = [1, 2, 2].into_iter().zip(frames.iter().map(Vec::as_slice));
        let journal = file_of_frames(true, []);
        let read = data_folder(journal, vec![(0, file_of_frames(false, frames))], rng.below(2) == 1);
        refused += usize::from(!read);
    }
    assert!(refused > 3_000, "{refused} were refused");
}

#[test]
fn every_api_that_is_served_is_there() {
    let served: Vec<_> = served().collect();
    assert!(served.contains(&(0, 3, 12)), "Produce");
    assert!(served.len() > 30);
}
