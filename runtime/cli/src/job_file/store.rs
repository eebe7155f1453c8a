//! Where checkpoints are kept: `checkpoint.store` (or `directory`) and `[checkpoint.options]`.

use std::collections::BTreeMap;
use std::path::Path;

use sharestream_checkpoints::StoreLocation;
use toml::de::DeValue;

use super::reader::{Section, wrong_type};
use super::report::Problems;

/// Reads the place; a relative folder is below `folder`, where the job file lies. `None` without one, or with a fault.
pub(super) fn read(
    section: &mut Section<'_>,
    folder: &Path,
    problems: &mut Problems,
) -> Option<StoreLocation> {
    let store = section.string("store", problems);
    let directory = section.string("directory", problems);
    let options = section.section("options", problems);
    if let (Some(_), Some(directory)) = (&store, &directory) {
        let message = "checkpoint.store and checkpoint.directory say the same: where checkpoints are kept";
        problems.add_with_help(&directory.span, message, "keep one of them; store takes folders too");
        return None;
    }
    let span = options.as_ref().map(|options| options.span().clone());
    let options = options.map(|options| read_options(&options, problems)).unwrap_or_default();
    if let Some(directory) = directory {
        // Always a path, also where it has a colon in it.
        if let Some(span) = span {
            problems.add_with_help(
                &span,
                "[checkpoint.options] is for buckets, and checkpoint.directory is a folder",
                "take it away, or name a bucket in checkpoint.store",
            );
        }
        return Some(StoreLocation::folder(folder.join(directory.value)));
    }
    let Some(store) = store else {
        if let Some(span) = span {
            problems.add_with_help(
                &span,
                "[checkpoint.options] without a checkpoint.store",
                "name a bucket, for example: store = \"s3://bucket/prefix\"",
            );
        }
        return None;
    };
    match StoreLocation::parse(&store.value, folder, options) {
        Ok(location) => Some(location),
        Err(error) => {
            problems.add(&store.span, error.to_string());
            None
        }
    }
}

fn read_options(section: &Section<'_>, problems: &mut Problems) -> BTreeMap<String, String> {
    let mut options = BTreeMap::new();
    for (name, value) in section.table() {
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(digits) if digits.radix() == 10 => digits.as_str().to_owned(),
            DeValue::Boolean(flag) => flag.to_string(),
            other => {
                let name = format!("checkpoint.options.{}", name.get_ref());
                wrong_type(problems, value.span(), &name, "a string", other);
                continue;
            }
        };
        options.insert(name.get_ref().to_string(), text);
    }
    options
}
