//! I/O ranges: adjacent records that a read returns as one slice.
//!
//! Invariant: a slice holds records that match their queue entries, and lies in one file or one part of the write ring.
//! Threads: any.

use std::sync::Arc;

use bytes::Bytes;

use crate::store::derived::Unit;
use crate::store::log::{CommitLog, Part, Segment, is_entry_of};

/// A run of adjacent records.
#[derive(Default)]
pub(super) struct IoRange {
    source: Option<Source>,
    start: u64,
    size: usize,
}

/// The location of the last record of a run.
enum Source {
    /// A file, and the view that slices share.
    File(Arc<Segment>, Bytes),
    /// A part of the write ring, held only during the read. Its records are copied, because a reply may wait for its
    /// client while the part has to be recycled.
    Ring(Arc<Part>),
}

impl IoRange {
    /// Adds a record to the run, or begins a new run. Returns false if the record is not in the log. `offset` is that in
    /// the record, or `None` for any.
    pub(super) fn add(
        &mut self,
        log: &CommitLog,
        unit: &Unit,
        offset: Option<u64>,
        slices: &mut Vec<Bytes>,
    ) -> bool {
        let follows = self.size > 0 && unit.physical == self.start + self.size as u64;
        let is_same_source = self.source.as_ref().is_some_and(|source| source.holds(log, unit));
        if !(follows && is_same_source) {
            self.finish(slices);
            self.start = unit.physical;
        }
        if !is_same_source {
            self.source = Source::find(log, unit.physical);
        }
        let is_there = match &mut self.source {
            None => false,
            Some(Source::Ring(part)) => {
                unit.end() <= part.end()
                    && is_entry_of(part.bytes_from(unit.physical), unit.physical, unit, offset)
            }
            Some(Source::File(segment, view)) => {
                if unit.end() > segment.base() + view.len() as u64 {
                    *view = segment.view(unit.end());
                }
                unit.end() <= segment.base() + view.len() as u64
                    && is_entry_of(segment.bytes_from(unit.physical), unit.physical, unit, offset)
                    && log.checksums().is_sound(segment, unit.physical..unit.end())
            }
        };
        if is_there {
            self.size += unit.size as usize;
        }
        is_there
    }

    pub(super) fn finish(&mut self, slices: &mut Vec<Bytes>) {
        let run = self.start..self.start + self.size as u64;
        match &self.source {
            Some(Source::File(segment, view)) if self.size > 0 => {
                let inside = |at: u64| (at - segment.base()) as usize;
                slices.push(view.slice(inside(run.start)..inside(run.end)));
            }
            Some(Source::Ring(part)) if self.size > 0 => {
                slices.extend(part.bytes_from(run.start).get(..self.size).map(Bytes::copy_from_slice));
            }
            _ => {}
        }
        self.size = 0;
    }
}

impl Source {
    fn find(log: &CommitLog, at: u64) -> Option<Self> {
        match log.segments().part_at(at) {
            Some(part) => Some(Self::Ring(part)),
            None => log.segments().find(at).map(|segment| Self::File(segment, Bytes::new())),
        }
    }

    /// Returns whether a record can be read here. A record in the write ring may not be in its file yet.
    fn holds(&self, log: &CommitLog, unit: &Unit) -> bool {
        match self {
            Self::File(segment, _) => {
                let is_in_ring =
                    log.segments().write_ring().is_some_and(|ring| ring.begin() <= unit.physical);
                !is_in_ring && (segment.base()..segment.limit()).contains(&unit.physical)
            }
            Self::Ring(part) => part.base() <= unit.physical && unit.end() <= part.end(),
        }
    }
}
