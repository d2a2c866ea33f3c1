//! Compression: writes bodies that every client can read, and reads bodies within a size limit.
//!
//! Java's LZ4 reader accepts only independent blocks, and its zstd writer omits the content size. The writers here
//! use independent blocks; the readers need neither. The caller bounds the output: a body of a few kilobytes may
//! announce gigabytes.

use std::borrow::Cow;
use std::io::{self, Read, Write};

use super::error::CompressionError;
use super::sysflag::{COMPRESSED, Compression};

/// The default level of the Java producer.
pub(crate) const LEVEL_DEFAULT: i32 = 5;

/// Returns the original body: borrowed if it is not compressed, otherwise at most `bytes_max` long. Fails when the
/// flag bits or the bytes are invalid, or the output exceeds the limit.
pub fn decompress(sys_flag: i32, body: &[u8], bytes_max: usize) -> Result<Cow<'_, [u8]>, CompressionError> {
    if sys_flag & COMPRESSED == 0 {
        return Ok(Cow::Borrowed(body));
    }
    let kind = Compression::from_sys_flag(sys_flag).ok_or(CompressionError::UnknownType(sys_flag))?;
    let plain = match kind {
        Compression::Zlib => read(flate2::bufread::ZlibDecoder::new(body), body, bytes_max),
        Compression::Lz4 => read(lz4_flex::frame::FrameDecoder::new(body), body, bytes_max),
        Compression::Zstd => read(zstd::stream::read::Decoder::with_buffer(body)?, body, bytes_max),
    };
    plain.map(Cow::Owned)
}

fn read(source: impl Read, body: &[u8], bytes_max: usize) -> Result<Vec<u8>, CompressionError> {
    let mut plain = Vec::with_capacity(body.len().saturating_mul(2).min(bytes_max));
    // One byte more than allowed distinguishes the exact limit from an excess.
    source.take(bytes_max as u64 + 1).read_to_end(&mut plain)?;
    if plain.len() > bytes_max { Err(CompressionError::TooLarge { bytes_max }) } else { Ok(plain) }
}

/// Compresses a body. `level` is 1 (fast) to 9 (small), as in the Java clients; LZ4 has no levels. No input fails:
/// compressors report only output errors, and the output is memory.
pub fn compress(kind: Compression, level: i32, body: &[u8]) -> io::Result<Vec<u8>> {
    let out = Vec::with_capacity(body.len() / 2);
    match kind {
        Compression::Zlib => {
            let level = flate2::Compression::new(level.clamp(1, 9).unsigned_abs());
            let mut encoder = flate2::write::ZlibEncoder::new(out, level);
            encoder.write_all(body)?;
            encoder.finish()
        }
        Compression::Lz4 => {
            let frame = lz4_flex::frame::FrameInfo::new().block_mode(lz4_flex::frame::BlockMode::Independent);
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(frame, out);
            encoder.write_all(body)?;
            Ok(encoder.finish()?)
        }
        Compression::Zstd => {
            let mut encoder = zstd::stream::write::Encoder::new(out, level.clamp(1, 22))?;
            encoder.include_contentsize(false)?;
            encoder.include_checksum(false)?;
            encoder.write_all(body)?;
            encoder.finish()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Compression; 3] = [Compression::Zlib, Compression::Lz4, Compression::Zstd];

    fn text() -> Vec<u8> {
        b"to be or not to be, ".repeat(500)
    }

    #[test]
    fn every_compression_round_trips() {
        for kind in ALL {
            for body in [text(), Vec::new(), vec![7], (0..=255).collect()] {
                let small = compress(kind, LEVEL_DEFAULT, &body).unwrap();
                assert_eq!(decompress(kind.sys_flag(), &small, body.len()).unwrap(), body, "{kind:?}");
            }
        }
    }

    #[test]
    fn an_uncompressed_body_is_borrowed_whatever_its_type_bits_say() {
        assert!(matches!(decompress(0x700, b"plain", 0), Ok(Cow::Borrowed(b"plain"))));
    }

    #[test]
    fn a_body_that_decompresses_beyond_the_limit_is_refused() {
        for kind in ALL {
            let body = vec![0; 1 << 20];
            let small = compress(kind, LEVEL_DEFAULT, &body).unwrap();
            let over = decompress(kind.sys_flag(), &small, body.len() - 1);
            assert!(matches!(over, Err(CompressionError::TooLarge { .. })), "{kind:?}");
            assert!(decompress(kind.sys_flag(), &small, body.len()).is_ok(), "{kind:?}");
        }
    }

    /// If more were read than the limit and one byte, this test would not end.
    #[test]
    fn output_over_the_limit_is_not_decompressed() {
        let endless = read(io::repeat(0), b"", 1000);
        assert!(matches!(endless, Err(CompressionError::TooLarge { bytes_max: 1000 })));
    }

    #[test]
    fn a_cut_off_or_foreign_body_is_corrupt() {
        for kind in ALL {
            let small = compress(kind, LEVEL_DEFAULT, &text()).unwrap();
            for bytes in [&small[..small.len() / 2], b"certainly not compressed"] {
                let found = decompress(kind.sys_flag(), bytes, 1 << 20);
                assert!(matches!(found, Err(CompressionError::Corrupt(_))), "{kind:?} {found:?}");
            }
        }
        let unknown = decompress(0x401, b"", 1);
        assert!(matches!(unknown, Err(CompressionError::UnknownType(0x401))));
    }

    #[test]
    fn lz4_blocks_are_independent_and_zstd_has_no_content_size_as_java_clients_need() {
        let lz4 = compress(Compression::Lz4, LEVEL_DEFAULT, &text()).unwrap();
        assert_eq!(lz4[..4], [0x04, 0x22, 0x4D, 0x18]);
        assert_eq!(lz4[4], 0x60, "version 1, independent blocks, no checksums, no content size");

        let zstd = compress(Compression::Zstd, LEVEL_DEFAULT, &text()).unwrap();
        assert_eq!(zstd[..4], [0x28, 0xB5, 0x2F, 0xFD]);
        assert_eq!(zstd[4], 0, "no content size, no single segment, no checksum, no dictionary");

        let zlib = compress(Compression::Zlib, LEVEL_DEFAULT, &text()).unwrap();
        assert_eq!(zlib[0], 0x78, "RFC 1950 with the 32 KiB window every reader has");
    }

    #[test]
    fn zstd_with_a_content_size_and_lz4_with_linked_blocks_are_read_too() {
        let zstd = zstd::bulk::compress(&text(), 3).unwrap();
        assert_eq!(decompress(0x201, &zstd, 1 << 20).unwrap(), text());

        let linked = lz4_flex::frame::FrameInfo::new().block_mode(lz4_flex::frame::BlockMode::Linked);
        let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(linked, Vec::new());
        encoder.write_all(&text()).unwrap();
        assert_eq!(decompress(0x101, &encoder.finish().unwrap(), 1 << 20).unwrap(), text());
    }
}
