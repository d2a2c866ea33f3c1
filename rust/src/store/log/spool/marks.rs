//! Marks of a part: which stretch of the log it holds, and since when.
//!
//! Numbers of 8 bytes in the order of the machine, for no other reads them. All but the end are covered by a check; the end is
//! set alone, with each burst, and zero while the others change.
//!
//! Threads: any.

use crate::store::disk::SpoolAppender;

/// Bytes of the marks that are in use.
pub(crate) const MARKED_BYTES: usize = 72;
/// `RMQSPOOL`, and the version of this layout.
const MAGIC: u64 = u64::from_be_bytes(*b"RMQSPOO1");
/// The end has a cache line of its own.
const END: usize = 8;

/// What a part says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Marks {
    /// The machine's boot in which it was written.
    pub(crate) boot: u128,
    /// Position of its first byte.
    pub(crate) base: u64,
    /// Position of its first record; what is before belongs to the part before.
    pub(crate) first: u64,
    /// Position up to which it is whole.
    pub(crate) end: u64,
}

/// Marks at the front of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FoundMarks {
    /// The part holds nothing.
    Empty,
    Sound(Marks),
    /// The part may hold something, and does not say what.
    Damaged,
}

impl Marks {
    /// Sets all of them, with nothing in the part yet.
    pub(super) fn begin(appender: &SpoolAppender, boot: u128, base: u64, first: u64) {
        set_end(appender, 0);
        let words = words(boot, base, first);
        for (index, word) in words.into_iter().enumerate() {
            appender.mark(index, word);
        }
        appender.mark(words.len(), check(words));
    }

    /// What the marks at the front of a file say.
    pub(crate) fn decode(front: &[u8]) -> FoundMarks {
        let word =
            |index: usize| front.get(index * 8..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
        let word = |index| word(index).unwrap_or(0);
        let boot = (u128::from(word(1)) << 64) | u128::from(word(2));
        let (base, first, end) = (word(3), word(4), word(END));
        let words = words(boot, base, first);
        let is_sound = word(0) == MAGIC && word(words.len()) == check(words) && base <= first;
        match end {
            0 => FoundMarks::Empty,
            _ if !is_sound => FoundMarks::Damaged,
            _ if end <= first => FoundMarks::Empty,
            _ => FoundMarks::Sound(Self { boot, base, first, end }),
        }
    }
}

/// Says that a part is whole up to `end`.
pub(super) fn set_end(appender: &SpoolAppender, end: u64) {
    appender.mark(END, end);
}

fn words(boot: u128, base: u64, first: u64) -> [u64; 5] {
    [MAGIC, (boot >> 64) as u64, boot as u64, base, first]
}

fn check(words: [u64; 5]) -> u64 {
    let mut hasher = crc32fast::Hasher::new();
    words.iter().for_each(|word| hasher.update(&word.to_ne_bytes()));
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::disk::Region;

    #[test]
    fn marks_say_what_was_set_once_there_is_an_end() {
        let region = Region::anonymous(8192).expect("memory");
        let (appender, _reader) = region.claim_spool().expect("first claim");
        let decode = || Marks::decode(&region.snapshot()[..MARKED_BYTES]);
        assert_eq!(decode(), FoundMarks::Empty);
        Marks::begin(&appender, 7 << 64 | 9, 4096, 5000);
        assert_eq!(decode(), FoundMarks::Empty);
        set_end(&appender, 6000);
        let marks = Marks { boot: 7 << 64 | 9, base: 4096, first: 5000, end: 6000 };
        assert_eq!(decode(), FoundMarks::Sound(marks));
        appender.mark(4, 5001);
        assert_eq!(decode(), FoundMarks::Damaged, "the check covers it");
    }
}
