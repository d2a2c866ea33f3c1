//! The data plane: what a server does with a request between its socket and the log.
//!
//! A connection's thread reads a burst of frames, decodes each header into a reused buffer, and `table` finds the
//! handler. Sends are checked (`admission`), staged and stored under one put lock (`send`); messages that a consumer
//! returns are stored again for later (`send_back`, `delays`); pulls are answered with slices of the log (`pull`) or
//! parked (`long_poll`); offsets are looked up and committed (`offsets`). All of it runs on that thread, on an immutable
//! picture of topics and groups (`metadata`). Everything else goes up to Python (`ask`) through one ring (`upcall`) and
//! comes back as an event of the connection (`session`).
//!
//! *Architecture invariant*: no hot request waits for Python, for the disk or for another connection. What must
//! wait — a flush, a message, a topic to be made — waits as data, and an event ends it.

pub mod admission;
mod ask;
mod attributes;
pub mod deadlines;
pub mod delays;
pub mod deliveries;
pub mod latency;
pub mod long_poll;
pub mod metadata;
pub mod offsets;
pub mod pull;
pub mod reply;
pub mod send;
mod send_back;
pub mod session;
pub mod table;
pub mod upcall;
