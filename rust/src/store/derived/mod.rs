//! Derived files: everything that is computed from the log, can be deleted, and is rebuilt from it.
//!
//! `dispatch` is what a part takes and does, `queue` and `index` are the parts there are, `files` is their list. Nothing
//! here is on the way of an acknowledgement.

pub(crate) mod dispatch;
pub(crate) mod files;
pub(crate) mod index;
pub(crate) mod queue;
