//! Serving store: appends, refusals and reads of an open store.

use std::time::Duration;

use crate::store_model::{SEGMENT_BYTES, Sample, clock, key_of, open, options, put, read_all, sample, start};
use rmqpy::clock::{Clock, ManualClock};
use rmqpy::positions::{PhysicalOffset, QueueOffset};
use rmqpy::store::disk::simulated::SimDisk;
use rmqpy::store::{Boundary, Get, GetResult, GetStatus, PutError};

const A: Sample = sample("orders", 0, 100);
const B: Sample = sample("orders", 1, 50);
const BIG: Sample = sample("bulk", 0, 20_000);

#[test]
fn a_record_that_fits_no_segment_is_refused_and_leaves_no_trace() {
    let disk = SimDisk::new();
    let store = start(&disk);
    let before = store.range().1;
    let huge = sample("orders", 0, SEGMENT_BYTES as usize);
    assert_eq!(put(&store, &[huge], false), [Err(PutError::TooLarge)]);
    assert_eq!(store.range().1, before);
    // A batch that is too large is refused as a whole; the puts around it are not.
    assert_eq!(put(&store, &[BIG, BIG, BIG, BIG], true), [Err(PutError::TooLarge); 4]);
    assert!(put(&store, &[A, huge, A].map(|sample| sample), false)[2].is_ok());
}

#[test]
fn a_batch_lies_in_one_segment() {
    let disk = SimDisk::new();
    let store = start(&disk);
    put(&store, &[BIG, BIG], false);
    store.maintain().expect("a working disk");
    let outcomes = put(&store, &[BIG, A, BIG], true);
    let starts: Vec<u64> = outcomes.iter().map(|outcome| outcome.expect("stored").1.0).collect();
    assert_eq!(starts[0], SEGMENT_BYTES, "none of it stayed in the first segment: {starts:?}");
    assert_eq!(read_all(&store, "bulk", 0).len(), 4);
}

#[test]
fn reads_behave_like_apaches() {
    let disk = SimDisk::new();
    let store = start(&disk);
    put(&store, &[A; 20], false);
    let queue = store.queue("orders", 0).expect("a queue");
    let empty = store.queue_or_create("orders", 9).expect("a queue");
    let record = store.range().1.0 as usize / 20;
    let get = |queue, offset, messages_max, bytes_max, accept: bool| {
        let mut result = GetResult::default();
        let ask = Get { offset: QueueOffset(offset), messages_max, bytes_max };
        store.get(queue, &ask, &mut |_| accept, &mut result).expect("a working disk");
        (result.status, result.next_begin.0, result.count)
    };
    let rows = [
        (get(&empty, 0, 32, 1 << 20, true), (GetStatus::NoMessageInQueue, 0, 0)),
        (get(&empty, 5, 32, 1 << 20, true), (GetStatus::NoMessageInQueue, 0, 0)),
        (get(&queue, 0, 32, 1 << 20, true), (GetStatus::Found, 20, 20)),
        (get(&queue, 3, 5, 1 << 20, true), (GetStatus::Found, 8, 5)),
        (get(&queue, 3, 0, 1 << 20, true), (GetStatus::Found, 4, 1)),
        (get(&queue, 3, 32, record * 2, true), (GetStatus::Found, 5, 2)),
        (get(&queue, 3, 32, 0, true), (GetStatus::Found, 4, 1)),
        (get(&queue, 3, 32, 1 << 20, false), (GetStatus::NoMatchedMessage, 20, 0)),
        (get(&queue, 20, 32, 1 << 20, true), (GetStatus::OffsetOverflowOne, 20, 0)),
        (get(&queue, 21, 32, 1 << 20, true), (GetStatus::OffsetOverflowBadly, 20, 0)),
    ];
    for (index, (found, expected)) in rows.into_iter().enumerate() {
        assert_eq!(found, expected, "row {index}");
    }
}

#[test]
fn neighbouring_records_come_as_one_slice() {
    let disk = SimDisk::new();
    let store = start(&disk);
    put(&store, &[A, A, B, A], false);
    let mut result = GetResult::default();
    let queue = store.queue("orders", 0).expect("a queue");
    let ask = Get { offset: QueueOffset(0), messages_max: 32, bytes_max: 1 << 20 };
    store.get(&queue, &ask, &mut |_| true, &mut result).expect("a working disk");
    assert_eq!((result.slices.len(), result.count), (2, 3));
    assert_eq!(result.bytes, result.slices.iter().map(bytes::Bytes::len).sum::<usize>());
}

#[test]
fn an_offset_is_found_by_time_at_either_end_of_equal_times() {
    let disk = SimDisk::new();
    let clock = clock();
    let store = open(disk.shared(), options("/store"), clock.clone()).expect("opens");
    let queue = store.queue_or_create("orders", 0).expect("a queue");
    let found = store.offset_by_time(&queue, 5, Boundary::Lower);
    assert_eq!(found.expect("a working disk"), QueueOffset(0));
    assert_eq!(store.log_begin_time(), None);
    let begin = clock.wall_ms() as i64;
    // Times 0, 10, 10, 10, 20.
    for pause in [0, 10, 0, 0, 10] {
        clock.advance(Duration::from_millis(pause));
        put(&store, &[A], false);
    }
    let rows = [(-1, 0, 0), (0, 0, 0), (5, 1, 0), (10, 1, 3), (15, 4, 3), (20, 4, 4), (25, 5, 4)];
    for (time, lower, upper) in rows {
        let found =
            |boundary| store.offset_by_time(&queue, begin + time, boundary).expect("a working disk").0;
        assert_eq!((found(Boundary::Lower), found(Boundary::Upper)), (lower, upper), "time {time}");
    }
    assert_eq!(store.store_time(&queue, QueueOffset(4)).expect("a working disk"), Some(begin + 20));
    assert_eq!(store.earliest_store_time(&queue).expect("a working disk"), Some(begin));
    assert_eq!(store.log_begin_time(), Some(begin));
}

#[test]
fn store_times_never_fall_even_when_the_clock_does() {
    let disk = SimDisk::new();
    for (wall_ms, expected) in [(5_000, 5_000), (3_000, 5_000), (9_000, 9_000)] {
        let store = open(disk.shared(), options("/store"), ManualClock::at(wall_ms)).expect("opens");
        let (offset, ..) = put(&store, &[A], false)[0].expect("stored");
        let queue = store.queue("orders", 0).expect("a queue");
        assert_eq!(store.store_time(&queue, offset).expect("a working disk"), Some(expected));
        store.close().expect("closes");
    }
}

#[test]
fn lookups_find_records_and_nothing_else() {
    let disk = SimDisk::new();
    let store = start(&disk);
    let (_, physical, end) = put(&store, &[A, B], false)[1].expect("stored");
    let record = store.lookup(physical).expect("a record begins there");
    assert_eq!(record.len() as u64, end.0 - physical.0);
    for at in [physical.0 + 1, end.0, u64::MAX] {
        assert_eq!(store.lookup(PhysicalOffset(at)), None, "at {at}");
    }
    let found = store.query("orders", &key_of("orders", 1, 0), 32, 0, i64::MAX).expect("an index");
    assert_eq!(found.records, [record]);
    assert!(store.query("orders", "nobody", 32, 0, i64::MAX).expect("an index").records.is_empty());
    assert!(
        store.query("other", &key_of("orders", 1, 0), 32, 0, i64::MAX).expect("an index").records.is_empty()
    );
}
