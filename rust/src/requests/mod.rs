//! Headers of hot requests: each with encoder and decoder.
//!
//! One file per request: its fields under their wire names, decoded for the broker and encoded for the client and the
//! load generator. Decoders borrow from the header, in one pass; encoders write directly into the frame. Fields that
//! only other brokers use are written and not read.
//!
//! `needs` lists the access each request needs; `credentials` sign any request; `fields` lists all field names of the
//! hottest requests.
//!
//! Invariant: what one side writes is what the other reads, in either encoding. Pure; any thread.

pub(crate) mod credentials;
pub(crate) mod end_transaction;
pub(crate) mod fields;
pub(crate) mod lite;
pub(crate) mod needs;
pub(crate) mod pop;
pub(crate) mod pull;
pub(crate) mod recall;
pub(crate) mod send;
pub(crate) mod send_back;

#[cfg(test)]
mod tests;
