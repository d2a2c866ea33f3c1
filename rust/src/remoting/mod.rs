//! How bytes travel: frames, their headers in both encodings, and the connections that carry them.
//!
//! `frame` cuts a byte stream into frames, `header` reads and writes what stands in front of a body, `codes` names
//! the numbers. None of the three does I/O, keeps a clock or knows what a request means.
//!
//! `server` accepts connections and gives their frames to a `service`; `link` reaches one of them from any thread,
//! `outbox` holds what it still has to write. `client` is the calling end, with a `peer` for each address. `limits` has every bound of both.
//!
//! *Architecture invariant*: a frame is read, handled and answered on one thread, and steady traffic allocates nothing.

pub mod client;
pub mod codes;
pub mod error;
pub mod frame;
pub mod header;
pub mod limits;
pub mod link;
pub mod outbox;
pub mod peer;
pub mod server;
pub mod service;

mod connection;
mod inbox;
mod io_thread;
mod line;
mod pulse;
mod shared;

pub use client::{Client, ClientOptions, Requests};
pub use error::{FrameError, HeaderError};
pub use frame::{Encoding, Frame, FrameLimits};
pub use limits::{BURST_FRAMES_MAX, ServerOptions};
pub use link::{Link, LinkId};
pub use outbox::Outbox;
pub use peer::{CallError, Done, Haste, Peer, Reply};
pub use server::Server;
pub use service::{Close, Service};
pub use shared::ServerStatistics;
