//! Store files: opens, reads, writes and stops a store whose files were mutated.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::clock::ManualClock;
use crate::message::record::{RecordFields, records};
use crate::message::tag::tags_code;
use crate::positions::PhysicalOffset;
use crate::store::disk::simulated::{SimDisk, Survival};
use crate::store::disk::{Disk, Open};
use crate::store::inspect::{Shape, StoppedStore};
use crate::store::{
    Get, GetResult, KeyHashes, Options, Put, PutError, RecoveryProgress, Store, StoreError, StorePaths,
};

const ROOT: &str = "/store";
const SHAPE: Shape = Shape { slots: 8, entries: 32 };
const CLOCK_MS: u64 = 1_700_000_000_000;
const PROPERTIES: &[u8] = b"KEYS\x01key\x02TAGS\x01red\x02";
/// The manifest ends with the checksum of the bytes before it.
const MANIFEST: &str = "/store/rmqpy/manifest";
/// Positions of an edit have two bytes.
const FILE_BYTES_MAX: usize = 1 << 16;

/// Applies `edits` to the files of a small store, then opens, reads, writes and verifies it; returns whether it
/// opened.
///
/// An edit is a file, a kind, a two-byte position, a length, and that many bytes.
pub fn store_files(edits: &[u8]) -> bool {
    static ORIGINAL: OnceLock<(SimDisk, Vec<PathBuf>)> = OnceLock::new();
    let (original, files) = ORIGINAL.get_or_init(original);
    let disk = original.crash(Survival::Everything, 0);
    edit(&disk, files, edits);
    let Ok(store) = open(&disk) else { return false };
    read_everything(&store);
    // Appending may fail; the resulting disk can still be opened and verified.
    let _ = put(&store, "a", 0);
    let closed = store.close();
    drop(store);
    if let Ok(stopped) = StoppedStore::hold(StorePaths::below(ROOT), disk.shared()) {
        let verified = stopped.verify(None, SHAPE);
        assert!(verified.is_ok() || closed.is_err());
        stopped.release();
    }
    true
}

/// Builds three queues over two segments, stopped in order.
fn original() -> (SimDisk, Vec<PathBuf>) {
    let disk = SimDisk::new();
    let store = open(&disk).expect("opens");
    for number in 0..12 {
        put(&store, if number % 3 == 0 { "b" } else { "a" }, number % 2).expect("stored");
        store.maintain().expect("a working disk");
    }
    store.checkpoint().expect("a working disk");
    store.delete_topic("b").expect("a working disk");
    store.close().expect("stops");
    drop(store);
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::from(ROOT)];
    while let Some(folder) = folders.pop() {
        for entry in disk.list(&folder).expect("a folder") {
            let into = if entry.is_dir { &mut folders } else { &mut files };
            into.push(folder.join(entry.name));
        }
    }
    files.sort();
    (disk, files)
}

fn open(disk: &SimDisk) -> Result<Arc<Store>, StoreError> {
    let options = Options {
        segment_bytes: 1 << 16,
        queue_file_bytes: 20 * 8,
        index_slots: SHAPE.slots as u32,
        index_entries: SHAPE.entries as u32,
        threads: false,
        ..Options::new(ROOT)
    };
    Store::open(options, disk.shared(), ManualClock::at(CLOCK_MS), &RecoveryProgress::default())
}

fn edit(disk: &SimDisk, files: &[PathBuf], mut edits: &[u8]) {
    while let Some((&[file, kind, high, low, length], rest)) = edits.split_first_chunk() {
        let (bytes, behind) = rest.split_at(rest.len().min(length.into()));
        edits = behind;
        let path = &files[usize::from(file) % files.len()];
        let at = u16::from_be_bytes([high, low]);
        let mut content = read(disk, path);
        let from = usize::from(at) % (content.len() + 1);
        match kind % 5 {
            // Overwrite bytes.
            0 | 1 => {
                content.resize(content.len().max(from + bytes.len()), 0);
                content[from..from + bytes.len()].copy_from_slice(bytes);
            }
            2 => content.truncate(from),
            3 => content.resize(content.len().max(at.into()), 0),
            _ => content = bytes.to_vec(),
        }
        content.truncate(FILE_BYTES_MAX);
        if path == Path::new(MANIFEST) && kind & 0x80 == 0 && content.len() >= 4 {
            let end = content.len() - 4;
            let crc = crc32fast::hash(&content[..end]);
            content[end..].copy_from_slice(&crc.to_be_bytes());
        }
        let file = disk.open(path, Open::Create).expect("a file");
        file.resize(content.len() as u64).and_then(|()| file.write_at(&content, 0)).expect("a working disk");
    }
}

fn read(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, Open::Read).expect("a file");
    let mut content = vec![0; file.size().expect("a working disk") as usize];
    let read = file.read_at(&mut content, 0).expect("a working disk");
    content.truncate(read);
    content
}

/// Reads every queue to its end, and a record by key, time and position.
fn read_everything(store: &Store) {
    let mut result = GetResult::default();
    for (topic, ids) in store.topics() {
        for queue_id in ids {
            let Some(queue) = store.queue(&topic, queue_id) else { continue };
            let mut offset = queue.min();
            // A damaged queue may claim any length; a few steps are enough.
            for _ in 0..8 {
                let ask = Get { offset, messages_max: 8, bytes_max: 1 << 16 };
                store.get(&queue, &ask, &mut |_| true, &mut result).expect("a working disk");
                // A record changed together with its checksum is returned; reading it must not fail.
                for slice in &result.slices {
                    let _ = records(slice).filter_map(Result::ok).count();
                }
                if result.next_begin <= offset {
                    break;
                }
                offset = result.next_begin;
            }
            let _ = store.earliest_store_time(&queue);
        }
    }
    let _ = store.query("a", "key", 8, 0, i64::MAX);
    let (begin, end) = store.range();
    for at in [begin.0, begin.0 + 1, end.0.saturating_sub(8), end.0] {
        let _ = store.lookup(PhysicalOffset(at));
    }
}

fn put(store: &Store, topic: &str, queue_id: u32) -> Result<(), PutError> {
    let queue = store.queue_or_create(topic, queue_id).map_err(|_| PutError::QueueGone)?;
    let host = ([127, 0, 0, 1], 10911).into();
    let body = [b'x'; 9_000];
    let record = RecordFields {
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: CLOCK_MS as i64,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: &body,
        body_crc: RecordFields::body_crc(&body),
        topic: topic.as_bytes(),
        properties: PROPERTIES,
    };
    let tags_code = tags_code(PROPERTIES);
    let keys = KeyHashes::of(topic.as_bytes(), PROPERTIES);
    let mut puts = [Put::new(queue, record, tags_code, keys)];
    store.append(&mut puts);
    let [put] = puts;
    put.outcome.map(|_| ())
}
