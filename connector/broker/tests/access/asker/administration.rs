//! Asks for what there is, for settings and for acls.

use kafka_protocol::messages::*;

use super::{Ask, Asker, NEW_TOPIC, group_id, topic_name};
use crate::asker::ID;
use crate::fixtures::{GROUP, TOPIC};

impl Asker {
    pub(super) async fn ask_as_admin(&mut self, ask: Ask) -> i16 {
        match ask {
            Ask::Metadata => {
                let topic =
                    metadata_request::MetadataRequestTopic::default().with_name(Some(topic_name(TOPIC)));
                let request = MetadataRequest::default().with_topics(Some(vec![topic]));
                ask!(self, request, 12, |answer| answer.topics[0].error_code)
            }
            Ask::DeleteGroups => {
                let request = DeleteGroupsRequest::default().with_groups_names(vec![group_id()]);
                ask!(self, request, 2, |answer| answer.results[0].error_code)
            }
            Ask::CreateTopics => {
                let topic = create_topics_request::CreatableTopic::default()
                    .with_name(topic_name(NEW_TOPIC))
                    .with_num_partitions(1)
                    .with_replication_factor(1);
                let request = CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(5_000);
                ask!(self, request, 7, |answer| answer.topics[0].error_code)
            }
            Ask::DeleteTopics => {
                let topic =
                    delete_topics_request::DeleteTopicState::default().with_name(Some(topic_name(NEW_TOPIC)));
                let request = DeleteTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(5_000);
                ask!(self, request, 6, |answer| answer.responses[0].error_code)
            }
            Ask::UpdateFeatures => {
                let request = UpdateFeaturesRequest::default().with_timeout_ms(1_000);
                ask!(self, request, 2, |answer| answer.error_code)
            }
            _find => {
                let (kind, key) = match ask {
                    Ask::FindGroup => (0, GROUP.to_owned()),
                    Ask::FindTransaction => (1, ID.to_owned()),
                    _share => (2, format!("{GROUP}:{}:0", self.topic_id)),
                };
                let request = FindCoordinatorRequest::default()
                    .with_key_type(kind)
                    .with_coordinator_keys(vec![key.into()]);
                ask!(self, request, 6, |answer| answer.coordinators[0].error_code)
            }
        }
    }

    pub(super) async fn ask_for_acls(&mut self, ask: Ask) -> i16 {
        const ANY: i8 = 1;
        match ask {
            Ask::DescribeAcls => {
                let request = DescribeAclsRequest::default()
                    .with_resource_type_filter(ANY)
                    .with_resource_name_filter(None)
                    .with_pattern_type_filter(ANY)
                    .with_principal_filter(None)
                    .with_host_filter(None)
                    .with_operation(ANY)
                    .with_permission_type(ANY);
                ask!(self, request, 3, |answer| answer.error_code)
            }
            Ask::CreateAcls => {
                let creation = create_acls_request::AclCreation::default()
                    .with_resource_type(3)
                    .with_resource_name("group-of-another".into())
                    .with_resource_pattern_type(3)
                    .with_principal("User:another".into())
                    .with_host("*".into())
                    .with_operation(3)
                    .with_permission_type(3);
                let request = CreateAclsRequest::default().with_creations(vec![creation]);
                ask!(self, request, 3, |answer| answer.results[0].error_code)
            }
            _delete => {
                let filter = delete_acls_request::DeleteAclsFilter::default()
                    .with_resource_type_filter(3)
                    .with_resource_name_filter(Some("group-of-another".into()))
                    .with_pattern_type_filter(3)
                    .with_principal_filter(None)
                    .with_host_filter(None)
                    .with_operation(ANY)
                    .with_permission_type(ANY);
                let request = DeleteAclsRequest::default().with_filters(vec![filter]);
                ask!(self, request, 3, |answer| answer.filter_results[0].error_code)
            }
        }
    }

    pub(super) async fn ask_for_configs(&mut self, ask: Ask) -> i16 {
        let (kind, name) = match ask {
            Ask::TopicConfigs => (2, TOPIC),
            Ask::GroupConfigs => (32, GROUP),
            _node => (4, "1"),
        };
        let resource = describe_configs_request::DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(name.into())
            .with_configuration_keys(None);
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        ask!(self, request, 4, |answer| answer.results[0].error_code)
    }

    pub(super) async fn alter_configs(&mut self, ask: Ask) -> i16 {
        let (kind, name) = if ask == Ask::AlterTopicConfigs { (2, TOPIC) } else { (32, GROUP) };
        let resource = incremental_alter_configs_request::AlterConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(name.into());
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        ask!(self, request, 1, |answer| answer.responses[0].error_code)
    }
}
