//! What all nodes of a cluster agree on: users, super users, acls. Acls change while the broker runs.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sharestream_base::{ErrorKind, Rng};

use super::acl::{Acl, Operation, Principal, Resource, ResourceType};
use super::rules::Rules;
use super::users::{Password, Users};
use crate::error::{Error, Result};

/// Most acls at a time: each request looks at all of them.
pub(crate) const ACLS_MAX: usize = 10_000;

/// Users and rules that a broker starts with. Without any, every connection is anonymous and everything is
/// allowed.
#[derive(Clone, Debug, Default)]
pub struct AccessSettings {
    users: Users,
    rules: Rules,
}

impl AccessSettings {
    /// Adds a user who may log in, by SASL PLAIN. Then every connection must; without users none can, and
    /// every connection is [`Principal::anonymous`]. The listener does not encrypt: passwords are for tests.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.users.add(name.into(), Password::new(password));
        self
    }

    /// Lets somebody do everything. Switches access control on: from then on everybody else may do only what
    /// an acl allows.
    #[must_use]
    pub fn super_user(mut self, principal: Principal) -> Self {
        self.rules.is_on = true;
        self.rules.super_users.insert(principal);
        self
    }

    /// Gives or takes a right. Switches access control on, as [`AccessSettings::super_user`] does.
    #[must_use]
    pub fn acl(mut self, acl: Acl) -> Self {
        self.rules.is_on = true;
        self.rules.acls.insert(acl);
        self
    }

    /// Checks everything and reports all faults at once. Errors: InvalidInput.
    pub(crate) fn validate(&self) -> Result<()> {
        let mut faults = self.users.faults();
        if self.rules.acls.len() > ACLS_MAX {
            faults.push(format!("there are {} acls, more than {ACLS_MAX}", self.rules.acls.len()));
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidInput, format!("access control: {}", faults.join("; "))))
    }
}

/// Who may do what in a cluster: one for all nodes. What changes here counts from the next check on; what a
/// request has done before stays done. It lives in memory, also where a data folder keeps the logs.
#[derive(Debug)]
pub struct AccessControl {
    users: Users,
    /// By which nodes know each other. Made at each start, never shown.
    node_key: Password,
    is_on: bool,
    rules: RwLock<Rules>,
}

impl AccessControl {
    pub(crate) fn new(settings: AccessSettings, rng: &Rng) -> Self {
        let AccessSettings { users, rules } = settings;
        let node_key = Password::new(format!("{}{}", rng.uuid().simple(), rng.uuid().simple()));
        AccessControl { users, node_key, is_on: rules.is_on, rules: RwLock::new(rules) }
    }

    /// False: everything is allowed to everybody.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether a principal may do something with a resource, by Kafka's rules: super users may do everything,
    /// a denial wins over every permission, READ, WRITE, DELETE and ALTER imply DESCRIBE, ALTER_CONFIGS
    /// implies DESCRIBE_CONFIGS, and what no acl matches is denied.
    pub fn authorize(&self, principal: &Principal, operation: Operation, resource: &Resource<'_>) -> bool {
        self.read().authorize(principal, operation, resource)
    }

    /// Every acl.
    pub fn acls(&self) -> Vec<Acl> {
        self.read().acls.iter().cloned().collect()
    }

    /// Adds an acl; adding it twice changes nothing. It counts when access control is on, which only a
    /// builder says. Errors: InvalidInput (there are 10,000 acls).
    pub fn add(&self, acl: Acl) -> Result<()> {
        let mut rules = self.write();
        if rules.acls.len() >= ACLS_MAX && !rules.acls.contains(&acl) {
            let text = format!("there are {ACLS_MAX} acls; remove some first");
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        rules.acls.insert(acl);
        Ok(())
    }

    /// Removes an acl; false when there is no such acl.
    pub fn remove(&self, acl: &Acl) -> bool {
        self.write().acls.remove(acl)
    }

    /// See [`Rules::authorize_any`].
    pub(super) fn authorize_any(
        &self,
        principal: &Principal,
        operation: Operation,
        kind: ResourceType,
    ) -> bool {
        self.read().authorize_any(principal, operation, kind)
    }

    /// True when connections must say who they are.
    pub(crate) fn has_users(&self) -> bool {
        !self.users.is_empty()
    }

    /// True when nodes must be told from clients.
    pub(crate) fn tells_nodes_apart(&self) -> bool {
        self.has_users() || self.is_on()
    }

    /// What a node shows another.
    pub(crate) fn node_key(&self) -> &str {
        self.node_key.expose()
    }

    pub(super) fn is_node_key(&self, text: &str) -> bool {
        self.node_key.is(text)
    }

    pub(super) fn knows(&self, user: &str, password: &str) -> bool {
        self.users.knows(user, password)
    }

    fn read(&self) -> RwLockReadGuard<'_, Rules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Rules> {
        self.rules.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::ResourcePattern;

    #[test]
    fn passwords_are_in_no_debug_output_and_in_no_error() {
        let settings =
            AccessSettings::default().user("alice", "open-sesame").user("bob", "zero\0open-sesame");
        let error = settings.validate().unwrap_err();
        assert!(error.to_string().contains("the password of user 'bob'"), "{error}");
        let control = AccessControl::new(settings.clone(), &Rng::seeded(1));
        let key = control.node_key().to_owned();
        for text in [format!("{settings:?}"), format!("{control:#?}"), format!("{error} {error:?}")] {
            assert!(!text.contains("open-sesame") && !text.contains(&key), "{text}");
        }
    }

    #[test]
    fn access_control_is_on_with_the_first_acl_or_super_user_of_the_builder() {
        let settings = AccessSettings::default().user("alice", "a");
        assert!(
            !AccessControl::new(settings.clone(), &Rng::seeded(1)).is_on(),
            "users alone ask for passwords"
        );
        let settings = settings.super_user(Principal::user("alice"));
        assert!(AccessControl::new(settings, &Rng::seeded(1)).is_on());
        let acl = Acl::allow(Principal::anonymous(), Operation::Read, ResourcePattern::topic("t"));
        let control = AccessControl::new(AccessSettings::default().acl(acl), &Rng::seeded(1));
        assert!(control.is_on());
        for acl in control.acls() {
            assert!(control.remove(&acl) && !control.remove(&acl));
        }
        assert!(control.is_on(), "without acls nothing is allowed");
        assert!(!control.authorize(&Principal::anonymous(), Operation::Read, &Resource::topic("t")));
    }
}
