//! Recovery: opens clean, crashed, foreign and damaged stores.

use std::path::Path;
use std::sync::Arc;

use crate::store_model::{
    Folder, SEGMENT_BYTES, Sample, clock, index_everything, key_of, open, options, options_with, put,
    read_all, sample, start,
};
use rmqpy::positions::QueueOffset;
use rmqpy::store::disk::simulated::SimDisk;
use rmqpy::store::disk::{Disk, Open, OsDisk};
use rmqpy::store::{
    Durability, Event, Get, GetResult, GetStatus, Options, RecoveryPhase, RecoveryProgress, Store, StoreError,
};

const A: Sample = sample("orders", 0, 100);
const B: Sample = sample("orders", 1, 50);
const BIG: Sample = sample("bulk", 0, 20_000);

/// Opens a store that writes through the mapping: its log files are never behind the log.
fn start_mapped(disk: &SimDisk) -> Arc<Store> {
    open(disk.shared(), options_with(Durability::PageCacheMapped, "/store"), clock()).expect("opens")
}

fn stop(store: Arc<Store>) {
    store.close().expect("closes");
}

/// Leaves the folder as a killed process would.
fn kill(store: Arc<Store>) {
    store.abandon();
}

fn overwrite(disk: &SimDisk, path: &str, at: u64, bytes: &[u8]) {
    let file = disk.open(Path::new(path), Open::Write).expect("the file");
    file.write_at(bytes, at).expect("a working disk");
}

fn create(disk: &SimDisk, path: &str, size: u64) {
    disk.open(Path::new(path), Open::Create).expect("a new file").resize(size).expect("a working disk");
}

fn names(disk: &SimDisk, dir: &str) -> Vec<String> {
    disk.list(Path::new(dir)).expect("a directory").into_iter().map(|entry| entry.name).collect()
}

fn counts(store: &Store) -> Vec<(String, u32, usize)> {
    let mut counts = Vec::new();
    for (topic, ids) in store.topics() {
        for id in ids {
            counts.push((topic.to_string(), id, read_all(store, &topic, id).len()));
        }
    }
    counts
}

/// Five messages in three queues over two segments.
fn fill(store: &Store) {
    for samples in [[A, B].as_slice(), &[BIG], &[BIG], &[BIG], &[A]] {
        assert!(put(store, samples, false).iter().all(Result::is_ok));
        store.maintain().expect("a working disk");
    }
}

fn filled() -> Vec<(String, u32, usize)> {
    vec![("bulk".to_owned(), 0, 3), ("orders".to_owned(), 0, 2), ("orders".to_owned(), 1, 1)]
}

#[test]
fn messages_are_read_back_after_a_clean_stop() {
    let disk = SimDisk::new();
    let store = start(&disk);
    fill(&store);
    stop(store);
    assert!(!names(&disk, "/store").contains(&"abort".to_owned()));
    let store = start(&disk);
    assert!(names(&disk, "/store").contains(&"abort".to_owned()));
    assert_eq!(counts(&store), filled());
    assert_eq!(put(&store, &[B], false)[0].expect("stored").0, QueueOffset(1));
}

#[test]
fn a_torn_tail_is_cut_at_the_last_whole_record_wherever_it_is_torn() {
    // Goal: whatever part of the last record did not reach the disk, that record is gone and the one before is not.
    for keep_from_end in (1..=250).step_by(7) {
        let disk = SimDisk::new();
        let store = start_mapped(&disk);
        let outcomes = put(&store, &[A, B, A], false);
        let (_, start_of_last, end) = outcomes[2].expect("stored");
        kill(store);
        let torn_at = end.0.saturating_sub(keep_from_end).max(start_of_last.0);
        let zeros = vec![0; (end.0 - torn_at) as usize];
        overwrite(&disk, "/store/commitlog/00000000000000000000", torn_at, &zeros);
        let store = start_mapped(&disk);
        assert_eq!(store.range().1, start_of_last, "torn {keep_from_end} bytes before its end");
        let is_all_gone = torn_at == start_of_last.0;
        let events = store.events();
        match events.as_slice() {
            [] => assert!(is_all_gone, "zeros are not a torn record"),
            [Event::TornTail { path, at, bytes }] => {
                assert!(path.ends_with("commitlog/00000000000000000000"));
                assert_eq!((*at, *bytes <= torn_at - at, is_all_gone), (start_of_last.0, true, false));
            }
            _ => panic!("{events:?}"),
        }
        assert_eq!(read_all(&store, "orders", 0).len(), 1);
        assert_eq!(put(&store, &[A], false)[0].expect("stored").1, start_of_last);
        assert_eq!(read_all(&store, "orders", 0).len(), 2);
    }
}

#[test]
fn a_stale_record_behind_the_end_never_reappears() {
    // Three messages of one size; the second is torn and cut, and another takes its place. If the tail had been kept,
    // the third would follow again at its right position.
    let disk = SimDisk::new();
    let store = start_mapped(&disk);
    let outcomes = put(&store, &[A, A, A], false);
    kill(store);
    let (_, second, end_of_second) = outcomes[1].expect("stored");
    overwrite(&disk, "/store/commitlog/00000000000000000000", second.0 + 90, b"torn");
    let store = start_mapped(&disk);
    assert_eq!(store.range().1, second);
    assert_eq!(put(&store, &[A], false)[0].expect("stored").1, second);
    kill(store);
    let store = start_mapped(&disk);
    assert_eq!(store.range().1, end_of_second);
    assert_eq!(read_all(&store, "orders", 0).len(), 2);
}

#[test]
fn derived_files_are_rebuilt_when_they_are_deleted_or_damaged() {
    type Damage = fn(&SimDisk);
    let damages: [(&str, Damage); 8] = [
        ("all queues deleted", |disk| disk.remove_dir(Path::new("/store/consumequeue")).expect("removes")),
        ("one queue deleted", |disk| {
            disk.remove_dir(Path::new("/store/consumequeue/orders/0")).expect("removes")
        }),
        ("index deleted", |disk| disk.remove_dir(Path::new("/store/index")).expect("removes")),
        ("checkpoint deleted", |disk| disk.remove(Path::new("/store/checkpoint")).expect("removes")),
        ("our own directory deleted", |disk| disk.remove_dir(Path::new("/store/rmqpy")).expect("removes")),
        ("a queue file cut short", |disk| {
            let path = Path::new("/store/consumequeue/orders/0/00000000000000000000");
            disk.open(path, Open::Write).expect("the file").resize(33).expect("resizes");
        }),
        ("a queue file zeroed", |disk| {
            overwrite(disk, "/store/consumequeue/bulk/0/00000000000000000000", 0, &[0; 160]);
        }),
        ("a queue file that points elsewhere", |disk| {
            overwrite(disk, "/store/consumequeue/bulk/0/00000000000000000000", 47, &[1]);
        }),
    ];
    for (name, damage) in damages {
        for is_clean in [true, false] {
            let disk = SimDisk::new();
            let store = start(&disk);
            fill(&store);
            store.checkpoint().expect("a working disk");
            if is_clean {
                stop(store)
            } else {
                kill(store)
            }
            damage(&disk);
            let store = start(&disk);
            assert_eq!(counts(&store), filled(), "{name}, clean {is_clean}");
            index_everything(&store);
            let key = key_of("bulk", 0, 1);
            let found = store.query("bulk", &key, 32, 0, i64::MAX).expect("an index").records.len();
            assert!(found >= 1, "{name}, clean {is_clean}: found by key");
            assert_eq!(put(&store, &[A], false)[0].expect("stored").0, QueueOffset(2), "{name}");
        }
    }
}

/// Enough for several threads; one is damaged and one is missing.
#[test]
fn thousands_of_queues_are_found_as_they_were_left() {
    const QUEUES: u32 = 1_040;
    let disk = SimDisk::new();
    let mut store = start(&disk);
    for queue_id in (0..QUEUES).chain(700..703) {
        assert!(put(&store, &[sample("orders", queue_id, 10)], false)[0].is_ok());
    }
    let file = |queue_id: u32| format!("/store/consumequeue/orders/{queue_id}/00000000000000000000");
    for (name, is_clean, damage) in [
        ("clean", true, None),
        ("crash", false, None),
        ("damaged", true, Some(1_039)),
        ("both", false, Some(0)),
    ] {
        store.maintain().expect("a working disk");
        store.checkpoint().expect("a working disk");
        if is_clean {
            stop(store)
        } else {
            kill(store)
        }
        if let Some(damaged) = damage {
            disk.open(Path::new(&file(damaged)), Open::Write).expect("the file").resize(33).expect("resizes");
            disk.remove(Path::new(&file(650))).expect("removes");
        }
        store = start(&disk);
        let found = counts(&store);
        let left: Vec<_> = (0..QUEUES)
            .map(|id| ("orders".to_owned(), id, 1 + usize::from((700..703).contains(&id))))
            .collect();
        assert!(found == left, "{name}: {} queues", found.len());
    }
}

#[test]
fn an_entry_that_does_not_point_to_its_record_is_skipped() {
    let disk = SimDisk::new();
    let store = start(&disk);
    put(&store, &[A; 3], false);
    stop(store);
    let store = start(&disk);
    // The second entry points to the first record, whose offset differs.
    overwrite(&disk, "/store/consumequeue/orders/0/00000000000000000000", 20, &[0; 8]);
    let queue = store.queue("orders", 0).expect("a queue");
    let mut result = GetResult::default();
    let ask = Get { offset: QueueOffset(0), messages_max: 32, bytes_max: 1 << 20 };
    store.get(&queue, &ask, &mut |_| true, &mut result).expect("a working disk");
    assert_eq!((result.status, result.count, result.next_begin), (GetStatus::Found, 2, QueueOffset(3)));
}

#[test]
fn files_left_by_a_crash_of_apache_are_accepted() {
    // An empty last segment, one created early and unused, one truncated, and garbage behind the head of a blank.
    type Leave = fn(&SimDisk);
    let next = "/store/commitlog/00000000000000131072";
    assert_eq!(Path::new(next).file_name().expect("a name").len(), 20);
    let leaves: [(&str, Leave); 4] = [
        ("an empty last segment", |disk| create(disk, "/store/commitlog/00000000000000131072", 0)),
        ("an unused segment", |disk| create(disk, "/store/commitlog/00000000000000131072", SEGMENT_BYTES)),
        ("a short last segment", |disk| create(disk, "/store/commitlog/00000000000000131072", 5000)),
        ("garbage behind a blank", |disk| {
            overwrite(disk, "/store/commitlog/00000000000000000000", SEGMENT_BYTES - 300, &[0xAB; 300]);
        }),
    ];
    for (name, leave) in leaves {
        let disk = SimDisk::new();
        let store = start(&disk);
        fill(&store);
        kill(store);
        // Apache writes its own checkpoint, which our manifest does not match.
        overwrite(&disk, "/store/checkpoint", 0, &7_i64.to_be_bytes());
        for path in names(&disk, "/store/commitlog").iter().skip(2) {
            disk.remove(&Path::new("/store/commitlog").join(path)).expect("removes");
        }
        leave(&disk);
        let store = start(&disk);
        assert_eq!(counts(&store), filled(), "{name}");
        fill(&store);
        assert_eq!(read_all(&store, "bulk", 0).len(), 6, "{name}");
    }
}

#[test]
fn an_error_names_the_file_that_cannot_be_opened() {
    let disk = SimDisk::new();
    let store = start(&disk);
    let locked = open(disk.shared(), options("/store"), clock()).expect_err("held by the first");
    assert!(matches!(locked, StoreError::Locked { .. }), "{locked}");
    for _ in 0..3 {
        fill(&store);
    }
    stop(store);
    disk.remove(Path::new("/store/commitlog/00000000000000065536")).expect("removes");
    let error = open(disk.shared(), options("/store"), clock()).expect_err("a hole in the log").to_string();
    assert!(error.contains("00000000000000131072") && error.contains("65536"), "{error}");

    let disk = SimDisk::new();
    disk.create_dir(Path::new("/store/commitlog")).expect("creates");
    create(&disk, "/store/commitlog/00000000000000000000", 17);
    let error = open(disk.shared(), options("/store"), clock()).expect_err("no segment").to_string();
    assert!(error.contains("00000000000000000000") && error.contains("17"), "{error}");
}

#[test]
fn a_folder_remembers_the_sizes_of_its_files() {
    let disk = SimDisk::new();
    let store = start(&disk);
    fill(&store);
    stop(store);
    let other = Options { segment_bytes: 1 << 20, queue_file_bytes: 20 * 100, ..options("/store") };
    let store = open(disk.shared(), other, clock()).expect("opens");
    assert_eq!(counts(&store), filled());
    fill(&store);
    assert_eq!(read_all(&store, "bulk", 0).len(), 6);
    store.flush().expect("a working disk");
    let files = disk.list(Path::new("/store/commitlog")).expect("a directory");
    assert!(files.len() > 2 && files.iter().all(|file| file.size == SEGMENT_BYTES), "{files:?}");
}

#[test]
fn files_may_have_any_size_as_those_of_apache_do() {
    for is_clean in [true, false] {
        let disk = SimDisk::new();
        let sizes = || Options { segment_bytes: 70_001, queue_file_bytes: 20 * 8 - 1, ..options("/store") };
        let store = open(disk.shared(), sizes(), clock()).expect("opens");
        fill(&store);
        fill(&store);
        store.flush().expect("a working disk");
        if is_clean {
            stop(store)
        } else {
            kill(store)
        }
        let store = open(disk.shared(), sizes(), clock()).expect("opens");
        assert_eq!(read_all(&store, "bulk", 0).len(), 6);
        for (folder, size) in [("commitlog", 70_001), ("consumequeue/bulk/0", 160)] {
            let files = disk.list(&Path::new("/store").join(folder)).expect("a directory");
            assert!(!files.is_empty() && files.iter().all(|file| file.size == size), "{files:?}");
        }
    }
}

#[test]
fn a_deleted_topic_begins_at_zero_again_and_stays_so() {
    for is_clean in [true, false] {
        let disk = SimDisk::new();
        let store = start(&disk);
        fill(&store);
        let queue = store.queue("orders", 0).expect("a queue");
        store.delete_topic("orders").expect("a working disk");
        assert!(store.queue("orders", 0).is_none() && queue.is_deleted());
        assert_eq!(put(&store, &[A], false)[0].expect("stored").0, QueueOffset(0));
        store.maintain().expect("a working disk");
        if is_clean {
            stop(store)
        } else {
            kill(store)
        }
        let store = start(&disk);
        assert_eq!(read_all(&store, "orders", 0).len(), 1, "clean {is_clean}");
        assert_eq!(read_all(&store, "bulk", 0).len(), 3);
        assert_eq!(put(&store, &[A], false)[0].expect("stored").0, QueueOffset(1));
    }
}

/// Operations on a store before a crash; returns the store that runs then.
type Happening<'a> = &'a dyn Fn(&SimDisk, Arc<Store>) -> Arc<Store>;

/// Goal: after a deletion the next start reads nothing of the log before its checkpoint.
/// Method: operations of the disk, which are several for each file of the log that is written again.
#[test]
fn a_topic_deleted_before_a_crash_lets_recovery_begin_at_the_checkpoint() {
    let c = sample("third", 2, 100);
    // The operations of a start after a crash, and the content of the store then.
    let start_after = |happens: Happening<'_>| {
        let disk = SimDisk::new();
        let store = start(&disk);
        put(&store, &[A, B, c, A], false);
        for _ in 0..40 {
            put(&store, &[BIG], false);
            store.maintain().expect("a working disk");
        }
        put(&store, &[A, c], false);
        store.checkpoint().expect("a working disk");
        put(&store, &[B, A, BIG], false);
        store.flush().expect("a working disk");
        kill(happens(&disk, store));
        let before = disk.operations();
        let store = start(&disk);
        (disk.operations() - before, counts(&store))
    };
    let delete = |store: &Store, topic: &str| store.delete_topic(topic).expect("a working disk");
    let bulk = || ("bulk".to_owned(), 0, 41);
    let orders = |queue_id, count| ("orders".to_owned(), queue_id, count);
    let (usual, all) = start_after(&|_, store| store);
    assert_eq!(all, [bulk(), orders(0, 4), orders(1, 2), ("third".to_owned(), 2, 2)]);
    let deletions: [(Happening<'_>, Vec<_>); 5] = [
        (
            &|_, store| {
                delete(&store, "third");
                store
            },
            vec![bulk(), orders(0, 4), orders(1, 2)],
        ),
        (
            &|_, store| {
                delete(&store, "third");
                delete(&store, "orders");
                store
            },
            vec![bulk()],
        ),
        (
            &|_, store| {
                delete(&store, "orders");
                put(&store, &[A], false);
                delete(&store, "third");
                store.maintain().expect("a working disk");
                store
            },
            vec![bulk(), orders(0, 1)],
        ),
        // A checkpoint in between includes the first deletion.
        (
            &|_, store| {
                delete(&store, "orders");
                put(&store, &[c], false);
                store.checkpoint().expect("a working disk");
                delete(&store, "third");
                store
            },
            vec![bulk()],
        ),
        // So does an orderly stop, whose checkpoint may name the same record.
        (
            &|disk, store| {
                delete(&store, "orders");
                stop(store);
                let store = start(disk);
                delete(&store, "third");
                store
            },
            vec![bulk()],
        ),
    ];
    for (index, (happens, expected)) in deletions.into_iter().enumerate() {
        let (operations, held) = start_after(happens);
        assert_eq!(held, expected, "deletion {index}");
        assert!(operations <= usual + 12, "deletion {index}: {operations} operations instead of {usual}");
    }
}

#[test]
fn on_a_real_disk_files_are_private_and_the_lock_holds_within_one_process() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("private");
    let root = folder.0.join("store");
    let progress = RecoveryProgress::default();
    let store =
        Store::open(options_with(Durability::DiskMapped, &root), OsDisk::shared(), clock(), &progress)
            .expect("opens");
    assert_eq!(progress.now().0, RecoveryPhase::Open);
    put(&store, &[A, B], false);
    store.flush().expect("a working disk");
    assert_eq!(read_all(&store, "orders", 0).len(), 1);
    assert!(
        open(OsDisk::shared(), options_with(Durability::DiskMapped, &root), clock())
            .is_err_and(|error| matches!(error, StoreError::Locked { .. }))
    );
    store.maintain().expect("a working disk");
    let mode =
        |path: &str| std::fs::metadata(root.join(path)).expect("is there").permissions().mode() & 0o777;
    assert_eq!((mode(""), mode("commitlog"), mode("consumequeue/orders/0")), (0o700, 0o700, 0o700));
    assert_eq!(
        (mode("commitlog/00000000000000000000"), mode("checkpoint"), mode("abort")),
        (0o600, 0o600, 0o600)
    );
    drop(store);
    let store = open(OsDisk::shared(), options_with(Durability::DiskMapped, &root), clock())
        .expect("opens after a crash");
    assert_eq!(read_all(&store, "orders", 1).len(), 1);
    store.close().expect("closes");
}

/// The unused part of a queue file is a hole, on which a broker with thousands of queues depends.
#[test]
fn after_a_crash_the_files_of_queues_take_no_more_room_than_before() {
    use std::os::unix::fs::MetadataExt;
    let folder = Folder::new("room");
    let root = folder.0.join("store");
    let wide = || Options { queue_file_bytes: 6_000_000, ..options_with(Durability::DiskMapped, &root) };
    let file = root.join("consumequeue/orders/0/00000000000000000000");
    let store = open(OsDisk::shared(), wide(), clock()).expect("opens");
    put(&store, &[A, B], false);
    store.flush().expect("a working disk");
    store.maintain().expect("a working disk");
    store.abandon();
    let stale = OsDisk::shared().open(&file, Open::Write).expect("the file");
    stale.write_at(&[7; 40], 5_000_000).expect("a working disk");
    let room = || std::fs::metadata(&file).expect("the file").blocks() * 512;
    for _ in 0..2 {
        let store = open(OsDisk::shared(), wide(), clock()).expect("opens after a crash");
        assert_eq!(read_all(&store, "orders", 0).len(), 1);
        store.abandon();
        let mut found = [1; 40];
        stale.read_at(&mut found, 5_000_000).expect("a working disk");
        assert_eq!(found, [0; 40], "bytes behind the end are gone");
        assert!(room() < 64 << 10, "{} bytes", room());
    }
}
