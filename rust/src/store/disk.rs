//! The one seam to the file system.
//!
//! Everything the store does to a disk goes through [`Disk`] and [`DiskFile`], so that the simulated disk
//! (`simdisk`) can stop the world before any operation. Memory mapping is part of the seam: bytes written through
//! a region reach the disk by [`DiskFile::sync_map`], or whenever the disk likes.
//!
//! What is assumed of a disk is written down in docs/store.md. Nothing here retries: a failed sync is the caller's
//! to remember, since the kernel may have dropped the pages and say yes the next time.
//!
//! Threads: any; a file may be read, written and synced by several at once.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::{FallocateFlags, SeekFrom};

use super::region::Region;

/// One entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// File name without its directory.
    pub name: String,
    /// Size in bytes; 0 for directories.
    pub size: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// Room on a file system, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Space {
    /// What this process may still take.
    pub free: u64,
    /// What it has and may take in all; 0 where nobody knows.
    pub total: u64,
}

impl Space {
    /// Share in use, in percent, rounded down.
    #[must_use]
    pub fn used_percent(self) -> u8 {
        let used = u128::from(self.total.saturating_sub(self.free));
        (used * 100).checked_div(u128::from(self.total)).unwrap_or(0) as u8
    }
}

/// How to open a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Open {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// For reading and writing; made, empty, where there is none.
    Create,
}

/// A file system.
pub trait Disk: Send + Sync {
    /// Makes a directory (mode 0700) and its parents, durably, unless it is there.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// What is in a directory, sorted by name; nothing when there is no such directory.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;
    /// Opens a file; a new one has mode 0600.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file, replacing what is there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; succeeds when there is none.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and everything below it; succeeds when there is none.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Room on the file system of `path`.
    fn space(&self, path: &Path) -> io::Result<Space>;
    /// Takes an exclusive lock on the first byte of the file, held until the file is dropped. `None` when another holds
    /// it, be it another process, an Apache broker, or another store of this process.
    fn lock(&self, path: &Path) -> io::Result<Option<Arc<dyn DiskFile>>>;
    /// Likewise takes a shared lock on a file that is there: it keeps those out who want it exclusively.
    fn lock_shared(&self, path: &Path) -> io::Result<Option<Arc<dyn DiskFile>>>;
}

/// An open file.
pub trait DiskFile: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Cuts the file, or extends it with zeros that take no space.
    fn resize(&self, size: u64) -> io::Result<()>;
    /// Extends the file with zeros that have their space, where the file system can promise that.
    fn allocate(&self, size: u64) -> io::Result<()>;
    /// Reads into `into` until it is full or the file ends; returns the bytes read.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes all of `bytes`.
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

/// The disks of this machine.
#[derive(Clone, Copy, Default, Debug)]
pub struct OsDisk;

impl OsDisk {
    /// The machine's file system, shared.
    #[must_use]
    pub fn shared() -> Arc<dyn Disk> {
        Arc::new(Self)
    }
}

impl Disk for OsDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.create_dir(parent)?;
        }
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        path.parent().map_or(Ok(()), |parent| self.sync_dir(parent))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let found = match fs::read_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            found => found?,
        };
        let mut entries = Vec::new();
        for entry in found {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let is_dir = metadata.is_dir();
            // A name that is not UTF-8 is none of ours; it is passed over like any other stranger.
            if let Ok(name) = entry.file_name().into_string() {
                entries.push(Entry { name, size: if is_dir { 0 } else { metadata.len() }, is_dir });
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OsFile { file: open_file(path, how)? }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        found(fs::remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        found(fs::remove_dir_all(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        // A relative path of one component has the empty path as its parent.
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        File::open(path)?.sync_all()
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let room = rustix::fs::statvfs(path)?;
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        let used = room.f_blocks.saturating_sub(room.f_bfree).saturating_mul(room.f_frsize);
        // As df does: what is kept for the administrator counts neither as free nor as used.
        Ok(Space { free, total: used.saturating_add(free) })
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Arc<dyn DiskFile>>> {
        lock_first_byte(open_file(path, Open::Create)?, libc::F_WRLCK)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Option<Arc<dyn DiskFile>>> {
        lock_first_byte(open_file(path, Open::Read)?, libc::F_RDLCK)
    }
}

fn lock_first_byte(file: File, kind: libc::c_int) -> io::Result<Option<Arc<dyn DiskFile>>> {
    // An open-file-description lock meets the process locks of a Java broker, and unlike them it also keeps a second
    // store of this very process out.
    let first_byte = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 1,
        l_pid: 0,
    };
    match fcntl(&file, FcntlArg::F_OFD_SETLK(&first_byte)) {
        Ok(_) => Ok(Some(Arc::new(OsFile { file }))),
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn open_file(path: &Path, how: Open) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(how != Open::Read).create(how == Open::Create).mode(0o600);
    options.open(path)
}

fn found(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

struct OsFile {
    file: File,
}

impl DiskFile for OsFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn resize(&self, size: u64) -> io::Result<()> {
        self.file.set_len(size)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, size) {
            // Some file systems cannot promise space; there a full disk is met later, by the writer.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => self.file.set_len(size),
            allocated => Ok(allocated?),
        }
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, at + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, range.start, range.end - range.start) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS | rustix::io::Errno::INVAL) => {
                write_zeros(&self.file, range)
            }
            zeroed => Ok(zeroed?),
        }
    }

    fn clear(&self, range: Range<u64>) -> io::Result<bool> {
        if is_zero(&self.file, &range)? {
            return Ok(false);
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, range.start, range.end - range.start) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => write_zeros(&self.file, range)?,
            cleared => cleared?,
        }
        Ok(true)
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        write_zeros(&self.file, range)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn map(&self, size: usize, is_writable: bool) -> io::Result<Region> {
        // Bytes of a mapping beyond the end of its file cannot be touched.
        if self.size()? < size as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if is_writable { Region::writable(&self.file, size) } else { Region::read_only(&self.file, size) }
    }

    fn sync_map(&self, region: &Region, range: Range<usize>) -> io::Result<()> {
        region.flush(range)
    }
}

/// Whether the range reads as zeros; only what is not a hole is read.
fn is_zero(file: &File, range: &Range<u64>) -> io::Result<bool> {
    let mut page = [0; 4096];
    let mut at = range.start;
    while at < range.end {
        at = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Err(rustix::io::Errno::NXIO) => return Ok(true),
            found => found?,
        };
        let size = page.len().min(range.end.saturating_sub(at) as usize);
        let part = page.get_mut(..size).unwrap_or_default();
        file.read_exact_at(part, at)?;
        if part.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += size as u64;
        if size == 0 {
            break;
        }
    }
    Ok(true)
}

fn write_zeros(file: &File, range: Range<u64>) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut at = range.start;
    while at < range.end {
        let size = (range.end - at).min(zeros.len() as u64);
        file.write_all_at(zeros.get(..size as usize).unwrap_or_default(), at)?;
        at += size;
    }
    Ok(())
}
