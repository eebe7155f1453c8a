//! Faults on demand: what a test plants between a client and the broker to see what its own code does then.
//!
//! A [`Fault`] says which requests it is for (API, node, client id), how many of them pass first, how many it meets,
//! and what happens to those ([`FaultAction`]). [`FaultPlan`] is where they are planted, while the broker runs. The
//! nodes of a broker speak to each other as clients named `node-1`, `node-2` and so on, so that their requests can be
//! met too.
//!
//! A user whose handler must not count an order twice when the answer to its write is lost:
//!
//! ```
//! # mod my_app {
//! #     use bytes::BytesMut;
//! #     use kafka_protocol::messages::create_topics_request::CreatableTopic;
//! #     use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
//! #     use kafka_protocol::messages::{CreateTopicsRequest, InitProducerIdRequest, ProduceRequest, TopicName};
//! #     use kafka_protocol::protocol::Request;
//! #     use sharestream_base::{Env, HostPort};
//! #     use sharestream_wire::frame::{self, FrameDecoder};
//! #     use sharestream_wire::records::{BatchBuilder, BatchMeta};
//! #     use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! #     pub(crate) struct Orders { env: Env, at: HostPort, producer: (i64, i16), topic: TopicName }
//! #     impl Orders {
//! #         pub(crate) async fn open(env: Env, at: HostPort) -> Orders {
//! #             let topic = TopicName("orders".into());
//! #             let mut orders = Orders { env, at, producer: (-1, -1), topic: topic.clone() };
//! #             let new = CreatableTopic::default().with_name(topic).with_num_partitions(1);
//! #             let create = CreateTopicsRequest::default().with_topics(vec![new.with_replication_factor(1)]);
//! #             orders.call(&create, 7).await.unwrap();
//! #             let init = InitProducerIdRequest::default().with_transaction_timeout_ms(1);
//! #             let init = init.with_transactional_id(None).with_producer_id((-1).into()).with_producer_epoch(-1);
//! #             let given = orders.call(&init, 5).await.unwrap();
//! #             orders.producer = (given.producer_id.0, given.producer_epoch);
//! #             orders
//! #         }
//! #         pub(crate) async fn record(&mut self, order: &str) -> usize {
//! #             let mut builder = BatchBuilder::new();
//! #             builder.append(0, None, Some(order.as_bytes()), &[]).unwrap();
//! #             let (producer_id, producer_epoch) = self.producer;
//! #             let meta = BatchMeta { producer_id, producer_epoch, base_sequence: 0, ..BatchMeta::default() };
//! #             let data = PartitionProduceData::default().with_records(Some(builder.build(&meta).unwrap()));
//! #             let data = TopicProduceData::default().with_name(self.topic.clone()).with_partition_data(vec![data]);
//! #             let request = ProduceRequest::default().with_transactional_id(None).with_acks(-1);
//! #             let request = request.with_topic_data(vec![data]);
//! #             for attempt in 1..10 {
//! #                 let Some(answer) = self.call(&request, 9).await else { continue };
//! #                 let code = answer.responses[0].partition_responses[0].error_code;
//! #                 println!("attempt {attempt}: {code}");
//! #                 if code == 0 { return attempt; }
//! #             }
//! #             panic!("the order is not recorded")
//! #         }
//! #         async fn call<R: Request>(&self, request: &R, version: i16) -> Option<R::Response> {
//! #             let mut io = self.env.network.connect(&self.at).await.ok()?;
//! #             io.write_all(&frame::encode_request(request, version, 1, "shop").unwrap()).await.ok()?;
//! #             let mut buffer = BytesMut::new();
//! #             loop {
//! #                 if let Some(answer) = FrameDecoder::new(1 << 20).next(&mut buffer).unwrap() {
//! #                     return Some(frame::decode_response::<R>(answer, version).unwrap().1);
//! #                 }
//! #                 if io.read_buf(&mut buffer).await.ok()? == 0 { return None; }
//! #             }
//! #         }
//! #     }
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use sharestream_broker::faults::{Fault, FaultAction};
//! use sharestream_broker::{ApiKey, Broker, KafkaError};
//!
//! let env = sharestream_base::Env::system();
//! let broker = Broker::builder(env.clone()).start().await?;
//! let mut orders = my_app::Orders::open(env, broker.address().clone()).await;
//!
//! // The first attempt is written, but its answer is lost; the second is refused; the third gets through.
//! let lost = Fault::new(FaultAction::DisconnectAfter).api(ApiKey::PRODUCE).client_id("shop");
//! let lost = broker.faults().plant(lost)?;
//! let refused = Fault::new(FaultAction::Error(KafkaError::NOT_LEADER_OR_FOLLOWER)).api(ApiKey::PRODUCE);
//! broker.faults().plant(refused)?;
//!
//! assert_eq!(orders.record("order 17").await, 3, "attempts");
//! assert_eq!(broker.faults().struck(lost), 1);
//! assert_eq!(broker.cluster().committed_records("orders", 0.into()).len(), 1, "the order is counted once");
//! broker.shutdown().await;
//! # Ok::<_, sharestream_broker::Error>(()) }).unwrap();
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sharestream_base::ErrorKind;
use sharestream_base::ids::NodeId;
use sharestream_wire::KafkaError;
use sharestream_wire::api::ApiKey;

use crate::error::{Error, Result};

/// Most faults that are planted at a time: each request is compared with all of them.
const PLANTED_MAX: usize = 1_000;

/// What happens to a request that a fault meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultAction {
    /// It is not served, and answered with this error wherever its answer has a place for one: for the whole, or for
    /// each topic, partition, group or id that it names.
    Error(KafkaError),
    /// It is served so much later. Requests behind it on the same connection wait too, as always.
    Delay(Duration),
    /// It is not served and never answered; the connection stays open.
    DropBefore,
    /// It is served and never answered; the connection stays open.
    DropAfter,
    /// It is not served, and its connection is closed.
    DisconnectBefore,
    /// It is served, and its connection is closed in place of the answer.
    DisconnectAfter,
    /// It is served, so many bytes of the answer are sent (its length prefix of four bytes included), and then its
    /// connection is closed. An answer that is not longer is sent whole.
    PartialWrite {
        /// Bytes that are sent.
        bytes: usize,
    },
}

/// A fault and the requests that it is for. Without a filter it is for every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    action: FaultAction,
    api: Option<ApiKey>,
    node: Option<NodeId>,
    client_id: Option<String>,
    after: u64,
    times: u64,
}

impl Fault {
    /// Strikes once, at the first request.
    pub fn new(action: FaultAction) -> Self {
        Fault { action, api: None, node: None, client_id: None, after: 0, times: 1 }
    }

    /// Only requests of this API.
    #[must_use]
    pub fn api(mut self, api: ApiKey) -> Self {
        self.api = Some(api);
        self
    }

    /// Only requests to this node.
    #[must_use]
    pub fn node(mut self, node: NodeId) -> Self {
        self.node = Some(node);
        self
    }

    /// Only requests of clients that call themselves so (`client.id`).
    #[must_use]
    pub fn client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = Some(client_id.into());
        self
    }

    /// Lets so many of them pass first. Default 0.
    #[must_use]
    pub fn after(mut self, requests: u64) -> Self {
        self.after = requests;
        self
    }

    /// Strikes so many of them, one after another; `u64::MAX` for ever. Default 1.
    #[must_use]
    pub fn times(mut self, requests: u64) -> Self {
        self.times = requests;
        self
    }

    fn is_for(&self, node: NodeId, api: ApiKey, client_id: Option<&str>) -> bool {
        self.api.is_none_or(|wanted| wanted == api)
            && self.node.is_none_or(|wanted| wanted == node)
            && self.client_id.as_deref().is_none_or(|wanted| client_id == Some(wanted))
    }
}

/// Names a planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FaultId(u64);

#[derive(Debug)]
struct Planted {
    id: FaultId,
    fault: Fault,
    met: u64,
    struck: u64,
}

#[derive(Debug, Default)]
struct Faults {
    planted: Vec<Planted>,
    last_id: u64,
}

/// The faults of a broker, in the order in which they were planted: a request that is for several is struck by the
/// first that is due, and the later ones do not count it.
#[derive(Debug, Default)]
pub struct FaultPlan {
    /// Most brokers have no fault ever: their requests look here only.
    any: AtomicBool,
    faults: Mutex<Faults>,
}

impl FaultPlan {
    /// Plants a fault; it counts requests from now on. One that has struck as often as it may stays, and does nothing.
    ///
    /// Errors: InvalidInput (1,000 are planted already).
    pub fn plant(&self, fault: Fault) -> Result<FaultId> {
        let mut faults = self.lock();
        if faults.planted.len() >= PLANTED_MAX {
            let text = format!("{PLANTED_MAX} faults are planted already: remove some");
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        faults.last_id += 1;
        let id = FaultId(faults.last_id);
        faults.planted.push(Planted { id, fault, met: 0, struck: 0 });
        self.any.store(true, Ordering::Release);
        Ok(id)
    }

    /// How often a fault has struck; 0 for one that was removed.
    pub fn struck(&self, id: FaultId) -> u64 {
        self.lock().planted.iter().find(|planted| planted.id == id).map_or(0, |planted| planted.struck)
    }

    /// Removes a fault. False when it is not there any more.
    pub fn remove(&self, id: FaultId) -> bool {
        let mut faults = self.lock();
        let before = faults.planted.len();
        faults.planted.retain(|planted| planted.id != id);
        self.any.store(!faults.planted.is_empty(), Ordering::Release);
        faults.planted.len() < before
    }

    /// Removes every fault.
    pub fn clear(&self) {
        self.lock().planted.clear();
        self.any.store(false, Ordering::Release);
    }

    /// What happens to a request. Counts it.
    pub(crate) fn meet(&self, node: NodeId, api: ApiKey, client_id: Option<&str>) -> Option<FaultAction> {
        if !self.is_planted() {
            return None;
        }
        for planted in &mut self.lock().planted {
            if !planted.fault.is_for(node, api, client_id) {
                continue;
            }
            planted.met += 1;
            if planted.met > planted.fault.after && planted.struck < planted.fault.times {
                planted.struck += 1;
                return Some(planted.fault.action);
            }
        }
        None
    }

    /// True when there is any.
    pub(crate) fn is_planted(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DROP: FaultAction = FaultAction::DropBefore;

    fn meet(plan: &FaultPlan, node: i32, api: ApiKey, client: &str) -> Option<FaultAction> {
        plan.meet(NodeId(node), api, Some(client))
    }

    #[test]
    fn a_fault_meets_what_it_is_for_after_so_many_so_often() {
        let plan = FaultPlan::default();
        let fault = Fault::new(DROP).api(ApiKey::FETCH).node(NodeId(2)).client_id("a").after(1).times(2);
        let id = plan.plant(fault).unwrap();
        for other in [(1, ApiKey::FETCH, "a"), (2, ApiKey::PRODUCE, "a"), (2, ApiKey::FETCH, "b")] {
            assert_eq!(meet(&plan, other.0, other.1, other.2), None);
        }
        let met: Vec<_> = (0..5).map(|_| meet(&plan, 2, ApiKey::FETCH, "a").is_some()).collect();
        assert_eq!(met, [false, true, true, false, false]);
        assert_eq!(plan.struck(id), 2);
        assert!(plan.remove(id) && !plan.remove(id));
        assert!(!plan.is_planted());
    }

    #[test]
    fn the_first_that_is_due_strikes_and_the_next_ones_do_not_count_it() {
        let plan = FaultPlan::default();
        let first = plan.plant(Fault::new(DROP)).unwrap();
        let second = plan.plant(Fault::new(FaultAction::DropAfter)).unwrap();
        let actions: Vec<_> = (0..3).map(|_| meet(&plan, 1, ApiKey::FETCH, "a")).collect();
        assert_eq!(actions, [Some(DROP), Some(FaultAction::DropAfter), None]);
        assert_eq!((plan.struck(first), plan.struck(second)), (1, 1));
        plan.clear();
        for _ in 0..PLANTED_MAX {
            plan.plant(Fault::new(DROP)).unwrap();
        }
        assert_eq!(plan.plant(Fault::new(DROP)).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
