//! Segment: one file of the log.
//!
//! Owns the mapping of the file and its readable length. The file is mapped once, for reading and, with the mapping
//! as write path, for writing. Bytes written in another way are revealed after the write.
//!
//! Invariant: readable bytes never change.
//! Threads: any may read; the rest is for recovery.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::store::disk::{Appender, DiskFile, Region, RegionReader};
use crate::store::error::StoreError;

/// Bytes per write when recovery rewrites a range.
const REWRITE_BYTES: usize = 1 << 20;

pub(crate) struct Segment {
    base: u64,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    region: Region,
    reader: RegionReader,
    /// The readable bytes as of the last call that needed more of them.
    view: Mutex<Bytes>,
}

impl Segment {
    /// Maps a file of `size` bytes, the first `published` of which are records; if `is_written`, for appends after
    /// them.
    pub(crate) fn map(
        file: Arc<dyn DiskFile>,
        base: u64,
        path: PathBuf,
        size: u64,
        (published, is_written): (u64, bool),
    ) -> Result<(Self, Option<Appender>), StoreError> {
        let region = file.map(size as usize, is_written).map_err(StoreError::io(&path, "map into memory"))?;
        let claimed = match is_written {
            true => region.claim_log(published as usize).map(|(appender, reader)| (Some(appender), reader)),
            false => region.claim_file(published as usize).map(|reader| (None, reader)),
        };
        let Some((appender, reader)) = claimed else {
            let expected = "expected a mapping that has not been claimed".to_owned();
            return Err(StoreError::Layout { path, expected });
        };
        Ok((Self { base, path, file, region, reader, view: Mutex::default() }, appender))
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn size(&self) -> usize {
        self.region.len()
    }

    /// Returns the position after the last byte the file can hold.
    pub(crate) fn limit(&self) -> u64 {
        self.base + self.size() as u64
    }

    pub(crate) fn published(&self) -> u64 {
        self.base + self.reader.published() as u64
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    /// Returns whether the readable bytes of `range` are in memory.
    pub(crate) fn is_resident(&self, range: Range<u64>) -> bool {
        let inside = |at: u64| at.saturating_sub(self.base) as usize;
        self.reader.is_resident(inside(range.start)..inside(range.end).min(self.reader.published()))
    }

    /// Returns the readable bytes from `at` on.
    pub(crate) fn bytes_from(&self, at: u64) -> &[u8] {
        let start = at.saturating_sub(self.base) as usize;
        self.reader.bytes(start..self.reader.published()).unwrap_or_default()
    }

    /// Returns readable bytes from the start of the file, up to `end` at least if those are readable.
    ///
    /// Slices of a view share its hold on the mapping: each costs a reference count and no allocation.
    pub(crate) fn view(&self, end: u64) -> Bytes {
        let mut view = self.view.lock();
        if self.base + (view.len() as u64) < end {
            *view = self.reader.slice(0..self.reader.published()).map(Bytes::from_owner).unwrap_or_default();
        }
        view.clone()
    }

    /// Makes the bytes of `range`, clipped to this segment, durable.
    pub(crate) fn sync(&self, range: Range<u64>) -> io::Result<()> {
        let range = self.clip(range);
        match self.region.is_writable() {
            _ if range.is_empty() => Ok(()),
            true => self.file.sync_map(&self.region, range),
            false => self.file.sync(),
        }
    }

    /// Makes the bytes before `end` readable. They are in the file and will not change.
    pub(crate) fn reveal(&self, end: u64) {
        self.reader.reveal(end.saturating_sub(self.base) as usize);
    }

    /// Durably zeroes everything after the first `used` bytes.
    pub(crate) fn zero_from(&self, used: u64) -> io::Result<()> {
        self.file.zero(used..self.size() as u64)?;
        self.file.sync()
    }

    /// Makes the bytes of `range`, clipped to this segment, durable by rewriting them.
    pub(crate) fn rewrite(&self, range: Range<u64>) -> io::Result<()> {
        let inside = self.clip(range);
        let mut at = inside.start;
        while at < inside.end {
            let end = inside.end.min(at + REWRITE_BYTES);
            let bytes = self.reader.bytes(at..end).unwrap_or_default().to_vec();
            self.file.write_at(&bytes, at as u64)?;
            at = end;
        }
        if inside.is_empty() { Ok(()) } else { self.file.sync() }
    }

    fn clip(&self, range: Range<u64>) -> Range<usize> {
        let inside = |at: u64| at.clamp(self.base, self.limit()).saturating_sub(self.base) as usize;
        inside(range.start)..inside(range.end)
    }
}
