//! Disk of the operating system: Linux's files, locks and mappings.
//!
//! Threads: any.

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
use super::{Disk, DiskFile, Entry, Open, Space};

/// The disks of this machine.
#[derive(Clone, Copy, Default, Debug)]
pub struct OsDisk;

impl OsDisk {
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
