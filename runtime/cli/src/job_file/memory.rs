//! Whether the memory of a job is enough for its tasks.

use sharestream_kafka::memory::{MemoryPlan, Tasks};

use super::reader::At;
use super::report::Problems;

/// Reports a memory that is too little.
pub(super) fn check(memory: Option<&At<u64>>, tasks: Tasks, problems: &mut Problems) {
    let Some(memory) = memory else { return };
    if let Err(error) = MemoryPlan::within(memory.value, tasks) {
        let least = MemoryPlan::least(tasks).div_ceil(1 << 20);
        problems.add_with_help(
            &memory.span,
            format!("job.memory: {error}"),
            format!("write memory = \"{least}MiB\" or more (docs/memory.md)"),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::parse;

    fn job(memory: &str) -> Result<Option<u64>, String> {
        let text = format!(
            "[job]\nname = \"late\"\nmemory = {memory}\n[source]\nbrokers = \"localhost:9092\"\ntopics = [\"flights\"]\n\
             group = \"late\"\nformat = \"raw\"\nparallelism = 4\n[sink]\ntopic = \"delayed\"\nparallelism = 2\n"
        );
        let parsed = parse(Path::new("job.toml"), &text, &[]);
        parsed.map(|job| job.memory).map_err(|error| error.to_string())
    }

    #[test]
    fn a_size_has_a_unit_or_is_a_number_of_bytes() {
        for (text, bytes) in [("\"1GiB\"", 1 << 30), ("\" 512 MiB \"", 512 << 20), ("268435456", 256 << 20)] {
            assert_eq!(job(text), Ok(Some(bytes)), "{text}");
        }
        for text in ["\"1GB\"", "\"much\"", "\"\"", "-1", "\"99999999999GiB\""] {
            let error = job(text).unwrap_err();
            assert!(error.contains("job.memory is not a size"), "{error}");
            assert!(error.contains("for example \"256MiB\""), "{error}");
        }
        let error = job("true").unwrap_err();
        assert!(error.contains("job.memory must be a size such as \"256MiB\", not a boolean"), "{error}");
    }

    #[test]
    fn too_little_for_the_tasks_is_said_with_what_would_do() {
        let error = job("\"64MiB\"").unwrap_err();
        assert!(
            error.contains("64 MiB is too little (source subtasks: 4, channels: 8, sink subtasks: 2)"),
            "{error}"
        );
        assert!(error.contains("write memory = \"86MiB\" or more"), "{error}");
        assert_eq!(job("\"86MiB\""), Ok(Some(86 << 20)));
    }
}
