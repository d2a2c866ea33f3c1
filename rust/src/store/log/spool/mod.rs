//! Spool: the end of the log in mapped files of the store's own, from which the flush writes it to the log's file.
//!
//! A page of a log file that is new to the page cache has to be found and cleared by the kernel, in the middle of an append.
//! The pages of a spool are there once and for all: a message is copied into one of its files, where a killed process
//! leaves it, and the flush writes whole blocks from there with direct writes, for which the page cache has no page at all.
//!
//! A spool has four files, each mapped on its own. A **part** is such a file with a stretch of the log in it; it begins
//! with the begin of the block that the log ends in, so that each block is written from one part, and never reaches into
//! the next file of the log. Records are read from their part until it begins anew with another stretch, which it does when
//! everything in it is in the log's file and no one reads from it; then the log's own mapping shows them.
//!
//! The marks in front of a part say what it holds, and the last of them how far it is whole: it is set after the bytes, so that
//! a killed process leaves nothing torn below it. They hold for the boot they name alone: after a power loss nobody knows which pages
//! of a part reached the disk, and what they show are records of another time. Nothing is lost by that which a flush
//! had promised.
//!
//! From the bottom up: `marks` is what lies in front of a part, `parts` holds the parts and writes them, `writer` is the write
//! path. What a killed process has left is brought into the log by recovery (`drain`).

mod marks;
mod parts;
mod writer;

pub(crate) use marks::{FoundMarks, MARKED_BYTES, Marks};
pub(crate) use parts::{Part, Spool, remove_parts};
pub(crate) use writer::SpoolWriter;
