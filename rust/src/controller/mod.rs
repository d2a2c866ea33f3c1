//! Controller: hands out the ids of brokers, keeps their in-sync sets, and elects masters.
//!
//! From the bottom up: `state` is what the controllers agree on, `liveness` what each of them observes. `election` and
//! `decisions` are functions of both. `core` orders requests, heartbeats and leases over a log, without I/O. `log` is
//! the interface of that log: `single` keeps it in a file of one controller, `raft` replicates it.

pub mod core;
pub mod decisions;
pub mod election;
pub mod liveness;
pub mod log;
pub mod node;
pub mod raft;
mod records;
pub mod requests;
pub mod single;
pub mod state;

#[cfg(test)]
mod tests;
