//! Lines of the protocols that are text.

use memchr::memchr;

/// A peer that sends so much without an end of line speaks something else.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Where the first line ends, the place of its last byte; `None` while that is still to come.
pub fn end(bytes: &[u8]) -> Result<Option<usize>, String> {
    match memchr(b'\n', bytes) {
        None if bytes.len() >= LINE_BYTES_MAX => Err("a line without an end".to_owned()),
        end => Ok(end),
    }
}
