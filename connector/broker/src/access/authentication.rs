//! Who a connection is: SASL PLAIN for users (KIP-43, RFC 4616), and a key for the nodes of this broker.
//!
//! ```text
//! awaited --SaslHandshake--> agreed --SaslAuthenticate--> known (end)
//!    \________________________/ \__ wrong: answered, then the connection is closed
//! ```
//! Without users a connection begins as known: `User:ANONYMOUS`. A node says who it is on such a connection
//! too, since nodes may do everything. Kafka lets an authenticated connection authenticate again only where
//! sessions end (KIP-368); here they never end.

use std::sync::Arc;

use kafka_protocol::messages::{ApiVersionsRequest, SaslAuthenticateRequest, SaslHandshakeRequest};
use kafka_protocol::protocol::Request;

use super::acl::Principal;
use super::control::AccessControl;
use crate::error::ErrorCode;

/// The mechanism that is offered.
pub(crate) const PLAIN: &str = "PLAIN";
/// The mechanism between nodes. It is not offered.
pub(crate) const NODE_MECHANISM: &str = "SHARESTREAM-NODE";
/// Bytes of a request before a connection is known (Kafka: `sasl.server.max.receive.size`).
const FRAME_BYTES_UNKNOWN_MAX: usize = 512 * 1024;

/// Who sends requests on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The user.
    pub(crate) principal: Principal,
    /// A node of this cluster, which may do everything.
    pub(crate) is_node: bool,
}

/// How something is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    /// User and password.
    Plain,
    /// The key of the nodes.
    Node,
}

/// How far a connection is.
#[derive(Clone, Debug)]
pub(crate) enum Authentication {
    /// Nothing is known: SaslHandshake must come, after ApiVersions if need be.
    Awaited,
    /// SaslAuthenticate must come.
    Agreed(Mechanism),
    /// Requests are served.
    Known(Arc<Caller>),
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It is served for this caller.
    Serve(Arc<Caller>),
    /// It is a step of the authentication.
    Authenticate,
    /// It may not come in the place of a password: it is answered with ILLEGAL_SASL_STATE, then the
    /// connection is closed.
    Refuse,
    /// It may not come now: the connection is closed.
    Close,
}

impl Authentication {
    /// That of a new connection.
    pub(crate) fn new(control: &AccessControl) -> Self {
        if control.has_users() { Authentication::Awaited } else { Authentication::Known(nobody()) }
    }

    /// Largest request frame that is taken now.
    pub(crate) fn frame_bytes_max(&self, known: usize) -> usize {
        match self {
            Authentication::Awaited | Authentication::Agreed(_) => FRAME_BYTES_UNKNOWN_MAX.min(known),
            Authentication::Known(_) => known,
        }
    }

    /// Whether a request may come now.
    pub(crate) fn admit(&self, api_key: i16) -> Admission {
        match (self, api_key) {
            (Authentication::Awaited, ApiVersionsRequest::KEY) => Admission::Serve(nobody()),
            (Authentication::Awaited, SaslHandshakeRequest::KEY)
            | (Authentication::Agreed(_), SaslAuthenticateRequest::KEY) => Admission::Authenticate,
            (Authentication::Agreed(_), _) => Admission::Refuse,
            (Authentication::Awaited, _) => Admission::Close,
            (Authentication::Known(caller), SaslHandshakeRequest::KEY) if !caller.is_node => {
                Admission::Authenticate
            }
            (Authentication::Known(caller), _) => Admission::Serve(Arc::clone(caller)),
        }
    }

    /// SaslHandshake. Errors: UNSUPPORTED_SASL_MECHANISM, after which the connection ends; ILLEGAL_SASL_STATE
    /// on one that is known, which goes on.
    pub(crate) fn shake_hands(&mut self, mechanism: &str) -> Result<(), ErrorCode> {
        let agreed = match (&*self, mechanism) {
            (Authentication::Awaited | Authentication::Known(_), NODE_MECHANISM) => Mechanism::Node,
            (Authentication::Awaited, PLAIN) => Mechanism::Plain,
            (Authentication::Awaited, _) => return Err(ErrorCode::UnsupportedSaslMechanism),
            (Authentication::Known(_) | Authentication::Agreed(_), _) => {
                return Err(ErrorCode::IllegalSaslState);
            }
        };
        *self = Authentication::Agreed(agreed);
        Ok(())
    }

    /// SaslAuthenticate. `Err` says what the client is told, with SASL_AUTHENTICATION_FAILED; the connection
    /// ends then.
    pub(crate) fn authenticate(
        &mut self,
        control: &AccessControl,
        message: &[u8],
    ) -> Result<(), &'static str> {
        let caller = match self {
            Authentication::Agreed(Mechanism::Plain) => {
                Caller { principal: plain_user(control, message)?, is_node: false }
            }
            Authentication::Agreed(Mechanism::Node) => {
                if !std::str::from_utf8(message).is_ok_and(|key| control.is_node_key(key)) {
                    return Err("Authentication failed: this is no node of the cluster");
                }
                Caller { principal: Principal::user("NODE"), is_node: true }
            }
            Authentication::Awaited | Authentication::Known(_) => {
                return Err("Authentication failed: no mechanism is agreed on");
            }
        };
        *self = Authentication::Known(Arc::new(caller));
        Ok(())
    }
}

fn nobody() -> Arc<Caller> {
    Arc::new(Caller { principal: Principal::anonymous(), is_node: false })
}

/// `[authorization id] NUL user NUL password`. The texts are Kafka's: clients show them.
fn plain_user(control: &AccessControl, message: &[u8]) -> Result<Principal, &'static str> {
    let parts = std::str::from_utf8(message).map(|text| text.split('\0').collect::<Vec<_>>());
    let Ok([on_behalf_of, user, password]) = parts.as_deref() else {
        return Err("Invalid SASL/PLAIN response: expected 3 tokens");
    };
    if user.is_empty() {
        return Err("Authentication failed: username not specified");
    }
    if password.is_empty() {
        return Err("Authentication failed: password not specified");
    }
    if !control.knows(user, password) {
        return Err("Authentication failed: Invalid username or password");
    }
    if !on_behalf_of.is_empty() && on_behalf_of != user {
        return Err(
            "Authentication failed: Client requested an authorization id that is different from username",
        );
    }
    Ok(Principal::user(user))
}

#[cfg(test)]
mod tests {
    use sharestream_base::Rng;

    use super::*;
    use crate::access::AccessSettings;

    fn control(users: bool) -> AccessControl {
        let settings = AccessSettings::default();
        let settings = if users { settings.user("alice", "secret") } else { settings };
        AccessControl::new(settings, &Rng::seeded(1))
    }

    const VERSIONS: i16 = ApiVersionsRequest::KEY;
    const HANDSHAKE: i16 = SaslHandshakeRequest::KEY;
    const AUTHENTICATE: i16 = SaslAuthenticateRequest::KEY;
    const METADATA: i16 = 3;

    #[test]
    fn every_request_in_every_state_is_served_part_of_it_or_the_end() {
        let caller =
            |is_node| Authentication::Known(Arc::new(Caller { principal: Principal::user("a"), is_node }));
        let (plain, node) =
            (Authentication::Agreed(Mechanism::Plain), Authentication::Agreed(Mechanism::Node));
        let table = [
            (Authentication::Awaited, ["serve", "step", "close", "close"]),
            (plain, ["refuse", "refuse", "step", "refuse"]),
            (node, ["refuse", "refuse", "step", "refuse"]),
            (caller(false), ["serve", "step", "serve", "serve"]),
            (caller(true), ["serve", "serve", "serve", "serve"]),
        ];
        for (state, row) in table {
            for (key, expected) in [VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA].into_iter().zip(row) {
                let found = match state.admit(key) {
                    Admission::Serve(_) => "serve",
                    Admission::Authenticate => "step",
                    Admission::Refuse => "refuse",
                    Admission::Close => "close",
                };
                assert_eq!(found, expected, "{key} in {state:?}");
            }
        }
    }

    #[test]
    fn without_users_a_connection_is_anonymous_and_takes_no_handshake_but_a_nodes() {
        let control = control(false);
        let mut state = Authentication::new(&control);
        let Admission::Serve(caller) = state.admit(METADATA) else { panic!("{state:?}") };
        assert_eq!(caller.principal.as_str(), "User:ANONYMOUS");
        assert_eq!(state.shake_hands(PLAIN), Err(ErrorCode::IllegalSaslState));
        assert!(matches!(state.admit(METADATA), Admission::Serve(_)), "it goes on");
        assert_eq!(state.shake_hands(NODE_MECHANISM), Ok(()));
        assert!(state.authenticate(&control, control.node_key().as_bytes()).is_ok());
        assert!(matches!(state, Authentication::Known(caller) if caller.is_node));
    }

    #[test]
    fn only_the_right_password_and_the_right_key_are_believed() {
        let control = control(true);
        let cases: [(&[u8], Option<&str>); 9] = [
            (b"\0alice\0secret", None),
            (b"alice\0alice\0secret", None),
            (b"bob\0alice\0secret", Some("different from username")),
            (b"\0alice\0wrong!", Some("Invalid username or password")),
            (b"\0alice\0secre", Some("Invalid username or password")),
            (b"\0bob\0secret", Some("Invalid username or password")),
            (b"\0\0secret", Some("username not specified")),
            (b"\0alice\0", Some("password not specified")),
            (b"alice\0secret", Some("expected 3 tokens")),
        ];
        for (message, refused) in cases {
            let mut state = Authentication::new(&control);
            assert_eq!(state.shake_hands("SCRAM-SHA-256"), Err(ErrorCode::UnsupportedSaslMechanism));
            assert_eq!(state.shake_hands(PLAIN), Ok(()));
            match (state.authenticate(&control, message), refused) {
                (Ok(()), None) => {
                    let Admission::Serve(caller) = state.admit(METADATA) else { panic!("{state:?}") };
                    assert_eq!(caller.principal, Principal::user("alice"));
                }
                (Err(text), Some(words)) => {
                    assert!(text.contains(words), "{text}");
                    assert!(!matches!(state.admit(METADATA), Admission::Serve(_)));
                }
                (found, expected) => panic!("{found:?}, not {expected:?}"),
            }
        }
        let mut state = Authentication::new(&control);
        assert_eq!(state.shake_hands(NODE_MECHANISM), Ok(()));
        assert!(state.authenticate(&control, b"\0alice\0secret").is_err());
    }
}
