//! Which acls an administrator means: filters of DescribeAcls and DeleteAcls, and acls of CreateAcls, by
//! Kafka's codes.

use super::acl::{
    Acl, CLUSTER_NAME, EVERY_NAME, Operation, Permission, Principal, ResourcePattern, ResourceType,
};

/// Code of a filter that all values pass.
const ANY: i8 = 1;
/// Pattern types: any whose pattern the named resource has; literal; prefix.
const PATTERN_MATCH: i8 = 2;
const PATTERN_LITERAL: i8 = 3;
const PATTERN_PREFIXED: i8 = 4;
/// The only host that acls of this broker are for.
pub(crate) const EVERY_HOST: &str = "*";

/// An acl as it is on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireAcl<'a> {
    /// Type of the resource.
    pub(crate) resource_type: i8,
    /// Its name.
    pub(crate) resource_name: &'a str,
    /// Literal or prefix.
    pub(crate) pattern_type: i8,
    /// Who.
    pub(crate) principal: &'a str,
    /// From where.
    pub(crate) host: &'a str,
    /// Does what.
    pub(crate) operation: i8,
    /// May or may not.
    pub(crate) permission: i8,
}

impl WireAcl<'_> {
    /// The acl. `Err` says what is wrong with it, in words for the client.
    pub(crate) fn read(&self) -> Result<Acl, String> {
        let unknown = |what: &str, code: i8| format!("{what} {code} is none that an acl can have");
        let kind = ResourceType::from_code(self.resource_type)
            .ok_or_else(|| unknown("resource type", self.resource_type))?;
        let operation =
            Operation::from_code(self.operation).ok_or_else(|| unknown("operation", self.operation))?;
        let permission =
            Permission::from_code(self.permission).ok_or_else(|| unknown("permission", self.permission))?;
        if ![PATTERN_LITERAL, PATTERN_PREFIXED].contains(&self.pattern_type) {
            return Err(unknown("pattern type", self.pattern_type));
        }
        if self.resource_name.is_empty() {
            return Err("the resource has no name".to_owned());
        }
        if kind == ResourceType::Cluster && self.resource_name != CLUSTER_NAME {
            return Err(format!("the only cluster is named {CLUSTER_NAME}"));
        }
        if self.host != EVERY_HOST {
            return Err("the embedded broker has acls for all hosts only: the host must be *".to_owned());
        }
        let principal = Principal::parse(self.principal)
            .ok_or_else(|| "a principal is written Type:name, such as User:alice".to_owned())?;
        let is_prefix = self.pattern_type == PATTERN_PREFIXED;
        let on = ResourcePattern { kind, name: self.resource_name.to_owned(), is_prefix };
        Ok(Acl { principal, permission, operation, on })
    }
}

/// Which acls are meant. `None` and the code for any let all pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filter<'a> {
    /// Type of the resource.
    pub(crate) resource_type: i8,
    /// Its name.
    pub(crate) resource_name: Option<&'a str>,
    /// Literal, prefix, any of them, or any that the named resource has.
    pub(crate) pattern_type: i8,
    /// Who.
    pub(crate) principal: Option<&'a str>,
    /// From where.
    pub(crate) host: Option<&'a str>,
    /// Does what.
    pub(crate) operation: i8,
    /// May or may not.
    pub(crate) permission: i8,
}

impl Filter<'_> {
    /// True for what is meant.
    pub(crate) fn passes(&self, acl: &Acl) -> bool {
        let one = |filter: i8, code: i8| filter == ANY || filter == code;
        one(self.resource_type, acl.on.kind.code())
            && self.passes_name(&acl.on)
            && self.principal.is_none_or(|principal| principal == acl.principal.as_str())
            && self.host.is_none_or(|host| host == EVERY_HOST)
            && one(self.operation, acl.operation.code())
            && one(self.permission, acl.permission.code())
    }

    /// True when every code is one that a filter can have.
    pub(crate) fn is_valid(&self) -> bool {
        let one = |code: i8, known: bool| code == ANY || known;
        one(self.resource_type, ResourceType::from_code(self.resource_type).is_some())
            && (ANY..=PATTERN_PREFIXED).contains(&self.pattern_type)
            && one(self.operation, Operation::from_code(self.operation).is_some())
            && one(self.permission, Permission::from_code(self.permission).is_some())
    }

    fn passes_name(&self, on: &ResourcePattern) -> bool {
        let of_type = ![PATTERN_LITERAL, PATTERN_PREFIXED].contains(&self.pattern_type)
            || self.pattern_type == pattern_type_of(on);
        let named = self.resource_name.is_none_or(|name| match (self.pattern_type, on.is_prefix) {
            (PATTERN_MATCH, true) => name.starts_with(&on.name),
            (PATTERN_MATCH, false) => on.name == name || on.name == EVERY_NAME,
            _exactly => on.name == name,
        });
        of_type && named
    }
}

/// The code of a pattern's type.
pub(crate) fn pattern_type_of(on: &ResourcePattern) -> i8 {
    if on.is_prefix { PATTERN_PREFIXED } else { PATTERN_LITERAL }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: WireAcl<'static> = WireAcl {
        resource_type: 2,
        resource_name: "flights",
        pattern_type: PATTERN_LITERAL,
        principal: "User:alice",
        host: EVERY_HOST,
        operation: 3,
        permission: 3,
    };

    const ALL: Filter<'static> = Filter {
        resource_type: ANY,
        resource_name: None,
        pattern_type: ANY,
        principal: None,
        host: None,
        operation: ANY,
        permission: ANY,
    };

    #[test]
    fn what_no_acl_can_be_is_refused_in_words() {
        let cases = [
            (WireAcl { resource_type: ANY, ..ALICE }, "resource type 1"),
            (WireAcl { resource_type: 6, ..ALICE }, "resource type 6"),
            (WireAcl { operation: 0, ..ALICE }, "operation 0"),
            (WireAcl { permission: ANY, ..ALICE }, "permission 1"),
            (WireAcl { pattern_type: PATTERN_MATCH, ..ALICE }, "pattern type 2"),
            (WireAcl { resource_name: "", ..ALICE }, "no name"),
            (WireAcl { resource_type: 4, ..ALICE }, "kafka-cluster"),
            (WireAcl { host: "10.0.0.1", ..ALICE }, "host"),
            (WireAcl { principal: "alice", ..ALICE }, "User:alice"),
        ];
        for (acl, words) in cases {
            let fault = acl.read().unwrap_err();
            assert!(fault.contains(words), "{fault}");
        }
        let acl = ALICE.read().unwrap();
        assert_eq!(
            acl,
            Acl::allow(Principal::user("alice"), Operation::Read, ResourcePattern::topic("flights"))
        );
    }

    #[test]
    fn every_line_of_the_table_of_filters_holds() {
        let literal = ALICE.read().unwrap();
        let prefix = Acl { on: ResourcePattern::topic("fli").prefixed(), ..literal.clone() };
        let every = Acl { on: ResourcePattern::every(ResourceType::Topic), ..literal.clone() };
        let named = |name, pattern_type| Filter { resource_name: Some(name), pattern_type, ..ALL };
        // The filter, and whether it passes the literal, the prefix and the one for every topic.
        let cases = [
            (ALL, [true, true, true]),
            (Filter { resource_type: 3, ..ALL }, [false, false, false]),
            (Filter { resource_type: 2, operation: 3, permission: 3, ..ALL }, [true, true, true]),
            (Filter { operation: 4, ..ALL }, [false, false, false]),
            (Filter { permission: 2, ..ALL }, [false, false, false]),
            (Filter { principal: Some("User:alice"), ..ALL }, [true, true, true]),
            (Filter { principal: Some("User:*"), ..ALL }, [false, false, false]),
            (Filter { host: Some("10.0.0.1"), ..ALL }, [false, false, false]),
            (Filter { pattern_type: PATTERN_PREFIXED, ..ALL }, [false, true, false]),
            (named("flights", ANY), [true, false, false]),
            (named("flights", PATTERN_LITERAL), [true, false, false]),
            (named("flights", PATTERN_PREFIXED), [false, false, false]),
            (named("fli", PATTERN_PREFIXED), [false, true, false]),
            (named("flights", PATTERN_MATCH), [true, true, true]),
            (named("trains", PATTERN_MATCH), [false, false, true]),
        ];
        for (filter, expected) in cases {
            assert!(filter.is_valid(), "{filter:?}");
            assert_eq!([&literal, &prefix, &every].map(|acl| filter.passes(acl)), expected, "{filter:?}");
        }
        for bad in [Filter { operation: 0, ..ALL }, Filter { pattern_type: 5, ..ALL }] {
            assert!(!bad.is_valid(), "{bad:?}");
        }
    }
}
