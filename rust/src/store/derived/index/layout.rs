//! Layout of an index file: position and format of header, slots and entries, as in Apache's broker.

use std::ops::Range;

pub(crate) const HEADER_BYTES: usize = 40;
pub(crate) const SLOT_BYTES: usize = 4;
pub(crate) const ENTRY_BYTES: usize = 20;

/// Numbers of slots and entries in each file of an index.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub slots: usize,
    /// Entries, including the unused first one.
    pub entries: usize,
}

impl Shape {
    pub(crate) fn file_bytes(self) -> usize {
        self.entry_at(self.entries)
    }

    pub(super) fn slot_at(self, hash: i32) -> usize {
        HEADER_BYTES + (hash.unsigned_abs() as usize % self.slots) * SLOT_BYTES
    }

    pub(crate) fn entry_at(self, number: usize) -> usize {
        HEADER_BYTES + self.slots * SLOT_BYTES + number * ENTRY_BYTES
    }

    /// Returns the range of the slots in the file.
    pub(super) fn slots(self) -> Range<usize> {
        HEADER_BYTES..self.entry_at(0)
    }
}

#[derive(Clone, Copy, Default)]
pub(super) struct Header {
    pub(super) begin_timestamp_ms: i64,
    pub(super) end_timestamp_ms: i64,
    pub(super) begin_physical: u64,
    pub(super) end_physical: u64,
    pub(super) slots_used: u32,
    /// Number of the next entry, counted from 1.
    pub(super) count: u32,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let longs = [
            self.begin_timestamp_ms as u64,
            self.end_timestamp_ms as u64,
            self.begin_physical,
            self.end_physical,
            u64::from(self.slots_used) << 32 | u64::from(self.count),
        ];
        let mut bytes = [0; HEADER_BYTES];
        for (into, long) in bytes.chunks_exact_mut(8).zip(longs) {
            into.copy_from_slice(&long.to_be_bytes());
        }
        bytes
    }

    /// Decodes the header of a file that can hold numbers below `entries`.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES], entries: usize) -> Self {
        let long = |at: usize| {
            bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |long| u64::from_be_bytes(*long))
        };
        Self {
            begin_timestamp_ms: long(0) as i64,
            end_timestamp_ms: long(8) as i64,
            begin_physical: long(16),
            end_physical: long(24),
            slots_used: (long(32) >> 32) as u32,
            // Apache's count is an int.
            count: (long(32) as i32).clamp(1, entries as i32) as u32,
        }
    }
}

pub(super) struct Entry {
    pub(super) hash: i32,
    pub(super) physical: u64,
    pub(super) seconds: u32,
    pub(super) previous: u32,
}

impl Entry {
    pub(super) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let (hash, rest) = bytes.split_at_mut(4);
        let (physical, rest) = rest.split_at_mut(8);
        let (seconds, previous) = rest.split_at_mut(4);
        hash.copy_from_slice(&self.hash.to_be_bytes());
        physical.copy_from_slice(&self.physical.to_be_bytes());
        seconds.copy_from_slice(&self.seconds.to_be_bytes());
        previous.copy_from_slice(&self.previous.to_be_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let [h0, h1, h2, h3, p0, p1, p2, p3, p4, p5, p6, p7, s0, s1, s2, s3, b0, b1, b2, b3] = *bytes;
        Self {
            hash: i32::from_be_bytes([h0, h1, h2, h3]),
            physical: u64::from_be_bytes([p0, p1, p2, p3, p4, p5, p6, p7]),
            seconds: u32::from_be_bytes([s0, s1, s2, s3]),
            previous: u32::from_be_bytes([b0, b1, b2, b3]),
        }
    }
}

/// Formats the time as `yyyyMMddHHmmssSSS`, in UTC. Apache's broker uses the local zone, but names are only sorted.
pub(crate) fn file_name(wall_ms: u64) -> u64 {
    let (days, ms) = (wall_ms / 86_400_000, wall_ms % 86_400_000);
    // Converts days by eras of 400 years that begin in March, so that the leap day comes last.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (second, milli) = (ms / 1000, ms % 1000);
    let clock = second / 3600 * 10_000 + second / 60 % 60 * 100 + second % 60;
    ((year * 10_000 + month * 100 + date) * 1_000_000 + clock) * 1000 + milli
}
