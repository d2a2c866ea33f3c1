//! Operating system disk: files, locks and mappings of Linux.
//!
//! Threads: any.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::libc;
use rustix::fs::{FallocateFlags, SeekFrom};

use super::descriptors::DescriptorReserve;
use super::lock::OsLock;
use super::region::Region;
use super::{Disk, DiskFile, Entry, FileLock, Open, Space};

/// The disks of this machine.
#[derive(Debug)]
pub struct OsDisk {
    descriptors: Arc<DescriptorReserve>,
}

impl OsDisk {
    #[must_use]
    pub fn shared() -> Arc<dyn Disk> {
        Arc::new(Self { descriptors: Arc::new(DescriptorReserve::new()) })
    }

    fn open_file(&self, path: &Path, how: Open) -> io::Result<OsFile> {
        let file = self.descriptors.lend(|| open_file(path, how))?;
        Ok(OsFile { file: Some(file), descriptors: Arc::clone(&self.descriptors) })
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
        let found = match self.descriptors.lend(|| fs::read_dir(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            found => found?,
        };
        let mut entries = Vec::new();
        for entry in found {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let is_dir = metadata.is_dir();
            // Names of the store are UTF-8; other files are ignored.
            if let Ok(name) = entry.file_name().into_string() {
                entries.push(Entry { name, size: if is_dir { 0 } else { metadata.len() }, is_dir });
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        self.descriptors.fill();
        Ok(entries)
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(self.open_file(path, how)?))
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
        self.open_file(path, Open::Read)?.file()?.sync_all()
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let room = rustix::fs::statvfs(path)?;
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        let used = room.f_blocks.saturating_sub(room.f_bfree).saturating_mul(room.f_frsize);
        // Like df: space reserved for the administrator counts neither as free nor as used.
        Ok(Space { free, total: used.saturating_add(free) })
    }

    fn boot(&self) -> io::Result<u128> {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let digits = text.trim().replace('-', "");
        u128::from_str_radix(&digits, 16).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    fn is_short_of_descriptors(&self) -> bool {
        self.descriptors.is_short()
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Arc<dyn FileLock>>> {
        OsLock::hold(self.descriptors.lend(|| open_file(path, Open::Create))?, libc::F_WRLCK)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Option<Arc<dyn FileLock>>> {
        OsLock::hold(self.descriptors.lend(|| open_file(path, Open::Read))?, libc::F_RDLCK)
    }

    fn lock_dir(&self, path: &Path) -> io::Result<Option<Arc<dyn FileLock>>> {
        OsLock::hold_dir(self.descriptors.lend(|| open_file(path, Open::Read))?)
    }

    fn resolve(&self, path: &Path) -> PathBuf {
        fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
    }
}

fn open_file(path: &Path, how: Open) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(how != Open::Read).create(how == Open::Create).mode(0o600);
    if how == Open::Direct {
        options.custom_flags(libc::O_DIRECT);
    }
    options.open(path)
}

fn found(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

struct OsFile {
    /// `Some` until it is dropped.
    file: Option<File>,
    descriptors: Arc<DescriptorReserve>,
}

impl OsFile {
    fn file(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Drop for OsFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.descriptors.take_back(file);
        }
    }
}

impl DiskFile for OsFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.file()?.metadata()?.len())
    }

    fn resize(&self, size: u64) -> io::Result<()> {
        self.file()?.set_len(size)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        match rustix::fs::fallocate(self.file()?, FallocateFlags::empty(), 0, size) {
            // Some file systems allocate space only on write. Running out of it later, in a write through a mapping,
            // would kill the process.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                write_zeros(self.file()?, self.size()?..size)
            }
            allocated => Ok(allocated?),
        }
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file()?.read_at(rest, at + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file()?.write_all_at(bytes, at)
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(self.file()?, flags, range.start, range.end - range.start) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS | rustix::io::Errno::INVAL) => {
                write_zeros(self.file()?, range)
            }
            zeroed => Ok(zeroed?),
        }
    }

    fn clear(&self, range: Range<u64>) -> io::Result<bool> {
        if is_zero(self.file()?, &range)? {
            return Ok(false);
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(self.file()?, flags, range.start, range.end - range.start) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => write_zeros(self.file()?, range)?,
            cleared => cleared?,
        }
        Ok(true)
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        write_zeros(self.file()?, range)
    }

    fn sync(&self) -> io::Result<()> {
        self.file()?.sync_data()
    }

    fn map(&self, size: usize, is_writable: bool) -> io::Result<Region> {
        // Touching a mapping beyond the end of its file would fault.
        if self.size()? < size as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if is_writable { Region::writable(self.file()?, size) } else { Region::read_only(self.file()?, size) }
    }

    fn sync_map(&self, region: &Region, range: Range<usize>) -> io::Result<()> {
        region.flush(range)
    }
}

/// Returns whether the range reads as zeros; skips holes.
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
