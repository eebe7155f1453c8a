//! `sharestream dead-letter replay`.

mod report;
mod transaction;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use sharestream_base::Env;
use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_client::{Client, OffsetSpec};

use self::report::Report;
use self::transaction::{Ended, Transaction};
use super::Place;
use super::letter::{Filter, Letter};
use super::marks::{self, Marks};
use super::target::{Target, Targets};
use crate::args::dead_letters::{Position, ReplayArgs};
use crate::exit::Exit;
use crate::failure::Refused;
use crate::verify::scan::{PartitionScan, Scan};

/// Puts back what is chosen and was not put back before.
pub(super) async fn run(env: Env, args: ReplayArgs) -> anyhow::Result<Exit> {
    if !args.all && args.at.is_empty() && args.chosen.is_empty() {
        let text = "which dead letters? Name them by --at PARTITION/OFFSET, by --since, --error or --kind, or take --all";
        return Err(Refused::error(text.to_owned()));
    }
    let filter = Filter::new(&args.chosen, env.clock.wall_ms());
    let place = Place::find(env, &args.topic).await?;
    let marks_topic = marks::topic_name(&place.topic.name);
    check_target(&args, &place, &marks_topic)?;
    let mut report = Report::new(&place.topic.name, &args);
    report.uncommitted_readers = uncommitted_readers(&place, &args).await?;
    if args.dry_run {
        let marks = Marks::read(&place.client, &place.topic).await?;
        Replay::new(&place, &args, filter, marks).each(&mut report, None).await?;
        return Ok(report.print());
    }
    marks::ensure_topic(&place.client, &place.topic).await?;
    // From here on no other replay of this topic can commit, and what one left open is ended: the marks are complete.
    let mut transaction = Transaction::begin(&place).await?;
    let marks = Marks::read_existing(&place.client, &place.topic).await?;
    let mut replay = Replay::new(&place, &args, filter, marks);
    let written = match replay.each(&mut report, Some(&mut transaction)).await {
        Ok(()) => transaction.flush().await,
        Err(error) => Err(error),
    };
    if let Err(error) = written {
        transaction.abort().await;
        return Err(error.context("nothing was replayed"));
    }
    match transaction.commit(&place, args.crash_at).await? {
        Ended::Committed => {}
        Ended::Resolved => report.was_unknown = true,
    }
    Ok(report.print())
}

/// A replay into the dead letters themselves would never end.
fn check_target(args: &ReplayArgs, place: &Place, marks_topic: &str) -> anyhow::Result<()> {
    match args.to_topic.as_deref() {
        Some(to) if to == &*place.topic.name || to == marks_topic => {
            let text = format!(
                "--to-topic {to}: dead letters go back into the topic of a job's source, not into this one"
            );
            Err(Refused::error(text))
        }
        Some(_) | None => Ok(()),
    }
}

/// A share group reads uncommitted records unless it is told otherwise: it gets the records of a replay that is then
/// aborted, and gets them again from the next one. True when that is so, or cannot be known.
async fn uncommitted_readers(place: &Place, args: &ReplayArgs) -> anyhow::Result<bool> {
    const ISOLATION: &str = "share.isolation.level";
    let Some(job) = &place.job else { return Ok(true) };
    let group = &job.source.group;
    let described = place.client.admin().describe_group_config(group).await;
    let settings = described.with_context(|| format!("cannot read the settings of share group {group}"))?;
    if settings.get(ISOLATION).is_some_and(|level| level == "read_committed") {
        return Ok(false);
    }
    if args.allow_uncommitted_readers || args.dry_run {
        return Ok(true);
    }
    Err(Refused::error(format!(
        "share group {group} reads uncommitted records: it would get those of a replay that fails, and get them again \
         from the next one. Set share.isolation.level = \"read_committed\" in [source.group_config] and start the job, \
         or take the risk with --allow-uncommitted-readers"
    )))
}

/// One pass over the dead letters.
struct Replay<'a> {
    place: &'a Place,
    args: &'a ReplayArgs,
    filter: Filter,
    /// Where no positions are named, all are meant.
    positions: Option<BTreeSet<Position>>,
    marks: Marks,
    targets: Targets<'a>,
}

/// What to do with a dead letter.
enum Choice {
    /// It was not asked for.
    NotChosen,
    /// It has a mark.
    Replayed,
    /// It must not be put back, and why.
    Refused(String),
    /// Put it back for the time with this number.
    PutBack(u32),
}

impl<'a> Replay<'a> {
    fn new(place: &'a Place, args: &'a ReplayArgs, filter: Filter, marks: Marks) -> Self {
        let positions = Some(args.positions()).filter(|positions| !positions.is_empty());
        let targets = Targets::new(&place.client, args.to_topic.as_deref());
        Replay { place, args, filter, positions, marks, targets }
    }

    /// Decides on every committed dead letter, and writes those that go back into the transaction, where there is one.
    async fn each(
        &mut self,
        report: &mut Report,
        mut transaction: Option<&mut Transaction>,
    ) -> anyhow::Result<()> {
        let place = self.place;
        let (client, topic) = (&place.client, &place.topic.name);
        for (partition, first) in self.starts(client, topic).await? {
            let mut scan = PartitionScan::start(client, topic, partition, first, Scan::Committed).await?;
            while let Some(batches) = scan.next().await? {
                for batch in &batches {
                    for record in &batch.records()? {
                        let record = record?;
                        if record.offset < first.0 {
                            continue;
                        }
                        let Some(letter) = Letter::of(partition, &record) else {
                            report.foreign += 1;
                            continue;
                        };
                        self.one(&letter, report, transaction.as_deref_mut()).await?;
                        if self.args.limit.is_some_and(|limit| report.replayed >= limit) {
                            return Ok(());
                        }
                    }
                }
            }
        }
        match self.positions.as_ref().and_then(|positions| positions.first()) {
            None => Ok(()),
            Some(position) => Err(Refused::error(format!(
                "{topic} has no committed dead letter at {position}; `sharestream dead-letter list` shows those that there are"
            ))),
        }
    }

    /// Where to read from: partitions without a named position are left out.
    async fn starts(&self, client: &Client, topic: &str) -> anyhow::Result<BTreeMap<PartitionIndex, Offset>> {
        let mut starts = client.admin().list_offsets(topic, &[], OffsetSpec::Earliest).await?;
        if let Some(positions) = &self.positions {
            starts.retain(|partition, start| {
                let named = positions.iter().find(|position| position.partition == *partition);
                *start = named.map_or(*start, |named| named.offset.max(*start));
                named.is_some()
            });
        }
        Ok(starts)
    }

    async fn one(
        &mut self,
        letter: &Letter<'_>,
        report: &mut Report,
        transaction: Option<&mut Transaction>,
    ) -> anyhow::Result<()> {
        match self.choose(letter) {
            Choice::NotChosen => {}
            Choice::Replayed => report.already += 1,
            Choice::Refused(why) => report.refuse(letter.position, why),
            Choice::PutBack(replays) => match self.targets.of(letter).await? {
                Err(why) => report.refuse(letter.position, why),
                Ok(target) => {
                    let Target { topic, partition } = &target;
                    report.put_back(letter.position, &format!("{topic}/{partition}"));
                    if let Some(transaction) = transaction {
                        transaction.put_back(letter, &target, replays).await?;
                    }
                }
            },
        }
        Ok(())
    }

    fn choose(&mut self, letter: &Letter<'_>) -> Choice {
        let is_chosen = match &mut self.positions {
            // Those that are left at the end were not there.
            Some(positions) => positions.remove(&letter.position),
            None => self.filter.takes(letter),
        };
        if !is_chosen {
            return Choice::NotChosen;
        }
        if self.marks.has(letter.position) {
            return Choice::Replayed;
        }
        if letter.is_without_value() {
            let why =
                "its value was too large for the topic of the dead letters and is not in it: produce it anew";
            return Choice::Refused(why.to_owned());
        }
        match letter.replays() {
            None => Choice::Refused("its header sharestream.replays is no number".to_owned()),
            Some(replays) if replays >= self.args.max_replays => Choice::Refused(format!(
                "it was replayed {replays} times before and became a dead letter again; --max-replays allows {}",
                self.args.max_replays
            )),
            Some(replays) => Choice::PutBack(replays + 1),
        }
    }
}
