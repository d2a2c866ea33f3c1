//! Errors in bytes from a peer. One in a frame or in a header closes the connection: after a bad length or a header
//! that cannot be read there is no place in the stream from which to go on, and no opaque to answer to.

use thiserror::Error;

/// The stream does not hold a frame this process accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[allow(missing_docs, reason = "the texts say what the numbers are")]
pub enum FrameError {
    /// The length word is shorter than the header word it must cover.
    #[error("frame length {length} is shorter than the 4 bytes of its header word")]
    TooShort { length: u32 },
    /// The frame, with its length word, is longer than the limit; a negative length ends here too.
    #[error("frame of {frame_bytes} bytes is over the limit of {frame_bytes_max}")]
    TooLong { frame_bytes: u64, frame_bytes_max: usize },
    /// The header alone is longer than the limit.
    #[error("header of {header_bytes} bytes is over the limit of {header_bytes_max}")]
    HeaderTooLong { header_bytes: usize, header_bytes_max: usize },
    /// The header is announced as longer than the frame around it.
    #[error("header of {header_bytes} bytes does not fit its frame of {frame_bytes}")]
    HeaderOverrun { header_bytes: usize, frame_bytes: usize },
    /// The byte in front of the header length names no encoding.
    #[error("unknown header encoding {0}")]
    UnknownEncoding(u8),
    /// A request of ours has more fields than a server takes, so that none could check its signature.
    #[error("the request has too many header fields to be signed")]
    Unsignable,
}

/// A header that cannot be read. `at` is a position in the header, for the log line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[allow(missing_docs, reason = "the texts say what the numbers are")]
pub enum HeaderError {
    /// The header ends inside a field.
    #[error("header ends early, at byte {at}")]
    Truncated { at: usize },
    /// JSON that even a lenient reader cannot take.
    #[error("header is not JSON at byte {at}")]
    Syntax { at: usize },
    /// A numeric field holds no 32-bit number.
    #[error("header holds no 32-bit number at byte {at}")]
    Number { at: usize },
    /// A length inside a binary header leaves its enclosing block, or bytes are left over behind the last field.
    #[error("header lengths do not add up at byte {at}")]
    Length { at: usize },
    /// More extension fields than [`super::header::EXT_FIELDS_MAX`].
    #[error("header has more extension fields than any client sends")]
    TooManyFields,
    /// Nested deeper than the reader follows.
    #[error("header is nested too deeply at byte {at}")]
    TooDeep { at: usize },
}

/// An extension field that a request needs and does not have as it should. The request is refused, nothing more.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum FieldError {
    #[error("header field {0} is missing")]
    Missing(&'static str),
    /// The field and its text, boxed: the result of a parser is passed on for each field of each request.
    #[error("header field {} is not a number: {:?}", .0.0, .0.1)]
    NotANumber(Box<(String, String)>),
}
