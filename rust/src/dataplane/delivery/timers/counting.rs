//! Counting: numbers of pending messages, read from the timer log during delivery.
//!
//! Messages pending at the start are counted once by topic; counts by time are made on request. A unit holds only
//! the hash of its topic, so topics with the same hash are counted under one name.

use std::collections::{HashMap, HashSet};

use super::Timers;
use super::delivery::Delivery;
use super::statistics::{TimerStatistics, topic_of};
use crate::dataplane::delivery::delays::sound_records;
use crate::dataplane::delivery::timers::files::{SEAL, TimerLog, TimerUnit, Wheel, count};
use crate::message::topic::TIMER_TOPIC;
use crate::positions::PhysicalOffset;
use crate::store::StoreError;

/// A snapshot of the pending messages, read while delivery continues.
struct Waiting {
    log: TimerLog,
    wheel: Wheel,
    /// Slots before this one have been read; `left` has their undelivered units.
    begun: i64,
    left: HashSet<u64>,
    recovered_ms: i64,
}

impl Waiting {
    fn of(delivery: &mut Delivery) -> Result<Self, StoreError> {
        delivery.log.write()?;
        Ok(Self {
            log: delivery.log.reader(),
            wheel: delivery.wheel.clone(),
            begun: delivery.next_slot,
            left: delivery
                .waiting
                .iter()
                .map(|waiting| waiting.0.position)
                .chain(delivery.held.iter().map(|held| held.position))
                .collect(),
            recovered_ms: delivery.recovered_ms,
        })
    }

    /// Adds up the pending units by topic. `place` returns the index of a unit's counter.
    fn by_topic(
        self,
        timers: &Timers,
        places: usize,
        place: impl Fn(&TimerUnit) -> usize,
    ) -> Result<HashMap<String, Vec<i64>>, StoreError> {
        let Self { mut log, wheel, begun, left, recovered_ms } = self;
        let mut hashes: HashMap<i32, (u64, Vec<i64>)> = HashMap::new();
        log.scan(|position, unit| {
            let slot = wheel.slot_of(unit.due_ms);
            let is_of_chain = wheel.get(slot).is_some_and(|ends| ends.first <= position);
            let is_left = if slot < begun {
                left.contains(&position)
            } else {
                wheel.over_ms(unit.due_ms, unit.kind) > recovered_ms
            };
            if is_of_chain && is_left && unit.kind & SEAL == 0 {
                let (physical, counts) =
                    hashes.entry(unit.topic_hash).or_insert_with(|| (unit.physical, vec![0; places]));
                *physical = unit.physical;
                if let Some(counted) = counts.get_mut(place(unit)) {
                    *counted += i64::from(count(unit.kind));
                }
            }
        })?;
        let mut topics: HashMap<String, Vec<i64>> = HashMap::new();
        for (physical, counts) in hashes.into_values() {
            let Some(topic) = timers.topic_at(physical) else { continue };
            let totals = topics.entry(topic).or_insert_with(|| vec![0; places]);
            totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
        }
        Ok(topics)
    }
}

impl Timers {
    /// Returns the pending messages and the lag of delivery. The first call reads the timer log.
    pub(crate) fn statistics(&self) -> Result<TimerStatistics, StoreError> {
        self.count()?;
        let now = self.clock.wall_ms() as i64;
        let delivery = self.delivery.lock();
        let end = self.store.queue(TIMER_TOPIC, 0).map_or(delivery.next, |queue| queue.max());
        let unread = end.0.saturating_sub(delivery.next.0);
        let since = |ms: i64| now.saturating_sub(ms).max(0).cast_unsigned();
        let late = delivery.waiting.iter().filter(|waiting| waiting.0.at_ms <= now).count() as u64;
        let first = delivery.waiting.peek().map_or(now, |first| first.0.at_ms);
        let topics = delivery.topics.topics.iter();
        let topics = topics.map(|(topic, found)| (String::from_utf8_lossy(topic).into_owned(), *found));
        Ok(TimerStatistics {
            pending: delivery.pending(),
            unread,
            unread_ms: if unread > 0 && delivery.read_ms > 0 { since(delivery.read_ms) } else { 0 },
            late,
            late_ms: since(first),
            topics: topics.collect(),
        })
    }

    /// Returns for each topic how many messages are due within each of these seconds from now, and after the last;
    /// each message counts once. Reads the timer log.
    pub(crate) fn due_within(&self, bounds_s: &[u64]) -> Result<Vec<(String, Vec<u64>)>, StoreError> {
        let waiting = Waiting::of(&mut self.delivery.lock())?;
        let now = self.clock.wall_ms() as i64;
        let bounds_ms: Vec<i64> =
            bounds_s.iter().map(|bound| now.saturating_add_unsigned(bound.saturating_mul(1_000))).collect();
        let place = |unit: &TimerUnit| bounds_ms.partition_point(|bound| *bound < unit.due_ms);
        let found = waiting.by_topic(self, bounds_s.len() + 1, place)?;
        let positive = |counts: Vec<i64>| counts.into_iter().map(|count| count.max(0).cast_unsigned());
        Ok(found.into_iter().map(|(topic, counts)| (topic, positive(counts).collect())).collect())
    }

    /// Returns the same for all topics together, from memory and accurate to the slot.
    pub(crate) fn slots_within(&self, bounds_s: &[u64]) -> Vec<u64> {
        let delivery = self.delivery.lock();
        let now = self.clock.wall_ms() as i64;
        let mut within = vec![0_i64; bounds_s.len() + 1];
        let mut add = |due_ms: i64, count: i32| {
            let seconds = due_ms.saturating_sub(now).max(0).cast_unsigned().div_ceil(1_000);
            if let Some(counted) = within.get_mut(bounds_s.partition_point(|bound| *bound < seconds)) {
                *counted += i64::from(count);
            }
        };
        delivery.waiting.iter().for_each(|waiting| add(waiting.0.at_ms, waiting.0.count()));
        for (slot, ends) in delivery.wheel.from(delivery.next_slot) {
            add(delivery.wheel.begin_ms(slot + 1), ends.count);
        }
        within.into_iter().map(|count| count.max(0).cast_unsigned()).collect()
    }

    /// Adds the messages pending at the start to the statistics by topic, once.
    fn count(&self) -> Result<(), StoreError> {
        let waiting = {
            let mut delivery = self.delivery.lock();
            if delivery.topics.is_whole {
                return Ok(());
            }
            let waiting = Waiting::of(&mut delivery)?;
            // Later messages are counted as they are read and delivered.
            delivery.topics.begin_again();
            waiting
        };
        let found = waiting.by_topic(self, 1, |_| 0);
        let mut delivery = self.delivery.lock();
        match found {
            Ok(found) => {
                for (topic, counts) in found {
                    let waiting: i64 = counts.into_iter().sum();
                    delivery.topics.change(topic.as_bytes(), |topic| topic.waiting += waiting);
                }
                Ok(())
            }
            Err(error) => {
                delivery.topics.is_whole = false;
                Err(error)
            }
        }
    }

    /// Returns the destination topic of the timed message at a position.
    fn topic_at(&self, physical: u64) -> Option<String> {
        let bytes = self.store.lookup_queued(PhysicalOffset(physical))?;
        let record = sound_records(&bytes).next()?;
        Some(String::from_utf8_lossy(topic_of(&record)).into_owned())
    }
}
