//! Remoting: frames, their headers in both encodings, and the connections that carry them.
//!
//! `frame` cuts a byte stream into frames, `header` reads and writes what stands in front of a body, `codes` names
//! the numbers. None of the three does I/O, keeps a clock or knows what a request means. `limits` has every bound.
//!
//! `server` accepts connections and gives their frames to a `service`: an `io_loop` for each `io_thread` finds out whether
//! they are encrypted (`greeting`) and adopts `connection`s, each with an `inbox` and an `outbox`, which are answered in a
//! `round`; `link` reaches one of them from any thread, through a bounded `mailbox`. `buffer_budget`, `large_frames` and
//! `handshakes` bound the memory of all together; its `idle_tracker` tells a connection to give memory back, and what has not come in time.
//! An `io_thread` asks for a short `time_slice`.
//! `client` is the calling end: a `peer` for each address, whose `peer_task` writes requests and ends `call`s.
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
pub use server::Server;
pub use service::{Close, LargeBody, Service};
pub use shared::ServerStatistics;
