//! A write ring that no longer continues the log is set aside, or waits for its oldest part.

use std::path::Path;

use super::{ASIDE, RING, count, files, files_in, killed, mapped, put_back, ring_options, start};
use crate::store_model::workloads::SMALL;
use crate::store_model::{clock, open, put, sample};
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::disk::{Disk, Open};
use rmqpy::store::inspect::{FindingKind, Shape, StoppedStore};
use rmqpy::store::{Event, RingMismatch, StorePaths};

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
