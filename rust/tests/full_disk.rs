//! A step of maintenance that fails is told once, holds up no other, and goes on by itself.
#![allow(clippy::expect_used, reason = "a test that cannot go on fails")]

mod store_model;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rmqpy::clock::ManualClock;
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::disk::{Disk, Space};
use rmqpy::store::{Event, Options, PutError, Retention, Store};
use store_model::{SEGMENT_BYTES, Sample, bytes_of, clock, open, put, read_all, sample};

const BIG: Sample = sample("bulk", 0, 20_000);
/// More than half of a file: the next one is due, and the second does not fit.
const HALF: Sample = sample("bulk", 0, 40_000);
const TINY: Sample = sample("tiny", 0, 10);
const TOTAL: u64 = 1 << 40;

/// Everything expires after an hour, at any hour.
fn options() -> Options {
    let delete_hours = (0..24).collect();
    let retention =
        Retention { reserved_ms: 3_600_000, delete_hours, free_bytes_min: 0, ..Retention::default() };
    Options { retention, ..store_model::options("/store") }
}

fn started(disk: &SimDisk) -> (Arc<Store>, Arc<ManualClock>) {
    let clock = clock();
    (open(disk.shared(), options(), clock.clone()).expect("opens"), clock)
}

fn set_free(disk: &SimDisk, free: u64) {
    disk.set_space(Space { free, total: TOTAL });
}

/// Rounds for ten seconds, whatever comes of them.
fn rounds(store: &Store, clock: &ManualClock) {
    for _ in 0..200 {
        clock.advance(Duration::from_millis(50));
        drop(store.maintain());
    }
}

fn failures(store: &Store) -> Vec<String> {
    let events = store.events().into_iter();
    let told = events.filter(|event| matches!(event, Event::StepFailed { .. } | Event::StepRecovered { .. }));
    told.map(|event| event.to_string()).collect()
}

fn files(disk: &SimDisk, dir: &str) -> Vec<(String, u64)> {
    let entries = disk.list(Path::new(dir)).expect("a directory");
    entries.into_iter().filter(|entry| !entry.is_dir).map(|entry| (entry.name, entry.size)).collect()
}

/// Method: fill three files, let them expire, and take the space for the next one.
#[test]
fn expired_files_go_and_checkpoints_are_made_while_the_next_file_cannot_be() {
    let disk = SimDisk::new();
    let (store, clock) = started(&disk);
    for _ in 0..9 {
        put(&store, &[BIG], false)[0].expect("room");
        drop(store.maintain());
    }
    put(&store, &[HALF], false)[0].expect("room");
    set_free(&disk, SEGMENT_BYTES - 1);
    drop(store.events());
    clock.advance(Duration::from_secs(2 * 3600));
    rounds(&store, &clock);
    assert_eq!(store.range().0.0 / SEGMENT_BYTES, store.range().1.0 / SEGMENT_BYTES, "the expired ones went");
    let told = failures(&store);
    assert_eq!(told.len(), 1, "once, not each round: {told:?}");
    assert!(told[0].contains("next file of the log"), "{told:?}");
    let checkpoint = || bytes_of(&disk, "/store/checkpoint", 0, 64);
    let before = checkpoint();
    put(&store, &[TINY], false)[0].expect("what fits into the file that is there is stored");
    rounds(&store, &clock);
    assert_ne!(checkpoint(), before, "it goes on with the log");
    store.abandon();
    let store = open(disk.shared(), options(), clock.clone()).expect("opens");
    assert!(store.statistics()["min_physical"] > 0);
}

#[test]
fn what_an_allocation_got_before_it_failed_is_given_back() {
    let disk = SimDisk::new();
    let (store, clock) = started(&disk);
    put(&store, &[HALF], false)[0].expect("room");
    // No more than a guess can be known of the space: another program takes it after it was measured.
    set_free(&disk, SEGMENT_BYTES - 1);
    let before = files(&disk, "/store/rmqpy");
    disk.set_broken(Some(("/store/rmqpy/segment", ErrorKind::StorageFull)));
    rounds(&store, &clock);
    assert_eq!(files(&disk, "/store/rmqpy"), before);
    set_free(&disk, TOTAL / 2);
    rounds(&store, &clock);
    assert_eq!(files(&disk, "/store/rmqpy"), before, "nor behind another failure");
    disk.set_broken(None);
    rounds(&store, &clock);
    assert_eq!(files(&disk, "/store/commitlog").len(), 2);
    store.close().expect("a clean stop");
}

#[test]
fn a_message_for_which_no_file_can_be_made_is_refused_as_on_a_full_disk_until_there_is_room() {
    let disk = SimDisk::new();
    let (store, clock) = started(&disk);
    put(&store, &[HALF], false)[0].expect("room");
    set_free(&disk, SEGMENT_BYTES - 1);
    rounds(&store, &clock);
    assert_eq!(put(&store, &[HALF], false)[0], Err(PutError::DiskFull));
    put(&store, &[TINY], false)[0].expect("what fits into the file that is there is stored");
    set_free(&disk, TOTAL / 2);
    rounds(&store, &clock);
    put(&store, &[HALF], false)[0].expect("room");
    let told = failures(&store);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1].contains("no longer"), "{told:?}");
    assert_eq!(read_all(&store, "bulk", 0).len(), 2);
}

#[test]
fn checkpoints_go_on_after_checksums_could_not_be_written() {
    for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
        let disk = SimDisk::new();
        let (store, clock) = started(&disk);
        put(&store, &[BIG, BIG], false)[0].expect("room");
        disk.set_broken(Some(("/store/rmqpy/checksums", kind)));
        rounds(&store, &clock);
        assert_eq!(failures(&store).len(), 1, "{kind}");
        disk.set_broken(None);
        rounds(&store, &clock);
        assert!(failures(&store)[0].contains("checkpoint"), "{kind}: it is told that they go on");
        store.close().expect("a clean stop");
        assert!(!files(&disk, "/store").iter().any(|(name, _)| name == "abort"), "{kind}: it was clean");
    }
}

#[test]
fn queues_that_cannot_be_written_hold_up_nothing_else_and_are_written_when_they_can_be() {
    let disk = SimDisk::new();
    let (store, clock) = started(&disk);
    disk.set_broken(Some(("/store/consumequeue", ErrorKind::StorageFull)));
    put(&store, &[HALF, TINY], false)[0].expect("room");
    rounds(&store, &clock);
    assert_eq!(files(&disk, "/store/commitlog").len(), 2, "the next file was made");
    disk.set_broken(None);
    rounds(&store, &clock);
    store.close().expect("a clean stop");
    let store = open(disk.shared(), options(), clock.clone()).expect("opens");
    assert_eq!(read_all(&store, "tiny", 0).len(), 1);
}

/// Method: the first record of the second file rots; it was how the age of the first file was known.
#[test]
fn a_damaged_record_does_not_keep_old_files_for_ever() {
    for later_files in [0, 2] {
        let disk = SimDisk::new();
        let (store, clock) = started(&disk);
        for _ in 0..5 + 3 * later_files {
            put(&store, &[BIG], false)[0].expect("room");
            drop(store.maintain());
        }
        store.close().expect("a clean stop");
        let second = files(&disk, "/store/commitlog")[1].0.clone();
        let file = disk.open(&Path::new("/store/commitlog").join(second), rmqpy::store::disk::Open::Write);
        file.expect("a file").write_at(&[7; 4096], 0).expect("a working disk");
        let store = open(disk.shared(), options(), clock.clone()).expect("opens");
        clock.advance(Duration::from_secs(2 * 3600));
        rounds(&store, &clock);
        assert!(store.range().0.0 >= SEGMENT_BYTES, "{later_files} later files: {:?}", store.range());
    }
}

/// Method: one folder after the other takes no byte more, over stops and kills; then all of them do again.
#[test]
fn a_start_and_a_stop_need_no_room_for_what_can_be_computed_from_the_log() {
    const PLACES: [&str; 6] = [
        "/store/consumequeue",
        "/store/index",
        "/store/rmqpy/checksums",
        "/store/rmqpy/manifest",
        "/store/checkpoint",
        "/store/abort",
    ];
    for place in PLACES {
        for is_killed in [false, true, false] {
            let full = Some((place, ErrorKind::StorageFull));
            let mut disk = SimDisk::new();
            let (store, clock) = started(&disk);
            put(&store, &[TINY, HALF], false)[1].expect("room");
            rounds(&store, &clock);
            disk.set_broken(full);
            put(&store, &[TINY, TINY], false)[1].expect("room");
            for _ in 0..2 {
                match is_killed {
                    true => disk = disk.crash(Survival::Everything, 0),
                    false => store.close().unwrap_or_else(|error| panic!("{place}: {error}")),
                }
                disk.set_broken(full);
                let store = open(disk.shared(), options(), clock.clone());
                let store = store.unwrap_or_else(|error| panic!("{place}: {error}"));
                assert_eq!(read_all(&store, "tiny", 0).len(), 3, "{place}");
                store.abandon();
            }
            disk.set_broken(None);
            let store = open(disk.shared(), options(), clock.clone()).expect("opens");
            put(&store, &[TINY], false)[0].expect("room");
            rounds(&store, &clock);
            store.close().expect("a clean stop");
            assert!(!files(&disk, "/store").iter().any(|(name, _)| name == "abort"), "{place}: it was clean");
            let store = open(disk.shared(), options(), clock.clone()).expect("opens");
            assert_eq!(store.events(), [], "{place}");
            assert_eq!(read_all(&store, "tiny", 0).len(), 4, "{place}");
        }
    }
}

/// Method: a killed copy whose log ends where a file does finds the next one there, though there is no room for another.
#[test]
fn a_copy_that_was_killed_between_two_files_of_its_log_needs_no_room_to_start() {
    let disk = SimDisk::new();
    let master = open(SimDisk::new().shared(), options(), clock()).expect("opens");
    put(&master, &[HALF, HALF], false)[1].expect("room in the next file");
    let copy_options = || Options { is_replica: true, ..options() };
    let copy = open(disk.shared(), copy_options(), clock()).expect("opens");
    let mut replica = copy.replica().expect("a copy");
    let mut at = replica.end();
    while at.0 < SEGMENT_BYTES {
        let bytes = master.log_bytes(at, (SEGMENT_BYTES - at.0) as usize).expect("bytes of the master");
        drop(copy.maintain());
        replica.append(at, &bytes).expect("it is taken");
        at.0 += bytes.len() as u64;
    }
    assert_eq!(copy.range().1.0, SEGMENT_BYTES);
    let disk = disk.crash(Survival::Everything, 0);
    set_free(&disk, 0);
    let copy = open(disk.shared(), copy_options(), clock()).expect("opens");
    assert_eq!(copy.range().1.0, SEGMENT_BYTES);
    assert_eq!(read_all(&copy, "bulk", 0).len(), 1);
}
