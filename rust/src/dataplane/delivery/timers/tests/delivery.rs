//! Time, order and content of deliveries, and the counts of pending messages.

use super::*;
use crate::store::Durability;

const DAY_MS: u64 = 86_400_000;

#[test]
fn a_message_is_delivered_at_the_requested_millisecond() {
    let (_, clock, store) = fresh();
    let fixture = fixture(&store, &clock);
    fixture.settle();
    for delay_ms in [1, 499, 500, 501, 1_500, 2_345] {
        after(&store, &clock, delay_ms, format!("{delay_ms}").as_bytes());
    }
    send(&store, &clock, "TIMER_DELAY_SEC\u{1}2\u{2}TIMER_DELAY_MS\u{1}9", b"2000");
    send(&store, &clock, &format!("TIMER_DELIVER_MS\u{1}{}", START_MS + 1_000), b"1000");
    for _ in 0..3_000 {
        fixture.settle();
        clock.advance(Duration::from_millis(1));
    }
    let found = arrivals(&store);
    assert_eq!(found.len(), 8);
    for (body, stored_ms, _) in &found {
        let delay: i64 = std::str::from_utf8(body).expect("text").parse().expect("a number");
        assert_eq!(stored_ms - START_MS as i64, delay);
    }
    let order: Vec<_> = found.iter().map(|(_, stored_ms, _)| *stored_ms).collect();
    assert!(order.is_sorted());
    assert_eq!(fixture.timers.pending(), 0);
}

#[test]
fn the_copy_equals_the_message_as_sent_and_has_the_times_of_its_wait() {
    let (_, clock, store) = fresh();
    let fixture = fixture(&store, &clock);
    after(&store, &clock, 5_000, b"body");
    fixture.settle();
    assert_eq!(fixture.timers.pending(), 1);
    clock.advance(Duration::from_secs(5));
    fixture.settle();
    let [(body, _, stored)] = &arrivals(&store)[..] else { panic!("one") };
    let value = |name| properties::get(stored, name).map(|value| String::from_utf8_lossy(value).into_owned());
    assert_eq!(body, b"body");
    assert_eq!(value(name::TAGS).as_deref(), Some("t"));
    assert_eq!(value(name::REAL_TOPIC).as_deref(), Some("orders"));
    assert_eq!(value(name::TIMER_DELAY_MS).as_deref(), Some("5000"));
    assert_eq!(value(name::TIMER_DELIVER_MS), Some((START_MS + 5_000).to_string()));
    assert_eq!(value(name::TIMER_OUT_MS), Some((START_MS / 1_000 * 1_000 + 5_000).to_string()));
    assert_eq!(value(name::TIMER_ENQUEUE_MS), Some(START_MS.to_string()));
    assert_eq!(value(name::TIMER_DEQUEUE_MS), Some((START_MS + 5_000).to_string()));
}

#[test]
fn messages_of_one_millisecond_are_delivered_in_the_order_of_sending() {
    let (_, clock, store) = fresh();
    let fixture = fixture(&store, &clock);
    let at = START_MS + 10_000;
    let sent: Vec<Vec<u8>> = (0..500_u32).map(|number| number.to_be_bytes().to_vec()).collect();
    for body in &sent {
        send(&store, &clock, &format!("TIMER_DELIVER_MS\u{1}{at}"), body);
    }
    fixture.settle();
    clock.advance(Duration::from_secs(3_600));
    fixture.settle();
    assert_eq!(bodies(&store), sent);
}

#[test]
fn overdue_messages_are_delivered_in_order_of_time() {
    let (_, clock, store) = fresh();
    let fixture = fixture(&store, &clock);
    fixture.settle();
    for (delay_ms, body) in [(9_000, b"c"), (3_000, b"a"), (6_000, b"b")] {
        after(&store, &clock, delay_ms, body);
    }
    clock.advance(Duration::from_secs(3_600));
    fixture.settle();
    assert_eq!(bodies(&store), [b"a", b"b", b"c"]);
}

/// Goal: a message due when it is read is not reported as lost. Method: a store that waits for the disk, stopped
/// when a queue shows a message that `visible` has not passed yet.
#[test]
fn a_message_due_when_its_queue_shows_it_is_delivered() {
    let (disk, clock) = (SimDisk::new(), ManualClock::at(START_MS));
    let options = Options {
        segment_bytes: 1 << 20,
        durability: Durability::DiskMapped,
        threads: false,
        ..Options::new("/store")
    };
    let store = Store::open(options, disk.shared(), clock.clone(), &RecoveryProgress::default());
    let store = store.expect("the store opens");
    let fixture = fixture(&store, &clock);
    fixture.settle();
    after(&store, &clock, 1, b"x");
    clock.advance(Duration::from_millis(2));
    store.fill_queues();
    fixture.settle();
    store.flush().expect("a working disk");
    assert_eq!(bodies(&store), [b"x"]);
}

#[test]
fn a_wait_beyond_the_window_is_stored_again_and_ends_at_its_time() {
    let timers = TimerOptions { delay_sec_max: 40 * 86_400, ..TimerOptions::default() };
    let (mut disk, clock) = (SimDisk::new(), ManualClock::at(START_MS));
    let mut store = open_with(&disk, &clock, timers.clone());
    let mut fixed = fixture(&store, &clock);
    let delay_ms = 30 * DAY_MS + 4_321;
    after(&store, &clock, delay_ms, b"later");
    for day in 0..31 {
        fixed.settle();
        assert_eq!(bodies(&store).len(), usize::from(day > 30));
        fixed.save();
        store.close().expect("closed");
        disk = disk.crash(Survival::Everything, day);
        if day % 3 == 0 {
            // After a rebuild, messages that were stored again are not pending.
            disk.shared().remove_dir(std::path::Path::new("/store/timerlog")).expect("removed");
        }
        store = open_with(&disk, &clock, timers.clone());
        fixed = fixture(&store, &clock);
        clock.advance(Duration::from_millis(DAY_MS));
    }
    fixed.settle();
    let [(_, stored_ms, stored)] = &arrivals(&store)[..] else { panic!("once") };
    assert!(*stored_ms >= (START_MS + delay_ms) as i64);
    assert!(properties::get(stored, name::TIMER_ROLL_TIMES).is_some());
}

#[test]
fn statistics_count_pending_messages_by_topic_and_time_after_a_restart_too() {
    let (disk, clock, store) = fresh();
    let mut fixed = fixture(&store, &clock);
    for (delay_ms, key) in [(500, "a"), (4_000, "b"), (4_000, "gone"), (30_000, "c"), (90_000_000, "d")] {
        keyed(&store, &clock, START_MS + delay_ms, key);
    }
    recall(&store, &clock, START_MS + 4_000, "gone");
    for is_again in [false, true] {
        if is_again {
            fixed.timers.stop();
            fixed.save();
            store.close().expect("closed");
            let store = open(&disk, &clock);
            fixed = fixture(&store, &clock);
        }
        fixed.settle();
        let statistics = fixed.timers.statistics().expect("read");
        let [(topic, counts)] = &statistics.topics[..] else { panic!("one topic") };
        assert_eq!((topic.as_str(), counts.waiting, statistics.pending), ("orders", 4, 4));
        assert_eq!((statistics.unread, statistics.late, statistics.late_ms), (0, 0, 0));
        if !is_again {
            assert_eq!(counts.delays, [4, 0, 0, 0, 0, 1, 0], "recalls have no delay");
        }
        let due = fixed.timers.due_within(&[5, 60, 86_400]).expect("read");
        assert_eq!(due, [("orders".to_owned(), vec![2, 1, 0, 1])]);
        assert_eq!(fixed.timers.slots_within(&[5, 60, 86_400]), [2, 1, 0, 1]);
    }
    clock.advance(Duration::from_secs(60));
    fixed.settle();
    let statistics = fixed.timers.statistics().expect("read");
    assert_eq!(
        (statistics.topics[0].1.waiting, statistics.topics[0].1.delivered, statistics.pending),
        (1, 3, 1)
    );
}

#[test]
fn a_clock_set_back_makes_nothing_early_and_loses_nothing() {
    let (disk, clock, store) = fresh();
    let first = fixture(&store, &clock);
    after(&store, &clock, 1_000, b"before");
    clock.advance(Duration::from_secs(60));
    first.settle();
    clock.set_wall(START_MS + 30_000);
    after(&store, &clock, 10_000, b"after");
    first.settle();
    clock.advance(Duration::from_millis(9_999));
    first.settle();
    assert_eq!(bodies(&store), [b"before".to_vec()]);
    first.save();
    store.flush().expect("flushed");
    store.abandon();
    let disk = disk.crash(Survival::Everything, 0);
    let store = open(&disk, &clock);
    let again = fixture(&store, &clock);
    again.settle();
    assert_eq!(bodies(&store), [b"before".to_vec()]);
    clock.advance(Duration::from_millis(1));
    again.settle();
    assert_eq!(bodies(&store), [b"before".to_vec(), b"after".to_vec()]);
}

#[test]
fn a_refused_append_is_retried() {
    let (_, clock, store) = fresh();
    let fixture = fixture(&store, &clock);
    after(&store, &clock, 1_000, b"x");
    fixture.settle();
    clock.advance(Duration::from_secs(1));
    store.abandon();
    assert!(fixture.step() > Duration::ZERO);
    assert_eq!(
        (fixture.store.queue("orders", 1).map(|queue| queue.max().0), fixture.timers.pending()),
        (Some(0), 1)
    );
}

#[test]
fn a_record_without_a_time_does_not_block_others() {
    let (_, clock, store) = fresh();
    let fixture = fixture(&store, &clock);
    store_waiting(&store, b"REAL_TOPIC\x01orders\x02REAL_QID\x011\x02", b"never");
    store_waiting(&store, b"TIMER_OUT_MS\x01soon\x02REAL_TOPIC\x01orders\x02REAL_QID\x011\x02", b"never");
    store_waiting(&store, b"TIMER_OUT_MS\x011000\x02", b"nowhere");
    after(&store, &clock, 1_000, b"found");
    clock.advance(Duration::from_secs(1));
    fixture.settle();
    assert_eq!(bodies(&store), [b"found"]);
}

#[test]
fn a_timed_message_does_not_restore_a_deleted_topic() {
    let (_, clock, store) = fresh();
    let fixture = fixture(&store, &clock);
    after(&store, &clock, 1_000, b"x");
    fixture.settle();
    store.delete_topic("orders").expect("a working disk");
    clock.advance(Duration::from_secs(1));
    fixture.settle();
    assert!(store.queue("orders", 1).is_none());
    assert_eq!(fixture.timers.pending(), 0);
}

#[test]
fn invalid_times_are_refused_and_past_times_are_due_now() {
    let (_, clock, store) = fresh();
    let timing = |properties: &str| {
        let found = schedule::timing(&store, clock.wall_ms() as i64, properties.as_bytes(), "orders", 0);
        found.map(|timing| timing.is_some()).map_err(|error| error.code)
    };
    let at = |ms: u64| format!("TIMER_DELIVER_MS\u{1}{ms}\u{2}");
    let limit_ms = START_MS + 259_200_000;
    for (properties, expected) in [
        (at(START_MS - 1), Ok(false)),
        (at(START_MS), Ok(false)),
        (at(START_MS + 1), Ok(true)),
        (at(limit_ms), Ok(true)),
        (at(limit_ms + 1), Err(13)),
        ("TIMER_DELAY_MS\u{1}soon\u{2}".to_owned(), Err(13)),
        ("TIMER_DELAY_SEC\u{1}9223372036854775807\u{2}".to_owned(), Err(13)),
        ("TIMER_DELAY_SEC\u{1}-9223372036854775808\u{2}".to_owned(), Ok(false)),
        (at(START_MS) + "TIMER_DEL_UNIQKEY\u{1}key\u{2}", Err(13)),
    ] {
        assert_eq!(timing(&properties), expected, "{properties:?}");
    }
}
