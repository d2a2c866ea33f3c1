//! Formats: their laws, golden bytes of Apache RocketMQ, mutated bytes, and SQL92 filters.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed expectation fails the test")]

mod golden;
mod laws;
mod mutations;
mod sql;
#[path = "../vectors/mod.rs"]
mod vectors;
