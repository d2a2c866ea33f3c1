//! One send under way: tried on one broker after the other until it is stored or given up.
//!
//! Owns the outcome of each attempt. What follows a failed attempt is decided above, by the producer's retry rule:
//! `again` or `give_up`. Invariant: a send is over exactly once, and gives its room in the window back then.
//! Threads: `land` from the connection's I/O thread, the rest from any.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::completions::{Announce, Landed};
use super::outgoing::Outgoing;
use super::window::Window;
use crate::remoting::codes::response;
use crate::remoting::{CallError, Reply};

/// Where one attempt goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// `host:port` to connect to.
    pub address: Arc<str>,
    /// Name of the broker behind it.
    pub broker: Arc<str>,
    /// Queue of the topic on that broker.
    pub queue_id: i32,
}

/// What the broker said about a stored message, or a batch of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// 0, or one of the codes that mean stored, but not as safely as asked.
    pub code: i32,
    /// Broker that has it.
    pub broker: Arc<str>,
    /// Queue that has it.
    pub queue_id: i32,
    /// Its position there; of the first one for a batch.
    pub queue_offset: i64,
    /// The broker's id of the message; joined by commas for a batch.
    pub offset_message_id: String,
    /// Id of the transaction it belongs to.
    pub transaction_id: Option<String>,
    /// Takes back a message that waits for its time.
    pub recall_handle: Option<String>,
}

/// Why one attempt did not store the message as asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SendFailure {
    /// The broker refused.
    Broker {
        /// Its response code.
        code: i32,
        /// Its reason.
        remark: String,
    },
    /// It was stored, but not as safely as asked, and the producer wants it tried elsewhere.
    NotSafe(Receipt),
    /// No reply.
    Call(CallError),
    /// The reply lacks what a receipt needs.
    Malformed(String),
}

/// An attempt that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// Where it went.
    pub target: Target,
    /// What happened.
    pub failure: SendFailure,
    /// How long it took.
    pub elapsed: Duration,
}

/// How far a send is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Phase {
    /// An attempt is on its way.
    Flying,
    /// The last attempt failed; a decision is due.
    Failed,
    /// The broker has it. Final.
    Stored(Receipt),
    /// No further attempt will be made. Final.
    GivenUp,
}

impl Phase {
    fn is_final(&self) -> bool {
        matches!(self, Self::Stored(_) | Self::GivenUp)
    }
}

/// A message on its way, with everything needed to try once more.
#[derive(Debug)]
pub struct Shipment {
    outgoing: Outgoing,
    progress: Mutex<Progress>,
    changed: Condvar,
    options: ShipmentOptions,
    deadline: Instant,
}

#[derive(Debug)]
struct Progress {
    phase: Phase,
    target: Target,
    started: Instant,
    attempts: Vec<Attempt>,
}

/// What is the same for all sends of a producer.
#[derive(Clone, Debug, Default)]
pub struct ShipmentOptions {
    /// Room taken for it before, given back when it is over.
    pub window: Option<Arc<Window>>,
    /// Who is told about outcomes.
    pub announce: Option<Announce>,
    /// Tell about failed attempts only: a success needs no decision.
    pub failures_only: bool,
    /// Treat `stored, but not as safely as asked` as a failed attempt.
    pub retry_not_safe: bool,
    /// The user or a sharding key chose the queue: no other will do.
    pub is_pinned: bool,
}

impl Shipment {
    /// A send whose first attempt goes to `target`.
    #[must_use]
    pub fn new(outgoing: Outgoing, target: Target, deadline: Instant, options: ShipmentOptions) -> Self {
        let progress =
            Progress { phase: Phase::Flying, target, started: Instant::now(), attempts: Vec::new() };
        Self { outgoing, progress: Mutex::new(progress), changed: Condvar::new(), options, deadline }
    }

    /// The message.
    pub fn outgoing(&self) -> &Outgoing {
        &self.outgoing
    }

    /// Whether only the queue of the first attempt will do.
    pub fn is_pinned(&self) -> bool {
        self.options.is_pinned
    }

    /// When all attempts together must be over.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        self.progress.lock().phase.clone()
    }

    /// Attempts that failed, in order.
    pub fn attempts(&self) -> Vec<Attempt> {
        self.progress.lock().attempts.clone()
    }

    /// Where the current or last attempt went.
    pub fn target(&self) -> Target {
        self.progress.lock().target.clone()
    }

    /// The outcome of the attempt under way. Called once per attempt.
    pub fn land(self: &Arc<Self>, outcome: Result<Reply<'_>, CallError>) {
        let mut progress = self.progress.lock();
        if progress.phase != Phase::Flying {
            return;
        }
        let judged = outcome
            .map_err(SendFailure::Call)
            .and_then(|reply| judge(&reply, &progress.target, self.options.retry_not_safe));
        match judged {
            Ok(receipt) => progress.phase = Phase::Stored(receipt),
            Err(failure) => {
                let attempt =
                    Attempt { target: progress.target.clone(), failure, elapsed: progress.started.elapsed() };
                progress.attempts.push(attempt);
                progress.phase = Phase::Failed;
            }
        }
        let is_over = progress.phase.is_final();
        drop(progress);
        if is_over {
            self.give_room_back();
        }
        self.changed.notify_all();
        if let Some(announce) = &self.options.announce
            && !(is_over && self.options.failures_only)
        {
            let is_heard = announce.to.push(announce.token, Landed::Shipment(Arc::clone(self)));
            if !is_heard {
                self.give_up();
            }
        }
    }

    /// After a failed attempt: the next one goes to `target`. False when there is nothing to repeat.
    pub fn again(&self, target: Target) -> bool {
        let mut progress = self.progress.lock();
        if progress.phase != Phase::Failed {
            return false;
        }
        progress.phase = Phase::Flying;
        progress.target = target;
        progress.started = Instant::now();
        true
    }

    /// After a failed attempt: that was the last one. A message that some broker holds counts as stored.
    pub fn give_up(&self) {
        let mut progress = self.progress.lock();
        if progress.phase != Phase::Failed {
            return;
        }
        let held = progress.attempts.iter().rev().find_map(|attempt| match &attempt.failure {
            SendFailure::NotSafe(receipt) => Some(receipt.clone()),
            _ => None,
        });
        progress.phase = held.map_or(Phase::GivenUp, Phase::Stored);
        drop(progress);
        self.give_room_back();
        self.changed.notify_all();
    }

    fn give_room_back(&self) {
        if let Some(window) = &self.options.window {
            window.give(self.outgoing.bytes());
        }
    }

    /// Sleeps until the attempt under way has an outcome, or `timeout` has passed; whether it has one.
    pub fn wait_attempt(&self, timeout: Duration) -> bool {
        self.wait(timeout, |phase| *phase != Phase::Flying)
    }

    /// Sleeps until the send is over, or `timeout` has passed; whether it is over.
    pub fn wait_over(&self, timeout: Duration) -> bool {
        self.wait(timeout, Phase::is_final)
    }

    fn wait(&self, timeout: Duration, is_enough: impl Fn(&Phase) -> bool) -> bool {
        let deadline = Instant::now() + timeout;
        let mut progress = self.progress.lock();
        while !is_enough(&progress.phase) {
            if self.changed.wait_until(&mut progress, deadline).timed_out() {
                return is_enough(&progress.phase);
            }
        }
        true
    }
}

fn judge(reply: &Reply<'_>, target: &Target, retry_not_safe: bool) -> Result<Receipt, SendFailure> {
    let header = reply.header;
    let is_stored = matches!(
        header.code,
        response::SUCCESS
            | response::FLUSH_DISK_TIMEOUT
            | response::SLAVE_NOT_AVAILABLE
            | response::FLUSH_SLAVE_TIMEOUT
    );
    if !is_stored {
        let remark = header.remark().unwrap_or_default().to_owned();
        return Err(SendFailure::Broker { code: header.code, remark });
    }
    let text = |name: &str| header.get(name).map(str::to_owned);
    let lacks = |name: &str| SendFailure::Malformed(format!("the reply of {} lacks {name}", target.address));
    let receipt = Receipt {
        code: header.code,
        broker: Arc::clone(&target.broker),
        queue_id: number(header.get("queueId")).ok_or_else(|| lacks("queueId"))?,
        queue_offset: number(header.get("queueOffset")).ok_or_else(|| lacks("queueOffset"))?,
        offset_message_id: text("msgId").ok_or_else(|| lacks("msgId"))?,
        transaction_id: text("transactionId"),
        recall_handle: text("recallHandle"),
    };
    if header.code != response::SUCCESS && retry_not_safe {
        return Err(SendFailure::NotSafe(receipt));
    }
    Ok(receipt)
}

fn number<N: std::str::FromStr>(digits: Option<&str>) -> Option<N> {
    digits?.parse().ok()
}
