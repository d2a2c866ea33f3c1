//! TLS: encrypted connections, on the same ports as plain ones.
//!
//! A server checks the first byte of a connection, which differs between a frame and a TLS hello (`server`); a
//! client starts with a hello (`client`). rustls implements the protocol, with ring's cryptography. This module
//! connects it to sockets (`stream`, and `blocking` for a thread without a runtime): one read of the socket and one
//! write per turn.
//!
//! `pem` reads certificates and keys, `authority` creates them, `names` reads their subjects, `suites` selects
//! protocols and ciphers, and `fault` explains errors.
//!
//! Invariant: before the handshake is complete a peer's bytes take a bounded buffer, and none of them reaches a
//! frame.
//! Threads: a stream stays on the thread of its connection; configurations are replaced whole, from any.

mod authority;
mod blocking;
mod client;
mod fault;
mod names;
mod pem;
mod server;
mod stream;
mod suites;

pub use authority::{Made, make};
pub use blocking::BlockingStream;
pub use client::{ClientTls, Trust};
pub use names::expiry;
pub use pem::{Identity, TlsError, authorities};
pub use server::{ClientCertificates, Failures, ServerTls};
pub use stream::Stream;
pub use suites::Suites;

/// The first byte of a TLS connection. In a frame it would mean a length beyond the limit.
pub const HELLO: u8 = 0x16;
