//! Timer files: pending timed messages and the progress of their delivery.
//!
//! Paths and formats are those of Apache's broker. `timerlog/` has a unit for each pending message, in the order of the
//! queue of `rmq_sys_wheel_timer`; the units of a time slot form a chain, newest first. `timerwheel` has the ends of
//! the chains and `config/timercheck` the progress. In addition to Apache's numbers, `timercheck` has a mark
//! of this broker with a digest of the wheel. A start reads the wheel and undoes later writes along the chains
//! (`recovery`). If the wheel does not match the mark, it is rebuilt from the timer log. If the timer log does not
//! match either, both are rebuilt from the queue.
//!
//! *Invariant*: units before the end in `timercheck` are on disk and belong to messages before its queue offset, and
//! so are the slots of the wheel that refer to them. A mark is removed from disk before its log is.
//! Threads: one at a time; `save` may run on a thread other than that of the reads.

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
