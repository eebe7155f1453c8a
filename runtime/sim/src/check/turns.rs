//! G4 while it happens: an incarnation that has lost the job commits no more.
//!
//! The outcome topic shows this only of incarnations that both wrote outcomes. Owner records say who came last; the
//! status says who runs, and who runs has taken every transactional id. From then on an incarnation with an older owner
//! record can commit no more than the transaction whose end it had already asked for.

use std::collections::BTreeMap;

use sharestream_base::ids::JobEpoch;
use sharestream_core::{JobState, JobStatus};

use super::{Checker, Finding};
use crate::network::Host;

/// Who ran after whom, and with how many commits.
#[derive(Debug, Default)]
pub(crate) struct TurnWatch {
    /// Incarnations that were seen running, by replica.
    ran: BTreeMap<usize, Vec<JobEpoch>>,
    /// Most commits that a process can have if it has lost the job to an incarnation.
    commits_max: BTreeMap<(Host, JobEpoch), u64>,
}

impl TurnWatch {
    /// The status of a process of replica `index`, whose owner records so far are `owners`, in order. All processes of
    /// one moment are looked at, the newest first.
    pub(crate) fn look(
        &mut self,
        index: usize,
        host: &Host,
        status: &JobStatus,
        owners: &[JobEpoch],
    ) -> Vec<Finding> {
        let Some(own) = status.job_epoch else { return Vec::new() };
        let is_running = status.state == JobState::Running;
        let ran = self.ran.entry(index).or_default();
        if is_running && !ran.contains(&own) {
            ran.push(own);
        }
        let may_wait = matches!(status.state, JobState::Running | JobState::Draining | JobState::Failing);
        let mut found = Vec::new();
        for other in ran.iter().filter(|other| **other != own) {
            // A commit whose answer is awaited may be counted later.
            let now_max = status.commits + u64::from(may_wait);
            let max = *self.commits_max.entry((Host::clone(host), *other)).or_insert(now_max);
            if status.commits > max && comes_before(owners, own, *other) {
                let text = format!(
                    "{host} has {} commits as incarnation {own}, and had at most {max} when incarnation {other}, \
                     whose owner record is later, was running",
                    status.commits
                );
                found.push(Finding::new(Checker::Status, text));
            }
        }
        found
    }
}

/// True when each has one owner record and the first is the earlier one.
fn comes_before(owners: &[JobEpoch], first: JobEpoch, second: JobEpoch) -> bool {
    let place = |epoch| {
        let mut places =
            owners.iter().enumerate().filter(|(_, owner)| **owner == epoch).map(|(place, _)| place);
        places.next().filter(|_| places.next().is_none())
    };
    matches!((place(first), place(second)), (Some(first), Some(second)) if first < second)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNERS: [JobEpoch; 2] = [JobEpoch(1), JobEpoch(2)];

    fn status(state: JobState, job_epoch: u64, commits: u64) -> JobStatus {
        let mut status = JobStatus::default();
        (status.state, status.job_epoch, status.commits) = (state, Some(JobEpoch(job_epoch)), commits);
        status
    }

    /// The older process has `commits` when the newer one runs, and `later` afterwards.
    fn findings(state: JobState, commits: u64, later: u64, owners: &[JobEpoch]) -> usize {
        let (mut watch, older, newer) = (TurnWatch::default(), Host::from("old"), Host::from("new"));
        let running = status(JobState::Running, 2, 0);
        assert!(watch.look(0, &newer, &running, owners).is_empty());
        assert!(watch.look(0, &older, &status(state, 1, commits), owners).is_empty());
        watch.look(0, &older, &status(JobState::Running, 1, later), owners).len()
    }

    #[test]
    fn who_has_lost_the_job_ends_at_most_the_commit_that_it_waits_for() {
        assert_eq!(findings(JobState::Running, 3, 4, &OWNERS), 0);
        assert_eq!(findings(JobState::Running, 3, 5, &OWNERS), 1);
        assert_eq!(findings(JobState::Connecting, 0, 1, &OWNERS), 1);
    }

    #[test]
    fn owner_records_say_who_came_last_and_not_the_numbers() {
        assert_eq!(findings(JobState::Connecting, 0, 1, &[JobEpoch(2), JobEpoch(1)]), 0);
        assert_eq!(findings(JobState::Connecting, 0, 1, &[JobEpoch(1), JobEpoch(2), JobEpoch(1)]), 0);
    }

    #[test]
    fn replicas_do_not_concern_each_other() {
        let (mut watch, one, other) = (TurnWatch::default(), Host::from("a"), Host::from("b"));
        assert!(watch.look(0, &one, &status(JobState::Running, 2, 0), &OWNERS).is_empty());
        assert!(watch.look(1, &other, &status(JobState::Connecting, 1, 0), &OWNERS).is_empty());
        assert!(watch.look(1, &other, &status(JobState::Running, 1, 9), &OWNERS).is_empty());
    }
}
