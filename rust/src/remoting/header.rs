//! Header: the code, sender and correlation id of a frame, and the extension fields that are its arguments.
//!
//! [`Header`] reads both encodings in one pass into memory it keeps: a connection that reuses one allocates nothing
//! once it has seen its largest header. [`HeaderWriter`] writes both directly into an output buffer.
//!
//! Reading is as lenient as Java's: fixed names in any case, numbers as text and text as numbers, single quotes,
//! comments, unknown fields. Writing is strict: exact names, every extension value a string.
//!
//! Invariant: no input makes a decoder panic, recurse deeper than `scanner::DEPTH_MAX` or keep more than
//! [`EXT_FIELDS_MAX`] fields.
//! Threads: each connection owns its `Header` on its own I/O thread.

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
