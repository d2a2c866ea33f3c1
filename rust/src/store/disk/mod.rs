//! Disk: the only interface to the file system.
//!
//! The store uses a disk only through [`Disk`] and [`DiskFile`], so that the simulated disk (`simulated`) can fail
//! before any operation. Memory mapping is included: bytes written through a region reach the disk by
//! [`DiskFile::sync_map`], or whenever the kernel writes them back.
//!
//! docs/store.md lists the assumptions about a disk. Nothing here retries: the caller must remember a failed sync,
//! because the kernel may have dropped the pages and reports success the next time.
//!
//! Threads: any; several may read, write and sync a file concurrently.

mod descriptors;
mod file_name;
mod lock;
mod os;
mod region;
#[cfg(feature = "simulation")]
pub mod simulated;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::error::StoreError;

pub use os::OsDisk;

pub(crate) use file_name::{name_of, position_of};
#[cfg(feature = "python")]
pub(crate) use lock::forget_inherited;
pub(crate) use region::{Appender, MARKS_PAGE_BYTES, Region, RegionReader, RingAppender, RingReader};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// File name without its directory.
    pub name: String,
    /// Size in bytes; 0 for directories.
    pub size: u64,
    pub is_dir: bool,
}

/// Space of a file system, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Space {
    /// Space available to this process.
    pub free: u64,
    /// The space this process could have in all, including used space; 0 if unknown.
    pub total: u64,
}

impl Space {
    /// Share in use, in percent, rounded down.
    pub(crate) fn used_percent(self) -> u8 {
        let used = u128::from(self.total.saturating_sub(self.free));
        (used * 100).checked_div(u128::from(self.total)).unwrap_or(0) as u8
    }
}

/// Alignment of direct writes: no common disk needs more.
pub(crate) const DIRECT_BYTES: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Open {
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// For reading and writing; created, empty, if missing.
    Create,
    /// An existing file, for writes that bypass the page cache: memory, position and size are multiples of
    /// [`DIRECT_BYTES`].
    Direct,
}

pub trait Disk: Send + Sync {
    /// Creates a directory (mode 0700) and its parents, durably, unless it exists.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Lists a directory, sorted by name; empty if it does not exist.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;
    /// Opens a file; a new one has mode 0600.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file, if it exists.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and everything below it, if it exists.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// Returns the id of the current boot of the machine. Bytes that were only in the page cache of another boot are
    /// not trusted.
    fn boot(&self) -> io::Result<u128> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Returns whether the process is almost out of descriptors, so that cached files should be closed.
    fn is_short_of_descriptors(&self) -> bool {
        false
    }
    /// Takes an exclusive lock on the first byte of the file, which is created if missing; held until it is dropped.
    /// Returns `None` if it is locked by another process, by an Apache broker, or by another store of this
    /// process.
    fn lock(&self, path: &Path) -> io::Result<Option<Arc<dyn FileLock>>>;
    /// Takes a shared lock on an existing file, which excludes exclusive ones.
    fn lock_shared(&self, path: &Path) -> io::Result<Option<Arc<dyn FileLock>>>;
    /// Takes an exclusive lock on a directory, where a lock file would be in the way.
    fn lock_dir(&self, path: &Path) -> io::Result<Option<Arc<dyn FileLock>>>;
    /// Resolves symbolic links; returns the path unchanged if nothing exists there.
    fn resolve(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
}

/// A lock held by this process alone, not by its forked children.
pub trait FileLock: Send + Sync {}

/// Operations whose errors name the path.
impl dyn Disk + '_ {
    pub(crate) fn entries(&self, dir: &Path) -> Result<Vec<Entry>, StoreError> {
        self.list(dir).map_err(StoreError::io(dir, "list"))
    }

    pub(crate) fn make_dir(&self, dir: &Path) -> Result<(), StoreError> {
        self.create_dir(dir).map_err(StoreError::io(dir, "create"))
    }

    pub(crate) fn remove_file(&self, path: &Path) -> Result<(), StoreError> {
        self.remove(path).map_err(StoreError::io(path, "remove"))
    }

    pub(crate) fn sync_entries(&self, dir: &Path) -> Result<(), StoreError> {
        self.sync_dir(dir).map_err(StoreError::io(dir, "sync"))
    }

    /// Reads the first `size_max` bytes of a file, fewer if it is shorter, none if it does not exist.
    pub(crate) fn read_front(&self, path: &Path, size_max: usize) -> Result<Vec<u8>, StoreError> {
        let read = || -> io::Result<Vec<u8>> {
            let file = self.open(path, Open::Read)?;
            let mut bytes = vec![0; size_max.min(file.size()? as usize)];
            let read = file.read_at(&mut bytes, 0)?;
            bytes.truncate(read);
            Ok(bytes)
        };
        match read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            read => read.map_err(StoreError::io(path, "read")),
        }
    }

    /// Durably replaces the content of the file `name` in `dir`: after a crash it has the new one or the old one.
    pub(crate) fn replace_file(&self, dir: &Path, name: &str, content: &[u8]) -> Result<(), StoreError> {
        let (path, scratch) = (dir.join(name), dir.join(format!("{name}.new")));
        self.make_dir(dir)?;
        self.remove_file(&scratch)?;
        let file = self.open(&scratch, Open::Create).map_err(StoreError::io(&scratch, "create"))?;
        file.resize(content.len() as u64)
            .and_then(|()| file.write_at(content, 0))
            .and_then(|()| file.sync())
            .map_err(StoreError::io(&scratch, "write"))?;
        self.rename(&scratch, &path).map_err(StoreError::io(&path, "rename into place"))?;
        self.sync_entries(dir)
    }

    /// Removes a file, durably.
    pub(crate) fn remove_durably(&self, path: &Path) -> Result<(), StoreError> {
        self.remove_file(path)?;
        self.sync_entries(path.parent().unwrap_or(Path::new(".")))
    }
}

pub trait DiskFile: Send + Sync {
    fn size(&self) -> io::Result<u64>;
    /// Truncates the file, or extends it with a hole.
    fn resize(&self, size: u64) -> io::Result<()>;
    /// Extends the file with allocated zeros, if the file system supports that.
    fn allocate(&self, size: u64) -> io::Result<()>;
    /// Reads into `into` until it is full or the file ends; returns the bytes read.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Overwrites the range, which must lie within the file, with zeros.
    fn zero(&self, range: Range<u64>) -> io::Result<()>;
    /// Makes the range, which must lie within the file, read as zeros and take no space. Returns whether anything
    /// changed.
    fn clear(&self, range: Range<u64>) -> io::Result<bool>;
    /// Overwrites the range, which must lie within the file, with zeros, so that the file system marks its blocks as
    /// written.
    fn write_zeros(&self, range: Range<u64>) -> io::Result<()>;
    /// Makes contents and size durable.
    fn sync(&self) -> io::Result<()>;
    /// Maps the first `size` bytes, which the file must have.
    fn map(&self, size: usize, is_writable: bool) -> io::Result<Region>;
    /// Makes `range` of a mapping of this file durable.
    fn sync_map(&self, region: &Region, range: Range<usize>) -> io::Result<()>;
}
