//! What keeps logs from growing for ever: retention by size and time, and compaction.

use std::sync::Arc;

use tracing::{info, warn};

use super::{Led, Owned};
use crate::disk::Compaction;
use crate::log::partition_log::CleaningPlan;

/// A compaction that was planned and not done yet.
#[derive(Debug)]
pub(crate) struct Cleaning {
    led: Led,
    plan: CleaningPlan,
    files: Option<Compaction>,
}

impl Owned {
    /// Drops the oldest batches beyond `retention.bytes`. What is open or undecided stays.
    pub(super) fn retain_bytes(&mut self) {
        let Some(bytes_max) = self.settings.retention_bytes.filter(|_| self.settings.delete) else { return };
        if let Some(start) = self.log.start_that_keeps(bytes_max)
            && let Err(code) = self.delete_before(start)
        {
            // It is tried again with the next append; the log is only longer than it should be.
            warn!(%code, "retention could not drop old records");
        }
    }

    fn retain_time(&mut self, now_ms: i64) {
        let Some(retention_ms) = self.settings.retention_ms.filter(|_| self.settings.delete) else { return };
        if let Some(start) = self.log.start_not_before(now_ms.saturating_sub(retention_ms))
            && let Err(code) = self.delete_before(start)
        {
            warn!(%code, "retention could not drop old records");
        }
    }
}

impl Led {
    /// Applies retention, and plans a compaction where the topic asks for one and it is worth it.
    pub(crate) fn keep_up(&self, now_ms: i64) -> Option<Cleaning> {
        let owned = &mut *self.lock_led().ok()?;
        if owned.settings.retention_ms.is_none() && !owned.settings.compact {
            return None;
        }
        owned.retain_time(now_ms);
        self.publish(&owned.log);
        if !owned.settings.compact || owned.cleaning {
            return None;
        }
        let limit = owned.log.cleanable_end(&owned.settings, now_ms);
        let files = match &owned.files {
            // Files are compacted by whole segments.
            Some(files) => Some(files.compaction(limit)?),
            None => None,
        };
        let end = files.as_ref().map_or(limit, |files| files.end);
        let plan = owned.log.plan_cleaning(&owned.settings, now_ms, end)?;
        owned.cleaning = true;
        Some(Cleaning { led: self.clone(), plan, files })
    }
}

impl Drop for Cleaning {
    fn drop(&mut self) {
        self.led.lock().cleaning = false;
    }
}

impl Cleaning {
    /// True when it writes files, so that it must not run on the reactor.
    pub(crate) fn writes_files(&self) -> bool {
        self.files.is_some()
    }

    /// Does it. A log that cannot be compacted stays as it is.
    pub(crate) fn run(self) {
        let Cleaning { led, plan, files } = &self;
        let (topic, partition) = (Arc::clone(&led.topic), led.index);
        let kept = match plan.compact() {
            Ok(kept) => kept,
            Err(error) => return warn!(%topic, %partition, %error, "a log cannot be compacted"),
        };
        if let Some(compaction) = files
            && let Err(code) = compaction.write(&plan.head(), &kept)
        {
            return warn!(%topic, %partition, %code, "a log was not compacted");
        }
        let Ok(mut owned) = led.lock_led() else { return };
        let (before, after) = (plan.batch_count(), kept.len());
        if !owned.log.may_clean(plan) {
            return;
        }
        if let (Some(files), Some(compaction)) = (&mut owned.files, files)
            && let Err(code) = files.put_in_place(compaction)
        {
            return warn!(%topic, %partition, %code, "a compacted log was not put in place");
        }
        owned.log.cleaned(plan, kept);
        info!(%topic, %partition, end = %plan.end, before, after, "a log was compacted");
    }
}
