//! Files of the timers: which timed messages wait, and how far their delivery has got.
//!
//! In the original's places and bytes: `timerlog/` has a unit for each message that waits, in the order in which they
//! were read from the queue of `rmq_sys_wheel_timer`; the units of one slot of time are a chain that leads back.
//! `timerwheel` has the ends of the chains, `config/timercheck` the progress. Beside the original's numbers
//! `timercheck` has a mark of ours: without it, or where the log is not what the mark says, the log is made anew from
//! the queue.
//!
//! Invariant: units before the end that `timercheck` names are on the disk, and are those of the messages before the
//! queue offset it names.
//! Threads: one at a time; what is written by `save` may be another's than what is read.

mod progress;
mod timer_log;
mod unit;
mod wheel;
mod wheel_file;

pub(crate) use progress::{ProgressFile, TimerProgress};
pub(crate) use timer_log::{TimerLog, Unsynced};
pub(crate) use unit::{DEFAULT, DELETE, ROLL, TimerUnit};
pub(crate) use wheel::{Slot, Wheel};
pub(crate) use wheel_file::WheelFile;
