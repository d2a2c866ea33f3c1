//! Cache: answers that stay true for a while, a bounded number.
//!
//! A value is fresh for some seconds. After that one caller asks again, while the others still get it: for minutes if
//! no answer comes.
//!
//! Threads: any; one short lock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use parking_lot::Mutex;

/// A value is as good as a new one for this long.
pub(super) const FRESH: Duration = Duration::from_secs(20);
/// A value that cannot be replaced is still used for this long.
const KEPT: Duration = Duration::from_secs(300);
/// The time of one caller to replace a value, before another one tries.
const REPLACING: Duration = Duration::from_secs(1);

struct Entry<V> {
    value: Arc<V>,
    since: Instant,
    /// Declared outdated before its time.
    is_outdated: bool,
    replacing: Option<Instant>,
}

/// A value of the cache.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<V> {
    Fresh(Arc<V>),
    /// The caller is to replace it, or to use it if it cannot.
    Stale(Arc<V>),
    Missing,
}

/// Values by name.
pub(super) struct Cache<V> {
    entries: Mutex<HashMap<Box<str>, Entry<V>>>,
    entries_max: usize,
}

impl<V> Cache<V> {
    pub(super) fn new(entries_max: usize) -> Self {
        Self { entries: Mutex::default(), entries_max }
    }

    pub(super) fn find(&self, name: &str, now: Instant) -> Found<V> {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(name) else { return Found::Missing };
        let age = now.saturating_duration_since(entry.since);
        if age >= KEPT {
            return Found::Missing;
        }
        let is_asked = entry.replacing.is_some_and(|since| now.saturating_duration_since(since) < REPLACING);
        if is_asked || (age < FRESH && !entry.is_outdated) {
            return Found::Fresh(Arc::clone(&entry.value));
        }
        entry.replacing = Some(now);
        Found::Stale(Arc::clone(&entry.value))
    }

    /// Puts a value in; returns it. Another caller asks again soon if it is outdated already.
    pub(super) fn put(&self, name: &str, value: V, is_outdated: bool, now: Instant) -> Arc<V> {
        let value = Arc::new(value);
        let mut entries = self.entries.lock();
        if entries.len() >= self.entries_max && !entries.contains_key(name) {
            entries.retain(|_, entry| now.saturating_duration_since(entry.since) < FRESH);
            if entries.len() >= self.entries_max {
                entries.clear();
            }
        }
        let replacing = is_outdated.then_some(now);
        let entry = Entry { value: Arc::clone(&value), since: now, is_outdated, replacing };
        entries.insert(name.into(), entry);
        value
    }

    pub(super) fn remove(&self, name: &str) {
        self.entries.lock().remove(name);
    }

    /// Declares every value outdated: the next callers ask again.
    pub(super) fn outdate(&self) {
        self.entries.lock().values_mut().for_each(|entry| entry.is_outdated = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_replaces_a_value_that_the_others_still_get() {
        let (cache, begin) = (Cache::new(4), Instant::now());
        assert_eq!(cache.find("a", begin), Found::Missing);
        let first = cache.put("a", 1, false, begin);
        assert_eq!(cache.find("a", begin), Found::Fresh(Arc::clone(&first)));
        let later = begin + FRESH;
        assert_eq!(cache.find("a", later), Found::Stale(Arc::clone(&first)));
        assert_eq!(cache.find("a", later), Found::Fresh(Arc::clone(&first)));
        // The caller has gone.
        let later = later + REPLACING;
        assert_eq!(cache.find("a", later), Found::Stale(first));
        let second = cache.put("a", 2, false, later);
        assert_eq!(cache.find("a", later), Found::Fresh(Arc::clone(&second)));
        cache.outdate();
        assert_eq!(cache.find("a", later), Found::Stale(second));
        assert_eq!(cache.find("a", later + KEPT), Found::Missing);
    }

    #[test]
    fn an_outdated_value_is_asked_for_again_soon() {
        let (cache, begin) = (Cache::new(4), Instant::now());
        let first = cache.put("a", 1, true, begin);
        assert_eq!(cache.find("a", begin), Found::Fresh(Arc::clone(&first)));
        assert_eq!(cache.find("a", begin + REPLACING), Found::Stale(first));
    }

    #[test]
    fn the_number_of_values_is_bounded() {
        let (cache, begin) = (Cache::new(2), Instant::now());
        cache.put("old", 0, false, begin);
        let later = begin + FRESH;
        cache.put("a", 1, false, later);
        cache.put("b", 2, false, later);
        assert_eq!(cache.find("old", later), Found::Missing);
        assert_ne!(cache.find("a", later), Found::Missing);
        cache.put("c", 3, false, later);
        assert_eq!(cache.entries.lock().len(), 1);
    }
}
