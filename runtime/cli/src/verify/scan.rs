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
    let mut batches = PartitionScan::start(client, topic, index, first, scan).await?;
    while let Some(batches) = batches.next().await? {
        for batch in &batches {
            each(batch)?;
        }
    }
    Ok(())
}

/// Reads a partition from an offset to the end that it had at the start.
pub(crate) struct PartitionScan<'a> {
    reader: PartitionReader,
    topic: &'a str,
    index: PartitionIndex,
    scan: Scan,
    position: Offset,
    end: Offset,
}

impl<'a> PartitionScan<'a> {
    /// Finds the end.
    pub(crate) async fn start(
        client: &Client,
        topic: &'a str,
        index: PartitionIndex,
        first: Offset,
        scan: Scan,
    ) -> anyhow::Result<Self> {
        let spec = match scan {
            Scan::Committed => OffsetSpec::LatestStable,
            Scan::Raw => OffsetSpec::Latest,
        };
        let ends = client.admin().list_offsets(topic, &[index], spec).await?;
        let end = ends.get(&index).copied().unwrap_or(first);
        Ok(PartitionScan {
            reader: PartitionReader::new(client.clone()),
            topic,
            index,
            scan,
            position: first,
            end,
        })
    }

    /// The next batches; `None` at the end. The very first may begin below the offset asked for.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Vec<RawBatch>>> {
        let PartitionScan { topic, index, position, end, .. } = *self;
        if position >= end {
            return Ok(None);
        }
        let isolation = match self.scan {
            Scan::Committed => Isolation::ReadCommitted,
            Scan::Raw => Isolation::ReadUncommitted,
        };
        let fetched = self.reader.fetch(topic, index, position, isolation, FETCH_BYTES, FETCH_WAIT).await?;
        let batches = match self.scan {
            Scan::Committed => committed_records(&fetched)?,
            Scan::Raw => fetched.batches.iter().filter(|batch| !batch.header.is_control()).collect(),
        };
        let batches = batches.into_iter().cloned().collect();
        self.position = fetched.next_offset(position);
        if self.position == position {
            anyhow::bail!("{topic}[{index}] gave nothing at offset {position}, though it ends at {end}");
        }
        Ok(Some(batches))
    }
}
