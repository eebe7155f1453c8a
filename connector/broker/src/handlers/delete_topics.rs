//! DeleteTopics, by name or by id.

use std::sync::Arc;

use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse, TopicName};
use kafka_protocol::protocol::StrBytes;
use sharestream_base::ids::TopicId;

use super::RequestContext;
use crate::access::Operation;
use crate::error::ErrorCode;
use crate::node::Node;

pub(crate) async fn handle(
    node: &Arc<Node>,
    context: &RequestContext,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let by_name =
        request.topic_names.into_iter().map(|name| DeleteTopicState::default().with_name(Some(name)));
    let asked = request.topics.into_iter().chain(by_name);
    let responses = asked.map(|asked| delete(node, context, asked)).collect();
    DeleteTopicsResponse::default().with_responses(responses)
}

fn delete(node: &Node, context: &RequestContext, asked: DeleteTopicState) -> DeletableTopicResult {
    let topics = &node.cluster.topics;
    let name = match &asked.name {
        Some(name) => Some(name.to_string()),
        None => topics.by_id(TopicId(asked.topic_id)).map(|topic| topic.name.to_string()),
    };
    let version = context.version;
    let deleted = match &name {
        Some(name) => context.may.topic(name).and_then(|()| topics.delete(name)),
        None => Err(ErrorCode::UnknownTopicId),
    };
    // The name of a topic that was given by its id is told to those who may describe it.
    let shown =
        |name: &String| asked.name.is_some() || context.may.topic_to(Operation::Describe, name).is_ok();
    let name = name.filter(shown).map(|name| TopicName(StrBytes::from_string(name)));
    let result = DeletableTopicResult::default().with_name(name);
    match deleted {
        Ok(id) if version >= 6 => result.with_topic_id(id.0),
        Ok(_) => result,
        Err(code) => {
            let text = (version >= 5).then(|| StrBytes::from_string(code.to_string()));
            result.with_topic_id(asked.topic_id).with_error_code(code.code()).with_error_message(text)
        }
    }
}
