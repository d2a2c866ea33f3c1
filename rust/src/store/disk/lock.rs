//! Locks of store folders, and what becomes of them in a forked process.
//!
//! An open-file-description lock meets the process locks of a Java broker, and unlike them it also keeps a second store of this
//! very process out, and does not go when somebody reads the file. But a child made by `fork` shares it: the folder would stay
//! locked for as long as the child lives, though the process that opened the store is dead. So a child closes its copies at
//! once; the parent's lock does not notice.
//!
//! Owns the list of the locks that this process holds.
//!
//! Threads: any; `forget_inherited` in the only one of a process that was just forked.

use std::fs::File;
use std::io;
use std::sync::{Arc, Weak};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::FileLock;

static HELD: Mutex<Vec<Weak<OsLock>>> = Mutex::new(Vec::new());

/// A locked file; closed in a forked process.
pub(super) struct OsLock(Mutex<Option<File>>);

impl FileLock for OsLock {}

impl OsLock {
    /// Locks the first byte of a file, `F_WRLCK` or `F_RDLCK`; `None` when another holds it.
    pub(super) fn hold(file: File, kind: libc::c_int) -> io::Result<Option<Arc<dyn FileLock>>> {
        let first_byte = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 1,
            l_pid: 0,
        };
        Self::locked(file, |file| match fcntl(file, FcntlArg::F_OFD_SETLK(&first_byte)) {
            Ok(_) => Ok(true),
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => Ok(false),
            Err(error) => Err(error.into()),
        })
    }

    /// Locks a directory, which takes no byte; `None` when another holds it.
    pub(super) fn hold_dir(dir: File) -> io::Result<Option<Arc<dyn FileLock>>> {
        Self::locked(dir, |dir| match flock(dir, FlockOperation::NonBlockingLockExclusive) {
            // A network's file system may lock nothing that is not open for writing, which a directory never is.
            Ok(()) | Err(Errno::BADF | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        })
    }

    fn locked(
        file: File,
        lock_it: impl FnOnce(&File) -> io::Result<bool>,
    ) -> io::Result<Option<Arc<dyn FileLock>>> {
        let lock = Arc::new(Self(Mutex::new(Some(file))));
        // Before it is locked: no child may miss it.
        let mut held = HELD.lock();
        held.retain(|known| known.strong_count() > 0);
        held.push(Arc::downgrade(&lock));
        drop(held);
        let is_ours = lock.0.lock().as_ref().map_or(Ok(true), lock_it)?;
        Ok(if is_ours { Some(lock) } else { None })
    }
}

/// Closes what a process has of its parent's locks, right after `fork`.
pub(crate) fn forget_inherited() {
    // Nothing here waits: what another thread of the parent held at that moment nobody will let go of.
    let Some(held) = HELD.try_lock() else { return };
    for lock in held.iter().filter_map(Weak::upgrade) {
        drop(lock.0.try_lock().and_then(|mut file| file.take()));
    }
}
