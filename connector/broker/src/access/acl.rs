//! The words of access control: principals, operations, resources, acls. Codes on the wire are Kafka's.

use std::fmt;

/// Who sends a request, as Kafka writes it: `User:alice`. `User:*` in an acl means everybody.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal(String);

impl Principal {
    /// A user by name: `User:name`.
    pub fn user(name: &str) -> Self {
        Principal(format!("User:{name}"))
    }

    /// Whoever did not say who they are: `User:ANONYMOUS`.
    pub fn anonymous() -> Self {
        Principal::user("ANONYMOUS")
    }

    /// Everybody, in an acl: `User:*`.
    pub fn everybody() -> Self {
        Principal::user("*")
    }

    /// Reads `Type:name`; `None` without a type or a name.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':')?;
        (!kind.is_empty() && !name.is_empty()).then(|| Principal(text.to_owned()))
    }

    /// As Kafka writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Declares an enum with Kafka's codes, in a list of all that an acl may have.
macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $( $(#[$variant_doc:meta])* $variant:ident = $code:literal, )* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $( $(#[$variant_doc])* $variant, )* }

        impl $name {
            /// Every value, in the order of the codes.
            pub const EVERY: &[$name] = &[ $( $name::$variant, )* ];

            /// Kafka's code.
            pub fn code(self) -> i8 {
                match self { $( $name::$variant => $code, )* }
            }

            /// The value of a code; `None` for those that no acl has.
            pub fn from_code(code: i8) -> Option<Self> {
                $name::EVERY.iter().copied().find(|one| one.code() == code)
            }
        }
    };
}

coded! {
    /// What somebody wants to do (Kafka: `AclOperation`).
    Operation {
        /// Each of the others; only in acls.
        All = 2,
        /// Fetch, acknowledge, be a member.
        Read = 3,
        /// Produce, be the producer of a transactional id.
        Write = 4,
        /// Create topics.
        Create = 5,
        /// Delete topics, records, groups.
        Delete = 6,
        /// Change the cluster: acls, features.
        Alter = 7,
        /// Know that something exists, and how it is.
        Describe = 8,
        /// What nodes ask of each other.
        ClusterAction = 9,
        /// See settings.
        DescribeConfigs = 10,
        /// Change settings.
        AlterConfigs = 11,
        /// Produce without a transactional id; WRITE on any topic is enough (KIP-679).
        IdempotentWrite = 12,
    }
}

coded! {
    /// What is protected (Kafka: `ResourceType`).
    ResourceType {
        /// A topic.
        Topic = 2,
        /// A group of any type.
        Group = 3,
        /// The cluster as a whole.
        Cluster = 4,
        /// A transactional id.
        TransactionalId = 5,
    }
}

coded! {
    /// What an acl does (Kafka: `AclPermissionType`).
    Permission {
        /// Takes the operation away, whatever other acls allow.
        Deny = 2,
        /// Gives the operation.
        Allow = 3,
    }
}

/// The name of the cluster as a resource.
pub(super) const CLUSTER_NAME: &str = "kafka-cluster";
/// The literal name that stands for all names.
pub(super) const EVERY_NAME: &str = "*";

/// One thing that is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource<'a> {
    /// Of which kind.
    pub kind: ResourceType,
    /// By which name; of the cluster it is `kafka-cluster`.
    pub name: &'a str,
}

impl<'a> Resource<'a> {
    /// A topic.
    pub fn topic(name: &'a str) -> Self {
        Resource { kind: ResourceType::Topic, name }
    }

    /// A group.
    pub fn group(name: &'a str) -> Self {
        Resource { kind: ResourceType::Group, name }
    }

    /// A transactional id.
    pub fn transactional_id(name: &'a str) -> Self {
        Resource { kind: ResourceType::TransactionalId, name }
    }

    /// The cluster.
    pub fn cluster() -> Self {
        Resource { kind: ResourceType::Cluster, name: CLUSTER_NAME }
    }
}

/// The resources that an acl is for: one by name, all whose names begin with it (KIP-290), or all of a type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourcePattern {
    /// Of which kind.
    pub kind: ResourceType,
    /// The name, its beginning, or a literal `*` for all.
    pub name: String,
    /// True when names only begin with it.
    pub is_prefix: bool,
}

impl ResourcePattern {
    /// One topic.
    pub fn topic(name: impl Into<String>) -> Self {
        ResourcePattern::literal(ResourceType::Topic, name)
    }

    /// One group.
    pub fn group(name: impl Into<String>) -> Self {
        ResourcePattern::literal(ResourceType::Group, name)
    }

    /// One transactional id.
    pub fn transactional_id(name: impl Into<String>) -> Self {
        ResourcePattern::literal(ResourceType::TransactionalId, name)
    }

    /// The cluster.
    pub fn cluster() -> Self {
        ResourcePattern::literal(ResourceType::Cluster, CLUSTER_NAME)
    }

    /// Everything of a type.
    pub fn every(kind: ResourceType) -> Self {
        ResourcePattern::literal(kind, EVERY_NAME)
    }

    /// Everything whose name begins as this one.
    #[must_use]
    pub fn prefixed(mut self) -> Self {
        self.is_prefix = true;
        self
    }

    fn literal(kind: ResourceType, name: impl Into<String>) -> Self {
        ResourcePattern { kind, name: name.into(), is_prefix: false }
    }

    /// True for what the pattern is for.
    pub fn matches(&self, resource: &Resource<'_>) -> bool {
        self.kind == resource.kind
            && match self.is_prefix {
                true => resource.name.starts_with(&self.name),
                false => self.name == resource.name || self.name == EVERY_NAME,
            }
    }
}

/// One rule: a principal may, or may not, do something with some resources, from any host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Acl {
    /// Who.
    pub principal: Principal,
    /// May or may not.
    pub permission: Permission,
    /// Do what.
    pub operation: Operation,
    /// With what.
    pub on: ResourcePattern,
}

impl Acl {
    /// A rule that gives a right.
    pub fn allow(principal: Principal, operation: Operation, on: ResourcePattern) -> Self {
        Acl { principal, permission: Permission::Allow, operation, on }
    }

    /// A rule that takes a right away, whatever others give.
    pub fn deny(principal: Principal, operation: Operation, on: ResourcePattern) -> Self {
        Acl { principal, permission: Permission::Deny, operation, on }
    }
}
