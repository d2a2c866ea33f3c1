//! Maintenance: periodic work that no message waits for.
//!
//! Creates the next segment before it is needed, writes queue units and index entries from memory to files, and
//! every few seconds makes a checkpoint: it syncs the derived files, flushes the log, and only then records how far
//! they reach.
//!
//! A round is a list of steps ([`STEPS`]). If one fails, the others still run; the failure is reported once
//! (`failures`), and the step is retried in the next round, when a full disk may have space. During a long
//! checkpoint another thread runs the steps that sends wait for (`interim`).
//!
//! *Invariant*: a checkpoint names a record that was durable everywhere before it was written.
//! Threads: two of maintenance; `wake` from any.

mod expiry;
mod failures;
mod indexing;
mod interim;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::store::derived::Index;
use crate::store::error::{StoreError, unless_full};
use crate::store::log::{CommitLog, Dispatcher, Flush, LastRecord, record_at};
use crate::store::recovery::{Checkpoint, CheckpointFiles, CleanStop, DigestBase};
use crate::store::reports::events::{Event, Events, Step};
use crate::store::waiting_rooms::Waits;

pub(crate) use expiry::Expiry;
pub(crate) use volumes::Volumes;

use failures::Failures;
use interim::Interim;

/// The pause between two rounds.
const ROUND: Duration = Duration::from_millis(50);
/// The pause between checkpoints, which bounds what recovery reads again after a crash.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);
/// The pause between checkpoints that are made early to delete a file.
const EARLY_CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);
/// Rounds after which idle queues, an idle index and an idle write ring free their memory.
const COOL_DOWN_ROUNDS: u64 = 200;

type Work = fn(&Maintenance, &mut RoundState) -> Result<(), StoreError>;

/// The steps of a round, in order. Steps that free space come first, and those that appends wait for before the
/// others.
const STEPS: [(Step, Work); 7] = [
    (Step::Expire, |this, state| this.expire(state, false).map(drop)),
    // Directly after expiry: until then queues begin with deleted messages.
    (Step::Trim, |this, _| this.expiry.trim(this.dispatcher.derived()).map(drop)),
    (Step::NextFile, |this, _| this.prepare_next()),
    (Step::Queues, |this, _| this.write_queues()),
    (Step::Index, |this, _| this.interim.during(|| this.write_index())),
    (Step::Checksums, |this, _| this.interim.during(|| this.write_checksums())),
    (Step::Checkpoint, Maintenance::checkpoint_in_time),
];

pub(super) struct Maintenance {
    log: Arc<CommitLog>,
    dispatcher: Arc<Dispatcher>,
    flush: Arc<Flush>,
    expiry: Expiry,
    checkpoint_files: CheckpointFiles,
    state: Mutex<RoundState>,
    failures: Mutex<Failures>,
    events: Arc<Events>,
    queues_written_at: Mutex<Duration>,
    interim: Interim,
    request: Mutex<MaintenanceRequest>,
    requested: Condvar,
}

struct RoundState {
    checkpoint: Checkpoint,
    /// The error of a failed sync of the derived files. The next sync might succeed without having written anything,
    /// so checkpoints end: the next start reads the log from the last one, and writes those files again.
    doubt: Option<String>,
    checkpoint_at: Duration,
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
        events: Arc<Events>,
    ) -> Self {
        let now = log.clock().elapsed();
        let state = RoundState { checkpoint, doubt: None, checkpoint_at: now, rounds: 0 };
        Self {
            log,
            dispatcher,
            flush,
            expiry,
            checkpoint_files,
            state: Mutex::new(state),
            failures: Mutex::new(Failures::new(Arc::clone(&events))),
            events,
            queues_written_at: Mutex::new(now),
            interim: Interim::new(),
            request: Mutex::default(),
            requested: Condvar::new(),
        }
    }

    /// Starts a round without waiting for the pause.
    pub(super) fn wake(&self) {
        self.request.lock().is_awake = true;
        self.requested.notify_one();
    }

    /// Runs one round. Returns the first failure; all steps run in any case.
    pub(super) fn run_round(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        self.expiry.check_clock();
        self.expiry.check_space();
        let mut first_failure = Ok(());
        for (step, work) in STEPS {
            let outcome = work(self, &mut state);
            self.note_outcome(step, &outcome);
            first_failure = first_failure.and(outcome);
        }
        state.rounds += 1;
        let is_cool_down = state.rounds.is_multiple_of(COOL_DOWN_ROUNDS);
        if is_cool_down {
            let derived = self.dispatcher.derived();
            derived.queues.cool_down();
            derived.index.iter().for_each(Index::cool_down);
        }
        if let Some(ring) = self.log.segments().write_ring() {
            ring.fit_memory(self.log.published().0, is_cool_down);
        }
        first_failure
    }

    fn note_outcome(&self, step: Step, outcome: &Result<(), StoreError>) {
        self.failures.lock().note(step, self.log.clock().elapsed(), outcome);
    }

    fn write_queues(&self) -> Result<(), StoreError> {
        let now = self.log.clock().elapsed();
        let since = now.saturating_sub(std::mem::replace(&mut *self.queues_written_at.lock(), now));
        self.dispatcher.derived().queues.write_and_make_room(since)
    }

    /// Writes checksums that might be dropped before the next checkpoint and would have to be computed from the
    /// file.
    fn write_checksums(&self) -> Result<(), StoreError> {
        let checksums = self.log.checksums();
        if checksums.has_many_noted() {
            checksums.write(self.log.segments(), self.flush.durable().0)?;
        }
        Ok(())
    }

    fn checkpoint_in_time(&self, state: &mut RoundState) -> Result<(), StoreError> {
        let is_due = self.since_checkpoint(state) >= CHECKPOINT_INTERVAL;
        if is_due { self.checkpoint(state) } else { Ok(()) }
    }

    fn since_checkpoint(&self, state: &RoundState) -> Duration {
        self.log.clock().elapsed().saturating_sub(state.checkpoint_at)
    }

    pub(super) fn checkpoint_now(&self) -> Result<(), StoreError> {
        self.checkpoint(&mut self.state.lock())
    }

    /// Calls `work` while no checkpoint is in progress, with the base of the manifest on disk.
    pub(super) fn between_checkpoints<T>(&self, work: impl FnOnce(Option<DigestBase>) -> T) -> T {
        let _state = self.state.lock();
        work(self.checkpoint_files.base())
    }

    pub(super) fn expiry(&self) -> &Expiry {
        &self.expiry
    }

    /// Deletes all expired files of the log, at any hour, and their entries in queues and index. Returns the number
    /// of deleted files.
    pub(super) fn delete_expired(&self) -> Result<u64, StoreError> {
        let mut deleted = 0;
        while self.expire(&mut self.state.lock(), true)? {
            deleted += 1;
        }
        self.trim()?;
        Ok(deleted)
    }

    /// Removes entries of deleted records from queues and index.
    pub(super) fn trim(&self) -> Result<(), StoreError> {
        loop {
            // The lock is released between the steps: appends may wait for the next file.
            let _state = self.state.lock();
            if self.expiry.trim(self.dispatcher.derived())? {
                return Ok(());
            }
        }
    }

    /// Deletes the oldest file of the log if allowed. Returns whether it did.
    fn expire(&self, state: &mut RoundState, is_asked: bool) -> Result<bool, StoreError> {
        let Some(due) = self.expiry.due(is_asked) else { return Ok(false) };
        // Until a broker reports pending messages, any file may have some.
        let waits = self.dispatcher.arrivals().map_or(Waits::Unknown, |arrivals| arrivals.waits());
        if self.expiry.is_held(&due, waits) {
            return Ok(false);
        }
        let is_behind = |state: &RoundState| state.checkpoint.record.max(0) as u64 >= due.end();
        if !is_behind(state) && (is_asked || self.since_checkpoint(state) >= EARLY_CHECKPOINT_INTERVAL) {
            self.checkpoint(state)?;
        }
        // Without a checkpoint after the file, recovery may begin in it.
        if !is_behind(state) {
            return Ok(false);
        }
        self.expiry.delete(&due)?;
        Ok(true)
    }

    fn prepare_next(&self) -> Result<(), StoreError> {
        if self.log.failure().is_some() || !self.log.needs_next() {
            return Ok(());
        }
        let segments = self.log.segments();
        let next = self.expiry.check_room(segments.size()).and_then(|()| segments.create());
        let is_news = match &next {
            Ok(_) => true,
            // Notifies appends that wait for the file.
            Err(error) => error.is_lack_of_space() && self.log.set_lacking_space(),
        };
        let outcome = next.map(|next| self.log.set_next(next));
        if let Some(arrivals) = self.dispatcher.arrivals().filter(|_| is_news) {
            arrivals.room_was_made();
        }
        outcome
    }

    fn checkpoint(&self, state: &mut RoundState) -> Result<(), StoreError> {
        state.checkpoint_at = self.log.clock().elapsed();
        if let Some(reason) = &state.doubt {
            return Err(StoreError::InDoubt { reason: reason.clone() });
        }
        let (last, queues) = self.dispatcher.last();
        let is_new = |last: &LastRecord| last.physical as i64 != state.checkpoint.record;
        let derived = self.dispatcher.derived();
        let has_caught_up = || derived.index.as_ref().is_some_and(Index::has_caught_up);
        let Some(last) = last.filter(|last| is_new(last) || has_caught_up()) else { return Ok(()) };
        self.interim.during(|| {
            self.sync_derived(state)?;
            let durable = self.flush.flush()?;
            self.note(durable.0)
        })?;
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

    fn sync_derived(&self, state: &mut RoundState) -> Result<(), StoreError> {
        let derived = self.dispatcher.derived();
        derived.write()?;
        derived.sync().inspect_err(|error| state.doubt = Some(error.to_string()))
    }

    /// Writes the notes that belong to a checkpoint of a log that is durable up to `durable`.
    fn note(&self, durable: u64) -> Result<(), StoreError> {
        // Checksums before the checkpoint, so that they cover everything it covers. A failed write of checksums
        // leaves no doubt: they count as not written, and are written again.
        self.log.checksums().write(self.log.segments(), durable)?;
        self.dispatcher.derived().note()
    }

    /// Makes everything durable and records it, so that the next start reads nothing again. All writers must have
    /// stopped. Files in doubt, and data without space on the disk, are left to recovery.
    pub(super) fn finish(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let durable = self.flush.flush()?;
        if state.doubt.is_some() {
            return Ok(());
        }
        // First, because on a full disk it frees space for the rest.
        let log_end = self.log.published().0;
        self.log.drop_next();
        self.log.segments().remove_unused(log_end)?;
        if let Some(ring) = self.log.segments().write_ring() {
            ring.remove()?;
        }
        // A block without an entry is merely not verified.
        unless_full(self.log.checksums().write(self.log.segments(), durable.0))?;
        let derived = self.dispatcher.derived();
        if let Some(error) = unless_full(self.sync_derived(&mut state).and_then(|()| derived.note()))? {
            self.leave_open(&error);
            return Ok(());
        }
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
        match unless_full(self.checkpoint_files.save(&state.checkpoint, queues, Some(stop)))? {
            Some(error) => self.leave_open(&error),
            None => self.checkpoint_files.end()?,
        }
        Ok(())
    }

    /// Leaves the store like a killed process. The stop does not fail, because the log is on disk.
    fn leave_open(&self, error: &StoreError) {
        self.events.add(Event::NotNoted { error: error.to_string() });
    }

    /// Runs the steps that sends wait for during checkpoints. Runs on its own thread.
    pub(super) fn run_interim(&self) {
        self.interim.run(|| {
            for (step, outcome) in
                [(Step::NextFile, self.prepare_next()), (Step::Queues, self.write_queues())]
            {
                self.note_outcome(step, &outcome);
            }
        });
    }

    /// Runs rounds of maintenance until it is stopped. Runs on its own thread.
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
            // A failure was reported as an event.
            let _ = self.run_round();
        }
    }

    pub(super) fn stop(&self) {
        self.request.lock().is_stopped = true;
        self.requested.notify_all();
        self.interim.stop();
    }
}
