//! The data plane: the way of a request between its socket and the log.
//!
//! A connection's thread reads a burst of frames, decodes each header into a reused buffer, and `table` finds the
//! handler, once the sender may have it served (`guard`). Sends are checked (`admission`), staged and stored under one put lock (`send`); messages that a consumer
//! returns are stored again for later (`send_back`, `delays`), those for a time of their own wait for it (`timers`), unless they are taken back (`recall`); pulls are answered with slices of the log (`pull`) or
//! parked (`long_poll`); offsets are looked up and committed (`offset_requests`). All of it runs on that thread, on an
//! immutable picture of topics and groups (`metadata`). Everything else goes up to Python (`cold_requests`) through one
//! ring (`upcall`) and comes back as an `event` of the connection.
//!
//! Layers, lowest first; each uses itself and those before it:
//!
//! | layer | files |
//! |---|---|
//! | one request | `request`, `rejection`, `event`, `principal` |
//! | what the broker knows | `filter`, `role`, `metadata`, `offsets`, `deliveries`, `latency`, `attributes`, `admission`, `reply` |
//! | what waits | `deadlines`, `escapes`, `delays`, `timers`, `transactions`, `long_poll`, `parked_frames`, `held_replies`, `client_requests`, `upcall` |
//! | state | `session` of one connection, `guard`, `broker`, `data_plane` |
//! | handlers | `send`, `recall`, `send_back`, `end_transaction`, `check_transactions`, `resume_transaction`, `store_reply`, `pull`, `offset_requests`, `cold_requests`, `parked_sends` |
//! | service | `table` |
//!
//! *Architecture invariant*: no hot request waits for Python, for the disk or for another connection. What must
//! wait — a flush, a message, a topic to be made — waits as data, and an event ends it.

mod admission;
mod attributes;
mod broker;
pub(crate) mod check_transactions;
mod client_requests;
mod cold_requests;
pub mod data_plane;
mod deadlines;
mod delays;
pub(crate) mod deliveries;
mod end_transaction;
pub(crate) mod escapes;
pub(crate) mod event;
pub mod filter;
pub(crate) mod guard;
mod held_replies;
pub(crate) mod latency;
mod long_poll;
pub mod metadata;
mod offset_requests;
pub mod offsets;
mod parked_frames;
mod parked_sends;
mod principal;
mod promises;
mod pull;
mod recall;
pub(crate) mod rejection;
mod reply;
pub(crate) mod request;
mod resume_transaction;
pub mod role;
mod scanned_ranges;
mod send;
mod send_back;
mod session;
mod store_reply;
#[cfg(test)]
mod stored_record;
mod table;
pub(crate) mod timers;
pub(crate) mod transactions;
pub mod upcall;
