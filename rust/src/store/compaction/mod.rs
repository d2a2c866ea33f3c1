//! Compaction: for each queue of a compacted topic, a copy that keeps the newest message of every key.
//!
//! The messages stay in the log and in the ordinary queue until they expire, and the copy keeps the newest values
//! beyond that. From the bottom up: `layout` has folders, file sizes and units; `writer` appends records to a pair of
//! files; `swap` replaces files so that a crash leaves the old or the new ones; `loading` reads a folder; `queue` is
//! one copy; `reading` serves pulls; `copying` follows the ordinary queue; `survivors` finds the newest message of
//! each key in bounded memory; `round` rewrites the files; `progress` is the file of positions; `pace` limits I/O;
//! `service` owns all copies and their threads.

mod copied;
mod copying;
mod layout;
mod loading;
mod pace;
mod progress;
mod queue;
mod reading;
mod reports;
mod round;
mod scan;
mod service;
mod survivors;
mod swap;
mod writer;

pub(crate) use copied::Copied;
pub(crate) use layout::remove_topic;
pub(crate) use service::{Compaction, CompactionParts};
