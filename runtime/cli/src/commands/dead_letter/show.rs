//! `sharestream dead-letter show`.

use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::json;
use sharestream_base::Env;
use sharestream_client::OffsetSpec;
use sharestream_wire::records::RecordView;

use super::Place;
use super::letter::Letter;
use super::marks::Marks;
use crate::args::dead_letters::ShowArgs;
use crate::exit::Exit;
use crate::failure::Refused;
use crate::output;
use crate::verify::scan::{PartitionScan, Scan};

/// Shows the record at a position; one that another program wrote, too.
pub(super) async fn run(env: Env, args: ShowArgs) -> anyhow::Result<Exit> {
    let place = Place::find(env, &args.topic).await?;
    let (name, position) = (&place.topic.name, args.position);
    let missing =
        |why: String| Refused::error(format!("{name} has no committed record at {position}: {why}"));
    if place.topic.partition(position.partition).is_none() {
        return Err(missing(format!("it has {} partitions", place.topic.partitions.len())));
    }
    let of = [position.partition];
    let first = place.client.admin().list_offsets(name, &of, OffsetSpec::Earliest).await?;
    if let Some(first) = first.get(&position.partition).filter(|first| position.offset < **first) {
        return Err(missing(format!("its log starts at offset {first}")));
    }
    let marks = Marks::read(&place.client, &place.topic).await?;
    let mut scan =
        PartitionScan::start(&place.client, name, position.partition, position.offset, Scan::Committed)
            .await?;
    while let Some(batches) = scan.next().await? {
        for batch in &batches {
            for record in &batch.records()? {
                let record = record?;
                if record.offset == position.offset.0 {
                    return show(&args, &record, marks.has(position));
                }
                if record.offset > position.offset.0 {
                    return Err(missing(format!("the next one is at {}", record.offset)));
                }
            }
        }
    }
    Err(missing("it ends below".to_owned()))
}

fn show(args: &ShowArgs, record: &RecordView<'_>, is_replayed: bool) -> anyhow::Result<Exit> {
    if args.raw {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(record.value.unwrap_or_default())?;
        stdout.flush()?;
        return Ok(Exit::Done);
    }
    let letter = Letter::of(args.position.partition, record);
    if args.json {
        let position = args.position;
        let mut shown = letter.map_or_else(
            || json!({ "partition": position.partition.0, "offset": position.offset.0, "timestamp": record.timestamp }),
            |letter| letter.as_json(is_replayed),
        );
        let headers: Vec<_> = record
            .headers
            .iter()
            .map(|(name, value)| json!([String::from_utf8_lossy(name), value.map(shown_bytes)]))
            .collect();
        shown["headers"] = json!(headers);
        shown["key"] = json!(record.key.map(shown_bytes));
        shown["value"] = json!(record.value.map(shown_bytes));
        shown["value_is_text"] = json!(record.value.is_none_or(is_text));
        output::line(&shown.to_string());
        return Ok(Exit::Done);
    }
    let or_null = |bytes: Option<&[u8]>| bytes.map_or_else(|| "null".to_owned(), shown_bytes);
    match letter {
        Some(letter) => output::line(&format!("time: {}", letter.time())),
        None => output::line("it carries no provenance: another program wrote it"),
    }
    if is_replayed {
        output::line("it was replayed");
    }
    for (name, value) in record.headers.iter() {
        output::line(&format!("{}: {}", String::from_utf8_lossy(name), or_null(value)));
    }
    output::line(&format!("key: {}", or_null(record.key)));
    output::line(&format!("value: {}", or_null(record.value)));
    Ok(Exit::Done)
}

/// True for what can be shown as it is.
fn is_text(bytes: &[u8]) -> bool {
    let is_shown = |text: &str| text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t'));
    std::str::from_utf8(bytes).is_ok_and(is_shown)
}

/// Text as it is; other bytes in hexadecimal behind `0x`.
fn shown_bytes(bytes: &[u8]) -> String {
    if is_text(bytes) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let mut text = "0x".to_owned();
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_shown_as_numbers() {
        assert_eq!(shown_bytes("a\tß".as_bytes()), "a\tß");
        assert_eq!(shown_bytes(&[0xff, 0x00, 0x1b]), "0xff001b");
        assert_eq!(shown_bytes(b"a\x1b[2J"), "0x611b5b324a", "a terminal is not told what to do");
    }
}
