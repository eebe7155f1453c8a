//! What an operator does to a group in ledger mode: reset it, and take it back from transactional mode.

use sharestream_base::ErrorKind;
use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_client::{Client, Isolation, OffsetSpec, PartitionReader, StartOffset};
use sharestream_core::commit::AckMode;

use super::view::{ResponseEnd, View};
use crate::error::{bug, client_error, invalid_input};
use crate::job::is_missing;
use crate::outcome::{
    Beginning, BegunPartition, FORMAT_VERSION, GenerationRecord, ModeRecord, REWIND_FORMAT_VERSION,
    ReplayGeneration, outcome_partition, write_record,
};
use crate::{Error, Result};

const FETCH_BYTES_MAX: i32 = 4 << 20;
const FETCH_WAIT: std::time::Duration = std::time::Duration::from_millis(50);

/// The outcome partition of a group, seen from outside a job.
struct Ledger {
    client: Client,
    group: String,
    topic: String,
    partition: PartitionIndex,
    view: View,
}

impl Ledger {
    /// Reads the partition to its end.
    async fn read(client: &Client, outcome_topic: &str, group: &str) -> Result<Ledger> {
        let doing = || client_error(format!("read the ledger of group {group}"));
        let info = client.fresh_topic(outcome_topic).await.map_err(doing())?;
        let count = i32::try_from(info.partitions.len()).unwrap_or(i32::MAX);
        let partition = outcome_partition(group, count);
        let starts = client
            .admin()
            .list_offsets(outcome_topic, &[partition], OffsetSpec::Earliest)
            .await
            .map_err(doing())?;
        let mut view = View::new(group, starts.get(&partition).copied().unwrap_or(Offset(0)));
        let mut reader = PartitionReader::new(client.clone());
        while view.caught_up_to().is_none() {
            let isolation = Isolation::ReadUncommitted;
            let fetched = reader
                .fetch(outcome_topic, partition, view.next(), isolation, FETCH_BYTES_MAX, FETCH_WAIT)
                .await
                .map_err(doing())?;
            for batch in &fetched.batches {
                view.apply(batch)?;
            }
            view.response_ended(ResponseEnd {
                high_watermark: fetched.high_watermark,
                last_stable_offset: fetched.last_stable_offset,
            });
        }
        let (topic, group) = (outcome_topic.to_owned(), group.to_owned());
        Ok(Ledger { client: client.clone(), group, topic, partition, view })
    }

    async fn write(&self, key: &str, value: &[u8], doing: &str) -> Result<()> {
        write_record(&self.client, (&self.topic, self.partition), (key, value), doing).await
    }

    async fn write_generation(
        &self,
        generation: ReplayGeneration,
        ready: bool,
        begins: Option<Box<Beginning>>,
    ) -> Result<()> {
        let is_rewind = begins.as_ref().is_some_and(|begins| begins.rewind.is_some());
        let format_version = if is_rewind { REWIND_FORMAT_VERSION } else { FORMAT_VERSION };
        let record =
            GenerationRecord { format_version, group: self.group.clone(), generation, ready, begins };
        let value = record.encode().map_err(|error| bug("generation record").with_source(error))?;
        self.write(&record.key(), &value, "write the generation record").await
    }

    /// R5, M2. Errors: `InvalidInput` when the group has members.
    async fn must_be_empty(&self, what: &str) -> Result<()> {
        let group = &self.group;
        let count = self
            .client
            .admin()
            .share_group_member_count(group)
            .await
            .map_err(client_error(format!("members of group {group}")))?;
        if count == 0 {
            return Ok(());
        }
        Err(invalid_input(format!("group {group} has {count} members: stop every job in it, then {what}")))
    }
}

/// Whether decisions of the group are in the outcome topic: a job has run in it. A reset of its offsets alone would then be
/// taken for an accident in ledger mode, and in any mode a savepoint would take for decided what is wanted again;
/// [`reset_generation`] does it properly. `false` where there is no such outcome topic.
///
/// # Errors
/// `Retry`, `Corrupt`.
///
/// # Cancel safety
/// Cancel safe.
pub async fn has_ledger(client: &Client, outcome_topic: &str, group: &str) -> Result<bool> {
    match client.fresh_topic(outcome_topic).await {
        Ok(_) => {}
        Err(error) if is_missing(&error) => return Ok(false),
        Err(error) => return Err(client_error(format!("look up outcome topic {outcome_topic}"))(error)),
    }
    let ledger = Ledger::read(client, outcome_topic, group).await?;
    // Every start of a job records its mode.
    Ok(ledger.view.mode().is_some())
}

/// Opens a new replay generation of a group: its records from `starts` on are processed again, whatever was decided of
/// them. Gives the new generation.
///
/// In two steps (ADR 0010), so that nobody takes old offsets for new ones: the record that begins the generation, the
/// offsets, the record that says that they are reset. A job that starts in between waits.
///
/// # Errors
/// `InvalidInput` (the group has members, no such topic, offsets refused), `Retry`. After an error behind the first step
/// jobs of the group do not start before the reset was repeated with success; that opens a further generation.
///
/// # Cancel safety
/// Not cancel safe: dropped, repeat it.
pub async fn reset_generation(
    client: &Client,
    outcome_topic: &str,
    group: &str,
    starts: &[StartOffset],
) -> Result<ReplayGeneration> {
    let ledger = Ledger::read(client, outcome_topic, group).await?;
    ledger.must_be_empty("repeat the reset").await?;
    let generation = ledger.view.generation().next();
    let begins = Beginning {
        since_ms: client.env().clock.wall_ms(),
        rewind: None,
        partitions: begun_partitions(client, starts).await?,
    };
    ledger.write_generation(generation, false, Some(Box::new(begins))).await?;
    // The broker refuses as well when somebody has joined meanwhile.
    client
        .admin()
        .alter_share_group_offsets(group, starts)
        .await
        .map_err(client_error(format!("reset the offsets of group {group}; repeat the reset")))?;
    ledger.write_generation(generation, true, None).await?;
    tracing::info!(group, %generation, "replay generation opened");
    Ok(generation)
}

/// Where a plain reset begins: nothing above the offsets stays decided.
async fn begun_partitions(client: &Client, starts: &[StartOffset]) -> Result<Vec<BegunPartition>> {
    let mut partitions = Vec::with_capacity(starts.len());
    for StartOffset { topic, partition, start_offset } in starts {
        let info = client.topic(topic).await.map_err(client_error(format!("look up topic {topic}")))?;
        partitions.push(BegunPartition {
            topic: topic.clone(),
            topic_id: info.topic_id,
            partition: *partition,
            start_offset: *start_offset,
            decided: Vec::new(),
        });
    }
    Ok(partitions)
}

/// The first step of a rewind: the record that begins its generation. From here on no job of the group starts. Errors:
/// `InvalidInput` when the group has members.
pub(crate) async fn begin_rewind(
    client: &Client,
    outcome_topic: &str,
    group: &str,
    begins: Beginning,
) -> Result<ReplayGeneration> {
    let ledger = Ledger::read(client, outcome_topic, group).await?;
    ledger.must_be_empty("repeat the rewind").await?;
    let generation = ledger.view.generation().next();
    ledger.write_generation(generation, false, Some(Box::new(begins))).await?;
    Ok(generation)
}

/// The last step of a rewind: jobs of the group start again.
pub(crate) async fn end_rewind(
    client: &Client,
    outcome_topic: &str,
    group: &str,
    generation: ReplayGeneration,
) -> Result<()> {
    let ledger = Ledger::read(client, outcome_topic, group).await?;
    if ledger.view.generation() != generation {
        let context =
            format!("group {group} was reset by somebody else while it was rewound; repeat the rewind");
        return Err(Error::new(ErrorKind::Retry, context));
    }
    ledger.write_generation(generation, true, None).await?;
    tracing::info!(group, %generation, "rewound");
    Ok(())
}

/// Takes a group back from transactional to ledger mode: every transactional replica must be stopped (M2), for those that
/// have ended their arbitration would not look at a claim.
///
/// # Errors
/// `InvalidInput` (the group has members, or is not in transactional mode), `Retry`.
///
/// # Cancel safety
/// Dropped, the mode may have been changed; repeat it.
pub async fn return_to_ledger(client: &Client, outcome_topic: &str, group: &str) -> Result<()> {
    let ledger = Ledger::read(client, outcome_topic, group).await?;
    let Some((_, mode)) = ledger.view.mode().filter(|(_, mode)| mode.mode == AckMode::Transactional) else {
        let known = ledger.view.mode().map(|(_, mode)| mode.mode);
        return Err(match known {
            Some(AckMode::Ledger) => return Ok(()),
            other => invalid_input(format!("group {group} is not in transactional mode, but {other:?}")),
        });
    };
    ledger.must_be_empty("repeat the change of the mode").await?;
    let record = ModeRecord { mode: AckMode::Ledger, era: mode.era.saturating_add(1), ..mode.clone() };
    let value = record.encode().map_err(|error| bug("mode record").with_source(error))?;
    ledger.write(&record.key(), &value, "write the mode record").await.map_err(|error| {
        Error::new(ErrorKind::Retry, format!("{error}; repeat the change of the mode")).with_source(error)
    })
}
