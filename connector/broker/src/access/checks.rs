//! What handlers use of access control: they name resources, the table of requirements says what is asked of
//! them.

use std::sync::Arc;

use tracing::error;

use super::acl::{Operation, Resource, ResourceType};
use super::authentication::Caller;
use super::control::AccessControl;
use super::requirements::{self, Need, Or};
use crate::error::ErrorCode;

/// The checks of one request.
#[derive(Clone, Debug)]
pub(crate) struct Checks {
    /// `None` where everything is allowed.
    control: Option<Arc<AccessControl>>,
    caller: Arc<Caller>,
    api_key: i16,
}

impl Checks {
    /// For a request of a caller.
    pub(crate) fn new(control: &Arc<AccessControl>, caller: Arc<Caller>, api_key: i16) -> Self {
        let control = (control.is_on() && !caller.is_node).then(|| Arc::clone(control));
        Checks { control, caller, api_key }
    }

    /// True where nothing needs to be asked.
    pub(crate) fn do_everything(&self) -> bool {
        self.control.is_none()
    }

    /// What is asked before the handler sees the request. Errors: CLUSTER_AUTHORIZATION_FAILED.
    pub(crate) fn gate(&self, version: i16) -> Result<(), ErrorCode> {
        let Some(control) = &self.control else { return Ok(()) };
        match requirements::of(self.api_key).and_then(|of_api| of_api.gate) {
            Some(gate) if version >= gate.from_version => {
                self.check(control, &gate.need, &Resource::cluster())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The request's right to a topic. Errors: TOPIC_AUTHORIZATION_FAILED.
    pub(crate) fn topic(&self, name: &str) -> Result<(), ErrorCode> {
        self.resource(None, &Resource::topic(name))
    }

    /// The right of an API that asks for several of a topic. Errors: TOPIC_AUTHORIZATION_FAILED.
    pub(crate) fn topic_to(&self, operation: Operation, name: &str) -> Result<(), ErrorCode> {
        self.resource(Some(operation), &Resource::topic(name))
    }

    /// The request's right to a group. Errors: GROUP_AUTHORIZATION_FAILED.
    pub(crate) fn group(&self, name: &str) -> Result<(), ErrorCode> {
        self.resource(None, &Resource::group(name))
    }

    /// The request's right to a transactional id. Errors: TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
    pub(crate) fn transactional_id(&self, name: &str) -> Result<(), ErrorCode> {
        self.resource(None, &Resource::transactional_id(name))
    }

    /// The request's right to the cluster. Errors: CLUSTER_AUTHORIZATION_FAILED.
    pub(crate) fn cluster(&self) -> Result<(), ErrorCode> {
        self.resource(None, &Resource::cluster())
    }

    /// What the caller may do with a resource, as a set of bits by Kafka's codes (KIP-430).
    pub(crate) fn operations(&self, resource: &Resource<'_>) -> i32 {
        let principal = &self.caller.principal;
        let may = |operation| match &self.control {
            Some(control) => control.authorize(principal, operation, resource),
            None => true,
        };
        let allowed = requirements::operations_of(resource.kind).iter().filter(|operation| may(**operation));
        allowed.fold(0, |bits, operation| bits | (1 << operation.code()))
    }

    /// What the caller may do with the cluster; nothing is told to those who may not describe it.
    pub(crate) fn cluster_operations(&self) -> i32 {
        match &self.control {
            Some(control)
                if !control.authorize(&self.caller.principal, Operation::Describe, &Resource::cluster()) =>
            {
                0
            }
            Some(_) | None => self.operations(&Resource::cluster()),
        }
    }

    fn resource(&self, operation: Option<Operation>, resource: &Resource<'_>) -> Result<(), ErrorCode> {
        let Some(control) = &self.control else { return Ok(()) };
        let fits =
            |need: &&Need| need.kind == resource.kind && operation.is_none_or(|op| op == need.operation);
        let needs = requirements::of(self.api_key).map_or(&[][..], |of_api| of_api.needs);
        match needs.iter().find(fits) {
            Some(need) => self.check(control, need, resource),
            None => {
                // A handler asks what the table does not have: a defect, and no reason to let anybody
                // through.
                error!(api_key = self.api_key, kind = ?resource.kind, "no requirement is written down");
                Err(refusal_of(resource.kind))
            }
        }
    }

    fn check(&self, control: &AccessControl, need: &Need, resource: &Resource<'_>) -> Result<(), ErrorCode> {
        let principal = &self.caller.principal;
        let allowed = control.authorize(principal, need.operation, resource)
            || match need.or {
                Or::Nothing => false,
                Or::Cluster(operation) => control.authorize(principal, operation, &Resource::cluster()),
                Or::AnyTopic(operation) => control.authorize_any(principal, operation, ResourceType::Topic),
            };
        if allowed { Ok(()) } else { Err(refusal_of(resource.kind)) }
    }
}

/// The error of a resource that may not be used.
fn refusal_of(kind: ResourceType) -> ErrorCode {
    match kind {
        ResourceType::Topic => ErrorCode::TopicAuthorizationFailed,
        ResourceType::Group => ErrorCode::GroupAuthorizationFailed,
        ResourceType::Cluster => ErrorCode::ClusterAuthorizationFailed,
        ResourceType::TransactionalId => ErrorCode::TransactionalIdAuthorizationFailed,
    }
}
