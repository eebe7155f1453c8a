//! What a section says about Avro: the schema, and the registry that knows more.

use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sharestream_http::SecretSource;
use sharestream_kafka::formats::{AvroFormat, AvroFraming, AvroOutput, Format, record_name_of};
use sharestream_registry::{RegistrySettings, RegistryUser};

use super::model::SinkRegistry;
use super::reader::{At, Section};
use super::report::Problems;

/// Longest schema file; more is the wrong file.
const SCHEMA_BYTES_MAX: u64 = 4 << 20;
const TIMES: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(600);

/// The keys that go with `format = "avro"`. They are read in any case, so that a fault is named and not "unknown key".
#[derive(Default)]
pub(super) struct AvroKeys {
    schema: Option<At<String>>,
    record_name: Option<At<String>>,
    registry: Option<Registry>,
    first: Option<Range<usize>>,
    is_wrong: bool,
}

struct Registry {
    settings: RegistrySettings,
    register: Option<At<bool>>,
}

impl AvroKeys {
    pub(super) fn of_source(section: &mut Section<'_>, path: &Path, problems: &mut Problems) -> Self {
        let mut keys = AvroKeys::default();
        keys.read("source", section, path, problems);
        if let Some(Registry { register: Some(register), .. }) = &keys.registry {
            let message = "source.schema_registry.register: a source registers nothing";
            problems.add_with_help(
                &register.span,
                message,
                "remove it, or write it in [sink.schema_registry]",
            );
        }
        keys
    }

    pub(super) fn of_sink(section: &mut Section<'_>, path: &Path, problems: &mut Problems) -> Self {
        let mut keys = AvroKeys::default();
        keys.record_name = section.string("record_name", problems);
        keys.first = keys.record_name.as_ref().map(|name| name.span.clone());
        keys.read("sink", section, path, problems);
        if let (Some(name), Some(_)) = (&keys.record_name, &keys.schema) {
            let message = "sink.record_name is for a schema that is made of the columns, but one is given";
            problems.add_with_help(&name.span, message, "remove one of the two");
        }
        keys
    }

    fn read(&mut self, name: &str, section: &mut Section<'_>, path: &Path, problems: &mut Problems) {
        let folder = path.parent().unwrap_or(Path::new(""));
        let text = section.string("schema", problems);
        let file = section.string("schema_file", problems);
        let registry = section.section("schema_registry", problems);
        let spans = [text.as_ref().map(|text| &text.span), file.as_ref().map(|file| &file.span)];
        let spans = spans.into_iter().chain([registry.as_ref().map(|registry| registry.span())]);
        self.first = self.first.take().or_else(|| spans.flatten().next().cloned());
        self.schema = match (text, file) {
            (Some(text), Some(file)) => {
                problems.add_with_help(
                    &file.span,
                    format!("{name}.schema and {name}.schema_file are two schemas"),
                    "remove one of them",
                );
                self.is_wrong = true;
                Some(text)
            }
            (Some(text), None) => Some(text),
            (None, Some(file)) => match read_file(&folder.join(&file.value)) {
                Ok(text) => Some(At::new(text, file.span)),
                Err(error) => {
                    problems.add(&file.span, format!("{name}.schema_file: {error}"));
                    self.is_wrong = true;
                    None
                }
            },
            (None, None) => None,
        };
        if let Some(registry) = registry {
            self.registry = read_registry(name, registry, folder, problems);
            self.is_wrong |= self.registry.is_none();
        }
    }

    /// Nothing of it goes with another format.
    pub(super) fn refuse(&self, name: &str, problems: &mut Problems) {
        if let Some(span) = &self.first {
            problems.add_with_help(
                span,
                format!("{name}: schemas are for format = \"avro\" only"),
                "remove it, or use format = \"avro\"",
            );
        }
    }

    /// The format of a source of these topics, and its registry.
    pub(super) fn source(
        self,
        format: &Range<usize>,
        topics: &[At<String>],
        problems: &mut Problems,
    ) -> Option<(Format, Option<RegistrySettings>)> {
        let framing = if self.registry.is_some() { AvroFraming::Registry } else { AvroFraming::None };
        match (&self.schema, &self.registry) {
            (None, None) if !self.is_wrong => {
                let help = "add schema_file = \"order.avsc\", or [source.schema_registry] with its url";
                problems.add_with_help(format, "format = \"avro\" needs a schema", help);
            }
            (None, Some(_)) if topics.len() > 1 => {
                let help = "add schema_file = \"order.avsc\"";
                let message = "the latest version of which topic is the schema of the columns?";
                problems.add_with_help(format, message, help);
            }
            (Some(schema), _) => {
                let format = AvroFormat { schema: schema.value.clone(), framing };
                for fault in Format::Avro(format).faults() {
                    problems.add(&schema.span, format!("source: {fault}"));
                }
            }
            (None, _) => {}
        }
        if self.is_wrong {
            return None;
        }
        let schema = self.schema.map(|schema| schema.value).unwrap_or_default();
        Some((Format::Avro(AvroFormat { schema, framing }), self.registry.map(|registry| registry.settings)))
    }

    /// The format of a sink to `topic`, and its registry.
    pub(super) fn sink(
        self,
        topic: &str,
        problems: &mut Problems,
    ) -> Option<(AvroOutput, Option<SinkRegistry>)> {
        if let Some(schema) = &self.schema
            && let Err(fault) = sharestream_kafka::formats::AvroSchema::parse(&schema.value)
        {
            problems.add(&schema.span, format!("sink: the Avro schema: {fault}"));
        }
        if self.is_wrong {
            return None;
        }
        let record_name = self.record_name.map_or_else(|| record_name_of(topic), |name| name.value);
        let output = AvroOutput::new(record_name, self.schema.map(|schema| schema.value));
        let registry = self.registry.map(|Registry { settings, register }| SinkRegistry {
            settings,
            register: register.is_none_or(|register| register.value),
        });
        Some((output, registry))
    }
}

fn read_file(path: &Path) -> Result<String, String> {
    let place = path.display();
    let unreadable = |error: std::io::Error| format!("cannot read {place} ({error})");
    let length = std::fs::metadata(path).map_err(unreadable)?.len();
    if length > SCHEMA_BYTES_MAX {
        return Err(format!("{place} is too long for a schema; check the path"));
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

fn read_registry(
    name: &str,
    mut section: Section<'_>,
    folder: &Path,
    problems: &mut Problems,
) -> Option<Registry> {
    let span = section.span().clone();
    let has_url = section.require("url", "url = \"http://registry:8081\"", problems);
    let urls = if has_url { section.strings("url", problems) } else { None };
    let username = section.string("username", problems);
    let file = section.string("password_file", problems);
    let env = section.string("password_env", problems);
    let ca_file = section.string("ca_file", problems);
    let timeout = section.duration("timeout", TIMES, problems);
    let patience = section.duration("patience", TIMES, problems);
    let register = section.boolean("register", problems);
    if let Some((key, _)) = section.table().get_key_value("password") {
        // Whoever writes a secret here must not find it in a log as well.
        let message = "a password does not belong here: use password_file or password_env";
        problems.add_hidden(&key.span(), format!("{name}.schema_registry.password: {message}"));
        let _ = section.value("password");
    }
    section.finish(problems);
    let urls = urls?;
    let place = urls.first().map_or(span.clone(), |url| url.span.clone());
    let mut settings = RegistrySettings::new(urls.into_iter().map(|url| url.value).collect());
    settings.ca_file = ca_file.map(|file| folder.join(file.value));
    if let Some(timeout) = timeout {
        settings.request_timeout = timeout.value;
        settings.patience = settings.patience.max(timeout.value);
    }
    if let Some(patience) = patience {
        settings.patience = patience.value;
    }
    settings.user = match (username, file, env) {
        (None, None, None) => None,
        (Some(name), Some(file), None) => {
            let password = SecretSource::File(folder.join(PathBuf::from(file.value)));
            Some(RegistryUser { name: name.value, password })
        }
        (Some(name), None, Some(env)) => {
            Some(RegistryUser { name: name.value, password: SecretSource::Env(env.value) })
        }
        _ => {
            let help = "write username, and password_file or password_env";
            problems.add_with_help(
                &span,
                format!("{name}.schema_registry: a user has a name and one password"),
                help,
            );
            return None;
        }
    };
    let faults = settings.faults();
    for fault in &faults {
        problems.add_hidden(&place, format!("{name}.schema_registry.{fault}"));
    }
    faults.is_empty().then_some(Registry { settings, register })
}
