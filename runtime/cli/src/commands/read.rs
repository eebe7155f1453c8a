//! `sharestream read`: the records of a topic, partition by partition.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use serde_json::json;
use sharestream_base::Env;
use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_client::{Client, Isolation, OffsetSpec, PartitionReader, committed_records};
use sharestream_wire::records::RecordView;

use super::topic::connect;
use crate::args::{ReadArgs, ReadFrom};
use crate::exit::Exit;
use crate::output;
use crate::signals::StopSignals;

const FETCH_BYTES: i32 = 4 << 20;

/// Prints records until the end, the limit or Ctrl-C.
pub(crate) async fn run(env: Env, args: ReadArgs) -> anyhow::Result<Exit> {
    let mut signals = StopSignals::listen()?;
    let client = connect(env, &args.connection).await?;
    tokio::select! {
        read = read(&client, &args) => read.map(|()| Exit::Done),
        () = signals.next() => Ok(Exit::Done),
    }
}

async fn read(client: &Client, args: &ReadArgs) -> anyhow::Result<()> {
    let isolation = if args.uncommitted { Isolation::ReadUncommitted } else { Isolation::ReadCommitted };
    let admin = client.admin();
    let wanted: Vec<PartitionIndex> = args.partition.map(PartitionIndex).into_iter().collect();
    let first = admin.list_offsets(&args.topic, &wanted, OffsetSpec::Earliest).await?;
    let end_spec = if args.uncommitted { OffsetSpec::Latest } else { OffsetSpec::LatestStable };
    let end = admin.list_offsets(&args.topic, &wanted, end_spec).await?;
    let mut positions: BTreeMap<PartitionIndex, Offset> = BTreeMap::new();
    for (partition, first) in &first {
        let end = end.get(partition).copied().unwrap_or(*first);
        let from = match args.from {
            ReadFrom::Earliest => *first,
            ReadFrom::Latest => end,
            ReadFrom::Offset(offset) if offset > end.0 => {
                bail!("partition {partition} of {} ends at offset {end}, below --from {offset}", args.topic)
            }
            ReadFrom::Offset(offset) => Offset(offset.max(first.0)),
        };
        positions.insert(*partition, from);
    }
    let mut printer = Printer { args, left: args.max.unwrap_or(u64::MAX) };
    let mut reader = PartitionReader::new(client.clone());
    while printer.left > 0 {
        let mut is_at_end = true;
        for (partition, position) in &mut positions {
            let is_behind = end.get(partition).is_none_or(|end| *position < *end);
            if !args.follow && !is_behind {
                continue;
            }
            let wait = Duration::from_millis(if args.follow { 50 } else { 500 });
            let fetched =
                reader.fetch(&args.topic, *partition, *position, isolation, FETCH_BYTES, wait).await?;
            let batches = match isolation {
                Isolation::ReadCommitted => committed_records(&fetched)?,
                Isolation::ReadUncommitted => {
                    fetched.batches.iter().filter(|batch| !batch.header.is_control()).collect()
                }
            };
            for batch in batches {
                for record in &batch.records()? {
                    let record = record?;
                    if record.offset >= position.0 {
                        printer.print(*partition, &record);
                    }
                }
            }
            let next = fetched.next_offset(*position);
            // A tail without a whole batch would be asked for again and again.
            let is_stuck = next == *position && !args.follow;
            *position = if is_stuck { end.get(partition).copied().unwrap_or(next) } else { next };
            is_at_end &= end.get(partition).is_some_and(|end| *position >= *end);
        }
        if is_at_end && !args.follow {
            return Ok(());
        }
    }
    Ok(())
}

struct Printer<'a> {
    args: &'a ReadArgs,
    left: u64,
}

impl Printer<'_> {
    fn print(&mut self, partition: PartitionIndex, record: &RecordView<'_>) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let headers = || -> Vec<(String, Option<String>)> {
            let headers = record.headers.iter();
            headers.map(|(key, value)| (String::from_utf8_lossy(key).into_owned(), text(value))).collect()
        };
        if self.args.json {
            let mut line = json!({
                "partition": partition.0, "offset": record.offset, "timestamp": record.timestamp,
                "key": text(record.key), "value": text(record.value),
            });
            if self.args.headers {
                let headers: Vec<_> = headers().into_iter().map(|(key, value)| json!([key, value])).collect();
                line["headers"] = json!(headers);
            }
            output::line(&line.to_string());
            return;
        }
        let key = text(record.key).map_or(String::new(), |key| format!("{key}\t"));
        let value = text(record.value).unwrap_or_else(|| "null".to_owned());
        output::line(&format!("{partition}@{}\t{key}{value}", record.offset));
        if self.args.headers {
            for (key, value) in headers() {
                output::line(&format!("\t{key}: {}", value.as_deref().unwrap_or("null")));
            }
        }
    }
}
