//! RocketMQ without the JVM: the native half of `rmqpy`.
//!
//! The crate is read from the bottom up: `positions` and `clock` are the vocabulary, `message` knows the bytes of
//! a message, `access` knows who may do what, `store` keeps messages, `remoting` carries them. `requests` are the
//! headers of hot requests, `columns` turns
//! records into messages or Arrow columns, `replication` decides what copies of a log do, `ha` connects them, `dataplane` serves the broker's hot requests, `client` is the native half of
//! every client, `load` measures any broker, `fuzzing` opens inner decoders to mutated bytes, and `bindings` is the only
//! place that knows Python.
//!
//! *Architecture invariant*: imports point down, and siblings do not import each other — `store` knows no frames,
//! `remoting` knows no files. Four files may use `unsafe`: see `tests/test_architecture.py`.

#![cfg_attr(not(feature = "python"), allow(dead_code, unused_imports, reason = "the bindings use it"))]

pub mod access;
mod client;
pub mod clock;
mod columns;
pub mod dataplane;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod ha;
#[cfg(feature = "load")]
pub mod load;
pub mod message;
pub mod positions;
pub mod remoting;
pub mod replication;
mod requests;
pub mod store;
pub mod tls;

#[cfg(feature = "python")]
mod bindings;
