//! File systems, disks and file sizes without a write ring.

use super::{count, files, ring_options, start};
use crate::store_model::put;
use crate::store_model::workloads::NINE;
use rmqpy::store::disk::Space;
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::{Event, Options};

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
