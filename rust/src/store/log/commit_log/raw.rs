//! Raw append: records of a master's log, stored at the positions they have there.
//!
//! The caller has verified the records and their positions.
//!
//! Threads: the copier of the master's log.

use std::sync::atomic::Ordering;

use crate::store::derived::{DispatchRequest, LightPlace};
use crate::store::error::PutError;
use crate::store::log::conditions::Condition;
use crate::store::log::segments::Active;
use crate::store::log::write_path::{BLANK_BYTES_MIN, Blank};

use super::{CommitLog, NoRoom, Writer};

/// A whole record of a master's log, with the fields that the derived files need.
pub(crate) struct RawRecord<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) store_timestamp_ms: i64,
    /// `None` for a record whose queue this store cannot have. Moved out by the append.
    pub(crate) dispatch: Option<DispatchRequest>,
}

/// The reason why a record was not appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RawStop {
    NoRoom(NoRoom),
    /// No part of the write ring has room for the contiguous bytes.
    LargerThanParts,
    /// The offset does not follow the last one of the queue.
    OutOfTurn,
    /// The queue was deleted.
    QueueGone,
    Refused(PutError),
}

impl CommitLog {
    /// Sets whether the log is a copy of another.
    pub(crate) fn set_replica(&self, is_replica: bool) {
        let _writer = self.writer.lock();
        self.conditions.set(Condition::Replica, is_replica);
    }

    pub(crate) fn is_replica(&self) -> bool {
        self.conditions.has(Condition::Replica)
    }

    /// Appends consecutive records at the end of the log, all in its newest file. Returns how many were appended,
    /// and the reason why the next one was not.
    pub(crate) fn append_raw(&self, records: &mut [RawRecord<'_>]) -> (usize, Option<RawStop>) {
        let mut writer = self.writer.lock();
        let mut done = 0;
        let mut stop = None;
        for record in records {
            stop = self.place_raw(&mut writer, record).err();
            if stop.is_some() {
                break;
            }
            done += 1;
        }
        self.publish(&mut writer);
        (done, stop)
    }

    fn place_raw(&self, writer: &mut Writer, record: &mut RawRecord<'_>) -> Result<(), RawStop> {
        self.check_open().map_err(RawStop::Refused)?;
        let size = record.bytes.len();
        if (size + BLANK_BYTES_MIN) as u64 > writer.file_room() {
            return Err(RawStop::Refused(PutError::TooLarge));
        }
        if let Some(dispatch) = &record.dispatch {
            let is_gone = |place: &LightPlace| place.queue.is_deleted();
            if dispatch.queue.is_deleted() || dispatch.lights().iter().any(is_gone) {
                return Err(RawStop::QueueGone);
            }
            let is_out_of_turn = dispatch.is_queued() && dispatch.queue.next() != dispatch.queue_offset;
            if is_out_of_turn || dispatch.lights().iter().any(LightPlace::is_out_of_turn) {
                return Err(RawStop::OutOfTurn);
            }
        }
        if !writer.has_ring_room(1) {
            return Err(RawStop::NoRoom(NoRoom::Flush));
        }
        self.check_room(writer, size)?;
        let Some(into) = writer.write_path.append(size) else {
            return Err(RawStop::NoRoom(NoRoom::Flush));
        };
        into.copy_from_slice(record.bytes);
        writer.end += size as u64;
        writer.store_timestamp_ms = record.store_timestamp_ms;
        if let Some(dispatch) = record.dispatch.take() {
            if dispatch.is_queued() {
                dispatch.queue.advance_next();
            }
            dispatch.lights().iter().for_each(|place| place.queue.advance_next());
            writer.lights += dispatch.lights().len();
            writer.ring.push(dispatch);
        }
        Ok(())
    }

    /// Checks that the write path accepts this number of contiguous bytes. A part of the write ring may be smaller than the
    /// master's.
    fn check_room(&self, writer: &Writer, size: usize) -> Result<(), RawStop> {
        match writer.write_path.has_room(size) {
            true => Ok(()),
            false if size as u64 > self.group_bytes_max => Err(RawStop::LargerThanParts),
            false => Err(RawStop::NoRoom(NoRoom::Flush)),
        }
    }

    /// Ends the newest file with the master's blank and continues in the next one.
    pub(crate) fn append_blank(&self, bytes: &[u8]) -> Result<(), RawStop> {
        let mut writer = self.writer.lock();
        self.check_open().map_err(RawStop::Refused)?;
        debug_assert_eq!(bytes.len() as u64, writer.file_room(), "a blank fills its file");
        let last = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let front = bytes.get(..last.max(BLANK_BYTES_MIN)).unwrap_or(bytes);
        let is_whole_file = bytes.len() == writer.segment.size();
        if front.len() > BLANK_BYTES_MIN || is_whole_file {
            self.check_room(&writer, front.len())?;
        }
        let Some((segment, appender)) = self.next.lock().take() else {
            self.conditions.set(Condition::WantsNext, true);
            return Err(match self.conditions.has(Condition::LacksSpace) {
                true => RawStop::Refused(PutError::DiskFull),
                false => RawStop::NoRoom(NoRoom::File),
            });
        };
        writer.enter(Blank { size: bytes.len(), bytes: front }, segment, appender);
        self.publish(&mut writer);
        Ok(())
    }

    /// Continues the empty log in `file`, its only file.
    pub(crate) fn begin_at(&self, (segment, appender): Active) {
        let mut writer = self.writer.lock();
        self.next.lock().take();
        writer.write_path.begin(segment.base(), appender);
        writer.end = segment.base();
        writer.segment = segment;
        self.published.store(writer.end, Ordering::Release);
    }
}
