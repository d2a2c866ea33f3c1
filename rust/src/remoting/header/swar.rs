//! SWAR search: finds the bytes that end a run of plain text, eight at a time in one register.
//!
//! Header texts are short: calling a vectorised search takes longer than the search. A word is compared as a whole;
//! its lowest marked byte is the first hit, and marks above it may be false and are ignored.

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGHS: u64 = ONES << 7;

/// Marks the zero bytes of a word; exact up to the first one.
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

const fn equals(word: u64, byte: u8) -> u64 {
    zeros(word ^ (ONES * byte as u64))
}

/// Returns the position of the first `quote` or backslash.
#[inline(always)]
pub(super) fn find_quote(bytes: &[u8], quote: u8) -> Option<usize> {
    find(bytes, |word| equals(word, quote) | equals(word, b'\\'), |byte| byte == quote || byte == b'\\')
}

/// Returns the position of the first byte that JSON must escape: a control character, a quote or a backslash.
#[inline(always)]
pub(super) fn find_escaped(bytes: &[u8]) -> Option<usize> {
    find(
        bytes,
        // Below 0x20 the upper three bits are zero.
        |word| equals(word, b'"') | equals(word, b'\\') | zeros(word & (ONES * 0xE0)),
        |byte| byte < 0x20 || byte == b'"' || byte == b'\\',
    )
}

#[inline(always)]
fn find(bytes: &[u8], marks: impl Fn(u64) -> u64, is_hit: impl Fn(u8) -> bool) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let marks = marks(u64::from_le_bytes(*word));
        if marks != 0 {
            return Some(index * 8 + marks.trailing_zeros() as usize / 8);
        }
    }
    // Check the tail of a longer text together with the bytes before it, in one word.
    if let Some(word) = bytes.last_chunk::<8>() {
        let marks = marks(u64::from_le_bytes(*word));
        return (marks != 0).then(|| bytes.len() - 8 + marks.trailing_zeros() as usize / 8);
    }
    rest.iter().position(|&byte| is_hit(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hit_is_found_at_every_position() {
        for length in 0..40 {
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    let mut bytes = vec![b'x'; length];
                    // A second hit behind it, and bytes that differ from the target by one or in one bit.
                    bytes[length - 1] = b'\\';
                    bytes[at] = byte;
                    let is_quote = |byte: &u8| matches!(byte, b'"' | b'\\');
                    let is_escaped = |byte: &u8| *byte < 0x20 || is_quote(byte);
                    assert_eq!(find_quote(&bytes, b'"'), bytes.iter().position(is_quote), "{bytes:?}");
                    assert_eq!(find_escaped(&bytes), bytes.iter().position(is_escaped), "{bytes:?}");
                }
            }
        }
    }
}
