//! Certificates of one test: an authority and what it issues.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// An authority; its certificate is in a file of the test's folder.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pub file: PathBuf,
}

/// A certificate with its key, both PEM.
pub struct Issued {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(folder: &Path, name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = folder.join(format!("{name}.pem"));
        std::fs::write(&file, issuer.pem()).unwrap();
        Authority { issuer, file }
    }

    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// For a server of this name.
    pub fn server(&self, name: &str) -> Issued {
        self.issue(name, ExtendedKeyUsagePurpose::ServerAuth, (2020, 2040))
    }

    /// The same, no longer valid in 2026.
    pub fn expired(&self, name: &str) -> Issued {
        self.issue(name, ExtendedKeyUsagePurpose::ServerAuth, (2020, 2025))
    }

    /// For a client of this name.
    pub fn client(&self, name: &str) -> Issued {
        self.issue(name, ExtendedKeyUsagePurpose::ClientAuth, (2020, 2040))
    }

    fn issue(&self, name: &str, purpose: ExtendedKeyUsagePurpose, years: (i32, i32)) -> Issued {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![purpose];
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Issued {
    /// Writes both into one file.
    pub fn write(&self, path: &Path) -> PathBuf {
        std::fs::write(path, format!("{}{}", self.certificate, self.key)).unwrap();
        path.to_owned()
    }

    /// The server side of TLS; `clients`: the authority of the certificates that clients must show.
    pub fn server_config(&self, clients: Option<&Authority>) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.issuer.der().clone()).unwrap();
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let chain = vec![CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        Arc::new(builder.with_single_cert(chain, key).unwrap())
    }
}
