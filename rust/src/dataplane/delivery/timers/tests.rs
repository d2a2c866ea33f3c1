//! Delivery of timed messages, step by step, on a disk in memory and a clock moved by hand.

mod delivery;
mod power_loss;
mod recalls;
mod restarts;

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::dataplane::state::stored_record::{fields, store_record};
use crate::message::properties::{self, name};
use crate::message::record::records;
use crate::message::topic::TIMER_TOPIC;
use crate::positions::QueueOffset;
use crate::store::disk::simulated::{SimDisk, Survival};
use crate::store::{Get, GetResult, Options, RecoveryProgress, TimerOptions};

const START_MS: u64 = 1_700_000_000_500;

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

/// Stores a timed message for queue 1 of `orders`, as a send does.
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

/// Returns body, store time and properties of the delivered messages.
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

/// Timers that a test steps without a thread.
struct Fixture {
    timers: Timers,
    store: Arc<Store>,
}

fn fixture(store: &Arc<Store>, clock: &Arc<ManualClock>) -> Fixture {
    let (delivery, progress, slots) =
        Delivery::load(Arc::clone(store), clock.clone(), Outlet::Log, Arc::default()).expect("loaded");
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

    fn settle(&self) -> Duration {
        (0..10_000).map(|_| self.step()).find(|pause| !pause.is_zero()).expect("steps come to a pause")
    }

    fn save(&self) {
        self.timers.save().expect("saved");
    }
}

/// Recalls the message for queue 1 of `orders` with this key and time, as a broker does.
fn recall(store: &Store, clock: &ManualClock, at_ms: u64, key: &str) {
    // The handle of the message names the slot.
    let time_ms = (at_ms - 1) / 1_000 * 1_000 + 1;
    let own = format!("TIMER_DEL_UNIQKEY\u{1}{key}\u{2}UNIQ_KEY\u{1}{key}\u{2}");
    send_with(store, clock, &own, &format!("TIMER_DELIVER_MS\u{1}{time_ms}"), b"0");
}

fn keyed(store: &Store, clock: &ManualClock, at_ms: u64, key: &str) {
    let own = format!("UNIQ_KEY\u{1}{key}\u{2}");
    send_with(store, clock, &own, &format!("TIMER_DELIVER_MS\u{1}{at_ms}"), key.as_bytes());
}
