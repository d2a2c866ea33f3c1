//! Writer: appends records and their units to pairs of files.
//!
//! A record goes to the log file, then its unit to the queue file. When either file is full, both are ended and synced
//! before the next pair is created, so only the last pair may have unsynced bytes.
//!
//! *Invariant*: a unit is written after its record; `files` lists the written ones.

use std::path::Path;
use std::sync::Arc;

use crate::message::record::{RecordView, encode_blank};
use crate::store::disk::{Disk, DiskFile, Open, name_of};
use crate::store::error::StoreError;

use super::layout::{BLANK_BYTES, FileBytes, FilePair, Folders, SparseUnit, UNIT_BYTES};

/// Bytes of records per write.
const WRITE_BYTES: usize = 1 << 20;
/// Place of the position in a record.
const POSITION_AT: usize = 28;

/// The pair that takes new records.
struct OpenPair {
    log: Arc<dyn DiskFile>,
    queue: Arc<dyn DiskFile>,
    /// With records that are not written yet.
    pair: FilePair,
    is_unsynced: bool,
}

pub(super) struct Writer {
    disk: Arc<dyn Disk>,
    folders: Folders,
    bytes: FileBytes,
    /// Position of the first file.
    begin: u64,
    files: Vec<FilePair>,
    open: Option<OpenPair>,
    /// Whether the last file may take more records.
    continues: bool,
    records: Vec<u8>,
    units: Vec<u8>,
}

impl Writer {
    /// Continues `files`; the first of none begins at `begin`.
    pub(super) fn new(
        disk: &Arc<dyn Disk>,
        folders: Folders,
        bytes: FileBytes,
        begin: u64,
        files: Vec<FilePair>,
    ) -> Self {
        Self {
            disk: Arc::clone(disk),
            folders,
            bytes,
            begin,
            files,
            open: None,
            continues: true,
            records: Vec::new(),
            units: Vec::new(),
        }
    }

    /// Returns the pairs of files, as far as they are written.
    pub(super) fn files(&self) -> &[FilePair] {
        &self.files
    }

    /// Returns whether a record of this size fits into any file.
    pub(super) fn takes(&self, size: usize) -> bool {
        size as u64 + BLANK_BYTES <= self.bytes.log
    }

    /// Adds a record behind those added before. It is in the files after `write`; after an error it is not added.
    pub(super) fn push(&mut self, record: &RecordView<'_>) -> Result<(), StoreError> {
        let size = record.total_size() as u64;
        // Before the record is added: after an error, the caller adds it again.
        if self.records.len() >= WRITE_BYTES {
            self.write()?;
        }
        if self.open.is_none() && self.continues {
            self.reopen()?;
        }
        let (bytes, units_max) = (self.bytes, self.bytes.units_max());
        let has_room =
            |open: &OpenPair| open.pair.units < units_max && open.pair.end + size + BLANK_BYTES <= bytes.log;
        if !self.open.as_ref().is_some_and(has_room) {
            self.end_file()?;
            self.begin_file()?;
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let unit = SparseUnit::of(record, open.pair.base + open.pair.end);
        let start = self.records.len();
        self.records.extend_from_slice(record.bytes());
        if let Some(position) = self.records.get_mut(start + POSITION_AT..start + POSITION_AT + 8) {
            position.copy_from_slice(&unit.position.to_be_bytes());
        }
        self.units.extend_from_slice(&unit.encode());
        open.pair.add(&unit);
        Ok(())
    }

    /// Writes the records added before. After an error, the next call writes them again.
    pub(super) fn write(&mut self) -> Result<(), StoreError> {
        let (Some(open), Some(written)) = (&mut self.open, self.files.last_mut()) else { return Ok(()) };
        if self.units.is_empty() {
            return Ok(());
        }
        open.is_unsynced = true;
        let name = name_of(open.pair.base);
        let (log, queue) = (self.folders.log.join(&name), self.folders.queue.join(&name));
        open.log.write_at(&self.records, written.end).map_err(StoreError::io(&log, "write"))?;
        let at = written.units * UNIT_BYTES as u64;
        open.queue.write_at(&self.units, at).map_err(StoreError::io(&queue, "write"))?;
        *written = open.pair;
        self.records.clear();
        self.units.clear();
        Ok(())
    }

    /// Makes everything written durable.
    pub(super) fn sync(&mut self) -> Result<(), StoreError> {
        let Some(open) = self.open.as_mut().filter(|open| open.is_unsynced) else { return Ok(()) };
        let name = name_of(open.pair.base);
        open.log.sync().map_err(StoreError::io(&self.folders.log.join(&name), "sync"))?;
        open.queue.sync().map_err(StoreError::io(&self.folders.queue.join(&name), "sync"))?;
        open.is_unsynced = false;
        Ok(())
    }

    /// Ends the last file, durably: the next record goes to a new one.
    pub(super) fn end_file(&mut self) -> Result<(), StoreError> {
        self.write()?;
        let Some(open) = &mut self.open else { return Ok(()) };
        let name = name_of(open.pair.base);
        let (log, queue) = (self.folders.log.join(&name), self.folders.queue.join(&name));
        open.is_unsynced = true;
        let mut blank = [0; BLANK_BYTES as usize];
        encode_blank(&mut blank, (self.bytes.log - open.pair.end) as u32);
        open.log.write_at(&blank, open.pair.end).map_err(StoreError::io(&log, "end"))?;
        let at = open.pair.units * UNIT_BYTES as u64;
        open.queue.write_at(&SparseUnit::END, at).map_err(StoreError::io(&queue, "end"))?;
        self.sync()?;
        (self.open, self.continues) = (None, false);
        Ok(())
    }

    /// Makes the next record go to a new file, also if none is open.
    pub(super) fn stop_continuing(&mut self) {
        self.continues = false;
    }

    /// Lets the last file take more records again.
    pub(super) fn continue_last(&mut self) {
        self.continues = true;
    }

    /// Replaces the list of files, none of which has unwritten records.
    pub(super) fn replace(&mut self, files: Vec<FilePair>) {
        self.files = files;
        // Without a newer file, the last one of the result takes the next records.
        self.continues = true;
    }

    /// Forgets everything that is not written, and the open files.
    pub(super) fn reset(&mut self, files: Vec<FilePair>) {
        (self.open, self.continues, self.files) = (None, true, files);
        self.records.clear();
        self.units.clear();
    }

    /// Creates the next pair of files, empty, with entries that are durable.
    pub(super) fn begin_file(&mut self) -> Result<(), StoreError> {
        let base = self.files.last().map_or(self.begin, |last| last.base + self.bytes.log);
        let name = name_of(base);
        let create = |dir: &Path, size: u64| {
            self.disk.make_dir(dir)?;
            let path = dir.join(&name);
            let file = self.disk.open(&path, Open::Create).map_err(StoreError::io(&path, "create"))?;
            file.resize(size).map_err(StoreError::io(&path, "extend"))?;
            self.disk.sync_entries(dir)?;
            Ok::<_, StoreError>(file)
        };
        let queue = create(&self.folders.queue, self.bytes.queue)?;
        let log = create(&self.folders.log, self.bytes.log)?;
        let pair = FilePair::empty(base);
        self.files.push(pair);
        self.open = Some(OpenPair { log, queue, pair, is_unsynced: true });
        self.continues = true;
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        let Some(pair) = self.files.last().copied() else { return Ok(()) };
        let name = name_of(pair.base);
        let open = |dir: &Path| {
            let path = dir.join(&name);
            self.disk.open(&path, Open::Write).map_err(StoreError::io(&path, "open"))
        };
        let (log, queue) = (open(&self.folders.log)?, open(&self.folders.queue)?);
        self.open = Some(OpenPair { log, queue, pair, is_unsynced: false });
        Ok(())
    }
}
