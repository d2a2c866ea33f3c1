//! RocketMQ without the JVM: the native module of `rmqpy`.
//!
//! From the bottom up: `positions` and `clock` are shared vocabulary, `message` is the encoding of messages, `access`
//! decides access control, `store` keeps messages, `remoting` carries them. `requests` are the headers of hot
//! requests, `columns` decodes records into messages or Arrow columns, `replication` is the protocol between copies
//! of a log, `ha` connects them, `controller` elects masters, `dataplane` serves the broker's hot requests, `proxy` serves 5.x clients through it,
//! `client` is the native part of every client, `load` has the requests of the load generator, `fuzzing` exposes
//! internal decoders to mutated bytes, and `bindings` is the only module that depends on Python.
//!
//! *Architecture invariant*: imports point down, and siblings do not import each other: `store` does not know frames,
//! `remoting` does not know files. Four files may use `unsafe`: see `tests/test_rust_architecture.py`.

#![cfg_attr(not(feature = "python"), allow(dead_code, unused_imports, reason = "the bindings use it"))]

pub mod access;
mod client;
pub mod clock;
mod columns;
#[cfg(feature = "server")]
pub mod controller;
#[cfg(feature = "server")]
pub mod dataplane;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(feature = "server")]
pub mod ha;
#[cfg(feature = "load")]
pub mod load;
pub mod message;
pub mod positions;
#[cfg(feature = "server")]
mod proxy;
pub mod remoting;
#[cfg(feature = "server")]
pub mod replication;
mod requests;
#[cfg(feature = "server")]
pub mod store;
pub mod tls;

#[cfg(feature = "python")]
mod bindings;
