//! Indexing: writes waiting keys to the index, and reads skipped keys again from the log.
//!
//! Threads: that of maintenance, under the lock of its rounds.

use std::ops::Range;

use crate::store::derived::{Derived, Index, Key};
use crate::store::error::StoreError;
use crate::store::log::{Found, TrustBoundary, record_at, walk};

use super::Maintenance;

/// Limits of the log bytes read per round, and of their keys: some tens of milliseconds, because appends may wait
/// for the next file.
const PIECE_BYTES: u64 = 16 << 20;
const PIECE_KEYS: usize = 1 << 16;

impl Maintenance {
    /// Writes the waiting keys, then some of the skipped ones. If more are left, the next round begins without a
    /// pause.
    pub(super) fn write_index(&self) -> Result<(), StoreError> {
        let Some(index) = &self.dispatcher.derived().index else { return Ok(()) };
        index.write()?;
        if self.read_skipped(index) {
            index.write()?;
            self.wake();
        }
        Ok(())
    }

    /// Reads skipped records again. Returns whether any were left.
    fn read_skipped(&self, index: &Index) -> bool {
        let Some(skipped) = index.skipped() else { return false };
        let segments = self.log.segments();
        let mut until = skipped.start.max(segments.begin());
        let limit = segments.write_ring().map_or(skipped.end, |ring| ring.in_files().min(skipped.end));
        let (end, mut keys) = (until + PIECE_BYTES, Vec::new());
        // Damage was reported before, and does not end the log here.
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
            Ok((reached, _)) => until = self.read_write_ring(reached..skipped.end, &mut keys),
            Err(()) => {}
        }
        index.take_skipped(&keys, until);
        true
    }

    /// Reads records of `range`, most of which are not in the log's files yet. Returns where to continue.
    fn read_write_ring(&self, range: Range<u64>, keys: &mut Vec<Key>) -> u64 {
        let segments = self.log.segments();
        let mut at = range.start;
        while at < range.end && at < range.start + PIECE_BYTES && keys.len() < PIECE_KEYS {
            let size = record_at(segments, at, |record| {
                keys.extend(Key::of(record));
                record.total_size() as u64
            });
            // A position without a record is the end of the file.
            let next_file = || segments.find(at).map_or(range.end, |segment| segment.limit());
            at = size.map_or_else(next_file, |size| at + size);
        }
        at.min(range.end)
    }
}
