//! Maintenance: what has to be done in time, and on the way of no message.
//!
//! Makes the next segment before it is needed; writes queue units and index entries from memory to files; and every few
//! seconds makes a checkpoint: sync the derived files, flush the log, and only then write down how far they reach. The
//! pages ahead of the appender have a thread of their own (`ahead`).
//!
//! A round is a list of steps ([`STEPS`]). Each may fail alone: the others are done all the same, what failed is told
//! once (`failures`) and tried again in the next round; a full disk may have room by then. A checkpoint takes long where
//! much is to be synced: the steps that sends wait for are done beside it, then (`interim`).
//!
//! Invariant: a checkpoint names a record that was durable everywhere before it was written.
//! Threads: two of its own; `wake` from any.

mod ahead;
mod expiry;
mod failures;
mod indexing;
mod interim;
mod large_pages;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::store::derived::Index;
use crate::store::error::{StoreError, unless_full};
use crate::store::events::{Event, Events, Step};
use crate::store::log::{CommitLog, Dispatcher, Flush, LastRecord, record_at};
use crate::store::recovery::{Checkpoint, CheckpointFiles, CleanStop, DigestBase};
use crate::store::waiting_rooms::Waits;

pub(crate) use ahead::Ahead;
pub(crate) use expiry::Expiry;
pub(crate) use volumes::Volumes;

use failures::Failures;
use interim::Interim;

/// Pause between two rounds.
const ROUND: Duration = Duration::from_millis(50);
/// Pause between checkpoints: what a crash makes recovery read again.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);
/// Pause between checkpoints that only a file waits for that is to be deleted.
const EARLY_CHECKPOINT_INTERVAL: Duration = Duration::from_secs(1);
/// Rounds after which idle queues give their memory back.
const COOL_DOWN_ROUNDS: u64 = 200;

type Work = fn(&Maintenance, &mut RoundState) -> Result<(), StoreError>;

/// What is done in a round, in this order. What gives room comes first, and what appends wait for before what nothing does.
const STEPS: [(Step, Work); 7] = [
    (Step::Expire, |this, state| this.expire(state, false).map(drop)),
    // At once: until then queues begin with messages that are gone.
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
    /// How a sync of the derived files has failed. The next one might succeed without having written anything, so there
    /// are no more checkpoints: the next start reads the log from the last one, and writes those files again.
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

    /// Makes maintenance begin a round at once.
    pub(super) fn wake(&self) {
        self.request.lock().is_awake = true;
        self.requested.notify_one();
    }

    /// One round. Returns the first failure; all steps are done all the same.
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
        if state.rounds.is_multiple_of(COOL_DOWN_ROUNDS) {
            self.dispatcher.derived().queues.cool_down();
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

    /// Writes checksums that would be forgotten before the next checkpoint, and computed from a file that is in no memory.
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

    /// Does `work` while no checkpoint is made, with what the manifest on the disk says.
    pub(super) fn between_checkpoints<T>(&self, work: impl FnOnce(Option<DigestBase>) -> T) -> T {
        let _state = self.state.lock();
        work(self.checkpoint_files.base())
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
        // Until a broker says which messages wait, all of them may.
        let waits = self.dispatcher.arrivals().map_or(Waits::Unknown, |arrivals| arrivals.waits());
        if self.expiry.is_held(&due, waits) {
            return Ok(false);
        }
        let is_behind = |state: &RoundState| state.checkpoint.record.max(0) as u64 >= due.end();
        if !is_behind(state) && (is_asked || self.since_checkpoint(state) >= EARLY_CHECKPOINT_INTERVAL) {
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
        if self.log.failure().is_some() || !self.log.needs_next() {
            return Ok(());
        }
        let segments = self.log.segments();
        let next = self.expiry.check_room(segments.size()).and_then(|()| segments.create());
        let is_news = match &next {
            Ok(_) => true,
            // Those that wait for the file are told that there will be none.
            Err(error) => error.is_lack_of_space() && self.log.set_lacking_space(),
        };
        let outcome = next.map(|next| {
            ahead::begin(&next);
            self.log.set_next(next);
        });
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
        // All of that, and no more: what is appended meanwhile keeps its pages.
        let end = self.log.published();
        self.interim.during(|| {
            self.sync_derived(state)?;
            let durable = self.flush.flush_until(end)?;
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

    /// Notes what a checkpoint vouches for, of a log that is durable up to a position.
    fn note(&self, durable: u64) -> Result<(), StoreError> {
        // Checksums before the checkpoint: those of everything it vouches for are to be believed. What of them could not be
        // written or synced is no doubt: it counts as not written, and is written again.
        self.log.checksums().write(self.log.segments(), durable)?;
        self.dispatcher.derived().note()
    }

    /// Brings everything to disk and says so: the next start reads nothing again. Only when nothing writes any more.
    /// What is in doubt is left to recovery, and so is what has no room on the disk.
    pub(super) fn finish(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let durable = self.flush.flush()?;
        if state.doubt.is_some() {
            return Ok(());
        }
        // First: on a disk that is full it makes room for what follows.
        let log_end = self.log.published().0;
        self.log.drop_next();
        self.log.segments().remove_unused(log_end)?;
        if let Some(spool) = self.log.segments().spool() {
            spool.remove()?;
        }
        // Without an entry a block is not compared, which is all.
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

    /// Leaves the store as a kill would, without a reason to fail the stop: the log is on the disk.
    fn leave_open(&self, error: &StoreError) {
        self.events.add(Event::NotNoted { error: error.to_string() });
    }

    /// The thread for the time of checkpoints: what sends come to next goes on meanwhile.
    pub(super) fn run_interim(&self) {
        self.interim.run(|| {
            for (step, outcome) in
                [(Step::NextFile, self.prepare_next()), (Step::Queues, self.write_queues())]
            {
                self.note_outcome(step, &outcome);
            }
        });
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
            // What failed is an event already.
            let _ = self.run_round();
        }
    }

    pub(super) fn stop(&self) {
        self.request.lock().is_stopped = true;
        self.requested.notify_all();
        self.interim.stop();
    }
}
