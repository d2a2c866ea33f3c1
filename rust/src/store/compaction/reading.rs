//! Reading: ranges of a compacted queue.
//!
//! An offset without a message leads to the next message. Files are read, not mapped: a round replaces them.
//!
//! Threads: the thread for cold reads; a pop reads the same range again on its I/O thread.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::message::record::RecordView;
use crate::positions::QueueOffset;
use crate::store::disk::{DiskFile, Open, name_of};
use crate::store::error::StoreError;
use crate::store::read::lookup::{Get, GetResult, GetStatus, ReadFilter};

use super::layout::{FilePair, SparseUnit};
use super::queue::CompactedQueue;
use super::scan::{UnitReader, read_record};

/// The fewest units that a read examines, as in ordinary queues: a filter may reject most.
const EXAMINED_UNITS_MIN: u64 = 800;
/// The range of the size limit of one read.
const READ_BYTES: std::ops::RangeInclusive<usize> = 100..=128 << 20;

/// The progress of a read.
struct Reading<'a, 'f> {
    ask: &'a Get,
    bytes_max: usize,
    filter: &'a mut ReadFilter<'f>,
    examined_left: u64,
    /// The messages that were found.
    found: BytesMut,
    count: u32,
    record: Vec<u8>,
}

enum Step {
    Next,
    /// Nothing from this unit on is returned.
    Stop,
}

impl CompactedQueue {
    /// Reads a range that begins before `next`.
    pub(super) fn read(
        &self,
        ask: &Get,
        filter: &mut ReadFilter<'_>,
        into: &mut GetResult,
    ) -> Result<(), StoreError> {
        into.slices.clear();
        (into.bytes, into.count) = (0, 0);
        let files = self.files.read();
        if files.is_torn {
            let reason = format!("the files of {} are being replaced", self.key);
            return Err(StoreError::InDoubt { reason });
        }
        let next = QueueOffset(self.next());
        let first = files.pairs.iter().find(|pair| pair.units > 0);
        into.min = first.map_or(next, |pair| QueueOffset(pair.first));
        into.max = next;
        let mut reading = Reading {
            ask,
            bytes_max: ask.bytes_max.clamp(*READ_BYTES.start(), *READ_BYTES.end()),
            filter,
            examined_left: EXAMINED_UNITS_MIN.max(u64::from(ask.messages_max)),
            found: BytesMut::new(),
            count: 0,
            record: Vec::new(),
        };
        // Behind the last message, the end of the queue is next.
        into.next_begin = next.max(ask.offset);
        for pair in files.pairs.iter().filter(|pair| pair.units > 0 && pair.last >= ask.offset.0) {
            if let Some(stopped_at) = self.read_pair(pair, &mut reading)? {
                into.next_begin = QueueOffset(stopped_at);
                break;
            }
        }
        (into.bytes, into.count) = (reading.found.len(), reading.count);
        into.status = if into.count > 0 { GetStatus::Found } else { GetStatus::NoMatchedMessage };
        if into.count > 0 {
            into.slices.push(Bytes::from(reading.found));
        }
        Ok(())
    }

    /// Reads a pair from the requested offset on. Returns the offset where the read stopped before the end.
    fn read_pair(&self, pair: &FilePair, reading: &mut Reading<'_, '_>) -> Result<Option<u64>, StoreError> {
        let path = self.folders.log.join(name_of(pair.base));
        let log = self.disk.open(&path, Open::Read).map_err(StoreError::io(&path, "open"))?;
        let mut units = UnitReader::open(&self.disk, &self.folders, pair.base)?;
        let first = units.first_from(pair, reading.ask.offset.0)?;
        for index in first..pair.units {
            let Some(unit) = units.unit(index)? else { break };
            let step = reading.take(&log, pair.base, &unit).map_err(StoreError::io(&path, "read"))?;
            if matches!(step, Step::Stop) {
                return Ok(Some(unit.offset));
            }
        }
        Ok(None)
    }
}

impl Reading<'_, '_> {
    fn take(&mut self, log: &Arc<dyn DiskFile>, base: u64, unit: &SparseUnit) -> std::io::Result<Step> {
        let is_full = self.count > 0
            && (self.count >= self.ask.messages_max
                || self.found.len() + unit.size as usize > self.bytes_max);
        if is_full || self.examined_left == 0 {
            return Ok(Step::Stop);
        }
        self.examined_left -= 1;
        if let ReadFilter::Codes(accept) = &mut self.filter
            && !accept(unit.tags_code)
        {
            return Ok(Step::Next);
        }
        // A damaged record is passed, like a missing one.
        if !read_record(&**log, base, unit, &mut self.record)? {
            return Ok(Step::Next);
        }
        if let ReadFilter::Properties(select) = &mut self.filter {
            let record = RecordView::parse(&self.record).ok();
            match record.map_or(Some(false), |record| select(record.properties())) {
                Some(true) => {}
                Some(false) => return Ok(Step::Next),
                None => return Ok(Step::Stop),
            }
        }
        self.found.extend_from_slice(&self.record);
        self.count += 1;
        Ok(Step::Next)
    }
}
