//! How the job reaches its brokers, under Kafka's own names for the settings of a client.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use sharestream_client::SecuritySettings;
use toml::de::{DeTable, DeValue};

use super::reader::{Section, wrong_type};
use super::report::Problems;
use super::suggest;

/// Reads `[source.security]`. `security.protocol` may be written bare (TOML then nests tables) or quoted; relative files
/// are relative to the job file. `None` when anything is wrong; then `problems` says what.
pub(crate) fn read(section: &Section<'_>, path: &Path, problems: &mut Problems) -> Option<SecuritySettings> {
    let mut found = Found::default();
    flatten("", section.table(), &mut found, problems);
    for (key, text) in SecuritySettings::faults(&found.properties) {
        // A key that is missing has no place of its own.
        let span = found.places.get(&key).unwrap_or_else(|| section.span());
        let message = format!("source.security: {key}: {text}");
        let near = suggest::nearest(&key, SecuritySettings::property_names()).filter(|near| *near != key);
        match near {
            // Whoever writes a secret here must not find it in a log as well.
            _ if ["password", "secret", "jaas", "token"].iter().any(|word| key.contains(word)) => {
                problems.add_hidden(span, message);
            }
            Some(near) => problems.add_with_help(span, message, format!("did you mean '{near}'?")),
            None => problems.add(span, message),
        }
        found.is_wrong = true;
    }
    if found.is_wrong {
        return None;
    }
    let settings = SecuritySettings::from_properties(&found.properties).ok()?;
    Some(settings.relative_to(path.parent().unwrap_or(Path::new(""))))
}

#[derive(Default)]
struct Found {
    properties: BTreeMap<String, String>,
    places: BTreeMap<String, Range<usize>>,
    is_wrong: bool,
}

fn flatten(prefix: &str, table: &DeTable<'_>, found: &mut Found, problems: &mut Problems) {
    for (name, value) in table {
        let key = if prefix.is_empty() {
            name.get_ref().to_string()
        } else {
            format!("{prefix}.{}", name.get_ref())
        };
        match value.get_ref() {
            DeValue::Table(inner) => flatten(&key, inner, found, problems),
            DeValue::String(text) => {
                found.places.insert(key.clone(), name.span());
                found.properties.insert(key, text.to_string());
            }
            other => {
                wrong_type(problems, value.span(), &key, "a string", other);
                found.is_wrong = true;
            }
        }
    }
}
