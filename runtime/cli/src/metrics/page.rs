//! The reference page `docs/metrics.md`: its tables are written from the definitions.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::definitions::{Definition, Kind, Metric, Topic};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
const BEGIN: &str = "<!-- begin metrics: written from the definitions in the code, do not edit -->\n";
const END: &str = "<!-- end metrics -->";
/// Environment variable that makes the test write the page.
const WRITE: &str = "SHARESTREAM_WRITE_DOCS";
const TOPICS: [(Topic, &str); 6] = [
    (Topic::Job, "Job"),
    (Topic::Records, "Records"),
    (Topic::Partitions, "Partitions and lag"),
    (Topic::Deliveries, "Deliveries and locks"),
    (Topic::Calls, "Calls to the outside"),
    (Topic::Checkpoints, "Checkpoints and transactions"),
];

fn tables() -> String {
    let mut text = String::new();
    for (topic, title) in TOPICS {
        let _ = write!(text, "\n### {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n");
        for Definition { name, kind, labels, help, .. } in Metric::ALL
            .iter()
            .map(|metric| metric.definition())
            .filter(|definition| definition.topic == topic)
        {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
                Kind::Info => "info",
            };
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let _ = writeln!(text, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
        }
    }
    text.push('\n');
    text
}

/// The page with its tables as they should be.
fn expected(page: &str) -> String {
    let (before, rest) = page.split_once(BEGIN).expect("the page has the first line of the tables");
    let (_, after) = rest.split_once(END).expect("the page has the last line of the tables");
    format!("{before}{BEGIN}{}{END}{after}", tables())
}

#[test]
fn the_metrics_page_says_what_the_definitions_say() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let expected = expected(&page);
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(PAGE, &expected).unwrap();
        return;
    }
    assert!(
        page == expected,
        "docs/metrics.md is not what the definitions say; write it anew with\n  \
         {WRITE}=1 cargo test -p sharestream-cli the_metrics_page"
    );
}

#[test]
fn every_name_on_the_page_is_defined_and_every_definition_is_in_a_table() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let words = page.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    // The name of a crate, in a filter of logs.
    let is_metric = |word: &&str| word.starts_with("sharestream_") && *word != "sharestream_core";
    let named: BTreeSet<&str> = words.filter(is_metric).collect();
    let defined: BTreeSet<&str> = Metric::ALL.iter().map(|metric| metric.definition().name).collect();
    assert_eq!(named, defined);
}

#[test]
fn definitions_follow_the_conventions_of_prometheus() {
    let mut names = BTreeSet::new();
    for Definition { name, kind, labels, help, .. } in Metric::ALL.iter().map(|metric| metric.definition()) {
        assert!(names.insert(name), "{name} is defined twice");
        let snake =
            |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        assert!(name.starts_with("sharestream_") && snake(name), "{name}");
        assert_eq!(name.ends_with("_total"), kind == Kind::Counter, "{name}");
        assert_eq!(name.ends_with("_info"), kind == Kind::Info, "{name}");
        for reserved in ["_bucket", "_sum", "_count", "_ms", "_milliseconds"] {
            assert!(!name.ends_with(reserved), "{name}");
        }
        for (word, unit) in [(" seconds", "_seconds"), (" bytes", "_bytes")] {
            assert!(!help.contains(&format!("in{word}")) || name.contains(unit), "{name}: {help}");
        }
        assert!(!help.is_empty() && !help.contains(['|', '\n']) && !help.ends_with('.'), "{name}: {help}");
        assert!(
            labels.iter().all(|label| snake(label) && !["job", "instance", "le"].contains(label)),
            "{name}"
        );
    }
}
