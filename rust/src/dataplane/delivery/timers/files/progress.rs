//! Timer progress: `config/timercheck`, 4096 bytes.
//!
//! ```text
//! 0   i64  all messages due by then are delivered          32  i64 × 3  data version: state, time, counter
//! 8   i64  end of the timer log                            56  8 bytes  mark of this broker
//! 16  i64  offset of the next message to read              64  i64      milliseconds of a slot
//! 24  i64  the same offset, as a master reports to slaves  72  u64      digest of the wheel
//!                                                          80  u32      CRC-32 of all before it
//! ```
//!
//! *Invariant*: all numbers are from the same moment. A torn write may leave older ones; then the mark is invalid,
//! the timer log is rebuilt, and messages are delivered again, none is lost.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::StoreError;
use crate::store::disk::{Disk, Open};

const FILE_BYTES: usize = 4096;
const MARK: &[u8; 8] = b"RMQPYTM2";
const MARK_AT: usize = 56;
const CRC_AT: usize = 80;

/// The state of timer log and wheel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogMark {
    pub(crate) end: u64,
    /// Milliseconds of a slot.
    pub(crate) precision_ms: u64,
    /// Digest of the slots that are not completely delivered.
    pub(crate) digest: u64,
}

/// The progress of the timers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct TimerProgress {
    /// Messages before `queue_offset` that were due by then have been delivered.
    pub(crate) delivered_ms: i64,
    pub(crate) queue_offset: u64,
    /// `None` if the timer log is not valid.
    pub(crate) log: Option<LogMark>,
}

/// The file and its version.
pub(crate) struct ProgressFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    version: i64,
}

impl ProgressFile {
    /// Reads the file. Without a file the progress is zero.
    pub(crate) fn load(disk: &Arc<dyn Disk>, root: &Path) -> Result<(Self, TimerProgress), StoreError> {
        let path = root.join("config").join("timercheck");
        let bytes = disk.read_front(&path, FILE_BYTES)?;
        let long = |at: usize| {
            let found = bytes.get(at..).and_then(|rest| rest.first_chunk().copied());
            found.map_or(0, i64::from_be_bytes)
        };
        let mut progress = TimerProgress {
            delivered_ms: long(0),
            queue_offset: u64::try_from(long(16)).unwrap_or(0),
            log: None,
        };
        let is_ours = bytes.get(MARK_AT..MARK_AT + 8) == Some(MARK)
            && bytes.get(CRC_AT..CRC_AT + 4) == Some(&crc32fast::hash(&bytes[..CRC_AT]).to_be_bytes());
        if let (true, Ok(end), Ok(precision_ms)) = (is_ours, long(8).try_into(), long(64).try_into()) {
            let mark = LogMark { end, precision_ms, digest: long(72).cast_unsigned() };
            progress.log = Some(mark).filter(|mark| mark.precision_ms > 0);
        }
        Ok((Self { disk: Arc::clone(disk), path, version: long(48) }, progress))
    }

    /// Writes the file, durably.
    pub(crate) fn save(&mut self, progress: &TimerProgress, now_ms: i64) -> Result<(), StoreError> {
        self.version = self.version.wrapping_add(1);
        let end = progress.log.map_or(0, |mark| mark.end);
        let offset = progress.queue_offset.cast_signed();
        let mut bytes = Vec::with_capacity(FILE_BYTES);
        for field in [progress.delivered_ms, end.cast_signed(), offset, offset, 0, now_ms, self.version] {
            bytes.extend_from_slice(&field.to_be_bytes());
        }
        if let Some(mark) = progress.log {
            bytes.extend_from_slice(MARK);
            bytes.extend_from_slice(&mark.precision_ms.to_be_bytes());
            bytes.extend_from_slice(&mark.digest.to_be_bytes());
            bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
        }
        bytes.resize(FILE_BYTES, 0);
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        self.disk.make_dir(dir)?;
        let write = || -> std::io::Result<()> {
            let file = self.disk.open(&self.path, Open::Create)?;
            let is_new = file.size()? != FILE_BYTES as u64;
            if is_new {
                file.resize(FILE_BYTES as u64)?;
            }
            file.write_at(&bytes, 0)?;
            file.sync()?;
            if is_new { self.disk.sync_dir(dir) } else { Ok(()) }
        };
        write().map_err(StoreError::io(&self.path, "write"))
    }
}
