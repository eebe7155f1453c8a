//! Finalized feature levels (KIP-584): what the cluster may do, beside what its code could.
//!
//! `share.version` is the gate of share groups: 1 has them (KIP-932), 2 the broker's dead letters (KIP-1191), 3
//! transactional acknowledgements (KIP-1289). The others have one level here.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use sharestream_base::watch;

use crate::disk::{Disk, MetaRecord};
use crate::error::ErrorCode;

/// The feature whose level can be changed.
pub(crate) const SHARE_VERSION: &str = "share.version";
/// Features and the lowest and highest level of each that this build has.
pub(crate) const SUPPORTED: [(&str, i16, i16); 3] =
    [("group.version", 1, 1), (SHARE_VERSION, 0, SHARE_VERSION_MAX), ("transaction.version", 2, 2)];
/// Highest level of `share.version`.
pub(crate) const SHARE_VERSION_MAX: i16 = 3;
/// From this level on there are share groups.
pub(crate) const SHARE_GROUPS: i16 = 1;
/// From this level on a share group may have a dead letter topic.
pub(crate) const DEAD_LETTERS: i16 = 2;
/// From this level on acknowledgements may be staged into transactions.
pub(crate) const STAGING: i16 = 3;

#[derive(Clone, Copy, Debug)]
struct Finalized {
    share_version: i16,
    /// Counts changes.
    epoch: i64,
}

/// The finalized levels of the cluster.
#[derive(Debug)]
pub(crate) struct Features {
    finalized: RwLock<Finalized>,
    changes: watch::Sender<i16>,
    disk: Option<Arc<Disk>>,
}

/// Keeps `share.version` where it is while something that needs it is written.
#[derive(Debug)]
pub(crate) struct Held<'a>(RwLockReadGuard<'a, Finalized>);

impl Held<'_> {
    /// The level.
    pub(crate) fn share_version(&self) -> i16 {
        self.0.share_version
    }
}

impl Features {
    /// At the level that a data folder has, or else at the one of the settings, which is noted there.
    pub(crate) fn new(configured: i16, stored: Option<i16>, disk: Option<Arc<Disk>>) -> Self {
        let share_version = stored.unwrap_or(configured);
        if let Some(disk) = disk.as_ref().filter(|_| stored.is_none() && configured != SHARE_VERSION_MAX) {
            // What cannot be written now cannot be written by the first topic either, which says so.
            let _noted =
                disk.record(MetaRecord::Feature { name: SHARE_VERSION.to_owned(), level: configured });
        }
        let finalized = RwLock::new(Finalized { share_version, epoch: 1 });
        Features { finalized, changes: watch::Sender::new(share_version), disk }
    }

    /// The finalized level of `share.version`.
    pub(crate) fn share_version(&self) -> i16 {
        self.hold().share_version()
    }

    /// The level of `share.version`, which stays until this is dropped. Short: it holds up a change.
    pub(crate) fn hold(&self) -> Held<'_> {
        Held(self.finalized.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Every feature with its level, and the number of changes.
    pub(crate) fn finalized(&self) -> (Vec<(&'static str, i16)>, i64) {
        let finalized = *self.hold().0;
        let level = |name, only| if name == SHARE_VERSION { finalized.share_version } else { only };
        (SUPPORTED.iter().map(|(name, _, max)| (*name, level(*name, *max))).collect(), finalized.epoch)
    }

    /// Told of every new level.
    pub(crate) fn watch(&self) -> watch::Receiver<i16> {
        self.changes.subscribe()
    }

    /// Finalizes another level of `share.version`; what was written under the old one is written when this returns.
    /// Errors: KAFKA_STORAGE_ERROR.
    pub(crate) fn set_share_version(&self, level: i16) -> Result<(), ErrorCode> {
        let mut finalized = self.finalized.write().unwrap_or_else(PoisonError::into_inner);
        if finalized.share_version == level {
            return Ok(());
        }
        if let Some(disk) = &self.disk {
            disk.record(MetaRecord::Feature { name: SHARE_VERSION.to_owned(), level })?;
        }
        (finalized.share_version, finalized.epoch) = (level, finalized.epoch + 1);
        drop(finalized);
        self.changes.send_replace(level);
        Ok(())
    }
}
