//! Messages that a killed process left in the write ring are in the log after the next start or a drain, no others are.

use std::path::Path;

use super::{
    RING, all_of_killed, count, files, files_in, killed, killed_and, mapped, put_back, ring_options, start,
};
use crate::store_model::workloads::{NINE, ODD, SMALL};
use crate::store_model::{Sample, body_of, clock, open, put, read_all, sample};
use rmqpy::store::disk::Disk;
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::inspect::{FindingKind, Severity, Shape, StoppedStore};
use rmqpy::store::{Event, StorePaths};

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
