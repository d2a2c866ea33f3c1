//! Retention: when old files go, and when a disk is too full for new messages.
//!
//! Owns the rule and no file: given the time, the space on the disk and the age of a file, what may go, and whether
//! messages are still taken; and which times are to be believed. `expiry` asks it and does it.
//!
//! Threads: none of its own; pure.

use std::time::Duration;

use crate::clock::Clock;
use crate::store::disk::Space;

const HOUR_MS: u64 = 3_600_000;
/// A clock that jumps ahead by this much may be wrong: nothing expires until it has stayed so for as long. A smaller jump
/// deletes what is that much too young, at most.
const JUMP: Duration = Duration::from_millis(HOUR_MS);

/// How long messages are kept, and what happens when space runs out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Retention {
    /// A file expires so long after its newest message was stored, in milliseconds.
    pub reserved_ms: u64,
    /// Hours of the day, 0 to 23, in which expired files are deleted.
    pub delete_hours: Vec<u8>,
    /// What local time is ahead of UTC, in milliseconds: hours are meant locally.
    pub utc_offset_ms: i64,
    /// Share of the disk in use from which on expired files are deleted at any hour, in percent.
    pub expire_percent: u8,
    /// Share of the disk in use from which on the oldest file is deleted whether it has expired or not, in percent;
    /// `None`: never.
    pub force_percent: Option<u8>,
    /// Share of the disk in use from which on messages are refused, in percent.
    pub full_percent: u8,
    /// An expired file stays while a message in it waits for its time or a decision.
    pub keeps_waiting: bool,
    /// Messages are refused, too, while fewer bytes are free: what is being written can then be finished.
    pub free_bytes_min: u64,
}

/// Keeps everything, as long as the disk has room: what an operator wants is declared in `rmqpy.config.store`.
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
    /// None, at this hour.
    Nothing,
    /// Those whose newest message was stored before this time, in milliseconds.
    StoredBefore(i64),
    /// The oldest ones, until there is room.
    Oldest,
}

impl Retention {
    /// Which files may go at this time, with so much space.
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

    /// Files whose newest message was stored before this time have expired, in milliseconds.
    pub(crate) fn expired_before(&self, now_ms: u64) -> i64 {
        now_ms.saturating_sub(self.reserved_ms) as i64
    }

    /// Whether expired files cannot wait for their hour.
    pub(crate) fn is_short(&self, space: Space) -> bool {
        space.used_percent() >= self.expire_percent
    }

    /// Whether messages have to be refused.
    pub(crate) fn is_full(&self, space: Space) -> bool {
        self.is_out_of_bytes(space) || space.total > 0 && space.used_percent() >= self.full_percent
    }

    /// Whether what is being written could not be finished.
    pub(crate) fn is_out_of_bytes(&self, space: Space) -> bool {
        space.total > 0 && space.free < self.free_bytes_min
    }
}

/// When the newest message of a file was stored, at the latest; `None` when it cannot be told yet. `first` is the store
/// time of the file's own first message, `later` are those of the files behind it, in order.
///
/// What stands behind it in the log came after it. Store times fall where a clock was set back, so one counts only if the
/// clock has reached it: else the clock that made it was ahead. And only if it is not before `first`: else the clock was
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

/// Whether the wall clock goes with monotonic time.
pub(crate) struct ClockWatch {
    /// Wall time when monotonic time was 0, as it looked last.
    origin_ms: i64,
    /// When the wall clock jumped ahead last.
    jumped_at: Option<Duration>,
}

impl ClockWatch {
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        Self { origin_ms: origin_ms(clock), jumped_at: None }
    }

    /// Looks at the clock, which is done every round.
    pub(crate) fn check(&mut self, clock: &dyn Clock) {
        let before = std::mem::replace(&mut self.origin_ms, origin_ms(clock));
        if self.origin_ms.saturating_sub(before) >= JUMP.as_millis() as i64 {
            self.jumped_at = Some(clock.elapsed());
        }
    }

    /// Whether the clock has jumped ahead a short time ago.
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
    fn the_age_of_a_file_is_told_by_the_first_message_behind_it_whose_time_can_be_true() {
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
            // Its first message is damaged; there is nothing behind it.
            (None, &[200], Some(200)),
            (Some(100), &[], None),
        ] {
            assert_eq!(newest_of(first, later.iter().copied(), now), expected, "{first:?}, {later:?}");
        }
    }

    const FOUR: u64 = 1_700_000_000_000 / (24 * HOUR_MS) * 24 * HOUR_MS + 4 * HOUR_MS;

    /// Kept for three days, deleted at four, or at any hour when three quarters of the disk are in use.
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
    fn files_that_have_not_expired_go_only_where_that_was_asked_for() {
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
        assert!(!by(90, 100).is_full(Space { free: 0, total: 0 }), "not known");
    }
}
