//! What is stored as JSON: manifests of checkpoints and records of the outcome topic.
//!
//! The first byte says what the rest is: a body, an object, or key and value. From 128 on it chooses one of the seeds,
//! and the rest says which of its numbers are replaced by what: numbers at the ends of ranges are rare otherwise.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sharestream_checkpoints::fuzzing;
use sharestream_fuzz::seeds::{Seeds, part};
use sharestream_fuzz::{Parts, bounded};
use sharestream_kafka::outcome::LogEntry;

fuzz_target!(init: write_seeds(), |data: &[u8]| {
    let mut parts = Parts(data);
    let kind = parts.byte();
    if kind >= EDITED {
        return edited(usize::from(kind - EDITED), &mut parts);
    }
    bounded(data.len(), 64, 64 * 1024, || match kind % 3 {
        0 => drop(fuzzing::manifest_of_body(parts.0)),
        1 => drop(fuzzing::manifest(parts.0)),
        _ => entry(parts.part(), parts.0),
    });
});

/// From this kind on a seed is edited.
const EDITED: u8 = 128;
/// Numbers that it is edited with; bytes beyond them stand for themselves.
const NUMBERS: [&str; 10] = [
    "0",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "2147483647",
    "-2147483648",
    "4294967295",
    "1e400",
    "0.5",
];

fn edited(which: usize, parts: &mut Parts) {
    let (key, text) = SEEDS[which % SEEDS.len()];
    let mut text = text.to_owned();
    for _ in 0..8 {
        if parts.is_empty() {
            break;
        }
        let runs = numbers(&text);
        let place = runs[usize::from(parts.byte()) % runs.len()].clone();
        let value = parts.byte();
        match NUMBERS.get(usize::from(value)) {
            Some(number) => text.replace_range(place, number),
            None => text.replace_range(place, &value.to_string()),
        }
    }
    bounded(text.len(), 64, 64 * 1024, || match key {
        "" => drop(fuzzing::manifest_of_body(text.as_bytes())),
        key => entry(key.as_bytes(), text.as_bytes()),
    });
}

/// Where the numbers of a text are; digits within words count too. There are some in every seed.
fn numbers(text: &str) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, _) in text.bytes().enumerate().filter(|(_, byte)| byte.is_ascii_digit() || *byte == b'-') {
        match runs.last_mut() {
            Some(run) if run.end == at => run.end += 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

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
        LogEntry::NearLimit(held) => (held.key(), held.encode()),
        LogEntry::Unknown => return,
    };
    let value = written.1.expect("what was read can be written");
    // A job's name may begin like a key of ours when anybody can write to the topic; such a record has another meaning.
    if !written.0.starts_with('#') || key.starts_with(b"#") {
        assert_eq!(LogEntry::decode(written.0.as_bytes(), &value).ok(), Some(entry), "an entry reads back");
    }
}

const MANIFEST: &str = concat!(
    r#"{"format_version":2,"job":"flights","instance":"0","job_epoch":3,"checkpoint":8,"predecessor":6,"#,
    r#""transactional_id":"flights/0/0","outcome_topic_id":"AAAAAAAAAAAAAAAAAAAABQ","sources":[{"#,
    r#""topic":"flights","topic_id":"AAAAAAAAAAAAAAAAAAAAAA","partition":2,"#,
    r#""decided":[[0,9,"accept"],[10,10,"gap"]]}],"operators":[{"operator":"count","subtask":0,"#,
    r#""state":{"name":"count-0","sha256":"53f8"}}],"created_ms":17}"#
);

const OUTCOME: &str = concat!(
    r#"{"format_version":2,"job":"flights","instance":"0","job_epoch":3,"checkpoint":7,"predecessor":6,"#,
    r#""manifest":{"name":"7-3.pending","sha256":"ab"},"mode":"transactional","group":"g","partitions":[{"#,
    r#""topic":"flights","topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partition":2,"#,
    r#""ranges":[[0,9,"accept"],[10,10,"reject"],[11,12,"gap"]]}],"transactional_id":"flights.0.1","#,
    r#""producer_id":1000,"producer_epoch":5,"deadline_ms":1767225600000,"#,
    r#""counts":{"accept":10,"reject":1,"gap":2},"generation":3}"#
);

const FLOOR: &str = concat!(
    r#"{"format_version":2,"group":"g","generation":1,"topic":"flights","topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","#,
    r#""partition":2,"floor":100,"initial":7,"counts":{"accept":80,"reject":1,"gap":2},"passed":10}"#
);

const OWNER: &str = concat!(
    r#"{"format_version":1,"job":"flights","instance":"0","job_epoch":3,"incarnation":"a","#,
    r#""since_ms":1767225600000,"transactional_ids":["flights.0.0","flights.0.1"]}"#
);

const MODE: &str = concat!(
    r#"{"format_version":2,"group":"g","mode":"ledger","topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","#,
    r#""partition_count":4,"era":1}"#
);

const GENERATION: &str = r#"{"format_version":2,"group":"g","generation":1,"ready":false}"#;

/// Keys and values; no key is for a manifest.
const SEEDS: [(&str, &str); 6] = [
    ("", MANIFEST),
    ("flights/0/1000/5", OUTCOME),
    ("#floor/g/1/AAAAAAAAAAAAAAAAAAAAAQ/2/100", FLOOR),
    ("#owner/flights/0", OWNER),
    ("#mode/g", MODE),
    ("#generation/g/1", GENERATION),
];

fn write_seeds() {
    let Some(mut seeds) = Seeds::asked_for() else { return };
    seeds.put(&[&[1], b"sharestream-manifest sha256=", &[b'0'; 64], b"\n{}"]);
    for (which, (key, value)) in SEEDS.iter().enumerate() {
        if key.is_empty() {
            seeds.put(&[&[0], value.as_bytes()]);
        } else {
            assert!(LogEntry::decode(key.as_bytes(), value.as_bytes()).is_ok(), "{key}");
            seeds.put(&[&[2], &part(key.as_bytes()), value.as_bytes()]);
        }
        seeds.put(&[&[EDITED + which as u8, 0, 1, 3, 2]]);
    }
}
