//! Asks the coordinators of transactions.

use kafka_protocol::messages::*;

use super::{Ask, Asker, topic_name, transactional_id};
use crate::fixtures::TOPIC;

impl Asker {
    pub(super) async fn ask_for_transactions(&mut self, ask: Ask) -> i16 {
        let partitions = || {
            add_partitions_to_txn_request::AddPartitionsToTxnTopic::default()
                .with_name(topic_name(TOPIC))
                .with_partitions(vec![0])
        };
        match ask {
            Ask::InitTransaction | Ask::InitIdempotent => {
                let request = InitProducerIdRequest::default()
                    .with_transactional_id((ask == Ask::InitTransaction).then(transactional_id))
                    .with_transaction_timeout_ms(1_000)
                    .with_producer_id((-1).into())
                    .with_producer_epoch(-1);
                ask!(self, request, 5, |answer| answer.error_code)
            }
            Ask::AddPartitions => {
                let request = AddPartitionsToTxnRequest::default()
                    .with_v3_and_below_transactional_id(transactional_id())
                    .with_v3_and_below_topics(vec![partitions()]);
                ask!(self, request, 3, |answer| {
                    let topic = &answer.results_by_topic_v3_and_below[0];
                    topic.results_by_partition[0].partition_error_code
                })
            }
            Ask::AddPartitionsFromLeader => {
                let transaction = add_partitions_to_txn_request::AddPartitionsToTxnTransaction::default()
                    .with_transactional_id(transactional_id())
                    .with_topics(vec![partitions()]);
                let request = AddPartitionsToTxnRequest::default().with_transactions(vec![transaction]);
                ask!(self, request, 5, |answer| answer.error_code)
            }
            Ask::EndTxn => {
                let request = EndTxnRequest::default().with_transactional_id(transactional_id());
                ask!(self, request, 5, |answer| answer.error_code)
            }
            Ask::WriteTxnMarkers => {
                let topic = write_txn_markers_request::WritableTxnMarkerTopic::default()
                    .with_name(topic_name(TOPIC))
                    .with_partition_indexes(vec![0]);
                let marker = write_txn_markers_request::WritableTxnMarker::default().with_topics(vec![topic]);
                let request = WriteTxnMarkersRequest::default().with_markers(vec![marker]);
                ask!(self, request, 1, |answer| answer.markers[0].topics[0].partitions[0].error_code)
            }
            _describe => {
                let request =
                    DescribeTransactionsRequest::default().with_transactional_ids(vec![transactional_id()]);
                ask!(self, request, 0, |answer| answer.transaction_states[0].error_code)
            }
        }
    }
}
