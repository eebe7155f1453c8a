//! Names, ids and who leads at first.

use super::*;

fn topics() -> Topics {
    Topics::new(Rng::seeded(1), None)
}

fn create(topics: &Topics, name: &str, partitions: i32) -> Result<Arc<Topic>, ErrorCode> {
    let new = NewTopic { name: name.to_owned(), partitions, configs: TopicConfigs::new() };
    topics.create(new, &BrokerConfig::default(), &[NodeId(1), NodeId(2)])
}

#[test]
fn a_re_created_topic_has_another_id() {
    let topics = topics();
    let first = create(&topics, "orders", 2).unwrap().id;
    assert_eq!(create(&topics, "orders", 2).unwrap_err(), ErrorCode::TopicAlreadyExists);
    assert_eq!(topics.delete("orders"), Ok(first));
    assert!(topics.by_id(first).is_none());
    assert_ne!(create(&topics, "orders", 2).unwrap().id, first);
}

#[test]
fn partitions_are_led_by_the_nodes_in_turn() {
    let topic = create(&topics(), "orders", 3).unwrap();
    let leaders: Vec<_> = topic.partitions().iter().map(|partition| partition.leader().unwrap().0).collect();
    assert_eq!(leaders, [1, 2, 1]);
}

#[test]
fn bad_names_and_counts_are_refused() {
    let topics = topics();
    for name in ["", ".", "..", "a b", "a/b", &"x".repeat(250)] {
        assert_eq!(create(&topics, name, 1).unwrap_err(), ErrorCode::InvalidTopicException, "{name}");
    }
    for partitions in [0, -1, PARTITIONS_MAX + 1] {
        assert_eq!(create(&topics, "t", partitions).unwrap_err(), ErrorCode::InvalidPartitions);
    }
}

#[test]
fn the_log_of_groups_of_an_older_build_is_compacted_from_now_on_and_settings_of_users_stay() {
    let nodes = [NodeId(1)];
    let policy = |topics: &Topics| {
        let topic = topics.by_name(GROUP_TOPIC).unwrap();
        topic.configs().get("cleanup.policy").cloned()
    };
    let topics = topics();
    create(&topics, GROUP_TOPIC, 2).unwrap();
    topics.create_internal(&BrokerConfig::default(), &nodes);
    assert_eq!(policy(&topics).as_deref(), Some("compact"));
    let own = TopicConfigs::from([("cleanup.policy".to_owned(), "delete".to_owned())]);
    topics.set_configs(&topics.by_name(GROUP_TOPIC).unwrap(), own).unwrap();
    topics.create_internal(&BrokerConfig::default(), &nodes);
    assert_eq!(policy(&topics).as_deref(), Some("delete"));
}
