//! Settings of the share group, under Kafka's own names (KIP-932, KIP-1240, KIP-1191).

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::reader::{At, Section, wrong_type};
use super::report::Problems;
use super::suggest;

/// What a setting may be.
#[derive(Clone, Copy)]
enum Kind {
    /// A whole number in this range (Kafka's own bounds; a broker may be stricter).
    Number(i64, i64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// `earliest`, `latest` or `by_duration:<ISO 8601>`.
    OffsetReset,
    /// Any text.
    Text,
}

const KEYS: [(&str, Kind); 10] = [
    ("share.auto.offset.reset", Kind::OffsetReset),
    ("share.isolation.level", Kind::Word(&["read_committed", "read_uncommitted"])),
    ("share.record.lock.duration.ms", Kind::Number(1_000, 3_600_000)),
    ("share.delivery.count.limit", Kind::Number(2, 10)),
    ("share.partition.max.record.locks", Kind::Number(100, 10_000)),
    ("share.session.timeout.ms", Kind::Number(1, i32::MAX as i64)),
    ("share.heartbeat.interval.ms", Kind::Number(1, i32::MAX as i64)),
    ("share.renew.acknowledge.enable", Kind::Word(&["true", "false"])),
    ("errors.deadletterqueue.topic.name", Kind::Text),
    ("errors.deadletterqueue.copy.record.enable", Kind::Word(&["true", "false"])),
];

/// Reads `[source.group_config]`. `share.isolation.level` may be written bare (TOML then nests tables) or quoted.
pub(crate) fn read(section: &Section<'_>, problems: &mut Problems) -> BTreeMap<String, At<String>> {
    let mut found = BTreeMap::new();
    flatten("", section.table(), &mut found, problems);
    check_relations(&found, problems);
    found
}

fn flatten(
    prefix: &str,
    table: &DeTable<'_>,
    found: &mut BTreeMap<String, At<String>>,
    problems: &mut Problems,
) {
    for (name, value) in table {
        let key = if prefix.is_empty() {
            name.get_ref().to_string()
        } else {
            format!("{prefix}.{}", name.get_ref())
        };
        if let DeValue::Table(inner) = value.get_ref() {
            flatten(&key, inner, found, problems);
            continue;
        }
        let Some((_, kind)) = KEYS.iter().find(|(known, _)| *known == key) else {
            unknown(&key, &name.span(), problems);
            continue;
        };
        if let Some(text) = setting(&key, value, *kind, problems) {
            found.insert(key, At::new(text, value.span()));
        }
    }
}

fn unknown(key: &str, span: &Range<usize>, problems: &mut Problems) {
    let names = KEYS.iter().map(|(name, _)| *name);
    let help = match suggest::nearest(key, names.clone()) {
        Some(near) => format!("did you mean '{near}'?"),
        None => format!("known here: {}", names.collect::<Vec<_>>().join(", ")),
    };
    problems.add_with_help(span, format!("unknown group setting '{key}'"), help);
}

fn setting(key: &str, value: &Spanned<DeValue<'_>>, kind: Kind, problems: &mut Problems) -> Option<String> {
    let text = match value.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(digits) if digits.radix() == 10 => digits.as_str().to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        other => {
            let expected = match kind {
                Kind::Number(..) => "a whole number",
                Kind::Word(_) | Kind::OffsetReset | Kind::Text => "a string",
            };
            wrong_type(problems, value.span(), key, expected, other);
            return None;
        }
    };
    let fault = match kind {
        Kind::Number(low, high) => match text.parse::<i64>() {
            Ok(number) if (low..=high).contains(&number) => None,
            Ok(_) | Err(_) => Some(format!("use a whole number from {low} to {high}")),
        },
        Kind::Word(words) => {
            (!words.contains(&text.as_str())).then(|| match suggest::nearest(&text, words.iter().copied()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("use one of {}", words.join(", ")),
            })
        }
        Kind::OffsetReset => {
            let good = matches!(text.as_str(), "earliest" | "latest") || text.starts_with("by_duration:");
            (!good).then(|| "use earliest, latest or by_duration:PT1H (an ISO 8601 duration)".to_owned())
        }
        Kind::Text => None,
    };
    match fault {
        None => Some(text),
        Some(help) => {
            problems.add_with_help(&value.span(), format!("{key} cannot be \"{text}\""), help);
            None
        }
    }
}

fn check_relations(found: &BTreeMap<String, At<String>>, problems: &mut Problems) {
    let number = |key: &str| found.get(key).and_then(|at| Some((at.value.parse::<i64>().ok()?, &at.span)));
    let heartbeat = number("share.heartbeat.interval.ms");
    let session = number("share.session.timeout.ms");
    if let (Some((heartbeat, span)), Some((session, _))) = (heartbeat, session)
        && heartbeat >= session
    {
        let message = "share.heartbeat.interval.ms must be below share.session.timeout.ms";
        problems.add_with_help(span, message, format!("use at most a third of it: {}", session / 3));
    }
}
