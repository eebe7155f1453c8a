//! Secrets in headers, and TLS.

use std::sync::Arc;

use rustls::pki_types::PrivatePkcs8KeyDer;
use sharestream_base::{BoxIo, Clock};
use sharestream_http::{Header, HeaderSource, HttpFunction, HttpSettings, SecretSource};
use tokio_rustls::TlsAcceptor;

use crate::server::Server;
use crate::{columns, connect, row, schema};

fn bearer(source: SecretSource) -> Header {
    let value = HeaderSource::Secret { prefix: "Bearer ".to_owned(), source };
    Header { name: "Authorization".to_owned(), value }
}

#[tokio::test]
async fn a_secret_is_sent_and_never_shown() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "hunter2\n").unwrap();
    let mut settings = HttpSettings::new("GET", server.url("/status/401"));
    settings.headers = vec![bearer(SecretSource::File(path.clone()))];
    let function = connect(settings.clone()).await;
    let error = columns(&function, row(1, None)).await.unwrap_err();
    assert_eq!(server.seen()[0].header("authorization"), Some("Bearer hunter2"));
    for shown in [error.to_string(), format!("{function:?}"), format!("{settings:?}")] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[tokio::test]
async fn a_secret_that_is_not_there_is_a_fault_that_names_its_place() {
    for (source, part) in [
        (SecretSource::File("/does/not/exist".into()), "/does/not/exist"),
        (SecretSource::Env("SHARESTREAM_NO_SUCH_TOKEN".to_owned()), "SHARESTREAM_NO_SUCH_TOKEN is not set"),
    ] {
        let mut settings = HttpSettings::new("GET", "http://h/");
        settings.headers = vec![bearer(source)];
        let error = HttpFunction::connect(settings, &schema(), None, Clock::system()).await.unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert!(error.to_string().starts_with("headers.Authorization: "), "{error}");
    }
}

#[tokio::test]
async fn tls_is_spoken_with_the_given_authority_and_refused_with_others() {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![cert.der().clone()],
            PrivatePkcs8KeyDer::from(signing_key.serialize_der()).into(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let server = Server::wrapped(Arc::new(move |io| {
        let acceptor = acceptor.clone();
        Box::pin(async move {
            let stream = acceptor.accept(io).await.ok()?;
            let io: BoxIo = Box::new(stream);
            Some(io)
        })
    }))
    .await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, cert.pem()).unwrap();
    let mut settings = HttpSettings::new("GET", format!("https://localhost:{}/", server.address.port));
    settings.ca_file = Some(path);
    columns(&connect(settings.clone()).await, row(1, None)).await.unwrap();
    assert_eq!(server.seen().len(), 1);
    let strange = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let path = folder.path().join("other.pem");
    std::fs::write(&path, strange.cert.pem()).unwrap();
    settings.ca_file = Some(path);
    let error = columns(&connect(settings).await, row(1, None)).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    assert_eq!(server.seen().len(), 1);
}
