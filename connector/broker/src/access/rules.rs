//! The decision: acls and super users in, yes or no out. Source: `StandardAuthorizer` of Apache Kafka 4.4
//! (KIP-11, KIP-290, KIP-679).

use std::collections::BTreeSet;

use super::acl::{
    Acl, EVERY_NAME, Operation, Permission, Principal, Resource, ResourcePattern, ResourceType,
};

/// What decides. Pure: it knows no connection and no clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// False: there is no access control, everything is allowed.
    pub(super) is_on: bool,
    /// Who may do everything, whatever the acls say.
    pub(super) super_users: BTreeSet<Principal>,
    pub(super) acls: BTreeSet<Acl>,
}

impl Rules {
    /// Whether a principal may do something with a resource. A denial wins over every permission; what no acl
    /// matches is denied.
    pub(crate) fn authorize(
        &self,
        principal: &Principal,
        operation: Operation,
        resource: &Resource<'_>,
    ) -> bool {
        if !self.is_on || self.super_users.contains(principal) {
            return true;
        }
        let mut allowed = false;
        for acl in self.of(principal).filter(|acl| acl.on.matches(resource)) {
            match acl.permission {
                Permission::Deny if is_denied_by(operation, acl.operation) => return false,
                Permission::Allow if is_allowed_by(operation, acl.operation) => allowed = true,
                Permission::Deny | Permission::Allow => {}
            }
        }
        allowed
    }

    /// Whether a principal may do something with at least one resource of a type, be it there or not: some
    /// permission is not covered by denials (KIP-679).
    pub(crate) fn authorize_any(
        &self,
        principal: &Principal,
        operation: Operation,
        kind: ResourceType,
    ) -> bool {
        if !self.is_on || self.super_users.contains(principal) {
            return true;
        }
        let fits = |acl: &&Acl| {
            acl.on.kind == kind && matches!(acl.operation, op if op == operation || op == Operation::All)
        };
        let (denials, permissions): (Vec<&Acl>, Vec<&Acl>) =
            self.of(principal).filter(fits).partition(|acl| acl.permission == Permission::Deny);
        permissions.iter().any(|allow| !denials.iter().any(|deny| covers(&deny.on, &allow.on)))
    }

    fn of(&self, principal: &Principal) -> impl Iterator<Item = &Acl> {
        let everybody = Principal::everybody();
        self.acls.iter().filter(move |acl| acl.principal == *principal || acl.principal == everybody)
    }
}

/// A permission gives what it names, and what cannot be kept from those who have it.
fn is_allowed_by(wanted: Operation, given: Operation) -> bool {
    use Operation::{All, Alter, AlterConfigs, Delete, Describe, DescribeConfigs, Read, Write};
    match wanted {
        Describe => matches!(given, All | Describe | Read | Write | Delete | Alter),
        DescribeConfigs => matches!(given, All | DescribeConfigs | AlterConfigs),
        _ => given == All || given == wanted,
    }
}

/// A denial takes just what it names: whoever may not read may still describe.
fn is_denied_by(wanted: Operation, taken: Operation) -> bool {
    taken == Operation::All || taken == wanted
}

/// True when every name that `allowed` is for is also one that `denied` is for.
fn covers(denied: &ResourcePattern, allowed: &ResourcePattern) -> bool {
    let all = !denied.is_prefix && denied.name == EVERY_NAME;
    let allows_all = !allowed.is_prefix && allowed.name == EVERY_NAME;
    all || match denied.is_prefix {
        true => !allows_all && allowed.name.starts_with(&denied.name),
        false => !allowed.is_prefix && allowed.name == denied.name,
    }
}

#[cfg(test)]
mod tests {
    use super::super::acl::Operation::*;
    use super::*;

    fn rules(acls: impl IntoIterator<Item = Acl>) -> Rules {
        let super_users = [Principal::user("root")].into();
        Rules { is_on: true, super_users, acls: acls.into_iter().collect() }
    }

    fn alice() -> Principal {
        Principal::user("alice")
    }

    fn allow(operation: Operation, on: ResourcePattern) -> Acl {
        Acl::allow(alice(), operation, on)
    }

    fn deny(operation: Operation, on: ResourcePattern) -> Acl {
        Acl::deny(alice(), operation, on)
    }

    /// What `StandardAuthorizer` implies: (given, every operation that it allows).
    const IMPLIED: [(Operation, &[Operation]); 11] = [
        (Read, &[Read, Describe]),
        (Write, &[Write, Describe]),
        (Create, &[Create]),
        (Delete, &[Delete, Describe]),
        (Alter, &[Alter, Describe]),
        (Describe, &[Describe]),
        (ClusterAction, &[ClusterAction]),
        (DescribeConfigs, &[DescribeConfigs]),
        (AlterConfigs, &[AlterConfigs, DescribeConfigs]),
        (IdempotentWrite, &[IdempotentWrite]),
        (All, Operation::EVERY),
    ];

    #[test]
    fn a_permission_gives_its_operation_and_what_that_implies_and_no_other() {
        for (given, implied) in IMPLIED {
            let rules = rules([allow(given, ResourcePattern::topic("t"))]);
            for wanted in Operation::EVERY {
                let allowed = rules.authorize(&alice(), *wanted, &Resource::topic("t"));
                assert_eq!(allowed, implied.contains(wanted), "{wanted:?} by {given:?}");
                assert!(!rules.authorize(&alice(), *wanted, &Resource::topic("u")), "another topic");
                assert!(!rules.authorize(&alice(), *wanted, &Resource::group("t")), "another type");
                assert!(
                    !rules.authorize(&Principal::user("bob"), *wanted, &Resource::topic("t")),
                    "another user"
                );
            }
        }
    }

    #[test]
    fn a_denial_takes_its_operation_only_and_wins() {
        let everything = || allow(All, ResourcePattern::every(ResourceType::Topic));
        for taken in Operation::EVERY {
            let rules = rules([everything(), deny(*taken, ResourcePattern::topic("t"))]);
            for wanted in Operation::EVERY {
                let allowed = rules.authorize(&alice(), *wanted, &Resource::topic("t"));
                assert_eq!(allowed, *taken != All && taken != wanted, "{wanted:?} without {taken:?}");
                assert!(rules.authorize(&alice(), *wanted, &Resource::topic("u")), "another topic");
            }
        }
    }

    #[test]
    fn every_line_of_the_table_of_acls_holds() {
        use ResourceType::{Group, Topic, TransactionalId};
        let topic = ResourcePattern::topic;
        let flights = Resource::topic("flights");
        let everybody = |operation, on| Acl::allow(Principal::everybody(), operation, on);
        let cases: [(&str, Vec<Acl>, bool); 14] = [
            ("no acl", vec![], false),
            ("literal", vec![allow(Read, topic("flights"))], true),
            ("a literal name is no prefix", vec![allow(Read, topic("fli"))], false),
            ("prefix", vec![allow(Read, topic("fli").prefixed())], true),
            ("prefix of the whole name", vec![allow(Read, topic("flights").prefixed())], true),
            ("longer than the name", vec![allow(Read, topic("flights-2").prefixed())], false),
            ("every topic", vec![allow(Read, ResourcePattern::every(Topic))], true),
            ("a star is no prefix", vec![allow(Read, topic("*").prefixed())], false),
            ("every group", vec![allow(Read, ResourcePattern::every(Group))], false),
            ("every id", vec![allow(Read, ResourcePattern::every(TransactionalId))], false),
            ("everybody", vec![everybody(Read, topic("flights"))], true),
            (
                "everybody is denied",
                vec![
                    allow(Read, topic("flights")),
                    Acl::deny(Principal::everybody(), Read, ResourcePattern::every(Topic)),
                ],
                false,
            ),
            (
                "a denial by prefix wins over a literal permission",
                vec![allow(All, topic("flights")), deny(Read, topic("f").prefixed())],
                false,
            ),
            (
                "a denial of something else",
                vec![allow(Read, topic("flights")), deny(Write, topic("flights"))],
                true,
            ),
        ];
        for (name, acls, expected) in cases {
            assert_eq!(rules(acls).authorize(&alice(), Read, &flights), expected, "{name}");
        }
    }

    #[test]
    fn super_users_may_do_everything_and_so_may_everybody_where_access_control_is_off() {
        let denied = || Acl::deny(Principal::everybody(), All, ResourcePattern::topic("t"));
        let on = rules([denied()]);
        assert!(on.authorize(&Principal::user("root"), Write, &Resource::topic("t")));
        assert!(!on.authorize(&alice(), Write, &Resource::topic("t")));
        let off = Rules { is_on: false, ..on };
        assert!(off.authorize(&alice(), Write, &Resource::topic("t")));
        assert!(off.authorize_any(&alice(), Write, ResourceType::Topic));
    }

    #[test]
    fn a_right_to_some_topic_is_one_that_denials_do_not_cover() {
        let topic = ResourcePattern::topic;
        let every = || ResourcePattern::every(ResourceType::Topic);
        let cases: [(&str, Vec<Acl>, bool); 10] = [
            ("no acl", vec![], false),
            ("one", vec![allow(Write, topic("t"))], true),
            ("all operations", vec![allow(All, topic("t"))], true),
            ("another operation", vec![allow(Read, topic("t"))], false),
            ("a group", vec![allow(Write, ResourcePattern::group("t"))], false),
            ("the one is denied", vec![allow(Write, topic("t")), deny(Write, topic("t"))], false),
            ("another is denied", vec![allow(Write, topic("t")), deny(Write, topic("u"))], true),
            ("all are denied", vec![allow(Write, every()), deny(Write, every())], false),
            ("some are denied", vec![allow(Write, every()), deny(Write, topic("t").prefixed())], true),
            (
                "a prefix within a denied one",
                vec![allow(Write, topic("team-a").prefixed()), deny(Write, topic("team").prefixed())],
                false,
            ),
        ];
        for (name, acls, expected) in cases {
            assert_eq!(rules(acls).authorize_any(&alice(), Write, ResourceType::Topic), expected, "{name}");
        }
        assert!(rules([]).authorize_any(&Principal::user("root"), Write, ResourceType::Topic));
    }
}
