//! Records out of turn: offsets that do not follow in their queue, by damage or because the topic was created again.
//!
//! Goal: a damaged record costs only itself, is reported, and keeps its place; sound records are served at their offsets.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::store_model::{Sample, body_of, clock, open_with, put, sample};
use rmqpy::message::record::records;
use rmqpy::positions::QueueOffset;
use rmqpy::store::disk::simulated::SimDisk;
use rmqpy::store::disk::{Disk, Open};
use rmqpy::store::{Durability, Event, Get, GetResult, Store};

const A: Sample = sample("orders", 0, 100);
const B: Sample = sample("orders", 1, 600);
const C: Sample = sample("returns", 0, 30);
const LOG: &str = "/store/commitlog/00000000000000000000";
const QUEUE_OFFSET_AT: u64 = 20;
const PHYSICAL_OFFSET_AT: u64 = 28;
const SYS_FLAG_AT: u64 = 36;

fn start(disk: &SimDisk) -> Arc<Store> {
    // Through the mapping, so that the tests find in the log file what they overwrite there.
    open_with(Durability::PageCacheMapped, disk.shared(), &clock()).expect("opens")
}

fn stop(store: &Store, is_clean: bool) {
    if is_clean { store.close().expect("closes") } else { store.abandon() }
}

/// Puts messages and returns their positions.
fn fill(store: &Store, samples: &[Sample]) -> Vec<u64> {
    put(store, samples, false).into_iter().map(|outcome| outcome.expect("stored").1.0).collect()
}

fn overwrite(disk: &SimDisk, at: u64, bytes: &[u8]) {
    let log = disk.open(Path::new(LOG), Open::Write).expect("the file");
    log.write_at(bytes, at).expect("a working disk");
}

/// Returns the served offsets of a queue, checking the messages.
fn served(store: &Store, of: &Sample) -> Vec<u64> {
    let queue = store.queue(of.topic, of.queue_id).expect("a queue");
    let (mut found, mut result) = (BTreeMap::new(), GetResult::default());
    let mut offset = queue.min();
    while offset < queue.max() {
        store
            .get(&queue, &Get { offset, messages_max: 8, bytes_max: 1 << 20 }, &mut |_| true, &mut result)
            .expect("a working disk");
        for record in result.slices.iter().flat_map(|slice| records(slice)) {
            let record = record.expect("a whole record");
            found.insert(record.queue_offset().0, record.body().to_vec());
        }
        assert!(result.next_begin > offset, "a read makes progress");
        offset = result.next_begin;
    }
    for (offset, body) in &found {
        assert_eq!(*body, body_of(of, *offset), "{of:?} at {offset}");
    }
    found.into_keys().collect()
}

fn is_reported(store: &Store, at: u64) -> bool {
    let is_there =
        |event: &Event| matches!(event, Event::Damaged { from, until, .. } if (*from..*until).contains(&at));
    store.events().iter().any(is_there)
}

/// Background: a flipped byte sent a queue to the offset that a damaged record claimed.
/// Method: each record behind the checkpoint claims each wrong offset in turn, with and without the queues.
#[test]
fn a_record_that_claims_a_wrong_offset_costs_that_record_alone() {
    // Each message behind the checkpoint, its offset, and the end of its queue.
    let behind: [(Sample, u64, u64); 8] =
        [(A, 2, 6), (B, 1, 4), (A, 3, 6), (B, 2, 4), (A, 4, 6), (A, 5, 6), (B, 3, 4), (C, 0, 1)];
    let far = [0, 1, 0xFF, 1 << 32, 13 << 56, i64::MAX as u64, u64::MAX];
    for has_queues in [true, false] {
        for (index, (of, offset, end)) in behind.into_iter().enumerate() {
            let near = [offset + 1, offset + 2, offset.wrapping_sub(1)];
            let is_newest = offset + 1 == end;
            for claimed in far.into_iter().chain(near).filter(|claimed| *claimed != offset) {
                // Without its queue nothing contradicts a record that is the first of a recreated topic, or alone.
                if !has_queues && is_newest && (claimed == 0 || end == 1) {
                    continue;
                }
                check(index, (of, offset, end), claimed, &behind, has_queues);
            }
        }
    }
}

fn check(
    index: usize,
    (of, offset, end): (Sample, u64, u64),
    claimed: u64,
    behind: &[(Sample, u64, u64)],
    has_queues: bool,
) {
    let disk = SimDisk::new();
    let store = start(&disk);
    fill(&store, &[A, B, A]);
    store.checkpoint().expect("a working disk");
    let places = fill(&store, &behind.iter().map(|(of, ..)| *of).collect::<Vec<_>>());
    stop(&store, false);
    overwrite(&disk, places[index] + QUEUE_OFFSET_AT, &claimed.to_be_bytes());
    if !has_queues {
        disk.remove_dir(Path::new("/store/consumequeue")).expect("removes");
    }
    for life in 0..3 {
        let context =
            format!("record {index}, offset {offset} claims {claimed:#x}, queues {has_queues}, life {life}");
        let store = start(&disk);
        for (queue, end) in [(A, 6), (B, 4), (C, 1)] {
            let lost = (queue == of).then_some(offset);
            let expected: Vec<u64> = (0..end).filter(|offset| Some(*offset) != lost).collect();
            let max = store.queue(queue.topic, queue.queue_id).expect("a queue").max();
            assert_eq!((served(&store, &queue), max), (expected, QueueOffset(end)), "{context}");
        }
        // Recovery reads on from the newest record, and nothing after an orderly stop.
        let is_read = life == 0 || (life == 1 && index + 1 == behind.len());
        assert_eq!(is_reported(&store, places[index]), is_read, "{context}");
        stop(&store, life == 1);
    }
    let store = start(&disk);
    assert_eq!(put(&store, &[of], false)[0].expect("stored").0.0, end);
}

/// Apache's broker also deletes topics, but writes no note.
#[test]
fn a_recreated_topic_begins_at_zero_without_a_note_of_its_deletion() {
    for again in 1..4 {
        let disk = SimDisk::new();
        let store = start(&disk);
        fill(&store, &[A, A, B, A]);
        store.delete_topic("orders").expect("a working disk");
        let again = vec![A; again];
        fill(&store, &again);
        stop(&store, false);
        disk.remove_dir(Path::new("/store/rmqpy")).expect("removes");
        disk.remove_dir(Path::new("/store/consumequeue")).expect("removes");
        let store = start(&disk);
        assert_eq!(served(&store, &A), (0..again.len() as u64).collect::<Vec<_>>());
        assert_eq!(put(&store, &[A], false)[0].expect("stored").0.0, again.len() as u64);
    }
}

/// A damaged record marked as half a transaction is in no queue, but its neighbours agree about its place.
#[test]
fn a_damaged_message_leaves_the_others_at_their_offsets() {
    let disk = SimDisk::new();
    let store = start(&disk);
    let places = fill(&store, &[A, B, A, A, B, A, A]);
    stop(&store, false);
    overwrite(&disk, places[3] + SYS_FLAG_AT, &4_u32.to_be_bytes());
    disk.remove_dir(Path::new("/store/consumequeue")).expect("removes");
    let store = start(&disk);
    assert_eq!((served(&store, &A), served(&store, &B)), (vec![0, 1, 3, 4], vec![0, 1]));
    assert_eq!(put(&store, &[A], false)[0].expect("stored").0.0, 5);
}

#[test]
fn the_offset_of_a_damaged_message_is_not_reused() {
    for is_clean in [true, false] {
        let disk = SimDisk::new();
        let store = start(&disk);
        let places = fill(&store, &[A, B, A, B, B]);
        store.checkpoint().expect("a working disk");
        stop(&store, is_clean);
        // The newest message of its queue, with others behind it in the log.
        overwrite(&disk, places[2] + PHYSICAL_OFFSET_AT, &[0xAA; 8]);
        for life in 0..3 {
            let store = start(&disk);
            assert_eq!(served(&store, &A), [0], "clean {is_clean}, life {life}");
            assert_eq!(store.queue("orders", 0).expect("a queue").max(), QueueOffset(2));
            stop(&store, life == 1);
        }
        let store = start(&disk);
        assert_eq!(put(&store, &[A], false)[0].expect("stored").0.0, 2, "clean {is_clean}");
        assert_eq!(served(&store, &A), [0, 2]);
    }
}
