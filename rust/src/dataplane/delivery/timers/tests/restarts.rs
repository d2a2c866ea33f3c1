//! Restarts after a clean stop, a kill or damage: pending messages are recovered, and deliveries are not repeated.

use super::*;
use crate::store::disk::Open;

#[test]
fn messages_due_while_the_broker_was_down_are_delivered_immediately_in_order() {
    let (disk, clock, store) = fresh();
    let first = fixture(&store, &clock);
    for (delay_ms, body) in [(9_000, b"c"), (3_000, b"a"), (6_000, b"b")] {
        after(&store, &clock, delay_ms, body);
    }
    first.settle();
    first.save();
    store.close().expect("closed");
    clock.advance(Duration::from_secs(3_600));
    let store = open(&disk, &clock);
    fixture(&store, &clock).settle();
    assert_eq!(bodies(&store), [b"a", b"b", b"c"]);
}

#[test]
fn a_clean_stop_repeats_nothing_and_loses_nothing_even_in_the_middle_of_a_slot() {
    let (mut disk, clock) = (SimDisk::new(), ManualClock::at(START_MS));
    let mut sent = Vec::new();
    for round in 0..20_u64 {
        let store = open(&disk, &clock);
        let fixture = fixture(&store, &clock);
        for number in 0..20 {
            let delay_ms = 37 + number * 211;
            let body = format!("{round}/{number}").into_bytes();
            after(&store, &clock, delay_ms, &body);
            sent.push(body);
        }
        for _ in 0..7 {
            clock.advance(Duration::from_millis(83));
            fixture.settle();
        }
        fixture.save();
        store.close().expect("closed");
        disk = disk.crash(Survival::Everything, round);
    }
    clock.advance(Duration::from_secs(60));
    let store = open(&disk, &clock);
    fixture(&store, &clock).settle();
    let mut found = bodies(&store);
    found.sort();
    sent.sort();
    assert_eq!(found, sent);
}

#[test]
fn a_start_undoes_writes_to_the_wheel_since_the_last_save() {
    let (disk, clock, store) = fresh();
    let first = fixture(&store, &clock);
    for number in 0..400_u64 {
        after(&store, &clock, 3_000 + number * 10, format!("{number:03}").as_bytes());
        if number == 200 {
            first.settle();
            first.save();
        }
    }
    first.settle();
    let snapshot = first.timers.delivery.lock().snapshot().expect("something to be saved");
    snapshot.unsynced.iter().try_for_each(Unsynced::sync).expect("synced");
    first.timers.saving.lock().1.write(&snapshot.slots).expect("the wheel is ahead of the progress");
    store.abandon();
    drop((first, store));
    let disk = disk.crash(Survival::Everything, 0);
    let store = open(&disk, &clock);
    let again = fixture(&store, &clock);
    assert_eq!((again.timers.pending(), again.timers.delivery.lock().next), (201, QueueOffset(201)));
    again.settle();
    assert_eq!(again.timers.pending(), 400);
    clock.advance(Duration::from_secs(60));
    again.settle();
    let expected: Vec<_> = (0..400).map(|number| format!("{number:03}").into_bytes()).collect();
    assert_eq!(bodies(&store), expected);
}

#[test]
fn damage_to_a_timer_file_loses_no_message() {
    for damaged in ["timerwheel", "timerlog/00000000000000000000", "config/timercheck"] {
        let (disk, clock, store) = fresh();
        let first = fixture(&store, &clock);
        for number in 0..60_u64 {
            after(&store, &clock, 3_000 + number * 100, format!("{number:03}").as_bytes());
        }
        first.settle();
        clock.advance(Duration::from_secs(4));
        first.settle();
        first.save();
        store.close().expect("closed");
        let path = std::path::Path::new("/store").join(damaged);
        let file = disk.shared().open(&path, Open::Write).expect("a file");
        let size = file.size().expect("a size") as usize;
        file.write_at(&vec![0; size], 0).expect("written");
        let store = open(&disk, &clock);
        let again = fixture(&store, &clock);
        clock.advance(Duration::from_secs(60));
        for _ in 0..100 {
            again.step();
        }
        let mut found = bodies(&store);
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 60, "{damaged}");
        assert_eq!(again.timers.pending(), 0);
        again.save();
    }
}

#[test]
fn a_clean_stop_in_a_burst_repeats_no_delivery() {
    let (disk, clock, store) = fresh();
    let first = fixture(&store, &clock);
    let at_ms = START_MS + 5_000;
    for number in 0..3_000 {
        keyed(&store, &clock, at_ms, &format!("{number:04}"));
    }
    keyed(&store, &clock, at_ms + 200, "later");
    keyed(&store, &clock, at_ms + 200, "gone");
    recall(&store, &clock, at_ms + 200, "gone");
    first.settle();
    clock.advance(Duration::from_millis(5_000));
    first.step();
    let half = bodies(&store).len();
    assert!((1..3_000).contains(&half), "{half} of them");
    first.timers.stop();
    first.save();
    store.close().expect("closed");
    let store = open(&disk, &clock);
    let again = fixture(&store, &clock);
    again.settle();
    clock.advance(Duration::from_secs(2));
    again.settle();
    let mut expected: Vec<_> = (0..3_000).map(|number| format!("{number:04}").into_bytes()).collect();
    expected.push(b"later".to_vec());
    let found = bodies(&store);
    assert!(found == expected, "{} came", found.len());
    assert_eq!(again.timers.pending(), 0);
}

#[test]
fn deleted_timer_files_are_rebuilt_from_the_log() {
    let (disk, clock, store) = fresh();
    let first = fixture(&store, &clock);
    for number in 0..200_u64 {
        after(&store, &clock, 1_000 + number * 100, format!("{number:03}").as_bytes());
    }
    first.settle();
    clock.advance(Duration::from_secs(10));
    first.settle();
    first.save();
    let before = bodies(&store).len();
    assert_eq!(before, 91);
    store.close().expect("closed");
    let shared = disk.shared();
    shared.remove_dir(std::path::Path::new("/store/timerlog")).expect("removed");
    shared.remove(std::path::Path::new("/store/timerwheel")).expect("removed");
    let store = open(&disk, &clock);
    let again = fixture(&store, &clock);
    again.settle();
    assert_eq!((bodies(&store).len(), again.timers.pending()), (before, 109));
    clock.advance(Duration::from_secs(20));
    again.settle();
    let expected: Vec<_> = (0..200).map(|number| format!("{number:03}").into_bytes()).collect();
    assert_eq!(bodies(&store), expected);
}

#[test]
fn pending_messages_survive_a_change_of_the_slot_width() {
    let (disk, clock, store) = fresh();
    let first = fixture(&store, &clock);
    for delay_ms in [2_010, 2_020, 4_000] {
        after(&store, &clock, delay_ms, format!("{delay_ms}").as_bytes());
    }
    first.settle();
    clock.advance(Duration::from_millis(2_015));
    first.settle();
    first.save();
    store.close().expect("closed");
    let store = open_with(&disk, &clock, TimerOptions { precision_ms: 100, ..TimerOptions::default() });
    let again = fixture(&store, &clock);
    for expected in [1, 2, 2] {
        again.settle();
        assert_eq!(bodies(&store).len(), expected);
        clock.advance(Duration::from_millis(5));
    }
    clock.advance(Duration::from_secs(4));
    again.settle();
    assert_eq!(bodies(&store), [b"2010", b"2020", b"4000"]);
}

/// Goal: deliveries that were not saved are found in the index and not repeated, after a kill and after another
/// broker, which saves whole seconds.
#[test]
fn unsaved_deliveries_are_found_in_the_index_and_not_repeated() {
    for is_foreign in [false, true] {
        let (disk, clock) = (SimDisk::new(), ManualClock::at(START_MS));
        let open = |disk: &SimDisk| {
            let options = Options {
                segment_bytes: 1 << 20,
                index_slots: 64,
                index_entries: 4_096,
                threads: false,
                timers: TimerOptions { wheel_slots: 1024, ..TimerOptions::default() },
                ..Options::new("/store")
            };
            let store = Store::open(options, disk.shared(), clock.clone(), &RecoveryProgress::default());
            store.expect("the store opens")
        };
        let store = open(&disk);
        let first = fixture(&store, &clock);
        first.settle();
        for number in 0..100 {
            keyed(&store, &clock, START_MS + 1_000 + number * 20, &format!("{number:03}"));
        }
        first.settle();
        first.save();
        clock.advance(Duration::from_millis(1_500));
        first.settle();
        if is_foreign {
            first.save();
        }
        clock.advance(Duration::from_millis(500));
        first.settle();
        assert_eq!(bodies(&store).len(), 51);
        store.abandon();
        drop((first, store));
        let disk = disk.crash(Survival::Everything, 0);
        if is_foreign {
            let file = disk.shared().open(std::path::Path::new("/store/config/timercheck"), Open::Write);
            file.expect("a file").write_at(&[0; 64], 56).expect("written");
        }
        let store = open(&disk);
        let again = fixture(&store, &clock);
        again.settle();
        assert_eq!(bodies(&store).len(), 51, "foreign: {is_foreign}");
        clock.advance(Duration::from_secs(5));
        again.settle();
        let expected: Vec<_> = (0..100).map(|number| format!("{number:03}").into_bytes()).collect();
        assert_eq!(bodies(&store), expected);
        assert_eq!(again.timers.pending(), 0);
    }
}
