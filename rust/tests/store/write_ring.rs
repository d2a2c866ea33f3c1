//! Write ring: messages that a killed process left in it, and no others, are in the log after the next start.
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::store_model::workloads::{NINE, ODD, SMALL};
use crate::store_model::{Folder, Sample, body_of, clock, open, options_with, put, read_all, sample};
use rmqpy::clock::ManualClock;
use rmqpy::clock::SystemClock;
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::disk::{Disk, Open, OsDisk, Space};
use rmqpy::store::inspect::{FindingKind, Severity, Shape, StoppedStore};
use rmqpy::store::{Durability, Event, Options, Retention, RingMismatch, Store, StorePaths};

const RING: &str = "/store/rmqpy/ring";
/// Folder for files of a write ring that do not continue the log.
const ASIDE: &str = "/store/rmqpy/ring-aside";

/// Options with log files that span several parts of the write ring.
fn ring_options(root: impl AsRef<Path>) -> Options {
    Options { segment_bytes: 1 << 19, ring_bytes: 1 << 18, ..options_with(Durability::PageCache, root) }
}

fn mapped() -> Options {
    Options { durability: Durability::PageCacheMapped, ..ring_options("/store") }
}

fn start(disk: &SimDisk, options: Options) -> Arc<Store> {
    open(disk.shared(), options, clock()).expect("opens")
}

/// Returns the disk of a process killed with messages in the write ring, most of which are in no file of the log.
fn killed() -> SimDisk {
    killed_and(Survival::Everything)
}

fn killed_and(survival: Survival) -> SimDisk {
    let disk = SimDisk::new();
    let store = start(&disk, ring_options("/store"));
    assert_eq!(store.events(), [], "there is a write ring");
    put(&store, SMALL, false);
    store.flush().expect("a working disk");
    put(&store, ODD, false);
    put(&store, NINE, true);
    disk.crash(survival, 0)
}

/// Counts the messages of a queue, checking their bodies and order.
fn count(store: &Store, topic: &'static str, queue_id: u32) -> u64 {
    let found = read_all(store, topic, queue_id);
    for (number, (_, body)) in &found {
        let head = format!("{topic}/{queue_id}/{number}:");
        assert!(body.starts_with(head.as_bytes()), "{head}");
    }
    found.len() as u64
}

/// Counts the messages of a queue whose first ones may be gone.
fn count_from(store: &Store, topic: &'static str, queue_id: u32) -> u64 {
    read_all(store, topic, queue_id).len() as u64
}

/// Messages of `killed` in the queue `a/0`: one each of `SMALL`, two of `ODD`, nine.
fn all_of_killed(store: &Store) -> bool {
    count(store, "a", 0) == 1 + 2 + 9 && count(store, "c", 3) == 1
}

fn files(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    files_in(disk, RING)
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
        let file = disk.open(&Path::new(RING).join(name), Open::Create).expect("a folder");
        file.write_at(bytes, 0).expect("a working disk");
    }
    disk.sync_dir(Path::new(RING)).expect("a working disk");
}

#[test]
fn the_next_start_drains_the_write_ring_with_any_write_path() {
    for options in [mapped(), ring_options("/store")] {
        let disk = killed();
        let store = start(&disk, options.clone());
        assert!(matches!(store.events()[..], [Event::RingDrained { bytes: 3900.. }]));
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
fn after_a_kill_and_a_restart_of_the_machine_nothing_is_lost() {
    for options in [mapped(), ring_options("/store")] {
        let disk = killed_and(Survival::Reboot);
        let store = start(&disk, options.clone());
        assert!(matches!(store.events()[..], [Event::RingDrained { bytes: 3900.. }]), "{:?}", store.events());
        assert!(all_of_killed(&store));
        store.close().expect("a working disk");
        let store = start(&disk, options);
        assert_eq!(store.events(), []);
        assert!(all_of_killed(&store));
    }
}

#[test]
fn a_power_loss_takes_no_flushed_message_and_cuts_the_others_from_the_end() {
    let mut rescued = 0;
    for seed in 0..200 {
        let survival = [Survival::Nothing, Survival::Percent(50), Survival::Percent(99), Survival::Prefix];
        let disk = SimDisk::new();
        let store = start(&disk, ring_options("/store"));
        put(&store, SMALL, false);
        store.flush().expect("a working disk");
        put(&store, NINE, false);
        put(&store, ODD, false);
        let disk = disk.crash(survival[seed as usize % 4], seed);
        let store = start(&disk, mapped());
        // Order: the one of SMALL, the nine, the two of ODD. `count` compares bodies and order.
        let found = (count(&store, "a", 0), count(&store, "b", 0), count(&store, "c", 3));
        assert!(found.0 >= 1 && found.1 >= 1, "{found:?}");
        assert!(found.0 >= 10 || found.2 == 0, "{found:?}: a later message without an earlier one");
        rescued += u64::from(found.0 > 1);
    }
    assert!(rescued > 20, "{rescued} of 200 had more than was flushed");
}

#[test]
fn a_power_loss_shows_nothing_of_the_earlier_use_of_a_part() {
    for seed in 0..60 {
        let disk = SimDisk::new();
        let store = start(&disk, ring_options("/store"));
        let mut flushed = 0;
        let large = sample("a", 0, 9000);
        for round in 1..=80_u64 {
            assert!(put(&store, &[large], false).iter().all(Result::is_ok));
            store.maintain().expect("a working disk");
            if round % 3 != 0 {
                store.flush().expect("a working disk");
                flushed = round;
            }
        }
        let disk = disk.crash(Survival::Percent(60 + (seed % 40) as u8), seed);
        let store = start(&disk, mapped());
        let found = read_all(&store, "a", 0);
        assert!(found.len() as u64 >= flushed, "seed {seed}");
        for (number, (_, body)) in &found {
            assert!(*body == body_of(&large, *number), "seed {seed}, message {number}");
        }
    }
}

#[test]
fn an_old_write_ring_changes_nothing() {
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

/// Returns a disk whose log another broker has continued after `killed`, and the unchanged write ring.
fn gone_on() -> (SimDisk, Vec<(String, Vec<u8>)>) {
    let disk = killed();
    let old = files(&disk);
    for (name, _) in &old {
        disk.remove(&Path::new(RING).join(name)).expect("a working disk");
    }
    let store = start(&disk, mapped());
    assert_eq!(count(&store, "a", 0), 1, "it starts with a shorter log");
    put(&store, &[sample("a", 0, 400), sample("a", 0, 41)], false);
    store.close().expect("a working disk");
    // The other broker does not write the manifest.
    disk.remove(Path::new("/store/rmqpy/manifest")).expect("a working disk");
    put_back(&disk, &old);
    let holds = |(_, bytes): &(String, Vec<u8>)| bytes[64..72] != [0; 8];
    (disk, old.into_iter().filter(holds).collect())
}

/// Lists the files of earlier write rings that were kept.
fn aside(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let dirs = disk.list(Path::new(ASIDE)).expect("a working disk");
    dirs.iter().flat_map(|dir| files_in(disk, &format!("{ASIDE}/{}", dir.name))).collect()
}

#[test]
fn a_log_continued_by_another_broker_keeps_its_messages_and_the_write_ring_is_set_aside() {
    let (disk, old) = gone_on();
    let store = start(&disk, mapped());
    let path = Path::new(ASIDE).join("1");
    assert_eq!(store.events(), [Event::RingSetAside { path, reason: RingMismatch::OtherLog }]);
    assert_eq!((count(&store, "a", 0), count(&store, "c", 3)), (3, 0));
    assert!(aside(&disk) == old, "kept unchanged");
    // A second write ring gets another folder.
    store.close().expect("a working disk");
    disk.remove(Path::new("/store/rmqpy/manifest")).expect("a working disk");
    put_back(&disk, &old);
    start(&disk, mapped()).close().expect("a working disk");
    assert_eq!(aside(&disk).len(), 2 * old.len());
    let store = StoppedStore::hold(StorePaths::below("/store"), disk.shared()).expect("a store");
    let report = store.verify(None, Shape { slots: 16, entries: 64 }).expect("a working disk");
    assert!(report.findings.iter().any(|finding| finding.kind == FindingKind::Ring));
}

#[test]
fn a_write_ring_that_is_set_aside_loses_no_file_wherever_that_is_cut_short() {
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
fn a_write_ring_without_its_oldest_part_leaves_no_hole_and_is_drained_after_its_return() {
    let disk = SimDisk::new();
    let store = start(&disk, ring_options("/store"));
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
        let path = Path::new(RING).join(&oldest);
        match is_damaged {
            true => disk.open(&path, Open::Write).and_then(|file| file.write_at(&[1], 40)).expect("a file"),
            false => disk.remove(&path).expect("a file"),
        }
        let store = start(&disk, mapped());
        let path = Path::new(ASIDE).join("1");
        assert_eq!(
            store.events(),
            [Event::RingSetAside { path: path.clone(), reason: RingMismatch::OtherLog }]
        );
        assert_eq!(count(&store, "a", 0), 1);
        store.close().expect("a working disk");
        for (name, _) in files_in(&disk, &format!("{ASIDE}/1")) {
            disk.rename(&path.join(&name), &Path::new(RING).join(&name)).expect("a working disk");
        }
        let missing: Vec<_> = whole.iter().filter(|(name, _)| *name == oldest).cloned().collect();
        put_back(&disk, &missing);
        let store = start(&disk, mapped());
        assert!(matches!(store.events()[..], [Event::RingDrained { .. }]));
        assert_eq!(count(&store, "a", 0), 1 + 4);
    }
}

#[test]
fn broken_marks_and_broken_records_are_never_taken() {
    // After a change of a mark, or with torn records, a prefix of the appended messages is taken.
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
        assert!(count(&store, "a", 0) >= 1, "messages in the log stay, with byte {at} changed");
    }
}

/// Puts messages of all sizes until the log has several files, with occasional flushes, and reads everything at each step.
#[test]
fn everything_is_readable_while_parts_fill_up_and_are_recycled() {
    const SIZES: [usize; 7] = [10, 4_000, 90, 60_000, 1, 12_345, 700];
    let disk = SimDisk::new();
    let store = start(&disk, ring_options("/store"));
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
    let store = start(&disk, ring_options("/store"));
    assert_eq!(count(&store, "a", 0), 60 * SIZES.len() as u64);
    store.close().expect("a working disk");
    // Checksums were noted while the blocks were written, so nothing counts as damaged.
    let store = start(&disk, mapped());
    assert_eq!((count(&store, "a", 0), store.events()), (60 * SIZES.len() as u64, vec![]));
}

#[test]
fn a_kill_at_any_moment_of_a_busy_write_ring_loses_nothing() {
    let samples: [Sample; 5] = [5_000, 100, 30_000, 1, 50_000].map(|size| sample("a", 0, size));
    // The numbers of stored messages before the disk stopped, and in all.
    let run = |disk: &SimDisk| -> (u64, u64) {
        let (mut before, mut stored) = (0, 0);
        let Ok(store) = open(disk.shared(), ring_options("/store"), clock()) else { return (0, 0) };
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
fn a_verification_reports_an_undrained_write_ring_and_a_drain_needs_no_start() {
    let disk = killed();
    let (paths, shape) = (StorePaths::below("/store"), Shape { slots: 16, entries: 64 });
    let verify = || {
        let store = StoppedStore::hold(paths.clone(), disk.shared()).expect("a store");
        let report = store.verify(None, shape).expect("a working disk");
        store.release();
        report.findings.into_iter().find(|finding| finding.kind == FindingKind::Ring)
    };
    assert_eq!(verify().expect("it is reported").severity, Severity::Note);
    for expected in [true, false] {
        let store = StoppedStore::hold_exclusively(paths.clone(), disk.shared()).expect("a store");
        let event = store.drain().expect("a working disk");
        assert_eq!(matches!(event, Some(Event::RingDrained { .. })), expected);
        store.release();
    }
    assert_eq!(verify(), None);
    let store = start(&disk, mapped());
    assert!(all_of_killed(&store));
}

/// Real files, real threads: readers follow the end of the log while parts are recycled behind them.
#[test]
fn readers_find_every_message_while_parts_are_recycled() {
    [Durability::PageCache, Durability::Disk].into_iter().for_each(check_readers);
}

fn check_readers(durability: Durability) {
    const MESSAGES: u64 = 20_000;
    let folder = Folder::new(&format!("ring-{durability:?}"));
    let options = || Options {
        durability,
        queue_file_bytes: 6_000_000,
        segment_bytes: 1 << 22,
        ..ring_options(&folder.0)
    };
    let threaded = Options { threads: true, ..options() };
    let store = open(OsDisk::shared(), threaded, SystemClock::shared()).expect("opens");
    let events = store.events();
    if let [Event::NoRing { reason }] = &events[..] {
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
            if durability.promises_disk() {
                // Bodies are derived from visible offsets.
                store.flush().expect("a working disk");
            }
            let stored = put(&store, &[sample("a", 0, 700); 20], false);
            stored.into_iter().find_map(Result::err)
        });
        done.store(true, Ordering::Release);
        assert_eq!(failed, None, "{:?}", store.failure());
    });
    assert!(seen.load(Ordering::Acquire) > 0);
    store.flush().expect("a working disk");
    assert_eq!(count(&store, "a", 0), MESSAGES);
    // Like a kill.
    store.abandon();
    drop(store);
    let mapped = Options { durability: Durability::PageCacheMapped, ..options() };
    let store = open(OsDisk::shared(), mapped, SystemClock::shared()).expect("opens");
    assert_eq!(count(&store, "a", 0), MESSAGES);
}

/// A store whose first log file was deleted while its last part was still in the write ring, and which then took more messages
/// that are in no log file. Returns the write ring before the deletion, the disk after the kill, and the messages kept.
fn killed_behind_a_deletion(delete: impl Fn(&Store, &ManualClock)) -> (Vec<(String, Vec<u8>)>, SimDisk, u64) {
    let (disk, clock) = (SimDisk::new(), clock());
    let retention = Retention { reserved_ms: 3_600_000, ..Retention::default() };
    let options = Options { retention, ..ring_options("/store") };
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
fn messages_in_the_write_ring_outlive_a_kill_after_their_log_lost_its_oldest_file() {
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
            // If the part of the deleted file was not reused, its marks must not claim that the log lacks it.
            assert!(
                now[24..72] != old[24..72] || old[64..72] == [0; 8],
                "part {name} still names the deleted file"
            );
        }
        let store = start(&disk, ring_options("/store"));
        let events = store.events();
        assert!(matches!(events[..], [Event::RingDrained { .. }]), "{events:?}");
        assert_eq!(count_from(&store, "a", 0), kept);
    }
}

#[test]
fn a_part_of_a_deleted_file_is_finished_and_takes_no_other_part_with_it() {
    let (before, disk, kept) =
        killed_behind_a_deletion(|store, _| assert_eq!(store.delete_expired().expect("a working disk"), 1));
    // Like a broker killed before it cleared the marks, or one that never clears them.
    let now = files(&disk);
    let is_cleared = |name: &str| now.iter().any(|(other, bytes)| other == name && bytes[64..72] == [0; 8]);
    let stale: Vec<_> = before.into_iter().filter(|(name, _)| is_cleared(name)).collect();
    assert!(!stale.is_empty(), "a part of the deleted file is in the write ring");
    put_back(&disk, &stale);
    let store = start(&disk, ring_options("/store"));
    let events = store.events();
    assert!(matches!(events[..], [Event::RingDrained { .. }]), "{events:?}");
    assert_eq!(count_from(&store, "a", 0), kept);
}

/// Bytes of the write ring's files that this process has in memory.
fn resident(folder: &Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("this process");
    let place = folder.join("rmqpy/ring/");
    let place = place.to_str().expect("a name");
    let mut is_ours = false;
    let mut kib = 0;
    for line in maps.lines() {
        match line.strip_prefix("Rss:") {
            Some(size) if is_ours => {
                kib += size.trim().trim_end_matches(" kB").parse::<usize>().expect("a number");
            }
            Some(_) => {}
            // The line of a mapping begins with its addresses.
            None if line.split(' ').next().is_some_and(|word| word.contains('-')) => {
                is_ours = line.contains(place);
            }
            None => {}
        }
    }
    kib << 10
}

/// Real files: the memory of a write ring grows with the rate of appends, and shrinks after it.
#[test]
fn the_memory_of_a_write_ring_follows_the_rate_of_appends() {
    const REST: usize = 9 << 20;
    let folder = Folder::new("memory");
    let options = Options {
        queue_file_bytes: 6_000_000,
        segment_bytes: 256 << 20,
        ring_bytes: 64 << 20,
        ..ring_options(&folder.0)
    };
    let store = open(OsDisk::shared(), options, SystemClock::shared()).expect("opens");
    if let [Event::NoRing { reason }] = &store.events()[..] {
        println!("no direct writes here: {reason}");
        return;
    }
    let at_rest = resident(&folder.0);
    assert!((4 << 20..REST).contains(&at_rest), "{at_rest} bytes at rest");
    let large = [sample("a", 0, 60_000); 16];
    // Slowly: a MiB in each round.
    for _ in 0..30 {
        assert!(put(&store, &large, true).iter().all(Result::is_ok));
        store.flush().expect("a working disk");
        store.maintain().expect("a working disk");
    }
    let slow = resident(&folder.0);
    assert!(slow < REST + (4 << 20), "{slow} bytes at a low rate");
    // Fast: twenty in each round.
    for _ in 0..5 {
        for _ in 0..20 {
            assert!(put(&store, &large, true).iter().all(Result::is_ok));
            store.flush().expect("a working disk");
        }
        store.maintain().expect("a working disk");
    }
    let fast = resident(&folder.0);
    assert!(fast > 60 << 20, "{fast} bytes at a high rate");
    for _ in 0..401 {
        store.maintain().expect("a working disk");
    }
    let again = resident(&folder.0);
    assert!(again < REST, "{again} bytes at rest again");
    // Bytes whose memory was released are still there.
    assert_eq!(count(&store, "a", 0), (30 + 100) * 16);
    assert!(put(&store, &large, true).iter().all(Result::is_ok));
    store.abandon();
    drop(store);
    let mapped = Options {
        durability: Durability::PageCacheMapped,
        segment_bytes: 256 << 20,
        ..ring_options(&folder.0)
    };
    let store = open(OsDisk::shared(), mapped, SystemClock::shared()).expect("opens");
    assert_eq!(count(&store, "a", 0), (30 + 100 + 1) * 16);
}

#[test]
fn the_write_ring_of_an_earlier_version_is_drained_from_its_folder() {
    let disk = killed();
    let old = Path::new("/store/rmqpy/spool");
    disk.create_dir(old).expect("a working disk");
    for (name, _) in files(&disk) {
        disk.rename(&Path::new(RING).join(&name), &old.join(&name)).expect("a working disk");
    }
    disk.sync_dir(old).expect("a working disk");
    let store = start(&disk, ring_options("/store"));
    assert!(matches!(store.events()[..], [Event::RingDrained { bytes: 3900.. }]), "{:?}", store.events());
    assert!(all_of_killed(&store));
    assert_eq!(files_in(&disk, "/store/rmqpy/spool"), []);
}

#[test]
fn without_direct_writes_or_space_or_with_odd_files_the_log_is_mapped_and_that_is_reported_once() {
    let odd = Options { segment_bytes: (1 << 19) + 512, ..ring_options("/store") };
    let full: fn(&SimDisk) = |disk| disk.set_space(Space { free: 1 << 19, total: 1 << 30 });
    let refuses: fn(&SimDisk) = |disk| disk.refuse_direct_writes();
    let nothing: fn(&SimDisk) = |_| ();
    for (options, prepare, expected) in [
        (odd, nothing, "multiple of 4096"),
        (Options { ring_bytes: 4 << 20, ..ring_options("/store") }, full, "make"),
        (ring_options("/store"), refuses, "test direct writes"),
    ] {
        let disk = SimDisk::new();
        prepare(&disk);
        let store = start(&disk, options.clone());
        let events = store.events();
        let [Event::NoRing { reason }] = &events[..] else { panic!("{expected}: {events:?}") };
        assert!(reason.contains(expected), "{reason}");
        disk.set_space(Space::default());
        put(&store, NINE, false);
        store.flush().expect("a working disk");
        put(&store, NINE, false);
        assert_eq!(files(&disk), []);
        let disk = disk.crash(Survival::Everything, 0);
        prepare(&disk);
        let store = start(&disk, options);
        assert_eq!(store.events().len(), 1);
        assert_eq!(count(&store, "a", 0), 18);
    }
}
