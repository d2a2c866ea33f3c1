//! Cut: removal of the end of a log, which the master of a slave never had.
//!
//! *Invariant*: nothing before the cut is changed. The next start cuts queues and index; it reads the log from the
//! beginning of the file that was cut.
//! Threads: one, which holds the store exclusively.

use std::sync::Arc;

use crate::store::disk::Open;
use crate::store::error::StoreError;
use crate::store::recovery::CheckpointFiles;

use super::StoppedStore;
use super::walk::{Found, log_files};

impl StoppedStore {
    /// Returns the position before the first record stored at `stored_ms` or later, and the end of the log; the same
    /// twice if there is none. Clocks may step back, so this reads the whole log.
    pub fn end_before(&self, stored_ms: i64) -> Result<(u64, u64), StoreError> {
        let mut cut = None;
        let extent = self.walk(|found| {
            if let Found::Record(record) = found
                && cut.is_none()
                && record.store_timestamp_ms() >= stored_ms
            {
                cut = Some(record.physical_offset().0);
            }
            Ok(())
        })?;
        Ok((cut.unwrap_or(extent.end), extent.end))
    }

    /// Durably removes everything from `at` on.
    ///
    /// Can be repeated after a crash.
    pub fn cut(&self, at: u64) -> Result<(), StoreError> {
        let files = log_files(&*self.disk, &self.paths.log)?;
        // First, so that a start in between reads the log again and does not trust the removed part.
        let base = files.iter().rev().find(|file| file.base < at).map_or(0, |file| file.base);
        CheckpointFiles::open(Arc::clone(&self.disk), &self.paths.root)?.step_back(base)?;
        for file in files.iter().rev().filter(|file| file.limit() > at) {
            if file.base >= at {
                self.disk.remove_durably(&file.path)?;
                continue;
            }
            let opened =
                self.disk.open(&file.path, Open::Write).map_err(StoreError::io(&file.path, "open"))?;
            opened
                .write_zeros(at - file.base..file.size)
                .and_then(|()| opened.sync())
                .map_err(StoreError::io(&file.path, "cut"))?;
        }
        Ok(())
    }
}
