//! Worker: one thread of a load, which sends requests, reads responses, and counts.
//!
//! Nothing here allocates per message: slots and buffers exist beforehand.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::connection::{Connection, READ_BYTES};
use super::plan::{LoadError, Plan};
use super::protocol::{Outcome, Protocol};
use super::readiness::{Readiness, SLEEP_MAX};
use super::schedule::Schedule;
use super::statistics::LoadStatistics;

/// A run of a plan, shared by its workers and its owner.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) is_stopped: AtomicBool,
    /// Messages accepted or received so far, for a progress display.
    pub(super) messages: AtomicU64,
}

/// One thread's share of a plan.
pub(super) struct Worker<P: Protocol> {
    plan: Arc<Plan>,
    run: Arc<Run>,
    connections: Vec<Connection<P>>,
    readiness: Readiness,
    schedule: Option<Schedule>,
    /// The next connection of the open loop.
    next: usize,
    /// Messages left to send or receive.
    quota: u64,
    statistics: LoadStatistics,
    buffer: Vec<u8>,
}

impl<P: Protocol> Worker<P> {
    /// Connects the share of the `index`th thread.
    pub(super) fn connect(
        plan: &Arc<Plan>,
        options: &P::Options,
        run: &Arc<Run>,
        index: usize,
    ) -> Result<Self, LoadError> {
        let threads = plan.threads.min(plan.connections);
        let mine = (index..plan.connections).step_by(threads);
        let connections =
            mine.map(|number| open::<P>(plan, options, number)).collect::<Result<Vec<_>, _>>()?;
        let readiness = Readiness::new(&connections, plan.rate.is_none(), plan.timeout)?;
        let messages_each = plan.messages_each() as f64;
        let share = |count: u64| (count + index as u64) / threads as u64;
        Ok(Self {
            schedule: plan.rate.map(|rate| Schedule::new(rate / messages_each, threads, index)),
            quota: plan.count.map_or(u64::MAX, share),
            statistics: LoadStatistics::new(plan),
            plan: Arc::clone(plan),
            run: Arc::clone(run),
            connections,
            readiness,
            next: 0,
            buffer: vec![0; READ_BYTES],
        })
    }

    /// Executes the plan; returns after the last response, or when the wait for it times out.
    pub(super) fn run(mut self, origin: Instant) -> Result<LoadStatistics, LoadError> {
        // Timer slack would make sleeps of the open loop 50 us late. If it cannot be set, only precision is lost.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let now_ns = || origin.elapsed().as_nanos() as u64;
        let timeout_ns = self.plan.timeout.as_nanos() as u64;
        let mut answered_ns = 0;
        let mut is_offering = true;
        let mut ready = Vec::new();
        for index in 0..self.connections.len() {
            self.refill(index, now_ns());
            self.flush(index)?;
        }
        loop {
            let now = now_ns();
            // Once more after the end, for requests that became due while this thread slept.
            if is_offering && self.schedule.is_some() {
                self.offer_due(now)?;
            }
            if is_offering && !self.may_offer(now) {
                is_offering = false;
                self.statistics.close(now);
                answered_ns = now;
            }
            if self.connections.iter().all(Connection::is_idle) {
                answered_ns = now;
                if !is_offering {
                    break;
                }
            } else if now.saturating_sub(answered_ns) > timeout_ns {
                if is_offering {
                    return Err(self.silent());
                }
                break;
            }
            self.readiness.wait(&mut ready, self.sleep(now, is_offering))?;
            for &index in &ready {
                if self.receive(index, origin)? {
                    answered_ns = now_ns();
                    self.refill(index, answered_ns);
                }
                self.flush(index)?;
            }
        }
        self.give_up(now_ns());
        Ok(self.statistics)
    }

    fn may_offer(&self, now_ns: u64) -> bool {
        now_ns < self.statistics.end_ns && self.may_go_on()
    }

    /// Returns whether the count is not reached and the load not stopped.
    fn may_go_on(&self) -> bool {
        self.quota > 0 && !self.run.is_stopped.load(Ordering::Relaxed)
    }

    /// Fills the window with requests: closed loop.
    fn refill(&mut self, index: usize, now_ns: u64) {
        while self.schedule.is_none() && self.may_offer(now_ns) && self.has_room(index) {
            self.ask(index, now_ns, now_ns);
        }
    }

    /// Sends every due request while a connection has room: open loop.
    fn offer_due(&mut self, now_ns: u64) -> Result<(), LoadError> {
        let count = self.connections.len();
        while let Some(due_ns) = self.due().filter(|due_ns| *due_ns <= now_ns && self.may_go_on()) {
            let free = (self.next..self.next + count).map(|index| index % count);
            let Some(index) = free.into_iter().find(|index| self.has_room(*index)) else { break };
            self.ask(index, due_ns, now_ns);
            self.next = (index + 1) % count;
            if let Some(schedule) = &mut self.schedule {
                schedule.advance();
            }
        }
        (0..count).try_for_each(|index| self.flush(index))
    }

    fn ask(&mut self, index: usize, due_ns: u64, now_ns: u64) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        self.statistics.send(due_ns, now_ns);
        connection.ask(due_ns);
        if self.plan.sends() {
            self.quota = self.quota.saturating_sub(self.plan.messages_each() as u64);
        }
    }

    /// Returns the due time of the open loop's next request, if before the end.
    fn due(&self) -> Option<u64> {
        self.schedule.as_ref().map(Schedule::due_ns).filter(|due_ns| *due_ns < self.statistics.end_ns)
    }

    fn has_room(&self, index: usize) -> bool {
        self.connections.get(index).is_some_and(Connection::has_room)
    }

    fn flush(&mut self, index: usize) -> Result<(), LoadError> {
        let Some(connection) = self.connections.get_mut(index) else { return Ok(()) };
        match connection.flush()? {
            Some(is_full) => self.readiness.want(index, connection, is_full),
            None => Ok(()),
        }
    }

    /// Returns how long to wait for responses.
    fn sleep(&self, now_ns: u64, is_offering: bool) -> Duration {
        let has_room = || (0..self.connections.len()).any(|index| self.has_room(index));
        match self.due() {
            Some(due_ns) if is_offering && has_room() => Duration::from_nanos(due_ns.saturating_sub(now_ns)),
            _ => SLEEP_MAX,
        }
    }

    /// Reads the responses of one connection; returns whether there were any bytes.
    fn receive(&mut self, index: usize, origin: Instant) -> Result<bool, LoadError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let Some(connection) = self.connections.get_mut(index) else { return Ok(false) };
        let filled = connection.receive(&mut buffer)?;
        let now_ns = origin.elapsed().as_nanos() as u64;
        let before = self.statistics.messages_total;
        let mut rest = buffer.get(..filled).unwrap_or_default();
        while let Some(size) = P::size(rest).map_err(|reason| self.lost(index, &reason))? {
            let Some((frame, behind)) = rest.split_at_checked(size) else { break };
            self.answer(index, frame, now_ns)?;
            rest = behind;
        }
        if let Some(connection) = self.connections.get_mut(index) {
            connection.keep(rest);
        }
        self.buffer = buffer;
        self.run.messages.fetch_add(self.statistics.messages_total - before, Ordering::Relaxed);
        Ok(filled > 0)
    }

    fn answer(&mut self, index: usize, frame: &[u8], now_ns: u64) -> Result<(), LoadError> {
        let Some(connection) = self.connections.get_mut(index) else { return Ok(()) };
        let Some(answer) = connection.read(frame)? else { return Ok(()) };
        let Some(begin_ns) = connection.settle(answer.slot) else {
            return Err(connection.lost("a response without a request"));
        };
        match answer.outcome {
            Outcome::Done { messages, bytes } => {
                if !self.plan.sends() {
                    self.quota = self.quota.saturating_sub(messages);
                }
                self.statistics.complete(begin_ns, now_ns, messages, bytes);
            }
            Outcome::Empty => self.statistics.empty += 1,
            Outcome::Refused(code) => self.statistics.refuse(code, || connection.remark(frame)),
        }
        Ok(())
    }

    /// Counts unanswered and unsent requests with the time they have waited.
    fn give_up(&mut self, now_ns: u64) {
        for begin_ns in self.connections.iter().flat_map(Connection::in_flight) {
            self.statistics.unanswered += 1;
            self.statistics.give_up(begin_ns, now_ns);
        }
        while self.may_go_on() {
            let Some(due_ns) = self.due() else { break };
            self.statistics.unsent += 1;
            self.statistics.give_up(due_ns, now_ns);
            if let Some(schedule) = &mut self.schedule {
                schedule.advance();
            }
        }
    }

    fn lost(&self, index: usize, reason: &str) -> LoadError {
        let address = self.connections.get(index).map(|connection| connection.address.clone());
        LoadError::Lost { address: address.unwrap_or_default(), reason: reason.to_owned() }
    }

    fn silent(&self) -> LoadError {
        let address = self.connections.first().map(|connection| connection.address.clone());
        LoadError::Silent { address: address.unwrap_or_default(), seconds: self.plan.timeout.as_secs() }
    }
}

/// Opens the `number`th connection of the plan; connections are dealt to brokers round-robin.
fn open<P: Protocol>(plan: &Plan, options: &P::Options, number: usize) -> Result<Connection<P>, LoadError> {
    match plan.targets.get(number % plan.targets.len()) {
        Some(target) => Connection::open(plan, options, target, number),
        None => Err(LoadError::Plan("the plan has no brokers")),
    }
}
