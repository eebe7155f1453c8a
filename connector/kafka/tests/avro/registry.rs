//! What is asked of a registry, and what becomes of its answers. The same questions go to a real one, where
//! `SHARESTREAM_SCHEMA_REGISTRY` names it.

use std::sync::Arc;
use std::time::Duration;

use sharestream_base::{Env, ErrorKind};
use sharestream_http::SecretSource;
use sharestream_kafka::formats::{SchemaId, SchemaRegistry as _, WriterSchema};
use sharestream_registry::{HttpRegistry, RegistrySettings, RegistryUser};

use crate::fake_registry::FakeRegistry;

const FIRST: &str = r#"{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}"#;
/// A field without a default: those who read the first with it cannot.
const INCOMPATIBLE: &str = r#"{"type":"record","name":"R","fields":[{"name":"b","type":"string"}]}"#;

fn settings(urls: &[&str]) -> RegistrySettings {
    let mut settings = RegistrySettings::new(urls.iter().map(|url| (*url).to_owned()).collect());
    settings.request_timeout = Duration::from_millis(2_000);
    settings.patience = Duration::from_millis(3_000);
    settings
}

async fn client(settings: RegistrySettings) -> HttpRegistry {
    HttpRegistry::new(settings, Env::system().clock).await.unwrap()
}

/// What must hold of any registry. Its default compatibility is BACKWARD, or it is told to refuse by `forbid`.
async fn is_asked_and_answers(url: &str, forbid: impl FnOnce()) {
    let client = client(settings(&[url])).await;
    let subject = format!("sharestream-{}-value", Env::system().rng.uuid().simple());
    let error = client.latest(&subject).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains(&subject), "{error}");
    assert_eq!(client.look_up(&subject, FIRST).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    let id = client.register(&subject, FIRST).await.unwrap();
    assert_eq!(client.register(&subject, FIRST).await.unwrap(), id);
    assert_eq!(client.look_up(&subject, FIRST).await.unwrap(), id);
    assert_eq!(client.look_up(&subject, INCOMPATIBLE).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(client.latest(&subject).await.unwrap().schema.contains("\"a\""));
    assert!(matches!(client.schema(id).await.unwrap(), WriterSchema::Known(_)));
    for nobodys in [2_000_000_000, u32::MAX] {
        assert!(matches!(client.schema(SchemaId(nobodys)).await.unwrap(), WriterSchema::Missing(_)));
    }
    forbid();
    let error = client.register(&subject, INCOMPATIBLE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("not compatible"), "{error}");
}

#[tokio::test]
async fn a_registry_is_asked_and_its_refusals_are_told() {
    let registry = FakeRegistry::start().await;
    let state = registry.state.clone();
    is_asked_and_answers(&registry.url, move || state.lock().unwrap().refuses = true).await;
}

#[tokio::test]
async fn a_real_registry_is_asked_the_same() {
    match std::env::var("SHARESTREAM_SCHEMA_REGISTRY") {
        Ok(url) => is_asked_and_answers(&url, || {}).await,
        Err(_) => eprintln!("SHARESTREAM_SCHEMA_REGISTRY names no registry (http://HOST:PORT): not run"),
    }
}

#[tokio::test]
async fn the_next_address_is_asked_and_nobody_at_all_is_no_answer() {
    let registry = FakeRegistry::start().await;
    let id = registry.register("t-value", FIRST);
    // Nobody listens at the first one.
    let client = client(settings(&["http://127.0.0.1:1", &registry.url])).await;
    assert!(matches!(client.schema(SchemaId(id)).await.unwrap(), WriterSchema::Known(_)));
    registry.set_down(true);
    let error = client.schema(SchemaId(id)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Retry);
    assert!(error.to_string().contains("asked"), "{error}");
}

/// A 404 of a proxy, or of a wrong path, must not make bad records of all.
#[tokio::test]
async fn a_path_that_is_no_registry_is_no_answer() {
    let registry = FakeRegistry::start().await;
    let client = client(settings(&[&format!("{}/wrong", registry.url)])).await;
    assert_eq!(client.schema(SchemaId(1)).await.unwrap_err().kind(), ErrorKind::Retry);
}

#[tokio::test]
async fn user_and_password_are_sent_and_a_new_password_needs_no_restart() {
    let registry = FakeRegistry::start().await;
    // "job:old" and "job:new", as RFC 7617 writes them.
    registry.state.lock().unwrap().authorization = Some("Basic am9iOm9sZA==".to_owned());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "old\n").unwrap();
    let mut settings = settings(&[&registry.url]);
    settings.user = Some(RegistryUser { name: "job".to_owned(), password: SecretSource::File(file.clone()) });
    let client = client(settings).await;
    client.register("t-value", FIRST).await.unwrap();
    registry.state.lock().unwrap().authorization = Some("Basic am9iOm5ldw==".to_owned());
    let error = client.register("t-value", FIRST).await.unwrap_err().to_string();
    assert!(error.contains("who is there?") && !error.contains("old"), "{error}");
    std::fs::write(&file, "new\n").unwrap();
    client.register("t-value", FIRST).await.unwrap();
    assert!(!format!("{client:?}").contains("new"));
    // Kept, it may be asked by many.
    let _shared: Arc<dyn sharestream_kafka::formats::SchemaRegistry> = Arc::new(client);
}
