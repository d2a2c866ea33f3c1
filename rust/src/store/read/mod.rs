//! Read: messages by queue and offset, by position, by key and by time, and in the order of the log.

pub(in crate::store) mod copied;
pub(in crate::store) mod follow;
mod io_range;
pub(in crate::store) mod lookup;
mod reading;
