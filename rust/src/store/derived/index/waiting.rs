//! Waiting keys: keys that are in memory before they are written to the index files.
//!
//! Owns the waiting keys, up to a limit. Beyond it, only the range of the log is kept from which keys must be read
//! again, so that the thread that makes records visible never waits for a file.
//!
//! *Invariant*: waiting keys come before skipped ones.
//! Threads: any, under the caller's lock.

use std::ops::Range;
use std::time::Duration;

use crate::store::derived::dispatch::DispatchRequest;
use crate::store::derived::pace;

use super::index_file::Key;

/// Maximum number of waiting keys: 24 MiB.
const WAITING_KEYS_MAX: usize = 1 << 20;
/// The longest pause between writes of keys, that of a checkpoint.
const WRITE_PAUSE: Duration = Duration::from_secs(4);
/// Maximum number of keys for which memory is preallocated: 12 MiB, twice.
const ROOM_KEYS_MAX: usize = 1 << 19;
/// The number of keys from which on memory is preallocated.
const PACE_KEYS_MIN: usize = 256;
/// Fractions of a difference by which the pace follows the rate in each interval, upwards and downwards.
const RISE: usize = 16;
const FALL: usize = 64;
/// The number of keys for which memory is always kept.
const IDLE_KEYS_MAX: usize = 1 << 16;

#[derive(Default)]
pub(super) struct Waiting {
    keys: Vec<Key>,
    /// Keys that were taken and are not in a file yet.
    taken: usize,
    /// Skipped records, from the start of the first to the end of the last.
    skipped: Option<Range<u64>>,
    /// The position after the last record, kept or skipped.
    end: u64,
}

impl Waiting {
    pub(super) fn add(&mut self, record: &DispatchRequest) {
        let begin = record.physical.0;
        self.end = begin + u64::from(record.size);
        if let Some(skipped) = &mut self.skipped {
            skipped.end = self.end;
        } else if self.keys.len() + self.taken >= WAITING_KEYS_MAX {
            self.skipped = Some(begin..self.end);
        } else {
            self.keys.extend(record.keys.iter().map(|hash| Key {
                hash,
                physical: begin,
                store_timestamp_ms: record.store_timestamp_ms,
            }));
        }
    }

    /// Appends all keys to `into` and returns the position before which no key is missing.
    pub(super) fn take(&mut self, into: &mut Vec<Key>) -> u64 {
        if into.is_empty() {
            std::mem::swap(into, &mut self.keys);
        } else {
            into.append(&mut self.keys);
        }
        self.taken = into.len();
        self.skipped.as_ref().map_or(self.end, |skipped| skipped.start)
    }

    /// Sets how many of the taken keys are not in a file yet.
    pub(super) fn still_taken(&mut self, count: usize) {
        self.taken = count;
    }

    pub(super) fn skipped(&self) -> Option<Range<u64>> {
        self.skipped.clone()
    }

    /// Starts with everything before `from` in the files, and `from..until` skipped.
    pub(super) fn begin(&mut self, from: u64, until: u64) {
        *self = Self { end: until, ..Self::default() };
        self.skipped = (from < until).then_some(from..until);
    }

    /// Drops all keys and skips those that follow.
    pub(super) fn close(&mut self, from: u64) {
        let end = self.end.max(from);
        *self = Self { skipped: Some(from..end), end, ..Self::default() };
    }

    /// Marks the records before `until` as read again.
    pub(super) fn was_read(&mut self, until: u64) {
        self.skipped =
            self.skipped.take().map(|skipped| until..skipped.end).filter(|skipped| !skipped.is_empty());
    }
}

/// The recent number of keys per pause between writes.
#[derive(Default)]
pub(super) struct KeyPace {
    keys: usize,
}

impl KeyPace {
    /// Adds a measurement: `count` keys in the time `since` the last one.
    pub(super) fn note(&mut self, count: usize, since: Duration) {
        let keys = if count < PACE_KEYS_MIN {
            0
        } else {
            pace::until_written(count, since, WRITE_PAUSE).min(ROOM_KEYS_MAX)
        };
        // One message may have thousands of keys, which is not a rate.
        self.keys = match keys.checked_sub(self.keys) {
            Some(more) => self.keys + more / RISE,
            None => keys.max(self.keys - self.keys.div_ceil(FALL)),
        };
    }

    /// Preallocates and prefaults memory for that many keys in `empty`, which is filled next, so that adding a key
    /// causes no page fault. Frees memory that is much larger.
    pub(super) fn make_room(&self, empty: &mut Vec<Key>) {
        let room = self.keys.next_power_of_two();
        let is_too_much = empty.capacity() > IDLE_KEYS_MAX && empty.capacity() / 4 > room;
        if empty.capacity() < self.keys || is_too_much {
            *empty = Vec::with_capacity(room);
            empty.resize(room, Key { hash: 0, physical: 0, store_timestamp_ms: 0 });
            empty.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(50);

    #[test]
    fn memory_for_keys_follows_their_pace_and_is_freed_afterwards() {
        let (mut pace, mut keys) = (KeyPace::default(), Vec::new());
        pace.note(20_000, ROUND);
        pace.make_room(&mut keys);
        assert!(
            keys.capacity() <= IDLE_KEYS_MAX,
            "one message preallocated memory for {} keys",
            keys.capacity()
        );
        for _ in 0..100 {
            pace.note(10_000, ROUND);
        }
        pace.make_room(&mut keys);
        assert!((400_000..=ROOM_KEYS_MAX).contains(&keys.capacity()), "for {}", keys.capacity());
        let (before, memory) = (keys.capacity(), keys.as_ptr());
        pace.note(9_000, ROUND);
        pace.make_room(&mut keys);
        assert_eq!((keys.capacity(), keys.as_ptr()), (before, memory), "no new memory");
        for _ in 0..400 {
            pace.note(0, ROUND);
            pace.make_room(&mut keys);
        }
        assert!(keys.capacity() <= IDLE_KEYS_MAX);
    }

    #[test]
    fn a_few_keys_get_no_preallocated_memory() {
        let (mut pace, mut keys) = (KeyPace::default(), Vec::new());
        pace.note(PACE_KEYS_MIN - 1, Duration::ZERO);
        pace.make_room(&mut keys);
        assert!(keys.capacity() <= 1);
    }
}
