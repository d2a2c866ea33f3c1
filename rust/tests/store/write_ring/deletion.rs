//! Deletions of log files whose last part is still in the write ring.

use std::time::Duration;

use super::{count_from, files, put_back, ring_options, start};
use crate::store_model::workloads::{NINE, SMALL};
use crate::store_model::{clock, open, put, sample};
use rmqpy::clock::ManualClock;
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::{Event, Options, Retention, Store};

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
