//! Derived files: everything that is computed from the log, can be deleted, and is rebuilt from it.
//!
//! `dispatch` is what a part takes and does, `queue` and `index` are the parts there are, `files` is their list. Nothing
//! here is on the way of an acknowledgement.

pub mod dispatch;
pub mod files;
pub mod index;
pub mod queue;
