//! Data plane: the path of a request between its socket and the log.
//!
//! The thread of a connection reads a burst of frames and decodes each header into a reused buffer. `guard`
//! authorizes the sender, and `table` finds the handler. All handlers run on that thread, over an immutable snapshot
//! of topics and groups (`metadata`). Other requests are forwarded to Python (`cold_requests`) through one ring
//! (`upcall`); their replies return as events of the connection.
//!
//! Rooms, lowest first:
//!
//! | room | uses | holds |
//! |---|---|---|
//! | `state` | | the request in progress, metadata, offsets |
//! | `waiting` | `state` | long polls, parked frames, held replies, upcalls, events |
//! | `delivery` | `state` | delays, timers, transactions, revived messages, deadlines |
//! | `requests` | `state`, `waiting`, `delivery` | the handlers, with the broker and the session that they use |
//! | `service` | all | the table of handlers, and the composition of the parts |
//!
//! *Architecture invariant*: no hot request blocks on Python, on the disk or on another connection. A request that
//! needs a flush, a message or a new topic is parked as data, and an event resumes it.

pub(crate) mod delivery;
pub(crate) mod requests;
pub mod service;
pub mod state;
pub mod waiting;
