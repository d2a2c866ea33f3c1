//! Disk: the one seam to the file system.
//!
//! Everything the store does to a disk goes through [`Disk`] and [`DiskFile`], so that the simulated disk
//! (`simulated`) can stop the world before any operation. Memory mapping is part of the seam: bytes written through
//! a region reach the disk by [`DiskFile::sync_map`], or whenever the disk likes.
//!
//! What is assumed of a disk is written down in docs/store.md. Nothing here retries: a failed sync is the caller's
//! to remember, since the kernel may have dropped the pages and say yes the next time.
//!
//! Threads: any; a file may be read, written and synced by several at once.

mod descriptors;
mod file_name;
mod lock;
mod os;
mod pages;
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
pub(crate) use region::{Appender, MARKS_BYTES, Region, RegionReader, SpoolAppender, SpoolReader};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// File name without its directory.
    pub name: String,
    /// Size in bytes; 0 for directories.
    pub size: u64,
    pub is_dir: bool,
}

/// Room on a file system, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Space {
    /// What this process may still take.
    pub free: u64,
    /// What it has and may take in all; 0 where it is not known.
    pub total: u64,
}

impl Space {
    /// Share in use, in percent, rounded down.
    pub(crate) fn used_percent(self) -> u8 {
        let used = u128::from(self.total.saturating_sub(self.free));
        (used * 100).checked_div(u128::from(self.total)).unwrap_or(0) as u8
    }
}

/// What direct writes are aligned to: no disk in use wants more.
pub(crate) const DIRECT_BYTES: usize = 4096;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Open {
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// For reading and writing; made, empty, where there is none.
    Create,
    /// An existing file, for writes that pass the page cache by: memory, position and size are multiples of
    /// [`DIRECT_BYTES`].
    Direct,
}

pub trait Disk: Send + Sync {
    /// Makes a directory (mode 0700) and its parents, durably, unless it is there.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// What is in a directory, sorted by name; nothing when there is no such directory.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;
    /// Opens a file; a new one has mode 0600.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; succeeds when there is none.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and everything below it; succeeds when there is none.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// Names the time since the machine was started: what was in the page cache of another one is not to be trusted.
    fn boot(&self) -> io::Result<u128> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Whether the process can have hardly any more descriptors: files that are open for convenience should be closed.
    fn is_short_of_descriptors(&self) -> bool {
        false
    }
    /// Takes an exclusive lock on the first byte of the file, which is made where there is none; held until it is dropped.
    /// `None` when another holds it, be it another process, an Apache broker, or another store of this process.
    fn lock(&self, path: &Path) -> io::Result<Option<Arc<dyn FileLock>>>;
    /// Likewise takes a shared lock on a file that is there: it keeps an exclusive one out.
    fn lock_shared(&self, path: &Path) -> io::Result<Option<Arc<dyn FileLock>>>;
    /// Likewise takes an exclusive lock on a directory itself, for those in which a file of ours would be in the way.
    fn lock_dir(&self, path: &Path) -> io::Result<Option<Arc<dyn FileLock>>>;
    /// The path without symbolic links; as it is where nothing is there.
    fn resolve(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
}

/// A lock that is held, by this process alone: its forked children do not have it.
pub trait FileLock: Send + Sync {}

/// Operations with an error that names the path.
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

    /// The first `size_max` bytes of a file, fewer where it is shorter; none where there is no file.
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

    /// Removes a file, and makes that durable.
    pub(crate) fn remove_durably(&self, path: &Path) -> Result<(), StoreError> {
        self.remove_file(path)?;
        self.sync_entries(path.parent().unwrap_or(Path::new(".")))
    }
}

pub trait DiskFile: Send + Sync {
    fn size(&self) -> io::Result<u64>;
    /// Cuts the file, or extends it with zeros that take no space.
    fn resize(&self, size: u64) -> io::Result<()>;
    /// Extends the file with zeros that have their space, where the file system can promise that.
    fn allocate(&self, size: u64) -> io::Result<()>;
    /// Reads into `into` until it is full or the file ends; returns the bytes read.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Overwrites the range, which must lie within the file, with zeros.
    fn zero(&self, range: Range<u64>) -> io::Result<()>;
    /// Sees that the range, which must lie within the file, reads as zeros and that they take no space; whether it had to
    /// change anything.
    fn clear(&self, range: Range<u64>) -> io::Result<bool>;
    /// Writes zeros over the range, which must lie within the file, so that the file system has it down as written.
    fn write_zeros(&self, range: Range<u64>) -> io::Result<()>;
    /// Makes contents and size durable.
    fn sync(&self) -> io::Result<()>;
    /// Maps the first `size` bytes, which the file must have.
    fn map(&self, size: usize, is_writable: bool) -> io::Result<Region>;
    /// Makes `range` of a mapping of this file durable.
    fn sync_map(&self, region: &Region, range: Range<usize>) -> io::Result<()>;
}
