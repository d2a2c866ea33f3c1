//! Read: messages by queue and offset, by position, by key and by time.

mod io_range;
pub(in crate::store) mod lookup;
mod reading;
