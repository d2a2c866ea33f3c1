//! Client core: the native part of every client, from encoding to outcome.
//!
//! From the bottom: `route_cache` rotates queues, `broker_latency` skips slow brokers, `broker_regions` records which
//! ones want traces, `message_fields` and `encoded_send` encode messages, `rows` (on `row_columns`) encodes tables,
//! `send_budget` bounds outstanding sends, `unasked_failures` counts unread failures. `pending_send` (whose result is
//! a `receipt`), `call` and `server_request` are requests in flight; `completions` delivers outcomes to one reader,
//! `listener` requests from servers. `connections` carries them all, signed with `credentials` if given.
//!
//! Policy belongs to Python, which chooses brokers, queues and retries. No thread of this module enters Python, and
//! nothing here waits while holding a lock that an I/O thread takes.

pub(crate) mod broker_latency;
pub(crate) mod broker_regions;
pub(crate) mod call;
pub(crate) mod completions;
pub(crate) mod connections;
pub(crate) mod encoded_send;
mod listener;
pub(crate) mod message_fields;
pub(crate) mod pending_send;
pub(crate) mod popped;
pub(crate) mod receipt;
pub(crate) mod route_cache;
pub(crate) mod row_columns;
pub(crate) mod rows;
pub(crate) mod send_budget;
pub(crate) mod server_request;
pub(crate) mod unasked_failures;
