//! Object names, in one place.
//!
//! Numbers are padded, so that the order of names is the order of ids. Job and instance names become one path
//! segment each; what a segment cannot hold is percent-encoded by `object_store`.

use object_store::path::{Path, PathPart};
use sharestream_base::ids::{CheckpointId, JobEpoch};

const PENDING: &str = ".pending";
const COMPLETED: &str = ".completed";

/// Paths of one instance.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    instance: Path,
}

impl Paths {
    pub(crate) fn new(instance: &str) -> Self {
        Paths { instance: Self::instances().join(PathPart::from(instance)) }
    }

    /// The folder that has a part for each instance.
    pub(crate) fn instances() -> Path {
        Path::from("instances")
    }

    /// Name of the instance whose part this is; as it is stored, which differs for names that no job file allows.
    pub(crate) fn instance_name(part: &Path) -> Option<String> {
        part.filename().map(str::to_owned)
    }

    /// The object that says whose folder this is.
    pub(crate) fn job() -> Path {
        Path::from("job.json")
    }

    pub(crate) fn owners(&self) -> Path {
        self.instance.clone().join("owners")
    }

    pub(crate) fn owner(&self, epoch: JobEpoch) -> Path {
        self.owners().join(format!("{:020}", epoch.0))
    }

    pub(crate) fn manifests(&self) -> Path {
        self.instance.clone().join("manifests")
    }

    /// The folder of notes that nothing may be deleted for now.
    pub(crate) fn holds(&self) -> Path {
        self.instance.clone().join("holds")
    }

    /// The folder of savepoints in a job's own store.
    pub(crate) fn savepoints() -> Path {
        Path::from("savepoints")
    }

    pub(crate) fn state_folder(&self) -> Path {
        self.instance.clone().join("state")
    }

    /// The object named `name` in the state folder.
    pub(crate) fn state(&self, name: &str) -> Path {
        self.state_folder().join(name)
    }

    /// The object named `name` in the manifest folder.
    pub(crate) fn manifest(&self, name: &str) -> Path {
        self.manifests().join(name)
    }
}

/// Epoch of an object in the owners' folder; `None` for a foreign file.
pub(crate) fn owner_epoch(path: &Path) -> Option<JobEpoch> {
    padded(path.filename()?).map(JobEpoch)
}

/// Name of a manifest: holds id and job epoch, so that two incarnations never write the same object.
pub(crate) fn pending_name(id: CheckpointId, epoch: JobEpoch) -> String {
    format!("{:020}-{:020}{PENDING}", id.0, epoch.0)
}

/// Name of the note that this manifest is committed; `None` when `pending` is not a manifest's name.
pub(crate) fn completed_name(pending: &str) -> Option<String> {
    let (id, epoch, suffix) = parse_name(pending)?;
    matches!(suffix, Suffix::Pending).then(|| format!("{:020}-{:020}{COMPLETED}", id.0, epoch.0))
}

/// Name of a part of an operator's state: holds id and job epoch, as a manifest's does.
pub(crate) fn state_name(
    id: CheckpointId,
    epoch: JobEpoch,
    operator: &str,
    subtask: usize,
    number: usize,
) -> String {
    format!("{:020}-{:020}-{operator}-{subtask}-{number}.arrow", id.0, epoch.0)
}

/// Checkpoint and job epoch of a part of state; `None` for a foreign file.
pub(crate) fn state_checkpoint(name: &str) -> Option<(CheckpointId, JobEpoch)> {
    let mut pieces = name.strip_suffix(".arrow")?.splitn(3, '-');
    let (id, epoch) = (padded(pieces.next()?)?, padded(pieces.next()?)?);
    pieces.next()?;
    Some((CheckpointId(id), JobEpoch(epoch)))
}

/// Which of the two objects of a checkpoint a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suffix {
    Pending,
    Completed,
}

/// Takes a name of the manifest folder apart; `None` for a foreign file.
pub(crate) fn parse_name(name: &str) -> Option<(CheckpointId, JobEpoch, Suffix)> {
    let (stem, suffix) = match (name.strip_suffix(PENDING), name.strip_suffix(COMPLETED)) {
        (Some(stem), _) => (stem, Suffix::Pending),
        (None, Some(stem)) => (stem, Suffix::Completed),
        (None, None) => return None,
    };
    let (id, epoch) = stem.split_once('-')?;
    Some((CheckpointId(padded(id)?), JobEpoch(padded(epoch)?), suffix))
}

fn padded(text: &str) -> Option<u64> {
    (text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_as_their_ids_do_and_read_back() {
        let names: Vec<_> =
            [9, 10, 11_000_000_000].map(|id| pending_name(CheckpointId(id), JobEpoch(3))).into();
        assert!(names.is_sorted());
        assert_eq!(parse_name(&names[1]), Some((CheckpointId(10), JobEpoch(3), Suffix::Pending)));
        let completed = completed_name(&names[1]).unwrap();
        assert_eq!(parse_name(&completed), Some((CheckpointId(10), JobEpoch(3), Suffix::Completed)));
        assert_eq!(completed_name(&completed), None);
    }

    #[test]
    fn foreign_files_have_no_meaning() {
        for name in ["", ".DS_Store", "1-2.pending", "00000000000000000001-x.pending", "job.json"] {
            assert_eq!(parse_name(name), None, "{name}");
        }
        assert_eq!(owner_epoch(&Path::from("owners/+0000000000000000001")), None);
    }

    #[test]
    fn an_instance_name_cannot_leave_its_folder() {
        for name in ["../x", "a/b", ".."] {
            let path = Paths::new(name).owner(JobEpoch(1));
            assert_eq!(path.parts().count(), 4, "{path}");
            assert!(path.parts().all(|part| part.as_ref() != ".."), "{path}");
        }
    }
}
