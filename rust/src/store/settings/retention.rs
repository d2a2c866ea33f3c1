//! Retention: the rule for deleting old files, and for refusing messages on a full disk.
//!
//! Owns the rule but no file. From the time, the space on the disk and the age of a file it decides whether the file
//! may be deleted, whether messages are accepted, and which times are credible. `expiry` applies it.
//!
//! Threads: any; pure.

use std::time::Duration;

use crate::clock::Clock;
use crate::store::disk::Space;

const HOUR_MS: u64 = 3_600_000;
/// A clock that jumps ahead by this much may be wrong: nothing expires until it has kept the new time for as long. A
/// smaller jump deletes messages too early by at most that much.
const JUMP: Duration = Duration::from_millis(HOUR_MS);

/// The retention of messages, and the behavior on a full disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Retention {
    /// Age of its newest message at which a file expires, in milliseconds.
    pub reserved_ms: u64,
    /// Hours of the day, 0 to 23, in which expired files are deleted.
    pub delete_hours: Vec<u8>,
    /// Local time minus UTC, in milliseconds: hours are local.
    pub utc_offset_ms: i64,
    /// The disk usage from which on expired files are deleted at any hour, in percent.
    pub expire_percent: u8,
    /// The disk usage from which on the oldest file is deleted even if it has not expired, in percent; `None` for
    /// never.
    pub force_percent: Option<u8>,
    /// The disk usage from which on messages are refused, in percent.
    pub full_percent: u8,
    /// Whether pending messages prevent the deletion of an expired file.
    pub keeps_waiting: bool,
    /// The free bytes below which messages are refused, too, so that writes in progress can be completed.
    pub free_bytes_min: u64,
}

/// Keeps everything as long as the disk has space; `rmqpy.config.store` declares the operator's settings.
impl Default for Retention {
    fn default() -> Self {
        Self {
            reserved_ms: u64::MAX,
            delete_hours: Vec::new(),
            utc_offset_ms: 0,
            expire_percent: 100,
            force_percent: None,
            full_percent: 100,
            keeps_waiting: false,
            free_bytes_min: 64 << 20,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deletable {
    /// No file may be deleted at this hour.
    Nothing,
    /// Files whose newest message was stored before this time, in milliseconds.
    StoredBefore(i64),
    /// The oldest files, until there is space.
    Oldest,
}

impl Retention {
    /// Returns the files that may be deleted now, given the space.
    pub(crate) fn deletable(&self, now_ms: u64, space: Space) -> Deletable {
        let used = space.used_percent();
        if self.force_percent.is_some_and(|percent| used >= percent) {
            return Deletable::Oldest;
        }
        let local_ms = now_ms.saturating_add_signed(self.utc_offset_ms);
        let hour = (local_ms / HOUR_MS % 24) as u8;
        if self.delete_hours.contains(&hour) || self.is_short(space) {
            return Deletable::StoredBefore(self.expired_before(now_ms));
        }
        Deletable::Nothing
    }

    /// Returns the time, in milliseconds, before which the newest message of an expired file was stored.
    pub(crate) fn expired_before(&self, now_ms: u64) -> i64 {
        now_ms.saturating_sub(self.reserved_ms) as i64
    }

    /// Returns whether expired files are deleted at any hour.
    pub(crate) fn is_short(&self, space: Space) -> bool {
        space.used_percent() >= self.expire_percent
    }

    /// Returns whether messages are refused.
    pub(crate) fn is_full(&self, space: Space) -> bool {
        self.is_out_of_bytes(space) || space.total > 0 && space.used_percent() >= self.full_percent
    }

    /// Returns whether writes in progress could not be completed.
    pub(crate) fn is_out_of_bytes(&self, space: Space) -> bool {
        space.total > 0 && space.free < self.free_bytes_min
    }
}

/// Returns an upper bound for the store time of a file's newest message; `None` while it is unknown. `first` is the
/// store time of the file's first message, `later` are those of the following files, in order.
///
/// A message of a later file was stored later. A store time counts only if the clock has reached it, because
/// otherwise the clock that set it was ahead, and if it is not before `first`, because otherwise that clock was
/// behind.
pub(crate) fn newest_of(
    first: Option<i64>,
    mut later: impl Iterator<Item = i64>,
    now_ms: u64,
) -> Option<i64> {
    let now = now_ms as i64;
    let first = first.filter(|first| *first <= now).unwrap_or(i64::MIN);
    later.find(|time| (first..=now).contains(time))
}

/// Detects jumps of the wall clock against monotonic time.
pub(crate) struct ClockWatch {
    /// Wall time at monotonic time 0, as of the last check.
    origin_ms: i64,
    /// The time of the last jump ahead.
    jumped_at: Option<Duration>,
}

impl ClockWatch {
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        Self { origin_ms: origin_ms(clock), jumped_at: None }
    }

    /// Compares the clocks, every round.
    pub(crate) fn check(&mut self, clock: &dyn Clock) {
        let before = std::mem::replace(&mut self.origin_ms, origin_ms(clock));
        if self.origin_ms.saturating_sub(before) >= JUMP.as_millis() as i64 {
            self.jumped_at = Some(clock.elapsed());
        }
    }

    /// Returns whether the clock jumped ahead recently.
    pub(crate) fn has_jumped(&self, clock: &dyn Clock) -> bool {
        self.jumped_at.is_some_and(|at| clock.elapsed().saturating_sub(at) < JUMP)
    }
}

fn origin_ms(clock: &dyn Clock) -> i64 {
    clock.wall_ms() as i64 - clock.elapsed().as_millis() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_credible_time_behind_a_file_bounds_its_age() {
        let now = 1_000;
        for (first, later, expected) in [
            (Some(100), &[200, 300][..], Some(200)),
            (Some(100), &[100], Some(100)),
            // The clock was ahead after it, or when it began, or still is.
            (Some(100), &[5_000, 6_000, 300], Some(300)),
            (Some(5_000), &[6_000, 300], Some(300)),
            (Some(5_000), &[6_000], None),
            // The clock was behind after it.
            (Some(100), &[1, 2, 300, 3], Some(300)),
            (Some(100), &[1, 2], None),
            // Its first message is damaged, and it is the last file.
            (None, &[200], Some(200)),
            (Some(100), &[], None),
        ] {
            assert_eq!(newest_of(first, later.iter().copied(), now), expected, "{first:?}, {later:?}");
        }
    }

    const FOUR: u64 = 1_700_000_000_000 / (24 * HOUR_MS) * 24 * HOUR_MS + 4 * HOUR_MS;

    /// Kept for three days, deleted at four o'clock, or at any hour when three quarters of the disk are in use.
    fn rule() -> Retention {
        let (reserved_ms, delete_hours) = (72 * HOUR_MS, vec![4]);
        Retention { reserved_ms, delete_hours, expire_percent: 75, ..Retention::default() }
    }

    fn used(percent: u64) -> Space {
        Space { free: 1000 - percent * 10, total: 1000 }
    }

    #[test]
    fn expired_files_go_at_their_hour_or_when_space_is_short() {
        let retention = Retention { reserved_ms: HOUR_MS, ..rule() };
        let expired = |now: u64| Deletable::StoredBefore((now - HOUR_MS) as i64);
        for (now, space, expected) in [
            (FOUR, used(10), expired(FOUR)),
            (FOUR + HOUR_MS - 1, used(10), expired(FOUR + HOUR_MS - 1)),
            (FOUR - 1, used(10), Deletable::Nothing),
            (FOUR + HOUR_MS, used(74), Deletable::Nothing),
            (FOUR + HOUR_MS, used(75), expired(FOUR + HOUR_MS)),
            (FOUR + HOUR_MS, used(100), expired(FOUR + HOUR_MS)),
        ] {
            assert_eq!(retention.deletable(now, space), expected, "at {now} with {space:?}");
        }
    }

    #[test]
    fn hours_are_local() {
        let retention = Retention { utc_offset_ms: 2 * HOUR_MS as i64, ..rule() };
        assert_ne!(retention.deletable(FOUR - 2 * HOUR_MS, used(10)), Deletable::Nothing);
        assert_eq!(retention.deletable(FOUR, used(10)), Deletable::Nothing);
    }

    #[test]
    fn files_that_have_not_expired_are_deleted_only_if_allowed() {
        let forced = Retention { force_percent: Some(85), ..rule() };
        assert_eq!(forced.deletable(FOUR, used(85)), Deletable::Oldest);
        assert_ne!(forced.deletable(FOUR, used(84)), Deletable::Oldest);
        assert_ne!(rule().deletable(FOUR, used(99)), Deletable::Oldest);
    }

    #[test]
    fn a_disk_is_full_by_share_or_by_bytes() {
        let by =
            |full_percent, free_bytes_min| Retention { full_percent, free_bytes_min, ..Retention::default() };
        assert!(by(90, 0).is_full(used(90)));
        assert!(!by(90, 0).is_full(used(89)));
        assert!(by(100, 101).is_full(used(90)));
        assert!(!by(100, 100).is_full(used(90)));
        assert!(!by(90, 100).is_full(Space { free: 0, total: 0 }), "unknown space");
    }
}
