//! Access control: authenticates the sender of a request, and authorizes its operation.
//!
//! The two steps have separate switches. *Authentication*: a request names a user and carries a signature made with
//! the user's secret (`signature`), or its connection has a certificate for a user. *Authorization*: the required
//! action on a resource is looked up in the user's policies (`policy`); super users need none. The users, their
//! policies and the switches are one immutable snapshot (`rules`), replaced as a whole; by its generation a
//! connection notices that its cached `permits` are stale. `failures` slows addresses that guess passwords, `limits`
//! throttles users. ACL 1.0 maps to users and policies of the same snapshot, and to `white_list`s.
//!
//! Invariant: an operation that no policy allows is refused; a Deny wins over an Allow of the same precision. No
//! secret is printed, not even by `Debug`.
//!
//! No sockets, files or clock.
//! Threads: any.

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
