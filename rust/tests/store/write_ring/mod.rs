//! Write ring: messages that a killed process left in it, and no others, are in the log after the next start.

mod continued;
mod deletion;
mod fallback;
mod memory;
mod readers;
mod recovery;

use std::path::Path;
use std::sync::Arc;

use crate::store_model::workloads::{NINE, ODD, SMALL};
use crate::store_model::{clock, open, options_with, put, read_all};
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::disk::{Disk, Open};
use rmqpy::store::{Durability, Options, Store};

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
