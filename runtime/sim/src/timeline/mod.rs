//! The readable timeline of a record: virtual time, who to whom, what.
//!
//! ```text
//! events --frames--> exchanges --messages--> decoded --subject--> what belongs to the record
//!                                               |                          |
//!                                               \------------tell----------/--layout--> lines
//! ```
//! A line stands at the time at which the last byte of its message was written. Whether and when the other
//! side read it is not recorded; what can be told is told: a request without an answer is marked, and so is
//! an answer whose request was sent once more on another connection.

mod frames;
mod layout;
mod messages;
mod overview;
mod subject;
mod tell;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::check::Place;
use crate::trace::Event;
use frames::{Exchange, Recording};
use layout::{Line, Who};
use messages::{Answer, Decoded, Topics, Undecodable};
use subject::Subject;
use tell::Told;

/// How notes of the object store begin.
const STORE_NOTE: &str = "store: ";
/// How notes of findings begin.
const FINDING_NOTE: &str = "finding: ";

/// What happened to the record at `place`, line by line; without a place, what the harness did and how each
/// replica committed, aborted and was fenced. Times are virtual seconds since the start of the run. Empty
/// when nothing was recorded. Cannot fail: what does not decode is shown by its length.
pub fn timeline(events: &[Event], place: Option<Place>) -> Vec<String> {
    let recording = Recording::of(events);
    let decoded = Decoded::all(&recording);
    let mut lines = match place {
        Some(place) => record_lines(place, &recording, &decoded),
        None => overview::lines(&recording, &decoded),
    };
    lines.extend(recording.unreadable.iter().map(|it| {
        let who = Who::Message { from: Arc::clone(&it.from), to: Arc::clone(&it.to) };
        Line { moment: it.moment, who, text: Undecodable(it.byte_count).to_string() }
    }));
    layout::lay_out(lines)
}

fn record_lines(place: Place, recording: &Recording, decoded: &[Decoded<'_>]) -> Vec<Line> {
    let subject = Subject::find(place, Topics::of(recording), decoded);
    let repeated = Repetitions::of(decoded);
    let mut lines = Vec::new();
    for it in decoded {
        let told = match &it.request {
            Ok(request) => subject.tell(request, it.answer(), it.exchange.moment),
            Err(undecodable) => Told { request: Some(undecodable.to_string()), answer: None },
        };
        push_exchange(&mut lines, it, told, repeated.lost(it));
    }
    for (moment, text) in &recording.notes {
        if is_shown(text, &subject) {
            lines.push(Line { moment: *moment, who: Who::Harness, text: text.clone() });
        }
    }
    lines
}

/// Lines of one exchange, as far as it concerns the record.
fn push_exchange(lines: &mut Vec<Line>, decoded: &Decoded<'_>, told: Told, is_lost: bool) {
    let Exchange { asker, asked, moment, answer, .. } = decoded.exchange;
    let name = decoded.name();
    let mut answer_text = told.answer;
    if let Some(text) = told.request {
        if let Some(Err(undecodable)) = &decoded.answer {
            answer_text = Some(undecodable.to_string());
        }
        let mark = if answer.is_none() { no_answer(decoded.exchange) } else { String::new() };
        let who = Who::Message { from: Arc::clone(asker), to: Arc::clone(asked) };
        lines.push(Line { moment: *moment, who, text: format!("{name}: {text}{mark}") });
    }
    if let (Some((moment, _)), Some(text)) = (answer, answer_text) {
        let mark = if is_lost { " [answer lost: asked again]" } else { "" };
        let who = Who::Message { from: Arc::clone(asked), to: Arc::clone(asker) };
        lines.push(Line { moment: *moment, who, text: format!("{name} answered: {text}{mark}") });
    }
}

/// The mark of a request that nobody answered.
fn no_answer(exchange: &Exchange) -> String {
    match exchange.closed_at {
        Some(at) => format!(" [no answer; connection closed at {:.3}]", at.as_secs_f64()),
        None => " [no answer]".to_owned(),
    }
}

/// Notes about faults and processes, manifests of the record, and findings but for those of other records.
fn is_shown(note: &str, subject: &Subject) -> bool {
    if note.starts_with(STORE_NOTE) {
        return subject.manifests.iter().any(|manifest| note.contains(manifest));
    }
    let Place { partition, offset } = subject.place;
    !note.starts_with(FINDING_NOTE)
        || !note.contains(": record ")
        || note.contains(&format!(": record {partition}/{offset}: "))
}

/// Requests that were sent more than once.
struct Repetitions<'a> {
    /// The last connection by asker, API and body.
    last: BTreeMap<(&'a str, i16, &'a [u8]), u64>,
}

impl<'a> Repetitions<'a> {
    fn of(decoded: &'a [Decoded<'_>]) -> Self {
        let last = decoded.iter().map(|it| (key_of(it.exchange), it.exchange.connection)).collect();
        Repetitions { last }
    }

    /// True when the asker cannot have read a good answer: it asked the very same again, elsewhere.
    fn lost(&self, decoded: &Decoded<'_>) -> bool {
        let is_good = match decoded.answer() {
            Some(Answer::EndTxn(answer)) => answer.error_code == 0,
            Some(Answer::Stage(answer)) => {
                let mut partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
                answer.error_code == 0 && partitions.all(|partition| partition.error_code == 0)
            }
            Some(Answer::Produce(answer)) => {
                let mut partitions = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
                partitions.all(|partition| partition.error_code == 0)
            }
            Some(_) | None => false,
        };
        let last = self.last.get(&key_of(decoded.exchange));
        is_good && last.is_some_and(|connection| *connection != decoded.exchange.connection)
    }
}

fn key_of(exchange: &Exchange) -> (&str, i16, &[u8]) {
    (&exchange.asker, exchange.header.api_key, &exchange.body)
}

#[cfg(test)]
mod tests;
