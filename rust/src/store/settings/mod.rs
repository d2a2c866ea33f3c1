//! Settings: options of a store, its directories, and the rules of durability and retention.

pub(in crate::store) mod durability;
pub(in crate::store) mod options;
pub(in crate::store) mod paths;
pub(in crate::store) mod retention;
