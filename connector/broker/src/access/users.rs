//! Users and their passwords. Passwords are never printed.

use std::collections::BTreeMap;
use std::fmt;

/// A password, or the key of the nodes. Debugging gives `(hidden)`.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Password(String);

impl Password {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Password(text.into())
    }

    /// The text itself, for the peer that it is meant for and nobody else.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// Takes as long for a wrong text as for the right one of that length.
    pub(super) fn is(&self, text: &str) -> bool {
        let (known, given) = (self.0.as_bytes(), text.as_bytes());
        let differences = known.iter().zip(given).fold(0, |found, (a, b)| found | (a ^ b));
        known.len() == given.len() && differences == 0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Who may log in with what.
#[derive(Clone, Debug, Default)]
pub(super) struct Users(BTreeMap<String, Password>);

impl Users {
    pub(super) fn add(&mut self, name: String, password: Password) {
        self.0.insert(name, password);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn knows(&self, name: &str, password: &str) -> bool {
        self.0.get(name).is_some_and(|known| known.is(password))
    }

    /// What is wrong with names and passwords; PLAIN cannot carry empty ones nor the zero character.
    pub(super) fn faults(&self) -> Vec<String> {
        let unfit = |text: &str| text.is_empty() || text.contains('\0');
        let mut faults = Vec::new();
        for (name, password) in &self.0 {
            if unfit(name) {
                faults.push("the name of a user is empty or has a zero character".to_owned());
            }
            if unfit(password.expose()) {
                faults.push(format!("the password of user '{name}' is empty or has a zero character"));
            }
        }
        faults
    }
}
