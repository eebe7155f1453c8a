//! The transaction of a replay: the records, and a mark for each.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use sharestream_base::ids::PartitionIndex;
use sharestream_base::{Env, ErrorKind};
use sharestream_client::{
    BatchWriter, ProducerIdentity, TopicInfo, TransactionConfig, TransactionSession, WriterConfig,
};
use sharestream_kafka::provenance;

use super::super::Place;
use super::super::letter::Letter;
use super::super::marks::{self, Mark, Marks};
use super::super::target::Target;
use crate::args::dead_letters::{Position, ReplayCrash};
use crate::output;

/// Longest time of a replay; brokers allow 15 minutes unless they are told otherwise.
const TIMEOUT: Duration = Duration::from_secs(300);

/// An open transaction, of which only one can be: that of the newest replay.
pub(super) struct Transaction {
    session: TransactionSession,
    writer: BatchWriter,
    identity: ProducerIdentity,
    dead_letters: Arc<TopicInfo>,
    marks_topic: String,
    env: Env,
    /// A dead letter that is put back: its mark tells what became of the transaction.
    first: Option<Position>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The coordinator said so, or there was nothing to commit.
    Committed,
    /// The answer was lost, and its marks are there.
    Resolved,
}

/// The answer to a commit.
enum Answer {
    Committed,
    Unknown,
}

impl Transaction {
    /// Takes the transactional id of the dead letter topic: other replays are fenced, what they left open is ended.
    pub(super) async fn begin(place: &Place) -> anyhow::Result<Transaction> {
        let (client, dead_letters) = (place.client.clone(), place.topic.clone());
        // No name of a job has a colon, so no job has such an id.
        let mut config = TransactionConfig::new(format!("dead-letter-replay:{}", dead_letters.name));
        config.timeout = TIMEOUT;
        let mut session = TransactionSession::new(client.clone(), config)?;
        session.init().await?;
        let identity = session.begin()?;
        let mut writer = BatchWriter::new(client.clone(), WriterConfig::default());
        writer.set_identity(&identity);
        let marks_topic = marks::topic_name(&dead_letters.name);
        let env = client.env().clone();
        Ok(Transaction { session, writer, identity, dead_letters, marks_topic, env, first: None })
    }

    /// Writes the record as it was, with the number of its replays, and the mark.
    pub(super) async fn put_back(
        &mut self,
        letter: &Letter<'_>,
        target: &Target,
        replays: u32,
    ) -> anyhow::Result<()> {
        let record = &letter.record;
        let count = replays.to_string();
        let is_kept = |name: &[u8]| !provenance::is_ours(name) && name != provenance::REPLAYS.as_bytes();
        let mut headers: Vec<(&[u8], Option<&[u8]>)> =
            record.headers.iter().filter(|(name, _)| is_kept(name)).collect();
        headers.push((provenance::REPLAYS.as_bytes(), Some(count.as_bytes())));
        let Target { topic, partition } = target;
        self.writer
            .append(topic, *partition, record.timestamp, record.key, record.value, &headers)
            .await
            .with_context(|| format!("put {} back into {topic}/{partition}", letter.position))?;
        let time_ms = self.env.clock.wall_ms();
        let mark =
            Mark { by: Mark::by(&self.identity), to: format!("{topic}/{partition}"), replays, time_ms };
        let (key, value) = (marks::key(&self.dead_letters, letter.position), serde_json::to_vec(&mark)?);
        self.writer
            .append(&self.marks_topic, PartitionIndex(0), time_ms, Some(key.as_bytes()), Some(&value), &[])
            .await
            .with_context(|| format!("mark {} as replayed", letter.position))?;
        self.first.get_or_insert(letter.position);
        Ok(())
    }

    /// Waits until the brokers have everything.
    pub(super) async fn flush(&mut self) -> anyhow::Result<()> {
        self.writer.flush().await.context("write the replayed records")?;
        Ok(())
    }

    /// Gives it up. Where even that fails, the next replay or the time-out ends it.
    pub(super) async fn abort(&mut self) {
        if let Err(error) = self.session.abort().await {
            tracing::warn!(%error, "the transaction of the replay could not be aborted");
        }
    }

    /// Commits, and finds out what became of it where the answer is lost.
    pub(super) async fn commit(mut self, place: &Place, crash: Option<ReplayCrash>) -> anyhow::Result<Ended> {
        let Some(first) = self.first else { return Ok(Ended::Committed) };
        match self.answer(crash).await? {
            Answer::Committed => Ok(Ended::Committed),
            Answer::Unknown => self.resolve(place, first).await,
        }
    }

    async fn answer(&mut self, crash: Option<ReplayCrash>) -> anyhow::Result<Answer> {
        let (sender, sent) = tokio::sync::oneshot::channel();
        let on_sent = move || {
            if crash == Some(ReplayCrash::CommitSent) {
                std::process::exit(1);
            }
            // Nobody listens where the answer is waited for.
            let _ = sender.send(());
        };
        let committed = match crash {
            Some(ReplayCrash::BeforeCommit) => {
                output::line("stopped before the commit");
                std::future::pending().await
            }
            Some(ReplayCrash::AnswerLost) => {
                // The answer may be as fast as the notice.
                tokio::select! {
                    committed = self.session.commit_with(on_sent) => committed?,
                    _ = sent => {}
                }
                return Ok(Answer::Unknown);
            }
            Some(ReplayCrash::CommitSent) | None => self.session.commit_with(on_sent).await,
        };
        match committed {
            Ok(()) => Ok(Answer::Committed),
            Err(error) if error.kind() == ErrorKind::Indeterminate => {
                tracing::warn!(%error, "the commit of the replay was not answered");
                Ok(Answer::Unknown)
            }
            Err(error) if error.kind() == ErrorKind::Fenced => {
                let text = "another replay of this topic began, or the time-out of this one was over, so it may have been \
                            ended without us; run it again: what was replayed is left out";
                Err(anyhow::Error::new(error).context(text))
            }
            Err(error) => Err(anyhow::Error::new(error).context("nothing was replayed")),
        }
    }

    /// Takes the transactional id anew, which waits until the transaction is over one way or the other, and looks for a
    /// mark that only this transaction can have written.
    async fn resolve(&mut self, place: &Place, first: Position) -> anyhow::Result<Ended> {
        let unknown = "it is not known whether the replay was committed; run it again: that finds out, and leaves out \
                       what was replayed";
        self.session.init().await.context(unknown)?;
        let marks = Marks::read_existing(&place.client, &place.topic).await.context(unknown)?;
        if marks.is_by(first, &Mark::by(&self.identity)) {
            return Ok(Ended::Resolved);
        }
        Err(anyhow!(
            "the commit did not reach the brokers, and the transaction was aborted: nothing was replayed; run it again"
        ))
    }
}
