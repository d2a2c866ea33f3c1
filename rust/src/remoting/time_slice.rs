//! Time slice: requests short scheduler slices for a thread.
//!
//! A thread with a short slice also runs sooner: from Linux 6.12 it preempts a thread with a longer slice. Otherwise
//! a request that arrives while another thread reads a large body or compresses waits one to three milliseconds for
//! that thread's slice, however idle the broker is.
//!
//! Threads: each call applies to the calling thread.

#![cfg_attr(target_os = "linux", allow(unsafe_code, reason = "no safe crate wraps these two system calls"))]

use std::io;

/// The shortest slice. Between two waits for its sockets a thread works for some ten microseconds.
#[cfg(target_os = "linux")]
const SHORT_NS: u64 = 100_000;

/// Requests a short slice for the calling thread. Older kernels use one length for all, and other systems have none.
///
/// # Errors
/// When the system denies the request.
#[cfg(target_os = "linux")]
pub(super) fn shorten() -> io::Result<()> {
    let mut attributes = current()?;
    // Leave a scheduling class that an operator chose.
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    attributes.sched_runtime = SHORT_NS;
    // SAFETY: the kernel reads `size` bytes, which `current` has set to those of the struct; 0 is the calling thread.
    // It writes nothing, and the last argument, flags, must be 0.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the scheduling attributes of the calling thread.
#[cfg(target_os = "linux")]
fn current() -> io::Result<libc::sched_attr> {
    let size = size_of::<libc::sched_attr>() as u32;
    let mut attributes = libc::sched_attr {
        size,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel writes at most `size` bytes, which the struct has; any bytes are a valid value. 0 is the
    // calling thread.
    let done = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    attributes.size = size;
    if done == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn shorten() -> io::Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_a_short_slice_and_keeps_its_other_attributes() {
        std::thread::spawn(|| {
            let before = current().unwrap();
            shorten().unwrap();
            let after = current().unwrap();
            // A kernel with one length for all reports 0.
            assert!([SHORT_NS, 0].contains(&after.sched_runtime), "{}", after.sched_runtime);
            assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
        })
        .join()
        .unwrap();
    }
}
