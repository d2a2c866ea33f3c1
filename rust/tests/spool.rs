//! The spool: what a killed process leaves in it is in the log after the next start, and nothing else ever is.
#![allow(clippy::expect_used, reason = "a test that cannot go on fails")]

mod store_model;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rmqpy::clock::ManualClock;
use rmqpy::clock::SystemClock;
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::disk::{Disk, Open, OsDisk};
use rmqpy::store::inspect::{FindingKind, Severity, Shape, StoppedStore};
use rmqpy::store::{Durability, Event, Options, Retention, SpoolMismatch, Store, StorePaths};
use store_model::workloads::{NINE, ODD, SMALL};
use store_model::{Folder, Sample, body_of, clock, open, options_with, put, read_all, sample};

const SPOOL: &str = "/store/rmqpy/spool";
/// Where files of a spool stay that do not continue the log.
const ASIDE: &str = "/store/rmqpy/spool-aside";

/// Files of the log that take several parts of the spool.
fn spooled(root: impl AsRef<Path>) -> Options {
    Options {
        segment_bytes: 1 << 19,
        spool_bytes: 1 << 18,
        ..options_with(Durability::PageCacheSpooled, root)
    }
}

fn mapped() -> Options {
    Options { durability: Durability::PageCache, ..spooled("/store") }
}

fn start(disk: &SimDisk, options: Options) -> Arc<Store> {
    open(disk.shared(), options, clock()).expect("opens")
}

/// A disk as a process leaves it that was killed with messages in the spool, most of which are in no file of the log.
fn killed() -> SimDisk {
    let disk = SimDisk::new();
    let store = start(&disk, spooled("/store"));
    assert_eq!(store.events(), [], "there is a spool");
    put(&store, SMALL, false);
    store.flush().expect("a working disk");
    put(&store, ODD, false);
    put(&store, NINE, true);
    disk.crash(Survival::Everything, 0)
}

/// Bodies of a queue, in order, checked to be those that were put.
fn count(store: &Store, topic: &'static str, queue_id: u32) -> u64 {
    let found = read_all(store, topic, queue_id);
    for (number, (_, body)) in &found {
        let head = format!("{topic}/{queue_id}/{number}:");
        assert!(body.starts_with(head.as_bytes()), "{head}");
    }
    found.len() as u64
}

/// The number of messages of a queue whose first ones may be gone.
fn count_from(store: &Store, topic: &'static str, queue_id: u32) -> u64 {
    read_all(store, topic, queue_id).len() as u64
}

/// Messages of `killed` in the queue `a/0`: one each of `SMALL`, two of `ODD`, nine.
fn all_of_killed(store: &Store) -> bool {
    count(store, "a", 0) == 1 + 2 + 9 && count(store, "c", 3) == 1
}

fn files(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    files_in(disk, SPOOL)
}

fn files_in(disk: &SimDisk, dir: &str) -> Vec<(String, Vec<u8>)> {
    let disk = disk.shared();
    let read = |name: String| {
        let file = disk.open(&Path::new(dir).join(&name), Open::Read).expect("it was listed");
        let mut bytes = vec![0; file.size().expect("a size") as usize];
        file.read_at(&mut bytes, 0).expect("a working disk");
        (name, bytes)
    };
    disk.list(Path::new(dir)).expect("a folder").into_iter().map(|entry| read(entry.name)).collect()
}

fn put_back(disk: &SimDisk, files: &[(String, Vec<u8>)]) {
    for (name, bytes) in files {
        let file = disk.open(&Path::new(SPOOL).join(name), Open::Create).expect("a folder");
        file.write_at(bytes, 0).expect("a working disk");
    }
    disk.sync_dir(Path::new(SPOOL)).expect("a working disk");
}

#[test]
fn the_next_start_drains_what_a_killed_process_has_left_whatever_its_write_path() {
    for options in [mapped(), spooled("/store")] {
        let disk = killed();
        let store = start(&disk, options.clone());
        assert!(matches!(store.events()[..], [Event::SpoolDrained { bytes: 3900.. }]));
        assert!(all_of_killed(&store));
        store.close().expect("a working disk");
        assert_eq!(files(&disk), [], "an orderly stop leaves nothing");
        let store = start(&disk, options);
        assert_eq!(store.events(), []);
        assert!(all_of_killed(&store));
    }
}

#[test]
fn a_drain_that_is_cut_short_anywhere_loses_nothing() {
    let mut stops = 0;
    for operation in 0.. {
        let disk = killed();
        disk.freeze_at(operation);
        drop(open(disk.shared(), mapped(), clock()));
        let was_stopped = disk.is_frozen();
        let disk = disk.crash(Survival::Everything, operation);
        assert!(all_of_killed(&start(&disk, mapped())), "stopped before operation {operation}");
        stops += u64::from(was_stopped);
        if !was_stopped {
            break;
        }
    }
    assert!(stops > 10, "{stops}");
}

#[test]
fn after_a_power_loss_the_spool_is_left_out_and_what_was_flushed_is_there() {
    for survival in [Survival::Nothing, Survival::Percent(50), Survival::Percent(99)] {
        let disk = SimDisk::new();
        let store = start(&disk, spooled("/store"));
        put(&store, SMALL, false);
        store.flush().expect("a working disk");
        put(&store, NINE, false);
        let disk = disk.crash(survival, 7);
        let store = start(&disk, mapped());
        let is_there = !matches!(survival, Survival::Nothing);
        let is_told = store.events().iter().any(|event| matches!(event, Event::SpoolSetAside { .. }));
        assert!(is_told || !is_there, "{survival:?}");
        assert_eq!((count(&store, "a", 0), count(&store, "b", 0)), (1, 1), "{survival:?}");
    }
}

#[test]
fn a_spool_of_old_changes_nothing() {
    let disk = killed();
    let old = files(&disk);
    let store = start(&disk, mapped());
    put(&store, NINE, false);
    store.close().expect("a working disk");
    put_back(&disk, &old);
    let store = start(&disk, mapped());
    assert_eq!(store.events(), []);
    assert_eq!(count(&store, "a", 0), 12 + 9);
}

/// A log with which another broker has gone on, beside the spool of `killed`; that as it was.
fn gone_on() -> (SimDisk, Vec<(String, Vec<u8>)>) {
    let disk = killed();
    let old = files(&disk);
    for (name, _) in &old {
        disk.remove(&Path::new(SPOOL).join(name)).expect("a working disk");
    }
    let store = start(&disk, mapped());
    assert_eq!(count(&store, "a", 0), 1, "it finds a log that ends earlier");
    put(&store, &[sample("a", 0, 400), sample("a", 0, 41)], false);
    store.close().expect("a working disk");
    // It does not write the manifest.
    disk.remove(Path::new("/store/rmqpy/manifest")).expect("a working disk");
    put_back(&disk, &old);
    let holds = |(_, bytes): &(String, Vec<u8>)| bytes[64..72] != [0; 8];
    (disk, old.into_iter().filter(holds).collect())
}

/// The files of earlier spools that were kept.
fn aside(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let dirs = disk.list(Path::new(ASIDE)).expect("a working disk");
    dirs.iter().flat_map(|dir| files_in(disk, &format!("{ASIDE}/{}", dir.name))).collect()
}

#[test]
fn a_log_that_another_broker_has_gone_on_with_keeps_its_messages_and_the_spool_is_kept_beside_it() {
    let (disk, old) = gone_on();
    let store = start(&disk, mapped());
    let path = Path::new(ASIDE).join("1");
    assert_eq!(store.events(), [Event::SpoolSetAside { path, reason: SpoolMismatch::OtherLog }]);
    assert_eq!((count(&store, "a", 0), count(&store, "c", 3)), (3, 0));
    assert!(aside(&disk) == old, "kept as they were");
    // The next one has another place.
    store.close().expect("a working disk");
    disk.remove(Path::new("/store/rmqpy/manifest")).expect("a working disk");
    put_back(&disk, &old);
    start(&disk, mapped()).close().expect("a working disk");
    assert_eq!(aside(&disk).len(), 2 * old.len());
    let store = StoppedStore::hold(StorePaths::below("/store"), disk.shared()).expect("a store");
    let report = store.verify(None, Shape { slots: 16, entries: 64 }).expect("a working disk");
    assert!(report.findings.iter().any(|finding| finding.kind == FindingKind::Spool));
}

#[test]
fn a_spool_that_is_set_aside_loses_no_file_wherever_that_is_cut_short() {
    let mut stops = 0;
    for operation in 0.. {
        let (disk, old) = gone_on();
        disk.freeze_at(disk.operations() + operation);
        drop(open(disk.shared(), mapped(), clock()));
        let was_stopped = disk.is_frozen();
        let disk = disk.crash(Survival::Everything, operation);
        drop(start(&disk, mapped()));
        assert!(aside(&disk) == old, "stopped before operation {operation}");
        stops += u64::from(was_stopped);
        if !was_stopped {
            break;
        }
    }
    assert!(stops > 10, "{stops}");
}

#[test]
fn a_spool_without_its_oldest_part_leaves_no_hole_and_is_drained_once_that_is_back() {
    let disk = SimDisk::new();
    let store = start(&disk, spooled("/store"));
    put(&store, SMALL, false);
    store.flush().expect("a working disk");
    let samples = [sample("a", 0, 40_000); 4];
    assert!(put(&store, &samples, false).iter().all(Result::is_ok));
    let disk = disk.crash(Survival::Everything, 0);
    let whole = files(&disk);
    let first_of = |bytes: &[u8]| u64::from_ne_bytes(*bytes[32..40].first_chunk().expect("marks"));
    let holding = || whole.iter().filter(|(_, bytes)| bytes[64..72] != [0; 8]);
    assert!(holding().count() > 1, "several parts");
    let (oldest, _) = holding().min_by_key(|(_, bytes)| first_of(bytes)).expect("a part").clone();
    for is_damaged in [true, false] {
        let disk = disk.crash(Survival::Everything, 0);
        let path = Path::new(SPOOL).join(&oldest);
        match is_damaged {
            true => disk.open(&path, Open::Write).and_then(|file| file.write_at(&[1], 40)).expect("a file"),
            false => disk.remove(&path).expect("a file"),
        }
        let store = start(&disk, mapped());
        let path = Path::new(ASIDE).join("1");
        assert_eq!(
            store.events(),
            [Event::SpoolSetAside { path: path.clone(), reason: SpoolMismatch::OtherLog }]
        );
        assert_eq!(count(&store, "a", 0), 1);
        store.close().expect("a working disk");
        for (name, _) in files_in(&disk, &format!("{ASIDE}/1")) {
            disk.rename(&path.join(&name), &Path::new(SPOOL).join(&name)).expect("a working disk");
        }
        let missing: Vec<_> = whole.iter().filter(|(name, _)| *name == oldest).cloned().collect();
        put_back(&disk, &missing);
        let store = start(&disk, mapped());
        assert!(matches!(store.events()[..], [Event::SpoolDrained { .. }]));
        assert_eq!(count(&store, "a", 0), 1 + 4);
    }
}

#[test]
fn broken_marks_and_broken_records_are_never_taken() {
    // A mark changed, or records torn: what is taken is a prefix of what was appended.
    let whole = files(&killed());
    for at in (0..80).chain((4096..4096 + 6000).step_by(37)) {
        let disk = killed();
        let mut broken = whole.clone();
        for (_, bytes) in &mut broken {
            match at {
                ..4096 => bytes[at] ^= 0x55,
                _ => bytes[at..].fill(0),
            }
        }
        put_back(&disk, &broken);
        let store = start(&disk, mapped());
        for (topic, ids) in store.topics() {
            for id in ids {
                let topic =
                    ["a", "b", "c"].into_iter().find(|known| **known == *topic).expect("one that was put");
                count(&store, topic, id);
            }
        }
        assert!(count(&store, "a", 0) >= 1, "what is in the log stays, with byte {at} changed");
    }
}

/// Puts of all sizes until the log has several files, with a flush now and then; everything can be read at any time.
#[test]
fn everything_can_be_read_while_parts_fill_up_and_begin_anew() {
    const SIZES: [usize; 7] = [10, 4_000, 90, 60_000, 1, 12_345, 700];
    let disk = SimDisk::new();
    let store = start(&disk, spooled("/store"));
    for round in 0..60 {
        let samples = SIZES.map(|size| sample("a", 0, size));
        let is_joined = samples.iter().map(|each| each.body_bytes + 200).sum::<usize>() < 1 << 16;
        assert!(put(&store, &samples, is_joined).iter().all(Result::is_ok), "round {round}");
        store.maintain().expect("a working disk");
        if round % 3 == 0 {
            store.flush().expect("a working disk");
        }
        if round % 7 == 0 {
            store.checkpoint().expect("a working disk");
        }
        assert_eq!(count(&store, "a", 0), (round + 1) * SIZES.len() as u64);
    }
    assert!(store.range().1.0 > 4 << 20);
    let disk = disk.crash(Survival::Everything, 0);
    let store = start(&disk, spooled("/store"));
    assert_eq!(count(&store, "a", 0), 60 * SIZES.len() as u64);
    store.close().expect("a working disk");
    // Checksums were noted while the blocks were written: nothing is taken for damaged.
    let store = start(&disk, mapped());
    assert_eq!((count(&store, "a", 0), store.events()), (60 * SIZES.len() as u64, vec![]));
}

#[test]
fn a_kill_at_any_moment_of_a_busy_spool_loses_nothing() {
    let samples: [Sample; 5] = [5_000, 100, 30_000, 1, 50_000].map(|size| sample("a", 0, size));
    // How many were stored before the world stopped, and in all.
    let run = |disk: &SimDisk| -> (u64, u64) {
        let (mut before, mut stored) = (0, 0);
        let Ok(store) = open(disk.shared(), spooled("/store"), clock()) else { return (0, 0) };
        for round in 0..6 {
            stored += put(&store, &samples, false).iter().filter(|outcome| outcome.is_ok()).count() as u64;
            if disk.is_frozen() {
                break;
            }
            before = stored;
            if round % 2 == 1 {
                let _ = store.flush();
            }
        }
        (before, stored)
    };
    let disk = SimDisk::new();
    run(&disk);
    for operation in 0..disk.operations() {
        let disk = SimDisk::new();
        disk.freeze_at(operation);
        let (before, stored) = run(&disk);
        let store = start(&disk.crash(Survival::Everything, 0), mapped());
        let survived = count(&store, "a", 0);
        assert!((before..=stored).contains(&survived), "{survived} of {before}..={stored}, {operation}");
        let store = start(&disk.crash(Survival::Percent(60), operation), mapped());
        assert!(count(&store, "a", 0) <= stored, "operation {operation}");
    }
}

#[test]
fn a_verification_tells_of_a_spool_that_was_not_drained_and_a_drain_needs_no_start() {
    let disk = killed();
    let (paths, shape) = (StorePaths::below("/store"), Shape { slots: 16, entries: 64 });
    let verify = || {
        let store = StoppedStore::hold(paths.clone(), disk.shared()).expect("a store");
        let report = store.verify(None, shape).expect("a working disk");
        store.release();
        report.findings.into_iter().find(|finding| finding.kind == FindingKind::Spool)
    };
    assert_eq!(verify().expect("it is told").severity, Severity::Note);
    for expected in [true, false] {
        let store = StoppedStore::hold_exclusively(paths.clone(), disk.shared()).expect("a store");
        let event = store.drain().expect("a working disk");
        assert_eq!(matches!(event, Some(Event::SpoolDrained { .. })), expected);
        store.release();
    }
    assert_eq!(verify(), None);
    let store = start(&disk, mapped());
    assert!(all_of_killed(&store));
}

/// Real files, real threads: readers follow the end of the log while parts begin anew behind them.
#[test]
fn readers_find_every_message_while_the_spool_goes_round() {
    const MESSAGES: u64 = 20_000;
    let folder = Folder::new("spool");
    let options = || Options { queue_file_bytes: 6_000_000, segment_bytes: 1 << 22, ..spooled(&folder.0) };
    let threaded = Options { threads: true, ..options() };
    let store = open(OsDisk::shared(), threaded, SystemClock::shared()).expect("opens");
    let events = store.events();
    if let [Event::NoSpool { reason }] = &events[..] {
        println!("no direct writes here: {reason}");
        return;
    }
    assert_eq!(events, []);
    let (done, seen) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut rounds = 0;
                while !done.load(Ordering::Acquire) || rounds == 0 {
                    let found = read_all(&store, "a", 0);
                    for (number, (_, body)) in &found {
                        assert_eq!(*body, body_of(&sample("a", 0, 700), *number));
                    }
                    seen.fetch_max(found.len() as u64, Ordering::AcqRel);
                    rounds += 1;
                }
            });
        }
        let failed = (0..MESSAGES / 20).find_map(|_| {
            let stored = put(&store, &[sample("a", 0, 700); 20], false);
            stored.into_iter().find_map(Result::err)
        });
        done.store(true, Ordering::Release);
        assert_eq!(failed, None, "{:?}", store.failure());
    });
    assert!(seen.load(Ordering::Acquire) > 0);
    assert_eq!(count(&store, "a", 0), MESSAGES);
    // As a kill leaves it.
    store.abandon();
    drop(store);
    let mapped = Options { durability: Durability::PageCache, ..options() };
    let store = open(OsDisk::shared(), mapped, SystemClock::shared()).expect("opens");
    assert_eq!(count(&store, "a", 0), MESSAGES);
}

/// A store whose first log file was deleted while its last part is still in the spool, and then took more messages, which
/// are in no log file. Returns the spool as it was before the deletion, the disk after the kill, and the messages kept.
fn killed_behind_a_deletion(delete: impl Fn(&Store, &ManualClock)) -> (Vec<(String, Vec<u8>)>, SimDisk, u64) {
    let (disk, clock) = (SimDisk::new(), clock());
    let retention = Retention { reserved_ms: 3_600_000, ..Retention::default() };
    let options = Options { retention, ..spooled("/store") };
    let segment_bytes = options.segment_bytes;
    let store = open(disk.shared(), options, clock.clone()).expect("opens");
    while store.range().1.0 < segment_bytes {
        assert!(put(&store, &[sample("a", 0, 20_000)], false)[0].is_ok());
        store.maintain().expect("a working disk");
        store.flush().expect("a working disk");
    }
    let before = files(&disk);
    clock.advance(Duration::from_secs(2 * 3600));
    assert!(put(&store, SMALL, false).iter().all(Result::is_ok));
    delete(&store, &clock);
    assert_eq!(store.range().0.0, segment_bytes, "the first file is gone");
    assert!(put(&store, NINE, false).iter().all(Result::is_ok));
    let queue = store.queue("a", 0).expect("a queue");
    (before, disk.crash(Survival::Everything, 0), queue.max().0 - queue.min().0)
}

#[test]
fn messages_in_the_spool_outlive_a_kill_after_their_log_lost_its_oldest_file() {
    let expire: [fn(&Store, &ManualClock); 2] = [
        |store, _| assert_eq!(store.delete_expired().expect("a working disk"), 1),
        |store, clock| {
            store.retain(Retention { force_percent: Some(0), ..Retention::default() });
            for _ in 0..3 {
                clock.advance(Duration::from_secs(2));
                store.maintain().expect("a working disk");
            }
        },
    ];
    for delete in expire {
        let (before, disk, kept) = killed_behind_a_deletion(delete);
        for (name, old) in before {
            let now = files(&disk).into_iter().find(|(other, _)| *other == name).expect("a part").1;
            // Where the part of the deleted file was not used again, its marks must not say that the log lacks it.
            assert!(
                now[24..72] != old[24..72] || old[64..72] == [0; 8],
                "part {name} still names the deleted file"
            );
        }
        let store = start(&disk, spooled("/store"));
        let events = store.events();
        assert!(matches!(events[..], [Event::SpoolDrained { .. }]), "{events:?}");
        assert_eq!(count_from(&store, "a", 0), kept);
    }
}

#[test]
fn a_part_of_a_deleted_file_is_finished_and_takes_no_other_part_with_it() {
    let (before, disk, kept) =
        killed_behind_a_deletion(|store, _| assert_eq!(store.delete_expired().expect("a working disk"), 1));
    // As a broker leaves it that was killed before it cleared the marks, or that never clears them.
    let now = files(&disk);
    let is_cleared = |name: &str| now.iter().any(|(other, bytes)| other == name && bytes[64..72] == [0; 8]);
    let stale: Vec<_> = before.into_iter().filter(|(name, _)| is_cleared(name)).collect();
    assert!(!stale.is_empty(), "a part of the deleted file is in the spool");
    put_back(&disk, &stale);
    let store = start(&disk, spooled("/store"));
    let events = store.events();
    assert!(matches!(events[..], [Event::SpoolDrained { .. }]), "{events:?}");
    assert_eq!(count_from(&store, "a", 0), kept);
}
