//! Comparison: the first byte in which two logs differ, such as those of a master and its slave.
//!
//! Threads: the caller's.

use std::ops::Range;
use std::sync::Arc;

use crate::store::disk::{DiskFile, Open};
use crate::store::error::StoreError;

use super::StoppedStore;
use super::walk::{Extent, LogFile, log_files};

/// Bytes of either log per comparison.
const READ_BYTES: usize = 1 << 20;

/// The result of comparing two logs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comparison {
    /// The beginning and the end of either log.
    pub extents: [Extent; 2],
    /// The compared range, which both logs have.
    pub common: Range<u64>,
    /// The first position in it with different bytes.
    pub difference: Option<u64>,
}

impl Comparison {
    /// Returns whether both logs have the same bytes up to the same end.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.difference.is_none() && self.extents[0].end == self.extents[1].end
    }
}

impl StoppedStore {
    /// Compares the log with another, from the later beginning to the earlier end.
    pub fn compare(&self, other: &Self) -> Result<Comparison, StoreError> {
        let extents = [self.walk(|_| Ok(()))?, other.walk(|_| Ok(()))?];
        let [one, two] = &extents;
        let begin = one.begin.max(two.begin);
        let common = begin..one.end.min(two.end).max(begin);
        let (mut one, mut two) = (LogBytes::of(self)?, LogBytes::of(other)?);
        let mut at = common.start;
        let mut difference = None;
        while at < common.end {
            let wanted = (common.end - at).min(READ_BYTES as u64) as usize;
            let (left, right) = (one.read(at, wanted)?, two.read(at, wanted)?);
            let length = left.len().min(right.len());
            let differing = left.iter().zip(right).position(|(one, two)| one != two);
            if let Some(index) = differing.or((length == 0).then_some(0)) {
                difference = Some(at + index as u64);
                break;
            }
            at += length as u64;
        }
        Ok(Comparison { extents, common, difference })
    }
}

/// The bytes of a log, file by file.
struct LogBytes<'a> {
    store: &'a StoppedStore,
    files: Vec<LogFile>,
    open: Option<(LogFile, Arc<dyn DiskFile>)>,
    buffer: Vec<u8>,
}

impl<'a> LogBytes<'a> {
    fn of(store: &'a StoppedStore) -> Result<Self, StoreError> {
        let files = log_files(&*store.disk, &store.paths.log)?;
        Ok(Self { store, files, open: None, buffer: vec![0; READ_BYTES] })
    }

    /// Reads bytes from `at` on, at most `wanted` and not beyond the end of their file; none if no file has them.
    fn read(&mut self, at: u64, wanted: usize) -> Result<&[u8], StoreError> {
        let has = |file: &LogFile| (file.base..file.limit()).contains(&at);
        if !self.open.as_ref().is_some_and(|(file, _)| has(file)) {
            let Some(file) = self.files.iter().find(|file| has(file)) else { return Ok(&[]) };
            let opened =
                self.store.disk.open(&file.path, Open::Read).map_err(StoreError::io(&file.path, "open"))?;
            self.open = Some((file.clone(), opened));
        }
        let Some((file, opened)) = &self.open else { return Ok(&[]) };
        let length = wanted.min((file.limit() - at) as usize).min(self.buffer.len());
        let into = self.buffer.get_mut(..length).unwrap_or_default();
        let read = opened.read_at(into, at - file.base).map_err(StoreError::io(&file.path, "read"))?;
        Ok(self.buffer.get(..read).unwrap_or_default())
    }
}
