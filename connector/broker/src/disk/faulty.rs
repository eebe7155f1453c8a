//! Files in memory that fail on demand, and a machine that goes down: what was not synced is there in part, or not.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use sharestream_base::Rng;

use super::files::{Files, LogFile};

/// What goes wrong, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// An append writes half of its bytes, then the disk is full.
    ShortWrite,
    /// A sync fails.
    Sync,
    /// A file cannot be opened.
    Open,
}

#[derive(Clone, Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    synced: Vec<u8>,
}

#[derive(Debug, Default)]
struct World {
    contents: BTreeMap<u64, Content>,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    locked: BTreeSet<PathBuf>,
    next: u64,
    failure: Option<Failure>,
    /// Operations that change something; the one with this number and all later ones fail, as on a dead machine.
    operations: u64,
    dead_from: Option<u64>,
}

/// Files of one machine. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultyFiles {
    world: Arc<Mutex<World>>,
    /// Held by a test while no sync shall end.
    pub(crate) sync_gate: Arc<Mutex<()>>,
}

#[derive(Debug)]
struct FaultyFile {
    world: Arc<Mutex<World>>,
    sync_gate: Arc<Mutex<()>>,
    id: u64,
}

struct Unlock(Arc<Mutex<World>>, PathBuf);

impl Drop for Unlock {
    fn drop(&mut self) {
        self.0.lock().unwrap().locked.remove(&self.1);
    }
}

impl World {
    fn step(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.dead_from {
            Some(dead) if self.operations > dead => Err(io::Error::other("the machine is down")),
            Some(_) | None => Ok(()),
        }
    }

    fn fails(&mut self, failure: Failure) -> bool {
        let fails = self.failure == Some(failure);
        if fails {
            self.failure = None;
        }
        fails
    }
}

impl FaultyFiles {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// The next operation of that kind fails.
    pub(crate) fn fail_once(&self, failure: Failure) {
        self.world().failure = Some(failure);
    }

    /// Every operation after so many more fails.
    pub(crate) fn die_after(&self, operations: u64) {
        let mut world = self.world();
        world.dead_from = Some(world.operations + operations);
    }

    /// Operations so far.
    pub(crate) fn operations(&self) -> u64 {
        self.world().operations
    }

    /// The files as another machine would find them after this one went down now: of what was not synced, names are
    /// there or not, and of bytes a part, of which the end may be zeros.
    pub(crate) fn after_crash(&self, rng: &Rng) -> FaultyFiles {
        let world = self.world();
        let mut left = World::default();
        let paths: BTreeSet<&PathBuf> = world.names.keys().chain(world.durable_names.keys()).collect();
        for path in paths {
            let source = if rng.below(2) == 0 { &world.names } else { &world.durable_names };
            let Some(content) = source.get(path).and_then(|id| world.contents.get(id)) else { continue };
            let mut bytes = content.synced.clone();
            if let Some(unsynced) = content.bytes.strip_prefix(&content.synced[..]) {
                let whole = rng.below(unsynced.len() as u64 + 1) as usize;
                bytes.extend_from_slice(&unsynced[..whole]);
                if rng.below(4) == 0 {
                    bytes.resize(content.bytes.len(), 0);
                }
            }
            left.next += 1;
            let id = left.next;
            left.contents.insert(id, Content { synced: bytes.clone(), bytes });
            left.names.insert(path.clone(), id);
            left.durable_names.insert(path.clone(), id);
        }
        FaultyFiles { world: Arc::new(Mutex::new(left)), ..FaultyFiles::default() }
    }

    /// The files as another process would find them after this one was killed now.
    pub(crate) fn after_kill(&self) -> FaultyFiles {
        let world = self.world();
        let copy = World {
            contents: world.contents.clone(),
            names: world.names.clone(),
            durable_names: world.durable_names.clone(),
            next: world.next,
            ..World::default()
        };
        FaultyFiles { world: Arc::new(Mutex::new(copy)), ..FaultyFiles::default() }
    }

    /// Changes one byte of a file, counted from its end.
    pub(crate) fn damage(&self, name: &str, from_end: usize) {
        let mut world = self.world();
        let id = *world.names.iter().find(|(path, _)| path.ends_with(name)).unwrap().1;
        let content = world.contents.get_mut(&id).unwrap();
        let at = content.bytes.len() - 1 - from_end;
        content.bytes[at] ^= 0xff;
        content.synced = content.bytes.clone();
    }

    /// Every name that ends like this.
    pub(crate) fn named(&self, ending: &str) -> Vec<PathBuf> {
        let world = self.world();
        world.names.keys().filter(|path| path.to_string_lossy().ends_with(ending)).cloned().collect()
    }
}

impl Files for FaultyFiles {
    fn root(&self) -> &Path {
        Path::new("data")
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        if !self.world().locked.insert(path.to_owned()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Unlock(Arc::clone(&self.world), path.to_owned())))
    }

    fn create_folder(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let world = self.world();
        let inside = world.names.keys().filter(|name| name.parent() == Some(path));
        Ok(inside.map(|name| name.file_name().unwrap().to_string_lossy().into_owned()).collect())
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let world = self.world();
        Ok(world.names.get(path).map(|id| world.contents[id].bytes.clone()))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        let mut world = self.world();
        world.step()?;
        if world.fails(Failure::Open) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let id = match world.names.get(path) {
            Some(id) => *id,
            None => {
                world.next += 1;
                let id = world.next;
                world.contents.insert(id, Content::default());
                world.names.insert(path.to_owned(), id);
                id
            }
        };
        Ok(Arc::new(FaultyFile {
            world: Arc::clone(&self.world),
            sync_gate: Arc::clone(&self.sync_gate),
            id,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.step()?;
        let id = world.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        world.names.insert(to.to_owned(), id);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.step()?;
        world.names.remove(path);
        Ok(())
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.step()?;
        world.names.retain(|name, _| !name.starts_with(path));
        Ok(())
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let mut world = self.world();
        world.step()?;
        let inside: BTreeMap<PathBuf, u64> = world
            .names
            .iter()
            .filter(|(name, _)| name.parent() == Some(path))
            .map(|(n, i)| (n.clone(), *i))
            .collect();
        world.durable_names.retain(|name, _| name.parent() != Some(path));
        world.durable_names.extend(inside);
        Ok(())
    }
}

impl LogFile for FaultyFile {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut world = self.world.lock().unwrap();
        let died = world.step();
        let short = died.is_err() || world.fails(Failure::ShortWrite);
        let written = if short { &bytes[..bytes.len() / 2] } else { bytes };
        world.contents.get_mut(&self.id).unwrap().bytes.extend_from_slice(written);
        died?;
        if short { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut world = self.world.lock().unwrap();
        world.step()?;
        world.contents.get_mut(&self.id).unwrap().bytes.truncate(length as usize);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let _gate = self.sync_gate.lock().unwrap();
        let mut world = self.world.lock().unwrap();
        world.step()?;
        if world.fails(Failure::Sync) {
            return Err(io::Error::other("the disk has lost it"));
        }
        let content = world.contents.get_mut(&self.id).unwrap();
        content.synced = content.bytes.clone();
        Ok(())
    }
}
