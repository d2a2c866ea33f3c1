//! Log: the CommitLog, from its files up to what consumers may see of it.
//!
//! From the bottom up: `segment` and `segments` are the files, `checksums` says whether they are still what was written,
//! `scan` walks their records, `medium` is where new bytes live until they are in a file. `commit_log` appends and moves
//! *reserved* and *published*, `dispatcher` moves *visible*, `flush` moves *durable*.

pub(crate) mod checksums;
pub(crate) mod commit_log;
pub(crate) mod dispatcher;
pub(crate) mod flush;
pub(crate) mod medium;
pub(crate) mod scan;
pub(crate) mod segment;
pub(crate) mod segments;
