//! Maintenance: what has to be done in time, and on the way of no message.
//!
//! Makes the next segment before it is needed and the pages ahead of the appender present; writes queue units and index
//! entries from memory to files; and every few seconds makes a checkpoint: flush the log, sync the derived files, and
//! only then write down how far they reach.
//!
//! Invariant: a checkpoint names a record that was durable everywhere before it was written.
//! Threads: its own; `wake` from any.

mod expiry;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::positions::PhysicalOffset;
use crate::store::derived::Index;
use crate::store::error::StoreError;
use crate::store::log::{CommitLog, Dispatcher, Flush, LastRecord, WritePathKind, record_at};
use crate::store::recovery::{Checkpoint, CheckpointFiles, CleanStop};

pub(crate) use expiry::Expiry;

/// Pause between two rounds.
const ROUND: Duration = Duration::from_millis(50);
/// Pause between checkpoints: what a crash makes recovery read again.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);
/// Bytes that are made present ahead of the appender: four rounds' worth, within these bounds.
const AHEAD_BYTES_MIN: u64 = 4 << 20;
const AHEAD_BYTES_MAX: u64 = 64 << 20;
/// Bytes that are prepared in one go, while a flush has to wait.
const AHEAD_STEP_BYTES: u64 = 1 << 20;
/// Rounds after which idle queues give their memory back.
const COOL_DOWN_ROUNDS: u64 = 200;

pub(super) struct Maintenance {
    log: Arc<CommitLog>,
    dispatcher: Arc<Dispatcher>,
    flush: Arc<Flush>,
    expiry: Expiry,
    checkpoint_files: CheckpointFiles,
    state: Mutex<RoundState>,
    request: Mutex<MaintenanceRequest>,
    requested: Condvar,
}

struct RoundState {
    checkpoint: Checkpoint,
    /// Whether a sync of the derived files has failed. The next one might succeed without having written anything, so
    /// there are no more checkpoints: the next start reads the log from the last one, and writes those files again.
    is_in_doubt: bool,
    checkpoint_at: Duration,
    /// Position of the appender a round ago, and to where bytes are prepared.
    seen: u64,
    populated: u64,
    rounds: u64,
}

#[derive(Default)]
struct MaintenanceRequest {
    is_awake: bool,
    is_stopped: bool,
}

impl Maintenance {
    pub(super) fn new(
        log: Arc<CommitLog>,
        dispatcher: Arc<Dispatcher>,
        flush: Arc<Flush>,
        expiry: Expiry,
        checkpoint_files: CheckpointFiles,
        checkpoint: Checkpoint,
    ) -> Self {
        let end = log.published().0;
        let checkpoint_at = log.clock().elapsed();
        let state = RoundState {
            checkpoint,
            is_in_doubt: false,
            checkpoint_at,
            seen: end,
            populated: end,
            rounds: 0,
        };
        Self {
            log,
            dispatcher,
            flush,
            expiry,
            checkpoint_files,
            state: Mutex::new(state),
            request: Mutex::default(),
            requested: Condvar::new(),
        }
    }

    /// Makes maintenance begin a round at once.
    pub(super) fn wake(&self) {
        self.request.lock().is_awake = true;
        self.requested.notify_one();
    }

    /// One round. An error leaves everything as it was, to be tried again: nothing was promised.
    pub(super) fn run_round(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        self.expiry.check_space();
        self.prepare_next()?;
        self.prepare_ahead(&mut state);
        self.dispatcher.derived().write()?;
        state.rounds += 1;
        if state.rounds.is_multiple_of(COOL_DOWN_ROUNDS) {
            self.dispatcher.derived().queues.cool_down();
        }
        if self.log.clock().elapsed().saturating_sub(state.checkpoint_at) >= CHECKPOINT_INTERVAL {
            self.checkpoint(&mut state)?;
        }
        // Last, and one file at most: nothing waits for it.
        self.expire(&mut state, false)?;
        self.expiry.trim(self.dispatcher.derived())?;
        Ok(())
    }

    pub(super) fn checkpoint_now(&self) -> Result<(), StoreError> {
        self.checkpoint(&mut self.state.lock())
    }

    pub(super) fn expiry(&self) -> &Expiry {
        &self.expiry
    }

    /// Deletes all files of the log that have expired, at any hour, and what queues and index hold of them. Returns how
    /// many files of the log went.
    pub(super) fn delete_expired(&self) -> Result<u64, StoreError> {
        let mut deleted = 0;
        while self.expire(&mut self.state.lock(), true)? {
            deleted += 1;
        }
        self.trim()?;
        Ok(deleted)
    }

    /// Takes out of queues and index what is no longer in the log.
    pub(super) fn trim(&self) -> Result<(), StoreError> {
        loop {
            // The lock is given back between the pieces: appends may wait for the next file.
            let _state = self.state.lock();
            if self.expiry.trim(self.dispatcher.derived())? {
                return Ok(());
            }
        }
    }

    /// Deletes the oldest file of the log if it may go; `true` when it went.
    fn expire(&self, state: &mut RoundState, is_asked: bool) -> Result<bool, StoreError> {
        let Some(due) = self.expiry.due(is_asked) else { return Ok(false) };
        let is_behind = |state: &RoundState| state.checkpoint.record.max(0) as u64 >= due.end();
        if !is_behind(state) {
            self.checkpoint(state)?;
        }
        // Without a checkpoint behind it recovery may begin in the file.
        if !is_behind(state) {
            return Ok(false);
        }
        self.expiry.delete(&due)?;
        Ok(true)
    }

    fn prepare_next(&self) -> Result<(), StoreError> {
        if self.log.failure().is_none() && self.log.needs_next() {
            let next = self.log.segments().create()?;
            self.log.set_next(next);
        }
        Ok(())
    }

    /// Prepares what the appender will come to next: it would take a fault on each page, or every flush would have to
    /// tell the file system about new blocks.
    fn prepare_ahead(&self, state: &mut RoundState) {
        let end = self.log.published().0;
        let ahead = ((end - state.seen) * 4).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX);
        state.seen = end;
        // In large steps: each may cost a sync.
        if state.populated >= end + ahead / 2 {
            return;
        }
        let until = end + ahead;
        let mut at = state.populated.max(end);
        let segments = self.log.segments();
        while at < until {
            let Some(segment) = segments.find(at) else { break };
            let step = (at + AHEAD_STEP_BYTES).min(until).min(segment.limit());
            let prepare = || segment.prepare(at..step);
            // Where it cannot be done appends are a little slower.
            let _ = match segments.write_path() {
                WritePathKind::Mapping => prepare(),
                WritePathKind::WriteBuffer => {
                    self.flush.between_flushes(prepare).and_then(|()| segment.sync(at..step))
                }
            };
            at = step;
        }
        state.populated = at;
    }

    fn checkpoint(&self, state: &mut RoundState) -> Result<(), StoreError> {
        state.checkpoint_at = self.log.clock().elapsed();
        let (last, queues) = self.dispatcher.last();
        let is_new = |last: &LastRecord| last.physical as i64 != state.checkpoint.record;
        let Some(last) = last.filter(|last| !state.is_in_doubt && is_new(last)) else { return Ok(()) };
        let durable = self.flush.flush()?;
        self.sync_derived(state, durable)?;
        let derived = self.dispatcher.derived();
        let checkpoint = Checkpoint {
            log_timestamp_ms: last.store_timestamp_ms,
            queue_timestamp_ms: last.store_timestamp_ms,
            index_timestamp_ms: derived.index.as_ref().map_or(0, Index::full_timestamp_ms),
            record: last.physical as i64,
            ..state.checkpoint
        };
        self.checkpoint_files.save(&checkpoint, queues, None)?;
        state.checkpoint = checkpoint;
        Ok(())
    }

    fn sync_derived(&self, state: &mut RoundState, durable: PhysicalOffset) -> Result<(), StoreError> {
        let derived = self.dispatcher.derived();
        derived.write()?;
        // Checksums before the checkpoint: those of everything it vouches for are to be believed.
        let checksums = || self.log.checksums().write(self.log.segments(), durable.0);
        let synced = derived.sync().and_then(|()| checksums());
        state.is_in_doubt |= synced.is_err();
        synced
    }

    /// Brings everything to disk and says so: the next start reads nothing again. Only when nothing writes any more.
    /// What is in doubt is left to recovery.
    pub(super) fn finish(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let durable = self.flush.flush()?;
        if state.is_in_doubt {
            return Ok(());
        }
        self.sync_derived(&mut state, durable)?;
        let derived = self.dispatcher.derived();
        let log_end = self.log.published().0;
        self.log.drop_next();
        self.log.segments().remove_unused(log_end)?;
        let (last, queues) = self.dispatcher.last();
        let (last_record, last_record_crc) = match last {
            Some(LastRecord { physical, .. }) => {
                let crc = record_at(self.log.segments(), physical, |record| crc32fast::hash(record.bytes()));
                (physical, crc.unwrap_or(0))
            }
            None => (log_end, 0),
        };
        if let Some(last) = last {
            state.checkpoint.log_timestamp_ms = last.store_timestamp_ms;
            state.checkpoint.queue_timestamp_ms = last.store_timestamp_ms;
            state.checkpoint.index_timestamp_ms = derived.index.as_ref().map_or(0, Index::full_timestamp_ms);
            state.checkpoint.record = last.physical as i64;
        }
        let stop = CleanStop { log_end, last_record, last_record_crc, derived: derived.digest() };
        self.checkpoint_files.save(&state.checkpoint, queues, Some(stop))?;
        self.checkpoint_files.end()
    }

    /// The maintenance thread: runs until it is stopped.
    pub(super) fn run(&self) {
        loop {
            {
                let mut request = self.request.lock();
                if !request.is_awake && !request.is_stopped {
                    self.requested.wait_for(&mut request, ROUND);
                }
                if request.is_stopped {
                    return;
                }
                request.is_awake = false;
            }
            // What failed is tried again in the next round; a full disk may have room by then.
            let _ = self.run_round();
        }
    }

    pub(super) fn stop(&self) {
        self.request.lock().is_stopped = true;
        self.requested.notify_all();
    }
}
