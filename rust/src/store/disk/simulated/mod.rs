//! Simulated disk: stops before any chosen operation, and loses what a real disk may lose.
//!
//! Owns directories and files in memory, each twice: as the running process sees them, and as they are guaranteed to be
//! after a power loss. Writes, mapped stores and changes of names reach the second image when they are synced. In a crash
//! each dirty sector of 512 bytes and each unsynced change of a name survives or not, as [`Survival`] and a seed decide.
//!
//! Every operation that changes or syncs something is counted. A test can run a workload once, see how many operations it
//! takes, and then stop the disk before each of them, or make each of them fail.
//!
//! Not modelled: failing reads, damaged sectors, directories that lose synced entries.
//!
//! Threads: any; a test that needs the same operations in the same order runs the store without its threads.

mod state;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{DIRECT_BYTES, Disk, DiskFile, Entry, FileLock, Open, Space};
use state::{Contents, DiskState, File, Node, Rng};

pub use state::{Fault, Survival};

use super::region::Region;

/// A simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<DiskState>>,
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl SimDisk {
    #[must_use]
    pub fn new() -> Self {
        let root = BTreeMap::from([(PathBuf::from("/"), Node::Dir)]);
        let state = DiskState { names: root.clone(), durable_names: root, ..DiskState::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    #[must_use]
    pub fn shared(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// Stops the disk before operation number `operation`: that one and all later ones fail.
    pub fn freeze_at(&self, operation: u64) {
        self.state.lock().freeze_at = Some(operation);
    }

    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.state.lock().frozen.is_some()
    }

    /// Sets the space, which is unknown at first. Only a larger allocation fails, and keeps its partial space;
    /// [`set_fault`](Self::set_fault) and [`set_broken`](Self::set_broken) make other operations fail.
    pub fn set_space(&self, space: Space) {
        self.state.lock().space = space;
    }

    /// Sets the reported space of a folder. Allocations do not use it.
    pub fn set_space_of(&self, folder: &str, space: Space) {
        let places = &mut self.state.lock().space_of;
        places.retain(|(known, _)| known != Path::new(folder));
        places.push((PathBuf::from(folder), space));
    }

    pub fn set_fault(&self, fault: Fault) {
        self.state.lock().fault = Some(fault);
    }

    /// Makes writes to files below `place` fail; `None` makes all of them work again.
    pub fn set_broken(&self, place: Option<(&str, io::ErrorKind)>) {
        self.state.lock().broken = place.map(|(path, kind)| (PathBuf::from(path), kind));
    }

    /// Makes files refuse direct writes, as on some file systems.
    pub fn refuse_direct_writes(&self) {
        self.state.lock().refuses_direct = true;
    }

    /// Returns the disk after a crash at the moment it stopped, or now.
    #[must_use]
    pub fn crash(&self, survival: Survival, seed: u64) -> Self {
        let mut state = self.state.lock();
        if state.frozen.is_none() {
            state.freeze();
        }
        let after = state.frozen.as_ref().map(|image| image.crash(survival, &mut Rng(seed)));
        Self { state: Arc::new(Mutex::new(after.unwrap_or_default())) }
    }

    fn change<T>(&self, work: impl FnOnce(&mut DiskState) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state.lock();
        state.count()?;
        work(&mut state)
    }
}

impl Disk for SimDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        if self.state.lock().names.contains_key(path) {
            return Ok(());
        }
        let parent = path.parent().unwrap_or(Path::new("/"));
        self.create_dir(parent)?;
        self.change(|state| {
            state.rename_all(parent, vec![(path.to_owned(), Some(Node::Dir))]);
            Ok(())
        })?;
        self.sync_dir(parent)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let state = self.state.lock();
        let entries =
            state.names.iter().filter(|(name, _)| name.parent() == Some(path)).map(|(name, node)| {
                let size = match node {
                    Node::Dir => 0,
                    Node::File(id) => state.files.get(id).map_or(0, |file| file.contents.len() as u64),
                };
                let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
                Entry { name, size, is_dir: *node == Node::Dir }
            });
        Ok(entries.collect())
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        let found = self.state.lock().names.get(path).copied();
        if how == Open::Direct && self.state.lock().refuses_direct {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let id = match (found, how) {
            (Some(Node::File(id)), _) => id,
            (Some(Node::Dir), _) => return Err(io::ErrorKind::IsADirectory.into()),
            (None, Open::Read | Open::Write | Open::Direct) => return Err(io::ErrorKind::NotFound.into()),
            (None, Open::Create) => self.change(|state| {
                let parent = path.parent().unwrap_or(Path::new("/")).to_owned();
                if state.names.get(&parent) != Some(&Node::Dir) {
                    return Err(io::ErrorKind::NotFound.into());
                }
                let id = state.files_made;
                state.files_made += 1;
                let contents = Contents::Bytes(Vec::new());
                state.files.insert(id, File { contents, ..File::default() });
                state.rename_all(&parent, vec![(path.to_owned(), Some(Node::File(id)))]);
                Ok(id)
            })?,
        };
        Ok(Arc::new(SimFile { disk: self.clone(), id, is_direct: how == Open::Direct }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(|state| {
            let Some(node) = state.names.get(from).copied() else {
                return Err(io::ErrorKind::NotFound.into());
            };
            let dir = to.parent().unwrap_or(Path::new("/")).to_owned();
            state.rename_all(&dir, vec![(from.to_owned(), None), (to.to_owned(), Some(node))]);
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if !self.state.lock().names.contains_key(path) {
            return Ok(());
        }
        self.change(|state| {
            let dir = path.parent().unwrap_or(Path::new("/")).to_owned();
            state.rename_all(&dir, vec![(path.to_owned(), None)]);
            Ok(())
        })
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let below: Vec<PathBuf> = {
            let state = self.state.lock();
            state.names.keys().filter(|name| name.starts_with(path)).cloned().collect()
        };
        // Children first, one by one, like a recursive removal.
        for path in below.iter().rev() {
            self.remove(path)?;
        }
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.change(|state| {
            state.sync_dir(path);
            Ok(())
        })
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let state = self.state.lock();
        let own = state.space_of.iter().find(|(folder, _)| path.starts_with(folder));
        Ok(own.map_or(state.space, |(_, space)| *space))
    }

    fn boot(&self) -> io::Result<u128> {
        Ok(self.state.lock().boot)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Arc<dyn FileLock>>> {
        if !self.state.lock().locks.insert(path.to_owned()) {
            return Ok(None);
        }
        let unlock = |_: &io::Error| {
            self.state.lock().locks.remove(path);
        };
        self.open(path, Open::Create).inspect_err(unlock)?;
        Ok(Some(Arc::new(SimLock { disk: self.clone(), path: path.to_owned() })))
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Option<Arc<dyn FileLock>>> {
        // Shared locks are not counted: a test has one reader at a time.
        self.open(path, Open::Read)?;
        self.lock(path)
    }

    fn lock_dir(&self, path: &Path) -> io::Result<Option<Arc<dyn FileLock>>> {
        let is_free = self.state.lock().locks.insert(path.to_owned());
        Ok(is_free.then(|| Arc::new(SimLock { disk: self.clone(), path: path.to_owned() }) as _))
    }
}

struct SimLock {
    disk: SimDisk,
    path: PathBuf,
}

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.state.lock().locks.remove(&self.path);
    }
}

struct SimFile {
    disk: SimDisk,
    id: u64,
    /// Writes must be aligned.
    is_direct: bool,
}

impl SimFile {
    fn sync_range(&self, range: Range<usize>) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let counted = state.count();
        let is_frozen = state.frozen.is_some();
        let file = state.file(self.id)?;
        match counted {
            Ok(()) => file.sync(range),
            Err(_) if !is_frozen => file.drop_dirty(range),
            Err(_) => {}
        }
        counted
    }
}

impl DiskFile for SimFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.state.lock().file(self.id)?.contents.len() as u64)
    }

    fn resize(&self, size: u64) -> io::Result<()> {
        self.disk.change(|state| {
            state.check_place(self.id)?;
            state.file(self.id)?.bytes().resize(size as usize, 0);
            Ok(())
        })
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        let space = self.disk.state.lock().space;
        let has = self.size()?;
        let is_too_much = space.total > 0 && size.saturating_sub(has) > space.free;
        self.resize(if is_too_much { has + space.free } else { size.max(has) })?;
        if is_too_much { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let mut state = self.disk.state.lock();
        let bytes = state.file(self.id)?.contents.view();
        let from = bytes.get(at as usize..).unwrap_or_default();
        let read = from.len().min(into.len());
        into[..read].copy_from_slice(&from[..read]);
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let is_aligned = |size: usize| size.is_multiple_of(DIRECT_BYTES);
        if self.is_direct && ![bytes.as_ptr().addr(), bytes.len(), at as usize].into_iter().all(is_aligned) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.disk.change(|state| {
            state.check_place(self.id)?;
            let end = at as usize + bytes.len();
            let file = state.file(self.id)?;
            file.dirty(at as usize..end);
            let into = file.bytes();
            if into.len() < end {
                into.resize(end, 0);
            }
            into[at as usize..end].copy_from_slice(bytes);
            if let Some(shown) = &file.shown {
                shown.write_through(at as usize, bytes);
            }
            Ok(())
        })
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        self.disk.change(|state| {
            let file = state.file(self.id)?;
            file.dirty(range.start as usize..range.end as usize);
            let into = file.bytes();
            match into.get_mut(range.start as usize..range.end as usize) {
                Some(bytes) => bytes.fill(0),
                None => return Err(io::ErrorKind::InvalidInput.into()),
            }
            Ok(())
        })
    }

    fn clear(&self, range: Range<u64>) -> io::Result<bool> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.read_at(&mut bytes, range.start)?;
        let is_zero = bytes.iter().all(|byte| *byte == 0);
        if !is_zero {
            self.zero(range)?;
        }
        Ok(!is_zero)
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        self.zero(range)
    }

    fn sync(&self) -> io::Result<()> {
        let size = self.size()? as usize;
        self.sync_range(0..size)
    }

    fn map(&self, size: usize, is_writable: bool) -> io::Result<Region> {
        let mut state = self.disk.state.lock();
        let file = state.file(self.id)?;
        let bytes = file.contents.bytes();
        if !is_writable {
            let region = Region::copy_of(bytes.get(..size).ok_or(io::ErrorKind::UnexpectedEof)?)?;
            file.shown = Some(region.clone());
            return Ok(region);
        }
        let region = Region::anonymous(size)?;
        if bytes.len() < size || !region.fill(&bytes[..size]) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.contents = Contents::Mapped(region.clone());
        Ok(region)
    }

    fn sync_map(&self, _region: &Region, range: Range<usize>) -> io::Result<()> {
        self.sync_range(range)
    }
}
