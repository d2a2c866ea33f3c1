//! Tests of the next file and of appends that wait for it.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::{hint, thread};

use super::*;
use crate::clock::ManualClock;
use crate::positions::QueueKey;
use crate::store::derived::ConsumeQueue;
use crate::store::disk::simulated::SimDisk;
use crate::store::log::write_path::WritePathKind;
use crate::store::reports::events::Events;

const SEGMENT_BYTES: u64 = 1 << 16;
/// The number of requests for room before an append has waited long enough.
const ASKED_MAX: u32 = 3;

/// Appends a record that takes most of a file. Returns the outcome, and how often room was requested.
fn append(log: &CommitLog, queue: &Arc<ConsumeQueue>) -> (Result<Stored, PutError>, u32) {
    let body = vec![b'x'; SEGMENT_BYTES as usize / 2];
    let mut puts = [Put::sample(queue, &body)];
    let mut asked = 0;
    log.append(&mut puts, |_| {
        asked += 1;
        asked < ASKED_MAX
    });
    (puts[0].outcome, asked)
}

fn empty_log() -> CommitLog {
    let disk = SimDisk::new().shared();
    let dir = PathBuf::from("/commitlog");
    disk.create_dir(&dir).expect("a directory");
    let segments = Segments::load(
        Arc::clone(&disk),
        dir,
        PathBuf::from("/scratch"),
        SEGMENT_BYTES,
        WritePathKind::Mapping,
    )
    .expect("an empty log");
    let active = segments.create().expect("a file");
    let events = Arc::new(Events::default());
    let checksums =
        Checksums::load(&disk, Path::new("/"), &segments, 0, true, &events).expect("no checksums");
    CommitLog::new(segments, checksums, ManualClock::at(0), active, 0).expect("a write path")
}

#[test]
fn asking_for_the_next_file_never_blocks_an_append_that_takes_it() {
    let log = Arc::new(empty_log());
    let is_over = Arc::new(AtomicBool::new(false));
    let (finished, results) = mpsc::channel();
    let (other, asked, over) = (Arc::clone(&log), finished.clone(), Arc::clone(&is_over));
    thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            other.needs_next();
        }
        asked.send(()).expect("the test waits");
    });
    thread::spawn(move || {
        for _ in 0..1_000 {
            // Like a slow append that fills the file.
            log.between_appends(|| {
                (0..1_000).for_each(|_| hint::spin_loop());
                log.drop_next();
            });
        }
        is_over.store(true, Ordering::Relaxed);
        finished.send(()).expect("the test waits");
    });
    for _ in 0..2 {
        results.recv_timeout(Duration::from_secs(30)).expect("neither waits for the other");
    }
}

#[test]
fn after_one_append_timed_out_no_other_waits_until_there_is_room() {
    let log = empty_log();
    let queue = Arc::new(ConsumeQueue::new(QueueKey::new("t", 0), 0, 0, 0));
    assert!(append(&log, &queue).0.is_ok());

    assert_eq!(append(&log, &queue), (Err(PutError::Busy), ASKED_MAX));
    assert_eq!(append(&log, &queue), (Err(PutError::Busy), 1));

    log.set_next(log.segments().create().expect("another file"));
    assert_eq!(append(&log, &queue).1, 0);
    assert_eq!(
        append(&log, &queue),
        (Err(PutError::Busy), ASKED_MAX),
        "there was room, so the next append waits again"
    );
}
