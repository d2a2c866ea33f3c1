//! Block checksums: the CRC-32 of each block of a part, which show what the part holds after a restart of the machine.
//!
//! After a restart it is unknown which pages of a part reached the disk: some may be of its earlier use. The mark of a block
//! names the number of its bytes, the start of the part, and their CRC-32. It is set before the bytes become readable, so that the
//! flush takes the checksum of a whole block from here.
//!
//! Threads: `cover` the holder of the put lock, `of_block` the flush, `sound_bytes` recovery.

use crate::store::disk::{DIRECT_BYTES, MARKS_PAGE_BYTES, RingAppender, RingReader};

/// Marks of blocks begin behind the first page.
const FIRST: usize = MARKS_PAGE_BYTES / size_of::<u64>();
/// Bits for the start of a part in a mark: parts that start 2 GiB apart look alike.
const BASE_BITS: u32 = 19;

/// Progress of the checksums of the active part.
#[derive(Default)]
pub(super) struct BlockChecksums {
    /// Bytes that have a checksum.
    covered: usize,
    /// Over the bytes of the last block.
    hasher: crc32fast::Hasher,
}

impl BlockChecksums {
    /// Adds what was appended to the part that begins at `base`, before it is published.
    pub(super) fn cover(&mut self, appender: &RingAppender, base: u64) {
        let mut bytes = appender.unpublished();
        while !bytes.is_empty() {
            let used = self.covered % DIRECT_BYTES;
            let (now, rest) = bytes.split_at(bytes.len().min(DIRECT_BYTES - used));
            self.hasher.update(now);
            let mark = mark(used + now.len(), base, self.hasher.clone().finalize());
            appender.mark(FIRST + self.covered / DIRECT_BYTES, mark);
            self.covered += now.len();
            if self.covered.is_multiple_of(DIRECT_BYTES) {
                self.hasher.reset();
            }
            bytes = rest;
        }
    }
}

/// Returns the CRC-32 of a whole readable block, counted from the start of its part.
pub(super) fn of_block(reader: &RingReader, block: usize) -> u32 {
    reader.mark(FIRST + block) as u32
}

/// Returns how many of `bytes`, a part that begins at `base`, are as they were written, by its `marks`.
pub(crate) fn sound_bytes(marks: &[u8], base: u64, bytes: &[u8]) -> usize {
    let words = marks.get(MARKS_PAGE_BYTES..).unwrap_or_default();
    let words = words.chunks_exact(size_of::<u64>()).filter_map(|word| word.first_chunk());
    let mut sound = 0;
    for (word, block) in words.map(|word| u64::from_ne_bytes(*word)).zip(bytes.chunks(DIRECT_BYTES)) {
        let size = (word >> (32 + BASE_BITS)) as usize;
        let Some(found) = block.get(..size).filter(|found| !found.is_empty()) else { break };
        if word != mark(size, base, crc32fast::hash(found)) {
            break;
        }
        sound += size;
        if size < DIRECT_BYTES {
            break;
        }
    }
    sound
}

fn mark(size: usize, base: u64, crc: u32) -> u64 {
    let base = base / DIRECT_BYTES as u64 % (1 << BASE_BITS);
    (size as u64) << (32 + BASE_BITS) | base << 32 | u64::from(crc)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::disk::Region;

    const MARKS: usize = 2 * MARKS_PAGE_BYTES;

    /// Appends in bursts of these sizes; returns the picture of the region.
    fn written(base: u64, bursts: &[usize]) -> Vec<u8> {
        let region = Region::anonymous(MARKS + 4 * DIRECT_BYTES).expect("memory");
        let (mut appender, _reader) = region.claim_ring(MARKS).expect("first claim");
        let mut checksums = BlockChecksums::default();
        let mut next = 0_u8;
        for size in bursts {
            for byte in appender.append(*size).expect("room") {
                *byte = next;
                next = next.wrapping_add(7);
            }
            checksums.cover(&appender, base);
            appender.publish();
        }
        region.snapshot()
    }

    fn sound(picture: &[u8], base: u64) -> usize {
        let (marks, bytes) = picture.split_at(MARKS);
        sound_bytes(marks, base, bytes)
    }

    #[test]
    fn everything_covered_is_sound_however_it_was_appended() {
        for bursts in [&[][..], &[1], &[4095, 1], &[100, 5000, 8192, 3], &[4 * DIRECT_BYTES], &[4097, 4095]] {
            assert_eq!(sound(&written(8192, bursts), 8192), bursts.iter().sum::<usize>(), "{bursts:?}");
        }
    }

    #[test]
    fn a_changed_byte_ends_the_sound_part_at_its_block() {
        let mut picture = written(8192, &[10_000]);
        picture[MARKS + 9999] ^= 1;
        assert_eq!(sound(&picture, 8192), 8192);
        picture[MARKS + 5000] ^= 1;
        assert_eq!(sound(&picture, 8192), 4096);
    }

    #[test]
    fn an_earlier_use_of_a_part_is_not_sound() {
        let mut picture = written(8192, &[10_000]);
        assert_eq!(sound(&picture, 4096), 0);
        // The second block and its mark are those of another use.
        let other = written(1 << 20, &[9000]);
        picture[MARKS + 4096..MARKS + 8192].copy_from_slice(&other[MARKS + 4096..MARKS + 8192]);
        let word = MARKS_PAGE_BYTES + 8;
        picture[word..word + 8].copy_from_slice(&other[word..word + 8]);
        assert_eq!(sound(&picture, 8192), 4096);
    }

    #[test]
    fn the_flush_reads_the_checksum_of_a_whole_block() {
        let region = Region::anonymous(MARKS + 2 * DIRECT_BYTES).expect("memory");
        let (mut appender, reader) = region.claim_ring(MARKS).expect("first claim");
        let mut checksums = BlockChecksums::default();
        for piece in [&[1_u8; 3000][..], &[2; 3000]] {
            appender.append(piece.len()).expect("room").copy_from_slice(piece);
            checksums.cover(&appender, 0);
            appender.publish();
        }
        let block = reader.bytes(0..DIRECT_BYTES).expect("published");
        assert_eq!(of_block(&reader, 0), crc32fast::hash(block));
    }
}
