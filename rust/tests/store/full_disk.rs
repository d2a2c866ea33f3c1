//! A full disk: a failing step of maintenance is reported once, delays no other step, and recovers.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::store_model::{SEGMENT_BYTES, Sample, bytes_of, clock, open, put, read_all, sample};
use rmqpy::clock::ManualClock;
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::disk::{Disk, Space};
use rmqpy::store::{Event, Options, PutError, Retention, Store};

const BIG: Sample = sample("bulk", 0, 20_000);
/// More than half of a file, so that the next file is due, and a second one does not fit.
const HALF: Sample = sample("bulk", 0, 40_000);
const TINY: Sample = sample("tiny", 0, 10);
const TOTAL: u64 = 1 << 40;

/// Everything expires after an hour, at any hour.
fn options() -> Options {
    let delete_hours = (0..24).collect();
    let retention =
        Retention { reserved_ms: 3_600_000, delete_hours, free_bytes_min: 0, ..Retention::default() };
    Options { retention, ..crate::store_model::options("/store") }
}

fn started(disk: &SimDisk) -> (Arc<Store>, Arc<ManualClock>) {
    let clock = clock();
    (open(disk.shared(), options(), clock.clone()).expect("opens"), clock)
}

fn set_free(disk: &SimDisk, free: u64) {
    disk.set_space(Space { free, total: TOTAL });
}

/// Runs rounds for ten seconds, ignoring their results.
fn rounds(store: &Store, clock: &ManualClock) {
    for _ in 0..200 {
        clock.advance(Duration::from_millis(50));
        drop(store.maintain());
    }
}

fn failures(store: &Store) -> Vec<String> {
    let events = store.events().into_iter();
    let reports =
        events.filter(|event| matches!(event, Event::StepFailed { .. } | Event::StepRecovered { .. }));
    reports.map(|event| event.to_string()).collect()
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
    assert_eq!(
        store.range().0.0 / SEGMENT_BYTES,
        store.range().1.0 / SEGMENT_BYTES,
        "expired files were deleted"
    );
    let reports = failures(&store);
    assert_eq!(reports.len(), 1, "once, not per round: {reports:?}");
    assert!(reports[0].contains("next file of the log"), "{reports:?}");
    let checkpoint = || bytes_of(&disk, "/store/checkpoint", 0, 64);
    let before = checkpoint();
    put(&store, &[TINY], false)[0].expect("a message that fits the active file is stored");
    rounds(&store, &clock);
    assert_ne!(checkpoint(), before, "checkpoints continue");
    store.abandon();
    let store = open(disk.shared(), options(), clock.clone()).expect("opens");
    assert!(store.statistics()["min_physical"] > 0);
}

#[test]
fn a_failed_allocation_frees_its_partial_space() {
    let disk = SimDisk::new();
    let (store, clock) = started(&disk);
    put(&store, &[HALF], false)[0].expect("room");
    // The space is only an estimate: another program may take it after the measurement.
    set_free(&disk, SEGMENT_BYTES - 1);
    let before = files(&disk, "/store/rmqpy");
    disk.set_broken(Some(("/store/rmqpy/segment", ErrorKind::StorageFull)));
    rounds(&store, &clock);
    assert_eq!(files(&disk, "/store/rmqpy"), before);
    set_free(&disk, TOTAL / 2);
    rounds(&store, &clock);
    assert_eq!(files(&disk, "/store/rmqpy"), before, "also after a second failure");
    disk.set_broken(None);
    rounds(&store, &clock);
    assert_eq!(files(&disk, "/store/commitlog").len(), 2);
    store.close().expect("a clean stop");
}

#[test]
fn a_message_without_a_file_is_refused_until_there_is_space() {
    let disk = SimDisk::new();
    let (store, clock) = started(&disk);
    put(&store, &[HALF], false)[0].expect("room");
    set_free(&disk, SEGMENT_BYTES - 1);
    rounds(&store, &clock);
    assert_eq!(put(&store, &[HALF], false)[0], Err(PutError::DiskFull));
    put(&store, &[TINY], false)[0].expect("a message that fits the active file is stored");
    set_free(&disk, TOTAL / 2);
    rounds(&store, &clock);
    put(&store, &[HALF], false)[0].expect("room");
    let reports = failures(&store);
    assert_eq!(reports.len(), 2, "{reports:?}");
    assert!(reports[1].contains("recovered: can"), "{reports:?}");
    assert_eq!(read_all(&store, "bulk", 0).len(), 2);
}

#[test]
fn checkpoints_continue_after_checksums_could_not_be_written() {
    for kind in [ErrorKind::StorageFull, ErrorKind::Other] {
        let disk = SimDisk::new();
        let (store, clock) = started(&disk);
        put(&store, &[BIG, BIG], false)[0].expect("room");
        disk.set_broken(Some(("/store/rmqpy/checksums", kind)));
        rounds(&store, &clock);
        assert_eq!(failures(&store).len(), 1, "{kind}");
        disk.set_broken(None);
        rounds(&store, &clock);
        assert!(failures(&store)[0].contains("checkpoint"), "{kind}: the failed step is reported");
        store.close().expect("a clean stop");
        assert!(!files(&disk, "/store").iter().any(|(name, _)| name == "abort"), "{kind}: it was clean");
    }
}

#[test]
fn queues_that_cannot_be_written_delay_nothing_else_and_are_written_later() {
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

/// Method: damage the first record of the second file, which dates the end of the first file.
#[test]
fn a_damaged_record_does_not_keep_old_files_forever() {
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

/// Method: fill one folder after the other, over stops and kills, then free them all.
#[test]
fn a_start_and_a_stop_need_no_space_for_derived_files() {
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

/// Method: a killed copy whose log ends with a file finds the next file, though there is no space for another.
#[test]
fn a_copy_killed_between_two_files_needs_no_space_to_start() {
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
