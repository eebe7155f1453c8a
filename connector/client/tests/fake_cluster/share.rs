//! Sessions that are lost, members that are fenced, leaders that move, versions that lack something.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::{FindCoordinatorRequest, MetadataRequest, ShareGroupHeartbeatRequest};
use kafka_protocol::protocol::{Request, StrBytes};
use sharestream_base::ErrorKind;
use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
use sharestream_client::{
    AcknowledgeType, AcquireMode, KafkaError, LostReason, OffsetRange, ShareConsumer, ShareConsumerConfig,
};
use sharestream_wire::messages::share_acknowledge::{
    self, ShareAcknowledgeRequest, ShareAcknowledgeResponse, ShareAcknowledgeTopicResponse,
};
use sharestream_wire::messages::share_fetch::{
    AcquiredRecords, PartitionData, ShareFetchRequest, ShareFetchResponse, ShareFetchableTopicResponse,
};
use sharestream_wire::messages::{LeaderIdAndEpoch, NodeEndpoint};
use sharestream_wire::records::{BatchBuilder, BatchMeta};

use crate::common::fake::{Fake, Reply, Seen, TOPIC_ID, coordinator, heartbeat, host, metadata};

const ONE: PartitionIndex = PartitionIndex(0);

/// Ten records at offset 0, all acquired.
fn ten_records() -> PartitionData {
    let mut builder = BatchBuilder::new();
    for _ in 0..10 {
        builder.append(0, None, Some(b"v"), &[]).unwrap();
    }
    let records: Bytes = builder.build(&BatchMeta::default()).unwrap();
    PartitionData {
        records: Some(records),
        acquired_records: vec![AcquiredRecords { first_offset: 0, last_offset: 9, delivery_count: 1 }],
        ..PartitionData::default()
    }
}

fn fetched(data: PartitionData) -> ShareFetchResponse {
    ShareFetchResponse {
        acquisition_lock_timeout_ms: 30_000,
        responses: vec![ShareFetchableTopicResponse { topic_id: TOPIC_ID, partitions: vec![data] }],
        ..ShareFetchResponse::default()
    }
}

fn refused(code: KafkaError) -> ShareFetchResponse {
    ShareFetchResponse { error_code: code.0, ..ShareFetchResponse::default() }
}

fn acknowledged(code: KafkaError) -> ShareAcknowledgeResponse {
    let partition = share_acknowledge::PartitionData { error_code: code.0, ..Default::default() };
    let topic = ShareAcknowledgeTopicResponse { topic_id: TOPIC_ID, partitions: vec![partition] };
    ShareAcknowledgeResponse { responses: vec![topic], ..ShareAcknowledgeResponse::default() }
}

/// What every test needs beside its own: a topic led by node 1, a coordinator, a member with partition 0.
fn usual(seen: &Seen) -> Reply {
    match seen.header.api_key {
        MetadataRequest::KEY => seen.answer(&metadata(2, &[1], 1)),
        FindCoordinatorRequest::KEY => seen.answer(&coordinator()),
        ShareGroupHeartbeatRequest::KEY => seen.answer(&heartbeat(1, Some(&[0]))),
        // Nothing to fetch, after the longest wait.
        ShareFetchRequest::KEY => later(seen),
        ShareAcknowledgeRequest::KEY => seen.answer(&acknowledged(KafkaError::NONE)),
        key => panic!("api key {key} is not scripted"),
    }
}

fn later(seen: &Seen) -> Reply {
    let request: ShareFetchRequest = seen.read();
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap());
    match seen.answer(&ShareFetchResponse::default()) {
        Reply::Answer(answer) => Reply::Later(wait, answer),
        other => other,
    }
}

async fn join(fake: &Fake, config: ShareConsumerConfig) -> ShareConsumer {
    let config = ShareConsumerConfig { prefetch: false, ..config };
    ShareConsumer::join(fake.client.clone(), config).await.unwrap()
}

fn of_group() -> ShareConsumerConfig {
    ShareConsumerConfig::new("g", ["t"])
}

/// Polls until something was acquired.
async fn acquire(consumer: &mut ShareConsumer) -> u64 {
    for _ in 0..100 {
        let records = consumer.poll().await.unwrap();
        if !records.is_empty() {
            return records.acquired_count();
        }
    }
    panic!("nothing was acquired");
}

fn sessions(fake: &Fake) -> Vec<(i32, i32)> {
    let requests = fake.seen::<ShareFetchRequest>();
    requests.iter().map(|seen| (seen.node, seen.read::<ShareFetchRequest>().share_session_epoch)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_is_opened_anew_and_its_locks_are_reported() {
    for code in [KafkaError::SHARE_SESSION_NOT_FOUND, KafkaError::INVALID_SHARE_SESSION_EPOCH] {
        let mut fetch_count = 0;
        let fake = Fake::start(1, &[], move |seen| {
            if !seen.is::<ShareFetchRequest>() {
                return usual(seen);
            }
            fetch_count += 1;
            match fetch_count {
                1 | 3 => seen.answer(&fetched(ten_records())),
                2 => seen.answer(&refused(code)),
                _more => usual(seen),
            }
        })
        .await;
        let mut consumer = join(&fake, of_group()).await;
        assert_eq!(acquire(&mut consumer).await, 10);
        assert_eq!(acquire(&mut consumer).await, 10);
        let lost = consumer.lost();
        assert_eq!(lost.iter().map(|lost| lost.reason).collect::<Vec<_>>(), [LostReason::SessionLost]);
        assert_eq!(sessions(&fake)[..3], [(1, 0), (1, 1), (1, 0)], "{code}");
        consumer.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_fenced_member_joins_again_and_its_locks_are_reported() {
    for code in [KafkaError::FENCED_MEMBER_EPOCH, KafkaError::UNKNOWN_MEMBER_ID] {
        let (mut heartbeats, mut fetch_count) = (0, 0);
        let fake = Fake::start(1, &[], move |seen| {
            if seen.is::<ShareFetchRequest>() {
                fetch_count += 1;
                let records = if fetch_count == 1 { ten_records() } else { PartitionData::default() };
                return if fetch_count == 1 { seen.answer(&fetched(records)) } else { usual(seen) };
            }
            if !seen.is::<ShareGroupHeartbeatRequest>() {
                return usual(seen);
            }
            heartbeats += 1;
            match heartbeats {
                2 => seen.answer(&heartbeat(0, None).with_error_code(code.0)),
                count => seen.answer(&heartbeat(count, Some(&[0]))),
            }
        })
        .await;
        let config = ShareConsumerConfig { client_rack: Some("rack-a".to_owned()), ..of_group() };
        let mut consumer = join(&fake, config).await;
        acquire(&mut consumer).await;
        while consumer.share_group_metadata().member_epoch.0 != 3 {
            consumer.poll().await.unwrap();
        }
        consumer.poll().await.unwrap();
        let lost = consumer.lost();
        assert_eq!(lost.iter().map(|lost| lost.reason).collect::<Vec<_>>(), [LostReason::MemberRemoved]);
        let sent: Vec<_> = fake
            .seen::<ShareGroupHeartbeatRequest>()
            .iter()
            .map(|seen| {
                let request: ShareGroupHeartbeatRequest = seen.read();
                let rack = request.rack_id.map(|rack| rack.to_string());
                (request.member_epoch, rack, request.subscribed_topic_names.map(|topics| topics.len()))
            })
            .collect();
        let full = |epoch| (epoch, Some("rack-a".to_owned()), Some(1));
        assert_eq!(sent[..3], [full(0), (1, None, None), full(0)], "{code}");
        consumer.close().await.unwrap();
    }
}

/// A partition that node 1 no longer leads: it is node 2's, by a hint or by the metadata.
async fn moved_leader(hint: bool) -> (Vec<(i32, i32)>, usize) {
    let mut metadata_count = 0;
    let fake = Fake::start(2, &[], move |seen| {
        if seen.is::<MetadataRequest>() {
            metadata_count += 1;
            // One at connect; then the leader has moved.
            let moved = metadata_count > 1;
            return seen.answer(&metadata(2, &[if moved { 2 } else { 1 }], if moved { 5 } else { 1 }));
        }
        if !seen.is::<ShareFetchRequest>() {
            return usual(seen);
        }
        if seen.node == 2 {
            return seen.answer(&fetched(ten_records()));
        }
        let leader = LeaderIdAndEpoch { leader_id: 2, leader_epoch: 5 };
        let not_leader = PartitionData {
            error_code: KafkaError::NOT_LEADER_OR_FOLLOWER.0,
            current_leader: if hint { leader } else { LeaderIdAndEpoch::default() },
            ..PartitionData::default()
        };
        let mut answer = fetched(not_leader);
        if hint {
            let host = StrBytes::from_string(host(2));
            answer.node_endpoints = vec![NodeEndpoint { node_id: 2, host, port: 9092, rack: None }];
        }
        seen.answer(&answer)
    })
    .await;
    let mut consumer = join(&fake, of_group()).await;
    assert_eq!(acquire(&mut consumer).await, 10);
    let asked = fake.seen::<MetadataRequest>().len();
    let sessions = sessions(&fake);
    consumer.close().await.unwrap();
    (sessions, asked)
}

#[tokio::test(start_paused = true)]
async fn a_leader_hint_is_followed_without_a_question() {
    assert_eq!(moved_leader(true).await, (vec![(1, 0), (2, 0)], 1));
}

#[tokio::test(start_paused = true)]
async fn without_a_hint_the_new_leader_is_asked_for() {
    let (sessions, asked) = moved_leader(false).await;
    assert_eq!((sessions.last(), asked), (Some(&(2, 0)), 2), "{sessions:?}");
}

/// The time that a leader has to recover counts from its latest trouble, not from the one before.
#[tokio::test(start_paused = true)]
async fn a_leader_that_was_left_and_comes_back_is_not_blamed_for_what_is_long_past() {
    let mut started = None;
    let mut second_turn = 0;
    let fake = Fake::start(2, &[], move |seen| {
        if !seen.is::<ShareFetchRequest>() {
            return usual(seen);
        }
        let start = *started.get_or_insert(seen.at);
        let is_back = seen.at > start + Duration::from_secs(60);
        let elsewhere = |leader_id, leader_epoch| {
            let not_leader = PartitionData {
                error_code: KafkaError::NOT_LEADER_OR_FOLLOWER.0,
                current_leader: LeaderIdAndEpoch { leader_id, leader_epoch },
                ..PartitionData::default()
            };
            seen.answer(&fetched(not_leader))
        };
        match (seen.node, is_back) {
            (1, false) => elsewhere(2, 5),
            (2, true) => elsewhere(1, 9),
            (1, true) => {
                second_turn += 1;
                // It leads again, and is not quite ready.
                if second_turn == 1 { elsewhere(0, 0) } else { seen.answer(&fetched(ten_records())) }
            }
            _meanwhile => usual(seen),
        }
    })
    .await;
    let mut consumer = join(&fake, of_group()).await;
    let start = fake.env.clock.now();
    while fake.env.clock.now() < start + Duration::from_secs(59) {
        assert!(consumer.poll().await.unwrap().is_empty());
    }
    assert_eq!(acquire(&mut consumer).await, 10);
    consumer.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_partition_without_a_leader_is_looked_for_ever_more_seldom() {
    let fake = Fake::start(1, &[], |seen| match seen.header.api_key {
        // Known at the join, leaderless ever after.
        MetadataRequest::KEY if seen.read::<MetadataRequest>().topics.unwrap_or_default().is_empty() => {
            seen.answer(&metadata(1, &[], 1))
        }
        MetadataRequest::KEY => seen.answer(&metadata(1, &[1], 1)),
        ShareGroupHeartbeatRequest::KEY => seen.answer(&heartbeat(1, Some(&[0, 1]))),
        _usual => usual(seen),
    })
    .await;
    let mut consumer = join(&fake, of_group()).await;
    let start = fake.env.clock.now();
    while fake.env.clock.now() < start + Duration::from_secs(60) {
        consumer.poll().await.unwrap();
    }
    let asked = fake.seen::<MetadataRequest>().len();
    assert!((50..100).contains(&asked), "once a second in the end, not fifty times: {asked}");
    consumer.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_that_go_with_a_fetch_have_results_of_their_own() {
    let mut fetch_count = 0;
    let fake = Fake::start(1, &[], move |seen| {
        if !seen.is::<ShareFetchRequest>() {
            return usual(seen);
        }
        fetch_count += 1;
        let lost = KafkaError::INVALID_RECORD_STATE.0;
        match fetch_count {
            1 => seen.answer(&fetched(ten_records())),
            2 => seen.answer(&fetched(ten_records())),
            3 => seen.answer(&fetched(PartitionData { acknowledge_error_code: lost, ..ten_records() })),
            4 => Reply::Disconnect,
            _more => usual(seen),
        }
    })
    .await;
    let mut consumer = join(&fake, of_group()).await;
    let topic = TopicId(TOPIC_ID);
    let mut errors = Vec::new();
    for _ in 0..3 {
        acquire(&mut consumer).await;
        consumer.acknowledge(topic, ONE, Offset(0), Offset(4), AcknowledgeType::Accept);
        consumer.acknowledge(topic, ONE, Offset(5), Offset(9), AcknowledgeType::Reject);
        consumer.acknowledge_with_next_fetch();
        errors.extend(consumer.acknowledgement_results().into_iter().map(|result| result.error));
    }
    while errors.len() < 3 {
        consumer.poll().await.unwrap();
        errors.extend(consumer.acknowledgement_results().into_iter().map(|result| result.error));
    }
    // Taken, lost locks, and no answer: it may have been taken.
    assert_eq!(errors, [None, Some(KafkaError::INVALID_RECORD_STATE), Some(KafkaError::NETWORK_EXCEPTION)]);
    assert!(fake.seen::<ShareAcknowledgeRequest>().is_empty(), "none had a request of its own");
    let second: ShareFetchRequest = fake.seen::<ShareFetchRequest>()[1].read();
    let batches = &second.topics[0].partitions[0].acknowledgement_batches;
    let sent: Vec<_> = batches
        .iter()
        .map(|one| (one.first_offset, one.last_offset, one.acknowledge_types.clone()))
        .collect();
    assert_eq!(sent, [(0, 4, vec![1]), (5, 9, vec![3])]);
    // The poll that says that locks are gone sends nothing; the next one opens the session again.
    let polled = consumer.poll().await.unwrap();
    assert!(polled.is_empty());
    let reopened: ShareFetchRequest = fake.seen::<ShareFetchRequest>()[4].read();
    assert_eq!(reopened.share_session_epoch, 0);
    assert!(reopened.topics[0].partitions[0].acknowledgement_batches.is_empty());
    consumer.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn fetches_are_tuned_as_the_settings_say() {
    let fake = Fake::start(1, &[], usual).await;
    let config = ShareConsumerConfig {
        max_poll_records: 11,
        batch_size: Some(12),
        fetch_bytes_min: 13,
        fetch_bytes_max: 14,
        max_wait: Duration::from_millis(15),
        acquire_mode: AcquireMode::RecordLimit,
        ..of_group()
    };
    let mut consumer = join(&fake, config).await;
    while fake.seen::<ShareFetchRequest>().is_empty() {
        consumer.poll().await.unwrap();
    }
    let sent: ShareFetchRequest = fake.seen::<ShareFetchRequest>()[0].read();
    let tuning = (sent.max_records, sent.batch_size, sent.min_bytes, sent.max_bytes, sent.max_wait_ms);
    assert_eq!((tuning, sent.share_acquire_mode), ((11, 12, 13, 14, 15), 1));
    consumer.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_the_second_versions_gets_none_of_what_they_added() {
    let old = [(ShareFetchRequest::KEY, 1, 1), (ShareAcknowledgeRequest::KEY, 1, 1)];
    let mut fetch_count = 0;
    let fake = Fake::start(1, &old, move |seen| {
        if !seen.is::<ShareFetchRequest>() {
            return usual(seen);
        }
        fetch_count += 1;
        if fetch_count == 1 { seen.answer(&fetched(ten_records())) } else { usual(seen) }
    })
    .await;
    let mut consumer = join(&fake, of_group()).await;
    acquire(&mut consumer).await;
    let range = OffsetRange { first: Offset(0), last: Offset(9) };
    let renewed = consumer.renew(TopicId(TOPIC_ID), ONE, &[range]).await.unwrap();
    assert_eq!(renewed[0].error, Some(KafkaError::UNSUPPORTED_VERSION));
    let released = consumer.release(TopicId(TOPIC_ID), ONE, &[range]).await.unwrap();
    assert_eq!(released[0].error, None);
    assert!(fake.seen::<ShareFetchRequest>().iter().all(|seen| seen.header.api_version == 1));
    consumer.close().await.unwrap();

    let config = ShareConsumerConfig { acquire_mode: AcquireMode::RecordLimit, ..of_group() };
    let mut consumer = join(&fake, config).await;
    let error = loop {
        match consumer.poll().await {
            Ok(records) => assert!(records.is_empty()),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("record limit"), "{error}");
    consumer.close().await.unwrap();
}
