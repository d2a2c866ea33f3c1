//! Delivery: messages that are appended later, because of a delay, a time, a transaction or a missing acknowledgement.
//!
//! Uses `state` alone.

pub(in crate::dataplane) mod deadlines;
pub(in crate::dataplane) mod delays;
pub(crate) mod escapes;
pub(crate) mod revive;
pub(crate) mod timers;
pub(crate) mod transactions;
