//! Write ring: the end of the log in mapped files outside it, from which the flush writes the log's files.
//!
//! For an append to a new page of a log file, the kernel has to find and clear the page. The pages of a write ring stay
//! mapped: a message is copied into a write ring file, where it survives a killed process, and the flush writes whole
//! blocks from there.
//!
//! A write ring has four files, each mapped separately. A **part** is such a file with a range of the log in it. It
//! starts at the start of the block that the log ends in, so that each block is written from one part, and never
//! extends into the next log file. Records are read from their part until it is recycled, when all its bytes are in
//! the log's file and no reader holds it; afterwards the log's own mapping shows them.
//!
//! The marks at the front of a part name its range. The end mark is set after the bytes, so that everything below it is whole
//! after a killed process. After a restart of the machine it is unknown which pages of a part reached the disk: then the
//! checksums of its blocks show how far it is sound. Nothing is lost that a flush had promised.
//!
//! From the bottom up: `marks` and `checksums` are the marks of a part, `memory` is the share of it that is in use, `part` is
//! its readable range, `blocks` writes it to the log's files, `parts` holds all parts, `writer` is the write path. Recovery moves the records of a killed process from the write ring into the log (`drain`).

mod blocks;
mod checksums;
mod marks;
mod memory;
mod part;
mod parts;
mod writer;

pub(crate) use checksums::sound_bytes;
pub(crate) use marks::{FoundMarks, MARKED_BYTES, Marks};
pub(crate) use part::Part;
pub(crate) use parts::{WriteRing, remove_parts};
pub(crate) use writer::RingWriter;
