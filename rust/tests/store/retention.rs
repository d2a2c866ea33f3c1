//! Retention: old files and deleted topics are removed, by time, by space and on request, under readers, and nothing else is.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::store_model::{
    Folder, SEGMENT_BYTES, Sample, clock, key_of, open, options_with, put, read_all, sample,
};
use rmqpy::clock::{Clock, ManualClock, SystemClock};
use rmqpy::positions::{PhysicalOffset, QueueOffset};
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::disk::{Disk, OsDisk, Space};
use rmqpy::store::{Durability, Event, Get, GetResult, GetStatus, Options, PutError, Retention, Store};

const BIG: Sample = sample("bulk", 0, 20_000);
const TINY: Sample = sample("tiny", 0, 10);
const RARE: Sample = sample("rare", 0, 10);
const HOUR: Duration = Duration::from_secs(3600);

/// Kept for three days, deleted at four o'clock, or at any hour when three quarters of the disk are in use.
fn rule() -> Retention {
    let reserved_ms = (72 * HOUR).as_millis() as u64;
    Retention { reserved_ms, delete_hours: vec![4], expire_percent: 75, ..Retention::default() }
}

fn options(root: impl AsRef<Path>) -> Options {
    Options { retention: rule(), ..crate::store_model::options(root) }
}

/// Fills `files` files of the log with messages stored now; each has a `TINY`.
fn fill(store: &Store, files: u64) {
    let until = store.range().1.0 / SEGMENT_BYTES + files;
    while store.range().1.0 / SEGMENT_BYTES < until {
        assert!(put(store, &[BIG, TINY, TINY, TINY, TINY], false).iter().all(Result::is_ok));
        store.flush().expect("a working disk");
        store.maintain().expect("a working disk");
    }
}

fn names(disk: &SimDisk, dir: &str) -> Vec<u64> {
    let entries = disk.list(Path::new(dir)).expect("a directory");
    entries.iter().map(|entry| entry.name.parse().expect("a number")).collect()
}

/// Moves the clock to this hour of the day, UTC, at least `later` from now.
fn wait_for_hour(clock: &ManualClock, hour: u64, later: Duration) {
    clock.advance(later);
    while clock.wall_ms() / 3_600_000 % 24 != hour {
        clock.advance(HOUR);
    }
}

/// Runs rounds of maintenance until nothing changes.
fn settle(store: &Store, clock: &ManualClock) {
    for _ in 0..20 {
        clock.advance(Duration::from_secs(1));
        store.maintain().expect("a working disk");
    }
}

#[test]
fn expired_files_are_deleted_at_their_hour_with_their_entries() {
    let (disk, clock) = (SimDisk::new(), clock());
    let store = open(disk.shared(), options("/store"), clock.clone()).expect("opens");
    put(&store, &[RARE], false);
    fill(&store, 5);
    let kept_from = store.range().1.0 / SEGMENT_BYTES * SEGMENT_BYTES;
    clock.advance(HOUR);
    fill(&store, 1);
    let tiny = store.queue("tiny", 0).expect("a queue");
    let (max, index_files) = (tiny.max(), names(&disk, "/store/index").len());
    // 72 hours have passed, but it is not the hour.
    wait_for_hour(&clock, 3, 73 * HOUR);
    settle(&store, &clock);
    assert_eq!(store.range().0, PhysicalOffset(0));
    wait_for_hour(&clock, 4, HOUR / 2);
    drop(store.events());
    settle(&store, &clock);
    // The first five files, and all but the last of those filled an hour later.
    let begin = store.range().0.0;
    assert!(begin >= kept_from, "{begin}");
    assert_eq!(names(&disk, "/store/commitlog").first(), Some(&begin));
    assert!(
        store.events().iter().all(|event| matches!(event, Event::Deleted { is_expired: true, .. })),
        "each deletion is reported"
    );
    // Queue and queue files begin with the log; the end of the queue is unchanged.
    assert_eq!(tiny.max(), max);
    assert!(tiny.min() > QueueOffset(0) && tiny.min() < max);
    let record = store.lookup(PhysicalOffset(begin)).expect("the log begins with a record");
    assert!(!record.is_empty());
    assert_eq!(read_all(&store, "tiny", 0).len() as u64, max.0 - tiny.min().0);
    let queue_files = names(&disk, "/store/consumequeue/tiny/0");
    assert_eq!(queue_files.first(), Some(&(tiny.min().0 / 8 * 160)));
    // A queue without remaining messages keeps its newest file, for the next offset.
    let rare = store.queue("rare", 0).expect("a queue");
    assert_eq!((rare.min(), rare.max()), (QueueOffset(1), QueueOffset(1)));
    assert_eq!(names(&disk, "/store/consumequeue/rare/0"), [0]);
    assert!(names(&disk, "/store/index").len() < index_files, "{index_files} index files before");
    let key = key_of("tiny", 0, tiny.min().0);
    assert_eq!(store.query("tiny", &key, 32, 0, i64::MAX).expect("an index").records.len(), 1);
    // A stop of either kind does not change that.
    for is_clean in [true, false] {
        if is_clean {
            store.close().expect("closes")
        } else {
            store.abandon()
        }
        let store = open(disk.shared(), options("/store"), clock.clone()).expect("opens");
        let again = store.queue("tiny", 0).expect("a queue");
        assert_eq!((store.range().0.0, again.min(), again.max()), (begin, tiny.min(), max), "{is_clean}");
        let rare = store.queue("rare", 0).expect("a queue");
        assert_eq!((rare.min(), rare.max()), (QueueOffset(1), QueueOffset(1)), "{is_clean}");
        store.close().expect("closes");
    }
}

#[test]
fn the_last_file_and_files_with_an_unexpired_message_are_kept() {
    let (disk, clock) = (SimDisk::new(), clock());
    let store = open(disk.shared(), options("/store"), clock.clone()).expect("opens");
    put(&store, &[BIG, BIG], false);
    store.flush().expect("a working disk");
    store.maintain().expect("a working disk");
    clock.advance(71 * HOUR);
    put(&store, &[BIG], false);
    clock.advance(2 * HOUR);
    put(&store, &[BIG], false);
    assert_eq!(store.range().1.0 / SEGMENT_BYTES, 1);
    assert_eq!(store.delete_expired().expect("a working disk"), 0, "two hours old");
    clock.advance(100 * HOUR);
    assert_eq!(store.delete_expired().expect("a working disk"), 1);
    assert_eq!(store.range().0, PhysicalOffset(SEGMENT_BYTES));
    assert_eq!(store.delete_expired().expect("a working disk"), 0, "the last file is never deleted");
    assert_eq!(read_all(&store, "bulk", 0).len(), 1);
}

#[test]
fn a_short_disk_deletes_expired_files_at_any_hour_and_a_full_one_others_if_allowed() {
    for (used_percent, force_percent, is_expired, expected) in [
        (74, Some(85), true, 0),
        (75, None, true, 3),
        (99, None, false, 0),
        (84, Some(85), false, 0),
        (85, Some(85), false, 3),
    ] {
        let (disk, clock) = (SimDisk::new(), clock());
        let retention = Retention { force_percent, full_percent: 90, ..rule() };
        let options = Options { retention, ..options("/store") };
        let store = open(disk.shared(), options, clock.clone()).expect("opens");
        fill(&store, 3);
        put(&store, &[TINY], false);
        if is_expired {
            wait_for_hour(&clock, 10, 80 * HOUR);
        }
        let total = 1 << 40;
        disk.set_space(Space { free: total / 100 * (100 - used_percent), total });
        drop(store.events());
        settle(&store, &clock);
        let context = format!("{used_percent} % in use, {force_percent:?}, expired {is_expired}");
        assert_eq!(store.range().0.0 / SEGMENT_BYTES, expected, "{context}");
        let events = store.events();
        let warned = events.iter().filter(|event| matches!(event, Event::DiskShort { .. })).count();
        assert_eq!(warned, usize::from(used_percent >= 75), "{context}: reported once");
        let lost = events.iter().filter(|event| matches!(event, Event::Deleted { is_expired: false, .. }));
        assert_eq!(
            lost.count() as u64,
            if is_expired { 0 } else { expected },
            "{context}: deleted messages are reported"
        );
        let outcome = put(&store, &[TINY], false)[0];
        assert_eq!(outcome == Err(PutError::DiskFull), used_percent >= 90, "{context}");
    }
}

#[test]
fn a_new_rule_applies_immediately_and_a_disk_with_space_accepts_messages_again() {
    let (disk, clock) = (SimDisk::new(), clock());
    let store = open(disk.shared(), options("/store"), clock.clone()).expect("opens");
    fill(&store, 2);
    put(&store, &[TINY], false);
    clock.advance(2 * HOUR);
    settle(&store, &clock);
    assert_eq!(store.range().0, PhysicalOffset(0));
    store.retain(Retention { reserved_ms: 3_600_000, delete_hours: (0..24).collect(), ..rule() });
    settle(&store, &clock);
    assert_eq!(store.range().0.0 / SEGMENT_BYTES, 2);
    store.retain(Retention { full_percent: 50, ..rule() });
    for (free, is_taken) in [(40, false), (60, true), (49, false), (51, true)] {
        disk.set_space(Space { free: free << 30, total: 100 << 30 });
        settle(&store, &clock);
        assert_eq!(put(&store, &[TINY], false)[0].is_ok(), is_taken, "{free} % free");
    }
}

/// Goal: a reader of a file that is deleted meanwhile, or of a deleted offset, gets whole records or the offset to continue.
/// Method: a real disk, small files that expire immediately, readers at the begin, maintenance on its own thread.
#[test]
fn deletions_do_not_disturb_readers_and_appends() {
    let folder = Folder::new("retention");
    let retention = Retention { reserved_ms: 0, expire_percent: 0, ..rule() };
    let options = Options { retention, threads: true, ..options(folder.0.join("store")) };
    let store = open(OsDisk::shared(), options, SystemClock::shared()).expect("opens");
    put(&store, &[BIG], false);
    let first = store.lookup(PhysicalOffset(0)).expect("a record");
    let copy = first.to_vec();
    let is_over = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (store, is_over) = (Arc::clone(&store), Arc::clone(&is_over));
            std::thread::spawn(move || read_until(&store, &is_over))
        })
        .collect();
    let begins_late_enough = || store.range().0.0 >= 40 * SEGMENT_BYTES;
    let deadline = std::time::Instant::now() + Duration::from_secs(300);
    while !begins_late_enough() && std::time::Instant::now() < deadline {
        let (begin, end) = store.range();
        if end.bytes_since(begin) > 64 * SEGMENT_BYTES {
            // Files are deleted no faster, and the disk must not fill up.
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        for outcome in put(&store, &[BIG], false) {
            outcome.expect("no append waits for a deletion");
        }
    }
    is_over.store(true, Ordering::Release);
    let read: u64 = readers.into_iter().map(|reader| reader.join().expect("no reader fails")).sum();
    assert!(begins_late_enough(), "only {} files were deleted", store.range().0.0 / SEGMENT_BYTES);
    assert!(read > 0);
    assert_eq!(first.as_ref(), copy, "a slice outlives its file");
    store.close().expect("closes");
}

/// Reads the queue from its begin repeatedly; returns the number of messages.
fn read_until(store: &Store, is_over: &AtomicBool) -> u64 {
    let queue = store.queue("bulk", 0).expect("a queue");
    let (mut result, mut read, mut offset) = (GetResult::default(), 0, QueueOffset(0));
    while !is_over.load(Ordering::Acquire) {
        let ask = Get { offset, messages_max: 4, bytes_max: 1 << 20 };
        store.get(&queue, &ask, &mut |_| true, &mut result).expect("a working disk");
        for slice in &result.slices {
            for record in rmqpy::message::record::records(slice) {
                assert!(record.expect("a whole record").body_crc_matches());
                read += 1;
            }
        }
        match result.status {
            GetStatus::Found | GetStatus::MessageWasRemoving | GetStatus::OffsetFoundNull => {
                assert!(result.next_begin > offset, "{:?} makes progress", result.status);
                offset = result.next_begin;
            }
            GetStatus::OffsetTooSmall => offset = result.next_begin,
            GetStatus::OffsetOverflowOne => offset = QueueOffset(0),
            other => panic!("{other:?} at {offset} of {}..{}", queue.min(), queue.max()),
        }
    }
    read
}

/// Method: delete a topic, create it again, and stop the disk before every operation in between.
#[test]
fn a_deleted_topic_does_not_reappear_after_a_crash() {
    for survival in [Survival::Nothing, Survival::Everything, Survival::Percent(50)] {
        let counted = SimDisk::new();
        delete_and_make_again(&counted);
        for at in 0..=counted.operations() {
            let disk = SimDisk::new();
            disk.freeze_at(at);
            let (deleted, made_again) = delete_and_make_again(&disk);
            let disk = disk.crash(survival, at);
            let store =
                open(disk.shared(), options_with(Durability::DiskMapped, "/store"), clock()).expect("opens");
            let context = format!("operation {at}, {survival:?}");
            let found = read_all(&store, "gone", 0).len();
            match (deleted, made_again) {
                (_, true) => assert_eq!(found, 1, "{context}: only messages put after the deletion"),
                (true, false) => assert!(found <= 1, "{context}: {found} messages reappeared"),
                (false, false) => assert!(found <= 3, "{context}"),
            }
            if deleted {
                assert_eq!(read_all(&store, "kept", 0).len(), 1, "{context}: nothing else is lost");
            }
        }
    }
}

/// Returns whether the deletion was acknowledged, and whether the message put after it was durable.
fn delete_and_make_again(disk: &SimDisk) -> (bool, bool) {
    let Ok(store) = open(disk.shared(), options_with(Durability::DiskMapped, "/store"), clock()) else {
        return (false, false);
    };
    put(&store, &[sample("gone", 0, 50), sample("gone", 0, 50), sample("gone", 0, 50)], false);
    put(&store, &[sample("kept", 0, 50)], false);
    let _ = store.flush().and_then(|_| store.checkpoint());
    let is_deleted = store.delete_topic("gone").is_ok() && !disk.is_frozen();
    let end = put(&store, &[sample("gone", 0, 70)], false)[0];
    let is_made_again = store.flush().is_ok() && end.is_ok() && !disk.is_frozen();
    (is_deleted, is_deleted && is_made_again)
}
