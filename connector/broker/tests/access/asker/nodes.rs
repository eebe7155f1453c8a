//! Asks for what only nodes ask.

use kafka_protocol::messages::*;
use sharestream_wire::messages::initialize_share_group_state as initialize;
use sharestream_wire::messages::read_share_group_state as read_state;
use sharestream_wire::messages::share_txn_outcome::ShareTxnOutcomeRequest;
use sharestream_wire::messages::write_share_group_state as write_state;

use super::{Ask, Asker};
use crate::fixtures::GROUP;

impl Asker {
    pub(super) async fn ask_as_node(&mut self, ask: Ask) -> i16 {
        let topic_id = self.topic_id;
        match ask {
            Ask::InitializeState => {
                let partitions = vec![initialize::PartitionData::default()];
                let request = initialize::InitializeShareGroupStateRequest {
                    group_id: GROUP.into(),
                    topics: vec![initialize::InitializeStateData { topic_id, partitions }],
                };
                ask!(self, request, 10, |answer| answer.results[0].partitions[0].error_code)
            }
            Ask::ReadState => {
                let data = read_state::PartitionData { leader_epoch: -1, ..Default::default() };
                let topics = vec![read_state::ReadStateData { topic_id, partitions: vec![data] }];
                let request = read_state::ReadShareGroupStateRequest { group_id: GROUP.into(), topics };
                ask!(self, request, 10, |answer| answer.results[0].partitions[0].error_code)
            }
            Ask::WriteState => {
                let partitions = vec![write_state::PartitionData::default()];
                let topics = vec![write_state::WriteStateData { topic_id, partitions }];
                let request = write_state::WriteShareGroupStateRequest { group_id: GROUP.into(), topics };
                ask!(self, request, 10, |answer| answer.results[0].partitions[0].error_code)
            }
            Ask::DeleteState => {
                use delete_share_group_state_request as asked;
                let topic = asked::DeleteStateData::default()
                    .with_topic_id(topic_id)
                    .with_partitions(vec![asked::PartitionData::default()]);
                let request = DeleteShareGroupStateRequest::default()
                    .with_group_id(GROUP.into())
                    .with_topics(vec![topic]);
                ask!(self, request, 0, |answer| answer.results[0].partitions[0].error_code)
            }
            _outcome => {
                let request = ShareTxnOutcomeRequest {
                    group_id: GROUP.into(),
                    topic_id,
                    ..ShareTxnOutcomeRequest::default()
                };
                ask!(self, request, 0, |answer| answer.error_code)
            }
        }
    }
}
