//! An answer as a list of fields: path and value. Read from its debug form, so that no field of any message can be
//! forgotten; what differs from run to run is mapped by the name of its field.

use std::collections::BTreeMap;

use bytes::Bytes;
use sharestream_wire::records::{self, control};

/// Path and value, in the order of the answer.
pub(crate) type Fields = Vec<(String, String)>;

/// What one broker's answers have named so far.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    /// Suffix of every name that this run made.
    run: String,
    /// Producer ids, in the order in which they were first seen.
    producers: Vec<String>,
    /// Names of topic ids.
    topics: BTreeMap<String, String>,
    /// First timestamp of the records that the script writes.
    base_ms: i64,
}

impl Mapping {
    /// For names that end with `run` and records from `base_ms` on.
    pub(crate) fn new(run: &str, base_ms: i64) -> Self {
        Mapping { run: run.to_owned(), base_ms, ..Mapping::default() }
    }

    /// Gives the id of a topic its name.
    pub(crate) fn topic(&mut self, id: &str, name: &str) {
        self.topics.insert(id.to_owned(), name.replace(&self.run, "RUN"));
    }

    fn producer(&mut self, value: &str) -> String {
        let place = self.producers.iter().position(|one| one == value).unwrap_or_else(|| {
            self.producers.push(value.to_owned());
            self.producers.len() - 1
        });
        format!("producer {place}")
    }

    /// A time that the script made is compared; that of a marker is any.
    fn time(&self, value: &str) -> String {
        let after = value.parse::<i64>().map_or(-1, |at| at - self.base_ms);
        if (0..1_000).contains(&after) { format!("base + {after}") } else { "some".to_owned() }
    }

    /// The value as it is compared; none for what is not compared at all.
    fn value(&mut self, field: &str, value: &str) -> Option<String> {
        const NIL: &str = "00000000-0000-0000-0000-000000000000";
        let nothing = ["-1", "None", "\"\"", NIL].contains(&value);
        Some(match field {
            // Free text, load, and fields that neither side has a name for.
            "error_message" | "acknowledge_error_message" | "throttle_time_ms" | "unknown_tagged_fields" => {
                return None;
            }
            _ if nothing => value.to_owned(),
            "producer_id" => self.producer(value),
            "topic_id" => self.topics.get(value).cloned().unwrap_or_else(|| "some topic".to_owned()),
            "last_timestamp" | "timestamp" | "log_append_time_ms" => self.time(value),
            "host" | "port" | "cluster_id" | "client_host" | "transaction_start_time_ms" => "some".to_owned(),
            // Every broker counts in its own steps; 0 means something.
            "member_epoch" | "group_epoch" | "assignment_epoch" if value != "0" => "an epoch".to_owned(),
            _ => value.replace(&self.run, "RUN"),
        })
    }

    /// Fields of an answer.
    pub(crate) fn fields(&mut self, debug: &str) -> Fields {
        let mut found = Fields::new();
        for (path, value) in flatten(debug) {
            let named = path.rsplit('.').find(|part| part.parse::<usize>().is_err()).unwrap_or_default();
            // Also below a map or a list of that name.
            if path.split('.').any(|part| part == "unknown_tagged_fields") {
                continue;
            }
            if let Some(value) = self.value(named, &value) {
                found.push((path, value));
            }
        }
        found
    }

    /// Fields of record batches.
    pub(crate) fn batches(&mut self, path: &str, bytes: Bytes) -> Fields {
        let mut found = Fields::new();
        for (place, batch) in records::split(bytes).enumerate() {
            let batch = batch.unwrap();
            batch.verify_crc().unwrap();
            let header = &batch.header;
            let producer = match header.producer_id {
                -1 => "no producer".to_owned(),
                id => format!("{} epoch {}", self.producer(&id.to_string()), header.producer_epoch),
            };
            let content = if header.is_control() {
                format!("{:?}", control::decode(&batch).unwrap().0)
            } else {
                let records = batch.records().unwrap();
                let text = |value: Option<&[u8]>| String::from_utf8_lossy(value.unwrap_or(b"-")).into_owned();
                let values: Vec<String> =
                    records.iter().map(|record| record.unwrap()).map(|one| text(one.value)).collect();
                format!("sequence {} {}", header.base_sequence, values.join(","))
            };
            let (first, last) = (header.base_offset, header.last_offset());
            let kind = if header.is_transactional() { "transactional" } else { "plain" };
            found.push((format!("{path}.{place}"), format!("{first}-{last} {kind} {producer} {content}")));
        }
        found
    }
}

/// Path and value of every scalar of a debug form as `{:#?}` prints it.
fn flatten(debug: &str) -> Fields {
    let mut found = Fields::new();
    // Name of each open structure, and, in a list, the number of its next element.
    let mut open: Vec<(String, Option<usize>)> = Vec::new();
    for line in debug.lines() {
        let line = line.trim();
        let line = line.strip_suffix(',').unwrap_or(line);
        if ["}", "]", ")"].contains(&line) {
            open.pop();
            continue;
        }
        let named = line.split_once(": ").filter(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
        });
        let (name, rest) = match (named, open.last_mut()) {
            (Some((name, rest)), _) => (name.to_owned(), rest),
            (None, Some((_, Some(next)))) => {
                *next += 1;
                ((*next - 1).to_string(), line)
            }
            (None, _) => (String::new(), line),
        };
        if let Some(bracket) = rest.chars().last().filter(|c| ['{', '[', '('].contains(c)) {
            open.push((name, (bracket == '[').then_some(0)));
            continue;
        }
        let parts = open.iter().map(|(name, _)| name.as_str()).chain([name.as_str()]);
        let path: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        found.push((path.join("."), rest.to_owned()));
    }
    found
}

#[test]
fn a_debug_form_becomes_paths_and_values() {
    #[derive(Debug)]
    #[allow(dead_code, reason = "only its debug form is read")]
    struct Outer {
        id: Wrapped,
        names: Vec<Option<&'static str>>,
        empty: Vec<i32>,
        producer_id: i64,
    }
    #[derive(Debug)]
    #[allow(dead_code, reason = "only its debug form is read")]
    struct Wrapped(i32);
    let names = vec![Some("a: b-run"), None];
    let outer = Outer { id: Wrapped(7), names, empty: Vec::new(), producer_id: 4711 };
    let fields = Mapping::new("run", 0).fields(&format!("{outer:#?}"));
    let expected = [
        ("id", "7"),
        ("names.0", "\"a: b-RUN\""),
        ("names.1", "None"),
        ("empty", "[]"),
        ("producer_id", "producer 0"),
    ];
    assert_eq!(fields, expected.map(|(path, value)| (path.to_owned(), value.to_owned())));
}
