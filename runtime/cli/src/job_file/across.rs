//! What no section of a job file shows alone: the checks across them.

use std::ops::Range;
use std::time::Duration;

use sharestream_kafka::fit::GOALS_PER_LOCK;
use sharestream_kafka::formats::Column;

use super::reader::At;
use super::report::Problems;
use super::suggest;

/// Values that checks across sections need, with their places.
#[derive(Default)]
pub(super) struct Named {
    pub(super) topics: Vec<At<String>>,
    pub(super) columns: Option<Vec<At<Column>>>,
    pub(super) sink_topic: Option<At<String>>,
    pub(super) sink_key: Option<At<String>>,
    pub(super) dead_letter_topic: Option<At<String>>,
    pub(super) parking_topic: Option<At<String>>,
    pub(super) isolation: Option<At<String>>,
    pub(super) parks: bool,
    /// A policy that needs it.
    pub(super) wants_letters: Option<Range<usize>>,
    pub(super) transform: Option<Range<usize>>,
    /// Calls add columns that only the planner knows.
    pub(super) has_calls: bool,
    pub(super) lock_duration_ms: Option<At<String>>,
    pub(super) goal: Option<At<Duration>>,
    pub(super) interval: Option<At<Duration>>,
}

/// Kafka's rule for topic names; job names and instances become parts of transactional ids and folder names.
pub(super) fn check_id(id: &At<String>, what: &str, problems: &mut Problems) {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if id.value.is_empty() || id.value.len() > 249 || !id.value.chars().all(good) {
        let message = format!("'{}' is not {what}", id.value);
        problems.add_with_help(
            &id.span,
            message,
            "use letters, digits, '.', '_' and '-', at most 249 of them",
        );
    }
}

/// Faults that no section shows alone.
pub(super) fn check(named: &Named, problems: &mut Problems) {
    for (index, topic) in named.topics.iter().enumerate() {
        if named.topics[..index].iter().any(|other| other.value == topic.value) {
            problems.add(&topic.span, format!("topic '{}' is listed twice", topic.value));
        }
    }
    let is_source = |topic: &At<String>| named.topics.iter().any(|source| source.value == topic.value);
    if let Some(sink) = named.sink_topic.as_ref().filter(|topic| is_source(topic)) {
        let message =
            format!("sink.topic '{}' is also a source: the job would read its own output", sink.value);
        problems.add_with_help(&sink.span, message, "write to another topic");
    }
    if let Some(topic) = &named.dead_letter_topic {
        if is_source(topic) {
            let message =
                format!("dead_letter.topic '{}' is also a source: bad records would come round", topic.value);
            problems.add_with_help(&topic.span, message, "write to another topic");
        }
        if named.sink_topic.as_ref().is_some_and(|sink| sink.value == topic.value) {
            let message = format!("dead_letter.topic '{}' is also the sink's topic", topic.value);
            problems.add_with_help(
                &topic.span,
                message,
                "dead letters keep the record as it came; use a topic of their own",
            );
        }
    }
    check_parking(named, problems);
    if let (Some(policy), None) = (&named.wants_letters, &named.dead_letter_topic) {
        let help = "add [dead_letter] with its topic, or use reject or fail";
        problems.add_with_help(policy, "there is no dead letter topic for it", help);
    }
    if let (Some(interval), Some(goal)) = (&named.interval, &named.goal)
        && interval.value > goal.value
    {
        let help = "leave it out: the goal closes each checkpoint before";
        problems.add_with_help(&interval.span, "checkpoint.interval is above latency.goal", help);
    }
    let (name, goal) = match &named.goal {
        Some(goal) => ("latency.goal", Some(goal)),
        None => ("checkpoint.interval", named.interval.as_ref()),
    };
    if let (Some(goal), Some(lock)) = (goal, &named.lock_duration_ms)
        && let Ok(lock_ms) = lock.value.parse::<u64>()
        && goal.value * GOALS_PER_LOCK > Duration::from_millis(lock_ms)
    {
        let message = format!("{name} is too long for record locks of {lock_ms} ms");
        let help = format!(
            "records stay locked until their checkpoint commits: at most a third of \
             share.record.lock.duration.ms, that is {} ms",
            lock_ms / u64::from(GOALS_PER_LOCK)
        );
        problems.add_with_help(&goal.span, message, help);
    }
    // With SQL the sink sees what the SELECT lists, and with calls their columns; the planner checks the key then.
    if let (Some(key), Some(columns), None, false) =
        (&named.sink_key, &named.columns, &named.transform, named.has_calls)
        && !columns.iter().any(|column| column.value.name == key.value)
    {
        let names: Vec<&str> = columns.iter().map(|column| column.value.name.as_str()).collect();
        let help = match suggest::nearest(&key.value, names.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("columns: {}", names.join(", ")),
        };
        problems.add_with_help(&key.span, format!("sink.key '{}' is not a column", key.value), help);
    }
}

/// Parked records are read like those of a source topic, but not by anybody else.
fn check_parking(named: &Named, problems: &mut Problems) {
    if let Some(topic) = &named.parking_topic {
        check_id(topic, "a topic name", problems);
        let others = named.topics.iter().chain(&named.sink_topic).chain(&named.dead_letter_topic);
        if others.into_iter().any(|other| other.value == topic.value) {
            let message = format!("slow.topic '{}' is also used for other records", topic.value);
            problems.add_with_help(&topic.span, message, "parked records need a topic of their own");
        }
    }
    if let Some(isolation) =
        named.isolation.as_ref().filter(|level| level.value != "read_committed" && named.parks)
    {
        problems.add_with_help(
            &isolation.span,
            format!("[slow] does not go with share.isolation.level = \"{}\"", isolation.value),
            "copies of transactions that aborted would be processed as well: remove it, the job sets read_committed",
        );
    }
}
