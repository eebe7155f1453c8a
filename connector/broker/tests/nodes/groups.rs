//! Memberships, which live in the memory of the group coordinator.

use sharestream_broker::GROUP_TOPIC;

use crate::cluster::{LONG, NOT_COORDINATOR, Nodes, UNKNOWN_MEMBER};
use crate::share::GROUP;

#[tokio::test(start_paused = true)]
async fn a_moved_group_coordinator_makes_members_join_again_with_higher_epochs() {
    let nodes = Nodes::start().await;
    nodes.produce(0).await;
    let mut alice = nodes.member("alice", 0).await;
    assert_eq!(alice.fetch(LONG).await, [(0, 9, 1)]);
    let mut transaction = nodes.producer("job-0").await;
    let partition = nodes.cluster.group_partition(GROUP);
    let former = nodes.group_coordinator();
    let session = std::mem::replace(&mut alice.connection, nodes.connection(former).await);
    assert_eq!(alice.heartbeat().await, 0);
    let old_epoch = alice.epoch;

    nodes.move_away(GROUP_TOPIC, partition);
    assert_eq!(alice.heartbeat().await, NOT_COORDINATOR);
    alice.connection = nodes.connection(nodes.group_coordinator()).await;
    assert_eq!(alice.heartbeat().await, UNKNOWN_MEMBER);
    assert!(nodes.cluster.groups().iter().all(|group| group.members.is_empty()));
    // The leader still believes the epoch for a second; then it asks.
    nodes.env.clock.sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(nodes.stage(&mut transaction, &alice, 0).await, UNKNOWN_MEMBER);
    assert_eq!(alice.join().await, 0);
    assert!(alice.epoch > old_epoch, "{} after {old_epoch}", alice.epoch);
    let members = &nodes.cluster.groups()[0].members;
    assert_eq!(
        members.iter().map(|(id, epoch)| (id.as_str(), epoch.0)).collect::<Vec<_>>(),
        [("alice", alice.epoch)]
    );

    // The former coordinator leads again and has forgotten what it knew.
    nodes.cluster.move_leader(GROUP_TOPIC, partition, former).unwrap();
    alice.connection = nodes.connection(former).await;
    assert_eq!(alice.heartbeat().await, UNKNOWN_MEMBER);
    assert_eq!(alice.join().await, 0);
    // Records that it holds are its own all the while: they depend on its session, not on its membership.
    alice.connection = session;
    assert_eq!(nodes.stage(&mut transaction, &alice, 0).await, 0);
    nodes.cluster.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_lives_on_when_its_coordinator_dies() {
    let nodes = Nodes::start().await;
    let mut alice = nodes.member("alice", 0).await;
    let dead = nodes.group_coordinator();
    nodes.cluster.kill_node(dead).await.unwrap();
    assert_ne!(nodes.cluster.fail_over(dead).unwrap(), 0);
    alice.connection = nodes.connection(nodes.group_coordinator()).await;
    assert_eq!(alice.heartbeat().await, UNKNOWN_MEMBER);
    assert_eq!(alice.join().await, 0);
    nodes.cluster.shutdown().await;
}
