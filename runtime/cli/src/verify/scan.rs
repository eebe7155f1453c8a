//! Reads whole topics, from their first offset to the end they have now.

use std::time::Duration;

use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_client::{Client, Isolation, OffsetSpec, PartitionReader, committed_records};
use sharestream_wire::records::{RawBatch, RecordView};

const FETCH_BYTES: i32 = 8 << 20;
const FETCH_WAIT: Duration = Duration::from_millis(500);

/// What to see of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scan {
    /// Records of committed transactions and of none.
    Committed,
    /// Every record, those of open and aborted transactions too.
    Raw,
}

/// Shows every record of a topic to `each`, partition by partition.
pub(crate) async fn topic(
    client: &Client,
    topic: &str,
    scan: Scan,
    mut each: impl FnMut(PartitionIndex, &RecordView<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let first = client.admin().list_offsets(topic, &[], OffsetSpec::Earliest).await?;
    for (index, first) in first {
        partition(client, topic, index, first, scan, &mut |batch| {
            for record in &batch.records()? {
                let record = record?;
                if record.offset >= first.0 {
                    each(index, &record)?;
                }
            }
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Shows every batch of a partition from `first` on to `each`. The first batch may begin below.
pub(crate) async fn partition(
    client: &Client,
    topic: &str,
    index: PartitionIndex,
    first: Offset,
    scan: Scan,
    each: &mut impl FnMut(&RawBatch) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (isolation, spec) = match scan {
        Scan::Committed => (Isolation::ReadCommitted, OffsetSpec::LatestStable),
        Scan::Raw => (Isolation::ReadUncommitted, OffsetSpec::Latest),
    };
    let ends = client.admin().list_offsets(topic, &[index], spec).await?;
    let end = ends.get(&index).copied().unwrap_or(first);
    let mut reader = PartitionReader::new(client.clone());
    let mut position = first;
    while position < end {
        let fetched = reader.fetch(topic, index, position, isolation, FETCH_BYTES, FETCH_WAIT).await?;
        let batches = match scan {
            Scan::Committed => committed_records(&fetched)?,
            Scan::Raw => fetched.batches.iter().filter(|batch| !batch.header.is_control()).collect(),
        };
        for batch in batches {
            each(batch)?;
        }
        let next = fetched.next_offset(position);
        if next == position {
            anyhow::bail!("{topic}[{index}] gave nothing at offset {position}, though it ends at {end}");
        }
        position = next;
    }
    Ok(())
}
