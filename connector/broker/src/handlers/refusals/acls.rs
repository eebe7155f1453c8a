//! Refused requests for acls.

use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::delete_acls_response::DeleteAclsFilterResult;
use kafka_protocol::messages::*;

use super::Refuse;

impl Refuse for CreateAclsRequest {
    fn refuse(self, _version: i16, code: i16) -> CreateAclsResponse {
        let results = self.creations.iter().map(|_| AclCreationResult::default().with_error_code(code));
        CreateAclsResponse::default().with_results(results.collect())
    }
}

impl Refuse for DeleteAclsRequest {
    fn refuse(self, _version: i16, code: i16) -> DeleteAclsResponse {
        let results = self.filters.iter().map(|_| DeleteAclsFilterResult::default().with_error_code(code));
        DeleteAclsResponse::default().with_filter_results(results.collect())
    }
}
