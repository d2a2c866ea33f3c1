//! Marks of a part: the range of the log it holds, the boot that wrote it, and a checksum of each of its blocks.
//!
//! Numbers of 8 bytes in native byte order, since only this machine reads them. The first page names the range. A check
//! covers all of that but the end, which each burst updates alone, and which is zero while the others change. The pages behind
//! it hold one number for each block of 4 KiB (`checksums`).
//!
//! Threads: any.

use crate::store::disk::{DIRECT_BYTES, MARKS_PAGE_BYTES, RingAppender};

/// Bytes of the marks that name the range.
pub(crate) const MARKED_BYTES: usize = 72;
/// The name and version of this layout.
const MAGIC: u64 = u64::from_be_bytes(*b"RMQSPOO2");
/// The end has its own cache line.
const END: usize = 8;

/// The marks at the front of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Marks {
    /// The boot of the machine during which it was written.
    pub(crate) boot: u128,
    /// Bytes of all marks. The first byte of the range follows them.
    pub(crate) size: u64,
    /// Position of its first byte.
    pub(crate) base: u64,
    /// Position of its first record; bytes before it belong to the previous part.
    pub(crate) first: u64,
    /// Position up to which it is whole.
    pub(crate) end: u64,
}

/// Marks at the front of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FoundMarks {
    /// The part is unused.
    Empty,
    Sound(Marks),
    /// The part may hold records, but its marks are invalid.
    Damaged,
}

impl Marks {
    /// Returns the bytes of the marks of a part for `bytes` bytes of the log.
    pub(super) fn size_for(bytes: usize) -> usize {
        let checksums = bytes.div_ceil(DIRECT_BYTES) * size_of::<u64>();
        MARKS_PAGE_BYTES + checksums.next_multiple_of(MARKS_PAGE_BYTES)
    }

    /// Sets the marks of a part that is still empty.
    pub(super) fn begin(self, appender: &RingAppender) {
        set_end(appender, 0);
        let words = self.words();
        for (index, word) in words.into_iter().enumerate() {
            appender.mark(index, word);
        }
        appender.mark(words.len(), check(words));
    }

    /// Decodes the marks at the front of a file.
    pub(crate) fn decode(front: &[u8]) -> FoundMarks {
        let word =
            |index: usize| front.get(index * 8..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
        let word = |index| word(index).unwrap_or(0);
        let boot = (u128::from(word(1)) << 64) | u128::from(word(2));
        let found = Self { boot, size: word(3), base: word(4), first: word(5), end: word(END) };
        let words = found.words();
        let is_sound = word(0) == MAGIC && word(words.len()) == check(words) && found.base <= found.first;
        match found.end {
            0 => FoundMarks::Empty,
            _ if !is_sound => FoundMarks::Damaged,
            end if end <= found.first => FoundMarks::Empty,
            _ => FoundMarks::Sound(found),
        }
    }

    fn words(&self) -> [u64; 6] {
        [MAGIC, (self.boot >> 64) as u64, self.boot as u64, self.size, self.base, self.first]
    }
}

/// Marks a part as whole up to `end`.
pub(super) fn set_end(appender: &RingAppender, end: u64) {
    appender.mark(END, end);
}

fn check(words: [u64; 6]) -> u64 {
    let mut hasher = crc32fast::Hasher::new();
    words.iter().for_each(|word| hasher.update(&word.to_ne_bytes()));
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::disk::Region;

    #[test]
    fn marks_decode_once_there_is_an_end() {
        let region = Region::anonymous(3 * 4096).expect("memory");
        assert_eq!(Marks::size_for(1), 2 * 4096);
        let (appender, _reader) = region.claim_ring(2 * 4096).expect("first claim");
        let decode = || Marks::decode(&region.snapshot()[..MARKED_BYTES]);
        assert_eq!(decode(), FoundMarks::Empty);
        let marks = Marks { boot: 7 << 64 | 9, size: 2 * 4096, base: 4096, first: 5000, end: 6000 };
        marks.begin(&appender);
        assert_eq!(decode(), FoundMarks::Empty);
        set_end(&appender, 6000);
        assert_eq!(decode(), FoundMarks::Sound(marks));
        appender.mark(5, 5001);
        assert_eq!(decode(), FoundMarks::Damaged, "the check covers it");
    }
}
