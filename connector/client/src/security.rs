//! Who we are and how the wire is protected: TLS below, SASL on top, and one sentence for each way it goes wrong.
//!
//! ```text
//! SecuritySettings --load files--> TlsConnector --wrap--> BoxIo --ApiVersions--> SASL --> Connection
//!                  \--at each (re-)authentication--> Secret (password, token) --> Mechanism
//! ```
//! Settings name files and environment variables, never secrets; what they hold is read when it is needed, lives in a
//! [`Secret`] and is wiped afterwards. Sources: KIP-12, KIP-43, KIP-152, KIP-255, KIP-368, RFC 4616, 5802, 7677, 7628.

mod access;
mod credentials;
mod explain;
mod oauth;
mod oidc;
mod properties;
mod sasl;
mod scram;
mod secret;
mod settings;
mod tls;

pub(crate) use access::{Access, advice_for};
pub use access::{Resource, acl_advice};
pub(crate) use credentials::{Credentials, Login};
pub(crate) use explain::{NotKafka, explain_io, is_refusal};
pub(crate) use sasl::{Authenticated, SaslWire, authenticate};
pub(crate) use secret::wipe;
pub use secret::{Secret, SecretSource};
pub use settings::{
    OidcSettings, SaslMechanism, SaslSettings, SecurityProtocol, SecuritySettings, TlsSettings, TokenSource,
};
pub(crate) use tls::Tls;
