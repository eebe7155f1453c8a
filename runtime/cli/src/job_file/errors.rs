//! The `[errors]` section: what becomes of records that cannot be processed, by the kind of their error.

use std::ops::Range;

use sharestream_kafka::BadRecords;

use super::model::ErrorPolicies;
use super::reader::Section;
use super::report::Problems;

const POLICIES: [(&str, BadRecords); 4] = [
    ("dead-letter", BadRecords::DeadLetter),
    ("reject", BadRecords::Reject),
    ("release", BadRecords::Release),
    ("fail", BadRecords::Fail),
];

/// Reads the section. Also gives the first place that asks for dead letters, which need a topic.
pub(super) fn read(
    mut section: Section<'_>,
    problems: &mut Problems,
) -> (ErrorPolicies, Option<Range<usize>>) {
    let mut wants_letters = None;
    let mut one = |key: &'static str| {
        if let Some(given) = section.table().get(key).and_then(|value| value.get_ref().as_str())
            && given == "release"
            && key == "delivery_limit"
        {
            refuse_release(&mut section, key, problems);
            return None;
        }
        let policy = section.one_of(key, &POLICIES, problems)?;
        if policy.value == BadRecords::DeadLetter {
            wants_letters.get_or_insert(policy.span);
        }
        Some(policy.value)
    };
    let policies = ErrorPolicies {
        decode: one("decode"),
        transform: one("transform"),
        call: one("call"),
        delivery_limit: one("delivery_limit"),
        too_large: one("too_large"),
    };
    section.finish(problems);
    (policies, wants_letters)
}

/// What is given back after its last delivery is archived by the broker.
fn refuse_release(section: &mut Section<'_>, key: &'static str, problems: &mut Problems) {
    let Some(given) = section.string(key, problems) else { return };
    problems.add_with_help(
        &given.span,
        format!("errors.{key} cannot be \"release\""),
        "these records have no delivery left to spare: given back, the broker would archive them; use dead-letter, and \
         `sharestream dead-letter replay` for a later attempt",
    );
}
