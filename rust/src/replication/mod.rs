//! Replication: the decisions of a master and its slaves, without sockets, files or a clock.
//!
//! # Theory of operation
//!
//! A slave's log is a byte-exact prefix of its master's. The stream between them is that of Apache's broker (`stream`):
//! the slave reports the end of its log, the master sends the bytes after it, and the slave reports again. The
//! reports determine what a master may promise: a position is *confirmed* once the required number of copies, the
//! master's included, reach it (`master`), and it only grows. Consumers see no message beyond it, and producers get
//! no acknowledgement beyond it.
//!
//! Apache's brokers of a set with a controller exchange the same bytes in another form (`elected`).
//!
//! The stream compares nothing. `alignment` compares the logs before it begins, by *epochs* (`epochs`): a new leader
//! begins an epoch at the end of its log, so two logs agree up to the end, in either, of the newest epoch that
//! both have. A slave truncates its log there only if a newer epoch requires it, never because its own master
//! became shorter.
//!
//! `leadership` decides which node may begin an epoch: the one with the longest log of the newest epoch, out of a
//! quorum in which at least one node has every confirmed message. A node that lost power before bytes were on disk
//! may have lost records it confirmed; it does not count until it has caught up with another.
//!
//! The caller reports events and asks for actions: it owns connections, bytes and time.

pub mod alignment;
pub mod elected;
pub mod epochs;
pub mod leadership;
pub mod master;
pub mod slave;
pub mod stream;
