//! Remoting: frames, their headers in both encodings, and the connections that carry them.
//!
//! `frame` cuts a byte stream into frames, `header` reads and writes their headers, `codes` names wire numbers. None
//! of the three performs I/O, reads a clock or interprets requests. `limits` holds every bound.
//!
//! `server` accepts connections and passes their frames to a `service`. The `io_loop` of each `io_thread` performs
//! the handshake (`greeting`) and adopts `connection`s, each with an `inbox` and an `outbox`; a `round` batches their
//! replies. `link` reaches a connection from any thread, through a bounded `mailbox`. `buffer_budget`, `large_frames`
//! and `handshakes` bound the memory of all connections; an `idle_tracker` decides when a connection must release
//! memory or has timed out. An `io_thread` requests a short `time_slice`. `client` is the calling side: a `peer` for
//! each address, whose `peer_task` writes requests and completes `call`s.
//!
//! *Architecture invariant*: a frame is read, handled and answered on one thread, and steady traffic allocates nothing.

pub mod codes;
pub mod error;
pub mod frame;
pub mod header;

mod buffer_budget;
mod call;
mod client;
mod client_thread;
mod connection;
mod foreign;
mod greeting;
mod handshakes;
mod idle_tracker;
mod inbox;
mod io_loop;
mod io_thread;
mod large_frames;
mod limits;
mod link;
mod mailbox;
mod outbox;
mod peer;
mod peer_task;
mod round;
mod server;
mod service;
mod shared;
mod time_slice;
mod turnstile;

pub use call::{CallError, Done, Linger, Reply};
pub use client::Client;
pub use client_thread::Requests;
pub use error::{FrameError, HeaderError};
pub use foreign::ForeignClient;
pub use frame::{Encoding, Frame, FrameLimits};
pub use limits::{BURST_FRAMES_MAX, ClientOptions, ServerOptions, TURN_FRAMES_MAX};
pub use link::{Link, LinkId, Owed};
pub use outbox::Outbox;
pub use peer::Peer;
pub use server::{Connector, Server};
pub use service::{Close, LargeBody, Service};
pub use shared::{Permit, ServerStatistics};
