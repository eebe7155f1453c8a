//! When the worker dies: a pure plan from seed and count.

use std::time::Duration;

use sharestream_base::Rng;
use sharestream_core::commit::CommitStep;

use crate::args::Mode;

/// Longest time that a worker lives before a death at a random moment, after it has started.
const LIFE_MAX_MS: u64 = 400;
/// Commits that a worker completes before it dies at a step of the next one: at least one, or the same records would
/// be delivered again and again until their delivery limit.
const COMMITS_FIRST_MAX: u64 = 3;

/// One death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// At the `count`-th commit that reaches `step`.
    AtStep {
        /// The step.
        step: CommitStep,
        /// From 1.
        count: u32,
    },
    /// So long after the job has started, whatever it does then.
    After(Duration),
}

/// `crash_count` deaths. In every round each of `steps` comes once, and one death at a random moment; with `only`,
/// every death is at that step.
pub(crate) fn deaths(
    seed: u64,
    crash_count: u32,
    steps: &[CommitStep],
    only: Option<CommitStep>,
) -> Vec<Death> {
    let rng = Rng::seeded(seed).fork("deaths");
    let mut plan = Vec::new();
    let mut round: Vec<Option<CommitStep>> = Vec::new();
    for _ in 0..crash_count {
        if round.is_empty() {
            round = steps.iter().copied().map(Some).chain([None]).collect();
            shuffle(&mut round, &rng);
        }
        let step = only.or_else(|| round.pop().flatten());
        plan.push(match step {
            Some(step) => {
                // Below COMMITS_FIRST_MAX, so the cast cannot cut.
                let commits_first = 1 + rng.below(COMMITS_FIRST_MAX) as u32;
                Death::AtStep { step, count: commits_first + 1 }
            }
            None => Death::After(Duration::from_millis(20 + rng.below(LIFE_MAX_MS))),
        });
    }
    plan
}

/// The steps that a mode has: where acknowledgements are in no transaction nothing is staged, so nothing comes between two staged leaders.
pub(crate) fn steps_of(mode: Mode) -> Vec<CommitStep> {
    let is_there = |step: &CommitStep| match mode {
        Mode::Transactional => true,
        Mode::Auto | Mode::Ledger | Mode::AtLeastOnce => *step != CommitStep::BetweenStagedLeaders,
    };
    CommitStep::ALL.into_iter().filter(is_there).collect()
}

/// Fisher and Yates.
fn shuffle<T>(items: &mut [T], rng: &Rng) {
    for index in (1..items.len()).rev() {
        let other = usize::try_from(rng.below(index as u64 + 1)).unwrap_or(0);
        items.swap(index, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twelve_deaths_reach_every_step_and_one_random_moment() {
        for seed in 0..20 {
            let plan = deaths(seed, 12, &CommitStep::ALL, None);
            for step in CommitStep::ALL {
                let is_planned =
                    |death: &&Death| matches!(death, Death::AtStep { step: at, .. } if *at == step);
                assert_eq!(plan.iter().filter(is_planned).count(), 1, "{step:?} with seed {seed}");
            }
            assert_eq!(plan.iter().filter(|death| matches!(death, Death::After(_))).count(), 1);
        }
    }

    #[test]
    fn one_seed_gives_one_plan_and_another_seed_another() {
        assert_eq!(deaths(7, 30, &CommitStep::ALL, None), deaths(7, 30, &CommitStep::ALL, None));
        assert_ne!(deaths(7, 30, &CommitStep::ALL, None), deaths(8, 30, &CommitStep::ALL, None));
    }

    #[test]
    fn a_chosen_step_is_the_only_one() {
        let plan = deaths(1, 5, &CommitStep::ALL, Some(CommitStep::AfterStaging));
        assert!(
            plan.iter().all(|death| matches!(death, Death::AtStep { step: CommitStep::AfterStaging, .. }))
        );
    }

    #[test]
    fn no_crashes_is_an_empty_plan() {
        assert!(deaths(1, 0, &CommitStep::ALL, None).is_empty());
    }
}
