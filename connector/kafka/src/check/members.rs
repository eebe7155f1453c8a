//! Who else uses the group's name, and who is in the group now.

use sharestream_client::{GroupListing, ShareGroupDescription, ShareGroupMember};
use sharestream_core::commit::AckMode;

use super::finding::{Area, Asked, Finding, Found};

/// What every client of a job calls itself.
pub(crate) fn client_id(job: &str, instance: &str) -> String {
    format!("{CLIENT_PREFIX}{job}-{instance}")
}

const CLIENT_PREFIX: &str = "sharestream-";
/// Members that are named in one message; the rest is counted.
const NAMED_MAX: usize = 3;

/// The group's name, as its coordinator knows it.
#[derive(Clone, Debug)]
pub(crate) struct MemberFacts {
    pub(crate) group: String,
    pub(crate) job: String,
    pub(crate) instance: String,
    /// The mode that the job will run in, if it is known.
    pub(crate) mode: Option<AckMode>,
    /// The group of this name, of whatever type.
    pub(crate) listed: Asked<Option<GroupListing>>,
    /// The share group of this name.
    pub(crate) described: Asked<Option<ShareGroupDescription>>,
}

/// How a member stands to the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kin {
    /// The same job and instance.
    Copy,
    /// Another instance of the job.
    Replica,
    /// A client of ours of another job.
    OtherJob,
    Foreign,
}

fn kin(facts: &MemberFacts, member: &ShareGroupMember) -> Kin {
    let id = &member.client_id;
    if *id == client_id(&facts.job, &facts.instance) {
        Kin::Copy
    } else if id.starts_with(&client_id(&facts.job, "")) {
        Kin::Replica
    } else if id.starts_with(CLIENT_PREFIX) {
        Kin::OtherJob
    } else {
        Kin::Foreign
    }
}

/// What the members of the group mean for the job.
pub(crate) fn members(facts: &MemberFacts) -> Vec<Finding> {
    let mut found = Found::of(Area::Members);
    let group = &facts.group;
    match &facts.listed {
        Ok(Some(listed)) if !listed.kind.eq_ignore_ascii_case("share") => {
            let message =
                format!("'{group}' is a {} group ({}), not a share group", listed.kind, listed.state);
            let fix =
                "give [source] group another name, or delete that group (kafka-consumer-groups.sh --delete)";
            found.refused("other-type", message, fix);
        }
        Ok(_) => {}
        Err(why) => {
            found.not_checked("other-type", &format!("whether '{group}' is a group of another type"), why)
        }
    }
    let described = match &facts.described {
        Ok(Some(described)) => described,
        Ok(None) => {
            found.ok("members", format!("share group '{group}' is new: nobody is in it"));
            return found.list;
        }
        Err(why) => {
            found.not_checked("members", &format!("who is in share group '{group}'"), why);
            return found.list;
        }
    };
    let of = |wanted: Kin| -> Vec<&ShareGroupMember> {
        described.members.iter().filter(|member| kin(facts, member) == wanted).collect()
    };
    let (copies, replicas, others, foreign) =
        (of(Kin::Copy), of(Kin::Replica), of(Kin::OtherJob), of(Kin::Foreign));
    if !copies.is_empty() {
        let message = format!(
            "job {}/{} runs already: {}; a start takes over and fences it",
            facts.job,
            facts.instance,
            named(&copies)
        );
        let fix = "stop it first, or give each copy a job.instance of its own";
        found.warning("same-job", message, fix);
    }
    if !others.is_empty() {
        let message = format!(
            "other jobs read with group '{group}': {}; each record goes to one of them",
            named(&others)
        );
        found.warning(
            "other-job",
            message,
            "give each job a group of its own, if each is to see every record",
        );
    }
    if !foreign.is_empty() {
        let who = format!("members of group '{group}' that are no sharestream jobs: {}", named(&foreign));
        let fix = "give the job a group of its own, or stop them";
        match facts.mode {
            Some(AckMode::Ledger) => {
                let message = format!(
                    "{who}; what they accept is in no ledger, and the job stops when it finds such a record"
                );
                found.refused("foreign", message, fix);
            }
            Some(AckMode::Transactional | AckMode::AtLeastOnce) | None => {
                found.warning("foreign", format!("{who}; what they accept never reaches the output"), fix);
            }
        }
    }
    if copies.is_empty() && others.is_empty() && foreign.is_empty() {
        let message = match replicas.len() {
            0 => format!("share group '{group}' has no members ({})", described.state),
            count => format!("share group '{group}' has {count} members, all of other instances of the job"),
        };
        found.ok("members", message);
    }
    found.list
}

/// Members by client and host.
fn named(members: &[&ShareGroupMember]) -> String {
    let mut named: Vec<String> = members
        .iter()
        .take(NAMED_MAX)
        .map(|member| format!("{} on {}", member.client_id, member.client_host.trim_start_matches('/')))
        .collect();
    named.dedup();
    let rest = members.len().saturating_sub(NAMED_MAX);
    if rest > 0 {
        named.push(format!("{rest} more"));
    }
    named.join(", ")
}
