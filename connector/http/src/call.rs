//! The function: a request for a row, a response as columns.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use async_trait::async_trait;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Url};
use sharestream_base::Clock;
use sharestream_core::async_map::{AsyncFunction, AsyncOutcome, AsyncRow, CallError};
use sharestream_core::{Error, ErrorKind, Result, coordinates};

use crate::check::raw_path;
use crate::client::client_builder;
use crate::headers::Headers;
use crate::settings::{Body, Fault, HttpSettings};
use crate::template::{Bound, Template};
use crate::values::{self, ValueError};
use crate::{fields, response};

/// All but the unreserved characters of RFC 3986.
const ENCODED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Calls a URL for each row.
#[derive(Debug)]
pub struct HttpFunction {
    client: Client,
    clock: Clock,
    method: Method,
    url: Bound,
    body: BoundBody,
    content_type: Option<HeaderValue>,
    headers: Headers,
    idempotency_header: Option<HeaderName>,
    /// What stands before a record's own key.
    key_prefix: String,
    settings: HttpSettings,
}

/// A body whose columns have been found.
#[derive(Debug)]
enum BoundBody {
    None,
    Column(usize),
    /// A JSON object: names as JSON, and places.
    Object(Vec<(Vec<u8>, usize)>),
    Template(Bound),
}

impl HttpFunction {
    /// Checks the settings against the rows that will come (`input`, hidden columns at the end) and reads secrets and
    /// authorities. `cluster_id` stands before every idempotency key: give it where several clusters call one service.
    ///
    /// # Errors
    /// `InvalidInput` naming every fault at once.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is sent.
    pub async fn connect(
        settings: HttpSettings,
        input: &Schema,
        cluster_id: Option<&str>,
        clock: Clock,
    ) -> Result<Self> {
        let mut faults = settings.faults(Some(input));
        let headers = Headers::read(settings.headers.clone(), &clock).await;
        let headers = headers.map_err(|unreadable| faults.extend(unreadable)).ok();
        let client = client(&settings, &clock).await.map_err(|fault| faults.push(fault)).ok();
        let (Some(headers), Some(client), true) = (headers, client, faults.is_empty()) else {
            // A header may have the same fault for both who look at it.
            let mut texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
            texts.dedup();
            return Err(Error::new(ErrorKind::InvalidInput, texts.join("; ")));
        };
        let bug = |text: String| Error::new(ErrorKind::Bug, format!("settings that were checked: {text}"));
        let url = Template::parse(&settings.url).and_then(|url| url.bind(input)).map_err(bug)?;
        let method =
            Method::from_bytes(settings.method.as_bytes()).map_err(|error| bug(error.to_string()))?;
        let idempotency_header = settings.idempotency_header.as_ref().map(HeaderName::try_from).transpose();
        let (body, content_type) = bind_body(&settings, input).map_err(bug)?;
        let is_set = settings.headers.iter().any(|header| header.name.eq_ignore_ascii_case("content-type"));
        Ok(HttpFunction {
            client,
            clock,
            method,
            url,
            body,
            content_type: content_type.filter(|_| !is_set).map(HeaderValue::from_static),
            headers,
            idempotency_header: idempotency_header.map_err(|error| bug(error.to_string()))?,
            key_prefix: cluster_id.map(|id| format!("{id}/")).unwrap_or_default(),
            settings,
        })
    }

    fn url(&self, batch: &RecordBatch, row: usize) -> Result<Url, ValueError> {
        let encode = |bytes: &[u8], out: &mut Vec<u8>| {
            percent_encode(bytes, &ENCODED).for_each(|piece| out.extend_from_slice(piece.as_bytes()));
        };
        let text = self.url.render(batch, row, encode)?;
        let text = String::from_utf8(text).map_err(|_| ValueError("the URL is not UTF-8 text".to_owned()))?;
        let url = Url::parse(&text).map_err(|error| ValueError(format!("its URL is none ({error})")))?;
        // A value of ".." is no segment but a step up, to a place that nobody meant to call.
        if url.path() != raw_path(&text) {
            return Err(ValueError("a value steps out of the path of the URL ('.' or '..')".to_owned()));
        }
        Ok(url)
    }

    fn body(&self, batch: &RecordBatch, row: usize) -> Result<Option<Vec<u8>>, ValueError> {
        match &self.body {
            BoundBody::None => Ok(None),
            BoundBody::Column(index) => {
                let value = values::text(batch, *index, row)?;
                let value = value.ok_or_else(|| ValueError("the record has no value to send".to_owned()))?;
                Ok(Some(value.into_owned()))
            }
            BoundBody::Object(columns) => {
                let mut out = Vec::new();
                for (number, (name, index)) in columns.iter().enumerate() {
                    out.push(if number == 0 { b'{' } else { b',' });
                    out.extend_from_slice(name);
                    out.push(b':');
                    values::json(batch, *index, row, &mut out)?;
                }
                if columns.is_empty() {
                    out.push(b'{');
                }
                out.push(b'}');
                Ok(Some(out))
            }
            BoundBody::Template(template) => {
                let encode = |bytes: &[u8], out: &mut Vec<u8>| out.extend_from_slice(bytes);
                Ok(Some(template.render(batch, row, encode)?))
            }
        }
    }

    /// The headers that are of this row alone, and those of all.
    async fn headers(&self, row: &AsyncRow) -> Result<HeaderMap, CallError> {
        let common = self.headers.now(&self.clock).await.map_err(CallError::transient)?;
        let mut headers = HeaderMap::clone(&common);
        if let Some(name) = &self.idempotency_header {
            let key = row.idempotency_key().map_err(|error| CallError::permanent(error.to_string()))?;
            let key = HeaderValue::try_from(format!("{}{key}", self.key_prefix));
            let key = key.map_err(|_| CallError::permanent("the cluster id does not fit into a header"))?;
            headers.insert(name.clone(), key);
        }
        if let Some(content_type) = &self.content_type {
            headers.insert(CONTENT_TYPE, content_type.clone());
        }
        Ok(headers)
    }

    fn columns_of(&self, status: u16, body: Vec<u8>) -> Result<Vec<ArrayRef>, String> {
        let mut columns: Vec<ArrayRef> = Vec::new();
        let fields = fields::columns(&self.settings.fields, &body)?;
        if self.settings.status_column.is_some() {
            columns.push(Arc::new(Int32Array::from(vec![i32::from(status)])));
        }
        if self.settings.body_column.is_some() {
            let text = String::from_utf8(body).map_err(|_| "the body is not UTF-8 text".to_owned())?;
            columns.push(Arc::new(StringArray::from(vec![text])));
        }
        columns.extend(fields);
        Ok(columns)
    }
}

#[async_trait]
impl AsyncFunction for HttpFunction {
    fn columns(&self) -> Vec<FieldRef> {
        self.settings.columns()
    }

    async fn call(&self, row: AsyncRow) -> Result<AsyncOutcome, CallError> {
        let refused = |error: ValueError| CallError::permanent(error.0);
        let url = self.url(row.batch(), row.index()).map_err(refused)?;
        let body = self.body(row.batch(), row.index()).map_err(refused)?;
        let mut request = self.client.request(self.method.clone(), url).headers(self.headers(&row).await?);
        if let Some(body) = body {
            request = request.body(body);
        }
        // The request holds what it needs: the batch need not wait for the answer with it.
        drop(row);
        let response = request.send().await.map_err(response::broken)?;
        let settings = &self.settings;
        let (status, body) =
            response::read(response, &settings.accepted, settings.body_bytes_max, &self.clock).await?;
        let columns = self.columns_of(status.as_u16(), body);
        columns
            .map(AsyncOutcome::Columns)
            .map_err(|fault| CallError::permanent(format!("status {status}: {fault}")))
    }
}

impl HttpSettings {
    /// The columns that a function of these settings appends, in order.
    pub fn columns(&self) -> Vec<FieldRef> {
        let status = self.status_column.iter().map(|name| Field::new(name, DataType::Int32, false));
        let body = self.body_column.iter().map(|name| Field::new(name, DataType::Utf8, false));
        let fields = self
            .fields
            .iter()
            .map(|field| Field::new(&field.name, field.field_type.data_type(), !field.is_required));
        status.chain(body).chain(fields).map(Arc::new).collect()
    }
}

impl HttpSettings {
    /// The columns of rows behind a call: those of the user, those of the call, the hidden ones.
    pub fn output_schema(&self, input: &Schema) -> SchemaRef {
        let (users, hidden) = input.fields().split_at(coordinates::user_column_count(input));
        let fields: Vec<FieldRef> =
            users.iter().cloned().chain(self.columns()).chain(hidden.iter().cloned()).collect();
        Arc::new(Schema::new(fields))
    }
}

type Bodies = (BoundBody, Option<&'static str>);

fn bind_body(settings: &HttpSettings, input: &Schema) -> Result<Bodies, String> {
    const JSON: &str = "application/json";
    let index_of = |name: &str| input.index_of(name).map_err(|error| error.to_string());
    let object = |names: &mut dyn Iterator<Item = &str>| {
        let columns = names.map(|name| {
            let mut quoted = Vec::new();
            values::string(name, &mut quoted);
            Ok((quoted, index_of(name)?))
        });
        Ok::<_, String>((BoundBody::Object(columns.collect::<Result<_, String>>()?), Some(JSON)))
    };
    match &settings.body {
        Body::Auto if settings.sends_body() => {
            let users = &input.fields()[..coordinates::user_column_count(input)];
            object(&mut users.iter().map(|field| field.name().as_str()))
        }
        Body::Auto | Body::None => Ok((BoundBody::None, None)),
        Body::Value => {
            let index = index_of(coordinates::VALUE)?;
            Ok((BoundBody::Column(index), Some("application/octet-stream")))
        }
        Body::Columns(names) => object(&mut names.iter().map(String::as_str)),
        Body::Template(text) => {
            let template = Template::parse(text)?.bind(input)?;
            Ok((BoundBody::Template(template), Some("text/plain; charset=utf-8")))
        }
    }
}

async fn client(settings: &HttpSettings, clock: &Clock) -> Result<Client, Fault> {
    let fault = |message: String| Fault { setting: "ca_file".to_owned(), message, help: None };
    let is_secure = settings.url.starts_with("https://");
    let builder = client_builder(settings.ca_file.clone(), is_secure, clock).await.map_err(fault)?;
    builder
        .connect_timeout(settings.connect_timeout)
        .pool_idle_timeout(settings.idle_timeout)
        .pool_max_idle_per_host(settings.idle_connections_max)
        .build()
        .map_err(|error| fault(format!("no client can be made ({error})")))
}
