//! TLS: the same bytes, encrypted; on one port with those that are not.
//!
//! A server looks at the first byte of a connection, which no frame shares with a hello of TLS (`server`), a client begins
//! with one (`client`). What they agree on is rustls' business, with ring's cryptography; here is how it meets sockets
//! (`stream`, and `blocking` for a thread without a runtime): a read of the socket for what one turn takes, a write for
//! what one turn made.
//!
//! `pem` reads certificates and keys, `authority` makes them, `names` reads who a certificate is for, `suites` says which
//! protocols and ciphers may be used, and `fault` what went wrong and what to do.
//!
//! Invariant: what a peer sends before its handshake is done costs a bounded buffer, and nothing of it reaches a frame.
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

/// The first byte of a TLS connection; as the first of a frame it would mean a length beyond any.
pub const HELLO: u8 = 0x16;
