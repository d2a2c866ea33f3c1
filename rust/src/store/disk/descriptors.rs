//! Descriptor reserve: descriptors that the store keeps, so that other files and connections cannot exhaust them.
//!
//! Owns entries of the process's descriptor table, held by the null device. When the system has no free descriptor,
//! one of the reserve is released. It is refilled from a file that is closed, in one step, so that no other thread
//! can take the entry. Caches of open files shrink while the reserve is short.
//!
//! Threads: any.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use nix::libc;
use parking_lot::Mutex;

/// Descriptors reserved: one for each thread that opens files, and some for files that stay open.
const RESERVED: usize = 16;

#[derive(Debug)]
pub(super) struct DescriptorReserve {
    /// The source of all reserved descriptors. Without a null device it is `None`, and the reserve is empty.
    null: Option<File>,
    spare: Mutex<Vec<OwnedFd>>,
}

impl DescriptorReserve {
    /// Creates a reserve, as large as the process can have now.
    pub(super) fn new() -> Self {
        let reserve = Self { null: File::open("/dev/null").ok(), spare: Mutex::default() };
        reserve.fill();
        reserve
    }

    /// Runs `open`, which takes a descriptor; uses one of the reserve if no other is free.
    pub(super) fn lend<T>(&self, mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match open() {
                // Another thread may take the released one, so this may need several.
                Err(error)
                    if error.raw_os_error() == Some(libc::EMFILE) && self.spare.lock().pop().is_some() => {}
                opened => return opened,
            }
        }
    }

    pub(super) fn is_short(&self) -> bool {
        self.null.is_some() && self.spare.lock().len() < RESERVED
    }

    /// Refills the reserve, as far as the process has descriptors.
    pub(super) fn fill(&self) {
        let Some(null) = &self.null else { return };
        let mut spare = self.spare.lock();
        while spare.len() < RESERVED {
            match rustix::io::fcntl_dupfd_cloexec(null, 0) {
                Ok(more) => spare.push(more),
                Err(_) => return,
            }
        }
    }

    /// Closes a file, and keeps its descriptor if the reserve is short of one.
    pub(super) fn take_back(&self, file: File) {
        let mut spare = self.spare.lock();
        if let Some(null) = self.null.as_ref().filter(|_| spare.len() < RESERVED) {
            let mut descriptor = OwnedFd::from(file);
            if rustix::io::dup3(null, &mut descriptor, rustix::io::DupFlags::CLOEXEC).is_ok() {
                spare.push(descriptor);
            }
        }
    }
}
