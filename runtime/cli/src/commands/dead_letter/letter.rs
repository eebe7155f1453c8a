//! A dead letter, as its headers tell.

use arrow_array::temporal_conversions::timestamp_ms_to_datetime;
use serde_json::json;
use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_kafka::provenance::{self, Provenance};
use sharestream_wire::records::RecordView;

use crate::args::dead_letters::{Chosen, Position};

/// A record of the dead letter topic that a job of ours wrote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Letter<'a> {
    /// Where it stands.
    pub(super) position: Position,
    /// The record with all of its headers.
    pub(super) record: RecordView<'a>,
    /// Which source record it is.
    pub(super) source: Provenance,
}

impl<'a> Letter<'a> {
    /// `None`: it carries no provenance, so another program wrote it.
    pub(super) fn of(partition: PartitionIndex, record: &RecordView<'a>) -> Option<Letter<'a>> {
        let source = Provenance::of_headers(record.headers.iter())?;
        let position = Position { partition, offset: Offset(record.offset) };
        Some(Letter { position, record: *record, source })
    }

    /// The text of a header; empty where there is none.
    fn header(&self, name: &str) -> String {
        let value = self.record.headers.last(name.as_bytes()).flatten().unwrap_or_default();
        String::from_utf8_lossy(value).into_owned()
    }

    /// Name of the source topic.
    pub(super) fn topic(&self) -> String {
        self.header(provenance::TOPIC)
    }

    /// True when its value was left out, as its topic does not take it.
    pub(super) fn is_without_value(&self) -> bool {
        self.record.headers.last(provenance::PAYLOAD_BYTES.as_bytes()).is_some()
    }

    /// Why it is here.
    pub(super) fn error(&self) -> String {
        self.header(provenance::ERROR)
    }

    /// Kind of the error; `unknown` in letters of before there were kinds.
    pub(super) fn kind(&self) -> String {
        let kind = self.header(provenance::ERROR_KIND);
        if kind.is_empty() { "unknown".to_owned() } else { kind }
    }

    /// How often the record was put back already. `None`: something else stands there.
    pub(super) fn replays(&self) -> Option<u32> {
        let Some(value) = self.record.headers.last(provenance::REPLAYS.as_bytes()) else { return Some(0) };
        std::str::from_utf8(value?).ok()?.parse().ok()
    }

    /// Time of the source record, which dead letters keep.
    pub(super) fn time(&self) -> String {
        let ms = self.record.timestamp;
        let time = timestamp_ms_to_datetime(ms).filter(|_| ms >= 0);
        time.map_or_else(|| "-".to_owned(), |time| time.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
    }

    /// What programs read of it. `is_replayed`: it has a mark.
    pub(super) fn as_json(&self, is_replayed: bool) -> serde_json::Value {
        let number = |name| self.header(name).parse::<u64>().ok();
        json!({
            "partition": self.position.partition.0,
            "offset": self.position.offset.0,
            "timestamp": self.record.timestamp,
            "time": self.time(),
            "source_topic": self.topic(),
            "source_topic_id": self.source.topic_id.to_string(),
            "source_partition": self.source.partition.0,
            "source_offset": self.source.offset.0,
            "ordinal": self.source.ordinal,
            "deliveries": number(provenance::DELIVERY_COUNT),
            "kind": self.kind(),
            "error": self.error(),
            "job": self.header(provenance::JOB),
            "checkpoint": number(provenance::CHECKPOINT),
            "replays": self.replays(),
            "replayed": is_replayed,
        })
    }

    /// The same as cells of a table under [`HEADER`].
    pub(super) fn cells(&self, is_replayed: bool) -> Vec<String> {
        let Provenance { partition, offset, ordinal, .. } = self.source;
        vec![
            self.position.to_string(),
            self.time(),
            format!("{}/{partition}/{offset}", self.topic()),
            ordinal.to_string(),
            self.header(provenance::DELIVERY_COUNT),
            self.kind(),
            shortened(&self.error()),
            self.header(provenance::JOB),
            self.header(provenance::CHECKPOINT),
            if is_replayed { "yes".to_owned() } else { String::new() },
        ]
    }
}

/// Header of the table of [`Letter::cells`].
pub(super) const HEADER: [&str; 10] =
    ["position", "time", "source", "ordinal", "deliveries", "kind", "error", "job", "checkpoint", "replayed"];

/// Characters of an error in a table.
const ERROR_CHARS_MAX: usize = 80;

/// The beginning of a long text.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(ERROR_CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

/// What a user chose, with the present put in.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    since_ms: Option<i64>,
    error: Option<String>,
    kind: Option<String>,
}

impl Filter {
    pub(super) fn new(chosen: &Chosen, now_ms: i64) -> Filter {
        Filter {
            since_ms: chosen.since.map(|since| since.at_ms(now_ms)),
            error: chosen.error.as_ref().map(|text| text.to_lowercase()),
            kind: chosen.kind.clone(),
        }
    }

    pub(super) fn takes(&self, letter: &Letter<'_>) -> bool {
        self.since_ms.is_none_or(|since_ms| letter.record.timestamp >= since_ms)
            && self.error.as_ref().is_none_or(|text| letter.error().to_lowercase().contains(text))
            && self.kind.as_ref().is_none_or(|kind| *kind == letter.kind())
    }
}
