//! Asks a registry, and asks again.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use sharestream_base::{Clock, ErrorKind, run_blocking};
use sharestream_http::{client_builder, read_secret};
use sharestream_kafka::formats::{SchemaId, SchemaRegistry, WriterSchema};
use sharestream_kafka::{Error, Result};
use zeroize::Zeroizing;

use crate::answer::{Answer, IdBody, Refusal, SchemaBody, judge};
use crate::settings::RegistrySettings;

/// All but the unreserved characters of RFC 3986.
const ENCODED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// Longest body. A schema of this size has more fields than any row.
const BODY_BYTES_MAX: usize = 4 << 20;
/// Pause before a question is asked again; it doubles.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
const CONTENT_TYPE: &str = "application/vnd.schemaregistry.v1+json";

/// A registry by the REST interface of Confluent's.
pub struct HttpRegistry {
    client: Client,
    clock: Clock,
    settings: RegistrySettings,
}

/// A version of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registered {
    /// JSON of the schema.
    pub schema: String,
}

impl fmt::Debug for HttpRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpRegistry").field("urls", &self.settings.urls).finish_non_exhaustive()
    }
}

fn invalid_input(context: String) -> Error {
    Error::new(ErrorKind::InvalidInput, context)
}

impl HttpRegistry {
    /// A client for the registry; nothing is asked yet.
    ///
    /// # Errors
    /// `InvalidInput` naming every fault of the settings, or what is wrong with the authorities.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn new(settings: RegistrySettings, clock: Clock) -> Result<Self> {
        let faults = settings.faults();
        if !faults.is_empty() {
            let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
            return Err(invalid_input(format!("schema registry: {}", texts.join("; "))));
        }
        let builder = client_builder(settings.ca_file.clone(), settings.is_secure(), &clock).await;
        let builder = builder.map_err(|fault| invalid_input(format!("schema registry: ca_file: {fault}")))?;
        let client = builder
            .build()
            .map_err(|error| invalid_input(format!("schema registry: no client can be made ({error})")))?;
        Ok(HttpRegistry { client, clock, settings })
    }

    /// The latest version of a subject.
    ///
    /// # Errors
    /// `InvalidInput` when it has none, or none that can be used; `Retry` when the registry does not answer.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    pub async fn latest(&self, subject: &str) -> Result<Registered> {
        let path = format!("subjects/{}/versions/latest", encoded(subject));
        let refused = |refusal: Refusal| {
            invalid_input(format!(
                "schema registry: subject {subject}: {}; give a schema, or register one",
                refusal.message
            ))
        };
        let body: SchemaBody =
            self.ask(Method::GET, &path, None).await?.map_err(refused).and_then(|body| read(&body))?;
        match body.fault() {
            Some(fault) => {
                Err(invalid_input(format!("schema registry: the latest version of {subject}: {fault}")))
            }
            None => Ok(Registered { schema: body.schema }),
        }
    }

    /// Registers a schema under a subject; one that is there already keeps its id.
    ///
    /// # Errors
    /// `InvalidInput` with the registry's reason, such as that the schema is not compatible; `Retry` when it does not answer.
    ///
    /// # Cancel safety
    /// The schema may be registered; the next call finds it.
    pub async fn register(&self, subject: &str, schema: &str) -> Result<SchemaId> {
        let path = format!("subjects/{}/versions", encoded(subject));
        let refused = |refusal: Refusal| {
            let what =
                if refusal.status == 409 { "the schema is not compatible" } else { "the schema is refused" };
            invalid_input(format!("schema registry: subject {subject}: {what}: {}", refusal.message))
        };
        let body =
            self.ask(Method::POST, &path, Some(json!({ "schema": schema }))).await?.map_err(refused)?;
        Ok(SchemaId(read::<IdBody>(&body)?.id))
    }

    /// The id of a schema that is registered under a subject.
    ///
    /// # Errors
    /// `InvalidInput` when it is not; `Retry` when the registry does not answer.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is changed.
    pub async fn look_up(&self, subject: &str, schema: &str) -> Result<SchemaId> {
        let path = format!("subjects/{}", encoded(subject));
        let refused = |refusal: Refusal| {
            invalid_input(format!(
                "schema registry: subject {subject} does not have the schema: {}",
                refusal.message
            ))
        };
        let body =
            self.ask(Method::POST, &path, Some(json!({ "schema": schema }))).await?.map_err(refused)?;
        Ok(SchemaId(read::<IdBody>(&body)?.id))
    }

    /// Asks until somebody answers, or patience is at its end. Errors: `Retry`.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<std::result::Result<Vec<u8>, Refusal>> {
        let deadline = self.clock.now() + self.settings.patience;
        let mut pause = PAUSE;
        let mut addresses = self.settings.urls.iter().cycle();
        let mut asked = 0;
        loop {
            let Some(url) = addresses.next() else {
                return Err(invalid_input("schema registry: no address".to_owned()));
            };
            let url = format!("{}/{path}", url.trim_end_matches('/'));
            let once = self.ask_once(method.clone(), &url, body.as_ref());
            let timeout = self.settings.request_timeout;
            let answer = self.clock.timeout(timeout, once).await;
            let reason = match answer
                .unwrap_or_else(|_elapsed| Answer::None(format!("no answer within {timeout:?}")))
            {
                Answer::Yes(body) => return Ok(Ok(body)),
                Answer::No(refusal) => return Ok(Err(refusal)),
                Answer::None(reason) => reason,
            };
            asked += 1;
            // The other addresses are tried before anybody rests.
            let rests = asked % self.settings.urls.len().max(1) == 0;
            if self.clock.now() + pause >= deadline {
                return Err(Error::new(
                    ErrorKind::Retry,
                    format!("schema registry: {url}: {reason} (asked {asked} times)"),
                ));
            }
            tracing::debug!(url, reason, "the schema registry is asked again");
            if rests {
                self.clock.sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }

    async fn ask_once(&self, method: Method, url: &str, body: Option<&Value>) -> Answer {
        let mut request = self.client.request(method, url).header("Accept", CONTENT_TYPE);
        request = match self.signed(request).await {
            Ok(request) => request,
            Err(reason) => return Answer::None(reason),
        };
        if let Some(body) = body {
            request = request.header("Content-Type", CONTENT_TYPE).body(body.to_string());
        }
        let mut response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Answer::None(causes(&error)),
        };
        let status = response.status();
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() > BODY_BYTES_MAX => {
                    return Answer::None(format!("status {status}, and more than {BODY_BYTES_MAX} bytes"));
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => return judge(status, body),
                Err(error) => return Answer::None(causes(&error)),
            }
        }
    }

    /// The request with user and password. The password is read each time: a new one needs no restart.
    async fn signed(&self, request: RequestBuilder) -> std::result::Result<RequestBuilder, String> {
        let Some(user) = &self.settings.user else { return Ok(request) };
        let source = user.password.clone();
        let password: Zeroizing<String> = run_blocking("registry-password", move || read_secret(&source))
            .await
            .map_err(|panic| panic.to_string())
            .and_then(|read| read)?;
        Ok(request.basic_auth(&user.name, Some(password.as_str())))
    }
}

#[async_trait]
impl SchemaRegistry for HttpRegistry {
    async fn schema(&self, id: SchemaId) -> Result<WriterSchema> {
        if i32::try_from(id.0).is_err() {
            // To registries it would be no number at all, and their answer one to something else.
            return Ok(WriterSchema::Missing("registries do not give such ids".to_owned()));
        }
        let path = format!("schemas/ids/{id}");
        match self.ask(Method::GET, &path, None).await? {
            Ok(body) => Ok(read::<SchemaBody>(&body)?.into_writer()),
            Err(refusal) if refusal.is_missing() => {
                Ok(WriterSchema::Missing("the registry does not have it".to_owned()))
            }
            Err(refusal) => {
                let who = if refusal.is_forbidden() { "it does not let this user ask" } else { "it refuses" };
                let message = refusal.message;
                Err(Error::new(ErrorKind::Retry, format!("schema registry: schema {id}: {who}: {message}")))
            }
        }
    }
}

fn encoded(subject: &str) -> String {
    utf8_percent_encode(subject, &ENCODED).to_string()
}

/// Errors: `Retry`; whatever says this is no registry, or not always.
fn read<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map_err(|error| {
        Error::new(ErrorKind::Retry, format!("schema registry: an answer that makes no sense ({error})"))
    })
}

/// An error with what caused it; the address of a request is no secret.
fn causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
