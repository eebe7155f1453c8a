//! Asks the brokers for the facts of a check: each question once, with the client's deadlines, and nothing that stays.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use sharestream_base::ids::PartitionIndex;
use sharestream_client::{Admin, Client, KafkaError, NewTopic, OffsetSpec};
use sharestream_core::JobOptions;
use sharestream_core::commit::AckMode;

use super::brokers::BrokerFacts;
use super::finding::{Area, Asked, Found, NoAnswer};
use super::group::{BrokerLetters, GroupFacts, Standing, letters_topic};
use super::members::MemberFacts;
use super::topics::{Creation, Role, TopicFacts};
use super::transactions::TransactionFacts;
use super::{Facts, Report, findings};
use crate::commit::SLOT_COUNT;
use crate::config::{KafkaJobConfig, resolve_mode};
use crate::fit::{ClusterLimits, Times};
use crate::group::split_unknown_tuning;
use crate::job::{mode_support, wanted_group_configs};
use crate::outcome_topic;

type Settings = BTreeMap<String, String>;

/// Looks at everything that a job with these settings needs of its brokers. `new_partitions`: partitions of output, dead letter
/// and parking topics that whoever starts the job will create; `None`: they must be there.
///
/// Nothing is joined, created or changed. (Brokers that nobody ever asked for a coordinator make their internal topics
/// then.)
///
/// # Cancel safety
/// Cancel safe: nothing is left behind.
pub async fn job(
    client: &Client,
    config: &KafkaJobConfig,
    options: &JobOptions,
    new_partitions: Option<i32>,
) -> Report {
    let mut faults = Found::of(Area::Job);
    for fault in config.validate() {
        faults.refused("settings", fault.to_string(), "");
    }
    let mut report = findings(&Box::pin(collect(client, config, options, new_partitions)).await);
    report.findings.splice(0..0, faults.list);
    report
}

async fn collect(
    client: &Client,
    config: &KafkaJobConfig,
    options: &JobOptions,
    new_partitions: Option<i32>,
) -> Facts {
    let admin = client.admin();
    let name = config.group.as_str();
    let support = mode_support(client);
    let mode = resolve_mode(config.mode, support.clone()).ok();
    let (brokers, told, of_brokers, listed, described, group_operations) = futures::join!(
        admin.broker_features(),
        admin.describe_group_config(name),
        admin.describe_broker_config(),
        admin.find_group(name),
        admin.describe_share_group(name),
        admin.group_operations(name),
    );
    let (topics, transactions, now_ms) = futures::join!(
        Box::pin(topics(&admin, config, new_partitions)),
        Box::pin(transactions(&admin, config)),
        async { client.env().clock.wall_ms() },
    );
    let asked = SettingsAsked {
        told: told.map_err(NoAnswer::from),
        brokers: of_brokers.map_err(NoAnswer::from),
        share_version: client.features().share_version,
    };
    let group = Box::pin(group(&admin, config, options, &topics, asked)).await;
    let nothing = Settings::new();
    let mut wanted = config.group_configs.clone();
    wanted.retain(|name, _| !group.unknown.contains(name));
    let limits = ClusterLimits::of(
        &wanted,
        group.told.as_ref().unwrap_or(&nothing),
        group.brokers.as_ref().unwrap_or(&nothing),
    );
    let brokers = brokers.into_iter().map(|broker| BrokerFacts {
        node: broker.node.0,
        address: broker.address.to_string(),
        features: broker.features.map(|features| features.finalized).map_err(NoAnswer::from),
    });
    Facts {
        choice: config.mode,
        support,
        brokers: brokers.collect(),
        times: Times::new(config, options, mode == Some(AckMode::Ledger)),
        limits,
        group,
        group_operations: group_operations.map_err(NoAnswer::from),
        members: MemberFacts {
            group: config.group.clone(),
            job: config.job.clone(),
            instance: config.instance.clone(),
            mode,
            listed: listed.map_err(NoAnswer::from),
            described: described.map_err(NoAnswer::from),
        },
        topics,
        batch_bytes_max: u64::try_from(config.sink.batch_bytes_max).unwrap_or(u64::MAX),
        record_bytes_max: u64::try_from(config.record_bytes_max).unwrap_or(u64::MAX),
        transactions,
        principal: client.config().security.principal(),
        now_ms,
    }
}

/// What is known before the group is looked at closely.
struct SettingsAsked {
    told: Asked<Settings>,
    brokers: Asked<Settings>,
    share_version: i16,
}

async fn group(
    admin: &Admin,
    config: &KafkaJobConfig,
    options: &JobOptions,
    topics: &[TopicFacts],
    asked: SettingsAsked,
) -> GroupFacts {
    let SettingsAsked { told, brokers, share_version } = asked;
    let wanted = wanted_group_configs(config);
    let (change, unknown) = match wanted.is_empty() {
        true => (None, Vec::new()),
        false => change(admin, &config.group, &wanted, told.as_ref().ok()).await,
    };
    let wanted: Settings = wanted.into_iter().collect();
    let letters = match letters_topic([&wanted].into_iter().chain(told.as_ref().ok())) {
        None => None,
        Some(topic) => {
            let (described, settings) =
                futures::join!(admin.describe_topic(&topic), admin.describe_topic_config(&topic));
            let (described, settings) = (described.map_err(NoAnswer::from), settings.map_err(NoAnswer::from));
            Some(BrokerLetters { topic, described, settings })
        }
    };
    let there = topics.iter().filter(|topic| topic.role == Role::Source);
    let there = there.filter(|topic| matches!(topic.described, Ok(Some(_))));
    let standings = join_all(there.map(|topic| standing(admin, &config.group, &topic.name))).await;
    let standing = standings.into_iter().try_fold(Standing::default(), |sum, one| {
        let one = one?;
        Ok(Standing {
            partition_count: sum.partition_count + one.partition_count,
            unread_count: sum.unread_count + one.unread_count,
            unread_records: sum.unread_records + one.unread_records,
        })
    });
    GroupFacts {
        group: config.group.clone(),
        wanted,
        change,
        unknown,
        told,
        brokers,
        share_version,
        standing,
        letters,
        delivery_reserve: config.delivery_reserve,
        goal: options.goal(),
        has_dead_letters: config.dead_letter_topic.is_some(),
    }
}

/// What the brokers say to the settings that the job wants, as its start would ask them; and those that they do not know.
async fn change(
    admin: &Admin,
    group: &str,
    wanted: &[(String, String)],
    told: Option<&Settings>,
) -> (Option<Asked<()>>, Vec<String>) {
    let refused = match admin.check_group_config(group, wanted).await {
        Ok(()) => return (Some(Ok(())), Vec::new()),
        Err(error) => error,
    };
    let (Some(KafkaError::INVALID_CONFIG), Some(known)) = (refused.code(), told) else {
        return (Some(Err(refused.into())), Vec::new());
    };
    let (kept, unknown) = split_unknown_tuning(wanted.to_vec(), known);
    if unknown.is_empty() {
        return (Some(Err(refused.into())), Vec::new());
    }
    match kept.is_empty() {
        true => (Some(Err(refused.into())), unknown),
        false => match admin.check_group_config(group, &kept).await {
            Ok(()) => (Some(Err(refused.into())), unknown),
            Err(error) => (Some(Err(error.into())), Vec::new()),
        },
    }
}

async fn standing(admin: &Admin, group: &str, topic: &str) -> Asked<Standing> {
    let described = match admin.describe_share_group_offsets(group, &[topic]).await {
        Ok(described) => described,
        Err(error) if error.code() == Some(KafkaError::GROUP_ID_NOT_FOUND) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let read: BTreeSet<PartitionIndex> = described
        .iter()
        .filter(|offset| offset.start_offset.is_some())
        .map(|offset| offset.partition)
        .collect();
    let (firsts, ends) = futures::join!(
        admin.list_offsets(topic, &[], OffsetSpec::Earliest),
        admin.list_offsets(topic, &[], OffsetSpec::Latest),
    );
    let (firsts, ends) = (firsts?, ends?);
    let mut standing = Standing::default();
    for (partition, end) in ends {
        standing.partition_count += 1;
        if !read.contains(&partition) {
            standing.unread_count += 1;
            let first = firsts.get(&partition).map_or(end.0, |first| first.0);
            standing.unread_records += u64::try_from(end.0 - first).unwrap_or(0);
        }
    }
    Ok(standing)
}

async fn topics(admin: &Admin, config: &KafkaJobConfig, new_partitions: Option<i32>) -> Vec<TopicFacts> {
    let created = |name: &str| new_partitions.map(|partitions| NewTopic::new(name, partitions));
    let sources = config.topics.iter().map(|name| (Role::Source, name, None));
    let parking = config.parking_topic.iter().map(|name| (Role::Parking, name, created(name)));
    let output = std::iter::once(&config.sink.topic).map(|name| (Role::Output, name, created(name)));
    let letters = config.dead_letter_topic.iter().map(|name| (Role::DeadLetters, name, created(name)));
    let outcomes = outcome_topic::wanted(config, admin.node_count());
    let outcomes = std::iter::once((Role::Outcomes, &config.outcome_topic, Some(outcomes)));
    let all = sources.chain(parking).chain(output).chain(letters).chain(outcomes);
    let looks = all.map(|(role, name, new)| Box::pin(topic(admin, role, name, new)));
    join_all(looks).await
}

async fn topic(admin: &Admin, role: Role, name: &str, new: Option<NewTopic>) -> TopicFacts {
    let described = admin.describe_topic(name).await.map_err(NoAnswer::from);
    let settings = match &described {
        Ok(Some(_)) => admin.describe_topic_config(name).await.map_err(NoAnswer::from),
        Ok(None) | Err(_) => Err(NoAnswer::because("it is not there")),
    };
    let creation = match (&described, new) {
        (Ok(None), Some(new)) => {
            let (partitions, copies) = (new.partitions, (new.replication > 0).then_some(new.replication));
            let checked = admin.check_new_topic(new).await.map_err(NoAnswer::from);
            Some(Creation { partitions, copies, checked })
        }
        _ => None,
    };
    TopicFacts { role, name: name.to_owned(), described, settings, creation }
}

async fn transactions(admin: &Admin, config: &KafkaJobConfig) -> Vec<TransactionFacts> {
    let ids = (0..SLOT_COUNT).map(|slot| config.transactional_id(slot));
    let looks = ids.map(|id| async move {
        let one = [id.as_str()];
        let (described, may_write) =
            futures::join!(admin.describe_transactions(&one), admin.may_write_transactional_id(&id));
        let described = described.map(|described| described.into_iter().next()).map_err(NoAnswer::from);
        let may_write = may_write.map_err(NoAnswer::from);
        TransactionFacts { id, described, may_write }
    });
    join_all(looks).await
}
