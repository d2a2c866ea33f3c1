//! Pending send: attempts at one broker after another until the message is stored or given up.
//!
//! It records the outcome of each attempt. The producer's retry rule decides what follows a failure: `again` or
//! `give_up`.
//!
//! *Invariant*: a send ends exactly once, and then releases its budget.
//! Threads: `complete` from the connection's I/O thread, the rest from any.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::broker_latency::BrokerLatency;
use super::broker_regions::BrokerRegions;
use super::encoded_send::EncodedSend;
use super::receipt::{Attempt, Receipt, SendFailure, judge};
use super::route_cache::Target;
use super::send_budget::SendBudget;
use super::unasked_failures::{FailureNumber, UnaskedFailures};
use crate::remoting::{CallError, Reply};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// An attempt is in flight.
    InFlight,
    /// The last attempt failed; a decision is due.
    Failed,
    /// A broker has stored it. Final.
    Stored(Arc<Receipt>),
    /// No further attempt will be made. Final.
    GivenUp,
}

impl Phase {
    fn is_final(&self) -> bool {
        matches!(self, Self::Stored(_) | Self::GivenUp)
    }
}

/// A send in flight, with everything needed to retry it.
#[derive(Debug)]
pub(crate) struct PendingSend {
    pub(crate) encoded: EncodedSend,
    state: Mutex<SendState>,
    changed: Condvar,
    options: SendOptions,
    /// The deadline of all attempts together.
    pub(crate) deadline: Instant,
}

#[derive(Debug)]
struct SendState {
    phase: Phase,
    target: Target,
    started: Instant,
    attempts: Vec<Attempt>,
    /// The reader's token, if the end is posted.
    end_token: Option<u64>,
    /// The number of the failure while it is unread.
    unasked: Option<FailureNumber>,
}

/// The options common to all sends of a producer.
#[derive(Clone, Debug, Default)]
pub(crate) struct SendOptions {
    /// The budget reserved for it, released when it ends.
    pub(crate) budget: Option<Arc<SendBudget>>,
    /// The reader's token, if outcomes are posted; `None` if the caller waits for them.
    pub(crate) token: Option<u64>,
    /// Post only failed attempts: a success needs no decision.
    pub(crate) failures_only: bool,
    /// Treat a message stored less safely than requested as a failed attempt.
    pub(crate) retry_not_safe: bool,
    /// The user or a sharding key chose the queue; no other may be used.
    pub(crate) is_pinned: bool,
    /// Records slow brokers, for producers that avoid them.
    pub(crate) latency: Option<Arc<BrokerLatency>>,
    /// Records the regions of brokers, for producers with traces.
    pub(crate) regions: Option<Arc<BrokerRegions>>,
    /// Records the failure until it is read, unless the end is posted.
    pub(crate) unasked_failures: Option<Arc<UnaskedFailures>>,
}

impl PendingSend {
    /// Creates a send whose first attempt goes to `target` at `now`, with `timeout` for all attempts.
    pub(crate) fn new(
        encoded: EncodedSend,
        target: Target,
        now: Instant,
        timeout: Duration,
        options: SendOptions,
    ) -> Self {
        let deadline = now + timeout;
        let state = SendState {
            phase: Phase::InFlight,
            target,
            started: now,
            attempts: Vec::new(),
            end_token: options.token.filter(|_| !options.failures_only),
            unasked: None,
        };
        Self { encoded, state: Mutex::new(state), changed: Condvar::new(), options, deadline }
    }

    /// Returns whether retries may only use the queue of the first attempt.
    pub(crate) fn is_pinned(&self) -> bool {
        self.options.is_pinned
    }

    pub(crate) fn phase(&self) -> Phase {
        self.state.lock().phase.clone()
    }

    /// Reads the phase without a copy. `look` must not block.
    pub(crate) fn with_phase<R>(&self, look: impl FnOnce(&Phase) -> R) -> R {
        look(&self.state.lock().phase)
    }

    /// Returns whether it has ended: stored, or given up.
    pub(crate) fn is_over(&self) -> bool {
        self.with_phase(Phase::is_final)
    }

    /// Returns whether its outcome is posted instead of awaited.
    pub(crate) fn is_announced(&self) -> bool {
        self.options.token.is_some()
    }

    /// Posts its end under `token`, unless it already has one. Returns the token in use; `None` when it has ended.
    pub(crate) fn announce_end(&self, token: u64) -> Option<u64> {
        let mut state = self.state.lock();
        (!state.phase.is_final()).then(|| *state.end_token.get_or_insert(token))
    }

    /// Returns the token under which its end is posted.
    pub(crate) fn end_token(&self) -> Option<u64> {
        self.state.lock().end_token
    }

    /// Returns the number of attempts before the current one.
    pub(crate) fn attempts_failed(&self) -> usize {
        self.state.lock().attempts.len()
    }

    pub(crate) fn attempts(&self) -> Vec<Attempt> {
        self.state.lock().attempts.clone()
    }

    /// Returns the target of the current or last attempt.
    pub(crate) fn target(&self) -> Target {
        self.state.lock().target.clone()
    }

    /// Sets the outcome of the attempt in flight, once per attempt. Returns the token to post it under, if any.
    pub(crate) fn complete(&self, outcome: Result<Reply<'_>, CallError>) -> Option<u64> {
        let mut state = self.state.lock();
        if state.phase != Phase::InFlight {
            return None;
        }
        if let (Some(regions), Ok(reply)) = (&self.options.regions, &outcome) {
            regions.note_reply(&state.target.broker, reply.header);
        }
        let judged = outcome
            .map_err(SendFailure::Call)
            .and_then(|reply| judge(&reply, &state.target, self.options.retry_not_safe));
        if let Some(latency) = &self.options.latency {
            let now = Instant::now();
            let elapsed = now.saturating_duration_since(state.started);
            latency.note(&state.target.broker, elapsed, judged.is_err(), now);
        }
        match judged {
            Ok(receipt) => state.phase = Phase::Stored(Arc::new(receipt)),
            Err(failure) => {
                let attempt =
                    Attempt { target: state.target.clone(), failure, elapsed: state.started.elapsed() };
                state.attempts.push(attempt);
                state.phase = Phase::Failed;
            }
        }
        let is_over = state.phase.is_final();
        let end_token = state.end_token;
        drop(state);
        if is_over {
            self.give_room_back();
        }
        self.changed.notify_all();
        if is_over { end_token } else { self.options.token.map(|token| end_token.unwrap_or(token)) }
    }

    /// Retries a failed send at `target`. False if it is not in the failed phase.
    pub(crate) fn again(&self, target: Target) -> bool {
        let mut state = self.state.lock();
        if state.phase != Phase::Failed {
            return false;
        }
        state.phase = Phase::InFlight;
        state.target = target;
        state.started = Instant::now();
        true
    }

    /// Makes the failed attempt the last one. A message that some broker stored counts as stored.
    pub(crate) fn give_up(&self) {
        self.end(self.state.lock());
    }

    /// Makes the current attempt the last one, even while it is in flight.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::InFlight {
            let failure = SendFailure::Call(CallError::Stopped);
            let attempt = Attempt { target: state.target.clone(), failure, elapsed: state.started.elapsed() };
            state.attempts.push(attempt);
            state.phase = Phase::Failed;
        }
        self.end(state);
    }

    /// Records that the outcome was read.
    pub(crate) fn note_asked(&self) {
        let unasked = self.state.lock().unasked.take();
        if let (Some(number), Some(failures)) = (unasked, &self.options.unasked_failures) {
            failures.forget(number);
        }
    }

    fn end(&self, mut state: MutexGuard<'_, SendState>) {
        if state.phase != Phase::Failed {
            return;
        }
        let held = state.attempts.iter().rev().find_map(|attempt| match &attempt.failure {
            SendFailure::NotSafe(receipt) => Some(Arc::new(receipt.clone())),
            _ => None,
        });
        state.phase = held.map_or(Phase::GivenUp, Phase::Stored);
        if state.phase == Phase::GivenUp
            && state.end_token.is_none()
            && let (Some(failures), Some(last)) = (&self.options.unasked_failures, state.attempts.last())
        {
            state.unasked = Some(failures.add(&self.encoded.topic, last));
        }
        drop(state);
        self.give_room_back();
        self.changed.notify_all();
    }

    fn give_room_back(&self) {
        if let Some(budget) = &self.options.budget {
            budget.give(self.encoded.bytes());
        }
    }

    /// Sleeps until the attempt in flight has an outcome or `timeout` has passed; returns whether it has one.
    pub(crate) fn wait_attempt(&self, timeout: Duration) -> bool {
        self.wait(timeout, |phase| *phase != Phase::InFlight)
    }

    /// Sleeps until the send has ended or `timeout` has passed; returns whether it has ended.
    pub(crate) fn wait_over(&self, timeout: Duration) -> bool {
        self.wait(timeout, Phase::is_final)
    }

    fn wait(&self, timeout: Duration, is_enough: impl Fn(&Phase) -> bool) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock();
        while !is_enough(&state.phase) {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return is_enough(&state.phase);
            }
        }
        true
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::encoded_send::tests::context;
    use super::super::message_fields::MessageFields;
    use super::*;
    use crate::remoting::codes::response;
    use crate::remoting::frame::{Encoding, FrameLimits, split};
    use crate::remoting::header::{Header, HeaderWriter};

    fn target(broker: &str) -> Target {
        Target { address: "127.0.0.1:1".into(), broker: broker.into(), queue_id: 3 }
    }

    pub(crate) fn send(options: SendOptions) -> PendingSend {
        let fields = MessageFields { topic: "orders".into(), ..MessageFields::default() };
        let message = context(None).message(&fields, b"hello", 0);
        if let Some(budget) = &options.budget {
            assert!(budget.take(message.bytes()));
        }
        PendingSend::new(message, target("broker-a"), Instant::now(), Duration::from_secs(3), options)
    }

    /// Completes the attempt with a reply of this code; `ext` adds the fields of a receipt.
    fn complete(send: &PendingSend, code: i32, has_ext: bool) -> Option<u64> {
        let mut bytes = Vec::new();
        let mut writer = HeaderWriter::begin(&mut bytes, Encoding::Json, code, 1, 1, Some("why"));
        if has_ext {
            writer.ext("msgId", "7F00").ext("queueId", "3").ext("queueOffset", "41");
        }
        writer.finish(0).unwrap();
        let (frame, _) = split(&bytes, &FrameLimits::default()).unwrap().unwrap();
        let mut header = Header::new();
        header.decode(&frame).unwrap();
        send.complete(Ok(Reply { header: &header, body: b"" }))
    }

    #[test]
    fn a_stored_message_releases_its_budget_and_is_posted() {
        for (failures_only, announced) in [(true, None), (false, Some(7))] {
            let budget = Arc::new(SendBudget::new(1, 1000));
            let sent = send(SendOptions {
                budget: Some(Arc::clone(&budget)),
                token: Some(7),
                failures_only,
                ..Default::default()
            });
            assert_eq!(complete(&sent, 0, true), announced);
            assert_eq!(complete(&sent, 1, false), None, "it has an outcome");
            let Phase::Stored(receipt) = sent.phase() else { panic!("{:?}", sent.phase()) };
            assert_eq!((receipt.queue_offset, &*receipt.broker), (41, "broker-a"));
            assert_eq!(budget.messages(), 0);
            assert!(sent.wait_over(Duration::ZERO));
        }
    }

    #[test]
    fn an_end_is_posted_to_a_reader_that_asked_while_in_flight() {
        let sent = send(SendOptions { token: Some(0), failures_only: true, ..Default::default() });
        assert_eq!((sent.end_token(), sent.announce_end(7), sent.announce_end(8)), (None, Some(7), Some(7)));
        assert_eq!(complete(&sent, 2, false), Some(7), "a decision is due");
        assert!(sent.again(target("broker-b")));
        assert_eq!(complete(&sent, 0, true), Some(7));
        assert_eq!((sent.end_token(), sent.announce_end(9)), (Some(7), None));
    }

    #[test]
    fn an_abandoned_send_is_over_once() {
        let budget = Arc::new(SendBudget::new(1, 1000));
        let sent = send(SendOptions { budget: Some(Arc::clone(&budget)), ..Default::default() });
        sent.abandon();
        sent.abandon();
        assert_eq!((sent.phase(), budget.messages(), sent.attempts_failed()), (Phase::GivenUp, 0, 1));
        assert_eq!(complete(&sent, 0, true), None);
        assert_eq!(sent.phase(), Phase::GivenUp);
    }

    #[test]
    fn a_failure_is_recorded_until_read_or_posted() {
        let failures = Arc::new(UnaskedFailures::default());
        let options = SendOptions {
            token: Some(0),
            failures_only: true,
            unasked_failures: Some(Arc::clone(&failures)),
            ..Default::default()
        };
        let (asked, posted, dropped) = (send(options.clone()), send(options.clone()), send(options));
        posted.announce_end(1);
        for sent in [&asked, &posted, &dropped] {
            complete(sent, 13, false);
            sent.give_up();
        }
        drop(dropped);
        assert_eq!(failures.look().0, 2);
        asked.note_asked();
        asked.note_asked();
        assert_eq!(failures.look().0, 1);
    }

    #[test]
    fn a_failed_attempt_waits_for_a_decision_and_keeps_its_room() {
        let budget = Arc::new(SendBudget::new(1, 1000));
        let sent = send(SendOptions {
            budget: Some(Arc::clone(&budget)),
            token: Some(7),
            failures_only: true,
            ..Default::default()
        });
        assert_eq!(complete(&sent, 2, false), Some(7));
        assert_eq!((sent.phase(), budget.messages()), (Phase::Failed, 1));
        assert!(sent.wait_attempt(Duration::ZERO) && !sent.wait_over(Duration::ZERO));
        assert!(sent.again(target("broker-b")) && !sent.again(target("broker-b")));
        complete(&sent, 0, false);
        let failures: Vec<_> = sent.attempts().into_iter().map(|attempt| attempt.failure).collect();
        assert!(
            matches!(failures.as_slice(), [SendFailure::Broker { code: 2, .. }, SendFailure::Malformed(_)]),
            "{failures:?}"
        );
        sent.give_up();
        sent.give_up();
        assert_eq!((sent.phase(), budget.messages()), (Phase::GivenUp, 0));
    }

    #[test]
    fn a_less_safely_stored_message_counts_as_stored_without_a_better_place() {
        let sent = send(SendOptions { retry_not_safe: true, ..Default::default() });
        complete(&sent, response::FLUSH_DISK_TIMEOUT, true);
        assert_eq!(sent.phase(), Phase::Failed);
        assert!(sent.again(target("broker-b")));
        complete(&sent, response::SYSTEM_BUSY, false);
        sent.give_up();
        assert!(
            matches!(sent.phase(), Phase::Stored(receipt) if receipt.code == response::FLUSH_DISK_TIMEOUT)
        );
    }
}
