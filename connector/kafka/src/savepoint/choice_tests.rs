use std::collections::BTreeMap;

use sharestream_base::ids::{JobEpoch, Offset, PartitionIndex, TopicId};
use sharestream_checkpoints::OutcomePosition;
use sharestream_core::decision::Decisions;

use super::super::cut::{Committed, Starts};
use super::*;
use crate::outcome::{Beginning, GroupGeneration, ReplayGeneration, RewindTo};

fn savepoint() -> Savepoint {
    Savepoint {
        format_version: 1,
        name: "s".to_owned(),
        job: "j".to_owned(),
        instance: "0".to_owned(),
        job_epoch: JobEpoch(1),
        checkpoint: CheckpointId(8),
        manifest: None,
        group: "g".to_owned(),
        generation: 0,
        outcome: OutcomePosition {
            topic: "o".to_owned(),
            topic_id: TopicId::default(),
            partition: PartitionIndex(0),
            checkpoint: Offset(40),
            end: Offset(45),
        },
        sources: Vec::new(),
        operators: Vec::new(),
        event_time: None,
        created_ms: 0,
    }
}

fn standing(checkpoint: u64, position: i64) -> Standing {
    let committed = Committed {
        position: Offset(position),
        checkpoint: CheckpointId(checkpoint),
        job_epoch: JobEpoch(1),
        manifest: None,
    };
    Standing {
        starts: Starts::new(),
        decided: Decisions::new(),
        generation: GroupGeneration::default(),
        last: BTreeMap::from([(("j".to_owned(), "0".to_owned()), committed)]),
        last_position: Some(Offset(position)),
        decides: true,
        end: Offset(100),
        open: Vec::new(),
    }
}

fn begun(sha256: Option<&str>, is_ready: bool) -> GroupGeneration {
    let rewind = sha256.map(|sha256| RewindTo {
        job: "j".to_owned(),
        savepoint: "s".to_owned(),
        sha256: sha256.to_owned(),
        place: "/s".to_owned(),
    });
    let begins = Some(Box::new(Beginning { since_ms: 0, rewind, partitions: Vec::new() }));
    GroupGeneration { generation: ReplayGeneration(1), is_ready, begins }
}

fn chosen(standing: &Standing, rewind: bool, again: bool) -> Choice {
    choose(&savepoint(), ("ab", "/s"), standing, StartChoice { rewind, again })
}

fn refusal(choice: Choice) -> String {
    match choice {
        Choice::Refuse(why) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn the_last_commit_goes_on_and_anything_behind_it_is_refused_unless_the_user_goes_back() {
    assert_eq!(chosen(&standing(8, 40), false, false), Choice::GoOn);
    assert_eq!(chosen(&standing(8, 40), true, true), Choice::GoOn, "there is nothing to go back over");
    let later = standing(9, 46);
    let why = refusal(chosen(&later, false, false));
    for part in ["checkpoint 8 of job j", "checkpoint 9 of instance 0", "--rewind", "second time"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert_eq!(chosen(&later, true, false), Choice::Rewind);
    // Another replica has committed since, this one has not.
    let other = Standing { last_position: Some(Offset(45)), ..standing(8, 40) };
    refusal(chosen(&other, false, false));
    // The group was reset since: the same checkpoint, but records are wanted again.
    let reset = Standing { generation: begun(None, true), ..standing(8, 40) };
    refusal(chosen(&reset, false, false));
    assert_eq!(chosen(&reset, true, false), Choice::Rewind);
}

#[test]
fn a_job_that_went_back_goes_on_and_does_not_go_back_each_time_it_is_started() {
    let fresh = Standing { generation: begun(Some("ab"), true), decides: false, ..standing(10, 60) };
    assert_eq!(
        chosen(&fresh, true, false),
        Choice::GoOn,
        "a start that was interrupted behind the last step"
    );
    assert_eq!(chosen(&fresh, false, false), Choice::GoOn);
    let gone_on = Standing { decides: true, ..fresh };
    assert!(refusal(chosen(&gone_on, true, false)).contains("--again"));
    assert!(refusal(chosen(&gone_on, false, true)).contains("before"));
    assert_eq!(chosen(&gone_on, true, true), Choice::Rewind);
    // To another savepoint than the one of before.
    let other = Standing { generation: begun(Some("cd"), true), ..gone_on };
    assert_eq!(chosen(&other, true, false), Choice::Rewind);
}

#[test]
fn half_a_rewind_is_ended_and_half_a_reset_repeated() {
    for sha256 in ["ab", "cd"] {
        let half = Standing { generation: begun(Some(sha256), false), ..standing(8, 40) };
        assert!(refusal(chosen(&half, false, false)).contains("--rewind"));
        assert_eq!(chosen(&half, true, false), Choice::Rewind);
    }
    let half = Standing { generation: begun(None, false), ..standing(8, 40) };
    assert!(refusal(chosen(&half, true, false)).contains("group reset"));
}
