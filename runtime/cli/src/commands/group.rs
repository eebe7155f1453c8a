//! `sharestream group list|describe|reset|delete|ledger`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use sharestream_base::ids::{Offset, PartitionIndex};
use sharestream_base::{Env, ErrorKind};
use sharestream_client::{
    Admin, Client, KafkaError, OffsetSpec, PlannedReset, ShareGroupDescription, ShareGroupOffset,
};
use sharestream_kafka::ledger;

use super::topic::connect;
use crate::args::groups::{
    GroupCommand, GroupDeleteArgs, GroupDescribeArgs, GroupLedgerArgs, GroupListArgs, GroupResetArgs,
};
use crate::exit::Exit;
use crate::failure::Refused;
use crate::output;

/// Runs one of them.
pub(crate) async fn run(env: Env, command: GroupCommand) -> anyhow::Result<Exit> {
    match command {
        GroupCommand::List(args) => list(env, args).await,
        GroupCommand::Describe(args) => describe(env, args).await,
        GroupCommand::Reset(args) => reset(env, args).await,
        GroupCommand::Delete(args) => delete(env, args).await,
        GroupCommand::Ledger(args) => to_ledger(env, args).await,
    }
}

async fn list(env: Env, args: GroupListArgs) -> anyhow::Result<Exit> {
    let client = connect(env, &args.connection).await?;
    let mut rows = Vec::new();
    for group in client.admin().list_share_groups().await? {
        if args.json {
            let line = json!({
                "group": group.group_id, "state": group.state, "coordinator": group.coordinator.0,
            });
            output::line(&line.to_string());
        } else {
            rows.push(vec![group.group_id, group.state, group.coordinator.to_string()]);
        }
    }
    if !args.json {
        output::line(&output::table(&["group", "state", "coordinator"], rows));
    }
    Ok(Exit::Done)
}

/// Where the group stands in one partition.
struct Standing {
    offset: ShareGroupOffset,
    end: Option<Offset>,
}

impl Standing {
    /// Records not decided: what the broker counts, or at most all up to the end.
    fn lag(&self) -> Option<i64> {
        let all = || Some(self.end?.0 - self.offset.start_offset?.0);
        self.offset.lag.or_else(all)
    }
}

async fn standings(admin: &Admin, group: &str) -> anyhow::Result<Vec<Standing>> {
    let offsets = match admin.describe_share_group_offsets(group, &[]).await {
        Ok(offsets) => offsets,
        // A group that has not read anything yet.
        Err(error) if error.code() == Some(KafkaError::GROUP_ID_NOT_FOUND) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let mut ends: BTreeMap<Arc<str>, BTreeMap<PartitionIndex, Offset>> = BTreeMap::new();
    let mut standings = Vec::with_capacity(offsets.len());
    for offset in offsets {
        if !ends.contains_key(&offset.topic) {
            let of_topic = match admin.list_offsets(&offset.topic, &[], OffsetSpec::Latest).await {
                Ok(of_topic) => of_topic,
                // The group remembers a topic that is gone.
                Err(error) if error.kind() == ErrorKind::InvalidInput => BTreeMap::new(),
                Err(error) => return Err(error.into()),
            };
            ends.insert(Arc::clone(&offset.topic), of_topic);
        }
        let end = ends.get(&offset.topic).and_then(|of_topic| of_topic.get(&offset.partition)).copied();
        standings.push(Standing { offset, end });
    }
    standings
        .sort_by(|a, b| (&a.offset.topic, a.offset.partition).cmp(&(&b.offset.topic, b.offset.partition)));
    Ok(standings)
}

async fn described(admin: &Admin, group: &str) -> anyhow::Result<ShareGroupDescription> {
    admin.describe_share_group(group).await?.ok_or_else(|| {
        Refused::error(format!(
            "there is no share group '{group}'; `sharestream group list` shows those that there are"
        ))
    })
}

async fn describe(env: Env, args: GroupDescribeArgs) -> anyhow::Result<Exit> {
    let client = connect(env, &args.connection).await?;
    let admin = client.admin();
    let group = described(&admin, &args.group).await?;
    let standings = standings(&admin, &args.group).await?;
    if args.json {
        output::line(&as_json(&group, &standings).to_string());
        return Ok(Exit::Done);
    }
    let (epoch, assignor) = (group.group_epoch, &group.assignor);
    output::line(&format!(
        "group {}: {}, {} members, epoch {epoch}, assignor {assignor}",
        group.group_id,
        group.state,
        group.members.len()
    ));
    let number = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), output::thousands);
    let offsets = standings.iter().map(|standing| {
        let offset = &standing.offset;
        vec![
            offset.topic.to_string(),
            offset.partition.to_string(),
            number(offset.start_offset.map(|start| start.0)),
            number(standing.end.map(|end| end.0)),
            number(standing.lag()),
        ]
    });
    let header = ["topic", "partition", "start offset", "end offset", "lag"];
    output::line(&output::table(&header, offsets.collect()));
    if !group.members.is_empty() {
        let members = group.members.iter().map(|member| {
            let assigned: Vec<String> = member
                .assignment
                .iter()
                .map(|topic| format!("{}: {}", topic.topic, list_of(&topic.partitions)))
                .collect();
            vec![
                member.member_id.clone(),
                member.client_id.clone(),
                member.client_host.clone(),
                member.member_epoch.to_string(),
                assigned.join("; "),
            ]
        });
        output::line(&output::table(&["member", "client", "host", "epoch", "partitions"], members.collect()));
    }
    Ok(Exit::Done)
}

/// Partitions with runs drawn together: `0-3, 7`.
fn list_of(partitions: &[PartitionIndex]) -> String {
    let mut sorted: Vec<i32> = partitions.iter().map(|partition| partition.0).collect();
    sorted.sort_unstable();
    let mut runs: Vec<(i32, i32)> = Vec::new();
    for index in sorted {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == index => *last = index,
            Some(_) | None => runs.push((index, index)),
        }
    }
    let runs = runs.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    runs.collect::<Vec<_>>().join(", ")
}

fn as_json(group: &ShareGroupDescription, standings: &[Standing]) -> serde_json::Value {
    let members: Vec<serde_json::Value> = group
        .members
        .iter()
        .map(|member| {
            let assigned: BTreeMap<&str, Vec<i32>> = member
                .assignment
                .iter()
                .map(|topic| (&*topic.topic, topic.partitions.iter().map(|partition| partition.0).collect()))
                .collect();
            json!({
                "member": member.member_id, "client": member.client_id, "host": member.client_host,
                "epoch": member.member_epoch.0, "rack": member.rack,
                "subscribed": member.subscribed_topics, "assigned": assigned,
            })
        })
        .collect();
    let offsets: Vec<serde_json::Value> = standings
        .iter()
        .map(|standing| {
            json!({
                "topic": &*standing.offset.topic, "partition": standing.offset.partition.0,
                "start_offset": standing.offset.start_offset.map(|offset| offset.0),
                "end_offset": standing.end.map(|offset| offset.0), "lag": standing.lag(),
            })
        })
        .collect();
    json!({
        "group": group.group_id, "state": group.state, "epoch": group.group_epoch,
        "assignor": group.assignor, "members": members, "offsets": offsets,
    })
}

async fn reset(env: Env, args: GroupResetArgs) -> anyhow::Result<Exit> {
    let client = connect(env, &args.connection).await?;
    let topics: Vec<&str> = args.topics.iter().map(String::as_str).collect();
    let plan = client.admin().plan_share_group_reset(&args.group, &topics, args.to.0).await?;
    if !args.dry_run {
        make(&client, &args, &plan).await?;
    }
    if args.json {
        for one in &plan {
            let line = json!({
                "topic": &*one.topic, "partition": one.partition.0, "before": one.before.map(|offset| offset.0),
                "after": one.after.0, "log_start": one.log_start.0, "log_end": one.log_end.0,
                "done": !args.dry_run,
            });
            output::line(&line.to_string());
        }
        return Ok(Exit::Done);
    }
    let rows = plan.iter().map(|one| {
        vec![
            one.topic.to_string(),
            one.partition.to_string(),
            one.before.map_or_else(|| "-".to_owned(), |before| output::thousands(before.0)),
            output::thousands(one.after.0),
            output::thousands(one.log_end.0 - one.after.0),
        ]
    });
    output::line(&output::table(&["topic", "partition", "before", "after", "to read"], rows.collect()));
    output::line(match args.dry_run {
        true => "nothing was changed; without --dry-run it would be",
        false => "reset; the next member starts there",
    });
    Ok(Exit::Done)
}

/// Makes a planned reset: the one place that moves a group's offsets. Where decisions are in a ledger, a new replay
/// generation is opened with them: else the records would be dropped as decided.
async fn make(client: &Client, args: &GroupResetArgs, plan: &[PlannedReset]) -> anyhow::Result<()> {
    let group = &args.group;
    if !ledger::has_ledger(client, &args.outcome_topic, group).await? {
        client.admin().reset_share_group(group, plan).await?;
        return Ok(());
    }
    if !args.topics.is_empty() {
        return Err(Refused::error(format!(
            "the decisions of group {group} are in an outcome topic, so a reset opens a new replay generation for all its \
             topics: leave --topic out"
        )));
    }
    let starts: Vec<_> = plan.iter().map(PlannedReset::start_offset).collect();
    ledger::reset_generation(client, &args.outcome_topic, group, &starts).await?;
    Ok(())
}

async fn delete(env: Env, args: GroupDeleteArgs) -> anyhow::Result<Exit> {
    let client = connect(env, &args.connection).await?;
    let admin = client.admin();
    described(&admin, &args.group).await?;
    admin.delete_share_group(&args.group).await?;
    output::line(&format!("deleted share group {}", args.group));
    Ok(Exit::Done)
}

async fn to_ledger(env: Env, args: GroupLedgerArgs) -> anyhow::Result<Exit> {
    let client = connect(env, &args.connection).await?;
    ledger::return_to_ledger(&client, &args.outcome_topic, &args.group).await?;
    output::line(&format!("group {} is in ledger mode", args.group));
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_partitions_are_drawn_together() {
        let of = |indexes: &[i32]| list_of(&indexes.iter().copied().map(PartitionIndex).collect::<Vec<_>>());
        assert_eq!(of(&[3, 0, 1, 2, 7]), "0-3, 7");
        assert_eq!(of(&[5]), "5");
        assert_eq!(of(&[]), "");
    }
}
