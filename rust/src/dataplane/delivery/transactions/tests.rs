//! Open halves, on a disk in memory that crashes.

use std::path::Path;

use super::*;
use crate::clock::ManualClock;
use crate::dataplane::state::metadata::{Identity, Metadata, Topic};
use crate::dataplane::state::offsets::Offsets;
use crate::dataplane::state::stored_record::{fields, store_record};
use crate::message::record::{RecordFields, RecordView};
use crate::message::topic::{HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GROUP};
use crate::requests::end_transaction::COMMIT;
use crate::store::disk::simulated::{SimDisk, Survival};
use crate::store::{Options, RecoveryProgress};

const NEVER_MS: i64 = i64::MAX;

fn open(disk: &SimDisk) -> Arc<Store> {
    let clock = ManualClock::at(1_700_000_000_000);
    let options = Options {
        segment_bytes: 1 << 20,
        index_enabled: false,
        threads: false,
        ..Options::new(Path::new("/store"))
    };
    Store::open(options, disk.shared(), clock, &RecoveryProgress::default()).expect("the store opens")
}

/// Returns a half of `orders` that is due at `due_ms`.
fn new(offset: QueueOffset, physical: PhysicalOffset, due_ms: i64) -> NewHalf<'static> {
    NewHalf {
        offset,
        physical,
        topic: "orders",
        group: "producers",
        client: [127, 0, 0, 1].into(),
        sender: None,
        stored_ms: 0,
        due_ms,
        checks: 0,
    }
}

/// Stores a record and returns its offset and position.
fn store_plain(store: &Store, topic: &str, body: &[u8]) -> (QueueOffset, PhysicalOffset) {
    store_with(store, topic, body, b"")
}

fn store_with(store: &Store, topic: &str, body: &[u8], properties: &[u8]) -> (QueueOffset, PhysicalOffset) {
    store_record(store, fields(topic, 0, properties, body))
}

fn half(store: &Store, transactions: &Transactions) -> (QueueOffset, PhysicalOffset) {
    let (offset, physical) = store_plain(store, HALF_TOPIC, b"half");
    transactions.open(&new(offset, physical, NEVER_MS));
    (offset, physical)
}

fn end(store: &Store, transactions: &Transactions, (offset, physical): (QueueOffset, PhysicalOffset)) {
    assert!(transactions.begin_end(offset, physical));
    store_plain(store, OP_HALF_TOPIC, format!("{},", offset.0).as_bytes());
    transactions.finish_end(offset, Some(End::Rollback));
}

fn open_offsets(transactions: &Transactions) -> Vec<u64> {
    transactions.state.lock().open.keys().copied().collect()
}

fn recovered(store: &Arc<Store>, offsets: &Offsets) -> Transactions {
    recovered_with_torn(store, offsets).0
}

/// Also returns the half of a commit that has no mark.
fn recovered_with_torn(store: &Arc<Store>, offsets: &Offsets) -> (Transactions, Option<QueueOffset>) {
    let transactions = Transactions::new(store);
    let torn = transactions.recover(offsets, 6_000).expect("a working disk");
    (transactions, torn)
}

fn metadata() -> Metadata {
    let identity = Identity {
        cluster: "c".into(),
        broker: "b".into(),
        store_host: ([127, 0, 0, 1], 10911).into(),
        region: "r".into(),
        is_trace_on: true,
        message_bytes_max: 4 << 20,
        pull_messages_max: 32,
        pull_bytes_max: 1 << 20,
        is_long_polling: true,
        short_polling_ms: 1_000,
        is_tiered: false,
        is_auto_create_topics: true,
        has_lights: false,
        creations_per_minute: 100,
        sql: crate::dataplane::state::filter::SqlSupport::Off,
        recall: crate::dataplane::state::metadata::RecallOptions::default(),
        slave_reads: crate::dataplane::state::role::SlaveReads::default(),
        copies: crate::dataplane::state::role::CopyRules::default(),
        pop: crate::dataplane::state::pop_options::PopOptions::default(),
    };
    let metadata = Metadata::new(identity, 6);
    for name in [HALF_TOPIC, OP_HALF_TOPIC] {
        metadata.set_topic(name, Some(Topic::new(name, 1, 1, 6)));
    }
    metadata
}

#[test]
fn a_half_ends_once() {
    let store = open(&SimDisk::new());
    let transactions = recovered(&store, &Offsets::default());
    let (offset, physical) = half(&store, &transactions);
    assert!(!transactions.begin_end(offset, PhysicalOffset(physical.0 + 1)), "another record");
    assert!(transactions.begin_end(offset, physical));
    assert!(!transactions.begin_end(offset, physical), "a decision is in progress");
    transactions.finish_end(offset, None);
    assert!(transactions.begin_end(offset, physical), "nothing was stored");
    transactions.finish_end(offset, Some(End::Rollback));
    assert!(!transactions.begin_end(offset, physical));
}

#[test]
fn halves_without_a_mark_are_open_after_a_crash() {
    let disk = SimDisk::new();
    let store = open(&disk);
    let transactions = recovered(&store, &Offsets::default());
    let halves: Vec<_> = (0..200).map(|_| half(&store, &transactions)).collect();
    for index in (0..200).rev().filter(|index| index % 7 != 3) {
        end(&store, &transactions, halves[index]);
    }
    store.flush().expect("flushed");
    let open_before = open_offsets(&transactions);
    assert_eq!(open_before.len(), 29);
    let again = open(&disk.crash(Survival::Everything, 0));
    assert_eq!(open_offsets(&recovered(&again, &Offsets::default())), open_before);
}

#[test]
fn marks_of_an_original_broker_name_many_halves() {
    let store = open(&SimDisk::new());
    (0..6).for_each(|_| _ = store_plain(&store, HALF_TOPIC, b"half"));
    store_plain(&store, OP_HALF_TOPIC, b"0,2,4,");
    store_plain(&store, OP_HALF_TOPIC, b"5");
    assert_eq!(open_offsets(&recovered(&store, &Offsets::default())), [1, 3]);
}

#[test]
fn a_half_that_an_original_broker_stored_again_ends_with_the_first() {
    let store = open(&SimDisk::new());
    store_plain(&store, HALF_TOPIC, b"half");
    store_plain(&store, HALF_TOPIC, b"half");
    let properties =
        |first| format!("TRAN_PREPARED_QUEUE_OFFSET\x01{first}\x02TRANSACTION_CHECK_TIMES\x013\x02");
    store_with(&store, HALF_TOPIC, b"half", properties(0).as_bytes());
    store_with(&store, HALF_TOPIC, b"half", properties(1).as_bytes());
    store_plain(&store, OP_HALF_TOPIC, b"0,");
    let transactions = recovered(&store, &Offsets::default());
    assert_eq!(open_offsets(&transactions), [1, 3]);
    let checks: Vec<u32> =
        transactions.take_due(NEVER_MS - 1, NEVER_MS, 9).iter().map(|half| half.checks).collect();
    assert_eq!(checks, [0, 3], "Apache's broker counts in the message");
}

#[test]
fn offsets_pass_only_halves_whose_end_is_durable() {
    let disk = SimDisk::new();
    let store = open(&disk);
    let (metadata, offsets) = (metadata(), Offsets::default());
    let transactions = recovered(&store, &offsets);
    let halves: Vec<_> = (0..4).map(|_| half(&store, &transactions)).collect();
    end(&store, &transactions, halves[0]);
    end(&store, &transactions, halves[3]);
    store.flush().expect("flushed");
    let saved = || [HALF_TOPIC, OP_HALF_TOPIC].map(|topic| offsets.query(TRANSACTION_GROUP, topic, 0));
    transactions.save(&metadata, &offsets).expect("a working disk");
    assert_eq!(saved(), [None, None], "not durable yet");
    transactions.save(&metadata, &offsets).expect("a working disk");
    assert_eq!(saved(), [Some(1), Some(1)]);
    // A half whose end is being stored holds the offset like an open one.
    assert!(transactions.begin_end(halves[1].0, halves[1].1));
    end(&store, &transactions, halves[2]);
    for _ in 0..3 {
        store.flush().expect("flushed");
        transactions.save(&metadata, &offsets).expect("a working disk");
    }
    assert_eq!(saved(), [Some(1), Some(1)]);
    transactions.finish_end(halves[1].0, None);
    assert_eq!(open_offsets(&recovered(&store, &offsets)), [1]);
}

#[test]
fn the_saved_offset_does_not_pass_a_stored_half_that_is_not_open_yet() {
    let store = open(&SimDisk::new());
    let (metadata, offsets) = (metadata(), Offsets::default());
    let transactions = recovered(&store, &offsets);
    let first = store_plain(&store, HALF_TOPIC, b"half");
    let second = half(&store, &transactions);
    end(&store, &transactions, second);
    for _ in 0..3 {
        store.flush().expect("flushed");
        transactions.save(&metadata, &offsets).expect("a working disk");
    }
    assert_eq!(offsets.query(TRANSACTION_GROUP, HALF_TOPIC, 0), Some(0));
    transactions.open(&new(first.0, first.1, NEVER_MS));
    end(&store, &transactions, first);
    for _ in 0..3 {
        store.flush().expect("flushed");
        transactions.save(&metadata, &offsets).expect("a working disk");
    }
    assert_eq!(offsets.query(TRANSACTION_GROUP, HALF_TOPIC, 0), Some(2));
    assert_eq!(offsets.query(TRANSACTION_GROUP, OP_HALF_TOPIC, 0), Some(2));
}

/// Returns the offsets of the due halves.
fn due(transactions: &Transactions, now_ms: i64, again_ms: i64, limit: usize) -> Vec<u64> {
    transactions.take_due(now_ms, again_ms, limit).iter().map(|half| half.offset.0).collect()
}

#[test]
fn each_half_is_checked_at_its_own_time_and_again() {
    let store = open(&SimDisk::new());
    let transactions = recovered(&store, &Offsets::default());
    let halves = [30, 10, 20].map(|due_ms| {
        let (offset, physical) = store_plain(&store, HALF_TOPIC, b"half");
        transactions.open(&new(offset, physical, due_ms));
        (offset, physical)
    });
    assert!(due(&transactions, 9, 100, 9).is_empty());
    assert_eq!(due(&transactions, 20, 100, 9), [1, 2]);
    assert_eq!(due(&transactions, 99, 200, 9), [0], "the others are due later");
    assert_eq!(due(&transactions, 100, 300, 1), [1], "at most the limit");
    transactions.set_due(
        &[DueHalf { offset: halves[1].0, physical: halves[1].1, checks: 0, answers: 0, sender: None }],
        100,
    );
    assert_eq!(due(&transactions, 100, 300, 9), [1, 2]);
    assert!(transactions.begin_end(halves[0].0, halves[0].1));
    assert!(due(&transactions, 200, 300, 9).is_empty(), "a decision is in progress");
    transactions.finish_end(halves[0].0, None);
    assert_eq!(due(&transactions, 300, 400, 9), [0, 1, 2]);
    end(&store, &transactions, halves[1]);
    assert_eq!(due(&transactions, 400, 500, 9), [0, 2]);
    let due_count = transactions.state.lock().due.len();
    assert_eq!(due_count, transactions.open_count());
}

#[test]
fn check_counts_continue_after_a_start() {
    let store = open(&SimDisk::new());
    let transactions = Transactions::new(&store);
    let halves: Vec<_> = (0..6).map(|_| half(&store, &transactions)).collect();
    for (number, checks) in [(0, 2), (1, 2), (3, 2), (4, 1)] {
        (0..checks).for_each(|_| transactions.count_check(halves[number].0, halves[number].1));
    }
    let run = |first: usize, last: usize, checks| CheckedHalves {
        first: halves[first].1,
        last: halves[last].1,
        checks,
        answers: 0,
    };
    let saved = transactions.checked();
    assert_eq!(saved, [run(0, 1, 2), run(3, 3, 2), run(4, 4, 1)]);
    end(&store, &transactions, halves[1]);
    let again = recovered(&store, &Offsets::default());
    again.restore_checks(&saved);
    let found = again.take_due(NEVER_MS - 1, NEVER_MS, 10);
    assert_eq!(found.iter().map(|due| due.checks).collect::<Vec<_>>(), [2, 0, 2, 1, 0]);
    assert_eq!(again.checked(), [run(0, 0, 2), run(3, 3, 2), run(4, 4, 1)]);
}

#[test]
fn only_checks_of_this_half_count() {
    let store = open(&SimDisk::new());
    let transactions = recovered(&store, &Offsets::default());
    let (offset, physical) = store_plain(&store, HALF_TOPIC, b"half");
    transactions.open(&new(offset, physical, 0));
    transactions.count_check(offset, physical);
    transactions.count_check(offset, PhysicalOffset(physical.0 + 1));
    assert_eq!(
        transactions.take_due(0, 1, 9),
        [DueHalf { offset, physical, checks: 1, answers: 0, sender: None }]
    );
}

#[test]
fn an_unreadable_half_is_reported_once_and_ends_when_its_record_is_gone() {
    let store = open(&SimDisk::new());
    let transactions = recovered(&store, &Offsets::default());
    let (offset, physical) = store_plain(&store, HALF_TOPIC, b"half");
    transactions.open(&new(offset, physical, 0));
    let [half] = transactions.take_due(0, 1, 9)[..] else { panic!("one half") };
    assert!(transactions.lose(half, false));
    assert!(!transactions.lose(half, false));
    assert_eq!(transactions.open_count(), 1, "the file may be restored");
    assert!(!transactions.lose(half, true));
    assert_eq!((transactions.open_count(), transactions.counts().lost), (0, 1));
}

#[test]
fn a_message_names_the_time_to_decide() {
    let time = |text: &str| {
        time_to_decide_ms(format!("CHECK_IMMUNITY_TIME_IN_SECONDS\x01{text}\x02").as_bytes(), 6_000)
    };
    assert_eq!(time_to_decide_ms(b"", 6_000), 6_000);
    assert_eq!([time("0"), time("2"), time("-1"), time("soon")], [0, 2_000, 6_000, 6_000]);
    assert_eq!(time(&i64::MAX.to_string()), 86_400_000, "a day at most");
}

#[test]
fn after_a_start_halves_are_due_by_their_store_time() {
    let store = open(&SimDisk::new());
    let (_, physical) = store_plain(&store, HALF_TOPIC, b"half");
    let stored_ms =
        RecordView::parse(&store.lookup(physical).expect("a record")).expect("a record").store_timestamp_ms();
    let transactions = recovered(&store, &Offsets::default());
    assert!(due(&transactions, stored_ms + 5_999, NEVER_MS, 9).is_empty());
    assert_eq!(due(&transactions, stored_ms + 6_000, NEVER_MS, 9), [0]);
}

#[test]
fn each_check_counts_at_most_one_answer() {
    let store = open(&SimDisk::new());
    let transactions = recovered(&store, &Offsets::default());
    let (offset, physical) = store_plain(&store, HALF_TOPIC, b"half");
    transactions.open(&new(offset, physical, 0));
    transactions.count_answer(offset, physical);
    (0..3).for_each(|_| transactions.count_check(offset, physical));
    transactions.count_answer(offset, physical);
    let counts = |transactions: &Transactions| {
        let [due] = transactions.take_due(NEVER_MS - 1, NEVER_MS, 9)[..] else { panic!("one half") };
        transactions.set_due(&[due], 0);
        (due.checks, due.answers)
    };
    assert_eq!(counts(&transactions), (3, 1));
    let again = recovered(&store, &Offsets::default());
    again.restore_checks(&transactions.checked());
    assert_eq!(counts(&again), (3, 1));
    (0..9).for_each(|_| transactions.count_answer(offset, physical));
    assert_eq!(counts(&transactions), (3, 3));
}

#[test]
fn a_half_is_due_before_its_file_expires_and_leaves_with_it() {
    let store = open(&SimDisk::new());
    let transactions = recovered(&store, &Offsets::default());
    let halves: Vec<_> = (0..3).map(|_| store_plain(&store, HALF_TOPIC, b"half")).collect();
    for ((offset, physical), stored_ms) in halves.iter().zip([10, 20, 30]) {
        transactions.open(&NewHalf { stored_ms, ..new(*offset, *physical, NEVER_MS) });
    }
    transactions.hasten(30, 100, 200);
    assert_eq!(due(&transactions, 100, 200, 9), [0, 1]);
    transactions.hasten(30, 150, 250);
    assert!(due(&transactions, 150, 250, 9).is_empty(), "each was checked recently");
    assert_eq!(transactions.lose_before(halves[2].1), Some((halves[0].1, 2)));
    assert_eq!(transactions.lose_before(halves[2].1), None);
    assert_eq!((open_offsets(&transactions), transactions.counts().lost), (vec![2], 2));
    assert_eq!(transactions.first(), Some(halves[2].1));
}

#[test]
fn a_commit_without_its_mark_ends_its_half() {
    let store = open(&SimDisk::new());
    let halves: Vec<_> = (0..3).map(|_| store_plain(&store, HALF_TOPIC, b"half")).collect();
    let commit = |at: PhysicalOffset, sys_flag| RecordFields {
        sys_flag,
        prepared_transaction_offset: at.0 as i64,
        ..fields("orders", 0, b"", b"half")
    };
    store_record(&store, commit(halves[0].1, COMMIT));
    let (transactions, torn) = recovered_with_torn(&store, &Offsets::default());
    assert_eq!((open_offsets(&transactions), torn), (vec![1, 2], Some(halves[0].0)));
    // A completed commit no longer counts, nor does a message that only looks like a commit, nor a commit of an
    // ended half.
    store_plain(&store, OP_HALF_TOPIC, b"0");
    for record in [
        commit(halves[1].1, 0),
        commit(PhysicalOffset(halves[1].1.0 + 1), COMMIT),
        commit(halves[0].1, COMMIT),
    ] {
        store_record(&store, record);
        let (transactions, torn) = recovered_with_torn(&store, &Offsets::default());
        assert_eq!((open_offsets(&transactions), torn), (vec![1, 2], None));
    }
}
