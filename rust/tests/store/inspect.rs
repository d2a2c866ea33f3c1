//! Inspection of a stopped store: a sound store has no findings, and every kind of damage is reported.

use std::path::Path;

use crate::store_model::{SEGMENT_BYTES, Sample, clock, open, open_with, options, put, read_all, sample};
use hashbrown::HashSet;
use rmqpy::store::disk::simulated::{SimDisk, Survival};
use rmqpy::store::disk::{Disk, Open};
use rmqpy::store::inspect::{FindingKind, Report, Severity, Shape, StoppedStore};
use rmqpy::store::{Durability, Get, GetResult, Options, StorePaths};

const A: Sample = sample("orders", 0, 100);
const B: Sample = sample("orders", 1, 50);
const BIG: Sample = sample("bulk", 0, 20_000);
const SHAPE: Shape = Shape { slots: 16, entries: 64 };
const FIRST_FILE: &str = "/store/commitlog/00000000000000000000";
const SECOND_FILE: &str = "/store/commitlog/00000000000000065536";

/// Ten messages in three queues, over two files of the log; returns the positions of the records.
fn fill(disk: &SimDisk) -> Vec<u64> {
    let store = open(disk.shared(), options("/store"), clock()).expect("opens");
    let mut positions = Vec::new();
    for samples in [[A, B].as_slice(), &[BIG], &[A, B], &[BIG], &[BIG], &[A], &[BIG], &[A]] {
        let outcomes = put(&store, samples, false);
        positions.extend(outcomes.into_iter().map(|outcome| outcome.expect("stored").1.0));
        store.maintain().expect("a working disk");
    }
    store.close().expect("closes");
    positions
}

fn filled() -> (SimDisk, Vec<u64>) {
    let disk = SimDisk::new();
    let positions = fill(&disk);
    (disk, positions)
}

fn hold(disk: &SimDisk) -> StoppedStore {
    StoppedStore::hold(StorePaths::below("/store"), disk.shared()).expect("a stopped store")
}

fn verify(disk: &SimDisk) -> Report {
    hold(disk).verify(None, SHAPE).expect("a working disk")
}

fn overwrite(disk: &SimDisk, path: &str, at: u64, bytes: &[u8]) {
    let file = disk.open(Path::new(path), Open::Write).expect("the file");
    file.write_at(bytes, at).expect("a working disk");
}

fn index_file(disk: &SimDisk) -> String {
    format!("/store/index/{}", disk.list(Path::new("/store/index")).expect("a directory")[0].name)
}

/// Returns the kinds of the findings.
fn kinds(report: &Report) -> Vec<FindingKind> {
    report.findings.iter().map(|finding| finding.kind).collect()
}

#[test]
fn a_store_that_was_closed_in_order_is_clean_and_stays_as_it_was() {
    let (disk, positions) = filled();
    let before = disk.operations();
    let report = verify(&disk);
    assert_eq!(report.findings, [], "{report:?}");
    assert_eq!((report.records, report.queues, report.keys), (10, 3, 20));
    assert_eq!((report.extent.begin, report.extent.tail), (0, None));
    assert!(report.extent.end > *positions.last().expect("records"));
    assert_eq!(disk.operations(), before, "an inspection writes nothing");
}

#[test]
fn a_store_that_a_broker_has_open_is_refused() {
    let (disk, _) = filled();
    let store = open(disk.shared(), options("/store"), clock()).expect("opens");
    let refused = StoppedStore::hold(StorePaths::below("/store"), disk.shared()).err().expect("refused");
    assert!(refused.to_string().contains("locked by another broker"), "{refused}");
    store.close().expect("closes");
    hold(&disk).release();
    assert!(open(disk.shared(), options("/store"), clock()).is_ok());
}

#[test]
fn a_folder_that_is_not_a_store_is_refused() {
    let disk = SimDisk::new();
    disk.create_dir(Path::new("/store")).expect("a working disk");
    let refused = StoppedStore::hold(StorePaths::below("/store"), disk.shared()).err().expect("refused");
    assert!(refused.to_string().contains("contains commitlog"), "{refused}");
}

#[test]
fn every_kind_of_damage_is_named() {
    // Goal: each change to a sound store is found, with its kind and place, and nothing else is.
    type Damage = fn(&SimDisk, &[u64]);
    let cases: [(&str, Damage, &[FindingKind], &str); 12] = [
        (
            "a body",
            |disk, at| overwrite(disk, FIRST_FILE, at[3] + 100, &[1]),
            &[FindingKind::Record, FindingKind::Hole, FindingKind::Key],
            "orders/0 at offset 1 does not match its CRC",
        ),
        (
            "a size",
            |disk, at| overwrite(disk, FIRST_FILE, at[2], &[0x7F]),
            &[FindingKind::Record, FindingKind::Unit, FindingKind::Key],
            "record of",
        ),
        (
            "a position",
            |disk, at| overwrite(disk, FIRST_FILE, at[1] + 35, &[9]),
            &[FindingKind::Record, FindingKind::Unit, FindingKind::Key],
            "of position",
        ),
        (
            "a page of zeros",
            |disk, at| overwrite(disk, FIRST_FILE, at[1], &[0; 4096]),
            &[FindingKind::Record, FindingKind::Unit, FindingKind::Key],
            "zeros",
        ),
        (
            "a tag",
            |disk, at| {
                let file = disk.open(Path::new(FIRST_FILE), Open::Read).expect("the log");
                let mut record = vec![0; (at[1] - at[0]) as usize];
                file.read_at(&mut record, at[0]).expect("a working disk");
                let red = record.windows(3).rposition(|word| word == b"red").expect("a tag") as u64;
                overwrite(disk, FIRST_FILE, at[0] + red, b"b");
            },
            &[FindingKind::Key, FindingKind::Unit],
            "a record without their key",
        ),
        (
            "bytes behind the end",
            |disk, _| {
                overwrite(disk, "/store/commitlog/00000000000000065536", SEGMENT_BYTES - 10, b"stale");
            },
            &[FindingKind::Tail],
            "after the end of the log",
        ),
        (
            "a short file",
            |disk, _| {
                disk.open(Path::new(FIRST_FILE), Open::Write)
                    .expect("the log")
                    .resize(SEGMENT_BYTES - 1)
                    .expect("a working disk");
            },
            &[FindingKind::Layout, FindingKind::Record],
            "does not follow",
        ),
        (
            "a unit",
            |disk, _| overwrite(disk, "/store/consumequeue/orders/1/00000000000000000000", 27, &[7]),
            &[FindingKind::Unit],
            "1 entries are wrong, the first at offset 1",
        ),
        (
            "a queue",
            |disk, _| disk.remove_dir(Path::new("/store/consumequeue/bulk")).expect("a working disk"),
            &[FindingKind::Unit],
            "4 entries are missing, the first at offset 0",
        ),
        (
            "a unit too many",
            |disk, at| {
                let unit = [&at[0].to_be_bytes()[..], &[0, 0, 0, 100], &[0; 8]].concat();
                overwrite(disk, "/store/consumequeue/orders/1/00000000000000000000", 40, &unit);
            },
            &[FindingKind::Unit],
            "1 entries have no record, the first at offset 2",
        ),
        (
            "a chain of the index",
            |disk, _| overwrite(disk, &index_file(disk), 40, &[0; 64]),
            &[FindingKind::Key],
            "chains of entries are broken",
        ),
        (
            "a checkpoint",
            |disk, at| {
                overwrite(disk, "/store/checkpoint", 40, &(at[4] + 1).to_be_bytes());
            },
            &[FindingKind::Checkpoint],
            "where no record begins",
        ),
    ];
    for (name, damage, expected, text) in cases {
        let (disk, positions) = filled();
        damage(&disk, &positions);
        let report = verify(&disk);
        let mut found = kinds(&report);
        found.dedup();
        let mut expected = expected.to_vec();
        expected.dedup();
        assert!(expected.iter().all(|kind| found.contains(kind)), "{name}: {report:#?}");
        assert!(found.iter().all(|kind| expected.contains(kind)), "{name}: {report:#?}");
        assert!(report.findings.iter().any(|finding| finding.text.contains(text)), "{name}: {report:#?}");
        assert!(
            report.findings.iter().all(|finding| finding.severity == Severity::Damage),
            "{name}: {report:#?}"
        );
        assert_eq!(report.damage, report.findings.len() as u64, "{name}");
    }
}

#[test]
fn effects_of_a_crash_are_notes_unless_they_lie_before_the_checkpoint() {
    let disk = SimDisk::new();
    fill(&disk);
    let store = open_with(Durability::PageCacheMapped, disk.shared(), &clock()).expect("opens");
    put(&store, &[A, B], false);
    store.abandon();
    let crashed = disk.crash(Survival::Everything, 0);
    let report = verify(&crashed);
    assert!(report.is_aborted);
    assert_eq!(report.damage, 0, "{report:#?}");
    assert_eq!(
        kinds(&report),
        [FindingKind::Unit, FindingKind::Unit, FindingKind::Key],
        "queues and index had not been written yet"
    );

    overwrite(&crashed, "/store/consumequeue/orders/0/00000000000000000000", 7, &[3]);
    let report = verify(&crashed);
    assert_eq!(report.damage, 1, "{report:#?}");
}

#[test]
fn a_deleted_topic_leaves_records_and_no_damage() {
    let (disk, _) = filled();
    let store = open(disk.shared(), options("/store"), clock()).expect("opens");
    store.delete_topic("bulk").expect("a working disk");
    store.close().expect("closes");
    assert_eq!(verify(&disk).findings, []);
    // Apache's broker writes no such note; there the table of topics names the deleted ones.
    disk.remove(Path::new("/store/rmqpy/deleted")).expect("a working disk");
    assert_eq!(verify(&disk).damage, 1);
    let topics = HashSet::from(["orders".to_owned()]);
    let report = hold(&disk).verify(Some(&topics), SHAPE).expect("a working disk");
    assert_eq!((report.damage, report.notes), (0, 1), "{report:#?}");
}

#[test]
fn the_index_is_rebuilt_and_the_next_start_trusts_it() {
    let (disk, _) = filled();
    let mut sound = verify(&disk);
    let made = StoppedStore::hold_exclusively(StorePaths::below("/store"), disk.shared()).expect("stopped");
    assert_eq!(made.rebuild_index(SHAPE, &(clock() as _)).expect("a working disk"), 10);
    made.release();
    sound.keys = verify(&disk).keys;
    assert_eq!(verify(&disk), sound);

    disk.remove_dir(Path::new("/store/index")).expect("a working disk");
    let lost = verify(&disk);
    assert_eq!((lost.damage, lost.notes), (0, 1), "{lost:#?}");
    let made = StoppedStore::hold_exclusively(StorePaths::below("/store"), disk.shared()).expect("stopped");
    made.rebuild_index(SHAPE, &(clock() as _)).expect("a working disk");
    made.release();
    assert_eq!(verify(&disk).findings, []);
    let store = open(disk.shared(), options("/store"), clock()).expect("opens");
    let found =
        store.query("orders", &crate::store_model::key_of("orders", 1, 1), 8, 0, i64::MAX).expect("an index");
    assert_eq!(found.records.len(), 1);
}

#[test]
fn a_copy_has_every_whole_record_in_its_queue_at_its_offset() {
    let (disk, positions) = filled();
    let target = Options { threads: false, ..options("/copy") };
    let copied = hold(&disk).copy(target.clone(), None, clock()).expect("copies");
    assert_eq!((copied.records, copied.corrupt_ranges, copied.left_out), (10, 0, 0));
    let copy = StoppedStore::hold(StorePaths::below("/copy"), disk.shared()).expect("a store");
    assert_eq!(copy.verify(None, SHAPE).expect("a working disk").findings, []);
    copy.release();
    let store = open(disk.shared(), target.clone(), clock()).expect("opens");
    assert_eq!(
        [("orders", 0), ("orders", 1), ("bulk", 0)].map(|(topic, id)| read_all(&store, topic, id).len()),
        [4, 2, 4]
    );
    store.close().expect("closes");

    let refused = hold(&disk).copy(target, None, clock()).expect_err("not empty");
    assert!(refused.to_string().contains("empty folder"), "{refused}");

    overwrite(&disk, FIRST_FILE, positions[3] + 100, &[1]);
    let topics = HashSet::from(["orders".to_owned()]);
    let copied = hold(&disk).copy(options("/some"), Some(&topics), clock()).expect("copies");
    assert_eq!((copied.records, copied.corrupt_ranges, copied.left_out), (5, 1, 4));
}

/// Method: damage each message in turn, including the newest of its queue and the one before.
#[test]
fn in_a_copy_of_a_damaged_store_every_other_message_keeps_its_place() {
    let count = filled().1.len();
    for damaged in 0..count {
        let (disk, positions) = filled();
        let path = if positions[damaged] < SEGMENT_BYTES { FIRST_FILE } else { SECOND_FILE };
        overwrite(&disk, path, positions[damaged] % SEGMENT_BYTES + 28, &[0xFF; 8]);
        let target = options("/copy");
        let copied = hold(&disk).copy(target.clone(), None, clock()).expect("copies");
        assert_eq!(copied.records as usize, count - 1);
        let store = open(disk.shared(), target, clock()).expect("opens");
        let mut found = 0;
        for (topic, id) in [("orders", 0), ("orders", 1), ("bulk", 0)] {
            let Some(queue) = store.queue(topic, id) else { continue };
            let (min, max) = (queue.min(), queue.max());
            let (mut at, mut result) = (min, GetResult::default());
            while at < max {
                let ask = Get { offset: at, messages_max: 1, bytes_max: 1 << 20 };
                store.get(&queue, &ask, &mut |_| true, &mut result).expect("a working disk");
                found += result.count as usize;
                at = result.next_begin;
            }
        }
        assert_eq!(found, count - 1, "message {damaged}");
    }
}

#[test]
fn stats_count_by_topic() {
    let (disk, _) = filled();
    let (extent, topics) = hold(&disk).stats().expect("a working disk");
    let orders = &topics["orders"];
    assert_eq!((orders.records, orders.queues.len(), topics["bulk"].body_bytes), (6, 2, 80_000));
    assert_eq!(orders.stored_ms, (1_700_000_000_000, 1_700_000_000_000));
    assert!(extent.end > SEGMENT_BYTES, "two files");
}
