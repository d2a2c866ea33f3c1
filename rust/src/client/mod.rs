//! The native half of every client: what goes out, what is in flight, what came back.
//!
//! From the ground up: `route_cache` holds queues in rotation, `broker_latency` passes slow ones over, `broker_regions`
//! knows which want traces, `message_fields` and `encoded_send` make requests of messages, `rows` (on `row_columns`) of tables, `send_budget` bounds what may be
//! outstanding, `unasked_failures` counts failures that nobody looks at. `pending_send` (whose outcome is a `receipt`),
//! `call` and `server_request` are requests in flight, `completions` hands their outcomes to one reader, `listener` what
//! servers send unasked. `connections` carries them all, signed with `credentials` where there are some.
//!
//! Policy is not here: the broker, the queue, another attempt are chosen above, in Python. No thread of this module
//! ever enters Python, and nothing here waits while holding a lock that an I/O thread takes.

pub(crate) mod broker_latency;
pub(crate) mod broker_regions;
pub(crate) mod call;
pub(crate) mod completions;
pub(crate) mod connections;
pub(crate) mod encoded_send;
mod listener;
pub(crate) mod message_fields;
pub(crate) mod pending_send;
pub(crate) mod receipt;
pub(crate) mod route_cache;
pub(crate) mod row_columns;
pub(crate) mod rows;
pub(crate) mod send_budget;
pub(crate) mod server_request;
pub(crate) mod unasked_failures;
