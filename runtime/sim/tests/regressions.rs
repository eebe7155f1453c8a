//! Plans that once failed, as they were drawn then: the drawing may change, these do not.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::path::Path;

use sharestream_sim::plan::Plan;
use sharestream_sim::world::{RunOptions, run};

#[test]
fn plans_that_once_failed_find_nothing_any_more() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let plan: Plan = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let report = run(&plan, RunOptions::default());
        assert!(report.findings.is_empty(), "{}: {:?}", path.display(), report.findings);
    }
}
