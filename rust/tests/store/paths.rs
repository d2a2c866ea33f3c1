//! Paths: log, queues and index outside the root, crashes there, and disks with different usage.

use std::sync::Arc;
use std::time::Duration;

use crate::store_model::{Sample, clock, open, put, read_all, sample};
use rmqpy::clock::ManualClock;
use rmqpy::store::disk::Space;
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::{Event, Options, PutError, Retention, Store, StoreError, StorePaths};

const SMALL: Sample = sample("orders", 0, 100);
const HALF: Sample = sample("orders", 0, 40_000);
const TOTAL: u64 = 1 << 40;

fn paths() -> StorePaths {
    StorePaths {
        root: "/store".into(),
        log: "/a/log".into(),
        queues: "/b/queues".into(),
        index: "/c/index".into(),
    }
}

fn options() -> Options {
    Options { paths: paths(), ..crate::store_model::options("/store") }
}

fn started(disk: &SimDisk, clock: &Arc<ManualClock>) -> Result<Arc<Store>, StoreError> {
    open(disk.shared(), options(), clock.clone())
}

/// Goal: a crash at any operation of the first run, or the next, leaves a store that opens with the same paths and has
/// everything promised. Method: stop the disk before each operation.
#[test]
fn a_crash_at_any_moment_leaves_a_store_that_opens_with_its_paths() {
    let life = |disk: &SimDisk| {
        let mut kept = 0;
        let clock = clock();
        for _ in 0..2 {
            let Ok(store) = started(disk, &clock) else { return kept };
            for sample in [SMALL, HALF, HALF] {
                let is_put = put(&store, &[sample], false)[0].is_ok();
                if is_put && store.flush().is_ok() && !disk.is_frozen() {
                    kept = read_all(&store, "orders", 0).len();
                }
                drop(store.maintain());
            }
            drop(store.close());
        }
        kept
    };
    let whole = SimDisk::new();
    assert_eq!(life(&whole), 6);
    for operation in 0..whole.operations() {
        for survival in [Survival::Nothing, Survival::Everything, Survival::Percent(50)] {
            let disk = SimDisk::new();
            disk.freeze_at(operation);
            let kept = life(&disk);
            let after = disk.crash(survival, operation);
            let context = format!("stopped before operation {operation}, {survival:?}");
            let store = started(&after, &clock()).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(read_all(&store, "orders", 0).len() >= kept, "{context}");
        }
    }
}

#[test]
fn each_disk_that_messages_need_has_its_own_check() {
    let free = |mib: u64| Space { free: mib << 20, total: TOTAL };
    let roomy = Space { free: TOTAL / 2, total: TOTAL };
    for (place, space, is_refused) in [
        ("/a/log", free(63), true),
        ("/b/queues", free(63), true),
        ("/store", free(63), true),
        ("/c/index", free(63), false),
        ("/a/log", free(100), true),
        ("/b/queues", free(100), true),
        // 90 % usage of the root does not matter as long as the next checkpoint can be written.
        ("/store", free(100), false),
    ] {
        let (disk, clock) = (SimDisk::new(), clock());
        let retention = Retention { full_percent: 90, ..Retention::default() };
        let options = Options { retention, ..options() };
        let store = open(disk.shared(), options, clock.clone()).expect("opens");
        disk.set_space(roomy);
        disk.set_space_of(place, space);
        drop(store.maintain());
        let outcome = put(&store, &[SMALL], false)[0];
        assert_eq!(outcome == Err(PutError::DiskFull), is_refused, "{place}, {space:?}: {outcome:?}");
        let is_full =
            |event: &Event| matches!(event, Event::DiskFull { path, .. } if path.to_str() == Some(place));
        assert_eq!(store.events().iter().any(is_full), is_refused, "{place}, {space:?}");
        disk.set_space_of(place, roomy);
        clock.advance(Duration::from_secs(2));
        drop(store.maintain());
        assert!(put(&store, &[SMALL], false)[0].is_ok(), "{place}: accepted again");
    }
}

/// Method: fill the disk of the queues but not that of the log: old files are deleted, and so are the queues'.
#[test]
fn a_full_disk_of_the_queues_expires_files_early() {
    let (disk, clock) = (SimDisk::new(), clock());
    let retention = Retention { reserved_ms: 3_600_000, expire_percent: 75, ..Retention::default() };
    let store = open(disk.shared(), Options { retention, ..options() }, clock.clone()).expect("opens");
    for _ in 0..6 {
        assert!(put(&store, &[HALF], false)[0].is_ok());
        drop(store.maintain());
    }
    clock.advance(Duration::from_secs(2 * 3_600));
    drop(store.maintain());
    disk.set_space(Space { free: TOTAL / 2, total: TOTAL });
    let begin = store.range().0;
    for _ in 0..100 {
        clock.advance(Duration::from_millis(50));
        drop(store.maintain());
    }
    assert_eq!(store.range().0, begin, "not its hour");
    disk.set_space_of("/b/queues", Space { free: TOTAL / 5, total: TOTAL });
    for _ in 0..200 {
        clock.advance(Duration::from_millis(50));
        drop(store.maintain());
    }
    assert!(store.range().0 > begin);
    assert!(read_all(&store, "orders", 0).len() < 6);
}
