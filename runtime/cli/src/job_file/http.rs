//! `[[http]]`: calls for each row, behind the SQL and in front of the sink, in the order of the text.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow_schema::Schema;
use sharestream_core::async_map::{AsyncMapOptions, OnExhausted};
use sharestream_http::{Body, FieldType, Header, HeaderSource, HttpSettings, JsonField, SecretSource};
use toml::Spanned;
use toml::de::DeValue;

use super::reader::{At, Section, string_value, wrong_type};
use super::report::Problems;

/// One `[[http]]` table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HttpStage {
    /// Its name in status, logs and errors. Default `http`, then `http-2` and so on.
    pub(crate) name: String,
    /// What is called.
    pub(crate) settings: HttpSettings,
    /// How many calls at once, and what becomes of failures.
    pub(crate) options: AsyncMapOptions,
    places: Places,
}

/// Where each setting stands.
#[derive(Clone, Debug, Default, PartialEq)]
struct Places {
    table: Range<usize>,
    settings: BTreeMap<String, Range<usize>>,
}

impl Places {
    fn of(&self, setting: &str) -> &Range<usize> {
        let whole = self.settings.get(setting);
        let first = || self.settings.get(setting.split('.').next().unwrap_or(setting));
        whole.or_else(first).unwrap_or(&self.table)
    }
}

impl HttpStage {
    /// Every fault that only the columns in front of it show, or, without them, all others.
    pub(super) fn check(&self, input: Option<&Schema>, problems: &mut Problems) {
        for fault in self.settings.faults(input) {
            let span = self.places.of(&fault.setting);
            let message = format!("http.{}: {}", fault.setting, fault.message);
            match fault.help {
                Some(help) => problems.add_with_help(span, message, help),
                None => problems.add(span, message),
            }
        }
    }
}

const DAY: Duration = Duration::from_secs(24 * 3_600);
const MS: Duration = Duration::from_millis(1);

/// Reads all tables. `None` when one is wrong; then `problems` says what.
pub(super) fn read(file: &mut Section<'_>, path: &Path, problems: &mut Problems) -> Option<Vec<HttpStage>> {
    let Some(value) = file.value("http") else { return Some(Vec::new()) };
    let tables: Vec<Option<HttpStage>> = match value.get_ref() {
        DeValue::Array(items) => {
            let stage = |(index, item): (usize, &Spanned<DeValue<'_>>)| match item.get_ref() {
                DeValue::Table(table) => {
                    read_one(Section::new("http", item.span(), table), index, path, problems)
                }
                other => {
                    wrong_type(problems, item.span(), "http", "tables under [[http]]", other);
                    None
                }
            };
            items.iter().enumerate().map(stage).collect()
        }
        DeValue::Table(table) => {
            vec![read_one(Section::new("http", value.span(), table), 0, path, problems)]
        }
        other => {
            wrong_type(problems, value.span(), "http", "tables under [[http]]", other);
            return None;
        }
    };
    let stages: Vec<HttpStage> = tables.into_iter().collect::<Option<_>>()?;
    for (index, stage) in stages.iter().enumerate() {
        stage.check(None, problems);
        if stages[..index].iter().any(|other| other.name == stage.name) {
            problems.add(stage.places.of("name"), format!("http.name '{}' is used twice", stage.name));
        }
    }
    Some(stages)
}

/// A table under construction.
struct Reading<'a, 'p> {
    section: Section<'a>,
    places: Places,
    problems: &'p mut Problems,
}

impl Reading<'_, '_> {
    fn place<T>(&mut self, setting: &str, at: Option<At<T>>) -> Option<T> {
        let At { value, span } = at?;
        self.places.settings.insert(setting.to_owned(), span);
        Some(value)
    }

    fn string(&mut self, key: &'static str) -> Option<String> {
        let at = self.section.string(key, self.problems);
        self.place(key, at)
    }

    /// An empty text is none.
    fn name(&mut self, key: &'static str, default: Option<String>) -> Option<String> {
        self.string(key).map_or(default, |name| Some(name).filter(|name| !name.is_empty()))
    }

    fn count(&mut self, key: &'static str, range: RangeInclusive<i64>, default: usize) -> usize {
        let at = self.section.integer(key, range, self.problems);
        self.place(key, at).and_then(|number| usize::try_from(number).ok()).unwrap_or(default)
    }

    fn duration(&mut self, key: &'static str, default: Duration) -> Duration {
        let at = self.section.duration(key, MS..=DAY, self.problems);
        self.place(key, at).unwrap_or(default)
    }
}

fn read_one(section: Section<'_>, index: usize, path: &Path, problems: &mut Problems) -> Option<HttpStage> {
    let places = Places { table: section.span().clone(), ..Places::default() };
    let before = problems.count();
    let mut reading = Reading { section, places, problems };
    let name = reading.string("name").unwrap_or_else(|| match index {
        0 => "http".to_owned(),
        index => format!("http-{}", index + 1),
    });
    let there = reading.section.require("url", "url = \"https://host/{column}\"", reading.problems);
    let url = if there { reading.string("url") } else { None }.unwrap_or_default();
    let settings = read_settings(&mut reading, url, path.parent().unwrap_or(Path::new("")));
    let options = read_options(&mut reading);
    let Reading { section, places, problems } = reading;
    section.finish(problems);
    for fault in options.faults() {
        // A fault begins with the name of its setting.
        let setting = fault.split(' ').next().unwrap_or_default();
        problems.add(places.of(setting), format!("http.{fault}"));
    }
    // What could not be read is not checked: faults of a guess would mislead.
    (problems.count() == before).then_some(HttpStage { name, settings, options, places })
}

fn read_settings(reading: &mut Reading<'_, '_>, url: String, folder: &Path) -> HttpSettings {
    let defaults = HttpSettings::new("", url);
    let body = read_body(reading);
    let mut settings = defaults.clone();
    settings.method = reading.string("method").unwrap_or_else(|| "POST".to_owned());
    settings.headers = read_headers(reading, folder);
    settings.body = body;
    settings.idempotency_header = reading.name("idempotency_header", defaults.idempotency_header);
    settings.connect_timeout = reading.duration("connect_timeout", defaults.connect_timeout);
    settings.idle_timeout = reading.duration("idle_timeout", defaults.idle_timeout);
    settings.idle_connections_max =
        reading.count("idle_connections_max", 1..=65_536, defaults.idle_connections_max);
    settings.body_bytes_max = reading.count("body_bytes_max", 1..=64 << 20, defaults.body_bytes_max);
    settings.accepted = read_accepted(reading);
    settings.status_column = reading.name("status_column", defaults.status_column);
    settings.body_column = reading.name("body_column", defaults.body_column);
    settings.fields = read_fields(reading);
    settings.ca_file = reading.string("ca_file").map(|file| folder.join(file));
    settings
}

fn read_options(reading: &mut Reading<'_, '_>) -> AsyncMapOptions {
    const ENDS: [(&str, OnExhausted); 2] =
        [("dead-letter", OnExhausted::Reject), ("fail", OnExhausted::Fail)];
    let defaults = AsyncMapOptions::default();
    let ordered = reading.section.boolean("ordered", reading.problems);
    let end = reading.section.one_of("on_exhausted", &ENDS, reading.problems);
    let end = reading.place("on_exhausted", end).unwrap_or_default();
    let concurrency = reading.count("concurrency", 1..=65_536, defaults.concurrency);
    let attempts = reading.count("attempts_max", 1..=1_000_000, defaults.attempts_max as usize);
    let holds = reading.count("holds_after_failures", 0..=1_000_000, defaults.holds_after_failures as usize);
    let (timeout, backoff) =
        (reading.duration("timeout", defaults.timeout), reading.duration("backoff", defaults.backoff));
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    AsyncMapOptions::default()
        .with_concurrency(concurrency)
        .with_order(ordered.is_some_and(|ordered| ordered.value))
        .with_timeout(timeout)
        .with_attempts_max(small(attempts))
        .with_backoff(backoff)
        .with_backoff_max(reading.duration("backoff_max", defaults.backoff_max.max(backoff)))
        .with_on_exhausted(end)
        .with_holds_after_failures(small(holds))
        .with_probe_interval(reading.duration("probe_interval", defaults.probe_interval))
        .with_rows_max(reading.count("rows_max", 1..=10_000_000, defaults.rows_max.max(concurrency)))
}

fn read_body(reading: &mut Reading<'_, '_>) -> Body {
    let template = reading.section.string("body_template", reading.problems);
    let template = template.map(|at| {
        // The crate knows one setting, the body.
        reading.places.settings.insert("body".to_owned(), at.span.clone());
        Body::Template(at.value)
    });
    let Some(value) = reading.section.value("body") else { return template.unwrap_or_default() };
    reading.places.settings.insert("body".to_owned(), value.span());
    if template.is_some() {
        let message = "http.body and http.body_template are two bodies";
        reading.problems.add_with_help(&value.span(), message, "remove one of them");
    }
    match value.get_ref() {
        DeValue::String(word) => match word.as_ref() {
            "value" => Body::Value,
            "none" => Body::None,
            other => {
                let message = format!("http.body cannot be \"{other}\"");
                let help = "write \"value\" (the record as it came), \"none\", or a list of columns; \
                            body_template takes a text";
                reading.problems.add_with_help(&value.span(), message, help);
                Body::None
            }
        },
        DeValue::Array(items) => {
            let names = items.iter().filter_map(|item| string_value(item, "http.body", reading.problems));
            Body::Columns(names.map(|name| name.value).collect())
        }
        other => {
            wrong_type(reading.problems, value.span(), "http.body", "a word or a list of columns", other);
            Body::None
        }
    }
}

fn read_headers(reading: &mut Reading<'_, '_>, folder: &Path) -> Vec<Header> {
    let Some(section) = reading.section.section("headers", reading.problems) else { return Vec::new() };
    let mut headers = Vec::new();
    for (name, value) in section.table() {
        let text = name.get_ref().to_string();
        reading.places.settings.insert(format!("headers.{text}"), name.span());
        let source = match value.get_ref() {
            DeValue::String(value) => Some(HeaderSource::Text(value.to_string())),
            DeValue::Table(table) => {
                let path = format!("http.headers.{text}");
                read_secret(Section::new(path, value.span(), table), folder, reading.problems)
            }
            other => {
                let expected = "a text, or { file = \"..\" } or { env = \"..\" } for a secret";
                wrong_type(reading.problems, value.span(), &format!("http.headers.{text}"), expected, other);
                None
            }
        };
        headers.extend(source.map(|value| Header { name: text, value }));
    }
    headers
}

fn read_secret(mut section: Section<'_>, folder: &Path, problems: &mut Problems) -> Option<HeaderSource> {
    let file = section.string("file", problems);
    let env = section.string("env", problems);
    let prefix = section.string("prefix", problems).map(|prefix| prefix.value).unwrap_or_default();
    let span = section.span().clone();
    section.finish(problems);
    let source = match (file, env) {
        (Some(file), None) => SecretSource::File(folder.join(PathBuf::from(file.value))),
        (None, Some(env)) => SecretSource::Env(env.value),
        (Some(_), Some(_)) | (None, None) => {
            let help = "for example { file = \"token\", prefix = \"Bearer \" }";
            problems.add_with_help(&span, "a secret is in one place: a file or the environment", help);
            return None;
        }
    };
    Some(HeaderSource::Secret { prefix, source })
}

fn read_accepted(reading: &mut Reading<'_, '_>) -> Vec<u16> {
    let Some(value) = reading.section.value("accepted") else { return Vec::new() };
    reading.places.settings.insert("accepted".to_owned(), value.span());
    let mut codes = Vec::new();
    let DeValue::Array(items) = value.get_ref() else {
        let expected = "a list of status codes such as [404]";
        wrong_type(reading.problems, value.span(), "http.accepted", expected, value.get_ref());
        return codes;
    };
    for item in items {
        let code = match item.get_ref() {
            DeValue::Integer(digits) => u16::from_str_radix(digits.as_str(), digits.radix()).ok(),
            _ => None,
        };
        match code {
            Some(code) => codes.push(code),
            None => {
                reading.problems.add(&item.span(), "http.accepted holds something that is no status code")
            }
        }
    }
    codes
}

fn read_fields(reading: &mut Reading<'_, '_>) -> Vec<JsonField> {
    let Some(value) = reading.section.value("fields") else { return Vec::new() };
    let example = "a list of { name, pointer, type }";
    let DeValue::Array(items) = value.get_ref() else {
        wrong_type(reading.problems, value.span(), "http.fields", example, value.get_ref());
        return Vec::new();
    };
    let mut fields = Vec::new();
    for item in items {
        let DeValue::Table(table) = item.get_ref() else {
            wrong_type(reading.problems, item.span(), "http.fields", example, item.get_ref());
            continue;
        };
        let section = Section::new("http.fields", item.span(), table);
        if let Some(field) = read_field(section, reading.problems) {
            reading.places.settings.insert(format!("fields.{}", field.name), item.span());
            fields.push(field);
        }
    }
    fields
}

fn read_field(mut section: Section<'_>, problems: &mut Problems) -> Option<JsonField> {
    const TYPES: [(&str, FieldType); 4] = [
        ("string", FieldType::Utf8),
        ("int64", FieldType::Int64),
        ("float64", FieldType::Float64),
        ("bool", FieldType::Boolean),
    ];
    let name = section.required_string("name", "price", problems);
    let has_pointer = section.require("pointer", "pointer = \"/data/price\"", problems);
    let pointer = if has_pointer { section.string("pointer", problems) } else { None };
    let has_type = section.require("type", "type = \"string\" (or int64, float64, bool)", problems);
    let field_type = if has_type { section.one_of("type", &TYPES, problems) } else { None };
    let is_required = section.boolean("required", problems);
    section.finish(problems);
    Some(JsonField {
        name: name?.value,
        pointer: pointer?.value,
        field_type: field_type?.value,
        is_required: is_required.is_some_and(|required| required.value),
    })
}
