//! Cut: the end of a log is given up, as a slave does whose master never had it.
//!
//! Invariant: nothing before the cut is changed. Queues and index are cut by the next start, which reads the log from the
//! begin of the file that was cut.
//! Threads: the cutting one, which holds the store exclusively.

use std::sync::Arc;

use crate::store::disk::Open;
use crate::store::error::StoreError;
use crate::store::recovery::CheckpointFiles;

use super::StoppedStore;
use super::walk::log_files;

impl StoppedStore {
    /// Gives up what the log has from `at` on, durably.
    ///
    /// Running it again after a crash changes nothing that the first run would not have changed.
    pub fn cut(&self, at: u64) -> Result<(), StoreError> {
        let files = log_files(&*self.disk, &self.paths.log)?;
        // First of all: a start in between reads what is there, and believes nothing about what is not.
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
