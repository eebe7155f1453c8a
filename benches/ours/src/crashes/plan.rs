//! When workers die: a pure plan from a seed.

use std::time::Duration;

use sharestream_base::Rng;
use sharestream_core::commit::CommitStep;

/// Longest life of a worker that dies at a random moment, from the start of its process: its recovery is in it.
const LIFE_MAX_MS: u64 = 500;
/// Commits that a worker completes before it dies at a step of the next one: at least one, or the same records would be
/// delivered again and again until their limit.
const COMMITS_FIRST_MAX: u64 = 3;

/// One death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// At the `count`-th commit that reaches `step`.
    AtStep { step: CommitStep, count: u32 },
    /// So long after its process was started, whatever it does then.
    After(Duration),
}

/// `count` deaths: each of `steps` in turn and then one at a random moment, again and again; each turn in an order of
/// its own.
pub(crate) fn deaths(seed: u64, label: &str, count: u32, steps: &[CommitStep]) -> Vec<Death> {
    let rng = Rng::seeded(seed).fork(label);
    let mut plan = Vec::new();
    let mut turn: Vec<Option<CommitStep>> = Vec::new();
    while plan.len() < count as usize {
        let Some(step) = turn.pop() else {
            turn = steps.iter().copied().map(Some).chain([None]).collect();
            for index in (1..turn.len()).rev() {
                let other = usize::try_from(rng.below(index as u64 + 1)).unwrap_or(0);
                turn.swap(index, other);
            }
            continue;
        };
        plan.push(match step {
            Some(step) => {
                // Below COMMITS_FIRST_MAX, so the cast cannot cut.
                let commits_first = 1 + rng.below(COMMITS_FIRST_MAX) as u32;
                Death::AtStep { step, count: commits_first + 1 }
            }
            None => Death::After(Duration::from_millis(1 + rng.below(LIFE_MAX_MS))),
        });
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_has_every_step_once_and_one_random_moment() {
        for seed in 0..20 {
            let plan = deaths(seed, "stateful", 24, &CommitStep::ALL);
            for turn in plan.chunks(12) {
                for step in CommitStep::ALL {
                    let is_it =
                        |death: &&Death| matches!(death, Death::AtStep { step: at, .. } if *at == step);
                    assert_eq!(turn.iter().filter(is_it).count(), 1, "{step:?} with seed {seed}");
                }
            }
        }
    }

    #[test]
    fn one_seed_gives_one_plan_and_every_other_seed_or_label_another() {
        let plan = |seed, label| deaths(seed, label, 30, &CommitStep::ALL);
        assert_eq!(plan(7, "stateful"), plan(7, "stateful"));
        assert_ne!(plan(7, "stateful"), plan(8, "stateful"));
        assert_ne!(plan(7, "stateful"), plan(7, "stateless"));
        assert_eq!(deaths(7, "stateful", 0, &[]), []);
    }
}
