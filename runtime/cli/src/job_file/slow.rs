//! The `[slow]` section: when records whose calls take too long are parked (ADR 0025).

use std::time::Duration;

use super::http::HttpStage;
use super::model::SlowSettings;
use super::reader::{At, Section};
use super::report::Problems;

const PARK_AFTER: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(24 * 3_600);
const TIMES_DEFAULT: u32 = 3;
const TIMES_MAX: i64 = 1_000;

/// What the section says, with the place of the topic.
pub(super) struct Slow {
    pub(super) settings: SlowSettings,
    /// `None`: the default.
    pub(super) topic: Option<At<String>>,
}

/// Reads the section. `None` when it is wrong; then `problems` says what.
pub(super) fn read(
    mut section: Section<'_>,
    job: Option<&str>,
    has_calls: bool,
    problems: &mut Problems,
) -> Option<Slow> {
    if !has_calls {
        problems.add_with_help(
            section.span(),
            "[slow] has nothing to park",
            "it parks records whose calls take too long: add an [[http]] table, or remove it",
        );
    }
    let there = section.require("park_after", "park_after = \"30s\"", problems);
    let park_after = if there { section.duration("park_after", PARK_AFTER, problems) } else { None };
    let topic = section.string("topic", problems);
    let times = section.integer("max", 1..=TIMES_MAX, problems);
    section.finish(problems);
    let name = match (&topic, job) {
        (Some(topic), _) => topic.value.clone(),
        (None, job) => format!("{}.parked", job?),
    };
    let park_max = times.and_then(|times| u32::try_from(times.value).ok()).unwrap_or(TIMES_DEFAULT);
    let settings = SlowSettings { park_after: park_after?.value, topic: name, park_max };
    Some(Slow { settings, topic })
}

/// Sets it for every call.
pub(super) fn apply(slow: &SlowSettings, stages: &mut [HttpStage]) {
    for stage in stages {
        stage.options = stage.options.clone().with_park_after(slow.park_after).with_park_max(slow.park_max);
    }
}
