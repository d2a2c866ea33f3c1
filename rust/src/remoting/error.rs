//! Errors in bytes from a peer. An error in a frame or a header closes the connection: after a bad length or an
//! unreadable header, the next frame cannot be found, and a reply has no opaque.

use thiserror::Error;

/// A stream that does not hold a frame this process accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[allow(missing_docs, reason = "the error texts explain the numbers")]
pub enum FrameError {
    /// The length word is shorter than the header word it must cover.
    #[error("frame length {length} is shorter than the 4 bytes of its header word")]
    TooShort { length: u32 },
    /// The frame, including its length word, is longer than the limit; a negative length is reported here too.
    #[error("frame of {frame_bytes} bytes is over the limit of {frame_bytes_max}")]
    TooLong { frame_bytes: u64, frame_bytes_max: usize },
    /// The header alone is longer than the limit.
    #[error("header of {header_bytes} bytes is over the limit of {header_bytes_max}")]
    HeaderTooLong { header_bytes: usize, header_bytes_max: usize },
    /// The announced header is longer than its frame.
    #[error("header of {header_bytes} bytes does not fit its frame of {frame_bytes}")]
    HeaderOverrun { header_bytes: usize, frame_bytes: usize },
    /// The byte in front of the header length is not a known encoding.
    #[error("unknown header encoding {0}")]
    UnknownEncoding(u8),
    /// Our request has more fields than a server accepts, so no server could check its signature.
    #[error("the request has too many header fields to be signed")]
    Unsignable,
}

/// An unreadable header. `at` is a position in the header, for the log line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[allow(missing_docs, reason = "the error texts explain the numbers")]
pub enum HeaderError {
    /// The header ends inside a field.
    #[error("header ends early, at byte {at}")]
    Truncated { at: usize },
    /// Text that is not JSON even for a lenient reader.
    #[error("header is not JSON at byte {at}")]
    Syntax { at: usize },
    /// A numeric field that is not a 32-bit number.
    #[error("header does not hold a 32-bit number at byte {at}")]
    Number { at: usize },
    /// A length inside a binary header exceeds its block, or bytes remain after the last field.
    #[error("header lengths do not add up at byte {at}")]
    Length { at: usize },
    /// More extension fields than [`super::header::EXT_FIELDS_MAX`].
    #[error("header has more extension fields than any client sends")]
    TooManyFields,
    /// Nesting deeper than the reader follows.
    #[error("header is nested too deeply at byte {at}")]
    TooDeep { at: usize },
}

/// A missing or malformed extension field that a request needs. Only the request is refused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum FieldError {
    #[error("header field {0} is missing")]
    Missing(&'static str),
    /// The field and its text, boxed to keep the parsers' results small.
    #[error("header field {} is not a number: {:?}", .0.0, .0.1)]
    NotANumber(Box<(String, String)>),
}
