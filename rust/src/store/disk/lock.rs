//! Locks of store folders, which forked processes drop.
//!
//! An open-file-description lock conflicts with the process locks of a Java broker. Unlike them it also excludes a
//! second store of the same process, and closing another descriptor of the file does not release it. But a child
//! made by `fork` shares it: the folder would stay locked while the child lives, even after the process that opened
//! the store is dead. So a child closes its copies immediately, which does not release the parent's lock.
//!
//! Owns the list of the locks that this process holds.
//!
//! Threads: any; `forget_inherited` on the only thread of a process that was just forked.

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
    /// Locks the first byte of a file, `F_WRLCK` or `F_RDLCK`; returns `None` if it is locked elsewhere.
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

    /// Locks a directory as a whole; returns `None` if it is locked elsewhere.
    pub(super) fn hold_dir(dir: File) -> io::Result<Option<Arc<dyn FileLock>>> {
        Self::locked(dir, |dir| match flock(dir, FlockOperation::NonBlockingLockExclusive) {
            // A network file system may refuse to lock a file not open for writing, which a directory never is.
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
        // Before the file is locked, so that no child misses it.
        let mut held = HELD.lock();
        held.retain(|known| known.strong_count() > 0);
        held.push(Arc::downgrade(&lock));
        drop(held);
        let is_ours = lock.0.lock().as_ref().map_or(Ok(true), lock_it)?;
        Ok(if is_ours { Some(lock) } else { None })
    }
}

/// Closes the locks inherited from the parent, right after `fork`.
pub(crate) fn forget_inherited() {
    // Does not wait: a mutex that another thread of the parent held at the fork is never released here.
    let Some(held) = HELD.try_lock() else { return };
    for lock in held.iter().filter_map(Weak::upgrade) {
        drop(lock.0.try_lock().and_then(|mut file| file.take()));
    }
}
