//! A read-committed reader outside of the job, as any consumer of its results: it reads on during the whole run and
//! remembers what it was given. What it saw cannot be taken back, whatever the logs say later.

use std::collections::BTreeMap;
use std::time::Duration;

use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_base::{CancellationToken, Env, ErrorKind};
use sharestream_client::{Client, FetchedPartition, Isolation, PartitionReader, committed_records};
use sharestream_wire::records::RawBatch;

use super::logs::{Logged, Logs, digest};
use super::{Checker, Finding};
use crate::workload::{DEAD_LETTERS, OUTPUT};

/// Between two looks at one partition.
const POLL_EVERY: Duration = Duration::from_millis(200);
/// Longest time to read the rest after the run.
const CATCH_UP_MAX: Duration = Duration::from_secs(30);
const FETCH_BYTES: i32 = 1 << 20;
/// Findings that are kept: what follows is their echo.
const FINDINGS_MAX: usize = 5;

/// What the reader saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    partitions: BTreeMap<(&'static str, PartitionIndex), Position>,
    findings: Vec<Finding>,
}

#[derive(Debug)]
struct Position {
    next: Offset,
    stable: Offset,
    /// Digest of each record by offset.
    records: BTreeMap<Offset, u64>,
}

impl Default for Position {
    fn default() -> Self {
        Position { next: Offset(0), stable: Offset(0), records: BTreeMap::new() }
    }
}

/// The reader.
pub(crate) struct Reader {
    reader: PartitionReader,
    env: Env,
    seen: Seen,
}

impl Reader {
    /// A reader of both topics that results go to.
    pub(crate) fn new(client: Client, env: Env, output_partitions: i32) -> Self {
        let places = [OUTPUT, DEAD_LETTERS].into_iter().flat_map(|topic| {
            (0..output_partitions).map(move |partition| (topic, PartitionIndex(partition)))
        });
        let partitions = places.map(|place| (place, Position::default())).collect();
        let seen = Seen { partitions, findings: Vec::new() };
        Reader { reader: PartitionReader::new(client), env, seen }
    }

    /// Reads until `stop`, and then what is left.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Seen {
        while !stop.is_cancelled() {
            self.poll_all().await;
            self.env.clock.sleep(POLL_EVERY).await;
        }
        let deadline = self.env.clock.now() + CATCH_UP_MAX;
        while !self.poll_all().await && self.env.clock.now() < deadline {
            self.env.clock.sleep(POLL_EVERY).await;
        }
        self.seen
    }

    /// True when nothing was new anywhere.
    async fn poll_all(&mut self) -> bool {
        let places: Vec<_> = self.seen.partitions.iter().map(|(place, at)| (*place, at.next)).collect();
        let mut at_end = true;
        for ((topic, partition), from) in places {
            let isolation = Isolation::ReadCommitted;
            let fetched =
                self.reader.fetch(topic, partition, from, isolation, FETCH_BYTES, Duration::ZERO).await;
            match fetched {
                Ok(fetched) => {
                    self.seen.take(topic, partition, &fetched);
                    at_end &= fetched.next_offset(from) == from;
                }
                Err(error) => {
                    at_end = false;
                    // Faults make a read fail; nothing that happens makes an offset wrong that was right.
                    if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::InvalidInput | ErrorKind::Bug) {
                        self.seen.find(format!("the reader cannot go on: {error}"));
                    }
                }
            }
        }
        at_end
    }
}

impl Seen {
    fn find(&mut self, text: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding::new(Checker::Reader, text));
        }
    }

    fn take(&mut self, topic: &'static str, partition: PartitionIndex, fetched: &FetchedPartition) {
        let name = format!("{topic}/{partition}");
        let stable = fetched.last_stable_offset;
        let next = fetched.next_offset(self.position(topic, partition).next);
        if next > stable {
            self.find(format!("{name} was read up to {next}, and is stable up to {stable}"));
        }
        let before = self.position(topic, partition).stable;
        if stable < before {
            self.find(format!("the last stable offset of {name} went back from {before} to {stable}"));
        }
        match committed_records(fetched) {
            Ok(batches) => {
                for batch in batches {
                    self.take_batch(topic, partition, batch);
                }
            }
            Err(error) => self.find(format!("{name} cannot be read: {error}")),
        }
        let position = self.position(topic, partition);
        (position.next, position.stable) = (next, stable);
    }

    fn take_batch(&mut self, topic: &'static str, partition: PartitionIndex, batch: &RawBatch) {
        let from = self.position(topic, partition).next;
        let Ok(records) = batch.records() else {
            return self.find(format!("{topic}/{partition} has a damaged batch"));
        };
        for record in records.iter().filter_map(Result::ok).filter(|record| record.offset >= from.0) {
            self.note(topic, partition, Offset(record.offset), digest(&record));
        }
    }

    /// One record was given to the reader: in ascending order, each offset once.
    fn note(&mut self, topic: &'static str, partition: PartitionIndex, offset: Offset, digest: u64) {
        let records = &mut self.position(topic, partition).records;
        let last = records.last_key_value().map(|(offset, _)| *offset);
        records.insert(offset, digest);
        if last.is_some_and(|last| offset <= last) {
            self.find(format!("{topic}/{partition}/{offset} was read after {}", last.unwrap_or(offset)));
        }
    }

    fn position(&mut self, topic: &'static str, partition: PartitionIndex) -> &mut Position {
        self.partitions.entry((topic, partition)).or_default()
    }

    /// What was seen is committed, where it was and as it was; nothing below the position was left out; the end was
    /// reached.
    pub(super) fn check(&self, logs: &Logs) -> Vec<Finding> {
        let mut found = self.findings.clone();
        for ((topic, partition), position) in &self.partitions {
            let of_it = logs.of(topic).iter().filter(|record| record.partition == *partition);
            let log: BTreeMap<Offset, &Logged> = of_it.map(|record| (record.offset, record)).collect();
            let mut find = |offset: Offset, text: String| {
                found.push(Finding::new(Checker::Reader, format!("{topic}/{partition}/{offset} {text}")));
            };
            for (offset, digest) in &position.records {
                match log.get(offset) {
                    None => find(*offset, "was read and is not there any more".to_owned()),
                    Some(record) if !record.is_committed() => {
                        find(*offset, format!("was read as committed and is {:?}", record.fate));
                    }
                    Some(record) if record.digest != *digest => {
                        find(*offset, "holds another record than was read".to_owned());
                    }
                    Some(_) => {}
                }
            }
            let committed = log.values().filter(|record| record.is_committed());
            for record in committed.filter(|record| !position.records.contains_key(&record.offset)) {
                let text = if record.offset < position.next {
                    format!("is committed, and the reader went past it to {}", position.next)
                } else {
                    format!("is committed, and the reader stands at {}", position.next)
                };
                find(record.offset, text);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
