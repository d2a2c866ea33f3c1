//! Replication: what a master and its slaves decide, without sockets, files or a clock of its own.
//!
//! # Theory of operation
//!
//! A slave's log is a byte-exact prefix of its master's. The stream between them is the original's (`stream`): the slave
//! says where its log ends, the master sends what comes after that, and the slave says again how far it is. What the
//! slaves said is what a master may promise: a position is *confirmed* once as many copies as asked for, the master's own
//! among them, reach it (`master`), and it only grows. Consumers see no more than that, and producers hear of no more.
//!
//! The stream compares nothing. That is done before it begins (`alignment`), by *epochs* (`epochs`): a node that begins to
//! lead begins an epoch at the end of its log, so two logs agree up to where the youngest epoch that both have ends in
//! either. A slave gives up what comes after that only if a younger epoch has decided against it; that its own master has
//! become shorter decides nothing.
//!
//! Who may begin an epoch (`leadership`): the node with the longest log of the youngest epoch, out of so many that one of
//! them has every confirmed message. A node that lost power with bytes not on disk has forgotten what it once confirmed; it
//! counts for nothing until it has caught up with another.
//!
//! Events go in, and what is to be done is asked for: the caller owns connections, bytes and time.

pub mod alignment;
pub mod epochs;
pub mod leadership;
pub mod master;
pub mod slave;
pub mod stream;
