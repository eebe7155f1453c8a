//! Which source records the outcome records decide, read batch by batch as they are written.

use std::collections::BTreeMap;

use sharestream_base::ids::{JobEpoch, Offset, PartitionIndex, ProducerId, TopicId};
use sharestream_broker::inspect::{BatchView, Fate, TransactionView};
use sharestream_core::decision::Decision;
use sharestream_kafka::outcome::{LogEntry, OutcomeRecord};

use crate::check::Place;

/// All outcome records so far.
#[derive(Debug, Default)]
pub(super) struct OutcomeWatch {
    outcomes: BTreeMap<(PartitionIndex, Offset), Outcome>,
    /// Outcomes that accept a source record, whatever became of them.
    accepted: BTreeMap<(TopicId, Place), Vec<(PartitionIndex, Offset)>>,
    /// Incarnations by replica, in order of their owner records.
    owners: BTreeMap<String, Vec<JobEpoch>>,
}

#[derive(Debug)]
struct Outcome {
    producer_id: Option<ProducerId>,
    fate: Fate,
}

impl OutcomeWatch {
    /// Takes the batches of an outcome partition: those that are new, and what became of the others.
    pub(super) fn read(&mut self, partition: PartitionIndex, batches: &[BatchView]) {
        for batch in batches {
            let key = (partition, batch.first);
            if let Some(known) = self.outcomes.get_mut(&key) {
                known.fate = batch.fate;
                continue;
            }
            let producer_id = batch.producer.map(|(producer_id, _)| producer_id);
            self.outcomes.insert(key, Outcome { producer_id, fate: batch.fate });
            for record in batch.records() {
                let (Some(name), Some(value)) = (record.key, record.value) else { continue };
                match LogEntry::decode(&name, &value) {
                    Ok(LogEntry::Outcome(outcome)) => self.take(key, &outcome),
                    Ok(LogEntry::Owner(owner)) => {
                        self.owners.entry(owner.instance).or_default().push(owner.job_epoch);
                    }
                    Ok(
                        LogEntry::Mode(_) | LogEntry::Floor(_) | LogEntry::Generation(_) | LogEntry::Unknown,
                    )
                    | Err(_) => {}
                }
            }
        }
    }

    fn take(&mut self, key: (PartitionIndex, Offset), outcome: &OutcomeRecord) {
        for part in &outcome.partitions {
            let accepted = part.ranges.iter().filter(|range| range.decision == Decision::Accept);
            for offset in accepted.flat_map(|range| range.first.0..=range.last.0) {
                let place = Place { partition: part.partition.0, offset };
                self.accepted.entry((part.topic_id, place)).or_default().push(key);
            }
        }
    }

    /// Incarnations of a replica, in order of their owner records.
    pub(super) fn owners(&self, instance: &str) -> &[JobEpoch] {
        self.owners.get(instance).map_or(&[], Vec::as_slice)
    }

    /// Why an acknowledged record must not be acknowledged, if so: no transaction that accepts it was decided to commit.
    pub(super) fn contradicts(
        &self,
        topic_id: TopicId,
        place: Place,
        transactions: &[TransactionView],
    ) -> Option<String> {
        let accepting = self.accepted.get(&(topic_id, place)).map_or(&[][..], Vec::as_slice);
        let mut states = Vec::new();
        for outcome in accepting.iter().filter_map(|key| self.outcomes.get(key)) {
            let of_producer = |view: &&TransactionView| Some(view.producer_id) == outcome.producer_id;
            let state = transactions.iter().find(of_producer).map_or("unknown", |view| view.state);
            match outcome.fate {
                Fate::Committed | Fate::Plain => return None,
                // The markers are under way.
                Fate::Open if state == "PrepareCommit" => return None,
                Fate::Open | Fate::Aborted | Fate::CommitMarker | Fate::AbortMarker => {
                    states.push(format!("{:?} ({state})", outcome.fate));
                }
            }
        }
        Some(format!(
            "it is acknowledged durably and no transaction that accepts it was committed: {}",
            if states.is_empty() { "none accepts it".to_owned() } else { states.join(", ") }
        ))
    }
}
