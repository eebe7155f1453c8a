//! Faults of the settings, all at once.

use std::time::Duration;

use arrow_schema::Schema;
use reqwest::Url;
use reqwest::header::HeaderName;
use sharestream_core::coordinates;

use crate::settings::{Body, Fault, HeaderSource, HttpSettings};
use crate::template::Template;
use crate::values;

const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];
const BODY_BYTES_MAX: usize = 64 << 20;
/// Headers that belong to the connection, not to the record.
const RESERVED: [&str; 5] = ["connection", "content-length", "host", "transfer-encoding", "upgrade"];

#[derive(Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn add(&mut self, setting: impl Into<String>, message: impl Into<String>) {
        self.0.push(Fault { setting: setting.into(), message: message.into(), help: None });
    }

    fn add_with_help(
        &mut self,
        setting: impl Into<String>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.0.push(Fault { setting: setting.into(), message: message.into(), help: Some(help.into()) });
    }
}

impl HttpSettings {
    /// Every fault. With the schema of the rows that will come (hidden columns at the end), columns are looked up too.
    /// Secrets and files are not read.
    pub fn faults(&self, input: Option<&Schema>) -> Vec<Fault> {
        let mut faults = Faults::default();
        if !METHODS.contains(&self.method.as_str()) {
            let message = format!("'{}' is no method that can be used", self.method);
            faults.add_with_help("method", message, format!("one of {}", METHODS.join(", ")));
        }
        self.check_url(input, &mut faults);
        self.check_headers(&mut faults);
        self.check_body(input, &mut faults);
        self.check_numbers(&mut faults);
        self.check_columns(input, &mut faults);
        faults.0
    }

    fn check_url(&self, input: Option<&Schema>, faults: &mut Faults) {
        let template = match Template::parse(&self.url) {
            Ok(template) => template,
            Err(fault) => return faults.add("url", fault),
        };
        let example = "write for example https://host/path/{column}";
        let head = template.head();
        let authority = head.strip_prefix("https://").or_else(|| head.strip_prefix("http://"));
        let Some(authority) = authority else {
            return faults.add_with_help("url", "it must begin with https:// or http://", example);
        };
        let Some(end) = authority.find(['/', '?', '#']) else {
            if template.columns().next().is_none() {
                return faults.add_with_help(
                    "url",
                    "a path is missing behind the host",
                    "add at least a '/'",
                );
            }
            let message = "a column may stand behind the host only, or records would choose whom to call";
            return faults.add_with_help("url", message, example);
        };
        if authority[..end].contains('@') {
            let message = "a user or password in the URL would be seen in logs";
            return faults.add_with_help("url", message, "send an Authorization header from a file");
        }
        let sample = template.sample("x");
        match Url::parse(&sample) {
            Ok(url) if url.path() == raw_path(&sample) => {}
            Ok(url) => {
                let message = format!("the path is not as it will be sent, which is {}", url.path());
                faults.add_with_help("url", message, "write it so");
            }
            Err(error) => faults.add_with_help("url", format!("it is no URL ({error})"), example),
        }
        for (name, is_json) in template.columns() {
            check_column("url", name, input, faults);
            if is_json {
                faults.add_with_help(
                    "url",
                    format!("'{{{name}:json}}' is for bodies"),
                    format!("write {{{name}}}"),
                );
            }
        }
    }

    fn check_headers(&self, faults: &mut Faults) {
        let mut seen: Vec<String> = Vec::new();
        for header in &self.headers {
            let setting = format!("headers.{}", header.name);
            let name = header.name.to_ascii_lowercase();
            if HeaderName::try_from(&header.name).is_err() {
                faults.add(&setting, "it is no name of a header");
            } else if RESERVED.contains(&name.as_str()) {
                faults.add_with_help(&setting, "the connection decides on this header", "remove it");
            } else if self.idempotency_header.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(&name)) {
                faults.add(&setting, "this header carries the idempotency key");
            } else if seen.contains(&name) {
                faults.add(&setting, "the header is set twice");
            }
            seen.push(name);
            let shown = match &header.value {
                HeaderSource::Text(text) => text,
                HeaderSource::Secret { prefix, .. } => prefix,
            };
            if shown.chars().any(char::is_control) {
                faults.add(&setting, "the value has a control character");
            }
        }
        if let Some(name) = &self.idempotency_header {
            if HeaderName::try_from(name).is_err() {
                faults.add("idempotency_header", format!("'{name}' is no name of a header"));
            } else if RESERVED.contains(&name.to_ascii_lowercase().as_str()) {
                faults.add("idempotency_header", format!("'{name}' belongs to the connection"));
            }
        }
    }

    fn check_body(&self, input: Option<&Schema>, faults: &mut Faults) {
        let has_body = !matches!(self.body, Body::Auto | Body::None);
        if has_body && matches!(self.method.as_str(), "GET" | "HEAD") {
            let message = format!("a {} request has no body", self.method);
            faults.add_with_help("body", message, "use method = \"POST\", or no body");
        }
        match &self.body {
            Body::Auto if self.sends_body() => {
                let users = input.map(|schema| &schema.fields()[..coordinates::user_column_count(schema)]);
                for field in users.into_iter().flatten() {
                    check_column("body", field.name(), input, faults);
                }
            }
            Body::Auto | Body::None | Body::Value => {}
            Body::Columns(columns) => {
                if columns.is_empty() {
                    faults.add("body", "it names no column");
                }
                for (index, name) in columns.iter().enumerate() {
                    check_column("body", name, input, faults);
                    if columns[..index].contains(name) {
                        faults.add("body", format!("column '{name}' is named twice"));
                    }
                }
            }
            Body::Template(text) => match Template::parse(text) {
                Ok(template) => {
                    template.columns().for_each(|(name, _)| check_column("body", name, input, faults));
                }
                Err(fault) => faults.add("body", fault),
            },
        }
    }

    /// Whether a request has a body.
    pub(crate) fn sends_body(&self) -> bool {
        match self.body {
            Body::Auto => matches!(self.method.as_str(), "POST" | "PUT" | "PATCH"),
            Body::None => false,
            Body::Value | Body::Columns(_) | Body::Template(_) => true,
        }
    }

    fn check_numbers(&self, faults: &mut Faults) {
        if self.connect_timeout == Duration::ZERO {
            faults.add("connect_timeout", "it is zero, it must be above zero");
        }
        if self.idle_connections_max == 0 {
            faults.add("idle_connections_max", "it is 0, it must be at least 1");
        }
        if !(1..=BODY_BYTES_MAX).contains(&self.body_bytes_max) {
            let message = format!("it is {}, it must be 1 to {BODY_BYTES_MAX}", self.body_bytes_max);
            faults.add("body_bytes_max", message);
        }
        for status in &self.accepted {
            if !(300..=599).contains(status) {
                let help = "name codes from 300 to 599; 2xx are accepted anyway";
                faults.add_with_help("accepted", format!("{status} cannot be named"), help);
            }
        }
    }

    fn check_columns(&self, input: Option<&Schema>, faults: &mut Faults) {
        let mut names: Vec<&str> = input
            .map(|schema| schema.fields().iter().map(|field| field.name().as_str()).collect())
            .unwrap_or_default();
        let own = [("status_column", &self.status_column), ("body_column", &self.body_column)];
        let own = own.into_iter().filter_map(|(setting, name)| Some((setting.to_owned(), name.as_deref()?)));
        let fields = self.fields.iter().map(|field| (format!("fields.{}", field.name), field.name.as_str()));
        for (setting, name) in own.chain(fields) {
            if name.is_empty() {
                faults.add(setting, "the name of a column must not be empty");
            } else if names.contains(&name) || coordinates::COLUMNS.contains(&name) {
                let message = format!("column '{name}' is there already");
                faults.add_with_help(setting, message, "choose another name, or rename the other one in SQL");
            }
            names.push(name);
        }
        for field in &self.fields {
            if !field.pointer.is_empty() && !field.pointer.starts_with('/') {
                let message = format!("'{}' is no JSON pointer", field.pointer);
                let help = format!("write /{}", field.pointer.trim_start_matches("$.").replace('.', "/"));
                faults.add_with_help(format!("fields.{}", field.name), message, help);
            }
        }
        if self.method == "HEAD" && !self.fields.is_empty() {
            faults.add("fields", "the answer to a HEAD request has no body");
        }
    }
}

/// The path of a URL as it is written.
pub(crate) fn raw_path(url: &str) -> &str {
    let behind = url.split_once("://").map_or(url, |(_, behind)| behind);
    let from = behind.find(['/', '?', '#']).unwrap_or(behind.len());
    let path = &behind[from..];
    let path = &path[..path.find(['?', '#']).unwrap_or(path.len())];
    // Without a path, "/" is sent.
    if path.is_empty() { "/" } else { path }
}

fn check_column(setting: &str, name: &str, input: Option<&Schema>, faults: &mut Faults) {
    let Some(schema) = input else { return };
    match schema.field_with_name(name) {
        Ok(field) if !values::is_plain(field.data_type()) => {
            let message = format!("column '{name}' is {}, which has no one text", field.data_type());
            faults.add_with_help(setting, message, "make text of it in SQL");
        }
        Ok(_) => {}
        Err(_) => {
            let users = &schema.fields()[..coordinates::user_column_count(schema)];
            let names: Vec<&str> = users.iter().map(|field| field.name().as_str()).collect();
            let message = format!("column '{name}' is not there");
            faults.add_with_help(setting, message, format!("columns: {}", names.join(", ")));
        }
    }
}

#[cfg(test)]
mod tests;
