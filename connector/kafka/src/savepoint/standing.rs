//! Reads where a group stands: start offsets first, then the outcome partition to its end, then on until what was open
//! there is settled.

use std::time::Duration;

use sharestream_base::ErrorKind;
use sharestream_base::ids::{Offset, PartitionIndex, TopicId};
use sharestream_client::{Client, Isolation, OffsetSpec, PartitionReader};

use super::cut::{Cut, Standing};
use crate::error::client_error;
use crate::ledger::start_offsets;
use crate::outcome::outcome_partition;
use crate::{Error, Result};

const FETCH_BYTES_MAX: i32 = 4 << 20;
const FETCH_WAIT: Duration = Duration::from_millis(50);
/// How often the partition is read anew because it was compacted meanwhile.
const READS_MAX: u32 = 5;

/// The outcome partition of a group.
#[derive(Clone, Debug)]
pub(super) struct OutcomePlace {
    pub(super) topic: String,
    pub(super) topic_id: TopicId,
    pub(super) partition: PartitionIndex,
}

impl OutcomePlace {
    pub(super) async fn find(client: &Client, topic: &str, group: &str) -> Result<Self> {
        let doing = || client_error(format!("look up outcome topic {topic}"));
        let info = client.fresh_topic(topic).await.map_err(doing())?;
        let count = i32::try_from(info.partitions.len()).unwrap_or(i32::MAX);
        let partition = outcome_partition(group, count);
        Ok(OutcomePlace { topic: topic.to_owned(), topic_id: info.topic_id, partition })
    }
}

/// Whose standing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Of<'a> {
    pub(super) client: &'a Client,
    pub(super) group: &'a str,
    /// Source topics, by id.
    pub(super) topics: &'a [(TopicId, String)],
    pub(super) outcomes: &'a OutcomePlace,
}

/// Where the group stands now. Waits at most `patience` for outcomes that are open; what is still open then is named in
/// it. Errors: `Retry`, `Corrupt`. Cancel safe.
pub(super) async fn read(of: Of<'_>, patience: Duration) -> Result<Standing> {
    let mut read = 0;
    loop {
        match read_once(of, patience).await {
            Err(error) if error.kind() == ErrorKind::Retry && read + 1 < READS_MAX => {
                tracing::debug!(%error, "the outcomes are read again");
                read += 1;
            }
            ended => return ended,
        }
    }
}

async fn read_once(of: Of<'_>, patience: Duration) -> Result<Standing> {
    let Of { client, group, topics, outcomes } = of;
    // First of all: what they have passed is below the end that is read later.
    let starts = start_offsets(client, group, topics.iter().map(|(id, name)| (*id, name.as_str()))).await?;
    let OutcomePlace { topic, partition, .. } = outcomes;
    let doing = || client_error(format!("read outcomes of {topic}/{partition}"));
    let admin = client.admin();
    let begins = admin.list_offsets(topic, &[*partition], OffsetSpec::Earliest).await.map_err(doing())?;
    let mut next = begins.get(partition).copied().unwrap_or(Offset(0));
    let mut cut = Cut::new(group, starts);
    let mut reader = PartitionReader::new(client.clone());
    let mut deadline = None;
    loop {
        let isolation = Isolation::ReadUncommitted;
        let fetched = reader
            .fetch(topic, *partition, next, isolation, FETCH_BYTES_MAX, FETCH_WAIT)
            .await
            .map_err(doing())?;
        for batch in fetched.batches.iter().filter(|batch| batch.header.next_offset() > next.0) {
            cut.apply(batch)?;
        }
        next = fetched.next_offset(next);
        let now = client.env().clock.now();
        if deadline.is_none() && next >= fetched.high_watermark {
            cut.seal(next);
            deadline = Some(now + patience);
        }
        if cut.is_settled() || deadline.is_some_and(|deadline| now >= deadline) {
            return Ok(cut.standing());
        }
    }
}

/// Errors: `Retry` when outcomes were still open.
pub(super) fn must_be_settled(standing: &Standing, group: &str) -> Result<()> {
    if standing.open.is_empty() {
        return Ok(());
    }
    let ids = standing.open.join(", ");
    Err(Error::new(
        ErrorKind::Retry,
        format!(
            "transactions of group {group} are open ({ids}), so it is not known what is decided: wait until they end, at \
             the latest by their time-out, or end them: sharestream transactions abort ID"
        ),
    ))
}
