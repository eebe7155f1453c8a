//! Whether a start from a savepoint goes on, goes back, or is refused. Pure.

use sharestream_base::ids::CheckpointId;
use sharestream_checkpoints::Savepoint;

use super::cut::Standing;

/// What the user allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartChoice {
    /// Go back where the savepoint is not the last commit.
    pub rewind: bool,
    /// Go back once more where the job went back to this very savepoint before and has committed since.
    pub again: bool,
}

/// What a start does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The savepoint is where the job stands.
    GoOn,
    /// It is not, and the user wants to go back.
    Rewind,
    /// Nothing, for this reason.
    Refuse(String),
}

/// Decides. `sha256` identifies the savepoint, `place` is where it lies.
pub(super) fn choose(
    savepoint: &Savepoint,
    (sha256, place): (&str, &str),
    standing: &Standing,
    allowed: StartChoice,
) -> Choice {
    let Savepoint { name, group, .. } = savepoint;
    if !standing.is_ready() {
        return match standing.generation.rewind() {
            Some(_) if allowed.rewind => Choice::Rewind,
            Some(rewind) => Choice::Refuse(format!(
                "the return to savepoint {} has begun and not ended; unless that is under way now, end it: start with \
                 --from {} --rewind",
                rewind.savepoint, rewind.place
            )),
            None => Choice::Refuse(format!(
                "a reset of group {group} has begun and not ended; repeat it first: sharestream group reset {group}"
            )),
        };
    }
    let is_this = |sha: &str| sha == sha256;
    let was_rewound_to_it = standing.generation.rewind().is_some_and(|rewind| is_this(&rewind.sha256));
    if was_rewound_to_it {
        return match (standing.decides, allowed) {
            // Nothing came after it: the job stands where the savepoint is.
            (false, _) => Choice::GoOn,
            (true, StartChoice { rewind: true, again: true }) => Choice::Rewind,
            (true, _) => Choice::Refuse(format!(
                "the job went back to savepoint {name} before and has committed since, up to {}: leave --from and --rewind \
                 out to go on from there; to throw that away and process the records a further time, add --rewind --again",
                last_of(savepoint, standing)
            )),
        };
    }
    let key = (savepoint.job.clone(), savepoint.instance.clone());
    let is_last = savepoint.generation == standing.generation.generation.0
        && standing.last.get(&key).is_some_and(|last| last.checkpoint == savepoint.checkpoint)
        && standing.last_position.is_none_or(|position| position < savepoint.outcome.end);
    match (is_last, allowed.rewind) {
        (true, _) => Choice::GoOn,
        (false, true) => Choice::Rewind,
        (false, false) => Choice::Refuse(format!(
            "savepoint {name} ({place}) is checkpoint {} of job {}, which has committed since, up to {}: its group is beyond \
             the savepoint, and acknowledgements are final. Leave --from out to go on from the last commit. With --rewind \
             the group and the state go back to the savepoint: what was processed since is processed again, and its \
             effects are there a second time",
            savepoint.checkpoint,
            savepoint.job,
            last_of(savepoint, standing)
        )),
    }
}

fn last_of(savepoint: &Savepoint, standing: &Standing) -> String {
    let of_job = |((job, _), _): &(&(String, String), _)| *job == savepoint.job;
    let all: Vec<String> = standing
        .last
        .iter()
        .filter(of_job)
        .map(|((_, instance), last)| {
            let CheckpointId(id) = last.checkpoint;
            format!("checkpoint {id} of instance {instance}")
        })
        .collect();
    if all.is_empty() { "nothing that is still in the outcome topic".to_owned() } else { all.join(", ") }
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
