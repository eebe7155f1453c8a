//! A start of the broker on a folder that may hold anything.
//!
//! The first byte says whether the folder is marked as clean, and of what the files are made: raw bytes, or frames
//! with right checksums. Then come the parts: frames of the journal, and segments of one partition.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sharestream_broker::fuzzing;
use sharestream_fuzz::{Parts, bounded};

const FRAMED: u8 = 2;

fuzz_target!(|data: &[u8]| {
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
