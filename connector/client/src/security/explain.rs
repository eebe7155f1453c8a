//! What went wrong between a socket and the first answer, in one sentence that says what to do.

use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError};
use sharestream_base::{ErrorKind, HostPort};

use super::settings::{SecurityProtocol, TlsSettings};
use crate::Error;

/// Whom we shook hands with.
pub(super) struct Peer<'a> {
    pub(super) address: &'a HostPort,
    /// The name that its certificate must be for.
    pub(super) name: &'a str,
    pub(super) settings: &'a TlsSettings,
}

/// The error of a TLS handshake.
pub(super) fn handshake(error: &io::Error, peer: &Peer<'_>) -> Error {
    let address = peer.address;
    let Some(tls) = rustls_error(error) else {
        // A plain-text broker reads our greeting as the length of a request that is too long, and hangs up.
        let hangs_up = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
        );
        let text = if hangs_up {
            format!("{address} hung up in the TLS handshake: {}", plain_listener())
        } else {
            format!("TLS with {address} failed ({error}); check the network between")
        };
        return Error::new(ErrorKind::Retry, text);
    };
    let invalid = |text: String| Error::new(ErrorKind::InvalidInput, text);
    match tls {
        rustls::Error::InvalidCertificate(fault) => invalid(certificate(fault, peer)),
        rustls::Error::InvalidMessage(_) => {
            invalid(format!("{address} does not speak TLS: {}", plain_listener()))
        }
        rustls::Error::AlertReceived(alert) => invalid(alert_text(*alert, address, peer.settings)),
        rustls::Error::PeerIncompatible(why) => invalid(format!(
            "{address} and this client have no TLS version or cipher in common ({why:?}); allow TLSv1.2 or TLSv1.3 \
             in the broker's ssl.enabled.protocols"
        )),
        other => invalid(format!("TLS with {address} failed ({other}); check the broker's TLS listener")),
    }
}

fn plain_listener() -> &'static str {
    "the listener on this port is probably plain text; use the port of the broker's TLS listener, or set \
     security.protocol to PLAINTEXT (SASL_PLAINTEXT with SASL)"
}

fn certificate(fault: &CertificateError, peer: &Peer<'_>) -> String {
    let Peer { address, name, settings } = peer;
    let trusted = match &settings.ca_file {
        Some(path) => format!("{} (ssl.ca.file)", path.display()),
        None => "the system's certificate store".to_owned(),
    };
    match fault {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!(
                "the certificate of {address} has expired{}; renew it on the broker (or set this machine's clock)",
                days_ago(fault)
            )
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!(
                "the certificate of {address} is not valid yet; check the clocks of this machine and of whoever issued it"
            )
        }
        CertificateError::UnknownIssuer => format!(
            "the certificate of {address} was issued by an authority that is not in {trusted}; set ssl.ca.file to the \
             PEM file of the authority that issued the brokers' certificates"
        ),
        CertificateError::NotValidForName => format!(
            "the certificate of {address} is not for '{name}'; connect by a name that it is for, or set ssl.server.name"
        ),
        CertificateError::NotValidForNameContext { presented, .. } => format!(
            "the certificate of {address} is not for '{name}' but for {}; connect by one of those names (also in the \
             broker's advertised.listeners), or set ssl.server.name to one",
            if presented.is_empty() {
                "no name at all".to_owned()
            } else {
                presented.iter().map(|name| plain_name(name)).collect::<Vec<_>>().join(", ")
            }
        ),
        CertificateError::Revoked => {
            format!("the certificate of {address} was revoked; renew it on the broker")
        }
        CertificateError::BadSignature => format!(
            "the certificate of {address} is not signed by the authority of its name in {trusted}; ssl.ca.file may be of \
             another cluster"
        ),
        other => {
            let text = format!("{other:?}");
            if text.contains(VERSION_1) {
                return format!("the certificate of {address} is of X.509 version 1; {VERSION_3}");
            }
            if text.contains("CaUsedAsEndEntity") {
                return format!(
                    "{address} shows the certificate of an authority as its own; issue the broker a certificate signed \
                     by that authority (basicConstraints CA:FALSE)"
                );
            }
            format!("the certificate of {address} cannot be used ({text}); issue the broker another")
        }
    }
}

/// What the verifier calls a certificate without extensions, as `openssl x509 -req` makes it by default.
const VERSION_1: &str = "UnsupportedCertVersion";
/// What to do about one.
pub(super) const VERSION_3: &str =
    "issue one of version 3 (openssl x509 -req with an -extfile that says basicConstraints=CA:FALSE)";

/// True for a certificate of our own that is of version 1.
pub(super) fn is_version_1(error: &rustls::Error) -> bool {
    format!("{error:?}").contains(VERSION_1)
}

/// A name of a certificate without what the verifier writes around it: `DnsName("kafka")` is kafka.
fn plain_name(presented: &str) -> &str {
    let inner = presented.split_once('(').and_then(|(_kind, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(presented).trim_matches('"')
}

fn days_ago(fault: &CertificateError) -> String {
    let CertificateError::ExpiredContext { time, not_after } = fault else { return String::new() };
    match time.as_secs().saturating_sub(not_after.as_secs()) / 86_400 {
        0 => " less than a day ago".to_owned(),
        1 => " a day ago".to_owned(),
        days => format!(" {days} days ago"),
    }
}

fn alert_text(alert: AlertDescription, address: &HostPort, settings: &TlsSettings) -> String {
    let ours = match &settings.certificate_file {
        Some(path) => format!("the certificate in {}", path.display()),
        None => "our having none".to_owned(),
    };
    match alert {
        AlertDescription::CertificateRequired => {
            format!("{address} wants a client certificate; set ssl.certificate.file and ssl.key.file")
        }
        AlertDescription::BadCertificate | AlertDescription::HandshakeFailure
            if settings.certificate_file.is_none() =>
        {
            format!(
                "{address} refused the TLS handshake ({alert:?}); it may want a client certificate: set \
                 ssl.certificate.file and ssl.key.file"
            )
        }
        AlertDescription::CertificateExpired => {
            format!("{address} refused {ours}: it has expired; renew it")
        }
        AlertDescription::UnknownCA
        | AlertDescription::CertificateUnknown
        | AlertDescription::BadCertificate => format!(
            "{address} refused {ours} ({alert:?}); use one issued by an authority in the broker's ssl.truststore"
        ),
        AlertDescription::UnrecognisedName => {
            format!(
                "{address} does not serve the name that was asked for; set ssl.server.name to one that it serves"
            )
        }
        other => {
            format!("{address} refused the TLS connection ({other:?}); look at the broker's log for why")
        }
    }
}

/// Words for the error of a read or write on an open connection.
pub(crate) fn explain_io(error: &io::Error, address: &HostPort, tls: Option<&TlsSettings>) -> String {
    match (rustls_error(error), tls) {
        (Some(rustls::Error::AlertReceived(alert)), Some(settings)) => alert_text(*alert, address, settings),
        (Some(other), _) => format!("TLS failed: {other}"),
        // rustls says so with an address in the web where TLS was not closed politely; brokers never do.
        (None, _) if error.kind() == io::ErrorKind::UnexpectedEof => "the broker closed it".to_owned(),
        (None, _) => error.to_string(),
    }
}

/// True when the peer itself says by TLS that it does not want us: no retry helps.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    matches!(rustls_error(error), Some(rustls::Error::AlertReceived(_)))
}

fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// The first bytes of an answer that Kafka never sends: they would be a length of hundreds of megabytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotKafka {
    /// An alert or a handshake of TLS, 15 03 or 16 03: we spoke plain text to a TLS listener.
    Tls,
    /// A web server.
    Http,
    /// Something else.
    Other,
}

impl NotKafka {
    /// What the first four bytes are, if no frame of Kafka.
    pub(crate) fn of(first: [u8; 4], frame_bytes_max: usize) -> Option<Self> {
        match first {
            [0x14..=0x17, 0x03, 0x00..=0x04, _] => Some(NotKafka::Tls),
            [b'H', b'T', b'T', b'P'] => Some(NotKafka::Http),
            length => {
                let length = usize::try_from(i32::from_be_bytes(length)).ok();
                if length.is_some_and(|length| length <= frame_bytes_max) {
                    None
                } else {
                    Some(NotKafka::Other)
                }
            }
        }
    }

    /// The sentence for it.
    pub(crate) fn explain(self, address: &HostPort, protocol: SecurityProtocol) -> impl fmt::Display {
        match self {
            NotKafka::Tls => {
                let instead = if protocol.has_sasl() { "SASL_SSL" } else { "SSL (SASL_SSL with SASL)" };
                format!(
                    "the listener at {address} speaks TLS and we plain text; set security.protocol to {instead}, or use \
                     the port of the broker's plain-text listener"
                )
            }
            NotKafka::Http => format!("{address} is a web server and no Kafka broker; check the port"),
            NotKafka::Other => format!("{address} does not speak the Kafka protocol; check the port"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_that_a_tls_alert_makes_is_recognised() {
        let kind = |bytes| NotKafka::of(bytes, 1 << 20);
        assert_eq!(kind([0x15, 0x03, 0x03, 0x00]), Some(NotKafka::Tls), "the alert of a Java broker");
        assert_eq!(kind([0x16, 0x03, 0x01, 0x02]), Some(NotKafka::Tls));
        assert_eq!(kind(*b"HTTP"), Some(NotKafka::Http));
        assert_eq!(kind(*b"SSH-"), Some(NotKafka::Other));
        assert_eq!(kind([0xff, 0, 0, 0]), Some(NotKafka::Other));
        assert_eq!(kind([0, 0, 2, 222]), None);
        let text = NotKafka::Tls.explain(&HostPort::new("b", 1), SecurityProtocol::SaslPlaintext).to_string();
        assert!(text.contains("b:1") && text.contains("to SASL_SSL,"), "{text}");
    }
}
