//! Transactional ids that nobody has used for long are forgotten (Kafka: `transactional.id.expiration.ms`).
//!
//! Only an id with nothing open or under way goes: a tombstone in the log, then in memory. A producer that comes back
//! is told INVALID_PRODUCER_ID_MAPPING, as in Kafka, and begins anew.

use std::sync::Arc;
use std::time::Duration;

use sharestream_wire::records::{BatchBuilder, BatchMeta};
use tracing::{info, warn};

use super::{Coordinator, Shard};
use crate::error::ErrorCode;
use crate::log::Origin;
use crate::node::Node;
use crate::txn::log;
use crate::txn::state::{State, Transaction};

impl Coordinator {
    /// Forgets every id that has been idle for as long as the settings say.
    pub(super) fn expire_idle_ones(&self, node: &Node) {
        let now_ms = node.env.clock.wall_ms();
        for shard in self.lock().values_mut() {
            let idle =
                |machine: &Transaction| is_idle(machine, now_ms, node.config.transactional_id_expiration);
            let machines = shard.machines.iter();
            let expired: Vec<Arc<str>> =
                machines.filter(|(_, machine)| idle(machine)).map(|(id, _)| Arc::clone(id)).collect();
            for id in expired {
                match shard.forget(&id, now_ms) {
                    Ok(()) => info!(transactional_id = %id, "a transactional id expired"),
                    // Whoever leads now, or a later check, does it.
                    Err(code) => warn!(transactional_id = %id, %code, "a transactional id was not expired"),
                }
            }
        }
    }
}

impl Shard {
    /// Errors: NOT_LEADER_OR_FOLLOWER (deposed meanwhile), KAFKA_STORAGE_ERROR; nothing has changed.
    fn forget(&mut self, id: &str, now_ms: i64) -> Result<(), ErrorCode> {
        let mut builder = BatchBuilder::new();
        let failed = |_| ErrorCode::UnknownServerError;
        builder.append(now_ms, Some(&log::encode_key(id)), None, &[]).map_err(failed)?;
        let tombstone = builder.build(&BatchMeta::default()).map_err(failed)?;
        self.led.append(&tombstone, Origin::Coordinator)?;
        self.machines.remove(id);
        Ok(())
    }
}

/// True when nothing is open or under way and the last change is so long ago.
fn is_idle(machine: &Transaction, now_ms: i64, expiration: Duration) -> bool {
    let record = machine.record();
    match &record.state {
        State::Empty { .. } | State::CompleteCommit(_) | State::CompleteAbort(_) => {
            let idle_ms = now_ms.saturating_sub(record.updated_ms);
            u128::try_from(idle_ms).is_ok_and(|idle_ms| idle_ms >= expiration.as_millis())
        }
        State::Ongoing(_) | State::PrepareCommit(..) | State::PrepareAbort(..) => false,
    }
}

#[cfg(test)]
mod tests {
    use sharestream_base::Env;

    use super::*;
    use crate::broker::Broker;
    use crate::config::BrokerConfig;
    use crate::log::TransactionVersion;
    use crate::txn::Outcome;

    #[tokio::test(start_paused = true)]
    async fn an_idle_id_is_forgotten_in_memory_and_in_the_log_and_its_producer_begins_anew() {
        let hour = Duration::from_secs(3_600);
        let config = BrokerConfig { transactional_id_expiration: hour, ..BrokerConfig::default() };
        let broker = Broker::builder(Env::seeded(5)).config(config).start().await.unwrap();
        let node = &broker.node();
        let idle = node.transactions.init(node, "idle", None, 60_000).unwrap();
        node.env.clock.sleep(hour / 2).await;
        let busy = node.transactions.init(node, "busy", None, 60_000).unwrap();
        node.env.clock.sleep(hour / 2 + Duration::from_secs(1)).await;
        let known = |id: &str| node.transactions.describe(node, id).map(|one| one.identity);
        assert_eq!(known("idle"), Err(ErrorCode::TransactionalIdNotFound));
        assert_eq!(known("busy"), Ok(busy));
        let ended = node.transactions.end(node, "idle", idle, TransactionVersion::V2, Outcome::Abort);
        assert_eq!(ended, Err(ErrorCode::InvalidProducerIdMapping));
        let fresh = Coordinator::new();
        fresh.follow_leaderships(node);
        let ids: Vec<_> = fresh.summaries().iter().map(|one| one.transactional_id.to_string()).collect();
        assert_eq!(ids, ["busy"]);
        let again = node.transactions.init(node, "idle", Some(idle), 60_000).unwrap();
        assert_ne!(again.producer_id, idle.producer_id);
        assert_eq!(again.epoch.0, 0);
        broker.shutdown().await;
    }
}
