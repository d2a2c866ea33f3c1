//! State: the request in progress, and the topics, groups and offsets that requests read.
//!
//! The lowest room of the data plane.

pub(crate) mod deliveries;
pub mod filter;
pub(crate) mod latency;
pub mod mapping;
pub mod metadata;
pub mod offsets;
pub(crate) mod orders;
pub mod pop_options;
pub(in crate::dataplane) mod principal;
pub(crate) mod rejection;
pub(in crate::dataplane) mod reply;
pub(crate) mod request;
pub mod role;
pub(in crate::dataplane) mod scanned_ranges;
pub(in crate::dataplane) mod settled;
#[cfg(test)]
pub(in crate::dataplane) mod stored_record;
