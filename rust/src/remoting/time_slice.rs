//! Time slice: for how long the kernel lets a thread run while others wait for its processor.
//!
//! A thread that asks for a short one gets the processor sooner, too: Linux 6.12 and later let it go before one that has a
//! longer one, even in the middle of that. Otherwise a request that comes while something reads a large body or compresses
//! waits for that thread's slice, which is one to three milliseconds, however idle the broker is.
//!
//! Threads: each speaks of itself.

#![cfg_attr(target_os = "linux", allow(unsafe_code, reason = "two system calls that no safe crate has"))]

use std::io;

/// The shortest there is. What a thread does between two waits for its sockets takes some ten microseconds.
#[cfg(target_os = "linux")]
const SHORT_NS: u64 = 100_000;

/// Asks for a short slice for this thread. Older kernels have one length for all, and other systems know of none.
///
/// # Errors
/// The system does not let the process ask.
#[cfg(target_os = "linux")]
pub(super) fn shorten() -> io::Result<()> {
    let mut attributes = current()?;
    // What an operator has put into a class of its own is left as it is.
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    attributes.sched_runtime = SHORT_NS;
    // SAFETY: the kernel reads as many bytes as `size` says, which `current` has set to those of the struct; 0 is the calling
    // thread. Nothing is written, and the last argument, flags, has to be 0.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How this thread is scheduled.
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
    // SAFETY: the kernel writes `size` bytes at most, which the struct has; any bytes are a value of it. 0 is the calling thread.
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
    fn a_thread_gets_a_short_slice_and_stays_what_it_is_otherwise() {
        std::thread::spawn(|| {
            let before = current().unwrap();
            shorten().unwrap();
            let after = current().unwrap();
            // A kernel that has one length for all says 0.
            assert!([SHORT_NS, 0].contains(&after.sched_runtime), "{}", after.sched_runtime);
            assert_eq!((after.sched_policy, after.sched_nice), (before.sched_policy, before.sched_nice));
        })
        .join()
        .unwrap();
    }
}
