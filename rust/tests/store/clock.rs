//! Clock changes: a store with wrong times, and with messages that have them.
//!
//! Goal: a step of seconds changes nothing; a clock that is far ahead, or far behind, for a while does no lasting harm.

use std::sync::Arc;
use std::time::Duration;

use crate::store_model::{SEGMENT_BYTES, Sample, clock, key_of, open, options, put, sample};
use rmqpy::clock::{Clock, ManualClock};
use rmqpy::positions::QueueOffset;
use rmqpy::store::disk::simulated::SimDisk;
use rmqpy::store::{Boundary, Event, Options, Retention, Store};

const SMALL: Sample = sample("orders", 0, 10);
const BIG: Sample = sample("orders", 0, 20_000);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const YEAR_MS: u64 = 365 * 86_400_000;

fn ms(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

/// A store that keeps messages for three days, and deletes at any hour.
fn start(disk: &SimDisk, clock: &Arc<ManualClock>) -> Arc<Store> {
    let (reserved_ms, delete_hours) = (ms(3 * DAY), (0..24).collect());
    let retention = Retention { reserved_ms, delete_hours, ..Retention::default() };
    open(disk.shared(), Options { retention, ..options("/store") }, clock.clone()).expect("opens")
}

fn time_of_newest(store: &Store) -> u64 {
    let queue = store.queue("orders", 0).expect("a queue");
    let newest = QueueOffset(queue.max().0 - 1);
    store.store_time(&queue, newest).expect("a working disk").expect("a message") as u64
}

/// Fills this many files of the log.
fn fill(store: &Store, files: u64) {
    let until = store.range().1.0 / SEGMENT_BYTES + files;
    while store.range().1.0 / SEGMENT_BYTES < until {
        assert!(put(store, &[BIG], false).iter().all(Result::is_ok));
        store.flush().expect("a working disk");
        store.maintain().expect("a working disk");
    }
}

/// Lets time pass, with rounds of maintenance.
fn pass(store: &Store, clock: &ManualClock, time: Duration) {
    const STEPS: u32 = 30;
    for _ in 0..STEPS {
        clock.advance(time / STEPS);
        store.maintain().expect("a working disk");
    }
}

/// Returns the first existing file of the log.
fn first_file(store: &Store) -> u64 {
    store.range().0.0 / SEGMENT_BYTES
}

#[test]
fn store_times_go_back_with_a_clock_that_was_far_ahead_and_that_is_reported_once() {
    let (disk, clock) = (SimDisk::new(), clock());
    let store = start(&disk, &clock);
    let now = clock.wall_ms();
    put(&store, &[SMALL], false);
    clock.set_wall(now - ms(Duration::from_secs(10)));
    put(&store, &[SMALL], false);
    assert_eq!(time_of_newest(&store), now, "a small step: times pause");
    store.maintain().expect("a working disk");
    assert_eq!(store.events(), []);
    clock.set_wall(now + YEAR_MS);
    put(&store, &[SMALL], false);
    clock.set_wall(now);
    for _ in 0..3 {
        put(&store, &[SMALL], false);
        assert_eq!(time_of_newest(&store), now);
        store.maintain().expect("a working disk");
    }
    assert_eq!(store.events(), [Event::ClockSetBack { by_ms: YEAR_MS }]);
}

#[test]
fn files_expire_in_time_after_messages_of_a_clock_that_was_ahead() {
    let (disk, clock) = (SimDisk::new(), clock());
    let store = start(&disk, &clock);
    fill(&store, 1);
    let now = clock.wall_ms();
    clock.set_wall(now + YEAR_MS);
    fill(&store, 3);
    clock.set_wall(now + ms(MINUTE));
    fill(&store, 2);
    pass(&store, &clock, 2 * DAY);
    assert_eq!(first_file(&store), 0, "nothing is three days old");
    pass(&store, &clock, 2 * DAY);
    assert_eq!(first_file(&store), 6, "all but the last file");
}

#[test]
fn a_clock_that_is_behind_for_a_while_deletes_nothing_before_its_time() {
    let (disk, clock) = (SimDisk::new(), clock());
    let store = start(&disk, &clock);
    fill(&store, 2);
    let now = clock.wall_ms();
    // Like a machine without a battery, until it reaches a time server.
    clock.set_wall(1_000);
    fill(&store, 3);
    pass(&store, &clock, HOUR);
    clock.set_wall(now + ms(HOUR));
    fill(&store, 2);
    pass(&store, &clock, 2 * DAY);
    assert_eq!(first_file(&store), 0, "nothing is three days old");
    pass(&store, &clock, 2 * DAY);
    assert_eq!(first_file(&store), 7, "all but the last file");
}

#[test]
fn a_clock_that_jumps_ahead_deletes_nothing_for_an_hour() {
    let (disk, clock) = (SimDisk::new(), clock());
    let store = start(&disk, &clock);
    fill(&store, 3);
    pass(&store, &clock, HOUR);
    let now = clock.wall_ms();
    clock.set_wall(now + YEAR_MS);
    pass(&store, &clock, HOUR / 2);
    assert_eq!(first_file(&store), 0, "it may still be corrected");
    clock.set_wall(now + ms(HOUR / 2));
    pass(&store, &clock, 2 * HOUR);
    assert_eq!(first_file(&store), 0);
    clock.set_wall(now + YEAR_MS);
    pass(&store, &clock, 2 * HOUR);
    assert_eq!(first_file(&store), 3, "the new time is accepted");
}

#[test]
fn a_search_by_time_passes_over_messages_of_a_clock_that_was_ahead() {
    let (disk, clock) = (SimDisk::new(), clock());
    let store = start(&disk, &clock);
    let begin = clock.wall_ms();
    // Twenty messages a minute apart, four of them stored with a clock a year ahead.
    for number in 0..20 {
        let ahead_ms = if (8..12).contains(&number) { YEAR_MS } else { 0 };
        clock.set_wall(begin + ms(MINUTE) * number + ahead_ms);
        put(&store, &[SMALL], false);
    }
    let queue = store.queue("orders", 0).expect("a queue");
    let find = |minute: u64, boundary| {
        store
            .offset_by_time(&queue, (begin + ms(MINUTE) * minute) as i64, boundary)
            .expect("a working disk")
            .0
    };
    for minute in 0..20 {
        // The last of the four may be as recent as the one behind it.
        let expected = if (8..=12).contains(&minute) { 8 } else { minute };
        assert_eq!(find(minute, Boundary::Lower), expected, "from minute {minute} on");
        let expected = if (8..12).contains(&minute) { 7 } else { minute };
        assert_eq!(find(minute, Boundary::Upper), expected, "up to minute {minute}");
    }
    assert_eq!(find(20, Boundary::Lower), 20);
}

#[test]
fn keys_are_found_by_time_after_messages_of_a_clock_that_was_ahead() {
    let (disk, clock) = (SimDisk::new(), clock());
    let begin = clock.wall_ms();
    for is_clean in [true, false] {
        let store = start(&disk, &clock);
        let queue = store.queue_or_create("orders", 0).expect("a queue");
        let first = queue.max().0;
        // The first key of the index is far ahead; the others follow, in and out of order.
        for wall_ms in [begin + YEAR_MS, begin, begin + YEAR_MS, begin + ms(MINUTE), begin + ms(HOUR)] {
            clock.set_wall(wall_ms);
            put(&store, &[SMALL], false);
        }
        let check = |store: &Store| {
            for number in (0..first + 5).filter(|number| !matches!(number % 5, 0 | 2)) {
                let key = key_of("orders", 0, number);
                let until = (begin + ms(DAY)) as i64;
                let found = store.query("orders", &key, 32, begin as i64, until).expect("an index");
                assert_eq!(found.records.len(), 1, "{key}, clean: {is_clean}");
            }
        };
        check(&store);
        store.flush().expect("a working disk");
        if is_clean {
            store.close().expect("closes")
        } else {
            store.abandon()
        }
        let store = start(&disk, &clock);
        check(&store);
        store.close().expect("closes");
    }
}
