//! Reads the answer to a share fetch: records as slices of it, errors by partition. Pure.

use std::sync::Arc;
use std::time::Duration;

use sharestream_base::ids::{LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId};
use sharestream_base::{ErrorKind, Instant};
use sharestream_wire::messages::share_fetch::{PartitionData, ShareFetchResponse};
use sharestream_wire::records;

use super::acquired::{AcquiredPartition, AcquiredRange};
use super::session::PartitionKey;
use crate::{Error, Result};

/// The parts of an answer.
#[derive(Debug, Default)]
pub(super) struct FetchAnswer {
    pub(super) partitions: Vec<AcquiredPartition>,
    pub(super) errors: Vec<PartitionError>,
    pub(super) lock_timeout: Option<Duration>,
}

/// A partition that could not be fetched.
#[derive(Debug)]
pub(super) struct PartitionError {
    pub(super) key: PartitionKey,
    pub(super) error: Error,
    /// The new leader, when the broker named one.
    pub(super) leader: Option<(NodeId, LeaderEpoch)>,
}

/// Reads an answer without a top-level error. `name` knows topics by id.
///
/// # Errors
/// `Corrupt` when batches or acquired ranges cannot be read.
pub(super) fn read_fetch(
    response: ShareFetchResponse,
    arrived: Instant,
    name: impl Fn(TopicId) -> Arc<str>,
) -> Result<FetchAnswer> {
    let lock_timeout = u64::try_from(response.acquisition_lock_timeout_ms)
        .ok()
        .filter(|ms| *ms > 0)
        .map(Duration::from_millis);
    let lock_deadline = lock_timeout.map(|timeout| arrived + timeout);
    let mut answer = FetchAnswer { lock_timeout, ..FetchAnswer::default() };
    for topic in response.responses {
        let topic_id = TopicId(topic.topic_id);
        for data in topic.partitions {
            let partition = PartitionIndex(data.partition_index);
            if data.error_code != 0 {
                let message = data.error_message.as_ref().map(|message| message.as_str());
                let what = format!("share fetch of {}/{partition}", name(topic_id));
                answer.errors.push(PartitionError {
                    key: (topic_id, partition),
                    error: Error::from_answer(data.error_code, message, what).of_share_partition(),
                    leader: (data.current_leader.leader_epoch > 0).then_some((
                        NodeId(data.current_leader.leader_id),
                        LeaderEpoch(data.current_leader.leader_epoch),
                    )),
                });
            } else if !data.acquired_records.is_empty() {
                let topic = name(topic_id);
                let read = read_partition(topic_id, &topic, data, lock_deadline);
                answer.partitions.push(
                    read.map_err(|error| error.within(format_args!("share fetch of {topic}/{partition}")))?,
                );
            }
        }
    }
    Ok(answer)
}

fn read_partition(
    topic_id: TopicId,
    topic: &Arc<str>,
    data: PartitionData,
    lock_deadline: Option<Instant>,
) -> Result<AcquiredPartition> {
    let corrupt = |error| Error::new(ErrorKind::Corrupt, "batches cannot be read").with_source(error);
    let mut batches = Vec::new();
    for batch in records::split(data.records.unwrap_or_default()) {
        let batch = batch.map_err(corrupt)?;
        batch.verify_crc().map_err(corrupt)?;
        batches.push(batch);
    }
    let mut acquired: Vec<AcquiredRange> = data
        .acquired_records
        .iter()
        .map(|range| AcquiredRange {
            first: Offset(range.first_offset),
            last: Offset(range.last_offset),
            delivery_count: range.delivery_count,
        })
        .collect();
    acquired.sort_by_key(|range| range.first);
    // The last offset there is has none behind it; counting to it would overflow.
    let possible =
        |range: &AcquiredRange| range.first.0 >= 0 && range.first <= range.last && range.last.0 < i64::MAX;
    let valid = acquired.iter().all(possible) && acquired.windows(2).all(|pair| pair[0].last < pair[1].first);
    if !valid {
        return Err(Error::new(ErrorKind::Corrupt, "acquired ranges overlap, or are none"));
    }
    Ok(AcquiredPartition {
        topic: Arc::clone(topic),
        topic_id,
        partition: PartitionIndex(data.partition_index),
        batches,
        acquired,
        lock_deadline,
    })
}

#[cfg(test)]
mod tests {
    use sharestream_base::{Clock, ids::TopicId};
    use sharestream_wire::KafkaError;
    use sharestream_wire::messages::share_fetch::{AcquiredRecords, ShareFetchableTopicResponse};

    use super::*;

    /// The kind of the error that a leader's code for one partition becomes.
    fn kind_of(code: KafkaError) -> ErrorKind {
        let partition = PartitionData { error_code: code.0, ..PartitionData::default() };
        let topic = ShareFetchableTopicResponse { partitions: vec![partition], ..Default::default() };
        let response = ShareFetchResponse { responses: vec![topic], ..ShareFetchResponse::default() };
        let now = Clock::system().now();
        let answer = read_fetch(response, now, |_: TopicId| Arc::from("t")).unwrap();
        answer.errors[0].error.kind()
    }

    /// The number of offsets that an answer gives as acquired.
    fn acquired(ranges: &[(i64, i64)]) -> Result<u64> {
        let acquired_records = ranges.iter().map(|(first_offset, last_offset)| AcquiredRecords {
            first_offset: *first_offset,
            last_offset: *last_offset,
            delivery_count: 1,
        });
        let data = PartitionData { acquired_records: acquired_records.collect(), ..PartitionData::default() };
        let topic = Arc::from("t");
        read_partition(TopicId::default(), &topic, data, None).map(|partition| partition.acquired_count())
    }

    #[test]
    fn acquired_ranges_that_cannot_be_are_refused() {
        assert_eq!(acquired(&[(0, 4), (7, 7)]).unwrap(), 6);
        assert_eq!(acquired(&[(0, i64::MAX - 1)]).unwrap(), i64::MAX.unsigned_abs());
        for ranges in [&[(0, i64::MAX)][..], &[(-1, 4)], &[(4, 3)], &[(0, 4), (4, 7)]] {
            assert_eq!(acquired(ranges).unwrap_err().kind(), ErrorKind::Corrupt, "{ranges:?}");
        }
    }

    #[test]
    fn what_a_leader_says_of_one_partition_is_no_defect_and_no_fault_of_the_settings() {
        for lost in [
            KafkaError::INVALID_REQUEST,
            KafkaError::GROUP_ID_NOT_FOUND,
            KafkaError::INVALID_RECORD_STATE,
            KafkaError::SHARE_SESSION_NOT_FOUND,
            KafkaError::INVALID_SHARE_SESSION_EPOCH,
            KafkaError::UNKNOWN_MEMBER_ID,
        ] {
            assert_eq!(kind_of(lost), ErrorKind::Abort, "{lost}");
        }
        for moved in [
            KafkaError::FENCED_STATE_EPOCH,
            KafkaError::NOT_LEADER_OR_FOLLOWER,
            KafkaError::UNKNOWN_TOPIC_ID,
            KafkaError::COORDINATOR_NOT_AVAILABLE,
        ] {
            assert_eq!(kind_of(moved), ErrorKind::Retry, "{moved}");
        }
        let refused = kind_of(KafkaError::TOPIC_AUTHORIZATION_FAILED);
        assert_eq!(refused, ErrorKind::InvalidInput, "no attempt after it would fare better");
    }
}
