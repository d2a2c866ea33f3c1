//! Following: visible records in the order of the log, for readers that keep a position in it.
//!
//! *Invariant*: nothing from *visible* on is read. Blanks and damaged ranges are passed, because records follow them.
//! Threads: any that may block on the disk.

use crate::message::record::{RecordView, Scanned, scan};
use crate::positions::PhysicalOffset;
use crate::store::log::{Found, TrustBoundary, record_at, walk};

use crate::store::Store;

/// Size and magic of a record or a blank.
const HEAD_BYTES: usize = 8;

/// The part of the log that a follower has read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Followed {
    /// Where reading began: later than requested if the log begins later.
    pub begin: u64,
    /// Where to continue; equal to `begin` at the end of the visible log.
    pub next: u64,
    /// Bytes without readable records.
    pub damaged: u64,
}

impl Store {
    /// Calls `visit` with the visible records from `from` on, in order, until it returns false for one, which is then
    /// not passed, or until `bytes_max` bytes are passed.
    pub fn follow(
        &self,
        from: PhysicalOffset,
        bytes_max: u64,
        mut visit: impl FnMut(&RecordView<'_>) -> bool,
    ) -> Followed {
        let (segments, visible) = (self.log.segments(), self.visible().0);
        let begin = from.0.max(segments.begin());
        let mut followed = Followed { begin, next: begin, damaged: 0 };
        while followed.next < visible && followed.next - begin < bytes_max {
            let at = followed.next;
            if let Some(end) = self.end_of_record(at) {
                let is_passed = end <= visible && record_at(segments, at, &mut visit).unwrap_or(false);
                if !is_passed {
                    break;
                }
                followed.next = end;
            } else {
                let Some((next, is_damage)) = self.after_gap(at, visible) else { break };
                followed.next = next.min(visible);
                followed.damaged += if is_damage { followed.next - at } else { 0 };
            }
        }
        followed
    }

    /// Returns the end of the record at `at`; `None` if no sound one begins there.
    fn end_of_record(&self, at: u64) -> Option<u64> {
        let segments = self.log.segments();
        let end = at + record_at(segments, at, |record| record.total_size() as u64)?;
        let is_sound = segments.part_at(at).is_some()
            || segments.find(at).is_some_and(|segment| self.log.checksums().is_sound(&segment, at..end));
        is_sound.then_some(end)
    }

    /// Returns where records continue after a position without one, and whether bytes in between are damaged; `None`
    /// if the file was deleted.
    fn after_gap(&self, at: u64, visible: u64) -> Option<(u64, bool)> {
        let segments = self.log.segments();
        let segment = segments.find(at)?;
        let head = segments.slice(at, HEAD_BYTES);
        if matches!(head.as_deref().map(scan), Some(Scanned::Blank { .. })) || segments.part_at(at).is_some()
        {
            return Some((segment.limit(), false));
        }
        let limit = segments.write_ring().map_or(visible, |ring| ring.in_files().min(visible));
        let trust = TrustBoundary { durable: limit, checksums: self.log.checksums() };
        let walked = walk(segments, at, limit, trust, |found_at, found| match found {
            Found::Record(_) => Err(found_at),
            Found::Damage(_) => Ok(()),
        });
        let next = match walked {
            Err(next) | Ok((next, _)) => next,
        };
        Some((if next > at { next } else { segment.limit() }, true))
    }
}
