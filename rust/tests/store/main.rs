//! The store as its callers see it, on simulated disks and on real ones.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed expectation fails the test")]

mod clock;
mod compaction;
mod compaction_crashes;
mod copied;
mod following;
mod formats;
mod full_disk;
mod index;
mod inspect;
mod lights;
mod paths;
mod recovery;
mod replica;
mod retention;
mod serving;
#[path = "../store_model/mod.rs"]
mod store_model;
mod turns;
mod write_ring;
