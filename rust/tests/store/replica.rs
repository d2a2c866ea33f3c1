//! Replica: a store copies another's log byte for byte, with any cuts and losses of the disk.
//!
//! Crashes as in `crash.rs`: stop the copy's disk before each operation, let unsynced sectors survive in different ways, open
//! the copy again, let it continue from its end, and compare the bytes.

use std::sync::Arc;
use std::time::Duration;

use crate::store_model::workloads::{LARGE, NINE, ODD, SMALL};
use crate::store_model::{
    SEGMENT_BYTES, Sample, clock, index_everything, key_of, open, options_with, put, read_all, sample,
};
use rmqpy::positions::PhysicalOffset;
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::{Durability, Options, PutError, Replica, ReplicaError, Retention, Store};

const MASTERS: [&[&[Sample]]; 3] =
    [&[SMALL, ODD, NINE], &[LARGE, SMALL, LARGE, NINE, LARGE, ODD], &[ODD, LARGE, LARGE, LARGE, SMALL]];

fn master_with(bursts: &[&[Sample]]) -> Arc<Store> {
    let master = crate::store_model::start(&SimDisk::new());
    fill(&master, bursts);
    master
}

fn fill(master: &Store, bursts: &[&[Sample]]) {
    for burst in bursts {
        assert!(put(master, burst, false).iter().all(Result::is_ok), "there is room");
        master.maintain().expect("a working disk");
    }
}

fn open_copy(disk: &SimDisk, durability: Durability) -> Option<Arc<Store>> {
    let options = Options { is_replica: true, ..options_with(durability, "/store") };
    open(disk.shared(), options, clock()).ok()
}

fn log_of(store: &Store) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut at, _) = store.range();
    while let Some(more) = store.log_bytes(at, usize::MAX) {
        at.0 += more.len() as u64;
        bytes.extend_from_slice(&more);
    }
    bytes
}

/// Copies from the replica's end to the end of its master's log, in pieces of these sizes.
fn follow(master: &Store, replica: &mut Replica, sizes: &[usize]) -> Result<(), ReplicaError> {
    let mut at = replica.end();
    for size in sizes.iter().cycle() {
        let Some(bytes) = master.log_bytes(at, *size) else { break };
        replica.append(at, &bytes)?;
        at.0 += bytes.len() as u64;
    }
    Ok(())
}

/// Compares log, queues and keys.
fn assert_copy(master: &Store, copy: &Store, context: &str) {
    assert_eq!(copy.range(), master.range(), "{context}");
    assert!(log_of(copy) == log_of(master), "{context}: the logs have the same bytes");
    assert_eq!(copy.topics(), master.topics(), "{context}");
    index_everything(copy);
    for (topic, ids) in master.topics() {
        for id in ids {
            let found = read_all(copy, &topic, id);
            assert_eq!(found, read_all(master, &topic, id), "{context}: {topic}/{id}");
            for offset in found.keys() {
                let hits = copy.query(&topic, &key_of(&topic, id, *offset), 32, 0, i64::MAX);
                assert!(!hits.expect("an index").records.is_empty(), "{context}: {topic}/{id}/{offset}");
            }
        }
    }
}

#[test]
fn a_copy_has_the_bytes_queues_and_keys_of_its_master() {
    for durability in Durability::ALL {
        for (index, bursts) in MASTERS.iter().enumerate() {
            for sizes in [&[1][..], &[7, 4096], &[1 << 20], &[32 << 10, 3]] {
                let context = format!("{durability:?}, log {index} in pieces of {sizes:?}");
                let master = master_with(bursts);
                let disk = SimDisk::new();
                let copy = open_copy(&disk, durability).expect("opens");
                let mut replica = copy.replica().expect("a copy");
                follow(&master, &mut replica, sizes).expect(&context);
                copy.flush().expect("a working disk");
                assert_eq!(replica.kept(), replica.end(), "{context}");
                assert_copy(&master, &copy, &context);
                drop(replica);
                copy.close().expect("a working disk");
                drop(copy);
                let copy = open_copy(&disk, durability).expect("opens again");
                assert_copy(&master, &copy, &context);
            }
        }
    }
}

/// Old brokers leave memory garbage behind the head of the blank that ends a file.
#[test]
fn bytes_behind_the_last_record_of_a_file_are_copied_too() {
    for durability in Durability::ALL {
        let mut bytes = log_of(&master_with(&[LARGE, SMALL, LARGE, NINE, LARGE]));
        bytes[SEGMENT_BYTES as usize - 1] = 7;
        let disk = SimDisk::new();
        let copy = open_copy(&disk, durability).expect("opens");
        let mut replica = copy.replica().expect("a copy");
        for (index, piece) in bytes.chunks(777).enumerate() {
            replica.append(PhysicalOffset(index as u64 * 777), piece).expect("room");
        }
        copy.flush().expect("a working disk");
        assert!(log_of(&copy) == bytes, "{durability:?}");
        drop(replica);
        copy.close().expect("a working disk");
        drop(copy);
        assert!(log_of(&open_copy(&disk, durability).expect("opens")) == bytes, "{durability:?}, again");
    }
}

#[test]
fn bytes_that_do_not_belong_where_the_log_ends_are_refused_and_change_nothing() {
    let master = master_with(&[SMALL]);
    let copy = open_copy(&SimDisk::new(), Durability::PageCache).expect("opens");
    let mut replica = copy.replica().expect("a copy");
    let bytes = log_of(&master);
    replica.append(PhysicalOffset(0), &bytes[..50]).expect("the begin");
    let place = |at| PhysicalOffset(at);
    let gap = replica.append(place(51), &bytes[51..]);
    assert!(matches!(gap, Err(ReplicaError::Gap { at, end }) if (at, end) == (place(51), place(50))));
    let overlap = replica.append(place(49), &bytes[49..]);
    assert!(matches!(overlap, Err(ReplicaError::Overlap { at, end }) if (at, end) == (place(49), place(50))));
    replica.append(place(50), &bytes[50..]).expect("the rest");
    assert_copy(&master, &copy, "after refusals");
}

#[test]
fn a_record_that_is_not_valid_at_its_position_is_refused() {
    let master = master_with(&[SMALL]);
    let bytes = log_of(&master);
    // Size, magic, a byte of the position, and one of the body.
    for (at, wrong) in [(0, 0x7F), (5, 0), (35, 9), (120, 0xFF)] {
        let copy = open_copy(&SimDisk::new(), Durability::PageCache).expect("opens");
        let mut replica = copy.replica().expect("a copy");
        let mut broken = bytes.clone();
        broken[at] = wrong;
        let outcome = replica.append(PhysicalOffset(0), &broken);
        assert!(
            matches!(outcome, Err(ReplicaError::Damaged { .. } | ReplicaError::FileSize { .. })),
            "byte {at}: {outcome:?}"
        );
        assert_eq!(copy.range().1, PhysicalOffset(0));
        replica.reconnect();
        replica.append(PhysicalOffset(0), &bytes).expect("the bytes sent again");
        assert_copy(&master, &copy, "after damage");
    }
}

#[test]
fn a_copy_refuses_messages_and_a_master_refuses_a_log() {
    let copy = open_copy(&SimDisk::new(), Durability::PageCache).expect("opens");
    assert_eq!(put(&copy, SMALL, false).first().map(|outcome| outcome.err()), Some(Some(PutError::Replica)));
    let first = copy.replica().expect("a copy");
    assert!(matches!(copy.replica(), Err(ReplicaError::Busy)));
    drop(first);
    assert!(copy.replica().is_ok());
    let master = crate::store_model::start(&SimDisk::new());
    assert!(matches!(master.replica(), Err(ReplicaError::Master)));
}

#[test]
fn files_of_another_size_are_reported_and_not_copied() {
    let master = master_with(&[LARGE, LARGE]);
    let options = Options {
        is_replica: true,
        segment_bytes: 2 * SEGMENT_BYTES,
        ..options_with(Durability::PageCache, "/store")
    };
    let copy = open(SimDisk::new().shared(), options, clock()).expect("opens");
    let mut replica = copy.replica().expect("a copy");
    let outcome = follow(&master, &mut replica, &[4096]);
    assert!(matches!(outcome, Err(ReplicaError::FileSize { .. })), "{outcome:?}");
}

/// The master has deleted its first files: the copy's queues begin with the log, like the master's.
#[test]
fn a_copy_begins_where_its_masters_log_does() {
    for durability in Durability::ALL {
        let clock = clock();
        let disk = SimDisk::new();
        let master =
            crate::store_model::open_with(Durability::PageCache, disk.shared(), &clock).expect("opens");
        fill(&master, &[LARGE, NINE, LARGE, SMALL, LARGE]);
        clock.advance(Duration::from_secs(80 * 3600));
        fill(&master, &[ODD]);
        master.retain(Retention { reserved_ms: 3_600_000, ..Retention::default() });
        assert!(master.delete_expired().expect("a working disk") > 0);
        fill(&master, &[SMALL, LARGE, ODD]);

        let disk = SimDisk::new();
        let copy = open_copy(&disk, durability).expect("opens");
        let mut replica = copy.replica().expect("a copy");
        assert!(matches!(replica.begin_at(PhysicalOffset(77)), Err(ReplicaError::FileSize { .. })));
        replica.begin_at(master.range().0).expect("a working disk");
        follow(&master, &mut replica, &[1000]).expect("a working disk");
        assert!(matches!(replica.begin_at(PhysicalOffset(0)), Err(ReplicaError::NotEmpty { .. })));
        copy.flush().expect("a working disk");
        assert_copy(&master, &copy, &format!("{durability:?}"));
        drop(replica);
        copy.checkpoint().expect("a working disk");
        copy.abandon();
        drop(copy);
        let copy = open_copy(&disk, durability).expect("opens again");
        assert_copy(&master, &copy, &format!("{durability:?}, opened again"));
    }
}

#[test]
fn a_topic_recreated_at_the_master_starts_over_in_the_copy() {
    for durability in Durability::ALL {
        let master = master_with(&[SMALL, NINE]);
        let copy = open_copy(&SimDisk::new(), durability).expect("opens");
        let mut replica = copy.replica().expect("a copy");
        follow(&master, &mut replica, &[1000]).expect("a working disk");
        master.delete_topic("a").expect("a working disk");
        fill(&master, &[SMALL, ODD]);
        follow(&master, &mut replica, &[1000]).expect("a working disk");
        copy.flush().expect("a working disk");
        assert_copy(&master, &copy, &format!("{durability:?}"));
    }
}

/// Copies on a disk that stops at an operation; then the machine restarts and the copy continues.
fn crash(master: &Store, durability: Durability, at: u64, survival: Survival) {
    let context = format!("{durability:?}, operation {at}, {survival:?}");
    let disk = SimDisk::new();
    disk.freeze_at(at);
    let mut kept = PhysicalOffset(0);
    let mut appended = PhysicalOffset(0);
    if let Some(copy) = open_copy(&disk, durability)
        && let Ok(mut replica) = copy.replica()
    {
        for (round, size) in [3000, 17, 40_000, 900].iter().cycle().enumerate() {
            let at = PhysicalOffset(appended.0.max(replica.end().0));
            let Some(bytes) = master.log_bytes(at, *size) else { break };
            if replica.append(at, &bytes).is_err() || disk.is_frozen() {
                break;
            }
            appended = PhysicalOffset(at.0 + bytes.len() as u64);
            let _ = if round % 3 == 0 { copy.flush().map(drop) } else { copy.maintain() };
            let _ = if round % 7 == 6 { copy.checkpoint() } else { Ok(()) };
            if disk.is_frozen() {
                break;
            }
            let is_killed = survival == Survival::Everything;
            kept = if is_killed { replica.kept() } else { copy.durable() };
        }
    }
    let disk = disk.crash(survival, at);
    let copy = open_copy(&disk, durability).unwrap_or_else(|| panic!("{context}: does not open"));
    let mut replica = copy.replica().expect("a copy");
    let (log, whole) = (log_of(&copy), log_of(master));
    assert!(replica.end() >= kept, "{context}: {kept} was reported, and it ends at {}", replica.end());
    assert!(whole.starts_with(&log), "{context}: the log is a prefix of the master's");
    follow(master, &mut replica, &[5000]).expect(&context);
    copy.flush().expect("a working disk");
    assert_copy(master, &copy, &context);
}

#[test]
fn a_copy_killed_at_any_operation_continues_and_ends_with_the_same_bytes() {
    let survivals = [
        Survival::Everything,
        Survival::Nothing,
        Survival::Prefix,
        Survival::Percent(50),
        Survival::Percent(90),
    ];
    for durability in Durability::ALL {
        let master = master_with(&[SMALL, LARGE, NINE, LARGE, ODD, LARGE, SMALL]);
        let disk = SimDisk::new();
        {
            let copy = open_copy(&disk, durability).expect("opens");
            let mut replica = copy.replica().expect("a copy");
            follow(&master, &mut replica, &[3000]).expect("a working disk");
        }
        let mut survivals = survivals.iter().cycle();
        for at in 0..disk.operations() + 60 {
            let survival = survivals.next().expect("they go round");
            crash(&master, durability, at, *survival);
        }
    }
}

#[test]
fn a_copy_with_a_smaller_write_ring_takes_records_larger_than_its_parts() {
    const HUGE: &[Sample] = &[sample("a", 0, 200_000), sample("b", 0, 10), sample("a", 0, 300_000)];
    let sized = |options: Options| Options { segment_bytes: 1 << 19, ..options };
    let master =
        open(SimDisk::new().shared(), sized(options_with(Durability::PageCacheMapped, "/store")), clock())
            .expect("opens");
    fill(&master, &[SMALL, HUGE, ODD, HUGE, LARGE, HUGE, SMALL]);
    let disk = SimDisk::new();
    let options = sized(options_with(Durability::PageCache, "/store"));
    let options = Options { is_replica: true, ring_bytes: 1 << 18, ..options };
    let copy = open(disk.shared(), options.clone(), clock()).expect("opens");
    assert_eq!(copy.events(), [], "there is a write ring");
    let mut replica = copy.replica().expect("a copy");
    follow(&master, &mut replica, &[70_000, 1, 400_000]).expect("it is taken");
    assert_copy(&master, &copy, "as it came");
    // A killed process leaves unwritten records in the larger part, too.
    let copy = open(disk.crash(Survival::Everything, 0).shared(), options, clock()).expect("opens");
    assert_copy(&master, &copy, "after a kill");
}
