//! Indexing: keys from memory to the files of the index, and from the log what had no room in memory.
//!
//! Threads: that of maintenance, under the lock of its rounds.

use std::ops::Range;

use crate::store::derived::{Derived, Index, Key};
use crate::store::error::StoreError;
use crate::store::log::{Found, TrustBoundary, record_at, walk};

use super::Maintenance;

/// Bytes of the log that are read in one round, and keys that they may give: some tens of milliseconds, for appends may
/// wait for the next file.
const PIECE_BYTES: u64 = 16 << 20;
const PIECE_KEYS: usize = 1 << 16;

impl Maintenance {
    /// Writes the keys that wait. Behind them come those of records that were skipped, a piece in each round; the next
    /// round begins at once while there are more.
    pub(super) fn write_index(&self) -> Result<(), StoreError> {
        let Some(index) = &self.dispatcher.derived().index else { return Ok(()) };
        index.write()?;
        if self.read_skipped(index) {
            index.write()?;
            self.wake();
        }
        Ok(())
    }

    /// Reads skipped records again; whether there were any.
    fn read_skipped(&self, index: &Index) -> bool {
        let Some(skipped) = index.skipped() else { return false };
        let segments = self.log.segments();
        let mut until = skipped.start.max(segments.begin());
        let limit = segments.spool().map_or(skipped.end, |spool| spool.in_files().min(skipped.end));
        let (end, mut keys) = (until + PIECE_BYTES, Vec::new());
        // What is broken is no news here, and does not end the log.
        let trust = TrustBoundary { durable: limit, checksums: self.log.checksums() };
        let walked = walk(segments, until, limit, trust, |at, found| {
            until = at;
            if at >= end || keys.len() >= PIECE_KEYS {
                return Err(());
            }
            if let Found::Record(record) = found {
                keys.extend(Key::of(record));
            }
            Ok(())
        });
        match walked {
            Ok(_) if limit == skipped.end => until = limit,
            Ok((reached, _)) => until = self.read_spooled(reached..skipped.end, &mut keys),
            Err(()) => {}
        }
        index.take_skipped(&keys, until);
        true
    }

    /// Reads records of `range`, most of which are in no file of the log yet; returns where to go on.
    fn read_spooled(&self, range: Range<u64>, keys: &mut Vec<Key>) -> u64 {
        let segments = self.log.segments();
        let mut at = range.start;
        while at < range.end && at < range.start + PIECE_BYTES && keys.len() < PIECE_KEYS {
            let size = record_at(segments, at, |record| {
                keys.extend(Key::of(record));
                record.total_size() as u64
            });
            // Where there is no record the file ends.
            let next_file = || segments.find(at).map_or(range.end, |segment| segment.limit());
            at = size.map_or_else(next_file, |size| at + size);
        }
        at.min(range.end)
    }
}
