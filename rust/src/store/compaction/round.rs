//! Round: rewrites a queue with the newest message of each key.
//!
//! A message without a body deletes its key, and stays out, too. The sources are durable in the log before anything is
//! dropped for their sake: after a power loss, a message of the log must not be gone here because of a later message that
//! the log has lost.
//!
//! Threads: those of rounds, one at a time for a queue.

use std::sync::Arc;

use crate::message::record::RecordView;
use crate::store::error::StoreError;
use crate::store::log::Flush;

use super::copying::key_of;
use super::layout::FilePair;
use super::pace::Pace;
use super::queue::CompactedQueue;
use super::scan::scan_records;
use super::survivors::Survivors;
use super::swap::discard;
use super::writer::Writer;

/// The result of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RoundResult {
    pub(super) kept: u64,
    pub(super) dropped: u64,
}

impl CompactedQueue {
    /// Runs a round. Returns `None` if there is nothing to rewrite, or it has to stop.
    pub(super) fn compact(
        &self,
        flush: &Flush,
        pace: &Pace,
        keys_max: usize,
    ) -> Result<Option<RoundResult>, StoreError> {
        let Some(_one) = self.round.try_lock() else { return Ok(None) };
        if self.is_gone() {
            return Ok(None);
        }
        let (sources, covered) = self.begin_round()?;
        if sources.iter().all(|pair| pair.units == 0) {
            self.cancel_round(&sources);
            return Ok(None);
        }
        let result = match flush.flush().and_then(|_| self.rewrite(&sources, pace, keys_max)) {
            Ok(Some(result)) => result,
            other => {
                self.cancel_round(&sources);
                return other.map(|_| None);
            }
        };
        self.replace(&sources, &result, covered)?;
        let count = |pairs: &[FilePair]| pairs.iter().map(|pair| pair.units).sum::<u64>();
        let (before, kept) = (count(&sources), count(&result));
        Ok(Some(RoundResult { kept, dropped: before.saturating_sub(kept) }))
    }

    /// Writes the surviving messages to the folders for new files, durably. Returns `None` if it has to stop.
    fn rewrite(
        &self,
        sources: &[FilePair],
        pace: &Pace,
        keys_max: usize,
    ) -> Result<Option<Vec<FilePair>>, StoreError> {
        let survivors = Survivors::find(keys_max, |visit| {
            self.scan(sources, pace, &mut |index, record| {
                // Every message of the copy has a key.
                visit(index, key_of(record).unwrap_or_default(), record.body().is_empty());
                Ok(())
            })
        })?;
        let Some(survivors) = survivors else { return Ok(None) };
        discard(&*self.disk, &self.folders)?;
        let begin = sources.first().map_or(0, |pair| pair.base);
        let folders = self.folders.compacting();
        let mut writer = Writer::new(&self.disk, folders, self.bytes, begin, Vec::new());
        let is_whole = self.scan(sources, pace, &mut |index, record| {
            let size = record.total_size() as u64;
            if !survivors.has(index) || !pace.spend(size) {
                return Ok(());
            }
            writer.push(record)
        })?;
        if !is_whole || pace.is_stopped() {
            return Ok(None);
        }
        if writer.files().is_empty() {
            // A file without messages shows that the earlier ones are deleted, and not lost.
            writer.begin_file()?;
        }
        writer.end_file()?;
        Ok(Some(writer.files().to_vec()))
    }

    /// Calls `visit` with the records of all sources and their index. Returns false if the round has to stop.
    fn scan(
        &self,
        sources: &[FilePair],
        pace: &Pace,
        visit: &mut dyn FnMut(u64, &RecordView<'_>) -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        let (disk, folders) = (Arc::clone(&self.disk), &self.folders);
        let mut first = 0;
        for pair in sources {
            let mut spend = |bytes| pace.spend(bytes) && !self.is_gone();
            let mut numbered = |index: u64, record: &RecordView<'_>| -> Result<(), StoreError> {
                visit(first + index, record)
            };
            if !scan_records(&disk, folders, pair, &mut spend, &mut numbered)? {
                return Ok(false);
            }
            first += pair.units;
        }
        Ok(true)
    }
}
