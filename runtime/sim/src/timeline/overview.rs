//! A run without a record in view: what the harness did, and how each replica committed, aborted and was
//! fenced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sharestream_wire::KafkaError;

use super::frames::{Moment, Recording};
use super::layout::{Line, Who};
use super::messages::{Answer, Decoded, Request, verdict};
use super::subject::Transaction;
use super::{STORE_NOTE, no_answer};

/// How the hosts of replicas begin.
const REPLICA: &str = "worker-";

/// What is worth telling.
enum Entry {
    /// A commit that was answered with success: counted.
    Commit(Arc<str>, Transaction),
    Line(Who, String),
}

/// Commits of one host since the last other line.
struct Run {
    count: u64,
    first: Moment,
    last: Moment,
    transaction: Transaction,
}

/// All lines, in no order.
pub(super) fn lines(recording: &Recording, decoded: &[Decoded<'_>]) -> Vec<Line> {
    let owners = owners(decoded);
    let mut aborted = BTreeSet::new();
    let mut entries: Vec<(Moment, Entry)> = Vec::new();
    for it in decoded {
        let Ok(request) = &it.request else { continue };
        if let Request::Markers(request) = request {
            for marker in request.markers.iter().filter(|marker| !marker.transaction_result) {
                let transaction = Transaction(marker.producer_id.0, marker.producer_epoch);
                // Each leader gets its marker, and a retry is the same end.
                if let Some(owner) = owners.get(&transaction.0).filter(|_| aborted.insert(transaction)) {
                    let who = Who::Host(Arc::clone(&it.exchange.asker));
                    let text = format!("aborts {transaction} ({owner})");
                    entries.push((it.exchange.moment, Entry::Line(who, text)));
                }
            }
        } else if it.exchange.asker.starts_with(REPLICA) {
            entries.extend(by_replica(it, request));
        }
    }
    let notes = recording.notes.iter().filter(|(_, text)| !text.starts_with(STORE_NOTE));
    entries.extend(notes.map(|(moment, text)| (*moment, Entry::Line(Who::Harness, text.clone()))));
    condense(entries)
}

/// What a request of a replica says, if it is worth telling.
fn by_replica(decoded: &Decoded<'_>, request: &Request) -> Option<(Moment, Entry)> {
    let exchange = decoded.exchange;
    let answered_at = exchange.answer.as_ref().map_or(exchange.moment, |(moment, _)| *moment);
    let line = |text: String| Some((answered_at, Entry::Line(Who::Host(Arc::clone(&exchange.asker)), text)));
    match (request, decoded.answer()) {
        (Request::EndTxn(request), Some(Answer::EndTxn(answer))) if answer.error_code == 0 => {
            let transaction = Transaction(request.producer_id.0, request.producer_epoch);
            // What was aborted is told by its markers.
            request.committed.then(|| (answered_at, Entry::Commit(Arc::clone(&exchange.asker), transaction)))
        }
        (Request::EndTxn(request), None) => {
            let verb = if request.committed { "commits" } else { "aborts" };
            let transaction = Transaction(request.producer_id.0, request.producer_epoch);
            line(format!("{verb} {transaction}{}", no_answer(exchange)))
        }
        (Request::InitProducerId(request), Some(Answer::InitProducerId(answer)))
            if answer.error_code == 0 =>
        {
            // Only who holds a transactional id can be fenced.
            let id = request.transactional_id.as_ref()?.as_str();
            let transaction = Transaction(answer.producer_id.0, answer.producer_epoch);
            line(format!("takes {id} as {transaction}"))
        }
        (_, answer) => {
            let code = fenced(answer?)?;
            line(format!("is fenced: {} answered {}", decoded.name(), verdict(code)))
        }
    }
}

/// The transactional ids that replicas took, by producer id.
fn owners(decoded: &[Decoded<'_>]) -> BTreeMap<i64, String> {
    let mut owners = BTreeMap::new();
    for it in decoded.iter().filter(|it| it.exchange.asker.starts_with(REPLICA)) {
        if let (Ok(Request::InitProducerId(request)), Some(Answer::InitProducerId(answer))) =
            (&it.request, it.answer())
            && let Some(id) = &request.transactional_id
            && answer.error_code == 0
        {
            owners.insert(answer.producer_id.0, id.to_string());
        }
    }
    owners
}

/// The error that says that somebody newer has taken over.
fn fenced(answer: &Answer) -> Option<i16> {
    let codes: Vec<i16> = match answer {
        Answer::EndTxn(answer) => vec![answer.error_code],
        Answer::InitProducerId(answer) => vec![answer.error_code],
        Answer::Stage(answer) => {
            let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
            std::iter::once(answer.error_code).chain(partitions.map(|it| it.error_code)).collect()
        }
        Answer::Produce(answer) => {
            let partitions = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
            partitions.map(|it| it.error_code).collect()
        }
        _ => Vec::new(),
    };
    let fences = [KafkaError::INVALID_PRODUCER_EPOCH.0, KafkaError::PRODUCER_FENCED.0];
    codes.into_iter().find(|code| fences.contains(code))
}

/// Commits of a host become one line, until something else happens.
fn condense(mut entries: Vec<(Moment, Entry)>) -> Vec<Line> {
    entries.sort_by_key(|(moment, _)| *moment);
    let mut lines = Vec::new();
    let mut runs: BTreeMap<Arc<str>, Run> = BTreeMap::new();
    for (moment, entry) in entries {
        match entry {
            Entry::Commit(host, transaction) => {
                let run =
                    runs.entry(host).or_insert(Run { count: 0, first: moment, last: moment, transaction });
                run.count += 1;
                (run.last, run.transaction) = (moment, transaction);
            }
            Entry::Line(who, text) => {
                flush(&mut runs, &mut lines);
                lines.push(Line { moment, who, text });
            }
        }
    }
    flush(&mut runs, &mut lines);
    lines
}

fn flush(runs: &mut BTreeMap<Arc<str>, Run>, lines: &mut Vec<Line>) {
    for (host, run) in std::mem::take(runs) {
        let since = run.first.at.as_secs_f64();
        let text = match run.count {
            1 => format!("commits {}", run.transaction),
            count => format!("commits {count} transactions since {since:.3}, the last {}", run.transaction),
        };
        lines.push(Line { moment: run.last, who: Who::Host(host), text });
    }
}
