//! Frame: cuts a byte stream into frames.
//!
//! ```text
//! 0   u32  L, bytes after this word: 4 + H + B
//! 4   u8   header encoding: 0 JSON, 1 binary
//! 5   u24  H, bytes of the header
//! 8   H    header
//! 8+H B    body, B = L - 4 - H
//! ```
//!
//! Invariant: a frame is refused as soon as the bytes that make it invalid arrive, before anything is buffered for
//! it.
//! Threads: pure functions; each connection calls them on its own I/O thread.

use super::error::FrameError;

/// Size of everything in front of the header.
pub const PREFIX_BYTES: usize = 8;

/// The encoding of a header. Every frame announces its own: a peer may mix them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// A JSON object.
    Json,
    /// Fixed fields, then length-prefixed text.
    Binary,
}

impl Encoding {
    /// Returns the encoding of a wire byte.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::Json),
            1 => Some(Self::Binary),
            _ => None,
        }
    }

    /// Returns the byte that announces this encoding.
    pub(super) const fn byte(self) -> u8 {
        match self {
            Self::Json => 0,
            Self::Binary => 1,
        }
    }
}

/// A complete frame, borrowed from the read buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// The encoding of `header`.
    pub encoding: Encoding,
    /// Header bytes, not decoded.
    pub header: &'a [u8],
    /// Body bytes; empty and absent are the same on the wire.
    pub body: &'a [u8],
}

/// The limits of accepted frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameLimits {
    /// Largest frame including its length word: 16 MiB, as with every peer. One byte more closes the connection.
    pub frame_bytes_max: usize,
    /// Largest header: 256 KiB, because 32 KiB of properties become up to 115 kB of escaped JSON.
    pub header_bytes_max: usize,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self { frame_bytes_max: 16 << 20, header_bytes_max: 256 << 10 }
    }
}

/// Returns the size of the frame at the front of `bytes`, including its length word; `None` before those four bytes
/// are complete.
///
/// A reader uses it to make room for an incomplete frame.
///
/// # Errors
/// When the length is invalid or over the limit.
pub fn size(bytes: &[u8], limits: &FrameLimits) -> Result<Option<usize>, FrameError> {
    let Some(word) = bytes.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*word);
    if length < 4 {
        return Err(FrameError::TooShort { length });
    }
    let frame_bytes = u64::from(length) + 4;
    match usize::try_from(frame_bytes) {
        Ok(size) if size <= limits.frame_bytes_max => Ok(Some(size)),
        _ => Err(FrameError::TooLong { frame_bytes, frame_bytes_max: limits.frame_bytes_max }),
    }
}

/// Returns the frame at the front of `bytes` and its size in bytes; `None` while it is incomplete.
///
/// # Errors
/// When the bytes can never become a frame within the limits; the connection must close.
pub fn split<'a>(bytes: &'a [u8], limits: &FrameLimits) -> Result<Option<(Frame<'a>, usize)>, FrameError> {
    let Some(frame_bytes) = size(bytes, limits)? else { return Ok(None) };
    let Some(&[_, _, _, _, encoding, h0, h1, h2]) = bytes.first_chunk::<PREFIX_BYTES>() else {
        return Ok(None);
    };
    let encoding = Encoding::from_byte(encoding).ok_or(FrameError::UnknownEncoding(encoding))?;
    let header_bytes = u32::from_be_bytes([0, h0, h1, h2]) as usize;
    if header_bytes > frame_bytes - PREFIX_BYTES {
        return Err(FrameError::HeaderOverrun { header_bytes, frame_bytes });
    }
    if header_bytes > limits.header_bytes_max {
        let header_bytes_max = limits.header_bytes_max;
        return Err(FrameError::HeaderTooLong { header_bytes, header_bytes_max });
    }
    let Some(payload) = bytes.get(PREFIX_BYTES..frame_bytes) else { return Ok(None) };
    let (header, body) = payload.split_at(header_bytes);
    Ok(Some((Frame { encoding, header, body }, frame_bytes)))
}

/// Returns the frame at the front of `bytes` without its body, once its header is complete. `split` has checked these
/// bytes and needs more.
pub(super) fn head(bytes: &[u8]) -> Option<Frame<'_>> {
    let &[_, _, _, _, encoding, h0, h1, h2] = bytes.first_chunk::<PREFIX_BYTES>()?;
    let header_bytes = u32::from_be_bytes([0, h0, h1, h2]) as usize;
    let header = bytes.get(PREFIX_BYTES..PREFIX_BYTES + header_bytes)?;
    Some(Frame { encoding: Encoding::from_byte(encoding)?, header, body: &[] })
}

/// Returns the frame that fills exactly `bytes`. `split` has checked their front.
pub(super) fn whole(bytes: &[u8]) -> Option<Frame<'_>> {
    let head = head(bytes)?;
    Some(Frame { body: bytes.get(PREFIX_BYTES + head.header.len()..)?, ..head })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: FrameLimits = FrameLimits { frame_bytes_max: 64, header_bytes_max: 32 };

    /// Header, body and size of a frame.
    type Cut<'a> = (&'a [u8], &'a [u8], usize);

    fn check(bytes: &[u8], expected: Result<Option<Cut<'_>>, FrameError>) {
        let found = split(bytes, &LIMITS).map(|found| found.map(|(f, size)| (f.header, f.body, size)));
        assert_eq!(found, expected, "{bytes:02x?}");
    }

    #[test]
    fn a_frame_is_cut_at_the_length_it_announces() {
        check(&[0, 0, 0, 7, 0, 0, 0, 2, b'{', b'}', b'x', b'y'], Ok(Some((b"{}", b"x", 11))));
        check(&[0, 0, 0, 4, 1, 0, 0, 0], Ok(Some((b"", b"", 8))));
    }

    #[test]
    fn an_absent_body_is_an_empty_one() {
        check(&[0, 0, 0, 6, 0, 0, 0, 2, b'{', b'}', b'x'], Ok(Some((b"{}", b"", 10))));
    }

    #[test]
    fn every_prefix_of_a_good_frame_asks_for_more() {
        let frame = [0, 0, 0, 8, 1, 0, 0, 2, b'{', b'}', b'x', b'y'];
        for end in 0..frame.len() {
            check(&frame[..end], Ok(None));
        }
    }

    #[test]
    fn a_head_is_available_with_the_header() {
        let frame = [0, 0, 0, 8, 1, 0, 0, 2, b'{', b'}', b'x', b'y'];
        for end in 0..frame.len() {
            let header = (end >= 10).then_some(b"{}".as_slice());
            assert_eq!(head(&frame[..end]).map(|head| head.header), header, "{end}");
        }
        assert_eq!(whole(&frame), split(&frame, &LIMITS).unwrap().map(|(whole, _)| whole));
    }

    #[test]
    fn impossible_lengths_are_refused_before_the_rest_arrives() {
        check(&[0, 0, 0, 3], Err(FrameError::TooShort { length: 3 }));
        check(&[0, 0, 0, 61], Err(FrameError::TooLong { frame_bytes: 65, frame_bytes_max: 64 }));
        check(&[255; 4], Err(FrameError::TooLong { frame_bytes: 0x1_0000_0003, frame_bytes_max: 64 }));
        check(&[0, 0, 0, 8, 2, 0, 0, 0], Err(FrameError::UnknownEncoding(2)));
        check(&[0, 0, 0, 8, 0, 0, 0, 5], Err(FrameError::HeaderOverrun { header_bytes: 5, frame_bytes: 12 }));
        check(
            &[0, 0, 0, 60, 0, 0, 0, 33],
            Err(FrameError::HeaderTooLong { header_bytes: 33, header_bytes_max: 32 }),
        );
    }

    #[test]
    fn the_limit_counts_the_length_word_and_is_itself_accepted() {
        let mut frame = vec![0; 64];
        frame[3] = 60;
        check(&frame, Ok(Some((b"", &[0; 56], 64))));
    }
}
