//! Runs of neighbouring records, as a read collects them: one slice for each.
//!
//! Invariant: a slice holds records that are what their queue entries say, and lies in one file or one part of the spool.
//! Threads: any.

use std::sync::Arc;

use bytes::Bytes;

use crate::store::derived::Unit;
use crate::store::log::{CommitLog, Part, Segment, is_entry_of};

/// A run of neighbouring records.
#[derive(Default)]
pub(super) struct IoRange {
    source: Option<Source>,
    start: u64,
    size: usize,
}

/// Where the last record of a run lies.
enum Source {
    /// In a file, and what of it slices share.
    File(Arc<Segment>, Bytes),
    /// In a part of the spool. It is held as long as the read lasts, and what was found in it is copied: an answer may
    /// wait for its client, and the part is to begin anew.
    Spool(Arc<Part>),
}

impl IoRange {
    /// Adds a record to the run, or begins a new one; `false` when it is not in the log.
    pub(super) fn add(&mut self, log: &CommitLog, unit: &Unit, offset: u64, slices: &mut Vec<Bytes>) -> bool {
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
            Some(Source::Spool(part)) => {
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
            Some(Source::Spool(part)) if self.size > 0 => {
                slices.extend(part.bytes_from(run.start).get(..self.size).map(Bytes::copy_from_slice));
            }
            _ => {}
        }
        self.size = 0;
    }
}

impl Source {
    fn find(log: &CommitLog, at: u64) -> Option<Self> {
        match log.segments().spooled(at) {
            Some(part) => Some(Self::Spool(part)),
            None => log.segments().find(at).map(|segment| Self::File(segment, Bytes::new())),
        }
    }

    /// Whether a record can be read here; not in a file what is still in a spool, and in the file perhaps not yet.
    fn holds(&self, log: &CommitLog, unit: &Unit) -> bool {
        match self {
            Self::File(segment, _) => {
                let is_spooled = log.segments().spool().is_some_and(|spool| spool.begin() <= unit.physical);
                !is_spooled && (segment.base()..segment.limit()).contains(&unit.physical)
            }
            Self::Spool(part) => part.base() <= unit.physical && unit.end() <= part.end(),
        }
    }
}
