//! The sections of a job file, one function each.

use std::path::Path;
use std::time::Duration;

use sharestream_base::HostPort;
use sharestream_client::SecuritySettings;
use sharestream_kafka::formats::{AvroOutput, CsvFormat, CsvOutput, Format, JsonFormat, OutputFormat};
use sharestream_kafka::memory::Tasks;
use sharestream_registry::RegistrySettings;

use super::across::{self, Named, check_id};
use super::avro::AvroKeys;
use super::columns;
use super::errors;
use super::group_config;
use super::http;
use super::memory;
use super::model::{
    AckModeSetting, Brokers, CheckpointSettings, JobFile, MetricsSettings, SinkSettings, SourceSettings, Sql,
};
use super::reader::{At, Section};
use super::report::Problems;
use super::security;
use super::set::Text;
use super::slow;
use super::store;
use super::suggest;

/// More subtasks than this cannot help on one machine.
const PARALLELISM_MAX: i64 = 64;
const GOAL_DEFAULT: Duration = Duration::from_millis(200);
/// Records stay locked until their checkpoint commits: a third of Kafka's default lock of 30 s.
const GOAL: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
const OFFSETS_INTERVAL_DEFAULT: Duration = Duration::from_secs(5);
/// A poll of the offsets costs the brokers some requests for each topic, and one for each partition with a lag.
const OFFSETS_INTERVAL: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(3600);
/// More records of one checkpoint than this would make its outcome record too large.
const RECORDS_MAX: i64 = 1_000_000;
/// What a record may have: a batch holds no more than its upper end.
const RECORD_BYTES_MAX: std::ops::RangeInclusive<u64> = 1_024..=100 << 20;
/// What a job may hold; that it is enough for its tasks is checked behind.
const MEMORY: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 40;
/// Checkpoints and owners that are kept. Each start and each run of retention lists them.
const RETAIN_DEFAULT: usize = 3;
const RETAIN_OWNERS_DEFAULT: usize = 16;
const RETAIN_MAX: i64 = 10_000;
/// Reads the whole file. `None` when anything that has no default is missing or wrong; then `problems` says what.
pub(crate) fn read(
    mut file: Section<'_>,
    path: &Path,
    text: &Text,
    problems: &mut Problems,
) -> Option<JobFile> {
    let end = text.file_end;
    let mut named = Named::default();
    let job = file.required_section("job", "name = \"delayed-flights\"", end, problems);
    let job = job.and_then(|section| read_job(section, problems));
    let source = file.required_section("source", "topics = [\"flights\"]", end, problems);
    let source = source.and_then(|section| read_source(section, path, &mut named, problems));
    let transform = file.section("transform", problems);
    let transform = transform.and_then(|section| read_transform(section, &text.all, &mut named, problems));
    let http = http::read(&mut file, path, problems);
    named.has_calls = http.as_ref().is_none_or(|stages| !stages.is_empty());
    let name = job.as_ref().map(|job| job.name.as_str());
    let slow =
        file.section("slow", problems).map(|section| slow::read(section, name, named.has_calls, problems));
    let sink = file.required_section("sink", "topic = \"delayed-flights\"", end, problems);
    let sink = sink.and_then(|section| read_sink(section, path, &mut named, problems));
    if let Some(section) = file.section("dead_letter", problems) {
        read_dead_letter(section, &mut named, problems);
    }
    let errors = file.section("errors", problems).map(|section| errors::read(section, problems));
    let (errors, wants_letters) = errors.unwrap_or_default();
    named.wants_letters = wants_letters;
    if let Some(section) = file.section("latency", problems) {
        read_latency(section, &mut named, problems);
    }
    let checkpoint = file.section("checkpoint", problems);
    let checkpoint = read_checkpoint(checkpoint, path, &mut named, problems);
    let ack = file.section("ack", problems);
    let ack = ack.map_or((AckModeSetting::Auto, None), |section| read_ack(section, problems));
    let metrics = read_metrics(file.section("metrics", problems), problems);
    file.finish(problems);
    named.parks = slow.is_some();
    named.parking_topic = slow.iter().flatten().find_map(|slow| slow.topic.clone());
    across::check(&named, problems);
    let job = job?;
    let mut http = http?;
    let slow = match slow {
        Some(slow) => Some(slow?.settings),
        None => None,
    };
    if let Some(slow) = &slow {
        slow::apply(slow, &mut http);
    }
    let (source, sink) = (source?, sink?);
    memory::check(
        job.memory.as_ref(),
        Tasks::of_chain(source.parallelism, http.len(), sink.parallelism),
        problems,
    );
    Some(JobFile {
        path: path.to_owned(),
        text: text.all.clone(),
        file_end: text.file_end,
        job: job.name,
        instance: job.instance,
        memory: job.memory.map(|memory| memory.value),
        source,
        transform,
        http,
        slow,
        sink,
        dead_letter_topic: named.dead_letter_topic.map(|topic| topic.value),
        errors,
        latency_goal: named.goal.or(named.interval).map_or(GOAL_DEFAULT, |goal| goal.value),
        checkpoint: checkpoint?,
        ack_mode: ack.0,
        outcome_topic: ack.1,
        metrics,
    })
}

/// The `[job]` section.
struct JobSettings {
    name: String,
    instance: String,
    memory: Option<At<u64>>,
}

fn read_job(mut section: Section<'_>, problems: &mut Problems) -> Option<JobSettings> {
    let name = section.required_string("name", "delayed-flights", problems);
    let instance = section.string("instance", problems);
    let memory = section.bytes("memory", MEMORY, problems);
    section.finish(problems);
    for id in name.iter().chain(&instance) {
        check_id(id, "a job name or instance", problems);
    }
    let instance = instance.map_or_else(|| "main".to_owned(), |instance| instance.value);
    Some(JobSettings { name: name?.value, instance, memory })
}

fn read_source(
    mut section: Section<'_>,
    path: &Path,
    named: &mut Named,
    problems: &mut Problems,
) -> Option<SourceSettings> {
    let brokers = read_brokers(&mut section, problems);
    if section.require("topics", "topics = [\"flights\"]", problems) {
        named.topics = section.strings("topics", problems).unwrap_or_default();
    }
    for topic in &named.topics {
        check_id(topic, "a topic name", problems);
    }
    let group = section.required_string("group", "flights-delays", problems);
    let format = read_format(&mut section, path, named, problems);
    let parallelism = section.integer("parallelism", 1..=PARALLELISM_MAX, problems);
    let record_bytes_max = section.bytes("record_bytes_max", RECORD_BYTES_MAX, problems);
    let config = section.section("group_config", problems);
    let config = config.map(|section| group_config::read(&section, problems)).unwrap_or_default();
    let security = section.section("security", problems);
    let security = match security {
        Some(section) => security::read(&section, path, problems),
        None => Some(SecuritySettings::default()),
    };
    if let (Some(Brokers::Embedded), Some(security)) = (&brokers, &security)
        && *security != SecuritySettings::default()
    {
        let message = "[source.security] makes no sense with brokers = \"embedded\"";
        problems.add_with_help(
            section.span(),
            message,
            "remove it: the embedded broker listens in this process",
        );
    }
    section.finish(problems);
    named.lock_duration_ms = config.get("share.record.lock.duration.ms").cloned();
    named.isolation = config.get("share.isolation.level").cloned();
    let (format, registry) = format?;
    Some(SourceSettings {
        brokers: brokers?,
        security: security?,
        topics: named.topics.iter().map(|topic| topic.value.clone()).collect(),
        group: group?.value,
        group_config: config.into_iter().map(|(key, at)| (key, at.value)).collect(),
        format,
        registry,
        record_bytes_max: record_bytes_max.and_then(|bytes| usize::try_from(bytes.value).ok()),
        parallelism: subtasks(parallelism),
    })
}

fn read_brokers(section: &mut Section<'_>, problems: &mut Problems) -> Option<Brokers> {
    if !section.require("brokers", "brokers = \"localhost:9092\" (or \"embedded\")", problems) {
        return None;
    }
    let given = section.strings("brokers", problems)?;
    if let [one] = given.as_slice()
        && one.value == "embedded"
    {
        return Some(Brokers::Embedded);
    }
    let mut addresses = Vec::new();
    for at in &given {
        for part in at.value.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.parse::<HostPort>() {
                Ok(address) => addresses.push(address),
                Err(_) => {
                    let message = format!("source.brokers: '{part}' is not host:port");
                    let help = match suggest::nearest(part, ["embedded"]) {
                        Some(_) => "did you mean \"embedded\"?".to_owned(),
                        None => format!("write for example \"{part}:9092\", or \"embedded\""),
                    };
                    problems.add_with_help(&at.span, message, help);
                    return None;
                }
            }
        }
    }
    if addresses.is_empty() {
        let span = given.first().map_or_else(|| section.span().clone(), |at| at.span.clone());
        problems.add_with_help(
            &span,
            "source.brokers names no broker",
            "write \"localhost:9092\" or \"embedded\"",
        );
        return None;
    }
    Some(Brokers::Addresses(addresses))
}

#[derive(Clone, Copy)]
enum FormatName {
    Avro,
    Csv,
    Json,
    Raw,
}

fn read_format(
    section: &mut Section<'_>,
    path: &Path,
    named: &mut Named,
    problems: &mut Problems,
) -> Option<(Format, Option<RegistrySettings>)> {
    const NAMES: [(&str, FormatName); 4] = [
        ("avro", FormatName::Avro),
        ("csv", FormatName::Csv),
        ("json", FormatName::Json),
        ("raw", FormatName::Raw),
    ];
    let there = section.require("format", "format = \"csv\" (or avro, json, raw)", problems);
    let format = if there { section.one_of("format", &NAMES, problems) } else { None };
    let nulls = section.strings("nulls", problems);
    let delimiter = section.string("delimiter", problems);
    // Columns are read even where they make no sense, so that the fault is named and not "unknown key".
    let has_columns = section.table().contains_key("columns");
    let wants_columns =
        format.as_ref().is_some_and(|format| matches!(format.value, FormatName::Csv | FormatName::Json));
    let columns = if has_columns || wants_columns { columns::read(section, problems) } else { None };
    let _ = section.value("columns");
    let avro = AvroKeys::of_source(section, path, problems);
    named.columns = columns.clone();
    let columns = columns.map(|columns| columns.into_iter().map(|column| column.value).collect());
    let format = format?;
    let for_csv = [
        ("source.nulls", nulls.as_ref().map(|nulls| nulls.first().map_or(&format.span, |null| &null.span))),
        ("source.delimiter", delimiter.as_ref().map(|delimiter| &delimiter.span)),
    ];
    for (name, span) in for_csv {
        if let (Some(span), FormatName::Avro | FormatName::Json | FormatName::Raw) = (span, format.value) {
            problems.add_with_help(span, format!("{name} is for format = \"csv\" only"), "remove it");
        }
    }
    if !matches!(format.value, FormatName::Avro) {
        avro.refuse("source", problems);
    } else if has_columns {
        let message = "source.columns cannot be used with format = \"avro\"";
        problems.add_with_help(&format.span, message, "the schema names the columns; remove them");
    }
    let plain = match format.value {
        FormatName::Avro => return avro.source(&format.span, &named.topics, problems),
        FormatName::Csv => {
            let nulls = nulls.unwrap_or_default().into_iter().map(|null| null.value).collect();
            let delimiter = delimiter.map_or(Some(','), |delimiter| read_delimiter(&delimiter, problems));
            Some(Format::Csv(CsvFormat { columns: columns?, delimiter: delimiter?, nulls }))
        }
        FormatName::Json => Some(Format::Json(JsonFormat { columns: columns?, strict: false })),
        FormatName::Raw => {
            if has_columns {
                let message = "source.columns cannot be used with format = \"raw\"";
                problems.add_with_help(
                    &format.span,
                    message,
                    "raw records have one column, 'value'; remove one of the two",
                );
            }
            Some(Format::Raw)
        }
    };
    Some((plain?, None))
}

fn read_delimiter(text: &At<String>, problems: &mut Problems) -> Option<char> {
    let mut chars = text.value.chars();
    match (chars.next(), chars.next()) {
        (Some(one), None) if one.is_ascii() && !matches!(one, '"' | '\n' | '\r') => Some(one),
        _ => {
            let message = format!("source.delimiter cannot be {:?}", text.value);
            problems.add_with_help(&text.span, message, "use one ASCII character, for example \";\"");
            None
        }
    }
}

fn read_transform(
    mut section: Section<'_>,
    text: &str,
    named: &mut Named,
    problems: &mut Problems,
) -> Option<Sql> {
    let sql = section.required_string("sql", "SELECT carrier, flight FROM source", problems);
    section.finish(problems);
    let sql = sql?;
    named.transform = Some(sql.span.clone());
    // The newline right behind """ is not part of the string, so the statement starts on the next line.
    let opening = text.get(sql.span.clone()).unwrap_or("");
    let quotes = match opening {
        text if text.starts_with("\"\"\"") || text.starts_with("'''") => 3,
        text if text.starts_with(['"', '\'']) => 1,
        // Bare text of the command line.
        _ => 0,
    };
    let body = &opening[quotes.min(opening.len())..];
    let skipped = match (quotes, body) {
        (3, body) if body.starts_with("\r\n") => 2,
        (3, body) if body.starts_with('\n') => 1,
        _ => 0,
    };
    Some(Sql { text: sql.value, start: sql.span.start + quotes + skipped })
}

fn read_sink(
    mut section: Section<'_>,
    path: &Path,
    named: &mut Named,
    problems: &mut Problems,
) -> Option<SinkSettings> {
    let formats = [
        ("avro", OutputFormat::Avro(AvroOutput::default())),
        ("json", OutputFormat::Json),
        ("csv", OutputFormat::Csv(CsvOutput::default())),
        ("raw", OutputFormat::Raw),
    ];
    let topic = section.required_string("topic", "delayed-flights", problems);
    let key = section.string("key", problems);
    let format = section.one_of("format", &formats, problems);
    let avro = AvroKeys::of_sink(&mut section, path, problems);
    let parallelism = section.integer("parallelism", 1..=PARALLELISM_MAX, problems);
    let partitions = section.integer("partitions", 1..=10_000, problems);
    section.finish(problems);
    if let Some(topic) = &topic {
        check_id(topic, "a topic name", problems);
    }
    if let (Some(parallelism), Some(partitions)) = (&parallelism, &partitions)
        && parallelism.value > partitions.value
    {
        let message =
            "sink.parallelism is larger than sink.partitions, but each sink subtask needs a partition";
        problems.add_with_help(&parallelism.span, message, format!("use at most {}", partitions.value));
    }
    named.sink_topic = topic.clone();
    named.sink_key = key.clone();
    let topic = topic?.value;
    let (format, registry) = match format.map(|format| format.value) {
        Some(OutputFormat::Avro(_)) => {
            let (output, registry) = avro.sink(&topic, problems)?;
            (OutputFormat::Avro(output), registry)
        }
        other => {
            avro.refuse("sink", problems);
            (other.unwrap_or_default(), None)
        }
    };
    Some(SinkSettings {
        topic,
        key: key.map(|key| key.value),
        format,
        registry,
        parallelism: subtasks(parallelism),
        partitions: partitions.and_then(|partitions| i32::try_from(partitions.value).ok()),
    })
}

fn read_dead_letter(mut section: Section<'_>, named: &mut Named, problems: &mut Problems) {
    named.dead_letter_topic = section.required_string("topic", "flights-rejected", problems);
    section.finish(problems);
    if let Some(topic) = &named.dead_letter_topic {
        check_id(topic, "a topic name", problems);
    }
}

fn read_latency(mut section: Section<'_>, named: &mut Named, problems: &mut Problems) {
    named.goal = section.duration("goal", GOAL, problems);
    section.finish(problems);
}

fn read_checkpoint(
    section: Option<Section<'_>>,
    path: &Path,
    named: &mut Named,
    problems: &mut Problems,
) -> Option<CheckpointSettings> {
    let Some(mut section) = section else {
        return Some(CheckpointSettings {
            store: None,
            interval: None,
            records: None,
            retain: RETAIN_DEFAULT,
            retain_owners: RETAIN_OWNERS_DEFAULT,
        });
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let store = store::read(&mut section, folder, problems);
    let interval = section.duration("interval", GOAL, problems);
    let records = section.integer("records", 1..=RECORDS_MAX, problems);
    let retain = section.integer("retain", 1..=RETAIN_MAX, problems);
    let retain_owners = section.integer("retain_owners", 1..=RETAIN_MAX, problems);
    section.finish(problems);
    named.interval.clone_from(&interval);
    let count = |count: Option<At<i64>>, default| {
        count.and_then(|count| usize::try_from(count.value).ok()).unwrap_or(default)
    };
    Some(CheckpointSettings {
        store,
        interval: interval.map(|interval| interval.value),
        records: records.and_then(|records| u64::try_from(records.value).ok()),
        retain: count(retain, RETAIN_DEFAULT),
        retain_owners: count(retain_owners, RETAIN_OWNERS_DEFAULT),
    })
}

fn read_ack(mut section: Section<'_>, problems: &mut Problems) -> (AckModeSetting, Option<String>) {
    const MODES: [(&str, AckModeSetting); 4] = [
        ("auto", AckModeSetting::Auto),
        ("transactional", AckModeSetting::Transactional),
        ("at-least-once", AckModeSetting::AtLeastOnce),
        ("ledger", AckModeSetting::Ledger),
    ];
    let mode = section.one_of("mode", &MODES, problems);
    let outcome_topic = section.string("outcome_topic", problems);
    section.finish(problems);
    if let Some(topic) = &outcome_topic {
        check_id(topic, "a topic name", problems);
    }
    let mode = mode.map_or(AckModeSetting::Auto, |mode| mode.value);
    (mode, outcome_topic.map(|topic| topic.value))
}

fn read_metrics(section: Option<Section<'_>>, problems: &mut Problems) -> MetricsSettings {
    let mut settings = MetricsSettings { listen: None, offsets_interval: OFFSETS_INTERVAL_DEFAULT };
    let Some(mut section) = section else { return settings };
    if let Some(listen) = section.string("listen", problems) {
        match listen.value.parse() {
            Ok(address) => settings.listen = Some(address),
            Err(_) => problems.add_with_help(
                &listen.span,
                format!("metrics.listen: '{}' is not host:port", listen.value),
                "write for example \"127.0.0.1:9100\"; port 0 takes a free one",
            ),
        }
    }
    let interval = section.duration("offsets_interval", OFFSETS_INTERVAL, problems);
    section.finish(problems);
    if let Some(interval) = interval {
        settings.offsets_interval = interval.value;
    }
    settings
}

fn subtasks(parallelism: Option<At<i64>>) -> usize {
    parallelism.and_then(|parallelism| usize::try_from(parallelism.value).ok()).unwrap_or(1)
}
