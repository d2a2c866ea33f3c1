//! Files of the timers: which timed messages wait, and how far their delivery has got.
//!
//! In the original's places and bytes: `timerlog/` has a unit for each message that waits, in the order in which they
//! were read from the queue of `rmq_sys_wheel_timer`; the units of one slot of time are a chain that leads back.
//! `timerwheel` has the ends of the chains, `config/timercheck` the progress. Beside the original's numbers
//! `timercheck` has a mark of ours, with a digest of the wheel. A start reads the wheel; what was written to it since the
//! mark is taken back along the chains (`recovery`). Where the wheel is not what the mark says, it is made anew from the
//! timer log; where that is not, either, both are, from the queue.
//!
//! Invariant: units before the end that `timercheck` names are on the disk, and are those of the messages before the
//! queue offset it names; so are slots of the wheel that lead to them. A mark is gone from the disk before the log it is of.
//! Threads: one at a time; what is written by `save` may be another's than what is read.

mod progress;
mod recovery;
mod timer_log;
mod unit;
mod wheel;
mod wheel_file;

pub(crate) use progress::{LogMark, ProgressFile, TimerProgress};
pub(crate) use recovery::TimerFiles;
pub(crate) use timer_log::{TimerLog, Unsynced};
pub(crate) use unit::{DEFAULT, DELETE, ROLL, SEAL, TimerUnit, count, is_recall};
pub(crate) use wheel::{Slot, Wheel};
pub(crate) use wheel_file::WheelFile;
