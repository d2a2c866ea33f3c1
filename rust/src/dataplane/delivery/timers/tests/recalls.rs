//! Recalled timed messages, and messages with similar keys that stay.

use super::*;

#[test]
fn a_recalled_message_is_not_delivered_and_its_neighbours_are() {
    let (_, clock, store) = fresh();
    let fixture = fixture(&store, &clock);
    for (delay_ms, key) in [(5_000, "a"), (5_000, "b"), (5_499, "c"), (5_501, "d"), (5_501, "e")] {
        keyed(&store, &clock, START_MS + delay_ms, key);
    }
    fixture.settle();
    recall(&store, &clock, START_MS + 5_000, "b");
    recall(&store, &clock, START_MS + 5_501, "orders+d");
    // Recalls in another slot, and of an unknown key.
    recall(&store, &clock, START_MS + 7_000, "a");
    recall(&store, &clock, START_MS + 5_000, "unknown");
    fixture.settle();
    clock.advance(Duration::from_secs(20));
    fixture.settle();
    assert_eq!(bodies(&store), [b"a", b"c", b"e"]);
    assert_eq!(fixture.timers.pending(), 0);
}

#[test]
fn a_recall_survives_rolls_and_stops_in_the_middle_of_its_slot() {
    let timers = TimerOptions { roll_window_slots: 10, ..TimerOptions::default() };
    for stop_ms in [0, 3_000, 14_000, 39_510, 39_999] {
        for is_log_lost in [false, true] {
            let (disk, clock) = (SimDisk::new(), ManualClock::at(START_MS));
            let store = open_with(&disk, &clock, timers.clone());
            let first = fixture(&store, &clock);
            let at_ms = START_MS + 40_000;
            keyed(&store, &clock, at_ms, "gone");
            keyed(&store, &clock, at_ms, "stays");
            clock.advance(Duration::from_millis(2_000));
            first.settle();
            recall(&store, &clock, at_ms, "gone");
            while clock.wall_ms() < START_MS + stop_ms {
                clock.advance(Duration::from_millis(500.min(START_MS + stop_ms - clock.wall_ms())));
                first.settle();
            }
            first.save();
            store.close().expect("closed");
            if is_log_lost {
                disk.shared().remove_dir(std::path::Path::new("/store/timerlog")).expect("removed");
            }
            let store = open_with(&disk, &clock, timers.clone());
            let again = fixture(&store, &clock);
            while clock.wall_ms() < at_ms {
                again.settle();
                assert_eq!(bodies(&store).len(), 0);
                clock.advance(Duration::from_millis(250));
            }
            clock.advance(Duration::from_secs(2));
            again.settle();
            assert_eq!(bodies(&store), [b"stays"], "stopped at {stop_ms} ms");
            assert_eq!(again.timers.pending(), 0);
        }
    }
}

/// Goal: a message recalled in time is not delivered, even if delivery is far behind in its queue.
#[test]
fn a_recall_far_back_in_the_queue_precedes_its_message() {
    let (_, clock, store) = fresh();
    let at_ms = START_MS + 1_500;
    keyed(&store, &clock, at_ms, "gone");
    for number in 0..3_000 {
        keyed(&store, &clock, START_MS + 60_000, &format!("{number}"));
    }
    recall(&store, &clock, at_ms, "gone");
    clock.advance(Duration::from_secs(3));
    let fixture = fixture(&store, &clock);
    fixture.settle();
    assert_eq!(bodies(&store).len(), 0);
    assert_eq!(fixture.timers.pending(), 3_000);
}
