//! Keys on their way to the index files.
//!
//! Owns keys that wait in memory, up to a bound. Beyond it nothing is kept of a record, but from which position of the log
//! on they have to be read again: whoever makes records visible waits for no file.
//!
//! Invariant: what waits comes before what is skipped.
//! Threads: the caller's lock.

use std::ops::Range;
use std::time::Duration;

use crate::store::derived::dispatch::DispatchRequest;
use crate::store::derived::pace;

use super::index_file::Key;

/// Keys that wait in memory: 24 MiB.
const WAITING_KEYS_MAX: usize = 1 << 20;
/// The longest time in which no keys are written: that of a checkpoint.
const WRITE_PAUSE: Duration = Duration::from_secs(4);
/// Keys that memory is made for early, at most: 12 MiB, twice.
const ROOM_KEYS_MAX: usize = 1 << 19;
/// Keys from which on memory for more is made early.
const PACE_KEYS_MIN: usize = 256;
/// Shares of a difference by which the pace follows what comes, upwards and downwards, in each interval.
const RISE: usize = 16;
const FALL: usize = 64;
/// Keys that memory is kept for at any pace.
const IDLE_KEYS_MAX: usize = 1 << 16;

#[derive(Default)]
pub(super) struct Waiting {
    keys: Vec<Key>,
    /// Keys that were taken from here and are in no file yet.
    taken: usize,
    /// Records that nothing was kept of: from the begin of the first to the end of the last.
    skipped: Option<Range<u64>>,
    /// Position behind the last record, kept or skipped.
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

    /// Puts all keys behind those in `into`. Returns the position before which all keys are there.
    pub(super) fn take(&mut self, into: &mut Vec<Key>) -> u64 {
        if into.is_empty() {
            std::mem::swap(into, &mut self.keys);
        } else {
            into.append(&mut self.keys);
        }
        self.taken = into.len();
        self.skipped.as_ref().map_or(self.end, |skipped| skipped.start)
    }

    /// Notes how many of the keys that were taken are in no file yet.
    pub(super) fn still_taken(&mut self, count: usize) {
        self.taken = count;
    }

    pub(super) fn skipped(&self) -> Option<Range<u64>> {
        self.skipped.clone()
    }

    /// Everything before `from` is in the files, and what follows up to `until` is skipped.
    pub(super) fn begin(&mut self, from: u64, until: u64) {
        *self = Self { end: until, ..Self::default() };
        self.skipped = (from < until).then_some(from..until);
    }

    /// Keeps nothing more.
    pub(super) fn close(&mut self, from: u64) {
        let end = self.end.max(from);
        *self = Self { skipped: Some(from..end), end, ..Self::default() };
    }

    /// The records before `until` have been read again.
    pub(super) fn was_read(&mut self, until: u64) {
        self.skipped =
            self.skipped.take().map(|skipped| until..skipped.end).filter(|skipped| !skipped.is_empty());
    }
}

/// How many keys come while none can be written, of late.
#[derive(Default)]
pub(super) struct KeyPace {
    keys: usize,
}

impl KeyPace {
    /// Notes keys that came in the time `since` the last ones were noted.
    pub(super) fn note(&mut self, count: usize, since: Duration) {
        let keys = if count < PACE_KEYS_MIN {
            0
        } else {
            pace::until_written(count, since, WRITE_PAUSE).min(ROOM_KEYS_MAX)
        };
        // One message may have thousands of keys: that is no pace yet.
        self.keys = match keys.checked_sub(self.keys) {
            Some(more) => self.keys + more / RISE,
            None => keys.max(self.keys - self.keys.div_ceil(FALL)),
        };
    }

    /// Makes memory for so many keys in what is empty and will be filled next, and touches it: who adds keys takes no page
    /// fault. Much more than that is given back.
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
    fn memory_for_keys_follows_their_pace_and_is_given_back_when_they_end() {
        let (mut pace, mut keys) = (KeyPace::default(), Vec::new());
        pace.note(20_000, ROUND);
        pace.make_room(&mut keys);
        assert!(
            keys.capacity() <= IDLE_KEYS_MAX,
            "the keys of one message have no memory for {}",
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
        assert_eq!((keys.capacity(), keys.as_ptr()), (before, memory), "it stays where it is");
        for _ in 0..400 {
            pace.note(0, ROUND);
            pace.make_room(&mut keys);
        }
        assert!(keys.capacity() <= IDLE_KEYS_MAX);
    }

    #[test]
    fn a_few_keys_have_no_memory_made_for_them() {
        let (mut pace, mut keys) = (KeyPace::default(), Vec::new());
        pace.note(PACE_KEYS_MIN - 1, Duration::ZERO);
        pace.make_room(&mut keys);
        assert!(keys.capacity() <= 1);
    }
}
