//! Descriptors: a few that the store keeps for itself, however many connections and files the rest of the process has.
//!
//! Owns places in the process's table of descriptors, each taken by the null device. One is given up when the system says that
//! there is no other, and is taken again, without a moment in which another thread could have it, from a file that is
//! closed. Whoever keeps files open for convenience closes some while the reserve is short.
//!
//! Threads: any.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use nix::libc;
use parking_lot::Mutex;

/// Descriptors kept: one for each thread that opens files at a time, and for files that stay open behind them.
const RESERVED: usize = 16;

#[derive(Debug)]
pub(super) struct DescriptorReserve {
    /// All of them are copies of this one; `None` where there is no null device, and no reserve.
    null: Option<File>,
    spare: Mutex<Vec<OwnedFd>>,
}

impl DescriptorReserve {
    /// A reserve as large as the process can have now.
    pub(super) fn new() -> Self {
        let reserve = Self { null: File::open("/dev/null").ok(), spare: Mutex::default() };
        reserve.fill();
        reserve
    }

    /// Does what takes a descriptor, with one of the reserve where there is no other.
    pub(super) fn lend<T>(&self, mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match open() {
                // Another thread may be faster, so that it takes several.
                Err(error)
                    if error.raw_os_error() == Some(libc::EMFILE) && self.spare.lock().pop().is_some() => {}
                opened => return opened,
            }
        }
    }

    pub(super) fn is_short(&self) -> bool {
        self.null.is_some() && self.spare.lock().len() < RESERVED
    }

    /// Takes what it is short of, where the process has it.
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
