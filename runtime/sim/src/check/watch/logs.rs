//! Logs only grow, and what was decided of a batch stays decided.

use std::collections::BTreeMap;

use bytes::Bytes;
use sharestream_base::ids::{PartitionIndex, TopicId};
use sharestream_broker::inspect::{BatchView, Fate, PartitionView};

use crate::check::{Checker, Finding};

/// Length of the header of a batch, which has the checksum of the rest.
const HEADER_BYTES: usize = 61;

type Key = (TopicId, PartitionIndex);

/// What was seen of all logs.
#[derive(Debug, Default)]
pub(super) struct LogWatch {
    ends: BTreeMap<Key, PartitionView>,
    batches: BTreeMap<Key, BTreeMap<i64, Remembered>>,
}

#[derive(Debug)]
struct Remembered {
    header: Bytes,
    fate: Fate,
}

impl LogWatch {
    /// High watermark, last stable offset, log start and leader epoch only rise; nothing is stable that is not there.
    pub(super) fn ends(&mut self, partitions: &[PartitionView]) -> Vec<Finding> {
        let mut found = Vec::new();
        for view in partitions {
            let name = || format!("{}/{}", view.topic, view.partition);
            if view.last_stable_offset > view.high_watermark {
                let text = format!(
                    "{} is stable up to {}, beyond its high watermark {}",
                    name(),
                    view.last_stable_offset,
                    view.high_watermark
                );
                found.push(Finding::new(Checker::Watch, text));
            }
            let before = self.ends.insert((view.topic_id, view.partition), view.clone());
            let Some(before) = before else { continue };
            let numbers = [
                ("high watermark", before.high_watermark.0, view.high_watermark.0),
                ("last stable offset", before.last_stable_offset.0, view.last_stable_offset.0),
                ("log start", before.log_start.0, view.log_start.0),
                ("leader epoch", i64::from(before.leader_epoch.0), i64::from(view.leader_epoch.0)),
            ];
            for (what, before, now) in numbers.into_iter().filter(|(_, before, now)| now < before) {
                found.push(Finding::new(
                    Checker::Watch,
                    format!("the {what} of {} went back from {before} to {now}", name()),
                ));
            }
            if before.leader_epoch == view.leader_epoch && before.leader.is_some() && view.leader.is_some() {
                let text = || format!("{} has two leaders in epoch {}", name(), view.leader_epoch);
                let changed = before.leader != view.leader;
                found.extend(changed.then(|| Finding::new(Checker::Watch, text())));
            }
        }
        found
    }

    /// Batches stay what they are, and a decided fate stays. Of a compacted log only the latter holds.
    pub(super) fn fates(
        &mut self,
        partition: &PartitionView,
        batches: &[BatchView],
        is_compacted: bool,
    ) -> Vec<Finding> {
        let name = format!("{}/{}", partition.topic, partition.partition);
        let known = self.batches.entry((partition.topic_id, partition.partition)).or_default();
        let mut found = Vec::new();
        let mut unseen = known.range(partition.log_start.0..).count();
        for batch in batches {
            let header = batch.bytes.slice(..HEADER_BYTES.min(batch.bytes.len()));
            let Some(before) = known.get_mut(&batch.first.0) else {
                known.insert(batch.first.0, Remembered { header, fate: batch.fate });
                continue;
            };
            unseen -= 1;
            if before.header != header && !is_compacted {
                let text = format!("{name} has another batch at offset {} than before", batch.first);
                found.push(Finding::new(Checker::Watch, text));
            }
            if before.fate != batch.fate && before.fate != Fate::Open {
                let text = format!(
                    "the batch at offset {} of {name} was {:?} and is {:?}",
                    batch.first, before.fate, batch.fate
                );
                found.push(Finding::new(Checker::Watch, text));
            }
            *before = Remembered { header, fate: batch.fate };
        }
        if unseen > 0 && !is_compacted {
            let text = format!("{unseen} batches of {name} were there and are not any more");
            found.push(Finding::new(Checker::Watch, text));
        }
        found
    }
}
