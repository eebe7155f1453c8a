//! The same work as a member of a consumer group does it: each partition has one reader, and offsets go forward in order.
//! The embedded broker has no consumer groups, so partitions are assigned; nothing is written and no offset is committed,
//! which is in the loop's favour.

use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_base::{CancellationToken, Clock, TaskKind, TaskSet};
use sharestream_client::{Client, Isolation, OffsetSpec, PartitionReader};

/// Seconds until every record of `topic` is worked on, `concurrency` of each partition at once.
pub(super) async fn run(
    client: &Client,
    topic: &str,
    work: Duration,
    concurrency: usize,
) -> anyhow::Result<f64> {
    let env = client.env().clone();
    let begin = env.clock.now();
    let ends = client.admin().list_offsets(topic, &[], OffsetSpec::Latest).await?;
    let mut readers = TaskSet::new(&env.spawner, CancellationToken::new());
    for (partition, end) in ends {
        let reader = Reader {
            client: client.clone(),
            clock: env.clock.clone(),
            topic: topic.to_owned(),
            partition,
            end,
            work,
            concurrency,
        };
        readers.spawn("reader", TaskKind::Job, reader.run());
    }
    while let Some(exit) = readers.join_next().await {
        exit.result?.unwrap_or(Ok(()))?;
    }
    Ok(env.clock.now().duration_since(begin).as_secs_f64())
}

struct Reader {
    client: Client,
    clock: Clock,
    topic: String,
    partition: PartitionIndex,
    end: Offset,
    work: Duration,
    concurrency: usize,
}

impl Reader {
    async fn run(self) -> anyhow::Result<()> {
        let mut reader = PartitionReader::new(self.client.clone());
        let mut next = Offset(0);
        while next < self.end {
            let wait = Duration::from_millis(100);
            let fetched =
                reader.fetch(&self.topic, self.partition, next, Isolation::ReadCommitted, 1 << 20, wait);
            let fetched = fetched.await?;
            let mut count = 0;
            for batch in &fetched.batches {
                count += batch.records()?.into_iter().count();
            }
            next = fetched.next_offset(next);
            // In order: a record that is slow holds back the offset, as it does where offsets are committed.
            let calls = stream::iter(0..count).map(|_| self.clock.sleep(self.work));
            calls.buffered(self.concurrency).for_each(|()| std::future::ready(())).await;
        }
        Ok(())
    }
}
