//! Opening: the lock, the recovery and the threads of a store.
//!
//! Threads: the opener of the store; ARCHITECTURE.md lists the threads it starts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::SharedClock;
use crate::store::compaction::{Compaction, CompactionParts, Copied};
use crate::store::disk::{Disk, Open};
use crate::store::error::StoreError;
use crate::store::log::{CommitLog, Dispatcher, Flush};
use crate::store::maintenance::{Expiry, Maintenance, Volumes};
use crate::store::recovery::{CheckpointFiles, RecoveryPhase, RecoveryProgress};
use crate::store::replica::confirmation::Confirmation;
use crate::store::reports::counters::Counters;
use crate::store::reports::events::Events;
use crate::store::settings::options::Options;

use super::{ColdRead, Store, recovery};

/// Maximum number of reads queued for the `read` thread.
const COLD_READS_MAX: usize = 1024;

impl Store {
    /// Takes the lock, recovers the store, and starts its threads.
    ///
    /// Another thread may watch `progress` meanwhile.
    pub fn open(
        options: Options,
        disk: Arc<dyn Disk>,
        clock: SharedClock,
        progress: &RecoveryProgress,
    ) -> Result<Arc<Self>, StoreError> {
        Self::open_copy(options, disk, clock, progress, 0)
    }

    /// Opens a store that was copied without `lost_bytes` of the original log: messages in those bytes keep their
    /// places in the queues.
    pub(super) fn open_copy(
        options: Options,
        disk: Arc<dyn Disk>,
        clock: SharedClock,
        progress: &RecoveryProgress,
        lost_bytes: u64,
    ) -> Result<Arc<Self>, StoreError> {
        options.check()?;
        progress.enter(RecoveryPhase::Locking, 0);
        let paths = &options.paths;
        let root = &paths.root;
        disk.make_dir(root)?;
        let path = root.join("lock");
        let lock = disk.lock(&path).map_err(StoreError::io(&path, "lock"))?;
        let Some(lock) = lock else { return Err(StoreError::Locked { path }) };
        let write =
            || disk.open(&path, Open::Write).and_then(|file| file.write_at(b"lock", 0).and(file.sync()));
        write().map_err(StoreError::io(&path, "write"))?;

        let has_messages = CheckpointFiles::names_a_record(&*disk, root)?;
        let mut locks = paths.prepare(&disk, has_messages)?;
        locks.push(lock);
        let checkpoint_files = CheckpointFiles::open(Arc::clone(&disk), root)?;
        let events = Arc::new(Events::default());
        let recovered =
            recovery::recover(&options, &disk, &clock, &checkpoint_files, progress, &events, lost_bytes)?;
        paths.remember(&disk)?;
        let store_timestamp_ms = recovered.last.map_or(0, |last| last.store_timestamp_ms);
        let weights = recovered.weights_of_last();
        let log = CommitLog::new(
            recovered.segments,
            recovered.checksums,
            clock,
            recovered.active,
            store_timestamp_ms,
        )?;
        log.set_replica(options.is_replica);
        let log = Arc::new(log);
        let end = log.published();
        let dispatcher = Arc::new(Dispatcher::new(recovered.derived, end, recovered.last, weights));
        let flush = Arc::new(Flush::new(
            Arc::clone(&log),
            Arc::clone(&dispatcher),
            options.durability.promises_disk(),
            Duration::from_millis(options.flush_interval_ms),
            end,
        ));
        let has_copies = options.compaction.is_enabled && Compaction::has_copies(&*disk, root)?;
        let copied = Arc::new(Copied::new(has_copies));
        let compaction = Compaction::open(CompactionParts {
            log: Arc::clone(&log),
            dispatcher: Arc::clone(&dispatcher),
            flush: Arc::clone(&flush),
            disk: Arc::clone(&disk),
            root: root.clone(),
            options: options.compaction.clone(),
            events: Arc::clone(&events),
            copied: Arc::clone(&copied),
        })?;
        let volumes = Volumes::new(&disk, paths);
        let retention = options.retention.clone();
        let expiry = Expiry::new(Arc::clone(&log), Arc::clone(&events), retention, volumes, copied);
        let maintenance = Arc::new(Maintenance::new(
            Arc::clone(&log),
            Arc::clone(&dispatcher),
            Arc::clone(&flush),
            expiry,
            checkpoint_files,
            recovered.checkpoint,
            Arc::clone(&events),
        ));
        let in_memory_bytes = memory_bytes() / 100 * options.in_memory_percent;
        let store = Arc::new(Self {
            log,
            dispatcher,
            flush,
            maintenance,
            compaction: Arc::new(compaction),
            deleted: recovered.deleted,
            options,
            disk,
            in_memory_bytes,
            counters: Counters::default(),
            events,
            threads: Mutex::default(),
            cold_reads: Mutex::default(),
            is_closed: AtomicBool::new(false),
            is_copied: AtomicBool::new(false),
            confirmation: Confirmation::default(),
            locks: Mutex::new(locks),
            process: std::process::id(),
        });
        if store.options.threads {
            store.start_threads()?;
        }
        progress.enter(RecoveryPhase::Open, 0);
        Ok(store)
    }

    fn start_threads(self: &Arc<Self>) -> Result<(), StoreError> {
        let (flush, maintenance) = (Arc::clone(&self.flush), Arc::clone(&self.maintenance));
        self.spawn("flush", move || flush.run())?;
        self.spawn("maint", move || maintenance.run())?;
        let maintenance = Arc::clone(&self.maintenance);
        self.spawn("interim", move || maintenance.run_interim())?;
        let (sender, receiver) = sync_channel::<ColdRead>(COLD_READS_MAX);
        *self.cold_reads.lock() = Some(sender);
        let store = Arc::downgrade(self);
        self.spawn("read", move || {
            while let Ok(read) = receiver.recv() {
                let Some(store) = store.upgrade() else { return };
                read(&store);
            }
        })
    }

    /// Starts the threads that copy and compact, with the first compacted topic.
    pub(super) fn start_compaction(self: &Arc<Self>) -> Result<(), StoreError> {
        let compaction = Arc::clone(&self.compaction);
        self.spawn("copy", move || compaction.run_copying())?;
        for number in 0..self.compaction.thread_count() {
            let compaction = Arc::clone(&self.compaction);
            self.spawn(&format!("compact-{number}"), move || compaction.run_rounds())?;
        }
        Ok(())
    }

    fn spawn(self: &Arc<Self>, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
        let flush = Arc::clone(&self.flush);
        let thread_name = name.to_owned();
        let thread = std::thread::Builder::new().name(format!("rmqpy-{name}")).spawn(move || {
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                flush.fail(format!("the {thread_name} thread of the store panicked"));
            }
        });
        self.threads.lock().push(thread.map_err(StoreError::io(&self.options.paths.root, "start a thread"))?);
        Ok(())
    }
}

/// Returns the memory of this machine, or the limit of this process's control group; a guess if both are unknown.
fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let machine = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit.max(1)));
    let machine = if machine == 0 { 8 << 30 } else { machine };
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|limit| limit.trim().parse().ok());
    machine.min(group.unwrap_or(u64::MAX))
}
