//! How bytes travel: frames, their headers in both encodings, and the connections that carry them.
//!
//! `frame` cuts a byte stream into frames, `header` reads and writes what stands in front of a body, `codes` names
//! the numbers. None of the three does I/O, keeps a clock or knows what a request means.

pub mod codes;
pub mod error;
pub mod frame;
pub mod header;

pub use error::{FrameError, HeaderError};
