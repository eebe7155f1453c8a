//! The checkpoint store and the clocks that can be compared by it.

use std::time::Duration;

use sharestream_base::Env;
use sharestream_checkpoints::{ErrorKind, JobKey, StoreLocation, StoreProbe};

use super::finding::{Area, Finding, Found};

/// Longest wait for a store: its clients try again on their own.
const PATIENCE: Duration = Duration::from_secs(30);
/// Clocks that differ by more are told.
const SKEW_MAX: Duration = Duration::from_secs(5);
/// Stores tell when an object was created in steps of a second.
const STEP_MS: i64 = 1_000;

/// Looks at the checkpoint store of a job, if it has one, by creating an object that is taken away again. Also gives what can be
/// known of clocks.
///
/// # Cancel safety
/// Dropped, the object may be left behind.
pub async fn store(env: &Env, location: Option<&StoreLocation>, key: &JobKey) -> Vec<Finding> {
    let mut found = Found::of(Area::Store);
    // What is said where no clock can be compared.
    let is_bucket = location.is_some_and(|place| place.as_folder().is_none() && !place.is_memory());
    let mut created = Err(match is_bucket {
        true => "no object could be created there",
        false => "there is no bucket, whose server would tell its time",
    });
    match location {
        None => found.ok("store", "none: the job's transactions are its checkpoints"),
        Some(location) if location.is_memory() => {
            let message = "checkpoints are kept in memory: after the end of the process the job refuses to go on from its outcome \
                           topic";
            found.warning("store", message, "name a folder or a bucket in [checkpoint] store");
        }
        Some(location) => {
            let name = format!("{:016x}", env.rng.below(u64::MAX));
            let before_ms = env.clock.wall_ms();
            match env.clock.timeout(PATIENCE, Box::pin(StoreProbe::of(location, key, &name))).await {
                Ok(Ok(probe)) => {
                    let between = (before_ms, env.clock.wall_ms());
                    if let Some(ms) = probe.created_ms.filter(|_| is_bucket) {
                        created = Ok((ms, between));
                    }
                    probed(&location.to_string(), key, &probe, between.1, &mut found);
                }
                Ok(Err(error)) => found.refused("store", error.to_string(), "correct [checkpoint]"),
                Err(_elapsed) => {
                    let message = format!("{location} gives no answer within {PATIENCE:?}");
                    found.refused(
                        "store",
                        message,
                        "is its server running, and is `endpoint` in [checkpoint.options] right?",
                    );
                }
            }
        }
    }
    found.list.extend(clock(created));
    found.list
}

/// What a probe says.
pub(super) fn probed(place: &str, key: &JobKey, probe: &StoreProbe, now_ms: i64, found: &mut Found) {
    let mut fine = true;
    let mut refuse = |name, message: String, fix: &str| {
        fine = false;
        found.refused(name, message, fix);
    };
    match &probe.belongs_to {
        Ok(Some(job)) if *job != key.job => {
            let message = format!("{place} belongs to job '{job}', not to job '{}'", key.job);
            refuse("owner", message, "give each job a place of its own");
        }
        Ok(_) => {}
        // Then nothing else is answered either.
        Err(error) if error.kind() == ErrorKind::Retry => {
            return refuse("read", error.to_string(), what_to_do(error));
        }
        Err(error) => refuse("read", error.to_string(), what_to_do(error)),
    }
    if let Err(error) = &probe.created {
        let message = match &probe.tried_parent {
            Some(parent) => {
                format!("{place} does not exist, and nothing can be created in {}: {error}", parent.display())
            }
            None => error.to_string(),
        };
        refuse("create", message, what_to_do(error));
    }
    match &probe.refuses_second {
        Some(Ok(false)) => {
            let message = format!(
                "{place} created an object that was there already: two processes could both own the job"
            );
            refuse("condition", message, "use a server that honours conditional writes (If-None-Match)");
        }
        Some(Err(error)) => refuse("condition", error.to_string(), what_to_do(error)),
        Some(Ok(true)) | None => {}
    }
    if let Err(error) = &probe.listed {
        refuse("list", error.to_string(), what_to_do(error));
    }
    if let Some(Err(error)) = &probe.deleted {
        refuse("delete", error.to_string(), what_to_do(error));
    }
    if fine {
        let what = match &probe.tried_parent {
            Some(parent) => {
                format!("{place} will be created: {} takes and deletes objects", parent.display())
            }
            None => format!("{place} creates objects, refuses to create them twice, lists and deletes them"),
        };
        found.ok("store", what);
    }
    if let Some(owner) = &probe.owner {
        let by = owner.by.as_deref().unwrap_or("somebody");
        let since = owner
            .acquired_ms
            .map_or_else(String::new, |ms| format!(", {} s ago", (now_ms - ms).max(0) / 1_000));
        let message = format!(
            "{key} was last owned by job epoch {}: {by}{since}; a start takes over and fences it",
            owner.epoch
        );
        found.hint("last-owner", message, "if that process still runs, stop it first");
    }
}

fn what_to_do(error: &sharestream_checkpoints::Error) -> &'static str {
    match error.kind() {
        ErrorKind::InvalidInput => "allow the job to list, read, create and delete objects there",
        ErrorKind::Corrupt => "look at it before anything is started: nothing was changed",
        _ => "can the place be written, and is its server running?",
    }
}

/// What is known of clocks. `store`: when a bucket says that an object was created, and between which times by our clock; or why
/// that is not known.
pub(super) fn clock(store: Result<(i64, (i64, i64)), &str>) -> Vec<Finding> {
    let mut found = Found::of(Area::Clock);
    match store {
        Err(why) => {
            found.not_checked("store", "this machine's clock against that of a checkpoint store", why);
        }
        Ok((created, (before, after))) => {
            let off = match () {
                () if created < before - STEP_MS => created - before,
                () if created > after + STEP_MS => created - after,
                () => 0,
            };
            let skew = Duration::from_millis(off.unsigned_abs());
            match skew > SKEW_MAX {
                true => {
                    let side = if off > 0 { "behind" } else { "ahead of" };
                    let message =
                        format!("this machine's clock is {skew:?} {side} that of the checkpoint store");
                    found.warning(
                        "store",
                        message,
                        "synchronise it (NTP): deadlines of replicas are wall times",
                    );
                }
                false => found.ok("store", "this machine's clock agrees with that of the checkpoint store"),
            }
        }
    }
    found.not_checked(
        "brokers",
        "this machine's clock against those of the brokers",
        "no answer of a broker carries its time, and a record that is written to learn it would stay",
    );
    found.list
}
