//! Delivery, step by step, on a disk in memory and a clock moved by hand.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::dataplane::delivery::escapes::Escapes;
use crate::dataplane::state::stored_record::{fields, store_record};
use crate::message::record::records;
use crate::store::disk::simulated::{SimDisk, Survival};
use crate::store::disk::{Disk, OsDisk};
use crate::store::{Durability, Options, RecoveryProgress};

const START_MS: u64 = 1_700_000_000_000;
const YEAR_MS: u64 = 365 * 86_400_000;
const SECOND: Duration = Duration::from_secs(1);

fn open(disk: &SimDisk, clock: &Arc<ManualClock>) -> Arc<Store> {
    open_in(Path::new("/store"), disk.shared(), clock)
}

fn options(root: &Path) -> Options {
    Options {
        segment_bytes: 1 << 20,
        index_enabled: false,
        threads: false,
        delay_levels_ms: vec![1_000, 5_000],
        ..Options::new(root)
    }
}

fn open_in(root: &Path, disk: Arc<dyn Disk>, clock: &Arc<ManualClock>) -> Arc<Store> {
    Store::open(options(root), disk, clock.clone(), &RecoveryProgress::default()).expect("the store opens")
}

/// Stores a delayed message for queue 1 of `orders`.
fn delay(store: &Store, level: u32, body: &[u8]) {
    let properties =
        format!("TAGS\u{1}t\u{2}DELAY\u{1}{level}\u{2}REAL_TOPIC\u{1}orders\u{2}REAL_QID\u{1}1\u{2}");
    wait(store, level, properties.as_bytes(), body);
}

/// Stores a message with these properties in the queue of a level.
fn wait(store: &Store, level: u32, properties: &[u8], body: &[u8]) {
    let record = fields(SCHEDULE_TOPIC, level - 1, properties, body);
    store_record(store, RecordFields { reconsume_times: 2, ..record });
}

/// Returns the bodies and tag codes of the delivered messages.
fn arrived(store: &Store) -> Vec<(Vec<u8>, i64)> {
    let Some(queue) = store.queue("orders", 1) else { return Vec::new() };
    let mut found = GetResult::default();
    let mut codes = Vec::new();
    let ask = Get { offset: QueueOffset(0), messages_max: 1_000, bytes_max: 1 << 20 };
    let mut accept = |code| {
        codes.push(code);
        true
    };
    store.get(&queue, &ask, &mut accept, &mut found).expect("a working disk");
    let bodies = found.slices.iter().flat_map(|slice| records(slice).flatten());
    bodies.map(|record| record.body().to_vec()).zip(codes).collect()
}

struct Fixture {
    store: Arc<Store>,
    delivery: Delivery,
    level: Level,
}

/// Starts delivery of level 1 of `store` at `offset`.
fn fixture(store: &Arc<Store>, clock: &Arc<ManualClock>, offset: u64) -> Fixture {
    let offsets: Offsets = Arc::new([AtomicU64::new(offset), AtomicU64::new(0)]);
    let (store, outlet) = (Arc::clone(store), Outlet::Log);
    let delivery = Delivery { store: Arc::clone(&store), clock: clock.clone(), offsets, outlet };
    let level = Level { index: 0, delay: SECOND, found: GetResult::default() };
    Fixture { store, delivery, level }
}

impl Fixture {
    fn deliver(&mut self) -> Duration {
        self.delivery.deliver(&mut self.level)
    }

    fn offset(&self) -> u64 {
        self.delivery.offsets[0].load(Ordering::Acquire)
    }

    fn count(&self) -> usize {
        arrived(&self.store).len()
    }
}

fn fresh() -> (SimDisk, Arc<ManualClock>, Arc<Store>) {
    let (disk, clock) = (SimDisk::new(), ManualClock::at(START_MS));
    let store = open(&disk, &clock);
    (disk, clock, store)
}

#[test]
fn a_message_is_delivered_at_its_time_and_not_earlier() {
    let (_, clock, store) = fresh();
    let mut fixture = fixture(&store, &clock, 0);
    assert_eq!(fixture.deliver(), SECOND, "an idle level wakes before a new message can be due");
    delay(&store, 1, b"first");
    clock.advance(Duration::from_millis(400));
    delay(&store, 1, b"second");
    clock.advance(Duration::from_millis(599));
    assert_eq!(fixture.deliver(), Duration::from_millis(1));
    assert_eq!((fixture.count(), fixture.offset()), (0, 0));
    clock.advance(Duration::from_millis(1));
    assert_eq!(fixture.deliver(), Duration::from_millis(400));
    assert_eq!(fixture.offset(), 1);
    // The code is the hash of the tag again, not a time.
    assert_eq!(arrived(&store), [(b"first".to_vec(), i64::from(tag::java_hash(b"t")))]);
    clock.advance(SECOND);
    fixture.deliver();
    assert_eq!((fixture.count(), fixture.offset()), (2, 2));
}

#[test]
fn the_copy_equals_the_message_as_sent() {
    let (_, clock, store) = fresh();
    delay(&store, 1, b"body");
    clock.advance(SECOND);
    fixture(&store, &clock, 0).deliver();
    let queue = store.queue("orders", 1).expect("made by the delivery");
    let mut found = GetResult::default();
    let ask = Get { offset: QueueOffset(0), messages_max: 1, bytes_max: 1 << 20 };
    store.get(&queue, &ask, &mut |_| true, &mut found).expect("a working disk");
    let record = records(&found.slices[0]).next().expect("one").expect("whole");
    assert_eq!((record.topic(), record.queue_id(), record.body()), (&b"orders"[..], 1, &b"body"[..]));
    assert_eq!((record.born_timestamp_ms(), record.reconsume_times()), (7, 2));
    assert_eq!(properties::get(record.properties(), name::DELAY), Some(&b"1"[..]));
    assert_eq!(record.store_timestamp_ms(), START_MS as i64 + 1_000);
}

#[test]
fn delivery_catches_up_in_order_after_a_long_stop() {
    let (_, clock, store) = fresh();
    for number in 0..200_u32 {
        delay(&store, 1, &number.to_be_bytes());
    }
    clock.advance(Duration::from_secs(86_400));
    let mut fixture = fixture(&store, &clock, 0);
    let pauses: Vec<Duration> = (0..4).map(|_| fixture.deliver()).collect();
    assert_eq!(pauses, [Duration::ZERO, Duration::ZERO, Duration::ZERO, SECOND]);
    let bodies: Vec<Vec<u8>> = arrived(&store).into_iter().map(|(body, _)| body).collect();
    assert_eq!(bodies, (0..200_u32).map(|number| number.to_be_bytes().to_vec()).collect::<Vec<_>>());
}

#[test]
fn messages_stored_by_a_clock_ahead_are_due_immediately_and_later_ones_after_their_delay() {
    let (_, clock, store) = fresh();
    clock.set_wall(START_MS + YEAR_MS);
    for number in 0..200_u32 {
        delay(&store, 1, &number.to_be_bytes());
    }
    clock.set_wall(START_MS);
    let mut fixture = fixture(&store, &clock, 0);
    while fixture.deliver() == Duration::ZERO {}
    assert_eq!((fixture.count(), fixture.offset()), (200, 200), "all of them in one step");
    for number in 200..220_u32 {
        delay(&store, 1, &number.to_be_bytes());
    }
    assert_eq!(fixture.deliver(), SECOND);
    assert_eq!(fixture.count(), 200, "stored by the clock as it is, so not due yet");
    clock.advance(SECOND);
    fixture.deliver();
    assert_eq!(fixture.count(), 220);
}

#[test]
fn a_store_written_by_a_clock_ahead_delivers_immediately() {
    let (disk, ahead, store) = fresh();
    ahead.set_wall(START_MS + YEAR_MS);
    for number in 0..20_u32 {
        delay(&store, 1, &number.to_be_bytes());
    }
    store.abandon();
    drop(store);
    let clock = ManualClock::at(START_MS);
    let store = open(&disk, &clock);
    let mut fixture = fixture(&store, &clock, 0);
    fixture.deliver();
    assert_eq!((fixture.count(), fixture.offset()), (20, 20));
}

#[test]
fn a_clock_set_back_by_seconds_delays_delivery_by_no_more() {
    let (_, clock, store) = fresh();
    clock.advance(Duration::from_secs(60));
    let mut fixture = fixture(&store, &clock, 0);
    delay(&store, 1, b"before");
    clock.set_wall(clock.wall_ms() - 5_000);
    delay(&store, 1, b"after");
    clock.advance(SECOND - Duration::from_millis(1));
    fixture.deliver();
    assert_eq!(fixture.count(), 0);
    clock.advance(Duration::from_millis(5_001));
    fixture.deliver();
    assert_eq!(fixture.count(), 2);
}

#[test]
fn a_crash_loses_nothing_and_repeats_deliveries_since_the_last_save() {
    let (disk, clock, store) = fresh();
    for body in [b"a", b"b", b"c"] {
        delay(&store, 1, body);
    }
    store.flush().expect("flushed");
    clock.advance(SECOND);
    let mut first = fixture(&store, &clock, 0);
    first.deliver();
    assert_eq!((first.count(), first.offset()), (3, 3));
    let saved = 1;
    let disk = disk.crash(Survival::Everything, 0);
    let again = open(&disk, &clock);
    let mut second = fixture(&again, &clock, saved);
    second.deliver();
    let bodies: Vec<Vec<u8>> = arrived(&again).into_iter().map(|(body, _)| body).collect();
    assert_eq!(bodies, [b"a", b"b", b"c", b"b", b"c"]);
}

#[test]
fn an_offset_outside_its_queue_is_clamped() {
    let (_, clock, store) = fresh();
    delay(&store, 1, b"x");
    clock.advance(SECOND);
    let mut beyond = fixture(&store, &clock, 99);
    beyond.deliver();
    assert_eq!((beyond.count(), beyond.offset()), (0, 1));
}

#[test]
fn delivery_resumes_at_a_refused_message() {
    let (_, clock, store) = fresh();
    delay(&store, 1, b"x");
    clock.advance(SECOND);
    let mut fixture = fixture(&store, &clock, 0);
    store.abandon();
    assert_eq!(fixture.deliver(), REFUSED_PAUSE);
    assert_eq!((fixture.count(), fixture.offset()), (0, 0));
}

#[test]
fn a_message_without_a_destination_does_not_block_others() {
    let (_, clock, store) = fresh();
    wait(&store, 1, b"DELAY\x011\x02", b"lost");
    wait(&store, 1, b"REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010\x02", b"lost");
    delay(&store, 1, b"found");
    clock.advance(SECOND);
    let mut fixture = fixture(&store, &clock, 0);
    fixture.deliver();
    assert_eq!((fixture.count(), fixture.offset()), (1, 3));
}

#[test]
fn a_damaged_message_is_reported_once_and_does_not_block_others() {
    // The damaged field of the third of five records: body length, body, or queue offset.
    for (at, name) in [(84, "length"), (88, "body"), (20, "offset")] {
        // Real files are mapped shared, so bytes written to them show in the open store as damage does. The write path
        // is the mapping, so that the messages are in the log file.
        let root = std::env::temp_dir().join(format!("rmqpy-{}-damaged-{name}", std::process::id()));
        let clock = ManualClock::at(START_MS);
        let options = Options { durability: Durability::PageCacheMapped, ..options(&root) };
        let store = Store::open(options, OsDisk::shared(), clock.clone(), &RecoveryProgress::default())
            .expect("the store opens");
        for body in [b"a", b"b", b"c", b"d", b"e"] {
            delay(&store, 1, body);
        }
        let queue = store.queue(SCHEDULE_TOPIC, 0).expect("a queue");
        let [unit] = store.units(&queue, QueueOffset(2), 1).expect("a working disk")[..] else {
            panic!("one")
        };
        let log = root.join("commitlog/00000000000000000000");
        let log = OpenOptions::new().write(true).open(log).expect("a file");
        log.write_all_at(&[0x7F], unit.physical + at).expect("written");
        clock.advance(SECOND);
        let mut fixture = fixture(&store, &clock, 0);
        for _ in 0..3 {
            fixture.deliver();
        }
        let bodies: Vec<Vec<u8>> = arrived(&store).into_iter().map(|(body, _)| body).collect();
        assert_eq!(bodies, [b"a", b"b", b"d", b"e"], "{name}");
        assert_eq!(fixture.offset(), 5, "{name}");
        assert_eq!(store.statistics().get("undelivered"), Some(&1), "{name}");
        let events: Vec<String> = store.events().iter().map(ToString::to_string).collect();
        assert_eq!(events.len(), 1, "{name}: {events:?}");
        assert!(events[0].contains("level 1") && events[0].contains("offset 2"), "{events:?}");
        store.abandon();
        fs::remove_dir_all(&root).expect("removed");
    }
}

#[test]
fn a_delayed_message_does_not_restore_a_deleted_topic() {
    let disk = SimDisk::new();
    let clock = ManualClock::at(START_MS);
    let store = open(&disk, &clock);
    delay(&store, 1, b"sent before");
    store.delete_topic("orders").expect("a working disk");
    delay(&store, 1, b"sent after");
    store.flush().expect("a working disk");
    // The record of the deletion survives a crash.
    drop(store);
    let store = open(&disk, &clock);
    let delays = Delays::start(&store, clock.clone(), &BTreeMap::new(), Outlet::Log).expect("a thread");
    clock.advance(SECOND);
    while delays.offsets().get(&1) != Some(&2) {
        std::thread::yield_now();
    }
    delays.stop();
    let bodies: Vec<_> = arrived(&store).into_iter().map(|(body, _)| body).collect();
    assert_eq!(bodies, [b"sent after"]);
    let store = {
        store.delete_topic("orders").expect("a working disk");
        store
    };
    assert!(store.queue("orders", 1).is_none());
}

#[test]
fn an_acting_slave_passes_accepted_messages_and_sends_each_once() {
    let (_, clock, store) = fresh();
    for body in [b"first", b"other"] {
        delay(&store, 1, body);
    }
    let escapes = Arc::<Escapes>::default();
    escapes.set_open(true);
    let mut fixture = fixture(&store, &clock, 0);
    fixture.delivery.outlet = Outlet::Escapes(Arc::clone(&escapes));
    clock.advance(SECOND);
    let take = || escapes.take(10);
    assert_eq!(fixture.deliver(), REFUSED_PAUSE);
    let taken = take();
    let bodies: Vec<_> = taken.iter().map(|escape| (escape.topic.as_str(), &*escape.body)).collect();
    assert_eq!(bodies, [("orders", &b"first"[..]), ("orders", &b"other"[..])]);
    fixture.deliver();
    assert!(take().is_empty(), "they are in transfer");
    // The second is accepted first. It passes together with the one before it and is not sent again.
    escapes.decide(taken[1].position, true);
    escapes.decide(taken[0].position, false);
    fixture.deliver();
    assert_eq!(fixture.offset(), 0);
    let again = take();
    assert_eq!(again.len(), 1);
    escapes.decide(again[0].position, true);
    fixture.deliver();
    assert_eq!((fixture.offset(), fixture.count()), (2, 0), "nothing is stored here");
    assert_eq!(escapes.count(), 0);
}

#[test]
fn a_closing_acting_slave_offers_no_messages_and_records_those_in_transfer() {
    let (_, clock, store) = fresh();
    let escapes = Arc::<Escapes>::default();
    let mut fixture = fixture(&store, &clock, 0);
    fixture.delivery.outlet = Outlet::Escapes(Arc::clone(&escapes));
    delay(&store, 1, b"first");
    clock.advance(SECOND);
    fixture.deliver();
    assert!(escapes.take(1).is_empty(), "the slave does not act yet");
    escapes.set_open(true);
    fixture.deliver();
    let taken = escapes.take(1);
    escapes.set_open(false);
    escapes.decide(taken[0].position, true);
    assert_eq!(escapes.count(), 1);
    fixture.deliver();
    assert_eq!((fixture.offset(), escapes.count()), (1, 0));
}
