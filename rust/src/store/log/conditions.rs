//! Conditions: refusals and shortages of a log, in one byte.
//!
//! Threads: any; conditions of admission change under the put lock, or are checked again by the next append.

use std::sync::atomic::Ordering;

use crate::store::sync::AtomicU8;

/// One condition of a log.
///
/// `Closed` is permanent, and the others have no effect with it. `Replica`, `Full` and `LacksSpace` are independent:
/// all combinations occur. `WantsNext` and `LacksSpace` end together, with the next file. `LacksFlush` begins with
/// `Stalled` and may outlast it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Condition {
    /// Refuses every append.
    Closed = 1,
    /// Copies another log, and refuses messages.
    Replica = 1 << 1,
    /// Refuses every append: the disk is full.
    Full = 1 << 2,
    /// The disk has no space for the next file: a record must fit into the active file.
    LacksSpace = 1 << 3,
    /// An append waits for the next file.
    WantsNext = 1 << 4,
    /// An append timed out waiting for room. Until room exists, other appends fail immediately: their senders can
    /// fail over to another broker, and the thread serves its other connections.
    Stalled = 1 << 5,
    /// An append failed because no flush had made room.
    LacksFlush = 1 << 6,
}

/// The conditions of a log at one moment.
#[derive(Clone, Copy)]
pub(super) struct Snapshot(u8);

impl Snapshot {
    pub(super) fn has(self, condition: Condition) -> bool {
        self.0 & condition as u8 != 0
    }
}

/// The current conditions of a log.
#[derive(Debug)]
pub(super) struct Conditions(AtomicU8);

impl Conditions {
    pub(super) fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    pub(super) fn load(&self) -> Snapshot {
        Snapshot(self.0.load(Ordering::Acquire))
    }

    pub(super) fn has(&self, condition: Condition) -> bool {
        self.load().has(condition)
    }

    /// Begins or ends a condition; returns whether it held before.
    pub(super) fn set(&self, condition: Condition, holds: bool) -> bool {
        let bit = condition as u8;
        // Reading first keeps the byte shared between processors while nothing changes.
        if self.has(condition) == holds {
            return holds;
        }
        let before = match holds {
            true => self.0.fetch_or(bit, Ordering::AcqRel),
            false => self.0.fetch_and(!bit, Ordering::AcqRel),
        };
        before & bit != 0
    }
}
