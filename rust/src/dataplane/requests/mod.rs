//! Requests: the handlers of hot requests, with the broker and the session that they use.
//!
//! Uses `waiting`, `delivery` and `state`. Handlers are methods of `Broker`, each in the file of its request.

pub(in crate::dataplane) mod admission;
pub(in crate::dataplane) mod attributes;
pub(in crate::dataplane) mod broker;
pub(crate) mod check_transactions;
mod end_transaction;
pub(crate) mod guard;
pub(crate) mod lites;
mod logical;
mod offset_requests;
pub(crate) mod pop;
mod promises;
pub(in crate::dataplane) mod pull;
mod recall;
mod resume_transaction;
pub(in crate::dataplane) mod send;
mod send_back;
pub(in crate::dataplane) mod session;
mod store_reply;
