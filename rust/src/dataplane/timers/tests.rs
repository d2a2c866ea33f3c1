//! Delivery of timed messages, step by step, on a disk in memory and a clock moved by hand.

use std::collections::BTreeMap;

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::dataplane::stored_record::{fields, store_record};
use crate::message::properties::{self, name};
use crate::message::record::records;
use crate::message::topic::TIMER_TOPIC;
use crate::positions::QueueOffset;
use crate::store::disk::Open;
use crate::store::disk::simulated::{SimDisk, Survival};
use crate::store::{Durability, Get, GetResult, Options, RecoveryProgress, TimerOptions};

const START_MS: u64 = 1_700_000_000_500;
const DAY_MS: u64 = 86_400_000;

fn open_with(disk: &SimDisk, clock: &Arc<ManualClock>, timers: TimerOptions) -> Arc<Store> {
    let options = Options {
        segment_bytes: 1 << 20,
        index_enabled: false,
        threads: false,
        timers: TimerOptions { log_file_bytes: 4096, wheel_slots: 1024, ..timers },
        ..Options::new("/store")
    };
    Store::open(options, disk.shared(), clock.clone(), &RecoveryProgress::default()).expect("the store opens")
}

fn open(disk: &SimDisk, clock: &Arc<ManualClock>) -> Arc<Store> {
    open_with(disk, clock, TimerOptions::default())
}

fn fresh() -> (SimDisk, Arc<ManualClock>, Arc<Store>) {
    let (disk, clock) = (SimDisk::new(), ManualClock::at(START_MS));
    let store = open(&disk, &clock);
    (disk, clock, store)
}

/// Stores a message for queue 1 of `orders` that asks for a time, as a send does.
fn send(store: &Store, clock: &ManualClock, asked: &str, body: &[u8]) {
    send_with(store, clock, "TAGS\u{1}t\u{2}", asked, body);
}

fn send_with(store: &Store, clock: &ManualClock, own: &str, asked: &str, body: &[u8]) {
    let properties = format!("{own}{asked}\u{2}");
    let timing = schedule::timing(store, clock.wall_ms() as i64, properties.as_bytes(), "orders", 1);
    let timing = timing.expect("accepted").expect("later");
    let mut stored = Vec::new();
    let mut writer = properties::Writer::copy(&mut stored, own.as_bytes());
    for (name, value) in timing.properties() {
        writer.append(name, value);
    }
    store_waiting(store, &stored, body);
}

fn after(store: &Store, clock: &ManualClock, delay_ms: u64, body: &[u8]) {
    send(store, clock, &format!("TIMER_DELAY_MS\u{1}{delay_ms}"), body);
}

fn store_waiting(store: &Store, properties: &[u8], body: &[u8]) {
    store_record(store, fields(TIMER_TOPIC, 0, properties, body));
}

/// Body, store time and properties of what has arrived.
fn arrivals(store: &Store) -> Vec<(Vec<u8>, i64, Vec<u8>)> {
    let Some(queue) = store.queue("orders", 1) else { return Vec::new() };
    let mut all = Vec::new();
    let mut offset = QueueOffset(0);
    while offset < queue.max() {
        let mut found = GetResult::default();
        let ask = Get { offset, messages_max: 1_000, bytes_max: 1 << 20 };
        store.get(&queue, &ask, &mut |_| true, &mut found).expect("a working disk");
        offset = found.next_begin;
        for record in found.slices.iter().flat_map(|slice| records(slice).flatten()) {
            all.push((record.body().to_vec(), record.store_timestamp_ms(), record.properties().to_vec()));
        }
    }
    all
}

fn bodies(store: &Store) -> Vec<Vec<u8>> {
    arrivals(store).into_iter().map(|(body, ..)| body).collect()
}

/// Timers without a thread.
struct Fixture {
    timers: Timers,
    store: Arc<Store>,
}

fn fixture(store: &Arc<Store>, clock: &Arc<ManualClock>) -> Fixture {
    let (delivery, progress, slots) =
        Delivery::load(Arc::clone(store), clock.clone(), Outlet::Log).expect("loaded");
    let idle: SharedClock = ManualClock::at(0);
    let wheel = Deadlines::start("timers", idle, |()| None).expect("a thread");
    wheel.stop();
    let (delivery, saving) = (Arc::new(Mutex::new(delivery)), Mutex::new((progress, slots)));
    let timers = Timers { delivery, saving, wheel, store: Arc::clone(store), clock: clock.clone() };
    Fixture { timers, store: Arc::clone(store) }
}

impl Fixture {
    fn step(&self) -> Duration {
        self.timers.delivery.lock().step()
    }

    /// Steps until there is a pause, and returns it.
    fn settle(&self) -> Duration {
        (0..10_000).map(|_| self.step()).find(|pause| !pause.is_zero()).expect("it comes to an end")
    }

    fn save(&self) {
        self.timers.save().expect("saved");
    }
}

#[test]
fn a_message_moves_on_at_the_millisecond_asked_for_and_not_before() {
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
fn the_copy_is_the_message_as_it_was_sent_and_says_when_it_waited() {
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
fn messages_of_one_millisecond_come_in_the_order_in_which_they_were_sent() {
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
fn what_is_read_late_comes_in_the_order_of_time_all_the_same() {
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

#[test]
fn what_was_due_while_the_broker_was_down_comes_at_once_and_in_order() {
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

/// Goal: a message that is due the moment it is read is not taken for one that the log has lost. Method: a store that waits for
/// the disk, stopped where a queue shows what `visible` has not passed yet.
#[test]
fn a_message_due_the_moment_its_queue_shows_it_is_delivered() {
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

/// Goal: there is no moment of a save at which a loss of power loses a message, or has one come early. Method: the world stops
/// before each operation of each save; what survives differs; what was left is opened, delivers, is stopped the same way
/// in the middle of its first save, and opened again.
#[test]
fn a_power_loss_at_any_moment_of_a_save_loses_no_timed_message() {
    let whole = SimDisk::new();
    let moments = cut_life(&whole, &ManualClock::at(START_MS), 0, None).1;
    assert!(moments.len() > 60, "{} operations", moments.len());
    for (index, moment) in moments.into_iter().enumerate() {
        let survival = [Survival::Nothing, Survival::Percent(50), Survival::Prefix, Survival::Percent(90)];
        let survival = survival[index % 4];
        let (disk, clock) = (SimDisk::new(), ManualClock::at(START_MS));
        let mut sent = cut_life(&disk, &clock, 0, Some(moment)).0;
        let disk = disk.crash(survival, moment);
        sent.extend(cut_life(&disk, &clock, 1, Some(disk.operations() + moment % 90)).0);
        let disk = disk.crash(survival, moment + 7);
        clock.advance(Duration::from_secs(60));
        let store = open(&disk, &clock);
        fixture(&store, &clock).settle();
        let came: BTreeMap<_, _> = arrivals(&store).into_iter().map(|(body, at, _)| (body, at)).collect();
        for (body, due_ms) in &sent {
            let at_ms = came.get(body).copied().unwrap_or(0);
            assert!(at_ms >= *due_ms, "{moment}, {survival:?}: {} at {at_ms}", String::from_utf8_lossy(body));
        }
    }
}

/// A broker that sends itself timed messages and saves, until the disk stops before `stop`: what was durable, with its time,
/// and the operations of its saves.
fn cut_life(
    disk: &SimDisk,
    clock: &Arc<ManualClock>,
    life: u64,
    stop: Option<u64>,
) -> (BTreeMap<Vec<u8>, i64>, Vec<u64>) {
    let (mut durable, mut sent, mut moments) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let store = open(disk, clock);
    let fixture = fixture(&store, clock);
    stop.into_iter().for_each(|stop| disk.freeze_at(stop));
    for round in 0..8_u64 {
        for number in 0..24_u64 {
            let delay_ms = 1 + (life * 7_919 + round * 104_729 + number * 1_299_709) % 5_000;
            let body = format!("{life}/{round}/{number}").into_bytes();
            after(&store, clock, delay_ms, &body);
            sent.insert(body, (clock.wall_ms() + delay_ms) as i64);
        }
        if store.flush().is_ok() && !disk.is_frozen() {
            durable.append(&mut sent);
        }
        for _ in 0..40 {
            clock.advance(Duration::from_millis(13));
            fixture.step();
        }
        let before = disk.operations();
        let saved = fixture.timers.save();
        moments.extend(before..disk.operations());
        if saved.is_err() || disk.is_frozen() {
            break;
        }
    }
    store.abandon();
    (durable, moments)
}

#[test]
fn a_start_reads_the_wheel_and_takes_back_what_was_written_to_it_since_the_last_save() {
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
fn damage_to_a_file_of_the_timers_loses_none_of_them() {
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
fn a_clean_stop_in_the_middle_of_a_burst_repeats_none_of_it() {
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

/// Goal: whatever a power loss leaves of the files, every message whose record survived is delivered, never early.
/// Method: rounds of sends and deliveries with saves in between, a crash at the end of each, and a model of what was
/// durable when it was sent.
#[test]
fn power_losses_lose_no_timed_message_and_make_none_early() {
    for seed in 0..9_u64 {
        let survival = [Survival::Percent(50), Survival::Nothing, Survival::Prefix][seed as usize % 3];
        let (mut disk, clock) = (SimDisk::new(), ManualClock::at(START_MS));
        let mut sent: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for round in 0..4_u64 {
            let store = open(&disk, &clock);
            let fixture = fixture(&store, &clock);
            for number in 0..40_u64 {
                let delay_ms = 1 + (seed * 7_919 + round * 104_729 + number * 1_299_709) % 9_000;
                let body = format!("{round}/{number}").into_bytes();
                after(&store, &clock, delay_ms, &body);
                sent.insert(body, clock.wall_ms() + delay_ms);
                clock.advance(Duration::from_millis((seed + number) % 97));
                fixture.settle();
                if (seed + number) % 11 == 0 {
                    fixture.save();
                }
            }
            store.flush().expect("what is sent is durable");
            store.abandon();
            drop((fixture, store));
            disk = disk.crash(survival, seed * 100 + round);
        }
        clock.advance(Duration::from_secs(60));
        let store = open(&disk, &clock);
        fixture(&store, &clock).settle();
        let found = arrivals(&store);
        for (body, stored_ms, _) in &found {
            assert!(*stored_ms >= sent[body] as i64, "seed {seed}: early");
        }
        let came: BTreeMap<_, _> = found.into_iter().map(|(body, at, _)| (body, at)).collect();
        let lost: Vec<_> = sent.keys().filter(|body| !came.contains_key(*body)).collect();
        assert!(lost.is_empty(), "seed {seed}: lost {lost:?}");
    }
}

#[test]
fn files_of_the_timers_that_were_deleted_are_made_anew_from_the_log() {
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
fn a_slot_of_another_width_finds_what_waits_already() {
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

#[test]
fn a_wait_beyond_the_window_is_stored_again_on_the_way_and_ends_at_its_time() {
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
            // Rebuilt from the log, what has been stored again is not taken for waiting.
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

/// Takes back the message for queue 1 of `orders` with this key and time, as a broker does.
fn recall(store: &Store, clock: &ManualClock, at_ms: u64, key: &str) {
    // Its handle names the slot.
    let time_ms = (at_ms - 1) / 1_000 * 1_000 + 1;
    let own = format!("TIMER_DEL_UNIQKEY\u{1}{key}\u{2}UNIQ_KEY\u{1}{key}\u{2}");
    send_with(store, clock, &own, &format!("TIMER_DELIVER_MS\u{1}{time_ms}"), b"0");
}

fn keyed(store: &Store, clock: &ManualClock, at_ms: u64, key: &str) {
    let own = format!("UNIQ_KEY\u{1}{key}\u{2}");
    send_with(store, clock, &own, &format!("TIMER_DELIVER_MS\u{1}{at_ms}"), key.as_bytes());
}

#[test]
fn what_was_taken_back_does_not_come_and_its_neighbours_do() {
    let (_, clock, store) = fresh();
    let fixture = fixture(&store, &clock);
    for (delay_ms, key) in [(5_000, "a"), (5_000, "b"), (5_499, "c"), (5_501, "d"), (5_501, "e")] {
        keyed(&store, &clock, START_MS + delay_ms, key);
    }
    fixture.settle();
    recall(&store, &clock, START_MS + 5_000, "b");
    recall(&store, &clock, START_MS + 5_501, "orders+d");
    // Of another slot, and of nothing.
    recall(&store, &clock, START_MS + 7_000, "a");
    recall(&store, &clock, START_MS + 5_000, "nobody");
    fixture.settle();
    clock.advance(Duration::from_secs(20));
    fixture.settle();
    assert_eq!(bodies(&store), [b"a", b"c", b"e"]);
    assert_eq!(fixture.timers.pending(), 0);
}

#[test]
fn a_recall_holds_through_rolls_and_through_stops_in_the_middle_of_its_slot() {
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

/// Goal: what a broker accepted to take back in time is not delivered, even if delivery is far behind in its queue.
#[test]
fn a_recall_behind_thousands_of_others_is_met_before_its_message_is_delivered() {
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

/// Goal: what was delivered and not saved is not delivered again where the index finds it: after a kill, and after another
/// broker, whose progress is one of whole seconds.
#[test]
fn what_was_delivered_and_not_saved_is_found_in_the_index_and_not_repeated() {
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

#[test]
fn figures_say_what_waits_by_topic_and_by_time_also_after_a_start() {
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
            assert_eq!(counts.delays, [4, 0, 0, 0, 0, 1, 0], "what takes another back had none of its own");
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
fn what_the_store_refuses_is_tried_again() {
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
fn a_record_without_a_time_holds_up_no_other() {
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
fn a_timed_message_does_not_bring_back_the_topic_that_was_deleted_while_it_waited() {
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
fn times_that_make_no_sense_are_refused_and_those_that_have_come_are_now() {
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
