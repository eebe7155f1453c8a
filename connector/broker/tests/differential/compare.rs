//! Two transcripts side by side, and the list of differences that are known.
//!
//! A line of the list is `step | field | Apache Kafka | embedded | reason`; `*` stands for any text, `#` begins a
//! comment. A field that an answer does not have is `absent`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::play::Step;

/// A transcript as text: a step begins with `# ` and its name, a field is its path and value.
pub(crate) fn written(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        text.push_str(&format!("# {}\n", step.name));
        for (path, value) in &step.fields {
            text.push_str(&format!("{path} = {value}\n"));
        }
    }
    text
}

/// The reverse of [`written`].
pub(crate) fn read(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("# "), line.split_once(" = ")) {
            (Some(name), _) => steps.push(Step { name: name.to_owned(), fields: Vec::new() }),
            (None, Some((path, value))) => {
                steps.last_mut().unwrap().fields.push((path.to_owned(), value.to_owned()));
            }
            (None, None) => panic!("neither a step nor a field: {line}"),
        }
    }
    steps
}

/// One field of one answer that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    step: String,
    field: String,
    kafka: String,
    embedded: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} | {} | {} | {}", self.step, self.field, self.kafka, self.embedded)
    }
}

/// Every field in which the answers differ. Panics when the transcripts are not of one script.
pub(crate) fn differences(kafka: &[Step], embedded: &[Step]) -> Vec<Difference> {
    let apart = kafka.iter().zip(embedded).find(|(theirs, ours)| theirs.name != ours.name);
    assert!(
        apart.is_none() && kafka.len() == embedded.len(),
        "the script took another way: {} and {} steps, first {:?}",
        kafka.len(),
        embedded.len(),
        apart.map(|(theirs, ours)| (&theirs.name, &ours.name))
    );
    let mut found = Vec::new();
    for (theirs, ours) in kafka.iter().zip(embedded) {
        let [one, other] = [theirs, ours].map(|step| step.fields.iter().cloned().collect::<BTreeMap<_, _>>());
        let fields: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
        for field in fields {
            let [kafka, embedded] =
                [&one, &other].map(|side| side.get(field).cloned().unwrap_or_else(|| "absent".to_owned()));
            if kafka != embedded {
                let (step, field) = (theirs.name.clone(), field.clone());
                found.push(Difference { step, field, kafka, embedded });
            }
        }
    }
    found
}

/// Number of steps that have a difference.
pub(crate) fn steps_of(found: &[Difference]) -> usize {
    found.iter().map(|one| &one.step).collect::<BTreeSet<_>>().len()
}

/// Differences that the list does not explain, and lines of the list that explain none.
pub(crate) fn unexplained(found: &[Difference], list: &str) -> Vec<String> {
    let lines: Vec<Vec<&str>> = list
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|line| line.split(" | ").map(str::trim).collect())
        .collect();
    let mut used = vec![false; lines.len()];
    let mut faults = Vec::new();
    for one in found {
        let values = [&one.step, &one.field, &one.kafka, &one.embedded];
        let mut explained = false;
        for (line, used) in lines.iter().zip(&mut used) {
            let [patterns @ .., reason] = &line[..] else { continue };
            assert!(patterns.len() == 4 && !reason.is_empty(), "not five cells: {line:?}");
            if patterns.iter().zip(values).all(|(pattern, value)| matches(pattern, value)) {
                (*used, explained) = (true, true);
            }
        }
        if !explained {
            faults.push(one.to_string());
        }
    }
    let stale = lines.iter().zip(used).filter(|(_, used)| !used);
    faults.extend(stale.map(|(line, _)| format!("not true any more: {}", line.join(" | "))));
    faults
}

/// True when the text is the pattern, `*` standing for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[test]
fn a_pattern_matches_as_written() {
    let table = [
        ("a", "a", true),
        ("a", "ab", false),
        ("a*", "ab", true),
        ("*", "", true),
        ("*b", "ab", true),
        ("a*c*e", "abcde", true),
        ("a*c*e", "abde", false),
        ("a*a", "a", false),
    ];
    for (pattern, text, expected) in table {
        assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
    }
}

#[test]
fn what_the_list_does_not_explain_and_what_it_explains_for_nothing_are_faults() {
    let one = |step: &str| Difference {
        step: step.to_owned(),
        field: "error_code".to_owned(),
        kafka: "3".to_owned(),
        embedded: "0".to_owned(),
    };
    let list = "# why\nfirst* | *code | 3 | 0 | it is so\nthird | x | 1 | 2 | never";
    let faults = unexplained(&[one("first step"), one("second step")], list);
    assert_eq!(faults, ["second step | error_code | 3 | 0", "not true any more: third | x | 1 | 2 | never"]);
}
