//! Log: the CommitLog, from its files up to what consumers may see of it.
//!
//! From the bottom up: `segment` and `segments` are the files, `checksums` says whether they are still what was written,
//! `scan` walks their records, `medium` is where new bytes live until they are in a file. `commit_log` appends and moves
//! *reserved* and *published*, `dispatcher` moves *visible*, `flush` moves *durable*.

pub mod checksums;
pub mod commit_log;
pub mod dispatcher;
pub mod flush;
pub mod medium;
pub mod scan;
pub mod segment;
pub mod segments;
