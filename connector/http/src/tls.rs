//! TLS for calls: rustls with ring, TLS 1.2 and 1.3.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use sharestream_base::Clock;

/// Wall time for certificates, from the same door as all other time.
#[derive(Debug)]
struct DoorTime(Clock);

impl TimeProvider for DoorTime {
    fn current_time(&self) -> Option<UnixTime> {
        let ms = u64::try_from(self.0.wall_ms()).ok()?;
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_millis(ms)))
    }
}

/// Reads the authorities, if TLS is spoken at all. Blocks: call it on a blocking thread. Errors: one sentence.
pub(crate) fn config(ca_file: Option<&Path>, is_secure: bool, clock: Clock) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = match ca_file {
        Some(path) => of_file(path)?,
        None if is_secure => of_system()?,
        None => RootCertStore::empty(),
    };
    let builder = ClientConfig::builder_with_details(provider, Arc::new(DoorTime(clock)))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS 1.2 and 1.3 cannot be had ({error})"))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn of_file(path: &Path) -> Result<RootCertStore, String> {
    let place = path.display();
    let bytes = std::fs::read(path).map_err(|error| format!("cannot read {place} ({error})"))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|error| format!("{place} is damaged ({error})"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("a certificate in {place} cannot be an authority ({error})"))?;
    }
    if roots.is_empty() {
        return Err(format!("{place} holds no PEM certificate (-----BEGIN CERTIFICATE-----)"));
    }
    Ok(roots)
}

fn of_system() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let (taken, _ignored) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if taken == 0 {
        return Err(
            "this system has no certificate authorities; install them (package ca-certificates) or set \
                    ca_file"
                .to_owned(),
        );
    }
    Ok(roots)
}
