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

    /// Looks at how far it is, without a copy. `look` must not wait.
    pub fn with_phase<R>(&self, look: impl FnOnce(&Phase) -> R) -> R {
        look(&self.progress.lock().phase)
    }

    /// Whether it is over: stored, or given up.
    pub fn is_over(&self) -> bool {
        self.with_phase(Phase::is_final)
    }

    /// Whether somebody is told of its outcome, rather than waiting for it.
    pub fn is_announced(&self) -> bool {
        self.options.announce.is_some()
    }

    /// How many brokers were asked before the one it is at.
    pub fn attempts_failed(&self) -> usize {
        self.progress.lock().attempts.len()
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::client::completions::Completions;
    use crate::client::fields::{Delivery, Fields};
    use crate::client::outgoing::Letterhead;
    use crate::message::id::UniqueIds;
    use crate::message::sysflag::Compression;
    use crate::remoting::frame::{Encoding, FrameLimits, split};
    use crate::remoting::header::{Header, HeaderWriter};

    fn target(broker: &str) -> Target {
        Target { address: "127.0.0.1:1".into(), broker: broker.into(), queue_id: 3 }
    }

    fn shipment(options: ShipmentOptions) -> Arc<Shipment> {
        let letterhead = Arc::new(Letterhead {
            group: "pg".into(),
            compress_from_bytes: None,
            compression: Compression::Zlib,
            template_queues: 4,
            ids: UniqueIds::new(Ipv4Addr::LOCALHOST, 1, 1),
        });
        let fields = Fields {
            topic: "orders".into(),
            tag: None,
            keys: Vec::new(),
            properties: Vec::new(),
            sharding_key: None,
            delivery: None::<Delivery>,
            priority: None,
            flag: 0,
        };
        let message = letterhead.message(&fields, b"hello", 0);
        if let Some(window) = &options.window {
            assert!(window.take(message.bytes(), Duration::ZERO));
        }
        let deadline = Instant::now() + Duration::from_secs(3);
        Arc::new(Shipment::new(message, target("broker-a"), deadline, options))
    }

    /// Lands a reply with this code; with `ext`, one that has what a receipt needs.
    fn land(shipment: &Arc<Shipment>, code: i32, has_ext: bool) {
        let mut bytes = Vec::new();
        let mut writer = HeaderWriter::begin(&mut bytes, Encoding::Json, code, 1, 1, Some("why"));
        if has_ext {
            writer.ext("msgId", "7F00").ext("queueId", "3").ext("queueOffset", "41");
        }
        writer.finish(0).unwrap();
        let (frame, _) = split(&bytes, &FrameLimits::default()).unwrap().unwrap();
        let mut header = Header::new();
        header.decode(&frame).unwrap();
        shipment.land(Ok(Reply { header: &header, body: b"" }));
    }

    #[test]
    fn a_stored_message_gives_its_room_back_and_is_announced_as_asked() {
        for (failures_only, announced) in [(true, 0), (false, 1)] {
            let (window, completions) = (Arc::new(Window::new(1, 1000)), Arc::new(Completions::default()));
            let announce = Some(Announce { to: Arc::clone(&completions), token: 7 });
            let sent = shipment(ShipmentOptions {
                window: Some(Arc::clone(&window)),
                announce,
                failures_only,
                ..Default::default()
            });
            land(&sent, 0, true);
            land(&sent, 1, false);
            let Phase::Stored(receipt) = sent.phase() else { panic!("{:?}", sent.phase()) };
            assert_eq!((receipt.queue_offset, &*receipt.broker), (41, "broker-a"));
            assert_eq!(window.messages(), 0);
            assert_eq!(completions.take(10).len(), announced);
            assert!(sent.wait_over(Duration::ZERO));
        }
    }

    #[test]
    fn a_failed_attempt_waits_for_a_decision_and_keeps_its_room() {
        let (window, completions) = (Arc::new(Window::new(1, 1000)), Arc::new(Completions::default()));
        let announce = Some(Announce { to: Arc::clone(&completions), token: 7 });
        let sent = shipment(ShipmentOptions {
            window: Some(Arc::clone(&window)),
            announce,
            failures_only: true,
            ..Default::default()
        });
        land(&sent, 2, false);
        assert_eq!((sent.phase(), window.messages(), completions.take(10).len()), (Phase::Failed, 1, 1));
        assert!(sent.wait_attempt(Duration::ZERO) && !sent.wait_over(Duration::ZERO));
        assert!(sent.again(target("broker-b")) && !sent.again(target("broker-b")));
        land(&sent, 0, false);
        let failures: Vec<_> = sent.attempts().into_iter().map(|attempt| attempt.failure).collect();
        assert!(
            matches!(failures.as_slice(), [SendFailure::Broker { code: 2, .. }, SendFailure::Malformed(_)]),
            "{failures:?}"
        );
        sent.give_up();
        sent.give_up();
        assert_eq!((sent.phase(), window.messages()), (Phase::GivenUp, 0));
    }

    #[test]
    fn a_message_stored_less_safely_than_asked_is_stored_when_no_better_place_is_found() {
        let sent = shipment(ShipmentOptions { retry_not_safe: true, ..Default::default() });
        land(&sent, response::FLUSH_DISK_TIMEOUT, true);
        assert_eq!(sent.phase(), Phase::Failed);
        assert!(sent.again(target("broker-b")));
        land(&sent, response::SYSTEM_BUSY, false);
        sent.give_up();
        assert!(
            matches!(sent.phase(), Phase::Stored(receipt) if receipt.code == response::FLUSH_DISK_TIMEOUT)
        );
    }

    #[test]
    fn a_failure_nobody_will_hear_of_is_given_up() {
        let completions = Arc::new(Completions::default());
        completions.close();
        let announce = Some(Announce { to: completions, token: 7 });
        let sent = shipment(ShipmentOptions { announce, failures_only: true, ..Default::default() });
        sent.land(Err(CallError::Stopped));
        assert_eq!(sent.phase(), Phase::GivenUp);
    }
}
