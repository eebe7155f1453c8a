//! What is stored as JSON: manifests of checkpoints and records of the outcome topic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sharestream_checkpoints::fuzzing;
use sharestream_fuzz::{Parts, bounded};
use sharestream_kafka::outcome::LogEntry;

fuzz_target!(|data: &[u8]| {
    let mut parts = Parts(data);
    let kind = parts.byte();
    bounded(data.len(), 64, 64 * 1024, || match kind % 3 {
        0 => drop(fuzzing::manifest_of_body(parts.0)),
        1 => drop(fuzzing::manifest(parts.0)),
        _ => entry(parts.part(), parts.0),
    });
});

fn entry(key: &[u8], value: &[u8]) {
    let Ok(entry) = LogEntry::decode(key, value) else { return };
    let written = match &entry {
        LogEntry::Outcome(outcome) => {
            let decisions = outcome.decisions();
            drop(decisions);
            (outcome.key(), outcome.encode())
        }
        LogEntry::Mode(mode) => (mode.key(), mode.encode()),
        LogEntry::Owner(owner) => (owner.key(), owner.encode()),
        LogEntry::Floor(floor) => (floor.key(), floor.encode()),
        LogEntry::Generation(generation) => (generation.key(), generation.encode()),
        LogEntry::Unknown => return,
    };
    let value = written.1.expect("what was read can be written");
    // A job's name may begin like a key of ours when anybody can write to the topic; such a record has another meaning.
    if !written.0.starts_with('#') || key.starts_with(b"#") {
        assert_eq!(LogEntry::decode(written.0.as_bytes(), &value).ok(), Some(entry), "an entry reads back");
    }
}
