//! Share groups on one node (KIP-932): what handlers and the rest of the broker ask of them.
//!
//! ```text
//! handlers ── ShareServices ──┬── group::GroupCoordinator   members, epochs, assignment
//!                             ├── manager::ShareManager     share partitions led here, share sessions
//!                             │      └── leader::ShareLeader ── share_partition (pure) ── record_state (pure)
//!                             └── ShareCoordinator          durable share state, transactions' ends
//! ```

mod dead_letters;
pub(crate) mod durable;
pub(crate) mod leader;
pub(crate) mod manager;
pub(crate) mod member_epochs;
pub(crate) mod offsets;
pub(crate) mod record_state;
pub(crate) mod session;
pub(crate) mod share_partition;
mod window;

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use sharestream_base::TaskKind;
use sharestream_base::ids::{PartitionIndex, ProducerEpoch, ProducerId};

use self::manager::ShareManager;
use self::member_epochs::MemberEpochs;
use self::record_state::{Marker, TxnOutcome};
use crate::error::ErrorCode;
use crate::features::STAGING;
use crate::group::GroupCoordinator;
use crate::handlers::ConnectionId;
use crate::node::Node;
use crate::share_coordinator::ShareCoordinator;

/// How often locks and memberships are checked for their time.
const TICK: Duration = Duration::from_millis(20);
/// How often logs are looked through for values that older readers refuse, while the level is low.
const VERSION_CHECK: Duration = Duration::from_secs(5);
/// Ticks between two looks for share partitions that nobody uses.
const TICKS_PER_SWEEP: u32 = 50;
/// Sweeps between two looks at the durable state of every loaded share partition.
const SWEEPS_PER_LOOK: u32 = 3;

/// The share half of a node.
#[derive(Debug)]
pub(crate) struct ShareServices {
    /// Groups that this node coordinates.
    pub(crate) groups: GroupCoordinator,
    /// Share partitions that this node leads.
    pub(crate) manager: ShareManager,
    /// Durable share state that this node coordinates.
    pub(crate) coordinator: ShareCoordinator,
    /// Member epochs of other nodes' groups, for staging.
    pub(crate) member_epochs: MemberEpochs,
    node: OnceLock<Weak<Node>>,
}

/// A group as ListGroups shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedGroup {
    /// Its id.
    pub(crate) group: String,
    /// As Kafka prints it: `Empty`, `Stable`, `Dead`.
    pub(crate) state: &'static str,
}

/// One setting of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupConfigEntry {
    /// Kafka's key.
    pub(crate) name: &'static str,
    /// Its value, set or default.
    pub(crate) value: String,
    /// Not set for this group.
    pub(crate) is_default: bool,
}

impl ShareServices {
    /// Without groups.
    pub(crate) fn new() -> Self {
        ShareServices {
            groups: GroupCoordinator::default(),
            manager: ShareManager::new(),
            coordinator: ShareCoordinator::default(),
            member_epochs: MemberEpochs::default(),
            node: OnceLock::new(),
        }
    }

    /// Starts what runs by itself (lock and session time-outs) through [`Node::spawn`].
    pub(crate) fn start(&self, node: &Arc<Node>) {
        // Started once for each node; a second start would find the same node there.
        let _first = self.node.set(Arc::downgrade(node));
        let owner = Arc::clone(node);
        node.spawn("share-timer", TaskKind::Service, async move {
            let mut ticks = 0u32;
            loop {
                tokio::select! {
                    biased;
                    () = owner.stop.cancelled() => return,
                    () = owner.env.clock.sleep(TICK) => {}
                }
                owner.share.manager.expire_locks(&owner);
                owner.share.groups.tick(&owner, owner.env.clock.now());
                ticks = ticks.wrapping_add(1);
                if ticks.is_multiple_of(TICKS_PER_SWEEP) {
                    owner.share.manager.drop_idle();
                    owner.keep_logs();
                }
            }
        });
        let keeper = Arc::clone(node);
        node.spawn("share-versions", TaskKind::Service, async move {
            let mut levels = keeper.cluster.features.watch();
            loop {
                keeper.share.manager.follow_level(&keeper);
                if keeper.cluster.features.share_version() < STAGING {
                    keeper.share.coordinator.snapshot_for_old_readers(&keeper);
                }
                // Also now and then: partitions move, and a snapshot may fail.
                tokio::select! {
                    biased;
                    () = keeper.stop.cancelled() => return,
                    _ = levels.changed() => {}
                    () = keeper.env.clock.sleep(VERSION_CHECK) => {}
                }
            }
        });
        // Apart from the timer: a share coordinator that does not answer must not hold the locks' time.
        let asker = Arc::clone(node);
        node.spawn("share-refresh", TaskKind::Service, async move {
            let mut rounds = 0u32;
            loop {
                tokio::select! {
                    biased;
                    () = asker.stop.cancelled() => return,
                    () = asker.env.clock.sleep(TICK * TICKS_PER_SWEEP) => {}
                }
                rounds = rounds.wrapping_add(1);
                asker.share.manager.refresh(&asker, rounds.is_multiple_of(SWEEPS_PER_LOOK)).await;
            }
        });
    }

    /// A connection has ended: its share sessions end with it. Called exactly once for each, also at shutdown.
    pub(crate) fn connection_closed(&self, connection: ConnectionId) {
        let (closed, writes) = self.manager.close_connection(connection);
        if closed.is_empty() {
            return;
        }
        match self.node.get().and_then(Weak::upgrade) {
            Some(node) if !node.stop.is_cancelled() && !writes.is_empty() => {
                ShareManager::finish_in_background(&node, writes);
            }
            Some(_) | None => self.manager.drop_idle(),
        }
    }

    /// A marker reached a partition of `__share_group_state` that this node leads. Resolves every pending entry of
    /// the producer with a staged epoch below `marker_epoch`, tells the source leaders, then answers. Repetitions
    /// succeed.
    pub(crate) async fn complete_transaction(
        &self,
        node: &Arc<Node>,
        partition: PartitionIndex,
        producer_id: ProducerId,
        marker_epoch: ProducerEpoch,
        commit: bool,
    ) -> Result<(), ErrorCode> {
        let outcome = if commit { TxnOutcome::Commit } else { TxnOutcome::Abort };
        let marker = Marker { producer_id, producer_epoch: marker_epoch, outcome };
        self.coordinator.complete_transaction(node, partition, marker).await
    }

    /// Every group.
    pub(crate) fn list_groups(&self) -> Vec<ListedGroup> {
        self.groups.list()
    }
}
