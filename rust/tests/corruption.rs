//! Corruption: every file of a store, damaged in every way. The store opens, serves only messages that were put, and works on.
//!
//! Goal: damage in the log is detected before it is served, and costs only the messages it hit and their neighbours in the
//! same block; damage elsewhere costs no message permanently.
//! Method: one store of every mode and kind of stop, copied for each corruption; a file, a place and a kind of damage
//! from a seed. By default some hundreds; `RMQPY_CORRUPTIONS=n`, as in `make campaign NAME=store`, tries n of each store.
#![allow(clippy::expect_used, reason = "a failed expectation fails the test")]

mod store_model;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use rmqpy::message::record::records;
use rmqpy::positions::{PhysicalOffset, QueueOffset};
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::disk::{Disk, Open};
use rmqpy::store::{Durability, Get, GetResult, Store};
use store_model::workloads::{LARGE, NINE, ODD, SMALL};
use store_model::{SEGMENT_BYTES, Sample, clock, open_with, put};

const BLOCK_BYTES: u64 = 4096;
const SECTOR_BYTES: u64 = 512;

/// Key of a message: topic, queue, offset.
type Name = (String, u32, u64);
/// Position and bytes of each record.
type Records = BTreeMap<Name, (u64, Vec<u8>)>;

/// A store on a disk, and every record in it.
struct Original {
    disk: SimDisk,
    /// An earlier state of the same disk.
    older: SimDisk,
    durability: Durability,
    records: Records,
    /// Blocks before this have checksums.
    covered: u64,
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip,
    Zeros,
    Ones,
    Sector,
    Swap,
    Duplicate,
    Cut,
    Empty,
    Older,
}

const DAMAGES: [Damage; 9] = [
    Damage::Flip,
    Damage::Zeros,
    Damage::Ones,
    Damage::Sector,
    Damage::Swap,
    Damage::Duplicate,
    Damage::Cut,
    Damage::Empty,
    Damage::Older,
];

/// A pseudo-random sequence from a seed (splitmix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    }
}

fn original(durability: Durability, is_clean: bool) -> Original {
    let (older, ..) = filled(durability, is_clean, &[SMALL, ODD, NINE, LARGE, SMALL]);
    let all = [SMALL, ODD, NINE, LARGE, SMALL, LARGE, NINE, LARGE, ODD, SMALL, LARGE, NINE];
    let (disk, records, covered) = filled(durability, is_clean, &all);
    Original { disk, older, durability, records, covered }
}

/// Returns a disk with a store of these messages, its records, and the end of the blocks with checksums.
fn filled(durability: Durability, is_clean: bool, all: &[&[Sample]]) -> (SimDisk, Records, u64) {
    let disk = SimDisk::new();
    let store = open_with(durability, disk.shared(), &clock()).expect("opens");
    let fill = |samples| {
        assert!(put(&store, samples, false).iter().all(Result::is_ok));
        store.flush().expect("a working disk");
        store.maintain().expect("a working disk");
    };
    all.iter().copied().for_each(fill);
    store.checkpoint().expect("a working disk");
    let covered = store.range().1.0 / BLOCK_BYTES * BLOCK_BYTES;
    fill(SMALL);
    let records = served(&store, "before");
    if is_clean {
        store.close().expect("a working disk");
    }
    (copy(&disk), records, covered)
}

/// Returns a separate copy of the disk in its first state.
fn copy(disk: &SimDisk) -> SimDisk {
    disk.crash(Survival::Everything, 0)
}

/// Returns every readable message, as its position and bytes.
fn served(store: &Store, context: &str) -> Records {
    let (mut found, mut result) = (BTreeMap::new(), GetResult::default());
    for (topic, ids) in store.topics() {
        for id in ids {
            let queue = store.queue(&topic, id).expect("a queue");
            let mut offset = queue.min();
            while offset < queue.max() {
                let ask = Get { offset, messages_max: 8, bytes_max: 1 << 20 };
                store.get(&queue, &ask, &mut |_| true, &mut result).expect("a working disk");
                for slice in &result.slices {
                    for record in records(slice) {
                        // Behind the last checksum, lengths may be wrong and unchecked.
                        let Ok(record) = record else { break };
                        let name = (topic.to_string(), id, record.queue_offset().0);
                        found.insert(name, (record.physical_offset().0, record.bytes().to_vec()));
                    }
                }
                assert!(result.next_begin > offset, "{context}: {:?} makes progress", result.status);
                offset = result.next_begin;
            }
        }
    }
    found
}

fn files(disk: &SimDisk, dir: &Path, into: &mut Vec<(PathBuf, u64)>) {
    for entry in disk.list(dir).expect("a directory") {
        let path = dir.join(&entry.name);
        if entry.is_dir { files(disk, &path, into) } else { into.push((path, entry.size)) }
    }
}

/// Damages a file; returns the bytes of it that may have changed.
fn damage(
    disk: &SimDisk,
    older: &SimDisk,
    path: &Path,
    size: u64,
    kind: Damage,
    rng: &mut Rng,
) -> Range<u64> {
    let file = disk.open(path, Open::Write).expect("the file");
    let write = |at: u64, bytes: &[u8]| {
        let bytes = &bytes[..bytes.len().min((size - at) as usize)];
        file.write_at(bytes, at).expect("a working disk");
        at..at + bytes.len() as u64
    };
    let read = |at: u64, count: u64| {
        let mut bytes = vec![0; count as usize];
        let read = file.read_at(&mut bytes, at).expect("a working disk");
        bytes.truncate(read);
        bytes
    };
    let at = rng.below(size);
    let sector = at / SECTOR_BYTES * SECTOR_BYTES;
    match kind {
        _ if size == 0 => 0..0,
        Damage::Flip => write(at, &[read(at, 1)[0] ^ (1 << rng.below(8))]),
        Damage::Zeros => write(at, &[0; 16]),
        Damage::Ones => write(at, &[0xFF; 16]),
        Damage::Sector => write(sector, &[0; SECTOR_BYTES as usize]),
        Damage::Swap | Damage::Duplicate => {
            let other = rng.below(size) / SECTOR_BYTES * SECTOR_BYTES;
            let (here, there) = (read(sector, SECTOR_BYTES), read(other, SECTOR_BYTES));
            let mut changed = write(sector, &there);
            if matches!(kind, Damage::Swap) {
                let also = write(other, &here);
                changed = changed.start.min(also.start)..changed.end.max(also.end);
            }
            changed
        }
        Damage::Cut => {
            // At a boundary, or one byte off.
            let to = (sector + rng.below(3)).saturating_sub(1).min(size);
            file.resize(to).expect("a working disk");
            to..size
        }
        Damage::Empty => {
            file.resize(0).expect("a working disk");
            0..size
        }
        Damage::Older => {
            let Ok(old) = older.open(path, Open::Read) else { return 0..0 };
            let mut bytes = vec![0; old.size().expect("a size") as usize];
            old.read_at(&mut bytes, 0).expect("a working disk");
            file.resize(bytes.len() as u64).expect("a working disk");
            file.write_at(&bytes, 0).expect("a working disk");
            0..size
        }
    }
}

#[derive(Default)]
struct Counts {
    corruptions: u64,
    lost: u64,
    reported: u64,
}

fn check(original: &Original, seed: u64, counts: &mut Counts) {
    let mut rng = Rng(seed);
    let disk = copy(&original.disk);
    let mut all = Vec::new();
    files(&disk, Path::new("/store"), &mut all);
    let (path, size) = all[rng.below(all.len() as u64) as usize].clone();
    let kind = DAMAGES[rng.below(DAMAGES.len() as u64) as usize];
    let changed = damage(&disk, &original.older, &path, size, kind, &mut rng);
    let context =
        format!("{kind:?} of {} at {changed:?}, {:?}, seed {seed}", path.display(), original.durability);
    counts.corruptions += 1;
    let clock = clock();
    let opened = open_with(original.durability, disk.shared(), &clock);
    let store = opened.unwrap_or_else(|error| panic!("{context}: does not open: {error}"));
    let found = served(&store, &context);
    for (name, (at, bytes)) in &found {
        let (was_at, was) =
            original.records.get(name).unwrap_or_else(|| panic!("{context}: {name:?} was never put"));
        assert_eq!(at, was_at, "{context}: {name:?}");
        if at + bytes.len() as u64 <= original.covered {
            assert!(bytes == was, "{context}: {name:?} is served damaged");
        }
    }
    // Messages that were not hit, and share no block with damage, are still readable.
    let in_log = path.parent().is_some_and(|parent| parent.ends_with("commitlog"));
    let base: u64 =
        if in_log { path.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0) } else { 0 };
    let hit =
        base + changed.start / BLOCK_BYTES * BLOCK_BYTES..base + changed.end.next_multiple_of(BLOCK_BYTES);
    let lost: BTreeSet<&Name> = original.records.keys().filter(|name| !found.contains_key(*name)).collect();
    counts.lost += lost.len() as u64;
    for name in lost {
        let (at, bytes) = &original.records[name];
        let end = at + bytes.len() as u64;
        let is_hit = in_log && *at < hit.end && end > hit.start;
        // Behind the last checkpoint the log ends at the damage.
        let is_behind = in_log && end > original.covered;
        assert!(is_hit || is_behind || !in_log, "{context}: {name:?} at {at} is lost with it");
    }
    counts.reported += u64::from(!store.events().is_empty());
    // The store works on, and keeps a new message over a stop.
    let outcome = put(&store, SMALL, false)[0];
    let (offset, physical, _) =
        outcome.unwrap_or_else(|error| panic!("{context}: takes no message: {error}"));
    store.flush().unwrap_or_else(|error| panic!("{context}: {error}"));
    store.close().unwrap_or_else(|error| panic!("{context}: does not close: {error}"));
    let store = open_with(original.durability, disk.shared(), &clock)
        .unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(store.lookup(physical).is_some(), "{context}: the new message is there");
    let queue = store.queue("a", 0).expect("a queue");
    assert!(queue.max() > offset, "{context}: and in its queue");
}

#[test]
fn a_damaged_store_opens_and_serves_nothing_that_was_not_put() {
    let count = std::env::var("RMQPY_CORRUPTIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(50);
    let mut counts = Counts::default();
    for (index, durability) in Durability::ALL.into_iter().enumerate() {
        for is_clean in [true, false] {
            let original = original(durability, is_clean);
            assert!(original.covered > 2 * SEGMENT_BYTES, "most of it has checksums");
            for seed in 0..count {
                check(&original, seed * 8 + index as u64 * 2 + u64::from(is_clean), &mut counts);
            }
        }
    }
    let Counts { corruptions, lost, reported } = counts;
    println!(
        "{corruptions} corruptions: 0 failed starts, 0 panics, 0 damaged records served; {reported} reported, \
         {lost} messages not readable in all"
    );
}

/// Goal: a rebuild also skips damage in the middle of the log, and offsets keep their places.
#[test]
fn a_rebuild_skips_damage_and_every_other_message_keeps_its_offset() {
    let original = original(Durability::PageCache, false);
    let disk = copy(&original.disk);
    disk.remove_dir(Path::new("/store/consumequeue")).expect("removes");
    let name = ("a".to_owned(), 0, 5);
    let (at, _) = original.records[&name];
    let file = disk.open(Path::new("/store/commitlog/00000000000000000000"), Open::Write).expect("the file");
    assert!(at < SEGMENT_BYTES);
    file.write_at(&[0xAA; 40], at + 60).expect("a working disk");
    let store = open_with(Durability::PageCache, disk.shared(), &clock()).expect("opens");
    let found = served(&store, "damage and no queues");
    let block = at / BLOCK_BYTES * BLOCK_BYTES..at / BLOCK_BYTES * BLOCK_BYTES + BLOCK_BYTES;
    for (name, (at, bytes)) in &original.records {
        let is_hit = *at < block.end && at + bytes.len() as u64 > block.start;
        assert_eq!(found.contains_key(name), !is_hit, "{name:?}");
    }
    assert!(!found.contains_key(&name));
    assert!(store.lookup(PhysicalOffset(at)).is_none());
    let queue = store.queue("a", 0).expect("a queue");
    assert_eq!((queue.min(), queue.max()), (QueueOffset(0), original_end(&original, "a", 0)));
}

fn original_end(original: &Original, topic: &str, id: u32) -> QueueOffset {
    let names = original.records.keys().filter(|(of, queue, _)| of == topic && *queue == id);
    QueueOffset(names.map(|(.., offset)| offset + 1).max().unwrap_or(0))
}
