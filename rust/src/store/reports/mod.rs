//! Reports: events, counters and statistics that a store publishes.

pub(in crate::store) mod counters;
pub(in crate::store) mod events;
pub(in crate::store) mod statistics;
