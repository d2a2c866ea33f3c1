//! Marks: finds the quotes and backslashes of a text, sixty-four bytes at a time.
//!
//! A header is some forty short strings, each of which ends at a mark. A separate search for each would scan the same
//! bytes repeatedly.

#![allow(unsafe_code, reason = "the instruction that compares sixteen bytes is not on every processor")]

const BLOCK_BYTES: usize = 64;

/// The marks of one block of a text, a bit for each byte. Bytes ahead of the searched position must not change.
pub(super) struct Marks {
    block: usize,
    bits: u64,
}

impl Marks {
    pub(super) const fn new() -> Self {
        // Not the start of any block.
        Self { block: usize::MAX, bits: 0 }
    }

    /// Returns the position of the first double quote or backslash from `from` on.
    #[inline(always)]
    pub(super) fn next(&mut self, bytes: &[u8], from: usize) -> Option<usize> {
        let block = from & !(BLOCK_BYTES - 1);
        if block != self.block {
            self.read(bytes, block);
        }
        let mut ahead = self.bits & (u64::MAX << (from - block));
        while ahead == 0 {
            let next = self.block + BLOCK_BYTES;
            if next >= bytes.len() {
                return None;
            }
            self.read(bytes, next);
            ahead = self.bits;
        }
        Some(self.block + ahead.trailing_zeros() as usize)
    }

    fn read(&mut self, bytes: &[u8], block: usize) {
        let rest = bytes.get(block..).unwrap_or_default();
        let bits = match rest.first_chunk::<BLOCK_BYTES>() {
            Some(whole) => marked(whole),
            None => {
                let mut padded = [0; BLOCK_BYTES];
                if let Some(front) = padded.get_mut(..rest.len()) {
                    front.copy_from_slice(rest);
                }
                marked(&padded)
            }
        };
        (self.block, self.bits) = (block, bits);
    }
}

/// Returns a bit for each byte of a block.
#[inline(always)]
fn marked(block: &[u8; BLOCK_BYTES]) -> u64 {
    let (parts, _) = block.as_chunks::<16>();
    parts.iter().rev().fold(0, |bits, part| bits << 16 | u64::from(marked_16(u128::from_le_bytes(*part))))
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn marked_16(part: u128) -> u16 {
    // SAFETY: every processor of this architecture has SSE2.
    unsafe { sse2::marked_16(part) }
}

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8};

    /// Returns a bit for each byte of a part, comparing all of them together.
    #[target_feature(enable = "sse2")]
    #[inline]
    pub(super) fn marked_16(part: u128) -> u16 {
        let part = _mm_set_epi64x((part >> 64) as i64, part as i64);
        let quotes = _mm_cmpeq_epi8(part, _mm_set1_epi8(b'"' as i8));
        let backslashes = _mm_cmpeq_epi8(part, _mm_set1_epi8(b'\\' as i8));
        _mm_movemask_epi8(_mm_or_si128(quotes, backslashes)) as u16
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn marked_16(part: u128) -> u16 {
    marked_8(part as u64) | marked_8((part >> 64) as u64) << 8
}

/// Returns the same for eight bytes in one register, on processors without wider ones.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn marked_8(word: u64) -> u16 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const LOWS: u64 = ONES * 0x7F;
    // Sets the high bit of exactly the zero bytes: no carry leaves a byte.
    let zeros = |word: u64| !(((word & LOWS) + LOWS) | word | LOWS);
    let marks = zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\')));
    // Collects one bit of each byte in the highest byte: no two products overlap.
    ((marks >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_no_other_bytes_are_found_from_every_position() {
        for length in [0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 200] {
            for spacing in 1..70 {
                for byte in *b"\"\\" {
                    // Between the marks, bytes that differ from a mark by one, or in one bit.
                    let mut bytes: Vec<u8> =
                        (0..length).map(|at| [byte ^ 1, byte ^ 0x80, byte + 1, 0, 0xFF][at % 5]).collect();
                    bytes.iter_mut().step_by(spacing).for_each(|at| *at = byte);
                    let expected = |from: usize| (from..length).find(|at| matches!(bytes[*at], b'"' | b'\\'));
                    let mut marks = Marks::new();
                    for from in (0..length + 2).chain((0..length).rev()) {
                        assert_eq!(marks.next(&bytes, from), expected(from), "{length} {spacing} {from}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_word_has_the_marks_of_a_part() {
        for byte in 0..=u8::MAX {
            for at in 0..8 {
                let mut word = [b'x'; 8];
                word[at] = byte;
                let word = u64::from_le_bytes(word);
                let is_mark = matches!(byte, b'"' | b'\\');
                assert_eq!(marked_8(word), u16::from(is_mark) << at);
                assert_eq!(marked_16(u128::from(word) << 64), marked_8(word) << 8);
            }
        }
    }
}
