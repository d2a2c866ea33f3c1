//! Store options: the settings of a store, and their bounds.
//!
//! A bound is declared only here. Python's configuration and the documents take default, bounds and unit of a number
//! from [`Options::settings`].

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::store::derived::{LIGHT_QUEUES_MAX, UNIT_BYTES};
use crate::store::error::StoreError;
use crate::store::settings::durability::Durability;
use crate::store::settings::paths::StorePaths;
use crate::store::settings::retention::Retention;

/// The longest window of rolls: with a third more it still fits into 31 bits.
const ROLL_WINDOW_MS_MAX: u64 = 18 * 86_400_000;

/// A numeric setting and its bounds.
pub(crate) struct Setting {
    /// The key in `broker.conf`, which errors name.
    pub key: &'static str,
    pub value: u64,
    pub bounds: RangeInclusive<u64>,
    pub unit: &'static str,
}

impl fmt::Display for Setting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, bounds, unit } = self;
        write!(out, "{key}={value}: must be from {} to {} {unit}", bounds.start(), bounds.end())
    }
}

/// Settings of a store; sizes in bytes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Paths of the store's files.
    pub paths: StorePaths,
    /// Size of a new CommitLog file. Existing files take precedence.
    pub segment_bytes: u64,
    /// Size of a new ConsumeQueue file, rounded up to whole entries, as in Apache's broker. Existing files take
    /// precedence.
    pub queue_file_bytes: u64,
    pub index_slots: u32,
    /// Entries of an index file, including the unused first one.
    pub index_entries: u32,
    pub index_enabled: bool,
    /// The failures that an acknowledged message survives.
    pub durability: Durability,
    /// Size of the write ring, if the durability uses one.
    pub ring_bytes: u64,
    /// Maximum time until an appended byte is flushed, in milliseconds.
    pub flush_interval_ms: u64,
    /// The retention of messages, and the limits of a full disk.
    pub retention: Retention,
    /// Share of the machine's memory that may hold the end of the log, in percent.
    pub in_memory_percent: u64,
    /// Delays of the delay levels 1, 2, …, in milliseconds. Queue entries of `SCHEDULE_TOPIC_XXXX` hold the resulting
    /// delivery times.
    pub delay_levels_ms: Vec<u64>,
    /// Timed messages.
    pub timers: TimerOptions,
    /// Compacted topics.
    pub compaction: CompactionOptions,
    /// Whether messages are stored for the light queues they name.
    pub multi_dispatch: bool,
    /// Whether messages that would create more than `light_queues_max` light queues are refused.
    pub has_light_quota: bool,
    pub light_queues_max: u64,
    /// Whether the log is a copy of a master's, so that the store refuses messages.
    pub is_replica: bool,
    /// Whether the store runs its threads. Tests that control every step disable them and call
    /// [`Store::flush`](crate::store::Store::flush) and [`Store::maintain`](crate::store::Store::maintain)
    /// themselves.
    pub threads: bool,
}

/// Options of timed messages: the resolution and the range of the wheel.
#[derive(Clone, Debug)]
pub struct TimerOptions {
    pub is_enabled: bool,
    /// Milliseconds of a slot of the wheel. Delivery is always accurate to the millisecond.
    pub precision_ms: u64,
    /// The longest accepted delay.
    pub delay_sec_max: u64,
    /// The number of slots after which a pending message is stored again.
    pub roll_window_slots: u64,
    /// Size of a new file of the timer log. Existing files take precedence.
    pub log_file_bytes: u64,
    /// Slots of the wheel's file: two rounds of a week of seconds, as in Apache's broker, so that no slot stands for
    /// two relevant times.
    pub wheel_slots: u64,
}

impl Default for TimerOptions {
    fn default() -> Self {
        Self {
            is_enabled: true,
            precision_ms: 1_000,
            delay_sec_max: 259_200,
            roll_window_slots: 172_800,
            log_file_bytes: 100 << 20,
            wheel_slots: 604_800 * 2,
        }
    }
}

/// Options of compacted topics.
#[derive(Clone, Debug)]
pub struct CompactionOptions {
    pub is_enabled: bool,
    /// Maximum number of threads for rounds; never more than the machine has processors.
    pub threads: u64,
    /// Time between two rounds of a queue, and the most that is added to it.
    pub interval_ms: u64,
    /// Memory for the keys of all rounds.
    pub map_bytes: u64,
    /// Bytes that all rounds read and write in a second; 0 for no limit.
    pub bytes_per_second: u64,
    /// Size of a new file of records, rounded like Apache's. Existing files take precedence.
    pub log_file_bytes: u64,
    /// Size of a new file of units, likewise.
    pub queue_file_bytes: u64,
}

impl Default for CompactionOptions {
    fn default() -> Self {
        Self {
            is_enabled: true,
            threads: 6,
            interval_ms: 900_000,
            map_bytes: 100 << 20,
            bytes_per_second: 64 << 20,
            log_file_bytes: 100 << 20,
            queue_file_bytes: 10 << 20,
        }
    }
}

impl TimerOptions {
    /// Returns the window of rolls, limited to what fits into a unit of the timer log.
    pub(crate) fn roll_window_ms(&self) -> i64 {
        let window_ms = self.roll_window_slots.saturating_mul(self.precision_ms);
        i64::try_from(window_ms.min(ROLL_WINDOW_MS_MAX)).unwrap_or(i64::MAX)
    }
}

impl Options {
    /// Creates Apache's defaults for a store in `root`, except for the flush interval, with one delay level
    /// and no deletion.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            paths: StorePaths::below(root),
            segment_bytes: 1 << 30,
            queue_file_bytes: 6_000_000,
            index_slots: 5_000_000,
            index_entries: 20_000_000,
            index_enabled: true,
            durability: Durability::default(),
            ring_bytes: 64 << 20,
            flush_interval_ms: 50,
            retention: Retention::default(),
            in_memory_percent: 40,
            delay_levels_ms: vec![1000],
            timers: TimerOptions::default(),
            compaction: CompactionOptions::default(),
            multi_dispatch: false,
            has_light_quota: false,
            light_queues_max: 20_000,
            is_replica: false,
            threads: true,
        }
    }

    /// Returns the number of light queues beyond which none is created.
    pub(crate) fn light_queues_limit(&self) -> u64 {
        if self.has_light_quota { self.light_queues_max } else { LIGHT_QUEUES_MAX }
    }

    /// Returns the numeric settings.
    pub(crate) fn settings(&self) -> [Setting; 17] {
        let setting = |key, value, bounds, unit| Setting { key, value, bounds, unit };
        let unit_bytes = UNIT_BYTES as u64;
        let queue_file_bytes_max = (1 << 30) / unit_bytes * unit_bytes;
        [
            // Positions within a file are ints in Apache's broker. Small files are for tests.
            setting("mappedFileSizeCommitLog", self.segment_bytes, 1 << 16..=i32::MAX as u64, "bytes"),
            setting(
                "mappedFileSizeConsumeQueue",
                self.queue_file_bytes,
                unit_bytes..=queue_file_bytes_max,
                "bytes",
            ),
            setting("maxHashSlotNum", self.index_slots.into(), 1..=1 << 26, "slots"),
            setting("maxIndexNum", self.index_entries.into(), 2..=1 << 26, "entries"),
            setting("flushIntervalCommitLog", self.flush_interval_ms, 1..=60_000, "ms"),
            // A quarter of it holds the largest batch, and its pages stay in memory. Small ones are for tests.
            setting("commitLogRingBytes", self.ring_bytes, 1 << 18..=128 << 20, "bytes"),
            setting("accessMessageInMemoryMaxRatio", self.in_memory_percent, 0..=100, "percent"),
            // Each level is a queue.
            setting("messageDelayLevel", self.delay_levels_ms.len() as u64, 1..=128, "levels"),
            setting("timerPrecisionMs", self.timers.precision_ms, 10..=10_000, "ms"),
            setting("timerMaxDelaySec", self.timers.delay_sec_max, 1..=3_153_600_000, "s"),
            // Apache's wheel has two weeks, and a unit stores its wait in 31 bits.
            setting("timerRollWindowSlot", self.timers.roll_window_slots, 2..=604_740, "slots"),
            setting("mappedFileSizeTimerLog", self.timers.log_file_bytes, 4096..=1 << 30, "bytes"),
            setting("compactionThreadNum", self.compaction.threads, 1..=64, "threads"),
            // Short intervals are for tests.
            setting("compactionScheduleInternal", self.compaction.interval_ms, 100..=604_800_000, "ms"),
            setting("maxOffsetMapSize", self.compaction.map_bytes, 1 << 10..=i32::MAX as u64, "bytes"),
            setting("compactionBytesPerSecond", self.compaction.bytes_per_second, 0..=1 << 40, "bytes"),
            setting("maxLmqConsumeQueueNum", self.light_queues_max, 0..=LIGHT_QUEUES_MAX, "queues"),
        ]
    }

    /// Checks every numeric setting against its bounds.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let wrong = self.settings().into_iter().find(|setting| !setting.bounds.contains(&setting.value));
        wrong.map_or(Ok(()), |setting| Err(StoreError::Option(setting.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_setting_that_is_out_of_bounds() {
        let check = |options: Options| options.check().map_err(|error| error.to_string());
        assert_eq!(check(Options::new("/store")), Ok(()));
        let options = || Options::new("/store");
        for (options, expected) in [
            (
                Options { segment_bytes: 1 << 31, ..options() },
                "mappedFileSizeCommitLog=2147483648: must be from 65536 to 2147483647 bytes",
            ),
            (Options { index_entries: 1, ..options() }, "maxIndexNum=1: must be from 2 to 67108864 entries"),
            (
                Options { delay_levels_ms: Vec::new(), ..options() },
                "messageDelayLevel=0: must be from 1 to 128 levels",
            ),
        ] {
            assert_eq!(check(options), Err(expected.to_owned()));
        }
    }
}
