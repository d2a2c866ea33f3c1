//! Access control: who sent a request, and whether they may do what it asks.
//!
//! Two questions, asked one after the other and each with a switch of its own. *Authentication*: a request names a user
//! and carries a signature made with that user's secret, see `signature`; or its connection's certificate is for a user. *Authorization*: what the request needs, an
//! action on a resource, is looked up in the user's policies, see `policy`; super users need none. The users, their
//! policies and the switches are one immutable picture, `rules`, that is replaced whole; its generation number tells a
//! connection that what it remembers, `permits`, is out of date. `failures` slows addresses that guess, `limits` users who
//! ask for too much. Access control of the first kind is other users and policies of the same picture, and `white_list`s.
//!
//! Invariant: what is not allowed by a policy is refused; a Deny wins over an Allow that is as precise. No secret is
//! printed, not even by `Debug`.
//!
//! No sockets, files or clock; any thread.

pub mod action;
pub mod failures;
pub mod limits;
pub mod network;
pub mod permits;
pub mod policy;
pub mod refusal;
pub mod resource;
pub mod rules;
pub mod signature;
#[cfg(test)]
mod tests;
pub mod white_list;
