//! DescribeCluster: nodes and cluster id, for admin clients (KIP-700).

use std::sync::Arc;

use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::{BrokerId, DescribeClusterRequest, DescribeClusterResponse};
use kafka_protocol::protocol::StrBytes;

use super::RequestContext;
use crate::node::Node;

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    let brokers = node.cluster.nodes().into_iter().map(|known| {
        DescribeClusterBroker::default()
            .with_broker_id(BrokerId(known.node.0))
            .with_host(StrBytes::from_string(known.address.host))
            .with_port(i32::from(known.address.port))
    });
    let response = match request.include_cluster_authorized_operations {
        true => DescribeClusterResponse::default()
            .with_cluster_authorized_operations(context.may.cluster_operations()),
        false => DescribeClusterResponse::default(),
    };
    response
        .with_endpoint_type(request.endpoint_type)
        .with_cluster_id(StrBytes::from_string(node.cluster.id.clone()))
        .with_controller_id(BrokerId(node.cluster.controller().map_or(-1, |controller| controller.0)))
        .with_brokers(brokers.collect())
}
