//! TLS around a stream of the network door: rustls with ring, TLS 1.2 and 1.3.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use sharestream_base::{BoxIo, Clock, ErrorKind, HostPort, run_blocking};
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

use super::explain::{self, Peer};
use super::settings::TlsSettings;
use crate::{Error, Result};

/// Makes TLS connections by settings whose files are read anew for each of them.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    settings: Arc<TlsSettings>,
    clock: Clock,
}

impl Tls {
    /// By these settings; `clock` tells whether a certificate has expired.
    pub(crate) fn new(settings: TlsSettings, clock: Clock) -> Self {
        Tls { settings: Arc::new(settings), clock }
    }

    /// The settings.
    pub(crate) fn settings(&self) -> &TlsSettings {
        &self.settings
    }

    /// Shakes hands over `io` with the broker that was dialled at `address`. Cancel safe: `io` is dropped.
    ///
    /// # Errors
    /// `InvalidInput` for files that cannot be used and for certificates that are not to be trusted; `Retry` when the
    /// peer hung up.
    pub(crate) async fn wrap(&self, io: BoxIo, address: &HostPort) -> Result<BoxIo> {
        let name = self.settings.server_name.as_ref().unwrap_or(&address.host);
        let server_name = ServerName::try_from(name.clone()).map_err(|_| {
            let text =
                format!("'{name}' is neither a host name nor an address, so no certificate can be for it");
            Error::new(ErrorKind::InvalidInput, text)
        })?;
        let (settings, clock) = (Arc::clone(&self.settings), self.clock.clone());
        let config = run_blocking("tls-files", move || load(&settings, clock)).await;
        let config = config.map_err(|panic| Error::new(ErrorKind::Bug, panic.to_string()))??;
        let connecting = TlsConnector::from(Arc::new(config)).connect(server_name, io);
        match connecting.await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(explain::handshake(&error, &Peer { address, name, settings: &self.settings })),
        }
    }
}

/// Wall time for certificates, from the same door as all other time.
#[derive(Debug)]
struct DoorTime(Clock);

impl TimeProvider for DoorTime {
    fn current_time(&self) -> Option<UnixTime> {
        let ms = u64::try_from(self.0.wall_ms()).ok()?;
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_millis(ms)))
    }
}

fn load(settings: &TlsSettings, clock: Clock) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = match &settings.ca_file {
        Some(path) => Arc::new(roots_of(path)?),
        None => system_roots()?,
    };
    let builder = ClientConfig::builder_with_details(provider, Arc::new(DoorTime(clock)))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(ErrorKind::Bug, "TLS 1.2 and 1.3").with_source(error))?
        .with_root_certificates(roots);
    match (&settings.certificate_file, &settings.key_file) {
        (Some(certificate_file), Some(key_file)) => {
            let chain = certificates(certificate_file, "ssl.certificate.file")?;
            let with_key = builder.with_client_auth_cert(chain, private_key(key_file)?);
            with_key.map_err(|error| {
                let (certificate, key) = (certificate_file.display(), key_file.display());
                let text = if explain::is_version_1(&error) {
                    format!("the certificate in {certificate} is of X.509 version 1; {}", explain::VERSION_3)
                } else {
                    format!(
                        "the key in {key} does not fit the certificate in {certificate}; ssl.certificate.file must begin \
                         with our own certificate"
                    )
                };
                Error::new(ErrorKind::InvalidInput, text).with_source(error)
            })
        }
        (Some(_), None) | (None, Some(_)) | (None, None) => Ok(builder.with_no_client_auth()),
    }
}

fn roots_of(path: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, "ssl.ca.file")? {
        roots.add(certificate).map_err(|error| {
            let text = format!("{} holds a certificate that cannot be used as an authority", path.display());
            Error::new(ErrorKind::InvalidInput, text).with_source(error)
        })?;
    }
    Ok(roots)
}

/// The operating system's store, read once: it holds well over a hundred certificates.
fn system_roots() -> Result<Arc<RootCertStore>> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(Arc::clone(roots));
    }
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (taken, _ignored) = roots.add_parsable_certificates(loaded.certs);
    if taken == 0 {
        let text = "this system has no certificate authorities; install them (package ca-certificates) or set \
                    ssl.ca.file";
        return Err(Error::new(ErrorKind::InvalidInput, text));
    }
    Ok(Arc::clone(ROOTS.get_or_init(|| Arc::new(roots))))
}

fn certificates(path: &Path, setting: &str) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = read(path, setting)?;
    let invalid = |text: String| Error::new(ErrorKind::InvalidInput, text);
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certificates =
        parsed.map_err(|error| invalid(format!("{setting}: {} is damaged ({error})", path.display())))?;
    if certificates.is_empty() {
        return Err(invalid(format!(
            "{setting}: {} holds no PEM certificate (-----BEGIN CERTIFICATE-----); export one from a key store by \
             keytool -exportcert -rfc",
            path.display()
        )));
    }
    Ok(certificates)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let bytes = read(path, "ssl.key.file")?;
    let invalid = |text: String| Error::new(ErrorKind::InvalidInput, text);
    let place = path.display();
    let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    if holds("BEGIN ENCRYPTED PRIVATE KEY") || holds("Proc-Type: 4,ENCRYPTED") {
        return Err(invalid(format!(
            "ssl.key.file: the key in {place} has a password; remove it by openssl pkcs8 -topk8 -nocrypt -in {place} \
             and protect the file instead"
        )));
    }
    // The parser's own error could quote the file.
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| {
        invalid(format!("ssl.key.file: {place} holds no PEM private key (-----BEGIN PRIVATE KEY-----)"))
    })
}

fn read(path: &Path, setting: &str) -> Result<Zeroizing<Vec<u8>>> {
    std::fs::read(path).map(Zeroizing::new).map_err(|error| {
        let text = format!(
            "{setting}: cannot read {} ({error}); check the path and who may read it",
            path.display()
        );
        Error::new(ErrorKind::InvalidInput, text)
    })
}
