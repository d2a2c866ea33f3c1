//! Headers of hot requests, each with both directions of its encoding.
//!
//! One file per request: its fields under the names of the wire, read as the broker needs them and written as the client
//! and the load generator send them. Decoders borrow from the header, in one pass; encoders write straight into the
//! frame. Fields that only other brokers look at are written and not read.
//!
//! `needs` is what each of them needs of `access`; `credentials` sign any request, `fields` has all names that those of the
//! hottest may have.
//!
//! Invariant: what one side writes is what the other reads, in either encoding. Pure; any thread.

pub(crate) mod credentials;
pub(crate) mod end_transaction;
pub(crate) mod fields;
pub(crate) mod needs;
pub(crate) mod pull;
pub(crate) mod recall;
pub(crate) mod send;
pub(crate) mod send_back;

#[cfg(test)]
mod tests;
