//! The header of a frame: what is asked or answered, by whom, and the extension fields that are its arguments.
//!
//! [`Header`] reads both encodings in one pass into memory it keeps, so that a connection that reuses one allocates
//! nothing once it has seen its largest header. [`HeaderWriter`] writes both straight into an output buffer.
//!
//! Reading is as lenient as the Java clients are used to: any case of the fixed names, numbers as text and text as
//! numbers, single quotes, comments, unknown fields. Writing is strict: exact names, every extension value a string.
//!
//! Invariant: no input makes a decoder panic, recurse deeper than `scanner::DEPTH_MAX` or keep more than
//! [`EXT_FIELDS_MAX`] fields. Threads: each connection owns its `Header` on its own I/O thread.

mod binary;
mod decode;
mod fields;
mod json;
mod marks;
mod scanner;
mod swar;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use fields::number;
pub use fields::{EXT_FIELDS_MAX, Header};
pub(crate) use writer::ExtBlock;
pub use writer::HeaderWriter;
