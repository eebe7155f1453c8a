//! Who the brokers are, what they can do, and the mode that results.

use std::collections::BTreeMap;

use sharestream_core::commit::AckMode;

use super::finding::{Area, Asked, Finding, Found};
use crate::config::{AckModeChoice, ModeSupport, resolve_mode};

/// A broker by the address that it advertises.
#[derive(Clone, Debug)]
pub(crate) struct BrokerFacts {
    pub(crate) node: i32,
    pub(crate) address: String,
    /// Its finalized features, by name.
    pub(crate) features: Asked<BTreeMap<String, i16>>,
}

/// The features that a job depends on.
const OURS: [&str; 4] = ["share.version", "transaction.version", "group.version", "metadata.version"];

/// What the brokers say of themselves.
pub(crate) fn brokers(brokers: &[BrokerFacts]) -> Vec<Finding> {
    let mut found = Found::of(Area::Brokers);
    let named = |broker: &BrokerFacts| format!("broker {} at {}", broker.node, broker.address);
    let reached: Vec<_> =
        brokers.iter().filter_map(|broker| Some((broker, broker.features.as_ref().ok()?))).collect();
    for broker in brokers {
        let Err(why) = &broker.features else { continue };
        let message = format!("{} cannot be reached: {why}", named(broker));
        let fix = "start it, or correct its advertised.listeners or the way there: a job speaks to every broker that leads one \
                   of its partitions";
        match reached.is_empty() {
            true => found.refused("unreachable", message, fix),
            false => found.warning("unreachable", message, fix),
        }
    }
    let level = |features: &BTreeMap<String, i16>, name: &str| features.get(name).copied();
    if let Some((first, features)) = reached.first() {
        let levels: Vec<String> =
            OURS.iter().filter_map(|name| Some(format!("{name} {}", level(features, name)?))).collect();
        let levels = if levels.is_empty() { "no finalized features".to_owned() } else { levels.join(", ") };
        let count = brokers.len();
        let plural = if count == 1 { "" } else { "s" };
        found.ok("features", format!("{count} broker{plural}: {levels}"));
        for (other, told) in &reached[1..] {
            for name in OURS {
                let (one, two) = (level(features, name), level(told, name));
                if one != two {
                    let said = |level: Option<i16>| {
                        level.map_or_else(|| "none".to_owned(), |level| level.to_string())
                    };
                    let message = format!(
                        "{} has {name} {}, {} has {}",
                        named(first),
                        said(one),
                        named(other),
                        said(two)
                    );
                    let fix = "wait until the upgrade has reached every broker, then check again";
                    found.warning("features-differ", message, fix);
                }
            }
        }
    }
    if brokers.len() == 1 {
        let fix = "three brokers, and topics with three copies of which two must be in sync";
        found.hint("one-broker", "there is one broker: nothing outlives its disk", fix);
    }
    found.list
}

/// Why a job runs in the mode that it gets.
pub(crate) fn reason(choice: AckModeChoice, support: &ModeSupport) -> String {
    match (&support.transactional, choice) {
        (Err(lacks), AckModeChoice::Auto) => format!("transactional is not possible: {lacks}"),
        (Ok(()), AckModeChoice::Auto) => "the brokers have KIP-1289".to_owned(),
        (_, chosen) => format!("{chosen:?} was asked for"),
    }
}

/// The mode that results, if one does. `share_version`: the finalized level.
pub(crate) fn mode(
    choice: AckModeChoice,
    support: &ModeSupport,
    share_version: i16,
) -> (Option<AckMode>, Vec<Finding>) {
    let mut found = Found::of(Area::Mode);
    if share_version < 1 {
        let message = "share.version is 0: these brokers have no share groups (KIP-932)";
        let fix = "Kafka from 4.1 on has them: kafka-features.sh --bootstrap-server HOST:PORT upgrade --feature share.version=1";
        found.refused("share-groups", message, fix);
    }
    let mode = match resolve_mode(choice, support.clone()) {
        Ok(mode) => mode,
        Err(why) => {
            let fix = "use brokers that can, or mode = \"at-least-once\" in [ack] where duplicates after a crash do no harm";
            found.refused("mode", why, fix);
            return (None, found.list);
        }
    };
    let reason = reason(choice, support);
    match mode {
        AckMode::Transactional => {
            found
                .ok("mode", format!("transactional: writes and acknowledgements commit together ({reason})"));
        }
        AckMode::Ledger => {
            found.ok("mode", format!("ledger: exactly once, through claims in the outcome topic ({reason})"));
        }
        AckMode::AtLeastOnce => {
            let better = match (&support.transactional, &support.ledger) {
                (Ok(()), _) => "these brokers can do transactional",
                (Err(_), Ok(())) => "these brokers can do ledger",
                (Err(_), Err(_)) => "these brokers can do no better",
            };
            let message = format!("at-least-once: a crash doubles records ({reason}; {better})");
            found.warning("mode", message, "mode = \"auto\" in [ack] takes the best that the brokers can do");
        }
    }
    (Some(mode), found.list)
}
