//! The start of a replica: take it over, fence whoever had it before, and find what was committed last (ADR 0007).
//!
//! ```text
//! read whom we follow --> write who we are --> InitProducerId for every transactional id --> read the outcomes
//!                                                    |        (again: are we still the owner?)
//!                                                    +--asked before each repetition
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use sharestream_base::ErrorKind;
use sharestream_base::ids::{JobEpoch, Offset};
use sharestream_base::planted::{Bug, is_planted};
use sharestream_client::{Client, TransactionSession};
use sharestream_core::commit::{AckMode, LastCommitted, RecoverRequest};

use super::transactions::{OutcomeTopic, SLOT_COUNT, Transactions};
use crate::error::{bug, client_error};
use crate::ledger::start_offsets;
use crate::outcome::{
    FORMAT_VERSION, ModeRecord, NearLimitRange, OutcomeLog, OwnerRecord, last_committed, read_outcomes,
    read_outcomes_from, write_record,
};
use crate::{Error, Result};

/// Pause before the outcome partition is read again for a marker that recovery's fencing has caused.
const MARKER_PAUSE: Duration = Duration::from_millis(50);
/// How often it is read again.
const MARKER_READS_MAX: u32 = 40;

/// Our owner record, and the way to find out whether it is still the last one. Cheap to clone.
#[derive(Clone)]
pub(super) struct Ownership {
    client: Client,
    topic: OutcomeTopic,
    job: String,
    instance: String,
    /// Our name in the record.
    incarnation: String,
    /// The record is not before this offset.
    from: Offset,
    /// Transactional ids that were in use before us.
    earlier_ids: BTreeSet<String>,
}

impl Ownership {
    /// Whether our record is the last one. Reads only what came since.
    async fn is_ours(&self) -> Result<bool> {
        let log = self.read().await?;
        Ok(log.owner(&self.job, &self.instance).is_some_and(|owner| owner.incarnation == self.incarnation))
    }

    /// Errors: `Fenced` when somebody started after us.
    async fn check(&self) -> Result<()> {
        self.check_in(&self.read().await?)
    }

    async fn read(&self) -> Result<OutcomeLog> {
        let mut log = OutcomeLog::of(&self.job, &self.instance);
        read_outcomes_from(&self.client, &self.topic.name, self.topic.partition, self.from, &mut log).await?;
        Ok(log)
    }

    /// Our transactional ids are taken: whoever owned them before can write no more. Someone who wrote an owner record
    /// after ours is about to take them from us, or has done so.
    fn check_in(&self, log: &OutcomeLog) -> Result<()> {
        if is_planted(Bug::OwnerNotReadAgain) {
            return Ok(());
        }
        let Ownership { job, instance, .. } = self;
        match log.owner(job, instance) {
            Some(owner) if owner.incarnation == self.incarnation => Ok(()),
            Some(owner) => Err(replaced(job, instance, owner)),
            None => Err(owner_is_gone(job, instance, &self.topic.name)),
        }
    }

    /// Whether to try once more to take a transactional id: not after somebody else has taken the job, for each try
    /// fences its owner. An owner that cannot be read is asked for again later.
    fn goes_on(&self) -> BoxFuture<'static, bool> {
        let ownership = self.clone();
        async move { !ownership.check().await.is_err_and(|error| error.kind() == ErrorKind::Fenced) }.boxed()
    }
}

/// The record was written before anything else was done, and only a damaged or deleted topic can lose it.
fn owner_is_gone(job: &str, instance: &str, topic: &str) -> Error {
    let context = format!(
        "{topic} has lost the owner record of {job}/{instance}; was the topic deleted or shortened by hand? Its outcomes \
         say what has committed, so nothing may go on without them"
    );
    Error::new(ErrorKind::Corrupt, context)
}

fn replaced(job: &str, instance: &str, owner: &OwnerRecord) -> Error {
    let OwnerRecord { incarnation, since_ms, .. } = owner;
    Error::new(
        ErrorKind::Fenced,
        format!(
            "{job}/{instance} was started again (owner {incarnation} since {since_ms} ms); give the second copy another \
             instance"
        ),
    )
}

/// Methods take `&mut self` also where they change nothing: a writer's answers can be sent to another thread, not shared
/// with one.
impl Transactions {
    /// Fences older incarnations, waits until what they left open is resolved, and reads the own outcomes.
    ///
    /// Whoever loses the job meanwhile ends with `Fenced`, whatever else went wrong: with another error it would be
    /// started again and take the job back, and two starts could take turns for ever.
    pub(crate) async fn recover(&mut self, request: RecoverRequest) -> Result<LastCommitted> {
        let ownership = self.take_ownership(request.job_epoch).await?;
        self.ownership = Some(ownership.clone());
        let error = match self.fence_and_read(&ownership, &request.pending_transactional_ids).await {
            Ok(last_committed) => return Ok(last_committed),
            Err(error) => error,
        };
        match ownership.check().await {
            Err(fenced) if fenced.kind() == ErrorKind::Fenced => Err(fenced),
            Ok(()) if error.kind() == ErrorKind::Fenced => {
                // A broker that fences is not the last word, and nothing is lost by starting again.
                let context = format!("{error} (the job still owns its replica)");
                Err(Error::new(ErrorKind::Retry, context).with_source(error))
            }
            Ok(()) | Err(_) => Err(error),
        }
    }

    async fn fence_and_read(&mut self, ownership: &Ownership, pending: &[String]) -> Result<LastCommitted> {
        let own: Vec<String> = (0..SLOT_COUNT).map(|slot| self.config.transactional_id(slot)).collect();
        let mut fenced: BTreeSet<String> = own.iter().cloned().collect();
        for transactional_id in pending.iter().chain(&ownership.earlier_ids) {
            if fenced.insert(transactional_id.clone()) {
                self.take(ownership, transactional_id.clone()).await?;
            }
        }
        self.open.clear();
        self.sessions.clear();
        let read_early = if is_planted(Bug::OutcomesReadBeforeFencing) {
            Some(self.read_own_outcomes(ownership, fenced.clone()).await?)
        } else {
            None
        };
        for transactional_id in own {
            let session = self.take(ownership, transactional_id).await?;
            self.sessions.push(session);
        }
        match read_early {
            Some(last_committed) => Ok(last_committed),
            None => self.read_own_outcomes(ownership, fenced).await,
        }
    }

    /// Fences whoever has this transactional id, and resolves what it left open.
    async fn take(&mut self, ownership: &Ownership, transactional_id: String) -> Result<TransactionSession> {
        let doing = client_error(format!("recovery: take transactional id '{transactional_id}'"));
        let mut session = self.new_session(transactional_id)?;
        session.init_while(|| ownership.goes_on()).await.map_err(doing)?;
        Ok(session)
    }

    /// Writes who we are, before the transactional ids are taken; gives what to look for afterwards.
    async fn take_ownership(&mut self, job_epoch: JobEpoch) -> Result<Ownership> {
        let (log, from) = self.read_log().await?;
        self.check_not_replaced_in(&log)?;
        // Before anything is taken from whoever rewinds.
        self.check_rewind(&log)?;
        let (job, instance) = (self.config.job.clone(), self.config.instance.clone());
        let followed = log.owner(&job, &instance).map(|owner| owner.incarnation.clone());
        self.attempt().set_restarted(followed.is_some());
        let earlier_ids = log.transactional_ids(&job, &instance);
        // Who takes over before we have fenced them must do it, and may not see the records that we have seen.
        let own = (0..SLOT_COUNT).map(|slot| self.config.transactional_id(slot));
        let transactional_ids = earlier_ids.iter().cloned().chain(own).collect();
        let env = self.client.env();
        let owner = OwnerRecord {
            format_version: FORMAT_VERSION,
            job: job.clone(),
            instance: instance.clone(),
            job_epoch,
            incarnation: env.rng.uuid().to_string(),
            since_ms: env.clock.wall_ms(),
            transactional_ids,
        };
        let value = owner.encode().map_err(|error| bug("owner record").with_source(error))?;
        // Before it is written: an answer that is lost must not make us a stranger to our own record.
        for known in followed.iter().chain([&owner.incarnation]) {
            self.attempt().remember_owner(known);
        }
        self.write_alone(&owner.key(), &value, "write the owner record").await?;
        let (client, topic) = (self.client.clone(), self.config.outcome_topic.clone());
        Ok(Ownership { client, topic, job, instance, incarnation: owner.incarnation, from, earlier_ids })
    }

    /// Errors: `Fenced` when somebody has started the job since an earlier attempt of this process had it. Asked before
    /// another attempt takes anything: it would take the job back, and the two could take turns for ever.
    pub(crate) async fn check_not_replaced(&mut self) -> Result<()> {
        if !self.attempt().has_owned() {
            return Ok(());
        }
        let (log, _) = self.read_log().await?;
        self.check_not_replaced_in(&log)
    }

    fn check_not_replaced_in(&self, log: &OutcomeLog) -> Result<()> {
        let (job, instance) = (&self.config.job, &self.config.instance);
        match log.owner(job, instance) {
            Some(owner) if self.attempt().has_owned() && !self.attempt().knows_owner(&owner.incarnation) => {
                Err(replaced(job, instance, owner))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Errors: `InvalidInput` when a record that this replica held when it ended could be handed out for the last time. It
    /// is read here because it is too late once the record is acquired (ADR 0019).
    async fn check_deliveries(&mut self, log: &OutcomeLog) -> Result<()> {
        let limit = self.config.delivery_limit;
        let (job, instance, group) = (&self.config.job, &self.config.instance, &self.config.group);
        let mut held = log.undecided_near_limit(job, instance);
        held.retain(|held| limit.must_not_be_delivered_again(held.delivery_count));
        if held.is_empty() {
            return Ok(());
        }
        // What the group has passed is decided, whoever did it.
        let names = self.config.topic_names.iter().map(|(id, name)| (*id, name.as_str()));
        let starts = start_offsets(&self.client, group, names).await?;
        held.retain(|held| starts.get(&held.source()).is_none_or(|start| *start <= held.last));
        if held.is_empty() {
            return Ok(());
        }
        // Another replica may have got it, and decided. Rare enough to read what everybody wrote.
        let OutcomeTopic { name, partition, .. } = &self.config.outcome_topic;
        let mut all = OutcomeLog::new();
        read_outcomes(&self.client, name, *partition, &mut all).await?;
        let undecided = all.undecided_near_limit(job, instance);
        held.retain(|held| {
            undecided.iter().any(|other| other.source() == held.source() && other.first <= held.last)
        });
        let Some(first) = held.iter().max_by_key(|held| held.delivery_count) else { return Ok(()) };
        let limit = limit.limit();
        let NearLimitRange { topic, partition, first, delivery_count, .. } = first;
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "{job}/{instance} stays down: {topic}/{partition} offset {first} had been delivered {delivery_count} times \
                 of at most {limit} when the job last ended, and was not decided; after its last delivery the broker archives \
                 it. Find out why the job ends, then raise share.delivery.count.limit of group {group}, move the group past \
                 the record (sharestream group reset), or set delivery-reserve to 0 to risk the last delivery, and start \
                 again"
            ),
        ))
    }

    /// Errors: `InvalidInput` when the group is between the steps of a rewind, `Retry` when between those of a reset.
    fn check_rewind(&self, log: &OutcomeLog) -> Result<()> {
        let group = &self.config.group;
        let Some(begun) = log.generation(group).filter(|begun| !begun.is_ready && !self.is_rewinding) else {
            return Ok(());
        };
        let Some(rewind) = begun.rewind() else {
            if self.config.mode == AckMode::Ledger {
                // The keeper says it, and waits.
                return Ok(());
            }
            let context = format!(
                "a reset of group {group} has begun and not ended; if it is not under way, repeat it: sharestream group \
                 reset {group}"
            );
            return Err(Error::new(ErrorKind::Retry, context));
        };
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "job {} is between two states: its return to savepoint {} has begun and not ended. Unless that is under way \
                 now, start the job with --from {} --rewind once more, which ends it",
                rewind.job, rewind.savepoint, rewind.place
            ),
        ))
    }

    /// What the group's replay generation says to claims and to the sources.
    fn take_generation(&mut self, log: &OutcomeLog) {
        let begun = log.generation(&self.config.group);
        self.generation = begun.map(|begun| begun.generation).unwrap_or_default();
        let begins = begun.and_then(|begun| begun.begins.as_ref());
        let decided = begins.map(|begins| begins.decisions()).unwrap_or_default();
        self.attempt().set_decided(decided);
    }

    /// The highest incarnation that an owner record or an outcome of this replica names.
    pub(crate) async fn last_job_epoch(&mut self) -> Result<Option<JobEpoch>> {
        let (log, _) = self.read_log().await?;
        let owner = log.owner(&self.config.job, &self.config.instance).map(|owner| owner.job_epoch);
        let outcomes = log.outcomes().iter().map(|outcome| outcome.record.job_epoch);
        Ok(outcomes.chain(owner).max())
    }

    /// Whether the last owner record is ours.
    pub(crate) async fn still_owns(&mut self) -> Result<bool> {
        match self.ownership.clone() {
            Some(ownership) => ownership.is_ours().await,
            None => Ok(false),
        }
    }

    /// The own outcomes, and all owner and mode records; and where the log ended.
    async fn read_log(&mut self) -> Result<(OutcomeLog, Offset)> {
        let OutcomeTopic { name, partition, .. } = &self.config.outcome_topic;
        let mut log = OutcomeLog::of(&self.config.job, &self.config.instance);
        let end = read_outcomes(&self.client, name, *partition, &mut log).await?;
        Ok((log, end))
    }

    /// Writes one record to the outcome partition, outside transactions.
    async fn write_alone(&mut self, key: &str, value: &[u8], doing: &str) -> Result<()> {
        let OutcomeTopic { name, partition, .. } = &self.config.outcome_topic;
        write_record(&self.client, (name, *partition), (key, value), doing).await
    }

    /// `fenced`: transactional ids under which nobody but us can commit any more.
    async fn read_own_outcomes(
        &mut self,
        ownership: &Ownership,
        mut fenced: BTreeSet<String>,
    ) -> Result<LastCommitted> {
        for _read in 0..MARKER_READS_MAX {
            let (log, _) = self.read_log().await?;
            ownership.check_in(&log)?;
            // An owner that wrote its record at the same moment as we did, just before.
            let named = log.transactional_ids(&self.config.job, &self.config.instance);
            let late: Vec<String> = named.difference(&fenced).cloned().collect();
            if !late.is_empty() {
                for transactional_id in late {
                    self.take(ownership, transactional_id.clone()).await?;
                    fenced.insert(transactional_id);
                }
                continue;
            }
            match last_committed(log.outcomes())? {
                Some(last) => {
                    // Again: who rewinds fences everybody whose owner record it has read, and we had not written ours.
                    self.check_rewind(&log)?;
                    self.take_generation(&log);
                    self.check_deliveries(&log).await?;
                    self.pin_mode(log.mode(&self.config.group)).await?;
                    return Ok(last);
                }
                None => self.client.env().clock.sleep(MARKER_PAUSE).await,
            }
        }
        let OutcomeTopic { name, partition, .. } = &self.config.outcome_topic;
        Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "{name}/{partition} holds an outcome without a marker, although its transaction was ended"
            ),
        ))
    }

    /// Checks the group's mode record, and writes one where the mode begins or changes.
    async fn pin_mode(&mut self, pinned: Option<&ModeRecord>) -> Result<()> {
        let topic = self.config.outcome_topic.clone();
        let mut ours = ModeRecord {
            format_version: FORMAT_VERSION,
            group: self.config.group.clone(),
            mode: self.config.mode,
            topic_id: topic.topic_id,
            partition_count: topic.partition_count,
            era: 0,
        };
        if let Some(pinned) = pinned {
            check_mode(&ours, pinned, &topic.name)?;
            if pinned.mode == ours.mode {
                self.era = pinned.era;
                return Ok(());
            }
            ours.era = pinned.era.saturating_add(1);
        }
        let value = ours.encode().map_err(|error| bug("mode record").with_source(error))?;
        self.write_alone(&ours.key(), &value, "write the mode record").await?;
        self.era = ours.era;
        Ok(())
    }
}

/// Refuses an outcome topic that is not the one this group began with, and a mode that cannot follow the recorded one.
fn check_mode(ours: &ModeRecord, pinned: &ModeRecord, topic: &str) -> Result<()> {
    if pinned.topic_id != ours.topic_id {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "outcome topic {topic} has id {}, but group {} began with id {}: it was created again",
                ours.topic_id, ours.group, pinned.topic_id
            ),
        ));
    }
    if pinned.partition_count != ours.partition_count {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "outcome topic {topic} has {} partitions, but group {} began with {}: its outcomes are in another \
                 partition now",
                ours.partition_count, ours.group, pinned.partition_count
            ),
        ));
    }
    // M2: transactional replicas that have ended their arbitration do not look at claims any more.
    if (pinned.mode, ours.mode) == (AckMode::Transactional, AckMode::Ledger) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "group {} runs in mode transactional; to go back to ledger, stop every job in it, then run: sharestream \
                 group ledger {}",
                ours.group, ours.group
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sharestream_base::ids::TopicId;

    use super::*;

    #[test]
    fn an_outcome_topic_that_was_created_again_is_corrupt() {
        let record = |id: u128, partition_count, mode| ModeRecord {
            format_version: FORMAT_VERSION,
            group: "g".to_owned(),
            mode,
            topic_id: TopicId(uuid::Uuid::from_u128(id)),
            partition_count,
            era: 0,
        };
        let ours = record(1, 4, AckMode::Transactional);
        let kind = |pinned: &ModeRecord| check_mode(&ours, pinned, "o").map_err(|error| error.kind());
        assert_eq!(kind(&ours), Ok(()));
        assert_eq!(kind(&record(1, 4, AckMode::AtLeastOnce)), Ok(()));
        assert_eq!(kind(&record(2, 4, AckMode::Transactional)), Err(ErrorKind::Corrupt));
        assert_eq!(kind(&record(1, 8, AckMode::Transactional)), Err(ErrorKind::Corrupt));
        assert_eq!(kind(&record(1, 4, AckMode::Ledger)), Ok(()));
    }

    #[test]
    fn m2_ledger_mode_does_not_follow_transactional_mode_unless_an_operator_has_said_so() {
        let record = |mode| ModeRecord {
            format_version: FORMAT_VERSION,
            group: "g".to_owned(),
            mode,
            topic_id: TopicId::default(),
            partition_count: 4,
            era: 1,
        };
        let ours = record(AckMode::Ledger);
        let refused = check_mode(&ours, &record(AckMode::Transactional), "o").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        assert!(refused.to_string().contains("stop every job in it"), "{refused}");
        assert!(check_mode(&ours, &record(AckMode::AtLeastOnce), "o").is_ok());
        assert!(check_mode(&ours, &record(AckMode::Ledger), "o").is_ok());
    }
}
