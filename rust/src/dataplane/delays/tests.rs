//! Delivery, step by step, on a disk in memory and a clock moved by hand.

use std::time::Duration;

use super::*;
use crate::clock::ManualClock;
use crate::store::disk::simulated::{SimDisk, Survival};
use crate::store::{Options, RecoveryProgress};

const START_MS: u64 = 1_700_000_000_000;
const SECOND: Duration = Duration::from_secs(1);

fn open(disk: &SimDisk, clock: &Arc<ManualClock>) -> Arc<Store> {
    let options = Options {
        segment_bytes: 1 << 20,
        index_enabled: false,
        threads: false,
        delay_levels_ms: vec![1_000, 5_000],
        ..Options::new("/store")
    };
    Store::open(options, disk.shared(), clock.clone(), &RecoveryProgress::default()).expect("the store opens")
}

/// Stores a message that waits for queue 1 of `orders`.
fn delay(store: &Store, level: u32, body: &[u8]) {
    let properties =
        format!("TAGS\u{1}t\u{2}DELAY\u{1}{level}\u{2}REAL_TOPIC\u{1}orders\u{2}REAL_QID\u{1}1\u{2}");
    wait(store, level, properties.as_bytes(), body);
}

/// Stores a message with these properties in the queue of a level.
fn wait(store: &Store, level: u32, properties: &[u8], body: &[u8]) {
    let queue = store.queue_or_create(SCHEDULE_TOPIC, level - 1).expect("a queue");
    let host = "127.0.0.1:10911".parse().expect("an address");
    let record = RecordFields {
        queue_id: level - 1,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: 7,
        born_host: host,
        store_host: host,
        reconsume_times: 2,
        prepared_transaction_offset: 0,
        body,
        body_crc: RecordFields::body_crc(body),
        topic: SCHEDULE_TOPIC.as_bytes(),
        properties,
    };
    let (tags_code, keys) = (0, KeyHashes::default());
    let mut puts = [Put { queue, record, tags_code, keys, joined: false, outcome: Err(PutError::Pending) }];
    store.append(&mut puts);
    assert!(puts[0].outcome.is_ok(), "{:?}", puts[0].outcome);
}

/// Bodies and tags codes of what arrived.
fn arrived(store: &Store) -> Vec<(Vec<u8>, i64)> {
    let Some(queue) = store.queue("orders", 1) else { return Vec::new() };
    let mut found = GetResult::default();
    let mut codes = Vec::new();
    let ask = Get { offset: QueueOffset(0), messages_max: 1_000, bytes_max: 1 << 20 };
    store.get(
        &queue,
        &ask,
        &mut |code| {
            codes.push(code);
            true
        },
        &mut found,
    );
    let bodies = found.slices.iter().flat_map(|slice| records(slice).flatten());
    bodies.map(|record| record.body().to_vec()).zip(codes).collect()
}

struct Fixture {
    store: Arc<Store>,
    delivery: Delivery,
    level: Level,
}

/// Delivery of level 1 of `store`, from `offset` on.
fn fixture(store: &Arc<Store>, clock: &Arc<ManualClock>, offset: u64) -> Fixture {
    let offsets: Offsets = Arc::new([AtomicU64::new(offset), AtomicU64::new(0)]);
    let delivery = Delivery { store: Arc::clone(store), clock: clock.clone(), offsets };
    let level = Level { index: 0, delay: SECOND, front: None, found: GetResult::default() };
    Fixture { store: Arc::clone(store), delivery, level }
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
fn a_message_moves_on_when_its_time_has_come_and_not_a_millisecond_before() {
    let (_, clock, store) = fresh();
    let mut fixture = fixture(&store, &clock, 0);
    assert_eq!(fixture.deliver(), SECOND, "an idle level looks again before anything new can be due");
    delay(&store, 1, b"first");
    clock.advance(Duration::from_millis(400));
    delay(&store, 1, b"second");
    clock.advance(Duration::from_millis(599));
    assert_eq!(fixture.deliver(), Duration::from_millis(1));
    assert_eq!((fixture.count(), fixture.offset()), (0, 0));
    clock.advance(Duration::from_millis(1));
    assert_eq!(fixture.deliver(), Duration::from_millis(400));
    assert_eq!(fixture.offset(), 1);
    // The tag is a hash again, not a time.
    assert_eq!(arrived(&store), [(b"first".to_vec(), i64::from(tag::java_hash(b"t")))]);
    clock.advance(SECOND);
    fixture.deliver();
    assert_eq!((fixture.count(), fixture.offset()), (2, 2));
}

#[test]
fn the_copy_is_the_message_as_it_was_sent() {
    let (_, clock, store) = fresh();
    delay(&store, 1, b"body");
    clock.advance(SECOND);
    fixture(&store, &clock, 0).deliver();
    let queue = store.queue("orders", 1).expect("made by the delivery");
    let mut found = GetResult::default();
    let ask = Get { offset: QueueOffset(0), messages_max: 1, bytes_max: 1 << 20 };
    store.get(&queue, &ask, &mut |_| true, &mut found);
    let record = records(&found.slices[0]).next().expect("one").expect("whole");
    assert_eq!((record.topic(), record.queue_id(), record.body()), (&b"orders"[..], 1, &b"body"[..]));
    assert_eq!((record.born_timestamp_ms(), record.reconsume_times()), (7, 2));
    assert_eq!(properties::get(record.properties(), name::DELAY), Some(&b"1"[..]));
    assert_eq!(record.store_timestamp_ms(), START_MS as i64 + 1_000);
}

#[test]
fn a_long_stop_is_caught_up_with_in_order_without_a_pause() {
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
fn a_clock_that_was_set_back_delays_nothing_by_more_than_its_level() {
    let (disk, ahead, store) = fresh();
    ahead.advance(Duration::from_secs(3_600));
    delay(&store, 1, b"from the future");
    store.abandon();
    drop(store);
    let clock = ManualClock::at(START_MS);
    let store = open(&disk, &clock);
    let mut fixture = fixture(&store, &clock, 0);
    assert_eq!(fixture.deliver(), SECOND);
    clock.advance(Duration::from_millis(999));
    fixture.deliver();
    assert_eq!(fixture.count(), 0);
    clock.advance(Duration::from_millis(1));
    fixture.deliver();
    assert_eq!((fixture.count(), fixture.offset()), (1, 1));
}

#[test]
fn a_crash_loses_nothing_and_repeats_what_was_delivered_since_the_offsets_were_saved() {
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
fn an_offset_outside_of_its_queue_is_moved_into_it() {
    let (_, clock, store) = fresh();
    delay(&store, 1, b"x");
    clock.advance(SECOND);
    let mut beyond = fixture(&store, &clock, 99);
    beyond.deliver();
    assert_eq!((beyond.count(), beyond.offset()), (0, 1));
}

#[test]
fn what_the_store_refuses_is_tried_again_from_there() {
    let (_, clock, store) = fresh();
    delay(&store, 1, b"x");
    clock.advance(SECOND);
    let mut fixture = fixture(&store, &clock, 0);
    store.abandon();
    assert_eq!(fixture.deliver(), REFUSED_PAUSE);
    assert_eq!((fixture.count(), fixture.offset()), (0, 0));
}

#[test]
fn a_message_with_nowhere_to_go_holds_up_no_other() {
    let (_, clock, store) = fresh();
    wait(&store, 1, b"DELAY\x011\x02", b"lost");
    wait(&store, 1, b"REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010\x02", b"lost");
    delay(&store, 1, b"found");
    clock.advance(SECOND);
    let mut fixture = fixture(&store, &clock, 0);
    fixture.deliver();
    assert_eq!((fixture.count(), fixture.offset()), (1, 3));
}
