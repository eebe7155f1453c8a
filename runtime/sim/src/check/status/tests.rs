use super::*;

fn watch(at_least_once: bool) -> StatusWatch {
    let mut plan = Plan::draw(0);
    plan.at_least_once = at_least_once;
    StatusWatch::new(&plan)
}

fn status(mode: Option<AckMode>, rows_out: u64) -> JobStatus {
    let mut status = JobStatus::default();
    (status.mode, status.rows_out) = (mode, rows_out);
    status
}

fn host(name: &str) -> Host {
    Host::from(name)
}

#[test]
fn a_job_states_the_mode_that_it_was_told_to_run() {
    let transactional = status(Some(AckMode::Transactional), 0);
    assert!(watch(false).look(&host("a"), &status(None, 0)).is_empty(), "not known yet");
    assert!(watch(false).look(&host("a"), &transactional).is_empty());
    assert_eq!(watch(true).look(&host("a"), &transactional).len(), 1);
    let mut changes = watch(false);
    assert!(changes.look(&host("a"), &transactional).is_empty());
    assert_eq!(changes.look(&host("a"), &status(Some(AckMode::AtLeastOnce), 0)).len(), 1);
}

#[test]
fn counts_never_go_back() {
    let mut watch = watch(false);
    assert!(watch.look(&host("a"), &status(None, 3)).is_empty());
    assert!(watch.look(&host("b"), &status(None, 2)).is_empty(), "another incarnation");
    assert_eq!(watch.look(&host("a"), &status(None, 2)).len(), 1);
}

#[test]
fn nothing_is_counted_that_the_logs_do_not_show() {
    let mut watch = watch(false);
    watch.look(&host("a"), &status(None, 3));
    watch.look(&host("b"), &status(None, 2));
    let logged = |outputs| Counts { outputs, ..Counts::default() };
    assert!(watch.check(&logged(5)).is_empty());
    let found = watch.check(&logged(4));
    assert!(found[0].text.contains("rows_out 5, and the logs show 4"), "{found:?}");
}
