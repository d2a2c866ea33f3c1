//! Waiting: parked requests, and the events that resume them.
//!
//! Uses `state` alone.

pub(in crate::dataplane) mod client_requests;
pub(crate) mod event;
pub(in crate::dataplane) mod held_replies;
pub(crate) mod lite_consumers;
pub(in crate::dataplane) mod long_poll;
pub(in crate::dataplane) mod parked_frames;
pub(in crate::dataplane) mod pop_groups;
pub mod upcall;
