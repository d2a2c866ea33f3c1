//! Checkpoint: the durable state of the store, in `checkpoint`, `abort` and the manifest.
//!
//! `checkpoint` is Apache's: up to which record log, queues and index are durable. `abort` exists while the
//! store is open. The manifest, `rmqpy/manifest`, is rmqpy's. It proves that rmqpy wrote these checkpoint bytes, so
//! that they are exact to the record; after an orderly stop it also names the end of the log and a digest of the
//! derived files. A manifest that does not match, because another broker ran in between or files were deleted, is
//! ignored.
//!
//! *Invariant*: a checkpoint names only positions that are durable in all files it covers.
//! Threads: recovery, then maintenance, then the thread that closes the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::disk::{Disk, Open};
use crate::store::error::{StoreError, unless_full};

use super::deleted_topics::DigestBase;

/// Size of the six numbers in the checkpoint file; the rest of the file is unused.
pub(crate) const CHECKPOINT_BYTES: usize = 48;
const CHECKPOINT_FILE_BYTES: u64 = 4096;
pub(crate) const MANIFEST_BYTES: usize = 104;
const MANIFEST_MAGIC: &[u8; 8] = b"RMQPYMK1";

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Checkpoint {
    /// The store time of the newest record that is durable in the log.
    pub(crate) log_timestamp_ms: i64,
    /// Store time of the newest record whose queue entry is durable.
    pub(crate) queue_timestamp_ms: i64,
    /// Store time of the newest key of the newest full index file.
    pub(crate) index_timestamp_ms: i64,
    /// The position that a master last sent to its slave; kept as found.
    pub(crate) master_flushed: i64,
    /// The confirm offset of controller mode; kept as found.
    pub(crate) confirmed: i64,
    /// Start of the newest record that is durable in the log, the queues and the index.
    pub(crate) record: i64,
}

impl Checkpoint {
    pub(crate) fn encode(&self) -> [u8; CHECKPOINT_BYTES] {
        let fields = [
            self.log_timestamp_ms,
            self.queue_timestamp_ms,
            self.index_timestamp_ms,
            self.master_flushed,
            self.confirmed,
            self.record,
        ];
        let mut bytes = [0; CHECKPOINT_BYTES];
        for (into, field) in bytes.chunks_exact_mut(8).zip(fields) {
            into.copy_from_slice(&field.to_be_bytes());
        }
        bytes
    }

    /// Decodes the first bytes of the file; missing ones at the end, as in files of older brokers, are 0.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let field = |index: usize| long_at(bytes, index * 8);
        Self {
            log_timestamp_ms: field(0),
            queue_timestamp_ms: field(1),
            index_timestamp_ms: field(2),
            master_flushed: field(3),
            confirmed: field(4),
            record: field(5),
        }
    }
}

/// The state of the store after an orderly stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CleanStop {
    pub(crate) log_end: u64,
    /// The start of the last record of the log, or its end without records.
    pub(crate) last_record: u64,
    /// CRC-32 of the whole last record.
    pub(crate) last_record_crc: u32,
    pub(crate) derived: u64,
}

/// The manifest: the checkpoint it belongs to, and the clean stop if there was one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Manifest {
    pub(crate) checkpoint: Checkpoint,
    /// Digest of the queues' units of records before the checkpoint's.
    pub(crate) queues: u64,
    pub(crate) clean_stop: Option<CleanStop>,
}

impl Manifest {
    pub(crate) fn base(&self) -> DigestBase {
        DigestBase { record: self.checkpoint.record, queues: self.queues }
    }

    fn encode(&self) -> [u8; MANIFEST_BYTES] {
        let stop = self.clean_stop.unwrap_or(CleanStop {
            log_end: 0,
            last_record: 0,
            last_record_crc: 0,
            derived: 0,
        });
        let mut bytes = Vec::with_capacity(MANIFEST_BYTES);
        bytes.extend_from_slice(MANIFEST_MAGIC);
        bytes.extend_from_slice(&self.checkpoint.encode());
        bytes.extend_from_slice(&self.queues.to_be_bytes());
        bytes.extend_from_slice(&stop.log_end.to_be_bytes());
        bytes.extend_from_slice(&stop.last_record.to_be_bytes());
        bytes.extend_from_slice(&stop.derived.to_be_bytes());
        bytes.extend_from_slice(&stop.last_record_crc.to_be_bytes());
        bytes.extend_from_slice(&u32::from(self.clean_stop.is_some()).to_be_bytes());
        bytes.resize(MANIFEST_BYTES - 4, 0);
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
        let mut manifest = [0; MANIFEST_BYTES];
        manifest.copy_from_slice(&bytes);
        manifest
    }

    /// Decodes a manifest; returns `None` when the bytes are not valid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, crc) = bytes.get(..MANIFEST_BYTES)?.split_last_chunk::<4>()?;
        let body = body.strip_prefix(MANIFEST_MAGIC.as_slice())?;
        let (checkpoint, stop) = body.split_first_chunk::<CHECKPOINT_BYTES>()?;
        let number = |at| long_at(stop, at) as u64;
        if crc32fast::hash(bytes.get(..MANIFEST_BYTES - 4)?) != u32::from_be_bytes(*crc) {
            return None;
        }
        let clean_stop = CleanStop {
            log_end: number(8),
            last_record: number(16),
            derived: number(24),
            last_record_crc: (number(32) >> 32) as u32,
        };
        let is_clean = number(32) as u32 == 1;
        Some(Self {
            checkpoint: Checkpoint::decode(checkpoint),
            queues: number(0),
            clean_stop: is_clean.then_some(clean_stop),
        })
    }
}

pub(crate) struct CheckpointFiles {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    checkpoint: PathBuf,
    abort: PathBuf,
    manifest: PathBuf,
    /// The base in the manifest on disk, if it matches the checkpoint.
    base: Mutex<Option<DigestBase>>,
}

impl CheckpointFiles {
    /// Returns whether the checkpoint in `root` names a message, which must be in the log then.
    pub(crate) fn names_a_record(disk: &dyn Disk, root: &Path) -> Result<bool, StoreError> {
        let checkpoint = Checkpoint::decode(&disk.read_front(&root.join("checkpoint"), CHECKPOINT_BYTES)?);
        Ok(checkpoint.log_timestamp_ms > 0)
    }

    /// Opens the files of the store in `root`; creates the folder of rmqpy if necessary.
    pub(crate) fn open(disk: Arc<dyn Disk>, root: &Path) -> Result<Self, StoreError> {
        let own = root.join("rmqpy");
        disk.make_dir(&own)?;
        Ok(Self {
            disk,
            root: root.to_owned(),
            checkpoint: root.join("checkpoint"),
            abort: root.join("abort"),
            manifest: own.join("manifest"),
            base: Mutex::default(),
        })
    }

    /// Loads the checkpoint, zeros if it does not exist, and the manifest, if it belongs to the checkpoint.
    pub(crate) fn load(&self) -> Result<(Checkpoint, Option<Manifest>), StoreError> {
        let checkpoint = self.disk.read_front(&self.checkpoint, CHECKPOINT_BYTES)?;
        let checkpoint = Checkpoint::decode(&checkpoint);
        let manifest = Manifest::decode(&self.disk.read_front(&self.manifest, MANIFEST_BYTES)?);
        let manifest = manifest.filter(|manifest| manifest.checkpoint == checkpoint);
        *self.base.lock() = manifest.map(|manifest| manifest.base());
        Ok((checkpoint, manifest))
    }

    /// Returns the base that the next start finds; `None` if it finds no valid manifest.
    pub(crate) fn base(&self) -> Option<DigestBase> {
        *self.base.lock()
    }

    /// Durably writes checkpoint and manifest.
    pub(crate) fn save(
        &self,
        checkpoint: &Checkpoint,
        queues: u64,
        clean_stop: Option<CleanStop>,
    ) -> Result<(), StoreError> {
        *self.base.lock() = None;
        // The checkpoint first: between the two writes the manifest matches nothing, and recovery reads a little
        // more.
        self.write(&self.checkpoint, &checkpoint.encode(), CHECKPOINT_FILE_BYTES)?;
        let manifest = Manifest { checkpoint: *checkpoint, queues, clean_stop };
        self.write(&self.manifest, &manifest.encode(), MANIFEST_BYTES as u64)?;
        *self.base.lock() = Some(manifest.base());
        Ok(())
    }

    /// Makes the next start read the log from `base` on, the beginning of a file, without trusting what follows.
    pub(crate) fn step_back(&self, base: u64) -> Result<(), StoreError> {
        let (checkpoint, _) = self.load()?;
        self.disk.remove_durably(&self.manifest)?;
        // With record 0 the time determines where to begin, so it must not name a later record.
        let record = checkpoint.record.min(base as i64);
        let log_timestamp_ms = if record == 0 { 0 } else { checkpoint.log_timestamp_ms };
        let checkpoint = Checkpoint { record, log_timestamp_ms, ..checkpoint };
        self.write(&self.checkpoint, &checkpoint.encode(), CHECKPOINT_FILE_BYTES)
    }

    /// Returns whether the store was not closed in order.
    pub(crate) fn is_aborted(&self) -> Result<bool, StoreError> {
        let entries = self.disk.entries(&self.root)?;
        Ok(entries.iter().any(|entry| entry.name == "abort"))
    }

    /// Durably creates the abort file before anything changes: a power loss must not make a dirty store look clean.
    /// Also makes the directories created so far durable.
    pub(crate) fn begin(&self) -> Result<(), StoreError> {
        let process = std::process::id().to_string();
        // An empty file has the same meaning and needs no space.
        if unless_full(self.write(&self.abort, process.as_bytes(), process.len() as u64))?.is_some() {
            let made = self.disk.open(&self.abort, Open::Create);
            made.and_then(|file| file.sync()).map_err(StoreError::io(&self.abort, "create"))?;
        }
        for dir in self.root.ancestors().take(2) {
            self.disk.sync_entries(dir)?;
        }
        Ok(())
    }

    /// Durably removes the abort file, after an orderly close.
    pub(crate) fn end(&self) -> Result<(), StoreError> {
        self.disk.remove_durably(&self.abort)
    }

    fn write(&self, path: &Path, bytes: &[u8], size: u64) -> Result<(), StoreError> {
        let file = self.disk.open(path, Open::Create).map_err(StoreError::io(path, "create"))?;
        let is_new = file.size().map_err(StoreError::io(path, "measure"))? != size;
        if is_new {
            file.resize(size).map_err(StoreError::io(path, "extend"))?;
        }
        file.write_at(bytes, 0).map_err(StoreError::io(path, "write"))?;
        file.sync().map_err(StoreError::io(path, "sync"))?;
        match path.parent() {
            Some(dir) if is_new => self.disk.sync_entries(dir),
            _ => Ok(()),
        }
    }
}

fn long_at(bytes: &[u8], at: usize) -> i64 {
    let mut long = [0; 8];
    long.iter_mut().zip(bytes.iter().skip(at)).for_each(|(into, byte)| *into = *byte);
    i64::from_be_bytes(long)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOP: CleanStop =
        CleanStop { log_end: 900, last_record: 800, last_record_crc: 0xDEAD_BEEF, derived: u64::MAX };

    #[test]
    fn a_manifest_reads_back_and_a_flipped_bit_invalidates_it() {
        for clean_stop in [None, Some(STOP)] {
            let checkpoint = Checkpoint { log_timestamp_ms: 7, record: 800, ..Checkpoint::default() };
            let manifest = Manifest { checkpoint, queues: 12, clean_stop };
            let bytes = manifest.encode();
            assert_eq!(Manifest::decode(&bytes), Some(manifest));
            for bit in 0..MANIFEST_BYTES * 8 {
                let mut bytes = bytes;
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Manifest::decode(&bytes), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn a_short_checkpoint_of_an_older_broker_has_zeros_at_its_end() {
        let checkpoint =
            Checkpoint { log_timestamp_ms: 1, queue_timestamp_ms: 2, record: 6, ..Checkpoint::default() };
        let bytes = checkpoint.encode();
        assert_eq!(Checkpoint::decode(&bytes), checkpoint);
        assert_eq!(Checkpoint::decode(&bytes[..40]), Checkpoint { record: 0, ..checkpoint });
        assert_eq!(Checkpoint::decode(&[]), Checkpoint::default());
    }
}
