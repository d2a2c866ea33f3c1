//! Load generator: the engine of `rmqpy bench`, without RocketMQ.
//!
//! A [`Plan`] names brokers, requests and their rate; [`Load`] executes it and measures. The
//! [`Protocol`] of the brokers is a type parameter. Because it shares the machine with the broker it
//! measures, its connections know only sends and pulls: requests are built once and only their numbers change, many
//! share a write and many responses a read (`connection`), and no message allocates.
//!
//! There are two modes. *Closed loop*: every connection keeps `window` requests in flight; measures capacity. *Open
//! loop*: requests are due at fixed times (`schedule`), and latency counts from the due time, not from the actual
//! send; measures percentiles. Unanswered requests count with the time they have waited, so a stalled broker cannot
//! hide.
//!
//! Invariant: every request sent is counted once, as accepted, refused or unanswered, whether measured or not.
//! Threads: `rmq-load-N`, each with its share of the connections, and `rmq-load-watch`, which reads clocks and
//! the processors' time at both ends of the measured interval; all end with the plan, or after `Load::stop`.

mod connection;
mod plan;
mod protocol;
mod readiness;
mod report;
mod schedule;
mod statistics;
mod usage;
mod worker;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

pub use plan::{LoadError, Plan, Position, Target, Work};
pub use protocol::{Answer, Outcome, Protocol, Stream};
pub use report::Report;

use statistics::LoadStatistics;
use usage::Usage;
use worker::{Run, Worker};

/// The end of a load, as seen by its owner.
#[derive(Debug, Default)]
struct Ending {
    report: Mutex<Option<Result<Report, LoadError>>>,
    has_come: Condvar,
}

/// A running load.
#[derive(Debug)]
pub struct Load {
    run: Arc<Run>,
    ending: Arc<Ending>,
}

impl Load {
    /// Connects everything and starts, using protocol `P`. Fails when the plan is invalid, or a broker is
    /// unreachable.
    pub fn start<P: Protocol>(plan: Plan, options: &P::Options) -> Result<Self, LoadError> {
        plan.check()?;
        let plan = Arc::new(plan);
        let (run, ending) = (Arc::new(Run::default()), Arc::new(Ending::default()));
        let threads = plan.threads.min(plan.connections);
        let mut workers = (0..threads)
            .map(|index| Worker::<P>::connect(&plan, options, &run, index))
            .collect::<Result<Vec<_>, _>>()?;
        // All threads connect before any begins.
        let begin = Instant::now();
        let handles = workers
            .drain(..)
            .enumerate()
            .map(|(index, worker)| spawn(format!("rmq-load-{index}"), move || worker.run(begin)))
            .collect::<Result<Vec<_>, _>>();
        let watched = handles.and_then(|handles| {
            let ending = Arc::clone(&ending);
            spawn("rmq-load-watch".to_owned(), move || watch(&plan, &ending, begin, handles))
        });
        if watched.is_err() {
            run.is_stopped.store(true, Ordering::Relaxed);
        }
        watched.map(|_| Self { run, ending })
    }

    /// Waits up to `timeout` for the end; returns whether it was reached.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut report = self.ending.report.lock();
        if report.is_none() {
            self.ending.has_come.wait_for(&mut report, timeout);
        }
        report.is_some()
    }

    /// Returns the number of messages accepted or received so far.
    pub fn messages(&self) -> u64 {
        self.run.messages.load(Ordering::Relaxed)
    }

    /// Stops sending; the load ends when the requests in flight have their responses.
    pub fn stop(&self) {
        self.run.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Takes the measurements, once; `None` before the end. Fails when a connection broke, or a broker stopped
    /// responding.
    pub fn report(&self) -> Option<Result<Report, LoadError>> {
        self.ending.report.lock().take()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn<T: Send + 'static>(
    name: String,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, LoadError> {
    std::thread::Builder::new().name(name).spawn(work).map_err(|error| LoadError::Thread(error.to_string()))
}

/// Samples CPU time around the measured interval, then collects the workers' counts.
fn watch(
    plan: &Plan,
    ending: &Ending,
    begin: Instant,
    workers: Vec<JoinHandle<Result<LoadStatistics, LoadError>>>,
) {
    let rest_until = |moment: Duration| {
        while begin.elapsed() < moment && !workers.iter().all(JoinHandle::is_finished) {
            // A load lasts as long as it was asked to.
            std::thread::sleep(moment.saturating_sub(begin.elapsed()).min(usage::LOOK_INTERVAL));
        }
    };
    rest_until(plan.warm_up);
    let before = Usage::now(&plan.pids);
    rest_until(plan.end());
    let after = Usage::now(&plan.pids);

    let mut total = LoadStatistics::new(plan);
    let mut failure = None;
    for worker in workers {
        match worker.join() {
            Ok(Ok(statistics)) => total.merge(&statistics),
            Ok(Err(error)) => failure = failure.or(Some(error)),
            Err(_) => failure = failure.or(Some(LoadError::Thread("it panicked".to_owned()))),
        }
    }
    let report = failure.map_or_else(|| Ok(Report::new(plan, &total, &before, &after)), Err);
    *ending.report.lock() = Some(report);
    ending.has_come.notify_all();
}
