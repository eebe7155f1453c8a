//! Groups: membership, description, offsets, deletion.

use kafka_protocol::messages::alter_share_group_offsets_request as alter;
use kafka_protocol::messages::delete_share_group_offsets_request as delete;

use super::*;

pub(super) fn witnesses() -> Vec<Witness> {
    vec![
        list_groups(),
        describe_groups(),
        delete_groups(),
        share_group_heartbeat(),
        share_group_describe(),
        alter_share_group_offsets(),
        delete_share_group_offsets(),
    ]
}

fn list_groups() -> Witness {
    use k::list_groups_response as r;
    let ours = m::ListGroupsRequest::default().with_types_filter(vec![text("share")]);
    let theirs = k::ListGroupsRequestData { types_filter: vec![kt("share")], ..Default::default() };
    let answer = r::ListGroupsResponseData {
        throttle_time_ms: 1,
        error_code: 2,
        groups: vec![r::ListedGroup {
            group_id: kt("g"),
            protocol_type: kt("p"),
            group_state: kt("Stable"),
            group_type: kt("share"),
            ..Default::default()
        }],
        ..Default::default()
    };
    witness!(m::ListGroupsRequest, |version| ours.clone(), theirs, answer)
}

fn describe_groups() -> Witness {
    use k::describe_groups_response as r;
    let ours = m::DescribeGroupsRequest::default()
        .with_groups(vec![group("g"), group("h")])
        .with_include_authorized_operations(true);
    let theirs = k::DescribeGroupsRequestData {
        groups: vec![kt("g"), kt("h")],
        include_authorized_operations: true,
        ..Default::default()
    };
    let answer = r::DescribeGroupsResponseData {
        throttle_time_ms: 1,
        groups: vec![r::DescribedGroup {
            error_code: 2,
            group_id: kt("g"),
            group_state: kt("Dead"),
            protocol_type: kt("p"),
            protocol_data: kt("q"),
            authorized_operations: 8,
            ..Default::default()
        }],
        ..Default::default()
    };
    witness!(m::DescribeGroupsRequest, |version| ours.clone(), theirs, answer)
}

fn delete_groups() -> Witness {
    use k::delete_groups_response as r;
    let ours = m::DeleteGroupsRequest::default().with_groups_names(vec![group("g")]);
    let theirs = k::DeleteGroupsRequestData { groups_names: vec![kt("g")], ..Default::default() };
    let answer = r::DeleteGroupsResponseData {
        throttle_time_ms: 1,
        results: vec![r::DeletableGroupResult { group_id: kt("g"), error_code: 2, ..Default::default() }],
        ..Default::default()
    };
    witness!(m::DeleteGroupsRequest, |version| ours.clone(), theirs, answer)
}

fn share_group_heartbeat() -> Witness {
    use k::share_group_heartbeat_response as r;
    let ours = m::ShareGroupHeartbeatRequest::default()
        .with_group_id(group("g"))
        .with_member_id(text("m"))
        .with_member_epoch(1)
        .with_rack_id(Some(text("rack")))
        .with_subscribed_topic_names(Some(vec![topic("t"), topic("u")]));
    let theirs = k::ShareGroupHeartbeatRequestData {
        group_id: kt("g"),
        member_id: kt("m"),
        member_epoch: 1,
        rack_id: Some(kt("rack")),
        subscribed_topic_names: Some(vec![kt("t"), kt("u")]),
        ..Default::default()
    };
    let answer = r::ShareGroupHeartbeatResponseData {
        throttle_time_ms: 1,
        error_code: 2,
        error_message: Some(kt("text")),
        member_id: Some(kt("m")),
        member_epoch: 3,
        heartbeat_interval_ms: 4,
        assignment: Some(Box::new(r::Assignment {
            topic_partitions: vec![r::TopicPartitions {
                topic_id: kid(),
                partitions: vec![5, 6],
                ..Default::default()
            }],
            ..Default::default()
        })),
        ..Default::default()
    };
    witness!(m::ShareGroupHeartbeatRequest, |version| ours.clone(), theirs, answer)
}

fn share_group_describe() -> Witness {
    use k::share_group_describe_response as r;
    let ours = m::ShareGroupDescribeRequest::default().with_group_ids(vec![group("g")]);
    let theirs = k::ShareGroupDescribeRequestData { group_ids: vec![kt("g")], ..Default::default() };
    let answer = r::ShareGroupDescribeResponseData {
        throttle_time_ms: 1,
        groups: vec![r::DescribedGroup {
            error_code: 2,
            error_message: Some(kt("text")),
            group_id: kt("g"),
            group_state: kt("Stable"),
            group_epoch: 3,
            assignment_epoch: 4,
            assignor_name: kt("simple"),
            members: vec![r::Member {
                member_id: kt("m"),
                rack_id: Some(kt("rack")),
                member_epoch: 5,
                client_id: kt("c"),
                client_host: kt("h"),
                subscribed_topic_names: vec![kt("t")],
                assignment: r::Assignment {
                    topic_partitions: vec![r::TopicPartitions {
                        topic_id: kid(),
                        topic_name: kt("t"),
                        partitions: vec![6, 7],
                        ..Default::default()
                    }],
                    ..Default::default()
                },
                ..Default::default()
            }],
            authorized_operations: 8,
            ..Default::default()
        }],
        ..Default::default()
    };
    witness!(m::ShareGroupDescribeRequest, |version| ours.clone(), theirs, answer)
}

fn alter_share_group_offsets() -> Witness {
    use k::alter_share_group_offsets_request as q;
    use k::alter_share_group_offsets_response as r;
    let partition =
        alter::AlterShareGroupOffsetsRequestPartition::default().with_partition_index(1).with_start_offset(2);
    let wanted = alter::AlterShareGroupOffsetsRequestTopic::default()
        .with_topic_name(topic("t"))
        .with_partitions(vec![partition]);
    let ours =
        m::AlterShareGroupOffsetsRequest::default().with_group_id(group("g")).with_topics(vec![wanted]);
    let theirs = q::AlterShareGroupOffsetsRequestData {
        group_id: kt("g"),
        topics: vec![q::AlterShareGroupOffsetsRequestTopic {
            topic_name: kt("t"),
            partitions: vec![q::AlterShareGroupOffsetsRequestPartition {
                partition_index: 1,
                start_offset: 2,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = r::AlterShareGroupOffsetsResponseData {
        throttle_time_ms: 1,
        error_code: 2,
        error_message: Some(kt("text")),
        responses: vec![r::AlterShareGroupOffsetsResponseTopic {
            topic_name: kt("t"),
            topic_id: kid(),
            partitions: vec![r::AlterShareGroupOffsetsResponsePartition {
                partition_index: 3,
                error_code: 4,
                error_message: Some(kt("words")),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    witness!(m::AlterShareGroupOffsetsRequest, |version| ours.clone(), theirs, answer)
}

fn delete_share_group_offsets() -> Witness {
    use k::delete_share_group_offsets_request as q;
    use k::delete_share_group_offsets_response as r;
    let wanted = delete::DeleteShareGroupOffsetsRequestTopic::default().with_topic_name(topic("t"));
    let ours =
        m::DeleteShareGroupOffsetsRequest::default().with_group_id(group("g")).with_topics(vec![wanted]);
    let theirs = q::DeleteShareGroupOffsetsRequestData {
        group_id: kt("g"),
        topics: vec![q::DeleteShareGroupOffsetsRequestTopic { topic_name: kt("t"), ..Default::default() }],
        ..Default::default()
    };
    let answer = r::DeleteShareGroupOffsetsResponseData {
        throttle_time_ms: 1,
        error_code: 2,
        error_message: Some(kt("text")),
        responses: vec![r::DeleteShareGroupOffsetsResponseTopic {
            topic_name: kt("t"),
            topic_id: kid(),
            error_code: 3,
            error_message: Some(kt("words")),
            ..Default::default()
        }],
        ..Default::default()
    };
    witness!(m::DeleteShareGroupOffsetsRequest, |version| ours.clone(), theirs, answer)
}
